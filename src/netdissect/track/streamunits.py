"""What is remembered of the segments of one direction of a TCP connection.

These are classes, because mypyc creates one in a few instructions, with numbers that are no
objects.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any, Final

from netdissect.model.diagnosis import Burst
from netdissect.model.native import append, i64, vec
from netdissect.model.reports import UnitRecord
from netdissect.track.numbers import LEAST_BURST, MAX_BURSTS
from netdissect.track.ranges import Recent
from netdissect.track.reservoir import RttReservoir
from netdissect.track.totals import SpaceTotals
from netdissect.track.unit import MADE

_ROW: Final = 3
_ID_WRAP: Final = 1 << 16
MAX_SKIPPED: Final = 256
"""A sender that counts the packets of a connection does not skip this many identifications: that
many are rarely lost in a row.
"""
LARGEST_SEGMENT: Final = 1460
"""Bytes of the largest segment of an Ethernet. Larger ones may be several, which the capturing host
has joined or will cut, each with an identification of its own. *Source:* Linux (GRO, TSO).
"""
MAX_IDS_MISSING: Final = 4096
"""Missing identifications remembered; with more, they are not counted."""


class Arrival:
    """A range of bytes seen for the first time."""

    __slots__ = ("end", "frame", "start", "time_ns")

    def __init__(self, start: int, end: int, time_ns: int, frame: int) -> None:
        MADE.count += 1
        self.start = start
        """Offset of the first byte."""
        self.end = end
        """Offset after the last byte."""
        self.time_ns = time_ns
        self.frame = frame


class SentRange:
    """A unit of the stream: a range of bytes first sent together."""

    __slots__ = ("copies", "doubtful", "end", "first_ns", "frame", "last_ns", "record", "start")

    def __init__(
        self, start: int, end: int, time_ns: int, frame: int, record: UnitRecord | None
    ) -> None:
        MADE.count += 1
        self.start = start
        self.end = end
        """Offset after the last byte."""
        self.first_ns = time_ns
        self.frame = frame
        """Time and frame of the first copy."""
        self.last_ns = time_ns
        """Time of the newest one."""
        self.copies = 1
        self.doubtful = False
        """Whether some of it was seen twice, or acknowledged before, so that its round trip is
        ambiguous.
        """
        self.record = record


def sent_before(outstanding: list[SentRange], end: int) -> int:
    """Return when the unit was last sent that holds the byte before an offset; 0 if none does."""
    for unit in reversed(outstanding):
        if unit.start < end:
            return unit.last_ns if end <= unit.end else 0
    return 0


class PendingMessage:
    """A message of the stream that is not acknowledged yet."""

    __slots__ = ("end", "frame", "record", "repeated", "start", "time_ns")

    def __init__(
        self, start: int, end: int, time_ns: int, frame: int, record: UnitRecord | None, *,
        repeated: bool,
    ) -> None:  # fmt: skip
        self.start = start
        self.end = end
        self.time_ns = time_ns
        self.frame = frame
        """Time and frame that completed it."""
        self.record = record
        self.repeated = repeated
        """Whether some of it was sent again, so that its round trip is ambiguous."""


class PacketIds:
    """The IP identifications of one direction: which are missing, if its sender counts the packets
    of each connection. *Source:* Linux (`inet_id` of a socket).
    """

    __slots__ = ("_bursts", "_joined", "_newest", "_taken", "counted", "missing")

    def __init__(self) -> None:
        self._bursts: list[Burst] = []
        """The newest runs of missing ones, including those that came late."""
        self._newest: i64 = 0
        """The newest one, extended beyond 16 bits; 0 = none yet."""
        self._taken: i64 = 1
        """Identifications that the newest packet takes if it is several."""
        self._joined: i64 = 0
        """Large packets that took that many identifications, less those that took only one."""
        self.counted = False
        """Whether each was close to the one before it."""
        self.missing = Recent()

    def take(self, ip_id: i64, octets: i64, since_ns: int, frame: int, time_ns: int) -> None:
        """Process the identification of a packet with so many bytes, which is not 0; the packet
        before it was captured at `since_ns`.
        """
        newest, taken = self._newest, self._taken
        if not newest:
            self._newest = _ID_WRAP + ip_id
            self._taken = _packets(octets)
            self.counted = True
            return
        if not self.counted:
            return
        ahead = (ip_id - newest) & (_ID_WRAP - 1)
        # Behind the newest one: late, and no longer missing.
        if ahead >= _ID_WRAP // 2:
            self.missing.discard(newest + ahead - _ID_WRAP)
            return
        if taken > 1:
            self._joined += 1 if ahead >= taken else -1 if ahead == 1 else 0
            if ahead < taken and self._joined >= 0:
                return  # a network copy of one of them
        gone = ahead - (taken if self._joined >= 0 else 1)
        self._newest = newest + ahead
        self._taken = _packets(octets)
        if gone <= 0:
            return
        # Such an identification belongs to a counter that other connections share, or is random.
        if ahead > MAX_SKIPPED or self.missing.size > MAX_IDS_MISSING:
            self.counted = False
            self.missing = Recent()
            self._bursts = []
            return
        low, end = self._newest - gone, self._newest
        self.missing.add(low, end)
        if gone >= LEAST_BURST:
            if len(self._bursts) == MAX_BURSTS:
                del self._bursts[0]
            self._bursts.append(Burst(gone, since_ns, time_ns, frame, low, end - 1))

    def skipped(self, ip_id: int | None) -> int:
        """Return how many are missing right before a packet; -1 if this is unknown."""
        if not self.counted or not ip_id:
            return -1
        ahead = (ip_id - self._newest) & (_ID_WRAP - 1)
        taken = self._taken if self._joined >= 0 else 1
        return max(0, int(ahead - taken)) if ahead < _ID_WRAP // 2 else 0

    def report(self) -> dict[str, int]:
        """Return how many are missing, if its sender counts them."""
        return {"ids_missing": self.missing.size} if self.counted else {}

    def bursts(self) -> tuple[Burst, ...]:
        """Return the newest runs of missing packets, longest first."""
        counted = [
            replace(each, count=sum(at in self.missing for at in range(each.low, each.high + 1)))
            for each in self._bursts
        ]
        return tuple(sorted(counted, key=lambda burst: -burst.count))


def _packets(octets: i64) -> i64:
    """Return how many segments of an Ethernet have so many bytes."""
    return max(1, (octets + LARGEST_SEGMENT - 1) // LARGEST_SEGMENT)


class SegmentHistory:
    """The newest segments by IP identification and range, to recognise network copies."""

    __slots__ = ("_oldest", "_rows")

    def __init__(self) -> None:
        self._rows = vec[i64]()
        """Rows of three: IP identification (0 = none), offset of the first byte, offset after the
        last.
        """
        self._oldest: i64 = 0
        """Index of the oldest row, once the table is full."""

    def add(self, ip_id: int | None, start: int, end: int, most: int) -> None:
        """Remember a segment; forget the oldest one if there are more than `most`."""
        rows = self._rows
        if len(rows) < _ROW * most:
            self._rows = append(append(append(rows, ip_id or 0), start), end)
            return
        place = self._oldest
        rows[place] = ip_id or 0
        rows[place + 1] = start
        rows[place + 2] = end
        self._oldest = place + _ROW if place + _ROW < len(rows) else 0

    def knows(self, ip_id: int, start: int, end: int) -> bool:
        """Return whether a segment is remembered."""
        rows = self._rows
        place: i64 = 0
        while place < len(rows):
            if rows[place] == ip_id and rows[place + 1] == start and rows[place + 2] == end:
                return True
            place += _ROW
        return False

    def overlapping(self, start: int, end: int) -> int:
        """Return how many segments overlap a range."""
        rows = self._rows
        found = 0
        place: i64 = 0
        while place < len(rows):
            if rows[place + 1] < end and rows[place + 2] > start:
                found += 1
            place += _ROW
        return found

    def is_older(self, start: int, most: int) -> bool:
        """Return whether a segment at this offset may be a forgotten one."""
        rows = self._rows
        return len(rows) >= _ROW * most and start < rows[self._oldest + 1]


@cache
def _no_digest() -> Any:
    """Return an empty digest to copy, because OpenSSL is slow to create one."""
    from hashlib import sha256  # noqa: PLC0415 - loads OpenSSL

    return sha256()


class Messages:
    """The messages of one direction."""

    __slots__ = (
        "acked", "blocked", "blocked_ns", "count", "digest", "end", "gaps", "octets", "repeated",
        "rtt", "settled", "totals", "unacked", "unknown", "waiting",
    )  # fmt: skip

    def __init__(self, totals: SpaceTotals | None) -> None:
        self.totals = totals
        """Counts them instead of recording them; None = nothing counts them."""
        self.count = 0
        self.end = 0
        """Offset after the last message."""
        self.waiting: list[PendingMessage] = []
        self.settled: list[PendingMessage] = []
        """The latest that are acknowledged and recorded: TCP may still retransmit their bytes."""
        self.acked = self.unacked = self.unknown = 0
        self.repeated = self.blocked = 0
        self.blocked_ns = 0
        """Longest time that a message waited for earlier bytes, in ns."""
        self.rtt = RttReservoir()
        self.digest = _no_digest().copy()
        self.octets = 0
        self.gaps = 0
        """Bytes that the capture misses."""

    def left(self) -> None:
        """Forget those whose records were emitted: nothing more is noted in these."""
        settled, place = self.settled, 0
        while place < len(settled) and _is_emitted(settled[place].record):
            place += 1
        del settled[:place]


def _is_emitted(record: UnitRecord | None) -> bool:
    return record is None or record.emitted
