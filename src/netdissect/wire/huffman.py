"""The Huffman code of Teeworlds: one fixed tree for all versions and both directions.

Decoding asks a table what the next bits stand for, up to six bytes at a time. It is built on first
use, and small enough for a processor's first cache: tables of states, a megabyte and more, wait for
memory.

No compiled implementation is used: the packages that exist either ship no Linux wheel or do not
give the same bytes (`bench/huffman.py` measures this one).

Source: docs/protocols/teeworlds.md; Teeworlds `CHuffman`, src/engine/shared/huffman.cpp.
"""

from __future__ import annotations

from bisect import insort
from functools import cache
from typing import Final

from netdissect.model.native import BytesWriter, i64, read_i64_le, vec, write_i64_le

__all__ = ["HuffmanError", "bit_lengths", "compress", "decompress", "inspect", "tree"]

_EOF: Final = 256  # the symbol behind all bytes

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

_WINDOW_BITS: Final = 12
_WINDOWS: Final = 1 << 12
_BEHIND: Final = 1 << 3
"""The longest code, that of the end symbol among them, has 15 bits."""
_MOST: Final = 6
"""Bytes in an entry."""
_LONGEST: Final = 15
"""Bits of a code."""
_GOOD: Final = 57
"""Bits of a word that are left where it is read at a byte and wanted from a bit of that on."""
_USED: Final = 15  # mask of how many bits an entry takes
_ENDS: Final = 1 << 7  # bit of the entry of the end symbol
_PADDING: Final = bytes(8)
"""A word is read at the last byte too."""


class HuffmanError(ValueError):
    """The data is no Huffman code of at most the permitted size.

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
    """Return (child 0, child 1, root) of the tree; numbers up to 256 are symbols, others nodes.

    The least frequent two are joined until one is left. The order among equals is that of a stable
    sort by falling frequency, in which a joined node stands where its second last member stood.
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
    """Return (bits, count) of every symbol; the first bit of a code is the lowest."""
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
    """What the next bits of the code stand for, asked `_WINDOW_BITS` at a time.

    An entry holds the bits used (4 bits), the bytes they stand for (3 bits: how many), whether they
    are the end symbol, and from bit 8 the bytes. Without any bits the code is longer than a window,
    as that of the end symbol is: from bit 8 stands its row in `longer`, of which the bits behind
    the window choose an entry.
    """

    def __init__(self) -> None:
        codes = _codes()
        single: list[tuple[int, int]] = [(0, 0)] * _WINDOWS
        rows: dict[int, int] = {}
        """Row of the codes that begin with so many bits."""
        longer: list[int] = []
        for symbol, (bits, count) in enumerate(codes):
            if count <= _WINDOW_BITS:
                for window in range(bits, _WINDOWS, 1 << count):
                    single[window] = symbol, count
                continue
            row = rows.setdefault(bits & _WINDOWS - 1, len(rows) * _BEHIND)
            if row == len(longer):
                longer.extend([0] * _BEHIND)
            entry = count | _ENDS if symbol == _EOF else count | 1 << 4 | symbol << 8
            for place in range(bits >> _WINDOW_BITS, _BEHIND, 1 << count - _WINDOW_BITS):
                longer[row + place] = entry
        windows = [0] * _WINDOWS
        for window in range(_WINDOWS):
            if window in rows:
                windows[window] = rows[window] << 8
                continue
            used = many = found = 0
            while many < _MOST:
                symbol, count = single[window >> used]
                if count == 0 or used + count > _WINDOW_BITS:
                    break
                found |= symbol << 8 * many
                used += count
                many += 1
            windows[window] = used | many << 4 | found << 8
        self.windows: vec[i64] = vec[i64](windows)
        self.longer: vec[i64] = vec[i64](longer)


class _Made:
    """The tables, made when they are first asked for."""

    def __init__(self) -> None:
        self.tables: _Tables | None = None


_MADE: Final = _Made()


def _tables() -> _Tables:
    tables = _MADE.tables
    if tables is None:
        tables = _MADE.tables = _Tables()
    return tables


@cache
def bit_lengths() -> tuple[int, ...]:
    """Return how many bits the code of each byte has."""
    return tuple(count for _, count in _codes()[:_EOF])


def decompress(data: bytes, limit: i64, start: i64 = 0) -> bytes:
    """Return the bytes that `data`, from `start` on, stands for.

    Decoding stops as soon as the limit is passed, whatever `data` holds.

    Raises:
        HuffmanError: no end symbol, or more than `limit` bytes.

    """
    tables = _tables()
    windows, longer = tables.windows, tables.longer
    # No code is longer than two bytes: what is behind stands for bytes beyond the limit.
    most = start + 2 * (limit + _BEHIND)
    padded = (data[:most] if len(data) > most else data) + _PADDING
    out = BytesWriter()
    bits: i64 = 8 * len(data)
    at: i64 = 8 * start
    at = min(at, bits)
    good: i64 = -1
    """Codes that begin at this bit or before are whole in `word`."""
    word: i64 = 0
    entry: i64 = 0
    size: i64 = 0
    while size <= limit:
        if at > good:
            if at > bits:
                break
            word = read_i64_le(padded, at >> 3) >> (at & 7)
            good = min(at + _GOOD - _LONGEST, bits)
        entry = windows[word & _WINDOWS - 1]
        used = entry & _USED
        if not used:
            entry = longer[(entry >> 8) + (word >> _WINDOW_BITS & _BEHIND - 1)]
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
        out.truncate(size - (entry >> 4 & 7))  # it has bits that are not there
    decoded = out.getvalue()
    if at > bits:
        decoded += _rest(data, int(at - (entry & _USED)))
    if len(decoded) > limit:
        raise HuffmanError(f"more than the limit of {limit} bytes", decoded[:limit])
    if at > bits or not entry & _ENDS:
        raise HuffmanError("the end symbol is missing", decoded)
    return decoded


def _rest(data: bytes, at: int) -> bytes:
    """Return the bytes of the whole codes from a bit on, less than a window before the end."""
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
    """Return the number of bytes up to and including the one that completes the end symbol.

    None without an end symbol. Real encoders write at most one byte more.
    """
    end = eof_bit(data)
    return None if end is None else (end + 7) // 8


def eof_bit(data: bytes) -> int | None:
    """Return the position of the bit after the end symbol, None without one."""
    tables = _tables()
    windows, longer = tables.windows, tables.longer
    padded = data + _PADDING
    bits: i64 = 8 * len(data)
    at: i64 = 0
    while True:
        word: i64 = read_i64_le(padded, at >> 3) >> (at & 7)
        entry: i64 = windows[word & _WINDOWS - 1]
        if not entry & _USED:
            entry = longer[(entry >> 8) + (word >> _WINDOW_BITS & _BEHIND - 1)]
        at += entry & _USED
        if at > bits:
            return None
        if entry & _ENDS:
            return int(at)


def compress(data: bytes) -> bytes:
    """Return the code of `data` exactly as the original encoder writes it.

    After the end symbol follows one more byte with the bits that are left, even where none are.
    """
    codes = _codes()
    bits = filled = 0
    out = bytearray()
    for symbol in data:
        code, count = codes[symbol]
        bits |= code << filled
        filled += count
        while filled >= 8:  # noqa: PLR2004 - a byte
            out.append(bits & 0xFF)
            bits >>= 8
            filled -= 8
    code, count = codes[_EOF]
    bits |= code << filled
    filled += count
    whole = filled // 8
    out += (bits & ((1 << 8 * whole) - 1)).to_bytes(whole, "little")
    out.append(bits >> 8 * whole)
    return bytes(out)
