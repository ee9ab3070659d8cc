"""Claimed flows whose next datagrams may belong to another conversation between the same ports.

A flow is in doubt when its protocol cannot read a datagram, and when a datagram comes although both
sides have given the connection up. Its datagrams are then held until they show what they are: they
continue the present connection, begin another one of its protocol, or prove another protocol.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from netdissect.model.claims import Claim, Hints, Sample
from netdissect.model.events import Ev, Event
from netdissect.model.packets import Packet, flow_ports
from netdissect.model.reports import EndHint
from netdissect.pipeline.handlers import Flow, is_malformed
from netdissect.pipeline.options import Options
from netdissect.pipeline.table import NEVER_ENDS_NS, FlowTable, given_up
from netdissect.protocols.base import Protocol
from netdissect.protocols.claiming import best_claim
from netdissect.track.connection import Connection

MAX_DOUBTED = 256
"""Flows in doubt at once. Beyond that, further flows are not doubted."""
MAX_DOUBTED_OCTETS: Final = 64 * 1024
"""Bytes held of one flow."""
LEAST: Final = 3
"""Datagrams that another protocol has to prove."""
LOOKS: Final = frozenset({LEAST, 8, 24, 64})
"""Numbers of datagrams held at which all protocols are asked. They are few, as damaged datagrams
would otherwise cost more than ten times as much as others.
"""
LEAST_MALFORMED: Final = 2
"""How many of them the present protocol cannot read, unless the connection was given up."""
LOOK_AGAIN: Final = 64
"""Datagrams of a connection that are not doubted after a full sample has proved nothing; four
times as many after each time.
"""
NEAR: Final = 16
"""A number at most this far from the newest one continues the numbers of a connection."""
NEXT: Final = 4
"""In a malformed datagram, only a number that is at most this far ahead does."""
FAR: Final = 1 << 30
"""So does any number ahead in a datagram that could also begin a connection."""
_NUMBERS: Final = {
    Ev.UNIT: (2, 3), Ev.PLAIN_UNIT: (2, 3), Ev.NUMBERED: (2, 3), Ev.NUMBER: (1, 2),
    Ev.ACK: (1, 2), Ev.NACK: (1, 2), Ev.RUN: (1, 2),
}  # fmt: skip
"""Kind of event -> indices of its space and its number."""
_ACKS: Final = (Ev.ACK, Ev.NACK)

_NOTHING: Final = 0
_SAME: Final = 1
_ANOTHER: Final = 2
"""What a datagram shows: it belongs to the present connection, or begins another one."""


class Doubt:
    """The datagrams held of one flow."""

    def __init__(self, flow: Flow) -> None:
        self.flow = flow
        self.key = b""
        """Key of the first datagram, whose sender is endpoint 0 of `sample`."""
        self.packets: list[Packet] = []
        self.sample: list[Sample] = []
        self.malformed = 0
        """Datagrams that the protocol of the flow cannot read."""
        self.octets = 0


class Doubts:
    """Holds the datagrams of flows in doubt, and decides what they are."""

    def __init__(
        self,
        options: Options,
        protocols: tuple[Protocol, ...],
        table: FlowTable,
        malformed: frozenset[str],
        *,
        feed: Callable[[Packet], None],
        renew: Callable[[Flow, int, int, Hints | None], None],
        replaced: Callable[[Flow, Flow, Claim], None],
        unable: Callable[[Protocol, Exception], None],
        hit: Callable[[str], None],
    ) -> None:
        """Create it. `malformed` are the codes of findings about what cannot be read. It calls
        `feed` with each packet that continues the present connection, `renew` for another
        connection of the same protocol, `replaced` with a flow, the one that takes its place, and
        the claim on that, `unable` with a protocol and the exception that it has raised, and `hit`
        with the name of a bound.
        """
        self._options = options
        self._protocols = protocols
        self._table = table
        self._malformed = malformed
        self._feed = feed
        self._renew = renew
        self._replaced = replaced
        self._unable = unable
        self._hit = hit
        self._held: dict[Flow, Doubt] = {}
        """Flows in doubt, longest first."""
        self._over = False
        """Whether no further packets come."""

    def __bool__(self) -> bool:
        return bool(self._held)

    def older(self, frame: int | None) -> int | None:
        """Return a frame, or the oldest one that is held if that is older."""
        for doubt in self._held.values():
            held = doubt.packets[0][1]
            return held if frame is None else min(held, frame)
        return frame

    def may_begin(self, flow: Flow, frame: int) -> bool:
        """Return whether a flow may be doubted from a frame on."""
        connection = flow.connection
        if self._over or connection is None or connection.forced or flow.rule is not None:
            return False
        if not self._options.may_begin(frame):
            return False
        if len(self._held) < MAX_DOUBTED:
            return True
        self._hit("MAX_DOUBTED")
        return False

    def malformed(self, flow: Flow, packet: Packet, direction: int, events: list[Event]) -> bool:
        """Process a datagram that its protocol cannot read; return whether it is held."""
        connection = flow.connection
        # It was held already, and the flow kept it.
        if packet[1] <= flow.trusted or connection is None:
            return False
        if connection.datagrams_seen() < flow.doubted_from or not self.may_begin(flow, packet[1]):
            return False
        if _continues(connection, direction, events, NEXT):
            return False
        self._table.drop_handlers(flow)
        self.hold(flow, packet)
        return True

    def hold(self, flow: Flow, packet: Packet) -> None:
        """Process a datagram of a flow that has no handlers."""
        _, frame, time_ns, key, payload, _, _ = packet
        connection, protocol = flow.connection, flow.protocol
        if connection is None or protocol is None:
            return
        doubt = self._held.get(flow)
        if doubt is None:
            doubt = Doubt(flow)
            doubt.key = key
            if not self.may_begin(flow, frame):
                self._release(doubt, packet)
                return
        direction = (0 if key == flow.key else 1) ^ flow.client
        try:
            verdict = self._weigh(doubt, packet, connection, protocol, direction)
        except Exception:  # noqa: BLE001 - the handler will report it
            verdict = _SAME
        if verdict == _SAME:
            self._release(doubt, packet)
            return
        if verdict == _ANOTHER:
            self._restore(doubt)
            connection.end_hint = EndHint("superseded", direction, frame, time_ns)
            self._renew(flow, frame, time_ns, None)
            self._feed(packet)
            return
        self._held[flow] = doubt
        doubt.packets.append(packet)
        doubt.sample.append((0 if key == doubt.key else 1, time_ns, payload))
        doubt.octets += len(payload)
        size = len(doubt.sample)
        full = size >= max(LOOKS) or doubt.octets > MAX_DOUBTED_OCTETS
        if full or size in LOOKS:
            self._judge(doubt, final=full)

    def _weigh(
        self,
        doubt: Doubt,
        packet: Packet,
        connection: Connection,
        protocol: Protocol,
        direction: int,
    ) -> int:
        """Return what a datagram shows alone: _SAME, _ANOTHER or _NOTHING."""
        _, _, time_ns, _, payload, _, faults = packet
        # A truncated datagram proves nothing, not even that its protocol cannot read it.
        if faults:
            return _SAME
        events = protocol.scan(payload, direction, connection.hints)
        bad = is_malformed(events, self._malformed)
        if (
            not (doubt.packets or direction or bad)
            and given_up(connection, time_ns, NEVER_ENDS_NS)
            and _begins(protocol, payload, connection)
            and not _continues(connection, direction, events, FAR)
        ):
            return _ANOTHER
        if _continues(connection, direction, events, NEXT if bad else NEAR):
            return _SAME
        if events and events[0][0] == Ev.RESTART and not bad:
            return _SAME  # the handler decides what it begins
        doubt.malformed += bad
        return _NOTHING

    def finish(self) -> None:
        """Judge all flows in doubt; no further ones are doubted."""
        self._over = True
        for doubt in list(self._held.values()):
            self._judge(doubt, final=True)

    def ended(self, flow: Flow) -> list[Packet]:
        """Return what is held of a flow whose connection has left the table."""
        doubt = self._held.pop(flow, None)
        return [] if doubt is None else doubt.packets

    def _judge(self, doubt: Doubt, *, final: bool) -> None:
        """Show the sample to the protocols."""
        flow, connection = doubt.flow, doubt.flow.connection
        if connection is None:
            return
        ports = flow_ports(doubt.key)
        claim = best_claim(
            self._protocols, doubt.sample, "udp", ports, final=final, on_fault=self._unable
        )
        if claim is not None and claim.protocol != connection.protocol:
            enough = len(doubt.sample) >= LEAST and doubt.malformed >= LEAST_MALFORMED
            if enough or (flow.lapsed and claim.roles_from == "handshake"):
                self._replace(doubt, claim)
                return
        if final:
            seen = connection.datagrams_seen() + len(doubt.sample)
            flow.doubted_from = seen + (LOOK_AGAIN << 2 * flow.looks)
            flow.looks += 1
        if final or (claim is not None and claim.protocol == connection.protocol):
            self._release(doubt, None)

    def _replace(self, doubt: Doubt, claim: Claim) -> None:
        """End the connection of a flow, and begin one of another protocol."""
        flow = doubt.flow
        del self._held[flow]
        _, frame, time_ns, key, _, _, _ = doubt.packets[0]
        if flow.connection is not None:
            direction = (0 if key == flow.key else 1) ^ flow.client
            flow.connection.end_hint = EndHint("superseded", direction, frame, time_ns)
        other = Flow(doubt.key, "udp", flow_ports(doubt.key), None, time_ns, 0)
        other.sample = doubt.sample
        other.packets = [(0 if packet[3] == doubt.key else 1, packet) for packet in doubt.packets]
        self._replaced(flow, other, claim)

    def _release(self, doubt: Doubt, packet: Packet | None) -> None:
        """Track the datagrams held, and `packet`, in the present connection."""
        self._restore(doubt)
        # First all of them are trusted: feeding one must not put the next one in doubt again.
        for held in doubt.packets:
            doubt.flow.trusted = max(doubt.flow.trusted, held[1])
        for held in doubt.packets:
            self._feed(held)
        if packet is not None:
            self._feed(packet)

    def _restore(self, doubt: Doubt) -> None:
        """Return the handlers of a flow to the table."""
        flow = doubt.flow
        self._held.pop(flow, None)
        flow.lapsed = False
        for direction, way in enumerate(flow.ways):
            self._table.handlers.put(flow.key_of(direction), way)


def _continues(connection: Connection, direction: int, events: list[Event], reach: int) -> bool:
    """Return whether a datagram has a number that continues those of a connection: one that is at
    most `reach` ahead of the newest one, or as far behind if that is NEAR.
    """
    for event in events:
        places = _NUMBERS.get(event[0])
        if places is None:
            continue
        # Acknowledgements name the numbers of the other direction.
        lane = connection.lanes[direction ^ (event[0] in _ACKS)]
        space, number = lane.spaces.get(event[places[0]]), event[places[1]]
        newest = None if space is None else space.numbers.last
        if space is None or newest is None or not isinstance(number, int):
            continue
        numbers = space.numbers
        ahead = (number - newest) & numbers.mask
        if 0 < ahead <= min(reach, numbers.half) or (
            reach == NEAR and (not ahead or numbers.modulus - ahead <= NEAR)
        ):
            return True
    return False


def _begins(protocol: Protocol, payload: bytes, connection: Connection) -> bool:
    """Return whether a datagram of the client begins a connection of the same dialects."""
    machine = connection.machine.machine
    if machine is None:
        return False
    events = protocol.scan(payload, 0, protocol.next_hints(connection.hints))
    return any(event[0] == Ev.STATE and event[1] in machine.begins for event in events)
