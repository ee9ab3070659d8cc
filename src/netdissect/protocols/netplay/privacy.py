"""Bodies of Netplay put back after text in them was written over: see `pipeline/privacy.py`."""

from __future__ import annotations

import re
import zlib
from collections.abc import Callable

from netdissect.wire.netplay import CLASS_LINE, chunk_spans
from netdissect.wire.netplay_text import could_be_class

__all__ = ["PACKERS", "WRITERS"]

_HEADER, _TRAILER = 2, 4
_LEVELS = (6, 9, 1, 2, 3, 4, 5, 7, 8)
_WORDS = re.compile(rb"[A-Za-z0-9\x80-\xff]+")
_EMPTY_FIXED = 10
"""Bits of a block without content in fixed codes; without compression: 3, then whole bytes."""


def _deflate(packed: bytes, plain: bytes, wanted: bytes) -> bytes | None:
    """Return a zlib stream of other bytes in the size of the old one; None where none is found."""
    opener = zlib.decompressobj()
    try:
        # One byte more than is known: a bomb, of which only the beginning was read, stays packed.
        same = opener.decompress(packed, len(plain) + 1) == plain
        whole = same and opener.eof and not opener.unused_data
    except zlib.error:
        whole = False
    if not whole:
        return None
    room = len(packed) - _HEADER - _TRAILER
    for level in _LEVELS:
        for strategy in (zlib.Z_DEFAULT_STRATEGY, zlib.Z_FILTERED, zlib.Z_FIXED):
            coder = zlib.compressobj(level, zlib.DEFLATED, -15, 9, strategy)
            body = coder.compress(wanted)
            finished = body + coder.copy().flush()
            if len(finished) == room:
                return _stream(packed, finished, wanted)
            filled = _filled(body + coder.flush(zlib.Z_SYNC_FLUSH), room)
            if filled is not None:
                return _stream(packed, filled, wanted)
    return None


def _stream(packed: bytes, body: bytes, wanted: bytes) -> bytes:
    return packed[:_HEADER] + body + zlib.adler32(wanted).to_bytes(_TRAILER, "big")


def _filled(body: bytes, room: int) -> bytes | None:
    """Return a body, whole bytes without a final block, made as long by blocks without content."""
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
    """Return chunks that hold other bytes, each with the header that it has."""
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
    """Return a class line: another text where it is no name of a class, but a body gone astray."""
    name = octets.removesuffix(b"\n").removesuffix(b"\r").decode("utf-8", "replace")
    if could_be_class(name):
        return octets
    # What is found of it (no identifier, a body's first sign) stays true with its marks.
    return _WORDS.sub(lambda match: spell(match[0]), octets)


PACKERS = {"decompressed": _deflate, "reassembled": _rechunk}
WRITERS = {CLASS_LINE: _class_line}
