"""What the header of an EOUDP datagram alone does not tell: its content, sizes, component data."""

from __future__ import annotations

from typing import Any

from netdissect.dissect.schema import decode
from netdissect.dissect.walker import Walker, node_fields
from netdissect.layers.eoudp import header_layer
from netdissect.layers.eoudp.components import component_layer
from netdissect.layers.eoudp.contents import Content, EoudpPacketInfo, EoudpRaw, content_layer
from netdissect.layers.eoudp.values import COMPONENT_VALUES
from netdissect.model.dissection import Dissection, FieldNode
from netdissect.model.packets import Direction
from netdissect.wire.eoudp import legal
from netdissect.wire.eoudp_names import (
    RECEIVE_LIMIT,
    command_name,
    oversize,
    size_mismatch,
    wrong_size,
)
from netdissect.wire.values import Values

__all__ = ["finish"]

SCHEMA_VALUES: tuple[Values, ...] = (COMPONENT_VALUES,)
"""What the types of user schemas may be."""

_PAIR = 8


def finish(dissection: Dissection, request: Any, walker: Walker) -> None:
    """Complete the tree of one datagram."""
    root = dissection.root
    payload = dissection.buffers[0].data
    fields = {node.name: node for node in root.children}
    if len(payload) > RECEIVE_LIMIT:
        excess = 8 * (len(payload) - RECEIVE_LIMIT)
        walker.note(*oversize(len(payload)), 8 * RECEIVE_LIMIT, excess)
    header = header_layer(request.dialect)
    if header.fields_desc[-1].name not in fields:
        return
    if "important" not in fields:
        root.conclude("important", None)
        fields["important"] = root.children[-1]
    start = header.length
    content = payload[start:]
    root.conclude("content_length", len(content))
    reader = _Reader(dissection, request, walker, start)
    if fields["size"].value == len(content):
        node = reader.read(fields["command"].value, content)
    else:
        node = reader.mismatch(fields["command"].value, fields["size"], content)
    root.children.append(node)
    root.bit_length = 8 * len(payload)
    walker.used = len(payload)
    name = command_name(header.dialect, fields["command"].value, len(content))
    mark = "!" if fields["important"].value else ""
    line = f"{name} {fields['id'].value}{mark} {_brief(node)}".rstrip()
    dissection.summary = line
    for message in dissection.messages:
        message.length = len(payload)
        message.summary = line


def _brief(node: FieldNode) -> str:
    """Return a content in a few words."""
    values = node_fields(node)
    if "component" in values:
        data = values.get("data")
        return f"{_shown(values['component'])} of {values.get('entity', 0):x} {_pairs(data or {})}"
    if "pressed" in values:
        pressed = "pressed" if values["pressed"] else "released"
        return f"{values.get('key_name') or values['key']} {pressed}"
    if "pairs" in values:
        whole = [pair for pair in values["pairs"] if "sent" in pair]
        return ", ".join(f"received {one['received']} sent {one['sent']}" for one in whole)
    if "strings" in values:
        return ", ".join(map(repr, values["strings"]))
    return _pairs(values)


def _pairs(values: dict[str, Any]) -> str:
    """Return plain values by name."""
    return " ".join(
        f"{key}={_shown(value)}"
        for key, value in values.items()
        if not isinstance(value, dict | list)
    )


def _shown(value: Any) -> Any:
    """Return bytes as hex digits, as the fields show them."""
    return value.hex() if isinstance(value, bytes) else value


