"""Completes the tree of a kNet payload: its kind, summaries, findings about size and position."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

from netdissect.dissect.schema import Schema, decode, parse_schema
from netdissect.dissect.walker import Walker
from netdissect.layers.knet import in_stream
from netdissect.layers.knet.datagrams import KnetConnect
from netdissect.layers.knet.values import VALUES
from netdissect.model.annotations import Severity
from netdissect.model.dissection import Dissection, FieldNode, MessageView
from netdissect.wire.knet import (
    LARGEST_SENT,
    LEGACY,
    PACKET_ACK,
    SERVER_LIMIT,
    SPECIFICATION,
    TUNDRA,
    UNDECIDED,
    acknowledged,
    header_fault,
    size_fault,
)
from netdissect.wire.values import Values

SCHEMA_VALUES: tuple[Values, ...] = (VALUES,)
"""Encodings of values for user schemas."""

_CONNECT = str(KnetConnect._name)  # noqa: SLF001 - Scapy's own name of a layer
_CUT = frozenset({"truncated", "length-beyond-end"})
"""Findings about data that end too early."""
_ACKS_SHOWN = 4
"""Maximum number of acknowledged datagrams that a summary lists."""
_DROPS = {
    "knet-header": True,
    "knet-no-base": False,
    "knet-zero-content": True,
    "knet-fragment-count": True,
    "knet-tcp-length": True,
    "truncated": True,
    "length-beyond-end": True,
}
"""Finding about a malformed datagram -> whether the reference receiver drops the connection. For
`knet-control-size` it depends on the message.
"""
_MALFORMED = frozenset({*_DROPS, "knet-control-size"})
"""Findings that make a datagram malformed: no sender builds such a one, no receiver can read it."""
_TUNDRA = {
    "100": {"name": "Login", "direction": "c2s", "fields": [["data", "string16"]]},
    "101": {
        "name": "LoginReply",
        "direction": "s2c",
        "fields": [["success", "u8"], ["user_id", "vle8_16_32"], ["data", "string16"]],
    },
}


def finish(dissection: Dissection, request: Any, walker: Walker) -> None:
    """Complete the tree of one payload."""
    root = dissection.root
    if in_stream(request):
        _stream(dissection, request, walker)
    elif root.name == _CONNECT:
        _connect(root, walker)
    else:
        _datagram(dissection, walker, request.dialect)
    for view in dissection.messages:
        if view.node is not None:
            schema = request.schema or _built_in(request.dialect)
            name = None if schema is None else _decode(view.node, schema, walker)
            if request.lines:
                view.summary = _summary(view, name)
    if request.lines and not in_stream(request) and root.name != _CONNECT:
        dissection.summary = _datagram_summary(dissection)


def _front(node: FieldNode, name: str, value: Any) -> None:
    """Add a derived value as the first child."""
    node.children.insert(0, FieldNode(name, value, node.bit_offset, 0, generated=True))


def _connect(root: FieldNode, walker: Walker) -> None:
    """Complete a connect datagram: its payload is shown as text if it is text."""
    data = root.child("payload")
    null = root.child("null")
    _front(root, "kind", "connect")
    if data is None or null is None or null.value:
        return
    try:
        text = bytes(data.value).decode("utf-8")
    except UnicodeDecodeError:
        return
    root.conclude("payload_text", text)
    if len(data.value) > SERVER_LIMIT:
        _misfit(len(data.value), walker)


def _datagram(dissection: Dissection, walker: Walker, dialect: str) -> None:
    """Complete a message datagram, whole or broken."""
    document = dialect == SPECIFICATION
    root, payload = dissection.root, dissection.buffers[0].data
    messages = root.child("messages")
    for node in messages.children if messages is not None else ():
        _whole(node, payload)
    _recode(dissection, payload, document=document)
    _misfit(len(payload), walker)
    _kind(root, walker, "datagram" if payload else "empty", dialect)


def _misfit(size: int, walker: Walker) -> None:
    fault = size_fault(size)
    if fault is not None:
        walker.note(*fault, 8 * min(size, LARGEST_SENT), 8 * max(0, size - LARGEST_SENT))


def _whole(node: FieldNode, payload: bytes) -> None:
    """Show the payload of a control message as bytes, too."""
    number = node.child("message_id")
    if number is not None and node.child("payload") is None:
        start = (number.bit_offset + number.bit_length) >> 3
        octets = payload[start : (node.bit_offset + node.bit_length) >> 3]
        node.children.insert(
            node.children.index(number) + 1,
            FieldNode(
                "payload", octets, 8 * start, 0, octets.hex(), buffer=node.buffer, generated=True
            ),
        )


def _recode(dissection: Dissection, payload: bytes, *, document: bool) -> None:
    """Replace the finding about a cut header: receivers react differently to different cuts."""
    if dissection.root.child("messages") is not None:
        return
    code, text = header_fault(len(payload), document=document)
    for index, note in enumerate(dissection.annotations):
        if note.code in _CUT:
            dissection.annotations[index] = replace(note, code=code, message=text)


def _kind(root: FieldNode, walker: Walker, whole: str, dialect: str | None = None) -> None:
    """Add the kind of the payload and, if it is malformed, whether receivers drop the connection.

    No program speaks the published document; receivers of 2010 only drop the datagram, so that an
    undecided dialect leaves it open.
    """
    codes = {note.code for note in walker.annotations} & _MALFORMED
    if not codes:
        _front(root, "kind", whole)
        return
    acks = "knet-control-size" in codes and any(
        item.value == PACKET_ACK and node.child("acked_packet_id") is None
        for holder in root.children
        if holder.is_list
        for node in holder.children
        for item in node.children
        if item.name == "message_name"
    )
    if dialect not in (SPECIFICATION, UNDECIDED):
        drops = dialect != LEGACY and (acks or any(_DROPS.get(code) for code in codes))
        _front(root, "receiver_drops_connection", drops)
    _front(root, "kind", "malformed")


def _stream(dissection: Dissection, request: Any, walker: Walker) -> None:
    """Complete a piece of a stream, or a message without its framing."""
    root, payload = dissection.root, dissection.buffers[0].data
    messages = root.child("messages")
    if request.unframed:
        _whole(root, payload)
        root.conclude("content_length", len(payload))
        _kind(root, walker, "tcp_message")
        return
    cut = root.child("incomplete")
    listed = [] if messages is None else messages.children
    for node in listed if cut is None else [*listed, cut]:
        node.conclude("offset", node.bit_offset >> 3)
        _whole(node, payload)
    if cut is not None:
        _incomplete(root, cut, walker)
    _kind(root, walker, "tcp_stream")


def _incomplete(root: FieldNode, cut: FieldNode, walker: Walker) -> None:
    """Complete the message in which the piece of stream ends: how much of it is there."""
    # This is no fault: the rest may follow.
    walker.annotations[:] = [
        note
        for note in walker.annotations
        if note.code not in _CUT or note.bit_offset < cut.bit_offset
    ]
    length = cut.child("content_length")
    why = "incomplete length"
    if length is not None:
        have = cut.bit_offset + cut.bit_length - length.bit_offset - length.bit_length
        why = f"incomplete message need {length.value} have {have // 8}"
    root.conclude("incomplete_at", cut.bit_offset >> 3)
    root.conclude("incomplete_why", why)
    walker.note("knet-incomplete", why, cut.bit_offset, cut.bit_length)


def _value(node: FieldNode, name: str) -> Any:
    child = node.child(name)
    return None if child is None else child.value


def _summary(view: MessageView, name: str | None = None) -> str:
    """Return a line about a message: type, name in a schema, numbers, size."""
    node = view.node
    if node is None:
        return view.type
    facts = [view.type]
    value = {child.name: child.value for child in node.children}.get
    application = value("application_name") or name
    if application is not None:
        facts[0] = f"{application} ({view.type})"
    payload = value("payload")
    if (acked := value("acked_packet_id")) is not None:
        named = acknowledged(acked, value("sequence_bits") or 0)
        more = f" and {len(named) - _ACKS_SHOWN} more" if len(named) > _ACKS_SHOWN else ""
        shown = ", ".join(map(str, named[:_ACKS_SHOWN]))
        facts.append(f"of datagram{'s' * (len(named) > 1)} {shown}{more}")
    elif value("ping_id") is not None:
        facts.append(str(value("ping_id")))
    elif isinstance(payload, bytes) and payload:
        facts.append(f"{len(payload)} B")
    if value("transfer_id") is not None:
        part, count = value("fragment_number") or 0, value("fragment_count")
        of = "" if count is None else f" of {count}"
        facts.append(f"transfer {value('transfer_id')} fragment {part}{of}")
    number = value("reliable_number")
    if number is not None:
        facts.append(f"reliable {number}")
    if value("in_order"):
        facts.append("in-order requested")
    return " ".join(facts)


def _datagram_summary(dissection: Dissection) -> str:
    number = _value(dissection.root, "packet_id")
    if number is None:
        return "empty datagram" if not dissection.buffers[0].data else "malformed datagram"
    facts = [view.summary or _summary(view) for view in dissection.messages]
    broken = any(note.severity is Severity.ERROR for note in dissection.annotations)
    malformed = " [malformed]" if broken else ""
    return f"{'; '.join(facts) or 'no messages'} [datagram {number}]{malformed}"


@cache
def _built_in(dialect: str) -> Schema | None:
    """Return the messages that a dialect itself defines: Tundra's login.

    *Source:* docs/protocols/knet.md section 10.2.
    """
    if dialect != TUNDRA:
        return None
    return parse_schema({"protocol": "knet", "messages": _TUNDRA})


def _decode(node: FieldNode, schema: Schema, walker: Walker) -> str | None:
    """Decode an application message by a schema; return its name there, or None."""
    payload = node.child("payload")
    number = _value(node, "message_id")
    # A fragment is only a part of the message.
    if payload is None or number is None or _value(node, "fragment_start"):
        return None
    message = schema.message(number, _value(node, "application_name"))
    if message is None:
        return None
    bits = 8 * len(payload.value)
    decoded, fault = decode(schema, VALUES, message, payload, bits)
    if fault is not None:
        at = min(fault.position, bits)
        walker.note("schema-mismatch", str(fault), payload.bit_offset + at, bits - at)
    decoded.display = message.name
    node.children.append(decoded)
    return message.name
