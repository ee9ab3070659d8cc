"""Field classes that Scapy lacks: varints, text, optional fields, nested layers. Bits: `lsb`.

They are ordinary Scapy fields: stock Scapy builds, dissects, shows and fuzzes them. A field that
cannot be read raises `FieldFault`; `Layer.do_dissect` and the walker keep the fields before it.
Besides Scapy's methods, the walker uses `plain(value)`, which returns what the tree shows of a
value, and `findings(value, raw)`, which returns (code, text) of each soft finding.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

from scapy.fields import BitField, Field, PacketField, PacketListField, StrField
from scapy.volatile import RandBin, RandNum

from netdissect.model.dissection import OCTETS, TEXT
from netdissect.model.text import quoted
from netdissect.wire.varint import VarintCodec, VarintError

LIST_LIMIT = 65536
"""Maximum number of items in one list, whatever a count on the wire says. A datagram has fewer
bytes."""


class FieldFault(ValueError):
    """A field could not be read.

    Attributes:
        code: code of the finding in the catalogue.
        value: the part that could be read, or None.

    """

    def __init__(self, code: str, message: str, value: Any = None) -> None:
        super().__init__(message)
        self.code = code
        self.value = value

    def __reduce__(self) -> tuple[type[FieldFault], tuple[str, str, Any]]:
        """Support pickling: packets are pickled with their fault."""
        return FieldFault, (self.code, str(self), self.value)

    @classmethod
    def detached(cls, fault: Exception) -> FieldFault:
        """Return a copy without traceback and context, which would live as long as the packet."""
        if isinstance(fault, cls):
            return cls(fault.code, str(fault), fault.value)
        return cls("truncated", str(fault))


READ_FAULTS = (FieldFault, struct.error, IndexError, ValueError)
"""Exceptions that reading a field may raise on bad input. Any other one is a bug in the layer."""


def innermost(field: Any) -> Any:
    """Return the field inside conditional and optional fields."""
    while hasattr(field, "fld"):
        field = field.fld
    return field


def text(octets: bytes) -> str:
    """Return the text of UTF-8 bytes; bytes that are not UTF-8 become lone surrogates."""
    return octets.decode("utf-8", "surrogateescape")


def octets_of(value: Any) -> bytes:
    """Return the bytes of a str (the inverse of `text`) or of a bytes-like value."""
    return value.encode("utf-8", "surrogateescape") if isinstance(value, str) else bytes(value)


def split(state: Any) -> tuple[bytes, int]:
    """Return (bytes, number of bits already read of the first byte) of a Scapy dissection state."""
    return state if isinstance(state, tuple) else (state, 0)


class Limited:
    """Mixin for numbers with limits."""

    __slots__ = ()
    limits: tuple[int, int]

    def randval(self) -> Any:
        """Return a random value within the limits."""
        return RandNum(*self.limits)


class Named(Limited):
    """Mixin for numbers whose values may have names."""

    names: dict[int, str] | None

    @property
    def is_bare(self) -> bool:
        """Return whether the display is just the number."""
        return self.names is None

    def i2repr(self, pkt: Any, x: Any) -> str:
        """Return the value with its name."""
        name = self.names.get(x) if self.names is not None and isinstance(x, int) else None
        return f"{name} ({x})" if name is not None else repr(x)

    def any2i(self, pkt: Any, x: Any) -> Any:
        """Accept a name instead of its number."""
        if isinstance(x, str) and self.names is not None:
            for number, name in self.names.items():
                if name == x:
                    return number
            raise ValueError(f"{quoted(x)} is none of {', '.join(self.names.values())}")
        return x


class _Lenient:
    """Mixin for bytes that may be given in other ways."""

    __slots__ = ()

    def any2i(self, pkt: Any, x: Any) -> Any:
        """Accept a str or a bytearray instead of its bytes."""
        return octets_of(x) if isinstance(x, (str, bytearray)) else x


class Hex(_Lenient):
    """Mixin for bytes of variable length, displayed as hex."""

    __slots__ = ()

    def i2repr(self, pkt: Any, x: Any) -> str:
        """Return the bytes as hex."""
        # A set of packets may have a list of values.
        return bytes(x or b"").hex() if isinstance(x, bytes | None) else repr(x)

    def randval(self) -> Any:
        """Return random bytes."""
        return RandBin(RandNum(0, 40))


class Utf8(_Lenient):
    """Mixin for bytes that are displayed as text."""

    __slots__ = ()

    def plain(self, value: bytes) -> Any:
        """Return the text."""
        return text(value)

    def i2repr(self, pkt: Any, x: Any) -> str:
        """Return the text as a Python literal."""
        return repr(text(x or b"") if isinstance(x, bytes | None) else x)


class Flag(BitField):  # type: ignore[misc]
    """One bit, displayed as True or False. With a default of None, the layer computes it."""

    def __init__(self, name: str, default: int | None = 0) -> None:
        BitField.__init__(self, name, default, 1)

    plain = staticmethod(bool)

    def i2repr(self, pkt: Any, x: Any) -> str:
        """Return True or False."""
        return repr(bool(x))


class Overlong(int):
    """A number that was longer on the wire than necessary: it is built as it was read."""

    codec: Any
    written: Any

    def __new__(cls, value: int, codec: Any, written: Any) -> Overlong:  # noqa: PYI034
        """Return a number that fields with this `codec` build as `written`."""
        made = super().__new__(cls, value)
        made.codec, made.written = codec, written
        return made

    def __reduce__(self) -> tuple[type[int], tuple[int]]:
        """Support pickling, as a plain number: packets are pickled as their bytes."""
        return int, (int(self),)


class Varint(Named, Field):  # type: ignore[misc]
    """A number of variable length, in whole bytes.

    Args:
        codec: its encoding.
        names: names of values.
        length_of: name of a field whose length in bytes it defaults to, or names of alternatives.
    """

    __slots__ = ["codec", "length_of", "limits", "names"]

    def __init__(
        self,
        name: str,
        default: int | None,
        codec: VarintCodec,
        names: dict[int, str] | None = None,
        *,
        length_of: str | tuple[str, ...] = (),
    ) -> None:
        Field.__init__(self, name, default)
        self.codec, self.limits = codec, (codec.minimum, codec.maximum)
        self.names = names
        self.length_of = (length_of,) if isinstance(length_of, str) else length_of

    def getfield(self, pkt: Any, s: bytes) -> tuple[bytes, int]:
        """Read one number; raise FieldFault `truncated` if bytes are missing."""
        try:
            value, after = self.codec.read(s, 0, len(s))
        except VarintError as fault:
            raise FieldFault("truncated", f"{self.name}: {fault}") from None
        if after > 1 and not self.codec.is_minimal(s[:after], value):
            value = Overlong(value, self.codec, s[:after])
        return s[after:], value

    def addfield(self, pkt: Any, s: bytes, val: int | None) -> bytes:
        """Append the shortest encoding, or the one that was read."""
        if isinstance(val, Overlong) and val.codec is self.codec:
            return s + bytes(val.written)
        if val is None and pkt is not None:
            fields = (pkt.getfield_and_val(name) for name in self.length_of)
            val = sum(field.i2len(pkt, value) for field, value in fields)
        return s + self.codec.write(val or 0)

    def findings(self, value: int, raw: bytes) -> list[tuple[str, str]]:
        """Report an encoding that is longer than necessary."""
        if self.codec.is_minimal(raw, value):
            return []
        return [("overlong-varint", f"{self.name} = {value} uses {len(raw)} bytes")]

    def i2len(self, pkt: Any, x: Any) -> int:
        """Return the length in bytes of the shortest encoding."""
        return len(self.codec.write(x or 0))


class IfLeft(Field):  # type: ignore[misc]
    """A field that is present if at least `bits` are left. None = absent, also in building.

    The default is that of the inner field, or, with `absent`, that there is none.
    """

    __slots__ = ["bits", "fld"]

    def __init__(self, fld: Any, bits: int, *, absent: bool = False) -> None:
        self.fld = fld
        self.bits = bits
        Field.__init__(self, fld.name, None if absent else fld.default)

    # A list in a field that is not a list field would be a set of packets to Scapy.
    islist = property(lambda self: self.fld.islist)
    ismutable = property(lambda self: self.fld.ismutable)

    def getfield(self, pkt: Any, s: Any) -> tuple[Any, Any]:
        """Read the inner field if enough bits are left."""
        data, bit = split(s)
        return self.fld.getfield(pkt, s) if 8 * len(data) - bit >= self.bits else (s, None)

    def addfield(self, pkt: Any, s: Any, val: Any) -> Any:
        """Append the inner field unless the value is None."""
        return s if val is None else self.fld.addfield(pkt, s, val)

    def i2repr(self, pkt: Any, x: Any) -> str:
        """Return the display of the inner field, or "absent"."""
        return "absent" if x is None else self.fld.i2repr(pkt, x)

    def any2i(self, pkt: Any, x: Any) -> Any:
        """Accept what the inner field accepts, and None."""
        return None if x is None else self.fld.any2i(pkt, x)

    def i2len(self, pkt: Any, x: Any) -> float:
        """Return the length in bytes, 0 if absent."""
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
        """Kind of private content for `anonymise`: a constant of `model.dissection`, or ""."""


def leading(name: str, size: int, data: bytes) -> bytes:
    """Return the first `size` bytes; raise FieldFault `length-beyond-end` if there are fewer."""
    if 0 <= size <= len(data):
        return data[:size]
    raise FieldFault("length-beyond-end", f"{name} wants {size} bytes, {len(data)} are left", data)


class SizedBytes(Hex, StrField):  # type: ignore[misc]
    """Bytes of a stated length.

    Args:
        length: `E` over earlier fields, in bytes.
        private: as of `Tail`.
        shown: name in the tree; None = the field's own.
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
        """Read the stated number of bytes."""
        octets = leading(self.name, self.length(pkt), s)
        return s[len(octets) :], octets


