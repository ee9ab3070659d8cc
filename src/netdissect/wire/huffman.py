"""The Huffman code of Teeworlds: one fixed tree for all versions and both directions.

Decoding looks up the next bits in a table, which yields up to six bytes at a time. The table is
built on first use and fits into a processor's first-level cache. A table of decoder states, of a
megabyte and more, would wait for memory.

No package is used: those that exist either ship no Linux wheel or do not give the same bytes
(`bench/huffman.py` measures this implementation).

Source: docs/protocols/teeworlds.md; Teeworlds `CHuffman`, src/engine/shared/huffman.cpp.
"""

from __future__ import annotations

from bisect import insort
from functools import cache
from typing import Final

from netdissect.model.native import BytesWriter, i64, read_i64_le, vec, write_i64_le

_EOF: Final = 256
"""The end symbol; smaller symbols are bytes."""

# fmt: off
_FREQUENCIES: tuple[int, ...] = (
    1073741824, 4545, 2657, 431, 1950, 919, 444, 482, 2244, 617, 838, 542, 715, 1814, 304,
    240, 754, 212, 647, 186, 283, 131, 146, 166, 543, 164, 167, 136, 179, 859, 363, 113, 157,
    154, 204, 108, 137, 180, 202, 176, 872, 404, 168, 134, 151, 111, 113, 109, 120, 126, 129,
    100, 41, 20, 16, 22, 18, 18, 17, 19, 16, 37, 13, 21, 362, 166, 99, 78, 95, 88, 81, 70, 83,
    284, 91, 187, 77, 68, 52, 68, 59, 66, 61, 638, 71, 157, 50, 46, 69, 43, 11, 24, 13, 19,
    10, 12, 12, 20, 14, 9, 20, 20, 10, 10, 15, 15, 12, 12, 7, 19, 15, 14, 13, 18, 35, 19, 17,
    14, 8, 5, 15, 17, 9, 15, 14, 18, 8, 10, 2173, 134, 157, 68, 188, 60, 170, 60, 194, 62,
    175, 71, 148, 67, 167, 78, 211, 67, 156, 69, 1674, 90, 174, 53, 147, 89, 181, 51, 174, 63,
    163, 80, 167, 94, 128, 122, 223, 153, 218, 77, 200, 110, 190, 73, 174, 69, 145, 66, 277,
    143, 141, 60, 136, 53, 180, 57, 142, 57, 158, 61, 166, 112, 152, 92, 26, 22, 21, 28, 20,
    26, 30, 21, 32, 27, 20, 17, 23, 21, 30, 22, 22, 21, 27, 25, 17, 27, 23, 18, 39, 26, 15,
    21, 12, 18, 18, 27, 20, 18, 15, 19, 11, 17, 33, 12, 18, 15, 19, 18, 16, 26, 17, 18, 9, 10,
    25, 22, 22, 17, 20, 16, 6, 16, 15, 20, 14, 18, 24, 335,
)
"""Frequencies of the bytes 0 to 255. The 257th number of the published table is not used: the end
symbol has frequency 1.
"""
# fmt: on

_MAX_CODE_BITS: Final = 15
"""Length of the longest code, bits. That of the end symbol is one of them."""
_WINDOW_BITS: Final = 12
"""Bits that are looked up at a time."""
_WINDOWS: Final = 1 << _WINDOW_BITS
_SUFFIXES: Final = 1 << _MAX_CODE_BITS - _WINDOW_BITS
"""Number of values of the bits of a code behind the window."""
_MAX_BYTES: Final = 6
"""Bytes in one entry of the table."""
_WORD_BITS: Final = 57
"""Bits that a machine word certainly has behind any bit of its first byte."""
_USED: Final = 0x0F
"""Mask of the number of bits that an entry uses."""
_ENDS: Final = 0x80
"""Bit that marks the entry of the end symbol."""
_PADDING: Final = bytes(8)
"""Appended to the data, because a whole word is read even at its last byte."""


class HuffmanError(ValueError):
    """The data is no Huffman code, or decodes to more than the permitted size.

    Attributes:
        decoded: the bytes decoded before the fault, cut to the permitted size.

    """

    def __init__(self, message: str, decoded: bytes) -> None:
        super().__init__(message)
        self.decoded = decoded


