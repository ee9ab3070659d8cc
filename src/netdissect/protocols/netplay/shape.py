"""Whether Netplay messages begin at a place: framers that are out of sync and recognition need it.

Source: docs/protocols/netplay.md section 6.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from typing import TYPE_CHECKING, Final

from netdissect.wire.cursor import Cursor
from netdissect.wire.inflate import Bounds
from netdissect.wire.netplay import (
    CHUNK_DATA,
    COMPRESSED,
    HEADER,
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

CHAIN: Final = 3
"""Consecutive frames that must fit mid-stream, if the built-in schema decodes some of them."""
LONG_CHAIN: Final = 6
"""Consecutive frames that must fit if it decodes fewer than `MIN_DECODED` of the first `CHAIN`."""
MIN_DECODED: Final = 2
"""Frames of a short chain that the built-in schema must decode."""
_LONGEST_CHAINED: Final = 1022
"""Largest length field of a frame in a chain. Source: section 6."""
_PLAIN: Final = re.compile(rb"(?=[\0-\3].[\0-\3].)", re.DOTALL)
"""Matches where a frame can begin: a length up to 1022, options without reserved bits."""
_CHUNKED: Final = re.compile(rb"(?=[\0\x40]..[\0-\3])", re.DOTALL)
"""Matches where a message of bin3 can begin: first chunk header, length, options."""
_PATTERN: Final = 4
"""Bytes that the patterns examine."""
_BOUNDS: Final = Bounds(octets=1 << 16)
"""How far bodies are inflated to test them."""


def _frame_fits(length: int, options: int, head: bytes) -> bool:
    """Return whether the library could have built a frame, whose payload begins with `head`."""
    if not SHORTEST <= length <= _LONGEST_CHAINED or options & RESERVED:
        return False
    if options & COMPRESSED and length > SHORTEST:
        return not head or head[0] == 0x78  # noqa: PLR2004 - zlib with a 32 KiB window
    return True


def chain(data: bytes, position: int, wanted: int = CHAIN) -> bool | None:
    """Return whether `wanted` consecutive frames of bin1 or bin2 fit; None: too few bytes."""
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
    """Return whether `wanted` consecutive messages of bin3 fit; None: too few bytes."""
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
    """Return (start, end) of the first class line and JSON line, from a start of line on."""
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
    """Return the whole frames from `position` on, up to `most` or to the first that does not fit.

    Those of bin3 are returned without chunk headers.
    """
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
    """Return the size of a frame with its chunk headers, bytes."""
    return len(frame) + -(-len(frame) // CHUNK_DATA)


# -- values ----------------------------------------------------------------------------------------


@cache
def _schema() -> tuple[Schema, type[Decoder], type[SchemaMismatch]]:
    """Return the built-in schema, the class that decodes by it, and the exception of that."""
    from netdissect.dissect import schema  # noqa: PLC0415 - only where TCP is judged

    return schema.built_in("netplay"), schema.Decoder, schema.SchemaMismatch


def values_of(frame: bytes) -> bytes:
    """Return the bytes of the values of a frame, inflated; none if they are damaged."""
    if not frame[2] & COMPRESSED:
        return frame[HEADER:]
    content = unpack_body(frame[2], frame[HEADER:], _BOUNDS)
    return content.data if content.usable else b""


def fits(frame: bytes, values: Values) -> bool:
    """Return whether the built-in schema decodes a frame to its last byte, with text in it."""
    schema, decoder, mismatch = _schema()
    row = schema.message(int.from_bytes(frame[3:HEADER], "big"))
    octets = values_of(frame)
    if row is None or not octets or len(frame) < HEADER:
        return False
    cursor = Cursor(octets)
    try:
        nodes = decoder(schema, values).fields(row.fields, cursor)
    except mismatch:
        return False
    texts = [node.value for node in nodes if isinstance(node.value, str)]
    return not cursor.left and any(texts) and not any("\ufffd" in text for text in texts)


class Shape:
    """The form of the messages of one binary dialect."""

    def __init__(self, dialect: str) -> None:
        self.chunked = dialect == "netplay-bin3"
        self._follows = chunk_chain if self.chunked else chain
        self._values: Values = PLAIN_VALUES if dialect == "netplay-bin1" else NULLABLE_VALUES

    def places(self, data: bytes, *, whole: bool = False) -> Iterator[int]:
        """Yield the positions at which messages may begin, by a fast search for a pattern.

        `whole`: no bytes follow, so that positions too close to the end are left out.
        """
        pattern = _CHUNKED if self.chunked else _PLAIN
        for match in pattern.finditer(data):
            yield match.start()
        if not whole:
            yield from range(max(0, len(data) - _PATTERN + 1), len(data))

    def starts(self, data: bytes, position: int) -> bool | None:
        """Return whether messages begin at `position`; None: more bytes are needed to tell."""
        follows = self._follows(data, position, CHAIN)
        if follows is not True:
            return follows
        frames = first_frames(data, position, chunked=self.chunked, most=CHAIN)
        decoded = [fits(frame, self._values) for frame in frames]
        if sum(decoded) >= MIN_DECODED:
            # Bytes before the first message can fit as one more frame, but are not decoded.
            return decoded[0]
        return self._follows(data, position, LONG_CHAIN)

    def ends(self, data: bytes, position: int) -> bool:
        """Return whether messages, some of which can be decoded, fill data[position:]."""
        frames = first_frames(data, position, chunked=self.chunked, most=LONG_CHAIN)
        size = sum(map(in_chunks if self.chunked else len, frames))
        return position + size == len(data) and any(fits(each, self._values) for each in frames)
