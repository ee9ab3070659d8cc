"""A kNet client over TCP: messages behind their lengths, and pings. There are no other numbers, so
a ping that is answered is what shows that a message was taken.

Source: docs/protocols/knet.md, "over TCP"; kNet `TCPMessageConnection`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from netdissect.fuzz.cases import CONNECTED, Step
from netdissect.fuzz.drivers.base import Driver, Key
from netdissect.fuzz.generator import Traits
from netdissect.wire.knet import PING_MS, TCP_LIMIT, message_type
from netdissect.wire.varint import KNET_7_7_16, VarintError

PING_REQUEST, PING_REPLY = 1, 2
_BUFFER_LIMIT = 1 << 20  # no server sends a message of this size to a stranger
_PING_OCTETS = 2  # ID and number, behind one byte of length


def frame(number: int, payload: bytes) -> bytes:
    """Return a message behind its length."""
    content = KNET_7_7_16.write(number) + payload
    return KNET_7_7_16.write(len(content)) + content


def frames(stream: bytes) -> Iterator[bytes]:
    """Split whole messages, each with its length, off the start of a stream."""
    at = 0
    while at < len(stream):
        try:
            size, start = KNET_7_7_16.read(stream, at, len(stream))
        except VarintError:
            return
        if not 1 <= size <= TCP_LIMIT or start + size > len(stream):
            return
        yield stream[at : start + size]
        at = start + size


def parts(message: bytes) -> tuple[int, bytes] | None:
    """Return (message ID, payload) of a message with its length; None without an ID."""
    try:
        _size, at = KNET_7_7_16.read(message, 0, len(message))
        number, at = KNET_7_7_16.read(message, at, len(message))
    except VarintError:
        return None
    return number, message[at:]


class KnetTcpDriver(Driver):
    """One connection over TCP. A step holds a message with its length."""

    protocol = "knet"
    transport = "tcp"
    dialects = ("knet-tcp", "knet-urho3d", "knet-tundra")
    traits = Traits(
        live_fields={"ping_id": "ping"},
        stages=("connecting", CONNECTED),
        controls=frozenset({"PingRequest"}),
    )

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._buffer = b""
        self._ping = 0
        self._pongs = 0
        self._due = 0.0
        self._out_of_step = False

    def begin(self) -> None:
        """Send a ping: messages may flow as soon as TCP is connected, but that alone is no sign of
        a server that lives.
        """
        self.probe(self.clock())

    def handle(self, data: bytes, now: float) -> None:
        """Answer pings, take answers."""
        del now
        self._buffer += data
        for each in list(frames(self._buffer)):
            self._buffer = self._buffer[len(each) :]
            found = parts(each)
            if found is not None:
                self._message(*found)
        if len(self._buffer) > _BUFFER_LIMIT:
            self.end("the target's stream makes no sense")

    def _message(self, number: int, payload: bytes) -> None:
        self.answered(message_type(number, self.dialect))
        if number == PING_REQUEST and payload:
            self.link.send(frame(PING_REPLY, payload[:1]))
        elif number == PING_REPLY and payload:
            self._pongs += 1
            self.state = CONNECTED if self.state == "connecting" else self.state
            self.acknowledged(payload[0])

    def tick(self, now: float) -> None:
        """Ping as real peers do; leave a stream that is out of step."""
        if self._out_of_step:
            self.end("out of step")
        elif now >= self._due:
            self.probe(now)

    def _next(self) -> int:
        self._ping = (self._ping + 1) & 0xFF
        return self._ping

    def probe(self, now: float) -> None:
        """Send a ping, which a server answers at once."""
        self._due = now + PING_MS / 1000
        self.link.send(frame(PING_REQUEST, bytes([self._next()])))

    def proofs(self) -> int:
        """Return how many pings were answered."""
        return self._pongs

    def ends(self, octets: bytes) -> bool:
        """Return whether the server would wait for bytes that do not come, or leave."""
        return sum(map(len, frames(octets))) != len(octets)

    def stamp(self, step: Step) -> tuple[bytes, Key | None]:
        """Give a ping the next number; other messages have no live values."""
        self._out_of_step |= self.ends(step.octets)
        found = parts(step.octets)
        if found is None or found[0] != PING_REQUEST or "ping" in step.hold or step.shift:
            return step.octets, None
        if len(step.octets) != 1 + _PING_OCTETS or self._out_of_step:
            return step.octets, None
        number = self._next()
        return frame(PING_REQUEST, bytes([number])), number

    def leave(self) -> None:
        """Do nothing: closing the socket sends the FIN that ends a session."""

    @classmethod
    def split(cls, stream: bytes, dialect: str) -> Iterable[bytes]:
        """Split the start of a stream into messages with their lengths."""
        del dialect
        return frames(stream)
