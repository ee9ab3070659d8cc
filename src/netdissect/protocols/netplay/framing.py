"""Netplay's framing: cuts a stream into messages, even after gaps and from mid-stream on.

Bytes on both sides of a gap are never joined. If the length of the frame with the gap is known and
its end lies behind the gap, reading continues there. Otherwise bytes are skipped until three
consecutive frames fit (section 6). So are frames that are too short to be any, behind two odd ones:
they are read at the wrong place. In text, bytes are skipped until a line of strict JSON follows a
class line.
Source: docs/protocols/netplay.md.
"""

from __future__ import annotations

import re
from typing import Final

from netdissect.model.segments import StreamPiece
from netdissect.protocols.base import Fault, Framed
from netdissect.protocols.netplay.shape import Shape, find_pair
from netdissect.wire.netplay import (
    CHUNK_DATA,
    RESERVED,
    SHORTEST,
    endless,
    incomplete,
    oversize,
)

MAX_TEXT_OCTETS = 16 << 20
"""Bytes of one text message that are held."""
_DESYNC: Final = 2
"""Consecutive odd frames that make it likely that frames are read at the wrong place."""
_SHORT_FRAME: Final = rb"\x00(?:\x00|\x01.|\x02..)"
_TOO_SHORT: Final = {
    False: re.compile(b"(?:" + _SHORT_FRAME + b")++", re.DOTALL),
    True: re.compile(b"(?:." + _SHORT_FRAME + b")++", re.DOTALL),
}
"""Whether there are chunk headers -> frames whose length is below `SHORTEST`, in a row."""


class _Source:
    """The extent of one piece of stream in a buffer."""

    __slots__ = ("end", "frames", "start")

    def __init__(self, start: int, end: int, frames: tuple[int, ...]) -> None:
        self.start = start
        self.end = end
        self.frames = frames


class _Buffer:
    """The bytes of a stream that belong to no complete message yet, and their pieces.

    `protocols.framing.StreamBuffer` does not know which bytes came in which piece.
    """

    __slots__ = ("data", "sources", "start")

    def __init__(self) -> None:
        self.data = bytearray()
        self.start = 0
        """Stream offset of the first byte."""
        self.sources: list[_Source] = []

    def append(self, piece: StreamPiece) -> None:
        """Append a piece of the stream."""
        if not self.data:
            self.start = piece.offset
            self.sources.clear()
        end = piece.offset + len(piece.data)
        self.data += piece.data
        self.sources.append(_Source(piece.offset, end, piece.frames))

    def drop(self, count: int) -> None:
        """Remove the first `count` bytes."""
        del self.data[:count]
        self.start += count
        used_up = 0
        while used_up < len(self.sources) and self.sources[used_up].end <= self.start:
            used_up += 1
        del self.sources[:used_up]

    def clear(self) -> None:
        """Remove everything."""
        self.data.clear()
        self.sources.clear()

    def frames(self, start: int, end: int) -> tuple[int, ...]:
        """Return the capture frames of the bytes at stream offsets [start, end)."""
        sources = self.sources
        if len(sources) == 1:
            return sources[0].frames
        found = [each.frames for each in sources if each.start < end and each.end > start]
        if len(found) == 1 and len(found[0]) == 1:
            return found[0]
        return tuple(sorted({frame for frames in found for frame in frames}))


