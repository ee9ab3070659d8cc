"""Netplay's framing and bodies: where frames, chunks and lines end, and what a body holds.

The layers, the framers and `scan` share these rules. Source: docs/protocols/netplay.md sections 2
to 5 and 9.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from netdissect.wire.inflate import Bounds, Inflated, inflate

DIALECTS: Final = ("netplay-bin1", "netplay-bin2", "netplay-bin3", "netplay-text")
PORTS: Final = (8080,)
"""The port that the sample programs suggest; the library has none. Section 1."""
HEADER: Final = 5
"""Size of length, options and type, bytes."""
LENGTH_OCTETS: Final = 2
"""Size of the length field of a frame, bytes. The length does not count it."""
SHORTEST: Final = 3
"""Smallest legal length of a frame, bytes: options and type."""
RECEIVE_BUFFER: Final = 1024
"""Size of the largest frame that real receivers of bin1 and bin2 hold, with its length field,
bytes.
"""
_LONGEST: Final = RECEIVE_BUFFER - LENGTH_OCTETS
CHUNK_DATA: Final = 1023
"""Bytes of the frame in every chunk but the last. Source: section 4."""
COMPRESSED: Final = 0x01
ENCRYPTED: Final = 0x02
RESERVED: Final = 0xFC
"""Bits of the options; reserved ones have no meaning. Source: section 2."""

ONLY, FIRST, LAST, MIDDLE = 0x00, 0x40, 0x80, 0xC0
CHUNK_NAMES: Final = {ONLY: "only", FIRST: "first", MIDDLE: "middle", LAST: "last"}
"""Chunk header -> name. Bit 7: continues a frame; bit 6: more chunks follow."""
CLASS_LINE: Final = "class line"
"""What a class line holds, as anonymising names it."""

_GZIP: Final = b"\x1f\x8b"
"""First bytes of gzip. Source: RFC 1952."""
_HEADER_OCTETS: Final = 2
"""Size of a zlib header, bytes."""
_DICTIONARY: Final = 0x20
"""FDICT, the bit of a preset dictionary. Source: RFC 1950."""
_TRUNCATED: Final = ("zlib-truncated", "the stream stops early: known to hang the receiver")
_MODULUS: Final = 31
"""The two bytes of a zlib header, as one big-endian number, are a multiple of this.
Source: RFC 1950.
"""


def frame_spans(data: bytes) -> Iterator[tuple[int, int, int]]:
    """Yield (start, end, length field) of each frame; the last may end behind the data.

    A length below 3 is not corrected: such a "frame" has 2 + length bytes. A single byte at the end
    gives (start, start + 2, -1).
    """
    start, size = 0, len(data)
    while start < size:
        if start + 2 > size:
            yield start, start + 2, -1
            return
        length = data[start] << 8 | data[start + 1]
        end = start + 2 + length
        yield start, end, length
        start = end


def chunk_header(position: int, need: int) -> int:
    """Return the right header of the chunk at offset `position` of a frame of `need` bytes."""
    more = FIRST if need - position > CHUNK_DATA else 0
    return more | (LAST if position else 0)


def chunk_spans(data: bytes) -> Iterator[tuple[int, int, int, int]]:
    """Yield (start, end, offset in the frame, size of the frame) of each chunk.

    [start, end) includes the chunk header. The last chunk may be cut short. The size is -1 where
    the data ends before the length field.
    """
    start, size = 0, len(data)
    while start < size:
        if start + 3 > size:
            yield start, start + 3, 0, -1
            return
        need = (data[start + 1] << 8 | data[start + 2]) + 2
        position = 0
        while position < need:
            part = min(CHUNK_DATA, need - position)
            yield start, start + 1 + part, position, need
            start += 1 + part
            position += part
            if start >= size:
                return


def split_frame(frame: bytes) -> list[bytes]:
    """Return the chunks of one bin3 frame, headers included."""
    return [
        bytes([chunk_header(position, len(frame))]) + frame[position : position + CHUNK_DATA]
        for position in range(0, len(frame), CHUNK_DATA)
    ]


def oversize(length: int) -> list[tuple[str, str]]:
    """Return (code, sentence) for a frame of bin1 or bin2 that is too long; nothing for others."""
    if length <= _LONGEST:
        return []
    text = f"{length + 2} bytes, the receiver holds {RECEIVE_BUFFER}"
    return [("frame-above-receiver-buffer", text)]


def misplaced(head: int, position: int, need: int) -> list[tuple[str, str]]:
    """Return (code, sentence) for a chunk header that is not the right one; nothing for others.

    The chunk is at offset `position` of a frame of `need` bytes.
    """
    if need < 0 or head not in CHUNK_NAMES or head == chunk_header(position, need):
        return []
    text = f"chunk header {head:#04x} at byte {position} of a frame of {need}"
    return [("chunk-header-unexpected", text)]


def incomplete(missing: int) -> tuple[str, str]:
    """Return (code, sentence) for a frame of which bytes are missing."""
    return "incomplete-frame-at-close", f"{missing} bytes are missing"


def endless(line: str, size: int) -> tuple[str, str]:
    """Return (code, sentence) for a line of `size` bytes without a line feed."""
    return "incomplete-message-at-close", f"{line} has no line feed after {size} bytes"


def line_spans(data: bytes) -> Iterator[tuple[int, int, bool]]:
    """Yield (start, end, complete) of each text message: a class line and a body line."""
    start, size = 0, len(data)
    while start < size:
        first = data.find(b"\n", start)
        second = -1 if first < 0 else data.find(b"\n", first + 1)
        if second < 0:
            yield start, size, False
            return
        yield start, second + 1, True
        start = second + 1


class Body:
    """The values of a binary frame, inflated if possible."""

    __slots__ = ("data", "findings", "inflated", "usable")

    def __init__(
        self, data: bytes, *, inflated: bool, usable: bool, findings: Sequence[tuple[str, str]]
    ) -> None:
        self.data = data
        """Bytes of the values."""
        self.inflated = inflated
        """Whether `data` was inflated; else it is as on the wire."""
        self.usable = usable
        """False if the values are cut or damaged: that a schema does not fit then means nothing."""
        self.findings = findings
        """(catalogue code, sentence) of each fault."""


def unpack_body(options: int, body: bytes, bounds: Bounds) -> Body:
    """Return the values in the payload of a frame with these options; never raises.

    An empty payload is never compressed. One that is flagged as compressed but is not zlib is
    returned as it is, because an application can set the flag alone. Gzip is inflated here, though
    the library refuses it.
    """
    if not options & COMPRESSED or not body:
        return Body(body, inflated=False, usable=True, findings=())
    if not _is_zlib(body):
        return _foreign(body, bounds)
    if len(body) >= _HEADER_OCTETS and body[1] & _DICTIONARY:
        text = "the stream wants a preset dictionary: known to hang the receiver"
        return Body(b"", inflated=True, usable=False, findings=(("zlib-preset-dictionary", text),))
    result = inflate(body, limit=bounds.octets, ratio=bounds.ratio)
    findings = _broken_off(result, body)
    if result.trailing:
        findings.append(("zlib-trailing-bytes", f"{result.trailing} bytes after the zlib stream"))
    return Body(result.data, inflated=True, usable=result.complete, findings=findings)


def _is_zlib(body: bytes) -> bool:
    """Return whether bytes begin with a zlib header, or are a single byte that may begin one."""
    if body[0] & 0x0F != 8 or body[0] >> 4 > 7:  # noqa: PLR2004 - deflate, windows up to 32 KiB
        return False
    return len(body) < _HEADER_OCTETS or (body[0] << 8 | body[1]) % _MODULUS == 0


def _foreign(body: bytes, bounds: Bounds) -> Body:
    """Return the values of a payload that is flagged as compressed but is not zlib."""
    text = f"flagged as compressed, but begins with {body[:2].hex()}: no zlib header"
    findings = [("compressed-flag-not-zlib", text)]
    if len(body) < _HEADER_OCTETS:
        findings.append(_TRUNCATED)
    if not body.startswith(_GZIP):
        return Body(body, inflated=False, usable=True, findings=findings)
    findings.append(("gzip-payload", "gzip: inflated here, refused by the library"))
    result = inflate(body, limit=bounds.octets, ratio=bounds.ratio, gzip=True)
    findings += _broken_off(result, body)
    return Body(result.data, inflated=True, usable=result.complete, findings=findings)


def _broken_off(result: Inflated, body: bytes) -> list[tuple[str, str]]:
    """Return (code, sentence) of the reason why a body was not inflated completely, if any."""
    if result.limited:
        text = f"{len(body)} bytes stopped at {len(result.data)} inflated ones"
        return [("decompression-limit", text)]
    error = result.error
    if error is None:
        return []
    if "data check" in error:
        text = "the Adler-32 at the end is wrong: the receiver drops this"
        return [("zlib-checksum-error", text)]
    if "before its end" in error:
        return [_TRUNCATED]
    return [("zlib-data-error", f"damaged stream: {error}")]
