"""Completes the tree of a Teeworlds packet: its body, compressed or not."""

from __future__ import annotations

from typing import Any

from netdissect.dissect.finishers.teeworlds_lines import message_line
from netdissect.dissect.scope import Scope
from netdissect.dissect.walker import Walker
from netdissect.layers.teeworlds.packets import TwPacket, body_layer
from netdissect.model.dissection import Buffer, Dissection, FieldNode
from netdissect.wire import huffman
from netdissect.wire.teeworlds_forms import MAGIC_OCTETS, MAX_PACKET, form_of

_BEHIND_END = 1
"""Number of bytes that an encoder may write behind that with the end symbol."""


def finish(dissection: Dissection, request: Any, walker: Walker) -> None:
    """Complete the tree of one datagram."""
    root = dissection.root
    payload = dissection.buffers[0].data
    if len(payload) > MAX_PACKET:
        excess = 8 * (len(payload) - MAX_PACKET)
        text = f"{len(payload)} bytes, packets have {MAX_PACKET} at most"
        walker.note("teeworlds-oversize", text, 8 * MAX_PACKET, excess)
    root.conclude("length", len(payload))
    fields = {node.name: node for node in root.children}
    if "message_fields" in fields:
        root.conclude("type", "connless")
        _whole_id(fields["message_fields"], walker)
    elif "flags" in fields and "num_chunks" in fields and ("token" in fields or _tokenless(fields)):
        _body(dissection, request, walker, fields)
    if request.lines:
        dissection.summary = "; ".join(_lines(dissection))


def _whole_id(body: FieldNode, walker: Walker) -> None:
    """Report a connectionless message whose id is cut short."""
    octets = body.bit_length // 8
    if octets < MAGIC_OCTETS:
        text = f"{octets} of the {MAGIC_OCTETS} bytes of a message id"
        walker.note("truncated", text, body.bit_offset, body.bit_length)


def _tokenless(fields: dict[str, FieldNode]) -> bool:
    """Return whether the header has no token, in this dialect or in this packet."""
    flag = fields.get("token_flag")
    compressed_first = next(iter(fields)) == "compressed_flag"
    return compressed_first and (flag is None or not flag.value)


def _body(
    dissection: Dissection, request: Any, walker: Walker, fields: dict[str, FieldNode]
) -> None:
    """Read what follows the header, from a second buffer if it is compressed."""
    root, payload = dissection.root, dissection.buffers[0].data
    control = bool(fields["control_flag"].value)
    start = walker.used
    data, reader = payload[start:], walker
    root.conclude("type", "control" if control else "chunks")
    walker.used = len(payload)
    root.bit_length = 8 * len(payload)
    if fields["compressed_flag"].value:
        inner = _open(dissection, request, walker, start)
        if inner is None:
            return
        data, reader, start = dissection.buffers[-1].data, inner, 0
    dialect = form_of(request.dialect).dialect.removeprefix("teeworlds-")
    layer = body_layer(dialect, data, control=control)
    outer = Scope()
    outer["_direction"] = request.direction
    outer["num_chunks"] = fields["num_chunks"].value
    reader.payload(root, TwPacket.shows, layer, data, base=8 * start, outer=outer)
    kind = root.child("control")
    if kind is not None and kind.value == "close" and root.child("reason") is None:
        root.conclude("reason", None)
    _contradictions(root, walker)


def _contradictions(root: FieldNode, walker: Walker) -> None:
    """Show the sequence number that receivers read if the two copies of its bits differ."""
    code = "teeworlds-sequence-copies"
    at = [note.bit_offset for note in walker.annotations if note.code == code]
    chunks = root.child("chunks")
    if not at or chunks is None:
        return
    for chunk in chunks.children:
        if chunk.bit_offset <= at[0] < chunk.bit_offset + chunk.bit_length:
            read = next(child.value for child in chunk.children if child.name == "sequence")
            root.conclude("sequence_reference", read)


def _open(dissection: Dissection, request: Any, walker: Walker, start: int) -> Walker | None:
    """Decompress the body into a second buffer; return its walker, or None if that fails."""
    packed = dissection.buffers[0].data[start:]
    node = FieldNode("compressed", packed, 8 * start, 8 * len(packed), packed.hex())
    dissection.root.children.append(node)
    try:
        opened = huffman.decompress(packed, form_of(request.dialect).limit)
    except huffman.HuffmanError as fault:
        walker.note("teeworlds-huffman", str(fault), 8 * start, 8 * len(packed))
        return None
    end = huffman.inspect(packed)
    if end is not None and len(packed) - end > _BEHIND_END:
        text = f"{len(packed) - end} bytes behind the end symbol"
        walker.note("teeworlds-huffman-tail", text, 8 * (start + end), 8 * (len(packed) - end))
    inner = walker.into(
        dissection, Buffer("decompressed", opened, (8 * start, 8 * len(packed)))
    )
    dissection.root.conclude("decompressed_hex", opened.hex())
    dissection.root.conclude("decompressed_length", len(opened))
    return inner


def _lines(dissection: Dissection) -> list[str]:
    """Set the summary of each message; return them, or one line if there is no message."""
    lists = (child.children for child in dissection.root.children if child.name == "chunks")
    chunks = {id(chunk.field("fields")): chunk for listed in lists for chunk in listed}
    for message in dissection.messages:
        message.summary = message_line(message, chunks.get(id(message.node)))
    return [message.summary for message in dissection.messages] or [_bare(dissection)]


def _bare(dissection: Dissection) -> str:
    """Return the line of a packet without messages."""
    fields = {node.name: node.value for node in dissection.root.children}
    flags = fields.get("flags") or {}
    if flags.get("resend_requested"):
        return f"asks for a resend after {fields.get('ack')}"
    return f"no message, ack {fields.get('ack')}" if "ack" in fields else "undecoded"
