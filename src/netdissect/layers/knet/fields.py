"""Field classes of kNet: numbers of variable length, lists of numbers, and contents."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from scapy.fields import ByteField, FieldListField
from scapy.volatile import RandNum

from netdissect.layers.base import Gen
from netdissect.layers.expr import E
from netdissect.layers.fields import Embedded, FieldFault, Tail, Varint
from netdissect.wire.varint import KNET_7_7_16, KNET_7_8, VarintCodec, VarintError


def in_parts(name: str, low_bits: int) -> Gen:
    """Return the number that the fields `<name>_low`, of `low_bits`, and `<name>_high` form."""
    low, high = f"{name}_low", f"{name}_high"
    return Gen(name, lambda fields: fields[high] << low_bits | fields[low])


class Vle(Varint):
    """A number of variable length, with a finding of kNet's own for overlong encodings."""

    def findings(self, value: int, raw: bytes) -> list[tuple[str, str]]:
        """Report an encoding that is longer than necessary."""
        if self.codec.is_minimal(raw, value):
            return []
        return [("knet-overlong-vle", f"{self.name} = {value} uses {len(raw)} bytes")]


class BoundedVle(Vle):
    """A number that ends the layer if it is outside `low` to `high`; `code` is the finding."""

    __slots__ = ["code", "high", "low"]

    def __init__(
        self, name: str, default: int | None, codec: VarintCodec, *, low: int, high: int, code: str
    ) -> None:
        Vle.__init__(self, name, default, codec)
        self.low = low
        self.high = high
        self.code = code

    def getfield(self, pkt: Any, s: bytes) -> tuple[bytes, int]:
        """Read one number; raise FieldFault if it is outside the limits."""
        after, value = Vle.getfield(self, pkt, s)
        if not self.low <= value <= self.high:
            text = f"{self.name} is {value}, not {self.low} to {self.high}"
            raise FieldFault(self.code, text, value)
        return after, value

    def lua(self, tools: Any) -> dict[str, Any]:
        """Return the step for the Lua dissector (see `dissect.lua`)."""
        del tools
        limits = {"low": self.low, "high": self.high, "code": self.code}
        return {"k": "bounded", "codec": self.codec.name, **limits}

    def derive(self, writer: Any) -> None:
        """Write the lines of the derived reader."""
        writer.usual(self)
        writer.put(f"if not {self.low} <= v_{self.name} <= {self.high}: return None")

    def randval(self) -> Any:
        """Return a random value within the limits."""
        return RandNum(self.low, self.high)


class _Counted(FieldListField):  # type: ignore[misc]
    """A list of numbers whose count is an earlier field."""

    def randval(self) -> Any:
        """Return an empty list: a random one would contradict the count."""
        return []

    def lua(self, tools: Any) -> dict[str, Any]:
        """Return the step for the Lua dissector (see `dissect.lua`)."""
        item = tools.item(self.field)
        return {"k": "array", "item": item, "count": tools.rule(self.count_from)}


class VleList(_Counted):
    """A list of numbers of one or two bytes each."""

    def __init__(self, name: str, count: Callable[[Any], int]) -> None:
        FieldListField.__init__(self, name, [], Vle("", 0, KNET_7_8), count_from=count)

    def getfield(self, pkt: Any, s: bytes) -> tuple[bytes, list[int]]:
        """Read `count` numbers; raise FieldFault `truncated` if there are fewer."""
        values = []
        for _ in range(self.count_from(pkt)):
            s, value = self.field.getfield(pkt, s)
            values.append(value)
        return s, values

    def derive(self, writer: Any) -> None:
        """Write the lines of the derived reader: a loop over the numbers."""
        local = writer.name(self)
        item = Vle(f"{self.name}_item", 0, self.field.codec)
        writer.put(f"{local} = []")
        writer.put(f"for _ in range({writer.condition(self.count_from)}):")
        writer.indent += 1
        writer.usual(item)
        writer.put(f"{local}.append(v_{item.name})")
        writer.indent -= 1
        writer.forget(item)


class OctetList(_Counted):
    """A list of numbers of one byte each."""

    def __init__(self, name: str, count: Callable[[Any], int]) -> None:
        FieldListField.__init__(self, name, [], ByteField("", 0), count_from=count, max_count=0x100)

    def getfield(self, pkt: Any, s: bytes) -> tuple[bytes, list[int]]:
        """Read `count` bytes; raise FieldFault `truncated` if there are fewer."""
        count = self.count_from(pkt)
        if count > len(s):
            raise FieldFault("truncated", f"{self.name} needs {count} bytes")
        return s[count:], list(s[:count])

    def derive(self, writer: Any) -> None:
        """Write the lines of the derived reader."""
        writer.put(f"k = {writer.condition(self.count_from)}")
        writer.need("k")
        writer.put(f"{writer.name(self)} = list(buf[p:p + k])")
        writer.put("p += k")


class PayloadTail(Tail):
    """All remaining bytes, `payload` in the tree: in Scapy that name is taken."""

    shown = "payload"

    def __init__(self) -> None:
        Tail.__init__(self, "data")


_ONE_OCTET = 127
"""Highest message ID that is encoded in one byte."""


class Content(Embedded):
    """The content of a message.

    A content that is empty, or that ends within its message ID, ends the message, as in a receiver.
    `unnamed` is the condition for contents without a message ID: later fragments.
    """

    __slots__ = ["unnamed"]

    def __init__(
        self,
        choose: Callable[[Any, bytes], type[Any]],
        length: E | None,
        unnamed: E | None = None,
        *,
        default: Any = None,
    ) -> None:
        Embedded.__init__(self, "content", choose, length, inline=True, default=default)
        self.unnamed = unnamed

    def octets(self, pkt: Any, s: bytes) -> bytes:
        """Return the bytes; raise FieldFault if there are none, or if they cut the message ID."""
        octets = Embedded.octets(self, pkt, s)
        if not octets:
            raise FieldFault("knet-zero-content", "content length 0")
        if octets[0] > _ONE_OCTET and (self.unnamed is None or not self.unnamed(pkt)):
            try:
                KNET_7_7_16.read(octets, 0, len(octets))
            except VarintError:
                raise FieldFault("truncated", "message ID runs past the content", octets) from None
        return octets

    def lua(self, tools: Any) -> dict[str, Any]:
        """Return the step for the Lua dissector (see `dissect.lua`)."""
        step: dict[str, Any] = {"k": "embedded", "choose": "content"}
        return step if self.length is None else {**step, "len": tools.rule(self.length)}

    def derive(self, writer: Any) -> None:
        """Write the lines of the derived reader: they check length and message ID."""
        length = "end - p" if self.length is None else writer.condition(self.length)
        writer.put(f"k = {length}")
        writer.put("if k < 1 or p + k > end: return None")
        named = "" if self.unnamed is None else f" and not ({writer.condition(self.unnamed)})"
        writer.put(f"if buf[p] > 127 and (k < 2 or k < 4 and buf[p + 1] > 127){named}: return None")
        local = writer.name(self)
        if self.name not in writer.skip:
            writer.put(f"{local} = buf[p:p + k]")
        writer.put("p += k")
