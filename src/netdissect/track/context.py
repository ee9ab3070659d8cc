"""What all parts of one sequence space share: its rules, its direction, and the vantage."""

from __future__ import annotations

from typing import Any

from netdissect.model.policy import SpaceRule
from netdissect.track.findings import Findings

MAX_BESIDE = 256
"""Findings per space that wait until nothing more can be learnt about the vantage."""


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
    """Rules, direction and vantage of a space, and the way to its connection's findings."""

    __slots__ = (
        "_at_receiver", "delay_ns", "direction", "findings", "in_stream", "receiver_near", "rule",
        "sender_near", "started", "vantage_final",
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
        self._at_receiver: list[tuple[str, int, int, str, dict[str, Any]]] | None = None
        """Findings that hold only next to the receiver, while the vantage may change; None before
        the first one.
        """

    @property
    def misses_first(self) -> bool:
        """Return whether units may have been sent before the capture began, and again since."""
        return self.rule.resend is not None and not self.started

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
