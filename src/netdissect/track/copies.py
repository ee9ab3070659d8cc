"""Copies judged by the numbers that their sender used up, for spaces where each copy takes one.

There a copy keeps its old number, yet the counter moves on: the next new number shows how many
copies the sender has made since the last one. Copies beyond that are the network's. A copy that a
newer number has overtaken on its way had its number skipped before. Where several have used no
number, the one that shows it may be sent again itself, its first copy not captured: the next one
judges them with what its own copies leave.

Datagrams that leave back to back may change places on their way: numbers that come just behind a
copy may have been sent before it, so those behind them judge it.

Numbers tell how many of several copies are the network's, and how soon each came tells which: a
sender's copies come after such gaps as those that are known to be its own.

A loss skips numbers as well. So where few of the copies so far were followed by one, those that
came as soon as networks make them are the network's; where hardly any was, its sender repeats
nothing, and all are. And once the network has copied anything, nothing tells who made those that
came so soon and were followed by one.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final, TypeAlias

__all__ = ["BACK_TO_BACK_NS", "MAX_COUNTED", "OVERTAKEN", "CountedCopies"]

OVERTAKEN: Final = 8
"""A copy may be overtaken by so many numbers."""
LATEST_NS: Final = 100_000_000
"""The network makes no copy later than this."""
SOON_NS: Final = 15_000_000
"""Where the network copies, a copy that comes so soon may be its own, though numbers were skipped.
"""
SELDOM_NS: Final = 30_000_000
"""Networks copy seldom so late: the number of a sender's copy may have changed places with others.
"""
BACK_TO_BACK_NS: Final = 2_000_000
"""Numbers that come so soon behind a copy may have been sent before it."""
ENOUGH: Final = 4
"""Copies judged before a sender is taken for one that repeats nothing ..."""
HARDLY: Final = 4
"""... as fewer than one in so many was followed by a skipped number."""
SCALES: Final = 40
"""Gaps are told apart by their power of two, in nanoseconds."""
LOST: Final = 0.1
"""No more than so many of the numbers behind the network's copies are lost ..."""
SURELY: Final = 4.0
"""... and where a copy is so many times as likely to be one of those as its sender's, it is."""
MAX_COUNTED = 1024
"""Copies between two new numbers judged one by one; further ones keep their first verdict."""


_Turn: TypeAlias = Callable[[bool | None], None]
"""What takes the verdict: whether the network made a copy, None where nothing tells."""
_Copy: TypeAlias = tuple[int, bool, _Turn, bool]
"""(gap, first verdict, what changes it, whether it came as soon as networks make them)."""


