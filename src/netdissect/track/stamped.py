"""A space whose acknowledgements name the copy that they answer.

Each datagram has a stamp (the time at which it was sent), and an acknowledgement echoes the stamp
of the datagram that carried the copy. So every round trip is exact, even for units that were sent
again, and a copy with a known stamp was made by the network.
"""

from __future__ import annotations

from typing import Any, Final

from netdissect.model.native import ABSENT, i64
from netdissect.model.policy import SpaceRule
from netdissect.track.findings import Findings
from netdissect.track.recorder import ConnectionRecorder
from netdissect.track.space import Space
from netdissect.track.unit import Unit

MAX_STAMPED = 8192
"""Units of one space whose stamps are remembered; beyond this, the oldest are forgotten."""
LONGEST_NS: Final = 1e15
"""A timer that grows with each copy is limited to this, in ns: a due time has 64 bits."""
MAX_STAMPS: Final = 64
"""Stamps of one unit that are remembered at most."""


class StampedSpace(Space):
    """The units of one direction with the stamps of their copies."""

    __slots__ = ("stamps",)

    def __init__(
        self, rule: SpaceRule, direction: int, findings: Findings,
        recorder: ConnectionRecorder | None,
    ) -> None:  # fmt: skip
        super().__init__(rule, direction, findings, recorder)
        self.stamps: dict[int, dict[int, int]] = {}
        """Extended number -> stamp -> time of the copy with that stamp."""

    def unit(
        self,
        wire_seq: i64,
        labelled: bool | None,  # noqa: FBT001 - hot path, as in the event
        content: Any,
        type_: str | None,
        frame: i64,
        time_ns: i64,
    ) -> None:
        """Process one copy of a unit; `content` is a pair of its stamp and its content."""
        numbers = self.numbers
        context = self.context
        store = self.store
        stamp, inner = content
        fresh = numbers.newest == ABSENT
        seq = -1 if fresh else numbers.extend(wire_seq)
        known = self.stamps.get(seq)
        if known is not None:
            # A new stamp means that the sender has sent it again; the network cannot change the
            # stamp.
            labelled = stamp not in known
        elif not fresh and (store.outstanding.find(seq) is not None or store.settled_row(seq) >= 0):
            context.hit("MAX_STAMPED")
        super().unit(wire_seq, labelled, inner, type_, frame, time_ns)
        if known is None:
            seq = numbers.extend(wire_seq)
            self.stamps[seq] = {stamp: time_ns}
            if len(self.stamps) > MAX_STAMPED:
                oldest = next(iter(self.stamps))
                del self.stamps[oldest]
                if store.outstanding.find(oldest) is not None:
                    context.hit("MAX_STAMPED")
        elif labelled and len(known) >= MAX_STAMPS:
            context.hit("MAX_STAMPS")
        elif labelled:
            known[stamp] = time_ns
            unit = store.outstanding.find(seq)
            resend = self.rule.resend
            if unit is not None and resend is not None:
                # The exponent is bounded, too: a float overflows otherwise.
                delay = context.delay_ns * resend.backoff ** min(unit.copies - 1, MAX_STAMPS)
                unit.due_ns = time_ns + int(min(delay, LONGEST_NS))

    def ack(self, base: i64, bits: int, frame: i64, time_ns: i64) -> None:
        """Process the acknowledgement of the copy with the stamp `bits`."""
        numbers = self.numbers
        last = numbers.newest
        if last == ABSENT or self.acks.rule is None:
            self.acks.note_before_first(base, time_ns)
            return
        seq = numbers.extend(base)
        unit = self.store.outstanding.pop(seq)
        if unit is not None:
            self._answered(seq, unit, self.stamps.get(seq, {}).get(bits), frame, time_ns)
        elif seq > last:
            self.unsent(base, frame, time_ns)
        elif seq in numbers.missing:
            self.acks.report_unseen(seq, frame, time_ns)

    def _answered(
        self, seq: int, unit: Unit, sent_ns: int | None, frame: i64, time_ns: i64
    ) -> None:
        """Settle a unit; `sent_ns` is the time of the acknowledged copy, None if it was not
        captured.
        """
        ack_stats = self.ack_stats
        sample = -1 if sent_ns is None else time_ns - sent_ns
        if sample < 0:
            ack_stats.rtt.ambiguous += 1
        telling = ack_stats.add_sample(sample)
        ack_stats.acked += 1
        self.store.settle(seq, unit)
        if telling:
            self._notify_evidence()
        if self.recorder is not None:
            named = sample if sample >= 0 else ABSENT
            self.recorder.acked(unit, frame, time_ns, ambiguous=sample < 0, sample_ns=named)

    def restart(self) -> None:
        """Begin a new epoch."""
        super().restart()
        self.stamps.clear()
