"""The flow table: flows under their keys, and the bounds on how many there are."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from netdissect.model.native import i64, read_i64_be
from netdissect.model.packets import FlowKey, reverse_key
from netdissect.pipeline.handlers import DatagramHandler, Flow, Name
from netdissect.track.connection import Connection

__all__ = ["BRIEF", "KEYS_A_FRAME", "PLACES", "FlowTable", "HandlerTable", "place_of"]

MAX_CONNECTIONS = 20_000
"""Connections tracked at once; beyond, those idle longest are reported as they stand."""
CLOSED_IDLE_NS: Final = 30_000_000_000
"""A connection that has ended and been silent for so long is reported and leaves the table."""
HOUSEKEEPING_NS: Final = 10_000_000_000
"""How often, in packet time, ended connections are looked for."""
KEYS_A_FRAME: Final = 4
"""Keys looked at for each frame in between: time may jump with every frame."""
QUIET_ROUNDS = 30
"""A connection that is not heard for so many rounds of housekeeping is quiet, whatever its state:
longer than the idle timeout of any protocol, and no single wrong time stamp makes one quiet.
"""
GIVEN_UP_ROUNDS = 3
"""Rounds of housekeeping for which a connection stays that both sides have given up by their own
timers. Rounds, since where a capture pauses nothing is heard of anybody.
"""
MAX_BRIEF = 4_000
"""Brief connections at once, on the tables of all that share a capture; of those that have ended,
one less for each FRAMES_A_BRIEF frames since. With more, a flood, one begins when it is no longer
brief, and what stays so is counted only. However long it is, a capture with so many frames for each
brief connection is none. Times have no say: whoever makes a file chooses them.
"""
FRAMES_A_BRIEF: Final = 32
BRIEF: Final = 12
"""A connection with fewer datagrams, or segments with data, is brief: what it costs to begin and
report one, some 60 ordinary datagrams, is most of what they cost.
"""
ADDED_A_LOOK = 1024
"""Connections begun after which the brief ones are counted, as they are in housekeeping."""
MAX_QUIET = 128
"""Quiet connections on the table; beyond, those quiet longest are reported as they stand."""
PLACES: Final = 4096
_IPV4_KEY: Final = 12


class HandlerTable:
    """UDP key -> what takes its datagrams; flows under recognition have nothing here.

    Over IPv4 those that were asked for last are found without a key too, by `place_of`. Where two
    flows have the same place, it is that of the newer.
    """

    def __init__(self) -> None:
        self.by_key: dict[FlowKey, DatagramHandler] = {}
        self.at: list[DatagramHandler | None] = [None] * PLACES
        """Those that were asked for last, each with the numbers it was asked for with."""

    def get(self, key: FlowKey) -> DatagramHandler | None:
        """Return what takes datagrams with this key, None where nothing does."""
        handler = self.by_key.get(key)
        if handler is not None and len(key) == _IPV4_KEY:
            addresses, ports = read_i64_be(key, 0), read_i64_be(key, 4) & 0xFFFF_FFFF
            handler.addresses, handler.ports = addresses, ports
            self.at[place_of(addresses, ports)] = handler
        return handler

    def put(self, key: FlowKey, handler: DatagramHandler) -> None:
        """Have another one take the datagrams with this key."""
        self.drop(key)
        self.by_key[key] = handler

    def drop(self, key: FlowKey) -> None:
        """Have nothing take the datagrams with this key any more."""
        if self.by_key.pop(key, None) is not None and len(key) == _IPV4_KEY:
            addresses, ports = read_i64_be(key, 0), read_i64_be(key, 4) & 0xFFFF_FFFF
            self.at[place_of(addresses, ports)] = None

    def clear(self) -> None:
        """Have nothing take anything."""
        for key in list(self.by_key):
            self.drop(key)


def place_of(addresses: i64, ports: i64) -> i64:
    """Return the index of a flow direction in `HandlerTable.at`."""
    return (3 * ((addresses >> 32) + (ports >> 16)) + addresses + ports) & PLACES - 1


class FlowTable:
    """The flows that protocols have claimed. What has to leave it is told by `leaving` and
    `overflowing`; whoever ends a flow takes it off by `remove`.
    """

    def __init__(self, hit: Callable[[str], None], shares: int = 1) -> None:
        """Take what counts that a bound was reached, and how many such tables share a capture."""
        self.handlers = HandlerTable()
        self.due_ns = 0
        """From when on `leaving` is to be asked."""
        self.quiet_since = 0
        """What was last heard before this is quiet; 0 before there were so many rounds."""
        self.flooded = False
        """Whether there are more than MAX_BRIEF brief connections."""
        self._ended = 0
        """Brief connections that have ended, as MAX_BRIEF counts them."""
        self._counted_at = 0
        """Frame up to which `_ended` was lessened."""
        self._added = 0
        self.looked_at = 0
        """Frame of the last look: flows leave only then."""
        self._flows: dict[Name, Flow] = {}
        """Under the keys of both directions."""
        self._once: dict[Flow, None] = {}
        """Each of them once: to look at all is to look at many that no cache has."""
        self._rounds: list[int] = []
        """Times of the last rounds of housekeeping."""
        self._hit = hit
        self._shares = shares

    def get(self, name: Name) -> Flow | None:
        """Return the flow of a key of either direction."""
        return self._flows.get(name)

    def add(self, flow: Flow, frame: int) -> None:
        """Put a flow whose connection begins with a frame on the table, under the keys of both
        directions.
        """
        for key in (flow.key, reverse_key(flow.key)):
            self._flows[flow.transport, key] = flow
        self._once[flow] = None
        self._added += 1
        if not self._added % max(1, ADDED_A_LOOK // self._shares):
            self._count_brief(self.flows(), frame)

    def remove(self, flow: Flow) -> None:
        """Take a flow off the table."""
        self._once.pop(flow, None)
        for key in (flow.key, reverse_key(flow.key)):
            self._flows.pop((flow.transport, key), None)
            if flow.transport == "udp":
                self.handlers.drop(key)

    def flows(self) -> list[Flow]:
        """Return every flow once."""
        return list(self._once)

    def leaving(self, frame: int, now_ns: int) -> list[Flow]:
        """Return the flows whose connections have ended and been silent for a while, and of those
        that only fell silent what is too many.
        """
        if frame - self.looked_at < len(self._flows) // KEYS_A_FRAME:
            return []
        self.looked_at = frame
        self.due_ns = now_ns + HOUSEKEEPING_NS
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
                last_ns < gone_since and connection.given_up(gone_since)
            ):
                ended.append(flow)
            elif last_ns < since:
                quiet.append(flow)
        quiet.sort(key=lambda flow: _last_ns(flow, now_ns))
        del quiet[max(0, len(quiet) - MAX_QUIET) :]
        for _ in quiet:
            self._hit("MAX_QUIET")
        return ended + quiet

    def overflowing(self, now_ns: int) -> list[Flow]:
        """Return what there is too much of: the tenth of the flows that has been idle longest."""
        if len(self._once) <= MAX_CONNECTIONS:
            return []
        flows = [flow for flow in self.flows() if flow.connection is not None]
        flows.sort(key=lambda flow: _last_ns(flow, now_ns))
        del flows[max(1, MAX_CONNECTIONS // 10) :]
        for flow in flows:
            self._hit("MAX_CONNECTIONS")
            if flow.connection is not None:
                flow.connection.evicted = True
        return flows

    def ended(self, connection: Connection) -> None:
        """Count a connection that is reported."""
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
        self.flooded = here * self._shares + self._ended > MAX_BRIEF


def _is_brief(connection: Connection) -> bool:
    """Return whether a connection is brief so far."""
    return connection.datagrams_seen() < BRIEF


def _last_ns(flow: Flow, now_ns: int) -> int:
    """Return when a connection was last heard; one that has just begun counts as heard now."""
    return (flow.connection.last_ns if flow.connection else 0) or now_ns
