"""Weighs which of several equal datagrams arrived when: by their delays, never by their order.

Every way to match what was sent with what arrived has a weight: of each datagram that it was lost,
or took so long; of each further arrival that the network copied an earlier one. What has less than
RULED_OUT of all weight is out of the question; where more than one reading remains, the datagrams
are ambiguous and the heaviest reading is told of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, floor
from typing import Final, NamedTuple

from netdissect.model.native import append, i64, vec

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
        self._known = vec[i64](self.known)
        size = len(self.known)
        spread = self.known[size * 3 // 4] - self.known[size // 4] if size else 0
        # As wide as Silverman's rule makes such windows: spread of the middle half times n^(-1/5).
        self._width = max(_LEAST_WIDTH_NS, spread * (size or 1) ** -0.2)
        self._usual = max(usual_ns, 1)
        heard = size + 2.0
        self._near = _NEAR / (heard * self._usual)
        self._unheard = (1 - _NEAR) / (heard * longest_ns)
        self._each = size / heard / (2 * self._width * size) if size else 0.0

    def density(self, delay_ns: int) -> float:
        """Return the density of a delay, per ns."""
        low = self._before(ceil(delay_ns - self._width))
        high = self._before(floor(delay_ns + self._width) + 1)
        near = self._near if delay_ns <= self._usual else 0.0
        return self._unheard + near + float(high - low) * self._each

    def _before(self, limit: i64) -> i64:
        """Return how many delays are below a limit."""
        known = self._known
        low: i64 = 0
        high: i64 = len(known)
        while low < high:
            middle = (low + high) >> 1
            if known[middle] < limit:
                low = middle + 1
            else:
                high = middle
        return low

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


_State = bytes
"""Of each datagram sent which arrival is its first, from 1, 0 for none so far; then of each arrival
so far whose it is, from 1, 0 for nobody's.
"""
_OCTETS: Final = tuple([bytes((number,)) for number in range(256)])


def weigh(sent: Sequence[int], arrived: Sequence[int], chances: Chances) -> Reading:
    """Return what became of equal datagrams.

    Args:
        sent: when each was sent, in order; at most 255.
        arrived: when each arrived, in order; at most 255.
        chances: what is known of their direction.

    """
    size = len(sent)
    states: list[_State] = [bytes(size)]
    weights = vec[float]([1.0])
    cut = False
    for time_ns in arrived:
        states, weights = _extended(states, weights, time_ns, sent, arrived, chances)
        if len(states) > MAX_READINGS:
            ranked = sorted(range(len(states)), key=list(weights).__getitem__, reverse=True)
            dropped = sum([weights[place] for place in ranked[MAX_READINGS:]])
            cut = cut or dropped > RULED_OUT / 10
            del ranked[MAX_READINGS:]
            states = [states[place] for place in ranked]
            weights = vec[float]([weights[place] for place in ranked])
    states, weights = _whole(states, weights, size, chances.lost)
    best = _chosen(states, weights, size)
    doubt_sent = [cut] * size
    doubt_arrived = [cut] * len(arrived)
    if not cut and len(states) > 1:
        _doubts(states, weights, doubt_sent, doubt_arrived)
    sender = tuple([whose - 1 for whose in best[size:]])
    first = tuple([who >= 0 and best[who] == number for number, who in enumerate(sender, 1)])
    return Reading(sender, first, tuple(doubt_sent), tuple(doubt_arrived))


def _whole(
    states: list[_State], weights: vec[float], size: int, lost: float
) -> tuple[list[_State], vec[float]]:
    """Return the readings that have any weight once those are lost that none arrived of."""
    powers = [lost**count for count in range(size + 1)]
    going: list[_State] = []
    whole = vec[float]()
    for place, state in enumerate(states):
        missing = 0
        for index in range(size):
            missing += not state[index]
        weight: float = weights[place] * powers[missing]
        if weight > 0:
            going.append(state)
            whole = append(whole, weight)
    return going, whole


def _extended(
    states: list[_State],
    weights: vec[float],
    time_ns: int,
    sent: Sequence[int],
    arrived: Sequence[int],
    chances: Chances,
) -> tuple[list[_State], vec[float]]:
    """Return the readings with one more arrival, and their weights, the heaviest being 1; without
    those that are hopeless.
    """
    kept, copied = 1 - chances.lost, chances.copied
    first = vec[float]()
    for then in sent:
        # In order of time: all further ones were sent later still.
        if time_ns - then < -chances.slack_ns:
            break
        chance: float = kept * (1 - copied) * chances.delays.density(time_ns - then)
        if not chance:
            break
        first = append(first, chance)
    # A copy lags behind the first arrival of what it copies, so each earlier arrival may be
    # needed.
    size = len(sent)
    number = len(states[0]) - size + 1
    again = vec[float]()
    if len(first):
        for place in range(number - 1):
            lag = chances.lags.density(time_ns - arrived[place])
            again = append(again, copied / (1 - copied) * lag)
    # Most readings are hopeless: they are weighed before they are made.
    found = vec[float]()
    top: float = 0.0
    for place, state in enumerate(states):
        weight: float = weights[place]
        product: float = weight * _APPEARED
        found = append(found, product)
        if product > top:  # noqa: PLR1730 - the builtin would cost more
            top = product
        for index in range(len(first)):
            earlier = state[index]
            product = weight * (again[earlier - 1] if earlier else first[index])
            found = append(found, product)
            if product > top:  # noqa: PLR1730 - the builtin would cost more
                top = product
    return _followed(states, found, top, number)


def _followed(
    states: list[_State], found: vec[float], top: float, number: int
) -> tuple[list[_State], vec[float]]:
    """Return those of all readings of arrival `number` that are not hopeless, the heaviest being 1.

    Args:
        states: the readings before it.
        found: of each of them the weights, first that nobody sent it, then for each that may have.
        top: the heaviest.
        number: of the arrival, from 1.

    """
    least: float = _HOPELESS * top
    width = len(found) // len(states)
    going: list[_State] = []
    going_weights = vec[float]()
    at: i64 = 0
    for before in states:
        for whose in range(width):
            weight: float = found[at]
            at += 1
            if weight <= least:
                continue
            state = before
            if whose and not state[whose - 1]:
                state = state[: whose - 1] + _OCTETS[number] + state[whose:]
            going.append(state + _OCTETS[whose])
            # In proportion to the heaviest: of many arrivals the products would vanish in a float.
            going_weights = append(going_weights, weight / top)
    return going, going_weights


def _chosen(states: list[_State], weights: vec[float], size: int) -> _State:
    """Return the heaviest reading; of those that weigh about as much, one that supposes the least
    reordering.
    """
    top: float = 0.0
    for place in range(len(weights)):
        top = max(top, weights[place])
    least: float = _ALIKE * top
    best: int | None = None
    heaviest: float = 0.0
    fewest = 0
    for place, state in enumerate(states):
        weight: float = weights[place]
        if weight < least:
            continue
        count = _inversions(state, size)
        if best is None or count < fewest or (count == fewest and weight > heaviest):
            best, fewest, heaviest = place, count, weight
    return states[best or 0]


def _inversions(state: _State, size: int) -> int:
    """Return how often a first arrival comes after one that was sent later."""
    newest, count = 0, 0
    for index in range(size, len(state)):
        whose = state[index]
        if whose and state[whose - 1] == index - size + 1:
            count += whose < newest
            newest = max(newest, whose)
    return count


def _doubts(
    states: list[_State],
    weights: vec[float],
    doubt_sent: list[bool],
    doubt_arrived: list[bool],
) -> None:
    """Mark what more than one possible reading says differently."""
    size, came = len(doubt_sent), len(doubt_arrived)
    total: float = 0.0
    for place in range(len(weights)):
        total += weights[place]
    least: float = RULED_OUT * total
    theirs: list[dict[int, float]] = [{} for _ in doubt_sent]
    """Of each datagram sent: the set of its arrivals as bits -> weight."""
    width = 2 * size + 2
    whose = vec[float]([0.0] * (width * came))
    """Of each arrival: weight of twice whose it is, and one more where it is not the first."""
    arrivals = vec[i64]([0] * size)
    for place, state in enumerate(states):
        weight: float = weights[place]
        for index in range(size):
            arrivals[index] = 0
        strayed = 0
        bit: i64 = 1
        for index in range(came):
            who = state[size + index]
            if who:
                whose[index * width + 2 * who + (state[who - 1] <= index)] += weight
                arrivals[who - 1] |= bit
            else:
                whose[index * width + strayed] += weight
                strayed = 1
            bit <<= 1
        for index in range(size):
            weighed, bits = theirs[index], arrivals[index]
            weighed[bits] = weighed.get(bits, 0.0) + weight
    for index, weighed in enumerate(theirs):
        doubt_sent[index] = sum([weight >= least for weight in weighed.values()]) > 1
    for index in range(came):
        likely = 0
        for column in range(width):
            likely += whose[index * width + column] >= least
        doubt_arrived[index] = likely > 1
