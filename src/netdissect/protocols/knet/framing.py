"""kNet's framing over TCP: a VLE-1.7/1.7/16 length and that many bytes. Source: section 8."""

from __future__ import annotations

from re import DOTALL
from re import compile as compile_
from typing import Final

from netdissect.model.segments import StreamPiece
from netdissect.protocols.base import Framed
from netdissect.wire.knet import TCP_LIMIT
from netdissect.wire.varint import KNET_7_7_16, VarintError

__all__ = ["VleFramer"]

_PING: Final = compile_(rb"\x02[\x01\x02].", DOTALL)


class VleFramer:
    """Cuts one direction of a stream. Holds at most one message of 10 MiB.

    After a gap the stream is taken up where a piece begins with a ping or its reply, or where two
    pieces in a row are whole messages: one is chance too often. A length that is not allowed ends
    it: the receiver closes the connection.
    """

    __slots__ = ("_buffer", "_end", "_ended", "_frames", "_lost", "_wanted", "_whole", "skipped")

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._whole: StreamPiece | None = None
        """While lost: the newest piece, where it consists of whole messages."""
        self._frames: list[int] = []
        self._lost = self._ended = False
        self._wanted = 0
        """Bytes that the message at the start of the buffer needs, as far as known."""
        self._end = 0
        """Offset in the stream behind the buffer."""
        self.skipped = 0
        """Bytes that belong to no message that could be found."""

    def feed(self, piece: StreamPiece) -> list[Framed]:
        """Return the messages that this piece completed."""
        if piece.gap_octets:
            self._lost = True
            self._drop()
        if self._ended or (self._lost and not self._found(piece)):
            self.skipped += len(piece.data)
            return []
        self._buffer += piece.data
        self._end = piece.offset + len(piece.data)
        self._frames.extend(piece.frames)
        return self._cut() if len(self._buffer) >= self._wanted else []

    def _found(self, piece: StreamPiece) -> bool:
        """Return whether the stream is taken up with this piece, or with the one before it."""
        before, self._whole = self._whole, piece if _whole(piece.data) else None
        if self._whole is not None and before is not None:
            self.skipped -= len(before.data)
            self._buffer += before.data
            self._frames.extend(before.frames)
        elif not _PING.match(piece.data):
            return False
        self._lost = False
        return True

    def finish(self) -> list[Framed]:
        """Return nothing of an incomplete message at the end of the stream but a fault."""
        if not self._buffer:
            return []
        frames, offset = self._used(), self._end - len(self._buffer)
        self._drop()
        return [(b"", frames, ("truncated",), offset)]

    def _cut(self) -> list[Framed]:
        size = len(self._buffer)
        whole = bytes(self._buffer)
        base = self._end - size
        found: list[Framed] = []
        place = self._wanted = 0
        while place < size:
            try:
                length, start = KNET_7_7_16.read(whole, place, size)
            except VarintError:
                break
            if not 1 <= length <= TCP_LIMIT:
                fault = ("knet-tcp-length", f"length {length}")
                found.append((b"", self._used(), (fault,), base + place))
                self.skipped += size - place
                self._ended = True
                self._drop()
                return found
            if start + length > size:
                self._wanted = start + length - place
                break
            found.append((whole[start : start + length], self._used(), (), base + start))
            place = start + length
        if place:
            del self._buffer[:place]
            del self._frames[: -1 if self._buffer else None]
        return found

    def _used(self) -> tuple[int, ...]:
        return tuple(dict.fromkeys(self._frames))

    def _drop(self) -> None:
        self._buffer.clear()
        self._frames.clear()
        self._wanted = 0
        self._whole = None


def _whole(data: bytes) -> bool:
    """Return whether bytes are one or more whole messages and nothing else."""
    place, size = 0, len(data)
    while place < size:
        try:
            length, start = KNET_7_7_16.read(data, place, size)
            kind, payload = KNET_7_7_16.read(data, start, size)
        except VarintError:
            return False
        if not 1 <= length <= TCP_LIMIT or payload - start > length:
            return False
        if kind in (1, 2) and length != 2:  # noqa: PLR2004 - a ping or its reply
            return False
        place = start + length
    return size > 0 and place == size
