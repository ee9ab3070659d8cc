"""Writes the body of a derived reader, field by field.

A field class without a snippet here may have a method `derive(self, writer)`, which writes one.
"""

from __future__ import annotations

import re
import struct
import sys
from collections.abc import Callable, Iterable
from typing import Any

from scapy.fields import (
    BitEnumField,
    BitField,
    ConditionalField,
    Field,
    LEThreeBytesField,
    MayEnd,
    StrFixedLenField,
    ThreeBytesField,
)

from netdissect.dissect.derive_bits import lsb_body
from netdissect.layers.expr import E
from netdissect.layers.fields import Embedded, IfLeft, Items, NulString, SizedBytes, Tail, Varint
from netdissect.layers.lsb import LsbBits, LsbTail, LsbVarULong
from netdissect.wire.varint import VarintCodec

_BITS = (BitField, BitEnumField)
_LAST_MOVE = re.compile(r"    p (\+?=) (\w+)")
"""Matches a line of a body, not of a branch, that moves `p`."""


class Writer:
    """Writes the body of one reader. Its variables: `p` = byte offset, `b` = bit position, and in
    layers of bits `off` = offset of the first byte.
    """

    def __init__(self, layer: type[Any], skip: Iterable[str]) -> None:
        self.layer = layer
        self.skip = frozenset(skip)
        self.lines: list[str] = []
        self.values: list[str] = []
        """Variables to return."""
        self.rename: dict[str, str] = {}
        """Field -> variable."""
        self.imports: set[str] = set()
        self.structs: dict[str, str] = {}
        """`struct` format, or `module.codec.read` -> constant in the generated module."""
        self.indent = 1
        self.fixed: list[tuple[str, str, Any]] = []
        """Pending run of fixed-size fields: (variable, `struct` format, field)."""
        self.end = "p"
        """Expression for the offset behind the layer."""
        self.window = "n"
        """Expression for all bits of a layer of bits."""
        self.certain = False
        """True if a check for the bytes of the next run has been written already."""

    def put(self, line: str) -> None:
        """Append one line at the current indentation."""
        self.lines.append("    " * self.indent + line)

    def name(self, field: Any) -> str:
        """Return the variable of a field, and record it as a value to return."""
        local = f"v_{field.name}"
        self.rename[field.name] = local
        if field.name not in self.skip and local not in self.values:
            self.values.append(local)
        return local

    def forget(self, field: Any) -> None:
        """Undo `name`, for the item of a list."""
        self.values.remove(f"v_{field.name}")
        del self.rename[field.name]

    def condition(self, rule: Any) -> str:
        """Return Python source of a condition, length or count."""
        if not isinstance(rule, E):
            raise TypeError(f"{self.layer.__name__}: rule {rule!r} is no E expression")
        for name in rule.names:
            if name not in self.rename:
                raise TypeError(f"{self.layer.__name__}: {rule!r} names an unknown field")
        return python_source(rule, self.rename)

    def usual(self, field: Any) -> None:
        """Write the snippet of the field's base class, for a `derive` that adds to it."""
        _snippet(field)(self, field)

    def need(self, octets: str) -> None:
        """Write a check that `octets` bytes are left."""
        self.put(f"if p + {octets} > end: return None")

    # -- runs of fixed-size fields become one unpack -------------------------------------------

    def flush(self) -> None:
        """Write the pending run of fixed-size fields, as one `unpack`."""
        if not self.fixed:
            return
        order = self.fixed[0][1][0]
        fmt = order + "".join(item[1][1:] for item in self.fixed)
        size = struct.calcsize(fmt)
        if not self.certain:
            self.need(str(size))
        targets = ", ".join(local for local, _, _ in self.fixed)
        if fmt[1:] == "B":
            self.put(f"{targets} = buf[p]")
        else:
            unpacker = f"_{'LE' if order == '<' else 'BE'}_{fmt[1:].replace('?', 'bool')}"
            self.structs[fmt] = unpacker
            comma = "," if len(self.fixed) == 1 else ""
            self.put(f"{targets}{comma} = {unpacker}(buf, p)")
        self.put(f"p += {size}")
        self.fixed = []

    def add_fixed(self, field: Any) -> None:
        """Add a field with a `struct` format to the pending run."""
        fmt = field.fmt if field.fmt[0] in "<>!" else "!" + field.fmt
        fmt = fmt.replace(">", "!")
        if self.fixed and self.fixed[0][1][0] != fmt[0] and struct.calcsize(fmt) > 1:
            # Single bytes have no byte order: they join a run of either.
            if all(struct.calcsize(item[1]) == 1 for item in self.fixed):
                self.fixed = [(local, fmt[0] + f[1:], x) for local, f, x in self.fixed]
            else:
                self.flush()
        elif self.fixed:
            fmt = self.fixed[0][1][0] + fmt[1:]
        self.fixed.append((self.name(field), fmt, field))


