"""Finds silences of a side, and spans in which only one way of the path worked.

* A *silence* is a span in which a side should have been heard and was not. There are three reasons
  why it should have been heard: its own timers (`timer`), questions of its peer (`asked`), or
  numbers that are missing after the span, so that it did send (`numbers`).
* A *one-way* span is one in which nothing that a side sent was answered, although its peer went on
  sending.

A *question* is a unit that wants an acknowledgement, or a probe; each further copy is another one.
What is sent within `AT_ONCE_NS` is one question, because one datagram would answer it.
"""

from __future__ import annotations

from typing import Final

from netdissect.model.native import ABSENT, i64, mypyc_attr
from netdissect.model.reports import EndHint, QuietSpan
from netdissect.track.ackstats import PAUSE_NS
from netdissect.track.findings import Findings
from netdissect.track.lane import Lane, slowest_ms
from netdissect.track.space import Space
from netdissect.track.stream import StreamTrack
from netdissect.track.tcp import StreamHalf

MAX_SPANS = 64
"""Spans listed per connection; further ones are only counted."""
LATE_PERIODS: Final = 4
"""A pause of more than this many periods of the side's own timer is a silence."""
SILENT_PERIODS: Final = 3
"""The same if the capture ends before the side is heard again."""
BUSY_PERIODS: Final = 2
"""The same for a side that usually sends much more often than its timer demands."""
BUSY_RATE: Final = 10
"""A side sends much more often if it sends this many datagrams in a period of its timer."""
BUSY_DATAGRAMS: Final = 50
"""The rate of a side is known after this many datagrams."""
MIN_QUESTIONS: Final = 2
"""A side is silent if it has not answered this many questions in the time that answers take."""
MANY_QUESTIONS: Final = 12
"""A side is silent if it has not answered this many questions in a pause of any length, or, if the
capture misses frames, in the time that answers take.
"""
MIN_COPIES: Final = 3
"""Of a unit that was answered in the end, this many unanswered copies count as questions. Fewer are
lost one by one as well.
"""
MIN_SEGMENTS: Final = 4
"""TCP got no answers in a span if this many segments have none: its kernel answers each at once."""
MIN_REQUESTS: Final = 3
"""No answer has reached a side that asks to begin this many times again after it was answered."""
AT_ONCE_NS: Final = 20_000_000
"""What is sent within this time after a question, in ns, is part of it."""
TAIL_NS: Final = 400_000_000
"""What is unanswered for less than this at the end of the capture, in ns, may still be answered."""
ANSWER_NS: Final = 2_000_000_000
"""An answer may take this long, in ns, because a program may be busy."""
ACTIVE_ANSWER_NS: Final = 1_500_000_000
"""An answer may take this long, in ns, if its program goes on sending."""
SOON_NS: Final = 100_000_000
"""Most answers come within this time, in ns, or within `ANSWER_TRIPS`."""
ANSWER_TRIPS: Final = 2
"""An answer may take this many times the longest usual round trip, if that is longer."""
_MS: Final = 1_000_000


@mypyc_attr(acyclic=True)
class Lifetime:
    """When a connection began, was open and ended; 0 = not yet."""

    __slots__ = ("cut", "first_frame", "first_ns", "open_ns", "over_ns")

    def __init__(self) -> None:
        self.first_frame = self.first_ns = self.open_ns = self.over_ns = 0
        self.cut: tuple[int, int] | None = None
        """(side, time) of the FIN or RST that ended it without a goodbye."""

    def begin(self, frame: int, time_ns: int) -> bool:
        """Process a packet; return whether it is the first one."""
        if self.first_frame:
            return False
        self.first_frame, self.first_ns = frame, time_ns
        return True


