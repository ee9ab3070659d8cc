"""Decides who made each further copy of a unit: its sender (a retransmission) or the network (a
duplicate).

The network copies a datagram byte for byte and delivers the copy soon; a sender waits for its timer
first. So the gap between a copy and the one before it decides:

1. Other bytes, a second copy in the same datagram, and anything over TCP come from the sender.
2. If the sender never sends again, or marks what it sends again and this copy has no mark, the
   network made the copy.
3. The gap is compared with the sender's timer (`WITHIN_GUARD` ... `AFTER_TIMER`). A copy that comes
   `AFTER_TIMER` is the sender's.
4. An earlier copy is the sender's if the capture was taken next to the sender, where the network
   has not touched anything yet. Elsewhere it is the network's if the gap is shorter than the sender
   permits, otherwise unknown.
5. A network that delays datagrams makes a retransmission look like a network copy. Where one shows
   (`CopyMemory`), nothing is called the network's, unless all network copies have about the same
   gap, or come far sooner than retransmissions (`Findings.copy_gaps`), nor if the sender went on
   meanwhile (`Schedule.crowded`).

A verdict is True (network), False (sender) or None (unknown). Verdicts that depend on the vantage
are revised when the vantage changes. In spaces where each transmission takes a number, the numbers
decide instead (`CountedCopies`).
"""

from __future__ import annotations

from typing import Final

from netdissect.model.native import ABSENT, i64
from netdissect.model.policy import AckRule, SpaceRule
from netdissect.model.reports import Copy, UnitRecord
from netdissect.track.arrivals import (
    burst_after_silence,
    earliest_later,
    newest_arrivals,
    overtaken,
)
from netdissect.track.context import (
    AFTER_TIMER,
    BELOW_GUARD,
    CLOSE_RESEND_NS,
    NETWORK_COPY_NS,
    WITHIN_FAR_GUARD,
    WITHIN_GUARD,
    WITHIN_NETWORK_DELAY,
    WITHIN_QUARTER,
    SpaceContext,
)
from netdissect.track.copies import CountedCopies
from netdissect.track.copymemory import CLOSE_TWIN_NS, CopyMemory, EarlyCopy
from netdissect.track.numbers import Numbers
from netdissect.track.outcomes import KIND, last_sent_ns, record_reclassified
from netdissect.track.recorder import SpaceRecorder
from netdissect.track.requests import UNDER_WAY_NS, Requests
from netdissect.track.schedule import BETWEEN, HASTY, NEARLY
from netdissect.track.unit import Unit
from netdissect.track.unitstore import CONTENT, COPIES, TIME, UnitStore

LATE_COPIES: Final = 3
"""A unit sent again this often after its acknowledgement is reported as `acked-yet-resent`."""

FINDING: Final[dict[bool | None, str]] = {
    True: "duplicate", False: "retransmission", None: "unknown-copy"
}  # fmt: skip
"""Verdict -> code of its finding."""


