"""Weighs which of several equal datagrams arrived when: by their delays, never by their order.

Every way to match what was sent with what arrived has a weight: of each datagram that it was lost,
or took so long; of each further arrival that the network copied an earlier one. What has less than
RULED_OUT of all weight is out of the question; where more than one reading remains, the datagrams
are ambiguous and the heaviest reading is told of them.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

__all__ = ["MAX_READINGS", "Chances", "Delays", "Reading", "weigh"]

RULED_OUT: Final = 1e-4
"""A reading with less than this part of all weight is ruled out."""
MAX_READINGS: Final = 2000
"""Readings that are followed at once; beyond, the lightest are dropped, and what is left of the
datagrams is called ambiguous.
"""
_APPEARED: Final = 1e-22
"""Weight, per ns, of an arrival that nobody sent."""
_HOPELESS: Final = 1e-10
"""A reading that falls so far behind the heaviest is not followed."""
_ALIKE: Final = 0.05
"""A reading with this part of the heaviest's weight is about as likely."""
_NEAR: Final = 0.5
"""Part of the unheard-of delays that is about as long as the usual ones."""
_LEAST_WIDTH_NS: Final = 100_000.0
"""Delays are not told apart more finely than this."""


class Delays:
    """How likely delays are, from delays that are known.

    Args:
        known: delays of datagrams that are beyond doubt, ns.
        longest_ns: what is longer does not happen.
        usual_ns: a delay that was not heard of yet is as likely below this as in all the rest.

    """

    def __init__(self, known: Sequence[int], longest_ns: int, usual_ns: int = 1) -> None:
        self.known = sorted(known)
        size = len(self.known)
        spread = self.known[size * 3 // 4] - self.known[size // 4] if size else 0
        self._width = max(_LEAST_WIDTH_NS, spread * (size or 1) ** -0.2)
        self._usual = max(usual_ns, 1)
        heard = size + 2.0
        self._near = _NEAR / (heard * self._usual)
        self._unheard = (1 - _NEAR) / (heard * longest_ns)
        self._each = size / heard / (2 * self._width * size) if size else 0.0

    def density(self, delay_ns: int) -> float:
        """Return the density of a delay, per ns."""
        low = bisect_left(self.known, delay_ns - self._width)
        high = bisect_right(self.known, delay_ns + self._width)
        near = self._near if delay_ns <= self._usual else 0.0
        return self._unheard + near + (high - low) * self._each

    def quantile(self, share: float) -> int:
        """Return the delay that a share of all does not exceed; 0 without any."""
        if not self.known:
            return 0
        return self.known[min(len(self.known) - 1, int(share * len(self.known)))]


@dataclass(frozen=True, slots=True)
class Chances:
    """What is known of one direction before equal datagrams are weighed."""

    delays: Delays
    lags: Delays
    """From the first arrival to that of a copy by the network."""
    lost: float
    """Share that is lost."""
    copied: float
    """Share that the network copies."""
    slack_ns: int
    """A datagram may seem to arrive so much before it was sent."""


class Reading(NamedTuple):
    """What became of some equal datagrams, by the heaviest reading."""

    sender: tuple[int, ...]
    """Of each arrival the index of what was sent, -1 for none."""
    first: tuple[bool, ...]
    """Of each arrival whether it is the first of what was sent."""
    doubtful_sent: tuple[bool, ...]
    """Of each datagram sent whether another reading is possible."""
    doubtful_arrived: tuple[bool, ...]


_State = tuple[int, ...]


def weigh(sent: Sequence[int], arrived: Sequence[int], chances: Chances) -> Reading:
    """Return what became of equal datagrams.

    Args:
        sent: when each was sent, in order.
        arrived: when each arrived, in order.
        chances: what is known of their direction.

    """
    states: dict[_State, float] = {(): 1.0}
    cut = False
    for time_ns in arrived:
        states = _extended(states, time_ns, sent, arrived, chances)
        top = max(states.values())
        states = {s: weight / top for s, weight in states.items() if weight > _HOPELESS * top}
        if len(states) > MAX_READINGS:
            ranked = sorted(states, key=states.__getitem__, reverse=True)
            dropped = sum(states[state] for state in ranked[MAX_READINGS:])
            cut = cut or dropped > RULED_OUT / 10
            states = {state: states[state] for state in ranked[:MAX_READINGS]}
    lost = chances.lost
    whole: dict[_State, float] = {}
    for state, weight in states.items():
        missing = len(sent) - len(set(state) - {-1})
        whole[state] = weight * lost**missing
    total = sum(whole.values())
    likely = {state: weight for state, weight in whole.items() if weight > 0}
    best = _chosen(likely)
    doubt_sent = [cut] * len(sent)
    doubt_arrived = [cut] * len(arrived)
    if not cut and len(likely) > 1:
        _doubts(likely, total, doubt_sent, doubt_arrived)
    first = tuple(who >= 0 and who not in best[:index] for index, who in enumerate(best))
    return Reading(best, first, tuple(doubt_sent), tuple(doubt_arrived))


def _extended(
    states: dict[_State, float],
    time_ns: int,
    sent: Sequence[int],
    arrived: Sequence[int],
    chances: Chances,
) -> dict[_State, float]:
    """Return the readings with one more arrival."""
    found: dict[_State, float] = {}
    kept, copied = 1 - chances.lost, chances.copied
    first = [
        kept * (1 - copied) * chances.delays.density(time_ns - then)
        if time_ns - then >= -chances.slack_ns
        else 0.0
        for then in sent
    ]
    for state, weight in states.items():
        found[*state, -1] = weight * _APPEARED
        for index, chance in enumerate(first):
            if not chance:
                break
            if index in state:
                lag = time_ns - arrived[state.index(index)]
                chance = copied / (1 - copied) * chances.lags.density(lag)  # noqa: PLW2901 - the other way to arrive
            found[*state, index] = weight * chance
    return found


def _chosen(states: dict[_State, float]) -> _State:
    """Return the heaviest reading; of those that weigh about as much, one that supposes the least
    reordering.
    """
    top = max(states.values())
    alike = [state for state, weight in states.items() if weight >= _ALIKE * top]
    return min(alike, key=lambda state: (_inversions(state), -states[state]))


def _inversions(state: _State) -> int:
    """Return how often a first arrival comes after one that was sent later."""
    newest, count = -1, 0
    for index, who in enumerate(state):
        if who >= 0 and who not in state[:index]:
            count += who < newest
            newest = max(newest, who)
    return count


def _doubts(
    states: dict[_State, float],
    total: float,
    doubt_sent: list[bool],
    doubt_arrived: list[bool],
) -> None:
    """Mark what more than one possible reading says differently."""
    for which, doubts in ((0, doubt_sent), (1, doubt_arrived)):
        for index in range(len(doubts)):
            sums: dict[object, float] = {}
            for state, weight in states.items():
                says = _says(state, index) if which else _of_sender(state, index)
                sums[says] = sums.get(says, 0.0) + weight
            doubts[index] = sum(weight >= RULED_OUT * total for weight in sums.values()) > 1


def _says(state: _State, index: int) -> tuple[int, bool]:
    """Return whose an arrival is in a reading, and whether it is the first."""
    return state[index], state[index] in state[:index]


def _of_sender(state: _State, sender: int) -> tuple[int, ...]:
    """Return the arrivals of what was sent, in a reading."""
    return tuple(index for index, who in enumerate(state) if who == sender)
