"""A frame bit by bit: its fields with their offsets, and its bytes."""

from __future__ import annotations

from collections.abc import Iterator

from netdissect.model.dissection import Dissection, FieldNode
from netdissect.model.records import DatagramRecord
from netdissect.plot.markup import Html, join, tag
from netdissect.render.hexdump import hex_rows
from netdissect.render.tree import annotation_line, value_text, walk
from netdissect.render.units import COPIES, counted, dialect_text, seconds

MAX_FIELDS = 120
"""Fields that are shown."""
MAX_BYTES = 512
"""Bytes that are shown of each buffer."""
_FINDINGS = 8
_BUFFERS = 4
_DEPTH = 8
_VALUE = 240


def shown(record: DatagramRecord, first_ns: int, *, redact: bool) -> Html:
    """Return a frame: its fields on the left, its bytes on the right.

    Args:
        record: the frame.
        first_ns: time zero.
        redact: leave out texts and bytes.

    """
    tree = record.dissection
    dialect = dialect_text((record.dialect or "", record.dialect or ""))
    head: list[Html | str] = [
        f"{record.src} → {record.dst} · {seconds(record.time_ns - first_ns)} s · {dialect}"
    ]
    for item in record.messages:
        facts = item.reliability
        if facts is not None and facts.kind in COPIES:
            sign, _, word = COPIES[facts.kind]
            text = f" · {sign} {facts.space} {facts.seq} {word}, first in #{facts.of_frame}"
            head.append(tag("span", text, class_="again"))
    if tree is None:
        return tag("p", *head)
    table = tag(
        "table",
        tag("thead", tag("tr", *(tag("th", name) for name in ("At", "Size", "Field", "Value")))),
        tag("tbody", *_fields(tree, redact=redact)),
        class_="tree",
    )
    box = tag("div", table, class_="scroll", tabindex="0", role="group", aria_label="Fields")
    found = [tag("p", "".join(text for text, _ in annotation_line(note, tree)))
             for note in tree.annotations[:_FINDINGS] if not redact]  # fmt: skip
    more = len(tree.annotations) - _FINDINGS
    if more > 0 and not redact:
        found.append(tag("p", f"… and {counted(more, 'finding')} more: netdissect show"))
    left = tag("div", tag("p", *head), box, *found)
    if redact:
        return left
    octets = tag("pre", join(*_octets(tree)), class_="hex", tabindex="0",
                 aria_label=f"Bytes of frame {record.frame}")  # fmt: skip
    return tag("div", left, octets, class_="two even")


def _fields(tree: Dissection, *, redact: bool) -> Iterator[Html]:
    for count, (node, depth) in enumerate(walk(tree.root)):
        if count == MAX_FIELDS:
            yield tag("tr", tag("td", "… and more fields: netdissect show", colspan=4))
            return
        value = _redacted(node) if redact else _value(node)
        octet, bit = divmod(node.bit_offset, 8)
        real = not node.generated and node.bit_length
        name = f"[{node.name}]" if node.generated else node.name
        mark = "'" * node.buffer
        yield tag(
            "tr",
            tag("td", f"{octet}.{bit}{mark}" if real else "", class_="n"),
            tag("td", f"{node.bit_length} b" if real else "", class_="n"),
            tag("td", tag("code", name), class_=f"d{min(depth, _DEPTH)}"),
            tag("td", value if len(value) <= _VALUE else value[:_VALUE] + "…"),
        )


def _value(node: FieldNode) -> str:
    return node.display if node.children else value_text(node.value, node.display)


def _redacted(node: FieldNode) -> str:
    """Return a value if it is a number; a text might be private."""
    if node.children or node.value is None:
        return ""
    return value_text(node.value) if isinstance(node.value, (int, float)) else "left out"


def _octets(tree: Dissection) -> Iterator[str]:
    for index, buffer in enumerate(tree.buffers[:_BUFFERS]):
        title = "on the wire" if index == 0 else buffer.name
        yield f"{counted(len(buffer.data), 'byte')} {title}"
        yield Html("\n")
        for line in hex_rows(buffer.data[:MAX_BYTES], width=100):
            yield "".join(text for text, _ in line)
            yield Html("\n")
        if len(buffer.data) > MAX_BYTES:
            yield f"… {counted(len(buffer.data) - MAX_BYTES, 'byte')} more"
            yield Html("\n")
    if len(tree.buffers) > _BUFFERS:
        yield f"… {counted(len(tree.buffers) - _BUFFERS, 'buffer')} more: netdissect show"