class Repeats:
    """Counts and judges the further copies of one space, and revises the verdicts."""

    __slots__ = (
        "_context", "_early", "_gap_class", "_memory", "_numbers", "_recorder", "_requests",
        "_store", "counted", "duplicates", "of_bursts", "retransmissions", "undecided",
    )  # fmt: skip

    def __init__(
        self, context: SpaceContext, numbers: Numbers, store: UnitStore,
        recorder: SpaceRecorder | None,
    ) -> None:  # fmt: skip
        self._context = context
        self._numbers = numbers
        self._store = store
        self._recorder = recorder
        self.retransmissions = self.duplicates = self.undecided = 0
        self.of_bursts = 0
        """Further copies that came while some of `SpaceRule.burst` were missing."""
        self._memory: CopyMemory | None = None
        """None before the first further copy."""
        self._early: EarlyCopy | None = None
        """The current copy, if its verdict may be revised."""
        self._requests: Requests | None = None
        """None before the receiver's first request."""
        self._gap_class = WITHIN_GUARD
        """Class of the gap between the current copy and the one before it."""
        self.counted: CountedCopies | None = None
        """Copies since the newest number, which the next number judges; None in most spaces."""

    def obey(self, rule: SpaceRule) -> None:
        """Apply the rules of a dialect."""
        if rule.copies_take_numbers and self.counted is None:
            self.counted = CountedCopies()

    def release(self) -> None:
        """Drop what is not needed after the report."""
        self._recorder = self._memory = None

    def request(self, time_ns: int) -> None:
        """Note that the receiver asks for what it misses."""
        if self._context.rule.resend is not None and self._context.rule.resend.on_request:
            if self._requests is None:
                self._requests = Requests()
            self._requests.note(time_ns)

    # -- further copies ----------------------------------------------------------------------------

    def pending_copies(self) -> int:
        """Return how many copies the next number will judge."""
        return 0 if self.counted is None else len(self.counted.copies)

    def copies_with_numbers(self) -> int:
        """Return how many copies have taken a number of their own."""
        if not self._context.rule.copies_take_numbers:
            return 0
        return self.retransmissions + self.undecided

    def judge_by(self, seq: int, missing: i64, time_ns: i64) -> i64:
        """Judge the copies by the next number, before which so many are `missing`; return how many
        of these the copies may have taken.
        """
        if self.counted is None:
            return 0
        taken = len(self.counted.copies)
        self.counted.judge(missing, seq, time_ns)
        return taken

    def judge_pending(self) -> None:
        """Judge the copies that no further number will judge."""
        if self.counted is not None:
            self.counted.judge_pending()

    def is_reuse(self, content: i64, before: i64) -> bool:
        """Return True if a number carries other content although its sender never sends again."""
        may_resend = self._context.rule.resend is not None or self._context.in_stream
        return content != before and not may_resend

    def copy_of_outstanding(
        self, seq: int, unit: Unit, labelled: bool | None, content: i64, frame: int, time_ns: int  # noqa: FBT001 - as in `Space.unit`
    ) -> bool:
        """Process another copy of an outstanding unit; return True if the network made it."""
        context = self._context
        gap_ns = time_ns - unit.last_ns
        same = content == unit.content
        copied = self._judge(seq, labelled, same, gap_ns, unit.copies, unit.frame, frame, time_ns)
        copy, record = None, None
        if self._recorder is not None:
            copy = self._recorder.further_copy(
                context, unit, seq, copied, labelled, frame, time_ns, unit.due_ns
            )
            record = None if unit.again else unit.record
        same = same or bool(labelled)
        self._count(seq, copy, gap_ns, frame, time_ns, copied=copied, same=same, record=record)
        if self._counts_as_sent(copied):
            self._note_resend_delay(seq, gap_ns)
            unit.last_ns = time_ns
            unit.content = content
        if copied:
            return True
        unit.copies += 1
        unit.due_ns = time_ns + context.delay_ns
        return False

    def copy_of_settled(
        self, seq: int, slot: i64, labelled: bool | None, content: i64, frame: int, time_ns: int  # noqa: FBT001 - as in `Space.unit`
    ) -> i64:
        """Process another copy of a settled unit; return how often its sender has sent it so far,
        or 0 if the network made this copy.
        """
        context, cells = self._context, self._store.settled.cells
        sent_ns, copies = cells[slot + TIME], cells[slot + COPIES]
        gap_ns, same = time_ns - sent_ns, content == cells[slot + CONTENT]
        copied = self._judge(seq, labelled, same, gap_ns, copies, -1, frame, time_ns)
        copy = None
        if self._recorder is not None:
            due_ns = last_sent_ns(self._recorder.records.get(seq), sent_ns) + context.delay_ns
            copy = self._recorder.late_copy(context, seq, copied, labelled, frame, time_ns, due_ns)
        same = same or bool(labelled)
        self._count(seq, copy, gap_ns, frame, time_ns, copied=copied, same=same)
        if self._counts_as_sent(copied):
            self._note_resend_delay(seq, gap_ns)
            cells[slot + TIME] = time_ns
            cells[slot + CONTENT] = content
        if copied:
            return 0
        self._store.adjust_copies(seq, 1)
        self._count_resend_after_ack(seq, frame, time_ns)
        return cells[slot + COPIES]

    # -- verdicts ----------------------------------------------------------------------------------

    def _judge(
        self,
        seq: int,
        labelled: bool | None,  # noqa: FBT001 - as in `unit`
        same: bool,  # noqa: FBT001 - `Space` alone calls it
        gap_ns: int,
        copies: int,
        first_frame: int,
        frame: int,
        time_ns: int,
    ) -> bool | None:
        """Return the verdict on a further copy `gap_ns` after the one before it.

        `copies` is how often the sender has sent the unit so far, `first_frame` where its first
        copy is (-1 = forgotten), and `same` says whether the bytes are equal. Senders that send
        everything twice (`SpaceRule.burst`) make the first further copies themselves. If later
        numbers came in between, one transmission may have been lost, and the other one copied.
        """
        context = self._context
        self._early = None
        memory = self._copy_memory()
        # No network puts a second copy into a datagram.
        again = memory.repeats_in_datagram(seq, frame) or frame == first_frame
        if again or context.in_stream or not same:
            return False
        # A sender that never sends again, or marks what it does, has not made this copy.
        if context.rule.resend is None or labelled is False:
            self._note_network_copy(gap_ns)
            return True
        short_ns = self._compare(seq, gap_ns, time_ns)
        requests, again = self._requests, self._gap_class != WITHIN_GUARD
        asked = requests is not None and requests.permit(seq, time_ns - gap_ns, again=again)
        twin = copies < context.rule.burst
        self.of_bursts += twin
        memory.close_twins += twin and gap_ns <= CLOSE_TWIN_NS
        soon = self._gap_class in (WITHIN_QUARTER, WITHIN_NETWORK_DELAY)
        if soon and NETWORK_COPY_NS <= gap_ns < CLOSE_RESEND_NS:
            self._note_close_resend()
        in_order = twin and not overtaken(self._numbers, self._store, seq, gap_ns, time_ns)
        if in_order or self._gap_class == AFTER_TIMER:
            return False
        # The copy before this one came late: without its delay, this one would be in time. How late
        # a retransmission came is a guess, as it may have waited for several timers.
        delay_ns = memory.delays.get(seq, 0)
        behind = bool(delay_ns) and gap_ns + delay_ns >= context.far_guard_ns
        behind = behind and (copies == 1 or self._gap_class != WITHIN_GUARD)
        if self._in_time(copies, gap_ns, delay_ns if behind else 0, short_ns):
            return False
        early = self._early = EarlyCopy(self._gap_class, memory.listed_gap(gap_ns), time_ns)
        parted = twin and memory.twins_part(gap_ns, self.of_bursts)
        early.asked, early.behind, early.late = asked, behind or parted, bool(delay_ns)
        early.stated = context.stated and context.least_timer_ns > 0
        first = copies == 1 and not delay_ns
        early.crowded = first and memory.schedule.crowded(context, self._numbers, seq, time_ns)
        apart_ns = context.findings.gaps_of(context.direction).apart_ns
        # Of what is only counted, nothing is judged again one by one.
        early.short_ns = short_ns if early.gap_ns != ABSENT or 0 < apart_ns <= short_ns else 0
        return self._judge_early(early, gap_ns, time_ns)

    def _compare(self, seq: int, gap_ns: int, time_ns: int) -> int:
        """Compare the gap of a copy with its sender's timer; return by how much the copy came too
        soon, as `Schedule.shortfall`.
        """
        context = self._context
        self._gap_class, short_ns = context.gap_class(gap_ns), BETWEEN
        if context.least_timer_ns and gap_ns >= 0:
            short_ns = self._copy_memory().schedule.shortfall(context, seq, gap_ns, time_ns)
            if not short_ns and self._gap_class > WITHIN_FAR_GUARD:
                self._gap_class = AFTER_TIMER
            elif short_ns == HASTY:
                self._gap_class = min(self._gap_class, BELOW_GUARD)
        return short_ns

    def _in_time(self, copies: int, gap_ns: int, delay_ns: int, short_ns: int) -> bool:
        """Return whether a copy that came too soon is in time but for the delay of the copy before
        it. That one came `delay_ns` too late; `short_ns` is as from `Schedule.shortfall`.
        """
        if short_ns == HASTY:
            timer_ns = self._context.least_timer_ns
            return delay_ns > 0 and NEARLY * (gap_ns + delay_ns) >= (NEARLY - 1) * timer_ns
        known = copies == 1 or self._gap_class >= WITHIN_NETWORK_DELAY
        behind = delay_ns > 0 and known and gap_ns >= NETWORK_COPY_NS
        return short_ns <= 0 and (behind or self._gap_class == BELOW_GUARD)

    def _judge_early(self, early: EarlyCopy, gap_ns: int, time_ns: int) -> bool | None:
        """Return the verdict on a copy that came before its sender's timer; what is remembered of
        it must not depend on the vantage.
        """
        context = self._context
        longest = WITHIN_GUARD if self._requests is not None else ABSENT
        if context.far_guard_ns:
            longest = WITHIN_FAR_GUARD
            self._copy_memory().note_need(early, context.far_delay_ns - gap_ns)
        if self._gap_class <= longest:
            early.released = self._released_together(time_ns)
            early.stalled = self._copy_memory().stalled_for(context.far_delay_ns)
        early.timed = context.timer_known
        early.verdict = self._verdict_here(early)
        return early.verdict

    def _counts_as_sent(self, copied: bool | None) -> bool:  # noqa: FBT001 - as in `_count`
        """Return whether the gap of the next copy counts from the current one. While its verdict
        may be revised, that must not depend on it: the next verdict would stay as it was.
        """
        early = self._early
        if self.counted is not None:
            return True  # Numbers judge the copies, and gaps are compared with those of any copy.
        if early is None:
            return not copied
        return early.gap_class > WITHIN_FAR_GUARD or early.released or early.asked or early.behind

    def _note_close_resend(self) -> None:
        """Note that in this direction retransmissions arrive close behind delayed copies."""
        context = self._context
        gaps = context.findings.gaps_of(context.direction)
        if not gaps.doubted:
            context.findings.learn_gaps(context.direction, gaps._replace(doubted=True))
            self._revise()

    def _note_network_copy(self, gap_ns: int) -> None:
        """Note a copy that only the network can have made."""
        findings, direction = self._context.findings, self._context.direction
        gaps = findings.gaps_of(direction)
        # Later than that, it is rather another unit with the same number and content.
        if gaps.proven_ns < gap_ns < UNDER_WAY_NS:
            findings.learn_gaps(direction, gaps._replace(proven_ns=gap_ns))

    def find_common_gaps(self) -> None:
        """Find the gaps that only the network's copies have, now that all copies are known."""
        context, memory = self._context, self._memory
        gaps = context.findings.gaps_of(context.direction)
        if self._numbers.disorder and not (gaps.copied or context.findings.misses):
            # Next to both sides there may still be a network: a relay without delay.
            gaps = gaps._replace(copied=True)
            context.findings.learn_gaps(context.direction, gaps)
        if memory is None or (context.sender_near and not gaps.copied):
            return
        if self._requests is not None or context.sender_near:
            self._revise()
        if context.sender_near or not context.far_guard_ns or context.findings.gaps_known:
            return
        memory.learn(context)
        self._revise()
        if memory.copies_seldom(context):
            self._revise()

    def _released_together(self, time_ns: int) -> bool:
        """Return whether a copy that came too soon belongs to a burst after a silence as long as
        the sender's guard: the network has held the direction back. A sender that repeats all when
        it is asked makes such bursts without it. The burst's earlier copies are not the network's.
        """
        memory, guard_ns = self._copy_memory(), self._context.far_guard_ns
        arrivals = newest_arrivals(self._numbers, self._store)
        if guard_ns:
            silence_ns, units = burst_after_silence(arrivals, time_ns, guard_ns)
        else:
            silence_ns = guard_ns = NETWORK_COPY_NS
            units = sum(time_ns - arrival < guard_ns for arrival in arrivals)
        if not memory.in_stall(time_ns, silence_ns, units, guard_ns):
            return False
        for early in memory.doubtful[memory.burst_start :]:
            early.released, early.stalled = True, memory.stalled_for(self._context.far_delay_ns)
            self._judge_again(early)
        memory.burst_start = len(memory.doubtful)
        return True

    def _verdict_here(self, early: EarlyCopy) -> bool | None:
        """Return the verdict on a copy by what is known now of the vantage and the network."""
        context = self._context
        gaps = context.findings.gaps_of(context.direction)
        if early.counted or early.behind:
            # Next to the sender alone, the network has not made any copy.
            by_sender = context.beside_sender if early.counted else context.sender_near
            return False if by_sender else early.made
        if context.sender_near:
            return early.verdict_near(context)
        too_soon = early.gap_class == WITHIN_GUARD or (
            early.gap_class == WITHIN_FAR_GUARD and context.receiver_near is True
        )
        released = early.released and too_soon
        if early.asked:
            # The network copies other datagrams as well, and those show how late its copies come.
            late = early.gap_ns if early.gap_ns != ABSENT else 0 if too_soon else NETWORK_COPY_NS
            answers = released or late >= max(NETWORK_COPY_NS, gaps.proven_ns)
            return False if answers else None
        if not context.far_guard_ns:
            return True if too_soon and not released else None
        return early.verdict_far(context, released=released, too_soon=too_soon)

    # -- delays ------------------------------------------------------------------------------------

    def _note_resend_delay(self, seq: int, gap_ns: int) -> None:
        """Remember how much later than its sender's timer a retransmission came."""
        context, guard_ns = self._context, self._context.guard_ns
        if context.far_guard_ns:
            # Copies in between may be lost, so that the gap may span several periods of the timer.
            delay_ns = (gap_ns + guard_ns) % (context.far_delay_ns or 1) - guard_ns
            self._copy_memory().remember_delay(context, seq, delay_ns)

    def note_late_first_copy(self, seq: int, time_ns: int) -> None:
        """Remember how late a first copy came that later numbers have overtaken."""
        context, store = self._context, self._store
        before_ns, after_ns = store.arrival_ns(seq - 1, 0), store.arrival_ns(seq + 1, 0)
        if before_ns and after_ns:
            held_ns = time_ns - (before_ns + after_ns) // 2
            # A unit that was lost comes as late as that, too, when its sender sends it again.
            if context.rule.resend is None or 4 * held_ns < 3 * context.far_delay_ns:
                context.findings.hold(context.direction, held_ns)
        if not context.far_guard_ns:
            return
        first_ns = earliest_later(self._numbers, store, seq, time_ns)
        self._copy_memory().remember_delay(context, seq, time_ns - first_ns)

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
        """Count a further copy, and remember it if its verdict may be revised. `record` is given
        only if the copy came before the acknowledgement of its unit.
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
                self.report_reuse(seq, frame, time_ns)
        early = self._early
        if self.counted is not None:
            self._leave_to_next_number(self.counted, seq, copy, record, copied, gap_ns, time_ns)
        elif early is not None and not self._copy_memory().keep(early, seq, copy, record):
            context.hit("MAX_DOUBTFUL")

    def _leave_to_next_number(
        self, counted: CountedCopies, seq: int, copy: Copy | None, record: UnitRecord | None,
        copied: bool | None, gap_ns: int, time_ns: int,  # noqa: FBT001
    ) -> None:  # fmt: skip
        """Have the next number judge a copy."""
        if copy is not None:
            copy.doubtful = True
        early = self._early
        soon = copied is True or (early is not None and early.gap_class == WITHIN_GUARD)
        if not counted.add(
            gap_ns,
            lambda made: self._apply_counted_verdict(seq, copy, record, copied, made),
            time_ns,
            copied=soon,
            soon=gap_ns < NETWORK_COPY_NS,
        ):
            self._context.hit("MAX_COUNTED")
            made = None if soon or copied is None else counted.sender_verdict(gap_ns)
            self._apply_counted_verdict(seq, copy, record, copied, made)

    def report_reuse(self, seq: int, frame: int, time_ns: int) -> None:
        """Report that a number carries other content than before."""
        self._context.find(
            "number-reused", frame, time_ns, self._context.direction,
            f"{seq & self._numbers.mask} carries other content than before", seq=seq,
        )  # fmt: skip

    def _count_resend_after_ack(self, seq: int, frame: int, time_ns: int) -> None:
        """Count a transmission after the acknowledgement of its unit."""
        count = self._copy_memory().count_after_ack(self._context, seq)
        if count == LATE_COPIES and self._context.rule.ack is not AckRule.NONE:
            self._context.find(
                "acked-yet-resent", frame, time_ns, self._context.direction,
                f"{seq & self._numbers.mask} was acknowledged, yet retransmitted", seq=seq,
            )  # fmt: skip

    def _copy_memory(self) -> CopyMemory:
        """Return the memory of further copies, which the first of them creates."""
        memory = self._memory
        if memory is None:
            memory = self._memory = CopyMemory()
        return memory

    # -- revised verdicts --------------------------------------------------------------------------

    def _apply_counted_verdict(
        self, seq: int, copy: Copy | None, record: UnitRecord | None, before: bool | None,  # noqa: FBT001
        made: bool | None,  # noqa: FBT001
    ) -> None:  # fmt: skip
        """Apply what the next number has shown of a copy."""
        memory = self._copy_memory()
        early = EarlyCopy(WITHIN_GUARD, memory.listed_gap(0), 0)
        early.counted, early.made = True, made
        early.verdict = self._verdict_here(early)
        if copy is not None:
            copy.doubtful = False
        self._reclassify(seq, copy, record, before, early.verdict)
        if made is not False and not memory.keep(early, seq, copy, record):
            self._context.hit("MAX_DOUBTFUL")

    def _reclassify(
        self, seq: int, copy: Copy | None, record: UnitRecord | None, before: bool | None,  # noqa: FBT001
        copied: bool | None,  # noqa: FBT001
    ) -> None:  # fmt: skip
        """Change the verdict on one copy, and with it the round trip of its unit. A stamped
        acknowledgement names the copy, so that its round trip stays.
        """
        if copied is before:
            return
        self._recount(1, before, copied)
        # Only the network's copies are not transmissions, so that the count changes with this
        # verdict.
        if copied or before:
            self._store.adjust_copies(seq, -1 if copied else 1)
        if copy is not None:
            copy.kind = KIND[copied]
            if self._recorder is not None:
                self._recorder.copy_reclassified(copy, KIND[before])
        if record is not None and self._context.rule.ack is not AckRule.STAMPED:
            record_reclassified(record)

    def _recount(self, count: int, before: bool | None, copied: bool | None) -> None:  # noqa: FBT001
        """Move copies from the count of one verdict to that of another."""
        for verdict, step in ((before, -count), (copied, count)):
            if verdict:
                self.duplicates += step
            elif verdict is None:
                self.undecided += step
            else:
                self.retransmissions += step
        self._context.findings.reclassify(FINDING[before], FINDING[copied], count)

    def set_vantage(self, sender_near: bool | None, receiver_near: bool | None) -> None:  # noqa: FBT001
        """Apply what is known now of the vantage."""
        context = self._context
        context.sender_near, context.receiver_near = sender_near, receiver_near
        self._revise()
        if self._recorder is not None:
            self._recorder.set_vantage(context)

    def _revise(self) -> None:
        """Revise the verdicts on all copies that came early."""
        if self._memory is not None:
            for early in [*self._memory.doubtful, *self._memory.unlisted]:
                self._judge_again(early)

    def _judge_again(self, early: EarlyCopy) -> None:
        """Apply what is known now to copies that came early."""
        before, early.verdict = early.verdict, self._verdict_here(early)
        if early.verdict is before:
            return
        if early.gap_ns == ABSENT:
            self._recount(early.count, before, early.verdict)
        else:
            self._reclassify(early.seq, early.copy, early.record, before, early.verdict)
