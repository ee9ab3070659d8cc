"""The second pass: finds every datagram of one capture in the other.

Both captures' rows are read in order of common time. Datagrams of one direction and one token wait
in a bucket until nothing more can belong to them: `MAX_DELAY_NS` after the last. A bucket with one
datagram sent and one arrival is a pair. With more, the datagrams are split into clusters that no
usual delay connects, and each cluster is weighed (`weigh`).
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from netdissect.join.clock import STEP_WINDOW, Clock
from netdissect.join.pairing import MAX_DELAY_NS, Pairing
from netdissect.join.ranges import Extent, Ranges
from netdissect.join.rows import Cursor, Rows
from netdissect.join.sample import FlowId, Sample
from netdissect.join.table import (
    AMBIGUOUS,
    APPEARED,
    ARRIVED,
    COPIED,
    COPY,
    DELIVERED,
    LOST,
    FateTable,
)
from netdissect.join.weigh import Priors, is_one, sure_delays, weigh
from netdissect.model.native import ABSENT, mypyc_attr

if TYPE_CHECKING:
    from mypy_extensions import i64

MAX_WAITING = 200_000
"""Datagrams that wait at once; beyond, the oldest are settled early."""
MAX_BUCKET = 64
"""Datagrams of a bucket that wait together; beyond, those older than a usual delay are settled
early."""
MAX_WEIGHED = 16
"""Equal datagrams of one side that are weighed against each other. If a cluster has more, all of
them are ambiguous, and they are matched in order."""
_EFFORT: Final = 1_000_000
"""Extensions of assignments that are weighed, ..."""
_EFFORT_EACH: Final = 100
"""... and how many more for each datagram. Beyond that, equal datagrams are not weighed."""
_RETRY_NS: Final = 500_000_000
"""A large bucket is searched for datagrams to settle early no more often than this."""
_MIN_LONGEST_NS: Final = 5_000_000
"""A delay up to this is usual in any direction."""
_COMPACT: Final = 4096
"""The queue is compacted once this many datagrams at its head have had their turn."""


class _Route:
    """Where the datagrams of a flow belong."""

    __slots__ = ("channel", "lane", "sends")

    def __init__(self, channel: Channel, sends: bool, lane: int) -> None:  # noqa: FBT001 - private
        self.channel = channel
        self.sends = sends
        """Whether this flow is the sender's side of the channel."""
        self.lane = lane


@mypyc_attr(acyclic=True)
class _Pending:
    """One datagram that waits. `_Bucket.clear` breaks its cycle."""

    __slots__ = ("bucket", "common_ns", "extent", "frame", "lane")

    # Written out: what a dataclass generates is not compiled, and there is one per datagram.
    def __init__(
        self, common_ns: i64, frame: i64, lane: i64, extent: Extent | None, bucket: _Bucket
    ) -> None:
        self.common_ns = common_ns
        self.frame = frame
        self.lane = lane
        self.extent = extent
        self.bucket = bucket


@mypyc_attr(acyclic=True)
class _Bucket:
    """Datagrams of one channel and one token."""

    __slots__ = (
        "arrival", "arrived", "channel", "has_lists", "last_ns", "searched_ns", "sending", "sent",
        "settled", "token",
    )  # fmt: skip

    def __init__(self, channel: Channel, token: object, last_ns: i64) -> None:
        self.channel = channel
        self.token = token
        self.last_ns = last_ns
        self.settled = False
        # Most buckets have at most one datagram on each side, and need no lists.
        self.sending: _Pending | None = None
        self.arrival: _Pending | None = None
        self.has_lists = False
        """Whether the datagrams are in the lists instead."""
        self.sent = _EMPTY
        self.arrived = _EMPTY
        """In order of time."""
        self.searched_ns: i64 = 0
        """When it was last searched for datagrams to settle early."""

    def add(self, one: _Pending, *, sends: bool) -> None:
        """Add a datagram."""
        if not self.has_lists:
            if sends and self.sending is None:
                self.sending = one
                return
            if not sends and self.arrival is None:
                self.arrival = one
                return
            self.make_lists()
        waiting = self.sent if sends else self.arrived
        place = len(waiting)
        # From the end: rows of one capture come in order, but for clocks that were set back.
        while place and _is_after(waiting[place - 1], one):
            place -= 1
        waiting.insert(place, one)

    def make_lists(self) -> None:
        """Move the datagrams into the lists."""
        if not self.has_lists:
            self.has_lists = True
            self.sent = [] if self.sending is None else [self.sending]
            self.arrived = [] if self.arrival is None else [self.arrival]

    def clear(self) -> None:
        """Release the datagrams, each of which refers to this bucket."""
        self.settled = True
        self.sending = self.arrival = None
        self.sent = self.arrived = _EMPTY


