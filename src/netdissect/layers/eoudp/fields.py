"""Field classes that only EOUDP needs: booleans, padding, text and lists of floats."""

from __future__ import annotations

import struct
from typing import Any

from scapy.fields import Field, StrField
from scapy.volatile import RandBin, RandFloat, RandNum

from netdissect.layers.expr import E
from netdissect.layers.fields import FieldFault, Hex, SizedBytes, Utf8
from netdissect.model.dissection import TEXT
from netdissect.wire.eoudp import DIGITS_LIMIT

SHOWN_DECIMALS = 6
"""Decimals of a float in the tree."""


class Truth(Field):  # type: ignore[misc]
    """One byte that receivers read as a boolean."""

    def plain(self, value: int) -> bool:
        """Return the boolean."""
        return bool(value)

    def randval(self) -> Any:
        """Return 0 or 1."""
        return RandNum(0, 1)


class Flag(Truth):
    """A boolean; a byte other than 0 and 1 is reported."""

    def __init__(self, name: str, default: int) -> None:
        Field.__init__(self, name, default, "B")

    def findings(self, value: int, _raw: bytes) -> list[tuple[str, str]]:
        """Report a value that no sender writes."""
        text = f"{self.name} is {value}, read as true"
        return [("eoudp-bool-value", text)] if value > 1 else []


class Zeros(Hex, Field):  # type: ignore[misc]
    """Padding that every sender sets to zero."""

    def __init__(self, name: str, octets: int) -> None:
        Field.__init__(self, name, bytes(octets), f"!{octets}s")

    def i2m(self, pkt: Any, x: Any) -> bytes:
        """Return the bytes; `struct` cuts or pads them to the size."""
        return bytes(x or b"")

    def findings(self, value: bytes, _raw: bytes) -> list[tuple[str, str]]:
        """Report bytes that are not zero."""
        if any(value):
            return [("nonzero-padding", f"padding holds {value.hex()}, not zeros")]
        return []

    def randval(self) -> Any:
        """Return zeros: other padding would be a finding of its own."""
        return bytes(self.sz)


class Real(Field):  # type: ignore[misc]
    """A little-endian f32. Only the tree rounds it."""

    def __init__(self, name: str, default: float = 0.0) -> None:
        Field.__init__(self, name, default, "<f")

    def plain(self, value: float) -> float:
        """Return the value rounded to six decimals, unless that would make it zero."""
        return round(value, SHOWN_DECIMALS) or value

    def randval(self) -> Any:
        """Return a random number."""
        return RandFloat(-100.0, 100.0)


class Stamp(Field):  # type: ignore[misc]
    """A time as a float of format `fmt`; the dialect says its unit and epoch."""

    def __init__(self, name: str, fmt: str) -> None:
        Field.__init__(self, name, 0.0, fmt)

    def randval(self) -> Any:
        """Return a time between 1970 and 2039, in milliseconds."""
        return RandFloat(0.0, 2.2e12)


class Floats(Field):  # type: ignore[misc]
    """`count` little-endian f32: a vector or a colour."""

    __slots__ = ["count"]
    islist = 1

    def __init__(self, name: str, count: int, default: float = 0.0) -> None:
        Field.__init__(self, name, [default] * count, f"<{count}f")
        self.count = count

    def getfield(self, pkt: Any, s: bytes) -> tuple[bytes, list[float]]:
        """Read all of them."""
        return s[self.sz :], list(struct.unpack_from(self.fmt, s))

    def addfield(self, pkt: Any, s: bytes, val: Any) -> bytes:
        """Append them."""
        return s + struct.pack(self.fmt, *val)

    def lua(self, tools: Any) -> dict[str, Any]:
        """Return the step for the Lua dissector (see `dissect.lua`)."""
        item = tools.item(Real(self.name))
        return {"k": "array", "item": item, "count": tools.rule(E(str(self.count)))}

    def plain(self, value: list[float]) -> list[float]:
        """Return the values rounded to six decimals, as of `Real`."""
        return [round(item, SHOWN_DECIMALS) or item for item in value]

    def i2repr(self, pkt: Any, x: Any) -> str:
        """Return the values separated by commas."""
        return ", ".join(f"{item:g}" for item in x)

    def randval(self) -> Any:
        """Return the default: Scapy's random values make no lists of fixed length."""
        return list(self.default)


