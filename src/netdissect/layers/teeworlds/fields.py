"""Field classes of Teeworlds: numbers, strings and arrays.

`shown` is the name in the table of messages, and in the tree. The field's own name has a final
underscore if Scapy uses the name itself (`name`, `time`).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from scapy.fields import Field
from scapy.volatile import RandBin, RandNum, VolatileValue

from netdissect.layers.base import Check
from netdissect.layers.expr import E
from netdissect.layers.fields import (
    FieldFault,
    Hex,
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

_SPACE = 32
KEPT_CONTROLS = frozenset(b"\r\n\t")
"""Control characters that receivers keep in ordinary strings. *Source:*
docs/protocols/teeworlds.md.
"""
_CONTROL = re.compile(b"[%b]" % bytes(range(_SPACE))).search
"""Finds a character that receivers replace in strict strings."""
_REPLACED = re.compile(b"[%b]" % bytes(set(range(_SPACE)) - KEPT_CONTROLS)).search
"""Finds a character that receivers replace in ordinary strings."""


class Octets(Hex, Field):  # type: ignore[misc]
    """A fixed number of bytes, such as a token."""

    __slots__ = ["private", "width"]

    def __init__(self, name: str, default: bytes, size: int, *, private: str = "") -> None:
        self.width = size  # Scapy checks the default before it sets `sz`
        Field.__init__(self, name, default, f"!{size}s")
        self.private = private

    def any2i(self, pkt: Any, x: Any) -> Any:
        """Accept a number (big-endian), hex digits, or bytes.

        Raises:
            ValueError: the number, the digits or the bytes do not have this size.
            TypeError: the value is of another kind.
        """
        if x is None or isinstance(x, VolatileValue):
            return x
        if isinstance(x, (bytes, bytearray)):
            if len(x) != self.width:
                raise ValueError(f"{self.name}: {quoted(bytes(x))} is not {self.width} bytes")
            return bytes(x)
        if isinstance(x, bool) or not isinstance(x, (int, str)):
            raise TypeError(f"{self.name}: {quoted(x)} is neither a number, hex digits nor bytes")
        if isinstance(x, int):
            if not 0 <= x < 1 << 8 * self.width:
                raise ValueError(f"{self.name}: {x} does not fit {self.width} bytes")
            return x.to_bytes(self.width, "big")
        try:
            octets = bytes.fromhex(x.removeprefix("0x"))
        except ValueError:
            octets = b""
        if len(octets) != self.width:
            size = f"{self.width} bytes"
            raise ValueError(f"{self.name}: {quoted(x)} is not the hex digits of {size}")
        return octets

    def i2m(self, pkt: Any, x: Any) -> bytes:
        """Return the bytes; `struct` cuts or pads them to the size."""
        return octets_of(x or b"")

    def randval(self) -> Any:
        """Return random bytes of this size."""
        return RandBin(RandNum(self.sz, self.sz))


class Number(Varint):
    """A varint with range and names from the table of messages.

    Args:
        limits: (lowest, highest) value that receivers accept; None = no limit.
        names: value -> name.
        flags: bit -> name.
        shown: name in the tree; None = the field's own.
    """

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
        """Return the value with its name, or with the names of the bits that are set."""
        if self.flags is None or not isinstance(x, int):
            return str(Varint.i2repr(self, pkt, x))
        set_bits = [name for bit, name in self.flags.items() if x & bit]
        return f"{'|'.join(set_bits)} ({x:#x})" if set_bits else repr(x)

    @property
    def is_bare(self) -> bool:
        """Return whether the display is just the number."""
        return self.flags is None and self.names is None

    @property
    def clean_range(self) -> tuple[int | None, int | None]:
        """Return the range of numbers without findings, if their encoding is minimal."""
        return self.lowest, self.highest

    def findings(self, value: int, raw: bytes) -> list[tuple[str, str]]:
        """Report an overlong encoding, and a value outside the range."""
        found = Varint.findings(self, value, raw)
        low, high = self.lowest, self.highest
        if (low is not None and value < low) or (high is not None and value > high):
            found.append(("teeworlds-range", f"{self.shown} = {value}, allowed {low} to {high}"))
        return found


class Size(Number):
    """The length of the later field `of`: its number of bytes or values, times `unit`."""

    __slots__ = ["of", "unit"]

    def __init__(self, name: str, of: str, *, unit: int = 1, highest: int | None = None) -> None:
        Number.__init__(self, name, limits=(0, highest))
        self.default = None
        self.of = of
        self.unit = unit

    def addfield(self, pkt: Any, s: bytes, val: int | None) -> bytes:
        """Append the length, computed if it is None."""
        if val is None and pkt is not None:
            val = self.unit * len(pkt.getfieldval(self.of) or ())
        return Number.addfield(self, pkt, s, val)


class Text(NulString):
    """A string with NUL. `strict`: receivers replace every control character in it."""

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
        """Report characters that receivers replace by spaces."""
        if (_CONTROL if self.strict else _REPLACED)(value):
            return [("teeworlds-sanitised", f"{self.shown} holds control characters")]
        return []


class Decimal(Text):
    """A number in decimal digits, with NUL. Other text is kept as it is."""

    def __init__(self, name: str, default: bytes = b"", *, shown: str | None = None) -> None:
        Text.__init__(self, name, default, shown=shown, private="")

    def any2i(self, pkt: Any, x: Any) -> Any:
        """Accept a number instead of its digits."""
        return str(x).encode() if isinstance(x, int) else Text.any2i(self, pkt, x)

    def plain(self, value: bytes) -> int | str:
        """Return the number if the text is its usual form, else the text."""
        try:
            number = int(value)
        except ValueError:
            return text(value)
        return number if str(number).encode() == value else text(value)

    def findings(self, value: bytes, raw: bytes) -> list[tuple[str, str]]:
        """Report a text that is not a number."""
        if isinstance(self.plain(value), str):
            return [("teeworlds-number-text", f"{self.shown} is no decimal number")]
        return []

    def randval(self) -> Any:
        """Return random digits."""
        return str(int(RandNum(0, 9999))).encode()


class ArrayOf(Field):  # type: ignore[misc]
    """Consecutive values of the field `item`: `count` of them, or up to the end of the message."""

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
        """Read the values. Each takes at least a byte, so the data bounds a large count."""
        values: list[Any] = []
        count = None if self.count is None else int(self.count(pkt))
        while s if count is None else len(values) < count:
            try:
                s, value = self.item.getfield(pkt, s)
            except FieldFault as fault:
                raise FieldFault(fault.code, f"{self.shown}: {fault}", self.plain(values)) from None
            values.append(value)
        return s, values

    def reader(
        self, reader_of: Callable[[Any], Any]
    ) -> Callable[[bytes, int, Any], tuple[Any, int]]:
        """Return the walker's function that reads the values (see `dissect.steps`).

        Args:
            reader_of: returns that function for a field.

        """
        read_item = reader_of(self.item)
        count_of = self.count.rule if isinstance(self.count, E) else self.count

        def read(data: bytes, position: int, scope: Any) -> tuple[Any, int]:
            values: list[Any] = []
            count = None if count_of is None else int(count_of(scope))
            end = 8 * len(data)
            try:
                while position < end if count is None else len(values) < count:
                    value, position = read_item(data, position, scope)
                    values.append(value)
            except FieldFault as fault:
                raise FieldFault(fault.code, f"{self.shown}: {fault}", self.plain(values)) from None
            return values, position

        return read

    def addfield(self, pkt: Any, s: bytes, val: Any) -> bytes:
        """Append the values."""
        for value in val or ():
            s = self.item.addfield(pkt, s, self.item.any2i(pkt, value))
        return s

    def any2i(self, pkt: Any, x: Any) -> Any:
        """Accept a list of what the item accepts."""
        is_list = isinstance(x, (list, tuple))
        return [self.item.any2i(pkt, value) for value in x] if is_list else x or []

    def i2len(self, pkt: Any, x: Any) -> int:
        """Return the number of values."""
        return len(x or ())

    def i2repr(self, pkt: Any, x: Any) -> str:
        """Return the values in brackets."""
        return f"[{', '.join(self.item.i2repr(pkt, value) for value in x or ())}]"

    def lua(self, tools: Any) -> dict[str, Any]:
        """Return the step for the Lua dissector (see `dissect.lua`)."""
        step: dict[str, Any] = {"k": "array", "item": tools.item(self.item)}
        return step if self.count is None else {**step, "count": tools.rule(self.count)}

    def plain(self, value: list[Any]) -> list[Any]:
        """Return the values as the tree shows them."""
        plain = getattr(self.item, "plain", None)
        return list(value) if plain is None else [plain(item) for item in value]

    def randval(self) -> Any:
        """Return the default: Scapy has no random lists."""
        return list(self.default)


class OptionalTail(IfLeft):
    """Bytes behind the last known field. Later versions may add fields, so this is only a note."""

    def __init__(self) -> None:
        IfLeft.__init__(self, Tail("trailing"), 8, absent=True)


TRAILING = Check(E("trailing"), "teeworlds-extra", "trailing", "bytes behind the known fields")
"""Rule of a layer that ends with an `OptionalTail`."""


class Maybe(IfLeft):
    """A field that a message may leave out at its end. At least one byte must be left for it."""

    __slots__ = ["shown"]

    def __init__(self, fld: Any) -> None:
        IfLeft.__init__(self, fld, 8, absent=True)
        self.shown = fld.shown

    def plain(self, value: Any) -> Any:
        """Return what the tree shows of the inner field."""
        plain = getattr(self.fld, "plain", None)
        return value if plain is None else plain(value)

    def findings(self, value: Any, raw: bytes) -> list[tuple[str, str]]:
        """Return the findings of the inner field."""
        findings = getattr(self.fld, "findings", None)
        return [] if findings is None else list(findings(value, raw))
