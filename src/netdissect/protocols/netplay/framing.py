"""Cut one direction of a stream into Netplay messages, also behind gaps and from the middle on.

A gap is never glued over. Where a frame's length is known and its end lies behind the gap, reading
goes on there; else bytes are skipped until three frames in a row fit (section 6), or for text
until a class line is followed by a line of strict JSON. Source: docs/protocols/netplay.md.
"""

from __future__ import annotations

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

__all__ = ["MAX_TEXT_OCTETS", "BinaryFramer", "TextFramer"]

MAX_TEXT_OCTETS = 16 << 20
"""Bytes of one text message held at most."""
_SUSPICIOUS: Final = 2
"""Odd frames in a row that make a stream suspect."""


class _Source:
    """One piece of stream that may still be part of a message."""

    __slots__ = ("end", "frames", "start")

    def __init__(self, start: int, end: int, frames: tuple[int, ...]) -> None:
        self.start = start
        self.end = end
        self.frames = frames


# -- framers ---------------------------------------------------------------------------------------


class _Held:
    """Bytes of a stream that are not yet cut, and the pieces that they came from."""

    __slots__ = ("data", "sources", "start")

    def __init__(self) -> None:
        self.data = bytearray()
        self.start = 0
        """Stream offset of the first byte."""
        self.sources: list[_Source] = []

    def add(self, piece: StreamPiece) -> None:
        """Append a piece."""
        if not self.data:
            self.start = piece.offset
            self.sources.clear()
        end = piece.offset + len(piece.data)
        self.data += piece.data
        self.sources.append(_Source(piece.offset, end, piece.frames))

    def drop(self, count: int) -> None:
        """Let the first bytes go."""
        del self.data[:count]
        self.start += count
        done = 0
        while done < len(self.sources) and self.sources[done].end <= self.start:
            done += 1
        del self.sources[:done]

    def clear(self) -> None:
        """Let everything go."""
        self.data.clear()
        self.sources.clear()

    def frames(self, start: int, end: int) -> tuple[int, ...]:
        """Return the capture frames that the bytes [start, end) came from."""
        sources = self.sources
        if len(sources) == 1:
            return sources[0].frames
        found = [each.frames for each in sources if each.start < end and each.end > start]
        if len(found) == 1 and len(found[0]) == 1:
            return found[0]
        return tuple(sorted({frame for frames in found for frame in frames}))


class _Framer:
    """What the framers of all dialects share: being lost, and finding back."""

    def __init__(self) -> None:
        self._held = _Held()
        self._lost = False
        self._skipped = 0
        """Bytes skipped since the last message, not counting those of gaps."""
        self._missing = 0
        """Bytes that the capture lacks since the last message."""

    def feed(self, piece: StreamPiece) -> list[Framed]:
        """Return the messages that this piece completed."""
        if piece.gap_octets:
            self._gap(piece)
        if not piece.data:
            return []
        self._held.add(piece)
        if self._lost and not self._find():
            return []
        return self._cut(piece)

    def finish(self) -> list[Framed]:
        """Return what is left at the end of the stream: no bytes, only what is wrong with them."""
        found: list[Framed] = []
        held = self._held
        if self._lost and held.data and self._find_last():
            found = self._cut(None)
        faults: list[Fault] = []
        if self._lost:
            self._skipped += len(held.data)
            if self._skipped or self._missing:
                faults.append(self._skip_note())
        elif held.data:
            faults += self._left()
        if faults:
            end = held.start + len(held.data)
            found.append((b"", held.frames(held.start, end), tuple(faults), held.start))
        held.clear()
        return found

    def _skip_note(self) -> Fault:
        text = f"{self._skipped} bytes skipped"
        if self._missing:
            text += f", {self._missing} or more are not in the capture"
        self._skipped = self._missing = 0
        return "octets-skipped", text

    def _lose(self) -> None:
        """Give up what is held: the start of the next message is not known."""
        self._skipped += len(self._held.data)
        self._held.clear()
        self._lost = True

    def _found(self, count: int) -> None:
        """Go on behind `count` bytes that belong to nothing."""
        self._skipped += count
        self._held.drop(count)
        self._lost = False

    def _gap(self, piece: StreamPiece) -> None:
        self._missing += piece.gap_octets
        self._lose()

    def _noted(self, faults: list[Fault]) -> tuple[Fault, ...]:
        """Return the faults of a message, with what was skipped before it."""
        if self._skipped or self._missing:
            faults.insert(0, self._skip_note())
        return tuple(faults)

    def _left(self) -> list[Fault]:
        """Return what is wrong with the message whose end is not there."""
        raise NotImplementedError

    def _find(self) -> bool:
        """Look for the start of a message in what is held; True where reading can go on."""
        raise NotImplementedError

    def _find_last(self) -> bool:
        """Look once more where no bytes will follow."""
        return False

    def _cut(self, piece: StreamPiece | None) -> list[Framed]:
        """Cut off the messages that are whole."""
        raise NotImplementedError


