"""Decides which of several equal datagrams arrived when: by their delays, not by their order.

Method. An *assignment* says of each arrival which datagram it is, and whether it is the first
arrival or a copy that the network made. Its weight is the product of what it supposes: the
probability of each delay, loss and copy, as the unambiguous datagrams of the same direction show
them. Assignments are extended by one arrival at a time; those that fall hopelessly behind the
heaviest are dropped. Finally, assignments with less than `RULED_OUT` of the total weight are ruled
out. If the rest disagree about a datagram it is ambiguous, and reported as in the best assignment.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from netdissect.model.native import append, i64, vec

RULED_OUT: Final = 1e-4
"""What has less than this share of the total weight is ruled out."""
_UNLIKELY: Final = 2e-3
"""Two datagrams of a payload that each capture holds once are one if the opposite has less than
this share of the weight: to be sent twice and to be missed is rare in the first place.
"""
MAX_ASSIGNMENTS: Final = 256
"""Assignments that are followed at once; beyond, the lightest are dropped, and all datagrams count
as ambiguous.
"""
_FOLLOWED_IN_DOUBT: Final = 64
"""Assignments that are followed once all datagrams count as ambiguous."""
_APPEARED: Final = 1e-22
"""Least probability density, per ns, of an arrival that nobody was seen to send."""
_HOPELESS: Final = 1e-7
"""An assignment with less than this share of the heaviest's weight is dropped."""
_NEGLIGIBLE: Final = 1e-3
"""Part of a threshold that may be neglected."""
_COMPARABLE: Final = 0.05
"""An assignment with this share of the heaviest's weight is about as likely."""
_NEAR_SHARE: Final = 0.5
"""Probability that a delay of a length never observed is no longer than the usual ones."""
_LARGE: Final = 200
"""A sample from this size on shows how rare long delays are. In a smaller one, each of them would
count as so frequent that much of what is equal would be ambiguous, without being told wrongly.
"""
_MIN_WIDTH_NS: Final = 100_000.0
"""Delays that differ by less than this are not told apart."""


