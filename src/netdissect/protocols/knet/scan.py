"""`scan` of kNet: what a datagram means where it stands, and TCP messages."""

from __future__ import annotations

from typing import Final
from zlib import crc32

from netdissect.model.claims import Hints
from netdissect.model.events import Ev, Event
from netdissect.protocols.knet import learning
from netdissect.protocols.knet.datagrams import (
    READERS,
    Values,
    broken,
    control,
    datagram,
    flow_control,
    kind_of,
    parts_last,
)
from netdissect.protocols.knet.document import scan_document
from netdissect.protocols.knet.state import DecoderState, Phase
from netdissect.wire.knet import FLOW_CONTROL, NULL_CONNECT, PING_REPLY, PING_REQUEST, SPECIFICATION
from netdissect.wire.varint import KNET_7_7_16, VarintError

__all__ = ["scan", "scan_stream"]

_SHOWN: Final = 64
"""Bytes of a connect datagram kept as identity."""


def scan(payload: bytes, direction: int, hints: Hints) -> list[Event]:
    """Return the events of one datagram."""
    if hints.extra is None or hints.extra.phase != Phase.OPEN:
        return _unsettled(payload, direction, hints)
    values = (how := READERS[hints.dialects[direction]]).datagram(payload, 0, len(payload))
    if values is None:
        return _unreadable(payload, direction, hints)
    return datagram(values, payload, direction, hints, how)


# -- phases ----------------------------------------------------------------------------------------


def _unreadable(payload: bytes, direction: int, hints: Hints) -> list[Event]:
    """Return the events of what is no message datagram, on a connection that is open."""
    if direction or not payload:
        return broken(payload, direction, hints)
    state: DecoderState = hints.extra
    if payload == NULL_CONNECT:
        note: list[Event] = [(Ev.NOTE, "knet-connect-again", "eight zero bytes")]
    else:
        note = broken(payload, direction, hints)
    if state.phase != Phase.RECONNECTING:
        note.append((Ev.HINTS, Hints(hints.dialects, state.replace(Phase.RECONNECTING))))
    return parts_last([(Ev.RESTART, "?"), *note])


def _unsettled(payload: bytes, direction: int, hints: Hints) -> list[Event]:
    """Return the events of a datagram while the position in the connection matters."""
    if hints.dialects[direction] == SPECIFICATION:
        return scan_document(payload, direction, hints)
    if hints.extra is None:
        hints = Hints(hints.dialects, DecoderState())
    how = READERS[hints.dialects[direction]]
    values = how.datagram(payload, 0, len(payload)) if payload else None
    return _PHASES[hints.extra.phase](values, payload, direction, hints)


def _events(values: Values | None, payload: bytes, direction: int, hints: Hints) -> list[Event]:
    if values is None:
        return broken(payload, direction, hints)
    how = READERS[hints.dialects[direction]]
    return datagram(values, payload, direction, hints, how)


def _with(
    events: list[Event], hints: Hints, phase: int | None = None, first_checksum: int | None = None
) -> list[Event]:
    """Add the hints with some changes, unless a Disconnect in the same datagram has set others."""
    if _learns(events):
        return events
    state: DecoderState = hints.extra
    learnt = Hints(hints.dialects, state.replace(phase, first_checksum=first_checksum))
    return parts_last([*events, (Ev.HINTS, learnt)])


def _learns(events: list[Event]) -> bool:
    """Return whether new hints are among the events."""
    for event in events:  # noqa: SIM110 - compiled, a loop is cheaper
        if event[0] == Ev.HINTS:
            return True
    return False


def _first_id(values: Values) -> int:
    return int(values[3] << 6 | values[2])


