"""Derived readers of layers of bits: what `derive` writes for their fields."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from scapy.fields import ConditionalField

from netdissect.layers.fields import IfLeft
from netdissect.layers.lsb import LsbBits, LsbPad, LsbTail, LsbVarULong

_AFTER = "from typing import Any, Final\n"
_WORDS = """
from netdissect.model.native import ABSENT, i64"""
"""Imports of readers of words."""
_WORD_OCTETS = 7
"""Number of whole bytes in a machine integer, whose top bit is the sign."""
VARULONG_WINDOW_BITS = 80
"""Bits of the longest varULong: ten groups of a byte each."""
GROUP_BITS = 8
"""Bits of a group of a varULong. Most numbers have only one."""


def lsb_body(writer: Any, fields: list[Any]) -> None:
    """Write the body for a layer of bits. Its variables: `n` = the bits, `m` = their number."""
    sizes = [_lsb_size(field) for field in fields]
    flat = [getattr(field, "fld", field) for field in fields]
    long = [place for place, field in enumerate(flat) if isinstance(field, LsbVarULong)]
    window = f"low_octets(buf, off, {_octets(sum(sizes))})"
    writer.put("m = (end - off) << 3")
    # The window may reach beyond `end`: the code of each field checks `m` first.
    writer.imports.add("from netdissect.wire.varint import low_octets")
    if len(long) == 1 and not any(sizes[long[0] + 1 :]):
        # If a varULong is the last field, load only its first group, and the others if needed.
        writer.window = window
        sizes[long[0]] = GROUP_BITS
    writer.put(f"n = low_octets(buf, off, {_octets(sum(sizes))})")
    fixed = 0
    for field in fields:
        if not isinstance(field, LsbBits):
            break
        fixed += field.size
    if fixed:
        writer.put(f"if m < {fixed}: return None")
    position: int | str = 0
    for field in fields:
        checked = isinstance(position, int) and position < fixed
        position = _lsb_one(writer, field, position, checked=checked)
    writer.end = "end" if position == "end" else f"off + (({position} + 7) >> 3)"


def _octets(bits: int) -> int:
    return (bits + 7) // 8


def _lsb_size(field: Any) -> int:
    if isinstance(field, (IfLeft, ConditionalField)):
        return _lsb_size(field.fld)
    if isinstance(field, LsbBits):
        return int(field.size)
    return VARULONG_WINDOW_BITS if isinstance(field, LsbVarULong) else 0


def _lsb_one(writer: Any, field: Any, position: int | str, *, checked: bool = False) -> int | str:
    """Write one field at bit `position`: a number, or "b", the variable. Return the next position.

    `checked`: a check for its bits has been written already.
    """
    if isinstance(field, (LsbPad, LsbTail)):
        return _lsb_end(writer, field, position)
    if isinstance(field, LsbBits):
        if not checked:
            writer.put(f"if m < {_plus(position, field.size)}: return None")
        _lsb_value(writer, field, position)
        return _plus_value(writer, position, field.size)
    if isinstance(field, LsbVarULong):
        _lsb_varulong(writer, field, position, checked=checked)
        return "b"
    if position != "b":
        writer.put(f"b = {position}")
    test = f"m >= b + {field.bits}" if isinstance(field, IfLeft) else writer.condition(field.cond)
    writer.put(f"if {test}:")
    writer.indent += 1
    after = _lsb_one(writer, field.fld, "b", checked=isinstance(field, IfLeft))
    if after != "b":
        raise TypeError(f"{writer.layer.__name__}.{field.name}: optional field has no length")
    writer.indent -= 1
    writer.put("else:")
    writer.put(f"    v_{field.name} = None")
    return "b"


def _plus(position: int | str, size: int) -> str:
    return str(position + size) if isinstance(position, int) else f"{position} + {size}"


def _plus_value(writer: Any, position: int | str, size: int) -> int | str:
    if isinstance(position, int):
        return position + size
    writer.put(f"b += {size}")
    return "b"


def _lsb_value(writer: Any, field: Any, position: int | str) -> None:
    local = writer.name(field)
    shift = "n" if position == 0 else f"n >> {position}"
    writer.put(f"{local} = {shift} & {(1 << field.size) - 1:#x}")
    if field.signed:
        half = 1 << (field.size - 1)
        writer.put(f"if {local} >= {half:#x}: {local} -= {half << 1:#x}")


def _lsb_varulong(writer: Any, field: Any, position: int | str, *, checked: bool) -> None:
    writer.imports.add("from netdissect.wire.varint import read_varulong_bits")
    local = writer.name(field)
    if position != "b":
        writer.put(f"b = {position}")
    if not checked:
        writer.put("if m < b + 8: return None")
    writer.put(f"{local} = n >> b & 0xff")
    # A single group, such as message ids below 128, is read without a call.
    writer.put(f"if {local} < 0x80: b += 8")
    writer.put("else:")
    writer.put(f"    {local}, b, k = read_varulong_bits({writer.window}, b, m)")
    writer.put("    if not k: return None")
    writer.put(f"    {local} &= {(1 << field.keep) - 1:#x}")


def _lsb_end(writer: Any, field: Any, position: int | str) -> int | str:
    local = writer.name(field)
    if isinstance(field, LsbTail):
        if field.name not in writer.skip:
            writer.imports.add("from netdissect.wire.bits import slice_bits")
            writer.put(f"{local} = slice_bits(buf[off:end], {position})")
        return "end"
    if field.name not in writer.skip:
        writer.put(f"k = -({position}) & 7")
        writer.put(f"{local} = n >> {position} & ((1 << k) - 1) if k else None")
    return position


def with_words(module: str, writers: Sequence[Any]) -> str:
    """Return the source of a module with a reader of words added for each writer."""
    if not writers:
        return module
    module = module.replace("import low_octets\n", "import low_octets, low_word\n")
    module = module.replace(_AFTER, f"{_AFTER}{_WORDS}", 1)
    return module + "".join(f"\n\n{_word_source(writer)}\n" for writer in writers)


def _word_source(writer: Any) -> str:
    """Return the source of a reader of a layer of bits that returns machine integers only.

    An absent field is ABSENT. The next offset is -1 if bytes are missing.

    Raises:
        TypeError: some field has no fixed size, or the fields together do not fit a word.

    """
    text, values = "\n".join(writer.lines), writer.values
    count = re.search(r"low_octets\(buf, off, (\d+)\)", text)
    if count is None or int(count[1]) > _WORD_OCTETS or "varulong" in text:
        raise TypeError(f"{writer.layer.__name__}: no fields of fixed size that fit into a word")
    text = text.replace("return None", f"return {'0, ' * len(values)}-1")
    text = text.replace("= None", "= ABSENT").replace("low_octets", "low_word")
    for name in "mnb":
        # Only the first assignment declares the variable.
        text = text.replace(f"    {name} = ", f"    {name}: i64 = ", 1)
    places = ", ".join(["i64"] * (len(values) + 1))
    named = ", ".join([*(value.removeprefix("v_") for value in values), "next offset"])
    return "\n".join(
        [
            f"def word_{writer.layer.__name__}(buf: bytes, off: i64, end: i64) -> tuple[{places}]:",
            f'    """Return ({named}) as machine integers."""',
            text,
            f"    return {', '.join([*values, writer.end])}",
        ]
    )
