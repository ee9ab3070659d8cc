"""`netdissect completion`: the completion script of a shell."""

from __future__ import annotations

import click

_WHERE = {
    "bash": "~/.local/share/bash-completion/completions/netdissect",
    "zsh": "a folder of $fpath, as _netdissect",
    "fish": "~/.config/fish/completions/netdissect.fish",
}


@click.command("completion")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def command(shell: str) -> None:
    """Print the completion script of a shell.

    \b
    netdissect completion bash > ~/.local/share/bash-completion/completions/netdissect
    netdissect completion fish > ~/.config/fish/completions/netdissect.fish
    """
    from click.shell_completion import get_completion_class  # noqa: PLC0415

    from netdissect.cli import (  # noqa: PLC0415 - the group imports this module
        cli,
        complete,  # noqa: F401 - registers its own class for bash
    )

    maker = get_completion_class(shell)
    if maker is None:
        raise click.UsageError(f"no completion for {shell}")
    click.echo(f"# Completion of netdissect for {shell}. Put this file into {_WHERE[shell]}.")
    click.echo(maker(cli, {}, "netdissect", "_NETDISSECT_COMPLETE").source())
