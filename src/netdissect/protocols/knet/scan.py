"""`scan` of kNet: a datagram to its events, by its position in the connection, and TCP messages."""

from __future__ import annotations

from typing import Final
from zlib import crc32

from netdissect.model.claims import Hints
from netdissect.model.events import Ev, Event
from netdissect.protocols.knet.datagrams import (
    READERS,
    Values,
    control,
    datagram,
    flow_control,
    malformed,
    parts_last,
    type_of,
)
from netdissect.protocols.knet.deciding import decide
from netdissect.protocols.knet.document import scan_document
from netdissect.protocols.knet.learning import Candidate, learn
from netdissect.protocols.knet.state import DecoderState, Phase
from netdissect.wire.knet import (
    CURRENT,
    FLOW_CONTROL,
    LEGACY,
    NULL_CONNECT,
    PING_REPLY,
    PING_REQUEST,
    SPECIFICATION,
    UNDECIDED,
)
from netdissect.wire.varint import KNET_7_7_16, VarintError

_MAX_CONNECT_PAYLOAD: Final = 64
"""Bytes of a connect datagram that are kept as identity."""
_ANSWERS: Final = (Ev.ACK, Ev.REPLY)
_FIRST_PING_OF_2010: Final = b"\x00\x01"


def scan(payload: bytes, direction: int, hints: Hints) -> list[Event]:
    """Return the events of one datagram."""
    state: DecoderState | None = hints.extra
    if hints.dialects[direction] == UNDECIDED or (state is not None and state.silent[direction]):
        return _undecided(payload, direction, hints)
    return _scan(payload, direction, hints)


def _undecided(payload: bytes, direction: int, hints: Hints) -> list[Event]:
    """Return the events of a datagram of a side whose dialect is undecided, or is taken from the
    other side as long as it is silent.
    """
    values = READERS[UNDECIDED].whole(payload)
    told = hints if values is None else decide(values[5], payload, direction, hints)
    events = _scan(payload, direction, told)
    if told is hints or _has_hints(events):
        return events
    return parts_last([*events, (Ev.HINTS, told)])


def _scan(payload: bytes, direction: int, hints: Hints) -> list[Event]:
    if hints.extra is None or hints.extra.phase != Phase.OPEN:
        return _by_phase(payload, direction, hints)
    reader = READERS[hints.dialects[direction]]
    values = reader.whole(payload)
    if values is None:
        return _unreadable(payload, direction, hints)
    return datagram(values, payload, direction, hints, reader)


def _by_phase(payload: bytes, direction: int, hints: Hints) -> list[Event]:
    """Return the events of a datagram whose meaning depends on the phase of the connection."""
    if hints.dialects[direction] == SPECIFICATION:
        return scan_document(payload, direction, hints)
    if hints.extra is None:
        hints = Hints(hints.dialects, DecoderState())
    values = READERS[hints.dialects[direction]].whole(payload)
    return _HANDLERS[hints.extra.phase](values, payload, direction, hints)


# -- handlers of phases ----------------------------------------------------------------------------
# Their first argument is None for a datagram that is no well-formed message datagram.


def _events(values: Values | None, payload: bytes, direction: int, hints: Hints) -> list[Event]:
    """Return the events that do not depend on the phase."""
    if values is None:
        return malformed(payload, direction, hints)
    reader = READERS[hints.dialects[direction]]
    return datagram(values, payload, direction, hints, reader)


def _start(values: Values | None, payload: bytes, direction: int, hints: Hints) -> list[Event]:
    """Handle the first datagram of a connection. Section 5.1."""
    if direction:
        return [
            (Ev.STATE, "speaks", None),
            *_update(_events(values, payload, direction, hints), hints, phase=Phase.IDENTIFYING),
        ]
    if values is None or hints.extra.phase == Phase.CONNECT_FIRST:
        if not payload:
            return malformed(payload, direction, hints)
        events: list[Event] = [(Ev.STATE, "connect", None)]
        if payload != NULL_CONNECT:
            text = payload[:_MAX_CONNECT_PAYLOAD].hex()
            events.append((Ev.IDENTITY, "connect_payload", text))
        hints = Hints(hints.dialects, hints.extra.replace(connect=payload))
        return _update(events, hints, phase=Phase.PENDING)
    events = _events(values, payload, direction, hints)
    if _is_first(values, direction, hints):
        # The connect datagram was lost, so this datagram makes the attempt. Section 5.1.
        return [(Ev.STATE, "connect", None), *_update(events, hints, phase=Phase.PENDING)]
    return [(Ev.STATE, "speaks", None), *_update(events, hints, phase=Phase.IDENTIFYING)]


