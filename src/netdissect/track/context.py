"""What all parts of one sequence space share: its rules, its direction, the vantage, and what is
known of its sender's timer.
"""

from __future__ import annotations

from typing import Any, Final

from netdissect.model.policy import ResendRule, SpaceRule
from netdissect.track.findings import Findings

MAX_BESIDE = 256
"""Findings per space that wait until nothing more can be learnt about the vantage."""
FAR_GUARD_SHARE: Final = 3
"""Next to the receiver, a copy that arrives in less than 1/3 of the guard of its sender was made by
the network. In captures of real programs, network copies came within a quarter of the guard, and
retransmissions in order after two fifths of it.
"""
NETWORK_COPY_NS: Final = 10_000_000
"""In captures of real programs, the network delivered its copies within this time, in ns."""
CLOSE_RESEND_NS: Final = 15_000_000
"""A copy that comes later than network copies do, but within this time, in ns, is usually a
retransmission behind a copy that the network delayed.
"""
RELEASED_NS: Final = 1_000_000
"""Datagrams that a stalled network releases at once come this close together, in ns. Shorter gaps
do not tell them from network copies.
"""

WITHIN_GUARD: Final = 0
"""The gap is shorter than any that the sender leaves between two transmissions of a unit."""
WITHIN_FAR_GUARD: Final = 1
"""The gap is shorter than 1/3 of the guard that follows from the round trip which both sides state.
"""
WITHIN_QUARTER: Final = 2
"""The gap is shorter than 1/4 of the sender's timer. In networks that delay datagrams by as much as
that, three of four such copies were the network's.
"""
WITHIN_NETWORK_DELAY: Final = 3
"""The gap is one that a network copy may have, and is shorter than half of the sender's timer."""
BELOW_GUARD: Final = 4
"""The gap is longer than those of most network copies, yet shorter than the sender's guard, or much
shorter than its timer, where `least_timer_ns` tells them.
"""
AFTER_TIMER: Final = 5
"""The gap is longer than those."""

_MS: Final = 1_000_000


def resend_timers(
    resend: ResendRule, smoothed_ms: float | None, variance_ms: float
) -> tuple[int, int]:
    """Return (timer, guard) in ns of a sender that knows this round trip. The guard is the shortest
    time that it leaves between two transmissions of a unit.
    """
    delay_ms, guard_ms = resend.initial_ms, resend.guard_ms
    if smoothed_ms is not None and resend.rtt_factor:
        delay_ms = resend.rtt_factor * smoothed_ms + resend.rtt_variances * variance_ms
        delay_ms = max(resend.floor_ms, delay_ms)
    if smoothed_ms is not None and resend.guard_rtt_factor:
        guard_ms = resend.guard_rtt_factor * smoothed_ms
    return int(delay_ms * _MS), int(guard_ms * _MS)


class Heard:
    """When the capture would have shown the acknowledgements of one direction."""

    __slots__ = ("_dark", "_end_ns", "_patience_ns")

    def __init__(
        self, end_ns: int, patience_ns: int, dark: list[tuple[int, int]] | None = None
    ) -> None:
        """Create it from the time until which the other direction was heard, the longest time that
        an acknowledgement may take, and the spans in which the other direction was silent.
        """
        self._end_ns = end_ns
        self._patience_ns = patience_ns
        self._dark = [(from_ns - patience_ns, to_ns) for from_ns, to_ns in dark or ()]

    def would_show(self, sent_ns: int) -> bool:
        """Return whether an acknowledgement of what was sent at this time would be in the capture,
        had there been one.
        """
        for from_ns, to_ns in self._dark:
            if from_ns < sent_ns < to_ns:
                return False
        return self._end_ns - sent_ns > self._patience_ns


