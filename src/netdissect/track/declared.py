"""What the peers state about themselves: their own counts of datagrams, and their clocks.

Neither is trusted: the report gives both beside what the capture shows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from netdissect.track.reservoir import RttReservoir

if TYPE_CHECKING:
    from netdissect.track.lane import Lane

MAX_OFFSET_NS = 1 << 62
"""A clock that differs from the capture's by more than this, in ns (146 years), gives no sample."""


class DeclaredFacts:
    """The statements of both sides of one connection."""

    __slots__ = ("_marks", "clocks", "newest", "received")

    def __init__(self) -> None:
        self._marks = ([0, 0], [0, 0])
        """Side -> datagrams of each direction when that side began its current count."""
        self.clocks = (RttReservoir(), RttReservoir())
        """Direction -> capture time minus the sender's clock, ns."""
        self.received = [0, 0]
        """Side -> datagrams that it claims to have received."""
        self.newest: list[tuple[float, int] | None] = [None, None]
        """Direction -> (newest stamp of its sender in ms, its time in ns)."""

    def tally(
        self, name: str, sent: int, received: int, *, taken: bool, direction: int, lanes: list[Lane]
    ) -> dict[str, Any]:
        """Process the counts that one side states; return them beside those of the capture.

        A side counts from the last statement that it sent or accepted. The sender of the current
        datagram counts it in its next period, the receiver in its current one.
        """
        own, other = lanes[direction], lanes[1 - direction]
        mark = self._marks[direction]
        # Not counting the current datagram: its sender states the counts from before it.
        seen_sent = own.datagrams - 1 - mark[direction]
        seen_received = other.datagrams - mark[1 - direction]
        mark[direction] = own.datagrams - 1
        mark[1 - direction] = other.datagrams
        if taken:
            peer = self._marks[1 - direction]
            peer[direction] = own.datagrams
            peer[1 - direction] = other.datagrams
        self.received[direction] += max(0, received)
        own.add(f"{name}_sent", sent)
        own.add(f"{name}_sent_seen", seen_sent)
        own.add(f"{name}_received", received)
        own.add(f"{name}_received_seen", seen_received)
        return {
            "kind": name,
            "sent": sent,
            "sent_seen": seen_sent,
            "received": received,
            "received_seen": seen_received,
        }

    def restart(self, direction: int, lanes: list[Lane]) -> None:
        """Restart the counts of a side with the current datagram and the one that caused it."""
        self._marks[direction][direction] = lanes[direction].datagrams - 1
        self._marks[direction][1 - direction] = max(0, lanes[1 - direction].datagrams - 1)

    def clock(self, stamp_ms: float, direction: int, time_ns: int, *, fresh: bool) -> None:
        """Process the sender's clock; `fresh`: it was read when the datagram was sent."""
        self.newest[direction] = (stamp_ms, time_ns)
        if not fresh:
            return
        offset = time_ns - int(stamp_ms * 1e6)
        if -MAX_OFFSET_NS < offset < MAX_OFFSET_NS:
            self.clocks[direction].add(offset)
