"""A kNet client over UDP: connect datagram, pings, acknowledgements, both kinds of numbers.

Source: docs/protocols/knet.md sections 4 to 6.
"""

from __future__ import annotations

from typing import Any

from netdissect.fuzz.cases import CONNECTED, Step
from netdissect.fuzz.drivers.base import Driver, Key
from netdissect.fuzz.generator import Traits
from netdissect.layers import knet as layers

__all__ = ["PACKET_SPAN", "Builder", "KnetDriver", "packet_id", "put_packet_id", "reliable_base"]

PACKET_SPAN = 1 << 22
"""Modulus of PacketIDs."""
RELIABLE_SPAN = 1 << 31
HEAD, RELIABLE_FLAG = 3, 0x40
PING_SECONDS = 3.5
REPEAT_SECONDS = 0.5
_LONG_FORM = 0x8000
_ACK_BITS = 32
_CONNECT = bytes(8)


def packet_id(data: bytes) -> int:
    """Return the PacketID of a datagram with a whole header."""
    return data[0] & 0x3F | data[1] << 6 | data[2] << 14


def put_packet_id(data: bytes, number: int) -> bytes:
    """Return the datagram with another PacketID."""
    head = bytes([data[0] & 0xC0 | number & 0x3F, number >> 6 & 0xFF, number >> 14 & 0xFF])
    return head + data[HEAD:]


def reliable_base(data: bytes, number: int) -> bytes:
    """Return a reliable datagram with another base, in the short form where the number fits it."""
    if len(data) < HEAD + 2:
        return data
    long = data[HEAD + 1] & 0x80
    rest = data[HEAD + (4 if long else 2) :]
    if number < _LONG_FORM:
        return data[:HEAD] + number.to_bytes(2, "little") + rest
    first = _LONG_FORM | number & (_LONG_FORM - 1)
    return data[:HEAD] + first.to_bytes(2, "little") + (number >> 15).to_bytes(2, "little") + rest


class Builder:
    """Builds and reads the datagrams of one dialect."""

    def __init__(self, dialect: str) -> None:
        self.dialect = dialect
        self.first = 0 if dialect == "knet-2010" else 1
        """First PacketID."""
        prefix = "Knet2010" if dialect == "knet-2010" else "Knet"
        self.request: Any = getattr(layers, f"{prefix}PingRequest")
        self.reply: Any = getattr(layers, f"{prefix}PingReply")
        self.ack: Any = getattr(layers, f"{prefix}PacketAck")
        self._datagram: Any = layers.datagram_layer(dialect)
        self._message: Any = self._datagram().get_field("messages").item

    def build(self, number: int, *contents: Any, base: int | None = None) -> bytes:
        """Return a datagram of messages; reliable ones where a base is given."""
        flag = int(base is not None)
        messages = [self._message(reliable=flag, reliable_delta=at, in_order=1, content=content)
                    for at, content in enumerate(contents)]  # fmt: skip
        head = self._datagram(reliable=flag, in_order=1, reliable_base=base or 0, messages=messages)
        return put_packet_id(bytes(head), number)

    def read(self, data: bytes) -> list[Any] | None:
        """Return the messages of a datagram, None where it is damaged."""
        if len(data) < HEAD or not layers.parses(data, self.dialect):
            return None
        return list(self._datagram(data).messages)