class SizedText(Utf8, SizedBytes):
    """Text of a stated length, without terminator. Its arguments are those of `SizedBytes`."""

    def __init__(self, *args: Any, private: str = TEXT, **kwargs: Any) -> None:
        SizedBytes.__init__(self, *args, private=private, **kwargs)


class NulString(Utf8, StrField):  # type: ignore[misc]
    """Text up to a terminator, which is not part of the value."""

    __slots__ = ["private"]
    mark = b"\0"
    """The terminator."""
    code = "unterminated-string"
    """Code of the finding if it is missing."""

    def __init__(self, name: str, default: bytes = b"", *, private: str = TEXT) -> None:
        StrField.__init__(self, name, default)
        self.private = private

    def getfield(self, pkt: Any, s: bytes) -> tuple[bytes, bytes]:
        """Read up to the terminator; raise `unterminated` if there is none."""
        end = s.find(self.mark)
        if end < 0:
            raise self.unterminated(s)
        return s[end + 1 :], s[:end]

    def unterminated(self, octets: bytes) -> FieldFault:
        """Return the fault of bytes without terminator."""
        return FieldFault(self.code, f"{self.name} has no NUL", octets)

    def addfield(self, pkt: Any, s: bytes, val: Any) -> bytes:
        """Append the bytes and the terminator."""
        return s + bytes(self.i2m(pkt, val)) + self.mark

    def i2len(self, pkt: Any, x: Any) -> int:
        """Return the length in bytes, terminator included."""
        return len(x or b"") + 1

    def randval(self) -> Any:
        """Return random bytes without the terminator."""
        return RandBin(RandNum(0, 20), bytes({*range(256)} - {*self.mark}))


