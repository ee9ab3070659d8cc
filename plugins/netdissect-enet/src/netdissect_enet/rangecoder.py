"""ENet's range coder, the receiving half: adaptive contexts of order two over single bytes.

Bounded: what comes out is never longer than `limit`, and each byte of it costs a walk through at
most three trees of at most 256 symbols. Source: docs/enet.md; ENet `compress.c`.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final

__all__ = ["MAX_OPENED", "RangeCoderError", "decompress"]

MAX_OPENED: Final = 4096
"""Bytes that come out at most. Source: ENet `ENET_PROTOCOL_MAXIMUM_MTU`."""
_TOP, _BOTTOM, _WORD = 1 << 24, 1 << 16, 0xFFFFFFFF
_LARGEST = 0xFF
_SYMBOLS = 4096 - 2
"""Symbols after which both sides forget everything and begin anew."""
_ROOT_STEP, _STEP, _ESCAPE_STEP = 3, 2, 5
"""What a symbol's count grows by in the root context and in others, and what an escape's does."""


class RangeCoderError(ValueError):
    """The bytes are no output of the range coder."""


class _Symbol:
    """A symbol of a context's tree, which is a context itself: of what follows that symbol."""

    __slots__ = ("count", "escapes", "left", "parent", "right", "total", "tree", "under", "value")

    def __init__(self, value: int, count: int, escapes: int = 0, total: int = 0) -> None:
        self.value = value
        self.count = self.under = count
        """Its count, and that of the symbols to its left with it."""
        self.left: _Symbol | None = None
        self.right: _Symbol | None = None
        self.tree: _Symbol | None = None
        self.escapes, self.total = escapes, total
        self.parent: _Symbol | None = None
        """The context of one symbol less."""


def _halve(symbol: _Symbol | None) -> int:
    """Halve the counts of a tree; return their sum."""
    total = 0
    while symbol is not None:
        symbol.count -= symbol.count >> 1
        symbol.under = symbol.count + _halve(symbol.left)
        total += symbol.under
        symbol = symbol.right
    return total


def _grown(context: _Symbol, step: int, count: int, least: int) -> None:
    """Add to the total of a context; halve everything before it grows too large."""
    context.total += step
    if count > _LARGEST - 2 * step + least or context.total > _BOTTOM - 0x100:
        context.escapes -= context.escapes >> 1
        context.total = _halve(context.tree) + context.escapes + 256 * least


