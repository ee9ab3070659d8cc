"""Generates the derived readers: from a layer's `fields_desc`, a straight-line Python function.

`read_<Layer>(buf, off, end)` returns a tuple of one value per field (None if absent) and the next
offset, or None if bytes are missing; the walker then shows what there is. `odd_<Layer>` takes that
tuple and appends a finding for each broken soft rule that is an expression. A rule with a severity
of its own is left to the walker, since an event has the severity of its code.

The functions are in `dissect/readers/<protocol>.py`, so that the hot path does not import Scapy.
`python -m netdissect.dissect.derive` rewrites them; a test checks that they are current.

A field class without a snippet here may have a method `derive(self, writer)`, which writes one.
"""

from __future__ import annotations

import re
import struct
import sys
from collections.abc import Callable, Iterable, Mapping
from importlib.util import find_spec
from pathlib import Path
from string import Formatter
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

from netdissect.dissect.derive_bits import lsb_body, with_words
from netdissect.dissect.engine import layer_module
from netdissect.layers.base import Check
from netdissect.layers.expr import E
from netdissect.layers.fields import Embedded, IfLeft, Items, NulString, SizedBytes, Tail, Varint
from netdissect.layers.lsb import LsbBits, LsbTail, LsbVarULong
from netdissect.wire.varint import VarintCodec

_HEADER = '''"""Derived readers of {protocol}: generated from the layers, do not edit.

`python -m netdissect.dissect.derive` regenerates them. `read_...` returns one value per field and
the next offset, or None if bytes are missing. `odd_...` appends a finding for each soft rule that
these values break; without a reader, its values are those that the rules name, in field order.
"""

# ruff: noqa
from __future__ import annotations

from struct import Struct
from typing import Any, Final
{imports}

'''

_BITS = (BitField, BitEnumField)
_LAST_MOVE = re.compile(r"    p (\+?=) (\w+)")
"""Matches a line of a body, not of a branch, that moves `p`."""


class _Writer:
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
        return _text(rule, self.rename)

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


def _bits_big_endian(writer: _Writer, run: list[Any]) -> None:
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


def _varint(writer: _Writer, field: Any) -> None:
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


def _sized(writer: _Writer, field: Any) -> None:
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


def _tail(writer: _Writer, field: Any) -> None:
    local = writer.name(field)
    if field.name not in writer.skip:
        writer.put(f"{local} = buf[p:end]")
    writer.put("p = end")


def _nul_string(writer: _Writer, field: Any) -> None:
    writer.put(f"k = buf.find({field.mark!r}, p, end)")
    writer.put("if k < 0: return None")
    writer.put(f"{writer.name(field)} = buf[p:k]")
    writer.put("p = k + 1")


def _three(writer: _Writer, field: Any) -> None:
    first, last = (0, 16) if isinstance(field, LEThreeBytesField) else (16, 0)
    writer.need("3")
    # Not `int.from_bytes` of a slice, which would be one more object.
    octets = f"buf[p] << {first} | buf[p + 1] << 8 | buf[p + 2] << {last}".replace(" << 0", "")
    writer.put(f"{writer.name(field)} = {octets}")
    writer.put("p += 3")


def _fixed_octets(writer: _Writer, field: Any) -> None:
    size = int(field.length_from(None))
    local = writer.name(field)
    if field.name not in writer.skip:
        writer.put(f"{local} = buf[p:min(p + {size}, end)]")
    writer.put(f"p = min(p + {size}, end)")  # as in Scapy, the last bytes may be missing


def _items(writer: _Writer, field: Any) -> None:
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


