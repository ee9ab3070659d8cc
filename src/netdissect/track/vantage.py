"""Where the capture was taken, inferred from the answers of both sides and the order of numbers.

Next to a side its answers follow as soon as its program looks at the network; the answers of the
other side take a network round trip more. Numbers that arrive out of order have crossed a network.
"""

from __future__ import annotations

from typing import Final

from netdissect.model.native import ABSENT, i64, mypyc_attr
from netdissect.model.packets import SIDES

__all__ = ["FAR_NS", "MIN_ANSWERS", "MIN_DISORDER", "MIN_STEADY", "NEAR_NS", "Evidence", "Vantage"]

NEAR_NS: Final = 5_000_000
"""A side whose quickest answer took at most this is next to the capture, or as good as."""
FAR_NS: Final = 11_000_000
"""Quicker answers can be the program's own tick: they prove no network."""
MARGIN_NS: Final = 7_000_000
"""The far side's quickest answer is at least so much slower than the near side's ..."""
RATIO: Final = 1.5
"""... and takes at least so many times as long."""
MIN_ANSWERS: Final = 8
"""Answers of the far side before the quickest of them means a network: fewer can all have met a
program that was just busy, and then the start of a direct link looks like a long way ..."""
MIN_STEADY: Final = 5
"""... unless so many took nearly the same time, as answers do that wait for nothing but a network.
"""
CHANCE: Final = 0.02
"""Answers are steady where a program that answers at any moment of their range would make all of
them as slow as the quickest with no more than this probability."""
MIN_NEAR_ANSWERS: Final = 5
"""Answers of the near side with which the far side's are compared ..."""
SOME_ANSWERS: Final = 16
"""... unless these are so many, and one of the near side was as quick as only next to it, ..."""
MANY_ANSWERS: Final = 60
"""... or so many: none of them quick, they speak for themselves."""
MIN_DISORDER: Final = 5
"""Units out of order or missing before a network is concluded from them."""


@mypyc_attr(acyclic=True)
class Evidence:
    """What the capture shows of one side."""

    __slots__ = ("answers", "disorder", "held_ns", "missing", "quickest_ns", "slow_ns", "usual_ns")

    # Made for each of the first answers of a side, so of machine integers alone.
    def __init__(
        self, quickest_ns: i64, answers: i64, disorder: i64,
        held_ns: i64 = 0, slow_ns: i64 = 0, usual_ns: i64 = ABSENT, missing: i64 = 0,
    ) -> None:  # fmt: skip
        self.quickest_ns: i64 = quickest_ns
        """Its quickest answer; ABSENT without any."""
        self.answers: i64 = answers
        """Answers that were measured."""
        self.disorder: i64 = disorder
        """Units that it sent and that were captured out of order."""
        self.held_ns: i64 = held_ns
        """The least that its quickest answers were held back by rule: no time on the way."""
        self.slow_ns: i64 = slow_ns
        """What 95% of its answers did not exceed; 0 unless their number makes it matter."""
        self.usual_ns: i64 = quickest_ns if usual_ns == ABSENT else usual_ns
        """Its quickest answer but for a few, which may belong to something that the capture misses.
        """
        self.missing: i64 = missing
        """Units that it sent, that the capture has not, and that its peer did not get either."""

    @property
    def outlier(self) -> bool:
        """Return whether the quickest answer alone says that this side is near."""
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
    """What follows from the evidence of client and server."""

    __slots__ = ("_settled", "_tick_ns", "evidence", "near")

    def __init__(self, tick_ms: tuple[float, float] = (0.0, 0.0)) -> None:
        """Take how long each side's program may hold an answer back, in milliseconds."""
        self._tick_ns = (max(FAR_NS, int(1e6 * tick_ms[0])), max(FAR_NS, int(1e6 * tick_ms[1])))
        nothing = Evidence(ABSENT, 0, 0)
        self.evidence = (nothing, nothing)
        self._settled = False
        self.near: tuple[bool | None, bool | None] = (None, None)
        """(client next to the capture, server next to the capture); None = not known."""

    def update(self, client: Evidence, server: Evidence) -> bool:
        """Take the evidence; return True where the conclusion has changed."""
        self.evidence = (client, server)
        if self._settled:
            return False
        slow, slower = self._tick_ns
        far, farther = _far(client, server, slow), _far(server, client, slower)
        near = not far and _near(client, server, slow, other_far=farther)
        nearer = not farther and _near(server, client, slower, other_far=far)
        found: tuple[bool | None, bool | None] = (None, None)
        if far or farther or (near and nearer):
            found = (False if far else near or None, False if farther else nearer or None)
        changed = found != self.near
        self.near = found
        return changed

    def settle(self, near: tuple[bool | None, bool | None]) -> None:
        """Take what an earlier look at the whole capture has concluded."""
        self._settled = True
        self.near = near

    @property
    def word(self) -> str:
        """Return the contract's word: `client`, `server`, `middle` or `unknown`."""
        for side, sight in enumerate(self.evidence):
            slow = sight.answers >= MIN_ANSWERS and sight.quickest_ns > self._tick_ns[side]
            doubt = sight.disorder or slow or not _is_quicker(sight, self.evidence[1 - side])
            if self.near[side] is None and doubt:
                return "unknown"  # as slow as across a network, or what it sends has crossed one
        return _WORDS.get(self.near, "unknown")

    @property
    def basis(self) -> str:
        """Return one sentence: what the vantage rests on."""
        sides = tuple(zip(SIDES, self.evidence, strict=True))
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
    """Return how soon a side answered after what it answers was captured."""
    took = f"took {_ms(sight.quickest_ns)}"
    if sight.answers == 1:
        return f"the only answer of the {name} {took}"
    most = f", most more than {_ms(sight.usual_ns)}" if sight.outlier else ""
    return f"the quickest of {sight.answers} answers of the {name} {took}{most}"


