"""Writes, from a layer's `fields_desc`, the function with which its Scapy packets are read.

Asking one field after the other, as Scapy does, takes most of the time of reading small layers.
The function takes consecutive numbers of a fixed size from the bytes at once, and evaluates
conditions in place. It asks fields of all other kinds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import groupby
from typing import Any, TypeAlias

from scapy.fields import BitField, ConditionalField, Field

from netdissect.layers.expr import E
from netdissect.layers.fields import READ_FAULTS, Varint

Reader: TypeAlias = Callable[[Any, bytes, dict[str, Any], dict[str, Any]], tuple[Any, Any]]
"""(packet, bytes, its fields, copies of values that may be changed in place) -> (rest as in a Scapy
dissection state, exception that ended the layer or None).
"""


class _Writer:
    """Writes the body. In it, `s` is what is left to read."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.names: dict[str, Any] = {"READ_FAULTS": READ_FAULTS}
        """Global variables of the function."""
        self.known: set[str] = set()
        """Fields that are in `fields` when the next one is read."""
        self.run: list[Any] = []
        """Pending numbers of a fixed size."""
        self.indent = 2

    def put(self, line: str) -> None:
        self.lines.append("    " * self.indent + line)

    def constant(self, value: Any) -> str:
        """Return the name of a global variable with this value."""
        name = f"c{len(self.names)}"
        self.names[name] = value
        return name

    def write(self, fields: Iterable[Any]) -> None:
        """Write the reading of consecutive fields."""
        for field in fields:
            if _bits(field):
                self.run.append(field)
            else:
                self.flush()
                self.other(field)
        self.flush()

    def flush(self) -> None:
        """Write the reading of the pending numbers: at once if their bytes are there."""
        run, self.run = self.run, []
        groups = [[*group] for _, group in groupby(run, _is_bit_field)]
        sizes = [sum(map(_bits, group)) // 8 for group in groups]
        if not run or any(sum(map(_bits, group)) % 8 for group in groups):
            self.one_by_one(run)
            return
        self.put(f"if type(s) is bytes and len(s) >= {sum(sizes)}:")
        self.indent += 1
        at = 0
        for group, size in zip(groups, sizes, strict=True):
            (self.bit_fields if _is_bit_field(group[0]) else self.others_at)(group, at, size)
            at += size
        self.put(f"s = s[{at}:]")
        self.indent -= 1
        self.put("else:")
        self.indent += 1
        self.one_by_one(run)
        self.indent -= 1

    def bit_fields(self, fields: list[Any], at: int, size: int) -> None:
        """Write the reading of bit fields that fill `size` bytes."""
        self.put(f"n = int.from_bytes(s[{at}:{at + size}], 'big')")
        left = 8 * size
        for field in fields:
            left -= field.size
            self.put(f"fields[{field.name!r}] = n >> {left} & {(1 << field.size) - 1}")

    def others_at(self, fields: list[Any], at: int, _size: int) -> None:
        """Write the reading of numbers of whole bytes."""
        for field in fields:
            unpack = self.constant(field.struct.unpack_from)
            self.put(f"fields[{field.name!r}], = {unpack}(s, {at})")
            at += field.sz

    def one_by_one(self, run: list[Any]) -> None:
        """Write the reading of numbers by their own methods."""
        for field in run:
            self.put(f"s, fields[{field.name!r}] = {self.constant(field)}.getfield(packet, s)")
            self.known.add(field.name)

    def other(self, field: Any) -> None:
        """Write the reading of a field that is no number of a fixed size, or not always present."""
        inner = field
        optional = isinstance(field, ConditionalField)
        if optional:
            inner = field.fld
            self.put(f"if {self.condition(field.cond)}:")
            self.indent += 1
        if optional and (_bits(inner) or 1) % 8 == 0:
            self.write([inner])
            self.known.discard(inner.name)
        else:
            self.asked(inner, optional=optional)
        if optional:
            self.indent -= 1

    def asked(self, field: Any, *, optional: bool) -> None:
        """Write the reading of a field by its own method."""
        name, constant = field.name, self.constant(field)
        if type(field).getfield is Varint.getfield:
            # One byte is by far the most frequent.
            limit = field.codec.single_limit()
            self.put(f"if type(s) is bytes and s and s[0] < {limit}:")
            self.put("    value, s = s[0], s[1:]")
            self.put("else:")
            self.put(f"    s, value = {constant}.getfield(packet, s)")
        else:
            self.put(f"s, value = {constant}.getfield(packet, s)")
        # As in Scapy, an absent conditional field is not in `fields`.
        self.put("if value is not None: " * optional + f"fields[{name!r}] = value")
        if field.holds_packets:
            copy = "tuple(value)" if field.islist else "value"
            self.put(f"if value is not None: kept[{name!r}] = {copy}")
        elif field.islist or field.ismutable:
            self.put(f"if value is not None: kept[{name!r}] = {constant}.do_copy(value)")
        if not optional:
            self.known.add(name)

    def condition(self, rule: Any) -> str:
        """Return the source of a condition."""
        if isinstance(rule, E) and self.known.issuperset(rule.names):
            values = {name: f"fields[{name!r}]" for name in rule.names}
            return rule.translate({name: f"({values[name]} or 0)" for name in values}, values)
        return f"{self.constant(rule)}(packet)"


def _is_bit_field(field: Any) -> bool:
    """Return whether a field is a number of bits, the highest one first."""
    return type(field).getfield is BitField.getfield


def _bits(field: Any) -> int:
    """Return the size in bits of a number that can be read along with others; 0 if it cannot."""
    kind = type(field)
    if getattr(kind, "m2i", None) is not Field.m2i:
        return 0
    if _is_bit_field(field):
        return 0 if field.rev else int(field.size)
    return 8 * int(field.sz) if kind.getfield is Field.getfield else 0


def make_reader(layer: type[Any]) -> Reader:
    """Return the function that reads the fields of a layer, up to the first that fails."""
    writer = _Writer()
    writer.write(layer.fields_desc)
    source = "\n".join([
        "def read(packet, s, fields, kept):",
        "    try:",
        *writer.lines,
        "        return s, None",
        "    except READ_FAULTS as fault:",
        "        return s, fault",
    ])  # fmt: skip
    # Safe: nothing in the source but the names of fields, as literals, and numbers.
    exec(source, writer.names)  # noqa: S102
    reader: Reader = writer.names["read"]
    return reader
