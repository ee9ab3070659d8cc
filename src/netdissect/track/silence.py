"""Spans in which a side was not heard though it should have been, and spans in which what a side
sent was not answered though its peer went on speaking.

A side should be heard by timers of its own, and because it was asked: each unit that wants an
acknowledgement and each probe is a question, and so is each further copy of it.
"""

from __future__ import annotations

from typing import Final

from netdissect.model.native import i64, mypyc_attr
from netdissect.model.reports import QuietSpan
from netdissect.track.ackstats import PAUSE_NS
from netdissect.track.findings import Findings
from netdissect.track.lane import Lane, slowest_ms
from netdissect.track.stream import StreamTrack

__all__ = ["MAX_SPANS", "Lifetime", "SilenceDetector"]

MAX_SPANS = 64
"""Spans kept per connection; further ones are counted only."""
LATE_PERIODS: Final = 4
"""A side that keeps quiet for so many times its longest pause was not heard when it should be."""
SILENT_PERIODS: Final = 3
"""The same where the capture ends before it is heard again."""
BUSY_PERIODS: Final = 2
"""The same of a side that usually speaks so often that its pauses are rare ..."""
BUSY_RATE: Final = 20
"""... which is so many times in its longest pause, ..."""
BUSY_DATAGRAMS: Final = 50
"""... after it has spoken so often."""
GONE: Final = 3
"""Numbers in a row that are missing after a pause from which on it was a silence."""
ASKED: Final = 2
"""Questions without an answer from which on a side counts as silent, where it had time for one ...
"""
MANY_ASKED: Final = 12
"""... and whatever time beyond a pause; and from which on where the capture misses frames."""
PLEAS: Final = 3
"""Times that a side asks to begin, after it was answered, from which on no answer reached it."""
AT_ONCE_NS: Final = 20_000_000
"""What follows within this time of a question is part of it."""
TAIL_NS: Final = 400_000_000
"""What is not answered for less, when the capture ends, may still be."""
PATIENCE_NS: Final = 2_000_000_000
"""An answer is waited for at least so long, for a program may be busy, ..."""
HEARD_PATIENCE_NS: Final = 1_500_000_000
"""... so long where its program goes on speaking, ..."""
PATIENT_TRIPS: Final = 2
"""... and so many times the longest usual round trip."""
_MS: Final = 1_000_000


@mypyc_attr(acyclic=True)
class Lifetime:
    """When a connection began, was open and ended; 0 = not yet."""

    __slots__ = ("first_frame", "first_ns", "open_ns", "over_ns")

    def __init__(self) -> None:
        self.first_frame = self.first_ns = self.open_ns = self.over_ns = 0

    def begin(self, frame: int, time_ns: int) -> bool:
        """Take a packet; return True for the first one."""
        if self.first_frame:
            return False
        self.first_frame, self.first_ns = frame, time_ns
        return True


