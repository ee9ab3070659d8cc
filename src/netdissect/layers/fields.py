"""Field classes that Scapy lacks: varints, texts, optional and counted fields. `lsb` has bits.

They are ordinary Scapy fields (build, show, fuzz and dissect work with stock Scapy). A field that
cannot be read raises `FieldFault`; `Layer.do_dissect` and the walker keep what was read before it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from scapy.config import conf
from scapy.fields import BitField, Field, PacketField, PacketListField, StrField
from scapy.volatile import RandBin, RandNum

from netdissect.model.dissection import OCTETS, TEXT
from netdissect.model.text import quoted
from netdissect.wire.varint import VarintCodec, VarintError

__all__ = [
    "Embedded",
    "FieldFault",
    "Flag",
    "IfLeft",
    "Items",
    "NulString",
    "SizedBytes",
    "Tail",
    "Utf8",
    "Varint",
    "innermost",
    "octets_of",
    "text",
]

LIST_LIMIT = 65536
"""Items of one list at most, whatever a count on the wire says."""


class FieldFault(ValueError):
    """A field could not be read.

    Attributes:
        code: catalogue code of the finding.
        value: what could be read of it, or None.

    """

    def __init__(self, code: str, message: str, value: Any = None) -> None:
        super().__init__(message)
        self.code = code
        self.value = value

    def __reduce__(self) -> tuple[type[FieldFault], tuple[str, str, Any]]:
        """Return what makes it again: packets are pickled with their fault."""
        return FieldFault, (self.code, str(self), self.value)

    @classmethod
    def kept(cls, fault: Exception) -> FieldFault:
        """Return a fault for a packet to keep, without the faults and frames that led to it: they
        would live, and be pickled, with the packet.
        """
        if isinstance(fault, cls):
            return cls(fault.code, str(fault), fault.value)
        return cls("truncated", str(fault))


def innermost(field: Any) -> Any:
    """Return the field inside conditional and optional ones."""
    while hasattr(field, "fld"):
        field = field.fld
    return field


def text(octets: bytes) -> str:
    """Return bytes as text; what is not UTF-8 is kept as lone surrogates."""
    return octets.decode("utf-8", "surrogateescape")


def octets_of(value: Any) -> bytes:
    """Return the bytes of a text, or of what is bytes already."""
    return value.encode("utf-8", "surrogateescape") if isinstance(value, str) else bytes(value)


def split(state: Any) -> tuple[bytes, int]:
    """Return (bytes, bits already consumed of the first one) of a Scapy dissection state."""
    return state if isinstance(state, tuple) else (state, 0)


class Limited:
    """Random values of a number with limits, shared by the fields below."""

    __slots__ = ()
    limits: tuple[int, int]

    def randval(self) -> Any:
        """Return a random value within the limits."""
        return RandNum(*self.limits)


class Named(Limited):
    """Display of a number by name, shared by the fields below."""

    names: dict[int, str] | None

    @property
    def is_bare(self) -> bool:
        """Return whether people see no more than the number."""
        return self.names is None

    def i2repr(self, pkt: Any, x: Any) -> str:
        """Return the value with its name, for people."""
        name = self.names.get(x) if self.names is not None and isinstance(x, int) else None
        return f"{name} ({x})" if name is not None else repr(x)

    def any2i(self, pkt: Any, x: Any) -> Any:
        """Accept a name for its number."""
        if isinstance(x, str) and self.names is not None:
            for number, name in self.names.items():
                if name == x:
                    return number
            raise ValueError(f"{quoted(x)} is none of {', '.join(self.names.values())}")
        return x


class Hex:
    """Display and random values of bytes of any number, shared by the fields below."""

    __slots__ = ()

    def i2repr(self, pkt: Any, x: Any) -> str:
        """Return the bytes as hex."""
        return bytes(x or b"").hex()

    def randval(self) -> Any:
        """Return random bytes."""
        return RandBin(RandNum(0, 40))


class Utf8:
    """Bytes that are shown as text, shared by the fields below."""

    __slots__ = ()

    def any2i(self, pkt: Any, x: Any) -> Any:
        """Accept text for its bytes."""
        return octets_of(x) if isinstance(x, str) else x

    def plain(self, value: bytes) -> Any:
        """Return the text."""
        return text(value)

    def i2repr(self, pkt: Any, x: Any) -> str:
        """Return the text as Python would write it."""
        return repr(text(octets_of(x or b"")))


class Flag(BitField):  # type: ignore[misc]
    """One bit, shown as a truth value. Layers fill in a default of None when they are built."""

    def __init__(self, name: str, default: int | None = 0) -> None:
        BitField.__init__(self, name, default, 1)

    plain = staticmethod(bool)

    def i2repr(self, pkt: Any, x: Any) -> str:
        """Return True or False."""
        return repr(bool(x))


class Varint(Named, Field):  # type: ignore[misc]
    """One number of a byte-oriented varint family; `length_of`: the bytes of that field, unless
    a number is given.
    """

    __slots__ = ["codec", "length_of", "limits", "names"]

    def __init__(
        self,
        name: str,
        default: int | None,
        codec: VarintCodec,
        names: dict[int, str] | None = None,
        *,
        length_of: str | None = None,
    ) -> None:
        Field.__init__(self, name, default)
        self.codec, self.limits = codec, (codec.minimum, codec.maximum)
        self.names = names
        self.length_of = length_of

    def getfield(self, pkt: Any, s: bytes) -> tuple[bytes, int]:
        """Read one number; FieldFault `truncated` when its bytes run out."""
        try:
            value, after = self.codec.read(s, 0, len(s))
        except VarintError as fault:
            raise FieldFault("truncated", f"{self.name}: {fault}") from None
        return s[after:], value

    def addfield(self, pkt: Any, s: bytes, val: int | None) -> bytes:
        """Append the shortest form."""
        if val is None and self.length_of is not None and pkt is not None:
            measured, octets = pkt.getfield_and_val(self.length_of)
            val = int(measured.i2len(pkt, octets))
        return s + self.codec.write(val or 0)

    def findings(self, value: int, raw: bytes) -> list[tuple[str, str]]:
        """Return the soft findings about the bytes that were read."""
        if self.codec.is_minimal(raw, value):
            return []
        return [("overlong-varint", f"{self.name} = {value} uses {len(raw)} bytes")]

    def i2len(self, pkt: Any, x: Any) -> int:
        """Return the length in bytes of the shortest form."""
        return len(self.codec.write(x or 0))


class IfLeft(Field):  # type: ignore[misc]
    """A field that is there when at least `bits` are left; None means absent, also in building."""

    __slots__ = ["bits", "fld"]

    def __init__(self, fld: Any, bits: int) -> None:
        self.fld = fld
        self.bits = bits
        Field.__init__(self, fld.name, fld.default)

    # Scapy takes a list in a field that is none for several values, hence for several packets.
    islist = property(lambda self: self.fld.islist)
    ismutable = property(lambda self: self.fld.ismutable)

    def getfield(self, pkt: Any, s: Any) -> tuple[Any, Any]:
        """Read the inner field, or nothing."""
        data, bit = split(s)
        return self.fld.getfield(pkt, s) if 8 * len(data) - bit >= self.bits else (s, None)

    def addfield(self, pkt: Any, s: Any, val: Any) -> Any:
        """Append the inner field unless the value is None."""
        return s if val is None else self.fld.addfield(pkt, s, val)

    def i2repr(self, pkt: Any, x: Any) -> str:
        """Return the inner field's display, or "absent"."""
        return "absent" if x is None else self.fld.i2repr(pkt, x)

    def any2i(self, pkt: Any, x: Any) -> Any:
        """Return the inner field's internal value."""
        return None if x is None else self.fld.any2i(pkt, x)

    def i2len(self, pkt: Any, x: Any) -> float:
        """Return the length in bytes, 0 when absent."""
        return 0 if x is None else self.fld.i2len(pkt, x)

    def randval(self) -> Any:
        """Return a random value of the inner field."""
        return self.fld.randval()


