"""Field classes of kNet: flags, variable-length numbers with limits, lists of them, contents."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from scapy.fields import ByteField, FieldListField
from scapy.volatile import RandNum

from netdissect.layers.base import Gen
from netdissect.layers.expr import E
from netdissect.layers.fields import Embedded, FieldFault, Tail, Varint
from netdissect.wire.varint import KNET_7_7_16, KNET_7_8, VarintCodec, VarintError

__all__ = [
    "BoundedVle", "Content", "OctetList", "PayloadTail", "Vle", "VleList",
    "in_parts",
]  # fmt: skip


def in_parts(name: str, low_bits: int) -> Gen:
    """Return a number of two fields: its `..._low`, of so many bits, and its `..._high`."""
    low, high = f"{name}_low", f"{name}_high"
    return Gen(name, lambda fields: fields[high] << low_bits | fields[low])


class Vle(Varint):
    """A kNet variable-length number; the longer-than-needed form is kNet's own finding."""

    def findings(self, value: int, raw: bytes) -> list[tuple[str, str]]:
        """Return the finding about a form that is not the shortest."""
        if self.codec.is_minimal(raw, value):
            return []
        return [("knet-overlong-vle", f"{self.name} = {value} uses {len(raw)} bytes")]


class BoundedVle(Vle):
    """A number that ends the layer where it is out of its limits."""

    __slots__ = ["code", "high", "low"]

    def __init__(
        self, name: str, default: int | None, codec: VarintCodec, *, low: int, high: int, code: str
    ) -> None:
        Vle.__init__(self, name, default, codec)
        self.low = low
        self.high = high
        self.code = code

    def getfield(self, pkt: Any, s: bytes) -> tuple[bytes, int]:
        """Read one number; FieldFault with the code of the field where it is out of limits."""
        after, value = Vle.getfield(self, pkt, s)
        if not self.low <= value <= self.high:
            text = f"{self.name} is {value}, not {self.low} to {self.high}"
            raise FieldFault(self.code, text, value)
        return after, value

    def lua(self, tools: Any) -> dict[str, Any]:
        """Return the step of the dissector for Wireshark."""
        del tools
        limits = {"low": self.low, "high": self.high, "code": self.code}
        return {"k": "bounded", "codec": self.codec.name, **limits}

    def derive(self, writer: Any) -> None:
        """Write the reader's lines: the number, then its limits."""
        writer.usual(self)
        writer.put(f"if not {self.low} <= v_{self.name} <= {self.high}: return None")

    def randval(self) -> Any:
        """Return a random value within the limits."""
        return RandNum(self.low, self.high)


class _Counted(FieldListField):  # type: ignore[misc]
    """`count` numbers."""

    def randval(self) -> Any:
        """Return no numbers: the count says how many there are."""
        return []

    def lua(self, tools: Any) -> dict[str, Any]:
        """Return the step of the dissector for Wireshark."""
        item = tools.item(self.field)
        return {"k": "array", "item": item, "count": tools.rule(self.count_from)}


class VleList(_Counted):
    """`count` numbers of 1 to 4 bytes."""

    def __init__(self, name: str, count: Callable[[Any], int]) -> None:
        FieldListField.__init__(self, name, [], Vle("", 0, KNET_7_8), count_from=count)

    def getfield(self, pkt: Any, s: bytes) -> tuple[bytes, list[int]]:
        """Read exactly `count` numbers; FieldFault `truncated` where they run out."""
        values = []
        for _ in range(self.count_from(pkt)):
            s, value = self.field.getfield(pkt, s)
            values.append(value)
        return s, values

    def derive(self, writer: Any) -> None:
        """Write the reader's lines: a loop over the numbers."""
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
    """`count` numbers of one byte."""

    def __init__(self, name: str, count: Callable[[Any], int]) -> None:
        FieldListField.__init__(self, name, [], ByteField("", 0), count_from=count, max_count=0x100)

    def getfield(self, pkt: Any, s: bytes) -> tuple[bytes, list[int]]:
        """Read exactly `count` bytes; FieldFault `truncated` where they run out."""
        count = self.count_from(pkt)
        if count > len(s):
            raise FieldFault("truncated", f"{self.name} needs {count} bytes")
        return s[count:], list(s[:count])

    def derive(self, writer: Any) -> None:
        """Write the reader's lines."""
        writer.put(f"k = {writer.condition(self.count_from)}")
        writer.need("k")
        writer.put(f"{writer.name(self)} = list(buf[p:p + k])")
        writer.put("p += k")


class PayloadTail(Tail):
    """All remaining bytes, shown as `payload` (a name that Scapy keeps for itself)."""

    shown = "payload"

    def __init__(self) -> None:
        Tail.__init__(self, "data")


_ONE_OCTET = 127
"""Highest message ID of one byte."""


class Content(Embedded):
    """The content of a message: a layer in `length` bytes.

    No bytes, or bytes that end inside the message ID, end the message: its receiver stops there.
    `unnamed` says which contents have no message ID (later fragments).
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
        """Return the bytes; FieldFault `knet-zero-content` or `truncated` where there is no ID."""
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
        """Return the step of the dissector for Wireshark."""
        how: dict[str, Any] = {"k": "embedded", "choose": "content"}
        return how if self.length is None else {**how, "len": tools.rule(self.length)}

    def derive(self, writer: Any) -> None:
        """Write the reader's lines: the bytes of the content, of which the message ID is there."""
        length = "end - p" if self.length is None else writer.condition(self.length)
        writer.put(f"k = {length}")
        writer.put("if k < 1 or p + k > end: return None")
        named = "" if self.unnamed is None else f" and not ({writer.condition(self.unnamed)})"
        writer.put(f"if buf[p] > 127 and (k < 2 or k < 4 and buf[p + 1] > 127){named}: return None")
        local = writer.name(self)
        if self.name not in writer.skip:
            writer.put(f"{local} = buf[p:p + k]")
        writer.put("p += k")