class SilenceDetector:
    """The quiet spans of one connection."""

    __slots__ = (
        "_findings", "_lanes", "_lifetime", "_over_tcp", "_pauses", "_plea_ns", "_pleas", "spans",
        "stream",
    )  # fmt: skip

    def __init__(
        self, lanes: list[Lane], lifetime: Lifetime, findings: Findings, *, over_tcp: bool
    ) -> None:
        """Judge the lanes of a connection; `over_tcp`: TCP brings what they hold."""
        self._findings = findings
        self._lanes = lanes
        self._lifetime = lifetime
        self._over_tcp = over_tcp
        self.stream: StreamTrack | None = None
        """What the TCP connection did, where that is followed."""
        self.spans: list[QuietSpan] = []
        self._pauses: list[tuple[int, tuple[int, int], tuple[int, int]]] = []
        """(side, time and frame before, time and frame after) of pauses that nobody's timer, and
        no question, makes a silence.
        """
        self._plea_ns = 0
        """When a side last asked to begin; 0 = it has not."""
        self._pleas = 0
        """How often it did so again though it had been answered."""

    # -- silence -----------------------------------------------------------------------------------

    def resumed(self, side: int, frame: int, time_ns: int, since: tuple[int, int]) -> None:
        """Judge the pause of a side that speaks again; `since`: time and frame before it."""
        since_ns, since_frame = since
        basis = self._expected(side, since_ns, time_ns, LATE_PERIODS)
        if basis is not None:
            self._add("silence", side, (since_ns, since_frame), (time_ns, frame), basis)
        elif len(self._pauses) < MAX_SPANS and not self._lifetime.over_ns:
            self._pauses.append((side, since, (time_ns, frame)))

    def end(self, end_ns: int) -> tuple[bool, bool]:
        """Judge how connection and capture end: whether (client, server) is silent then."""
        silent = [False, False]
        self._check_missing_numbers()
        end_ns = self._lifetime.over_ns or end_ns
        for side in (0, 1):
            last_ns, last_frame = self._last(side)
            if not last_ns:
                if self._findings.misses:
                    continue  # it was there, and the capture has nothing of it
                last_ns, last_frame = self._lifetime.first_ns, self._lifetime.first_frame
            basis = self._expected(side, last_ns, end_ns, SILENT_PERIODS)
            if basis is not None:
                silent[side] = True
                self._add("silence", side, (last_ns, last_frame), (None, None), basis)
        for side in (0, 1):
            if not self._only_asked_to_begin(1 - side):
                self._check_one_way(side, min(end_ns, self._last(1 - side)[0]), None)
        return silent[0], silent[1]

    def _check_missing_numbers(self) -> None:
        """Note the pauses of sides that went on sending: numbers are missing after them."""
        if self._findings.misses:
            return
        for side, since, until in self._pauses:
            gone = any(
                # Of numbers that were missing before the last packet the pause shows nothing.
                burst.count >= GONE and burst.from_ns == since[0] and burst.to_ns >= until[0]
                for space in self._lanes[side].spaces.values()
                for burst in space.numbers.bursts
            )
            if gone:
                self._add("silence", side, since, until, ("numbers", 0))

    def retract(self, side: int, since_ns: int) -> None:
        """Take back that a side is silent at the end, from `since_ns` on: it had ended."""
        self.spans = [
            span
            for span in self.spans
            if span.kind != "silence"
            or span.direction != side
            or span.to_ns is not None
            or span.from_ns < since_ns
        ]

    # -- answers that do not come ------------------------------------------------------------------

    def pleads(self, side: int, time_ns: int) -> None:
        """Take that a side asks to begin."""
        if 0 < self._plea_ns < self._lanes[1 - side].last_ns:
            self._pleas += 1
        self._plea_ns = time_ns

    def _only_asked_to_begin(self, side: int) -> bool:
        """Note that a side did nothing but ask to begin, again and again, though it was answered:
        the answers did not come, and it was not silent between its questions. Return whether so.
        """
        lane, life = self._lanes[side], self._lifetime
        asks_on = self._pleas >= PLEAS and self._plea_ns - life.first_ns > HEARD_PATIENCE_NS
        # A goodbye may follow.
        if not asks_on or lane.datagrams > self._pleas + 2 or not self._lanes[1 - side].datagrams:
            return False
        self.spans = [span for span in self.spans if span.direction != side]
        since = life.first_ns, life.first_frame
        self._add("one-way", 1 - side, since, (None, None), ("asked", self._pleas))
        return True

    # -- what is not answered ----------------------------------------------------------------------

    def answered(self, side: int, sent_ns: int, frame: int) -> None:
        """Take that something of a side, sent at `sent_ns`, is answered in `frame`, the first of
        its kind for longer than a pause: judge what the side sent before.
        """
        self._check_one_way(side, sent_ns, frame)

    def _check_one_way(self, side: int, until_ns: int, frame: int | None) -> None:
        """Judge whether a side sent in vain before `until_ns`; `frame` None = to the end."""
        since_ns = self._last_answered(side)
        if until_ns - since_ns <= PAUSE_NS or (self._lifetime.over_ns and frame is not None):
            return
        if self._over_tcp and self.stream is None:
            return  # what TCP carries arrives
        asked = self._asked(side, since_ns, until_ns - 1)
        if len(asked) < self._questions_needed():
            return
        patient_ns = self._answer_wait_ns(HEARD_PATIENCE_NS)
        if until_ns - min(asked) <= patient_ns:
            return
        first_ns = min(asked)
        if self._silent(1 - side, first_ns, first_ns + patient_ns) or self._loses_most(1 - side):
            return  # it is the other direction that was not heard
        to_ns = None if frame is None else until_ns
        self._add("one-way", side, (since_ns, None), (to_ns, frame), ("asked", len(asked)))

    def _loses_most(self, side: int) -> bool:
        """Return whether most of what a side sends is lost on its way here, its answers as well."""
        known = [space.so_far() for space in self._lanes[side].spaces.values()]
        return not self._findings.misses and any(part.never_seen > part.units for part in known)

    def _silent(self, side: int, from_ns: int, to_ns: int) -> bool:
        """Return whether a side fell silent before a moment, and was so after an earlier one."""
        return any(
            span.kind == "silence"
            and span.direction == side
            and span.from_ns < to_ns
            and (span.to_ns is None or span.to_ns > from_ns)
            for span in self.spans
        )

    def _add(
        self, kind: str, side: int, since: tuple[int, int | None],
        until: tuple[int | None, int | None], basis: tuple[str, int],
    ) -> None:  # fmt: skip
        if len(self.spans) >= MAX_SPANS:
            self._lanes[side].hit("MAX_SPANS")
            return
        spaces = self._lanes[side].spaces.values()
        before = tuple([space.so_far() for space in spaces if space.numbers.seen])
        self.spans.append(QuietSpan(
            kind, side, since[0], since[1], until[0], until[1], basis[0], basis[1], before,
        ))  # fmt: skip

    def _last(self, side: int) -> tuple[int, int]:
        """Return (time, frame) of the last packet of a side."""
        lane = self._lanes[side]
        if self.stream is not None:
            half = self.stream.halves[side]
            if half.last_ns > lane.last_ns:
                return half.last_ns, half.last_frame
        return lane.last_ns, lane.last_frame

    def _expected(
        self, side: int, since_ns: int, until_ns: int, periods: int
    ) -> tuple[str, int] | None:
        """Return why a side should have been heard between two moments: (basis, questions)."""
        pause_ns = until_ns - since_ns
        if pause_ns <= TAIL_NS or pause_ns <= self._shortest_silence_ns(periods):
            return None
        if 0 < self._lifetime.over_ns < until_ns:
            return None
        asked = self._asked(1 - side, since_ns, until_ns)
        alive_ms = self._lanes[side].policy.alive_ms[side]
        for track in self._lanes[side].probes.values() if alive_ms is None else ():
            alive_ms = alive_ms or track.regular_ms()
        if alive_ms is not None and self._lanes[side].datagrams and self._lifetime.open_ns:
            # Its timers run from when the connection is open.
            idle_ns = until_ns - max(since_ns, self._lifetime.open_ns)
            if self._is_busy(side, since_ns, alive_ms):
                periods = BUSY_PERIODS
            if idle_ns > int(periods * alive_ms * _MS) and not self._findings.misses:
                return "timer", len(asked)
        count = len(asked)
        if count >= MANY_ASKED:
            return "asked", count
        if count < self._questions_needed():
            return None
        waited_ns = until_ns - min(asked)
        return ("asked", count) if waited_ns > self._answer_wait_ns(PATIENCE_NS) else None

    def _shortest_silence_ns(self, periods: int) -> int:
        """Return how long a pause is at most that shows nothing; one that lasts to the end may be
        cut short.
        """
        if periods != SILENT_PERIODS:
            return PAUSE_NS
        slow = slowest_ms(self._lanes, TAIL_NS // PATIENT_TRIPS)
        return min(PAUSE_NS, max(TAIL_NS, int(PATIENT_TRIPS * slow * _MS)))

    def _is_busy(self, side: int, since_ns: int, alive_ms: float) -> bool:
        """Return whether a side usually speaks so often that its pauses are rare."""
        count = self._lanes[side].datagrams
        each_ms = (since_ns - self._lifetime.first_ns) / _MS / max(1, count)
        return count >= BUSY_DATAGRAMS and BUSY_RATE * each_ms <= alive_ms

    def _questions_needed(self) -> int:
        """Return from how many questions without an answer on a side is not heard."""
        return MANY_ASKED if self._findings.misses else ASKED

    def _answer_wait_ns(self, least_ns: int) -> int:
        """Return how long an answer is waited for."""
        slow = slowest_ms(self._lanes, least_ns // PATIENT_TRIPS)
        return max(least_ns, int(PATIENT_TRIPS * slow * _MS))

    def _last_answered(self, side: int) -> int:
        """Return when that was sent of a side's newest that is answered."""
        lane = self._lanes[side]
        newest = self._lifetime.first_ns
        for space in lane.spaces.values():
            newest = max(newest, int(space.ack_stats.newest_ns))
        for track in lane.probes.values():
            newest = max(newest, track.answered_ns)
        return newest

    def _asked(  # noqa: C901 - calls for each unit would cost more than what they do
        self, side: int, since_ns: int, until_ns: int
    ) -> list[int]:
        """Return when a side sent, between two moments, what is to be answered and is not.

        Each copy is a question; those between the first and the last are taken for even. What was
        sent at once is one question: one datagram would answer it, and that may have been lost.
        """
        lane = self._lanes[side]
        times: list[int] = []
        given_up: list[int] = []
        for space in lane.spaces.values():
            if space.carrier is not None or space.rule.stride_reach:
                continue
            for unit in space.store.outstanding.values():
                if unit.copies > 1:
                    times += _evenly_spaced(
                        unit.first_ns, unit.last_ns, unit.copies, since_ns, until_ns
                    )
                elif since_ns < unit.first_ns <= until_ns:  # by far the most
                    times.append(unit.first_ns)
            gave_up_ns = space.attempts.gave_up_ns or 0
            if since_ns < gave_up_ns <= until_ns:
                given_up += [gave_up_ns] * MANY_ASKED
        for track in lane.probes.values():
            if track.answered:
                times += track.unanswered()
        if self.stream is not None:
            half = self.stream.halves[side]
            for segment in half.outstanding:
                times += _evenly_spaced(
                    segment.first_ns, half.last_ns, segment.copies, since_ns, until_ns
                )
        inside = [time_ns for time_ns in times if since_ns < time_ns <= until_ns]
        return _distinct(sorted(inside)) + given_up


def _distinct(times: list[int]) -> list[int]:
    """Return those of sorted times that are no part of the one before."""
    apart: list[int] = []
    for time_ns in times:
        if not apart or time_ns - apart[-1] >= AT_ONCE_NS:
            apart.append(time_ns)
    return apart


def _evenly_spaced(
    first_ns: int, last_ns: int, copies: int, since_ns: int, until_ns: int
) -> list[int]:
    """Return the times of copies between two moments (a few others may come along), as if so many
    were sent at equal distances.
    """
    # Time stamps may run backwards.
    first: i64 = min(first_ns, last_ns)
    steps: i64 = max(1, copies - 1)
    whole: i64 = (max(first_ns, last_ns) - first) // steps
    part: i64 = (max(first_ns, last_ns) - first) % steps
    # Only those: whoever sends one unit forever has each of its pauses judged.
    low: i64 = max(0, (since_ns - first) // (whole + 1))
    high: i64 = min(copies - 1, (until_ns - first) // max(1, whole))
    found: list[int] = []
    step = low
    while step <= high:
        found.append(first + whole * step + part * step // steps)
        step += 1
    return found
