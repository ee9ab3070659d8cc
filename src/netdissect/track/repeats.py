"""Further copies of the units of one space: who made them, the sender or the network."""

from __future__ import annotations

from typing import Final

from netdissect.model.native import i64
from netdissect.model.policy import AckRule, SpaceRule
from netdissect.model.reports import Copy, UnitRecord
from netdissect.track.context import SpaceContext
from netdissect.track.copies import CountedCopies
from netdissect.track.lateness import resend_timers
from netdissect.track.numbers import Numbers
from netdissect.track.outcomes import KIND, record_reclassified
from netdissect.track.recorder import SpaceRecorder
from netdissect.track.unit import CopyMemory, Unit
from netdissect.track.unitstore import CONTENT, COPIES, TIME, UnitStore
from netdissect.track.vantage import MIN_DISORDER

__all__ = ["LATE_COPIES", "MAX_DOUBTFUL", "MAX_HELD", "MAX_LATE", "OVERTAKEN_BY", "Repeats"]

MAX_DOUBTFUL = 256
"""Copies per space that are judged one by one when it is known where the capture was taken."""
LATE_COPIES: Final = 3
"""A unit sent again so often after its acknowledgement is reported: its sender does not take it."""
MUCH_SOONER: Final = 3
"""A copy this many times as soon as its sender may send again is the network's. In captures of real
programs those came within a quarter of that time, resends in order after two fifths of it."""
COPIED_NS: Final = 10_000_000
"""Networks copied datagrams within this time in captures of real programs, ..."""
CLOSE_NS: Final = 15_000_000
"""... and seldom within this: rather they bring a resend so close to a copy that they held back."""
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
_MS: Final = 1_000_000
SOON: Final = 0
"""A copy came sooner than its sender makes one, ..."""
BESIDE: Final = 1
"""... much sooner than it may by the round trip that it states, ..."""
MAYBE: Final = 2
"""... as soon as networks may make them, and sooner than its timer, ..."""
LATE: Final = 3
"""... or later."""
SORTS: Final = (SOON, BESIDE, MAYBE)
FINDING: Final[dict[bool | None, str]] = {
    True: "duplicate", False: "retransmission", None: "unknown-copy"
}  # fmt: skip
"""Verdict -> code of its finding."""


