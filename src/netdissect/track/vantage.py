"""Infers where the capture was taken: next to the client, next to the server, or in between.

The method compares how soon both sides answer what the capture shows them receiving. If it was
taken next to a side, that side answers as soon as its program reads the network, while the answers
of the other side take a network round trip. In addition, numbers that arrive out of order have
crossed a network, so that their sender is not near, even if it answers quickly. Without enough
evidence, or with contradictory evidence, the vantage is unknown. All thresholds are for the
*quickest* answers, because anything can make an answer slow, but nothing makes it quicker than the
network.
"""

from __future__ import annotations

from typing import Final

from netdissect.model.figures import tenths
from netdissect.model.native import ABSENT, i64, mypyc_attr
from netdissect.model.packets import SIDES

NEAR_NS: Final = 5_000_000
"""A side whose quickest answer took at most this, in ns, is next to the capture."""
KERNEL_NS: Final = 2_000_000
"""The same where the operating system answers, as in TCP: it need not wait for a program."""
FAR_NS: Final = 11_000_000
"""Answers quicker than this, in ns, prove no network: a program may read its socket that rarely."""
MARGIN_NS: Final = 7_000_000
"""The far side's quickest answer is at least this much slower than the near side's, in ns."""
RATIO: Final = 1.5
"""The far side's quickest answer takes at least this many times as long as the near side's."""
MIN_ANSWERS: Final = 8
"""Answers of the far side that are needed: fewer can all have met a busy program, so that the start
of a direct link looks like a long path.
"""
MIN_STEADY: Final = 5
"""This many answers of the far side suffice if they are steady, because only a network delays all
answers by the same time.
"""
CHANCE: Final = 0.02
"""Answers are steady if answers at random moments of their range would all be as slow as the
quickest with at most this probability.
"""
MIN_NEAR_ANSWERS: Final = 5
"""Answers of the near side that are needed for the comparison, unless the far side has
`SOME_ANSWERS` or `MANY_ANSWERS`.
"""
SOME_ANSWERS: Final = 16
"""This many slow answers of the far side suffice if one of the near side took at most `NEAR_NS`."""
MANY_ANSWERS: Final = 60
"""This many slow answers of the far side suffice in any case."""
MIN_DISORDER: Final = 5
"""Units out of order or missing from which on a network is concluded."""
MIN_PASSED: Final = 4
"""A side that has answered only a later copy this many times, although it answers quickly, is not
next to the capture: something lies between that loses datagrams. Next to real programs that were
kept busy, it happened at most twice in a capture.
"""


_MS: Final = 1_000_000


@mypyc_attr(acyclic=True)
class Evidence:
    """The evidence about one side."""

    __slots__ = (
        "answers", "copied", "disorder", "held_ns", "missing", "passed", "quickest_ns", "slow_ns",
        "usual_ns",
    )  # fmt: skip

    # Created for each of the first answers of a side, so it has machine integers only.
    def __init__(
        self, quickest_ns: i64, answers: i64, disorder: i64,
        held_ns: i64 = 0, slow_ns: i64 = 0, usual_ns: i64 = ABSENT, missing: i64 = 0,
        passed: i64 = 0, copied: i64 = 0,
    ) -> None:  # fmt: skip
        self.quickest_ns: i64 = quickest_ns
        """Its quickest answer in ns; ABSENT without answers."""
        self.answers: i64 = answers
        """Number of its answers."""
        self.disorder: i64 = disorder
        """Units that it sent and that arrived here out of order."""
        self.held_ns: i64 = held_ns
        """How long its protocol holds back the quickest answer at least: no time on the path."""
        self.slow_ns: i64 = slow_ns
        """95th percentile of its answers; 0 unless `MIN_STEADY` matters."""
        self.usual_ns: i64 = quickest_ns if usual_ns == ABSENT else usual_ns
        """Its quickest answer without the quickest tenth, if those may answer a copy that the
        capture misses.
        """
        self.missing: i64 = missing
        """Units that it sent and that neither the capture nor its peer received."""
        self.passed: i64 = passed
        """How often it has answered only a later copy (`AckStats.passed`)."""
        self.copied: i64 = copied
        """Copies of units that it never sends again: a network on the way has made them."""

    @property
    def outlier(self) -> bool:
        """Return whether only the quickest tenth of the answers shows this side as near."""
        return self.heard and self.usual_ns > NEAR_NS >= self.quickest_ns

    @property
    def heard(self) -> bool:
        """Return whether it has answered."""
        return self.quickest_ns != ABSENT

    @property
    def crossed(self) -> bool:
        """Return whether what it sent has crossed a network."""
        return self.disorder + self.missing >= MIN_DISORDER


