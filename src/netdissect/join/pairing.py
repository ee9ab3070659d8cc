"""Which flows of two captures carry the same datagrams, which way they travel, and whether the two
captures belong together at all.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from itertools import pairwise
from statistics import median
from typing import Final

from netdissect.join.clock import Anchor, Clock, ClockPiece, Step, find_steps, fit
from netdissect.join.sample import FlowName, Sample, Sight
from netdissect.model.errors import UsageError
from netdissect.model.packets import reverse_key

__all__ = ["NotJoinedError", "Pairing", "delay_of", "pair", "pair_streams"]

SAME_PLACE_NS: Final = 50_000
"""Two captures whose datagrams take less than this both ways together, and have the same addresses
in both, are of one place."""
MAX_DELAY_NS: Final = 10_000_000_000
"""No datagram is looked for longer than this after it was sent."""
MAX_SLACK_NS: Final = 100_000
"""A datagram may seem to arrive so much before it was sent: time stamps of two machines jitter."""
MAX_TWINS = 8192
"""Of what was seen equally often, so many at most say how the clocks are."""
_ENOUGH: Final = 8
"""So many datagrams that were seen once are enough for a clock."""
_AGREEING: Final = 0.75
"""Share of what both captures have in common that one clock must explain."""
_EXPLAINED: Final = 0.5
"""Share of what arrived while both captures ran that the other capture must have seen sent: less
are strangers that use the same words."""
_LEAST: Final = 2
"""Fewer datagrams in common say nothing."""
_MANY: Final = 10
_SHORT_NS: Final = 20_000_000
"""What takes longer than so many times the usual delay, and than this, proves nothing."""
_SURE: Final = 20
_SURE_EXPLAINED: Final = 0.8
"""How many at least, and the same share, where the clocks are so far apart that the captures' own
times do not overlap."""
_NO_CLOCK: Final = "no one clock offset fits what they have in common"
_FALSE_ANCHORS: Final = 0.25
"""Of a flow that shares less than this part of another's datagrams, none says how the clocks are:
among many clients of one protocol, some say the same once each."""
_FALSE_VOTES: Final = 0.05
"""A flow that shares less than this part of another's datagrams has only the same words."""


Steps = tuple[tuple[Step, ...], tuple[Step, ...]]
"""Of each capture."""


class NotJoinedError(UsageError):
    """Two captures that are not of one conversation, or cannot be shown to be."""


@dataclass(slots=True)
class Group:
    """Flows between which datagrams are compared: a conversation, or several that share a flow on
    one side.
    """

    ways: tuple[dict[FlowName, int], dict[FlowName, int]] = field(default_factory=lambda: ({}, {}))
    """Of each capture: flow -> +1 where it goes from A to B, -1 where it goes from B to A."""

    def add(self, capture: int, name: FlowName, toward: int) -> None:
        """Add a flow and the flow back."""
        self.ways[capture][name] = toward
        self.ways[capture].setdefault((name[0], reverse_key(name[1])), -toward)


@dataclass(slots=True)
class Pairing:
    """What is known after the first pass."""

    clock: Clock
    groups: list[Group]
    anchors: list[Anchor]
    """With their directions, steps taken out."""
    same_place: bool
    evidence: tuple[int, int] = (0, 0)
    """(arrivals in the sample whose sending the other capture has, arrivals in the sample) while
    both captures ran.
    """


def pair(a: Sample, b: Sample, *, resolution_ns: int) -> Pairing:
    """Return how two captures fit together.

    Args:
        a: sample of the first.
        b: sample of the second.
        resolution_ns: a time may be off by this, because a file keeps microseconds only.

    Raises:
        NotJoinedError: they are not of one conversation, or too little shows that they are.

    """
    anchors = _anchors(a, b)
    if not anchors:
        raise NotJoinedError("they have no datagram in common")
    found, ways = _clocked(a, b, anchors, resolution_ns)
    found.groups = ways.groups(found.anchors)
    further = ways.further(found)
    if further:
        found.groups = ways.groups([*found.anchors, *further])
    found.evidence = _evidence(a, b, found)
    # TCP counts from numbers drawn at random: strangers have no segment in common.
    drawn = all(name[0] for group in found.groups for ways in group.ways for name in ways)
    _believe(found, len(anchors), apart=0 if drawn else _apart(a, b))
    return found


