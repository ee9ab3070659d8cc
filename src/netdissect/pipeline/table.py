"""The table of claimed flows, and the bounds on their number."""

from __future__ import annotations

from collections.abc import Callable
from operator import itemgetter
from typing import Final

from netdissect.model.native import i64, read_i64_be
from netdissect.model.packets import FlowKey, reverse_key
from netdissect.model.policy import TimeoutRule
from netdissect.pipeline.handlers import DatagramHandler, Flow, Name
from netdissect.pipeline.spreading import QUIET_PLACES, spread, tcp_ends, udp_ends
from netdissect.track.connection import Connection
from netdissect.track.lane import NEVER
from netdissect.track.unit import MADE

MAX_CONNECTIONS = 8_000
"""Connections tracked at once. Beyond that, those idle longest are evicted and reported. One takes
15 to 25 kB with its first 20 datagrams, and half as much again while its timeline is recorded.
"""
MAX_ALL_OUTSTANDING = 500_000
"""Outstanding units of all connections, and entries of units that these carry (over TCP: ranges of
bytes, also those of incomplete messages), on the tables of all processes that share a capture, and
of two captures that are shown as one.
Beyond that, the connections with the most of them are evicted and reported.
`track.unitstore.MAX_OUTSTANDING` is the bound for each space.
"""
CLOSED_IDLE_NS: Final = 30_000_000_000
"""Silence after which a connection that has ended is reported and leaves the table, ns."""
HOUSEKEEPING_NS: Final = 10_000_000_000
"""Packet time between two rounds of housekeeping, which looks for ended connections, ns."""
DOZE_NS = 2_000_000_000
"""Silence after which the tables of a connection are made smaller, and packet time between two
looks for silent connections, ns.
"""
KEYS_A_FRAME: Final = 4
"""Table entries examined per frame at most, on average. Without this bound, a file whose time jumps
with every frame would cause a round for every frame.
"""
QUIET_ROUNDS = 30
"""Rounds of housekeeping without a packet after which a connection is quiet, whatever its state.
This is longer than the idle timeout of any protocol, and a single wrong timestamp has no effect.
"""
GIVEN_UP_ROUNDS = 3
"""Rounds of housekeeping for which a connection stays on the table after both sides have given it
up by their own timers. Rounds instead of a time, because a capture may pause.
"""
MAX_BRIEF = 4_000
"""Brief connections that make a flood, on the tables of all processes that share a capture. Ended
ones count too, but one less for each FRAMES_A_BRIEF frames since. During a flood, a connection
begins only when it is no longer brief; those that stay brief are only counted. Timestamps do not
matter, because whoever creates a file can choose them.
"""
FRAMES_A_BRIEF: Final = 32
"""Frames per brief connection at which a capture of any length is not a flood."""
BRIEF: Final = 12
"""A connection with fewer datagrams, or segments with data, is brief. Beginning and reporting a
connection was measured to cost as much as 60 ordinary datagrams, the larger part of its total.
"""
ADDED_A_LOOK = 1024
"""New connections after which the brief ones are counted again."""
MAX_QUIET = 6
"""Quiet connections on the table at each of QUIET_PLACES. Beyond that, those quiet longest are
reported. Not one bound for all: processes that share a capture do not know each other's.
"""
NEVER_ENDS_NS: Final = 60_000_000_000
"""Silence after which a connection without a timeout of its own is as good as given up, ns."""
_MS: Final = 1_000_000
PLACES: Final = 4096
"""Size of `HandlerTable.at`; a power of two."""
_IPV4_KEY: Final = 12
"""Length of an IPv4 flow key, bytes."""


