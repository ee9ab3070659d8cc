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

RESEND_SECONDS = 0.2
"""Real servers repeat after 50 ms at first; a fuzzed one may take its time."""
RESEND_LIMIT = 15
_LEAST_RESEND, _USUAL_RESEND, _RESEND_ROUND_TRIPS = 0.01, 0.05, 1.2
"""Seconds between two copies of a reliable message, at least and before the client has named its
round trip; round trips, from then on. Source: `PendingMessage.TrySend`."""
_SMOOTH = 0.3
"""Share of the newest round trip that a client names. Source: `Connection.SmoothRTT`."""
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
class _Sent:
    """A reliable message that a client has not acknowledged."""

    octets: bytes
    copies: int = 0
    due: float = 0.0
    """When the next copy goes out."""


@dataclass(slots=True)
class _Peer:
    """The state kept for one client."""

    client_id: int
    heard: float
    received: Received = field(default_factory=Received)
    connected: bool = False
    welcomes: int = 0
    repeat_at: float = 0.0
    missing: set[int] = field(default_factory=set)
    """Ids that were left out so far."""
    sequence: int = 2
    """Id of the next reliable message to it; 1 is that of the Welcome."""
    waiting: dict[int, _Sent] = field(default_factory=dict)
    """Sequence id -> what it has not acknowledged."""
    named: int = -1
    """Round trip in ms that it has named last; -1 where it has measured none."""
    round_trip: float = -1.0
    """The same, smoothed."""

    def names(self, milliseconds: int) -> None:
        """Take the round trip that a heartbeat names."""
        known = self.named >= 0
        smooth = self.round_trip * (1 - _SMOOTH) + milliseconds * _SMOOTH
        self.round_trip = max(1.0, smooth) if known else milliseconds
        self.named = milliseconds

    @property
    def resend_seconds(self) -> float:
        """Return the time between two copies of a message to it."""
        if self.round_trip < 0:
            return _USUAL_RESEND
        return max(_LEAST_RESEND, _RESEND_ROUND_TRIPS * self.round_trip / 1000)


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
    TIMEOUT_SECONDS = 6.0

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
        gone = self._peers.pop(peer, None)
        if gone is not None and gone.connected:
            self._tell_others("ClientDisconnected", gone)

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
            self.forget(peer)
            return []
        self._bugs(data, packet, known)
        if kind in ("Ack", "AckExtra"):
            for number in self._messages.acknowledged(packet):
                known.waiting.pop(number, None)
        if kind == "Heartbeat" and known.connected:
            known.heard = now
            known.names(packet.rtt_ms or 0)
            return [(self._messages.build("Heartbeat", ping_id=packet.ping_id), peer)]
        if packet.type_id >= RELIABLE_FROM and packet.sequence_id is not None:
            return self._reliable(packet, kind, known, peer)
        return []

    def tick(self, now: float) -> Replies:
        """Repeat Welcomes that are not confirmed; drop clients that time out."""
        replies: Replies = []
        for address, peer in self._living(now):
            if not peer.connected and now >= peer.repeat_at and peer.welcomes < RESEND_LIMIT:
                replies.append((self._welcome(peer, now), address))
            for number, sent in [each for each in peer.waiting.items() if now >= each[1].due]:
                if sent.copies >= RESEND_LIMIT and self.dialect == "riptide-2.0":
                    del peer.waiting[number]
                    continue
                if sent.copies >= RESEND_LIMIT:
                    self._give_up(address)
                    break
                sent.copies += 1
                sent.due = now + peer.resend_seconds
                replies.append((sent.octets, address))
        return replies

    def _give_up(self, address: Address) -> None:
        """End the connection of a client that acknowledges nothing; it is not told."""
        self.forget(address)
        if self.TRANSPORT == "tcp":
            self.closing.add(address)

    def _tell_others(self, kind: str, client: _Peer) -> None:
        """Have all others told, with the next tick, that a client has come or gone."""
        for peer in self._peers.values():
            if peer is client or not peer.connected:
                continue
            message = self._messages.build(
                kind, sequence_id=peer.sequence, client_id=client.client_id
            )
            peer.waiting[peer.sequence] = _Sent(message)
            peer.sequence = (peer.sequence + 1) % SPAN

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
            self.forget(address)
            return []
        new = peer.received.take(packet.sequence_id)
        if kind == "Welcome" and packet.client_id == peer.client_id and not peer.connected:
            peer.connected = True
            self._tell_others("ClientConnected", peer)
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
        """Run the shared planted bugs on what was received."""
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
