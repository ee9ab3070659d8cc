"""What one direction of a connection has sent so far."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

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

__all__ = ["MAX_COUNTERS", "MAX_SPACES", "MAX_TYPES", "NEVER", "Lane", "TypeCount", "slowest_ms"]

MAX_TYPES = 1024
"""Message types counted per direction; further ones count as `other`."""
MAX_SPACES = 1024
"""Spaces per direction, those of templates included; units of further ones are passed over."""
MAX_COUNTERS = 256
"""Protocol counters kept per direction."""
_MS: Final = 1_000_000
NEVER: Final = (1 << 62) - 1
"""No time in ns is later."""


@mypyc_attr(acyclic=True)
class SmoothedRtt:
    """A round trip as the sender of a direction smooths it, ms; None before the first one."""

    __slots__ = ("before_ms", "mean_ms", "variance_ms")

    def __init__(self) -> None:
        self.mean_ms: float | None = None
        self.before_ms: float | None = None
        """The one that it may still work with while the newest is on its way to it."""
        self.variance_ms = 0.0

    def take(self, sample_ms: float, policy: Policy) -> None:
        """Take one that it has learnt."""
        self.before_ms = self.mean_ms
        weight, share, before = policy.rtt_smoothing, policy.variance_smoothing, self.mean_ms
        mean = sample_ms
        if before is None:
            self.variance_ms = sample_ms / 2 if share else 0.0
        else:
            mean = float(int((1 - weight) * before + weight * sample_ms))
            self.variance_ms += share * (abs(sample_ms - before) - self.variance_ms)
        self.mean_ms = max(1.0, mean)


@mypyc_attr(acyclic=True)
class TypeCount:
    """The messages of one type: how many there were, and the newest one."""

    __slots__ = ("count", "frame", "time_ns")

    def __init__(self) -> None:
        self.count = self.time_ns = self.frame = 0

    def add(self, count: int, time_ns: int, frame: int) -> None:
        """Count messages of one datagram."""
        self.count += count
        self.time_ns = time_ns
        self.frame = frame


class Lane:
    """Counts, spaces and probes of one direction, and the round trip its sender works with."""

    __slots__ = (
        "_asked", "_findings", "_here", "_numbered", "_recorder", "_space_list", "_stated",
        "carrier", "cells", "counters", "datagrams", "direction", "due_ns", "last_frame", "last_ns",
        "load", "messages", "missing", "octets", "placed", "policy", "probes", "silent", "spaces",
        "timings", "trip",
    )  # fmt: skip

    def __init__(
        self, policy: Policy, direction: int, findings: Findings,
        recorder: ConnectionRecorder | None,
    ) -> None:  # fmt: skip
        self.policy = policy
        self._recorder = recorder
        self.direction = direction
        self.silent = True
        """True until the first datagram of this direction."""
        self.datagrams = 0
        self.octets = 0
        self.last_ns = 0
        self.last_frame = 0
        self.messages: dict[str, TypeCount] = {}
        """By type."""
        self.missing = 0
        """Units that were lost before the capture, as far as that is known at its end."""
        self.cells: list[TypeCount | None] = []
        """The same by the place of a type in the list of a scanner (`speak`), as far as they came;
        None = none came yet.
        """
        self.placed: list[Space] = []
        """Spaces by their place in such a list."""
        self.counters: dict[str, int] = {}
        self.timings: dict[str, RttReservoir] = {}
        """Times that its sender states, by name."""
        self._here = self.trip = SmoothedRtt()
        """The round trip that the sender of this direction works with: as answers to it take here,
        unless it is known to be elsewhere ..."""
        self._stated = SmoothedRtt()
        """... or as the sides state it."""
        self._findings = findings
        self.spaces: dict[str, Space] = {
            rule.name: _kind(rule, policy)(rule, direction, findings, recorder)
            for rule in policy.spaces
        }
        self._space_list = list(self.spaces.values())
        """The same spaces: a list is quicker to go through."""
        for space in self._space_list:
            if space.rule.acked_with is not None:
                space.carrier = self.spaces[space.rule.acked_with]
        carriers = (space for space in self.spaces.values() if isinstance(space, CarrierSpace))
        self.carrier: CarrierSpace | None = next(carriers, None)
        """Space of the datagrams themselves, where they are numbered."""
        self.probes = {rule.kind: ProbeTrack(rule, direction, findings) for rule in policy.probes}
        self._asked = list(self.probes.values())
        self._numbered = self._loss_space()
        self.load = Load()
        self.due_ns = 0 if self._numbered is not None else NEVER
        """When its next second begins."""

    def speak(self, spaces: tuple[str, ...]) -> None:
        """Take the spaces that scanners know by their place."""
        self.cells = []
        self.placed = [self.spaces[name] for name in spaces if name in self.spaces]

    def _loss_space(self) -> Space | None:
        """Return the space that shows what was lost: of datagrams, else of units never resent."""
        for space in self.spaces.values():
            if space is self.carrier or (space.rule.consecutive and space.rule.resend is None):
                return space
        return None

    def may_roll(self, time_ns: int) -> bool:
        """Return whether the second at hand of the load can end: it has datagrams enough, and there
        are numbers that show what was lost.
        """
        numbered = self._numbered
        if numbered is None or numbered.numbers.newest == ABSENT:
            self.due_ns = time_ns + SECOND_NS
            return False
        return self.load.is_full(self.datagrams)

    def roll(self, frame: int, time_ns: int, delay_ns: int) -> None:
        """Begin another second of the load with a datagram."""
        numbered = self._numbered
        if numbered is not None:
            now = numbered.so_far()
            self.load.roll(time_ns, frame, delay_ns, self.datagrams, self.octets, now)
            self.due_ns = time_ns + SECOND_NS

    def open(self, name: str) -> Space | None:
        """Return a space that has come into being, named `template[key]`; None for one too many."""
        known = self.spaces.get(name)
        if known is not None:
            return known
        template = self.template(name)
        if len(self.spaces) >= MAX_SPACES:
            self.hit("MAX_SPACES")
            return None
        rule = replace(template.rule, name=name)
        space = _kind(rule, self.policy)(rule, self.direction, self._findings, self._recorder)
        space.peer_seen, space.on_evidence = template.peer_seen, template.on_evidence
        context, like = space.context, template.context
        context.started, context.in_stream = like.started, like.in_stream
        space.repeats.place(like.sender_near, like.receiver_near)
        context.vantage_final = like.vantage_final
        self._update_timers(space)
        self.spaces[name] = space
        self._space_list.append(space)
        return space

    def template(self, name: str) -> Space:
        """Return the template of a space that is not there yet; KeyError where it has none."""
        template = self.spaces[name.partition("[")[0]]
        if not template.rule.key:
            raise KeyError(name)
        return template

    def pair(self, other: Lane) -> None:
        """Make the other direction known to the spaces of this one."""
        for name, space in self.spaces.items():
            space.peer, reverse = other, other.spaces.get(name)
            if isinstance(space, InOrderSpace) and isinstance(reverse, InOrderSpace):
                space.reverse, reverse.reverse = reverse, space
            if isinstance(space, CarrierSpace) and isinstance(reverse, CarrierSpace):
                space.reverse, reverse.reverse = reverse, space

    def adopt(self, policy: Policy) -> None:
        """Take the rules of another dialect, now that it is known. Spaces keep their counts."""
        self.policy = policy
        rules = {rule.name: rule for rule in policy.spaces}
        for name, space in self.spaces.items():
            rule = rules.get(name.partition("[")[0])
            if rule is not None and space.rule is not rule and space.rule.ack is rule.ack:
                rule = rule if rule.name == name else replace(rule, name=name)
                space.obey(rule)
                self._update_timers(space)

    def add_rtt(self, sample_ms: float, *, here: bool = False, own: bool = False) -> None:
        """Take a round trip that the sender of this direction has learnt.

        Args:
            sample_ms: how long it took.
            here: it is the time of an answer in the capture, which it knew where it is next to it.
            own: it states itself what it has measured.

        """
        if not self.policy.rtt_smoothing:
            return
        if not own:
            self._here.take(sample_ms, self.policy)
        if not here:
            self._stated.take(sample_ms, self.policy)
            if own:
                self._stated.before_ms = self._stated.mean_ms
        self._update_all_timers()

    def place(self, sender_near: bool | None, receiver_near: bool | None) -> None:  # noqa: FBT001
        """Take what is known now about where the capture was taken: more than before, or less."""
        far = sender_near is False or (receiver_near and not sender_near)
        self.trip = self._stated if far else self._here
        self._update_all_timers()
        for space in self.spaces.values():
            space.repeats.place(sender_near, receiver_near)

    def _update_all_timers(self) -> None:
        for space in self._space_list:
            self._update_timers(space)

    def _update_timers(self, space: Space) -> None:
        """Tell a space the round trips that its sender works with."""
        trip, stated = self.trip, self._stated
        space.repeats.retime(trip.mean_ms, trip.variance_ms, stated.mean_ms, stated.before_ms)

    def hit(self, limit: str) -> None:
        """Count that a bound was reached."""
        self._findings.hit(limit, self.direction)

    def count(self, type_: str, time_ns: int, frame: int) -> None:
        """Count one message."""
        cell = self.messages.get(type_)
        if cell is None:
            if len(self.messages) >= MAX_TYPES:
                self.hit("MAX_TYPES")
                type_ = "other"
            cell = self.messages.setdefault(type_, TypeCount())
        cell.add(1, time_ns, frame)

    def begin_cell(self, place: i64, type_: str) -> None:
        """Make the cell of a type known by its place too, once it has one of its own."""
        cells = self.cells
        while len(cells) <= place:
            cells.append(None)
        cells[place] = self.messages.get(type_)

    def add(self, name: str, amount: int) -> None:
        """Add to one of the protocol's own counters."""
        if name in self.counters or len(self.counters) < MAX_COUNTERS:
            self.counters[name] = self.counters.get(name, 0) + amount
        else:
            self.hit("MAX_COUNTERS")

    def timing(self, name: str, value_ms: float) -> None:
        """Take a time that the sender states."""
        kept = self.timings.get(name)
        if kept is None:
            if len(self.timings) >= MAX_COUNTERS:
                self.hit("MAX_COUNTERS")
                return
            kept = self.timings[name] = RttReservoir()
        kept.add(int(value_ms * 1_000_000))

    def last_of(self, types: frozenset[str] | None) -> tuple[int, int] | None:
        """Return (time, frame) of the last message of these types; None where there is none."""
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
        """Return the measurements of how quickly the peer answered."""
        found = [space.ack_stats.rtt for space in self._space_list]
        return found + [track.rtt for track in self._asked]

    def latest_ns(self) -> int:
        """Return the longest of the newest measurements of each kind, ns; 0 without any."""
        longest: i64 = 0
        for space in self._space_list:  # once a second: a list of them all would cost more
            longest = max(longest, space.ack_stats.rtt.latest)
        for track in self._asked:
            longest = max(longest, track.rtt.latest)
        return longest

    def evidence(self, disorder: int, missing: int) -> Evidence:
        """Return how the peer answers this direction, and how many of its own units were late or
        did not come.
        """
        count: i64 = 0
        quickest: i64 = NEVER
        on_the_way: i64 = NEVER
        usual: i64 = NEVER
        for space in self._space_list:
            trip = space.ack_stats.rtt
            if trip.samples:
                count += trip.samples
                lowest = trip.lowest
                quickest = min(quickest, lowest)
                held: i64 = space.held_ns
                way = lowest - held if lowest > held else 0
                on_the_way = min(on_the_way, way)
        for track in self._asked:
            trip = track.rtt
            if trip.samples:
                count += trip.samples
                lowest = trip.lowest
                quickest = min(quickest, lowest)
                on_the_way = min(on_the_way, lowest)
        if not count:
            return Evidence(ABSENT, 0, disorder, missing=missing)
        usual = quickest
        if self._findings.misses:
            # An answer to a copy that it misses is taken for one to the next, and too quick.
            usual = min([trip.quick() for trip in self.round_trips() if trip.samples])
        slow = 0
        # With more or less of them, or with quick ones, nobody asks for it.
        if MIN_STEADY <= count < MIN_ANSWERS and usual - quickest + on_the_way > FAR_NS:
            trips = self.round_trips()
            slow = max([int((trip.percentile(0.95) or 0.0) * _MS) for trip in trips])
        return Evidence(quickest, count, disorder, quickest - on_the_way, slow, usual, missing)

    def disorder(self) -> int:
        """Return how many units of this direction were captured out of order, and not because
        the capture missed those that were in order.
        """
        count = 0
        misses = self._findings.misses
        for space in self._space_list:
            if not space.context.in_stream and not (misses and space.rule.resend):
                count += space.numbers.disorder
        return count


def slowest_ms(lanes: Sequence[Lane], above_ns: int) -> float:
    """Return the longest usual round trip, ms; 0 where none is longer than `above_ns`."""
    slow = 0.0
    for lane in lanes:
        for trip in lane.round_trips():
            # No percentile lies above the highest sample: most need not be worked out.
            if trip.highest > above_ns:
                slow = max(slow, trip.slow_ms())
    return slow


def _kind(rule: SpaceRule, policy: Policy) -> type[Space]:
    """Return the class of the spaces that follow a rule."""
    if rule.in_order_receiver:
        return InOrderSpace
    if rule.ack is AckRule.STAMPED:
        return StampedSpace
    if rule.stride_reach:
        return StridedSpace
    if rule.timeout_ms:
        return CarrierSpace
    for other in policy.spaces:
        if other.name == rule.acked_with and other.timeout_ms:
            return CarriedSpace
    return Space
