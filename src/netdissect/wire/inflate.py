"""Bounded zlib decompression: the output limit is checked while inflating, not afterwards."""

from __future__ import annotations

import zlib
from dataclasses import dataclass

__all__ = ["Bounds", "Inflated", "inflate"]

GZIP_WBITS = 31  # 15 bits of window, and 16 for the header of gzip. Source: zlib.h
ZLIB_WBITS = 15


@dataclass(frozen=True, slots=True)
class Bounds:
    """How far a compressed body of one message is inflated; users may change it."""

    octets: int = 1 << 20
    """Inflated bytes at most."""
    ratio: int = 200
    """Inflated bytes at most, as a multiple of the compressed ones."""


class Inflated:
    """What came out of a compressed body."""

    __slots__ = ("complete", "data", "error", "limited", "trailing")

    def __init__(
        self, data: bytes, complete: bool, limited: bool, trailing: int, error: str | None  # noqa: FBT001
    ) -> None:  # fmt: skip
        self.data = data
        """Bytes inflated before the end, the limit or the fault."""
        self.complete = complete
        """True where the stream reached its end marker with a right checksum."""
        self.limited = limited
        """True where the limit stopped it."""
        self.trailing = trailing
        """Bytes after the end of the stream."""
        self.error = error
        """zlib's message, or None."""


def inflate(data: bytes, *, limit: int, ratio: int, gzip: bool = False) -> Inflated:
    """Inflate at most min(limit, ratio * len(data)) bytes of a zlib (or gzip) stream.

    Args:
        data: the compressed bytes.
        limit: output bound in bytes.
        ratio: output bound as a multiple of the input.
        gzip: read a gzip header instead of a zlib one.

    """
    bound = max(1, min(limit, ratio * len(data)))
    machine = zlib.decompressobj(GZIP_WBITS if gzip else ZLIB_WBITS)
    try:
        out = machine.decompress(data, bound)
    except zlib.error as fault:
        return Inflated(_prefix(data, bound, gzip=gzip), False, False, 0, str(fault))
    limited = not machine.eof and len(out) >= bound
    error = None if machine.eof or limited else "stream ends before its end marker"
    return Inflated(out, machine.eof, limited, len(machine.unused_data), error)


def _prefix(data: bytes, bound: int, *, gzip: bool) -> bytes:
    """Return what can be inflated before the fault, feeding one byte at a time."""
    machine = zlib.decompressobj(GZIP_WBITS if gzip else ZLIB_WBITS)
    out = bytearray()
    for position in range(len(data)):
        try:
            out += machine.decompress(data[position : position + 1], bound - len(out))
        except zlib.error:
            break
        if len(out) >= bound:
            break
    return bytes(out)
