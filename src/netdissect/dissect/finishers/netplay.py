"""Completes the tree of a piece of Netplay stream: messages, compressed bodies, values, JSON."""

from __future__ import annotations

import json
from typing import Any

from netdissect.dissect.schema import (
    Decoder,
    MessageSchema,
    Schema,
    SchemaMismatch,
    built_in,
)
from netdissect.dissect.scope import Scope
from netdissect.dissect.walker import Walker, node_value
from netdissect.layers.netplay import NetplayChunk, NetplayFrame, NetplayShortFrame, NetplayText
from netdissect.model.dissection import OCTETS, Buffer, Dissection, FieldNode
from netdissect.wire.cursor import Cursor
from netdissect.wire.inflate import Bounds
from netdissect.wire.netplay import (
    ENCRYPTED,
    LENGTH_OCTETS,
    SHORTEST,
    chunk_spans,
    frame_spans,
    incomplete,
    line_spans,
    misplaced,
    oversize,
    unpack_body,
)
from netdissect.wire.netplay_text import judge
from netdissect.wire.netplay_values import NULLABLE_VALUES, PLAIN_VALUES
from netdissect.wire.values import Values

SCHEMA_VALUES: tuple[Values, ...] = (PLAIN_VALUES, NULLABLE_VALUES)
"""Encodings of values for user schemas."""

INFLATED_TOTAL = 16 << 20
"""Maximum number of bytes that all messages in a piece of stream are inflated to."""
SUMMARY_VALUES = 6
"""Maximum number of values in a summary."""
SUMMARY_OCTETS = 160
"""Maximum number of bytes of a body, or of characters of a value, in a summary."""
_CUT = frozenset({"truncated", "length-beyond-end"})
"""Findings of the walker about a frame that is cut, replaced by `incomplete-frame-at-close`."""
_ERRORS = {
    "compressed-flag-not-zlib": "java.util.zip.DataFormatException: incorrect header check",
    "zlib-checksum-error": "java.util.zip.DataFormatException: incorrect data check",
    "payload-underrun": "java.io.EOFException",
}
"""Finding -> exception in the library, which logs it and drops the message."""


def finish(dissection: Dissection, request: Any, walker: Walker) -> None:
    """Split the piece of stream into messages, and read each."""
    root = dissection.root
    dialect = request.dialect.removeprefix("netplay-")
    reader = _Reader(dissection, request, dialect)
    payload = dissection.buffers[0].data
    if dialect == "text":
        reader.lines(payload, walker)
    elif dialect == "bin3":
        reader.chunks(payload, walker)
    else:
        reader.frames(payload, walker)
    walker.used = len(payload)
    root.bit_length = 8 * len(payload)
    codes = list(dict.fromkeys(note.code for note in walker.annotations))
    if codes:
        root.children.append(FieldNode("flags", codes, 0, 0, generated=True))


