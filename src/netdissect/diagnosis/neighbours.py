"""What the other connections of a capture show of one: whether its client went on from another
port, and whether its server, or the link of that, was to blame. Only all of them together show it.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import replace
from typing import Final, NamedTuple
from zlib import crc32

from netdissect.diagnosis import words
from netdissect.diagnosis.measures import lost_hardly
from netdissect.model.diagnosis import Cause, Diagnosis
from netdissect.model.reports import ConnectionReport

__all__ = ["About", "Neighbours", "State"]

MAX_NEIGHBOURS: Final = 64
"""Connections of one server that are asked, the first ones."""
_LEAST_NS: Final = 1_000_000_000
"""What a connection lasts that shows anything of another: silences are longer."""
_HEARD: Final = (1, 2)
_GOOD: Final = (4, 8)
"""Flags by direction: it was heard; next to nothing of it was lost."""

State = tuple["array[int]", "array[int]", "array[int]", "array[int]"]


class About(NamedTuple):
    """What of a connection decides what others show of it."""

    number: int
    way: int
    """What those from one address to one server have in common."""
    server: int
    first_ns: int
    last_ns: int

    @classmethod
    def of(cls, report: ConnectionReport) -> About:
        """Take it from a report."""
        times = report.first_time_ns, report.last_time_ns
        return cls(report.connection, _way(report), _key(report.server), *times)


class _Lasting(NamedTuple):
    """What is remembered of a connection that lasted."""

    server: int
    frame: int
    """First frame."""
    first_ns: int
    last_ns: int
    flags: int
    number: int


_STRIDE: Final = len(_Lasting._fields)
_FRAME: Final = 1
_FIRST_NS: Final = 2
_LAST_NS: Final = 3
_FLAGS: Final = 4
_NUMBER: Final = 5
"""Offsets of the values in a row. They are read one by one: to make a `_Lasting` of each row takes
ten times as many instructions.
"""
_SPAN: Final = 4
"""Integers of a silence."""


class Neighbours:
    """Connections by their ways and servers: a few integers each, for there may be very many."""

    __slots__ = (
        "_began", "_by_frame", "_frames", "_indexed", "_of_server", "_of_way", "_rows", "_servers",
        "_silences", "_ways",
    )  # fmt: skip

    def __init__(self) -> None:
        self._frames = array("q")
        """First frame of each connection."""
        self._ways = array("q")
        """What those from one address to one server have in common."""
        self._of_way = array("q")
        """The ways in order of way and first frame, made when it is asked for: a plain array is
        searched in a tenth of the time that a search with a key function takes.
        """
        self._began = array("q")
        """First frame of each connection in that order."""
        self._rows = array("q")
        """The values of a `_Lasting` each."""
        self._of_server = array("q")
        """Places of rows in order of server and frame, made when it is asked for."""
        self._servers = array("q")
        """Server of each place in `_of_server`."""
        self._silences = array("q")
        """First frame of a connection, direction, from and to, ns; to = 0: to the end."""
        self._by_frame: dict[int, list[tuple[int, int, int]]] = {}
        self._indexed = 0
        """So much of the silences is in the index."""

    def add(self, report: ConnectionReport) -> None:
        """Remember a connection."""
        found = report.diagnosis
        asked = found is not None and found.ending.how == "info-only" and all(report.datagrams)
        self._frames.append(report.first_frame)
        self._ways.append(0 if asked else _way(report))
        # Questions and answers are no connection, and say nothing of the time between them.
        if found is None or asked or report.last_time_ns - report.first_time_ns < _LEAST_NS:
            return
        flags = 0
        for way in (0, 1):
            flags |= _HEARD[way] if report.datagrams[way] else 0
            flags |= _GOOD[way] if lost_hardly(found.loss[way]) else 0
        self._rows.extend(_Lasting(
            _key(report.server), report.first_frame, report.first_time_ns, report.last_time_ns,
            flags, report.connection,
        ))  # fmt: skip
        for span in report.quiet:
            if span.kind == "silence":
                self._silences.extend(
                    (report.first_frame, span.direction, span.from_ns, span.to_ns or 0)
                )

    def renumber(self, numbers: Sequence[int]) -> None:
        """Give connection n the number `numbers[n - 1]`."""
        for at in range(_NUMBER, len(self._rows), _STRIDE):
            self._rows[at] = numbers[self._rows[at] - 1]

    def state(self) -> State:
        """Return all that is remembered, for `extend` in another process."""
        return self._frames, self._ways, self._rows, self._silences

    def extend(self, state: State, numbers: Sequence[int]) -> None:
        """Remember what another process does, whose connection n is `numbers[n - 1]` here."""
        frames, ways, rows, silences = state
        self._frames.extend(frames)
        self._ways.extend(ways)
        self._silences.extend(silences)
        for at in range(_NUMBER, len(rows), _STRIDE):
            rows[at] = numbers[rows[at] - 1]
        self._rows.extend(rows)

    @staticmethod
    def concern(found: Diagnosis) -> bool:
        """Return whether other connections may show anything of what happened to one."""
        cause = found.cause
        if cause.what == "silence":
            return cause.direction == 0 or cause.confidence != "certain"
        return cause.what == "loss" and cause.direction is not None

    def told(self, report: ConnectionReport) -> ConnectionReport:
        """Return a report whose diagnosis says, too, what the others show."""
        found = report.diagnosis
        if found is None or not self.concern(found):
            return report
        cause, ruled_out = self.said(About.of(report), found.cause, found.ruled_out)
        if cause is found.cause and ruled_out == found.ruled_out:
            return report
        return replace(report, diagnosis=replace(found, cause=cause, ruled_out=ruled_out))

    def said(
        self, about: About, cause: Cause, ruled_out: tuple[str, ...]
    ) -> tuple[Cause, tuple[str, ...]]:
        """Return the cause of a diagnosis and what it rules out as they are with what the others
        show; what was said of them before is said anew.
        """
        further, way = None, cause.direction
        if way is None:
            return cause, ruled_out
        if cause.confidence == "certain" and cause.what == "silence":
            frame = self._begun(about.way, cause.from_frame or 0, cause.to_frame)
            if frame is None:
                return cause, ruled_out
            text = words.gone_on_text(cause.text, frame)
            cause = replace(cause, confidence="likely", text=text)
        witnesses = self._witnesses(about, cause, way)
        if witnesses and cause.what == "silence":
            further = words.heard_meanwhile(way, witnesses)
            if way and cause.confidence == "cannot tell":
                cause = replace(cause, text=words.dropped_or_broken(witnesses))
        elif witnesses:
            further = words.lost_nothing(way, witnesses)
        kept = tuple(text for text in ruled_out if not words.is_of_server(text))
        return cause, kept if further is None else (*kept, further)

    def _begun(self, way: int, after: int, before: int | None) -> int | None:
        """Return the first frame of a way's first connection in a span of frames; None where none
        begins there.
        """
        if len(self._of_way) != len(self._ways):
            pairs = sorted(zip(self._ways, self._frames, strict=True))
            self._of_way = array("q", [way for way, _ in pairs])
            self._began = array("q", [frame for _, frame in pairs])
        end = bisect_right(self._of_way, way)
        at = bisect_right(self._began, after, bisect_left(self._of_way, way), end)
        if at == end:
            return None
        frame = self._began[at]
        return frame if before is None or frame < before else None

    def _beside(self, server: int) -> list[int]:
        """Return the places of the rows of a server's first connections that lasted."""
        rows, order, servers = self._rows, self._of_server, self._servers
        if len(order) * _STRIDE != len(rows):
            places = sorted(
                range(0, len(rows), _STRIDE), key=lambda at: (rows[at], rows[at + _FRAME])
            )
            order = self._of_server = array("q", places)
            servers = self._servers = array("q", [rows[at] for at in places])
        start = bisect_left(servers, server)
        end = bisect_right(servers, server, start, min(start + MAX_NEIGHBOURS, len(servers)))
        return list(order[start:end])

    def _witnesses(self, about: About, cause: Cause, way: int) -> list[int]:
        """Return the other connections of a server that were heard through a silence, or that lost
        next to nothing where this one lost much.
        """
        rows, found = self._rows, []
        for place in self._beside(about.server):
            if rows[place + _NUMBER] == about.number:
                continue
            if cause.what == "silence":
                shows = self._heard(place, about, cause, way)
            else:
                shows = self._is_good(place, about, way)
            if shows:
                found.append(rows[place + _NUMBER])
        return found

    def _heard(self, place: int, about: About, cause: Cause, way: int) -> bool:
        """Return whether a side of another connection was heard all through a silence."""
        rows = self._rows
        if not rows[place + _FLAGS] & _HEARD[way]:
            return False
        start_ns, end_ns = cause.from_ns or 0, cause.to_ns or about.last_ns
        if rows[place + _FIRST_NS] > start_ns or rows[place + _LAST_NS] < end_ns:
            return False
        for side, from_ns, to_ns in self._silent().get(rows[place + _FRAME], ()):
            if side == way and from_ns < end_ns and (not to_ns or to_ns > start_ns):
                return False
        return True

    def _is_good(self, place: int, about: About, way: int) -> bool:
        """Return whether another connection, most of the same time, lost next to nothing."""
        rows = self._rows
        if not rows[place + _FLAGS] & _GOOD[way]:
            return False
        last_ns = min(rows[place + _LAST_NS], about.last_ns)
        common_ns = last_ns - max(rows[place + _FIRST_NS], about.first_ns)
        return 2 * common_ns > about.last_ns - about.first_ns

    def _silent(self) -> dict[int, list[tuple[int, int, int]]]:
        """Return direction, from and to of the silences by the first frame of their connection."""
        told = self._silences
        if self._indexed != len(told):
            self._indexed = len(told)
            self._by_frame = {}
            for at in range(0, len(told), _SPAN):
                frame, side, from_ns, to_ns = told[at : at + _SPAN]
                self._by_frame.setdefault(frame, []).append((side, from_ns, to_ns))
        return self._by_frame


def _way(report: ConnectionReport) -> int:
    """Return what the connections of a protocol from one address to one server have in common."""
    host = report.client.rpartition(":")[0]
    return _key(f"{report.protocol} {report.transport} {host} {report.server}")


def _key(text: str) -> int:
    """Return 62 bits of two sums, the same in every process: `hash` is another one in each."""
    octets = text.encode()
    return crc32(octets) << 31 | crc32(octets[::-1]) >> 1