class CountedCopies:
    """Copies seen since the newest number."""

    __slots__ = (
        "_early", "_followed", "_gaps", "_judged", "_last_ns", "_passed", "_put_off", "_skipped",
        "_spare", "_within_ns", "copies", "copying",
    )  # fmt: skip

    def __init__(self) -> None:
        self._spare: deque[tuple[int, int, int]] = deque(maxlen=OVERTAKEN)
        """(number, how many before it were skipped that no copy has used, when it came) of the
        newest ones.
        """
        self._put_off = 0
        """How many of the first of those below the newest number has not judged for good."""
        self._judged = self._followed = 0
        """Copies judged, and those of them that a skipped number followed."""
        self._early: list[_Copy] = []
        """Those that came too soon for their sender, though numbers were skipped, before it was
        known whether it repeats anything at all.
        """
        self._gaps: tuple[list[int], list[int]] = ([0] * (SCALES + 1), [0] * (SCALES + 1))
        """Copies of which numbers have told without doubt that the sender, or the network, made
        them: how many by their gap, and in all.
        """
        self.copies: list[_Copy] = []
        """Those that the next number will judge."""
        self._last_ns = 0
        """When the newest of them came."""
        self._skipped: list[tuple[int, int, int]] = []
        """The same as of `_spare` of those that came so soon behind the copies ..."""
        self._passed = 0
        """... how many they are, ..."""
        self._within_ns = BACK_TO_BACK_NS
        """... and how soon: numbers have come so late behind later ones."""
        self.copying = False
        """Whether the network has copied what nobody sends twice."""

    def add(
        self,
        gap_ns: int,
        turn: _Turn,
        time_ns: int,
        *,
        copied: bool,
        soon: bool = False,
    ) -> bool:
        """Take one copy; return False where too many wait already.

        Args:
            gap_ns: time since the copy before it.
            turn: called with the verdict.
            time_ns: when it came.
            copied: first verdict, by that time alone: made by the network.
            soon: networks make copies so soon.

        """
        self._last_ns = time_ns
        if len(self.copies) >= MAX_COUNTED:
            return False
        self.copies.append((gap_ns, copied, turn, soon and copied))
        return True

    def arrived_late(self, seq: int, time_ns: int) -> None:
        """Take that a skipped number came late: no copy has used it."""
        for skipped in (self._spare, self._skipped):
            for index, (number, count, since_ns) in enumerate(skipped):
                if number - count <= seq < number:
                    skipped[index] = (number, count - 1, since_ns)
                    late_ns = min(time_ns - since_ns, LATEST_NS)
                    self._within_ns = max(self._within_ns, late_ns)
                    return

    def judge(self, skipped: int, seq: int, time_ns: int) -> None:
        """Judge all copies now that the next new number `seq` has come at `time_ns`, `skipped`
        numbers on.

        Those that followed the copy before them the soonest are the likeliest to be the network's.
        """
        if len(self.copies) > self._put_off and self._may_be_before(time_ns):
            self._passed += 1
            if skipped:
                self._skipped.append((seq, skipped, time_ns))
            return
        skipped += self._taken_in()
        earlier = self.copies[: self._put_off]
        copies = self.copies[self._put_off :]
        if earlier:
            self._put_off = 0
            left = skipped - len(copies)
            taken = len(earlier) if left >= len(earlier) else 0
            skipped -= taken
            self._judged += len(earlier)
            self._followed += taken
            self._say(earlier, 0 if taken else len(earlier))
        self.copies = copies
        spare = self._spare
        if len(copies) > 1 and not skipped and not any(count for _, count, _ in spare):
            self._put_off = len(copies)
            return
        self.copies = []
        copies.sort(key=self._order)
        used = min(skipped, len(copies))
        self._judged += len(copies)
        self._followed += used
        soon = self._soon(copies)
        made_by_network = max(soon, len(copies) - used)
        for index, (number, count, since_ns) in enumerate(spare):
            taken = min(count, made_by_network - soon) if seq - number <= OVERTAKEN else 0
            made_by_network -= taken
            spare[index] = (number, count - taken, since_ns)
        if skipped > used:
            spare.append((seq, skipped - used, time_ns))
        self._say(copies, made_by_network)
        if self._early and self._judged >= ENOUGH:
            early, self._early = self._early, []
            soon = self._soon(early)
            for copy in early:
                if soon > 0 and (soon == len(early) or copy[3]):
                    copy[2](True)
                else:
                    copy[2](self._not_networks(copy[0]))

    def forget(self) -> None:
        """Judge what no number will judge any more: its sender begins anew, or falls silent."""
        self._taken_in()
        self._spare.clear()
        self._put_off = 0
        copies, self.copies = self.copies, []
        for gap_ns, copied, turn, _ in copies:
            if self._judged < ENOUGH:
                turn(copied)
            else:
                turn(self._odds(gap_ns) > 1 and gap_ns < LATEST_NS)
        early, self._early = self._early, []
        for copy in early:
            copy[2](None)

    def _taken_in(self) -> int:
        """Return how many numbers were skipped so soon behind the copies, and forget it."""
        self._passed = 0
        count = 0
        for _, skipped, _ in self._skipped:
            count += skipped
        self._skipped = []
        return count

    def _odds(self, gap_ns: int) -> float:
        """Return how many times as likely as its sender the network makes a copy so late."""
        sent, made = self._gaps
        likely = self._share(made, gap_ns) * (made[SCALES] + 1)
        return likely / (self._share(sent, gap_ns) * (sent[SCALES] + 1))

    def _tells(self, copy: _Copy, other: _Copy) -> bool:
        """Return whether their gaps tell that the network made the first of two copies rather."""
        return self._odds(copy[0]) > SURELY * self._odds(other[0])

    @staticmethod
    def _share(counts: list[int], gap_ns: int) -> float:
        """Return how many of the copies so far had about that gap, as a share."""
        scale = _scale(gap_ns)
        near = counts[max(0, scale - 1)] + counts[scale] + counts[min(SCALES - 1, scale + 1)]
        return (near + 0.5) / (counts[SCALES] + SCALES / 2)

    def _order(self, copy: _Copy) -> tuple[float, int]:
        """Return what puts those first that are likeliest to be the network's."""
        return -self._odds(copy[0]), copy[0]

    def _may_be_before(self, time_ns: int) -> bool:
        """Return whether a number that comes now may have been sent before the newest copy."""
        since_ns = time_ns - self._last_ns
        if since_ns <= BACK_TO_BACK_NS:
            return True
        return since_ns <= self._within_ns and self._passed < OVERTAKEN

    def _repeats_nothing(self) -> bool:
        """Return whether hardly any copy so far was followed by a skipped number."""
        return self._judged >= ENOUGH and HARDLY * self._followed < self._judged

    def _not_networks(self, gap_ns: int) -> bool | None:
        """Return the verdict on a copy that nothing shows to be the network's."""
        return None if self.copying and gap_ns < SOON_NS else False

    def _soon(self, copies: list[_Copy]) -> int:
        """Return how many copies are the network's whatever numbers were skipped."""
        if self._repeats_nothing():
            return len(copies)
        if 2 * self._followed < self._judged:
            return sum(copy[3] for copy in copies)
        return 0

    def _say(self, copies: list[_Copy], network: int) -> None:
        """Call the first of these copies, so many, the network's, and the others the sender's, but
        for those that only a loss behind the network's copy explains. Where numbers of one that
        repeats change places on their way, nothing tells.
        """
        known = network in (0, len(copies))
        self.copying = self.copying or network > 0
        new = self._judged < ENOUGH
        mixed = not new and 2 * self._followed >= self._judged and self._within_ns > BACK_TO_BACK_NS
        while 0 < network < len(copies) and not self._tells(copies[network - 1], copies[network]):
            network -= 1
        sent, made = self._gaps
        for index, copy in enumerate(copies):
            gap_ns, copied, turn, _ = copy
            is_copy = index < network and (copied or gap_ns < LATEST_NS)
            if known and index >= network:
                is_copy = gap_ns < LATEST_NS and LOST * self._odds(gap_ns) > SURELY
            if known and (index < network or not is_copy):
                counts = made if index < network else sent
                counts[_scale(gap_ns)] += 1
                counts[SCALES] += 1
            if new and copied and not is_copy:
                self._early.append(copy)
            elif is_copy:
                late = gap_ns >= SELDOM_NS and not self._repeats_nothing()
                turn(None if mixed or late else True)
            else:
                turn(self._not_networks(gap_ns))


def _scale(gap_ns: int) -> int:
    return min(gap_ns.bit_length(), SCALES - 1)
