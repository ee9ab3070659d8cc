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

from netdissect.model.native import ABSENT, append, i64, vec

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
_COMPARABLE: Final = 0.05
"""An assignment with this share of the heaviest's weight is about as likely."""
_NEAR_SHARE: Final = 0.5
"""Probability that a delay of a length never observed is no longer than the usual ones."""
_LARGE: Final = 200
"""A sample from this size on shows how rare long delays are. In a smaller one, each of them would
count as so frequent that much of what is equal would be ambiguous, without being told wrongly.
"""
_LEAST_JITTER_NS: Final = 10_000
"""Delays may be shorter by this much than any of a sample."""
_MIN_WIDTH_NS: Final = 100_000.0
"""Delays that differ by less than this are not told apart."""
_ROUNDS: Final = 16
"""How often sure delays may make others sure."""
_PLACE_BITS: Final = 8
_PLACE: Final = 1 << _PLACE_BITS
"""An extension is an assignment times this, plus a datagram."""


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
        self.longest_ns: i64 = longest_ns
        total = size + 2.0  # the known ones and two never observed
        self._near: float = _NEAR_SHARE / (total * max(usual_ns, 1))
        self._far: float = (1 - _NEAR_SHARE) / (total * longest_ns)
        self._one: float = 1 / total
        self._is_large = size >= _LARGE
        # Nothing comes much sooner than the soonest of many, however little that is: timestamps
        # differ by what they differ in the sample.
        self._soonest_ns: i64 = -longest_ns
        if self._is_large:
            least = self.known[0]
            self._soonest_ns = least - max(self.known[size // 10] - least, _LEAST_JITTER_NS)
        self._each: float = size / total / (2 * width * size) if size else 0.0

    def part(self, known: Sequence[int]) -> Delays:
        """Return the density that a part of the known delays shows."""
        return Delays(known, int(self.longest_ns), int(self.usual_ns))

    def density(self, delay_ns: i64) -> float:
        """Return the probability density of a delay, per ns, by those of other datagrams."""
        low = self._count_below(delay_ns - self._width)
        within = self._count_below(delay_ns + self._width + 1) - low
        if within:
            # One that is known for its datagram is no evidence that it is right.
            at = self._count_below(delay_ns)
            if at < len(self._known) and self._known[at] == delay_ns:
                within -= 1
        if delay_ns < self._soonest_ns:
            within = 0
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
    """Share of the datagrams that are lost, of those whose payload was sent once."""
    copied: float
    """Share of the datagrams that the network copies."""
    unseen: float
    """Share of the datagrams that the capture next to the sender misses."""
    repeated: float
    """Share of the datagrams whose payload is sent more than once."""
    slack_ns: int
    """A datagram may seem to arrive this long before it was sent."""
    lost_of_all: float = 0.0
    """Share of all datagrams that are lost: what was sent once is mostly what arrived, as the rest
    is sent again.
    """


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


class _Assignments:
    """The assignments that are followed. There may be many: they are rows of machine integers."""

    __slots__ = ("ahead", "arrived", "rows", "size", "weights", "width")

    def __init__(self, sent: i64, arrived: i64) -> None:
        self.size = sent
        """Datagrams sent."""
        self.arrived: i64 = 0
        """Arrivals that the assignments explain so far."""
        self.ahead = (sent + 7) >> 3
        """Words of a row that hold, per datagram sent, the number of its first arrival, from 1, or
        0; eight to a word. Then, per arrival, the number of the datagram that it is, from 1, or 0.
        """
        self.width = self.ahead + ((arrived + 7) >> 3)
        """Words of a row."""
        self.rows = vec[i64]([0] * int(self.width))
        self.weights = vec[float]([1.0])
        """Relative to the heaviest: the product over many arrivals would underflow."""

    def first(self, place: i64, index: i64) -> i64:
        """Return the number of the first arrival of a datagram sent, from 1, or 0."""
        return self.rows[place * self.width + (index >> 3)] >> ((index & 7) << 3) & 0xFF

    def sender(self, place: i64, index: i64) -> i64:
        """Return the number of the datagram that an arrival is, from 1, or 0."""
        at = place * self.width + self.ahead + (index >> 3)
        return self.rows[at] >> ((index & 7) << 3) & 0xFF

    def is_first(self, place: i64, index: i64) -> bool:
        """Return whether an arrival is the first one of a datagram sent."""
        who = self.sender(place, index)
        return who > 0 and self.first(place, who - 1) == index + 1

    def without_sender(self, place: i64) -> i64:
        """Return how many arrivals nobody was seen to send."""
        count: i64 = 0
        index: i64 = 0
        while index < self.arrived:
            count += not self.sender(place, index)
            index += 1
        return count

    def inversions(self, place: i64) -> i64:
        """Return how many first arrivals come after that of a datagram sent later."""
        newest: i64 = 0
        count: i64 = 0
        index: i64 = 0
        while index < self.arrived:
            if self.is_first(place, index):
                who = self.sender(place, index)
                count += who < newest
                if who > newest:  # noqa: PLR1730 - the builtin would cost more
                    newest = who
            index += 1
        return count

    def keep(self, extensions: vec[i64], weights: vec[float]) -> None:
        """Replace the assignments by extensions of them by one arrival.

        Args:
            extensions: of each, the place of the assignment times `_PLACE`, plus the number of the
                datagram that the arrival is, or 0.
            weights: their weights.

        """
        before, width, index = self.rows, self.width, self.arrived
        rows = vec[i64]([0] * (len(extensions) * int(width)))
        to: i64 = 0
        for extension in extensions:
            who = extension & (_PLACE - 1)
            source = (extension >> _PLACE_BITS) * width
            for word in range(width):
                rows[to + word] = before[source + word]
            if who:
                rows[to + self.ahead + (index >> 3)] |= who << ((index & 7) << 3)
                at = to + ((who - 1) >> 3)
                shift = ((who - 1) & 7) << 3
                if not rows[at] >> shift & 0xFF:
                    rows[at] |= (index + 1) << shift
            to += width
        self.rows, self.weights = rows, weights
        self.arrived += 1


def weigh(sent: Sequence[int], arrived: Sequence[int], priors: Priors) -> Matching:
    """Return which of several equal datagrams arrived when.

    Args:
        sent: when each was sent, in order; at most 127.
        arrived: when each arrived, in order; at most 127.
        priors: what is known of their direction.

    """
    size = len(sent)
    found = Matching(size, len(arrived))
    assignments = _Assignments(size, len(arrived))
    cut = False
    appeared = _unsent(size, max(arrived[-1], sent[-1]) - sent[0], priors)
    for time_ns in arrived:
        found.effort += len(assignments.weights) * (size + 1)
        most = _FOLLOWED_IN_DOUBT if cut else MAX_ASSIGNMENTS
        dropped = _extend(assignments, time_ns, sent, arrived, priors, appeared, most)
        cut = cut or dropped > RULED_OUT / 10
    _count_losses(assignments, priors.lost)
    best = _best(assignments)
    for index in range(len(arrived)):
        found.sender[index] = assignments.sender(best, index) - 1
        found.first[index] = assignments.is_first(best, index)
    if cut:
        found.doubtful_sent = [True] * size
        found.doubtful_arrived = [True] * len(arrived)
    elif len(assignments.weights) > 1:
        _mark_doubts(assignments, found.doubtful_sent, found.doubtful_arrived)
    return found


def sure_delays(priors: Priors) -> Delays:
    """Return the known delays that are those of one datagram, as those show that are surely so: the
    middle half, and whatever they make sure in turn.

    Where a capture misses datagrams, some of the known delays are the times from a datagram that
    was lost to the arrival of another. These resemble each other, as programs send again after like
    times, and would prove each other.
    """
    known = priors.delays.known
    found = priors.delays.part(known[len(known) // 4 : len(known) * 3 // 4 + 1])
    for _ in range(_ROUNDS):
        more = [delay for delay in known if is_one(delay, priors, found)]
        if len(more) <= len(found.known):
            break
        found = priors.delays.part(more)
    return found


def is_one(delay_ns: i64, priors: Priors, sure: Delays) -> bool:
    """Return whether a datagram and the only arrival of its payload, so long after it, are one: not
    a datagram that was lost and another of which only the arrival was captured.

    Args:
        delay_ns: the time between them.
        priors: what is known of the direction.
        sure: its delays, as `sure_delays` returns them.

    """
    if delay_ns < -priors.slack_ns:
        return False
    lost: float = max(priors.lost, priors.lost_of_all)
    two: float = lost * _unsent(1, delay_ns, priors)
    one: float = (1 - lost) * (1 - priors.copied) * sure.density(delay_ns)
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


def _count_losses(assignments: _Assignments, lost: float) -> None:
    """Weigh that the datagrams without an arrival were lost."""
    weights, size = assignments.weights, assignments.size
    for place in range(len(weights)):
        weight: float = weights[place]
        for index in range(size):
            if not assignments.first(place, index):
                weight *= lost
        weights[place] = weight


def _extend(
    assignments: _Assignments,
    time_ns: int,
    sent: Sequence[int],
    arrived: Sequence[int],
    priors: Priors,
    appeared: float,
    most: int,
) -> float:
    """Extend the assignments by the arrival at `time_ns`, without those that are hopeless, and
    those beyond `most`, the lightest. Return the weight of the latter.
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
    again = vec[float]()
    if len(first):
        for place in range(assignments.arrived):
            lag = priors.lags.density(time_ns - arrived[place])
            again = append(again, copied / (1 - copied) * lag)
    # Most extensions are hopeless, so they are weighed before they are built.
    weights = assignments.weights
    extended = vec[float]([0.0] * (len(weights) * (len(first) + 1)))
    top: float = 0.0
    at: i64 = 0
    for place in range(len(weights)):
        weight: float = weights[place]
        product: float = weight * appeared
        extended[at] = product
        at += 1
        if product > top:  # noqa: PLR1730 - the builtin would cost more
            top = product
        for index in range(len(first)):
            earlier = assignments.first(place, index)
            product = weight * (again[earlier - 1] if earlier else first[index])
            extended[at] = product
            at += 1
            if product > top:  # noqa: PLR1730 - the builtin would cost more
                top = product
    return _keep_heaviest(assignments, extended, top, most)


def _keep_heaviest(
    assignments: _Assignments, extended: vec[float], top: float, most: int
) -> float:
    """Replace the assignments by those of their extensions that are not hopeless, at most `most`;
    return the weight of further ones.

    Args:
        assignments: without the new arrival.
        extended: the weights of the extensions of each: first that nobody sent the arrival, then
            that it is datagram 1, 2 ...
        top: the heaviest of them.
        most: how many are kept.

    """
    least: float = _HOPELESS * top
    columns: i64 = len(extended) // len(assignments.weights)
    extensions = vec[i64]()
    weights = vec[float]()
    at: i64 = 0
    for place in range(len(assignments.weights)):
        for who in range(columns):
            weight: float = extended[at]
            at += 1
            if weight > least:
                extensions = append(extensions, place << _PLACE_BITS | who)
                weights = append(weights, weight / top)
    dropped: float = 0.0
    if len(weights) > most:
        ranked = sorted(range(len(weights)), key=list(weights).__getitem__, reverse=True)
        for place in ranked[most:]:
            dropped += weights[place]
        extensions = vec[i64]([extensions[place] for place in ranked[:most]])
        weights = vec[float]([weights[place] for place in ranked[:most]])
    assignments.keep(extensions, weights)
    return dropped


def _best(assignments: _Assignments) -> int:
    """Return the place of the heaviest of the assignments that explain the most arrivals; of those
    of comparable weight, of the one that supposes the least reordering.
    """
    weights = assignments.weights
    total: float = 0.0
    for place in range(len(weights)):
        total += weights[place]
    possible: float = RULED_OUT * total
    # Seldom is there an arrival that nobody was seen to send: if it may have been sent, it was.
    unsent = assignments.arrived + 1
    top: float = 0.0
    for place in range(len(weights)):
        weight: float = weights[place]
        if weight < possible:
            continue
        count = assignments.without_sender(place)
        if count < unsent:
            unsent, top = count, weight
        elif count == unsent and weight > top:
            top = weight
    least: float = _COMPARABLE * top
    best, heaviest = 0, 0.0
    fewest: i64 = ABSENT
    for place in range(len(weights)):
        weight = weights[place]
        if weight < least or assignments.without_sender(place) > unsent:
            continue
        count = assignments.inversions(place)
        if fewest == ABSENT or count < fewest or (count == fewest and weight > heaviest):
            best, fewest, heaviest = place, count, weight
    return best


def _mark_doubts(
    assignments: _Assignments, doubt_sent: list[bool], doubt_arrived: list[bool]
) -> None:
    """Mark the datagrams and arrivals about which possible assignments disagree."""
    weights = assignments.weights
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
    # Per assignment, a row: of each datagram sent, its arrivals as bits; of each arrival, twice the
    # number of its datagram, plus 1 if it is not the first one of it.
    size, came = len(doubt_sent), len(doubt_arrived)
    columns: i64 = size + came
    told = vec[i64]([0] * (len(weights) * int(columns)))
    at: i64 = 0
    for place in range(len(weights)):
        for index in range(came):
            who = assignments.sender(place, index)
            if who:
                bit: i64 = 1
                told[at + who - 1] |= bit << index
                told[at + size + index] = 2 * who + (not assignments.is_first(place, index))
        at += columns
    for column in range(size):
        doubt_sent[column] = _is_doubtful(told, column, columns, weights, least)
    for column in range(came):
        doubt_arrived[column] = _is_doubtful(told, size + column, columns, weights, least)


def _is_doubtful(
    told: vec[i64], column: i64, columns: i64, weights: vec[float], least: float
) -> bool:
    """Return whether two values of a column have the weight `least`."""
    possible: i64 = 0
    for place in range(len(weights)):
        value = told[place * columns + column]
        weight: float = 0.0
        for other in range(len(weights)):
            if told[other * columns + column] == value:
                if other < place:
                    break  # weighed already
                weight += weights[other]
        possible += weight >= least
        if possible > 1:
            return True
    return False
