"""`scan` of the layout in the published document, which only a decode-as rule selects.

In this layout only datagrams have numbers, messages have none. Source: docs/protocols/knet.md
section 11; kNet doc/src/KristalliNetUDP.dox.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from netdissect.dissect.readers import knet as read
from netdissect.model.claims import Hints
from netdissect.model.events import Ev, Event
from netdissect.protocols.knet.datagrams import READERS, fault, flow_control, type_of
from netdissect.protocols.knet.state import DecoderState, Phase
from netdissect.wire.knet import (
    CONTROL_SIZES,
    DISCONNECT,
    DISCONNECT_ACK,
    FLOW_CONTROL,
    HANDSHAKE,
    MIN_FRAGMENTS,
    PACKET_ACK,
    PING_REPLY,
    PING_REQUEST,
    SPECIFICATION,
    header_fault,
    size_fault,
)
from netdissect.wire.varint import KNET_7_7_16

_PINGS: Final = {PING_REQUEST: Ev.PROBE, PING_REPLY: Ev.REPLY}
_INPUTS: Final = {
    DISCONNECT: "disconnect",
    DISCONNECT_ACK: "disconnect-ack",
    **dict(zip(HANDSHAKE.values(), ("connect-syn", "connect-syn-ack", "connect-ack"), strict=True)),
}
"""Type -> input of the state machine."""
_READER: Final = READERS[SPECIFICATION]
_READ_ACK: Callable[..., Any] = read.read_KnetSpecPacketAck
"""Reader of a PacketAck of the right size, of which it never returns None."""


def scan_document(payload: bytes, direction: int, hints: Hints) -> list[Event]:
    """Return the events of one datagram."""
    size = len(payload)
    head = read.read_KnetSpecHeader(payload, 0, size)
    if head is None:
        return [(Ev.NOTE, *(size_fault(size) or header_fault(size, document=True)))]
    low, _, reliable, high, *_, position = head
    number = high << 16 | low
    unit: Event = (Ev.PLAIN_UNIT, None, "datagram", number, payload)
    if reliable:
        unit = (Ev.UNIT, None, "datagram", number, None, payload)
    events: list[Event] = [unit]
    parts: list[Event] = []
    messages = []
    while position < size:
        message = read.read_KnetSpecMessage(payload, position, size)
        if message is None:
            events.append((Ev.NOTE, fault(payload[position:]), f"malformed at byte {position}"))
            break
        messages.append(message)
        _message(message, events, parts)
        position = message[-1]
    else:
        read.odd_KnetSpecDatagram((messages,), direction, events)
    oversize = size_fault(size)
    if oversize is not None:
        events.append((Ev.NOTE, *oversize))
    if hints.extra is None or hints.extra.phase == Phase.START:
        if not any(event[0] == Ev.STATE for event in events):
            events.append((Ev.STATE, "speaks", None))
        # Not Phase.OPEN, in which the fast path would read the layout of the programs.
        events.append((Ev.HINTS, Hints(hints.dialects, DecoderState(Phase.IDENTIFYING))))
    return events + parts


def _message(message: tuple[Any, ...], events: list[Event], parts: list[Event]) -> None:
    """Add the events of one message."""
    start, fragment, *_, count, transfer, index, content, _ = message
    if fragment and not start:
        events.append((Ev.MESSAGE, "fragment"))
        parts.append((Ev.PART, transfer, index, None, None, content))
        return
    message_id, after = KNET_7_7_16.read(content, 0, len(content))
    type_ = type_of(message_id, _READER)
    if start:
        events.append((Ev.MESSAGE, f"{type_}(first fragment)"))
        read.odd_KnetSpecMessage(message, None, events)
        if count >= MIN_FRAGMENTS:
            parts.append((Ev.PART, transfer, None, count, None, content))
        return
    events.append((Ev.MESSAGE, type_))
    if type_ == FLOW_CONTROL:
        flow_control(content, SPECIFICATION, events)
    elif type_ in _INPUTS:
        if type_ in (DISCONNECT, DISCONNECT_ACK):
            read.odd_KnetDisconnect((content[after:],), None, events)
        events.append((Ev.STATE, _INPUTS[type_], type_))
    elif type_ in _PINGS or type_ == PACKET_ACK:
        _control(type_, content, after, events)


def _control(type_: str, content: bytes, after: int, events: list[Event]) -> None:
    """Add what a ping, its reply or a PacketAck means beyond its type."""
    if len(content) - after != CONTROL_SIZES[type_]:
        read.odd_KnetWrongSize((), None, events)
    elif type_ == PACKET_ACK:
        _, low, bits, high, more, _ = _READ_ACK(content, 0, len(content))
        events.append((Ev.ACK, "datagram", high << 16 | low, more << 2 | bits))
    else:
        events.append((_PINGS[type_], "ping", content[-1]))