class SilenceDetector:
    """The silences and one-way spans of one connection."""

    __slots__ = (
        "_asked_first", "_findings", "_lanes", "_lifetime", "_over_tcp", "_pauses", "_requests",
        "error", "request_ns", "spans", "stream",
    )  # fmt: skip

    def __init__(
        self, lanes: list[Lane], lifetime: Lifetime, findings: Findings, *, over_tcp: bool
    ) -> None:
        """Create a detector for the lanes of a connection."""
        self._findings = findings
        self._lanes = lanes
        self._lifetime = lifetime
        self._over_tcp = over_tcp
        self.stream: StreamTrack | None = None
        """The TCP connection, if the protocol's rules ask for it."""
        self.spans: list[QuietSpan] = []
        self._pauses: list[tuple[int, tuple[int, int], tuple[int, int]]] = []
        """(side, time and frame before, time and frame after) of pauses that neither a timer nor a
        question makes a silence.
        """
        self.error: EndHint | None = None
        """The first ICMP error since the side whose port was not reached had been heard."""
        self.request_ns = 0
        """When a side last asked to begin; 0 = never."""
        self._requests = 0
        """How often it asked again although it had been answered."""
        self._asked_first: tuple[int, ...] = ()
        """When it asked before anything of its peer came; at most `MANY_QUESTIONS` times."""

    def watch(self, stream: StreamTrack) -> None:
        """Judge the pauses and the answers of a TCP connection as well."""
        self.stream = stream
        stream.on_pause, stream.on_answer = self.resumed, self.check_one_way

    # -- silence -----------------------------------------------------------------------------------

    def resumed(self, side: int, frame: int, time_ns: int, since: tuple[int, int]) -> None:
        """Judge the pause of a side that sends again; `since` is (time, frame) before the pause."""
        since_ns, since_frame = since
        basis = self._expected(side, since_ns, time_ns, LATE_PERIODS)
        basis = basis or self._answered_late(side, since_ns, time_ns)
        if basis is not None:
            self._add("silence", side, (since_ns, since_frame), (time_ns, frame), basis)
        elif len(self._pauses) < MAX_SPANS and not self._lifetime.over_ns:
            self._pauses.append((side, since, (time_ns, frame)))

    def end(self, end_ns: int) -> tuple[bool, bool]:
        """Judge the end of the capture; return whether (client, server) is silent then."""
        silent = [False, False]
        if self._findings.misses:
            # If that was learnt after them, the capture may lack what ended or answered them.
            self.spans = [span for span in self.spans if self._stays(span)]
            for span in self.spans:
                span.basis = "asked"
        self._check_missing_numbers()
        over_ns = self._lifetime.over_ns or end_ns
        for side in (0, 1):
            last_ns, last_frame = self.last(side)
            if not last_ns:
                if self._findings.misses:
                    continue  # it was active, but not captured
                last_ns, last_frame = self._lifetime.first_ns, self._lifetime.first_frame
            # Nobody else has to be heard after the end of the connection.
            until_ns = end_ns if self._ends_unheard(1 - side) else over_ns
            basis = self._expected(side, last_ns, until_ns, SILENT_PERIODS)
            if basis is not None:
                silent[side] = True
                self._add("silence", side, (last_ns, last_frame), (None, None), basis)
        for side in (0, 1):
            if not self._only_asked_to_begin(1 - side):
                # The peer must have been heard: later, nobody could answer.
                last_ns = self.last(1 - side)[0]
                until_ns = last_ns if self._ends_unheard(side) else min(over_ns, last_ns)
                self.check_one_way(side, until_ns, None)
        return silent[0], silent[1]

    def _stays(self, span: QuietSpan) -> bool:
        """Return whether a span is one although the capture misses frames."""
        segments = span.kind == "one-way" and self._kernel(span.direction) is not None
        return segments or span.unanswered >= MANY_QUESTIONS

    def _check_missing_numbers(self) -> None:
        """Add the pauses after which numbers are missing: the side went on sending."""
        if self._findings.misses:
            return
        for side, since, until in self._pauses:
            spaces = self._lanes[side].space_list
            if any(space.numbers.ran_on(since[0], until[0]) for space in spaces):
                self._add("silence", side, since, until, ("numbers", 0))

    def drop_brief(self, over_ns: int) -> None:
        """Remove the final silences of what turned out to be over by then: they are too short."""
        self.spans = [
            span
            for span in self.spans
            if span.kind != "silence" or span.to_ns or over_ns - span.from_ns > TAIL_NS
        ]

    def retract(self, side: int, since_ns: int) -> None:
        """Remove the final silence of a side from `since_ns` on: it had ended the connection."""
        self.spans = [
            span
            for span in self.spans
            if span.kind != "silence"
            or span.direction != side
            or span.to_ns is not None
            or span.from_ns < since_ns
        ]

    def unreachable(self, side: int, frame: int, time_ns: int, reason: str) -> None:
        """Process an ICMP error: a side cannot be reached."""
        known = self.error
        if known is None or known.direction != side or self.last(side)[0] > known.time_ns:
            self.error = EndHint("unreachable", side, frame, time_ns, reason)

    def gone(self) -> EndHint | None:
        """Return the error that shows that a side cannot be reached any more."""
        error = self.error
        return None if error is None or self.last(error.direction)[0] > error.time_ns else error

    # -- requests to begin -------------------------------------------------------------------------

    def handshake_request(self, side: int, time_ns: int) -> None:
        """Process a side's request to begin."""
        if not self._lanes[1 - side].datagrams:
            self._asked_first = (*self._asked_first[1 - MANY_QUESTIONS :], time_ns)
        elif 0 < self.request_ns < self._lanes[1 - side].last_ns:
            self._requests += 1
        self.request_ns = time_ns

    def _answered_late(self, side: int, since_ns: int, time_ns: int) -> tuple[str, int] | None:
        """Return (basis, questions) if a side that is heard for the first time has let its peer ask
        to begin again and again, else None.
        """
        if self._lanes[side].datagrams or self._findings.misses:
            return None
        again = [asked_ns for asked_ns in self._asked_first if asked_ns > since_ns]
        if len(again) < MIN_QUESTIONS or time_ns - again[0] <= ANSWER_NS:
            return None
        return "asked", len(again)

    def _only_asked_to_begin(self, side: int) -> bool:
        """Return whether a side did nothing but ask to begin, although it was answered. Then a
        one-way span is added: the answers did not reach it, and it was not silent in between.
        """
        lane, lifetime = self._lanes[side], self._lifetime
        asked_ns = self.request_ns - lifetime.first_ns
        if self._requests < MIN_REQUESTS or asked_ns <= ACTIVE_ANSWER_NS:
            return False
        # Up to two more datagrams may be a goodbye.
        if lane.datagrams > self._requests + 2 or not self._lanes[1 - side].datagrams:
            return False
        self.spans = [span for span in self.spans if span.direction != side]
        since = lifetime.first_ns, lifetime.first_frame
        self._add("one-way", 1 - side, since, (None, None), ("asked", self._requests))
        return True

    # -- one-way spans -----------------------------------------------------------------------------

    def check_one_way(
        self, side: int, until_ns: int, frame: int | None, first_ns: int = 0, copies: int = 1
    ) -> None:
        """Add a one-way span if a side got no answers to what it sent before `until_ns`.

        What it sent then is answered in `frame`, for the first time in more than a pause. With
        `frame` None, the span lasts to the end. Of a unit, `first_ns` and `copies` say since when
        and how often it was sent: the copies before the last one are questions as well.
        """
        since_ns = self._last_answered(side)
        if until_ns - since_ns <= PAUSE_NS or (self._lifetime.over_ns and frame is not None):
            return
        if self._over_tcp and self.stream is None:
            return  # TCP delivers everything
        asked = self._unanswered(side, since_ns, until_ns - 1)
        if copies > MIN_COPIES:
            again = _evenly_spaced(first_ns, until_ns, copies, since_ns, until_ns - 1)
            again = [sent_ns for sent_ns in again if since_ns < sent_ns < until_ns]
            asked = _distinct(sorted(asked + again))
        # Such questions are far apart: unlike the segments of a burst, they are not lost together.
        kernel, stream = self._kernel(side), self.stream
        apart = kernel is None or (stream is not None and stream.questions.times[side])
        if len(asked) < (self._questions_needed() if apart else MIN_SEGMENTS):
            return
        patient_ns = self._answer_wait_ns(ACTIVE_ANSWER_NS)
        if len(asked) < MANY_QUESTIONS:
            asked = self._without_lost_answers(side, asked)
            if len(asked) < MIN_QUESTIONS:
                return
        if until_ns - min(asked) <= patient_ns:
            return
        first_ns = min(asked)
        if self._silent(1 - side, first_ns, first_ns + patient_ns) or self._loses_most(1 - side):
            return  # the other direction was silent, or its answers were lost on the way here
        # Before its first question, it may have asked nothing for a long time. Numbers in strides
        # are acknowledged, and no questions.
        if not any(space.rule.stride_reach for space in self._lanes[side].space_list):
            since_ns = first_ns
        to_ns = None if frame is None else until_ns
        since = since_ns, self._question_frame(side, since_ns)
        self._add("one-way", side, since, (to_ns, frame), ("asked", len(asked)))

    def _question_frame(self, side: int, time_ns: int) -> int | None:
        """Return the frame of an unanswered question; None if it is a copy, or unknown."""
        lane = self._lanes[side]
        for space in lane.space_list:
            unit = space.store.outstanding.first
            while unit is not None:
                if unit.first_ns == time_ns:
                    return int(unit.frame)
                unit = unit.after
        known = [asked for track in lane.probes.values() for asked in track.unanswered()]
        if self.stream is not None:
            known += [(sent.first_ns, sent.frame) for sent in self.stream.halves[side].outstanding]
        return dict(known).get(time_ns)

    def _without_lost_answers(self, side: int, asked: list[int]) -> list[int]:
        """Return the questions of a side whose answers were not lost on the way here: when they
        were due, or where the next datagram of its peer came, no number was left out for good.
        """
        peer = self._lanes[1 - side]
        spaces = [space for space in peer.space_list if space.rule.resend is None]
        lost = [lost_ns for space in spaces for lost_ns in space.numbers.lost()]
        usual_ns = (peer.last_ns - self._lifetime.first_ns) // max(1, peer.datagrams)
        soon_ns = max(self._answer_wait_ns(SOON_NS), 2 * int(usual_ns))
        return [
            sent_ns
            for sent_ns in asked
            if not any(sent_ns < lost_ns < sent_ns + soon_ns for lost_ns in lost)
        ]

    def _loses_most(self, side: int) -> bool:
        """Return whether most of what a side sends is lost on its way here."""
        known = [space.so_far() for space in self._lanes[side].space_list]
        return not self._findings.misses and any(part.never_seen > part.units for part in known)

    def _silent(self, side: int, from_ns: int, to_ns: int) -> bool:
        """Return whether a side has a silence that overlaps the span."""
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
        spaces = self._lanes[side].space_list
        before = tuple([space.so_far() for space in spaces if space.numbers.seen])
        self.spans.append(QuietSpan(
            kind, side, since[0], since[1], until[0], until[1], basis[0], basis[1], before,
        ))  # fmt: skip

    def last(self, side: int) -> tuple[int, int]:
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
        """Return (basis, questions) if a side should have been heard in a span, else None."""
        pause_ns = until_ns - since_ns
        if pause_ns <= TAIL_NS or pause_ns <= self._shortest_silence_ns(periods):
            return None
        if 0 < self._lifetime.over_ns < until_ns and not self._ends_unheard(1 - side):
            return None
        asked = self._unanswered(1 - side, since_ns, until_ns)
        alive_ms = self._lanes[side].policy.alive_ms[side]
        for track in self._lanes[side].probes.values() if alive_ms is None else ():
            # Without a known timer, probes at equal intervals show one.
            alive_ms = alive_ms or track.regular_ms()
        if alive_ms is not None and self._lanes[side].datagrams and self._lifetime.open_ns:
            # Its timers start when the connection is open.
            idle_ns = until_ns - max(since_ns, self._lifetime.open_ns)
            if self._is_busy(side, since_ns, alive_ms):
                periods = BUSY_PERIODS
            if idle_ns > int(periods * alive_ms * _MS) and not self._findings.misses:
                return "timer", len(asked)
        count = len(asked)
        if count >= MANY_QUESTIONS:
            return "asked", count
        if count < self._questions_needed():
            return None
        waited_ns = until_ns - min(asked)
        patient_ns = self._answer_wait_ns(ANSWER_NS)
        kernel = self._kernel(1 - side)
        if kernel is not None and count >= MIN_SEGMENTS:
            slow_ms = kernel.rtt.slow_ms() if kernel.rtt.samples else 0.0
            patient_ns = max(TAIL_NS, int(ANSWER_TRIPS * slow_ms * _MS))
        return ("asked", count) if waited_ns > patient_ns else None

    def _ends_unheard(self, side: int) -> bool:
        """Return whether a side has closed its stream, and its peer has not acknowledged that."""
        stream = self.stream
        return stream is not None and stream.fins[side] and bool(stream.questions.times[side])

    def _shortest_silence_ns(self, periods: int) -> int:
        """Return the longest pause that shows nothing. It is shorter at the end of the capture,
        which may cut a longer pause short.
        """
        if periods != SILENT_PERIODS:
            return PAUSE_NS
        slow = slowest_ms(self._lanes, TAIL_NS // ANSWER_TRIPS)
        return min(PAUSE_NS, max(TAIL_NS, int(ANSWER_TRIPS * slow * _MS)))

    def _is_busy(self, side: int, since_ns: int, alive_ms: float) -> bool:
        """Return whether a side usually sends much more often than its timer demands."""
        count = int(self._lanes[side].datagrams)
        each_ms = (since_ns - self._lifetime.first_ns) / _MS / max(1, count)
        return count >= BUSY_DATAGRAMS and BUSY_RATE * each_ms <= alive_ms

    def _questions_needed(self) -> int:
        """Return how many unanswered questions show a silence."""
        return MANY_QUESTIONS if self._findings.misses else MIN_QUESTIONS

    def _answer_wait_ns(self, least_ns: int) -> int:
        """Return how long an answer may take."""
        slow = slowest_ms(self._lanes, least_ns // ANSWER_TRIPS)
        return max(least_ns, int(ANSWER_TRIPS * slow * _MS))

    def _last_answered(self, side: int) -> int:
        """Return when the newest answered unit or probe of a side was sent."""
        lane = self._lanes[side]
        newest = self._lifetime.first_ns
        for space in lane.space_list:
            newest = max(newest, int(space.ack_stats.newest_ns))
        for track in lane.probes.values():
            newest = max(newest, track.answered_ns)
        kernel = self._kernel(side)
        return newest if kernel is None else max(newest, kernel.answered_ns)

    def _kernel(self, side: int) -> StreamHalf | None:
        """Return what a side sends over TCP if only the kernel of its peer answers that."""
        lane = self._lanes[side]
        if self.stream is None or lane.space_list or lane.probes:
            return None
        return self.stream.halves[side]

    def _unanswered(  # noqa: C901 - calls for each unit would cost more than what they do
        self, side: int, since_ns: int, until_ns: int
    ) -> list[int]:
        """Return the times of a side's unanswered questions in a span.

        Copies between the first and the last one of a unit are assumed to be evenly spaced. What
        was sent at once is one question: one datagram would answer it, and may have been lost.
        """
        lane = self._lanes[side]
        times: list[int] = []
        given_up: list[int] = []
        for space in lane.space_list:
            # Their carriers are asked for them; numbers in strides are not acknowledged one by one.
            if space.carrier is not None or space.rule.stride_reach:
                continue
            if space.rule.acked_by_units and not self._may_acknowledge(1 - side, space, since_ns):
                continue
            unit = space.store.outstanding.first
            while unit is not None:
                if unit.copies > 1:
                    times += _evenly_spaced(
                        unit.first_ns, unit.last_ns, unit.copies, since_ns, until_ns
                    )
                elif since_ns < unit.first_ns <= until_ns:  # the usual case
                    times.append(unit.first_ns)
                unit = unit.after
            gave_up_ns = space.attempts.gave_up_ns or 0
            if since_ns < gave_up_ns <= until_ns:
                # Giving up takes many copies, whose times are no longer known.
                given_up += [gave_up_ns] * MANY_QUESTIONS
        for track in lane.probes.values():
            # A peer that has never answered may not know this kind of probe.
            if track.answered:
                times.extend([time_ns for time_ns, _ in track.unanswered()])
        if self.stream is not None:
            half = self.stream.halves[side]
            for segment in half.outstanding:
                times += _evenly_spaced(
                    segment.first_ns, segment.last_ns, segment.copies, since_ns, until_ns
                )
            times += self.stream.questions.times[side]
        if not times:
            return given_up
        inside = [time_ns for time_ns in times if since_ns < time_ns <= until_ns]
        return _distinct(sorted(inside)) + given_up

    def _may_acknowledge(self, side: int, asked: Space, since_ns: int) -> bool:
        """Return whether a side has sent units since then that could acknowledge those."""
        own = self._lanes[side].spaces.get(asked.rule.name)
        if own is None or own.numbers.newest == ABSENT:
            return False
        return own.store.arrival_ns(own.numbers.newest, since_ns) > since_ns


def _distinct(times: list[int]) -> list[int]:
    """Return the sorted times without those within `AT_ONCE_NS` after the one before."""
    apart: list[int] = []
    for time_ns in times:
        if not apart or time_ns - apart[-1] >= AT_ONCE_NS:
            apart.append(time_ns)
    return apart


def _evenly_spaced(
    first_ns: int, last_ns: int, copies: int, since_ns: int, until_ns: int
) -> list[int]:
    """Return the times of evenly spaced copies in a span; a few others may be included."""
    # Time stamps may go backwards.
    first: i64 = min(first_ns, last_ns)
    steps: i64 = max(1, copies - 1)
    whole: i64 = (max(first_ns, last_ns) - first) // steps
    part: i64 = (max(first_ns, last_ns) - first) % steps
    # Only copies in the span: a unit that is sent forever has each of its pauses judged.
    # Each step is at most `whole` + 1 long, so that no copy before this one is in the span.
    low: i64 = max(0, (since_ns - first) // (whole + 1))
    high: i64 = min(copies - 1, (until_ns - first) // max(1, whole))
    found: list[int] = []
    step = low
    while step <= high:
        found.append(first + whole * step + part * step // steps)
        step += 1
    return found
