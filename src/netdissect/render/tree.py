"""A dissection as an indented tree of fields with their offsets."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from netdissect.model.annotations import Annotation, Severity
from netdissect.model.dissection import Dissection, FieldNode
from netdissect.render.console import Line
from netdissect.render.hexdump import hex_rows
from netdissect.render.safe import safe
from netdissect.render.units import counted

SEVERITY_LETTERS = {severity.label: severity.name[0] for severity in Severity}
"""Severity -> letter, shown in addition to the colour."""

_DEPTH_LIMIT = 64  # the same as the walker's
_HEX_LIMIT = 32  # bytes of one value; the hex dump has the rest
_NESTED = 4  # levels of nested lists and dicts in one value
_TEXT_LIMIT = 400  # characters of one value


def value_text(value: Any, display: str = "") -> str:
    """Return a field's value for people; long bytes are cut, with their number."""
    if isinstance(value, (bytes, bytearray)):
        text = _octets_text(bytes(value))
        display = "" if display == value.hex() else display
    elif isinstance(value, str):
        text = f'"{safe(value, _TEXT_LIMIT)}"'
    elif isinstance(value, (dict, list, tuple)):
        text = _several(value)
    elif isinstance(value, bool) or value is None:
        text = {True: "true", False: "false", None: "none"}[value]
        display = "" if display == str(value) else display
    elif isinstance(value, float):
        text = f"{value:.9g}" if math.isfinite(value) else str(value)
    else:
        text = safe(str(value), _TEXT_LIMIT)
    meaning = display.removesuffix(f" ({text})")
    return f"{text} ({safe(meaning, _TEXT_LIMIT)})" if meaning and meaning != text else text


def _octets_text(data: bytes) -> str:
    if not data:
        return "empty"
    shown = data[:_HEX_LIMIT].hex()
    return shown if len(data) <= _HEX_LIMIT else f"{shown}… ({len(data)} bytes)"


def _several(value: dict[str, Any] | list[Any] | tuple[Any, ...], depth: int = 0) -> str:
    """Return the members of a structured value: `control=false resend=true`."""
    if isinstance(value, dict):
        named = ((safe(str(name), _TEXT_LIMIT), part) for name, part in value.items())
        text = " ".join(f"{name}={_member(part, depth)}" for name, part in named)
    else:
        text = ", ".join(_member(part, depth) for part in value)
    return safe(text, _TEXT_LIMIT) or "empty"


def _member(value: Any, depth: int) -> str:
    if isinstance(value, (dict, list, tuple)):
        return f"({_several(value, depth + 1)})" if depth < _NESTED else "..."
    return value_text(value)


def tree_lines(
    dissection: Dissection, *, indent: int = 0, chosen: FieldNode | None = None
) -> Iterator[Line]:
    """Yield the tree, one field per line.

    Args:
        dissection: what to show.
        indent: columns before the tree.
        chosen: node to highlight.

    """
    for node, depth in walk(dissection.root, 0):
        place = _place(node) + "  "
        line: Line = [(" " * indent, ""), (place, "offset"), ("  " * depth, "")]
        yield line + _field(dissection, node, chosen is node)
    for note in dissection.annotations:
        yield [(" " * indent, ""), *annotation_line(note, dissection)]


def walk(node: FieldNode, depth: int = 0) -> Iterator[tuple[FieldNode, int]]:
    """Yield a node and its descendants with their depths, in the order of the lines."""
    yield node, depth
    if depth < _DEPTH_LIMIT:
        for child in node.children:
            yield from walk(child, depth + 1)


def _field(dissection: Dissection, node: FieldNode, chosen: bool) -> Line:  # noqa: FBT001 - private
    """Return name and value of one field."""
    style = "mark" if chosen else "generated" if node.generated else "name"
    line: Line = [(f"[{node.name}" if node.generated else node.name, style)]
    if node.children:
        count = counted(len(node.children), "item") if node.is_list else ""
        label = "  ".join(part for part in (safe(node.display, _TEXT_LIMIT), count) if part)
        if label:
            line.append((f"  {label}", "dim"))
        if node.buffer:
            line.append((f"  in {dissection.buffers[node.buffer].name} bytes", "dim"))
    else:
        line.append((f" = {value_text(node.value, node.display)}", "value"))
    if node.generated:
        line.append(("]", style))
    return line


def _place(node: FieldNode) -> str:
    if node.generated or (not node.bit_length and not node.children):
        return " " * 14
    octet, bit = divmod(node.bit_offset, 8)
    width, rest = divmod(node.bit_length, 8)
    # From 64 bits on, a field that is not aligned is a run of bytes.
    size = f"{node.bit_length}b" if rest or (bit and node.bit_length < 64) else f"{width}B"  # noqa: PLR2004
    # One quote for each level of derived buffers.
    mark = "'" * node.buffer
    return f"{octet:>6}.{bit}{mark:<1}{size:>6}"


def annotation_line(note: Annotation, dissection: Dissection | None = None) -> Line:
    """Return a finding as one line: letter, code, sentence, place."""
    label = note.severity.label
    octet, bit = divmod(note.bit_offset, 8)
    where = f"byte {octet}" + (f" bit {bit}" if bit else "")
    if note.buffer and dissection:
        where += f" of the {dissection.buffers[note.buffer].name} bytes"
    return [
        (f"{SEVERITY_LETTERS[label]} {note.code}", label),
        (f": {safe(note.message, _TEXT_LIMIT)} ", ""),
        (f"({where})", "dim"),
    ]


def find_node(dissection: Dissection, path: str) -> FieldNode | None:
    """Return the first node, depth first, whose dotted path ends in `path`."""
    wanted = path.split(".")

    def search(node: FieldNode, trail: tuple[str, ...]) -> FieldNode | None:
        here = (*trail, node.name)
        if list(here[-len(wanted) :]) == wanted:
            return node
        return next(filter(None, (search(child, here) for child in node.children)), None)

    return search(dissection.root, ())


def hex_views(
    dissection: Dissection, *, width: int, chosen: FieldNode | None = None
) -> Iterator[Line]:
    """Yield the hex dump of every buffer: the bytes on the wire first, then derived ones."""
    for index, buffer in enumerate(dissection.buffers):
        title = "on the wire" if index == 0 else buffer.name
        yield [(f"{len(buffer.data)} bytes {title}", "title")]
        mark = None
        if chosen and chosen.buffer == index and chosen.bit_length:
            mark = (chosen.bit_offset // 8, (chosen.bit_offset + chosen.bit_length + 7) // 8)
        yield from hex_rows(buffer.data, width=width, mark=mark)