class Delays:
    """A probability density of delays, estimated from known ones.

    Args:
        known: delays of unambiguous datagrams, ns.
        longest_ns: longer delays do not occur.
        usual_ns: of the delays never observed, half are below this. None: up to a tenth above the
            longest known one, as the longest of a sample is seldom the longest of all.

    """

    def __init__(
        self, known: Sequence[int], longest_ns: int, usual_ns: int | None = None
    ) -> None:
        self.known = sorted(known)
        if usual_ns is None:
            usual_ns = 11 * max(known, default=0) // 10
        self._known = vec[i64](self.known)
        size = len(self.known)
        spread = self.known[size * 3 // 4] - self.known[size // 4] if size else 0
        # Silverman's rule for the width of a kernel: interquartile range times n^(-1/5).
        width = max(_MIN_WIDTH_NS, spread * (size or 1) ** -0.2)
        self._width: i64 = int(width)
        self.usual_ns: i64 = max(usual_ns, 1)
        total = size + 2.0  # the known ones and two never observed
        self._near: float = _NEAR_SHARE / (total * max(usual_ns, 1))
        self._far: float = (1 - _NEAR_SHARE) / (total * longest_ns)
        self._one: float = 1 / total
        self._is_large = size >= _LARGE
        self._each: float = size / total / (2 * width * size) if size else 0.0

    def density(self, delay_ns: i64) -> float:
        """Return the probability density of a delay, per ns."""
        low = self._count_below(delay_ns - self._width)
        within = self._count_below(delay_ns + self._width + 1) - low
        density: float = self._far
        if delay_ns <= self.usual_ns:
            density += self._near
        elif self._is_large:
            # A queue or a stall that causes one longer delay causes shorter ones more often.
            ratio: float = float(self.usual_ns) / float(delay_ns)
            density += self._near * ratio * ratio
        if self._is_large and not within and 0 < low < len(self._known):
            # Sparse delays, such as those of stalls, lie between two known ones with the
            # probability of one of them.
            return density + self._one / float(self._known[low] - self._known[low - 1])
        return density + float(within) * self._each

    def _count_below(self, limit: i64) -> i64:
        """Return how many known delays are below a limit."""
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
        """Return the delay that a share of the known ones do not exceed; 0 if none is known."""
        if not self.known:
            return 0
        return self.known[min(len(self.known) - 1, int(share * len(self.known)))]


@dataclass(frozen=True, slots=True)
class Priors:
    """What is known of one direction before equal datagrams are weighed."""

    delays: Delays
    lags: Delays
    """Times from the first arrival of a datagram to that of its copy."""
    lost: float
    """Share of the datagrams that are lost."""
    copied: float
    """Share of the datagrams that the network copies."""
    unseen: float
    """Share of the datagrams that the capture next to the sender misses."""
    repeated: float
    """Share of the datagrams whose payload is sent more than once."""
    slack_ns: int
    """A datagram may seem to arrive this long before it was sent."""


class Matching:
    """The best assignment, and what other possible assignments contradict."""

    __slots__ = ("doubtful_arrived", "doubtful_sent", "effort", "first", "sender")

    # Written out: what a NamedTuple generates is not compiled.
    def __init__(self, sent: int, arrived: int) -> None:
        self.sender = [-1] * arrived
        """Per arrival: index of the datagram sent, or -1."""
        self.first = [False] * arrived
        """Per arrival: whether it is the first one of its datagram."""
        self.doubtful_sent = [False] * sent
        """Per datagram sent: whether another possible assignment differs."""
        self.doubtful_arrived = [False] * arrived
        """Per arrival: whether another possible assignment differs."""
        self.effort = 0
        """How many extensions of assignments were weighed."""


_Assignment = bytes
"""Per datagram sent, the number of its first arrival, from 1, or 0. Then, per arrival so far, the
number of the datagram that it is, from 1, or 0.
"""
_BYTES: Final = tuple([bytes((number,)) for number in range(256)])


def weigh(sent: Sequence[int], arrived: Sequence[int], priors: Priors) -> Matching:
    """Return which of several equal datagrams arrived when.

    Args:
        sent: when each was sent, in order; at most 255.
        arrived: when each arrived, in order; at most 255.
        priors: what is known of their direction.

    """
    size = len(sent)
    found = Matching(size, len(arrived))
    assignments: list[_Assignment] = [bytes(size)]
    weights = vec[float]([1.0])
    cut = False
    appeared = _unsent(size, max(arrived[-1], sent[-1]) - sent[0], priors)
    for time_ns in arrived:
        found.effort += len(assignments) * (size + 1)
        assignments, weights = _extend(
            assignments, weights, time_ns, sent, arrived, priors, appeared
        )
        most = _FOLLOWED_IN_DOUBT if cut else MAX_ASSIGNMENTS
        if len(assignments) > most:
            ranked = sorted(range(len(assignments)), key=list(weights).__getitem__, reverse=True)
            dropped = sum([weights[place] for place in ranked[most:]])
            cut = cut or dropped > RULED_OUT / 10
            del ranked[most:]
            assignments = [assignments[place] for place in ranked]
            weights = vec[float]([weights[place] for place in ranked])
    _count_losses(assignments, weights, size, priors.lost)
    best = _best(assignments, weights, size)
    for index in range(len(arrived)):
        who = best[size + index]
        if who:
            found.sender[index] = who - 1
            found.first[index] = best[who - 1] == index + 1
    if cut:
        found.doubtful_sent = [True] * size
        found.doubtful_arrived = [True] * len(arrived)
    elif len(assignments) > 1:
        _mark_doubts(assignments, weights, found.doubtful_sent, found.doubtful_arrived)
    return found


def is_one(delay_ns: i64, priors: Priors) -> bool:
    """Return whether a datagram and the only arrival of its payload, so long after it, are one: not
    a datagram that was lost and another of which only the arrival was captured.
    """
    if delay_ns < -priors.slack_ns:
        return False
    two: float = priors.lost * _unsent(1, delay_ns, priors)
    one: float = (1 - priors.lost) * (1 - priors.copied) * priors.delays.density(delay_ns)
    return two < (_UNLIKELY if priors.unseen < 1 else RULED_OUT) * one


def _unsent(sent: int, span_ns: i64, priors: Priors) -> float:
    """Return the probability density, per ns, of an arrival that nobody was seen to send: one more
    sending of a payload, which the capture missed.

    Args:
        sent: how many sendings of the payload are known.
        span_ns: time from the first to the last datagram of that payload.
        priors: what is known of the direction.

    """
    again: float = 1.0 if sent > 1 else priors.repeated
    least_ns: i64 = priors.delays.usual_ns
    return max(_APPEARED, priors.unseen * again * float(sent) / float(max(span_ns, 0) + least_ns))


def _count_losses(
    assignments: list[_Assignment], weights: vec[float], size: int, lost: float
) -> None:
    """Weigh that the datagrams without an arrival were lost."""
    for place, assignment in enumerate(assignments):
        weight: float = weights[place]
        for index in range(size):
            if not assignment[index]:
                weight *= lost
        weights[place] = weight


def _without_sender(assignment: _Assignment, size: int) -> int:
    """Return how many arrivals nobody was seen to send."""
    count = 0  # `bytes.count` would be a call by name, which costs more than this loop
    for index in range(size, len(assignment)):
        count += not assignment[index]
    return count


def _extend(
    assignments: list[_Assignment],
    weights: vec[float],
    time_ns: int,
    sent: Sequence[int],
    arrived: Sequence[int],
    priors: Priors,
    appeared: float,
) -> tuple[list[_Assignment], vec[float]]:
    """Return the assignments extended by the arrival at `time_ns`, and their weights, the heaviest
    being 1; without those that are hopeless.
    """
    kept, copied = 1 - priors.lost, priors.copied
    first = vec[float]()
    for then in sent:
        # In order of time: all further ones were sent later still.
        if time_ns - then < -priors.slack_ns:
            break
        chance: float = kept * (1 - copied) * priors.delays.density(time_ns - then)
        if not chance:
            break
        first = append(first, chance)
    # The lag of a copy is counted from the first arrival of its datagram: any earlier arrival.
    size = len(sent)
    number = len(assignments[0]) - size + 1
    again = vec[float]()
    if len(first):
        for place in range(number - 1):
            lag = priors.lags.density(time_ns - arrived[place])
            again = append(again, copied / (1 - copied) * lag)
    # Most extensions are hopeless, so they are weighed before they are built.
    extended = vec[float]()
    top: float = 0.0
    for place, assignment in enumerate(assignments):
        weight: float = weights[place]
        product: float = weight * appeared
        extended = append(extended, product)
        if product > top:  # noqa: PLR1730 - the builtin would cost more
            top = product
        for index in range(len(first)):
            earlier = assignment[index]
            product = weight * (again[earlier - 1] if earlier else first[index])
            extended = append(extended, product)
            if product > top:  # noqa: PLR1730 - the builtin would cost more
                top = product
    return _without_hopeless(assignments, extended, top, number)


def _without_hopeless(
    assignments: list[_Assignment], extended: vec[float], top: float, number: int
) -> tuple[list[_Assignment], vec[float]]:
    """Return the extended assignments that are not hopeless, and their weights, the heaviest being
    1.

    Args:
        assignments: without the new arrival.
        extended: the weights of the extensions of each: first that nobody sent the arrival, then
            that it is datagram 1, 2 ...
        top: the heaviest of them.
        number: number of the new arrival, from 1.

    """
    least: float = _HOPELESS * top
    width = len(extended) // len(assignments)
    kept: list[_Assignment] = []
    kept_weights = vec[float]()
    at: i64 = 0
    for before in assignments:
        for who in range(width):
            weight: float = extended[at]
            at += 1
            if weight <= least:
                continue
            assignment = before
            if who and not assignment[who - 1]:
                assignment = assignment[: who - 1] + _BYTES[number] + assignment[who:]
            kept.append(assignment + _BYTES[who])
            # Relative to the heaviest: the product over many arrivals would underflow.
            kept_weights = append(kept_weights, weight / top)
    return kept, kept_weights


def _best(assignments: list[_Assignment], weights: vec[float], size: int) -> _Assignment:
    """Return the heaviest of the assignments that explain the most arrivals; of those of comparable
    weight, the one that supposes the least reordering.
    """
    total: float = 0.0
    for place in range(len(weights)):
        total += weights[place]
    possible: float = RULED_OUT * total
    # Seldom is there an arrival that nobody was seen to send: if it may have been sent, it was.
    unsent = len(assignments[0])
    top: float = 0.0
    for place, assignment in enumerate(assignments):
        weight: float = weights[place]
        if weight < possible:
            continue
        count = _without_sender(assignment, size)
        if count < unsent:
            unsent, top = count, weight
        elif count == unsent and weight > top:
            top = weight
    least: float = _COMPARABLE * top
    best: int | None = None
    heaviest: float = 0.0
    fewest = 0
    for place, assignment in enumerate(assignments):
        weight = weights[place]
        if weight < least or _without_sender(assignment, size) > unsent:
            continue
        count = _inversions(assignment, size)
        if best is None or count < fewest or (count == fewest and weight > heaviest):
            best, fewest, heaviest = place, count, weight
    return assignments[best or 0]


def _inversions(assignment: _Assignment, size: int) -> int:
    """Return how many first arrivals come after that of a datagram sent later."""
    newest, count = 0, 0
    for index in range(size, len(assignment)):
        who = assignment[index]
        if who and assignment[who - 1] == index - size + 1:
            count += who < newest
            newest = max(newest, who)
    return count


def _mark_doubts(
    assignments: list[_Assignment],
    weights: vec[float],
    doubt_sent: list[bool],
    doubt_arrived: list[bool],
) -> None:
    """Mark the datagrams and arrivals about which possible assignments disagree."""
    total: float = 0.0
    top: float = 0.0
    for place in range(len(weights)):
        weight: float = weights[place]
        total += weight
        if weight > top:  # noqa: PLR1730 - the builtin would cost more
            top = weight
    least: float = RULED_OUT * total
    if total - top < least:
        return  # all others together are ruled out
    if len(assignments) == 2:  # noqa: PLR2004 - three quarters of all cases
        _mark_differences(assignments[0], assignments[1], doubt_sent, doubt_arrived)
    else:
        _mark_spread(assignments, weights, least, doubt_sent, doubt_arrived)


def _mark_spread(
    assignments: list[_Assignment],
    weights: vec[float],
    least: float,
    doubt_sent: list[bool],
    doubt_arrived: list[bool],
) -> None:
    """Mark what more than one alternative of weight `least` is possible for."""
    size, came = len(doubt_sent), len(doubt_arrived)
    by_arrivals: list[dict[int, float]] = [{} for _ in doubt_sent]
    """Per datagram sent: the set of its arrivals as bits -> weight."""
    width = 2 * size + 2
    by_sender = vec[float]([0.0] * (width * came))
    """Per arrival: weight by twice the number of its datagram, plus 1 if it is not the first."""
    arrivals = vec[i64]([0] * size)
    # Together, the assignments below this weigh at most a thousandth of the threshold.
    negligible: float = _NEGLIGIBLE * least / len(assignments)
    for place, assignment in enumerate(assignments):
        weight: float = weights[place]
        if weight < negligible:
            continue
        for index in range(size):
            arrivals[index] = 0
        bit: i64 = 1
        for index in range(came):
            who = assignment[size + index]
            if who:
                by_sender[index * width + 2 * who + (assignment[who - 1] <= index)] += weight
                arrivals[who - 1] |= bit
            else:
                by_sender[index * width] += weight
            bit <<= 1
        for index in range(size):
            weighed, bits = by_arrivals[index], arrivals[index]
            weighed[bits] = weighed.get(bits, 0.0) + weight
    for index, weighed in enumerate(by_arrivals):
        doubt_sent[index] = sum([weight >= least for weight in weighed.values()]) > 1
    for index in range(came):
        likely = 0
        for column in range(width):
            likely += by_sender[index * width + column] >= least
        doubt_arrived[index] = likely > 1


def _mark_differences(
    one: _Assignment, other: _Assignment, doubt_sent: list[bool], doubt_arrived: list[bool]
) -> None:
    """Mark the datagrams and arrivals about which two assignments disagree."""
    size = len(doubt_sent)
    for index in range(len(doubt_arrived)):
        who, instead = one[size + index], other[size + index]
        if who != instead:
            doubt_arrived[index] = True
            if who:
                doubt_sent[who - 1] = True
            if instead:
                doubt_sent[instead - 1] = True
        elif who and (one[who - 1] > index) != (other[who - 1] > index):
            doubt_arrived[index] = True