_SNIPPETS: dict[type[Any], Callable[[_Writer, Any], None]] = {
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


def _octet_body(writer: _Writer, fields: list[Any]) -> None:
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


def _one(writer: _Writer, field: Any) -> None:
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


def _optional(writer: _Writer, field: Any) -> None:
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


def _text(
    rule: E, names: dict[str, str], any_item: Callable[[str, str], str] = "{}.{}".format
) -> str:
    """Return Python source of an expression over variables; an absent field (None) is 0."""
    return rule.translate({name: f"({names[name]} or 0)" for name in rule.names}, names, any_item)


def odd_source(
    layer: type[Any], skip: Iterable[str], rows: Mapping[type[Any], Iterable[str]]
) -> str:
    """Return the source, without its name, of `odd_...` of a layer; "" if it would do nothing.

    It applies the soft rules of the layer and of the items in its lists to what the readers return.

    Args:
        layer: the layer class.
        skip: fields whose values its reader does not return.
        rows: all layers with readers -> fields that those do not return.

    """
    return _odd(layer, _returned(layer, skip), rows)


def rule_source(layer: type[Any]) -> str:
    """Return the source of `odd_...` of a layer without a reader, without its name.

    Its values are the fields that the rules name, in field order.
    """
    rules = (check for check in layer.checks if isinstance(check.when, E))
    used = {name for check in rules for name in _fields_of(check)}
    return _odd(layer, [field.name for field in layer.fields_desc if field.name in used], {})


def _returned(layer: type[Any], skip: Iterable[str]) -> list[str]:
    """Return the names of the values that a reader returns."""
    return [value.removeprefix("v_") for value in _written(layer, skip).values]


def _fields_of(check: Check) -> set[str]:
    """Return the fields that a rule and its message name."""
    shown = {name for _, name, _, _ in Formatter().parse(check.message) if name is not None}
    return shown | {*check.when.names} if isinstance(check.when, E) else shown


def _odd(
    layer: type[Any], values: list[str], rows: Mapping[type[Any], Iterable[str]]
) -> str:
    names = {name: f"values[{place}]" for place, name in enumerate(values)}
    names["_direction"] = "direction"
    lists = {
        field.name: field.item for field in layer.fields_desc
        if isinstance(field, Items) and field.name in names
    }  # fmt: skip

    def any_item(items: str, name: str) -> str:
        place = _returned(lists[items], rows[lists[items]]).index(name)
        return f"any(item[{place}] for item in {names[items]})"

    body: list[str] = []
    for check in layer.checks:
        derivable = isinstance(check.when, E) and check.severity is None
        if not derivable or not names.keys() >= _fields_of(check):
            continue
        text = "".join(
            literal + ("" if name is None else f"{{{names[name]}{form and ':' + form}}}")
            for literal, name, form, _ in Formatter().parse(check.message)
        )
        note = f"(Ev.NOTE, {check.code!r}, {'f' if '{' in text else ''}{text!r})"
        body.append(f"    if {_text(check.when, names, any_item)}: found.append({note})")
    for name, item in lists.items():
        if item in rows and odd_source(item, rows[item], rows):
            loop = f"for item in {names[name]}: odd_{item.__name__}(item, direction, found)"
            body.append(f"    {loop}")
    if not body:
        return ""
    head = "(values: tuple[Any, ...], direction: int | None, found: list[Event]) -> None:"
    return "\n".join([head, *body])


def source(layer: type[Any], skip: Iterable[str] = ()) -> tuple[str, dict[str, str], set[str]]:
    """Return the reader of a layer: its source without the name, constants, and import lines.

    Without its name, the source is the same for all layers of one layout.

    Args:
        layer: the layer class.
        skip: fields that the reader skips without returning them, such as payloads and padding.

    Raises:
        TypeError: no reader can be derived for some field or rule.

    """
    writer = _written(layer, skip)
    returned = "".join(f"{value}, " for value in writer.values)
    writer.put(f"return ({returned}{writer.end},)")
    named = [value.removeprefix("v_") for value in writer.values]
    start = "off" if _has_bits(layer) else "p"
    head = [
        f"(buf: bytes, {start}: int, end: int) -> tuple[Any, ...] | None:",
        f'    """Return ({", ".join([*named, "next offset"])})."""',
    ]
    return "\n".join([*head, *writer.lines]), writer.structs, writer.imports


def _written(layer: type[Any], skip: Iterable[str]) -> _Writer:
    """Return a writer with the body of a layer's reader."""
    writer = _Writer(layer, skip)
    write_body = lsb_body if _has_bits(layer) else _octet_body
    write_body(writer, list(layer.fields_desc))
    return writer


def _has_bits(layer: type[Any]) -> bool:
    """Return whether fields of a layer begin at any bit, the lowest one first."""
    flat = [getattr(field, "fld", field) for field in layer.fields_desc]
    return any(isinstance(field, (LsbBits, LsbVarULong, LsbTail)) for field in flat)


def module_source(protocol: str) -> str:
    """Return the source of `dissect/readers/<protocol>.py`, from tables of the layer module.

    `READERS` is a list of (layer, fields to skip) in which items are before their lists. Layers of
    one layout share a reader. For layers in `RULES`, only the soft rules are generated. Layers in
    `WORDS`, those of the most frequent messages, have a second reader, which creates no objects
    (`with_words`).
    """
    module = layer_module(protocol)
    text = _module(protocol, module.READERS, getattr(module, "RULES", ()))
    skips = dict(module.READERS)
    writers = [_written(layer, skips[layer]) for layer in getattr(module, "WORDS", ())]
    return with_words(text, writers)


def _module(
    title: str, rows: list[tuple[type[Any], Iterable[str]]], rules: Iterable[type[Any]] = ()
) -> str:
    functions: dict[str, str] = {}
    shared: list[str] = []
    structs: dict[str, str] = {}
    imports: set[str] = set()
    made: list[tuple[str, str]] = []
    for layer, skip in rows:
        text, needed, needs = source(layer, skip)
        made.append((f"read_{layer.__name__}", text))
        made.append((f"odd_{layer.__name__}", odd_source(layer, skip, dict(rows))))
        structs |= needed
        imports |= needs
    made += [(f"odd_{layer.__name__}", rule_source(layer)) for layer in rules]
    for name, text in made:
        if text and functions.setdefault(text, name) != name:
            shared.append(f"{name}: Final = {functions[text]}")
        if text and name.startswith("odd_"):
            imports.add("from netdissect.model.events import Ev, Event")
    constants = "\n".join(
        f"{local}: Final = {what}"
        if "." in what
        else f'{local}: Final = Struct("{what}").unpack_from'
        for what, local in sorted(structs.items(), key=lambda item: item[1])
    )
    parts = [constants, *(f"def {name}{text}" for text, name in functions.items())]
    if shared:
        parts.append("\n".join(shared))
    lines = "\n".join(["", *sorted(imports)] if imports else [])
    return _HEADER.format(protocol=title, imports=lines) + "\n\n\n".join(parts) + "\n"


def main() -> None:
    """Write the reader modules of all built-in protocols."""
    from netdissect.layers import PROTOCOLS  # noqa: PLC0415

    folder = Path(__file__).parent / "readers"
    for protocol in PROTOCOLS:
        if find_spec(f"netdissect.layers.{protocol}") is None:
            continue
        if hasattr(layer_module(protocol), "READERS"):
            (folder / f"{protocol}.py").write_text(module_source(protocol), encoding="utf-8")


if __name__ == "__main__":
    main()
