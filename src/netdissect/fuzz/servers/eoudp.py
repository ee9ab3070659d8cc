"""A minimal EOUDP server of the last releases: accepts clients, acknowledges, counts packets.

Source: docs/protocols/eoudp.md sections 4 and 5.
"""

from __future__ import annotations

from dataclasses import dataclass

from netdissect.fuzz.drivers.eoudp import (
    ACK,
    CONNECT,
    CONNECT_ACCEPT,
    DISCONNECT,
    HEAD,
    PACKET_INFO,
    datagram,
    is_whole,
)
from netdissect.fuzz.servers.base import PEER_LIMIT, Address, PlantedBugError, Replies, Server
from netdissect.layers.eoudp import EoudpAck, EoudpConnectAccept, EoudpPacketInfo, EoudpPair

__all__ = ["EoudpServer"]

INFO_SECONDS = 1.0
TIMEOUT_SECONDS = 10.0
_COMPONENT_OF = 0x0C
_ENTITY_OCTETS = 8


@dataclass(slots=True)
class _Peer:
    """What the server knows of one client."""

    heard: float
    number: int = 1
    told: float = 0.0


class EoudpServer(Server):
    """The state of all connections.

    Planted bug: `length` believes the name length of a COMPONENT_OF.
    """

    BUGS = ("length",)

    def __init__(self, dialect: str = "exodia-late", bugs: frozenset[str] = frozenset()) -> None:
        super().__init__(dialect, bugs)
        self._peers: dict[Address, _Peer] = {}
        self.delivered = 0
        """Messages of connected clients that passed the size check."""

    def handle(self, data: bytes, peer: Address, now: float) -> Replies:
        """Return the answers to one datagram; one from a stranger must be a CONNECT."""
        if not is_whole(data):
            return []
        command, important = data[0], bool(data[17])
        number = int.from_bytes(data[9:17], "big")
        if command == CONNECT:
            return self._connect(number, peer, now, important=important)
        known = self._peers.get(peer)
        if known is None:
            return []
        known.heard = now
        self.delivered += 1
        self._check_length(command, data[HEAD:])
        replies: Replies = []
        if important:
            replies.append((datagram(known.number, ACK, EoudpAck(acked_id=number)), peer))
            known.number += 1
        if command == DISCONNECT:
            del self._peers[peer]
        return replies

    def tick(self, now: float) -> Replies:
        """Send the packet counters every second; forget clients that are silent."""
        replies: Replies = []
        for address, peer in list(self._peers.items()):
            if now - peer.heard > TIMEOUT_SECONDS:
                del self._peers[address]
            elif now - peer.told >= INFO_SECONDS:
                peer.told = now
                content = EoudpPacketInfo(pairs=[EoudpPair(received=0, sent=0)])
                replies.append((datagram(peer.number, PACKET_INFO, content), address))
                peer.number += 1
        return replies

    def _connect(self, number: int, peer: Address, now: float, *, important: bool) -> Replies:
        """Acknowledge, and accept an endpoint that is new; both have id 0."""
        replies: Replies = []
        if important:
            replies.append((datagram(0, ACK, EoudpAck(acked_id=number)), peer))
        if peer not in self._peers:
            while len(self._peers) >= PEER_LIMIT:
                del self._peers[min(self._peers, key=lambda each: self._peers[each].heard)]
            accept = EoudpConnectAccept(client_index=len(self._peers))
            replies.append((datagram(0, CONNECT_ACCEPT, accept), peer))
        self._peers[peer] = _Peer(now)
        return replies

    def _check_length(self, command: int, content: bytes) -> None:
        start = _ENTITY_OCTETS + 4
        if "length" not in self.bugs or command != _COMPONENT_OF or len(content) < start:
            return
        size = int.from_bytes(content[_ENTITY_OCTETS:start], "little")
        if start + size > len(content):
            raise PlantedBugError(f"length: a name of {size} octets in {len(content)}")