def _pending(values: Values | None, payload: bytes, direction: int, hints: Hints) -> list[Event]:
    """Handle a datagram while the server has not answered. Sections 5.1 and 5.6."""
    if not direction:
        if payload in (NULL_CONNECT, hints.extra.connect):
            return []
        events = _events(values, payload, direction, hints)
        if values is not None and hints.extra.first_checksum is None:
            events = _update(events, hints, first_checksum=crc32(payload))
        if any(event[0] in _ANSWERS for event in events):
            # The client answers datagrams of the server that the capture lacks.
            events = _update(events, hints, phase=Phase.IDENTIFYING)
            return parts_last([(Ev.STATE, "established", None), *events])
        early = (Ev.NOTE, "knet-early-data", "the server has not answered yet")
        return parts_last([*events, early])
    found = _events(values, payload, direction, hints)
    events = [event for event in found if event[0] != Ev.RESTART]
    return [(Ev.STATE, "accept", None), *_update(events, hints, phase=Phase.IDENTIFYING)]


def _identifying(
    values: Values | None, payload: bytes, direction: int, hints: Hints
) -> list[Event]:
    """Handle a datagram, and look for the application in its messages."""
    if not direction and payload == hints.extra.connect:
        # Before the client's first message, it can only be a copy.
        known = values is None or hints.extra.first_checksum is not None
        return _unreadable(payload, direction, hints) if known else []
    if values is None:
        return _unreadable(payload, direction, hints)
    if not direction and _begins_as_of_2010(values, hints):
        told = Hints((LEGACY, hints.dialects[1]), hints.extra)
        events = _by_phase(payload, direction, told)
        return events if _has_hints(events) else parts_last([*events, (Ev.HINTS, told)])
    events = _events(values, payload, direction, hints)
    if _has_hints(events):
        return events
    state: DecoderState = hints.extra
    if not direction and state.first_checksum is None and _is_first(values, direction, hints):
        hints = Hints(hints.dialects, state.replace(first_checksum=crc32(payload)))
        events.append((Ev.HINTS, hints))
    learned = learn(_candidates(values), direction, hints)
    if learned is hints:
        return events
    return parts_last([*events, (Ev.HINTS, learned)])


def _is_message_datagram(payload: bytes) -> bool:
    """Return whether the bytes parse as a datagram of messages in the usual dialect."""
    return READERS[CURRENT].whole(payload) is not None


def _unreadable(payload: bytes, direction: int, hints: Hints) -> list[Event]:
    """Handle a datagram on a live connection that is no well-formed message datagram."""
    if direction or not payload:
        return malformed(payload, direction, hints)
    state: DecoderState = hints.extra
    if payload == NULL_CONNECT:
        events: list[Event] = [(Ev.NOTE, "knet-connect-again", "eight zero bytes")]
    elif payload == state.connect and _is_message_datagram(payload):
        events = []  # it changes nothing for its receiver
    else:
        events = malformed(payload, direction, hints)
    if state.phase != Phase.RECONNECTING:
        events.append((Ev.HINTS, Hints(hints.dialects, state.replace(Phase.RECONNECTING))))
    return parts_last([(Ev.RESTART, "?"), *events])


