"""Flows that no protocol has yet: their packets are held, put to the protocols, and let go.

A flow that proves itself is claimed at once, one that does not when its sample is full or the
capture ends. What nobody claims is counted and looked at again, at growing intervals; what goes to
an endpoint known as a server is taken for what that server speaks.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import replace
from operator import attrgetter
from typing import Final

from netdissect.model.claims import Claim, Sample
from netdissect.model.packets import FlowKey, Packet, PacketKind, flow_ports, reverse_key
from netdissect.pipeline.handlers import DatagramHandler, Flow
from netdissect.pipeline.options import Options
from netdissect.pipeline.servers import Servers, awaits_roles, still_short, syn_side, with_handshake
from netdissect.pipeline.table import BRIEF, KEYS_A_FRAME, FlowTable
from netdissect.protocols.base import Protocol
from netdissect.protocols.claiming import SAMPLE_SIZES, best_claim, forced_claim, named, roles

__all__ = ["Recogniser", "UnknownFlow", "turned"]

MAX_SAMPLED = 20_000
"""Flows held for recognition at once; beyond, those idle longest are judged and let go."""
MAX_QUIET_SAMPLED = 256
"""Quiet flows (`FlowTable.quiet_since`) that are held; beyond, those quiet longest are judged and
forgotten, so that what comes on their ports later is looked at anew.
"""
MAX_OTHER = 20_000
"""Flows remembered as belonging to no protocol; beyond, the oldest are forgotten, and looked at
anew when they go on. More than a processor's caches hold would make each look slow.
"""
MAX_SAMPLE_OCTETS = 64 * 1024
"""Bytes held per flow for recognition."""
MAX_SAMPLED_OCTETS = 128 * 1024 * 1024
"""Memory of what is held for recognition, on the tables of all that share a capture: payloads, and
PACKET_OCTETS for each packet; beyond, the flows idle longest are judged and let go.
"""
PACKET_OCTETS: Final = 512
"""What a held packet takes besides its payload: its tuples and numbers, about."""
LOOK_AGAIN: Final = 256
"""Datagrams of a flow that nobody claimed after which it is looked at again; four times as many
after each further look.
"""
SAMPLE_PIECES: Final = 256
"""Pieces of stream held for recognition: a message can be cut into pieces of one byte."""
SAMPLE_PACKETS: Final = 1024
"""Segments held for recognition, those without data included."""
SAMPLE_OCTETS: Final = 128 * 1024
"""Bytes of stream held for recognition."""

_SAMPLE_DATAGRAMS: Final = max(SAMPLE_SIZES)
_PACKETS: Final = 4 * _SAMPLE_DATAGRAMS
"""Packets of a UDP flow, ICMP errors included."""
_UDP: Final = int(PacketKind.UDP)

Name = tuple[str, FlowKey]
"""Transport and key of either direction."""


class UnknownFlow(DatagramHandler):
    """Takes the datagrams of a flow that no protocol has claimed."""

    __slots__ = ("_key", "_left", "_looks", "_recogniser")

    def __init__(self, recogniser: Recogniser, key: FlowKey, looks: int) -> None:
        self._recogniser = recogniser
        self._key = key
        self._looks = looks
        self._left = LOOK_AGAIN << 2 * looks

    def take(self, frame: int, time_ns: int, payload: bytes) -> None:
        """Count one datagram; after enough of them those that follow are looked at."""
        del frame, payload
        self._recogniser.other_datagrams += 1
        self._left -= 1
        if not self._left:
            self._recogniser.look_again(self._key, self._looks + 1, time_ns)


class Recogniser:
    """Judges flows. What it claims it hands to `begin`, with the hints to start with and what the
    roles rest on; what belongs to nobody to `other`.
    """

    def __init__(
        self,
        options: Options,
        protocols: tuple[Protocol, ...],
        table: FlowTable,
        servers: Servers,
        *,
        begin: Callable[[Flow, str], None],
        alone: Callable[[str, int], None],
        other: Callable[[Packet], None] | None,
        hit: Callable[[str, int], None],
        unable: Callable[[Protocol, Exception], None],
        shares: int = 1,
    ) -> None:
        self.other_datagrams = 0
        """UDP datagrams of no known protocol."""
        self.servers = servers
        self._options = options
        self._protocols = protocols
        self._speaking: dict[str, list[tuple[Protocol, Callable[[bytes], bool]]]] = {
            transport: [
                (each, each.may_stand_alone) for each in protocols if transport in each.transports
            ]
            for transport in ("udp", "tcp")
        }
        """Transport -> the protocols over it, with what asks each about a flow of one packet."""
        self._table = table
        self._handlers = table.handlers
        """A stranger's place is there from its second packet on; a sampled flow has none."""
        self._begin = begin
        self._alone = alone
        self._other = other
        self._hit = hit
        self._unable = unable
        self._sampled: OrderedDict[Name, Flow] = OrderedDict()
        """Under the key of the first datagram, oldest first."""
        self._begins = None if options.others else options.begins
        self._awaited: dict[Name, int] = {}
        """Of these: first frame of each that will be a connection, where that is known."""
        self._lone: OrderedDict[Name, Packet] = OrderedDict()
        """Flows of one packet so far that no protocol knows alone, oldest first; while the table is
        flooded, those too that one does.
        """
        self._known_alone: dict[Name, str] = {}
        """Of these: the protocol."""
        self._others: OrderedDict[Name, bool] = OrderedDict()
        """Oldest first, under the key of each direction that was heard; False where what comes next
        is looked at anew. A plain dict leaves a gap
        for what is taken from its front, and the next look at its front walks over all of them.
        """
        self._octets = 0
        """Of MAX_SAMPLED_OCTETS."""
        self._most_octets = MAX_SAMPLED_OCTETS // shares
        self._looked_at = 0
        """Frame of the last look for quiet flows."""

    @property
    def oldest(self) -> int | None:
        """Return the oldest frame whose flow waits for recognition; None without any. Flows that
        will never be a connection count only where somebody is shown what belongs to nobody.
        """
        if self._begins is not None:
            return next(iter(self._awaited.values()), None)
        # Nothing is set aside where somebody asks for this.
        flow = next(iter(self._sampled.values()), None)
        return flow.packets[0][1][1] if flow is not None and flow.packets else None

    def sampled(self, name: Name, way: Name | None = None) -> Flow | None:
        """Return the flow of this name, in either direction, that waits for recognition.

        Args:
            name: of the flow.
            way: name of the other direction, where it is known.

        """
        way = way or turned(name)
        if self._sampled:
            flow = self._sampled.get(name) or self._sampled.get(way)
            if flow is not None:
                return flow
        first, lone = name, self._lone
        if name not in lone:
            if way not in lone:
                return None
            first = way
        packet = lone.pop(first)
        flow = self._sampled[first] = self._made(first, packet)
        flow.known_alone = self._known_alone.pop(first, None)
        return flow

    def is_other(self, name: Name, way: Name | None = None) -> bool:
        """Return whether a flow was judged and belongs to nobody; `way` as for `sampled`."""
        return name in self._others or (way or turned(name)) in self._others

    def stranger(self, name: Name, way: Name) -> DatagramHandler | None:
        """Return what takes this direction of a UDP flow that belongs to nobody, and from now on
        both (`way` is the other); None for any other flow. Of a flow of one packet nothing is made
        before.
        """
        others, key = self._others, name[1]
        if name not in others:
            if way not in others:
                return None
            key = way[1]
        if not others["udp", key]:
            return None
        others[name] = True
        found = self._handlers.get(key)
        if found is None:
            found = UnknownFlow(self, key, 0)
            self._handlers.put(key, found)
        self._handlers.put(name[1], found)
        return found

    def strays(self) -> list[FlowKey]:
        """Return the keys of the UDP flows that belong to nobody, of one direction or both."""
        return [key for transport, key in self._others if transport == "udp"]

    # -- samples -----------------------------------------------------------------------------------

    def new_flow(self, transport: str, key: FlowKey, time_ns: int, looks: int = 0) -> Flow:
        """Return a new flow that waits for recognition."""
        ports = flow_ports(key)
        found = None
        for rule in self._options.decode_as:
            if found is None and rule.transport == transport and rule.port in ports:
                found = rule
        flow = Flow(key, transport, ports, found, time_ns, looks)
        self._sampled[transport, key] = flow
        self._bound()
        return flow

    def set_aside(self, name: Name, packet: Packet, pieces: list[bytes]) -> bool:
        """Keep the first packet of a flow, and nothing else until a second one comes, where no
        protocol knows it alone, or the table is flooded with what one does: a flood is such flows.
        False where it is to be held as usual.
        """
        if self._other is not None or self._options.decode_as or len(pieces) > 1:
            return False
        transport, key = name
        able = self._able(transport, pieces[0]) if pieces else ()
        if able:
            sample, ports = [(0, packet[2], pieces[0])], flow_ports(key)
            if transport == "tcp":
                if self._best(able, sample, transport, ports, final=True) is not None:
                    return False
            else:
                claim = None
                if self._table.flooded:
                    # Most datagrams need no bonus for their ports, which takes longer.
                    claim = self._best(able, sample, transport, (0, 0), final=False)
                    claim = claim or self._best(able, sample, transport, ports, final=False)
                if claim is None:
                    return False
                self._known_alone[name] = claim.protocol
        self._octets += len(packet[4]) + PACKET_OCTETS
        self._lone[name] = packet
        self._bound()
        return True

    def _made(self, name: Name, packet: Packet) -> Flow:
        """Return the flow of a packet that was set aside; it is not on the table."""
        _, _, time_ns, key, payload, segment, _ = packet
        flow = Flow(key, name[0], flow_ports(key), None, time_ns, 0)
        flow.packets.append((0, packet))
        if segment is None:
            flow.sample.append((0, time_ns, payload))
        else:
            flow.ordinal = segment.connection
            flow.sample += [(0, time_ns, piece.data) for piece in segment.stream]
        flow.octets = len(payload)
        flow.alone = len(flow.sample)
        return flow

    def hold(self, flow: Flow, packet: Packet, pieces: list[bytes]) -> None:
        """Hold a packet of a flow that no protocol has claimed yet, and judge where that is due."""
        _, _, time_ns, key, _, _, _ = packet
        side = 0 if key == flow.key else 1
        flow.last_ns = time_ns
        flow.packets.append((side, packet))
        self._octets += PACKET_OCTETS
        if self._begins is not None and len(flow.packets) == 1:
            self._await(flow, packet[1], self._begins)
        for octets in pieces:
            flow.sample.append((side, time_ns, octets))
            flow.octets += len(octets)
            self._octets += len(octets)
        size = len(flow.sample)
        if flow.transport == "tcp":
            full = size >= SAMPLE_PIECES or flow.octets > SAMPLE_OCTETS
            full = full or len(flow.packets) >= SAMPLE_PACKETS
        else:
            full = size >= _SAMPLE_DATAGRAMS or flow.octets > MAX_SAMPLE_OCTETS
            full = full or len(flow.packets) >= _PACKETS
        due = size in SAMPLE_SIZES or not size % _SAMPLE_DATAGRAMS or len(pieces) > 1
        if (full or (pieces and due)) and not (full and self._may_show_roles(flow)):
            self.judge(flow, final=full)
        self._bound()

    def _may_show_roles(self, flow: Flow) -> bool:
        """Return whether a flow whose sample is full waits for what shows who is the client."""
        if still_short(flow) and not len(flow.sample) % _SAMPLE_DATAGRAMS:
            claim = self._claim(flow, final=True)
            flow.waits = claim is not None and awaits_roles(flow, claim, self._protocols)
        return flow.waits and still_short(flow)

    def _await(self, flow: Flow, frame: int, begins: array[int]) -> None:
        """Remember a flow whose first frame is that of a connection."""
        place = bisect_left(begins, frame)
        if place < len(begins) and begins[place] == frame:
            self._awaited[flow.transport, flow.key] = frame

    def hold_error(self, name: Name, packet: Packet) -> None:
        """Hold an ICMP error that quotes a datagram of a flow that waits."""
        flow = self.sampled(name)
        if flow is not None and len(flow.packets) < _PACKETS:
            flow.packets.append((0 if packet[3] == flow.key else 1, packet))
            self._octets += PACKET_OCTETS

    # -- judging -----------------------------------------------------------------------------------

    def judge(self, flow: Flow, *, final: bool) -> None:
        """Put the sample to the protocols; claim the flow, or let it go where it is `final`."""
        few = self._is_one_of_too_many(flow)
        if few and (not final or self._is_counted(flow)):
            return
        claim = self._claim(flow, final=final)
        if claim is None and not final:
            return
        if claim is None:
            claim = self.servers.weak(flow)
        self._take_off(flow)
        if claim is None:
            self._let_go(flow)
        elif few:
            self._count_only(flow, claim.protocol)
        else:
            self._begin(flow, self._settle(flow, claim))

    def _is_one_of_too_many(self, flow: Flow) -> bool:
        """Return whether a flow, as few of its packets as there are, is to be counted only."""
        return self._table.flooded and self._other is None and len(flow.sample) < BRIEF

    def _is_counted(self, flow: Flow) -> bool:
        """Count one of too many whose first packet or server is known, and ask nobody."""
        protocol = flow.known_alone
        if protocol is None and flow.transport == "udp":
            likely = self.servers.likely(flow)
            protocol = None if likely is None else likely.name
        if protocol is None:
            return False
        self._take_off(flow)
        self._count_only(flow, protocol)
        return True

    def _count_only(self, flow: Flow, protocol: str) -> None:
        self._alone(protocol, sum(p[0] == _UDP or bool(p[4]) for _, p in flow.packets))

    def finish(self) -> None:
        """Judge everything that is left. Claimed flows begin in the order of their first frames,
        those to known servers among them.
        """
        claimed: list[tuple[Flow, str]] = []
        silent: list[Flow] = []
        for flow in list(self._sampled.values()):
            few = self._is_one_of_too_many(flow)
            if few and self._is_counted(flow):
                continue
            claim = self._claim(flow, final=True)
            self._take_off(flow)
            if claim is None:
                silent.append(flow)
            elif few:
                self._count_only(flow, claim.protocol)
            else:
                claimed.append((flow, self._settle(flow, claim)))
        while self._lone:
            left = self._left_alone(*self._lone.popitem(last=False))
            if left is not None:
                silent.append(left)
        for flow in silent:
            claim = self.servers.weak(flow)
            if claim is None:
                self._let_go(flow)
            else:
                claimed.append((flow, self._settle(flow, claim)))
        for flow, roles_from in sorted(claimed, key=lambda pair: pair[0].first_held):
            self._begin(flow, roles_from)

    def _claim(self, flow: Flow, *, final: bool) -> Claim | None:
        """Return what the sample proves."""
        if flow.rule is not None:
            claim = forced_claim(flow.rule, flow.sample, flow.ports, final=final)
        elif flow.alone == len(flow.sample):
            return None
        else:
            likely = None if final else self.servers.likely(flow)
            asked = self._protocols if likely is None else (likely,)
            if len(flow.sample) == 1:
                able = self._able(flow.transport, flow.sample[0][2])
                asked = tuple(each for each in asked if each in able)
                flow.alone = 1 if likely is None and not asked else 0
            done = flow.alone == len(flow.sample)
            claim = None
            if not done:
                claim = self._best(asked, flow.sample, flow.transport, flow.ports, final=final)
        if claim is None or flow.transport != "tcp":
            return claim
        if claim.late and flow.rule is None and syn_side(flow) is not None:
            return None
        return with_handshake(claim, flow) if claim.client is None else claim

    def _best(
        self, protocols: tuple[Protocol, ...], sample: list[Sample], transport: str,
        ports: tuple[int, int], *, final: bool,
    ) -> Claim | None:  # fmt: skip
        fault = self._unable
        return best_claim(protocols, sample, transport, ports, final=final, on_fault=fault)

    def _able(self, transport: str, payload: bytes) -> tuple[Protocol, ...]:
        """Return those that a datagram or a piece of stream may prove alone, and those that cannot
        tell.
        """
        found = []
        for protocol, may_stand_alone in self._speaking[transport]:
            try:
                if not may_stand_alone(payload):
                    continue
            except Exception as bug:  # noqa: BLE001 - the others may still know the flow
                self._unable(protocol, bug)
                continue
            found.append(protocol)
        return tuple(found)

    def _settle(self, flow: Flow, claim: Claim) -> str:
        """Make a flow that of a protocol; return what the roles rest on."""
        dialect = self._options.dialects.get(claim.protocol)
        if dialect is not None:
            reasons = (*claim.reasons, f"dialect {dialect} was asked for")
            claim = named(replace(claim, reasons=reasons), dialect)
        flow.claim = claim
        mine = self._protocols if flow.rule is None else (flow.rule.protocol,)
        claimer = next(protocol for protocol in mine if protocol.name == claim.protocol)
        flow.protocol = claimer.over(flow.transport)
        flow.client, roles_from = roles(claim, flow.protocol, flow.ports)
        for way in (flow.key, reverse_key(flow.key)):
            self._others.pop((flow.transport, way), None)
        if self.servers.learn(flow, roles_from):
            self._hit("MAX_SERVERS", 1)
        return roles_from

    # -- letting go --------------------------------------------------------------------------------

    def _take_off(self, flow: Flow) -> None:
        self._octets -= flow.octets + PACKET_OCTETS * len(flow.packets)
        flow.octets = 0
        self._sampled.pop((flow.transport, flow.key), None)
        self._awaited.pop((flow.transport, flow.key), None)

    def _let_go(self, flow: Flow) -> None:
        """Remember that a flow belongs to no protocol."""
        for _, packet in flow.packets:
            if packet[0] == _UDP:
                self.other_datagrams += 1
            if self._other is not None:
                self._other(packet)
        flow.packets, flow.sample = [], []
        if flow.transport == "udp":
            self._handlers.put(flow.key, UnknownFlow(self, flow.key, flow.looks))
        self._disown((flow.transport, flow.key))

    def _left_alone(self, name: Name, packet: Packet) -> Flow | None:
        """Count a packet that was set aside and stayed alone; return its flow instead where that
        is to be judged by its server.
        """
        protocol = self._known_alone.pop(name, None) if self._known_alone else None
        if protocol is None and self.servers.recalls(name[0], name[1]):
            flow = self._made(name, packet)
            claim = self.servers.weak(flow) if self._table.flooded else None
            if claim is None:
                return flow
            protocol = claim.protocol
        self._octets -= len(packet[4]) + PACKET_OCTETS
        udp = packet[0] == _UDP
        if protocol is not None:
            self._alone(protocol, 1 if udp or packet[4] else 0)
        else:
            self.other_datagrams += udp
            self._disown(name)
        return None

    def _disown(self, name: Name) -> None:
        """Take a flow for one of nobody; forget the oldest of those where there are too many."""
        others = self._others
        others[name] = True
        while len(others) > 2 * MAX_OTHER:
            self._hit("MAX_OTHER", 1)
            (transport, key), _ = others.popitem(last=False)
            if transport == "udp":
                self._handlers.drop(key)

    def look_again(self, key: FlowKey, looks: int, time_ns: int) -> None:
        """Hold what comes next of a flow that nobody claimed."""
        for way in (key, reverse_key(key)):
            self._handlers.drop(way)
            self._others.pop(("udp", way), None)
        self.new_flow("udp", key, time_ns, looks)

    def forget_quiet(self, frame: int) -> None:
        """Let the flows go that have been quiet longest, where too many are quiet."""
        waiting = len(self._sampled) + len(self._lone)
        if waiting <= MAX_QUIET_SAMPLED or frame - self._looked_at < waiting // KEYS_A_FRAME:
            return
        self._looked_at = frame
        since = self._table.quiet_since
        quiet = -MAX_QUIET_SAMPLED
        for flow in self._sampled.values():
            quiet += flow.last_ns < since
        for packet in self._lone.values():
            quiet += packet[2] < since
        for name in self._evict("MAX_QUIET_SAMPLED", quiet):
            if name[0] == "udp" and name in self._others:
                self._handlers.drop(name[1])
                if self.servers.partial:
                    self._others[name] = False
                else:
                    del self._others[name]

    def _bound(self) -> None:
        """Let flows go where too many wait, or too many bytes of theirs."""
        waiting = len(self._sampled) + len(self._lone)
        many = waiting > MAX_SAMPLED
        if many or self._octets > self._most_octets:
            self._evict("MAX_SAMPLED" if many else "MAX_SAMPLED_OCTETS", max(1, waiting // 10))

    def _evict(self, limit: str, count: int) -> list[Name]:
        """Judge so many of the sampled flows, those idle longest, and let them go; return their
        names.
        """
        if count <= 0:
            return []
        names = []
        flows = sorted(self._sampled.values(), key=_last_ns)
        at = 0
        self._hit(limit, count)
        for _ in range(count):
            if at < len(flows):
                packet = next(iter(self._lone.values()), None)
                if packet is None or flows[at].last_ns < packet[2]:
                    names.append((flows[at].transport, flows[at].key))
                    self.judge(flows[at], final=True)
                    at += 1
                    continue
            name, packet = self._lone.popitem(last=False)
            names.append(name)
            left = self._left_alone(name, packet)
            if left is not None:
                self.judge(left, final=True)
        return names


_last_ns: Final = attrgetter("last_ns")


def turned(name: Name) -> Name:
    """Return the name of the other direction."""
    return name[0], reverse_key(name[1])
