"""Recognition of flows: their packets are held and shown to the protocols until one claims them.

A flow is judged while its sample grows, and finally when the sample is full or the capture ends. A
flow that no protocol claims is counted as unknown, and judged again later, at growing intervals. A
flow to a known server that proves nothing itself is taken for the protocol of that server.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import replace
from itertools import islice
from operator import attrgetter
from typing import Final

from netdissect.model.claims import STRONG, Claim, Sample
from netdissect.model.native import i64
from netdissect.model.packets import FlowKey, Packet, PacketKind, flow_ports, reverse_key
from netdissect.pipeline.aside import LonePacket
from netdissect.pipeline.handlers import DatagramHandler, Flow, Name, is_udp
from netdissect.pipeline.options import LateClaim, Options
from netdissect.pipeline.servers import Servers, awaits_more, still_short, syn_side, with_handshake
from netdissect.pipeline.table import BRIEF, KEYS_A_FRAME, FlowTable
from netdissect.protocols.base import Protocol
from netdissect.protocols.claiming import SAMPLE_SIZES, best_claim, forced_claim, named, roles

MAX_SAMPLED = 20_000
"""Flows held for recognition at once. Beyond that, those idle longest are judged and released."""
MAX_QUIET_SAMPLED = 256
"""Quiet flows (`FlowTable.quiet_since`) that are held. Beyond that, those quiet longest are judged
and forgotten, so that later packets between the same ports are judged afresh.
"""
MAX_OTHER = 20_000
"""Flows remembered as unknown. Beyond that, the oldest are forgotten, and judged afresh if they
continue. A larger table would not fit into the processor's caches.
"""
MAX_SAMPLE_OCTETS = 64 * 1024
"""Bytes of one UDP flow held for recognition."""
MAX_SAMPLED_OCTETS = 128 * 1024 * 1024
"""Memory of all packets held for recognition, by all processes that share a capture: payloads, and
PACKET_OCTETS for each packet. Beyond that, the flows idle longest are judged and released.
"""
PACKET_OCTETS: Final = 512
"""Estimated memory of a held packet without its payload."""
LOOK_AGAIN: Final = 256
"""Datagrams after which an unknown flow is judged again; four times as many after each time."""
SAMPLE_PIECES: Final = 256
"""Pieces of a TCP stream held for recognition: a message may come in pieces of one byte."""
SAMPLE_PACKETS: Final = 1024
"""Segments of a TCP flow held for recognition, including those without data."""
SAMPLE_OCTETS: Final = 128 * 1024
"""Bytes of a TCP stream held for recognition."""

_SAMPLE_DATAGRAMS: Final = max(SAMPLE_SIZES)
"""Datagrams of a UDP flow held for recognition."""
_PACKETS: Final = 4 * _SAMPLE_DATAGRAMS
"""Packets of a UDP flow held for recognition, including ICMP errors."""
_UDP: Final = int(PacketKind.UDP)


class UnknownFlow(DatagramHandler):
    """Counts the datagrams of a flow that no protocol has claimed."""

    __slots__ = ("_key", "_left", "_looks", "_recogniser")

    def __init__(self, recogniser: Recogniser, key: FlowKey, looks: int) -> None:
        self._recogniser = recogniser
        self._key = key
        self._looks = looks
        # Four times as long after each look, so that a long unknown flow costs little.
        self._left = LOOK_AGAIN << 2 * looks

    def take(self, frame: i64, time_ns: i64, payload: bytes) -> None:
        """Count one datagram; after LOOK_AGAIN of them, have the flow judged again."""
        del frame, payload
        self._recogniser.other_datagrams += 1
        self._left -= 1
        if not self._left:
            self._recogniser.look_again(self._key, self._looks + 1, time_ns)


class Recogniser:
    """Holds the packets of flows until a protocol claims them, or none does."""

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
        """Create a recogniser. It calls `begin` with a claimed flow and the basis of its roles,
        `alone` with protocol and datagrams of a flow that is only counted, `other` with each packet
        of an unknown flow, `hit` with a bound and how often it was hit, and `unable` with a
        protocol and the exception that it has raised.
        """
        self.other_datagrams = 0
        """UDP datagrams of unknown protocols."""
        self.most = 0
        """Flows that have waited at once."""
        self.servers = servers
        self._options = options
        self._protocols = protocols
        self._speaking: dict[str, list[tuple[Protocol, Callable[[bytes], bool]]]] = {
            transport: [
                (each, each.may_stand_alone) for each in protocols if transport in each.transports
            ]
            for transport in ("udp", "tcp")
        }
        """Transport -> (protocol, its `may_stand_alone`) for each protocol over it."""
        self._table = table
        self._handlers = table.handlers
        """Here it has the handlers of unknown flows of which a second packet was seen."""
        self._begin = begin
        self._alone = alone
        self._other = other
        self._hit = hit
        self._unable = unable
        self._sampled: OrderedDict[Name, Flow] = OrderedDict()
        """Flows that wait for recognition under the key of their first packet, oldest first."""
        self._knows_begins = options.begins is not None and not options.others
        self._known_late = options.late
        self.late: dict[int, LateClaim] = {}  # for `Options.late`
        self._awaited: dict[Name, int] = {}
        """First frames of those that will be a connection, if a first pass has found them."""
        self._lone: dict[Name, LonePacket] = {}
        """Flows that have had a single packet which alone proves no protocol, oldest first. During
        a flood also those whose packet does.
        """
        self._known_alone: dict[Name, str] = {}
        """The protocols of the latter."""
        self._others: dict[Name, bool] = {}
        """Unknown flows, oldest first, under the key of each direction that was seen; False if the
        next packet is to be judged afresh.
        """
        self._octets = 0
        """Memory as limited by MAX_SAMPLED_OCTETS."""
        self._most_octets = MAX_SAMPLED_OCTETS // shares
        self._looked_at = 0
        """Frame of the last search for quiet flows."""

    @property
    def oldest(self) -> int | None:
        """Return the oldest frame whose flow waits for recognition; None without any. A flow that
        will never be a connection only counts if packets of unknown protocols are shown.
        """
        for frame in self._awaited.values():
            return frame
        if not self._knows_begins:
            for flow in self._sampled.values():  # without `_lone`: see `set_aside`
                return flow.packets[0][1][1] if flow.packets else None
        return None

    def sampled(self, name: Name, way: Name | None = None) -> Flow | None:
        """Return the flow that waits for recognition and has this name in either direction; None
        without one. `way` is the name of the other direction, if the caller has it.
        """
        way = way or reverse_key(name)
        if self._sampled:
            flow = self._sampled.get(name) or self._sampled.get(way)
            if flow is not None:
                return flow
        first, lone = name, self._lone
        if name not in lone:
            if way not in lone:
                return None
            first = way
        flow = self._sampled[first] = self._made(lone.pop(first))
        flow.known_alone = self._known_alone.pop(first, None)
        return flow

    def is_other(self, name: Name, way: Name | None = None) -> bool:
        """Return whether a flow was judged and is unknown; the arguments are those of `sampled`."""
        return name in self._others or (way or reverse_key(name)) in self._others

    def stranger(self, name: Name, way: Name) -> DatagramHandler | None:
        """Return the handler of an unknown UDP flow, and set it for this direction (`way` is the
        other one); None for any other flow. It is created when the second packet comes.
        """
        others, key = self._others, name
        if name not in others:
            if way not in others:
                return None
            key = way
        if not others[key]:
            return None
        others[name] = True
        found = self._handlers.get(key)
        if found is None:
            found = UnknownFlow(self, key, 0)
            self._handlers.put(key, found)
        self._handlers.put(name, found)
        return found

    def strays(self) -> list[FlowKey]:
        """Return the keys of the unknown UDP flows, in the directions that were seen."""
        return [name for name in self._others if is_udp(name)]

    # -- samples -----------------------------------------------------------------------------------

    def new_flow(self, transport: str, key: FlowKey, time_ns: int, looks: int = 0) -> Flow:
        """Return a new flow that waits for recognition."""
        ports = flow_ports(key)
        found = None
        for rule in self._options.decode_as:
            if found is None and rule.transport == transport and rule.port in ports:
                found = rule
        flow = Flow(key, transport, ports, found, time_ns, looks)
        self._sampled[flow.name] = flow
        self._bound()
        return flow

    def set_aside(self, name: Name, packet: LonePacket, pieces: list[bytes]) -> bool:
        """Keep only the first packet of a flow until a second one comes, if it alone proves no
        protocol, or during a flood. This makes floods cheap, which consist of such flows.

        Returns:
            False if the packet was not kept and has to be held as usual.

        """
        if self._other is not None or self._options.decode_as or len(pieces) > 1:
            return False
        transport = "udp" if packet.segment is None else "tcp"
        able = self._able(transport, pieces[0]) if pieces else ()
        if able:
            sample, ports = [(0, int(packet.time_ns), pieces[0])], flow_ports(name)
            if transport == "tcp":
                if self._best(able, sample, transport, ports, final=True) is not None:
                    return False
            else:
                claim = None
                if self._table.flooded:
                    # First without ports, which is faster and suffices for most datagrams.
                    claim = self._best(able, sample, transport, (0, 0), final=False)
                    claim = claim or self._best(able, sample, transport, ports, final=False)
                if claim is None:
                    return False
                self._known_alone[name] = claim.protocol
        self._octets += len(packet.payload) + PACKET_OCTETS
        self._lone[name] = packet
        self._bound()
        return True

    def _made(self, packet: LonePacket) -> Flow:
        """Return a new flow with a packet that was set aside."""
        key, time_ns, segment = packet.key, int(packet.time_ns), packet.segment
        transport = "udp" if segment is None else "tcp"
        flow = Flow(key, transport, flow_ports(key), None, time_ns, 0)
        flow.packets.append((0, packet.packet()))
        if segment is None:
            flow.sample.append((0, time_ns, packet.payload))
        else:
            flow.ordinal = segment.connection
            flow.sample += [(0, time_ns, piece.data) for piece in segment.stream]
        flow.octets = len(packet.payload)
        flow.alone = len(flow.sample)
        return flow

    def hold(self, flow: Flow, packet: Packet, pieces: list[bytes]) -> None:
        """Hold a packet of a flow that waits for recognition; judge the flow when that is due."""
        _, _, time_ns, key, _, _, _ = packet
        side = 0 if key == flow.key else 1
        flow.last_ns = time_ns
        flow.packets.append((side, packet))
        self._octets += PACKET_OCTETS
        if self._knows_begins and len(flow.packets) == 1 and self._options.may_begin(packet[1]):
            self._awaited[flow.name] = packet[1]
        for octets in pieces:
            flow.sample.append((side, time_ns, octets))
            flow.octets += len(octets)
            self._octets += len(octets)
        late = self._known_late.get(flow.first_held) if self._known_late else None
        if late is not None and late[0] == len(flow.packets):
            self._take_off(flow)
            self._begin(flow, self.settle(flow, late[1]))
            return
        size = len(flow.sample)
        if flow.transport == "tcp":
            full = size >= SAMPLE_PIECES or flow.octets > SAMPLE_OCTETS
            full = full or len(flow.packets) >= SAMPLE_PACKETS
        else:
            full = size >= _SAMPLE_DATAGRAMS or flow.octets > MAX_SAMPLE_OCTETS
            full = full or len(flow.packets) >= _PACKETS
        due = size in SAMPLE_SIZES or not size % _SAMPLE_DATAGRAMS or len(pieces) > 1
        if (full or (pieces and due)) and not (full and self._may_show_more(flow)):
            self.judge(flow, final=full)
        self._bound()

    def _may_show_more(self, flow: Flow) -> bool:
        """Return whether a flow with a full sample waits on to find out more (`awaits_more`)."""
        if still_short(flow) and not len(flow.sample) % _SAMPLE_DATAGRAMS:
            claim = self._claim(flow, final=True, least=1)
            flow.waits = claim is not None and awaits_more(flow, claim, self._protocols)
        return flow.waits and still_short(flow)

    def hold_error(self, name: Name, packet: Packet) -> None:
        """Hold an ICMP error that quotes a packet of a flow that waits."""
        flow = self.sampled(name)
        if flow is not None and len(flow.packets) < _PACKETS:
            flow.packets.append((0 if packet[3] == flow.key else 1, packet))
            self._octets += PACKET_OCTETS

    # -- judging -----------------------------------------------------------------------------------

    def judge(self, flow: Flow, *, final: bool) -> None:
        """Show the sample to the protocols. If none claims the flow and the judgement is `final`,
        the flow is unknown.
        """
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
            self._begin(flow, self.settle(flow, claim))

    def _is_one_of_too_many(self, flow: Flow) -> bool:
        """Return whether a flow has so few packets that during a flood it is only counted."""
        return self._table.flooded and self._other is None and len(flow.sample) < BRIEF

    def _is_counted(self, flow: Flow) -> bool:
        """Count a flow without asking the protocols, if its first packet or server is known."""
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
        self._alone(protocol, sum(p[0] == _UDP or bool(p[5] and p[4]) for _, p in flow.packets))

    def finish(self) -> None:
        """Judge all remaining flows. Claimed ones begin in the order of their first frames."""
        claimed: list[tuple[Flow, Claim, str]] = []
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
                claimed.append((flow, claim, self.settle(flow, claim)))
        for name, packet in self._lone.items():
            left = self._left_alone(name, packet)
            if left is not None:
                silent.append(left)
        self._lone.clear()
        # After all others, whose servers are known only now.
        for flow in silent:
            claim = self.servers.weak(flow)
            if claim is None:
                self._let_go(flow)
            else:
                claimed.append((flow, claim, self.settle(flow, claim)))
        for flow, claim, roles_from in sorted(claimed, key=lambda row: row[0].first_held):
            self.late[flow.first_held] = len(flow.packets), claim
            self._begin(flow, roles_from)

    def _claim(self, flow: Flow, *, final: bool, least: int = STRONG) -> Claim | None:
        """Return what the sample proves, with at least that score."""
        if flow.rule is not None:
            claim = forced_claim(flow.rule, flow.sample, flow.ports, final=final)
        # Nothing has come since the first packet, which proves nothing alone.
        elif flow.alone == len(flow.sample):
            return None
        else:
            likely = None if final else self.servers.likely(flow)
            asked = self._protocols if likely is None else (likely,)
            if len(flow.sample) == 1:
                able = self._able(flow.transport, flow.sample[0][2])
                asked = tuple(each for each in asked if each in able)
                flow.alone = 1 if likely is None and not asked else 0
            claim, sample, ports = None, flow.sample, flow.ports
            if flow.alone != len(sample):
                claim = self._best(asked, sample, flow.transport, ports, final=final, least=least)
        if claim is None or flow.transport != "tcp":
            return claim
        # A claim that joins in the middle contradicts a captured SYN.
        if claim.late and flow.rule is None and syn_side(flow) is not None:
            return None
        return with_handshake(claim, flow) if claim.client is None else claim

    def _best(
        self, protocols: tuple[Protocol, ...], sample: list[Sample], transport: str,
        ports: tuple[int, int], *, final: bool, least: int = STRONG,
    ) -> Claim | None:  # fmt: skip
        return best_claim(
            protocols, sample, transport, ports, final=final, on_fault=self._unable, least=least
        )

    def _able(self, transport: str, payload: bytes) -> tuple[Protocol, ...]:
        """Return the protocols that a single datagram or piece of stream may prove."""
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

    def settle(self, flow: Flow, claim: Claim) -> str:
        """Assign a flow to the protocol that claims it; return the basis of its roles."""
        dialect = self._options.dialects.get(claim.protocol)
        if dialect is not None:
            reasons = (*claim.reasons, f"dialect {dialect} was asked for")
            claim = named(replace(claim, reasons=reasons), dialect)
        flow.claim = claim
        flow.trusted = max([packet[1] for _, packet in flow.packets])
        mine = self._protocols if flow.rule is None else (flow.rule.protocol,)
        claimer = next(protocol for protocol in mine if protocol.name == claim.protocol)
        flow.protocol = claimer.over(flow.transport)
        flow.client, roles_from = roles(claim, flow.protocol, flow.ports)
        for way in (flow.name, reverse_key(flow.name)):
            self._others.pop(way, None)
        if self.servers.learn(flow, roles_from):
            self._hit("MAX_SERVERS", 1)
        return roles_from

    # -- releasing ---------------------------------------------------------------------------------

    def _take_off(self, flow: Flow) -> None:
        self._octets -= flow.octets + PACKET_OCTETS * len(flow.packets)
        flow.octets = 0
        self._sampled.pop(flow.name, None)
        self._awaited.pop(flow.name, None)

    def _let_go(self, flow: Flow) -> None:
        """Release the packets of a flow that no protocol has claimed."""
        for _, packet in flow.packets:
            if packet[0] == _UDP:
                self.other_datagrams += 1
            if self._other is not None:
                self._other(packet)
        flow.packets, flow.sample = [], []
        if flow.transport == "udp":
            self._handlers.put(flow.key, UnknownFlow(self, flow.key, flow.looks))
        self._disown(flow.name)

    def _left_alone(self, name: Name, packet: LonePacket) -> Flow | None:
        """Count a packet that was set aside and not followed by another one. If it goes to a known
        server, return its flow instead, which then has to be judged.
        """
        protocol = self._known_alone.pop(name, None) if self._known_alone else None
        if protocol is None and self.servers.recalls(name):
            flow = self._made(packet)
            claim = self.servers.weak(flow) if self._table.flooded else None
            if claim is None:
                return flow
            protocol = claim.protocol
        self._octets -= len(packet.payload) + PACKET_OCTETS
        if protocol is not None:
            self._alone(protocol, int(packet.counts()))
        else:
            self.other_datagrams += packet.segment is None
            self._disown(name)
        return None

    def _disown(self, name: Name) -> None:
        """Remember a flow as unknown; forget the oldest ones if there are too many."""
        others = self._others
        others[name] = True
        if len(others) > 2 * MAX_OTHER:
            # Many at once: the first item of a dict is found after the places of those removed.
            count = max(1, MAX_OTHER // 10)
            self._hit("MAX_OTHER", count)
            for old in list(islice(others, count)):
                del others[old]
                if is_udp(old):
                    self._handlers.drop(old)

    def look_again(self, key: FlowKey, looks: int, time_ns: int) -> None:
        """Hold the next packets of an unknown flow for recognition."""
        for way in (key, reverse_key(key)):
            self._handlers.drop(way)
            self._others.pop(way, None)
        self.new_flow("udp", key, time_ns, looks)

    def forget_quiet(self, frame: int) -> None:
        """Judge and forget the flows that have been quiet longest, if too many are quiet."""
        waiting = len(self._sampled) + len(self._lone)
        if waiting <= MAX_QUIET_SAMPLED or frame - self._looked_at < waiting // KEYS_A_FRAME:
            return
        self._looked_at = frame
        since = self._table.quiet_since
        quiet = -MAX_QUIET_SAMPLED
        for flow in self._sampled.values():
            quiet += flow.last_ns < since
        for packet in self._lone.values():
            quiet += packet.time_ns < since
        for name in self._evict("MAX_QUIET_SAMPLED", quiet):
            if is_udp(name) and name in self._others:
                self._handlers.drop(name)
                if self.servers.partial:
                    self._others[name] = False
                else:
                    del self._others[name]

    def _bound(self) -> None:
        """Judge and release flows if too many flows or bytes are held."""
        waiting = len(self._sampled) + len(self._lone)
        self.most = max(self.most, waiting)
        many = waiting > MAX_SAMPLED
        if many or self._octets > self._most_octets:
            self._evict("MAX_SAMPLED" if many else "MAX_SAMPLED_OCTETS", max(1, waiting // 10))

    def _evict(self, limit: str, count: int) -> list[Name]:
        """Judge and release the `count` flows that have been idle longest; return their names."""
        if count <= 0:
            return []
        names: list[Name] = []
        flows = sorted(self._sampled.values(), key=_last_ns)
        self._hit(limit, count)
        at = 0
        for name, packet in list(islice(self._lone.items(), count)):
            while at < len(flows) and flows[at].last_ns < packet.time_ns and len(names) < count:
                names.append(flows[at].name)
                self.judge(flows[at], final=True)
                at += 1
            if len(names) == count:
                return names
            names.append(name)
            del self._lone[name]
            left = self._left_alone(name, packet)
            if left is not None:
                self.judge(left, final=True)
        for flow in flows[at : at + count - len(names)]:
            names.append(flow.name)
            self.judge(flow, final=True)
        return names


_last_ns: Final = attrgetter("last_ns")
