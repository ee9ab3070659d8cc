"""Framers that several protocols share: they cut one direction of a TCP stream into messages."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from re import Pattern
from typing import Final

from netdissect.model.segments import StreamPiece
from netdissect.protocols.base import Framed

__all__ = ["LengthPrefixed", "Prefix", "chain_start"]

_MAX_LOST: Final = 16 * 1024
"""Bytes searched for the start of a message; beyond, the first half of them is given up."""
_GROWTH: Final = 64
"""Bytes that come before the next search, at least: a piece can be one byte."""


@dataclass(frozen=True, slots=True)
class Prefix:
    """How messages follow their own length in a stream."""

    width: int
    """Bytes of the length, little endian; it does not count itself."""
    limit: int
    """Largest message, bytes."""
    telling: int
    """So many messages in a row that could be the protocol's are no chance."""
    fits: Callable[[bytes], bool]
    """Whether bytes could be a message."""
    begins: Pattern[bytes]
    """Matches, without taking anything, wherever a length and a message could begin."""
    is_signed: bool = False
    """A length with the top bit set is negative."""

    def length(self, data: bytes | bytearray, place: int) -> int:
        """Return the length that stands at a place."""
        return int.from_bytes(data[place : place + self.width], "little", signed=self.is_signed)


def chain_start(data: bytes, prefix: Prefix) -> int | None:
    """Return where `prefix.telling` messages in a row begin, or fewer that fill the bytes exactly;
    None where nothing does.
    """
    for match in prefix.begins.finditer(data):
        start = place = match.start()
        count = 0
        while count < prefix.telling and place + prefix.width < len(data):
            length = prefix.length(data, place)
            end = place + prefix.width + length
            if not 0 < length <= prefix.limit or end > len(data):
                break
            if not prefix.fits(data[place + prefix.width : end]):
                break
            place = end
            count += 1
        if count >= prefix.telling or (count and not start and place == len(data)):
            return start
    return None


class LengthPrefixed:
    """Messages that follow their own length, little endian; the length does not count itself.

    Holds at most one message: `limit` bytes and the prefix. After an impossible length or a gap in
    the stream the start of the next message is not known: bytes are skipped up to messages in a
    row that could be the protocol's.
    """

    __slots__ = (
        "_buffer",
        "_end",
        "_fault",
        "_frames",
        "_limit",
        "_lost",
        "_prefix",
        "_search_at",
        "skipped",
    )  # fmt: skip

    def __init__(self, prefix: Prefix, *, fault: str) -> None:
        """Make a framer.

        Args:
            prefix: a message longer than its limit is taken as it is up to 8 times that, and beyond
                its length counts as impossible.
            fault: catalogue code of an impossible length.

        """
        self._prefix = prefix
        self._limit = 8 * prefix.limit
        self._fault = fault
        self._buffer = bytearray()
        self._end = 0
        """Stream offset behind the buffer."""
        self._frames: list[int] = []
        self._lost = False
        self._search_at = 0
        """Bytes held at which the next message is looked for again."""
        self.skipped = 0
        """Bytes that belong to no message that could be found."""

    def feed(self, piece: StreamPiece) -> list[Framed]:
        """Return the messages that this piece completed."""
        if piece.gap_octets:
            self._drop()
            self._lost = True
        self._buffer += piece.data
        self._end = piece.offset + len(piece.data)
        self._frames.extend(piece.frames)
        if self._lost and not self._found(piece.data):
            return []
        return self._cut()

    def _found(self, newest: bytes) -> bool:
        """Look for the start of a message in what is held; give up what lies before it."""
        buffer = self._buffer
        start: int | None = None
        if chain_start(newest, self._prefix) == 0:
            start = len(buffer) - len(newest)
            del self._frames[:-1]
        elif len(buffer) >= self._search_at:
            start = chain_start(bytes(buffer), self._prefix)
            self._search_at = len(buffer) + len(buffer) // 4 + _GROWTH
        self._lost = start is None
        if start is None:
            start = len(buffer) // 2 if len(buffer) > _MAX_LOST else 0
        self.skipped += start
        del buffer[:start]
        return not self._lost

    def finish(self) -> list[Framed]:
        """Return an incomplete message at the end of the stream, marked as truncated."""
        if self._lost:
            self.skipped += len(self._buffer)
            self._drop()
        if len(self._buffer) <= self._prefix.width:
            return []
        rest = bytes(self._buffer[self._prefix.width :])
        frames = tuple(dict.fromkeys(self._frames))
        self._drop()
        return [(rest, frames, ("truncated",), self._end - len(rest))]

    def _cut(self) -> list[Framed]:
        buffer, width = self._buffer, self._prefix.width
        found: list[Framed] = []
        start = 0
        size = len(buffer)
        base = self._end - size
        while size - start >= width:
            length = self._prefix.length(buffer, start)
            if length == 0:
                start += width  # Releases skip an empty message.
                continue
            if not 0 < length <= self._limit:
                octets = bytes(buffer[start : start + width])
                found.append((octets, self._used(), (self._fault,), base + start))
                self.skipped += size - start
                self._drop()
                self._lost = True
                return found
            if size - start < width + length:
                break
            start += width
            octets = bytes(buffer[start : start + length])
            found.append((octets, self._used(), (), base + start))
            start += length
        if start:
            del buffer[:start]
            del self._frames[: -1 if buffer else None]
        return found

    def _used(self) -> tuple[int, ...]:
        return tuple(dict.fromkeys(self._frames))

    def _drop(self) -> None:
        self._buffer.clear()
        self._frames.clear()
        self._search_at = 0
