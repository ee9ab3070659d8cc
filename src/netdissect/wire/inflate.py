"""Bounded zlib decompression: the output limit is checked while inflating, not afterwards."""

from __future__ import annotations

import zlib
from dataclasses import dataclass

ZLIB_WBITS = 15
"""A window of 15 bits, with a zlib header. Source: zlib.h, `inflateInit2`."""
GZIP_WBITS = 31
"""The same with a gzip header: 16 more."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """Limits of inflating the compressed body of one message. Users may change them."""

    octets: int = 1 << 20
    """Largest inflated size, bytes."""
    ratio: int = 200
    """Largest inflated size, as a multiple of the compressed size."""


class Inflated:
    """The result of inflating a compressed body."""

    __slots__ = ("complete", "data", "error", "limited", "trailing")

    def __init__(
        self, data: bytes, complete: bool, limited: bool, trailing: int, error: str | None  # noqa: FBT001
    ) -> None:  # fmt: skip
        self.data = data
        """Bytes inflated before the end, the limit or the fault."""
        self.complete = complete
        """Whether the stream reached its end marker and has a right checksum."""
        self.limited = limited
        """Whether a limit stopped it."""
        self.trailing = trailing
        """Bytes after the end of the stream."""
        self.error = error
        """Error message of zlib, or None."""


def inflate(data: bytes, *, limit: int, ratio: int, gzip: bool = False) -> Inflated:
    """Inflate at most min(limit, ratio * len(data)) bytes of a zlib (or gzip) stream.

    Args:
        data: the compressed bytes.
        limit: largest output, bytes.
        ratio: largest output, as a multiple of the input.
        gzip: the stream has a gzip header, not one of zlib.

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
    """Return the bytes that can be inflated before the fault, by feeding one byte at a time."""
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
