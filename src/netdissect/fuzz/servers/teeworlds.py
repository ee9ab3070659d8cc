"""A minimal Teeworlds 0.7 server: token, login, an empty game with snapshots, resends.

Source: docs/protocols/teeworlds.md sections 6 and 8.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from netdissect.fuzz.drivers.teeworlds import BACKROOM, PACKET_LIMIT
from netdissect.fuzz.drivers.teeworlds_form import (
    ChunkHead,
    Opened,
    chunk_heads,
    chunk_of,
)
from netdissect.fuzz.servers.base import Address, DatagramServer, Event, PlantedBugError, Replies
from netdissect.layers import teeworlds as layers
from netdissect.layers.teeworlds.messages import message_layer
from netdissect.wire import teeworlds_forms as tw

_FORM = tw.FORMS[tw.D07]
_JUMP_BUG = 128
SNAP_SECONDS = 0.04  # 25 a second, as real servers
RESEND_SECONDS = 0.2


def _message(name: str, **fields: Any) -> bytes:
    return bytes(getattr(layers, f"Tw07{name}")(**fields))


@dataclass(slots=True)
class _Peer:
    """The state kept for one client."""

    token: bytes
    """Token that the client gave for packets to it."""
    heard: float
    playing: bool = False
    """True since it entered the game."""
    received: int = 0
    number: int = 0
    want_resend: bool = False
    resent: float = 0.0
    snapped: float = 0.0
    tick: int = 1
    outbox: dict[int, bytes] = field(default_factory=dict)


class TeeworldsServer(DatagramServer[_Peer]):
    """The state of all connections.

    Planted bugs: `length` reads a chunk beyond the end of its packet; `sequence` goes deaf at a
    vital number far ahead; `decompression` writes beyond a buffer of the size of a packet.
    """

    DIALECT = tw.D07
    DIALECTS = (tw.D07,)
    BUGS = ("length", "sequence", "decompression", "off-by-one", "number-wrap", "unbounded-table",
            "gates", "steps")  # fmt: skip

    def handle(self, data: bytes, peer: Address, now: float) -> Replies:
        """Return the answers to one packet."""
        opened = Opened.of(data, _FORM)
        if opened is None or data[0] & tw.CONNLESS_FLAG:
            return []
        self._check_code(opened)
        if opened.is_control:
            return self._control(bytes(opened.payload), opened, peer, now)
        known = self._peers.get(peer)
        if known is None or opened.token != _own_token(peer):
            return []
        known.heard = now
        for number in [each for each in known.outbox if (opened.ack - each) % tw.SPAN <= BACKROOM]:
            del known.outbox[number]
        replies = self._resend(known, peer, now) if opened.head[0] & _FORM.resend else []
        for head in chunk_heads(opened.payload, opened.head[2], _FORM):
            self._check_length(head, opened)
            replies += self._chunk(head, known, peer)
        return replies

    def tick(self, now: float) -> Replies:
        """Send snapshots; repeat what is not acknowledged; drop clients that time out."""
        replies: Replies = []
        for address, peer in self._living(now):
            if peer.playing and now - peer.snapped >= SNAP_SECONDS:
                peer.snapped, peer.tick = now, peer.tick + 2
                snap = _message("SysSnapEmpty", tick=peer.tick, delta=peer.tick + 1)
                replies.append((self._packet(peer, snap), address))
            elif peer.outbox and now - peer.resent >= RESEND_SECONDS:
                replies += self._resend(peer, address, now)
        return replies

    def _control(self, body: bytes, opened: Opened, address: Address, now: float) -> Replies:
        number = body[0] if body else tw.KEEPALIVE
        peer = self._peers.get(address)
        if number == tw.TOKEN and len(body) >= 5:  # noqa: PLR2004 - the client's token
            return [(_control_packet(body[1:5], tw.TOKEN, _own_token(address)), address)]
        if opened.token != _own_token(address):
            return []
        if number == tw.CONNECT and len(body) >= 5:  # noqa: PLR2004 - the client's token
            if peer is None:
                peer = self._add(address, _Peer(body[1:5], now))
            return [(_control_packet(peer.token, tw.ACCEPTED, b""), address)]
        if number == tw.CLOSE and peer is not None:
            del self._peers[address]
        elif peer is not None:
            peer.heard = now
        return []

    def _chunk(self, head: ChunkHead, peer: _Peer, address: Address) -> Replies:
        """Take one chunk; return what the login or a ping asks for."""
        number = head.number if head.vital else None
        key, content = head.message[:2], head.message
        self.event(Event(address, number, peer.received, tw.SPAN, 32, key=key, content=content))
        if head.vital:
            ahead = (head.number - peer.received) % tw.SPAN
            if "sequence" in self.bugs and _JUMP_BUG <= ahead < tw.SPAN - BACKROOM:
                self.silent = True
            if ahead != 1:
                peer.want_resend |= ahead != 0 and ahead < tw.SPAN - BACKROOM
                return []
            peer.received, peer.want_resend = head.number, False
            self.delivered += 1
        row = getattr(message_layer(head.message, "0.7"), "row", None)
        name = "" if row is None else str(row.type)
        if name == "sys.enter_game":
            peer.playing = True
        answer = _ANSWERS.get(name)
        if answer is None:
            return []
        message, vital = answer
        return [(self._packet(peer, _message(message), vital=vital), address)]

    def _packet(self, peer: _Peer, message: bytes, *, vital: bool = False) -> bytes:
        if vital:
            peer.number = (peer.number + 1) % tw.SPAN
            peer.outbox[peer.number] = message
        chunk = chunk_of(message, _FORM, peer.number if vital else None)
        return self._head(peer, 1) + chunk

    def _head(self, peer: _Peer, chunks: int) -> bytes:
        flags = _FORM.resend if peer.want_resend else 0
        opened = Opened(
            _FORM, bytearray([flags, 0, chunks, *peer.token]), bytearray(), False, False
        )
        opened.ack = peer.received
        return opened.octets()

    def _resend(self, peer: _Peer, address: Address, now: float) -> Replies:
        peer.resent = now
        packets: list[bytes] = [b""]
        counts = [0]
        for number, message in peer.outbox.items():
            chunk = chunk_of(message, _FORM, number, tw.RESEND)
            if len(packets[-1]) + len(chunk) > PACKET_LIMIT:
                packets.append(b"")
                counts.append(0)
            packets[-1] += chunk
            counts[-1] += 1
        return [
            (self._head(peer, count) + packet, address)
            for packet, count in zip(packets, counts, strict=True)
            if count
        ]

    def _check_code(self, opened: Opened) -> None:
        if "decompression" in self.bugs and opened.packed and len(opened.payload) > _FORM.limit:
            size = len(opened.payload)
            raise PlantedBugError(f"decompression: {size} bytes in a buffer for {_FORM.limit}")

    def _check_length(self, head: ChunkHead, opened: Opened) -> None:
        end = head.start + head.size
        if "length" in self.bugs and end > len(opened.payload):
            raise PlantedBugError(f"length: a chunk ends at {end} of {len(opened.payload)} bytes")


_ANSWERS: dict[str, tuple[str, bool]] = {
    "sys.info": ("SysMapChange", True),
    "sys.ready": ("SysConReady", True),
    "game.cl_start_info": ("GameSvReadyToEnter", True),
    "sys.ping": ("SysPingReply", False),
}
"""Message of a client -> (answer, whether it is vital)."""


def _own_token(address: Address) -> bytes:
    """Return the token that an address is given: as in real servers, a function of it."""
    return sum(str(address[0]).encode()).to_bytes(4, "big")


def _control_packet(token: bytes, number: int, body: bytes) -> bytes:
    return bytes([_FORM.control, 0, 0, *token, number]) + body
