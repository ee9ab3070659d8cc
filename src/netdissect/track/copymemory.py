"""What a space remembers of further copies, for `Repeats`. Most spaces never need it."""

from __future__ import annotations

from typing import Final

from netdissect.model.native import ABSENT, i64
from netdissect.model.reports import Copy, UnitRecord
from netdissect.track.context import (
    BELOW_GUARD,
    RELEASED_NS,
    WITHIN_FAR_GUARD,
    WITHIN_GUARD,
    SpaceContext,
)
from netdissect.track.schedule import Schedule

MAX_DOUBTFUL = 256
"""Copies per space whose verdict is revised one by one when more becomes known."""
MAX_HELD = 256
"""Units per space whose newest copy is remembered as delayed by the network."""
MAX_LATE = 256
"""Units per space whose transmissions after the acknowledgement are counted."""
STALL_COPIES: Final = 2
"""This many copies that come too soon for their sender, in one burst after a silence, can show that
the network held everything back.
"""
STALL_SHARE: Final = 3
"""A burst after a silence shows a stalled network only if at least 1/3 of its units came too soon
for their sender: networks copy datagrams now and then, not most of them at a time.
"""
COMMON_SPAN_NS: Final = 2_000_000
"""The gaps of a network's copies are common to them if they lie within this span, in ns. In
captures of real programs, a relay that delivered its copies 3 ms later did so within 1 ms of that.
"""
MIN_COMMON: Final = 6
"""At least this many copies show which gaps they have in common."""
COMMON_RATIO: Final = 5
"""There are at least this many copies in the span for each copy beside it. Retransmissions behind
delayed copies have all gaps, so that at most one in 30 copies in the span is such a one.
"""
LEAST_HELD_NS: Final = 60_000_000
"""Any network may hold a datagram back for as long, in ns, even if no number shows it."""
OFTEN: Final = 3
"""A network that copies datagrams does so again and again. Fewer copies than this in one direction
that came too soon may be retransmissions just behind datagrams that it held back.
"""
CLOSE_TWIN_NS: Final = 200_000
"""If four in five twins come within this time, in ns, the network keeps them together."""
LEAST_TWINS: Final = 16
"""Twins that must have come before that is known."""


NEVER: Final = 1 << 62
"""A time in ns longer than any other."""


class EarlyCopy:
    """A copy that came before its sender's timer, or several of the same kind."""

    __slots__ = (
        "asked", "behind", "copy", "count", "counted", "crowded", "gap_class", "gap_ns", "late",
        "likely", "made", "needs_ns", "record", "released", "seq", "short_ns", "stalled", "stated",
        "time_ns", "timed", "verdict",
    )  # fmt: skip

    def __init__(self, gap_class: int, gap_ns: int, time_ns: int) -> None:
        self.gap_class = gap_class
        """How its gap compares with the sender's guard and timer, as one of the classes above."""
        self.gap_ns = gap_ns
        """Time since the copy before it; `ABSENT` if it is not listed."""
        self.time_ns = time_ns
        """When it came; 0 if a number has judged it."""
        self.needs_ns = NEVER
        """If the network holds datagrams back for as long as this, the sender's timer may have
        expired before this copy.
        """
        self.released = False
        """Whether a stalled network may have released it together with others."""
        self.stalled = False
        """Whether that network was silent for as long as the sender's timer, so that the sender may
        have made all of them.
        """
        self.timed = True
        """Whether the sender's timer was known; if not, its gap tells nothing of network copies."""
        self.stated = False
        """Whether both sides had stated two round trips by which the sender sets its timer."""
        self.asked = False
        """Whether the receiver had asked for it."""
        self.short_ns = 0
        """By how much it came too soon for its sender's timer; 0 if that is not known."""
        self.late = False
        """Whether the copy before it came late."""
        self.crowded = False
        """Whether its sender went on for so long since the first copy that it may have made it."""
        self.likely = False
        """Whether the network made it, if it makes any (`OFTEN`)."""
        self.behind = False
        """Whether the copy before it came so late that without its delay, this one would be in
        time.
        """
        self.counted = False
        """Whether a number has judged it."""
        self.made: bool | None = None
        """Whether the network made it, by that number or by the delay of the copy before it; None
        where only the vantage tells.
        """
        self.verdict: bool | None = None
        self.count = 1
        self.seq = 0
        self.copy: Copy | None = None
        self.record: UnitRecord | None = None

    def verdict_near(self, context: SpaceContext) -> bool | None:
        """Return the verdict next to the sender, where only a network without delay copies, and
        brings retransmissions as soon as its copies.
        """
        if self.released or self.gap_class != WITHIN_GUARD:
            return False
        delayless = context.receiver_near is True and context.far_guard_ns > 0
        copied = delayless and context.findings.gaps_of(context.direction).copied
        return None if copied else False

    def verdict_far(
        self, context: SpaceContext, *, released: bool, too_soon: bool
    ) -> bool | None:  # fmt: skip
        """Return the verdict behind a network, where the sender's timer is known.

        Args:
            context: what is known of the vantage and the network.
            released: a stalled network may have released the copy.
            too_soon: the copy came sooner than the sender's shortest wait lets expect.

        """
        self.likely = False
        findings = context.findings
        gaps = findings.gaps_of(context.direction)
        surely = self.timed and 0 < gaps.shortest_ns <= self.gap_ns <= gaps.longest_ns
        if self.gap_class < BELOW_GUARD:
            surely = surely or 0 < gaps.apart_ns <= self.short_ns
        if released:
            return False if self.stalled and not surely else None
        if self.crowded:
            return None
        held_ns = max(gaps.held_ns, findings.held_ns[context.direction])
        doubted = gaps.doubted
        if self.stated:
            held_ns, doubted = max(held_ns, LEAST_HELD_NS), False
            too_soon = self.gap_class <= WITHIN_FAR_GUARD
        doubted = doubted or self.needs_ns <= held_ns
        if context.sender_near is False or gaps.held_ns:
            # Behind a network, a resend may come this soon after a copy that was held back.
            timed = self.stated or self.short_ns > 0 or not context.receiver_near
            doubted = doubted or self.late or (self.stalled and timed)
        self.likely = surely or (too_soon and not doubted)
        return True if surely or (self.likely and not gaps.seldom) else None


