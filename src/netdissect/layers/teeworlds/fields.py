"""Field classes of Teeworlds: its numbers, strings and repeated values.

A field's value is what stands on the wire (bytes for strings); `plain` is what the tree shows.
`shown` is the name in the tree where Scapy keeps the table's name for itself (`name`, `time`).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from scapy.fields import Field
from scapy.volatile import RandBin, RandNum, VolatileValue

from netdissect.layers.fields import (
    FieldFault,
    IfLeft,
    NulString,
    Tail,
    Varint,
    octets_of,
    text,
)
from netdissect.model.dissection import TEXT
from netdissect.model.text import quoted
from netdissect.wire.varint import TEEWORLDS

__all__ = [
    "ArrayOf",
    "Decimal",
    "Maybe",
    "Number",
    "Octets",
    "OptionalTail",
    "Size",
    "Text",
]

_SPACE = 32
KEPT_CONTROLS = frozenset(b"\r\n\t")
"""Controls that the ordinary sanitiser leaves. Source: docs/protocols/teeworlds.md."""
_CONTROL = re.compile(b"[%b]" % bytes(range(_SPACE))).search
_REPLACED = re.compile(b"[%b]" % bytes(set(range(_SPACE)) - KEPT_CONTROLS)).search
"""Finds a control that the ordinary sanitiser replaces."""


class Octets(Field):  # type: ignore[misc]
    """A fixed number of bytes, such as a token."""

    __slots__ = ["private"]

    def __init__(self, name: str, default: bytes, size: int, *, private: str = "") -> None:
        Field.__init__(self, name, default, f"!{size}s")
        self.private = private

    def any2i(self, pkt: Any, x: Any) -> Any:
        """Return bytes for a number (highest byte first), hex digits, or bytes of any length.

        Raises:
            ValueError: a number that does not fit, or a text that is not the hex digits of it.
            TypeError: anything else.
        """
        if x is None or isinstance(x, (bytes, bytearray, VolatileValue)):
            return bytes(x) if isinstance(x, bytearray) else x
        if isinstance(x, bool) or not isinstance(x, (int, str)):
            raise TypeError(f"{self.name}: {quoted(x)} is neither a number, hex digits nor bytes")
        if isinstance(x, int):
            if not 0 <= x < 1 << 8 * self.sz:
                raise ValueError(f"{self.name}: {x} does not fit {self.sz} bytes")
            return x.to_bytes(self.sz, "big")
        try:
            octets = bytes.fromhex(x.removeprefix("0x"))
        except ValueError:
            octets = b""
        if len(octets) != self.sz:
            raise ValueError(f"{self.name}: {quoted(x)} is not the hex digits of {self.sz} bytes")
        return octets

    def i2m(self, pkt: Any, x: Any) -> bytes:
        """Return the bytes; struct cuts or fills them to the width."""
        return octets_of(x or b"")

    def i2repr(self, pkt: Any, x: Any) -> str:
        """Return the bytes as hex."""
        return bytes(x or b"").hex()

    def randval(self) -> Any:
        """Return random bytes of that width."""
        return RandBin(RandNum(self.sz, self.sz))


class Number(Varint):
    """A varint with the range and the names that the table states."""

    __slots__ = ["flags", "highest", "lowest", "shown"]

    def __init__(
        self,
        name: str,
        default: int = 0,
        *,
        limits: tuple[int | None, int | None] = (None, None),
        names: dict[int, str] | None = None,
        flags: dict[int, str] | None = None,
        shown: str | None = None,
    ) -> None:
        Varint.__init__(self, name, default, TEEWORLDS, names)
        self.lowest, self.highest = limits
        self.flags = flags
        self.shown = shown or name

    def i2repr(self, pkt: Any, x: Any) -> str:
        """Return the value with its name, or with the names of its bits."""
        if self.flags is None or not isinstance(x, int):
            return str(Varint.i2repr(self, pkt, x))
        set_bits = [name for bit, name in self.flags.items() if x & bit]
        return f"{'|'.join(set_bits)} ({x:#x})" if set_bits else repr(x)

    @property
    def is_bare(self) -> bool:
        """Return whether people see no more than the number."""
        return self.flags is None and self.names is None

    @property
    def quiet(self) -> tuple[int | None, int | None]:
        """Return from where to where nothing is found on a number in its shortest form."""
        return self.lowest, self.highest

    def findings(self, value: int, raw: bytes) -> list[tuple[str, str]]:
        """Return the soft findings: overlong, or outside the range of the table."""
        found = Varint.findings(self, value, raw)
        low, high = self.lowest, self.highest
        if (low is not None and value < low) or (high is not None and value > high):
            found.append(("teeworlds-range", f"{self.shown} = {value}, allowed {low} to {high}"))
        return found


class Size(Number):
    """The length in bytes of a later field; filled in from it when the message is built."""

    __slots__ = ["of", "unit"]

    def __init__(self, name: str, of: str, *, unit: int = 1, highest: int | None = None) -> None:
        Number.__init__(self, name, limits=(0, highest))
        self.default = None
        self.of = of
        self.unit = unit

    def addfield(self, pkt: Any, s: bytes, val: int | None) -> bytes:
        """Append the length, the real one unless a value was given."""
        if val is None and pkt is not None:
            val = self.unit * len(pkt.getfieldval(self.of) or ())
        return s + TEEWORLDS.write(val or 0)


class Text(NulString):
    """A string up to its NUL. `strict`: its receivers replace every control character."""

    __slots__ = ["shown", "strict"]

    def __init__(
        self,
        name: str,
        default: bytes = b"",
        *,
        strict: bool = False,
        shown: str | None = None,
        private: str = TEXT,
    ) -> None:
        NulString.__init__(self, name, default, private=private)
        self.strict = strict
        self.shown = shown or name

    def findings(self, value: bytes, _raw: bytes) -> list[tuple[str, str]]:
        """Return a finding for characters that receivers replace by spaces."""
        if (_CONTROL if self.strict else _REPLACED)(value):
            return [("teeworlds-sanitised", f"{self.shown} holds control characters")]
        return []


class Decimal(Text):
    """A number as decimal digits and a NUL; anything else stays the text that it is."""

    def __init__(self, name: str, default: bytes = b"", *, shown: str | None = None) -> None:
        Text.__init__(self, name, default, shown=shown, private="")

    def any2i(self, pkt: Any, x: Any) -> Any:
        """Accept a number for its digits."""
        return str(x).encode() if isinstance(x, int) else Text.any2i(self, pkt, x)

    def plain(self, value: bytes) -> int | str:
        """Return the number where the digits are one in its usual form."""
        try:
            number = int(value)
        except ValueError:
            return text(value)
        return number if str(number).encode() == value else text(value)

    def findings(self, value: bytes, raw: bytes) -> list[tuple[str, str]]:
        """Return a finding for what is no number."""
        if isinstance(self.plain(value), str):
            return [("teeworlds-number-text", f"{self.shown} is no decimal number")]
        return []

    def randval(self) -> Any:
        """Return digits."""
        return str(int(RandNum(0, 9999))).encode()


class ArrayOf(Field):  # type: ignore[misc]
    """Values of one field in a row: `count` of them, or up to the end of the message (None)."""

    __slots__ = ["count", "item", "private", "shown"]
    islist = 1
    ismutable = True

    def __init__(
        self,
        name: str,
        item: Any,
        count: Callable[[Any], int] | None,
        *,
        default: list[Any] | None = None,
        shown: str | None = None,
    ) -> None:
        self.item = item
        self.count = count
        self.shown = shown or name
        self.private = getattr(item, "private", "")
        Field.__init__(self, name, default or [])

    def getfield(self, pkt: Any, s: bytes) -> tuple[bytes, list[Any]]:
        """Read the values; every one takes a byte at least, so a count can claim nothing."""
        values: list[Any] = []
        wanted = None if self.count is None else int(self.count(pkt))
        while s if wanted is None else len(values) < wanted:
            try:
                s, value = self.item.getfield(pkt, s)
            except FieldFault as fault:
                raise FieldFault(fault.code, f"{self.shown}: {fault}", self.plain(values)) from None
            values.append(value)
        return s, values

    def reader(self, of: Callable[[Any], Any]) -> Callable[[bytes, int, Any], tuple[Any, int]]:
        """Return what reads the values at a bit position, as `getfield` does where bytes begin.

        Args:
            of: returns what reads a field so.

        """
        item, count = of(self.item), self.count

        def read(data: bytes, position: int, scope: Any) -> tuple[Any, int]:
            values: list[Any] = []
            wanted = None if count is None else int(count(scope))
            end = 8 * len(data)
            try:
                while position < end if wanted is None else len(values) < wanted:
                    value, position = item(data, position, scope)
                    values.append(value)
            except FieldFault as fault:
                raise FieldFault(fault.code, f"{self.shown}: {fault}", self.plain(values)) from None
            return values, position

        return read

    def addfield(self, pkt: Any, s: bytes, val: Any) -> bytes:
        """Append them."""
        for value in val or ():
            s = self.item.addfield(pkt, s, self.item.any2i(pkt, value))
        return s

    def any2i(self, pkt: Any, x: Any) -> Any:
        """Accept what the item accepts."""
        known = isinstance(x, (list, tuple))
        return [self.item.any2i(pkt, value) for value in x] if known else x or []

    def i2len(self, pkt: Any, x: Any) -> int:
        """Return the number of values."""
        return len(x or ())

    def i2repr(self, pkt: Any, x: Any) -> str:
        """Return the values in brackets."""
        return f"[{', '.join(self.item.i2repr(pkt, value) for value in x or ())}]"

    def lua(self, tools: Any) -> dict[str, Any]:
        """Return the step of the dissector for Wireshark."""
        how: dict[str, Any] = {"k": "array", "item": tools.item(self.item)}
        return how if self.count is None else {**how, "count": tools.rule(self.count)}

    def plain(self, value: list[Any]) -> list[Any]:
        """Return the values as the tree shows them."""
        plain = getattr(self.item, "plain", None)
        return list(value) if plain is None else [plain(item) for item in value]

    def randval(self) -> Any:
        """Return the default: Scapy's random values make no lists."""
        return list(self.default)


class OptionalTail(IfLeft):
    """What the message holds beyond its fields: allowed for later versions, hence only noted."""

    def __init__(self) -> None:
        IfLeft.__init__(self, Tail("trailing"), 8)
        self.default = None


class Maybe(IfLeft):
    """A field that the message may end before. A string needs no byte more than its NUL."""

    __slots__ = ["default", "shown"]

    def __init__(self, fld: Any) -> None:
        IfLeft.__init__(self, fld, 8)
        self.shown = fld.shown
        self.default = None

    def plain(self, value: Any) -> Any:
        """Return what the inner field shows."""
        plain = getattr(self.fld, "plain", None)
        return value if plain is None else plain(value)

    def findings(self, value: Any, raw: bytes) -> list[tuple[str, str]]:
        """Return the findings of the inner field."""
        findings = getattr(self.fld, "findings", None)
        return [] if findings is None else list(findings(value, raw))