def _reconnecting(
    values: Values | None, payload: bytes, direction: int, hints: Hints
) -> list[Event]:
    """Handle a datagram after one that may have been a new client's first. Section 5.6."""
    if direction:
        if values is not None and _is_first(values, direction, hints):
            return _answer_again(values, payload, direction, hints)
        return _events(values, payload, direction, hints)
    if values is None:
        return _unreadable(payload, direction, hints)
    # A copy of the first datagram has its checksum; another client's first datagram may differ.
    if _is_first(values, direction, hints) and crc32(payload) != hints.extra.first_checksum:
        return _new_connection(hints)
    phase = Phase.OPEN if hints.extra.disconnect is None else Phase.DISCONNECTING
    return _update(_events(values, payload, direction, hints), hints, phase=phase)


def _stopped_reading(
    values: Values | None, payload: bytes, direction: int, hints: Hints
) -> list[Event]:
    """Handle a datagram after the client has stopped reading: it ignores acknowledgements."""
    if values is None:
        return _unreadable(payload, direction, hints)
    events = _events(values, payload, direction, hints)
    return [event for event in events if event[0] not in _ANSWERS] if direction else events


def _disconnecting(
    values: Values | None, payload: bytes, direction: int, hints: Hints
) -> list[Event]:
    """Handle a datagram after a Disconnect."""
    if values is None:
        return _unreadable(payload, direction, hints)
    events = _events(values, payload, direction, hints)
    side, number, _ = hints.extra.disconnect or (1 - direction, None, None)
    if side == direction and _packet_id(values) != number:
        note: Event = (Ev.NOTE, "knet-after-disconnect", "its sender has sent a Disconnect")
        events = parts_last([*events, note])
    return events


def _closed(values: Values | None, payload: bytes, direction: int, hints: Hints) -> list[Event]:
    """Handle a datagram after the end. A server creates a new connection object for it.

    It may be the first one of a new client, or a late copy: only later datagrams tell. Section 5.6.
    """
    if direction or not payload:
        return _disconnecting(values, payload, direction, hints)
    return _reopen(values, payload, direction, hints)


def _reopening(values: Values | None, payload: bytes, direction: int, hints: Hints) -> list[Event]:
    """Handle a datagram after one that came after the end."""
    if values is None:
        if direction or not payload:
            return _disconnecting(values, payload, direction, hints)
        return _reopen(values, payload, direction, hints)
    first = _is_first(values, direction, hints)
    if direction:
        # A server's first datagram is that of the new connection, if there is one.
        handle = _answer_again if first else _disconnecting
        return handle(values, payload, direction, hints)
    if first and crc32(payload) != hints.extra.first_checksum:
        return _new_connection(hints)
    events = _disconnecting(values, payload, direction, hints)
    return _update(events, hints, phase=Phase.CLOSED)


def _answer_again(
    values: Values | None, payload: bytes, direction: int, hints: Hints
) -> list[Event]:
    """Return the events of a server's datagram that may belong to a new connection."""
    learned = Hints(hints.dialects, hints.extra.replace(Phase.ANSWERED_AGAIN))
    events = _disconnecting(values, payload, direction, hints)
    kept = [event for event in events if event[0] != Ev.HINTS]
    return parts_last([(Ev.RESTART, "?"), *kept, (Ev.HINTS, learned)])


def _answered_again(
    values: Values | None, payload: bytes, direction: int, hints: Hints
) -> list[Event]:
    """Handle a datagram after the server has begun again.

    The client of before ignores that, so that a datagram with the first PacketID is a new client's.
    Its checksum may be that of the client before: most answer the first two pings, and no more.
    """
    if direction:
        if values is None:
            return malformed(payload, direction, hints)
        return _answer_again(values, payload, direction, hints)
    if values is not None and _is_first(values, direction, hints):
        return _new_connection(hints)
    was_open = hints.extra.disconnect is None
    handle = _reconnecting if was_open else _reopening
    return handle(values, payload, direction, hints)


def _reopen(values: Values | None, payload: bytes, direction: int, hints: Hints) -> list[Event]:
    """Return the events of a datagram that may be the first of a new connection."""
    if values is not None:
        events = _disconnecting(values, payload, direction, hints)
    elif payload == NULL_CONNECT:
        events = [(Ev.NOTE, "knet-connect-again", "eight zero bytes")]
    else:
        events = malformed(payload, direction, hints)
    learned = Hints(hints.dialects, hints.extra.replace(Phase.REOPENING))
    kept = [event for event in events if event[0] != Ev.HINTS]
    return parts_last([(Ev.RESTART, "?"), *kept, (Ev.HINTS, learned)])


