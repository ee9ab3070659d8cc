"""A minimal EOUDP server of any dialect: accepts clients, acknowledges, counts packets.

Source: docs/protocols/eoudp.md sections 4 and 5.
"""

from __future__ import annotations

from dataclasses import dataclass

from netdissect.fuzz.drivers.eoudp import INFO_SECONDS
from netdissect.fuzz.drivers.eoudp_form import FORMS
from netdissect.fuzz.servers.base import Address, DatagramServer, Event, PlantedBugError, Replies
from netdissect.layers.eoudp import EoudpAck, EoudpConnectAccept, EoudpPacketInfo, EoudpPair
from netdissect.wire.eoudp_names import (
    ACK,
    COMPONENT_OF,
    CONNECT,
    CONNECT_ACCEPT,
    PACKET_INFO,
    type_name,
)


@dataclass(slots=True)
class _Peer:
    """The state kept for one client."""

    heard: float
    number: int = 1
    told: float = 0.0
    newest: int = 0
    """Newest id received."""


class EoudpServer(DatagramServer[_Peer]):
    """The state of all connections.

    Planted bug: `length` believes the name length of a COMPONENT_OF.
    """

    DIALECT = "exodia-late"
    BUGS = ("length", "off-by-one", "number-wrap", "unbounded-table", "gates", "steps")

    def __init__(self, dialect: str | None = None, bugs: frozenset[str] = frozenset()) -> None:
        super().__init__(dialect, bugs)
        self._form = FORMS[self.dialect]

    def handle(self, data: bytes, peer: Address, now: float) -> Replies:
        """Return the answers to one datagram; one from a stranger must be a CONNECT."""
        form = self._form
        content = form.content(data)
        if content is None:
            return []
        if data[0] == CONNECT:
            return self._connect(data, peer, now)
        known = self._peers.get(peer)
        if known is None:
            return []
        known.heard = now
        self.delivered += 1
        self._check_length(data)
        number = form.number(data) & 0xFFFFFFFF
        self.event(Event(peer, number, known.newest, 1 << 32, 32, key=content[:8], content=content))
        if 0 < (number - known.newest) % (1 << 32) < 1 << 31:
            known.newest = number
        replies: Replies = []
        if form.is_acknowledged(data):
            ack = EoudpAck(acked_id=form.number(data))
            replies.append((form.build(known.number, ACK, ack), peer))
            known.number += 1
        if type_name(self.dialect, data[0], len(content)) == "DISCONNECT":
            del self._peers[peer]
        return replies

    def tick(self, now: float) -> Replies:
        """Send the packet counters every second; drop clients that time out."""
        replies: Replies = []
        for address, peer in self._living(now):
            if now - peer.told >= INFO_SECONDS:
                peer.told = now
                content = EoudpPacketInfo(pairs=[EoudpPair(received=0, sent=0)])
                replies.append((self._form.build(peer.number, PACKET_INFO, content), address))
                peer.number += 1
        return replies

    def _connect(self, data: bytes, peer: Address, now: float) -> Replies:
        """Acknowledge where that is the rule, and accept; both have id 0."""
        form = self._form
        replies: Replies = []
        if form.is_acknowledged(data):
            ack = EoudpAck(acked_id=form.number(data))
            replies.append((form.build(0, ACK, ack), peer))
        self._peers.pop(peer, None)
        self._add(peer, _Peer(now))
        accept = EoudpConnectAccept(client_index=len(self._peers) - 1)
        replies.append((form.build(0, CONNECT_ACCEPT, accept), peer))
        return replies

    def _check_length(self, data: bytes) -> None:
        content = data[self._form.head :]
        entity = 4 if self.dialect.endswith("long32") else 8
        start = entity + 4
        if "length" not in self.bugs or data[0] != COMPONENT_OF or len(content) < start:
            return
        size = int.from_bytes(content[entity:start], "little")
        if start + size > len(content):
            raise PlantedBugError(f"length: a name of {size} bytes in {len(content)}")