class CopyMemory:
    """The memory of further copies in one space."""

    __slots__ = (
        "_burst_copies", "_burst_newest_ns", "_burst_silence_ns", "_repeat_frame", "_repeat_seqs",
        "after_ack", "burst_start", "close_twins", "delays", "doubtful", "schedule", "unlisted",
    )  # fmt: skip

    def __init__(self) -> None:
        self.doubtful: list[EarlyCopy] = []
        """The copies whose verdict depends on the vantage and on what is learnt of the network."""
        self.unlisted: list[EarlyCopy] = []
        """Such copies beyond `MAX_DOUBTFUL`, counted by kind."""
        self.delays: dict[int, int] = {}
        """Number -> how much too late its newest copy came, in ns, by the arrival of later numbers
        or by its sender's timer.
        """
        self.schedule = Schedule()
        self.after_ack: dict[int, int] = {}
        """Number -> transmissions after its acknowledgement."""
        self._repeat_frame = 0
        """Frame of the newest further copy."""
        self._repeat_seqs: set[int] = set()
        """Numbers whose further copies that frame carried."""
        self._burst_newest_ns: i64 = 0
        """When the newest copy of the current burst of copies that came too soon arrived."""
        self._burst_copies = 0
        """How many copies the burst has."""
        self.burst_start = 0
        """Length of `doubtful` when the burst began."""
        self._burst_silence_ns: i64 = 0
        """How long the direction was silent before the burst."""
        self.close_twins = 0
        """Second copies, within `CLOSE_TWIN_NS`, of a sender that sends everything twice."""

    def twins_part(self, gap_ns: int, twins: int) -> bool:
        """Return whether the network may have parted twins by so much; `twins`: how many came."""
        together = twins >= LEAST_TWINS and 5 * self.close_twins >= 4 * twins
        return gap_ns <= CLOSE_TWIN_NS or not together

    def stalled_for(self, timer_ns: int) -> bool:
        """Return whether the silence before the burst was as long as the sender's timer."""
        return self._burst_silence_ns >= timer_ns

    def repeats_in_datagram(self, seq: int, frame: int) -> bool:
        """Process a further copy; return whether its datagram has already carried one of the unit.
        No network puts anything into a datagram, so the sender made both.
        """
        if frame != self._repeat_frame:
            self._repeat_frame = frame
            self._repeat_seqs.clear()
        found = seq in self._repeat_seqs
        self._repeat_seqs.add(seq)
        return found

    def listed_gap(self, gap_ns: int) -> int:
        """Return the gap to remember of the next copy: `ABSENT` if too many are listed already, so
        that from now on only the kinds are counted.
        """
        return gap_ns if len(self.doubtful) < MAX_DOUBTFUL else ABSENT

    def keep(
        self, early: EarlyCopy, seq: int, copy: Copy | None, record: UnitRecord | None
    ) -> bool:
        """Remember a copy whose verdict may be revised; return False if it is only counted."""
        if early.gap_ns != ABSENT:
            early.seq, early.copy, early.record = seq, copy, record
            if copy is not None:
                copy.by_place = True
            self.doubtful.append(early)
            return True
        for other in self.unlisted:
            alike = other.gap_class == early.gap_class and other.verdict is early.verdict
            alike = alike and other.asked == early.asked and other.behind == early.behind
            alike = alike and other.counted == early.counted and other.made is early.made
            alike = alike and (other.short_ns > 0) == (early.short_ns > 0)
            alike = alike and other.stalled == early.stalled and other.late == early.late
            alike = alike and other.stated == early.stated and other.crowded == early.crowded
            if alike and other.needs_ns == early.needs_ns and other.released == early.released:
                other.count += 1
                return False
        self.unlisted.append(early)
        return False

    def note_need(self, early: EarlyCopy, needs_ns: int) -> None:
        """Note for how long the network must have held the copy before this one back if the sender
        made this one. Of copies that are only counted, powers of two tell enough.
        """
        listed = early.gap_ns != ABSENT or needs_ns <= 0
        early.needs_ns = needs_ns if listed else 1 << needs_ns.bit_length() - 1

    def learn(self, context: SpaceContext) -> None:
        """Note what gaps tell, now that all copies are known, and how long the network has held
        datagrams back.
        """
        findings, direction = context.findings, context.direction
        shortest_ns, longest_ns = self.common_gaps()
        gaps = findings.gaps_of(direction)
        if longest_ns:
            gaps = gaps._replace(shortest_ns=shortest_ns, longest_ns=longest_ns)
        held_ns = max(findings.held_ns[direction], LEAST_HELD_NS)
        gaps = gaps._replace(apart_ns=self.schedule.apart_ns(), held_ns=held_ns)
        findings.learn_gaps(direction, gaps)

    def copies_seldom(self, context: SpaceContext) -> bool:
        """Note whether so few copies came too soon for their sender that the network may make none;
        return whether it may.
        """
        findings, direction = context.findings, context.direction
        likely = sum([each.likely for each in self.doubtful])
        likely += sum([each.count for each in self.unlisted if each.likely])
        seldom = likely < OFTEN
        findings.learn_gaps(direction, findings.gaps_of(direction)._replace(seldom=seldom))
        return seldom

    def common_gaps(self) -> tuple[int, int]:
        """Return the (shortest, longest) gap in ns of the copies that the network makes in always
        the same time; (0, 0) if there are none, or if their verdicts do not depend on that.
        """
        # A burst that a stalled network releases has gaps that tell nothing of its usual copies.
        early = [each for each in self.doubtful if each.timed and each.gap_ns >= RELEASED_NS]
        gaps: list[int] = []
        newest_ns = 0
        for each in early:
            # Many at a time are no network copies: these come now and then.
            if not each.released and each.time_ns - newest_ns >= RELEASED_NS:
                gaps.append(each.gap_ns)
                newest_ns = each.time_ns
        gaps.sort()
        most = first = start = 0
        for end, gap_ns in enumerate(gaps):
            while gap_ns - gaps[start] > COMMON_SPAN_NS:
                start += 1
            if end + 1 - start > most:
                most, first = end + 1 - start, start
        if most < MIN_COMMON or most < COMMON_RATIO * (len(gaps) - most):
            return 0, 0
        low, high = gaps[first], gaps[first + most - 1]
        for each in early:
            if each.verdict is not True and low <= each.gap_ns <= high:
                return low, high
        return 0, 0

    def in_stall(self, time_ns: int, silence_ns: int, units: int, guard_ns: i64) -> bool:
        """Process a copy that came too soon; return whether the network has held its burst back.

        Args:
            time_ns: time of the copy.
            silence_ns: how long the direction was silent before the newest units, 0 = it was not.
            units: how many units came since.
            guard_ns: the shortest time that the sender leaves between two transmissions of a unit.

        """
        if time_ns - self._burst_newest_ns > guard_ns:
            self._burst_copies, self.burst_start = 0, len(self.doubtful)
            self._burst_silence_ns = 0
        # The units of one datagram are one copy, as the network copies a datagram whole.
        self._burst_copies += time_ns != self._burst_newest_ns
        self._burst_newest_ns = time_ns
        self._burst_silence_ns = max(silence_ns, int(self._burst_silence_ns))
        return (
            self._burst_copies >= STALL_COPIES
            and STALL_SHARE * self._burst_copies >= units
            and self._burst_silence_ns >= guard_ns
        )

    def remember_delay(self, context: SpaceContext, seq: int, delay_ns: int) -> None:
        """Remember how much too late the newest copy of a unit came; 0 or less = not late."""
        delays = self.delays
        if delay_ns <= 0:
            delays.pop(seq, None)
            return
        delays[seq] = delay_ns
        if len(delays) > MAX_HELD:
            context.hit("MAX_HELD")
            del delays[next(iter(delays))]

    def count_after_ack(self, context: SpaceContext, seq: int) -> int:
        """Count a transmission of an acknowledged unit; return how many there were."""
        after_ack = self.after_ack
        after_ack[seq] = count = after_ack.get(seq, 0) + 1
        if len(after_ack) > MAX_LATE:
            context.hit("MAX_LATE")
            del after_ack[next(iter(after_ack))]
        return count
