"""`netdissect verify`: compares netdissect's decoding with tshark's."""

from __future__ import annotations

from collections import deque

import click

from netdissect.cli import options
from netdissect.cli.errors import EXIT
from netdissect.cli.output import Look, print_json
from netdissect.cli.request import Match, Selection
from netdissect.cli.session import Session
from netdissect.model.errors import CaptureFileError
from netdissect.system.interrupt import at_once


@click.command("verify")
@options.capture()
@options.narrowed
@options.json_output
@options.screen
def command(file: str, display_filter: str | None, as_json: bool, look: Look) -> int:
    """Compare frames, addresses, lengths, TCP facts and kNet's fields with those of tshark.

    Exits with status 7 if they differ.

    \b
    netdissect verify game.pcap && echo agreed
    """
    from netdissect.export import json  # noqa: PLC0415
    from netdissect.render.catalogs import show_comparison  # noqa: PLC0415
    from netdissect.verify import compare  # noqa: PLC0415

    with Session(file, quiet=look.quiet) as session:
        # Read to the end first, to know the length of the file and whether it is cut short.
        deque(session.reader, maxlen=0)
        least = session.reader.info.frames
        with at_once():
            result = compare(file, frames=_frames(file, display_filter, least), least=least)
        if as_json:
            print_json(json.difference(item) for item in result.differences)
        else:
            show_comparison(look.screen(), result.compared, result.facts, result.differences)
        status = session.status()
    return EXIT.FOUND if any(not item.known for item in result.differences) else status


def _frames(file: str, display_filter: str | None, least: int) -> set[int] | None:
    """Return the frames that match a filter; None = all. `least`: as for `compare`."""
    if display_filter is None:
        return None
    with Session(file, quiet=True) as session:
        found = Selection(session, Match.compile(display_filter, session)).datagrams()
        frames = {frame for record in found for frame in (record.frame, *record.frames)}
        for fault in session.faults() if session.frames_of_all_passes() < least else ():
            raise CaptureFileError(fault)
        return frames