class _Reader:
    """Reads the content of one datagram."""

    def __init__(self, dissection: Dissection, request: Any, walker: Walker, start: int) -> None:
        self._dissection = dissection
        self._direction = request.direction
        self._order = getattr(request.hints, "order", None)
        self._schema = request.schema
        self._walker = walker
        self._start = start
        self._dialect = header_layer(request.dialect).dialect

    def read(self, command: int, content: bytes) -> FieldNode:
        """Return the node of a content of the stated size."""
        name = command_name(self._dialect, command, len(content))
        how = content_layer(self._dialect, name, content, self._order)
        self._remarks(name, how, content)
        return self._node(how, content, self._walker)

    def mismatch(self, command: int, size: FieldNode, content: bytes) -> FieldNode:
        """Return the node of a content of another size than stated.

        Its receiver drops it, so that it counts as no message; what is there is shown twice, as
        bytes and, where that can be read, as fields.
        """
        fault = size_mismatch(size.value, len(content))
        self._walker.note(*fault, size.bit_offset, size.bit_length)
        self._dissection.messages.clear()
        base = 8 * self._start
        node = FieldNode("content", None, base, 8 * len(content))
        node.children.append(FieldNode("raw_hex", content, base, 8 * len(content), content.hex()))
        name = command_name(self._dialect, command, len(content))
        how = content_layer(self._dialect, name, content, self._order)
        trial = self._scratch()
        found = self._node(how, content, trial)
        if content and how.legal and how.layer is not EoudpRaw and not trial.annotations:
            for child in found.children:
                child.generated = True
            node.children += found.children
        return node

    def _scratch(self) -> Walker:
        """Return a walker whose findings are kept only on purpose."""
        return Walker(self._walker.catalogue)

    def _remarks(self, name: str, how: Content, content: bytes) -> None:
        """Report what is odd about the content as a whole."""
        offset, length = 8 * self._start, 8 * len(content)
        root = self._dissection.root
        many = how.layer is EoudpPacketInfo and len(content) > _PAIR
        fits = legal(self._dialect, name, content)
        if fits is False or (many and self._direction == Direction.C2S):
            self._walker.note(*wrong_size(name, len(content)), offset, length)
        if how.shown_as is not None:
            text = f"the content is that of a {how.shown_as}"
            self._walker.note("eoudp-game-event-0x0c", text, offset, length)
            root.conclude("shown_as", how.shown_as)
        if how.form is not None:
            root.conclude("string_form", how.form)
        if how.order == ">":
            root.conclude("content_byte_order", "big")
            self._walker.note("eoudp-big-endian-content", "read as big-endian", offset, length)

    def _node(self, how: Content, content: bytes, walker: Walker) -> FieldNode:
        """Walk the content."""
        base = 8 * self._start
        if not content and not how.layer.fields_desc:
            return FieldNode("content", {}, base, 0)
        readable = content
        if not how.legal and how.layer is not EoudpRaw:
            # The whole numbers of a content with an illegal size; the rest is trailing.
            readable = content[: len(content) // _PAIR * _PAIR]
            if how.layer is not EoudpPacketInfo:
                readable = readable[:_PAIR]
        node, _scope, used = walker.walk(how.layer, readable, base=base, name="content")
        walker.trailing(node, content, used)
        self._components(node, how)
        return node

    def _components(self, node: FieldNode, how: Content) -> None:
        """Open the data of the components."""
        for child in list(node.children):
            if child.name == "more":
                for item in child.children:
                    self._components(item, how)
            elif child.name == "data_hex" and child.buffer == node.buffer:
                component = next((c.value for c in node.children if c.name == "component"), "")
                self._open(node, child, component, how)

    def _open(self, node: FieldNode, data: FieldNode, component: str, how: Content) -> None:
        """Add the values of a component's data where they fit its layout.

        The documents do not describe the data of a big-endian peer: it stays bytes.
        """
        layer = component_layer(self._dialect, component)
        if not isinstance(data.value, bytes):
            return
        if self._by_schema(node, data, component) or layer is None or how.order == ">":
            return
        octets = data.value
        trial = self._scratch()
        opened, _scope, used = trial.walk(layer, octets, base=data.bit_offset, name="data")
        misfit = any(item.group == "malformed" for item in trial.annotations)
        if misfit or used != len(octets):
            text = f"{len(octets)} bytes do not fit the layout of {component}"
            self._walker.note("eoudp-component-layout", text, data.bit_offset, data.bit_length)
        elif opened.children:
            self._walker.annotations += trial.annotations
            opened.generated = True
            node.children.append(opened)

    def _by_schema(self, node: FieldNode, data: FieldNode, component: str) -> bool:
        """Read the data by the user's schema, which goes before a known layout."""
        message = None if self._schema is None else self._schema.message(component)
        if message is None:
            return False
        decoded, fault = decode(
            self._schema, COMPONENT_VALUES, message, data, 8 * len(data.value)
        )
        if fault is not None:
            at, left = data.bit_offset + fault.position, data.bit_length - fault.position
            self._walker.note("schema-mismatch", str(fault), at, left)
        node.children.append(decoded)
        if node.name == "content":
            # The contract wants the first component's values at the top as well.
            self._dissection.root.children.append(decoded)
        return True