class BinaryFramer(_Framer):
    """Frames of bin1 and bin2, or those of bin3 with their chunk headers."""

    def __init__(self, dialect: str) -> None:
        super().__init__()
        self._shape = Shape(dialect)
        chunked = self._chunked = self._shape.chunked
        self._head = 3 if chunked else 2
        self._need = self._head
        """Bytes wanted before the next message can be cut."""
        self._skip = 0
        """Bytes of a frame behind a gap, whose end is known."""
        self._odd = 0
        """Odd frames in a row."""

    def feed(self, piece: StreamPiece) -> list[Framed]:
        """Return the messages that this piece completed."""
        held = self._held
        if not piece.gap_octets and not self._lost and not self._skip:
            if held.data:
                held.add(piece)
                return self._cut(piece) if len(held.data) >= self._need else []
            found = self._whole(piece)
            if found is not None:
                return found
        if piece.gap_octets:
            self._gap(piece)
        if piece.gap_octets or self._skip:
            skipped = min(self._skip, len(piece.data))
            self._skip -= skipped
            self._skipped += skipped
            piece = StreamPiece(piece.offset + skipped, piece.data[skipped:], piece.frames)
        return super().feed(piece)

    def _whole(self, piece: StreamPiece) -> list[Framed] | None:
        """Return the messages of a piece of whole ones with nothing odd: the usual case."""
        offset, data, frames = piece.offset, piece.data, piece.frames
        size = len(data)
        if self._skipped or self._missing or size < self._head + 3:
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

    def _gap(self, piece: StreamPiece) -> None:
        """Go on at the end of the frame at hand where it lies behind the gap, else look for one."""
        held = self._held
        end = held.start + self._need
        if self._skip:
            end = piece.offset - piece.gap_octets + self._skip
        known = self._skip or (held.data and self._need > self._head)
        self._need, self._skip = self._head, 0
        if self._lost or not known or end < piece.offset:
            super()._gap(piece)
            return
        self._missing += piece.gap_octets
        self._skipped += len(held.data)
        held.clear()
        self._skip = end - piece.offset

    def _wire_size(self, data: bytes | bytearray, position: int) -> int:
        """Return how many bytes of stream the message at `position` takes."""
        if not self._chunked:
            return 2 + (data[position] << 8 | data[position + 1])
        need = (data[position + 1] << 8 | data[position + 2]) + 2
        return need - (-need // CHUNK_DATA)

    def _cut(self, piece: StreamPiece | None) -> list[Framed]:
        held = self._held
        size = len(held.data)
        if size < self._need:
            return []
        data = piece.data if piece is not None and len(held.sources) == 1 else b""
        if len(data) != size:
            data = bytes(held.data)
        found: list[Framed] = []
        start, position = held.start, 0
        while True:
            if size - position < self._head:
                self._need = self._head
                break
            need = self._wire_size(data, position)
            if size - position < need:
                self._need = need
                break
            end = position + need
            octets = data[position:end]
            frames = held.frames(start + position, start + end)
            found.append((octets, frames, self._faults(octets, start + position), start + position))
            position = end
        held.drop(position)
        return found

    def _faults(self, octets: bytes, offset: int) -> tuple[Fault, ...]:
        head = self._head
        length = octets[head - 2] << 8 | octets[head - 1]
        odd = length < SHORTEST or octets[head] & RESERVED
        if not odd and not self._chunked and not self._skipped and not self._missing:
            self._odd = 0
            return ()
        faults: list[Fault] = []
        self._odd = self._odd + 1 if odd else 0
        if self._odd == _SUSPICIOUS:
            faults.append("desync-suspected")
        if self._chunked:
            faults += self._hazards(octets, offset)
        return self._noted(faults)

    def _hazards(self, octets: bytes, offset: int) -> list[Fault]:
        """Return what a receiver that takes one read for one chunk would misread."""
        sources = self._held.sources
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

    def _left(self) -> list[Fault]:
        held = self._held
        need, size = self._need, len(held.data)
        if not self._chunked:
            return [incomplete(need - size), *oversize(need - 2)]
        # Headers of the chunks to come are no bytes of the frame.
        headers = (need + CHUNK_DATA) // (CHUNK_DATA + 1) - (size + CHUNK_DATA) // (CHUNK_DATA + 1)
        return [incomplete(need - size - headers)]

    def _find(self) -> bool:
        data = bytes(self._held.data)
        for position in self._shape.places(data):
            found = self._shape.starts(data, position)
            if found is None:
                # The bytes so far could be a start: more of them will tell.
                self._skipped += position
                self._held.drop(position)
                return False
            if found:
                self._need = self._head
                self._found(position)
                return True
        self._lose()
        return False

    def _find_last(self) -> bool:
        data = bytes(self._held.data)
        for position in self._shape.places(data):
            if self._shape.ends(data, position):
                self._need = self._head
                self._found(position)
                return True
        return False


class TextFramer(_Framer):
    """Class line and body line, each ended by a line feed."""

    def __init__(self) -> None:
        super().__init__()
        self._searched = 0
        """Held bytes known to hold no further line feed."""
        self._first = -1
        """Place of the line feed behind the class line; -1 = not found yet."""
        self._split = False
        """A piece boundary lies inside a character of the message at hand."""
        self._inside = False
        """While lost: the rest of a line, whose start was not seen, has still to be passed over."""

    def feed(self, piece: StreamPiece) -> list[Framed]:
        """Return the messages that this piece completed."""
        data = piece.data
        held = self._held
        if not piece.gap_octets and not self._lost and data:
            if held.data:
                size = len(held.data) + len(data)
                inside = b"\n" not in data and data[0] & 0xC0 != 0x80  # noqa: PLR2004 - no piece of a UTF-8 character
                if inside and size <= MAX_TEXT_OCTETS:
                    held.add(piece)
                    self._searched = size
                    return []
            elif (
                data[-1:] == b"\n" and data.count(b"\n") == 2  # noqa: PLR2004 - class line and body
                and not self._skipped and not self._missing
            ):  # fmt: skip
                return [(data, piece.frames, (), piece.offset)]
        return super().feed(piece)

    def _lose(self) -> None:
        super()._lose()
        self._searched, self._first, self._split, self._inside = 0, -1, False, True

    def _left(self) -> list[Fault]:
        line = "class_name" if self._first < 0 else "body"
        return [endless(line, len(self._held.data) - self._first - 1)]

    def _find(self) -> bool:
        held = self._held
        if self._inside:
            end = held.data.find(b"\n")
            if end < 0:
                self._skipped += len(held.data)
                held.clear()
                return False
            self._skipped += end + 1
            held.drop(end + 1)
            self._inside = False
        if held.data.find(b"\n", self._searched) < 0:
            self._searched = len(held.data)
            if len(held.data) > MAX_TEXT_OCTETS:
                self._lose()
            return False
        pair = find_pair(bytes(held.data), 0)
        if pair is None:
            # Only the last line and what follows it can still become a pair.
            last = held.data.rfind(b"\n")
            keep = held.data.rfind(b"\n", 0, last) + 1
            self._skipped += keep
            held.drop(keep)
            self._searched = len(held.data)
            return False
        self._found(pair[0])
        self._searched, self._first = 0, -1
        return True

    def _cut(self, piece: StreamPiece | None) -> list[Framed]:
        held = self._held
        # It begins with the rest of a UTF-8 character.
        if piece is not None and piece.offset > held.start and piece.data[0] & 0xC0 == 0x80:  # noqa: PLR2004
            self._split = True
        found: list[Framed] = []
        data = held.data
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
            offset = held.start + cut
            frames = held.frames(offset, held.start + end + 1)
            faults: list[Fault] = ["utf8-split-across-segments"] if self._split else []
            self._split = False
            found.append((bytes(data[cut : end + 1]), frames, self._noted(faults), offset))
            cut = end + 1
        self._searched -= cut
        self._first -= cut if self._first >= 0 else 0
        held.drop(cut)
        if len(held.data) > MAX_TEXT_OCTETS:
            fault = ("message-too-long", f"{len(held.data)} bytes without an end")
            found.append((b"", held.sources[-1].frames, (fault,), held.start))
            self._lose()
        return found
