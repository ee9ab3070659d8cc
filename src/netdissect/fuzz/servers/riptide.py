"""A minimal Riptide server: accepts clients, acknowledges, answers heartbeats, drops silent peers.

Source: docs/protocols/riptide.md sections 6 and 7.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from netdissect.fuzz.drivers.riptide import RELIABLE_FROM, SPAN, Messages, Received, gap
from netdissect.fuzz.servers.base import (
    PEER_LIMIT,
    Address,
    DatagramServer,
    Event,
    PlantedBugError,
    Replies,
)
from netdissect.wire.riptide import size_limit

__all__ = ["RiptideServer"]

RESEND_SECONDS = 0.2
"""Real servers repeat after 50 ms at first; a fuzzed one may take its time."""
RESEND_LIMIT = 15
_HEAD = 3
"""Bytes before what a message of the application holds, about: they are no whole ones."""
_WINDOW = 1024
"""Ids behind the newest that the newest servers remember. Source: docs/protocols/riptide.md."""
_FULL, _FULL_20 = 2, 3
"""Numbers of the reason that the server is full."""
_REJECTS = 3  # 2.1 and 2.2 say it three times: nobody acknowledges it
_GAP_BUG = 4096
"""The planted sequence bug: a gap from here on is believed."""


@dataclass(slots=True)
class _Peer:
    """What the server knows of one client."""

    client_id: int
    heard: float
    received: Received = field(default_factory=Received)
    connected: bool = False
    welcomes: int = 0
    repeat_at: float = 0.0
    missing: set[int] = field(default_factory=set)
    """Ids that were left out so far."""


class RiptideServer(DatagramServer[_Peer]):
    """The state of all connections.

    Planted bugs: `length` dies of a message above the size limit in a buffer of that size;
    `sequence` stops answering after a jump of the sequence id, as a full receive window would;
    `empty` reads on behind an empty datagram no more, as the real server on Mono; and those of the
    table that it names.
    """

    DIALECT = "riptide-2.2"
    BUGS = ("length", "sequence", "empty", "off-by-one", "number-wrap", "double-free",
            "unbounded-table", "gates", "steps")  # fmt: skip

    def __init__(self, dialect: str | None = None, bugs: frozenset[str] = frozenset()) -> None:
        super().__init__(dialect, bugs)
        self._messages = Messages(self.dialect)

    @property
    def connected(self) -> int:
        """Return how many clients are connected."""
        return sum(peer.connected for peer in self._peers.values())

    def knows(self, peer: Address) -> bool:
        """Return whether a peer has asked for a connection and not left."""
        return peer in self._peers

    def forget(self, peer: Address) -> None:
        """Forget a peer whose connection is gone."""
        self._peers.pop(peer, None)

    def handle(self, data: bytes, peer: Address, now: float) -> Replies:
        """Return the answers to one datagram."""
        self.silent |= "empty" in self.bugs and not data
        packet: Any = self._messages.read(data)
        if packet is None:
            return []
        kind = self._messages.type_of(packet)
        known = self._peers.get(peer)
        self._tell(data, packet, kind, known, peer)
        if known is None:
            return self._connect(peer, now) if kind == "Connect" else []
        if kind == "Disconnect":
            del self._peers[peer]
            return []
        self._bugs(data, packet, known)
        if kind == "Heartbeat" and known.connected:
            known.heard = now
            return [(self._messages.build("Heartbeat", ping_id=packet.ping_id), peer)]
        if packet.type_id >= RELIABLE_FROM and packet.sequence_id is not None:
            return self._reliable(packet, kind, known, peer)
        return []

    def tick(self, now: float) -> Replies:
        """Repeat Welcomes that are not confirmed; forget clients that are silent."""
        replies: Replies = []
        for address, peer in self._living(now):
            if not peer.connected and now >= peer.repeat_at and peer.welcomes < RESEND_LIMIT:
                replies.append((self._welcome(peer, now), address))
        return replies

    def _connect(self, address: Address, now: float) -> Replies:
        if len(self._peers) >= PEER_LIMIT:
            old = self.dialect == "riptide-2.0"
            full = self._messages.build("Reject", reason=_FULL_20 if old else _FULL)
            return [(full, address)] * (1 if old else _REJECTS)
        used = {peer.client_id for peer in self._peers.values()}
        peer = _Peer(next(number for number in range(1, PEER_LIMIT + 1) if number not in used), now)
        self._peers[address] = peer
        return [(self._welcome(peer, now), address)]

    def _welcome(self, peer: _Peer, now: float) -> bytes:
        peer.welcomes += 1
        peer.repeat_at = now + RESEND_SECONDS
        return self._messages.build("Welcome", sequence_id=1, client_id=peer.client_id)

    def _reliable(self, packet: Any, kind: str, peer: _Peer, address: Address) -> Replies:
        if self._gives_up(peer, packet.sequence_id):
            del self._peers[address]
            return []
        new = peer.received.take(packet.sequence_id)
        if kind == "Welcome" and packet.client_id == peer.client_id:
            peer.connected = True
        self.delivered += new and kind == "Reliable"
        return [(self._messages.ack(peer.received, packet.sequence_id), address)]

    def _gives_up(self, peer: _Peer, sequence: int) -> bool:
        """Return whether the newest servers end the connection at this id: one that they have never
        received is too far behind it.
        """
        ahead = gap(sequence, peer.received.newest)
        if self.dialect != "riptide-2.2" or ahead <= 0:
            peer.missing.discard(sequence)
            return False
        if ahead > _WINDOW:
            return True
        newest = peer.received.newest
        peer.missing.update((newest + step) % SPAN for step in range(1, ahead))
        return any(gap(sequence, each) > _WINDOW for each in peer.missing)

    def _tell(
        self, data: bytes, packet: Any, kind: str, known: _Peer | None, peer: Address
    ) -> None:
        """Show the planted bugs what has come."""
        number = getattr(packet, "sequence_id", None) if known is not None else None
        newest = 0 if known is None else known.received.newest
        key = getattr(packet, "message_id", None)
        content = data[_HEAD:] if kind in ("Reliable", "Unreliable") else b""
        leaves, enters = kind == "Disconnect", known is None and kind == "Connect"
        self.event(Event(peer, number, newest, SPAN, 16, leaves, enters, key=key, content=content))

    def _bugs(self, data: bytes, packet: Any, peer: _Peer) -> None:
        """Die of the planted bugs."""
        if "length" in self.bugs and len(data) > size_limit(self.dialect):
            raise PlantedBugError(
                f"length: {len(data)} bytes in a buffer for {size_limit(self.dialect)}"
            )
        number = getattr(packet, "sequence_id", None)
        if "sequence" in self.bugs and peer.connected and number is not None:
            self.silent |= gap(number, peer.received.newest) >= _GAP_BUG
