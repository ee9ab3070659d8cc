"""A kNet client over UDP: connect datagram, pings, acknowledgements, both kinds of numbers.

Source: docs/protocols/knet.md sections 4 to 6.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, NamedTuple

from netdissect.dissect.readers import knet as readers
from netdissect.fuzz.cases import CONNECTED, Step
from netdissect.fuzz.drivers.base import Driver, Key
from netdissect.fuzz.generator import Traits
from netdissect.wire.knet import (
    ACK_BITS,
    CONTROL_SIZES,
    CONTROLS,
    DISCONNECT,
    DISCONNECT_ACK,
    FIRST_IDS,
    LEGACY,
    NULL_CONNECT,
    PACKET_ACK,
    PACKET_SPAN,
    PING_MS,
    PING_REPLY,
    PING_REQUEST,
    SERVER_LIMIT,
    message_type,
)
from netdissect.wire.varint import KNET_7_7_16, KNET_7_8, KNET_15_16

RELIABLE_SPAN = 1 << 31  # VLE-1.15/16 holds no more
HEAD, RELIABLE_FLAG = 3, 0x40  # flags and PacketID; the bit says that a base follows
_LONG_FORM, _MAX_BASE = 0x8000, 4  # from here on a base takes that many bytes
_CLOSING = (DISCONNECT, DISCONNECT_ACK)
_NO_TRANSFER = (0, 1)
"""Counts of fragments that are none."""
_IN_ORDER, _MESSAGE_IN_ORDER, _MESSAGE_RELIABLE = 0x80, 0x20, 0x10
"""Bits of a datagram's first byte and of a message's second one."""


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
    # The top bit of the second byte says that two more bytes follow.
    long = data[HEAD + 1] & 0x80
    rest = data[HEAD + (4 if long else 2) :]
    if number < _LONG_FORM:
        return data[:HEAD] + number.to_bytes(2, "little") + rest
    first = _LONG_FORM | number & (_LONG_FORM - 1)
    return data[:HEAD] + first.to_bytes(2, "little") + (number >> 15).to_bytes(2, "little") + rest


class Message(NamedTuple):
    """One message of a datagram."""

    name: str
    """Its name (`PingRequest`) or, of the application's, `msg_20`."""
    payload: bytes
    """What follows the message ID; all of the content for a later fragment."""
    delta: int | None
    """Its reliable number less the datagram's base; None for one that is not reliable."""
    fragments: int | None
    """Fragments that its transfer announces, None if it announces none."""


