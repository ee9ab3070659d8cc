"""What the other connections of a capture show about one.

They show whether a silent client continued from another port, and whether the server as a whole or
its link was at fault. This is known only once all connections are.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import replace
from heapq import merge
from typing import Final, NamedTuple
from zlib import crc32

from netdissect.diagnosis import elsewhere, words
from netdissect.diagnosis.measures import is_lossless
from netdissect.model.diagnosis import Cause, Diagnosis
from netdissect.model.native import append, i64, vec
from netdissect.model.packets import SIDES
from netdissect.model.reports import ConnectionReport

MAX_NEIGHBOURS: Final = 64
"""Connections of a server that are compared with one: the first ones."""
_MIN_LASTED_NS: Final = 1_000_000_000
"""A shorter connection shows nothing about another, as silences are longer."""
_PRESENT: Final = (1, 2)
_LOSSLESS: Final = (4, 8)
"""Flags by direction: packets of it were captured; it lost almost nothing."""

Columns = tuple["array[int]", ...]
State = tuple["array[int]", "array[int]", "array[int]", "array[int]"]
"""Everything that the connections of one process show, to be sent to another."""


class About(NamedTuple):
    """The facts about a connection that decide what others show about it."""

    number: int
    route: int
    """Hash that the connections from one address to one server share."""
    server: int
    """Hash of the server."""
    first_ns: int
    last_ns: int
    near: int
    """Side (0 or 1) next to which the capture was taken; -1 = neither, or unknown."""

    @classmethod
    def of(cls, report: ConnectionReport) -> About:
        """Return the facts about the connection of a report."""
        times = report.first_time_ns, report.last_time_ns
        near = SIDES.index(report.vantage) if report.vantage in SIDES else -1
        return cls(report.connection, _route(report), _hash(report.server), *times, near)


# A row of a connection: hash of the server, first frame, first and last time, flags, number. They
# are machine integers because each silence looks at the rows of up to MAX_NEIGHBOURS others.
_STRIDE: Final = 6
_FRAME: Final = 1
_FIRST_NS: Final = 2
_LAST_NS: Final = 3
_FLAGS: Final = 4
_NUMBER: Final = 5
_SILENCE: Final = 4
"""Integers per silence."""
_BLOCK: Final = 8192
"""Rows that are sorted as objects."""


class Neighbours:
    """All connections, by route and by server: a few integers each, as there may be very many."""

    __slots__ = (
        "_began", "_frames", "_of_frame", "_of_route", "_of_server", "_routes", "_rows", "_servers",
        "_silences",
    )  # fmt: skip

    def __init__(self) -> None:
        self._frames = array("q")
        """First frame of each connection."""
        self._routes = array("q")
        """Route of each connection; 0 for mere requests for information."""
        self._of_route = array("q")
        """The routes in order of route and first frame, built on demand. A plain array is searched
        in a tenth of the time that a search with a key function takes.
        """
        self._began = array("q")
        """First frame of each connection in that order."""
        self._rows = vec[i64]()
        """A row per connection of some duration."""
        self._of_server = array("q")
        """Indices of rows in order of server and first frame, built on demand."""
        self._servers = array("q")
        """Server of each row in that order."""
        self._silences = array("q")
        """Per silence: first frame of its connection, direction, from, to (0: to the end), ns."""
        self._of_frame: Columns = (array("q"),) * _SILENCE
        """The same in columns, in order of frame, built on demand."""

    def add(self, report: ConnectionReport) -> None:
        """Remember a connection."""
        found = report.diagnosis
        info_only = found is not None and found.ending.how == "info-only" and all(report.datagrams)
        self._frames.append(report.first_frame)
        self._routes.append(0 if info_only else _route(report))
        lasted_ns = report.last_time_ns - report.first_time_ns
        # Requests for information say nothing about the time between them.
        if found is None or info_only or lasted_ns < _MIN_LASTED_NS:
            return
        flags = 0
        for way in (0, 1):
            flags |= _PRESENT[way] if report.datagrams[way] else 0
            flags |= _LOSSLESS[way] if is_lossless(found.loss[way]) else 0
        rows = append(self._rows, _hash(report.server))
        rows = append(rows, report.first_frame)
        rows = append(rows, report.first_time_ns)
        rows = append(rows, report.last_time_ns)
        rows = append(rows, flags)
        self._rows = append(rows, report.connection)
        for span in report.quiet:
            if span.kind == "silence":
                self._silences.extend(
                    (report.first_frame, span.direction, span.from_ns, span.to_ns or 0)
                )

    def renumber(self, numbers: Sequence[int]) -> None:
        """Give connection n the number `numbers[n - 1]`."""
        rows = self._rows
        for at in range(_NUMBER, len(rows), _STRIDE):
            rows[at] = numbers[rows[at] - 1]

    def state(self) -> State:
        """Return everything, for `extend` in another process."""
        rows = array("q", [self._rows[at] for at in range(len(self._rows))])
        return self._frames, self._routes, rows, self._silences

    def extend(self, state: State, numbers: Sequence[int]) -> None:
        """Add the state of another process, whose connection n is `numbers[n - 1]` here."""
        frames, routes, rows, silences = state
        self._frames.extend(frames)
        self._routes.extend(routes)
        self._silences.extend(silences)
        for at, value in enumerate(rows):
            known = numbers[value - 1] if at % _STRIDE == _NUMBER else value
            self._rows = append(self._rows, known)

    @staticmethod
    def concern(found: Diagnosis) -> bool:
        """Return whether other connections can show anything about a diagnosis."""
        cause = found.cause
        return cause.what in ("silence", "loss") and cause.direction is not None

    def apply(self, report: ConnectionReport) -> ConnectionReport:
        """Return a report whose diagnosis includes what the others show."""
        found = report.diagnosis
        if found is None or not self.concern(found):
            return report
        cause, ruled_out = self.revise(About.of(report), found.cause, found.ruled_out)
        if cause is found.cause and ruled_out == found.ruled_out:
            return report
        return replace(report, diagnosis=replace(found, cause=cause, ruled_out=ruled_out))

    def revise(
        self, about: About, cause: Cause, ruled_out: tuple[str, ...]
    ) -> tuple[Cause, tuple[str, ...]]:
        """Return the cause of a diagnosis and what it rules out, as the others show them.

        What others showed before, and was included then, is replaced.
        """
        excluded, way = None, cause.direction
        if way is None:
            return cause, ruled_out
        if cause.what == "silence" and not way:
            frame = self._first_on_route(about.route, cause.from_frame or 0, cause.to_frame)
            if frame is not None:
                cause = replace(cause, text=elsewhere.may_have_moved(cause.text, frame))
        witnesses = self._witnesses(about, cause, way)
        if witnesses and cause.what == "silence":
            excluded = elsewhere.sent_meanwhile(way, witnesses)
            if way and cause.confidence == "cannot tell" and about.near != way:
                cause = replace(cause, text=elsewhere.dropped_or_broken(witnesses))
        elif witnesses:
            excluded = elsewhere.lost_little(way, witnesses)
            cause = replace(cause, text=cause.text.removesuffix(words.WHOSE_LINK))
        kept = tuple(text for text in ruled_out if not elsewhere.is_of_server(text))
        return cause, kept if excluded is None else (*kept, excluded)

    def _first_on_route(self, route: int, after: int, before: int | None) -> int | None:
        """Return the first frame of the first connection on a route that begins between two frames;
        None if there is none.
        """
        if len(self._of_route) != len(self._routes):
            self._of_route, self._began = _sorted((self._routes, self._frames))
        end = bisect_right(self._of_route, route)
        at = bisect_right(self._began, after, bisect_left(self._of_route, route), end)
        if at == end:
            return None
        frame = self._began[at]
        return frame if before is None or frame < before else None

    def _rows_of(self, server: int) -> list[int]:
        """Return the indices of the rows of a server's first connections."""
        rows, order, servers = self._rows, self._of_server, self._servers
        if len(order) * _STRIDE != len(rows):
            places = array("q", range(0, len(rows), _STRIDE))
            theirs = array("q", (rows[at] for at in places))
            frames = array("q", (rows[at + _FRAME] for at in places))
            servers, _, order = _sorted((theirs, frames, places))
            self._servers, self._of_server = servers, order
        start = bisect_left(servers, server)
        end = bisect_right(servers, server, start, min(start + MAX_NEIGHBOURS, len(servers)))
        return list(order[start:end])

    def _witnesses(self, about: About, cause: Cause, way: int) -> list[int]:
        """Return the other connections of a server that were present throughout a silence, or that
        lost almost nothing while this one lost much.
        """
        rows = self._rows
        found: list[int] = []
        number: i64 = about.number
        start_ns, end_ns = cause.from_ns or 0, cause.to_ns or about.last_ns
        for place in self._rows_of(about.server):
            if rows[place + _NUMBER] == number:
                continue
            if cause.what == "silence":
                shows = self._kept_sending(place, way, start_ns, end_ns)
            else:
                shows = self._was_lossless(place, about, way)
            if shows:
                found.append(rows[place + _NUMBER])
        return found

    def _kept_sending(self, place: i64, way: int, start_ns: i64, end_ns: i64) -> bool:
        """Return whether a side of another connection was present throughout a silence."""
        rows = self._rows
        if not rows[place + _FLAGS] & _PRESENT[way]:
            return False
        if rows[place + _FIRST_NS] > start_ns or rows[place + _LAST_NS] < end_ns:
            return False
        frames, sides, begins, ends = self._silences_in_order()
        frame = rows[place + _FRAME]
        for at in range(bisect_left(frames, frame), bisect_right(frames, frame)):
            if sides[at] == way and begins[at] < end_ns and (not ends[at] or ends[at] > start_ns):
                return False
        return True

    def _was_lossless(self, place: i64, about: About, way: int) -> bool:
        """Return whether another connection overlaps most of this one and lost almost nothing."""
        rows = self._rows
        if not rows[place + _FLAGS] & _LOSSLESS[way]:
            return False
        last_ns = min(rows[place + _LAST_NS], about.last_ns)
        common_ns = last_ns - max(rows[place + _FIRST_NS], about.first_ns)
        return 2 * common_ns > about.last_ns - about.first_ns

    def _silences_in_order(self) -> Columns:
        """Return (first frame of the connection, direction, from, to) of all silences."""
        silences = self._silences
        if len(self._of_frame[0]) * _SILENCE != len(silences):
            self._of_frame = _sorted(tuple(silences[at::_SILENCE] for at in range(_SILENCE)))
        return self._of_frame


def _sorted(columns: Columns) -> Columns:
    """Return columns with their rows in order. As objects, half a million of rows would take 70 MB,
    so they are sorted in blocks, which are then merged.
    """
    blocks = []
    for start in range(0, len(columns[0]), _BLOCK):
        rows = sorted(zip(*(column[start : start + _BLOCK] for column in columns), strict=True))
        blocks.append(tuple(array("q", column) for column in zip(*rows, strict=True)))
    if len(blocks) == 1:
        return blocks[0]
    found = tuple(array("q") for _ in columns)
    for row in merge(*(zip(*block, strict=True) for block in blocks)):
        for column, value in zip(found, row, strict=True):
            column.append(value)
    return found


def _route(report: ConnectionReport) -> int:
    """Return a hash of protocol, client address without port, and server."""
    host = report.client.rpartition(":")[0]
    return _hash(f"{report.protocol} {report.transport} {host} {report.server}")


def _hash(text: str) -> int:
    """Return a hash of 62 bits that is the same in every process, unlike the builtin."""
    octets = text.encode()
    high: i64 = crc32(octets)
    low: i64 = crc32(octets[::-1])
    return high << 31 | low >> 1
