"""Packs Netplay bodies again after text in them was overwritten, without changing a size.

See `pipeline/privacy.py`.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable

from netdissect.dissect.schema import Schema, built_in
from netdissect.model.text import words
from netdissect.wire.netplay import CLASS_LINE, chunk_spans
from netdissect.wire.netplay_text import could_be_class

_HEADER, _TRAILER = 2, 4
"""Sizes of the header and the checksum of a zlib stream, bytes."""
_LEVELS = (6, 9, 1, 2, 3, 4, 5, 7, 8)
"""Levels of compression, in the order in which they are tried."""
_WRONG_BLOCK = b"\x07"
"""Begins a block of a type that does not exist."""
_LONG_BLOCK = b"\x01\xff\xff\0\0"
"""Begins a stored block that is longer than any body."""
_EMPTY_FIXED = 10
"""Size of an empty block in fixed codes, bits."""


def _deflate(packed: bytes, plain: bytes, wanted: bytes) -> bytes | None:
    """Return a zlib stream of `wanted` in the size of the old one; None where none is found. What
    is damaged or cut off is replaced by a stream that fails in the same way, without content if
    there is no room for it.
    """
    filler = _filler(packed, plain)
    if filler is None:
        return None
    if filler:
        failing = _failing(packed, wanted, filler) if wanted else None
        bare = (packed[:_HEADER] + filler).ljust(len(packed), b"\0")[: len(packed)]
        return bare if failing is None else failing
    room = len(packed) - _HEADER - _TRAILER
    for level in _LEVELS:
        for strategy in (zlib.Z_DEFAULT_STRATEGY, zlib.Z_FILTERED, zlib.Z_FIXED):
            # -15: without header and checksum, which `_stream` writes.
            coder = zlib.compressobj(level, zlib.DEFLATED, -15, 9, strategy)
            body = coder.compress(wanted)
            # A copy, because a coder that has ended its stream cannot be flushed otherwise.
            finished = body + coder.copy().flush()
            if len(finished) == room:
                return _stream(packed, finished, plain, wanted)
            filled = _pad(body + coder.flush(zlib.Z_SYNC_FLUSH), room)
            if filled is not None:
                return _stream(packed, filled, plain, wanted)
    return None


def _failing(packed: bytes, wanted: bytes, filler: bytes) -> bytes | None:
    """Return a stream that fails as after `filler`, but behind `wanted`; None if none is found."""
    room, cut = len(packed) - _HEADER, filler == _LONG_BLOCK
    for level in _LEVELS:
        for strategy in (zlib.Z_DEFAULT_STRATEGY, zlib.Z_FIXED):
            coder = zlib.compressobj(level, zlib.DEFLATED, -15, 9, strategy)
            body = bytearray(coder.compress(wanted) + coder.flush())
            if len(body) > room:
                continue
            body[0] &= 0xFE  # not the last block; the bits behind it begin another one
            last = body[-1]
            for unused in range(8):
                # All ones are a block of a type that does not exist, zeros a stored block.
                body[-1] = last if cut else last | 0xFF << (8 - unused) & 0xFF
                tail = (_LONG_BLOCK[1:] if unused else _LONG_BLOCK) if cut else b""
                stream = bytes(body) + (tail or b"\xff")
                stream = stream.ljust(room, b"\0" if cut else b"\xff")[:room]
                if _fails(stream, len(body) - 1, wanted, cut=cut):
                    return packed[:_HEADER] + stream
    return None


def _fails(stream: bytes, at: int, wanted: bytes, *, cut: bool) -> bool:
    """Return whether a deflate stream holds `wanted` and fails soon behind `at`."""
    opener = zlib.decompressobj(-zlib.MAX_WBITS)
    found = b""
    try:
        found = opener.decompress(stream[:at])
        for place in range(at, min(at + 8, len(stream))):
            found += opener.decompress(stream[place : place + 1])
    except zlib.error:
        return not cut and found == wanted
    return cut and found == wanted and not opener.eof


def _filler(packed: bytes, plain: bytes) -> bytes | None:
    """Return what stands for the content of a stream that is damaged or cut off, b"" if it is whole
    but for its checksum, None if it goes on behind what was read or behind its end.
    """
    if packed[0] & 0x0F != zlib.DEFLATED:
        return None
    opener = zlib.decompressobj(-zlib.MAX_WBITS)
    try:
        # Inflate one byte more than was read: a bomb, of which only the start was read, must fail.
        same = opener.decompress(packed[_HEADER:], len(plain) + 1) == plain
    except zlib.error:
        return _WRONG_BLOCK
    trailer = opener.unused_data
    if not same or len(trailer) > _TRAILER:
        return None
    return _LONG_BLOCK if len(trailer) < _TRAILER else b""


def _stream(packed: bytes, body: bytes, plain: bytes, wanted: bytes) -> bytes:
    """Return a stream with its checksum, which is as wrong as the old one."""
    wrong = zlib.adler32(plain) ^ int.from_bytes(packed[-_TRAILER:], "big")
    return packed[:_HEADER] + body + (zlib.adler32(wanted) ^ wrong).to_bytes(_TRAILER, "big")


def _pad(body: bytes, room: int) -> bytes | None:
    """Return a deflate body padded to `room` bytes with empty blocks, the last of them final.

    `body` ends at a byte boundary and has no final block yet. An empty stored block takes 5 bytes.
    """
    left = room - len(body)
    for stored in range(left // 5 + 1):
        for fixed in range(4):
            bits = _EMPTY_FIXED * (fixed + 1)
            if 5 * stored + (bits + 7) // 8 == left:
                number = sum(0b010 << _EMPTY_FIXED * at for at in range(fixed))
                number |= 0b011 << _EMPTY_FIXED * fixed
                end = number.to_bytes((bits + 7) // 8, "little")
                return body + b"\0\0\0\xff\xff" * stored + end
    return None


def _rechunk(packed: bytes, plain: bytes, wanted: bytes) -> bytes | None:
    """Return the chunks with their old headers around the bytes of `wanted`."""
    del plain
    parts: list[bytes] = []
    taken = 0
    for start, end, _position, _need in chunk_spans(packed):
        size = min(end, len(packed)) - start - 1
        parts += [packed[start : start + 1], wanted[taken : taken + size]]
        taken += max(0, size)
    found = b"".join(parts)
    return found if len(found) == len(packed) else None


def _class_line(octets: bytes, spell: Callable[[bytes], bytes]) -> bytes:
    """Return a class line, overwritten unless it names a class: it may be a misplaced body."""
    name = octets.removesuffix(b"\n").removesuffix(b"\r").decode("utf-8", "replace")
    if could_be_class(name):
        return octets
    # Only words are overwritten: the findings on the line depend on the other characters.
    return words(octets, spell)


def members(schema: Schema | None) -> frozenset[str]:
    """Return the names of members that a schema has. Any other may be a key that people chose."""
    return (schema or built_in("netplay")).field_names()


PACKERS = {"decompressed": _deflate, "reassembled": _rechunk}
WRITERS = {CLASS_LINE: _class_line}
