"""What needs the whole datagram: the message inside a TCP frame, user payloads by schema, size limits."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from netdissect.dissect.schema import Decoder, SchemaMismatch
from netdissect.layers.riptide.names import SIZE_LIMITS
from netdissect.layers.riptide.values import BIT_VALUES, BYTE_VALUES
from netdissect.model.dissection import Buffer, Dissection, FieldNode
from netdissect.wire.cursor import Cursor

__all__ = ["finish"]

_BYTE_DIALECTS = ("riptide-2.0", "riptide-2.1dev")
_SHORT_ARRAYS = ("short", "ushort")


def finish(dissection: Dissection, request: Any, walker: Any) -> None:
    """Complete the tree of one payload."""
    if request.transport == "tcp" and not request.unframed:
        _frame(dissection, request, walker)
        return
    size = len(dissection.buffers[0].data)
    _message(dissection, dissection.root, request, walker)
    limit = SIZE_LIMITS.get(request.dialect, SIZE_LIMITS["riptide-2.2"])
    if size == 0:
        walker.note("riptide-empty-datagram", "no octets: no message", 0)
    elif size > limit:
        walker.note(
            "riptide-oversize",
            f"{size} octets, the limit is {limit}",
            8 * limit,
            8 * (size - limit),
        )


def _frame(dissection: Dissection, request: Any, walker: Any) -> None:
    """Read the message inside the frame, and the frames that follow it."""
    from netdissect.layers.riptide import message_layer, root  # noqa: PLC0415 - the package imports us

    payload = dissection.buffers[0].data
    frame = dissection.root
    more: list[FieldNode] = []
    while True:
        data = _child(frame, "data")
        if data is not None and isinstance(data.value, bytes) and data.value:
            inner = replace(request, unframed=True)
            node, _scope, used = walker.walk(
                message_layer(data.value, request.dialect),
                data.value,
                base=data.bit_offset,
                name="message",
            )
            walker.trailing(node, data.value, used)
            frame.children[frame.children.index(data)] = node
            _message(dissection, node, inner, walker)
        trailing = _child(frame, "trailing")
        if trailing is None:
            break
        frame.children.remove(trailing)
        walker.annotations[:] = [note for note in walker.annotations if note.code != "trailing-bytes"
                                 or note.bit_offset != trailing.bit_offset]  # fmt: skip
        rest = payload[trailing.bit_offset >> 3 :]
        frame, _scope, used = walker.walk(
            root(rest, request), rest, base=trailing.bit_offset, name="frame"
        )
        walker.trailing(frame, rest, used)
        more.append(frame)
    if more:
        holder = FieldNode("more", None, more[0].bit_offset, 0, is_list=True)
        holder.children = more
        holder.bit_length = 8 * len(payload) - holder.bit_offset
        dissection.root.bit_length = more[0].bit_offset
        whole = FieldNode(dissection.root.name, None, 0, 8 * len(payload))
        whole.children = [*dissection.root.children, holder]
        dissection.root = whole


def _child(node: FieldNode, name: str) -> FieldNode | None:
    return next((child for child in node.children if child.name == name), None)


def _message(dissection: Dissection, node: FieldNode, request: Any, walker: Any) -> None:
    """Add where the application's data starts, its octets re-aligned, and its values by schema."""
    data = _child(node, "data")
    if data is None:
        return
    kind = _child(node, "type")
    name = None if kind is None else kind.value
    user = name in ("Reliable", "Unreliable")
    label = "payload" if user or name == "Notify" else "data"
    _generate(node, f"{label}_start_bit", data.bit_offset - node.bit_offset)
    if not user:
        _generate(node, "remaining_bits_incl_padding", data.bit_length)
        _generate(node, "data_hex", bytes(data.value).hex())
    if data.bit_offset % 8 and data.value:
        dissection.buffers.append(Buffer("re-aligned", bytes(data.value)))
    identifier = _child(node, "message_id")
    if request.schema is not None:
        keys = (name,) if identifier is None else (identifier.value, name)
        _decode(node, data, request, walker, keys=keys, label=label)


def _generate(node: FieldNode, name: str, value: Any) -> None:
    node.children.append(FieldNode(name, value, node.bit_offset, 0, generated=True))


def _decode(
    node: FieldNode,
    data: FieldNode,
    request: Any,
    walker: Any,
    *,
    keys: tuple[Any, ...],
    label: str,
) -> None:
    """Read the data by the user's schema: `decoded` by name, `payload`/`data_values` in order."""
    schema = request.schema.message(*keys)
    if schema is None:
        return
    values = BYTE_VALUES if request.dialect in _BYTE_DIALECTS else BIT_VALUES
    # Offsets of values are those of the datagram: the cursor runs over the re-aligned octets.
    shift = data.bit_offset
    cursor = Cursor(bytes(data.value), 0, data.bit_length)
    try:
        nodes = Decoder(request.schema, values).fields(schema.fields, cursor)
    except SchemaMismatch as fault:
        nodes = fault.nodes
        field = schema.fields[min(len(nodes), len(schema.fields) - 1)].type
        missing = field.base.rstrip("s") in _SHORT_ARRAYS and request.dialect == "riptide-2.1"
        code = "riptide-elements-missing" if missing else "schema-mismatch"
        text = f"elements missing (2.1.x): {fault}" if missing else str(fault)
        walker.note(code, text, shift + fault.position, data.bit_length - fault.position)
    _shift(nodes, shift)
    decoded = FieldNode("decoded", None, shift, cursor.position, generated=True)
    decoded.children = nodes
    ordered = [
        {"type": field.type.base, "value": _plain(value)}
        for field, value in zip(schema.fields, nodes, strict=False)
    ]
    name = "payload" if label == "payload" else "data_values"
    node.children += [decoded, FieldNode(name, ordered, shift, 0, generated=True)]


def _plain(node: FieldNode) -> Any:
    from netdissect.dissect.walker import node_value  # noqa: PLC0415

    return node_value(node)


def _shift(nodes: list[FieldNode], by: int) -> None:
    for node in nodes:
        node.bit_offset += by
        _shift(node.children, by)
