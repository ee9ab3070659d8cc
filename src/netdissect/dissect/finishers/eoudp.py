"""Completes the tree of an EOUDP datagram: content, sizes, component data."""

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
    PAIR_OCTETS,
    RECEIVE_LIMIT,
    command_name,
    oversize,
    size_mismatch,
    wrong_size,
)
from netdissect.wire.values import Values

SCHEMA_VALUES: tuple[Values, ...] = (COMPONENT_VALUES,)
"""Encodings of values for user schemas."""


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
    if request.lines:
        name = command_name(header.dialect, fields["command"].value, len(content))
        mark = "!" if fields["important"].value else ""
        dissection.summary = f"{name} {fields['id'].value}{mark} {_brief(node)}".rstrip()
    for message in dissection.messages:
        message.length = len(payload)
        message.summary = dissection.summary


def _brief(node: FieldNode) -> str:
    """Return a short description of a content."""
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
    """Return the scalar values as `name=value`."""
    return " ".join(
        f"{key}={_shown(value)}"
        for key, value in values.items()
        if not isinstance(value, dict | list)
    )


def _shown(value: Any) -> Any:
    """Return bytes in hex, as fields are shown."""
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
        """Return the node of a content that has the stated size."""
        name = command_name(self._dialect, command, len(content))
        reading = content_layer(self._dialect, name, content, self._order)
        self._report(name, reading, content)
        return self._node(reading, content, self._walker)

    def mismatch(self, command: int, size: FieldNode, content: bytes) -> FieldNode:
        """Return the node of a content that does not have the stated size.

        It is no message, since receivers drop it. It is shown as bytes and, if it can be read, also
        as fields.
        """
        fault = size_mismatch(size.value, len(content))
        self._walker.note(*fault, size.bit_offset, size.bit_length)
        self._dissection.messages.clear()
        base = 8 * self._start
        node = FieldNode("content", None, base, 8 * len(content))
        node.children.append(FieldNode("raw_hex", content, base, 8 * len(content), content.hex()))
        name = command_name(self._dialect, command, len(content))
        reading = content_layer(self._dialect, name, content, self._order)
        trial = self._trial_walker()
        found = self._node(reading, content, trial)
        if content and reading.legal and reading.layer is not EoudpRaw and not trial.annotations:
            for child in found.children:
                child.generated = True
            node.children += found.children
        return node

    def _trial_walker(self) -> Walker:
        """Return a walker whose findings are not those of the dissection."""
        return Walker(self._walker.catalogue)

    def _report(self, name: str, reading: Content, content: bytes) -> None:
        """Report what is unusual about the content as a whole."""
        offset, length = 8 * self._start, 8 * len(content)
        root = self._dissection.root
        many = reading.layer is EoudpPacketInfo and len(content) > PAIR_OCTETS
        fits = legal(self._dialect, name, content)
        if fits is False or (many and self._direction == Direction.C2S):
            self._walker.note(*wrong_size(name, len(content)), offset, length)
        if reading.shown_as is not None:
            text = f"the content is that of a {reading.shown_as}"
            self._walker.note("eoudp-game-event-0x0c", text, offset, length)
            root.conclude("shown_as", reading.shown_as)
        if reading.form is not None:
            root.conclude("string_form", reading.form)
        if reading.order == ">":
            root.conclude("content_byte_order", "big")
            self._walker.note("eoudp-big-endian-content", "read as big-endian", offset, length)

    def _node(self, reading: Content, content: bytes, walker: Walker) -> FieldNode:
        """Walk the content."""
        base = 8 * self._start
        if not content and not reading.layer.fields_desc:
            return FieldNode("content", {}, base, 0)
        readable = content
        if not reading.legal and reading.layer is not EoudpRaw:
            # Only the complete numbers; the other bytes are trailing.
            readable = content[: len(content) // PAIR_OCTETS * PAIR_OCTETS]
            if reading.layer is not EoudpPacketInfo:
                readable = readable[:PAIR_OCTETS]
        node, _scope, used = walker.walk(reading.layer, readable, base=base, name="content")
        walker.trailing(node, content, used)
        self._decode_components(node, reading)
        return node

    def _decode_components(self, node: FieldNode, reading: Content) -> None:
        """Decode the data of all components in a content."""
        for child in list(node.children):
            if child.name == "more":
                for item in child.children:
                    self._decode_components(item, reading)
            elif child.name == "data_hex" and child.buffer == node.buffer:
                component = next((c.value for c in node.children if c.name == "component"), "")
                self._decode_component(node, child, component, reading)

    def _decode_component(
        self, node: FieldNode, data: FieldNode, component: str, reading: Content
    ) -> None:
        """Add the values of a component's data, if they fit its layout.

        The documents do not describe the data of a big-endian peer, which stay bytes.
        """
        layer = component_layer(self._dialect, component)
        if not isinstance(data.value, bytes):
            return
        if self._decode_by_schema(node, data, component) or layer is None or reading.order == ">":
            return
        octets = data.value
        trial = self._trial_walker()
        opened, _scope, used = trial.walk(layer, octets, base=data.bit_offset, name="data")
        misfit = any(item.group == "malformed" for item in trial.annotations)
        if misfit or used != len(octets):
            text = f"{len(octets)} bytes do not fit the layout of {component}"
            self._walker.note("eoudp-component-layout", text, data.bit_offset, data.bit_length)
        elif opened.children:
            self._walker.annotations += trial.annotations
            opened.generated = True
            node.children.append(opened)

    def _decode_by_schema(self, node: FieldNode, data: FieldNode, component: str) -> bool:
        """Decode the data by the user's schema, if it has the component; return whether it does."""
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
            # `fields` of the JSON output has the first component's values at the top level.
            self._dissection.root.children.append(decoded)
        return True