class _Decoder:
    def __init__(self, octets: bytes) -> None:
        self._octets = octets
        self._at = 4
        self._low, self._range = 0, _WORD
        self._code = int.from_bytes(octets[:4].ljust(4, b"\0"), "big")
        self._begin()

    def _begin(self) -> None:
        self._root = _Symbol(0, 0, 1, 257)
        self._symbols = 1
        self._context = self._root
        self._order = 0

    def _read(self, total: int) -> int:
        """Return where in a context of that total the code points."""
        self._range //= total
        if not self._range:
            raise RangeCoderError("the code leaves its range")
        return ((self._code - self._low & _WORD) // self._range) & 0xFFFF

    def _take(self, under: int, count: int) -> None:
        """Narrow the range to what was read."""
        self._low = self._low + under * self._range & _WORD
        self._range = self._range * count & _WORD
        while True:
            if (self._low ^ (self._low + self._range & _WORD)) >= _TOP:
                if self._range >= _BOTTOM:
                    return
                # Too narrow, and a carry may still change the top byte: the range ends before that.
                self._range = -self._low & _BOTTOM - 1
            octet = self._octets[self._at] if self._at < len(self._octets) else 0
            self._at += 1
            self._code = (self._code << 8 | octet) & _WORD
            self._range = self._range << 8 & _WORD
            self._low = self._low << 8 & _WORD

    def _hang(
        self, context: _Symbol, before: _Symbol | None, value: int, step: int, *, right: bool
    ) -> _Symbol:
        """Make a symbol; hang it into the tree of a context, below `before` if there is one."""
        self._symbols += 1
        made = _Symbol(value, step)
        if before is None:
            context.tree = made
        elif right:
            before.right = made
        else:
            before.left = made
        return made

    def _find(self, context: _Symbol, code: int, step: int, least: int) -> tuple[_Symbol, int, int]:
        """Return the symbol at a code, and (numbers under it, its count) before it grew.

        With `least` each of the 256 values has that count to begin with, and a symbol is made where
        there is none; else that is a fault.
        """
        under, node, right = 0, context.tree, False
        before: _Symbol | None = None
        while node is not None:
            after = under + node.under + (node.value + 1) * least
            if code >= after:
                under += node.under
                before, node, right = node, node.right, True
                value, start = before.value + 1 + (code - after) // (least or 1), code
            elif code < after - node.count - least:
                node.under += step
                before, node, right = node, node.left, False
                room = after - before.count - least - code - 1
                value, start = before.value - 1 - room // (least or 1), code
            else:
                count = node.count + least
                node.under += step
                node.count += step
                return node, after - count, count
        if not least:
            raise RangeCoderError("a symbol that its context does not have")
        if before is None:
            value = start = code
        # Of hostile bytes more than eight bits come.
        return self._hang(context, before, value & _LARGEST, step, right=right), start, least

    def _put(self, context: _Symbol, value: int) -> tuple[_Symbol, int]:
        """Count a value in a context that did not know it; return its symbol and count before."""
        node, right = context.tree, False
        before: _Symbol | None = None
        while node is not None and node.value != value:
            before, right = node, value > node.value
            if not right:
                node.under += _STEP
            node = node.right if right else node.left
        if node is None:
            return self._hang(context, before, value, _STEP, right=right), 0
        count = node.count
        node.under += _STEP
        node.count += _STEP
        return node, count

    def next(self) -> int | None:
        """Return the next byte; None at the end."""
        context = self._context
        passed: list[_Symbol] = []
        while context is not self._root:
            if 0 < context.escapes < context.total:
                code = self._read(context.total)
                if code >= context.escapes:
                    symbol, under, count = self._find(context, code - context.escapes, _STEP, 0)
                    self._take(context.escapes + under, count)
                    _grown(context, _STEP, count, 0)
                    break
                self._take(0, context.escapes)
            passed.append(context)
            context = context.parent or self._root
        else:
            code = self._read(context.total)
            if code < context.escapes:
                return None
            symbol, under, count = self._find(context, code - context.escapes, _ROOT_STEP, 1)
            self._take(context.escapes + under, count)
            _grown(context, _ROOT_STEP, count, 1)
        self._learn(passed, symbol)
        return symbol.value

    def _learn(self, passed: list[_Symbol], symbol: _Symbol) -> None:
        """Count a byte in the contexts that did not know it, and go on from the longest."""
        chain = []
        for context in passed:
            made, count = self._put(context, symbol.value)
            chain.append(made)
            if not count:
                context.escapes += _ESCAPE_STEP
                context.total += _ESCAPE_STEP
            _grown(context, _STEP, count, 0)
        chain.append(symbol)
        for shorter, longer in zip(chain[1:], chain, strict=False):
            longer.parent = shorter
        newest = chain[0]
        if self._order >= 2:  # noqa: PLR2004 - the order of the contexts
            newest = newest.parent or self._root
        else:
            self._order += 1
        self._context = newest
        if self._symbols >= _SYMBOLS:
            self._begin()


@lru_cache(maxsize=64)  # recognition, tracking and the tree each ask for the same datagram
def decompress(octets: bytes, limit: int = MAX_OPENED) -> bytes:
    """Return what was compressed.

    Raises:
        RangeCoderError: that is more than `limit` bytes, or nothing that the coder makes.

    """
    if not octets:
        raise RangeCoderError("no bytes")
    decoder, out = _Decoder(octets), bytearray()
    while (octet := decoder.next()) is not None:
        if len(out) >= limit:
            raise RangeCoderError(f"more than {limit} bytes come out")
        out.append(octet)
    return bytes(out)
