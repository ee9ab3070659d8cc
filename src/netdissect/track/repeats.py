"""Further copies of the units of one space: who made them, the sender or the network."""

from __future__ import annotations

from typing import Any, Final

from netdissect.model.native import i64
from netdissect.model.reports import Copy, UnitRecord
from netdissect.track.acks import Acknowledged
from netdissect.track.ledger import CONTENT, COPIES, TIME
from netdissect.track.noting import note_turned
from netdissect.track.unit import Carried, Unit
from netdissect.track.vantage import MIN_DISORDER

__all__ = [
    "LATE_COPIES", "MAX_BESIDE", "MAX_DOUBTFUL", "MAX_HELD", "MAX_LATE", "OVERTAKEN_BY", "Repeated",
]  # fmt: skip

MAX_BESIDE = 256
"""Findings per space that wait until it is known where the capture was taken."""
MAX_DOUBTFUL = 256
"""Copies per space that are judged one by one when it is known where the capture was taken."""
LATE_COPIES: Final = 3
"""A unit sent again so often after its acknowledgement is reported: its sender does not take it."""
MUCH_SOONER: Final = 3
"""A copy this many times as soon as its sender may send again is the network's. In captures of real
programs those came within a quarter of that time, resends in order after two fifths of it."""
COPIED_NS: Final = 10_000_000
"""Networks copied datagrams within this time in captures of real programs; those that they held
back came later.
"""
OVERTAKEN_BY: Final = 32
"""Later numbers that are looked at to tell how late a unit is."""
A_FEW: Final = 2
"""So many copies that come too soon, together and behind a silence, a network held back ..."""
MANY: Final = 3
"""... if they are at least one in so many of the units that came with them."""
MAX_HELD = 256
"""Units per space remembered of which the network has held the newest copy back."""
MAX_LATE = 256
"""Units per space whose transmissions after the acknowledgement are counted."""