class Embedded(PacketField):  # type: ignore[misc]
    """Another layer in the next bytes.

    Args:
        choose: returns the layer for (fields read so far, bytes); the fields are a packet in Scapy,
            a scope in the walker.
        length: `E` over earlier fields, in bytes; None = all bytes that are left.
        shown: name in the tree; None = the field's own.
        start: layer as which values from JSON are first built, until their bytes name another.
        inline: True: the tree has the inner layer's fields in place of this one.
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
        """Return the bytes of the inner layer; raise FieldFault `length-beyond-end` if too few."""
        return s if self.length is None else leading(self.name, self.length(pkt), s)

    def getfield(self, pkt: Any, s: bytes) -> tuple[bytes, Any]:
        """Dissect the inner layer."""
        octets = self.octets(pkt, s)
        return s[len(octets) :], self.choose(pkt, octets)(octets, _parent=pkt)

    def i2m(self, pkt: Any, i: Any) -> bytes:
        """Build the inner layer."""
        return b"" if i is None else bytes(i)

    def i2len(self, pkt: Any, x: Any) -> int:
        """Return the length in bytes."""
        return len(self.i2m(pkt, x))

    def randval(self) -> Any:
        """Return None: a random layer would not be the one that `choose` expects."""
        return None


class Items(PacketListField):  # type: ignore[misc]
    """A list of layers.

    Args:
        item: the layer of the items, or the base class of all that `choose` may return.
        count: `E` over earlier fields; None = up to the end of the data. A list that the data end
            in is short, which only the walker reports.
        reserve: number of bytes at the end that belong to later fields.
        choose: returns the layer of the next item for (fields read so far, bytes that are left).
        optional: True: an empty list is not in the tree.
        rest: (name, rule over the bytes that are left): an item that is unfinished by the rule is
            not in the list, but behind it in the tree, under that name.
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

    def _max_items(self, pkt: Any) -> int:
        """Return the count, or the limit if there is none or the layer with it is missing."""
        try:
            return min(LIST_LIMIT, LIST_LIMIT if self.count is None else int(self.count(pkt)))
        except NameError:
            return LIST_LIMIT

    def getfield(self, pkt: Any, s: bytes) -> Any:
        """Dissect the items up to the reserved bytes.

        The list ends at an item with a fault or without bytes. Stock Scapy would go on to the
        limit, which takes seconds for a few hostile bytes.
        """
        edge = max(0, len(s) - self.reserve)
        rest, reserved = s[:edge], s[edge:]
        limit = self._max_items(pkt)
        items: list[Any] = []
        while rest and len(items) < limit:
            item = self.layer(pkt, rest)(rest, _parent=pkt, _listed=True)
            items.append(item)
            before, rest = rest, item.surplus
            # Else each item would hold all bytes behind it, hundreds of megabytes for a datagram.
            item.original, item.surplus = before[: len(before) - len(rest)], None
            if len(rest) >= len(before) or item.fault is not None:
                break
        return rest + reserved, items
