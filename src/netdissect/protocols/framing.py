"""Shared parts of the framers, which cut one direction of a TCP stream into messages."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from re import Pattern
from typing import Final, Literal

from netdissect.model.segments import StreamPiece
from netdissect.protocols.base import Framed

_MAX_SEARCHED: Final = 16 * 1024
"""Bytes that are searched for the start of a message; of more, the first half is given up."""
_MIN_GROWTH: Final = 64
"""Bytes that must arrive before the next search, since a piece can be a single byte."""
_LIMIT_FACTOR: Final = 8
"""A length is impossible from this multiple of the protocol's limit on, which programs can raise.
"""


class StreamBuffer:
    """The bytes of a stream that belong to no complete message yet, and the frames they came in."""

    __slots__ = ("data", "end", "frames")

    def __init__(self) -> None:
        self.data = bytearray()
        self.end = 0
        """Stream offset of the end of `data`."""
        self.frames: list[int] = []
        """Capture frames of the pieces in `data`; the last one may remain after `drop`."""

    def append(self, piece: StreamPiece) -> None:
        """Append a piece of the stream."""
        self.data += piece.data
        self.end = piece.offset + len(piece.data)
        self.frames.extend(piece.frames)

    def used_frames(self) -> tuple[int, ...]:
        """Return the capture frames, each once."""
        return tuple(dict.fromkeys(self.frames))

    def drop(self, count: int) -> None:
        """Remove the first `count` bytes, after which only the newest frame counts."""
        if count:
            del self.data[:count]
            # What is left came with the newest piece, because all messages before it were complete.
            del self.frames[: -1 if self.data else None]

    def clear(self) -> None:
        """Remove everything."""
        self.data.clear()
        self.frames.clear()


@dataclass(frozen=True, slots=True)
class Prefix:
    """How messages follow their own length in a stream."""

    width: int
    """Bytes of the length, which does not count itself."""
    limit: int
    """Size of the largest message, bytes."""
    chain: int
    """Consecutive possible messages that cannot be coincidence."""
    is_possible: Callable[[bytes], bool]
    """Whether bytes could be a message."""
    starts: Pattern[bytes]
    """Zero-width match wherever a length followed by a message could begin."""
    is_signed: bool = False
    """True where a length with the top bit set is negative."""
    order: Literal["little", "big"] = "little"
    """Byte order of the length."""

    def length(self, data: bytes | bytearray, position: int) -> int:
        """Return the length at `position`."""
        return int.from_bytes(
            data[position : position + self.width], self.order, signed=self.is_signed
        )


def chain_start(data: bytes, prefix: Prefix) -> int | None:
    """Return where `prefix.chain` consecutive messages begin; None where nothing does.

    Fewer messages are enough where they fill `data` exactly.
    """
    for match in prefix.starts.finditer(data):
        start = position = match.start()
        count = 0
        while count < prefix.chain and position + prefix.width < len(data):
            length = prefix.length(data, position)
            end = position + prefix.width + length
            if not 0 < length <= prefix.limit or end > len(data):
                break
            if not prefix.is_possible(data[position + prefix.width : end]):
                break
            position = end
            count += 1
        if count >= prefix.chain or (count and not start and position == len(data)):
            return start
    return None


class LengthPrefixed:
    """A framer of messages that follow their own length.

    It holds at most one message. After an impossible length or a gap in the stream it is out of
    sync: bytes are skipped until consecutive messages could be the protocol's.
    """

    __slots__ = ("_buffer", "_fault", "_in_sync", "_limit", "_prefix", "_search_at")

    def __init__(self, prefix: Prefix, *, fault: str) -> None:
        """Create a framer.

        Args:
            prefix: how messages follow their length. A message above its limit is accepted up to
                `_LIMIT_FACTOR` times the limit.
            fault: catalogue code of an impossible length.

        """
        self._prefix = prefix
        self._limit = _LIMIT_FACTOR * prefix.limit
        self._fault = fault
        self._buffer = StreamBuffer()
        self._in_sync = True
        self._search_at = 0
        """Size of the buffer, bytes, at which it is searched again."""

    def feed(self, piece: StreamPiece) -> list[Framed]:
        """Return the messages that this piece completes."""
        if piece.gap_octets:
            self._lose_sync()
        self._buffer.append(piece)
        if not self._in_sync and not self._resync(piece.data):
            return []
        return self._cut()

    def finish(self) -> list[Framed]:
        """Return an incomplete message at the end of the stream, marked as truncated."""
        buffer = self._buffer
        if not self._in_sync:
            buffer.clear()
        if len(buffer.data) <= self._prefix.width:
            return []
        rest = bytes(buffer.data[self._prefix.width :])
        frames = buffer.used_frames()
        buffer.clear()
        return [(rest, frames, ("truncated",), buffer.end - len(rest))]

    def _lose_sync(self) -> None:
        self._buffer.clear()
        self._search_at = 0
        self._in_sync = False

    def _resync(self, newest: bytes) -> bool:
        """Look for the start of a message, and give up the bytes before it."""
        buffer = self._buffer
        size = len(buffer.data)
        start: int | None = None
        # Senders write whole messages, so that one often begins with the newest piece.
        if chain_start(newest, self._prefix) == 0:
            start = size - len(newest)
            del buffer.frames[:-1]
        elif size >= self._search_at:
            start = chain_start(bytes(buffer.data), self._prefix)
            # At growing sizes only: a search after each piece would take quadratic time.
            self._search_at = size + size // 4 + _MIN_GROWTH
        self._in_sync = start is not None
        if start is None:
            start = size // 2 if size > _MAX_SEARCHED else 0
        del buffer.data[:start]
        return self._in_sync

    def _cut(self) -> list[Framed]:
        """Return the complete messages in the buffer."""
        buffer, width = self._buffer, self._prefix.width
        data = buffer.data
        found: list[Framed] = []
        position = 0
        size = len(data)
        base = buffer.end - size
        while size - position >= width:
            length = self._prefix.length(data, position)
            if length == 0:
                position += width  # Receivers skip an empty message.
                continue
            if not 0 < length <= self._limit:
                octets = bytes(data[position : position + width])
                found.append((octets, buffer.used_frames(), (self._fault,), base + position))
                self._lose_sync()
                return found
            if size - position < width + length:
                break
            position += width
            octets = bytes(data[position : position + length])
            found.append((octets, buffer.used_frames(), (), base + position))
            position += length
        buffer.drop(position)
        return found
