"""Whether two captures are of one conversation, which of their flows belong together, and how their
clocks relate.

Method. Datagrams whose payload both captures hold exactly once are *anchors*. Their differences of
timestamps give the steps of the clocks, the direction of every flow (of two datagrams that pass
each other, the one from A to B has the greater difference) and the clock itself (`clock`). Flows
that share enough anchors form a group, within which the second pass compares datagrams.

Equal payloads alone prove nothing: strangers who speak one protocol may share all of them. The
captures are accepted only if one clock fits nearly all anchors, and if most of what arrived in
either capture was seen sent in the other, shortly before by that clock.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from itertools import pairwise
from statistics import median
from typing import Final

from netdissect.join.clock import STEP_NS, Anchor, Clock, ClockPiece, Step, find_steps, fit
from netdissect.join.sample import FlowId, Occurrence, Sample
from netdissect.join.sets import DisjointSets, not_outvoted
from netdissect.model.errors import UsageError
from netdissect.model.packets import Endpoint, flow_endpoints, reverse_key

SAME_PLACE_NS: Final = 50_000
"""Captures between which a datagram and its answer together take less than this, with the same
addresses in both, were taken at the same place."""
MAX_DELAY_NS: Final = 10_000_000_000
"""A datagram that takes longer than this counts as lost."""
MAX_SLACK_NS: Final = 100_000
"""A datagram may seem to arrive this long before it was sent: timestamps of two machines jitter."""
MAX_REPEATED_ANCHORS = 8192
"""Anchors at most that are taken from payloads which occur more than once."""
_ENOUGH_ANCHORS: Final = 8
"""Payloads that occur once are the only anchors if there are this many."""
_MIN_FIT_SHARE: Final = 0.75
"""Share of the anchors that one clock must explain."""
_MIN_EXPLAINED_SHARE: Final = 0.5
"""Share of the arrivals, while both captures ran, that must have been seen sent in the other: with
fewer, the captures may be of strangers who send the same payloads."""
_MIN_EXPLAINED: Final = 2
"""Arrivals that must have been seen sent: fewer prove nothing."""
_USUAL_DELAYS: Final = 10
_MIN_LONGEST_NS: Final = 20_000_000
"""A delay longer than ten usual ones and than this is no evidence that two datagrams are one."""
_MIN_EXPLAINED_APART: Final = 20
_MIN_EXPLAINED_SHARE_APART: Final = 0.8
"""The same number and share for captures whose own times do not overlap."""
_NO_CLOCK: Final = "no one clock offset fits what they have in common"
_MIN_ANCHOR_VOTES: Final = 0.25
"""Two conversations with fewer common datagrams than this share of either's best match give no
anchors: among many clients of one protocol, some send the same payload once each."""
_MIN_GROUP_VOTES: Final = 0.05
"""Two conversations with fewer common datagrams than this share of either's best match are not in
one group: they only send the same payloads."""


Steps = tuple[tuple[Step, ...], tuple[Step, ...]]
"""Steps of the clock of each capture."""


class NotJoinedError(UsageError):
    """Two captures are not of one conversation, or cannot be shown to be."""


@dataclass(slots=True)
class Group:
    """Flows among which datagrams are compared: one conversation, or several that share a flow on
    one side.
    """

    ways: tuple[dict[FlowId, int], dict[FlowId, int]] = field(default_factory=lambda: ({}, {}))
    """Per capture: flow -> +1 if it goes from A to B, -1 if it goes from B to A."""

    def add(self, capture: int, flow_id: FlowId, toward: int) -> None:
        """Add a flow and its reverse."""
        self.ways[capture][flow_id] = toward
        self.ways[capture].setdefault((flow_id[0], reverse_key(flow_id[1])), -toward)


@dataclass(slots=True)
class Pairing:
    """How two captures fit together."""

    clock: Clock
    groups: list[Group]
    anchors: list[Anchor]
    """With directions, and with the steps of the clocks removed."""
    same_place: bool
    candidates: list[Anchor] = field(default_factory=list)
    """What the anchors were chosen from, with the timestamps of the captures."""
    evidence: tuple[int, int] = (0, 0)
    """(arrivals of the sample that the other capture saw sent, arrivals of the sample), both while
    both captures ran.
    """
    usual_ns: int = field(init=False)
    """The longest delay that is no sign of two datagrams or two clocks."""

    def places(self, sample: Sample, capture: int) -> dict[int, tuple[int, int]]:
        """Return number of a flow -> (its group, +1 if it goes from A to B, else -1)."""
        return {
            sample.flows[flow_id].number: (number, toward)
            for number, group in enumerate(self.groups)
            for flow_id, toward in group.ways[capture].items()
            if flow_id in sample.flows
        }

    def __post_init__(self) -> None:
        delays = [abs(delay_of(anchor, self.clock)) for anchor in self.anchors]
        usual = median(delays or [0])
        self.usual_ns = min(MAX_DELAY_NS, max(_MIN_LONGEST_NS, round(_USUAL_DELAYS * usual)))


def pair(a: Sample, b: Sample, *, resolution_ns: int) -> Pairing:
    """Return how two captures fit together.

    Args:
        a: sample of the first.
        b: sample of the second.
        resolution_ns: how far a difference may be off because a file stores only microseconds.

    Raises:
        NotJoinedError: they are not of one conversation, or too little shows that they are.

    """
    anchors = _anchors(a, b)
    if not anchors:
        raise NotJoinedError("they have no datagram in common")
    pairing, conversations = _fit_clock(a, b, anchors, resolution_ns)
    pairing.candidates = anchors
    # An equal datagram of another conversation is seldom as near in time as the same one.
    known = [x for x in pairing.anchors if abs(delay_of(x, pairing.clock)) <= pairing.usual_ns]
    pairing.groups = conversations.groups(known)
    known += conversations.further_anchors(pairing)
    known += conversations.of_others(pairing.anchors, known)
    pairing.groups = conversations.groups(known)
    pairing.evidence = _explained_arrivals(a, b, pairing)
    # TCP starts from random sequence numbers, so strangers have no segment in common.
    flow_ids = [flow_id for group in pairing.groups for ways in group.ways for flow_id in ways]
    only_tcp = all(is_tcp for is_tcp, _ in flow_ids)
    _check(pairing, len(anchors), gap_ns=0 if only_tcp else _gap_between(a, b))
    return pairing


def pair_streams(a: Sample, b: Sample, anchors: list[Anchor], *, resolution_ns: int) -> Pairing:
    """Return how two captures fit together whose TCP connections carry the same streams.

    Raises:
        NotJoinedError: no clock fits, or their times are too far apart to be sure.

    """
    pairing, _ = _fit_clock(a, b, anchors, resolution_ns)
    pairing.evidence = (len(pairing.anchors), len(anchors))
    _check(pairing, len(anchors), gap_ns=_gap_between(a, b))
    return pairing


def _fit_clock(
    a: Sample, b: Sample, anchors: list[Anchor], resolution_ns: int
) -> tuple[Pairing, _Conversations]:
    """Return the clock that explains the anchors, and the conversations with their directions."""
    steps = _steps(anchors, a, b)
    pairing, conversations = _fit_with_steps(a, b, anchors, steps, resolution_ns)
    if any(steps):
        # So far a step is known to within a delay. With the delays known, it can be corrected.
        steps = _refined(anchors, steps, pairing.clock)
        pairing, conversations = _fit_with_steps(a, b, anchors, steps, resolution_ns)
    return pairing, conversations


def _fit_with_steps(
    a: Sample, b: Sample, anchors: list[Anchor], steps: Steps, resolution_ns: int
) -> tuple[Pairing, _Conversations]:
    """Return the clock with the given steps, and the conversations with their directions."""
    only_steps = Clock((), steps=steps)
    aligned = [only_steps.align(anchor) for anchor in anchors] if any(steps) else anchors
    middle = median(anchor.difference for anchor in aligned)
    # A difference is the offset plus or minus a delay, so differences are no further apart than
    # delays are long.
    near = [anchor for anchor in aligned if abs(anchor.difference - middle) <= MAX_DELAY_NS]
    if len(near) < _MIN_FIT_SHARE * len(anchors):
        raise NotJoinedError(_NO_CLOCK)
    conversations = _Conversations(a, b)
    directed, same_place = conversations.directed(near)
    # At one place there is no delay between the directions: the jitter of timestamps must fit.
    slack = max(resolution_ns, SAME_PLACE_NS) if same_place else resolution_ns
    pieces, starts = _pieces(directed, steps, slack)
    clock = Clock(tuple(pieces), tuple(starts), steps)
    return Pairing(clock, [], _explained_anchors(directed, clock), same_place), conversations


def _anchors(a: Sample, b: Sample) -> list[Anchor]:
    """Return datagrams that both captures hold.

    These are the payloads that occur once in each. If they are few, or go one way only (one capture
    missed one of two equal datagrams), payloads that occur equally often in both are taken as well,
    paired in order.
    """
    both = [(one, b.tokens[token]) for token, one in a.tokens.items() if token in b.tokens]
    once = [(ours, theirs) for ours, theirs in both if ours.count == theirs.count == 1]
    places = _conversation_of_flow(a)
    counts = Counter(places[ours.occurrences[0][2]] for ours, _ in once)
    both_ways = sum(min(count, counts[number, 1 - way]) for (number, way), count in counts.items())
    if len(once) >= _ENOUGH_ANCHORS and both_ways >= _ENOUGH_ANCHORS // 2:
        return [_anchor(ours.occurrences[0], theirs.occurrences[0]) for ours, theirs in once]
    anchors = [
        _anchor(*each)
        for ours, theirs in both
        if ours.count == theirs.count and len(ours.occurrences) == len(theirs.occurrences)
        for each in zip(ours.occurrences, theirs.occurrences, strict=True)
    ]
    # A payload that all clients send has very many occurrences.
    return anchors[:: 1 + len(anchors) // MAX_REPEATED_ANCHORS]


def _anchor(a: Occurrence, b: Occurrence) -> Anchor:
    return Anchor(a[0], a[1], b[0], b[1], a[2], b[2], 0)


def _steps(anchors: list[Anchor], a: Sample, b: Sample) -> Steps:
    """Return the steps of both clocks."""
    found: tuple[list[Step], list[Step]] = ([], [])
    for capture, frame, growth in find_steps(anchors, (a.jumps, b.jumps)):
        found[capture].append((frame, growth if capture else -growth))
    return tuple(sorted(found[0])), tuple(sorted(found[1]))


def _refined(anchors: list[Anchor], steps: Steps, clock: Clock) -> Steps:
    """Return the steps corrected so that the offset is continuous across each."""
    in_order = [
        (min((x.frame_a for x in anchors if x[2 * capture] >= frame), default=0), capture, index)
        for capture in (0, 1)
        for index, (frame, _) in enumerate(steps[capture])
    ]
    found = ([*steps[0]], [*steps[1]])
    # There is no piece between two steps if both captures hold nothing of that time.
    for (_, capture, index), before, after, at_ns in zip(
        sorted(in_order), clock.pieces, clock.pieces[1:], clock.starts_ns, strict=False
    ):
        growth = round(after.offset(at_ns) - before.offset(at_ns))
        frame, span = found[capture][index]
        found[capture][index] = (frame, span + growth if capture else span - growth)
    # What is left of a change of the delays is no step.
    real = [[step for step in each if 2 * abs(step[1]) > STEP_NS] for each in found]
    return tuple(real[0]), tuple(real[1])


def _pieces(
    anchors: list[Anchor], steps: Steps, resolution_ns: int
) -> tuple[list[ClockPiece], list[int]]:
    """Return the pieces of the clock, and the times at which all but the first begin."""
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
    two_sided = [index for index, piece in enumerate(pieces) if piece.bound_ns is not None]
    for index, piece in enumerate(pieces):
        if two_sided and piece.bound_ns is None:
            apart = [abs(other - index) for other in two_sided]
            pieces[index] = piece.with_delays_of(pieces[two_sided[apart.index(min(apart))]])
    return pieces, starts


def _explained_anchors(anchors: list[Anchor], clock: Clock) -> list[Anchor]:
    """Return the anchors that do not arrive before they were sent."""
    return [
        anchor
        for anchor in anchors
        if (anchor.toward or 1) * delay_of(anchor, clock) >= -MAX_SLACK_NS
    ]


def _gap_between(a: Sample, b: Sample) -> int:
    """Return the time between the captures by their own clocks, ns; 0 if they overlap."""
    spans = [(s.info.first_time_ns or 0, s.info.last_time_ns or 0) for s in (a, b)]
    return max(0, max(start for start, _ in spans) - min(end for _, end in spans))


def _explained_arrivals(a: Sample, b: Sample, pairing: Pairing) -> tuple[int, int]:
    """Return `Pairing.evidence`."""
    sides = (_compared_occurrences(a, 0, pairing), _compared_occurrences(b, 1, pairing))
    times = [[time for each in side.values() for time, _ in each] for side in sides]
    start, end = max(map(min, times)), min(map(max, times))
    longest = pairing.usual_ns
    explained = arrived = 0
    for capture, side in enumerate(sides):
        other = sides[1 - capture]
        for token, occurrences in side.items():
            sent = [time for time, sends in other.get(token, ()) if sends]
            came = [time for time, sends in occurrences if not sends and start <= time <= end]
            arrived += len(came)
            explained += sum([_was_sent(time, sent, longest) for time in came])
    return explained, arrived


def _was_sent(arrival_ns: int, sent: list[int], longest_ns: int) -> bool:
    """Return whether an arrival has one of these times of sending shortly before it."""
    return any(-MAX_SLACK_NS <= arrival_ns - sent_ns <= longest_ns for sent_ns in sent)


def _compared_occurrences(
    sample: Sample, capture: int, pairing: Pairing
) -> dict[int, list[tuple[int, bool]]]:
    """Return token -> [(common time, whether it was sent at this capture)] in the paired flows."""
    places = pairing.places(sample, capture)
    sends = {flow: (toward > 0) == (capture == 0) for flow, (_, toward) in places.items()}
    clock = pairing.clock
    found: dict[int, list[tuple[int, bool]]] = {}
    for token, one in sample.tokens.items():
        compared = [
            (clock.common(capture, frame, time_ns), sends[flow])
            for frame, time_ns, flow in one.occurrences
            if flow in sends
        ]
        if compared:
            found[token] = compared
    return found


def _check(pairing: Pairing, shared: int, *, gap_ns: int) -> None:
    """Refuse captures that may as well be of two conversations of one protocol.

    Args:
        pairing: how they fit best.
        shared: anchors before those that the clock does not explain were discarded.
        gap_ns: time between the captures by their own clocks, 0 if they overlap.

    Raises:
        NotJoinedError: what they have in common is no proof.

    """
    explained, arrived = pairing.evidence
    if len(pairing.anchors) < _MIN_FIT_SHARE * shared:
        raise NotJoinedError(_NO_CLOCK)
    if explained < _MIN_EXPLAINED_SHARE * arrived or explained < _MIN_EXPLAINED:
        raise NotJoinedError(
            f"by the one clock offset that fits best, only {explained} of {arrived} datagrams that "
            "arrived in one capture were sent in the other"
        )
    if gap_ns and (
        explained < _MIN_EXPLAINED_APART or explained < _MIN_EXPLAINED_SHARE_APART * arrived
    ):
        raise NotJoinedError(
            f"their times are {gap_ns / 1e9:,.0f} s apart, and {explained} of {arrived} datagrams "
            "in common are too little to say that it is the clocks"
        )


def delay_of(anchor: Anchor, clock: Clock) -> int:
    """Return the common time in B minus that in A, ns, of an anchor with the steps removed."""
    return clock.common_of_b(anchor.b_ns) - anchor.a_ns


class _Conversations:
    """The conversations of both captures, and the directions of their flows.

    A conversation is a flow and its reverse. It is called by the number of the flow that came
    first, whose way is 0; the way of the other flow is 1.
    """

    def __init__(self, a: Sample, b: Sample) -> None:
        self.samples = (a, b)
        self.of_flow = (_conversation_of_flow(a), _conversation_of_flow(b))
        """Per capture: flow -> (conversation, way)."""
        self._toward: dict[tuple[int, int], int] = {}
        """(conversation of A, of B) -> +1 if way 0 of A's goes toward B, else -1."""

    def directed(self, anchors: list[Anchor]) -> tuple[list[Anchor], bool]:
        """Return the anchors with their directions, and whether both captures are of one place.

        Of two datagrams that pass each other, the one from A to B has the greater difference of
        timestamps, by the sum of both delays.
        """
        shared: dict[tuple[int, int], list[Anchor]] = defaultdict(list)
        for anchor in anchors:
            shared[self._both(anchor)].append(anchor)
        votes = Counter({both: len(these) for both, these in shared.items()})
        likely = not_outvoted(votes, _MIN_ANCHOR_VOTES)
        shared = {both: self._consistent(shared[both]) for both in likely}
        anchors = [anchor for these in shared.values() for anchor in these]
        gaps: dict[tuple[int, int], list[int]] = {}
        for both, these in shared.items():
            found = self._direction_gaps(these)
            if found:
                gaps[both] = found
        self._orient(list(shared), gaps)
        all_gaps = [abs(gap) for found in gaps.values() for gap in found]
        # If addresses differ, a program or a machine is between the two captures.
        same_place = (
            bool(all_gaps)
            and median(all_gaps) <= SAME_PLACE_NS
            and all(self._same_addresses(shared[both][0]) for both in gaps)
        )
        offset = self._rough_offset([anchor for both in gaps for anchor in shared[both]])
        for both, these in shared.items():
            if both not in self._toward:
                # Traffic in one direction only: the sign of its delay follows from the offset that
                # two-way conversations show. The median of all differences would not do.
                rest = median(anchor.difference - offset for anchor in these)
                way = self.of_flow[0][these[0].flow_a][1]
                self._toward[both] = (1 if rest >= 0 else -1) * (-1 if way else 1)
        return [Anchor(*anchor[:-1], self._toward_of(anchor)) for anchor in anchors], same_place

    def _orient(
        self, conversations: list[tuple[int, int]], gaps: dict[tuple[int, int], list[int]]
    ) -> None:
        """Set the directions of conversations from the gaps between their opposite ways.

        What goes to one endpoint goes the same way, whoever sent it: a server's clients decide
        together where a few datagrams of one are too little.
        """
        flows = self.samples[0].flow_list()
        ends = {both: flow_endpoints(flows[both[0]].key) for both in conversations}
        used = Counter(end for pair in ends.values() for end in pair)
        votes: dict[Endpoint, list[int]] = defaultdict(list)
        shared = {}
        for both, (source, target) in ends.items():
            sign = 1 if used[target] >= used[source] else -1
            shared[both] = sign, target if sign > 0 else source
            votes[shared[both][1]] += [sign * gap for gap in gaps.get(both, ())]
        for both, (sign, end) in shared.items():
            if votes[end]:
                self._toward[both] = sign if median(votes[end]) >= 0 else -sign

    def _rough_offset(self, anchors: list[Anchor]) -> float:
        """Return the middle between the median differences of both directions; 0 without both."""
        ways: tuple[list[int], list[int]] = ([], [])
        for anchor in anchors:
            ways[self._toward_of(anchor) < 0].append(anchor.difference)
        return (median(ways[0]) + median(ways[1])) / 2 if all(ways) else 0.0

    def _consistent(self, anchors: list[Anchor]) -> list[Anchor]:
        """Return the anchors on whose relative direction most agree.

        Where both sides send the same payload, each capture may hold another datagram of it.
        """
        of_flow = self.of_flow
        alike = [of_flow[0][anchor.flow_a][1] == of_flow[1][anchor.flow_b][1] for anchor in anchors]
        most = sum(alike) * 2 >= len(alike)
        return [anchor for anchor, same in zip(anchors, alike, strict=True) if same == most]

    def _same_addresses(self, anchor: Anchor) -> bool:
        """Return whether a datagram has the same addresses and ports in both captures."""
        flows = [sample.flow_list() for sample in self.samples]
        return flows[0][anchor.flow_a].id == flows[1][anchor.flow_b].id

    def _both(self, anchor: Anchor) -> tuple[int, int]:
        return self.of_flow[0][anchor.flow_a][0], self.of_flow[1][anchor.flow_b][0]

    def _toward_of(self, anchor: Anchor) -> int:
        toward = self._toward[self._both(anchor)]
        return -toward if self.of_flow[0][anchor.flow_a][1] else toward

    def _direction_gaps(self, anchors: list[Anchor]) -> list[int]:
        """Return the difference of way 0 minus that of way 1, for neighbours of opposite ways."""
        of_flow = self.of_flow[0]
        gaps = []
        ordered = sorted(anchors, key=lambda anchor: anchor.a_ns)
        for one, other in pairwise(ordered):
            ways = of_flow[one.flow_a][1], of_flow[other.flow_a][1]
            if ways[0] != ways[1]:
                gap = one.difference - other.difference
                gaps.append(-gap if ways[0] else gap)
        return gaps

    def groups(self, anchors: list[Anchor]) -> list[Group]:
        """Return the groups of flows between which datagrams are compared."""
        votes: Counter[tuple[int, int]] = Counter(map(self._both, anchors))
        sets = DisjointSets()
        for both in not_outvoted(votes, _MIN_GROUP_VOTES):
            sets.unite((0, both[0]), (1, both[1]))
        flows = [sample.flow_list() for sample in self.samples]
        groups: dict[tuple[int, int], Group] = defaultdict(Group)
        for flow_a, flow_b, toward in dict.fromkeys(
            (x.flow_a, x.flow_b, x.toward) for x in anchors
        ):
            root = sets.root((0, self.of_flow[0][flow_a][0]))
            if root == sets.root((1, self.of_flow[1][flow_b][0])):
                group = groups[root]
                group.add(0, flows[0][flow_a].id, toward)
                group.add(1, flows[1][flow_b].id, toward)
        return list(groups.values())

    def of_others(self, anchors: list[Anchor], known: list[Anchor]) -> list[Anchor]:
        """Return the anchors between conversations that have none of the known ones."""
        have = [{self._both(anchor)[capture] for anchor in known} for capture in (0, 1)]
        return [
            anchor
            for anchor in anchors
            for ours, theirs in [self._both(anchor)]
            if ours not in have[0] and theirs not in have[1]
        ]

    def further_anchors(self, pairing: Pairing) -> list[Anchor]:
        """Return anchors of conversations that are in no group yet: equal datagrams that are close
        in time by the clock, with no third one near.
        """
        clock = pairing.clock
        grouped = [
            {self.of_flow[capture][flow][0] for flow in pairing.places(sample, capture)}
            for capture, sample in enumerate(self.samples)
        ]
        longest = pairing.usual_ns
        found: list[Anchor] = []
        a, b = self.samples
        flows = a.flow_list()
        toward_end = {
            flow_endpoints(flow_id[1])[1]: toward
            for group in pairing.groups
            for flow_id, toward in group.ways[0].items()
        }
        for token, ours in a.tokens.items():
            theirs = b.tokens.get(token)
            ungrouped = [
                each for each in ours.occurrences if self.of_flow[0][each[2]][0] not in grouped[0]
            ]
            if theirs is None or not ungrouped:
                continue
            there = theirs.occurrences
            times = sorted([(clock.common(1, each[0], each[1]), each) for each in there])
            for one in ungrouped:
                common = clock.common(0, one[0], one[1])
                # (time,) sorts before every (time, occurrence) of that time.
                low = bisect_left(times, (common - longest,))
                near = times[low : bisect_left(times, (common + longest,))]
                if len(near) == 1 and self.of_flow[1][near[0][1][2]][0] not in grouped[1]:
                    source, target = flow_endpoints(flows[one[2]].key)
                    # A known endpoint is surer than times, which a delay makes vague.
                    toward = toward_end.get(target) or -toward_end.get(source, 0)
                    toward = toward or (1 if near[0][0] >= common else -1)
                    found.append(_anchor(one, near[0][1])._replace(toward=toward))
        return found


def _conversation_of_flow(sample: Sample) -> dict[int, tuple[int, int]]:
    """Return flow -> (conversation, way)."""
    numbers: dict[FlowId, int] = {}
    found = {}
    for flow in sample.flows.values():
        back = numbers.get((flow.tcp, reverse_key(flow.key)))
        numbers[flow.id] = flow.number
        found[flow.number] = (flow.number, 0) if back is None else (back, 1)
    return found