def _falling(node: tuple[int, int]) -> int:
    return -node[0]


@cache
def tree() -> tuple[list[int], list[int], int]:
    """Return (child 0 of each node, child 1 of each node, root).

    Numbers up to 256 are symbols, larger ones inner nodes. The two least frequent nodes are joined
    until one is left. Nodes of equal frequency are in the order of a stable sort by falling
    frequency, in which the joined node takes the place of the second least frequent one.
    """
    zeros, ones = [-1] * (_EOF + 1), [-1] * (_EOF + 1)
    nodes = [(frequency, symbol) for symbol, frequency in enumerate((*_FREQUENCIES, 1))]
    nodes.sort(key=_falling)
    while len(nodes) > 1:
        last, second = nodes.pop(), nodes.pop()
        zeros.append(last[1])
        ones.append(second[1])
        insort(nodes, (last[0] + second[0], len(zeros) - 1), key=_falling)
    return zeros, ones, nodes[0][1]


@cache
def _codes() -> tuple[tuple[int, int], ...]:
    """Return (code, length in bits) of every symbol; the first bit of a code is the lowest."""
    zeros, ones, root = tree()
    codes = [(0, 0)] * (_EOF + 1)
    pending = [(root, 0, 0)]
    while pending:
        node, bits, count = pending.pop()
        if node <= _EOF:
            codes[node] = (bits, count)
            continue
        pending.append((zeros[node], bits, count + 1))
        pending.append((ones[node], bits | 1 << count, count + 1))
    return tuple(codes)


class _Tables:
    """The symbols that the next bits stand for.

    An entry has in bits 0-3 the number of bits that it uses, in bits 4-6 the number of bytes that
    they stand for, in bit 7 whether they are the end symbol, and from bit 8 on the bytes. An entry
    of `windows` that uses no bits stands for a code that is longer than a window, as that of the
    end symbol is: from bit 8 on it has the start of a row in `longer`, whose entries are selected
    by the bits behind the window.
    """

    def __init__(self) -> None:
        symbols: vec[i64] = vec[i64]([0] * _WINDOWS)
        """Window -> first symbol."""
        lengths: vec[i64] = vec[i64]([0] * _WINDOWS)
        """Window -> length of its code in bits; 0 if it is longer than a window."""
        windows: vec[i64] = vec[i64]([0] * _WINDOWS)
        rows: dict[int, int] = {}
        """Window -> start of the row of the codes that begin with it."""
        longer: list[int] = []
        window: i64 = 0
        step: i64 = 0
        first: i64 = 0
        size: i64 = 0
        for symbol, (bits, length) in enumerate(_codes()):
            if length <= _WINDOW_BITS:
                window, step, first, size = bits, 1 << length, symbol, length
                while window < _WINDOWS:
                    symbols[window], lengths[window] = first, size
                    window += step
                continue
            row = rows.setdefault(bits & _WINDOWS - 1, len(rows) * _SUFFIXES)
            if row == len(longer):
                longer.extend([0] * _SUFFIXES)
            entry = length | _ENDS if symbol == _EOF else length | 1 << 4 | symbol << 8
            for suffix in range(bits >> _WINDOW_BITS, _SUFFIXES, 1 << length - _WINDOW_BITS):
                longer[row + suffix] = entry
            windows[bits & _WINDOWS - 1] = row << 8
        for window in range(_WINDOWS):
            used: i64 = 0
            count: i64 = 0
            octets: i64 = 0
            while count < _MAX_BYTES:
                size = lengths[window >> used]
                if not size or used + size > _WINDOW_BITS:
                    break
                octets |= symbols[window >> used] << 8 * count
                used += size
                count += 1
            if count:
                windows[window] = used | count << 4 | octets << 8
        self.windows: vec[i64] = windows
        self.longer: vec[i64] = vec[i64](longer)


class _Lazy:
    """Holds the tables once they were needed."""

    def __init__(self) -> None:
        self.tables: _Tables | None = None


_LAZY: Final = _Lazy()


def _tables() -> _Tables:
    tables = _LAZY.tables
    if tables is None:
        tables = _LAZY.tables = _Tables()
    return tables


