"""kNet's framing over TCP: a VLE-1.7/1.7/16 length and that many bytes. Source: section 8."""

from __future__ import annotations

from re import DOTALL
from re import compile as compile_
from typing import Final

from netdissect.model.segments import StreamPiece
from netdissect.protocols.base import Framed
from netdissect.protocols.framing import StreamBuffer
from netdissect.wire.knet import TCP_LIMIT
from netdissect.wire.varint import KNET_7_7_16, VarintError

_PING: Final = compile_(rb"\x02[\x01\x02].", DOTALL)
"""A whole ping or ping reply: length 2, message ID, number."""


class VleFramer:
    """A framer that holds at most one message of `TCP_LIMIT` bytes.

    After a gap it resumes where a piece begins with a ping or its reply, or where two consecutive
    pieces consist of whole messages; a single one is too often coincidence. It stops at a length
    that is not allowed, because the receiver then closes the connection.
    """

    __slots__ = ("_buffer", "_candidate", "_in_sync", "_needed", "_stopped")

    def __init__(self) -> None:
        self._buffer = StreamBuffer()
        self._in_sync = True
        self._stopped = False
        """True once a length was not allowed."""
        self._candidate: StreamPiece | None = None
        """While out of sync: the newest piece, if it consists of whole messages."""
        self._needed = 0
        """Bytes of the message at the start of the buffer, as far as known."""

    def feed(self, piece: StreamPiece) -> list[Framed]:
        """Return the messages that this piece completes."""
        if piece.gap_octets:
            self._in_sync = False
            self._clear()
        if self._stopped or (not self._in_sync and not self._resync(piece)):
            return []
        self._buffer.append(piece)
        return self._cut() if len(self._buffer.data) >= self._needed else []

    def finish(self) -> list[Framed]:
        """Return an incomplete message at the end of the stream: no bytes, only the fault."""
        buffer = self._buffer
        if not buffer.data:
            return []
        frames, offset = buffer.used_frames(), buffer.end - len(buffer.data)
        self._clear()
        return [(b"", frames, ("truncated",), offset)]

    def _clear(self) -> None:
        self._buffer.clear()
        self._needed = 0
        self._candidate = None

    def _resync(self, piece: StreamPiece) -> bool:
        """Return whether the framer resumes with this piece, or with the one before it."""
        before, self._candidate = self._candidate, piece if _is_whole(piece.data) else None
        if self._candidate is not None and before is not None:
            self._buffer.append(before)
        elif not _PING.match(piece.data):
            return False
        self._in_sync = True
        return True

    def _cut(self) -> list[Framed]:
        """Return the complete messages in the buffer."""
        buffer = self._buffer
        data = bytes(buffer.data)
        size = len(data)
        base = buffer.end - size
        found: list[Framed] = []
        position = self._needed = 0
        while position < size:
            try:
                length, start = KNET_7_7_16.read(data, position, size)
            except VarintError:
                break
            if not 1 <= length <= TCP_LIMIT:
                fault = ("knet-tcp-length", f"length {length}")
                found.append((b"", buffer.used_frames(), (fault,), base + position))
                self._stopped = True
                self._clear()
                return found
            end = start + length
            if end > size:
                self._needed = end - position
                break
            found.append((data[start:end], buffer.used_frames(), (), base + start))
            position = end
        buffer.drop(position)
        return found


def _is_whole(data: bytes) -> bool:
    """Return whether bytes consist of one or more whole messages."""
    position, size = 0, len(data)
    while position < size:
        try:
            length, start = KNET_7_7_16.read(data, position, size)
            message_id, payload = KNET_7_7_16.read(data, start, size)
        except VarintError:
            return False
        if not 1 <= length <= TCP_LIMIT or payload - start > length:
            return False
        if message_id in (1, 2) and length != 2:  # noqa: PLR2004 - a ping or its reply
            return False
        position = start + length
    return size > 0 and position == size