def pair_streams(a: Sample, b: Sample, anchors: list[Anchor], *, resolution_ns: int) -> Pairing:
    """Return how two captures fit together whose TCP connections carry the same streams.

    Raises:
        NotJoinedError: no clock fits, or their times are too far apart to be sure.

    """
    found, _ = _clocked(a, b, anchors, resolution_ns)
    found.evidence = (len(found.anchors), len(anchors))
    _believe(found, len(anchors), apart=_apart(a, b))
    return found


def _clocked(
    a: Sample, b: Sample, anchors: list[Anchor], resolution_ns: int
) -> tuple[Pairing, _Ways]:
    """Return the clock that explains the anchors, and which way they go."""
    steps = _steps(anchors, a, b)
    found, ways = _fitted(a, b, anchors, steps, resolution_ns)
    if any(steps):
        # What was set is known to within a delay; now that the delays are known, exactly.
        steps = _sharpened(anchors, steps, found.clock)
        found, ways = _fitted(a, b, anchors, steps, resolution_ns)
    return found, ways


def _fitted(
    a: Sample, b: Sample, anchors: list[Anchor], steps: Steps, resolution_ns: int
) -> tuple[Pairing, _Ways]:
    """Return the clock between the steps, and which way flows go."""
    only_steps = Clock((), steps=steps)
    aligned = [only_steps.aligned(anchor) for anchor in anchors] if any(steps) else anchors
    middle = median(anchor.difference for anchor in aligned)
    # A difference is the offset plus a delay: no clock has differences further apart than delays
    # are.
    near = [anchor for anchor in aligned if abs(anchor.difference - middle) <= MAX_DELAY_NS]
    if len(near) < _AGREEING * len(anchors):
        raise NotJoinedError(_NO_CLOCK)
    ways = _Ways(a, b)
    directed, same_place = ways.directed(near)
    # At one place no delay lies between the two ways: the jitter of time stamps must fit there.
    slack = max(resolution_ns, SAME_PLACE_NS) if same_place else resolution_ns
    pieces, starts = _pieces(directed, steps, slack)
    clock = Clock(tuple(pieces), tuple(starts), steps)
    return Pairing(clock, [], _within(directed, clock), same_place), ways


