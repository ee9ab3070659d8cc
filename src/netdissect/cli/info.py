"""`netdissect info`: the facts of a capture file."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict
from typing import Any

import click

from netdissect.cli import options
from netdissect.cli.match import Match
from netdissect.cli.output import Look, print_json
from netdissect.cli.selection import select
from netdissect.cli.session import Choices, Session

__all__ = ["command"]


@click.command("info")
@options.capture()
@options.narrowed
@options.facts
def command(
    file: str,
    display_filter: str | None,
    as_json: bool,
    choices: Choices,
    look: Look,
) -> int:
    """Show what a capture file holds: format, times, protocols.

    A display filter does not change the facts of the file; it counts the datagrams (of a
    stream, the messages) that match.

    \b
    netdissect info game.pcap.gz --json
    """
    with Session(file, choices, quiet=look.quiet) as session:
        info = session.reader.info
        protocols, others, flow = _counts(session, Match.compile(display_filter, session))
        if as_json:
            from netdissect.export import json  # noqa: PLC0415

            print_json([json.capture_info(info, protocols, others, flow)])
        else:
            from netdissect.render.catalogs import show_info  # noqa: PLC0415

            show_info(look.screen(), info, protocols, others, flow or {})
        return session.status()


def _counts(
    session: Session, match: Match
) -> tuple[dict[str, tuple[int, int]], int, dict[str, Any] | None]:
    """Return (datagrams, connections) by protocol, how many datagrams are of no known one, and what
    became of the frames below the protocols, which a filter does not tell.
    """
    if match.filter is None:
        found = session.analysis(on_report=lambda _: None)  # they are counted, not collected
        counts = {
            name: (each["datagrams"], each["connections"]) for name, each in found.protocols.items()
        }
        return counts, found.other_datagrams, asdict(found.flow)
    wanted = select(session, match)
    names = Counter(
        report.protocol for report in session.reports if report.connection in wanted.connections
    )
    counts = {
        name: (number, names[name]) for name, number in wanted.datagrams.items() if name is not None
    }
    return counts, wanted.datagrams[None], None