class Vantage:
    """The conclusion from the evidence about client and server."""

    __slots__ = ("_near_ns", "_settled", "_soon_ns", "_tick_ns", "_word", "evidence", "near")

    def __init__(
        self, tick_ms: tuple[float, float] = (0.0, 0.0), *, by_kernel: bool = False
    ) -> None:
        """Create a conclusion; each side's program may hold an answer back for `tick_ms` (client,
        server) milliseconds, unless the operating system answers.
        """
        self._tick_ns = (max(FAR_NS, int(1e6 * tick_ms[0])), max(FAR_NS, int(1e6 * tick_ms[1])))
        self._near_ns = KERNEL_NS if by_kernel else NEAR_NS
        self._soon_ns = self._tick_ns
        """What the quickest answer of each near side takes at most if the other side is far."""
        if by_kernel:
            self._soon_ns = (KERNEL_NS, KERNEL_NS)
        nothing = Evidence(ABSENT, 0, 0)
        self.evidence = (nothing, nothing)
        self._settled = False
        self._word: str | None = None
        """`word`; None = not known since the last update."""
        self.near: tuple[bool | None, bool | None] = (None, None)
        """(client near, server near); None = unknown."""

    def update(self, client: Evidence, server: Evidence) -> bool:
        """Draw the conclusion; return whether it has changed."""
        self.evidence = (client, server)
        self._word = None
        if self._settled:
            return False
        slow, slower = self._tick_ns
        far, farther = _far(client, server, slow), _far(server, client, slower)
        soon, sooner = self._soon_ns
        near = not far and _near(client, server, self._near_ns, soon, other_far=farther)
        nearer = not farther and _near(server, client, self._near_ns, sooner, other_far=far)
        found: tuple[bool | None, bool | None] = (None, None)
        if far or farther or (near and nearer):
            found = (False if far else near or None, False if farther else nearer or None)
        before, self.near = self.near, found
        # One by one: compiled, tuples are compared as objects.
        return found[0] is not before[0] or found[1] is not before[1]

    def settle(self, near: tuple[bool | None, bool | None]) -> None:
        """Fix the conclusion to that of an earlier pass over the whole capture."""
        self._settled = True
        self._word = None
        self.near = near

    @property
    def word(self) -> str:
        """Return `client`, `server`, `middle` or `unknown`, as in `ConnectionReport.vantage`."""
        word = self._word
        if word is None:
            word = self._word = self._concluded()
        return word

    def _concluded(self) -> str:
        if not (self.evidence[0].heard or self.evidence[1].heard):
            return "unknown"  # programs without acknowledgements may change the order themselves
        for side, sight in enumerate(self.evidence):
            # Few answers may have met a busy program, but not for longer than another tick.
            few = 1 if sight.answers >= MIN_ANSWERS else 2
            doubt = sight.disorder or sight.copied or sight.passed >= MIN_PASSED
            doubt = doubt or sight.quickest_ns > few * self._soon_ns[side]
            doubt = doubt or not _is_quicker(sight, self.evidence[1 - side])
            if self.near[side] is None and doubt:
                return "unknown"  # it seems far, too, but that is not certain
        return _WORDS.get(self.near, "unknown")

    @property
    def basis(self) -> str:
        """Return the evidence as one sentence."""
        sides = [(SIDES[side], sight) for side, sight in enumerate(self.evidence)]
        facts = [_quickest(name, sight) for name, sight in sides if sight.heard]
        facts += [
            f"{_units(sight.disorder)} of the {name} came out of order"
            for name, sight in sides
            if sight.disorder
        ]
        facts += [
            f"{_units(sight.missing)} of the {name} did not come"
            for name, sight in sides
            if sight.missing
        ]
        facts += [
            f"{_units(sight.passed)} on the way to the {name} were answered only when sent again"
            for name, sight in sides
            if sight.passed >= MIN_PASSED
        ]
        facts += [
            f"{_units(sight.copied)} of the {name} came twice, which it never sends again"
            for name, sight in sides
            if sight.copied
        ]
        if self.near == (True, True):
            facts.append("no network between them is to be seen")
        return "; ".join(facts) or "no answer of either side is in the capture"


