"""A space whose receiver accepts units in order only, and drops datagrams with a stale ack.

The receiver does not buffer: after a gap it discards units until the missing one comes again
(go-back-N). It checks the acknowledgement of a datagram first, and drops the whole datagram if that
is outside the window from the last acknowledgement to the newest unit that it has sent itself. Next
to such a receiver, the capture shows what it accepted.
"""

from __future__ import annotations

from typing import Any

from netdissect.model.native import ABSENT, i64
from netdissect.model.policy import SpaceRule
from netdissect.track.findings import Findings
from netdissect.track.recorder import ConnectionRecorder
from netdissect.track.space import Space


class InOrderSpace(Space):
    """The units of one direction, and a model of their receiver."""

    __slots__ = ("accepted", "acknowledged", "gaps", "old", "passes", "reverse", "stale", "taken")

    def __init__(
        self, rule: SpaceRule, direction: int, findings: Findings,
        recorder: ConnectionRecorder | None,
    ) -> None:  # fmt: skip
        super().__init__(rule, direction, findings, recorder)
        self.reverse: InOrderSpace | None = None
        """The same space of the other direction, in which the receiver sends."""
        self.accepted: i64 = 0
        """Newest number that the receiver accepted."""
        self.acknowledged: i64 = ABSENT
        """Newest acknowledgement that the receiver accepted; ABSENT before the first one."""
        self.passes = True
        """Whether the receiver processes the current datagram."""
        self.taken: i64 = 0
        """Units that the receiver accepted."""
        self.gaps: i64 = 0
        """Copies discarded because an earlier unit is missing."""
        self.old: i64 = 0
        """Copies of units that the receiver already had."""
        self.stale = 0
        """Datagrams dropped for their acknowledgement."""

    def release(self) -> None:
        """Drop the reference to the other direction, too."""
        super().release()
        self.reverse = None

    def ack(self, base: i64, bits: int, frame: i64, time_ns: i64) -> None:
        """Process the acknowledgement of a datagram, which decides about the rest of it."""
        reverse = self.reverse
        if reverse is not None:
            if base == reverse.acknowledged and not self.store.outstanding.count:
                # The commonest case: it repeats the acknowledgement before it.
                reverse.passes = True
                return
            reverse.gate(base, self.numbers.newest_or_zero() & self.numbers.mask, frame, time_ns)
        self.acks.take(self, base, bits, frame, time_ns)

    def gate(self, base: i64, sent: i64, frame: i64, time_ns: i64) -> None:
        """Judge a datagram by its acknowledgement; `sent` is the receiver's newest number."""
        before = self.acknowledged
        partial = not self.context.started
        if before == ABSENT:
            # Both sides begin as if they had accepted number 0.
            before = base if partial else 0
        if partial:
            # The receiver may have sent newer numbers than those captured.
            self.passes = (base - before) & self.numbers.mask <= self.numbers.half
        elif sent >= before:
            self.passes = before <= base <= sent
        else:
            # The receiver's own numbers have wrapped since the last acknowledgement.
            self.passes = not sent < base < before
        if self.passes:
            self.acknowledged = base
        else:
            self.stale += 1
            self.context.find_at_receiver(
                "ack-out-of-window", frame, time_ns,
                f"ack {base} outside of {before} to {sent}", ack=base, low=before, high=sent,
            )  # fmt: skip

    def unit(
        self,
        wire_seq: i64,
        labelled: bool | None,  # noqa: FBT001 - hot path, as in the event
        content: Any,
        type_: str | None,
        frame: i64,
        time_ns: i64,
    ) -> None:
        """Process one copy of a unit."""
        numbers = self.numbers
        context = self.context
        if numbers.newest == ABSENT and not context.started:
            # Mid-stream: the receiver is assumed to have everything before.
            self.accepted = (wire_seq - 1) & numbers.mask
        if labelled and 0 < (wire_seq - numbers.newest_or_zero()) & numbers.mask < numbers.half:
            context.find(
                "resend-of-unseen", frame, time_ns, self.direction,
                f"{wire_seq} is marked as a retransmission",
            )  # fmt: skip
        if self.passes:
            ahead = (wire_seq - self.accepted) & numbers.mask
            if ahead == 1:
                self.accepted = wire_seq
                self.taken += 1
            elif ahead == 0 or ahead >= numbers.half:
                self.old += 1
            else:
                self.gaps += 1
                context.find_at_receiver(
                    "behind-gap", frame, time_ns,
                    f"{wire_seq} discarded: {(self.accepted + 1) & numbers.mask} is missing",
                )  # fmt: skip
        Space.unit(self, wire_seq, labelled, content, type_, frame, time_ns)

    def restart(self) -> None:
        """Begin a new epoch: both sides restart their numbers."""
        super().restart()
        self.accepted = self.acknowledged = 0
        self.passes = True

    def _extra(self) -> dict[str, Any]:
        """Add the figures of the model, unless the capture was taken elsewhere."""
        extra = super()._extra()
        missed = self.context.findings.misses
        if self.context.receiver_near is not False and self.units and not missed:
            extra["receiver"] = self.receiver()
        return extra

    def receiver(self) -> dict[str, int]:
        """Return what the receiver did, assuming that the captured datagrams reached it."""
        return {
            "accepted_in_order": self.taken,
            "old_duplicates": self.old,
            "gap_rejected": self.gaps,
            "packets_with_stale_ack_rejected": self.stale,
        }