class HandlerTable:
    """Flow key -> handler of its UDP datagrams. Flows that are still being recognised have none.

    The handlers of IPv4 flows that were looked up last are also in an array, where they are found
    without building a key (`place_of`). If two flows collide there, the newer lookup wins.
    """

    def __init__(self) -> None:
        self.by_key: dict[FlowKey, DatagramHandler] = {}
        self.at: list[DatagramHandler | None] = [None] * PLACES
        """The array. A handler's `addresses` and `ports` show for which flow it was looked up."""

    def get(self, key: FlowKey) -> DatagramHandler | None:
        """Return the handler of a key; None without one."""
        handler = self.by_key.get(key)
        if handler is not None and len(key) == _IPV4_KEY:
            addresses, ports = read_i64_be(key, 0), read_i64_be(key, 4) & 0xFFFF_FFFF
            handler.addresses, handler.ports = addresses, ports
            self.at[place_of(addresses, ports)] = handler
        return handler

    def put(self, key: FlowKey, handler: DatagramHandler) -> None:
        """Set the handler of a key."""
        self.drop(key)
        self.by_key[key] = handler

    def drop(self, key: FlowKey) -> None:
        """Remove the handler of a key."""
        if self.by_key.pop(key, None) is not None and len(key) == _IPV4_KEY:
            addresses, ports = read_i64_be(key, 0), read_i64_be(key, 4) & 0xFFFF_FFFF
            self.at[place_of(addresses, ports)] = None

    def clear(self) -> None:
        """Remove all handlers."""
        for key in list(self.by_key):
            self.drop(key)


def place_of(addresses: i64, ports: i64) -> i64:
    """Return the index of a flow direction in `HandlerTable.at`."""
    return (3 * ((addresses >> 32) + (ports >> 16)) + addresses + ports) & PLACES - 1


