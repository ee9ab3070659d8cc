"""Replaces the passwords in a record before it is shown: values, and the bytes they came from."""

from __future__ import annotations

from collections.abc import Mapping

from netdissect.model.dissection import MASK, Dissection, FieldNode
from netdissect.model.records import DatagramRecord
from netdissect.protocols import registry

_STAR = b"*"


def mask_passwords(record: DatagramRecord) -> DatagramRecord:
    """Replace every password in a record; return the same record."""
    if record.protocol is None:
        return record
    secrets = registry.get(record.protocol).secrets
    tree = record.dissection if any(item.type in secrets for item in record.messages) else None
    if tree is None:
        return record
    hit = False
    for view, message in zip(tree.messages, record.messages, strict=True):
        for name in secrets.get(view.type, ()):
            node = _child(view.node, name)
            if node is None or not node.value:
                continue
            hit = True
            _blank(tree, node)
            view.fields[name] = message.fields[name] = MASK
    if hit:
        from netdissect.dissect.walker import node_fields  # noqa: PLC0415 - imports scapy

        tree.fields = node_fields(tree.root)
        record.payload = tree.buffers[0].data
    return record


def mask_lines(tree: Dissection, secrets: Mapping[str, tuple[str, ...]]) -> None:
    """Replace the passwords in the summary lines of a tree, which are never shown with them."""
    if not secrets:
        return
    for view in tree.messages:
        for name in secrets.get(view.type, ()):
            node = _child(view.node, name)
            if view.node is None or node is None or not node.value:
                continue
            shown, value, display = view.node.line(view.type), node.value, node.display
            node.value, node.display = MASK, ""
            masked = view.node.line(view.type)
            node.value, node.display = value, display
            view.summary = view.summary.replace(shown, masked)
            tree.summary = tree.summary.replace(shown, masked)


def _child(node: FieldNode | None, name: str) -> FieldNode | None:
    return node.child(name) if node else None


def _blank(tree: Dissection, node: FieldNode) -> None:
    """Replace the value of a node, its bytes, and the bytes from which these were obtained."""
    before = tree.buffers[node.buffer].data.hex()
    node.value, node.display = MASK, ""
    _stars(tree, node.buffer, (node.bit_offset, node.bit_length))
    index, source = node.buffer, tree.buffers[node.buffer].source
    made_of = source
    while made_of is not None:
        index = tree.buffers[index].of
        _stars(tree, index, made_of)
        made_of = tree.buffers[index].source
    for leaf in tree.root.children:
        if source == (leaf.bit_offset, leaf.bit_length) and not leaf.buffer:
            leaf.value, leaf.display = MASK, ""
        # The same bytes shown as hexadecimal digits elsewhere in the tree.
        elif leaf.generated and leaf.value == before:
            leaf.value = tree.buffers[node.buffer].data.hex()


def _stars(tree: Dissection, index: int, span: tuple[int, int]) -> None:
    buffer = tree.buffers[index]
    first, last = span[0] // 8, (span[0] + span[1] + 7) // 8
    buffer.data = buffer.data[:first] + _STAR * (last - first) + buffer.data[last:]