def _units(count: i64) -> str:
    return f"{count} unit" if count == 1 else f"{count} units"


def _ms(time_ns: i64) -> str:
    return f"{int(time_ns) / 1e6:.1f} ms"


def _far(side: Evidence, other: Evidence, tick_ns: i64) -> bool:
    """Return True where a network lies between this side and the capture."""
    mine, others = side.usual_ns, other.usual_ns
    if side.crossed and (not side.heard or mine > NEAR_NS):
        return True
    if not side.heard or not other.heard:
        return False
    mine -= side.held_ns
    if mine <= tick_ns or mine - others <= MARGIN_NS or int(mine) <= RATIO * int(others):
        return False
    enough = SOME_ANSWERS if others <= NEAR_NS else MANY_ANSWERS
    if other.answers < MIN_NEAR_ANSWERS and side.answers < enough:
        return False
    return side.answers >= MIN_ANSWERS or (
        side.answers >= MIN_STEADY and _chance(mine, side.slow_ns, side.answers) <= CHANCE
    )


def _chance(quickest_ns: int, slow_ns: int, answers: int) -> float:
    """Return how probable it is that so many moments between 0 and `slow_ns` are all that late."""
    left = 1.0 - min(quickest_ns, slow_ns) / max(1, slow_ns)
    return float(left**answers)


def _near(side: Evidence, other: Evidence, tick_ns: i64, *, other_far: bool) -> bool:
    """Return True where this side is next to the capture."""
    if not side.heard or side.crossed:
        return False  # Quick answers and numbers out of order contradict each other.
    if side.quickest_ns <= NEAR_NS:
        return True
    return other_far and side.quickest_ns <= tick_ns and _is_quicker(side, other)


def _is_quicker(side: Evidence, other: Evidence) -> bool:
    """Return whether a side answers sooner than the other by more than a program's own tick."""
    if not side.heard:
        return False
    return not other.heard or other.usual_ns - side.quickest_ns > MARGIN_NS