class _Reader:
    """Reads the messages of one piece of stream into the tree."""

    def __init__(self, dissection: Dissection, request: Any, dialect: str) -> None:
        self._dissection = dissection
        self._dialect = dialect
        self._own = request.schema is not None
        self._schema: Schema = request.schema if self._own else built_in("netplay")
        self._values = PLAIN_VALUES if dialect == "bin1" else NULLABLE_VALUES
        self._bounds: Bounds = request.bounds
        self._lines: bool = request.lines
        self._budget = max(INFLATED_TOTAL, request.bounds.octets)

    # -- bin1, bin2 --------------------------------------------------------------------------------

    def frames(self, data: bytes, walker: Walker, buffer: int = 0) -> None:
        """Read the frames of bin1 or bin2, or those that were reassembled from bin3's chunks."""
        outer = Scope()
        outer["_direction"] = self._dissection.direction
        holder = FieldNode("messages", None, 0, 8 * len(data), buffer=buffer, is_list=True)
        self._dissection.root.children.append(holder)
        for start, end, length in frame_spans(data):
            layer = NetplayShortFrame if 0 <= length < SHORTEST else NetplayFrame
            before = len(walker.annotations)
            node, scope, _used = walker.walk(
                layer, data[start:end], base=8 * start, outer=outer, name="message"
            )
            holder.children.append(node)
            if end > len(data):
                kept = [note for note in walker.annotations[before:] if note.code not in _CUT]
                walker.annotations[before:] = kept
                fault = incomplete(end - len(data))
                walker.note(*fault, 8 * start, 8 * (len(data) - start))
            for fault in oversize(length) if self._dialect != "bin3" else ():
                walker.note(*fault, 8 * start, 16)
            if layer is NetplayFrame and "body" in scope:
                self._body(node, scope, walker, buffer)

    def _body(self, node: FieldNode, scope: Scope, walker: Walker, buffer: int) -> None:
        """Inflate the body of a frame, and decode its values."""
        body = next(child for child in node.children if child.name == "payload_hex")
        options, kind = scope["options"], scope["type"]
        bounds = Bounds(min(self._bounds.octets, max(1, self._budget)), self._bounds.ratio)
        content = unpack_body(options, body.value, bounds)
        codes = [code for code, _ in content.findings]
        for code, text in content.findings:
            walker.note(code, text, body.bit_offset, body.bit_length)
        octets = self._dissection.buffers[buffer].data
        cursor = Cursor(octets, body.bit_offset, body.bit_offset + body.bit_length)
        if content.inflated:
            self._budget -= len(content.data)
            node.conclude("inflated_len", len(content.data))
            source = (body.bit_offset, body.bit_length)
            # The private parts are marked in the inflated buffer instead.
            body.private = ""
            inner = Buffer("decompressed", content.data, source, buffer, OCTETS)
            buffer = len(self._dissection.buffers)
            self._dissection.buffers.append(inner)
            cursor = Cursor(content.data)
        row = self._row(str(kind))
        message = walker.messages[-1]
        if row is None:
            text = f"type {kind} is not in the schema"
            walker.note("unknown-type", text, node.bit_offset + 24, 16)
        else:
            node.conclude("schema_name", row.name)
            sure = content.usable and not options & ENCRYPTED and not codes
            codes += self._decode(node, row, cursor, walker, buffer, sure=sure)
        if self._lines:
            message.summary = _summary(str(kind), row, node)
        for code in codes:
            if code in _ERRORS:
                node.conclude("library_error", _ERRORS[code])
                break

    def _row(self, key: str) -> MessageSchema | None:
        row = self._schema.message(key)
        return None if row is None or (row.dialects and self._dialect not in row.dialects) else row

    def _decode(
        self,
        node: FieldNode,
        row: MessageSchema,
        cursor: Cursor,
        walker: Walker,
        buffer: int,
        *,
        sure: bool,
    ) -> list[str]:
        """Add the values of a message; return the codes of the findings.

        If the bytes may be something else (`sure` is False), values that do not fit are dropped.
        """
        start, end = cursor.position, cursor.end
        side = Walker(walker.catalogue, buffer=buffer)
        codes: list[str] = []
        try:
            nodes = Decoder(self._schema, self._values, buffer=buffer).fields(row.fields, cursor)
        except SchemaMismatch as fault:
            nodes = fault.nodes
            code = "payload-underrun" if fault.short else "schema-mismatch"
            side.note(code, str(fault), fault.position, end - fault.position)
            codes.append(code)
        else:
            if cursor.left:
                text = f"{cursor.left // 8} bytes after the last value"
                side.note("payload-trailing-bytes", text, cursor.position, cursor.left)
                codes.append("payload-trailing-bytes")
        if codes and not sure:
            return []
        _check_values(nodes, self._dissection.buffers[buffer].data, side, self._dialect)
        walker.annotations += side.annotations
        empty: dict[str, Any] | None = None if nodes else {}
        decoded = FieldNode("decoded", empty, start, cursor.position - start, buffer=buffer)
        decoded.generated = True
        decoded.children = nodes
        node.children.append(decoded)
        return codes

    # -- bin3 --------------------------------------------------------------------------------------

    def chunks(self, data: bytes, walker: Walker) -> None:
        """Read the chunks, reassemble the frames in a second buffer, and read those."""
        holder = FieldNode("chunks", None, 0, 8 * len(data), is_list=True)
        self._dissection.root.children.append(holder)
        frames = bytearray()
        for start, end, position, need in chunk_spans(data):
            node, scope, _used = walker.walk(
                NetplayChunk, data[start:end], base=8 * start, name="chunk"
            )
            node.conclude("offset", start)
            holder.children.append(node)
            frames += scope.get("data", b"")
            for fault in misplaced(scope["chunk_header"], position, need):
                walker.note(*fault, 8 * start, 8)
            if start + 1 == len(data) and not position:
                walker.note(*incomplete(LENGTH_OCTETS), 8 * start, 8)
        whole = bytes(frames)
        self.frames(whole, walker.into(self._dissection, Buffer("reassembled", whole)), buffer=1)

    # -- text --------------------------------------------------------------------------------------

    def lines(self, data: bytes, walker: Walker) -> None:
        """Read the messages of the text dialect."""
        holder = FieldNode("messages", None, 0, 8 * len(data), is_list=True)
        self._dissection.root.children.append(holder)
        for start, end, _complete in line_spans(data):
            node, scope, _used = walker.walk(
                NetplayText, data[start:end], base=8 * start, name="message"
            )
            holder.children.append(node)
            if "body" not in scope:
                continue
            verdict = judge(scope["class_name"], scope["body"])
            if verdict.known:
                known = self._schema.messages
                name = verdict.class_name
                if name not in known and name not in self._schema.objects:
                    text = f"{name} is not in the schema"
                    walker.note("unknown-class", text, 8 * start, 8 * len(scope["class_name"]))
            for code, text, line in verdict.findings:
                place = next(child for child in node.children if child.name == line)
                walker.note(code, text, place.bit_offset, place.bit_length)
            if verdict.valid:
                node.conclude("json", verdict.value)
            if self._lines:
                body = scope["body"][:SUMMARY_OCTETS].decode("utf-8", "replace")
                walker.messages[-1].summary = f"{verdict.class_name} {body}"