class Repeats:
    """Counts the further copies of units and judges them: again, where more becomes known."""

    __slots__ = (
        "_by_place",
        "_context",
        "_far_delay_ns",
        "_memory",
        "_numbers",
        "_recorder",
        "_sort",
        "_store",
        "counted",
        "duplicates",
        "guard_ns",
        "retransmissions",
        "soonest_ns",
        "undecided",
    )  # fmt: skip

    def __init__(
        self,
        context: SpaceContext,
        numbers: Numbers,
        store: UnitStore,
        recorder: SpaceRecorder | None,
    ) -> None:
        self._context = context
        self._numbers = numbers
        self._store = store
        self._recorder = recorder
        self.retransmissions = self.duplicates = 0
        self.undecided = 0
        """Further copies of which nothing tells who made them."""
        self.guard_ns = 0
        """Copies closer than this are the network's."""
        self.soonest_ns = self._far_delay_ns = 0
        """Guard and timer of a sender that is far; 0 where they judge nothing."""
        self._memory: CopyMemory | None = None
        """None before the first further copy."""
        self._by_place = False
        """Whether the kind of the copy at hand depends on where the capture was taken."""
        self._sort = SOON
        """How soon it came."""
        self.counted: CountedCopies | None = None
        """Copies since the newest number, which the next number judges."""

    def obey(self, rule: SpaceRule) -> None:
        """Take the rules of a dialect."""
        if rule.copies_take_numbers and self.counted is None:
            self.counted = CountedCopies()

    def retime(
        self,
        smoothed_ms: float | None,
        variance_ms: float = 0.0,
        stated_ms: float | None = None,
        before_ms: float | None = None,
    ) -> None:
        """Recompute delay and guard for the round trip that the sender knows; `stated_ms`: the one
        that it knows wherever the capture stands, `before_ms`: the one before that.
        """
        resend = self._context.rule.resend
        window_ms = self._context.rule.duplicate_window_ms
        if resend is not None:
            self._context.delay_ns, guard_ns = resend_timers(resend, smoothed_ms, variance_ms)
            if not window_ms:
                self.guard_ns = guard_ns
                return
            self._far_delay_ns, guard_ns = resend_timers(resend, stated_ms, 0.0)
            self.soonest_ns = min(guard_ns, resend_timers(resend, before_ms, 0.0)[1])
        self.guard_ns = int(window_ms * _MS)

    def release(self) -> None:
        """Let go of what is needed no more once the space has reported."""
        self._recorder = None
        self._memory = None

    # -- further copies ----------------------------------------------------------------------------

    def waiting(self) -> int:
        """Return how many copies the next number will judge."""
        return 0 if self.counted is None else len(self.counted.copies)

    def numbered(self) -> int:
        """Return how many copies have taken a number."""
        if not self._context.rule.copies_take_numbers:
            return 0
        return self.retransmissions + self.undecided

    def forget(self) -> None:
        """Judge the copies that no number will judge any more."""
        if self.counted is not None:
            self.counted.forget()

    def is_reuse(self, content: i64, before: i64) -> bool:
        """Return True where a number carries other content, though its sender sends none again."""
        again = self._context.rule.resend is not None or self._context.in_stream
        return content != before and not again

    def copy_of_outstanding(
        self, seq: int, unit: Unit, labelled: bool | None, content: i64, frame: int, time_ns: int  # noqa: FBT001 - as in `Space.unit`
    ) -> bool:
        """Take a further copy of an open unit; return whether it is the network's."""
        context = self._context
        gap_ns = time_ns - unit.last_ns
        same = content == unit.content
        twice = self._comes_twice_in(seq, frame) or unit.frame == frame
        copied = False if twice else self._is_copy(
            seq, labelled, same, gap_ns, unit.copies, time_ns
        )  # fmt: skip
        copy, record = None, None
        if self._recorder is not None:
            due_ns = unit.due_ns
            copy = self._recorder.further_copy(
                context, unit, seq, copied, labelled, frame, time_ns, due_ns
            )
            record = unit.record
        same = same or bool(labelled)
        self._count(seq, copy, gap_ns, frame, time_ns, copied=copied, same=same, record=record)
        if copied:
            return True
        self._held(seq, gap_ns)
        unit.copies += 1
        unit.last_ns = time_ns
        unit.content = content
        unit.due_ns = time_ns + context.delay_ns
        return False

    def copy_of_settled(
        self, seq: int, slot: i64, labelled: bool | None, content: i64, frame: int, time_ns: int  # noqa: FBT001 - as in `Space.unit`
    ) -> i64:
        """Take a further copy of a settled unit; return how many its sender has made now, 0 where
        this one is the network's.
        """
        context, cells = self._context, self._store.settled.cells
        sent_ns, copies = cells[slot + TIME], cells[slot + COPIES]
        gap_ns = time_ns - sent_ns
        same = content == cells[slot + CONTENT]
        twice = self._comes_twice_in(seq, frame)
        copied = False if twice else self._is_copy(seq, labelled, same, gap_ns, copies, time_ns)
        copy = None
        if self._recorder is not None:
            due_ns = sent_ns + context.delay_ns
            copy = self._recorder.late_copy(context, seq, copied, labelled, frame, time_ns, due_ns)
        same = same or bool(labelled)
        self._count(seq, copy, gap_ns, frame, time_ns, copied=copied, same=same)
        if copied:
            return 0
        self._held(seq, gap_ns)
        cells[slot + TIME] = time_ns
        cells[slot + CONTENT] = content
        self._store.adjust_copies(seq, 1)
        self._count_late(seq, frame, time_ns)
        return cells[slot + COPIES]

    # -- verdicts ----------------------------------------------------------------------------------

    def _comes_twice_in(self, seq: int, frame: int) -> bool:
        """Return whether a further copy of a unit came in this datagram before: no network puts
        anything into a datagram, so that both are its sender's.
        """
        self._by_place = False
        memory = self._remember()
        if frame != memory.again_in:
            memory.again_in = frame
            memory.again_of.clear()
        twice = seq in memory.again_of
        memory.again_of.add(seq)
        return twice

    def _is_copy(
        self,
        seq: int,
        labelled: bool | None,  # noqa: FBT001 - as in `unit`
        same: bool,  # noqa: FBT001 - `Space` alone calls it
        gap_ns: int,
        copies: int,
        time_ns: int,
    ) -> bool | None:
        """Return True where a further copy was made by the network, False where by its sender, and
        None where nothing tells.

        The network copies a datagram as it is: other bytes are never its work. What comes much
        sooner than its sender could make it is the network's. But a copy that the network held back
        comes just before the one that its sender has made since. So is a second copy of what is
        sent twice back to back the network's, where later numbers came between: its twin is lost.
        """
        context = self._context
        self._by_place = False
        if context.in_stream or not same:
            return False
        if context.rule.resend is None or labelled is False:
            return True  # its sender sends nothing again, or marks what it does
        self._sort = self._how_soon(gap_ns)
        if self._sort == MAYBE and gap_ns >= COPIED_NS:
            self._brought_close()
        if self._sort == LATE or (
            copies < context.rule.burst and not self._overtaken(seq, gap_ns, time_ns)
        ):  # fmt: skip
            return False
        held_ns = 0 if self._memory is None else self._memory.held.get(seq, 0)
        if held_ns and gap_ns + held_ns >= self.soonest_ns and (
            copies == 1 or self._sort != SOON
        ):  # fmt: skip
            return None if gap_ns < COPIED_NS and not context.sender_near else False
        return self._by_its_place(gap_ns, time_ns)

    def _by_its_place(self, gap_ns: int, time_ns: int) -> bool | None:
        """Return who made a copy that came so soon, as far as the place of the capture tells."""
        copied = self._copied_here(self._sort)
        if self.soonest_ns and self._came_too_soon(self._sort):
            if self._were_held_up(time_ns):
                return False
            context = self._context
            if gap_ns + context.findings.held_ns[context.direction] >= self._far_delay_ns:
                return None
        self._by_place = True
        return copied

    def _how_soon(self, gap_ns: int) -> int:
        """Return how soon a copy came after the one before it, as its sender's timers go."""
        if gap_ns < self.guard_ns:
            return SOON
        if gap_ns < -(-self.soonest_ns // MUCH_SOONER):
            return BESIDE
        return MAYBE if gap_ns < min(CLOSE_NS, self._far_delay_ns // 2) else LATE

    def _brought_close(self) -> None:
        """Take that the network brings resends close to the copies before them: none that came
        soon is known to be its own then.
        """
        context = self._context
        client, server = context.findings.close_resends
        if context.sender_near or (server if context.direction else client):
            return
        before = [self._copied_here(sort) for sort in SORTS]
        mine = context.direction == 0
        context.findings.close_resends = (client or mine, server or not mine)
        self._judge_again(before)

    def _were_held_up(self, time_ns: int) -> bool:
        """Return whether a copy that came too soon for a resend is one, as the network has held
        everything of its direction back for long enough: a network copies datagrams now and then,
        and not many of those that come together. Those so far then are resends, too.
        """
        memory = self._remember()
        waited_ns, units = self._together(time_ns)
        if time_ns - memory.together_ns > self.soonest_ns:
            memory.soon, memory.together_from = 0, len(memory.doubtful)
            memory.waited_ns = 0
        memory.together_ns = time_ns
        memory.waited_ns = max(waited_ns, int(memory.waited_ns))
        memory.soon += 1
        if memory.soon < A_FEW or MANY * memory.soon < units or memory.waited_ns < self.soonest_ns:
            return False
        for seq, copy, record, sort in memory.doubtful[memory.together_from :]:
            self._reclassify(seq, copy, self._copied_here(sort), False)
            self._reclassify_record(record)
        del memory.doubtful[memory.together_from :]
        return True

    def _together(self, time_ns: int) -> tuple[int, int]:
        """Return how long nothing came before the units of just now, less long ago than their
        sender waits at least, and how many of the newest those are.
        """
        newest = int(self._numbers.newest)
        lasts = [self._store.last_ns(seq) for seq in range(newest - OVERTAKEN_BY + 1, newest + 1)]
        moments = sorted([last_ns for last_ns in lasts if last_ns is not None], reverse=True)
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
        numbers, store = self._numbers, self._store
        if gap_ns >= COPIED_NS or numbers.out_of_order >= MIN_DISORDER:
            return False
        for later in range(seq + 1, min(seq + OVERTAKEN_BY, int(numbers.newest)) + 1):
            if time_ns - gap_ns < store.arrival_ns(later, 0):
                return True
        return False

    def _copied_here(self, sort: int) -> bool | None:
        """Return whether a copy that came so soon is the network's where the capture was taken.

        Next to both sides there is a network nonetheless, such as a relay without delay, if its
        losses show.
        """
        context = self._context
        if self._came_too_soon(sort):
            client, server = context.findings.close_resends
            far = self.soonest_ns and not context.sender_near
            return None if far and (server if context.direction else client) else True
        return False if context.sender_near else None

    def _came_too_soon(self, sort: int) -> bool:
        """Return whether a copy came sooner than its sender makes one and the network delays it."""
        context = self._context
        if not context.sender_near:
            return sort == SOON or (sort == BESIDE and context.receiver_near is True)
        if not context.receiver_near or not self.soonest_ns or sort != SOON:
            return False
        return self._numbers.disorder > 0 and not context.findings.misses

    # -- how late they came ------------------------------------------------------------------------

    def _held(self, seq: int, gap_ns: int) -> None:
        """Remember of a resend how much later than its sender's timer it came."""
        late_ns = (gap_ns + self.guard_ns) % (self._far_delay_ns or 1) - self.guard_ns
        self._hold(seq, late_ns)

    def held_first(self, seq: int, time_ns: int) -> None:
        """Remember how late a first copy is, as those show that were sent later and came before."""
        store = self._store
        before_ns, after_ns = store.arrival_ns(seq - 1, 0), store.arrival_ns(seq + 1, 0)
        if before_ns and after_ns:
            context = self._context
            held_ns = time_ns - (before_ns + after_ns) // 2
            # What was lost comes as late as that when its sender repeats it.
            if context.rule.resend is None or 4 * held_ns < 3 * self._far_delay_ns:
                context.findings.hold(context.direction, held_ns)
        if not self.soonest_ns:
            return
        first_ns: i64 = time_ns
        last: i64 = min(seq + OVERTAKEN_BY, self._numbers.newest)
        later: i64 = seq + 1
        while later <= last:
            came_ns = store.arrival_ns(later, time_ns)
            if came_ns < first_ns:  # noqa: PLR1730 - the builtin would cost more
                first_ns = came_ns
            later += 1
        self._hold(seq, time_ns - first_ns)

    def _hold(self, seq: int, held_ns: int) -> None:
        """Remember how long the network may have held the newest copy of a unit back."""
        if not self.soonest_ns:
            return
        held = self._remember().held
        held[seq] = held_ns = max(0, held_ns)
        if not held_ns:
            del held[seq]
        elif len(held) > MAX_HELD:
            self._context.hit("MAX_HELD")
            del held[next(iter(held))]

    # -- counts ------------------------------------------------------------------------------------

    def _count(
        self,
        seq: int,
        copy: Copy | None,
        gap_ns: int,
        frame: int,
        time_ns: int,
        *,
        copied: bool | None,
        same: bool,
        record: UnitRecord | None = None,
    ) -> None:
        """Count a further copy, and note whether its kind may have to be judged again; `record`
        where it came before the acknowledgement of its unit.
        """
        context = self._context
        context.findings.add(FINDING[copied], frame, time_ns, context.direction)
        if copied:
            self.duplicates += 1
        elif copied is None:
            self.undecided += 1
        else:
            self.retransmissions += 1
            if not same:
                self.note_reused(seq, frame, time_ns)
        if self.counted is not None:
            if copy is not None:
                copy.doubtful = True
            if not self.counted.add(
                gap_ns,
                lambda made: self._verdict(seq, copy, copied, made),
                time_ns,
                copied=copied is True,
                soon=gap_ns < COPIED_NS,
            ):
                context.hit("MAX_COUNTED")
        elif self._by_place:
            memory = self._remember()
            if len(memory.doubtful) < MAX_DOUBTFUL:
                if copy is not None:
                    copy.by_place = True
                memory.doubtful.append((seq, copy, record, self._sort))
            else:
                memory.placed[self._sort] += 1
                context.hit("MAX_DOUBTFUL")

    def note_reused(self, seq: int, frame: int, time_ns: int) -> None:
        """Report that a number carries other content than before."""
        self._context.find(
            "number-reused", frame, time_ns, self._context.direction,
            f"{seq & self._numbers.mask} carries other content than before", seq=seq,
        )  # fmt: skip

    def _count_late(self, seq: int, frame: int, time_ns: int) -> None:
        """Count a transmission after the acknowledgement of its unit."""
        late = self._remember().late
        late[seq] = count = late.get(seq, 0) + 1
        if len(late) > MAX_LATE:
            self._context.hit("MAX_LATE")
            del late[next(iter(late))]
        if count == LATE_COPIES and self._context.rule.ack is not AckRule.NONE:
            self._context.find(
                "acked-yet-resent", frame, time_ns, self._context.direction,
                f"{seq & self._numbers.mask} was acknowledged and is still sent again", seq=seq,
            )  # fmt: skip

    def _remember(self) -> CopyMemory:
        """Return what is remembered of further copies."""
        memory = self._memory
        if memory is None:
            memory = self._memory = CopyMemory()
        return memory

    # -- verdicts that change ----------------------------------------------------------------------

    def _verdict(
        self, seq: int, copy: Copy | None, before: bool | None, copied: bool | None  # noqa: FBT001
    ) -> None:
        """Take what the next number has shown of a copy: none has made one next to its sender."""
        context = self._context
        if context.sender_near and not context.receiver_near:
            copied = False
        if copy is not None:
            copy.doubtful = False
        self._reclassify(seq, copy, before, copied)

    def _reclassify(
        self, seq: int, copy: Copy | None, before: bool | None, copied: bool | None  # noqa: FBT001
    ) -> None:  # fmt: skip
        """Change the verdict on one copy."""
        if copied is before:
            return
        self._recount(1, before, copied)
        if copied or before:
            self._store.adjust_copies(seq, -1 if copied else 1)
        if copy is not None:
            copy.kind = KIND[copied]
            if self._recorder is not None:
                self._recorder.copy_reclassified(copy, KIND[before])

    def _recount(self, count: int, before: bool | None, copied: bool | None) -> None:  # noqa: FBT001
        """Count copies whose verdict has changed."""
        for verdict, step in ((before, -count), (copied, count)):
            if verdict:
                self.duplicates += step
            elif verdict is None:
                self.undecided += step
            else:
                self.retransmissions += step
        self._context.findings.reclassify(FINDING[before], FINDING[copied], count)

    def _reclassify_record(self, record: UnitRecord | None) -> None:
        """Take that another kind of a copy changes what the acknowledgement of its unit tells,
        unless that names the copy.
        """
        if record is not None and self._context.rule.ack is not AckRule.STAMPED:
            record_reclassified(record)

    def place(self, sender_near: bool | None, receiver_near: bool | None) -> None:  # noqa: FBT001
        """Take what is known now about where the capture was taken: more than before, or less."""
        context = self._context
        before = [self._copied_here(sort) for sort in SORTS]
        context.sender_near, context.receiver_near = sender_near, receiver_near
        self._judge_again(before)
        if self._recorder is not None:
            self._recorder.place(context)

    def _judge_again(self, before: list[bool | None]) -> None:
        """Judge the copies again whose kind depends on the place; `before`: verdict by sort."""
        now = [self._copied_here(sort) for sort in SORTS]
        memory = self._memory
        if now != before and memory is not None:
            for seq, copy, record, sort in memory.doubtful:
                if now[sort] is not before[sort]:
                    self._reclassify(seq, copy, before[sort], now[sort])
                    self._reclassify_record(record)
            for sort, left in enumerate(memory.placed):
                if left and now[sort] is not before[sort]:
                    self._recount(left, before[sort], now[sort])