class Builder:
    """Builds and reads the datagrams of one dialect, byte by byte: with packets of Scapy it would
    take most of the time of a case. A test compares it with them.
    """

    def __init__(self, dialect: str) -> None:
        self.dialect = dialect
        self.first = FIRST_IDS[dialect]
        """First PacketID."""
        self._ids = {name: number for number, name in CONTROLS[dialect].items()}
        self._reader = (
            readers.read_Knet2010Datagram if dialect == LEGACY else readers.read_KnetDatagram
        )

    def build(self, number: int, *messages: tuple[str, bytes], base: int | None = None) -> bytes:
        """Return a datagram of (name, payload) messages; reliable ones where a base is given."""
        flag = 0 if base is None else RELIABLE_FLAG
        data = put_packet_id(bytes([_IN_ORDER | flag, 0, 0]), number)
        data += b"" if base is None else bytes(2)
        for delta, (name, payload) in enumerate(messages):
            content = KNET_7_7_16.write(self._ids[name]) + payload
            flags = _MESSAGE_IN_ORDER | (0 if base is None else _MESSAGE_RELIABLE)
            data += bytes([len(content) & 0xFF, flags | len(content) >> 8])
            data += (b"" if base is None else KNET_7_8.write(delta)) + content
        return data if base is None else reliable_base(data, base)

    def ack(self, number: int, acked: int, bits: int = 0) -> bytes:
        """Return a datagram with a PacketAck."""
        payload = acked.to_bytes(3, "little") + bits.to_bytes(4, "little")
        return self.build(number, (PACKET_ACK, payload))

    def read(self, data: bytes) -> list[Message] | None:
        """Return the messages of a datagram, None if it is damaged."""
        if len(data) < HEAD or (found := self._reader(data, 0, len(data))) is None:
            return None
        return [self._message(row) for row in found[5]]

    def drops(self, data: bytes) -> bool:
        """Return whether a server drops the connection that this comes in: it ends it, or is
        damaged in a way that the library does not forgive.

        Source: docs/protocols/knet.md, findings.
        """
        if not data or len(data) > SERVER_LIMIT:
            return False
        if len(data) in (HEAD, HEAD + 1) and data[0] & RELIABLE_FLAG:
            # Without a reliable base: read as one of no messages.
            return len(data) > HEAD
        messages = self.read(data)
        return messages is None or any(
            message.name in _CLOSING
            or (message.name == PACKET_ACK and len(message.payload) != CONTROL_SIZES[PACKET_ACK])
            # An acknowledgement that other fragments make longer.
            or (message.name == PACKET_ACK and message.fragments is not None)
            or message.fragments in _NO_TRANSFER
            for message in messages
        )

    def disconnects(self, data: bytes) -> bool:
        """Return whether a server answers this with a DisconnectAck."""
        return any(message.name == DISCONNECT for message in self.read(data) or ())

    def _message(self, row: tuple[Any, ...]) -> Message:
        start, fragment, _in_order, reliable, _unused, delta, count, _transfer, _number, content = (
            row[:10]
        )
        numbered = delta if reliable else None
        if fragment and not start and (reliable or self.dialect != LEGACY):
            return Message("fragment", content, numbered, None)
        number, at = KNET_7_7_16.read(content, 0, len(content))
        return Message(
            message_type(number, self.dialect), content[at:], numbered, count if start else None
        )