class FlowTable:
    """The flows that protocols have claimed. `leaving` and `overflowing` return the flows that have
    to leave; the caller ends them and then calls `remove`.
    """

    def __init__(self, hit: Callable[[str], None], shares: int = 1, together: int = 1) -> None:
        """Create a table.

        Args:
            hit: called with the name of a bound when it is hit.
            shares: number of processes that share the flows of the capture.
            together: as in `Options`.

        """
        self.handlers = HandlerTable()
        self.due_ns = 0
        """When `leaving` or `doze` is to be called next."""
        self.round_ns = 0
        """Time of the next round of housekeeping, when `leaving` is to be called."""
        self.doze_ns = 0
        """When `doze` is to be called next."""
        self._dozed_at = 0
        """Frame of the last look for silent connections."""
        self.quiet_since = 0
        """A flow without a packet since this time is quiet; 0 before the first QUIET_ROUNDS."""
        self.flooded = False
        """Whether there are more than MAX_BRIEF brief connections."""
        self._ended = 0
        """Brief connections that have ended, as MAX_BRIEF counts them."""
        self._counted_at = 0
        """Frame up to which `_ended` was decreased."""
        self._added = 0
        self._brief = 0
        """Brief connections on the table when they were last counted."""
        self.looked_at = 0
        """Frame of the last round of housekeeping."""
        self.late = False
        """Whether a round was put off because it would have cost too much."""
        self._flows: dict[Name, Flow] = {}
        """Each flow under the keys of both directions."""
        self._once: dict[Flow, None] = {}
        """Each flow once, as an ordered set."""
        self.most = 0
        """Flows that there have been at once."""
        self._most_outstanding = MAX_ALL_OUTSTANDING // (shares * together)
        self.due_units = MADE.count + self._most_outstanding
        """`MADE.count` above which `overloading` looks again."""
        self._rounds: list[int] = []
        """Times of the last rounds of housekeeping."""
        self._hit = hit
        self._shares = shares

    def get(self, name: Name) -> Flow | None:
        """Return the flow of a key of either direction."""
        return self._flows.get(name)

    def add(self, flow: Flow, frame: int) -> None:
        """Add a flow under the keys of both directions; its connection begins with `frame`."""
        for name in (flow.name, reverse_key(flow.name)):
            self._flows[name] = flow
        self._once[flow] = None
        self.most = max(self.most, len(self._once))
        self._added += 1
        if not self._added % max(1, ADDED_A_LOOK // self._shares):
            self._count_brief(self.flows(), frame)

    def remove(self, flow: Flow) -> None:
        """Remove a flow."""
        self._once.pop(flow, None)
        for name in (flow.name, reverse_key(flow.name)):
            self._flows.pop(name, None)
            if flow.transport == "udp":
                self.handlers.drop(name)

    def flows(self) -> list[Flow]:
        """Return every flow once."""
        return list(self._once)

    def doze(self, frame: int, now_ns: int) -> None:
        """Make the tables of silent connections smaller, and drop the handlers of those that have
        ended or were given up: further datagrams may begin another one.
        """
        self.doze_ns = now_ns + DOZE_NS
        self.due_ns = min(self.round_ns, self.doze_ns)
        if frame - self._dozed_at < len(self._flows) // KEYS_A_FRAME:
            return
        self._dozed_at = frame
        for flow in self._once:
            connection = flow.connection
            if connection is None or flow.lapsed:
                continue
            last_ns = connection.last_ns
            if last_ns != flow.asleep_ns and now_ns - last_ns > DOZE_NS:
                connection.lanes[0].doze()
                connection.lanes[1].doze()
                if connection.machine.over or given_up(connection, now_ns, NEVER_ENDS_NS):
                    if flow.held:
                        continue
                    flow.asleep_ns = last_ns
                    if flow.transport == "udp":
                        flow.lapsed = True
                        self.drop_handlers(flow)

    def leaving(self, frame: int, now_ns: int) -> list[Flow]:
        """Do a round of housekeeping. Return the flows whose connections have ended and are idle,
        and those quiet longest if too many are quiet.
        """
        if frame - self.looked_at < len(self._flows) // KEYS_A_FRAME:
            self.late = True
            return []
        self.looked_at = frame
        self.round_ns = now_ns + HOUSEKEEPING_NS
        self.due_ns = min(self.round_ns, self.doze_ns)
        self._rounds.append(now_ns)
        since = self._rounds.pop(0) if len(self._rounds) > QUIET_ROUNDS else 0
        self.quiet_since = since
        gone_since = self._rounds[-GIVEN_UP_ROUNDS] if len(self._rounds) >= GIVEN_UP_ROUNDS else 0
        ended: list[Flow] = []
        quiet: list[Flow] = []
        flows = self.flows()
        self._count_brief(flows, frame)
        for flow in flows:
            connection = flow.connection
            if connection is None:
                continue
            last_ns = connection.last_ns or now_ns
            if (connection.machine.over and now_ns - last_ns > CLOSED_IDLE_NS) or (
                last_ns < gone_since and given_up(connection, gone_since)
            ):
                ended.append(flow)
            elif last_ns < since:
                quiet.append(flow)
        quiet.sort(key=lambda flow: _last_ns(flow, now_ns), reverse=True)
        # At each place, those quiet for the shortest time stay.
        taken = [0] * QUIET_PLACES
        for flow in quiet:
            ends = udp_ends(flow.key) if flow.transport == "udp" else tcp_ends(flow.key)
            place = spread(ends) % QUIET_PLACES
            taken[place] += 1
            if taken[place] > MAX_QUIET:
                self._hit("MAX_QUIET")
                ended.append(flow)
        return ended

    def overflowing(self, now_ns: int) -> list[Flow]:
        """Return the flows that have been idle longest: a tenth of all if the table is full, half
        of the brief ones if there are twice MAX_BRIEF. An observer sees these even in a flood.
        """
        brief = self._brief > 2 * MAX_BRIEF
        if not brief and len(self._once) <= MAX_CONNECTIONS:
            return []
        flows = [
            flow for flow in self.flows()
            if flow.connection is not None and (not brief or _is_brief(flow.connection))
        ]  # fmt: skip
        flows.sort(key=lambda flow: _last_ns(flow, now_ns))
        del flows[MAX_BRIEF if brief else max(1, MAX_CONNECTIONS // 10) :]
        self._brief = 0  # until they are counted again
        return self._evicted(flows, "MAX_CONNECTIONS")

    def overloading(self) -> list[Flow]:
        """Return the flows with the most outstanding units if all together have too many."""
        if MADE.count <= self.due_units:
            return []
        held = [(_held(flow), flow) for flow in self._once]
        total = sum([units for units, _ in held])
        most = self._most_outstanding
        # So many more would have to be made; a sixteenth, so that counting costs little.
        self.due_units = MADE.count + max(most - total, most // 16)
        leaving: list[Flow] = []
        if total <= most:
            return leaving
        held.sort(key=itemgetter(0), reverse=True)
        for units, flow in held:
            if total <= most * 3 // 4:
                break
            total -= units
            leaving.append(flow)
        return self._evicted(leaving, "MAX_ALL_OUTSTANDING")

    def _evicted(self, flows: list[Flow], limit: str) -> list[Flow]:
        """Return flows that leave because of a bound, after noting that in their connections."""
        for flow in flows:
            self._hit(limit)
            if flow.connection is not None:
                flow.connection.evicted = True
        return flows

    def drop_handlers(self, flow: Flow) -> None:
        """Drop the handlers of both directions."""
        self.handlers.drop(flow.key)
        self.handlers.drop(reverse_key(flow.key))

    def holds(self) -> bool:
        """Return whether datagrams of any flow are held."""
        for flow in self._once:  # noqa: SIM110 - compiled, a loop is cheaper
            if flow.held:
                return True
        return False

    def merges(self, flow: Flow) -> bool:
        """Return whether, during a flood, another connection of a flow is part of its present one,
        because that would stay brief.
        """
        connection, before, flow.begun_at = flow.connection, flow.begun_at, 0
        if connection is None or not self.flooded:
            return False
        heard = connection.datagrams_seen()
        if heard - before >= BRIEF:
            return False
        flow.begun_at = heard
        return True

    def ended(self, connection: Connection) -> None:
        """Count a connection that has ended."""
        if _is_brief(connection):
            self._ended += self._shares

    def _count_brief(self, flows: list[Flow], frame: int) -> None:
        less = (frame - self._counted_at) // FRAMES_A_BRIEF
        if less > 0:
            self._ended = max(0, self._ended - less)
            self._counted_at += less * FRAMES_A_BRIEF
        here = 0
        for flow in flows:
            connection = flow.connection
            if connection is not None:
                here += _is_brief(connection)
        self._brief = here
        self.flooded = here * self._shares + self._ended > MAX_BRIEF


def given_up(connection: Connection, time_ns: int, untimed_ns: int = NEVER) -> bool:
    """Return whether the idle timers of both sides had expired by a time; `untimed_ns` counts for a
    side that has none.
    """
    client, server = connection.timeout_rules()
    idle_ns = max(_idle_ns(client, untimed_ns), _idle_ns(server, untimed_ns))
    return connection.last_ns + idle_ns <= time_ns


def _idle_ns(rule: TimeoutRule | None, untimed_ns: int) -> int:
    return untimed_ns if rule is None else int((rule.idle_ms + rule.check_ms) * _MS)


def _is_brief(connection: Connection) -> bool:
    """Return whether a connection is brief so far."""
    return connection.datagrams_seen() < BRIEF


def _held(flow: Flow) -> int:
    """Return how many outstanding units the connections of a flow have."""
    connections = [connection for connection, _ in flow.earlier]
    if flow.connection is not None:
        connections.append(flow.connection)
    held = sum([lane.held() for connection in connections for lane in connection.lanes])
    return held + sum([each.stream.held() for each in connections if each.stream is not None])


def _last_ns(flow: Flow, now_ns: int) -> int:
    """Return the time of the last packet of a flow; now for one that has just begun."""
    return (flow.connection.last_ns if flow.connection else 0) or now_ns