def _bits_big_endian(writer: Writer, run: list[Any]) -> None:
    """Write the reading of big-endian bit fields that together fill whole bytes."""
    total = sum(field.size for field in run)
    if total % 8:
        raise TypeError(f"{writer.layer.__name__}: bit fields fill no whole bytes")
    octets = total // 8
    writer.need(str(octets))
    if octets == 1:
        writer.put("n = buf[p]")
    else:
        writer.put(f"n = int.from_bytes(buf[p:p + {octets}], 'big')")
    left = total
    for field in run:
        left -= field.size
        shift = f"n >> {left}" if left else "n"
        mask = f" & {(1 << field.size) - 1:#x}" if left + field.size < total else ""
        writer.put(f"{writer.name(field)} = {shift}{mask}")
    writer.put(f"p += {octets}")


def _varint(writer: Writer, field: Any) -> None:
    module, codec = _place(field.codec)
    package, _, name = module.rpartition(".")
    writer.imports.add(f"from {package} import {name}" if package else f"import {name}")
    writer.structs.setdefault(f"{name}.{codec}.read", f"_read_{codec}")
    local = writer.name(field)
    limit = field.codec.single_limit()
    if limit:
        # One byte is by far the most frequent: read it without a call.
        writer.put("if p >= end: return None")
        writer.put(f"{local} = buf[p]")
        writer.put(f"if {local} < {limit:#x}: p += 1")
        writer.put("else:")
        writer.indent += 1
    writer.put("try:")
    writer.put(f"    {local}, p = _read_{codec}(buf, p, end)")
    writer.put("except ValueError:")
    writer.put("    return None")
    if limit:
        writer.indent -= 1


def _place(codec: VarintCodec) -> tuple[str, str]:
    """Return the module and the name of a codec's constant."""
    module = codec.read.__module__
    for name, value in vars(sys.modules[module]).items():
        if value is codec:
            return module, name
    raise TypeError(f"{codec.name} is no constant of {module}, where it is read")


def _sized(writer: Writer, field: Any) -> None:
    if field.length is None:
        _tail(writer, field)
        return
    writer.put(f"k = {writer.condition(field.length)}")
    # Negative: a length may be one less than the number on the wire.
    writer.put("if k < 0 or p + k > end: return None")
    local = writer.name(field)
    if field.name not in writer.skip:
        writer.put(f"{local} = buf[p:p + k]")
    writer.put("p += k")


def _tail(writer: Writer, field: Any) -> None:
    local = writer.name(field)
    if field.name not in writer.skip:
        writer.put(f"{local} = buf[p:end]")
    writer.put("p = end")


def _nul_string(writer: Writer, field: Any) -> None:
    writer.put(f"k = buf.find({field.mark!r}, p, end)")
    writer.put("if k < 0: return None")
    writer.put(f"{writer.name(field)} = buf[p:k]")
    writer.put("p = k + 1")


def _three(writer: Writer, field: Any) -> None:
    first, last = (0, 16) if isinstance(field, LEThreeBytesField) else (16, 0)
    writer.need("3")
    # Not `int.from_bytes` of a slice, which would be one more object.
    octets = f"buf[p] << {first} | buf[p + 1] << 8 | buf[p + 2] << {last}".replace(" << 0", "")
    writer.put(f"{writer.name(field)} = {octets}")
    writer.put("p += 3")


def _fixed_octets(writer: Writer, field: Any) -> None:
    size = int(field.length_from(None))
    local = writer.name(field)
    if field.name not in writer.skip:
        writer.put(f"{local} = buf[p:min(p + {size}, end)]")
    writer.put(f"p = min(p + {size}, end)")  # as in Scapy, the last bytes may be missing


def _items(writer: Writer, field: Any) -> None:
    item = f"read_{field.item.__name__}"
    local = writer.name(field)
    if field.choose is not None:
        raise TypeError(f"{writer.layer.__name__}.{field.name}: items of several layers")
    if field.reserve:
        raise TypeError(f"{writer.layer.__name__}.{field.name}: bytes are reserved behind it")
    writer.put(f"{local} = []")
    if field.count is None:
        writer.put("while p < end:")
    else:
        writer.put(f"for _ in range({writer.condition(field.count)}):")
    writer.put(f"    item = {item}(buf, p, end)")
    writer.put("    if item is None: return None")
    writer.put(f"    {local}.append(item)")
    writer.put("    p = item[-1]")


