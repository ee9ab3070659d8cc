"""What holds for one sequence space as a whole: every part of it, and its records, know this."""

from __future__ import annotations

from typing import Any

from netdissect.model.policy import SpaceRule
from netdissect.track.findings import Findings

__all__ = ["MAX_BESIDE", "SpaceContext"]

MAX_BESIDE = 256
"""Findings per space that wait until it is known where the capture was taken."""


class SpaceContext:
    """The rules and the direction of a space, where the capture was taken, and what is found."""

    __slots__ = (
        "_beside", "delay_ns", "direction", "findings", "in_stream", "placed_for_good",
        "receiver_near", "rule", "sender_near", "started",
    )  # fmt: skip

    def __init__(self, rule: SpaceRule, direction: int, findings: Findings) -> None:
        self.rule = rule
        self.direction = direction
        self.findings = findings
        self.started = False
        """True where the connection is in the capture from its start."""
        self.sender_near: bool | None = None
        """True: no network lies between the sender and the capture; None: not known."""
        self.receiver_near: bool | None = None
        """True: no network lies between the capture and the receiver; None: not known."""
        self.placed_for_good = False
        """True once nothing more will be known about where the capture was taken."""
        self.in_stream = False
        """True over TCP, which hands no byte on twice: every further copy is the sender's."""
        self.delay_ns = 0
        """Resend delay that the sender works with now; 0 without a timer."""
        self._beside: list[tuple[str, int, int, str, dict[str, Any]]] | None = None
        """Findings that hold only next to the receiver, while that may still turn out; None before
        the first one, as in most spaces there is none.
        """

    def hit(self, limit: str, times: int = 1) -> None:
        """Count that a bound was reached."""
        self.findings.hit(limit, self.direction, self.rule.name, times)

    def find(
        self, code: str, frame: int | None, time_ns: int, side: int, text: str,
        concluded_ns: int | None = None, **evidence: Any,
    ) -> None:  # fmt: skip
        """Report a finding, with what the protocol adds to it."""
        remark = self.rule.remarks.get(code)
        message = f"{self.rule.name} {text}" + (f"; {remark}" if remark else "")
        self.findings.add(
            code, frame, time_ns, side, message, {"space": self.rule.name, **evidence},
            concluded_ns=concluded_ns,
        )  # fmt: skip

    def find_restart(self, frame: int, time_ns: int, **evidence: Any) -> None:
        """Report that the sender numbers afresh."""
        text = "numbers start again"
        self.find("numbers-restart", frame, time_ns, self.direction, text, **evidence)

    def find_beside(
        self, code: str, frame: int, time_ns: int, text: str, **evidence: Any
    ) -> None:
        """Report what holds only next to the receiver, once the capture is known to be there for
        good; else it is not told.
        """
        beside = self._beside
        if beside is None:
            beside = self._beside = []
        beside.append((code, frame, time_ns, text, evidence))
        if len(beside) > MAX_BESIDE:
            beside.pop()
            self.hit("MAX_BESIDE")
        if self.placed_for_good:
            self.place_for_good()

    def place_for_good(self) -> None:
        """Take that nothing more will be known about where the capture was taken."""
        self.placed_for_good = True
        held, self._beside = self._beside, None
        if held is None or not self.receiver_near or self.findings.misses:
            return
        for code, frame, time_ns, text, evidence in held:
            self.find(code, frame, time_ns, self.direction, text, **evidence)