def _anchors(a: Sample, b: Sample) -> list[Anchor]:
    """Return what both captures saw once; where that is little, or goes one way only (of twins a
    capture has missed one), also what both saw equally often, the first with the first.
    """
    once = [name for name, count in a.counts.items() if count == 1 and b.counts.get(name) == 1]
    places = _places(a)
    ways = Counter(places[a.sights[name][0][2]] for name in once)
    both = sum(min(count, ways[group, 1 - way]) for (group, way), count in ways.items())
    if len(once) >= _ENOUGH and both >= _ENOUGH // 2:
        return [_anchor(a.sights[name][0], b.sights[name][0]) for name in once]
    found = [
        _anchor(*sights)
        for name, count in a.counts.items()
        if b.counts.get(name) == count
        if len(a.sights[name]) == len(b.sights[name])
        for sights in zip(a.sights[name], b.sights[name], strict=True)
    ]
    # One datagram of each name is in the sample, but of those that all clients send, many.
    return found[:: 1 + len(found) // MAX_TWINS]


def _anchor(a: Sight, b: Sight) -> Anchor:
    return Anchor(a[0], a[1], b[0], b[1], a[2], b[2], 0)


def _steps(anchors: list[Anchor], a: Sample, b: Sample) -> Steps:
    """Return the steps of both clocks."""
    found: tuple[list[Step], list[Step]] = ([], [])
    for capture, frame, grown in find_steps(anchors, (a.jumps, b.jumps)):
        found[capture].append((frame, grown if capture else -grown))
    return tuple(sorted(found[0])), tuple(sorted(found[1]))


def _sharpened(anchors: list[Anchor], steps: Steps, clock: Clock) -> Steps:
    """Return the steps such that the clock goes on after each where it was before."""
    begun = [
        (min((x.frame_a for x in anchors if x[2 * capture] >= frame), default=0), capture, index)
        for capture in (0, 1)
        for index, (frame, _) in enumerate(steps[capture])
    ]
    found = ([*steps[0]], [*steps[1]])
    # A span between two steps in which both saw nothing has no piece.
    for (_, capture, index), before, after, at_ns in zip(
        sorted(begun), clock.pieces, clock.pieces[1:], clock.starts_ns, strict=False
    ):
        grown = round(after.offset(at_ns) - before.offset(at_ns))
        frame, span = found[capture][index]
        found[capture][index] = (frame, span + grown if capture else span - grown)
    return tuple(found[0]), tuple(found[1])


def _pieces(
    anchors: list[Anchor], steps: Steps, resolution_ns: int
) -> tuple[list[ClockPiece], list[int]]:
    """Return the clock between the steps, and from when on each piece but the first counts."""
    parts: dict[int, list[Anchor]] = defaultdict(list)
    for anchor in anchors:
        passed = sum(anchor.frame_a >= frame for frame, _ in steps[0])
        passed += sum(anchor.frame_b >= frame for frame, _ in steps[1])
        parts[passed].append(anchor)
    pieces: list[ClockPiece] = []
    starts: list[int] = []
    for index in sorted(parts):
        piece = fit(parts[index], resolution_ns=resolution_ns)
        if piece is None:
            raise NotJoinedError(_NO_CLOCK)
        if pieces:
            starts.append(min(anchor.a_ns for anchor in parts[index]))
        pieces.append(piece)
    return pieces, starts


def _within(anchors: list[Anchor], clock: Clock) -> list[Anchor]:
    """Return the anchors that the clock explains: nothing arrives before it was sent."""
    return [
        anchor
        for anchor in anchors
        if (anchor.toward or 1) * delay_of(anchor, clock) >= -MAX_SLACK_NS
    ]


def _apart(a: Sample, b: Sample) -> int:
    """Return the time between the captures by their own clocks, ns; 0 where they overlap."""
    spans = [(s.info.first_time_ns or 0, s.info.last_time_ns or 0) for s in (a, b)]
    return max(0, max(start for start, _ in spans) - min(end for _, end in spans))


def _evidence(a: Sample, b: Sample, found: Pairing) -> tuple[int, int]:
    """Return how many of the arrivals in the sample were seen sent, and how many there are."""
    clock = found.clock
    seen = (_sights(a, 0, found), _sights(b, 1, found))
    times = [[time for sights in side.values() for time, _ in sights] for side in seen]
    start, end = max(map(min, times)), min(map(max, times))
    usual = median(abs(delay_of(anchor, clock)) for anchor in found.anchors)
    longest = min(MAX_DELAY_NS, max(_SHORT_NS, _MANY * usual))
    explained = arrived = 0
    for capture, side in enumerate(seen):
        other = seen[1 - capture]
        for name, sights in side.items():
            sent = [time for time, sends in other.get(name, ()) if sends]
            for time, sends in sights:
                if not sends and start <= time <= end:
                    arrived += 1
                    for then in sent:
                        if -MAX_SLACK_NS <= time - then <= longest:
                            explained += 1
                            break
    return explained, arrived


def _sights(sample: Sample, capture: int, found: Pairing) -> dict[int, list[tuple[int, bool]]]:
    """Return (common time, whether it is sent there) of each name in the flows compared."""
    sends = {
        sample.flows[name].number: (way > 0) == (capture == 0)
        for group in found.groups
        for name, way in group.ways[capture].items()
        if name in sample.flows
    }
    clock = found.clock
    seen: dict[int, list[tuple[int, bool]]] = {}
    for name, sights in sample.sights.items():
        told = [
            (clock.common(capture, frame, time_ns), sends[flow])
            for frame, time_ns, flow in sights
            if flow in sends
        ]
        if told:
            seen[name] = told
    return seen


def _believe(found: Pairing, shared: int, *, apart: int) -> None:
    """Refuse what may as well be two conversations of one protocol.

    Equal payloads prove little: strangers that follow one script share all of them. But nothing
    arrives before it was sent, and nearly everything that arrives was seen sent.
    """
    explained, arrived = found.evidence
    if len(found.anchors) < _AGREEING * shared:
        raise NotJoinedError(_NO_CLOCK)
    if explained < _EXPLAINED * arrived or explained < _LEAST:
        raise NotJoinedError(
            f"by the one clock offset that fits best, only {explained} of {arrived} datagrams that "
            "arrived in one capture were sent in the other"
        )
    if apart and (explained < _SURE or explained < _SURE_EXPLAINED * arrived):
        raise NotJoinedError(
            f"their times are {apart / 1e9:,.0f} s apart, and {explained} of {arrived} datagrams "
            "in common are too little to say that it is the clocks"
        )


def delay_of(anchor: Anchor, clock: Clock) -> int:
    """Return the common time in B less that in A, ns, of an anchor without the steps."""
    return clock.later(anchor.b_ns) - anchor.a_ns


class _Ways:
    """The conversations of both captures, and which way each of their flows goes."""

    def __init__(self, a: Sample, b: Sample) -> None:
        self.samples = (a, b)
        self.places = (_places(a), _places(b))
        """Of each capture: flow -> (conversation, way)."""
        self._turns: dict[tuple[int, int], int] = {}
        """(conversation of A, of B) -> +1 where way 0 of A's goes toward B, else -1."""

    def directed(self, anchors: list[Anchor]) -> tuple[list[Anchor], bool]:
        """Return the anchors with their directions, and whether both captures are of one place.

        Of two datagrams that pass each other, the difference of times of the one that goes from A
        to B is greater, by both their delays.
        """
        shared: dict[tuple[int, int], list[Anchor]] = defaultdict(list)
        for anchor in anchors:
            shared[self._of(anchor)].append(anchor)
        votes = Counter({both: len(these) for both, these in shared.items()})
        likely = _likely(votes, _FALSE_ANCHORS)
        shared = {both: self._consistent(shared[both]) for both in likely}
        anchors = [anchor for these in shared.values() for anchor in these]
        gaps: dict[tuple[int, int], list[int]] = {}
        for both, these in shared.items():
            found = self._gaps(these)
            if found:
                gaps[both] = found
                self._turns[both] = 1 if median(found) >= 0 else -1
        every = [abs(gap) for found in gaps.values() for gap in found]
        # What has other addresses has passed a program or a machine between the two captures.
        same_place = (
            bool(every)
            and median(every) <= SAME_PLACE_NS
            and all(self._same_ends(shared[both][0]) for both in gaps)
        )
        offset = self._offset([anchor for both in gaps for anchor in shared[both]])
        for both, these in shared.items():
            if both not in self._turns:
                # What goes one way only: its sign by the offset that two-way conversations show.
                # The middle of all differences lies anywhere.
                rest = median(anchor.difference - offset for anchor in these)
                way = self.places[0][these[0].flow_a][1]
                self._turns[both] = (1 if rest >= 0 else -1) * (-1 if way else 1)
        return [Anchor(*anchor[:-1], self._toward(anchor)) for anchor in anchors], same_place

    def _offset(self, anchors: list[Anchor]) -> float:
        """Return about how far the clocks are apart, as what goes both ways shows: the middle
        between the usual differences of either; 0 where nothing does.
        """
        ways: tuple[list[int], list[int]] = ([], [])
        for anchor in anchors:
            ways[self._toward(anchor) < 0].append(anchor.difference)
        return (median(ways[0]) + median(ways[1])) / 2 if all(ways) else 0.0

    def _consistent(self, anchors: list[Anchor]) -> list[Anchor]:
        """Return those that go the same way in both captures; what both sides say alike may be
        seen once in each capture, and be two datagrams.
        """
        places = self.places
        alike = [places[0][anchor.flow_a][1] == places[1][anchor.flow_b][1] for anchor in anchors]
        most = sum(alike) * 2 >= len(alike)
        return [anchor for anchor, same in zip(anchors, alike, strict=True) if same == most]

    def _same_ends(self, anchor: Anchor) -> bool:
        """Return whether a datagram has the same addresses and ports in both captures."""
        flows = [sample.flow_list() for sample in self.samples]
        return flows[0][anchor.flow_a].name == flows[1][anchor.flow_b].name

    def _of(self, anchor: Anchor) -> tuple[int, int]:
        return self.places[0][anchor.flow_a][0], self.places[1][anchor.flow_b][0]

    def _toward(self, anchor: Anchor) -> int:
        turn = self._turns[self._of(anchor)]
        return -turn if self.places[0][anchor.flow_a][1] else turn

    def _gaps(self, anchors: list[Anchor]) -> list[int]:
        """Return the differences of neighbours that go opposite ways: way 0 less way 1."""
        way = self.places[0]
        found = []
        ordered = sorted(anchors, key=lambda anchor: anchor.a_ns)
        for one, other in pairwise(ordered):
            ways = way[one.flow_a][1], way[other.flow_a][1]
            if ways[0] != ways[1]:
                gap = one.difference - other.difference
                found.append(-gap if ways[0] else gap)
        return found

    def groups(self, anchors: list[Anchor]) -> list[Group]:
        """Return the flows between which datagrams are compared."""
        votes: Counter[tuple[int, int]] = Counter(map(self._of, anchors))
        joined = _Sets()
        for both in _likely(votes, _FALSE_VOTES):
            joined.unite((0, both[0]), (1, both[1]))
        flows = [sample.flow_list() for sample in self.samples]
        found: dict[tuple[int, int], Group] = defaultdict(Group)
        for flow_a, flow_b, toward in dict.fromkeys(
            (x.flow_a, x.flow_b, x.toward) for x in anchors
        ):
            root = joined.root((0, self.places[0][flow_a][0]))
            if root == joined.root((1, self.places[1][flow_b][0])):
                group = found[root]
                group.add(0, flows[0][flow_a].name, toward)
                group.add(1, flows[1][flow_b].name, toward)
        return list(found.values())

    def further(self, found: Pairing) -> list[Anchor]:
        """Return what conversations that are in no group yet may have in common, now that there is
        a clock: equal datagrams with nobody else's near them.
        """
        clock = found.clock
        grouped = [
            {
                self.places[capture][sample.flows[name].number][0]
                for group in found.groups
                for name in group.ways[capture]
                if name in sample.flows
            }
            for capture, sample in enumerate(self.samples)
        ]
        usual = median(abs(delay_of(anchor, clock)) for anchor in found.anchors)
        longest = max(_SHORT_NS, _MANY * usual)
        extra: list[Anchor] = []
        a, b = self.samples
        for name, ours in a.sights.items():
            theirs = b.sights.get(name)
            alone = [sight for sight in ours if self.places[0][sight[2]][0] not in grouped[0]]
            if theirs is None or not alone:
                continue
            times = sorted([(clock.common(1, sight[0], sight[1]), sight) for sight in theirs])
            for sight in alone:
                common = clock.common(0, sight[0], sight[1])
                # (time,) sorts before every (time, sight) of that time.
                low = bisect_left(times, (common - longest,))
                near = times[low : bisect_left(times, (common + longest,))]
                if len(near) == 1 and self.places[1][near[0][1][2]][0] not in grouped[1]:
                    toward = 1 if near[0][0] >= common else -1
                    extra.append(_anchor(sight, near[0][1])._replace(toward=toward))
        return extra


def _likely(votes: Counter[tuple[int, int]], share: float) -> list[tuple[int, int]]:
    """Return the pairs of conversations that are not by far outvoted on both sides: a relay's port
    may serve many, and a client may change its own.
    """
    most: tuple[Counter[int], Counter[int]] = (Counter(), Counter())
    for both, count in votes.items():
        for capture in (0, 1):
            most[capture][both[capture]] = max(most[capture][both[capture]], count)
    return [
        both
        for both, count in votes.items()
        if count >= share * min(most[0][both[0]], most[1][both[1]])
    ]


class _Sets:
    """Disjoint sets. Source: Tarjan, "Efficiency of a good but not linear set union algorithm"."""

    def __init__(self) -> None:
        self._above: dict[tuple[int, int], tuple[int, int]] = {}

    def root(self, item: tuple[int, int]) -> tuple[int, int]:
        """Return what stands for the set of an item."""
        while (above := self._above.get(item, item)) != item:
            self._above[item] = self._above.get(above, above)
            item = above
        return item

    def unite(self, one: tuple[int, int], other: tuple[int, int]) -> None:
        """Make one set of those of two items."""
        self._above[self.root(one)] = self.root(other)


def _places(sample: Sample) -> dict[int, tuple[int, int]]:
    """Return flow -> (conversation, way); way 0 is that of its first packet."""
    numbers: dict[FlowName, int] = {}
    found = {}
    for flow in sample.flows.values():
        back = numbers.get((flow.tcp, reverse_key(flow.key)))
        numbers[flow.name] = flow.number
        found[flow.number] = (flow.number, 0) if back is None else (back, 1)
    return found
