"""`netdissect man`: manual pages, generated from the commands."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import click

from netdissect._version import __version__
from netdissect.cli.settings import KEYS, PROJECT_NAME
from netdissect.model.errors import did_you_mean
from netdissect.model.text import quoted

_STATUSES = (
    ("0", "success; also Ctrl-C in a live capture, or a closed standard output"),
    ("1", "unexpected failure"),
    ("2", "error in the command line"),
    ("3", "file missing, unreadable or not a capture, or disk full"),
    ("4", "error in a display or capture filter"),
    ("5", "no permission, or no such interface"),
    ("6", "capture cut short (everything before the cut was shown), or packets were dropped"),
    (
        "7",
        "--fail-on matched, verify or diff found differences, or a target of fuzz or replay failed",
    ),
)
_ENVIRONMENT = (
    ("NETDISSECT_UNCONFINED", "1: read captures without the sandbox (see netdissect doctor)"),
    ("NO_COLOR", "if set to anything: no colour"),
    ("PAGER", "the program that shows long output on a terminal, default less; empty or cat: none"),
    ("FORCE_COLOR", "if set to anything: colour even if standard output is not a terminal"),
    ("COLUMNS", "width of the output if --width is not given"),
    ("TERM", "dumb or missing: no pager; dumb: no colour either"),
    ("LESS", "options of less, default FRX"),
    ("HOME", "the home folder"),
    ("XDG_CONFIG_HOME", "folder of configuration files, default ~/.config"),
    ("XDG_CACHE_HOME", "folder of cached data of plug-ins, default ~/.cache"),
    ("TMPDIR", "folder of temporary files, default /tmp"),
    ("SUDO_UID, SUDO_GID", "the caller of sudo, as whom root reads settings and parses packets"),
)
"""Environment variables other than settings, and their effect."""
_FILES = (
    ("~/.config/netdissect/config.toml", "the user's settings (`netdissect config path`)"),
    (PROJECT_NAME, "the project's settings, in the working folder or the nearest folder above it"),
    ("~/.cache/netdissect", "readers generated from the layers of plug-ins; may be deleted"),
)


@click.command("man")
@click.argument("name", metavar="[COMMAND]", required=False)
def command(name: str | None) -> None:
    """Print the manual page of a command.

    \b
    netdissect man timeline | man -l -
    """
    click.echo(page(name), nl=False)


def page(name: str | None) -> str:
    """Return the manual page of a command, or of netdissect itself, in roff.

    Raises:
        click.UsageError: no such command.

    """
    from netdissect.cli import COMMANDS, cli  # noqa: PLC0415 - the group imports this module

    root = click.Context(cli, info_name="netdissect", **cli.context_settings)
    if name is None:
        return "".join(_lines(cli, root, "netdissect", dict(sorted(COMMANDS.items()))))
    found = cli.get_command(root, name)
    if found is None:
        near = did_you_mean(name, COMMANDS)
        raise click.UsageError(f"no command is called {quoted(name)}{near}")
    context = click.Context(found, info_name=name, parent=root)
    return "".join(_lines(found, context, f"netdissect-{name}", {}))


def _lines(
    found: click.Command, context: click.Context, title: str, commands: dict[str, tuple[str, str]]
) -> Iterator[str]:
    # A backspace is click's mark of a block whose lines are not wrapped.
    text = (found.help or "").replace("\b\n", "\b").strip()
    first, _, rest = text.partition("\n\n")
    yield f'.TH "{title.upper()}" "1" "" "netdissect {__version__}" "User Commands"\n'
    yield f".SH NAME\n{title} \\- {_roff(' '.join(first.split()))}\n"
    usage = " ".join(found.collect_usage_pieces(context))
    yield f".SH SYNOPSIS\n.B {_roff(context.command_path)}\n{_roff(usage)}\n"
    blocks = [block.strip() for block in rest.split("\n\n") if block.strip()]
    examples = [block for block in blocks if block.startswith("\b")]
    if len(blocks) > len(examples):
        yield ".SH DESCRIPTION\n"
        yield from map(_paragraph, (block for block in blocks if block not in examples))
    if commands:
        yield ".SH COMMANDS\n"
        for name, (_, meaning) in commands.items():
            yield f".TP\n.BR netdissect\\-{_roff(name)} (1)\n{_roff(meaning)}\n"
    yield ".SH OPTIONS\n"
    for parameter in found.get_params(context):
        record = parameter.get_help_record(context)
        if record is not None:
            yield f".TP\n.B {_roff(record[0])}\n{_roff(record[1])}\n"
    if examples:
        yield ".SH EXAMPLES\n"
        yield from map(_paragraph, examples)
    yield from _list("EXIT STATUS", _STATUSES)
    settings = [(key.environment, key.meaning) for key in KEYS if key.environment]
    yield from _list("ENVIRONMENT", (*settings, *_ENVIRONMENT))
    yield from _list("FILES", _FILES)
    yield ".SH SEE ALSO\n.BR netdissect (1),\n.BR tshark (1),\n.BR tcpdump (1)\n"


def _list(title: str, rows: Iterable[tuple[str, str]]) -> Iterator[str]:
    """Yield a section with a list of terms and their meanings."""
    yield f".SH {title}\n"
    for term, meaning in rows:
        yield f".TP\n.B {_roff(term)}\n{_roff(meaning)}\n"


def _paragraph(block: str) -> str:
    lines = [line.strip() for line in block.splitlines()]
    if lines[0].startswith("\b"):
        lines[0] = lines[0].lstrip("\b").strip()
        body = "\n".join(_roff(line) for line in lines if line)
        return f".PP\n.nf\n{body}\n.fi\n"
    return f".PP\n{_roff(' '.join(lines))}\n"


def _roff(text: str) -> str:
    """Return text escaped for roff."""
    shown = text.replace("\\", "\\e").replace("-", "\\-").replace("\n", " ")
    # At the start of a line, these characters introduce a roff request.
    return "\\&" + shown if shown.startswith((".", "'")) else shown
