"""A minimal kNet server over UDP: accepts, pings, acknowledges; drops who sends damaged datagrams.

Source: docs/protocols/knet.md sections 4 to 6 and 12.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from netdissect.fuzz.drivers.knet import PACKET_SPAN, RELIABLE_FLAG, Builder, packet_id
from netdissect.fuzz.servers.base import PEER_LIMIT, Address, PlantedBugError, Replies, Server
from netdissect.layers import knet as layers

__all__ = ["KnetServer"]

TIMEOUT_SECONDS = 15.0
_DISCARD_ABOVE = 1536
"""Octets of the largest datagram that a real server reads."""
_FRAGMENTS_BUG = 1 << 20


@dataclass(slots=True)
class _Peer:
    """What the server knows of one client."""

    heard: float
    number: int


class KnetServer(Server):
    """The state of all connections.

    Planted bug: `length` reserves room for as many fragments as a transfer announces.
    """

    BUGS = ("length",)

    def __init__(self, dialect: str = "knet-2.x", bugs: frozenset[str] = frozenset()) -> None:
        super().__init__(dialect, bugs)
        self._builder = Builder(dialect)
        self._peers: dict[Address, _Peer] = {}
        self.delivered = 0
        """Messages of connected clients."""

    def handle(self, data: bytes, peer: Address, now: float) -> Replies:
        """Return the answers; the first datagram of a stranger is a connect datagram."""
        if not data or len(data) > _DISCARD_ABOVE:
            return []
        known = self._peers.get(peer)
        if known is None:
            return self._accept(peer, now)
        known.heard = now
        messages = self._builder.read(data)
        if messages is None:
            del self._peers[peer]
            return []
        replies: Replies = []
        if data[0] & RELIABLE_FLAG:
            ack = self._builder.ack(acked_packet_id=packet_id(data), sequence_bits=0)
            replies.append(self._reply(known, peer, ack))
        for message in messages:
            self.delivered += 1
            self._check_length(message)
            if isinstance(message.content, self._builder.request):
                answer = self._builder.reply(ping_id=message.content.ping_id)
                replies.append(self._reply(known, peer, answer))
            elif isinstance(message.content, layers.KnetDisconnect):
                self._peers.pop(peer, None)
                return [self._reply(known, peer, layers.KnetDisconnectAck())]
        return replies

    def tick(self, now: float) -> Replies:
        """Forget clients that are silent."""
        for address, peer in list(self._peers.items()):
            if now - peer.heard > TIMEOUT_SECONDS:
                del self._peers[address]
        return []

    def _accept(self, address: Address, now: float) -> Replies:
        while len(self._peers) >= PEER_LIMIT:
            del self._peers[min(self._peers, key=lambda each: self._peers[each].heard)]
        peer = self._peers[address] = _Peer(now, self._builder.first)
        pings = [self._builder.request(ping_id=number) for number in (1, 2)]
        return [self._reply(peer, address, *pings)]

    def _reply(self, peer: _Peer, address: Address, *contents: Any) -> tuple[bytes, Address]:
        number, peer.number = peer.number, (peer.number + 1) % PACKET_SPAN
        return self._builder.build(number, *contents), address

    def _check_length(self, message: Any) -> None:
        count = message.fragment_count if message.fragment_start else 0
        if "length" in self.bugs and count and count >= _FRAGMENTS_BUG:
            raise PlantedBugError(f"length: {count} fragments announced")