class Tail(Hex, StrField):  # type: ignore[misc]
    """All remaining bytes."""

    __slots__ = ["private"]

    def __init__(self, name: str, default: bytes = b"", *, private: str = OCTETS) -> None:
        StrField.__init__(self, name, default)
        self.private = private
        """What it holds that a shared capture should not: a word of `model.dissection`, or ""."""


def _leading(name: str, size: int, data: bytes) -> bytes:
    """Return so many bytes; FieldFault `length-beyond-end` where they are not all there."""
    if 0 <= size <= len(data):
        return data[:size]
    raise FieldFault("length-beyond-end", f"{name} wants {size} bytes, {len(data)} are left", data)


class SizedBytes(Hex, StrField):  # type: ignore[misc]
    """`length` bytes, an expression over earlier fields; FieldFault `length-beyond-end` when fewer
    are left.
    """

    __slots__ = ["length", "private", "shown"]

    def __init__(
        self,
        name: str,
        default: bytes,
        length: Callable[[Any], int],
        *,
        private: str = OCTETS,
        shown: str | None = None,
    ) -> None:
        StrField.__init__(self, name, default)
        self.length = length
        self.shown = shown or name
        self.private = private

    def getfield(self, pkt: Any, s: bytes) -> tuple[bytes, bytes]:
        """Read exactly the stated number of bytes."""
        octets = _leading(self.name, self.length(pkt), s)
        return s[len(octets) :], octets