def _is_after(one: _Pending, other: _Pending) -> bool:
    """Return whether one datagram of a capture comes after another."""
    if one.common_ns != other.common_ns:
        return one.common_ns > other.common_ns
    return one.frame > other.frame


def _order(one: _Pending) -> tuple[int, int]:
    return one.common_ns, one.frame


_EMPTY: Final[list[_Pending]] = []


class Way:
    """One direction between the captures."""

    __slots__ = (
        "arrivals", "blind", "end_ns", "is_vague", "longest_ns", "ordinary_ns", "priors",
        "sendings", "slack_ns", "start_ns", "sure",
    )  # fmt: skip

    def __init__(
        self,
        toward: int,
        priors: Priors,
        tables: tuple[FateTable, FateTable],
        span: tuple[int, int],
        *,
        is_vague: bool,
    ) -> None:
        self.is_vague = is_vague
        """Whether the clock is too vague to tell equal datagrams apart by their delays."""
        self.sendings, self.arrivals = tables if toward > 0 else (tables[1], tables[0])
        """Tables of the captures next to the sender and next to the receiver."""
        self.priors = priors
        self.slack_ns: i64 = priors.slack_ns
        # Twice the longest of the sample, which holds a part of the datagrams only.
        self.longest_ns: i64 = max(2 * priors.delays.quantile(1.0), _MIN_LONGEST_NS)
        """The longest usual delay."""
        self.start_ns: i64 = span[0] + priors.delays.quantile(0.5)
        self.end_ns: i64 = span[1]
        """What arrives before or after may have been sent while that was not captured."""
        self.blind = replace(priors, unseen=1.0)
        """What is known of that time."""
        self.sure = sure_delays(priors)
        """The delays that prove others."""
        self.ordinary_ns: tuple[i64, i64] = self.sure.quantile(0.1), self.sure.quantile(0.9)
        """Delays between these leave no doubt."""


class Channel:
    """One direction of one group of flows. It holds nothing shared: there may be 100,000."""

    __slots__ = ("buckets", "ranges", "way")

    def __init__(self, way: Way) -> None:
        self.way = way
        self.buckets: dict[object, _Bucket] = {}
        """Token -> datagrams that wait."""
        self.ranges: Ranges | None = None
        """Created with the first TCP segment: only these are split or coalesced on the way."""

    def segments(self) -> Ranges:
        """Return the segments that do not match as a whole."""
        if self.ranges is None:
            self.ranges = Ranges(self.way.sendings, self.way.arrivals, self.way.longest_ns)
        return self.ranges


@dataclass(frozen=True, slots=True)
class Lane:
    """One compared flow of one capture. The tables refer to it by its index in `Matcher.lanes`."""

    capture: int
    flow: FlowId
    group: int
    """Number of its group."""
    toward: int
    """+1: from A to B; -1: from B to A."""


