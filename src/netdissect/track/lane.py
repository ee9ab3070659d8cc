"""One direction of a connection (a *lane*): its counts, spaces, probes and round trips."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from netdissect.model.events import Event
from netdissect.model.native import ABSENT, i64, mypyc_attr
from netdissect.model.policy import AckRule, Policy, SpaceRule
from netdissect.track.carried import CarriedSpace
from netdissect.track.carrier import CarrierSpace
from netdissect.track.ceiling import SECOND_NS, Load
from netdissect.track.findings import Findings
from netdissect.track.inorder import InOrderSpace
from netdissect.track.probes import ProbeTrack
from netdissect.track.recorder import ConnectionRecorder
from netdissect.track.reservoir import RttReservoir
from netdissect.track.space import Space
from netdissect.track.stamped import StampedSpace
from netdissect.track.strides import StridedSpace
from netdissect.track.vantage import FAR_NS, MIN_ANSWERS, MIN_STEADY, Evidence

MAX_TYPES = 1024
"""Message types counted per direction; messages of further types count as `other`."""
MAX_SPACES = 1024
"""Spaces per direction, including templates; units of further spaces are ignored."""
MAX_COUNTERS = 256
"""Protocol counters, and names of stated times, kept per direction."""
_TIMING_ITEMS: Final = 3
"""Items of a TIMING that names no number of a space."""
_MS: Final = 1_000_000
NEVER: Final = (1 << 62) - 1
"""A time in ns later than any other."""


@mypyc_attr(acyclic=True)
class SmoothedRtt:
    """The smoothed round trip of a sender, by the rule of its dialect. All values are in ms."""

    __slots__ = ("before_ms", "mean_ms", "variance_ms")

    def __init__(self) -> None:
        self.mean_ms: float | None = None
        self.before_ms: float | None = None
        """The mean before the newest sample, which the sender uses until that sample reaches it."""
        self.variance_ms = 0.0

    def take(self, sample_ms: float, policy: Policy) -> None:
        """Add a sample that the sender has learnt."""
        self.before_ms = self.mean_ms
        weight, share, before = policy.rtt_smoothing, policy.variance_smoothing, self.mean_ms
        mean = sample_ms
        if before is None:
            # As RFC 6298 has it, section 2.2.
            self.variance_ms = sample_ms / 2 if share else 0.0
        else:
            # Its senders truncate it to whole milliseconds.
            mean = float(int((1 - weight) * before + weight * sample_ms))
            self.variance_ms += share * (abs(sample_ms - before) - self.variance_ms)
        self.mean_ms = max(1.0, mean)


@mypyc_attr(acyclic=True)
class TypeCount:
    """The messages of one type: their number, and time and frame of the newest one."""

    __slots__ = ("count", "frame", "time_ns")

    def __init__(self) -> None:
        self.count: i64 = 0
        self.time_ns: i64 = 0
        self.frame: i64 = 0

    def add(self, count: i64, time_ns: i64, frame: i64) -> None:
        """Add messages of one datagram."""
        self.count += count
        self.time_ns = time_ns
        self.frame = frame


class Lane:
    """The state of one direction."""

    __slots__ = (
        "_dozed_ns", "_findings", "_here", "_numbered", "_probe_list", "_recorder", "_stated",
        "carrier", "counters", "counts_by_index", "datagrams", "direction", "due_ns", "last_frame",
        "last_ns", "load", "messages", "missing", "octets", "policy", "probes", "silent",
        "space_list", "spaces", "spaces_by_index", "timings", "trip",
    )  # fmt: skip

    def __init__(
        self, policy: Policy, direction: int, findings: Findings,
        recorder: ConnectionRecorder | None,
    ) -> None:  # fmt: skip
        self.policy = policy
        self._recorder = recorder
        self.direction = direction
        self.silent = True
        """True until the first datagram of the direction."""
        self.datagrams: i64 = 0
        self.octets: i64 = 0
        self.last_ns: i64 = 0
        self.last_frame: i64 = 0
        self._dozed_ns: i64 = 0
        """`last_ns` when `doze` was called last."""
        self.messages: dict[str, TypeCount] = {}
        """Message type -> count."""
        self.missing = 0
        """Units that were lost on the way to the capture, as far as its end shows."""
        self.counts_by_index: list[TypeCount | None] = []
        """The values of `messages` by the index of the type in the scanner's list (`speak`); None =
        no message of the type came yet.
        """
        self.spaces_by_index: list[Space] = []
        """The spaces by their index in the scanner's list."""
        self.counters: dict[str, int] = {}
        self.timings: dict[str, RttReservoir] = {}
        """Name -> times that the sender states."""
        self._here = self.trip = SmoothedRtt()
        """`trip` is the round trip that the sender works with: `_here` as measured in the capture,
        or `_stated` if the sender is known to be far.
        """
        self._stated = SmoothedRtt()
        """The round trip by what both sides state."""
        self._findings = findings
        self.spaces: dict[str, Space] = {
            rule.name: _space(rule, policy, direction, findings, recorder)
            for rule in policy.spaces
        }
        self.space_list = list(self.spaces.values())
        """The values of `spaces`, as a list, which is quicker to iterate."""
        for space in self.space_list:
            if space.rule.acked_with is not None:
                carrier = space.carrier = self.spaces[space.rule.acked_with]
                carrier.carry(space)
        carriers = (space for space in self.space_list if isinstance(space, CarrierSpace))
        self.carrier: CarrierSpace | None = next(carriers, None)
        """The space of the datagrams themselves, if they are numbered."""
        self.probes = {rule.kind: ProbeTrack(rule, direction, findings) for rule in policy.probes}
        self._probe_list = list(self.probes.values())
        self._numbered = self._loss_space()
        self.load = Load()
        self.due_ns: i64 = 0 if self._numbered is not None else NEVER
        """When the next second of `load` begins."""

    def speak(self, spaces: tuple[str, ...]) -> None:
        """Set the list of spaces to which the scanner refers by index."""
        self.counts_by_index = []
        self.spaces_by_index = [self.spaces[name] for name in spaces if name in self.spaces]

    def _loss_space(self) -> Space | None:
        """Return the space whose gaps show losses: of datagrams, or of units never resent."""
        for space in self.space_list:
            if space is self.carrier or (space.rule.consecutive and space.rule.resend is None):
                return space
        return None

    def held(self) -> int:
        """Return how many outstanding units there are, and entries of units that they carry."""
        return sum([space.store.outstanding.held() for space in self.space_list])

    def doze(self) -> None:
        """Take less memory until the next datagram."""
        if self._dozed_ns != self.last_ns:
            self._dozed_ns = self.last_ns
            for space in self.space_list:
                space.doze()

    def may_roll(self, time_ns: i64) -> bool:
        """Return whether the current second of the load may end: it has enough datagrams, and there
        are numbers that show losses.
        """
        numbered = self._numbered
        if numbered is None or numbered.numbers.newest == ABSENT:
            self.due_ns = time_ns + SECOND_NS
            return False
        return self.load.is_full(self.datagrams)

    def roll(self, frame: i64, time_ns: i64, delay_ns: int) -> None:
        """Begin the next second of the load with this datagram."""
        numbered = self._numbered
        if numbered is not None:
            now = numbered.so_far()
            self.load.roll(time_ns, frame, delay_ns, self.datagrams, self.octets, now)
            self.due_ns = time_ns + SECOND_NS

    def open(self, name: str) -> Space | None:
        """Return the space `template[key]`, creating it if needed; None if there are too many."""
        known = self.spaces.get(name)
        if known is not None:
            return known
        template = self.template(name)
        if len(self.spaces) >= MAX_SPACES:
            self.hit("MAX_SPACES")
            return None
        rule = replace(template.rule, name=name)
        space = _space(rule, self.policy, self.direction, self._findings, self._recorder)
        # It appears in mid-connection, when all this has long been told to the other spaces.
        space.peer_seen, space.on_evidence = template.peer_seen, template.on_evidence
        context, like = space.context, template.context
        context.started, context.in_stream = like.started, like.in_stream
        space.repeats.set_vantage(like.sender_near, like.receiver_near)
        context.vantage_final = like.vantage_final
        self._update_timers(space)
        self.spaces[name] = space
        self.space_list.append(space)
        return space

    def template(self, name: str) -> Space:
        """Return the template of a space that does not exist yet; KeyError if there is none."""
        template = self.spaces[name.partition("[")[0]]
        if not template.rule.key:
            raise KeyError(name)
        return template

    def pair(self, other: Lane) -> None:
        """Connect the spaces of this direction with the other direction."""
        for name, space in self.spaces.items():
            space.peer, reverse = other, other.spaces.get(name)
            if isinstance(space, InOrderSpace) and isinstance(reverse, InOrderSpace):
                space.reverse, reverse.reverse = reverse, space
            if isinstance(space, CarrierSpace) and isinstance(reverse, CarrierSpace):
                space.reverse, reverse.reverse = reverse, space

    def adopt(self, policy: Policy) -> None:
        """Apply the rules of another dialect, now that it is known. Spaces keep their counts."""
        self.policy = policy
        rules = {rule.name: rule for rule in policy.spaces}
        for name, space in self.spaces.items():
            rule = rules.get(name.partition("[")[0])
            # A space keeps its kind: with another way of acknowledging, the dialect cannot be this
            # one.
            if rule is not None and space.rule is not rule and space.rule.ack is rule.ack:
                rule = rule if rule.name == name else replace(rule, name=name)
                space.obey(rule)
                self._update_timers(space)

    def add_rtt(self, sample_ms: float, *, here: bool = False, own: bool = False) -> None:
        """Add a round trip that the sender of this direction has learnt.

        Args:
            sample_ms: the round trip.
            here: it was measured in the capture, so the sender knows it only if it is near.
            own: the sender itself states it.

        """
        if not self.policy.rtt_smoothing:
            return
        if not own:
            self._here.take(sample_ms, self.policy)
        if not here:
            self._stated.take(sample_ms, self.policy)
            if own:
                # What the sender states itself it knows already.
                self._stated.before_ms = self._stated.mean_ms
        self._update_all_timers()

    def set_vantage(self, sender_near: bool | None, receiver_near: bool | None) -> None:  # noqa: FBT001
        """Apply what is known now of the vantage, which may be less than before."""
        far = sender_near is False or (receiver_near and not sender_near)
        self.trip = self._stated if far else self._here
        self._update_all_timers()
        for space in self.space_list:
            space.repeats.set_vantage(sender_near, receiver_near)

    def _update_all_timers(self) -> None:
        for space in self.space_list:
            self._update_timers(space)

    def _update_timers(self, space: Space) -> None:
        """Update the timers of a space to the round trips that its sender knows."""
        trip, stated = self.trip, self._stated
        space.context.retime(
            trip.mean_ms, trip.variance_ms, stated.mean_ms, stated.before_ms,
            learnt=self._here.mean_ms is not None,
        )  # fmt: skip

    def hit(self, limit: str) -> None:
        """Count that a bound was reached."""
        self._findings.hit(limit, self.direction)

    def count(self, type_: str, time_ns: i64, frame: i64) -> None:
        """Count one message."""
        cell = self.messages.get(type_)
        if cell is None:
            if len(self.messages) >= MAX_TYPES:
                self.hit("MAX_TYPES")
                type_ = "other"
            cell = self.messages.setdefault(type_, TypeCount())
        cell.add(1, time_ns, frame)

    def index_count(self, place: i64, type_: str) -> None:
        """Make the count of a type available by its index, once the type is counted."""
        counts = self.counts_by_index
        while len(counts) <= place:
            counts.append(None)
        counts[place] = self.messages.get(type_)

    def add(self, name: str, amount: int) -> None:
        """Add to a counter of the protocol."""
        count = self.counters.get(name)
        if count is None and len(self.counters) >= MAX_COUNTERS:
            self.hit("MAX_COUNTERS")
        else:
            self.counters[name] = (count or 0) + amount

    def timing(self, event: Event, frame: i64) -> None:
        """Add a time that the sender states (`Ev.TIMING`)."""
        name = event[1]
        value_ms: float = event[2]
        if len(event) > _TIMING_ITEMS:
            space = self.spaces[event[3]]
            if isinstance(space, StridedSpace):
                space.clocked(event[4], int(value_ms), frame)
        kept = self.timings.get(name)
        if kept is None:
            if len(self.timings) >= MAX_COUNTERS:
                self.hit("MAX_COUNTERS")
                return
            kept = self.timings[name] = RttReservoir()
        kept.add(int(value_ms * 1_000_000))

    def last_of(self, types: frozenset[str] | None) -> tuple[int, int] | None:
        """Return (time, frame) of the last message of these types (None = of any); None without
        one.
        """
        if types is None:
            return (self.last_ns, self.last_frame) if self.datagrams else None
        newest: TypeCount | None = None
        for name, cell in self.messages.items():
            if name in types and (
                newest is None
                or cell.time_ns > newest.time_ns
                or (cell.time_ns == newest.time_ns and cell.frame > newest.frame)
            ):
                newest = cell
        return None if newest is None else (newest.time_ns, newest.frame)

    def round_trips(self) -> list[RttReservoir]:
        """Return all measurements of how quickly the peer answered."""
        found = [space.ack_stats.rtt for space in self.space_list]
        return found + [track.rtt for track in self._probe_list]

    def latest_ns(self) -> int:
        """Return the longest of the newest samples of each space and probe, ns; 0 without any."""
        longest: i64 = 0
        for space in self.space_list:  # once a second: a list of them all would cost more
            longest = max(longest, space.ack_stats.rtt.latest)
        for track in self._probe_list:
            longest = max(longest, track.rtt.latest)
        return longest

    def evidence(self, disorder: int, peer: Lane) -> Evidence:
        """Return the evidence about the peer: how it answers this direction, and how many of its
        own units came out of order or twice, or are missing.
        """
        missing, copied = peer.missing, peer.copied()
        count: i64 = 0
        quickest: i64 = NEVER
        on_the_way: i64 = NEVER
        usual: i64 = NEVER
        passed = self.passed()
        for space in self.space_list:
            trip = space.ack_stats.rtt
            if trip.samples:
                count += trip.samples
                lowest = trip.lowest
                quickest = min(quickest, lowest)
                held: i64 = space.held_ns
                on_the_way = min(on_the_way, lowest - min(lowest, held))
        for track in self._probe_list:
            trip = track.rtt
            if trip.samples:
                count += trip.samples
                lowest = trip.lowest
                quickest = min(quickest, lowest)
                on_the_way = min(on_the_way, lowest)
        if not count:
            return Evidence(ABSENT, 0, disorder, 0, 0, ABSENT, missing, passed, copied)
        usual = quickest
        if self._findings.misses:
            # The answer to a missed copy seems to answer the next one, and too quickly.
            usual = min([trip.quick() for trip in self.round_trips() if trip.samples])
        slow = 0
        # `Vantage` needs it only for so few answers, and only slow ones.
        if MIN_STEADY <= count < MIN_ANSWERS and usual - quickest + on_the_way > FAR_NS:
            trips = self.round_trips()
            slow = max([int((trip.percentile(0.95) or 0.0) * _MS) for trip in trips])
        held = quickest - on_the_way
        return Evidence(quickest, count, disorder, held, slow, usual, missing, passed, copied)

    def passed(self) -> i64:
        """Return how often the peer has answered only a later copy."""
        count: i64 = 0
        for space in self.space_list:
            count += space.ack_stats.passed
        return count

    def disorder(self) -> int:
        """Return how many units of this direction came out of order, without those that may be
        retransmissions whose first copy the capture misses.
        """
        count = 0
        misses = self._findings.misses
        for space in self.space_list:
            if not space.context.in_stream and not (misses and space.rule.resend):
                count += space.numbers.disorder
        return count

    def copied(self) -> int:
        """Return how many copies came of units that this side never sends again."""
        count = 0
        for space in self.space_list:
            if space.rule.resend is None and not space.context.in_stream:
                count += space.repeats.duplicates
        return count


