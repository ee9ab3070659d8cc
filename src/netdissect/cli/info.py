"""`netdissect info`: facts about a capture file."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict
from typing import Any

import click

from netdissect.cli import options
from netdissect.cli.output import Look, print_json
from netdissect.cli.request import Match, Selection
from netdissect.cli.session import Choices, Session


@click.command("info")
@options.capture()
@options.narrowed
@options.facts
def command(
    file: str, display_filter: str | None, as_json: bool, choices: Choices, look: Look
) -> int:
    """Show what a capture file holds: format, times, protocols.

    With a display filter, only matching datagrams (over TCP, messages) are counted; the facts
    about the file stay the same.

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
    """Return the counts of a capture.

    They are (datagrams, connections) by protocol, the datagrams of no known protocol, and the
    counters of the layers below; the last is None with a filter.
    """
    if match.filter is None:
        found = session.analysis(on_report=lambda _: None)  # they are counted, not collected
        counts = {
            name: (each["datagrams"], each["connections"]) for name, each in found.protocols.items()
        }
        return counts, found.other_datagrams, asdict(found.flow)
    datagrams: Counter[str | None] = Counter()
    connections: set[int] = set()
    for record in Selection(session, match).datagrams():
        # Segments of unknown TCP streams are no datagrams.
        if record.protocol is not None or record.transport == "udp":
            datagrams[record.protocol] += 1
        if record.connection is not None:
            connections.add(record.connection)
    names = Counter(
        report.protocol for report in session.reports if report.connection in connections
    )
    counts = {name: (number, names[name]) for name, number in datagrams.items() if name is not None}
    return counts, datagrams[None], None
