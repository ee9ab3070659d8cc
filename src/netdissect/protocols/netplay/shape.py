"""Does a Netplay message begin here? What framers that are lost and recognition both ask.

Source: docs/protocols/netplay.md section 6.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from functools import cache
from pkgutil import get_data
from typing import TYPE_CHECKING, Final

from netdissect.wire.cursor import Cursor
from netdissect.wire.inflate import Bounds
from netdissect.wire.netplay import (
    CHUNK_DATA,
    COMPRESSED,
    RESERVED,
    SHORTEST,
    chunk_header,
    unpack_body,
)
from netdissect.wire.netplay_text import is_class_line
from netdissect.wire.netplay_values import NULLABLE_VALUES, PLAIN_VALUES
from netdissect.wire.strictjson import read_json

if TYPE_CHECKING:
    from netdissect.dissect.schema import Decoder, Schema, SchemaMismatch
    from netdissect.wire.values import Values

__all__ = [
    "Shape", "chain", "chunk_chain", "find_pair", "first_frames", "fits", "in_chunks", "values_of",
]  # fmt: skip

CHAIN: Final = 3
"""Frames in a row that must fit before reading goes on in the middle of a stream ..."""
LONG_CHAIN: Final = 6
"""... and so many where the built-in schema decodes fewer than CONFIRMED of the first ones."""
CONFIRMED: Final = 2
_LONGEST_CHAINED: Final = 1022
"""Longest length field believed while looking for a start. Source: section 6."""
_PLAIN: Final = re.compile(rb"(?=[\0-\3].[\0-\3].)", re.DOTALL)
"""Length up to 1022 and options without reserved bits."""
_CHUNKED: Final = re.compile(rb"(?=[\0\x40]..[\0-\3])", re.DOTALL)
"""Chunk header, length, options."""
_PATTERN: Final = 4
"""Bytes that the patterns look at."""
_BOUNDS: Final = Bounds(octets=1 << 16)
_HEADER: Final = 5


def _frame_fits(length: int, options: int, head: bytes) -> bool:
    """Return whether a frame looks like one that the library builds; `head` begins its body."""
    if not SHORTEST <= length <= _LONGEST_CHAINED or options & RESERVED:
        return False
    if options & COMPRESSED and length > SHORTEST:
        return not head or head[0] == 0x78  # noqa: PLR2004 - zlib with a 32 KiB window
    return True


def chain(data: bytes, position: int, wanted: int = CHAIN) -> bool | None:
    """Return whether `wanted` frames of bin1 or bin2 follow each other; None = too few bytes."""
    size = len(data)
    for _ in range(wanted):
        if position + 2 > size:
            return None
        length = data[position] << 8 | data[position + 1]
        options = data[position + 2] if position + 2 < size else 0
        if not _frame_fits(length, options, data[position + 5 : position + 6]):
            return False
        position += 2 + length
    return True if position <= size else None


def chunk_chain(data: bytes, position: int, wanted: int = CHAIN) -> bool | None:
    """Return whether `wanted` messages of bin3 follow each other; None = too few bytes."""
    size = len(data)
    for _ in range(wanted):
        if position + 3 > size:
            return None if position >= size or data[position] in (0x00, 0x40) else False
        need = (data[position + 1] << 8 | data[position + 2]) + 2
        options = data[position + 3] if position + 3 < size else 0
        if need < SHORTEST + 2 or options & RESERVED:
            return False
        for part in range(0, need, CHUNK_DATA):
            if position < size and data[position] != chunk_header(part, need):
                return False
            position += 1 + min(CHUNK_DATA, need - part)
    return True if position <= size else None


def find_pair(data: bytes, position: int) -> tuple[int, int] | None:
    """Return (start, end) of the first class line at or behind a line start that JSON follows."""
    first = data.find(b"\n", position)
    while first >= 0:
        second = data.find(b"\n", first + 1)
        if second < 0:
            return None
        if _is_pair(data[position:first], data[first + 1 : second]):
            return position, second + 1
        position, first = first + 1, second
    return None


def _is_pair(class_line: bytes, body: bytes) -> bool:
    try:
        name, text = class_line.decode(), body.decode()
    except UnicodeDecodeError:
        return False
    return is_class_line(name) and read_json(text).valid


def first_frames(data: bytes, position: int, *, chunked: bool, most: int) -> list[bytes]:
    """Return up to `most` whole frames from `position` on, as long as they fit."""
    found: list[bytes] = []
    follows = chunk_chain if chunked else chain
    while len(found) < most and follows(data, position, 1):
        head = position + chunked
        need = (data[head] << 8 | data[head + 1]) + 2
        if not chunked:
            found.append(data[position : position + need])
            position += need
            continue
        parts = []
        for part in range(0, need, CHUNK_DATA):
            size = min(CHUNK_DATA, need - part)
            parts.append(data[position + 1 : position + 1 + size])
            position += 1 + size
        found.append(b"".join(parts))
    return found


def in_chunks(frame: bytes) -> int:
    """Return how many bytes a frame takes with its chunk headers."""
    return len(frame) + -(-len(frame) // CHUNK_DATA)


# -- values ----------------------------------------------------------------------------------------


@cache
def _schema() -> tuple[Schema, type[Decoder], type[SchemaMismatch]]:
    """Return the built-in schema, what decodes by it, and what that raises."""
    from netdissect.dissect import schema  # noqa: PLC0415 - only where TCP is judged

    text = get_data("netdissect", "data/netplay.schema.json") or b""
    found = schema.parse_schema(json.loads(text), origin="netplay.schema.json")
    return found, schema.Decoder, schema.SchemaMismatch


def values_of(frame: bytes) -> bytes:
    """Return the bytes of the values of a frame, inflated; none where they are damaged."""
    if not frame[2] & COMPRESSED:
        return frame[_HEADER:]
    content = unpack_body(frame[2], frame[_HEADER:], _BOUNDS)
    return content.data if content.usable else b""


def fits(frame: bytes, values: Values) -> bool:
    """Return whether the built-in schema decodes a frame to its last byte, with text in it."""
    schema, decoder, mismatch = _schema()
    row = schema.message(int.from_bytes(frame[3:_HEADER], "big"))
    octets = values_of(frame)
    if row is None or not octets or len(frame) < _HEADER:
        return False
    cursor = Cursor(octets)
    try:
        nodes = decoder(schema, values).fields(row.fields, cursor)
    except mismatch:
        return False
    texts = [node.value for node in nodes if isinstance(node.value, str)]
    return not cursor.left and any(texts) and not any("\ufffd" in text for text in texts)


class Shape:
    """What the messages of one binary dialect look like."""

    def __init__(self, dialect: str) -> None:
        self.chunked = dialect == "netplay-bin3"
        self._follows = chunk_chain if self.chunked else chain
        self._values: Values = PLAIN_VALUES if dialect == "netplay-bin1" else NULLABLE_VALUES

    def places(self, data: bytes, *, whole: bool = False) -> Iterator[int]:
        """Yield the positions where a message could begin, found at the speed of a search; where
        nothing comes behind the bytes, a `whole` one.
        """
        pattern = _CHUNKED if self.chunked else _PLAIN
        for match in pattern.finditer(data):
            yield match.start()
        if whole:
            return
        # Too near to the end for the pattern: more bytes will tell.
        yield from range(max(0, len(data) - _PATTERN + 1), len(data))

    def starts(self, data: bytes, position: int) -> bool | None:
        """Return whether messages begin at `position`; None = the bytes so far cannot tell."""
        follows = self._follows(data, position, CHAIN)
        if follows is not True:
            return follows
        frames = first_frames(data, position, chunked=self.chunked, most=CHAIN)
        known = [fits(frame, self._values) for frame in frames]
        if sum(known) >= CONFIRMED:
            # Bytes before a message can look like one more: believe what can be decoded.
            return known[0]
        return self._follows(data, position, LONG_CHAIN)

    def ends(self, data: bytes, position: int) -> bool:
        """Return whether messages that can be decoded fill the bytes from `position` on."""
        frames = first_frames(data, position, chunked=self.chunked, most=LONG_CHAIN)
        if not frames or not self._confirmed(data, position, LONG_CHAIN):
            return False
        size = sum(map(in_chunks if self.chunked else len, frames))
        return position + size == len(data)

    def _confirmed(self, data: bytes, position: int, most: int) -> int:
        """Return how many of the first messages the built-in schema decodes."""
        frames = first_frames(data, position, chunked=self.chunked, most=most)
        return sum(fits(frame, self._values) for frame in frames)