class _Framer:
    """What the framers of all dialects share: how they lose and regain synchronisation."""

    def __init__(self) -> None:
        self._buffer = _Buffer()
        self._in_sync = True
        self._skipped = 0
        """Bytes skipped since the last message, not counting those in gaps."""
        self._missing = 0
        """Bytes in gaps since the last message."""

    def feed(self, piece: StreamPiece) -> list[Framed]:
        """Return the messages that this piece completes."""
        if piece.gap_octets:
            self._handle_gap(piece)
        if not piece.data:
            return []
        self._buffer.append(piece)
        if not self._in_sync and not self._resync():
            return []
        return self._cut(piece)

    def finish(self) -> list[Framed]:
        """Return the faults of the bytes at the end of the stream, and messages among them."""
        found: list[Framed] = []
        buffer = self._buffer
        if not self._in_sync and buffer.data and self._resync_at_end():
            found = self._cut(None)
        faults: list[Fault] = []
        if not self._in_sync:
            self._skipped += len(buffer.data)
        # In sync, what is skipped behind a gap is the rest of the frame with the gap.
        if (self._skipped and not self._missing) or (self._missing and not self._in_sync):
            faults.append(self._skip_fault())
        if self._in_sync and buffer.data:
            faults += self._incomplete()
        if faults:
            end = buffer.start + len(buffer.data)
            found.append((b"", buffer.frames(buffer.start, end), tuple(faults), buffer.start))
        buffer.clear()
        return found

    def _skip_fault(self) -> Fault:
        """Return the fault of the skipped and missing bytes, and reset their counts."""
        text = f"{self._skipped} bytes skipped"
        if self._missing:
            text += f", {self._missing} or more are not in the capture"
        self._skipped = self._missing = 0
        return "octets-skipped", text

    def _lose_sync(self) -> None:
        """Skip the buffer: the start of the next message is unknown."""
        self._skipped += len(self._buffer.data)
        self._buffer.clear()
        self._in_sync = False

    def _regain_sync(self, count: int) -> None:
        """Skip `count` bytes, behind which a message begins."""
        self._skipped += count
        self._buffer.drop(count)
        self._in_sync = True

    def _handle_gap(self, piece: StreamPiece) -> None:
        self._missing += piece.gap_octets
        self._lose_sync()

    def _with_skipped(self, faults: list[Fault]) -> tuple[Fault, ...]:
        """Return the faults of a message, preceded by that of the bytes skipped before it."""
        if self._skipped or self._missing:
            faults.insert(0, self._skip_fault())
        return tuple(faults)

    def _incomplete(self) -> list[Fault]:
        """Return the faults of the incomplete message in the buffer."""
        raise NotImplementedError

    def _resync(self) -> bool:
        """Look for the start of a message in the buffer; return whether there is one."""
        raise NotImplementedError

    def _resync_at_end(self) -> bool:
        """Look for the start of a message once more, given that no bytes follow."""
        return False

    def _cut(self, piece: StreamPiece | None) -> list[Framed]:
        """Return the complete messages in the buffer, whose newest piece is `piece`."""
        raise NotImplementedError


