"""`scan` of the published document's own layout, for flows that are said to speak it.

Reliability is per datagram here: messages have no numbers. Source: docs/protocols/knet.md section
11; kNet doc/src/KristalliNetUDP.dox.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from netdissect.dissect.readers import knet as read
from netdissect.model.claims import Hints
from netdissect.model.events import Ev, Event
from netdissect.protocols.knet.datagrams import READERS, fault, flow_control, kind_of
from netdissect.protocols.knet.state import DecoderState, Phase
from netdissect.wire.knet import (
    ACK_OCTETS,
    DISCONNECT,
    DISCONNECT_ACK,
    FLOW_CONTROL,
    HANDSHAKE,
    PACKET_ACK,
    PING_REPLY,
    PING_REQUEST,
    SPECIFICATION,
    header_fault,
    size_fault,
)
from netdissect.wire.varint import KNET_7_7_16

__all__ = ["scan_document"]

_PINGS: Final = {PING_REQUEST: Ev.PROBE, PING_REPLY: Ev.REPLY}
_INPUTS: Final = {
    DISCONNECT: "disconnect",
    DISCONNECT_ACK: "disconnect-ack",
    **dict(zip(HANDSHAKE.values(), ("connect-syn", "connect-syn-ack", "connect-ack"), strict=True)),
}
"""Message -> input of the state machine."""
_HOW: Final = READERS[SPECIFICATION]
_FEWEST: Final = 2
_PING_OCTETS: Final = 1
_READ_ACK: Callable[..., Any] = read.read_KnetSpecPacketAck
"""Of as many bytes it never returns None."""


def scan_document(payload: bytes, direction: int, hints: Hints) -> list[Event]:
    """Return the events of one datagram."""
    size = len(payload)
    head = read.read_KnetSpecHeader(payload, 0, size)
    if head is None:
        return [(Ev.NOTE, *(size_fault(size) or header_fault(size, document=True)))]
    low, _, reliable, high, *_, place = head
    number = high << 16 | low
    unit: Event = (Ev.PLAIN_UNIT, None, "datagram", number, payload)
    if reliable:
        unit = (Ev.UNIT, None, "datagram", number, None, payload)
    events: list[Event] = [unit]
    parts: list[Event] = []
    messages = []
    while place < size:
        message = read.read_KnetSpecMessage(payload, place, size)
        if message is None:
            events.append((Ev.NOTE, fault(payload[place:]), f"malformed at byte {place}"))
            break
        messages.append(message)
        _message(message, events, parts)
        place = message[-1]
    else:
        read.odd_KnetSpecDatagram((messages,), direction, events)
    fault_of_all = size_fault(size)
    if fault_of_all is not None:
        events.append((Ev.NOTE, *fault_of_all))
    if hints.extra is None or hints.extra.phase == Phase.START:
        if not any(event[0] == Ev.STATE for event in events):
            events.append((Ev.STATE, "speaks", None))
        # Never Phase.OPEN: that is where the layout of the programs is read in haste.
        events.append((Ev.HINTS, Hints(hints.dialects, DecoderState(Phase.IDENTIFYING))))
    return events + parts


def _message(message: tuple[Any, ...], events: list[Event], parts: list[Event]) -> None:
    """Add what one message means."""
    start, fragment, *_, count, transfer, index, content, _ = message
    if fragment and not start:
        events.append((Ev.MESSAGE, "fragment"))
        parts.append((Ev.PART, transfer, index, None, None, content))
        return
    identifier, after = KNET_7_7_16.read(content, 0, len(content))
    kind = kind_of(identifier, _HOW)
    if start:
        events.append((Ev.MESSAGE, f"{kind}(first fragment)"))
        read.odd_KnetSpecMessage(message, None, events)
        if count >= _FEWEST:
            parts.append((Ev.PART, transfer, None, count, None, content))
        return
    events.append((Ev.MESSAGE, kind))
    if kind == FLOW_CONTROL:
        flow_control(content, SPECIFICATION, events)
    elif kind in _INPUTS:
        if kind in (DISCONNECT, DISCONNECT_ACK):
            read.odd_KnetDisconnect((content[after:],), None, events)
        events.append((Ev.STATE, _INPUTS[kind], kind))
    elif kind in _PINGS or kind == PACKET_ACK:
        _control(kind, content, after, events)


def _control(kind: str, content: bytes, after: int, events: list[Event]) -> None:
    """Add what a ping, its reply or a PacketAck means."""
    size = len(content) - after
    if size != (ACK_OCTETS if kind == PACKET_ACK else _PING_OCTETS):
        read.odd_KnetWrongSize((), None, events)
    elif kind == PACKET_ACK:
        _, low, bits, high, more, _ = _READ_ACK(content, 0, len(content))
        events.append((Ev.ACK, "datagram", high << 16 | low, more << 2 | bits))
    else:
        events.append((_PINGS[kind], "ping", content[-1]))
