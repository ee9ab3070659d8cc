"""One line that says what a message says, for every protocol alike: its type and its fields."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from operator import is_
from typing import Any

from netdissect.model.dissection import FieldNode
from netdissect.model.records import DatagramRecord, MessageRecord
from netdissect.render.safe import safe
from netdissect.render.tree import value_text

__all__ = ["datagram_summary", "message_summary"]

_FIELD_LIMIT = 8
"""Fields named per message."""
_TEXT_LIMIT = 60
"""Characters of one value."""
_SKIPPED = frozenset({"type", "type_id", "padding", "reserved", "chunks", "messages"})


def datagram_summary(record: DatagramRecord, items: list[MessageRecord]) -> str:
    """Return the line of a datagram: its own where the protocol makes one, else those of its
    messages.
    """
    if record.protocol is None:
        return f"{record.length} bytes"
    tree, messages = record.dissection, record.messages
    if (
        tree is not None
        and tree.summary
        and (items is messages or (len(items) == len(messages) and all(map(is_, items, messages))))
    ):
        return safe(tree.summary)
    return " | ".join(message_summary(record, item) for item in items)


def message_summary(record: DatagramRecord, item: MessageRecord) -> str:
    """Return the line of one message."""
    if item.summary:
        return safe(item.summary)
    views = record.dissection.messages if record.dissection is not None else []
    node = views[item.index].node if item.index < len(views) else None
    pairs = _of_node(node) if node is not None else _of_fields(item.fields)
    words = [f"{name}={text}" for name, text in pairs if name not in _SKIPPED]
    more = "…" if len(words) > _FIELD_LIMIT else ""
    return " ".join([safe(item.type), *words[:_FIELD_LIMIT]]) + more


def _of_node(node: FieldNode) -> Iterator[tuple[str, str]]:
    for child in node.children:
        if child.generated:
            continue
        if child.children:
            if child.is_list:
                yield safe(child.name), f"[{len(child.children)}]"
            else:
                yield from _of_node(child)
        elif child.bit_length:
            yield safe(child.name), _short(child.value, child.display)


def _of_fields(fields: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for name, value in fields.items():
        if isinstance(value, (list, tuple)):
            yield safe(name), f"[{len(value)}]"
        elif not isinstance(value, Mapping):
            yield safe(name), _short(value, "")


def _short(value: Any, display: str) -> str:
    if isinstance(value, (bytes, bytearray)):
        return f"{len(value)}B"
    if isinstance(value, int) and not isinstance(value, bool) and display:
        # "TimedOut (3)" and "TimedOut" both stand for 3; the name says more.
        return safe(display.removesuffix(f" ({value})"), _TEXT_LIMIT)
    if isinstance(value, str) and len(value) > _TEXT_LIMIT:
        return value_text(value[:_TEXT_LIMIT] + "…")
    return value_text(value)
