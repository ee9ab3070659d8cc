"""Numbered datagrams that carry numbered messages: the datagrams, and what they carry.

A datagram is never sent again; what it carried is, in a new one, once the old one has timed out. Its
sender forgets a datagram after `SpaceRule.timeout_ms`: a later acknowledgement changes nothing. Its
receiver reads nothing of a datagram whose number it has got before, in whatever epoch.
"""

from __future__ import annotations

from typing import Any

from netdissect.model.policy import SpaceRule
from netdissect.track.findings import Findings
from netdissect.track.ledger import CARRIED, CONTENT, COPIES, FIRST, FRAME, RECORD, Unit
from netdissect.track.recorder import Recorder
from netdissect.track.space import Space

__all__ = ["MAX_EPOCHS", "MAX_LISTED", "MAX_STEP", "CarriedSpace", "CarrierSpace"]

MAX_LISTED = 256
"""Datagrams listed per message."""

MAX_EPOCHS = 16
"""Earlier epochs whose numbers are remembered."""
MAX_STEP = 1024
"""A number further away is damaged, forged or behind a gap: it counts once the next one confirms it."""
SOONEST = 0.8
"""Share of the timeout before which a repeated message is no sign of it."""
_COMPARED = 16
"""Last octets of a datagram that tell it from another one with its number."""
_MS = 1_000_000


class CarrierSpace(Space):
    """Datagrams of one direction."""

    __slots__ = (
        "_before", "_began_ns", "_guard_ns", "_latest_ns", "_stray", "_take_ack", "_timeout_ns", "collisions", "copied",
        "ignored", "late_acks", "number_at_hand", "restarts", "stale", "strays", "twin", "wanted",
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
        self.collisions = 0
        """Datagrams with a number that another one has used, and with other content."""
        self.strays = 0
        """Datagrams whose number nothing else confirms."""
        self._stray: int | None = None
        self.wanted = 0
        """Datagrams, copies included, that their sender wants acknowledged."""
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
        elif self._strays(wire_seq, frame, time_ns):
            return
        self._latest_ns = time_ns
        self.wanted += 1
        before, others = self.duplicates, self.collisions
        super().unit(wire_seq, labelled, content[-_COMPARED:], type_, frame, time_ns)
        self.number_at_hand = self.extend(wire_seq)
        self.copied = self.duplicates != before
        self.stale = self.copied or self.collisions != others
        if self._before and not self.stale:
            self.stale = self._known_before(wire_seq)

    def _strays(self, wire_seq: int, frame: int, time_ns: int) -> bool:
        """Return True for a number far from all before, which nothing confirms yet."""
        ahead = (wire_seq - (self.last or 0)) & self._mask
        back = self._modulus - ahead
        if ahead <= MAX_STEP or back <= MAX_STEP + (self.last or 0) - self.first:
            self._stray = None
            return False
        before, self._stray = self._stray, wire_seq
        if before is not None and 0 < (wire_seq - before) & self._mask <= MAX_STEP:
            return False
        self.units += 1
        self.strays += 1
        self.wanted += 1
        self._latest_ns = time_ns
        self.current = None
        self.copied = self.stale = False
        self.find(
            "sequence-jump", frame, time_ns, self.direction,
            f"number {wire_seq} is far from {self.last} and stands alone", wire_seq=wire_seq,
        )  # fmt: skip
        return True

    def _again(
        self,
        seq: int,
        unit: Unit,
        labelled: bool | None,  # noqa: FBT001 - as in `Space`
        content: int,
        frame: int,
        time_ns: int,
    ) -> None:
        if content == unit[CONTENT]:
            super()._again(seq, unit, labelled, content, frame, time_ns)
        else:
            self._collide(seq, frame, time_ns)

    def _settled_again(
        self,
        seq: int,
        slot: int,
        labelled: bool | None,  # noqa: FBT001 - as in `Space`
        content: int,
        frame: int,
        time_ns: int,
    ) -> None:
        if content == self._contents[slot]:
            super()._settled_again(seq, slot, labelled, content, frame, time_ns)
        else:
            self._collide(seq, frame, time_ns)

    def _collide(self, seq: int, frame: int, time_ns: int) -> None:
        """Take another datagram with a number that was used: damaged, or of another sender."""
        self.units += 1
        self.collisions += 1
        self.current = None
        self.find(
            "number-reused", frame, time_ns, self.direction,
            f"{seq & self._mask} is used by another datagram as well", seq=seq,
        )  # fmt: skip

    def obey(self, rule: SpaceRule, smoothed_ms: float | None = None) -> None:
        """Take the rules of a dialect; contents are always compared."""
        super().obey(rule, smoothed_ms)
        self._compare = True

    def plain_unit(
        self, wire_seq: int, content: Any, type_: str | None, frame: int, time_ns: int
    ) -> None:
        """Take one datagram that nobody acknowledges."""
        super().plain_unit(wire_seq, content, type_, frame, time_ns)
        self.wanted -= 1

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
        """Settle a datagram of which a message is sent again: that shows its timeout.

        So soon that it cannot have timed out, another sender uses the same numbers.
        """
        unit = self.outstanding.get(seq)
        if unit is not None and self._latest_ns - unit[FIRST] > SOONEST * self._timeout_ns:
            del self.outstanding[seq]
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
        if self.strays:
            extra["strays"] = self.strays
        if self.collisions:
            extra["collisions"] = self.collisions
        extra["ack_wanted"] = self.wanted
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