@cache
def bit_lengths() -> tuple[int, ...]:
    """Return the length of the code of each byte, bits."""
    return tuple(length for _, length in _codes()[:_EOF])


def decompress(data: bytes, limit: i64, start: i64 = 0) -> bytes:
    """Return the decoded bytes of `data`, from offset `start` on.

    Decoding stops as soon as there are more than `limit` bytes.

    Raises:
        HuffmanError: no end symbol, or more than `limit` bytes.

    """
    tables = _tables()
    windows, longer = tables.windows, tables.longer
    # No code is longer than two bytes, so the data behind this offset is beyond the limit.
    last = start + 2 * (limit + _SUFFIXES)
    padded = (data[:last] if len(data) > last else data) + _PADDING
    out = BytesWriter()
    bits: i64 = 8 * len(data)
    at: i64 = 8 * start
    at = min(at, bits)
    last_in_word: i64 = -1
    """Last bit at which a code can begin that is completely in `word`."""
    word: i64 = 0
    entry: i64 = 0
    size: i64 = 0
    while size <= limit:
        if at > last_in_word:
            if at > bits:
                break
            word = read_i64_le(padded, at >> 3) >> (at & 7)
            last_in_word = min(at + _WORD_BITS - _MAX_CODE_BITS, bits)
        entry = windows[word & _WINDOWS - 1]
        used = entry & _USED
        if not used:
            entry = longer[(entry >> 8) + (word >> _WINDOW_BITS & _SUFFIXES - 1)]
            used = entry & _USED
            if entry & _ENDS:
                at += used
                break
        at += used
        word >>= used
        write_i64_le(out, entry >> 8)
        size += entry >> 4 & 7
        out.truncate(size)
    if at > bits and not entry & _ENDS:
        out.truncate(size - (entry >> 4 & 7))  # The last entry used bits behind the data.
    decoded = out.getvalue()
    if at > bits:
        decoded += _rest(data, int(at - (entry & _USED)))
    if len(decoded) > limit:
        raise HuffmanError(f"more than the limit of {limit} bytes", decoded[:limit])
    if at > bits or not entry & _ENDS:
        raise HuffmanError("the end symbol is missing", decoded)
    return decoded


def _rest(data: bytes, at: int) -> bytes:
    """Return the bytes of the whole codes from bit `at` on, which is less than a window."""
    zeros, ones, root = tree()
    node = root
    out = bytearray()
    for position in range(at, 8 * len(data)):
        node = ones[node] if data[position >> 3] >> (position & 7) & 1 else zeros[node]
        if node < _EOF:
            out.append(node)
            node = root
    return bytes(out)


def inspect(data: bytes) -> int | None:
    """Return the number of bytes up to the one in which the end symbol ends; None without one.

    Real encoders write at most one byte more.
    """
    end = eof_bit(data)
    return None if end is None else (end + 7) // 8


def eof_bit(data: bytes) -> int | None:
    """Return the position of the bit after the end symbol; None without one."""
    tables = _tables()
    windows, longer = tables.windows, tables.longer
    padded = data + _PADDING
    bits: i64 = 8 * len(data)
    at: i64 = 0
    while True:
        word: i64 = read_i64_le(padded, at >> 3) >> (at & 7)
        entry: i64 = windows[word & _WINDOWS - 1]
        if not entry & _USED:
            entry = longer[(entry >> 8) + (word >> _WINDOW_BITS & _SUFFIXES - 1)]
        at += entry & _USED
        if at > bits:
            return None
        if entry & _ENDS:
            return int(at)


def compress(data: bytes) -> bytes:
    """Return the code of `data`, byte for byte as the original encoder writes it.

    It writes one more byte with the remaining bits after the end symbol, even if none remain.
    """
    codes = _codes()
    bits = filled = 0
    out = bytearray()
    for symbol in data:
        code, length = codes[symbol]
        bits |= code << filled
        filled += length
        while filled >= 8:  # noqa: PLR2004 - a byte
            out.append(bits & 0xFF)
            bits >>= 8
            filled -= 8
    code, length = codes[_EOF]
    bits |= code << filled
    filled += length
    whole = filled // 8
    out += (bits & ((1 << 8 * whole) - 1)).to_bytes(whole, "little")
    out.append(bits >> 8 * whole)
    return bytes(out)