def _summary(kind: str, row: MessageSchema | None, node: FieldNode) -> str:
    """Return a line about a message: its name in the schema, its type, its values."""
    if row is None:
        return f"type {kind}"
    decoded = node.child("decoded")
    values = [] if decoded is None else decoded.children[:SUMMARY_VALUES]
    plain = ((child.name, _short(node_value(child))) for child in values)
    shown = (f"{name}={json.dumps(value, ensure_ascii=False)}" for name, value in plain)
    return " ".join([f"{row.name} ({kind})", *(text[:SUMMARY_OCTETS] for text in shown)])


def _short(value: Any) -> Any:
    """Return a value for a summary: of a long list the first items."""
    if isinstance(value, list) and len(value) > SUMMARY_VALUES:
        return [*value[:SUMMARY_VALUES], "..."]
    return value


_CANONICAL = (0, 1)
"""Bytes that senders write for a boolean or a presence flag."""


def _check_values(nodes: list[FieldNode], data: bytes, side: Walker, dialect: str) -> None:
    """Report values that no sender writes, or that other receivers read differently."""
    nullable = dialect != "bin1"
    for node in nodes:
        if node.children:
            _check_values(node.children, data, side, dialect)
        raw = data[node.bit_offset >> 3 : (node.bit_offset + node.bit_length) >> 3]
        if nullable and raw and raw[0] not in _CANONICAL:
            text = f"{node.name}: presence byte {raw[0]:#04x}"
            side.note("non-canonical-presence", text, node.bit_offset, 8)
        if isinstance(node.value, bool) and raw[-1] not in _CANONICAL:
            text = f"{node.name} is {raw[-1]:#04x}"
            side.note("non-canonical-boolean", text, node.bit_offset, node.bit_length)
        elif isinstance(node.value, str) and "\ufffd" in node.value:
            # Skip the presence byte, if there is one, and the two bytes of the length.
            octets = raw[3 if nullable else 2 :]
            # U+FFFD may be in the text itself.
            if octets.decode("utf-8", "replace").encode() != octets:
                text = f"{node.name} holds bytes that are no UTF-8"
                side.note("invalid-utf8", text, node.bit_offset, node.bit_length)