def _start(values: Values | None, payload: bytes, direction: int, hints: Hints) -> list[Event]:
    """Take the first datagram of a connection. Section 5.1."""
    if direction:
        return [
            (Ev.STATE, "speaks", None),
            *_with(_events(values, payload, direction, hints), hints, phase=Phase.IDENTIFYING),
        ]
    first = READERS[hints.dialects[0]].first_id
    if values is None or hints.extra.phase == Phase.CONNECT_FIRST:
        if not payload:
            return broken(payload, direction, hints)
        events: list[Event] = [(Ev.STATE, "connect", None)]
        if payload != NULL_CONNECT:
            events.append((Ev.IDENTITY, "connect_payload", payload[:_SHOWN].hex()))
        return _with(events, hints, phase=Phase.PENDING)
    events = _events(values, payload, direction, hints)
    if _first_id(values) == first:
        # The connect datagram was lost: this one is the attempt. Section 5.1.
        return [(Ev.STATE, "connect", None), *_with(events, hints, phase=Phase.PENDING)]
    return [(Ev.STATE, "speaks", None), *_with(events, hints, phase=Phase.IDENTIFYING)]


def _pending(values: Values | None, payload: bytes, direction: int, hints: Hints) -> list[Event]:
    """Take a datagram before the server has answered. Sections 5.1 and 5.6."""
    if not direction:
        if payload == NULL_CONNECT:
            return []
        events = _events(values, payload, direction, hints)
        if values is not None and hints.extra.first_checksum is None:
            events = _with(events, hints, first_checksum=crc32(payload))
        if any(event[0] in _ANSWERS for event in events):
            # It answers what the capture does not have: the server had answered before.
            learnt = _with(events, hints, phase=Phase.IDENTIFYING)
            return parts_last([(Ev.STATE, "established", None), *learnt])
        early = (Ev.NOTE, "knet-early-data", "the server has not answered yet")
        return parts_last([*events, early])
    found = _events(values, payload, direction, hints)
    events = [event for event in found if event[0] != Ev.RESTART]
    return [(Ev.STATE, "accept", None), *_with(events, hints, phase=Phase.IDENTIFYING)]


def _learning(values: Values | None, payload: bytes, direction: int, hints: Hints) -> list[Event]:
    """Take a datagram and look whose application messages it carries."""
    if values is None:
        return _unreadable(payload, direction, hints)
    events = _events(values, payload, direction, hints)
    if _learns(events):
        return events
    state: DecoderState = hints.extra
    if not direction and state.first_checksum is None and _is_first(values, hints):
        hints = learnt = Hints(hints.dialects, state.replace(first_checksum=crc32(payload)))
        events.append((Ev.HINTS, hints))
    learnt = learning.learn(_heard(values), direction, hints)
    if learnt is hints:
        return events
    return parts_last([*events, (Ev.HINTS, learnt)])


def _heard(values: Values) -> list[learning.Heard]:
    """Return the messages of a datagram that are no later fragments."""
    found: list[learning.Heard] = []
    for message in values[5]:
        start, fragment, _, is_reliable, *_, content, _ = message
        if start or not fragment:
            number, after = KNET_7_7_16.read(content, 0, len(content))
            found.append((number, bool(is_reliable), content[after:]))
    return found


def _knocking(values: Values | None, payload: bytes, direction: int, hints: Hints) -> list[Event]:
    """Take a datagram after one that may have been a new client's first. Section 5.6."""
    if direction:
        return _events(values, payload, direction, hints)
    if values is None:
        return _unreadable(payload, direction, hints)
    if _is_first(values, hints) and crc32(payload) != hints.extra.first_checksum:
        return _new_connection(hints)
    back = Phase.OPEN if hints.extra.disconnect is None else Phase.DISCONNECTING
    return _with(_events(values, payload, direction, hints), hints, phase=back)


def _new_connection(hints: Hints) -> list[Event]:
    """Return the events of a datagram that a new client sent before this one."""
    learnt = Hints(hints.dialects, DecoderState(Phase.CONNECT_FIRST))
    return [(Ev.RESTART, "*"), (Ev.HINTS, learnt)]


def _deaf(values: Values | None, payload: bytes, direction: int, hints: Hints) -> list[Event]:
    """Take a datagram after the client has stopped to read: acknowledgements change nothing."""
    if values is None:
        return _unreadable(payload, direction, hints)
    events = _events(values, payload, direction, hints)
    return [event for event in events if event[0] not in _ANSWERS] if direction else events


