"""The decoder of ENet's range coder, with adaptive contexts of order two over bytes.

Its cost is bounded: each byte of output is a search in at most three trees of at most 256 symbols,
and there are at most `limit` bytes. *Source:* docs/enet.md; ENet `compress.c`.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final

MAX_OPENED: Final = 4096
"""Maximum number of decompressed bytes. *Source:* ENet `ENET_PROTOCOL_MAXIMUM_MTU`."""
_TOP, _BOTTOM, _WORD = 1 << 24, 1 << 16, 0xFFFFFFFF
_LARGEST = 0xFF
_SYMBOLS = 4096 - 2
"""Number of symbols after which both sides start with an empty model again."""
_ROOT_STEP, _STEP, _ESCAPE_STEP = 3, 2, 5
"""Increments of counts: of a symbol in the root context and in others, and of escapes."""


class RangeCoderError(ValueError):
    """The bytes are not output of the range coder, or too much comes out."""


class _Symbol:
    """A symbol in the tree of a context, and the context of what follows that symbol."""

    __slots__ = ("count", "escapes", "left", "parent", "right", "total", "tree", "under", "value")

    def __init__(self, value: int, count: int, escapes: int = 0, total: int = 0) -> None:
        self.value = value
        self.count = self.under = count
        """`under` is the sum of the counts in the left subtree and of its own."""
        self.left: _Symbol | None = None
        self.right: _Symbol | None = None
        self.tree: _Symbol | None = None
        """Root of the tree of symbols in this context."""
        self.escapes, self.total = escapes, total
        """Count of escapes in this context, and sum of all counts."""
        self.parent: _Symbol | None = None
        """The context with one symbol less."""


def _halve(symbol: _Symbol | None) -> int:
    """Halve the counts of a tree; return their sum."""
    total = 0
    while symbol is not None:
        symbol.count -= symbol.count >> 1
        symbol.under = symbol.count + _halve(symbol.left)
        total += symbol.under
        symbol = symbol.right
    return total


def _add_to_total(context: _Symbol, step: int, count: int, least: int) -> None:
    """Add `step` to the total of a context; halve all counts before they become too large."""
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
        """Return the position of the code in a context with this total."""
        self._range //= total
        if not self._range:
            raise RangeCoderError("the code leaves its range")
        return ((self._code - self._low & _WORD) // self._range) & 0xFFFF

    def _take(self, under: int, count: int) -> None:
        """Narrow the range to the symbol that was read, and load further bytes."""
        self._low = self._low + under * self._range & _WORD
        self._range = self._range * count & _WORD
        while True:
            if (self._low ^ (self._low + self._range & _WORD)) >= _TOP:
                if self._range >= _BOTTOM:
                    return
                # Too narrow while a carry could change the top byte: end the range before that.
                self._range = -self._low & _BOTTOM - 1
            octet = self._octets[self._at] if self._at < len(self._octets) else 0
            self._at += 1
            self._code = (self._code << 8 | octet) & _WORD
            self._range = self._range << 8 & _WORD
            self._low = self._low << 8 & _WORD

    def _insert(
        self, context: _Symbol, above: _Symbol | None, value: int, step: int, *, right: bool
    ) -> _Symbol:
        """Insert a symbol into the tree of a context, below `above` or as its root."""
        self._symbols += 1
        symbol = _Symbol(value, step)
        if above is None:
            context.tree = symbol
        elif right:
            above.right = symbol
        else:
            above.left = symbol
        return symbol

    def _find(self, context: _Symbol, code: int, step: int, least: int) -> tuple[_Symbol, int, int]:
        """Return the symbol at `code`, and the start and size of its range; increase its count.

        In the root context, all 256 values have an initial count of `least`, and a symbol is
        inserted if there is none. In others `least` is 0, and the symbol must be there.
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
        # As in the library: bad input may give more than eight bits.
        return self._insert(context, before, value & _LARGEST, step, right=right), start, least

    def _count(self, context: _Symbol, value: int) -> tuple[_Symbol, int]:
        """Count a value in a context; return its symbol and its previous count."""
        node, right = context.tree, False
        before: _Symbol | None = None
        while node is not None and node.value != value:
            before, right = node, value > node.value
            if not right:
                node.under += _STEP
            node = node.right if right else node.left
        if node is None:
            return self._insert(context, before, value, _STEP, right=right), 0
        count = node.count
        node.under += _STEP
        node.count += _STEP
        return node, count

    def next(self) -> int | None:
        """Return the next byte; None at the end."""
        context = self._context
        escaped: list[_Symbol] = []
        while context is not self._root:
            if 0 < context.escapes < context.total:
                code = self._read(context.total)
                if code >= context.escapes:
                    symbol, under, count = self._find(context, code - context.escapes, _STEP, 0)
                    self._take(context.escapes + under, count)
                    _add_to_total(context, _STEP, count, 0)
                    break
                self._take(0, context.escapes)
            escaped.append(context)
            context = context.parent or self._root
        else:
            code = self._read(context.total)
            if code < context.escapes:
                return None
            symbol, under, count = self._find(context, code - context.escapes, _ROOT_STEP, 1)
            self._take(context.escapes + under, count)
            _add_to_total(context, _ROOT_STEP, count, 1)
        self._update(escaped, symbol)
        return symbol.value

    def _update(self, escaped: list[_Symbol], symbol: _Symbol) -> None:
        """Count a byte in the longer contexts that lacked it, and choose the next context."""
        chain = []
        for context in escaped:
            inserted, count = self._count(context, symbol.value)
            chain.append(inserted)
            if not count:
                context.escapes += _ESCAPE_STEP
                context.total += _ESCAPE_STEP
            _add_to_total(context, _STEP, count, 0)
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


@lru_cache(maxsize=64)  # recognition, tracking and the tree read the same datagram
def decompress(octets: bytes, limit: int = MAX_OPENED) -> bytes:
    """Return the decompressed bytes.

    Raises:
        RangeCoderError: they are more than `limit`, or the input is invalid.

    """
    if not octets:
        raise RangeCoderError("no bytes")
    decoder, out = _Decoder(octets), bytearray()
    while (octet := decoder.next()) is not None:
        if len(out) >= limit:
            raise RangeCoderError(f"more than {limit} bytes come out")
        out.append(octet)
    return bytes(out)