class BinaryFramer(_Framer):
    """Framer of bin1 and bin2, and of bin3, whose messages keep their chunk headers."""

    def __init__(self, dialect: str) -> None:
        super().__init__()
        self._shape = Shape(dialect)
        chunked = self._chunked = self._shape.chunked
        self._head = 3 if chunked else 2
        """Size of the length field and what precedes it, bytes."""
        self._too_short = _TOO_SHORT[chunked]
        self._need = self._head
        """Size of the buffer at which the next message can be cut, as far as known."""
        self._to_skip = 0
        """Bytes behind a gap that are the rest of the frame with the gap."""
        self._odd = 0
        """Consecutive odd frames."""

    def feed(self, piece: StreamPiece) -> list[Framed]:
        """Return the messages that this piece completes."""
        buffer = self._buffer
        if not piece.gap_octets and self._in_sync and not self._to_skip:
            if buffer.data:
                buffer.append(piece)
                return self._cut(piece) if len(buffer.data) >= self._need else []
            found = self._cut_whole(piece)
            if found is not None:
                return found
        if piece.gap_octets:
            self._handle_gap(piece)
        if piece.gap_octets or self._to_skip:
            skipped = min(self._to_skip, len(piece.data))
            self._to_skip -= skipped
            self._skipped += skipped
            piece = StreamPiece(piece.offset + skipped, piece.data[skipped:], piece.frames)
        return super().feed(piece)

    def _cut_whole(self, piece: StreamPiece) -> list[Framed] | None:
        """Return the messages of a piece that consists of whole ones without faults, else None."""
        offset, data, frames = piece.offset, piece.data, piece.frames
        size = len(data)
        if self._skipped or self._missing or size < self._head + SHORTEST:
            return None
        if self._chunked:
            if data[0] or size > CHUNK_DATA + 1 or data[1] << 8 | data[2] != size - 3:
                return None
            self._odd = 0
            return [(data, frames, (), offset)]
        found: list[Framed] = []
        position = 0
        while position + 3 <= size:
            length = data[position] << 8 | data[position + 1]
            end = position + 2 + length
            if length < SHORTEST or end > size or data[position + 2] & RESERVED:
                return None
            octets = data if end - position == size else data[position:end]
            found.append((octets, frames, (), offset + position))
            position = end
        if position < size:
            return None
        self._odd = 0
        return found

    def _handle_gap(self, piece: StreamPiece) -> None:
        """Continue at the end of the frame with the gap if it lies behind the gap."""
        buffer = self._buffer
        end = buffer.start + self._need
        if self._to_skip:
            # A second gap before the end of the frame with the first one.
            end = piece.offset - piece.gap_octets + self._to_skip
        known = self._to_skip or (buffer.data and self._need > self._head)
        self._need, self._to_skip = self._head, 0
        if not self._in_sync or not known or end < piece.offset:
            super()._handle_gap(piece)
            return
        self._missing += piece.gap_octets
        self._skipped += len(buffer.data)
        buffer.clear()
        self._to_skip = end - piece.offset

    def _wire_size(self, data: bytes | bytearray, position: int) -> int:
        """Return the size of the message at `position` in the stream, bytes."""
        if not self._chunked:
            return 2 + (data[position] << 8 | data[position + 1])
        need = (data[position + 1] << 8 | data[position + 2]) + 2
        # One header byte for each chunk that is begun.
        return need - (-need // CHUNK_DATA)

    def _cut(self, piece: StreamPiece | None) -> list[Framed]:
        buffer = self._buffer
        size = len(buffer.data)
        if size < self._need:
            return []
        data = piece.data if piece is not None and len(buffer.sources) == 1 else b""
        # Copied only if the buffer holds more than the newest piece.
        if len(data) != size:
            data = bytes(buffer.data)
        found: list[Framed] = []
        start, position = buffer.start, 0
        while True:
            run = self._too_short.match(data, position) if self._odd >= _DESYNC else None
            if run is not None:
                # A message of each would cost as much as others do, for two bytes.
                self._skipped += run.end() - position
                position = run.end()
            if size - position < self._head:
                self._need = self._head
                break
            need = self._wire_size(data, position)
            if size - position < need:
                self._need = need
                break
            end = position + need
            octets = data[position:end]
            frames = buffer.frames(start + position, start + end)
            found.append((octets, frames, self._faults(octets, start + position), start + position))
            position = end
        buffer.drop(position)
        return found

    def _faults(self, octets: bytes, offset: int) -> tuple[Fault, ...]:
        """Return the faults of a message at a stream offset."""
        head = self._head
        length = octets[head - 2] << 8 | octets[head - 1]
        odd = length < SHORTEST or octets[head] & RESERVED
        if not odd and not self._chunked and not self._skipped and not self._missing:
            self._odd = 0
            return ()
        faults: list[Fault] = []
        self._odd = self._odd + 1 if odd else 0
        if self._odd == _DESYNC:
            faults.append("desync-suspected")
        if self._chunked:
            faults += self._chunk_faults(octets, offset)
        return self._with_skipped(faults)

    def _chunk_faults(self, octets: bytes, offset: int) -> list[Fault]:
        """Return the faults of chunks that are no piece of stream of their own.

        The real receiver takes the result of one read for one chunk, and misreads them.
        """
        sources = self._buffer.sources
        size = len(octets)
        alone = len(sources) == 1 and sources[0].start == offset
        if alone and sources[0].end == offset + size and size <= CHUNK_DATA + 1:
            return []
        edges = {source.start for source in sources} | {source.end for source in sources}
        split = coalesced = False
        for start in range(offset, offset + size, CHUNK_DATA + 1):
            end = min(start + CHUNK_DATA + 1, offset + size)
            coalesced |= start not in edges or end not in edges
            split |= any(start < edge < end for edge in edges)
        names = (("chunk-coalesced", coalesced), ("chunk-split", split))
        return [name for name, found in names if found]

    def _incomplete(self) -> list[Fault]:
        need, size = self._need, len(self._buffer.data)
        if not self._chunked:
            return [incomplete(need - size), *oversize(need - 2)]
        # The headers of missing chunks are no missing bytes of the frame.
        headers = (need + CHUNK_DATA) // (CHUNK_DATA + 1) - (size + CHUNK_DATA) // (CHUNK_DATA + 1)
        return [incomplete(need - size - headers)]

    def _resync(self) -> bool:
        data = bytes(self._buffer.data)
        for position in self._shape.places(data):
            found = self._shape.starts(data, position)
            if found is None:
                # Messages may begin here: more bytes will tell.
                self._skipped += position
                self._buffer.drop(position)
                return False
            if found:
                self._need = self._head
                self._regain_sync(position)
                return True
        self._lose_sync()
        return False

    def _resync_at_end(self) -> bool:
        data = bytes(self._buffer.data)
        for position in self._shape.places(data):
            if self._shape.ends(data, position):
                self._need = self._head
                self._regain_sync(position)
                return True
        return False


class TextFramer(_Framer):
    """Framer of text: a class line and a body line, each ended by a line feed."""

    def __init__(self) -> None:
        super().__init__()
        self._searched = 0
        """Bytes of the buffer without a line feed that was not found yet."""
        self._first = -1
        """Position of the line feed behind the class line; -1 until it is found."""
        self._split = False
        """Whether a piece boundary lies inside a character of the current message."""
        self._inside = False
        """While out of sync: whether the rest of a line with an unknown start must be skipped."""

    def feed(self, piece: StreamPiece) -> list[Framed]:
        """Return the messages that this piece completes."""
        data = piece.data
        buffer = self._buffer
        if not piece.gap_octets and self._in_sync and data:
            if buffer.data:
                size = len(buffer.data) + len(data)
                inside = b"\n" not in data and data[0] & 0xC0 != 0x80  # noqa: PLR2004 - no rest of a UTF-8 character
                if inside and size <= MAX_TEXT_OCTETS:
                    buffer.append(piece)
                    self._searched = size
                    return []
            elif (
                data[-1:] == b"\n" and data.count(b"\n") == 2  # noqa: PLR2004 - class line and body
                and not self._skipped and not self._missing
            ):  # fmt: skip
                return [(data, piece.frames, (), piece.offset)]
        return super().feed(piece)

    def _lose_sync(self) -> None:
        super()._lose_sync()
        self._searched, self._first, self._split, self._inside = 0, -1, False, True

    def _incomplete(self) -> list[Fault]:
        line = "class_name" if self._first < 0 else "body"
        return [endless(line, len(self._buffer.data) - self._first - 1)]

    def _resync(self) -> bool:
        buffer = self._buffer
        if self._inside:
            end = buffer.data.find(b"\n")
            if end < 0:
                self._skipped += len(buffer.data)
                buffer.clear()
                return False
            self._skipped += end + 1
            buffer.drop(end + 1)
            self._inside = False
        if buffer.data.find(b"\n", self._searched) < 0:
            self._searched = len(buffer.data)
            if len(buffer.data) > MAX_TEXT_OCTETS:
                self._lose_sync()
            return False
        pair = find_pair(bytes(buffer.data), 0)
        if pair is None:
            # Only the last line and what follows it can still become a pair.
            last = buffer.data.rfind(b"\n")
            keep = buffer.data.rfind(b"\n", 0, last) + 1
            self._skipped += keep
            buffer.drop(keep)
            self._searched = len(buffer.data)
            return False
        self._regain_sync(pair[0])
        self._searched, self._first = 0, -1
        return True

    def _cut(self, piece: StreamPiece | None) -> list[Framed]:
        buffer = self._buffer
        # Its first byte continues a UTF-8 character.
        if piece is not None and piece.offset > buffer.start and piece.data[0] & 0xC0 == 0x80:  # noqa: PLR2004
            self._split = True
        found: list[Framed] = []
        data = buffer.data
        cut = 0
        while True:
            end = data.find(b"\n", self._searched)
            if end < 0:
                self._searched = len(data)
                break
            self._searched = end + 1
            if self._first < 0:
                self._first = end
                continue
            self._first = -1
            offset = buffer.start + cut
            frames = buffer.frames(offset, buffer.start + end + 1)
            faults: list[Fault] = ["utf8-split-across-segments"] if self._split else []
            self._split = False
            found.append((bytes(data[cut : end + 1]), frames, self._with_skipped(faults), offset))
            cut = end + 1
        self._searched -= cut
        self._first -= cut if self._first >= 0 else 0
        buffer.drop(cut)
        if len(buffer.data) > MAX_TEXT_OCTETS:
            fault = ("message-too-long", f"{len(buffer.data)} bytes without an end")
            found.append((b"", buffer.sources[-1].frames, (fault,), buffer.start))
            self._lose_sync()
        return found