def _closing(values: Values | None, payload: bytes, direction: int, hints: Hints) -> list[Event]:
    """Take a datagram after a Disconnect."""
    if values is None:
        return _unreadable(payload, direction, hints)
    events = _events(values, payload, direction, hints)
    side, number, _ = hints.extra.disconnect or (1 - direction, None, None)
    if side == direction and _first_id(values) != number:
        note: Event = (Ev.NOTE, "knet-after-disconnect", "its sender has sent a Disconnect")
        events = parts_last([*events, note])
    return events


def _closed(values: Values | None, payload: bytes, direction: int, hints: Hints) -> list[Event]:
    """Take a datagram after the end. Section 5.6: it makes a new connection object.

    Whether a new client sent it, only what follows can tell: network copies come late, too.
    """
    if direction or not payload:
        return _closing(values, payload, direction, hints)
    return _held(values, payload, direction, hints)


def _held(values: Values | None, payload: bytes, direction: int, hints: Hints) -> list[Event]:
    """Return the events of a datagram that waits for what follows it."""
    events = _closing(values, payload, direction, hints) if values is not None else (
        [(Ev.NOTE, "knet-connect-again", "eight zero bytes")]
        if payload == NULL_CONNECT
        else broken(payload, direction, hints)
    )
    learnt = Hints(hints.dialects, hints.extra.replace(Phase.REOPENING))
    kept = [event for event in events if event[0] != Ev.HINTS]
    return parts_last([(Ev.RESTART, "?"), *kept, (Ev.HINTS, learnt)])


def _returning(values: Values | None, payload: bytes, direction: int, hints: Hints) -> list[Event]:
    """Take a datagram after one that came behind the end of its connection."""
    if values is None:
        if direction or not payload:
            return _closing(values, payload, direction, hints)
        return _held(values, payload, direction, hints)
    first = _is_first(values, hints)
    if direction:
        # A server's opening is the new connection's, if there is one.
        return _held(values, payload, direction, hints) if first else _closing(
            values, payload, direction, hints
        )
    if first and crc32(payload) != hints.extra.first_checksum:
        return _new_connection(hints)
    return _with(_closing(values, payload, direction, hints), hints, phase=Phase.CLOSED)


def _is_first(values: Values, hints: Hints) -> bool:
    """Return whether a datagram has the number with which its sender begins."""
    return _first_id(values) == READERS[hints.dialects[0]].first_id


_PHASES: Final = {
    Phase.START: _start,
    Phase.PENDING: _pending,
    Phase.IDENTIFYING: _learning,
    Phase.OPEN: _events,
    Phase.RECONNECTING: _knocking,
    Phase.DISCONNECTING: _closing,
    Phase.CLOSED: _closed,
    Phase.STOPPED_READING: _deaf,
    Phase.CONNECT_FIRST: _start,
    Phase.REOPENING: _returning,
}
_ANSWERS: Final = (Ev.ACK, Ev.REPLY)


# -- TCP -------------------------------------------------------------------------------------------


def scan_stream(payload: bytes, direction: int, hints: Hints) -> list[Event]:
    """Return the events of one TCP message out of its framing."""
    if not payload:
        return []
    try:
        identifier, _ = KNET_7_7_16.read(payload, 0, len(payload))
    except VarintError:
        return [(Ev.NOTE, "truncated", "message ID is cut short")]
    how = READERS[hints.dialects[direction]]
    kind = kind_of(identifier, how)
    events: list[Event] = [(Ev.MESSAGE, kind)]
    if kind in (PING_REQUEST, PING_REPLY):
        control(kind, payload, (0, None), direction, hints, events)
    elif kind == FLOW_CONTROL:
        flow_control(payload, how.dialect, events)
    if hints.extra is None or hints.extra.phase == Phase.START:
        events.append((Ev.STATE, "speaks", None))
        events.append((Ev.HINTS, Hints(hints.dialects, DecoderState(Phase.OPEN))))
    return events
