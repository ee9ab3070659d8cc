"""`netdissect new-protocol`: writes the skeleton of a plug-in."""

from __future__ import annotations

from pathlib import Path

import click

from netdissect.cli.complete import FILE


@click.command("new-protocol")
@click.argument("name")
@click.argument("folder", metavar="DIR", type=FILE)
def command(name: str, folder: str) -> None:
    """Write a working plug-in for a protocol NAME into the new folder DIR.

    It has two messages, one sequence space, a fuzz driver, a server, and passing tests.
    docs/plugins.md shows how to turn it into your protocol step by step.

    \b
    netdissect new-protocol mygame mygame-plugin
    pip install -e ./mygame-plugin && python -m pytest mygame-plugin
    """
    from netdissect.lookup import protocol_names  # noqa: PLC0415
    from netdissect.scaffold import new_protocol  # noqa: PLC0415

    for path in new_protocol(name, Path(folder), protocol_names()):
        click.echo(path)
