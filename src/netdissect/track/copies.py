"""Judges copies by the numbers that their sender used up, in spaces where each copy takes one.

In such a space a copy repeats the old number, yet the sender's counter moves on. So the next new
number shows how many copies the sender has made since the last one: as many as numbers are skipped
before it. Further copies were made by the network. The method has to deal with five complications:

* A newer number may overtake a copy on the way. Then the number that the copy took was skipped
  earlier (`_unused`).
* If several copies have taken no number, the next number may itself be a copy whose first
  transmission is not in the capture. These copies are judged by the number after that
  (`_deferred`).
* Datagrams that leave back to back may change places. A number that comes just behind a copy may
  have been sent before it, so the judgement waits for the next one (`_may_precede_copy`).
* If only some of the copies are the network's, their gaps tell which: the module keeps one
  histogram of the gaps of certain network copies and one of the sender's, and compares how likely
  each gap is in both (`_odds`).
* A loss skips numbers as well. If a skipped number followed only few of the copies so far, the
  copies that came as soon as networks make them are the network's. If hardly any was followed by
  one, the sender repeats nothing, and all copies are the network's. Once the network has copied
  anything, a copy that came as soon as its copies do and was followed by a skipped number is
  unknown. How soon they come shows in numbers that their sender never repeats.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final, TypeAlias

OVERTAKEN: Final = 8
"""At most this many newer numbers overtake a copy on its way."""
LATEST_NS: Final = 100_000_000
"""The network makes no copy later than this after the one before it, in ns."""
SOON_NS: Final = 15_000_000
"""If the network makes copies, one that comes within this time, in ns, may be its own although
numbers were skipped. If its copies have come later, that time counts.
"""
SELDOM_NS: Final = 30_000_000
"""A network copy is seldom later than this, in ns. A later one may be the sender's, whose number
has changed places with others.
"""
BACK_TO_BACK_NS: Final = 2_000_000
"""A number that comes within this time after a copy, in ns, may have been sent before it."""
ENOUGH: Final = 4
"""Copies that must have been judged before a sender is said to repeat nothing."""
HARDLY: Final = 4
"""A sender repeats nothing if a skipped number followed fewer than 1/4 of the judged copies."""
SCALES: Final = 40
"""Classes of gaps: gaps in ns are compared by their power of two."""
LOST: Final = 0.1
"""No more than this share of the numbers that follow network copies is lost."""
SURELY: Final = 4.0
"""A copy is attributed by its gap only if that is this many times as likely as the other maker."""
MAX_COUNTED = 1024
"""Copies between two new numbers judged one by one; of further ones, none is called the network's.
"""


_Decide: TypeAlias = Callable[[bool | None], None]
"""Callback for the verdict: True if the network made a copy, None if unknown."""


class _Copy:
    """A further copy that waits for its verdict."""

    __slots__ = ("copied", "decide", "gap_ns", "soon")

    def __init__(self, gap_ns: int, decide: _Decide, *, copied: bool, soon: bool) -> None:
        self.gap_ns = gap_ns
        """Time since the copy before it."""
        self.decide = decide
        self.copied = copied
        """First verdict, by the gap alone: made by the network."""
        self.soon = soon
        """Whether it has that verdict, and came as soon as networks make copies."""


class _Skip:
    """Numbers skipped before a new one that no copy has taken so far."""

    __slots__ = ("arrival_ns", "count", "number")

    def __init__(self, number: int, count: int, arrival_ns: int) -> None:
        self.number = number
        """The new number."""
        self.count = count
        """How many numbers before it."""
        self.arrival_ns = arrival_ns


class CountedCopies:
    """The copies seen since the newest number, and what has been learnt from earlier ones."""

    __slots__ = (
        "_deferred", "_followed", "_judged", "_network_gaps", "_newest_ns", "_numbers_behind",
        "_proven", "_proven_ns", "_reorder_ns", "_second_ns", "_sender_gaps", "_skipped_behind",
        "_suspended", "_unused", "copies", "network_copies",
    )  # fmt: skip

    def __init__(self) -> None:
        self._unused: deque[_Skip] = deque(maxlen=OVERTAKEN)
        """What was skipped before the newest numbers."""
        self._deferred = 0
        """How many of the first of `copies` the newest number has not judged."""
        self._judged = self._followed = 0
        """Copies judged, and how many of them a skipped number followed."""
        self._suspended: list[_Copy] = []
        """Copies that came too soon for their sender although numbers were skipped, and that wait
        until `ENOUGH` copies show whether the sender repeats anything.
        """
        self._sender_gaps = [0] * (SCALES + 1)
        self._network_gaps = [0] * (SCALES + 1)
        """Class of gaps -> copies that the sender, or the network, made for certain; the last
        entry is their sum.
        """
        self.copies: list[_Copy] = []
        """The copies that the next number will judge."""
        self._newest_ns = 0
        """When the newest of them came."""
        self._skipped_behind: list[_Skip] = []
        """The same for the numbers that came back to back behind `copies`."""
        self._numbers_behind = 0
        """How many numbers came back to back behind `copies`."""
        self._reorder_ns = BACK_TO_BACK_NS
        """The longest time that a number has come behind a later one, in ns."""
        self.network_copies = False
        """Whether the network has copied anything for certain."""
        self._proven = 0
        """Network copies of numbers whose sender never repeats them."""
        self._proven_ns = self._second_ns = 0
        """The longest and the second longest gap of those, in ns."""

    def add(
        self,
        gap_ns: int,
        decide: _Decide,
        time_ns: int,
        *,
        copied: bool,
        soon: bool = False,
    ) -> bool:
        """Add a copy; return False if too many copies wait already.

        Args:
            gap_ns: time since the copy before it.
            decide: called with the verdict.
            time_ns: when it came.
            copied: first verdict, by the gap alone: made by the network.
            soon: networks make copies as soon as this one came.

        """
        self._newest_ns = time_ns
        if len(self.copies) >= MAX_COUNTED:
            return False
        self.copies.append(_Copy(gap_ns, decide, copied=copied, soon=soon and copied))
        return True

    def note_network_copy(self, gap_ns: int) -> None:
        """Note a copy of a number whose sender never repeats it, `gap_ns` after the one before it;
        `ABSENT` if that is not known.
        """
        self.network_copies = True
        if not 0 <= gap_ns < LATEST_NS:
            return
        self._proven += 1
        if gap_ns > self._proven_ns:
            self._proven_ns, self._second_ns = gap_ns, self._proven_ns
        elif gap_ns > self._second_ns:
            self._second_ns = gap_ns

    def arrived_late(self, seq: int, time_ns: int) -> None:
        """Note that a skipped number came late: no copy has taken it."""
        for skip in (*self._unused, *self._skipped_behind):
            if skip.number - skip.count <= seq < skip.number:
                skip.count -= 1
                # One outlier must not make every later number wait for its successor.
                late_ns = min(time_ns - skip.arrival_ns, LATEST_NS)
                self._reorder_ns = max(self._reorder_ns, late_ns)
                return

    def judge(self, skipped: int, seq: int, time_ns: int) -> None:
        """Judge the copies by the new number `seq`, before which `skipped` numbers are missing."""
        if len(self.copies) > self._deferred and self._may_precede_copy(time_ns):
            self._numbers_behind += 1
            if skipped:
                self._skipped_behind.append(_Skip(seq, skipped, time_ns))
            return
        skipped += self._take_skipped_behind()
        skipped -= self._judge_deferred(skipped)
        copies = self.copies
        if len(copies) > 1 and not skipped and not any(skip.count for skip in self._unused):
            self._deferred = len(copies)
            return
        self.copies = []
        # The skipped numbers belong to the copies that are likeliest the sender's, which stand
        # last.
        copies.sort(key=self._likelihood)
        used = min(skipped, len(copies))
        self._judged += len(copies)
        self._followed += used
        certain = self._certain_network_copies(copies)
        by_network = max(certain, len(copies) - used)
        doubtful = False
        for skip in self._unused:
            taken = min(skip.count, by_network - certain) if seq - skip.number <= OVERTAKEN else 0
            since_ns = self._newest_ns - skip.arrival_ns
            if taken and since_ns > self._reorder_ns:
                # No number was seen to overtake others by that much: it may have been lost.
                doubtful = doubtful or since_ns <= LATEST_NS
                continue
            by_network -= taken
            skip.count -= taken
        if skipped > used:
            self._unused.append(_Skip(seq, skipped - used, time_ns))
        self._decide(copies, by_network, doubtful=doubtful)
        if self._suspended and self._judged >= ENOUGH:
            self._judge_suspended()

    def _judge_deferred(self, skipped: int) -> int:
        """Judge the copies that the number before has not judged, by `skipped` numbers for them and
        for the later copies; return how many of the numbers they have taken.
        """
        earlier, self.copies = self.copies[: self._deferred], self.copies[self._deferred :]
        self._deferred = 0
        if not earlier:
            return 0
        taken = len(earlier) if skipped - len(self.copies) >= len(earlier) else 0
        self._judged += len(earlier)
        self._followed += taken
        self._decide(earlier, 0 if taken else len(earlier))
        return taken

    def _judge_suspended(self) -> None:
        """Judge the suspended copies, now that enough others have been judged."""
        suspended, self._suspended = self._suspended, []
        certain = self._certain_network_copies(suspended)
        for copy in suspended:
            if certain > 0 and (certain == len(suspended) or copy.soon):
                copy.decide(True)
            else:
                copy.decide(self.sender_verdict(copy.gap_ns))

    def judge_pending(self) -> None:
        """Judge the copies that no number will judge: the sender restarts or falls silent."""
        self._take_skipped_behind()
        self._unused.clear()
        self._deferred = 0
        copies, self.copies = self.copies, []
        for copy in copies:
            if self._judged < ENOUGH:
                # The sender may repeat as soon as the network copies.
                copy.decide(None if copy.copied else False)
            else:
                made = self._odds(copy.gap_ns) > 1 and copy.gap_ns < LATEST_NS
                copy.decide(True if made else self.sender_verdict(copy.gap_ns))
        suspended, self._suspended = self._suspended, []
        for copy in suspended:
            copy.decide(None)

    def _take_skipped_behind(self) -> int:
        """Return how many numbers were skipped back to back behind the copies, and forget them."""
        self._numbers_behind = 0
        skips, self._skipped_behind = self._skipped_behind, []
        return sum([skip.count for skip in skips])

    def _odds(self, gap_ns: int) -> float:
        """Return how many times likelier a copy with this gap is the network's than the sender's,
        by the histograms and the numbers of certain copies.
        """
        sent, made = self._sender_gaps, self._network_gaps
        likely = self._share(made, gap_ns) * (made[SCALES] + 1)
        return likely / (self._share(sent, gap_ns) * (sent[SCALES] + 1))

    @staticmethod
    def _share(counts: list[int], gap_ns: int) -> float:
        """Return the share of copies with about this gap: of its class and of both beside it, with
        half a copy added to each class, so that no share is 0.
        """
        scale = _scale(gap_ns)
        near = counts[max(0, scale - 1)] + counts[scale] + counts[min(SCALES - 1, scale + 1)]
        return (near + 0.5) / (counts[SCALES] + SCALES / 2)

    def _likelihood(self, copy: _Copy) -> tuple[float, int]:
        """Return a sort key that puts the likeliest network copies first."""
        return -self._odds(copy.gap_ns), copy.gap_ns

    def _may_precede_copy(self, time_ns: int) -> bool:
        """Return whether a number that comes now may have been sent before the newest copy."""
        since_ns = time_ns - self._newest_ns
        if since_ns <= BACK_TO_BACK_NS:
            return True
        return since_ns <= self._reorder_ns and self._numbers_behind < OVERTAKEN

    def _repeats_nothing(self) -> bool:
        """Return whether hardly any copy so far was followed by a skipped number."""
        return self._judged >= ENOUGH and HARDLY * self._followed < self._judged

    def sender_verdict(self, gap_ns: int) -> bool | None:
        """Return the verdict on a copy that nothing shows to be the network's."""
        return None if self.network_copies and gap_ns < self._network_delay_ns() else False

    def _network_delay_ns(self) -> int:
        """Return how late the network's copies may come, in ns: how far gaps that are spread evenly
        reach by the second longest of those seen, as the longest may be an outlier.
        """
        count, second_ns = self._proven, self._second_ns
        reach_ns = second_ns * (count + 1) // (count - 1) if second_ns else 2 * self._proven_ns
        return min(max(SOON_NS, reach_ns), LATEST_NS)

    def _certain_network_copies(self, copies: list[_Copy]) -> int:
        """Return how many copies are the network's whatever numbers were skipped."""
        if self._repeats_nothing():
            return len(copies)
        if 2 * self._followed < self._judged:
            return sum([copy.soon for copy in copies])
        return 0

    def _decide(self, copies: list[_Copy], by_network: int, *, doubtful: bool = False) -> None:
        """Decide that the first `by_network` of these copies are the network's (unknown if
        `doubtful`), except those whose gap does not clearly differ from that of the next one, and
        that the others are the sender's, except those that only the loss of a number behind a
        network copy explains.
        """
        known = by_network in (0, len(copies)) and not doubtful
        self.network_copies = self.network_copies or (by_network > 0 and not doubtful)
        new = self._judged < ENOUGH
        repeats = not new and 2 * self._followed >= self._judged
        # If the sender repeats and its numbers change places, a network copy cannot be certain.
        mixed = repeats and self._reorder_ns > BACK_TO_BACK_NS
        # If it repeats, many copies none of which has a number show that it has started anew.
        anew = repeats and len(copies) >= ENOUGH and by_network == len(copies)
        while 0 < by_network < len(copies):
            last, following = copies[by_network - 1], copies[by_network]
            if self._odds(last.gap_ns) > SURELY * self._odds(following.gap_ns):
                break
            by_network -= 1
        for index, copy in enumerate(copies):
            gap_ns = copy.gap_ns
            is_copy = index < by_network and (copy.copied or gap_ns < LATEST_NS)
            if known and index >= by_network:
                is_copy = gap_ns < LATEST_NS and LOST * self._odds(gap_ns) > SURELY
            if known and (index < by_network or not is_copy):
                counts = self._network_gaps if index < by_network else self._sender_gaps
                counts[_scale(gap_ns)] += 1
                counts[SCALES] += 1
            if new and copy.copied and not is_copy:
                self._suspended.append(copy)
            elif is_copy:
                late = gap_ns >= SELDOM_NS and not self._repeats_nothing()
                copy.decide(None if mixed or late or doubtful or anew else True)
            else:
                copy.decide(self.sender_verdict(gap_ns))


def _scale(gap_ns: int) -> int:
    """Return the class of a gap in the histograms."""
    return min(gap_ns.bit_length(), SCALES - 1)
