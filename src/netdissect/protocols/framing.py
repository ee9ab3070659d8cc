"""Framers that several protocols share: they cut one direction of a TCP stream into messages."""

from __future__ import annotations

from netdissect.model.packets import StreamPiece
from netdissect.protocols.base import Framed

__all__ = ["LengthPrefixed"]


class LengthPrefixed:
    """Messages that follow their own length, little endian; the length does not count itself.

    Holds at most one message: `limit` octets and the prefix. After an impossible length or a gap in
    the stream the start of the next message is not known: octets are skipped until a piece begins
    with a plausible length, which is where senders put message starts.
    """

    __slots__ = (
        "_buffer",
        "_end",
        "_fault",
        "_frames",
        "_is_signed",
        "_limit",
        "_lost",
        "_width",
        "skipped",
    )  # fmt: skip

    def __init__(self, width: int, limit: int, *, fault: str, signed: bool = False) -> None:
        """Make a framer.

        Args:
            width: octets of the prefix.
            limit: largest message; a longer one is taken as it is up to 8 times this, and beyond
                that its length counts as impossible.
            fault: catalogue code of an impossible length.
            signed: a length with the top bit set is negative.

        """
        self._width = width
        self._limit = 8 * limit
        self._fault = fault
        self._is_signed = signed
        self._buffer = bytearray()
        self._end = 0
        """Stream offset behind the buffer."""
        self._frames: list[int] = []
        self._lost = False
        self.skipped = 0
        """Octets that belong to no message that could be found."""

    def feed(self, piece: StreamPiece) -> list[Framed]:
        """Return the messages that this piece completed."""
        if piece.gap_octets:
            self._drop()
            self._lost = True
        buffer = self._buffer
        if self._lost:
            if not self._plausible(piece.data):
                self.skipped += len(piece.data)
                return []
            self._lost = False
        buffer += piece.data
        self._end = piece.offset + len(piece.data)
        self._frames.extend(piece.frames)
        return self._cut()

    def finish(self) -> list[Framed]:
        """Return an incomplete message at the end of the stream, marked as truncated."""
        if len(self._buffer) <= self._width:
            return []
        rest = bytes(self._buffer[self._width :])
        frames = tuple(dict.fromkeys(self._frames))
        self._drop()
        return [(rest, frames, ("truncated",), self._end - len(rest))]

    def _cut(self) -> list[Framed]:
        buffer, width = self._buffer, self._width
        found: list[Framed] = []
        start = 0
        size = len(buffer)
        base = self._end - size
        while size - start >= width:
            length = int.from_bytes(buffer[start : start + width], "little", signed=self._is_signed)
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

    def _plausible(self, data: bytes) -> bool:
        if len(data) < self._width:
            return False
        length = int.from_bytes(data[: self._width], "little", signed=self._is_signed)
        return 0 < length <= self._limit
