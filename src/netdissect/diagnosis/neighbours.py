"""What the other connections of a capture show of one: whether its client went on from another
port, and whether its server, or the link of that, was to blame. Only all of them together show it.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Iterator, Sequence
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
_NUMBER: Final = _STRIDE - 1
_SPAN: Final = 4
"""Integers of a silence."""


class Neighbours:
    """Connections by their ways and servers: a few integers each, for there may be very many."""

    __slots__ = (
        "_by_frame", "_frames", "_indexed", "_of_server", "_of_way", "_rows", "_silences", "_ways",
    )  # fmt: skip

    def __init__(self) -> None:
        self._frames = array("q")
        """First frame of each connection."""
        self._ways = array("q")
        """What those from one address to one server have in common."""
        self._of_way = array("q")
        """Places in order of way and frame, made when it is asked for."""
        self._rows = array("q")
        """The values of a `_Lasting` each."""
        self._of_server = array("q")
        """Places of rows in order of server and frame, made when it is asked for."""
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
        said = self.said(About.of(report), found)
        return report if said is found else replace(report, diagnosis=said)

    def said(self, about: About, found: Diagnosis) -> Diagnosis:
        """Return a diagnosis that says, too, what the others show; what was said of them before is
        said anew.
        """
        cause, further, way = found.cause, None, found.cause.direction
        if way is None:
            return found
        if cause.confidence == "certain" and cause.what == "silence":
            frame = self._begun(about.way, cause.from_frame or 0, cause.to_frame)
            if frame is None:
                return found
            text = words.gone_on_text(cause.text, frame)
            cause = replace(cause, confidence="likely", text=text)
        others = [other for other in self._beside(about.server) if other.number != about.number]
        if cause.what == "silence":
            heard = [other.number for other in others if self._heard(other, about, cause, way)]
            if heard:
                further = words.heard_meanwhile(way, heard)
                if way and cause.confidence == "cannot tell":
                    cause = replace(cause, text=words.dropped_or_broken(heard))
        else:
            good = [other.number for other in others if _is_good(other, about, way)]
            further = words.lost_nothing(way, good) if good else None
        kept = tuple(text for text in found.ruled_out if not words.is_of_server(text))
        ruled_out = kept if further is None else (*kept, further)
        if cause is found.cause and ruled_out == found.ruled_out:
            return found
        return replace(found, cause=cause, ruled_out=ruled_out)

    def _begun(self, way: int, after: int, before: int | None) -> int | None:
        """Return the first frame of a way's first connection in a span of frames; None where none
        begins there.
        """
        frames, ways = self._frames, self._ways
        if len(self._of_way) != len(ways):
            pairs = sorted(range(len(ways)), key=lambda place: (ways[place], frames[place]))
            self._of_way = array("q", pairs)
        order = self._of_way
        at = bisect_right(order, (way, after), key=lambda place: (ways[place], frames[place]))
        if at == len(order) or ways[order[at]] != way:
            return None
        frame = frames[order[at]]
        return frame if before is None or frame < before else None

    def _beside(self, server: int) -> Iterator[_Lasting]:
        """Yield the first connections of a server that lasted."""
        rows = self._rows
        if len(self._of_server) * _STRIDE != len(rows):
            places = sorted(range(0, len(rows), _STRIDE), key=lambda at: (rows[at], rows[at + 1]))
            self._of_server = array("q", places)
        order = self._of_server
        at = bisect_right(order, (server, 0), key=lambda at: (rows[at], rows[at + 1]))
        for place in order[at : at + MAX_NEIGHBOURS]:
            if rows[place] == server:
                yield _Lasting(*rows[place : place + _STRIDE])

    def _heard(self, other: _Lasting, about: About, cause: Cause, way: int) -> bool:
        """Return whether a side of another connection was heard all through a silence."""
        start_ns, end_ns = cause.from_ns or 0, cause.to_ns or about.last_ns
        if not other.flags & _HEARD[way] or other.first_ns > start_ns or other.last_ns < end_ns:
            return False
        for side, from_ns, to_ns in self._silent().get(other.frame, ()):
            if side == way and from_ns < end_ns and (not to_ns or to_ns > start_ns):
                return False
        return True

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


def _is_good(other: _Lasting, about: About, way: int) -> bool:
    """Return whether another connection, most of the same time, lost next to nothing."""
    common_ns = min(other.last_ns, about.last_ns) - max(other.first_ns, about.first_ns)
    most = 2 * common_ns > about.last_ns - about.first_ns
    return most and bool(other.flags & _GOOD[way])


def _way(report: ConnectionReport) -> int:
    """Return what the connections of a protocol from one address to one server have in common."""
    host = report.client.rpartition(":")[0]
    return _key(f"{report.protocol} {report.transport} {host} {report.server}")


def _key(text: str) -> int:
    """Return 62 bits of two sums, the same in every process: `hash` is another one in each."""
    octets = text.encode()
    return crc32(octets) << 31 | crc32(octets[::-1]) >> 1