class Repeated(Acknowledged):
    """A ledger whose units come more than once."""

    __slots__ = ()

    def _again(
        self,
        seq: int,
        unit: Unit,
        labelled: bool | None,  # noqa: FBT001 - as in `unit`
        content: i64,
        type_: str | None,
        frame: int,
        time_ns: int,
    ) -> None:
        """Take a further copy of a unit that is not acknowledged."""
        gap_ns = time_ns - unit.last_ns
        same = content == unit.content
        if not same and self._repeats_nothing():
            self._reused(seq, content, type_, frame, time_ns)
            return
        twice = self._is_twice_in(seq, frame) or unit.frame == frame
        copied = not twice and self._is_copy(seq, labelled, same, gap_ns, unit.copies, time_ns)
        copy, record = None, None
        if self.recorder is not None:
            due = unit.due_ns
            copy = self.recorder.again(self, unit, seq, copied, labelled, frame, time_ns, due)
            record = unit.record
        same = same or bool(labelled)
        self._count(seq, copy, gap_ns, frame, time_ns, copied=copied, same=same, record=record)
        if not copied:
            self._hold(seq, self._late_by(gap_ns))
            unit.copies += 1
            unit.last_ns = time_ns
            unit.content = content
            unit.due_ns = time_ns + self.delay_ns
            if unit.copies == self._limit:
                self.note_exhausted(seq, unit)
        self.current = None if copied else unit
        if self.carrier is not None:
            self._load(self._one(seq))

    def _settled_again(
        self,
        seq: int,
        slot: i64,
        labelled: bool | None,  # noqa: FBT001 - as in `unit`
        content: i64,
        type_: str | None,
        frame: int,
        time_ns: int,
    ) -> None:
        """Take a further copy of a unit that is settled."""
        ring = self._ring.cells
        gap_ns = time_ns - ring[slot + TIME]
        same = content == ring[slot + CONTENT]
        if not same and self._repeats_nothing():
            self._reused(seq, content, type_, frame, time_ns)
            return
        copied = not self._is_twice_in(seq, frame) and self._is_copy(
            seq, labelled, same, gap_ns, ring[slot + COPIES], time_ns
        )
        copy = None
        if self.recorder is not None:
            due = ring[slot + TIME] + self.delay_ns
            copy = self.recorder.late(self, seq, copied, labelled, frame, time_ns, due)
        self._count(seq, copy, gap_ns, frame, time_ns, copied=copied, same=same or bool(labelled))
        self.current = None
        if copied:
            return
        self._hold(seq, self._late_by(gap_ns))
        ring[slot + TIME] = time_ns
        ring[slot + CONTENT] = content
        self.recount(seq, 1)
        self._count_late(seq, frame, time_ns)
        if 0 < self._limit <= ring[slot + COPIES]:
            self.spent_ns = time_ns + self.delay_ns

    def _is_twice_in(self, seq: int, frame: int) -> bool:
        """Return whether a further copy of a unit came in this datagram before: no network puts
        anything into a datagram, so that both are its sender's.
        """
        self._by_place = False
        further = self._remembered()
        if frame != further.again_in:
            further.again_in = frame
            further.again_of.clear()
        twice = seq in further.again_of
        further.again_of.add(seq)
        return twice

    def _late_by(self, gap_ns: int) -> int:
        """Return how much later than its sender's timer a resend came."""
        return (gap_ns + self.guard_ns) % (self.far_delay_ns or 1) - self.guard_ns

    def _hold(self, seq: int, held_ns: int) -> None:
        """Remember how long the network may have held the newest copy of a unit back."""
        if not self.soonest_ns:
            return
        held = self._remembered().held
        held[seq] = held_ns = max(0, held_ns)
        if not held_ns:
            del held[seq]
        elif len(held) > MAX_HELD:
            self.hit("MAX_HELD")
            del held[next(iter(held))]

    def _repeats_nothing(self) -> bool:
        """Return True where the sender never sends a unit again."""
        return self.rule.resend is None and not self.in_stream

    def _is_copy(
        self,
        seq: int,
        labelled: bool | None,  # noqa: FBT001 - as in `unit`
        same: bool,  # noqa: FBT001 - private
        gap_ns: int,
        copies: int,
        time_ns: int,
    ) -> bool:
        """Return True where a further copy was made by the network, not by the sender.

        The network copies a datagram as it is: other bytes are never its work. A copy that the
        network held back comes just before the one that its sender has made since. Next to the
        receiver, what else comes much sooner than its sender could make it is the network's, too.
        So is a second copy of what is sent twice back to back, where later numbers came between:
        its twin is lost.
        """
        self._by_place = False
        if self.in_stream or not same:
            return False
        if self.rule.resend is None or labelled is False:
            return True  # its sender sends nothing again, or marks what it does
        self._beside_only = gap_ns >= self.guard_ns
        if (copies < self.rule.burst and not self._overtaken(seq, gap_ns, time_ns)) or (
            self._beside_only and gap_ns >= -(-self.soonest_ns // MUCH_SOONER)
        ):
            return False
        held_ns = 0 if self._further is None else self._further.held.get(seq, 0)
        if held_ns and gap_ns + held_ns >= self.soonest_ns and (copies == 1 or self._beside_only):
            return False
        copied = self._copied_here(beside_only=self._beside_only)
        if copied and self.soonest_ns and self._were_held_up(time_ns):
            return False
        self._by_place = True
        return copied

    def _were_held_up(self, time_ns: int) -> bool:
        """Return whether a copy that came too soon for a resend is one, as the network has held
        everything of its direction back for long enough: a network copies datagrams now and then,
        and not many of those that come together. Those so far then are resends, too.
        """
        further = self._remembered()
        waited_ns, units = self._together(time_ns)
        if time_ns - further.together_ns > self.soonest_ns:
            further.soon, further.together_from = 0, len(further.doubtful)
            further.waited_ns = 0
        further.together_ns = time_ns
        further.waited_ns = max(waited_ns, int(further.waited_ns))
        further.soon += 1
        if (
            further.soon < A_FEW
            or MANY * further.soon < units
            or further.waited_ns < self.soonest_ns
        ):
            return False
        for seq, copy, record, _ in further.doubtful[further.together_from :]:
            self._turn(seq, copy, copied=False)
            if record is not None:
                self._turned(record)
        del further.doubtful[further.together_from :]
        return True

    def _together(self, time_ns: int) -> tuple[int, int]:
        """Return how long nothing came before the units of just now, less long ago than their
        sender waits at least, and how many of the newest those are.
        """
        moments = []
        for seq in range(int(self.newest) - OVERTAKEN_BY + 1, int(self.newest) + 1):
            unit, slot = self.outstanding.get(seq), self.slot_of(seq)
            if unit is not None:
                moments.append(int(unit.last_ns))
            elif slot >= 0:
                moments.append(int(self._ring.cells[slot + TIME]))
        moments.sort(reverse=True)
        since_ns, soonest_ns = time_ns, int(self.soonest_ns)
        for count, moment in enumerate(moments):
            if since_ns - moment >= soonest_ns:
                return since_ns - moment, count
            if time_ns - moment >= soonest_ns:
                return 0, count
            since_ns = moment
        return 0 if len(moments) < OVERTAKEN_BY else soonest_ns, len(moments)

    def _overtaken(self, seq: int, gap_ns: int, time_ns: int) -> bool:
        """Return whether later numbers came since the copy before this one, in a capture in which
        the network keeps the order, and holds nothing back for so long.
        """
        if gap_ns >= COPIED_NS or self.out_of_order >= MIN_DISORDER:
            return False
        for later in range(seq + 1, min(seq + OVERTAKEN_BY, int(self.newest)) + 1):
            unit, slot = self.outstanding.get(later), self.slot_of(later)
            since_ns = 0 if slot < 0 else int(self._ring.cells[slot + TIME])
            if time_ns - gap_ns < (since_ns if unit is None else unit.first_ns):
                return True
        return False

    def _copied_here(self, *, beside_only: bool) -> bool:
        """Return whether a copy that came so soon is the network's where the capture was taken.

        Next to both sides there is a network nonetheless, such as a relay without delay, if its
        losses show.
        """
        if self.sender_near:
            relayed = bool(self.receiver_near) and self.disorder > 0 and not self.findings.misses
            return relayed and not beside_only and self.soonest_ns > 0
        return bool(self.receiver_near) or not beside_only

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
        record: UnitRecord | None = None,
    ) -> None:
        """Count a further copy, and note whether its kind may have to be judged again; `record`
        where it came before the acknowledgement of its unit.
        """
        if copied:
            self.duplicates += 1
            self.findings.add("duplicate", frame, time_ns, self.direction)
        else:
            self.retransmissions += 1
            self.findings.add("retransmission", frame, time_ns, self.direction)
            if not same:
                self._other_content(seq, frame, time_ns)
        if self._counted is not None:
            if copy is not None:
                copy.doubtful = True
            if not self._counted.add(
                gap_ns,
                lambda made: self._verdict(seq, copy, copied, made),
                time_ns,
                copied=copied,
                soon=gap_ns < COPIED_NS,
            ):
                self.hit("MAX_COUNTED")
        elif self._by_place:
            repeats = self._remembered()
            if len(repeats.doubtful) < MAX_DOUBTFUL:
                if copy is not None:
                    copy.by_place = True
                repeats.doubtful.append((seq, copy, record, self._beside_only))
            else:
                repeats.placed[self._beside_only] += 1
                self.hit("MAX_DOUBTFUL")

    def _other_content(self, seq: int, frame: int, time_ns: int) -> None:
        self.find(
            "number-reused", frame, time_ns, self.direction,
            f"{seq & self._mask} carries other content than before", seq=seq,
        )  # fmt: skip

    def _reused(self, seq: int, content: i64, type_: str | None, frame: int, time_ns: int) -> None:
        """Take other content under a number whose units are never sent again."""
        self._apart(seq, content, type_, frame, time_ns)
        self._other_content(seq, frame, time_ns)

    def _apart(self, seq: int, content: i64, type_: str | None, frame: int, time_ns: int) -> Unit:
        """Take a unit whose number is no evidence of those between it and others."""
        self.units += 1
        self.apart += 1
        record = None
        if self.recorder is not None:
            record = self.recorder.lone(self, seq, seq & self._mask, type_, frame, time_ns)
        unit = self.current = Unit(time_ns, content, time_ns + self.delay_ns, frame, record)
        return unit

    def _count_late(self, seq: int, frame: int, time_ns: int) -> None:
        """Count a transmission after the acknowledgement of its unit."""
        late = self._remembered().late
        late[seq] = count = late.get(seq, 0) + 1
        if len(late) > MAX_LATE:
            self.hit("MAX_LATE")
            del late[next(iter(late))]
        if count == LATE_COPIES and self._keeps:
            self.find(
                "acked-yet-resent", frame, time_ns, self.direction,
                f"{seq & self._mask} was acknowledged and is still sent again", seq=seq,
            )  # fmt: skip

    def _verdict(self, seq: int, copy: Copy | None, before: bool, copied: bool) -> None:  # noqa: FBT001
        """Take what the next number has shown of a copy: none has made one next to its sender."""
        copied = copied and (not self.sender_near or bool(self.receiver_near))
        if copy is not None:
            copy.doubtful = False
        if copied is not before:
            self._turn(seq, copy, copied=copied)

    def _turn(self, seq: int, copy: Copy | None, *, copied: bool) -> None:
        """Change the verdict on one copy."""
        self._count_turned(1, copied=copied)
        self.recount(seq, -1 if copied else 1)
        if copy is not None:
            copy.kind = "duplicate" if copied else "retransmission"
            if self.recorder is not None:
                self.recorder.turned(copy)

    def _count_turned(self, count: int, *, copied: bool) -> None:
        """Count copies whose verdict has changed."""
        step = -count if copied else count
        self.duplicates -= step
        self.retransmissions += step
        if copied:
            self.findings.turn("retransmission", "duplicate", count)
        else:
            self.findings.turn("duplicate", "retransmission", count)

    def place(self, sender_near: bool | None, receiver_near: bool | None) -> None:  # noqa: FBT001
        """Take what is known now about where the capture was taken: more than before, or less."""
        before = [self._copied_here(beside_only=only) for only in (False, True)]
        self.sender_near, self.receiver_near = sender_near, receiver_near
        now = [self._copied_here(beside_only=only) for only in (False, True)]
        repeats = self._further
        if now != before and repeats is not None:
            for seq, copy, record, only in repeats.doubtful:
                if now[only] is not before[only]:
                    self._turn(seq, copy, copied=now[only])
                    if record is not None:
                        self._turned(record)
            for sort, left in enumerate(repeats.placed):
                if left and now[sort] is not before[sort]:
                    self._count_turned(left, copied=now[sort])
        if self.recorder is not None:
            self.recorder.place(self)

    def _turned(self, record: UnitRecord) -> None:
        """Take that another kind of a copy changes what the acknowledgement of a unit tells."""
        note_turned(record)

    def find_beside(self, code: str, frame: int, time_ns: int, text: str, **evidence: Any) -> None:
        """Report what holds only next to the receiver, once the capture is known to be there for
        good; else it is not told.
        """
        self._beside.append((code, frame, time_ns, text, evidence))
        if len(self._beside) > MAX_BESIDE:
            self._beside.pop()
            self.hit("MAX_BESIDE")
        if self.placed_for_good:
            self.place_for_good()

    def place_for_good(self) -> None:
        """Take that nothing more will be known about where the capture was taken."""
        self.placed_for_good = True
        held, self._beside = self._beside, []
        beside = self.receiver_near and not self.findings.misses
        for code, frame, time_ns, text, evidence in held if beside else ():
            self.find(code, frame, time_ns, self.direction, text, **evidence)

    def _one(self, seq: i64) -> Carried:
        """Return a unit as something that a datagram carries."""
        return Carried(self, seq, 1, 0, 0, 0, None, is_open=False)

    def _load(self, item: Carried) -> None:
        """Note with the unit of the datagram at hand that it carries units of this space."""
        carrier = self.carrier
        if carrier is None or carrier.current is None:
            return
        unit = carrier.current
        last = unit.last_carried
        if last is None:
            unit.carried = item
        else:
            last.further = item
        unit.last_carried = item