class NulString(Utf8, StrField):  # type: ignore[misc]
    """Text up to a NUL, or another mark of a subclass, which is not part of the value."""

    __slots__ = ["private"]
    mark = b"\0"
    code = "unterminated-string"  # the finding where there is no mark

    def __init__(self, name: str, default: bytes = b"", *, private: str = TEXT) -> None:
        StrField.__init__(self, name, default)
        self.private = private

    def getfield(self, pkt: Any, s: bytes) -> tuple[bytes, bytes]:
        """Read up to the mark; FieldFault when there is none."""
        end = s.find(self.mark)
        if end < 0:
            raise self.endless(s)
        return s[end + 1 :], s[:end]

    def endless(self, octets: bytes) -> FieldFault:
        """Return what is wrong with bytes that have no mark."""
        return FieldFault(self.code, f"{self.name} has no NUL", octets)

    def addfield(self, pkt: Any, s: bytes, val: Any) -> bytes:
        """Append the bytes and the mark."""
        return s + bytes(self.i2m(pkt, val)) + self.mark

    def i2len(self, pkt: Any, x: Any) -> int:
        """Return the length in bytes with the mark."""
        return len(x or b"") + 1

    def randval(self) -> Any:
        """Return random bytes without NUL."""
        return RandBin(RandNum(0, 20))


class Embedded(PacketField):  # type: ignore[misc]
    """Another layer in the next `length` bytes (None: in all that are left).

    `choose(fields, octets)` names the layer; `fields` is the packet in Scapy and the scope in the
    walker. FieldFault `length-beyond-end` when fewer bytes are left. Values without bytes are built
    as `start` until their bytes name another. `inline`: the tree has its fields beside this one.
    """

    __slots__ = ["choose", "inline", "length", "shown", "start"]

    def __init__(
        self,
        name: str,
        choose: Callable[[Any, bytes], type[Any]],
        length: Callable[[Any], int] | None = None,
        *,
        shown: str | None = None,
        start: type[Any] | None = None,
        inline: bool = False,
        default: Any = None,
    ) -> None:
        PacketField.__init__(self, name, default, object)
        self.choose = choose
        self.length = length
        self.shown = shown or name
        self.start = start
        self.inline = inline

    def octets(self, pkt: Any, s: bytes) -> bytes:
        """Return the bytes of the inner layer."""
        return s if self.length is None else _leading(self.name, self.length(pkt), s)

    def getfield(self, pkt: Any, s: bytes) -> tuple[bytes, Any]:
        """Read the inner layer as a Scapy packet."""
        octets = self.octets(pkt, s)
        return s[len(octets) :], self.choose(pkt, octets)(octets, _parent=pkt)

    def i2m(self, pkt: Any, i: Any) -> bytes:
        """Return the bytes of the inner layer; none without one."""
        return b"" if i is None else bytes(i)

    def i2len(self, pkt: Any, x: Any) -> int:
        """Return the length in bytes."""
        return len(self.i2m(pkt, x))

    def randval(self) -> Any:
        """Return nothing: which layer stands inside is chosen, not random."""
        return None


class Items(PacketListField):  # type: ignore[misc]
    """A list of one layer: `count` of them, or up to the end of the data (count None).

    A count larger than the data holds ends with the data; the walker says so. `reserve` bytes at
    the end belong to the fields behind. Where items are of several layers, `choose` (fields, bytes)
    names the next one's, and `item` is what they have in common. The tree has no `optional` list
    without items, and the item that the data end in by the rule of `rest` (name, rule over bytes)
    behind the list.
    """

    __slots__ = ["choose", "count", "item", "optional", "reserve", "rest", "unfinished"]

    def __init__(
        self,
        name: str,
        item: type[Any],
        count: Callable[[Any], int] | None = None,
        *,
        reserve: int = 0,
        choose: Callable[[Any, bytes], type[Any]] | None = None,
        optional: bool = False,
        rest: tuple[str, Callable[[bytes], bool]] = ("", bool),
    ) -> None:
        PacketListField.__init__(self, name, [], item, count_from=count, max_count=LIST_LIMIT)
        self.item = item
        self.count = count
        self.reserve = reserve
        self.choose = choose
        self.optional = optional
        self.rest, self.unfinished = rest

    def layer(self, fields: Any, octets: bytes) -> type[Any]:
        """Return the layer of the item at the start of `octets`."""
        return self.item if self.choose is None else self.choose(fields, octets)

    def _wanted(self, pkt: Any) -> int:
        """Return the count; a list that is read by itself, without what counts it, has no end."""
        try:
            return min(LIST_LIMIT, LIST_LIMIT if self.count is None else int(self.count(pkt)))
        except NameError:
            return LIST_LIMIT

    def getfield(self, pkt: Any, s: bytes) -> Any:
        """Read the items, but none of the reserved bytes. Ends at one that could not be read or
        took nothing: stock Scapy goes on up to the limit, seconds for a few hostile bytes.
        """
        edge = max(0, len(s) - self.reserve)
        rest, kept = s[:edge], s[edge:]
        wanted = self._wanted(pkt)
        items: list[Any] = []
        while rest and len(items) < wanted:
            item = self.layer(pkt, rest)(rest, _parent=pkt)
            items.append(item)
            # Not `getlayer`: that also finds the padding of packets inside the item's fields.
            last, before, rest = item.lastlayer(), rest, b""
            if isinstance(last, conf.padding_layer):
                rest = last.load
                del last.underlayer.payload
            if len(rest) >= len(before) or getattr(item, "fault", None) is not None:
                break
        return rest + kept, items