class Matcher:
    """Writes the fate of every datagram into the tables of both captures."""

    def __init__(
        self,
        pairing: Pairing,
        priors: dict[int, Priors],
        tables: tuple[FateTable, FateTable],
        samples: tuple[Sample, Sample],
    ) -> None:
        self.tables = tables
        self.settled_early = 0
        """Datagrams settled early because of MAX_WAITING."""
        self.too_many_equal = 0
        """Datagrams in clusters too large, or too many, to weigh."""
        self._effort: i64 = _EFFORT
        """Extensions of assignments that may still be weighed."""
        self._queue: list[_Pending] = []
        """Datagrams in order of common time; those before `_head` have had their turn."""
        self._head: i64 = 0
        self._oldest_ns: i64 = 0
        """Time of the datagram at the head."""
        self.lanes: list[Lane] = []
        self._routes: list[list[_Route | None]] = [[None] * len(sample.flows) for sample in samples]
        """Per capture, by the number of a flow."""
        self._channels: list[Channel] = []
        spans = [sample.span(pairing.clock, capture) for capture, sample in enumerate(samples)]
        # One direction gives only an upper limit of the offset; that of a few datagrams may be too
        # high by more than the pauses between equal ones.
        pieces = pairing.clock.pieces
        is_vague = all(each.bound_ns is None and each.anchors < STEP_WINDOW for each in pieces)
        both = {
            toward: Way(toward, priors[toward], tables, spans[toward < 0], is_vague=is_vague)
            for toward in (1, -1)
        }
        for number, group in enumerate(pairing.groups):
            channels = {toward: Channel(both[toward]) for toward in (1, -1)}
            self._channels += channels.values()
            for capture in (0, 1):
                flows = samples[capture].flows
                for flow_id, toward in group.ways[capture].items():
                    sends = (toward > 0) == (capture == 0)
                    if flow_id in flows:
                        route = _Route(channels[toward], sends, len(self.lanes))
                        self._routes[capture][flows[flow_id].number] = route
                    self.lanes.append(Lane(capture, flow_id, number, toward))

    def run(self, rows: tuple[Rows, Rows], clock: Clock) -> None:
        """Match the rows of both captures."""
        first, second = Cursor(0, rows[0], clock), Cursor(1, rows[1], clock)
        ours, theirs = self._routes
        while first.has_row or second.has_row:
            if first.has_row and (not second.has_row or first.common_ns <= second.common_ns):
                self._take(first, ours[first.flow])
                first.advance()
            else:
                self._take(second, theirs[second.flow])
                second.advance()
        while self._head < len(self._queue):
            self._expire()
        for channel in self._channels:
            if channel.ranges is not None:
                channel.ranges.settle()
        # Only what was found is needed from here on.
        self._queue, self._channels, self._routes = [], [], []

    def _take(self, row: Cursor, route: _Route | None) -> None:
        """Put a datagram into its bucket, and settle those that have waited long enough."""
        if route is None:
            return
        self._effort += _EFFORT_EACH
        common_ns = row.common_ns
        token: object = row.token
        channel = route.channel
        bucket = channel.buckets.get(token)
        if bucket is None:
            bucket = channel.buckets[token] = _Bucket(channel, token, common_ns)
        one = _Pending(common_ns, row.frame, route.lane, row.extent(), bucket)
        bucket.add(one, sends=route.sends)
        if common_ns > bucket.last_ns:  # noqa: PLR1730 - the builtin would cost more
            bucket.last_ns = common_ns
        queue = self._queue
        if self._head == len(queue):
            self._oldest_ns = common_ns
        queue.append(one)
        while self._oldest_ns < common_ns - MAX_DELAY_NS:
            self._expire()
        if len(queue) - self._head > MAX_WAITING:
            self.settled_early += 1
            self._expire(early=True)

    def _expire(self, *, early: bool = False) -> None:
        """Take the datagram at the head, and settle its bucket if no later one is in it."""
        queue = self._queue
        one = queue[self._head]
        self._head += 1
        if self._head >= _COMPACT:
            del queue[: self._head]
            self._head = 0
        if self._head < len(queue):
            self._oldest_ns = queue[self._head].common_ns
        since_ns, bucket = one.common_ns, one.bucket
        if bucket.settled:
            # It was settled with a datagram of the same time; newer ones may wait in another.
            newer = bucket.channel.buckets.get(bucket.token)
            if newer is None:
                return
            bucket = newer
        if bucket.last_ns <= since_ns:
            del bucket.channel.buckets[bucket.token]
            self._settle(bucket)
            bucket.clear()
        elif early or len(bucket.sent) + len(bucket.arrived) > MAX_BUCKET:
            bucket.make_lists()
            self._settle_old(bucket, since_ns)

    def _settle_old(self, bucket: _Bucket, since_ns: int) -> None:
        """Settle the leading clusters of a bucket."""
        channel = bucket.channel
        count = len(bucket.sent) + len(bucket.arrived)
        if since_ns - bucket.searched_ns < _RETRY_NS and count <= 4 * MAX_BUCKET:
            return
        bucket.searched_ns = since_ns
        clusters = _clusters(bucket.sent, bucket.arrived, channel.way)
        # What was added before this has had half of MAX_DELAY_NS or more to arrive.
        old_ns = since_ns + MAX_DELAY_NS // 2
        ready = 0
        for sent, arrived in clusters[:-1]:
            if max([one.common_ns for one in (*sent[-1:], *arrived[-1:])]) > old_ns:
                break
            ready += 1
        if not ready and count > 4 * MAX_BUCKET:
            # A flood of equal datagrams without a pause: settle half, or the bucket would grow.
            times = sorted([one.common_ns for one in (*bucket.sent, *bucket.arrived)])
            limit = times[len(times) // 2]
            clusters = [
                (
                    [one for one in bucket.sent if first == (one.common_ns < limit)],
                    [one for one in bucket.arrived if first == (one.common_ns < limit)],
                )
                for first in (True, False)
            ]
            ready = 1
        for sent, arrived in clusters[:ready]:
            self._weigh(channel, sent, arrived)
        bucket.sent = [one for sent, _ in clusters[ready:] for one in sent]
        bucket.arrived = [one for _, arrived in clusters[ready:] for one in arrived]
        # A cluster may have taken a later arrival than the next one has.
        bucket.arrived.sort(key=_order)

    def _settle(self, bucket: _Bucket) -> None:
        """Settle all datagrams of a bucket."""
        channel = bucket.channel
        if bucket.has_lists:
            for sent, arrived in _clusters(bucket.sent, bucket.arrived, channel.way):
                self._weigh(channel, sent, arrived)
            return
        sending, arrival = bucket.sending, bucket.arrival
        if sending is not None and arrival is not None:
            if not self._pair(channel, sending, arrival):
                self._weigh(channel, [sending], [arrival])
            return
        if sending is not None:
            self._sent(channel, sending, 0, flags=0)
        if arrival is not None:
            self._arrived(channel, arrival, 0, APPEARED, flags=0)

    def _pair(self, channel: Channel, sent: _Pending, arrived: _Pending) -> bool:
        """Settle a datagram with its arrival; return False if they may be two of equal content."""
        way = channel.way
        delay_ns: i64 = arrived.common_ns - sent.common_ns
        least, most = way.ordinary_ns
        ended = arrived.common_ns > way.end_ns
        if ended or not least <= delay_ns <= most:
            is_blind = ended or arrived.common_ns < way.start_ns
            if not is_one(delay_ns, way.blind if is_blind else way.priors, way.sure):
                return False
        self._sent(channel, sent, arrived.frame, flags=0)
        self._arrived(channel, arrived, sent.frame, ARRIVED, flags=0)
        return True

    def _weigh(self, channel: Channel, sent: list[_Pending], arrived: list[_Pending]) -> None:
        """Settle a cluster."""
        if not (sent and arrived) and not channel.way.is_vague:
            for one in sent:
                self._sent(channel, one, 0, flags=0)
            for one in arrived:
                self._arrived(channel, one, 0, APPEARED, flags=0)
            return
        way = channel.way
        pair = len(sent) == len(arrived) == 1 and not way.is_vague
        if pair and self._pair(channel, sent[0], arrived[0]):
            return
        if way.is_vague or self._are_too_many(sent, arrived):
            self._match_in_order(channel, sent, arrived)
            return
        times = [one.common_ns for one in arrived]
        is_seen = way.start_ns <= times[0] and times[-1] <= way.end_ns
        priors = way.priors if is_seen else way.blind
        found = weigh([one.common_ns for one in sent], times, priors)
        self._effort -= found.effort
        firsts: dict[int, i64] = {}
        copied: set[int] = set()
        for index, who in enumerate(found.sender):
            flags = AMBIGUOUS if found.doubtful_arrived[index] else 0
            if who < 0:
                self._arrived(channel, arrived[index], 0, APPEARED, flags=flags)
            elif found.first[index]:
                firsts[who] = arrived[index].frame
                self._arrived(channel, arrived[index], sent[who].frame, ARRIVED, flags=flags)
            else:
                copied.add(who)
                self._arrived(channel, arrived[index], sent[who].frame, COPY, flags=flags)
        for index, one in enumerate(sent):
            flags = AMBIGUOUS if found.doubtful_sent[index] else 0
            flags |= COPIED if index in copied else 0
            self._sent(channel, one, firsts.get(index, 0), flags=flags)

    def _are_too_many(self, sent: list[_Pending], arrived: list[_Pending]) -> bool:
        """Return whether a cluster is too large, or too much was weighed already; count it then."""
        if max(len(sent), len(arrived)) <= MAX_WEIGHED and self._effort >= 0:
            return False
        self.too_many_equal += len(sent) + len(arrived)
        return True

    def _match_in_order(
        self, channel: Channel, sent: list[_Pending], arrived: list[_Pending]
    ) -> None:
        """Match a cluster that is not weighed in order, and flag it as ambiguous."""
        waiting = deque(sent)
        for one in arrived:
            if waiting and one.common_ns - waiting[0].common_ns >= -channel.way.slack_ns:
                source = waiting.popleft()
                self._sent(channel, source, one.frame, flags=AMBIGUOUS)
                self._arrived(channel, one, source.frame, ARRIVED, flags=AMBIGUOUS)
            else:
                self._arrived(channel, one, 0, APPEARED, flags=AMBIGUOUS)
        for one in waiting:
            self._sent(channel, one, 0, flags=AMBIGUOUS)

    def _sent(self, channel: Channel, one: _Pending, partner: i64, *, flags: i64) -> None:
        """Write the row of a datagram sent; `partner`: frame of its first arrival, or 0 if lost."""
        channel.way.sendings.set(
            one.frame, DELIVERED if partner else LOST,
            flags=flags, lane=one.lane, partner=partner, common_ns=one.common_ns,
        )  # fmt: skip
        if one.extent is not None:
            segment = (one.common_ns, one.frame, one.lane, one.extent)
            channel.segments().sent(segment)
            if not partner:
                channel.segments().missing(segment)

    def _arrived(
        self, channel: Channel, one: _Pending, partner: i64, fate: i64, *, flags: i64
    ) -> None:
        """Write the row of an arrival; `partner`: frame of the datagram sent, or 0."""
        if fate == APPEARED and one.extent is not None:
            channel.segments().appeared((one.common_ns, one.frame, one.lane, one.extent))
        channel.way.arrivals.set(
            one.frame, fate,
            flags=flags, lane=one.lane, partner=partner, common_ns=one.common_ns,
        )  # fmt: skip


_Cluster = tuple[list[_Pending], list[_Pending]]
"""(datagrams sent, arrivals)."""


def _clusters(sent: list[_Pending], arrived: list[_Pending], way: Way) -> list[_Cluster]:
    """Return the datagrams of a bucket, split wherever no usual delay connects them.

    An arrival that nothing was sent shortly before goes to the latest cluster that lacks arrivals,
    or else to the latest. Where a cluster has a lost datagram and the next one an arrival too many,
    an unusual delay may be the reason: these two are weighed together, and so are two that
    interleave.
    """
    found: list[_Cluster] = []
    reach: i64 = ABSENT
    going = coming = 0
    while going < len(sent) or coming < len(arrived):
        # An arrival may seem to be earlier than its sending, but must be sorted after it.
        if going < len(sent) and (
            coming == len(arrived)
            or sent[going].common_ns <= arrived[coming].common_ns + way.slack_ns
        ):
            one = sent[going]
            going += 1
            if reach == ABSENT or one.common_ns > reach:
                found.append(([], []))
            found[-1][0].append(one)
            reach = one.common_ns + way.longest_ns
            continue
        one = arrived[coming]
        coming += 1
        if reach == ABSENT:
            found.append(([], [one]))
        elif one.common_ns + way.slack_ns <= reach:
            found[-1][1].append(one)
        else:
            lacking = [cluster for cluster in found if len(cluster[0]) > len(cluster[1])]
            (lacking or found)[-1][1].append(one)
    # Backwards, so that merging two clusters moves only those already visited.
    for index in range(len(found) - 1, 0, -1):
        (before, came), (sent, arrived) = found[index - 1 : index + 1]
        lacks = len(before) > len(came)
        if _interleave(came, sent, arrived, lacks=lacks) or (lacks and len(arrived) > len(sent)):
            found[index - 1 : index + 1] = [(before + sent, came + arrived)]
    return found


def _interleave(
    came: list[_Pending], sent: list[_Pending], arrived: list[_Pending], *, lacks: bool
) -> bool:
    """Return whether arrivals of a cluster may be datagrams of the one before it, some of which are
    lost (`lacks`) or came later (`came`): then one that seems to come before it was sent, as the
    clocks permit, may be one of those.
    """
    if not arrived:
        return False
    first_ns: i64 = arrived[0].common_ns
    early = bool(sent) and first_ns < sent[0].common_ns
    return (bool(came) and came[-1].common_ns > first_ns) or (lacks and early)