_HANDLERS: Final = {
    Phase.START: _start,
    Phase.PENDING: _pending,
    Phase.IDENTIFYING: _identifying,
    Phase.OPEN: _events,
    Phase.RECONNECTING: _reconnecting,
    Phase.DISCONNECTING: _disconnecting,
    Phase.CLOSED: _closed,
    Phase.STOPPED_READING: _stopped_reading,
    Phase.CONNECT_FIRST: _start,
    Phase.REOPENING: _reopening,
    Phase.ANSWERED_AGAIN: _answered_again,
}


# -- parts of the handlers -------------------------------------------------------------------------


def _update(
    events: list[Event], hints: Hints, phase: int | None = None, first_checksum: int | None = None
) -> list[Event]:
    """Add hints with these changes, unless a Disconnect in the datagram has added others."""
    if _has_hints(events):
        return events
    state: DecoderState = hints.extra
    learned = Hints(hints.dialects, state.replace(phase, first_checksum=first_checksum))
    return parts_last([*events, (Ev.HINTS, learned)])


def _has_hints(events: list[Event]) -> bool:
    """Return whether new hints are among the events."""
    for event in events:  # noqa: SIM110 - compiled, a loop is cheaper
        if event[0] == Ev.HINTS:
            return True
    return False


def _new_connection(hints: Hints) -> list[Event]:
    """Return the events that make the datagram before the first of a new connection."""
    learned = Hints(hints.dialects, DecoderState(Phase.CONNECT_FIRST))
    return [(Ev.RESTART, "*"), (Ev.HINTS, learned)]


def _packet_id(values: Values) -> int:
    return int(values[3] << 6 | values[2])


def _is_first(values: Values, direction: int, hints: Hints) -> bool:
    """Return whether a datagram has the PacketID with which its sender begins."""
    return _packet_id(values) == READERS[hints.dialects[direction]].first_id


def _begins_as_of_2010(values: Values, hints: Hints) -> bool:
    """Return whether this is the first datagram of a client of 2010 whose server is a later one:
    PingRequest 1, which 2.x reads as an application's message, and a PacketID that 2.x begins
    after.
    """
    if hints.dialects[0] != CURRENT or hints.extra.first_checksum is not None:
        return False
    if _packet_id(values) != READERS[LEGACY].first_id:
        return False
    for message in values[5]:  # noqa: SIM110 - compiled, a loop is cheaper
        if message[-2] == _FIRST_PING_OF_2010:
            return True
    return False


def _candidates(values: Values) -> list[Candidate]:
    """Return the messages of a datagram in which an application may be recognised."""
    found: list[Candidate] = []
    for message in values[5]:
        start, fragment, _, is_reliable, *_, content, _ = message
        if start or not fragment:
            message_id, after = KNET_7_7_16.read(content, 0, len(content))
            found.append((message_id, bool(is_reliable), content[after:]))
    return found


# -- TCP -------------------------------------------------------------------------------------------


def scan_stream(payload: bytes, direction: int, hints: Hints) -> list[Event]:
    """Return the events of one TCP message, without its framing."""
    if not payload:
        return []
    try:
        message_id, _ = KNET_7_7_16.read(payload, 0, len(payload))
    except VarintError:
        return [(Ev.NOTE, "truncated", "message ID is cut short")]
    reader = READERS[hints.dialects[direction]]
    type_ = type_of(message_id, reader)
    events: list[Event] = [(Ev.MESSAGE, type_)]
    if type_ in (PING_REQUEST, PING_REPLY):
        control(type_, payload, (0, None), direction, hints, events)
    elif type_ == FLOW_CONTROL:
        flow_control(payload, reader.dialect, events)
    if hints.extra is None or hints.extra.phase == Phase.START:
        events.append((Ev.STATE, "speaks", None))
        events.append((Ev.HINTS, Hints(hints.dialects, DecoderState(Phase.OPEN))))
    return events
