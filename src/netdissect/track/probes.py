"""Probes of one side: questions that the peer answers at once, and their round trips."""

from __future__ import annotations

from typing import Final

from netdissect.model.policy import ProbeRule
from netdissect.model.reports import ProbeReport
from netdissect.track.findings import Findings
from netdissect.track.reservoir import RttReservoir

MAX_OPEN_PROBES = 64
"""Unanswered probes remembered per kind and direction."""
COPY_NS: Final = 100_000_000
"""A probe with the number of the newest one, within this time in ns (or half of the interval of the
rule), is a network copy.
"""
REGULAR: Final = 3
"""At least this many intervals are needed to conclude that a timer sends the probes."""
SLACK: Final = 1.25
"""A timer sends the probes if their mean interval is at most this many times that of the rule."""


class ProbeTrack:
    """The probes of one kind in one direction."""

    __slots__ = (
        "_copy_ns", "_first_ns", "_named", "_newest", "_newest_ns", "_open", "answered",
        "answered_ns", "declared", "direction", "findings", "rtt", "rule", "sender_present", "sent",
    )  # fmt: skip

    def __init__(self, rule: ProbeRule, direction: int, findings: Findings) -> None:
        self.rule = rule
        self.findings = findings
        self.direction = direction
        """Direction of the probes."""
        self.sent = 0
        self.answered = 0
        self.answered_ns = 0
        """When the newest answered probe was sent."""
        self.rtt = RttReservoir()
        self.declared = RttReservoir()
        """Round trips that the sender of the probes states itself."""
        self.sender_present = False
        """Whether two probes were answered that were not captured: their sender is active."""
        self._named = -1
        """Number of the last such probe."""
        self._open: dict[int, tuple[int, int]] = {}
        """Number of each probe without an answer -> its time and its frame."""
        self._newest: int | None = None
        self._first_ns = self._newest_ns = 0
        interval = rule.interval_ms
        self._copy_ns = COPY_NS if interval is None else int(interval * 500_000)

    def ask(self, number: int, time_ns: int, frame: int) -> bool:
        """Process a probe; return False if it is a network copy of the newest one. Probes without a
        number (`ProbeRule.bits` is 0) are answered in order.
        """
        if self.rule.bits == 0:
            number = self.sent
        elif number == self._newest and time_ns - self._newest_ns < self._copy_ns:
            self.findings.note_copied()
            return False
        if not self.sent:
            self._first_ns = time_ns
        self.sent += 1
        self._newest = number
        self._newest_ns = time_ns
        opened = self._open
        opened[number] = time_ns, frame
        if len(opened) > MAX_OPEN_PROBES:
            self.findings.hit("MAX_OPEN_PROBES", self.direction)
            del opened[next(iter(opened))]
        return True

    def answer(self, number: int, time_ns: int) -> int | None:
        """Process an answer; return its round trip in ns, or None if it gives no sample."""
        opened = self._open
        if self.rule.bits == 0:
            # The oldest one: answers without a number come in the order of the questions.
            number = next(iter(opened), -1)
        asked = opened.pop(number, None)
        if asked is None:
            if self.answered and number == self._newest and self.rule.bits:
                self.findings.note_copied()
            if not self.sent and self.rule.bits:
                self.sender_present = self.sender_present or number != self._named >= 0
                self._named = number
            return None
        self.answered += 1
        # Its sender has forgotten the earlier probe and ignores the answer.
        if self.rule.latest_only and number != self._newest:
            return None
        sample = time_ns - asked[0]
        if sample < 0:
            return None
        self.rtt.add(sample)
        return sample

    def regular_ms(self) -> float | None:
        """Return the interval of the rule in ms if a timer sends the probes; else None."""
        steps, interval = self.sent - 1, self.rule.interval_ms
        if interval is None or steps < REGULAR:
            return None
        usual = (self._newest_ns - self._first_ns) <= SLACK * steps * interval * 1e6
        return interval if usual else None

    def unanswered(self) -> list[tuple[int, int]]:
        """Return time and frame of each remembered probe without an answer."""
        return list(self._open.values())

    def report(self) -> ProbeReport:
        """Return the report."""
        return ProbeReport(
            self.rule.kind,
            self.direction,
            self.sent,
            self.answered,
            self.rtt.summary(),
            self.declared.summary(),
        )
