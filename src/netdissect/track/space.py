"""One sequence space in one direction: its units and their copies. `unit` is the hot path."""

from __future__ import annotations

from typing import Any, Final

from netdissect.model.reports import Copy
from netdissect.track.acks import Acknowledged
from netdissect.track.ledger import (
    MAX_OUTSTANDING,
    Unit,
)
from netdissect.track.vantage import MIN_DISORDER

__all__ = ["LATE_COPIES", "MAX_DOUBTFUL", "MAX_MISSING", "SUSPICIOUS_JUMP", "Space"]

MAX_MISSING = 1024
"""Skipped numbers remembered per space, to tell a late first copy from a repeated one."""
SUSPICIOUS_JUMP: Final = 1024
"""A step of more numbers than this is reported."""
MAX_DOUBTFUL = 256
"""Copies per space whose kind is open until it is known where the capture was taken."""
LATE_COPIES: Final = 3
"""A unit sent again so often after its acknowledgement is reported: its sender does not take it."""
MAX_LATE = 256
"""Units per space whose transmissions after the acknowledgement are counted."""


class Space(Acknowledged):
    """Units of one space in one direction, from their first copy to their report."""

    __slots__ = ()

    def unit(
        self,
        wire_seq: int,
        labelled: bool | None,  # noqa: FBT001 - hot path, as in the event
        content: Any,
        type_: str | None,
        frame: int,
        time_ns: int,
    ) -> None:
        """Take one copy of a unit that its sender wants acknowledged."""
        last = self.last
        if last is None:
            last = self._begin(wire_seq)
        ahead = (wire_seq - last) & self._mask
        mark = hash(content) if self._compare else 0
        if ahead == 1:
            seq = self.last = last + 1
            if self._counted is not None and self._counted.copies:
                self._counted.judge(0)
        elif 0 < ahead <= self._half:
            seq = last + ahead
            self._advance(last, seq, frame, time_ns)
        else:
            seq = last + ahead - (self._modulus if ahead else 0)
            if self._repeats(seq, labelled, mark, frame, time_ns):
                return
        self.units += 1
        record = None
        if self.recorder is not None:
            record = self.recorder.first(self, seq, wire_seq & self._mask, type_, frame, time_ns)
        unit = Unit(time_ns, mark, time_ns + self.delay_ns, frame, record)
        self.current = unit
        if self._keeps:
            outstanding = self.outstanding
            outstanding[seq] = unit
            if not self.units & 255 or len(outstanding) > MAX_OUTSTANDING:
                self.shed(time_ns)
        else:
            self.remember(seq, unit)
        if self.carrier is not None:
            self._load(seq, 1)

    def plain_unit(
        self, wire_seq: int, content: Any, type_: str | None, frame: int, time_ns: int
    ) -> None:
        """Take one copy of a unit that nobody will acknowledge."""
        before = self.units
        self.unit(wire_seq, None, content, type_, frame, time_ns)
        if self.units == before:
            return
        self.plain += 1
        unit = self.current
        seq = next(reversed(self.outstanding), None)
        if seq is not None and unit is not None and self.outstanding[seq] is unit:
            del self.outstanding[seq]
            self.remember(seq, unit)

    def number(self, wire_seq: int, frame: int, time_ns: int) -> None:
        """Take a number that something else than a unit has used."""
        last = self.last
        if last is None:
            last = self._begin(wire_seq)
        ahead = (wire_seq - last) & self._mask
        if ahead == 1 and (self._counted is None or not self._counted.copies):
            self.last = last + 1
            self.skipped += 1
            return
        if 0 < ahead <= self._half:
            self._advance(last, last + ahead, frame, time_ns)
            self.skipped += 1
            return
        seq = last + ahead - (self._modulus if ahead else 0)
        if seq in self.missing:
            self._came(seq)
            self.skipped += 1
        elif seq < self.first:
            self._lower(seq)
            self.skipped += 1

    # -- numbers -----------------------------------------------------------------------------------

    def _begin(self, wire_seq: int) -> int:
        """Take the first number of an epoch as base; return the number before it."""
        base = wire_seq & self._mask
        if self._spans is not None:
            # Extended numbers never repeat: a new epoch starts at the next multiple of the modulus.
            base += ((self._spans[1] >> self.rule.bits) + 1) << self.rule.bits
        self.first = base
        return base - 1

    def _advance(self, last: int, seq: int, frame: int, time_ns: int) -> None:
        """Take a newer number; note those between it and the newest one so far."""
        self.last = seq
        if self._counted is not None and self._counted.copies:
            self._counted.judge(seq - last - 1)
        if seq == last + 1 or not self.rule.consecutive:
            return
        if seq - last > SUSPICIOUS_JUMP:
            self.find(
                "sequence-jump", frame, time_ns, self.direction,
                f"number jumps ahead by {seq - last}", seq=seq, before=last,
            )  # fmt: skip
        self._miss(last + 1, seq)
        if self.recorder is not None:
            self.recorder.gap(self, last + 1, seq - 1, frame, time_ns)

    def _lower(self, seq: int) -> None:
        """Take a number below all so far: those in between are still to come."""
        if self.rule.consecutive:
            self._miss(seq + 1, self.first)
        self.first = seq

    def _came(self, seq: int) -> None:
        """Take a number that was skipped."""
        self.missing.discard(seq)
        if self.recorder is not None:
            self.recorder.came(self, seq)

    def _miss(self, low: int, end: int) -> None:
        """Remember the newest of the numbers from `low` to before `end` as not seen."""
        missing = self.missing
        missing.update(range(max(low, end - MAX_MISSING), end))
        if len(missing) > MAX_MISSING:
            self.hit("MAX_MISSING")
            for old in sorted(missing)[: len(missing) - MAX_MISSING // 2]:
                missing.discard(old)

    # -- further copies ----------------------------------------------------------------------------

    def _repeats(
        self,
        seq: int,
        labelled: bool | None,  # noqa: FBT001 - as in `unit`
        content: int,
        frame: int,
        time_ns: int,
    ) -> bool:
        """Take a number that is not newer; return False where it is a first copy that came late."""
        unit = self.outstanding.get(seq)
        if unit is not None:
            self._again(seq, unit, labelled, content, frame, time_ns)
            return True
        slot = self.slot_of(seq)
        if slot is not None:
            self._settled_again(seq, slot, labelled, content, frame, time_ns)
            return True
        if seq in self.missing:
            self._came(seq)
        elif seq >= self.first and self.rule.consecutive:
            # Forgotten: it was seen, or it is older than the memory of skipped numbers.
            self.hit("memory")
            if self.rule.resend is None:
                self.duplicates += 1
            else:
                self.retransmissions += 1
            self.current = None
            return True
        elif seq < self.first:
            self._lower(seq)
        # Where the capture begins later, what is sent again now may have been first sent before.
        fresh = self.started or (self.rule.resend is None and seq > self.first)
        if self.rule.consecutive and fresh:
            self.disorder += 1
            if self.disorder <= MIN_DISORDER:
                self._sight()
        self.out_of_order += 1
        self.findings.add("out-of-order", frame, time_ns, self.direction)
        return False

    def _again(
        self,
        seq: int,
        unit: Unit,
        labelled: bool | None,  # noqa: FBT001 - as in `unit`
        content: int,
        frame: int,
        time_ns: int,
    ) -> None:
        """Take a further copy of a unit that is not acknowledged."""
        gap_ns = time_ns - unit.last_ns
        same = content == unit.content
        copied = self._is_copy(labelled, same, gap_ns, unit.copies)
        copy = None
        if self.recorder is not None and unit.record is not None:
            due = unit.due_ns
            copy = self.recorder.again(self, unit.record, copied, labelled, frame, time_ns, due)
        self._count(seq, copy, gap_ns, frame, time_ns, copied=copied, same=same or bool(labelled))
        if not copied:
            unit.copies += 1
            unit.last_ns = time_ns
            unit.content = content
            unit.due_ns = time_ns + self.delay_ns
        self.current = None if copied else unit
        if self.carrier is not None:
            self._load(seq, 1)

    def _settled_again(
        self,
        seq: int,
        slot: int,
        labelled: bool | None,  # noqa: FBT001 - as in `unit`
        content: int,
        frame: int,
        time_ns: int,
    ) -> None:
        """Take a further copy of a unit that is settled."""
        gap_ns = time_ns - self._times[slot]
        same = content == self._contents[slot]
        copied = self._is_copy(labelled, same, gap_ns, self._copies[slot])
        copy = None
        if self.recorder is not None:
            due = self._times[slot] + self.delay_ns
            copy = self.recorder.late(self, seq, copied, labelled, frame, time_ns, due)
        self._count(seq, copy, gap_ns, frame, time_ns, copied=copied, same=same or bool(labelled))
        self.current = None
        if copied:
            return
        self._times[slot] = time_ns
        self._contents[slot] = content
        self.recount(seq, 1)
        self._count_late(seq, frame, time_ns)

    def _is_copy(
        self,
        labelled: bool | None,  # noqa: FBT001 - as in `unit`
        same: bool,  # noqa: FBT001 - private
        gap_ns: int,
        copies: int,
    ) -> bool:
        """Return True where a further copy was made by the network, not by the sender."""
        if self.in_stream:
            return False
        if self.rule.resend is None:
            return True
        if labelled is False:
            return True  # its sender marks what it sends again
        if not same or copies < self.rule.burst:
            return False
        return gap_ns < self.guard_ns and not self.sender_near

    def _count(
        self,
        seq: int,
        copy: Copy | None,
        gap_ns: int,
        frame: int,
        time_ns: int,
        *,
        copied: bool,
        same: bool,
    ) -> None:
        """Count a further copy, and note whether its kind may have to be judged again."""
        if copied:
            self.duplicates += 1
            self.findings.add("duplicate", frame, time_ns, self.direction)
        else:
            self.retransmissions += 1
            self.findings.add("retransmission", frame, time_ns, self.direction)
            if not same:
                self.find(
                    "number-reused", frame, time_ns, self.direction,
                    f"{seq & self._mask} carries other content than before", seq=seq,
                )  # fmt: skip
        if self._counted is not None:
            self._counted.add(
                gap_ns, lambda made: self._turn(seq, copy, copied=made), copied=copied
            )
        elif copied and self.sender_near is None and self._compare:
            if len(self._doubtful) < MAX_DOUBTFUL:
                self._doubtful.append((seq, copy))
            else:
                self.hit("MAX_DOUBTFUL")

    def _count_late(self, seq: int, frame: int, time_ns: int) -> None:
        """Count a transmission after the acknowledgement of its unit."""
        late = self._late
        late[seq] = count = late.get(seq, 0) + 1
        if len(late) > MAX_LATE:
            self.hit("MAX_LATE")
            del late[next(iter(late))]
        if count == LATE_COPIES and self._keeps:
            self.find(
                "acked-yet-resent", frame, time_ns, self.direction,
                f"{seq & self._mask} was acknowledged and is still sent again", seq=seq,
            )  # fmt: skip

    def _turn(self, seq: int, copy: Copy | None, *, copied: bool) -> None:
        """Change the verdict on one copy."""
        step = -1 if copied else 1
        self.duplicates -= step
        self.retransmissions += step
        self.recount(seq, step)
        if copy is not None:
            copy.kind = "duplicate" if copied else "retransmission"

    def place(self, sender_near: bool | None, receiver_near: bool | None) -> None:  # noqa: FBT001
        """Take what has become known about where the capture was taken."""
        self.sender_near, self.receiver_near = sender_near, receiver_near
        if sender_near is None:
            return
        if sender_near:
            for seq, copy in self._doubtful:
                self._turn(seq, copy, copied=False)
        self._doubtful.clear()

    def _load(self, first: int, count: int) -> None:
        """Note with the unit of the datagram at hand that it carries units of this space."""
        carrier = self.carrier
        if carrier is None or carrier.current is None:
            return
        unit = carrier.current
        if unit.carried is None:
            unit.carried = [(self, first, count)]
        else:
            unit.carried.append((self, first, count))
