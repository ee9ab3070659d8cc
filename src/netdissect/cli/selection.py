"""Applies a display filter to a capture, for commands that show units, events or counts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from netdissect.cli.match import Match
from netdissect.cli.session import Session
from netdissect.model.records import DatagramRecord, MessageRecord
from netdissect.model.reports import ConnectionEvent, UnitRecord


@dataclass(slots=True)
class Selected:
    """The part of a capture that matches a filter."""

    items: list[UnitRecord | ConnectionEvent]
    """Units and events of matching datagrams, in time order."""
    frames: set[int]
    """Matching frames; for a message of a TCP stream, every frame that carried part of it."""
    connections: set[int]
    """Numbers of the connections with a matching datagram."""
    datagrams: Counter[str | None]
    """Number of matching datagrams by protocol; None = no known protocol."""


def select(session: Session, match: Match) -> Selected:
    """Read the capture once and return everything that belongs to matching datagrams."""
    found = Selected([], set(), set(), Counter())
    items: list[UnitRecord | ConnectionEvent] = []
    units: set[tuple[int, str, int, int]] = set()
    match.restrict(session)
    for item in session.records_and_timeline():
        if not isinstance(item, DatagramRecord):
            items.append(item)
        elif match.datagram(item, session.first_ns):
            found.frames |= {item.frame, *item.frames}
            # Like `info`, do not count segments of unknown TCP streams as datagrams.
            if item.protocol is not None or item.transport == "udp":
                found.datagrams[item.protocol] += 1
            if item.connection is not None:
                found.connections.add(item.connection)
                units.update(_units(item.connection, item, match.messages(item)))
    # Selected last: a unit also matches through its acknowledgement, which comes later.
    found.items += (item for item in items if _kept(item, found.frames, units))
    return found


def _units(
    connection: int, record: DatagramRecord, messages: list[MessageRecord]
) -> Iterator[tuple[int, str, int, int]]:
    for message in messages:
        facts = message.reliability
        if facts is not None:
            yield connection, facts.space, record.direction or 0, facts.seq


def _kept(
    item: UnitRecord | ConnectionEvent, frames: set[int], units: set[tuple[int, str, int, int]]
) -> bool:
    if isinstance(item, UnitRecord):
        return (item.connection, item.space, item.direction, item.seq) in units
    return item.frame in frames