class KnetDriver(Driver):
    """One connection over UDP."""

    protocol = "knet"
    dialects = ("knet-2.x", "knet-2010", "knet-urho3d", "knet-tundra")
    traits = Traits(
        live_fields={
            "packet_id_low": "sequence",
            "packet_id_high": "sequence",
            "reliable_base": "base",
            "acked_packet_id": "ack",
        },
        span=PACKET_SPAN,
        stages=("fresh", "connecting", CONNECTED),
        controls=frozenset({"msg_*"}),
        closing=frozenset({"Disconnect"}),
    )

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._builder = Builder(self.dialect)
        self._number = self._builder.first
        self._base = 0
        self._ping = 0
        self._pongs = 0
        self._due = 0.0

    def begin(self) -> None:
        """Send the connect datagram; the server's first datagram is the answer."""
        self._due = self.clock() + REPEAT_SECONDS
        self.link.send(_CONNECT)

    def ends(self, octets: bytes) -> bool:
        """Return whether this says Disconnect, or is so damaged that servers drop who sent it."""
        if octets == _CONNECT:
            return False
        messages = self._builder.read(octets)
        return messages is None or any(
            isinstance(message.content, layers.KnetDisconnect) for message in messages
        )

    def _send(self, *contents: Any, base: int | None = None) -> None:
        self.link.send(self._builder.build(self._next(), *contents, base=base))

    def _next(self) -> int:
        number, self._number = self._number, (self._number + 1) % PACKET_SPAN
        return number

    def handle(self, data: bytes, now: float) -> None:
        """Answer pings, acknowledge reliable datagrams, take acknowledgements."""
        del now
        if self.state == "connecting":
            self.state = CONNECTED
        messages = self._builder.read(data)
        if messages is None:
            self.received["unreadable", self.state] += 1
            return
        if data[0] & RELIABLE_FLAG:
            self._send(self._builder.ack(acked_packet_id=packet_id(data), sequence_bits=0))
        for message in messages:
            self._message(message.content)

    def _message(self, content: Any) -> None:
        builder = self._builder
        self.answered(type(content).__name__.removeprefix("Knet").removeprefix("2010"))
        if isinstance(content, builder.request):
            self._send(builder.reply(ping_id=content.ping_id))
        elif isinstance(content, builder.reply):
            self._pongs += content.ping_id == self._ping
        elif isinstance(content, builder.ack):
            acked = content.acked_packet_id
            self.acknowledged(acked)
            for at in range(_ACK_BITS):
                if content.sequence_bits >> at & 1:
                    self.acknowledged((acked + 1 + at) % PACKET_SPAN)
        elif isinstance(content, layers.KnetDisconnect):
            self._send(layers.KnetDisconnectAck())
            self.end("Disconnect")

    def tick(self, now: float) -> None:
        """Repeat the connect datagram; ping as real peers do."""
        if now < self._due:
            return
        if self.state == "connecting":
            self._due = now + REPEAT_SECONDS
            self.link.send(_CONNECT)
        elif self.state == CONNECTED:
            self.probe(now)

    def probe(self, now: float) -> None:
        """Send a ping, which a server answers at once."""
        if self.state != CONNECTED:
            self.link.send(_CONNECT)
            return
        self._due = now + PING_SECONDS
        self._ping = (self._ping + 1) & 0xFF
        self._send(self._builder.request(ping_id=self._ping))

    def proofs(self) -> int:
        """Return how many pings were answered."""
        return self._pongs if self.state == CONNECTED else self.answers

    def stamp(self, step: Step) -> tuple[bytes, Key | None]:
        """Put in PacketID, reliable base, and the newest PacketID into acknowledgements."""
        data = step.octets
        if len(data) < HEAD or data == _CONNECT:
            return data, None
        shift = dict(step.shift)
        reliable = bool(data[0] & RELIABLE_FLAG)
        if reliable and "base" not in step.hold:
            base = (self._base + shift.get("base", 0)) % RELIABLE_SPAN
            data = reliable_base(data, base)
            self._base = (self._base + self._count(data)) % RELIABLE_SPAN
        if "sequence" in step.hold:
            return data, None
        number = (self._number + shift.get("sequence", 0)) % PACKET_SPAN
        self._number = (self._number + step.advance) % PACKET_SPAN
        expected = reliable and not step.shift and not step.hold
        return put_packet_id(data, number), number if expected else None

    def _count(self, data: bytes) -> int:
        """Return how many reliable numbers a datagram takes; one where it cannot be read."""
        deltas = [
            message.reliable_delta for message in self._builder.read(data) or () if message.reliable
        ]
        return max(deltas, default=0) + 1

    def leave(self) -> None:
        """Send Disconnect; real peers do not repeat it either."""
        if self.state != "fresh":
            self._send(layers.KnetDisconnect(), base=self._base)
