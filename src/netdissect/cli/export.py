"""`netdissect export`: writes results for other tools."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

from netdissect.cli import options
from netdissect.cli.complete import FILE
from netdissect.cli.errors import EXIT
from netdissect.cli.output import Look, open_to_write, refuse_input_as_output, summarise
from netdissect.cli.session import Choices, Session
from netdissect.cli.spans import no_such_connection
from netdissect.export.qlog import FLAVOURS, qlog
from netdissect.model.errors import UsageError
from netdissect.model.text import quoted

if TYPE_CHECKING:
    from netdissect.model.records import FrameNote
    from netdissect.pipeline.reports import Reports

_LUA, _ALL = "lua", "all"
_TWICE = "export reads the capture twice: name a file instead of `-`"


@click.command("export")
@options.capture(second=True)
@click.option(
    "--pcapng-notes",
    "notes",
    metavar="FILE",
    type=FILE,
    help="Write the same frames as pcapng, each with a comment that Wireshark shows.",
)
@click.option(
    "--qlog",
    "qlog_file",
    metavar="FILE",
    type=FILE,
    help="Write one connection as qlog, one JSON record per line (.sqlog); `-` is standard output.",
)
@click.option(
    "--qlog-flavour",
    "flavour",
    type=click.Choice(FLAVOURS),
    default=FLAVOURS[0],
    help="The current draft with names of our own, or the names that qvis understands.",
)
@click.option(
    "--connection", type=options.COUNT, metavar="N", help="The connection that --qlog writes."
)
@click.option(
    "-o", "--output", metavar="FILE", type=FILE, help="File for `lua`; default: standard output."
)
@options.secrets
@options.analysis
@options.screen
def command(
    file: str,
    second: str | None,
    notes: str | None,
    qlog_file: str | None,
    flavour: str,
    connection: int | None,
    output: str | None,
    secrets: bool | None,
    choices: Choices,
    look: Look,
) -> int:
    """Write results for other tools: annotated pcapng, qlog, Wireshark dissectors.

    With --pcapng-notes, frames, times, interfaces and options stay as they are. Comments say
    which message a frame carries, which frame it retransmits, and what was found. Names of
    endpoints, from the settings or of the only player at an address, are written to a name
    resolution block.

    \b
    netdissect export game.pcap --pcapng-notes noted.pcapng
    tshark -r noted.pcapng -T fields -e frame.number -e frame.comment

    `export lua PROTOCOL`, or `all`, writes dissectors for Wireshark 4 instead.

    \b
    netdissect export lua all -o ~/.local/lib/wireshark/plugins/netdissect.lua
    """
    if file == _LUA:
        if notes is not None or qlog_file is not None or connection is not None:
            raise UsageError("export lua reads no capture: its only option is -o FILE")
        return _lua(second, output)
    if second is not None:
        raise UsageError(f"export reads one capture; {quoted(second)} is one too many")
    if file == "-":
        raise UsageError(_TWICE)
    if notes is None and qlog_file is not None:
        session = Session(file, choices, quiet=True)
        return _qlog(session, qlog_file, flavour, connection, quiet=look.quiet)
    if notes is None or qlog_file is not None:
        raise UsageError("give either --pcapng-notes FILE or --qlog FILE")
    if connection is not None:
        raise UsageError("--connection needs --qlog: --pcapng-notes writes the whole capture")
    refuse_input_as_output(notes, [file])
    from netdissect.capture.blocks import BlockReader  # noqa: PLC0415
    from netdissect.edit import annotate  # noqa: PLC0415

    with Session(file, choices, quiet=True) as session, BlockReader(file) as reader:
        names = _names(session)
        written, noted = annotate(reader, notes, _notes(session, secrets=bool(secrets)), names)
    text = f"{written:,} frames written to {notes}, {noted:,} with a comment"
    session.quiet = look.quiet
    return summarise(text, [reader], quiet=look.quiet) or session.status()


def _lua(protocol: str | None, output: str | None) -> int:
    """Write the dissectors of one protocol, or of all."""
    from netdissect import lookup  # noqa: PLC0415

    if protocol is None:
        known = ", ".join(lookup.protocol_names())
        raise UsageError(f"export lua needs {known} or `all` (for a file of that name: ./lua)")
    text = lookup.wireshark_script(lookup.own_protocols() if protocol == _ALL else [protocol])
    with open_to_write("-" if output is None else output) as target:
        target.write(text)
    return EXIT.DONE


def _qlog(
    session: Session, target: str, flavour: str, number: int | None, *, quiet: bool
) -> int:
    """Write one connection as qlog."""
    refuse_input_as_output(target, [session.file])
    with session:
        reports = _first_look(session)
        if number is None and len(reports) > 1:
            raise UsageError(
                f"a qlog file holds one connection, and there are {len(reports):,}: --connection N"
            )
        report = reports.by_number(number or 1)
        if report is None:
            raise no_such_connection(number or 1, reports)
        with open_to_write(target) as out:
            for line in qlog(session.records_and_timeline(), report, flavour):
                out.write(line)
        session.quiet = quiet
        return session.status()


def _first_look(session: Session) -> Reports:
    reports = session.first_look()
    if reports is None:
        raise UsageError(_TWICE)
    return reports


def _notes(session: Session, *, secrets: bool) -> Iterator[FrameNote]:
    from netdissect.edit.notes import MAX_COMMENTS  # noqa: PLC0415
    from netdissect.pipeline.passwords import mask_passwords  # noqa: PLC0415
    from netdissect.render.read import frame_notes  # noqa: PLC0415

    session.most = MAX_COMMENTS + 1
    records = session.records()
    return frame_notes(records if secrets else map(mask_passwords, records))


def _names(session: Session) -> dict[str, str]:
    """Return address -> name, from the settings and from the names of players."""
    from netdissect.cli.settings import in_force  # noqa: PLC0415

    found: dict[str, set[str]] = {}
    for report in _first_look(session):
        name = report.identity.get("name")
        if isinstance(name, str) and name:
            found.setdefault(_address(report.client), set()).add(name)
    # An address that several players share gets none of their names.
    names = {address: given.pop() for address, given in found.items() if len(given) == 1}
    ends = Counter(_address(end) for end in in_force()["endpoints"])
    for end, name in in_force()["endpoints"].items():
        if ends[_address(end)] == 1:
            names[_address(end)] = name
    # Host names contain no spaces.
    return {address: "-".join(name.split()) for address, name in names.items()}


def _address(end: str) -> str:
    """Return the address of `10.0.0.1:80`, `[::1]:80`, or an address without a port."""
    if end.startswith("["):
        return end[1:].partition("]")[0]
    return end.rpartition(":")[0] if end.count(":") == 1 else end
