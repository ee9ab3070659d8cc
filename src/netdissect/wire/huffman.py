"""The Huffman code of Teeworlds: one fixed tree for all versions and both directions.

Decoding runs a state machine over whole bytes: a state is an inner node of the tree, and each of
its 256 entries says which bytes a coded byte completes and which node it leads to. The tables are
built on first use.

No compiled implementation is used: the packages that exist either ship no Linux wheel or do not
give the same bytes (`bench/huffman.py` measures this one).

Source: docs/protocols/teeworlds.md; Teeworlds `CHuffman`, src/engine/shared/huffman.cpp.
"""

from __future__ import annotations

from functools import cache
from typing import Any, Final

from netdissect.model.native import BytesWriter, i64

__all__ = ["HuffmanError", "bit_lengths", "compress", "decompress", "inspect", "tree"]

_EOF: Final = 256

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

_BLOCK: Final = 128
"""Coded bytes between two looks at the limit."""

_Row = list[Any]
"""256 entries of one state."""
_Entry = tuple[bytes, list[Any]]
"""(Bytes completed, next row)."""


class HuffmanError(ValueError):
    """The data is no Huffman code of at most the permitted size.

    Attributes:
        decoded: the bytes decoded before the fault, cut to the permitted size.

    """

    def __init__(self, message: str, decoded: bytes) -> None:
        super().__init__(message)
        self.decoded = decoded


@cache
def tree() -> tuple[list[int], list[int], int]:
    """Return (child 0, child 1, root) of the tree; numbers up to 256 are symbols, others nodes.

    The least frequent two are joined until one is left. The order among equals is that of a stable
    sort by falling frequency, in which a joined node stands where its second last member stood.
    """
    zeros, ones = [-1] * (_EOF + 1), [-1] * (_EOF + 1)
    nodes = [(frequency, symbol) for symbol, frequency in enumerate((*_FREQUENCIES, 1))]
    while len(nodes) > 1:
        nodes.sort(key=lambda node: -node[0])
        last, second = nodes.pop(), nodes.pop()
        zeros.append(last[1])
        ones.append(second[1])
        nodes.append((last[0] + second[0], len(zeros) - 1))
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


@cache
def _machine() -> tuple[_Row, _Row]:
    """Return (row of the root, row after the end symbol). The latter swallows whatever follows."""
    zeros, ones, root = tree()
    ended: _Row = []
    ended.extend([(b"", ended)] * 256)
    inner = range(_EOF + 1, len(zeros))
    rows: list[_Row] = [[None] * 256 for _ in range(len(zeros))]
    # Half a byte at a time: 16 steps a node, then two halves give the 256 entries.
    halves: list[list[tuple[bytes, int]]] = [[]] * len(zeros)
    for node in inner:
        halves[node] = [_walk(node, nibble, zeros, ones, root) for nibble in range(16)]
    for node in inner:
        row = rows[node]
        for low in range(16):
            first, middle = halves[node][low]
            octet = low
            if middle == _EOF:
                row[low::16] = [(first, ended)] * 16
                continue
            for second, after in halves[middle]:
                part = first + second if first and second else first or second
                row[octet] = (part, ended if after == _EOF else rows[after])
                octet += 16
    return rows[root], ended


def _walk(
    node: int, nibble: int, zeros: list[int], ones: list[int], root: int
) -> tuple[bytes, int]:
    """Return (bytes completed, node reached) by four bits; `_EOF` after the end symbol."""
    out = bytearray()
    for bit in range(4):
        node = ones[node] if nibble >> bit & 1 else zeros[node]
        if node == _EOF:
            return bytes(out), _EOF
        if node < _EOF:
            out.append(node)
            node = root
    return bytes(out), node


@cache
def bit_lengths() -> tuple[int, ...]:
    """Return how many bits the code of each byte has."""
    return tuple(count for _, count in _codes()[:_EOF])


def decompress(data: bytes, limit: int) -> bytes:
    """Return the bytes that `data` stands for.

    Decoding stops at most `_BLOCK` coded bytes after the limit is passed, whatever `data` holds.

    Raises:
        HuffmanError: no end symbol, or more than `limit` bytes.

    """
    row, ended = _machine()
    out = BytesWriter()
    start: i64 = 0
    end: i64 = len(data)
    while start < end:
        stop = min(start + _BLOCK, end)
        for place in range(start, stop):
            entry: _Entry = row[data[place]]
            part, row = entry
            out.write(part)
        start = stop
        if len(out) > limit:
            decoded = out.getvalue()[:limit]
            raise HuffmanError(f"more than the limit of {limit} bytes", decoded)
    if row is not ended:
        raise HuffmanError("the end symbol is missing", out.getvalue())
    return out.getvalue()


def inspect(data: bytes) -> int | None:
    """Return the number of bytes up to and including the one that completes the end symbol.

    None without an end symbol. Real encoders write at most one byte more.
    """
    row, ended = _machine()
    end: i64 = len(data)
    for place in range(end):
        entry: _Entry = row[data[place]]
        row = entry[1]
        if row is ended:
            return int(place) + 1
    return None


def eof_bit(data: bytes) -> int | None:
    """Return the position of the bit after the end symbol, None without one."""
    zeros, ones, root = tree()
    node = root
    number = int.from_bytes(data, "little")
    for position in range(8 * len(data)):
        node = ones[node] if number >> position & 1 else zeros[node]
        if node == _EOF:
            return position + 1
        if node < _EOF:
            node = root
    return None


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
