"""What a display filter leaves of a capture, read once: for views of units and events."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from netdissect.cli.session import Match, Session
from netdissect.model.records import DatagramRecord, MessageRecord
from netdissect.model.reports import ConnectionEvent, UnitRecord

__all__ = ["Selected", "select"]


@dataclass(slots=True)
class Selected:
    """What a filter left of a capture."""

    items: list[UnitRecord | ConnectionEvent]
    """The timeline of what matches."""
    frames: set[int]
    """Matching frames; of a message of a stream all that it came from."""
    connections: set[int]
    """Numbers of the connections with a matching datagram."""
    datagrams: Counter[str | None]
    """Matching datagrams by protocol; None for those of no known one."""


def select(session: Session, match: Match) -> Selected:
    """Read the capture once and return what of it lies on matching datagrams."""
    found = Selected([], set(), set(), Counter())
    items: list[UnitRecord | ConnectionEvent] = []
    units: set[tuple[int, str, int, int]] = set()
    match.alone(session)
    for item in session.both():
        if not isinstance(item, DatagramRecord):
            items.append(item)
        elif match.datagram(item, session.first_ns):
            found.frames |= {item.frame, *item.frames}
            # A segment of an unknown stream is no datagram, and `info` counts none.
            if item.protocol is not None or item.transport == "udp":
                found.datagrams[item.protocol] += 1
            if item.connection is not None:
                found.connections.add(item.connection)
                units.update(_units(item.connection, item, match.messages(item)))
    # Only now: what acknowledges a unit may match, and comes after it.
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
