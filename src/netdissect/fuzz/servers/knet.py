"""A minimal kNet server over UDP: accepts, pings, acknowledges; drops who sends damaged datagrams.

Source: docs/protocols/knet.md sections 4 to 6 and 12.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from netdissect.fuzz.drivers.knet import (
    HEAD,
    RELIABLE_FLAG,
    Builder,
    Message,
    packet_id,
)
from netdissect.fuzz.servers.base import Address, DatagramServer, Event, PlantedBugError, Replies
from netdissect.wire.knet import (
    DISCONNECT,
    DISCONNECT_ACK,
    PACKET_SPAN,
    PING_REPLY,
    PING_REQUEST,
    SERVER_LIMIT,
)

_FRAGMENTS_BUG = 1 << 20
_SLOTS = 1 << 16


@dataclass(slots=True)
class _Peer:
    """The state kept for one client."""

    heard: float
    number: int
    newest: int = 0
    """Newest PacketID received."""
    seen: dict[int, int] = field(default_factory=dict)
    """The lower 16 bits of a PacketID received -> the latest such PacketID."""


class KnetServer(DatagramServer[_Peer]):
    """The state of all connections.

    Planted bug: `length` reserves room for as many fragments as a transfer announces.
    """

    DIALECT = "knet-2.x"
    TIMEOUT_SECONDS = 15.0
    BUGS = ("length", "off-by-one", "number-wrap", "stale-fragment", "gates", "steps")

    def __init__(self, dialect: str | None = None, bugs: frozenset[str] = frozenset()) -> None:
        super().__init__(dialect, bugs)
        self._builder = Builder(self.dialect)

    def handle(self, data: bytes, peer: Address, now: float) -> Replies:
        """Return the answers; the first datagram of a stranger is a connect datagram."""
        if not data or len(data) > SERVER_LIMIT:
            return []
        known = self._peers.get(peer)
        if known is None:
            return self._accept(peer, now)
        known.heard = now
        reliable = data[0] & RELIABLE_FLAG
        if self._is_duplicate(known, data):
            return [self._ack(known, data, peer)] if reliable else []
        messages = self._builder.read(data) or []
        self._tell(data, messages, known, peer)
        if self._builder.drops(data):
            del self._peers[peer]
            answered = any(each.name == DISCONNECT for each in messages)
            return [self._reply(known, peer, (DISCONNECT_ACK, b""))] if answered else []
        replies: Replies = [self._ack(known, data, peer)] if reliable else []
        for message in messages:
            self.delivered += 1
            self._check_length(message)
            if message.name == PING_REQUEST and message.payload:
                replies.append(self._reply(known, peer, (PING_REPLY, message.payload[:1])))
        return replies

    @staticmethod
    def _is_duplicate(known: _Peer, data: bytes) -> bool:
        """Note a PacketID; return whether it was received before: nothing of the datagram is read.

        Source: docs/protocols/knet.md, what the tracker concludes.
        """
        if len(data) < HEAD:
            return False
        number = packet_id(data)
        before = known.seen.get(number % _SLOTS)
        known.seen[number % _SLOTS] = number
        # A base is read before that, and ends the connection if it is cut.
        return before == number and len(data) > HEAD + 1

    def _ack(self, known: _Peer, data: bytes, peer: Address) -> tuple[bytes, Address]:
        return self._builder.ack(self._number(known), packet_id(data)), peer

    def tick(self, now: float) -> Replies:
        """Drop clients that time out."""
        self._living(now)
        return []

    def _accept(self, address: Address, now: float) -> Replies:
        peer = self._add(address, _Peer(now, self._builder.first))
        pings = [(PING_REQUEST, bytes([number])) for number in (1, 2)]
        return [self._reply(peer, address, *pings)]

    def _reply(
        self, peer: _Peer, address: Address, *messages: tuple[str, bytes]
    ) -> tuple[bytes, Address]:
        return self._builder.build(self._number(peer), *messages), address

    @staticmethod
    def _number(peer: _Peer) -> int:
        number, peer.number = peer.number, (peer.number + 1) % PACKET_SPAN
        return number

    def _tell(self, data: bytes, messages: list[Message], known: _Peer, peer: Address) -> None:
        """Run the shared planted bugs on what was received."""
        number = packet_id(data) if len(data) >= HEAD else None
        self.event(Event(peer, number, known.newest, PACKET_SPAN, 32))
        for each in messages:
            if each.name.startswith("msg_"):
                self.event(Event(peer, content=each.payload))
            if each.name == "fragment" or each.fragments is not None:
                transfer = each.payload[0] if each.payload else 0
                self.event(Event(peer, fragment=(transfer, 0, bool(each.fragments))))
        if number is not None and (number - known.newest) % PACKET_SPAN < PACKET_SPAN // 2:
            known.newest = number

    def _check_length(self, message: Message) -> None:
        if "length" in self.bugs and (message.fragments or 0) >= _FRAGMENTS_BUG:
            raise PlantedBugError(f"length: {message.fragments} fragments announced")