_WORDS: Final = {
    (True, False): "client",
    (None, False): "client",
    (False, True): "server",
    (False, None): "server",
    (False, False): "middle",
}


def _quickest(name: str, sight: Evidence) -> str:
    """Return a phrase on how quickly a side answered."""
    took = f"took {_ms(sight.quickest_ns)}"
    if sight.answers == 1:
        return f"the only answer of the {name} {took}"
    most = f", most more than {_ms(sight.usual_ns)}" if sight.outlier else ""
    return f"the quickest of {sight.answers} answers of the {name} {took}{most}"


def _units(count: i64) -> str:
    return f"{count} unit" if count == 1 else f"{count} units"


def _ms(time_ns: i64) -> str:
    return f"{tenths(time_ns, _MS)} ms"


def _far(side: Evidence, other: Evidence, tick_ns: i64) -> bool:
    """Return whether a network lies between this side and the capture."""
    mine, others = side.usual_ns, other.usual_ns
    if side.crossed and (not side.heard or mine > NEAR_NS):
        return True
    if not side.heard or not other.heard:
        return False
    mine -= side.held_ns
    if mine > side.quickest_ns:
        tick_ns *= 2  # a program that reads its socket once a tick has answered within two, mostly
    if mine <= tick_ns or mine - others <= MARGIN_NS or int(mine) <= RATIO * int(others):
        return False
    enough = SOME_ANSWERS if others <= NEAR_NS else MANY_ANSWERS
    if other.answers < MIN_NEAR_ANSWERS and side.answers < enough:
        return False
    return side.answers >= MIN_ANSWERS or (
        side.answers >= MIN_STEADY and _chance(mine, side.slow_ns, side.answers) <= CHANCE
    )


def _chance(quickest_ns: int, slow_ns: int, answers: int) -> float:
    """Return the probability that `answers` random moments before `slow_ns` are all that late."""
    left = 1.0 - min(quickest_ns, slow_ns) / max(1, slow_ns)
    return float(left**answers)


def _near(
    side: Evidence, other: Evidence, near_ns: i64, soon_ns: i64, *, other_far: bool
) -> bool:
    """Return whether this side is next to the capture: its quickest answer took at most `near_ns`,
    or `soon_ns` if the other side is far.
    """
    # Quick answers and signs of a network contradict each other. Next to real programs, not one
    # unit came out of order.
    if not side.heard or side.disorder or side.copied or side.crossed:
        return False
    if side.passed >= MIN_PASSED:
        return False
    if side.quickest_ns <= near_ns:
        return True
    return other_far and side.quickest_ns <= soon_ns and _is_quicker(side, other)


def _is_quicker(side: Evidence, other: Evidence) -> bool:
    """Return whether a side answers sooner than the other by more than `MARGIN_NS`."""
    if not side.heard:
        return False
    return not other.heard or other.usual_ns - side.quickest_ns > MARGIN_NS