class SpaceContext:
    """Rules, direction and vantage of a space, its sender's timer, and the way to its connection's
    findings.
    """

    __slots__ = (
        "_at_receiver", "_learnt", "delay_ns", "direction", "far_delay_ns",
        "far_guard_ns", "findings", "guard_ns", "in_stream", "least_timer_ns", "receiver_near",
        "rule", "sender_near", "started", "stated", "vantage_final",
    )  # fmt: skip

    def __init__(self, rule: SpaceRule, direction: int, findings: Findings) -> None:
        self.rule = rule
        self.direction = direction
        self.findings = findings
        self.started = False
        """Whether the capture has the connection from its start."""
        self.sender_near: bool | None = None
        """Whether the capture was taken next to the sender; None = unknown."""
        self.receiver_near: bool | None = None
        """Whether the capture was taken next to the receiver; None = unknown."""
        self.vantage_final = False
        """Whether nothing more can be learnt about the vantage."""
        self.in_stream = False
        """True over TCP, which delivers each byte once: every further copy is the sender's."""
        self.delay_ns = 0
        """Timer that the sender works with now; 0 if it never sends again."""
        self.guard_ns = 0
        """The sender leaves at least this time between two transmissions of a unit."""
        self.far_delay_ns = self.far_guard_ns = 0
        """Timer and guard by the round trip that both sides state, which hold wherever the capture
        was taken; 0 in spaces without `SpaceRule.duplicate_window_ms`.
        """
        self.least_timer_ns = 0
        """The shortest timer that the sender may work with by the round trips that both sides have
        stated so far, or its first one before it can have learnt any; 0 = unknown.
        """
        self.stated = False
        """Whether both sides have stated a round trip."""
        self._learnt = False
        """Whether the sender may have learnt a round trip that neither side has stated yet."""
        self._at_receiver: list[tuple[str, int, int, str, dict[str, Any]]] | None = None
        """Findings that hold only next to the receiver, while the vantage may change; None before
        the first one.
        """

    @property
    def beside_sender(self) -> bool:
        """Return whether the capture was taken next to the sender alone: what it lacks of the other
        direction did not reach the sender.
        """
        return bool(self.sender_near) and not self.receiver_near

    @property
    def misses_first(self) -> bool:
        """Return whether units may have been sent before the capture began, and again since."""
        return self.rule.resend is not None and not self.started

    def begin(self, *, started: bool) -> None:
        """Note at its first datagram whether the capture has the connection from its start."""
        self.started = started
        resend = self.rule.resend
        if started and resend is not None and resend.rtt_factor:
            self.least_timer_ns = self.far_delay_ns  # As `retime` does before any round trip.

    def retime(
        self,
        smoothed_ms: float | None,
        variance_ms: float = 0.0,
        stated_ms: float | None = None,
        before_ms: float | None = None,
        *,
        learnt: bool = False,
    ) -> None:
        """Recompute timer and guard from the round trips that the sender knows.

        Args:
            smoothed_ms: smoothed round trip that the sender works with.
            variance_ms: its variance.
            stated_ms: smoothed round trip by what both sides state, wherever the capture was taken.
            before_ms: the same before the newest sample, which may not have reached the sender yet.
            learnt: the sender may have measured a round trip.

        """
        resend = self.rule.resend
        window_ms = self.rule.duplicate_window_ms
        if resend is not None:
            self.delay_ns, guard_ns = resend_timers(resend, smoothed_ms, variance_ms)
            if not window_ms:
                self.guard_ns = guard_ns
                return
            self.stated, self._learnt = stated_ms is not None, learnt
            self.far_delay_ns, guard_ns = resend_timers(resend, stated_ms, 0.0)
            # The newest sample may not have reached the sender yet, so that the shorter guard
            # counts.
            before_timer_ns, before_guard_ns = resend_timers(resend, before_ms, 0.0)
            self.far_guard_ns = min(guard_ns, before_guard_ns)
            # Before any round trip, a sender that was seen from its start has only its first timer.
            known = stated_ms is not None and before_ms is not None
            known = known or (resend.rtt_factor > 0 and not self.stated and self.timer_known)
            self.least_timer_ns = min(self.far_delay_ns, before_timer_ns) if known else 0
        self.guard_ns = int(window_ms * _MS)

    @property
    def timer_known(self) -> bool:
        """Return whether the sender works with the far timer and guard. It may have learnt a round
        trip that it states later, or before the capture began.
        """
        return self.stated or (self.started and not self._learnt)

    def gap_class(self, gap_ns: int) -> int:
        """Return the class of the gap between two copies, by the sender's guard and timer. A
        negative one (the clock was set back) is never too short.
        """
        if 0 <= gap_ns < self.guard_ns:
            return WITHIN_GUARD
        # Rounded up, because a floor would count a gap of exactly a third as too short.
        if self.timer_known and 0 <= gap_ns < -(-self.far_guard_ns // FAR_GUARD_SHARE):
            return WITHIN_FAR_GUARD
        if self.timer_known and gap_ns < self.far_delay_ns // 4:
            return WITHIN_QUARTER
        if gap_ns < min(CLOSE_RESEND_NS, self.far_delay_ns // 2):
            return WITHIN_NETWORK_DELAY
        if self.least_timer_ns and 0 <= gap_ns < self.far_guard_ns:
            return BELOW_GUARD
        return AFTER_TIMER

    def hit(self, limit: str, times: int = 1) -> None:
        """Count that a bound was reached."""
        self.findings.hit(limit, self.direction, self.rule.name, times)

    def find(
        self, code: str, frame: int | None, time_ns: int, side: int, text: str,
        concluded_ns: int | None = None, **evidence: Any,
    ) -> None:  # fmt: skip
        """Report a finding, with the remark that the protocol adds to it."""
        remark = self.rule.remarks.get(code)
        message = f"{self.rule.name} {text}" + (f"; {remark}" if remark else "")
        self.findings.add(
            code, frame, time_ns, side, message, {"space": self.rule.name, **evidence},
            concluded_ns=concluded_ns,
        )  # fmt: skip

    def find_restart(self, frame: int, time_ns: int, **evidence: Any) -> None:
        """Report that the sender starts its numbers again."""
        text = "numbers start again"
        self.find("numbers-restart", frame, time_ns, self.direction, text, **evidence)

    def find_at_receiver(
        self, code: str, frame: int, time_ns: int, text: str, **evidence: Any
    ) -> None:
        """Report a finding that holds only next to the receiver. It waits until the vantage is
        final, and is dropped if the capture was taken elsewhere.
        """
        waiting = self._at_receiver
        if waiting is None:
            waiting = self._at_receiver = []
        waiting.append((code, frame, time_ns, text, evidence))
        if len(waiting) > MAX_BESIDE:
            waiting.pop()
            self.hit("MAX_BESIDE")
        if self.vantage_final:
            self.finish_vantage()

    def finish_vantage(self) -> None:
        """Note that the vantage is final, and report what waited for that."""
        self.vantage_final = True
        waiting, self._at_receiver = self._at_receiver, None
        if waiting is None or not self.receiver_near or self.findings.misses:
            return
        for code, frame, time_ns, text, evidence in waiting:
            self.find(code, frame, time_ns, self.direction, text, **evidence)