_SNIPPETS: dict[type[Any], Callable[[Writer, Any], None]] = {
    Varint: _varint,
    Embedded: _sized,
    SizedBytes: _sized,
    Tail: _tail,
    NulString: _nul_string,
    Items: _items,
    ThreeBytesField: _three,
    LEThreeBytesField: _three,
    StrFixedLenField: _fixed_octets,
}
"""Field class -> what writes the reading of such a field at `p`."""


def _octet_body(writer: Writer, fields: list[Any]) -> None:
    """Write the body for a layer of whole bytes."""
    bits: list[Any] = []
    for outer in fields:
        field = outer.fld if isinstance(outer, MayEnd) else outer
        if isinstance(field, _BITS):
            writer.flush()
            bits.append(field)
            if sum(item.size for item in bits) % 8 == 0:
                _bits_big_endian(writer, bits)
                bits = []
            continue
        if isinstance(field, (ConditionalField, IfLeft)):
            writer.flush()
            _optional(writer, field)
            continue
        _one(writer, field)
    writer.flush()
    while writer.lines and (last := _LAST_MOVE.fullmatch(writer.lines[-1])):
        # The last move of `p` is part of the result; one before that to `end` has no effect.
        if writer.end == "p":
            writer.end = last[2] if last[1] == "=" else f"p + {last[2]}"
        elif writer.end != "end":
            break
        writer.lines.pop()


def _snippet(field: Any) -> Any:
    """Return the snippet of a field's class, or of the first base class with one; None if none."""
    return _SNIPPETS.get(type(field)) or next(
        (code for kind, code in _SNIPPETS.items() if isinstance(field, kind)), None
    )


def _one(writer: Writer, field: Any) -> None:
    """Write a field that is always present."""
    snippet = _snippet(field)
    own = getattr(field, "derive", None)
    if own is not None:
        writer.flush()
        own(writer)
    elif snippet is not None:
        writer.flush()
        snippet(writer, field)
    elif type(field).getfield is Field.getfield and field.fmt:
        writer.add_fixed(field)
    else:
        raise TypeError(
            f"{writer.layer.__name__}.{field.name}: no reader can be derived for"
            f" {type(field).__name__}; give the class a derive(self, writer), or read it by hand"
        )


def _optional(writer: Writer, field: Any) -> None:
    """Write a field that may be absent, which is None then."""
    inner = field.fld
    local = f"v_{inner.name}"
    if isinstance(field, IfLeft):
        test = f"p + {(field.bits + 7) // 8} <= end"
    else:
        test = writer.condition(field.cond)
    writer.put(f"if {test}:")
    writer.indent += 1
    if isinstance(inner, _BITS):
        _bits_big_endian(writer, [inner])
    else:
        writer.certain = isinstance(field, IfLeft)
        _one(writer, inner)
        writer.flush()
        writer.certain = False
    writer.indent -= 1
    writer.put("else:")
    writer.put(f"    {local} = None")


def python_source(
    rule: E, names: dict[str, str], any_item: Callable[[str, str], str] = "{}.{}".format
) -> str:
    """Return Python source of an expression over variables; an absent field (None) is 0."""
    return rule.translate({name: f"({names[name]} or 0)" for name in rule.names}, names, any_item)


def source(layer: type[Any], skip: Iterable[str] = ()) -> tuple[str, dict[str, str], set[str]]:
    """Return the reader of a layer: its source without the name, constants, and import lines.

    Without its name, the source is the same for all layers of one layout.

    Args:
        layer: the layer class.
        skip: fields that the reader skips without returning them, such as payloads and padding.

    Raises:
        TypeError: no reader can be derived for some field or rule.

    """
    writer = written(layer, skip)
    returned = "".join(f"{value}, " for value in writer.values)
    writer.put(f"return ({returned}{writer.end},)")
    named = [value.removeprefix("v_") for value in writer.values]
    start = "off" if _has_bits(layer) else "p"
    head = [
        f"(buf: bytes, {start}: int, end: int) -> tuple[Any, ...] | None:",
        f'    """Return ({", ".join([*named, "next offset"])})."""',
    ]
    return "\n".join([*head, *writer.lines]), writer.structs, writer.imports


def written(layer: type[Any], skip: Iterable[str]) -> Writer:
    """Return a writer with the body of a layer's reader."""
    writer = Writer(layer, skip)
    write_body = lsb_body if _has_bits(layer) else _octet_body
    write_body(writer, list(layer.fields_desc))
    return writer


def _has_bits(layer: type[Any]) -> bool:
    """Return whether fields of a layer begin at any bit, the lowest one first."""
    flat = [getattr(field, "fld", field) for field in layer.fields_desc]
    return any(isinstance(field, (LsbBits, LsbVarULong, LsbTail)) for field in flat)
