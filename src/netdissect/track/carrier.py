"""Numbered datagrams that carry numbered messages: the datagrams, and what they carry.

A datagram is never sent again; what it carried is, in a new one, once the old one has timed out. Its
sender forgets a datagram after `SpaceRule.timeout_ms`: a later acknowledgement changes nothing. Its
receiver reads nothing of a datagram whose number it has got before, in whatever epoch.
"""

from __future__ import annotations

from typing import Any

from netdissect.model.policy import SpaceRule
from netdissect.track.findings import Findings
from netdissect.track.ledger import CARRIED, COPIES, FIRST, FRAME, RECORD, Unit
from netdissect.track.recorder import Recorder
from netdissect.track.space import Space

__all__ = ["MAX_EPOCHS", "MAX_LISTED", "CarriedSpace", "CarrierSpace"]

MAX_LISTED = 256
"""Datagrams listed per message."""

MAX_EPOCHS = 16
"""Earlier epochs whose numbers are remembered."""
_MS = 1_000_000


class CarrierSpace(Space):
    """Datagrams of one direction."""

    __slots__ = (
        "_before", "_began_ns", "_guard_ns", "_latest_ns", "_take_ack", "_timeout_ns", "copied",
        "ignored", "late_acks", "number_at_hand", "restarts", "stale", "twin",
    )  # fmt: skip

    def __init__(
        self, rule: SpaceRule, direction: int, findings: Findings, recorder: Recorder | None
    ) -> None:
        super().__init__(rule, direction, findings, recorder)
        self.twin: CarrierSpace | None = None
        """The datagrams of the other direction, which carry the acknowledgements of these."""
        self.number_at_hand = 0
        """Extended number of the datagram at hand."""
        self.copied = False
        """True: the datagram at hand is a network copy."""
        self.stale = False
        """True: the receiver of the datagram at hand has got its number before and reads nothing."""
        self.late_acks = 0
        """Acknowledgements that came after their datagram had timed out."""
        self.ignored = 0
        """Acknowledgements in datagrams that nobody reads."""
        self.restarts = 0
        self._timeout_ns = int(rule.timeout_ms * _MS)
        self._guard_ns = int(rule.restart_guard_ms * _MS)
        self._began_ns = 0
        """Time of the first datagram of the epoch."""
        self._latest_ns = 0
        """Time of the newest datagram: a sign that its sender still lives."""
        self._before: list[tuple[int, int, frozenset[int]]] = []
        """(first, last, missing) wire numbers of earlier epochs."""
        self._take_ack = self.ack
        self.ack = self._ack_read

    def unit(
        self,
        wire_seq: int,
        labelled: bool | None,  # noqa: FBT001 - as in `Space`
        content: Any,
        type_: str | None,
        frame: int,
        time_ns: int,
    ) -> None:
        """Take one datagram that its sender wants acknowledged."""
        if self.last is None:
            self._began_ns = time_ns
        self._latest_ns = time_ns
        before = self.duplicates
        super().unit(wire_seq, labelled, content, type_, frame, time_ns)
        self.number_at_hand = self.extend(wire_seq)
        self.copied = self.stale = self.duplicates != before
        if self._before and not self.stale:
            self.stale = self._known_before(wire_seq)

    def _known_before(self, wire_seq: int) -> bool:
        """Return whether a datagram of an earlier epoch had this number."""
        return any(
            first <= wire_seq <= last and wire_seq not in missing
            for first, last, missing in self._before
        )

    # -- acknowledgements --------------------------------------------------------------------------

    def _ack_read(self, base: int, bits: int, frame: int, time_ns: int) -> None:
        if self.twin is not None and self.twin.stale:
            self.ignored += 1
            return
        self._take_ack(base, bits, frame, time_ns)

    def _settle(self, seq: int, unit: Unit, frame: int, time_ns: int) -> None:
        if time_ns - unit[FIRST] > self._timeout_ns:
            self.late_acks += 1
            self.time_out(seq, unit)
            return
        super()._settle(seq, unit, frame, time_ns)

    def time_out(self, seq: int, unit: Unit) -> None:
        """Settle a datagram that its sender has given up."""
        self.given_up += 1
        self.unacked += 1
        self.remember(seq, unit)
        self.findings.add("datagram-timed-out", unit[FRAME], unit[FIRST], self.direction)
        if unit[RECORD] is not None and self.recorder is not None:
            self.recorder.dropped(unit[RECORD], "given_up")

    def resent(self, seq: int) -> None:
        """Settle a datagram of which a message is sent again: that shows its timeout."""
        unit = self.outstanding.pop(seq, None)
        if unit is not None:
            self.time_out(seq, unit)

    def end(self, seq: int, unit: Unit, *, seen: bool) -> None:
        """Settle a datagram without acknowledgement: timed out, if its sender lived long enough."""
        if self._latest_ns - unit[FIRST] >= self._timeout_ns:
            self.time_out(seq, unit)
        else:
            super().end(seq, unit, seen=seen)

    def wire_of(self, number: int) -> int:
        """Return an extended number as it stands on the wire."""
        return number & self._mask

    # -- epochs ------------------------------------------------------------------------------------

    def may_restart(self, time_ns: int) -> bool:
        """Return False for what may be a copy of the datagram that began the epoch."""
        return self.last is None or time_ns - self._began_ns >= self._guard_ns

    def restart(self) -> None:
        """Begin a new epoch; the numbers of the old one stay known to its receiver."""
        if self.last is None:
            return
        self.restarts += 1
        missing = frozenset(number & self._mask for number in self.missing)
        span = (self.first & self._mask, self.last & self._mask, missing)
        self._before = [*self._before, span][-MAX_EPOCHS:]
        super().restart()

    def _extra(self) -> dict[str, Any]:
        extra = super()._extra()
        extra["timed_out"] = self.given_up
        extra["late_acks"] = self.late_acks
        extra["ignored_acks"] = self.ignored
        extra["restarts"] = self.restarts
        return extra


class CarriedSpace(Space):
    """Messages of one direction that travel in the datagrams of a `CarrierSpace`."""

    __slots__ = ()

    carrier: CarrierSpace

    def _is_copy(
        self,
        labelled: bool | None,  # noqa: FBT001 - as in `Space`
        same: bool,  # noqa: FBT001 - as in `Space`
        gap_ns: int,
        copies: int,
    ) -> bool:
        """Return True where the whole datagram was copied; in a new one its sender sends again."""
        del labelled, same, gap_ns, copies
        return self.carrier.copied

    def _load(self, seq: int) -> None:
        """Note both ways which datagram carries which message."""
        super()._load(seq)
        unit, number = self.outstanding.get(seq), self.carrier.number_at_hand
        if unit is None:
            return
        before = unit[CARRIED]
        if before is not None and before != number:
            self.carrier.resent(before)
        unit[CARRIED] = number
        record = unit[RECORD]
        if record is not None and unit[COPIES] <= MAX_LISTED:
            record.extra.setdefault("carried_by", []).append(self.carrier.wire_of(number))

    def _settle(self, seq: int, unit: Unit, frame: int, time_ns: int) -> None:
        unit[CARRIED] = None  # the base class keeps lists there
        super()._settle(seq, unit, frame, time_ns)