class _Utf8(Utf8):
    """Mixin for text that should be UTF-8."""

    __slots__ = ()
    name: str

    def findings(self, value: bytes, _raw: bytes) -> list[tuple[str, str]]:
        """Report bytes that are not UTF-8."""
        try:
            value.decode("utf-8")
        except UnicodeDecodeError:
            return [("eoudp-name-encoding", f"{self.name} is not UTF-8")]
        return []


class Text(_Utf8, SizedBytes):
    """Text of a stated length, without terminator."""


class Head(_Utf8, StrField):  # type: ignore[misc]
    """Text up to the last `keep` bytes of the data."""

    __slots__ = ["keep"]
    private = TEXT

    def __init__(self, name: str, default: bytes = b"", keep: int = 0) -> None:
        StrField.__init__(self, name, default)
        self.keep = keep

    def lua(self, tools: Any) -> dict[str, Any]:
        """Return the step of the dissector for Wireshark."""
        del tools
        return {"k": "tail", "keep": self.keep, "text": True}

    def getfield(self, pkt: Any, s: bytes) -> tuple[bytes, bytes]:
        """Read the text; raise FieldFault `truncated` if fewer than `keep` bytes are left."""
        size = len(s) - self.keep
        if size < 0:
            raise FieldFault("truncated", f"{self.name}: {len(s)} of {self.keep} bytes are left")
        return s[size:], s[:size]

    def randval(self) -> Any:
        """Return random bytes."""
        return RandBin(RandNum(0, 20))


class Nul(Field):  # type: ignore[misc]
    """The NUL behind a string of the documents; any other byte ends the layer."""

    def __init__(self, name: str = "nul") -> None:
        Field.__init__(self, name, 0, "B")

    def getfield(self, pkt: Any, s: bytes) -> tuple[bytes, int]:
        """Read the NUL."""
        if s[:1] != b"\0":
            code = "unterminated-string" if s else "truncated"
            raise FieldFault(code, "a NUL is wanted after the string")
        return s[1:], 0

    def lua(self, tools: Any) -> dict[str, Any]:
        """Return the step of the dissector for Wireshark."""
        del tools
        return {"k": "nul"}

    def derive(self, writer: Any) -> None:
        """Write the lines of the derived reader."""
        writer.put("if p >= end or buf[p]: return None")
        writer.put(f"{writer.name(self)} = 0")
        writer.put("p += 1")

    def randval(self) -> Any:
        """Return zero: no other byte can be read."""
        return RandNum(0, 0)


class AsciiNumber(Field):  # type: ignore[misc]
    """A number in 1 to 20 decimal digits, up to the end of the data."""

    limits = (0, 10**DIGITS_LIMIT - 1)

    def __init__(self, name: str) -> None:
        Field.__init__(self, name, 0)

    def lua(self, tools: Any) -> dict[str, Any]:
        """Return the step of the dissector for Wireshark."""
        del tools
        return {"k": "digits"}

    def getfield(self, pkt: Any, s: bytes) -> tuple[bytes, int]:
        """Read the digits; raise FieldFault `eoudp-content-size` for anything else."""
        if not 1 <= len(s) <= DIGITS_LIMIT or not (s.isascii() and s.isdigit()):
            raise FieldFault("eoudp-content-size", f"{self.name}: 1 to 20 digits are wanted", s)
        return b"", int(s)

    def addfield(self, pkt: Any, s: bytes, val: Any) -> bytes:
        """Append the digits."""
        return s + str(int(val or 0)).encode()

    def i2len(self, pkt: Any, x: Any) -> int:
        """Return the number of digits."""
        return len(str(x or 0))

    def derive(self, writer: Any) -> None:
        """Write the lines of the derived reader."""
        writer.put("k = buf[p:end]")
        writer.put(f"if not 1 <= len(k) <= {DIGITS_LIMIT} or not (k.isascii() and k.isdigit()):")
        writer.put("    return None")
        writer.put(f"{writer.name(self)} = int(k)")
        writer.put("p = end")

    def randval(self) -> Any:
        """Return a small number."""
        return RandNum(0, 99)
