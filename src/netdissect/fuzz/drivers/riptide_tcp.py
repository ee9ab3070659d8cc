"""A Riptide client over TCP: the same messages, each behind its length.

Source: docs/protocols/riptide.md, TCP; acknowledgements and heartbeats go on inside the stream.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from netdissect.fuzz.cases import Step
from netdissect.fuzz.drivers.base import Key
from netdissect.fuzz.drivers.riptide import RiptideDriver
from netdissect.wire.riptide import size_limit

BUFFER_LIMIT = 1 << 17  # a hundred times the largest message


def prefix_octets(dialect: str) -> int:
    """Return how many bytes a length has."""
    return 2 if dialect == "riptide-2.0" else 4


def frame(message: bytes, dialect: str) -> bytes:
    """Return a message behind its length."""
    return len(message).to_bytes(prefix_octets(dialect), "little") + message


def frames(stream: bytes, dialect: str) -> Iterator[bytes]:
    """Split whole messages, each with its length, off the start of a stream."""
    head = prefix_octets(dialect)
    at = 0
    while at + head <= len(stream):
        size = int.from_bytes(stream[at : at + head], "little", signed=head > 2)  # noqa: PLR2004 - an Int32; 2.0 has a UInt16
        end = at + head + size
        if size < 1 or end > len(stream):
            return
        yield stream[at:end]
        at = end


class RiptideTcpDriver(RiptideDriver):
    """One connection over TCP. A step holds a message with its length."""

    transport = "tcp"

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._head = prefix_octets(self.dialect)
        self._buffer = b""
        self._out_of_step = False

    def _put(self, message: bytes) -> None:
        super()._put(frame(message, self.dialect))

    def handle(self, data: bytes, now: float) -> None:
        """Answer the messages that are whole."""
        self._buffer += data
        for each in list(frames(self._buffer, self.dialect)):
            self._buffer = self._buffer[len(each) :]
            super().handle(each[self._head :], now)
        if len(self._buffer) > BUFFER_LIMIT:
            self.end("the target's stream makes no sense")

    def tick(self, now: float) -> None:
        """Leave a stream in which the server waits for bytes that will not come."""
        if self._out_of_step:
            self.end("out of step")
        else:
            super().tick(now)

    def ends(self, octets: bytes) -> bool:
        """Return whether this is a Disconnect, not one message with a length that is right, or
        longer than the server's buffer: it takes that for a stream that is out of step.
        """
        message = octets[self._head :]
        whole = next(frames(octets, self.dialect), None) == octets
        return not whole or len(message) > size_limit(self.dialect) or super().ends(message)

    def risks(self, step: Step) -> bool:
        """Return whether the stream or the message in it would end the session."""
        inner = step.with_octets(step.octets[self._head :])
        return self.ends(step.octets) or self._breaks(inner)

    def stamp(self, step: Step) -> tuple[bytes, Key | None]:
        """Insert the live values into the message after the length."""
        self._out_of_step |= sum(map(len, frames(step.octets, self.dialect))) != len(step.octets)
        head, message = step.octets[: self._head], step.octets[self._head :]
        stamped, key = super().stamp(step.with_octets(message))
        return head + stamped, key

    @classmethod
    def split(cls, stream: bytes, dialect: str) -> Iterable[bytes]:
        """Split the start of a stream into messages with their lengths."""
        return frames(stream, dialect)