class Numbers:
    """The numbers that come next, without those that mutants out of order have taken: a server
    ignores what comes under them later.
    """

    def __init__(self, first: int, span: int) -> None:
        self._next, self._span = first, span
        self._taken: set[int] = set()

    def peek(self, offsets: Collection[int] = (0,)) -> int:
        """Return the next number that is free at these offsets from it."""
        while any((self._next + each) % self._span in self._taken for each in offsets):
            self._taken.discard(self._next)
            self.advance()
        return self._next

    def advance(self, count: int = 1) -> None:
        """Go on by `count` numbers."""
        self._next = (self._next + count) % self._span

    def take(self, number: int, offsets: Collection[int] = (0,)) -> None:
        """Note that a mutant takes the numbers at these offsets from `number`."""
        self._taken.update((number + each) % self._span for each in offsets)


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
        self._numbers = Numbers(self._builder.first, PACKET_SPAN)
        self._reliable = Numbers(0, RELIABLE_SPAN)
        self._ping = 0
        self._pongs = 0
        self._due = 0.0
        self._leaving = False
        self._left = False
        """The server has nothing of this session any more."""

    def begin(self) -> None:
        """Send the connect datagram, once, as real peers do: to a server that has accepted, a copy
        is a damaged message, which ends the connection. The server's first datagram is the answer.
        """
        self.link.send(NULL_CONNECT)

    def ends(self, octets: bytes) -> bool:
        """Return whether a server drops the connection at this."""
        return self._builder.drops(octets)

    def _send(self, name: str, payload: bytes = b"", base: int | None = None) -> None:
        self.link.send(self._builder.build(self._next(), (name, payload), base=base))

    def _next(self) -> int:
        number = self._numbers.peek()
        self._numbers.advance()
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
            self.link.send(self._builder.ack(self._next(), packet_id(data)))
        if (
            self.state == CONNECTED
            and self.answers
            and not self._leaving
            and packet_id(data) == self._builder.first
            and any(message.name == PING_REQUEST for message in messages)
        ):
            # A server that has dropped us takes the next datagram for a stranger's.
            self.end("taken for a stranger")
            return
        for message in messages:
            self._message(message)

    def _message(self, message: Message) -> None:
        self.answered(message.name)
        payload = message.payload
        if message.name == PING_REQUEST and payload:
            if self._leaving:
                # Our Disconnect was a stranger's first datagram: the server has taken us in anew.
                self.leave()
            self._send(PING_REPLY, payload[:1])
        elif message.name == PING_REPLY and payload:
            self._pongs += payload[0] == self._ping
        elif message.name == PACKET_ACK and len(payload) == CONTROL_SIZES[PACKET_ACK]:
            acked = int.from_bytes(payload[:3], "little")
            bits = int.from_bytes(payload[3:], "little")
            self.acknowledged(acked)
            for at in range(ACK_BITS):
                if bits >> at & 1:
                    self.acknowledged((acked + 1 + at) % PACKET_SPAN)
        elif message.name == DISCONNECT_ACK:
            self._left = True
            self.end("DisconnectAck")
        elif message.name == DISCONNECT:
            self._send(DISCONNECT_ACK)
            self.end("Disconnect")

    def tick(self, now: float) -> None:
        """Ping as real peers do."""
        if self.state == CONNECTED and now >= self._due and not self._leaving:
            self.probe(now)

    def probe(self, now: float) -> None:
        """Send a ping, which a server answers at once; before that there is nothing to ask."""
        if self.state != CONNECTED:
            return
        self._due = now + PING_MS / 1000
        self._ping = (self._ping + 1) & 0xFF
        self._send(PING_REQUEST, bytes([self._ping]))

    def proofs(self) -> int:
        """Return how many pings were answered."""
        return self._pongs if self.state == CONNECTED else self.answers

    def stamp(self, step: Step) -> tuple[bytes, Key | None]:
        """Insert PacketID and reliable base, and the newest PacketID into acknowledgements."""
        data = step.octets
        if self.state == CONNECTED and self.ends(data):
            # A server that drops the connection for damage sends no DisconnectAck.
            self._left |= not self._builder.disconnects(data)
        if len(data) < HEAD or data == NULL_CONNECT:
            return data, None
        shift = dict(step.shift)
        reliable = bool(data[0] & RELIABLE_FLAG)
        if reliable:
            data = self._with_base(data, None if "base" in step.hold else shift.get("base", 0))
        if "sequence" in step.hold:
            self._numbers.take(packet_id(data))
            return data, None
        number = self._numbers.peek()
        self._numbers.advance(step.advance)
        if by := shift.get("sequence", 0):
            number = (number + by) % PACKET_SPAN
            self._numbers.take(number)
        expected = reliable and not step.shift and not step.hold
        return put_packet_id(data, number), number if expected else None

    def _with_base(self, data: bytes, shift: int | None) -> bytes:
        """Return a datagram with the next reliable base, moved by `shift`; None: with its own."""
        messages = self._builder.read(data) or ()
        offsets = {message.delta or 0 for message in messages} or {0}
        if shift is None:
            if len(data) >= HEAD + _MAX_BASE:
                self._reliable.take(KNET_15_16.read(data, HEAD, len(data))[0], offsets)
            return data
        base = self._reliable.peek(offsets)
        self._reliable.advance(max(offsets) + 1)
        if shift:
            base = (base + shift) % RELIABLE_SPAN
            self._reliable.take(base, offsets)
        return reliable_base(data, base)

    def leave(self) -> None:
        """Send Disconnect. To a server that has dropped the connection it is a stranger's first
        datagram: what it answers then is told the same, or a dead client would stay behind.
        """
        self._leaving = True
        if self.answers and not self._left:
            # Before it has taken us in, it would take this for another client.
            self._send(DISCONNECT, base=self._reliable.peek())

    def left(self) -> bool:
        """Return whether the server has said DisconnectAck, or dropped us without a word."""
        return self._left
