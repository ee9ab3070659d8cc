"""Completes the tree of a Riptide payload: messages in TCP frames, user messages, sizes."""

from __future__ import annotations

from typing import Any

from netdissect.dissect.schema import SchemaMismatch, decode
from netdissect.dissect.walker import Walker, node_value
from netdissect.layers.riptide import root
from netdissect.layers.riptide.values import BIT_VALUES, BYTE_VALUES
from netdissect.model.dissection import Buffer, Dissection, FieldNode
from netdissect.wire.riptide import size_fault, size_limit
from netdissect.wire.values import Values

SCHEMA_VALUES: tuple[Values, ...] = (BYTE_VALUES, BIT_VALUES)
"""Encodings of values for user schemas."""

_BYTE_DIALECTS = ("riptide-2.0", "riptide-2.1dev")
_SHORT_ARRAYS = ("short", "ushort")


def finish(dissection: Dissection, request: Any, walker: Walker) -> None:
    """Complete the tree of one payload."""
    if request.transport == "tcp" and not request.unframed:
        _frames(dissection, request, walker)
        return
    _message(dissection, dissection.root, request, walker)
    size = len(dissection.buffers[0].data)
    limit = size_limit(request.dialect)
    fault = size_fault(size, limit)
    if fault is not None:
        walker.note(*fault, 8 * min(size, limit), 8 * max(0, size - limit))


def _frames(dissection: Dissection, request: Any, walker: Walker) -> None:
    """Complete the first frame, and read the further ones into `more`."""
    payload = dissection.buffers[0].data
    _frame(dissection, dissection.root, request, walker)
    more = FieldNode("more", None, 8 * walker.used, 0, is_list=True)
    while walker.used < len(payload):
        rest = payload[walker.used :]
        start = 8 * walker.used
        frame, _scope, used = walker.walk(root(rest, request), rest, base=start, name="frame")
        _frame(dissection, frame, request, walker)
        more.children.append(frame)
        walker.used += used
    if more.children:
        more.bit_length = 8 * walker.used - more.bit_offset
        dissection.root.children.append(more)
        dissection.root.bit_length = 8 * walker.used


def _frame(dissection: Dissection, frame: FieldNode, request: Any, walker: Walker) -> None:
    """Complete the message in a frame."""
    node = frame.child("message")
    if node is not None:
        _message(dissection, node, request, walker)


def _message(dissection: Dissection, node: FieldNode, request: Any, walker: Walker) -> None:
    """Add where the application's data start, their re-aligned bytes, and their values."""
    data = node.child("data")
    if data is None:
        return
    kind = node.child("type")
    name = None if kind is None else kind.value
    user = name in ("Reliable", "Unreliable")
    label = "payload" if user or name == "Notify" else "data"
    node.conclude(f"{label}_start_bit", data.bit_offset - node.bit_offset)
    if not user:
        node.conclude("remaining_bits_incl_padding", data.bit_length)
        node.conclude("data_hex", bytes(data.value).hex())
    # Bytes of the data that begin within a byte of the payload need a buffer of their own.
    if data.bit_offset % 8 and data.value:
        dissection.buffers.append(Buffer("re-aligned", bytes(data.value)))
    identifier = node.child("message_id")
    if request.schema is not None:
        keys = (name,) if identifier is None else (identifier.value, name)
        _decode(node, data, request, walker, keys=keys, label=label)


def _decode(
    node: FieldNode,
    data: FieldNode,
    request: Any,
    walker: Walker,
    *,
    keys: tuple[Any, ...],
    label: str,
) -> None:
    """Decode the data by the user's schema: `decoded` by name, and a list in field order."""
    message = request.schema.message(*keys)
    if message is None:
        return
    values = BYTE_VALUES if request.dialect in _BYTE_DIALECTS else BIT_VALUES
    # Decoded from the re-aligned bytes, with offsets in the datagram.
    decoded, fault = decode(request.schema, values, message, data, data.bit_length)
    nodes = decoded.children
    if fault is not None:
        last = message.fields[min(len(nodes), len(message.fields)) - 1]
        _mismatch(fault, last, request, walker, data)
    ordered = [
        {"type": field.type.text.partition("(")[0], "value": node_value(value)}
        # Not strict: a payload that ends early has fewer values than fields.
        for field, value in zip(message.fields, nodes, strict=False)
    ]
    name = "payload" if label == "payload" else "data_values"
    node.children += [decoded, FieldNode(name, ordered, data.bit_offset, 0, generated=True)]


def _mismatch(
    fault: SchemaMismatch, field: Any, request: Any, walker: Walker, data: FieldNode
) -> None:
    """Report a mismatch with the schema. Releases 2.1.x leave out elements (defect D3)."""
    missing = field.type.base.rstrip("s") in _SHORT_ARRAYS and request.dialect == "riptide-2.1"
    code = "riptide-elements-missing" if missing else "schema-mismatch"
    text = f"elements missing (2.1.x): {fault}" if missing else str(fault)
    walker.note(code, text, data.bit_offset + fault.position, data.bit_length - fault.position)