def slowest_ms(lanes: Sequence[Lane], above_ns: int) -> float:
    """Return the largest 95th percentile of round trips, ms; 0 if none is above `above_ns`."""
    slow = 0.0
    for lane in lanes:
        for trip in lane.round_trips():
            # No percentile is above the highest sample, so most need not be computed.
            if trip.highest > above_ns:
                slow = max(slow, trip.slow_ms())
    return slow


def _space(
    rule: SpaceRule, policy: Policy, direction: int, findings: Findings,
    recorder: ConnectionRecorder | None,
) -> Space:  # fmt: skip
    """Return a new space of the kind that its rule asks for."""
    # Called by their names: compiled, a class in a variable takes four times as long to call.
    if rule.in_order_receiver:
        return InOrderSpace(rule, direction, findings, recorder)
    if rule.ack is AckRule.STAMPED:
        return StampedSpace(rule, direction, findings, recorder)
    if rule.stride_reach:
        return StridedSpace(rule, direction, findings, recorder)
    if rule.timeout_ms:
        return CarrierSpace(rule, direction, findings, recorder)
    for other in policy.spaces:
        if other.name == rule.acked_with and other.timeout_ms:
            return CarriedSpace(rule, direction, findings, recorder)
    return Space(rule, direction, findings, recorder)
