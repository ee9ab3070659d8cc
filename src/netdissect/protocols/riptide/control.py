"""Riptide's rare messages as events: handshakes, endings, and messages that no release sends.

`scanner` reads the frequent messages itself and leaves all others to the handlers of this module.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeAlias

from netdissect.dissect.readers import riptide as read
from netdissect.model.claims import Hints
from netdissect.model.events import Ev, Event
from netdissect.protocols.riptide.state import DecoderState, Phase
from netdissect.wire.riptide import (
    BYTES_20,
    BYTES_21DEV,
    DISCONNECT_REASONS,
    MISENCODED_STOP,
    SIZE_LIMIT_20,
    SIZE_LIMIT_21,
    UNDECIDED_BYTES,
    size_fault,
)

BYTE_DIALECTS: Final = frozenset({BYTES_20, BYTES_21DEV, UNDECIDED_BYTES})
"""Dialects whose fields are whole bytes; the others pack bits."""
_MIN_RELIABLE: Final = 3
"""Size of type and sequence id, bytes. Receivers silently drop less. Source: section 3.2."""
_MAX_CONNECT_DATA: Final = 64
"""Bytes of a Connect that are kept as identity."""

Handler: TypeAlias = Callable[[bytes, int, Hints], list[Event]]
"""(message, direction, hints) -> its events."""
_Reader: TypeAlias = Callable[[bytes, int, int], Any]
_Rules: TypeAlias = Callable[[Any, int, list[Event]], None]


# -- notes -----------------------------------------------------------------------------------------


def truncated(what: str) -> Event:
    """Return the note that a message or a field is incomplete."""
    return (Ev.NOTE, "truncated", f"{what} is cut short")


def trailing(what: str) -> Event:
    """Return the note that bytes follow the last field of a message."""
    return (Ev.NOTE, "trailing-bytes", f"bytes after the end of {what}")


def size_notes(size: int, limit: int) -> list[Event]:
    """Return the note on a size that no message has; nothing for a legal size."""
    fault = size_fault(size, limit)
    return [] if fault is None else [(Ev.NOTE, *fault)]


# -- reliable messages -----------------------------------------------------------------------------


def reliable_with_faults(
    payload: bytes, type_: str, direction: int, hints: Hints
) -> list[Event]:
    """Return the events of a message of the reliable class that is damaged or of no known type."""
    size = len(payload)
    if size < _MIN_RELIABLE:
        return [(Ev.MESSAGE, type_), truncated(type_)]
    bits = hints.dialects[0] not in BYTE_DIALECTS
    # In both packings the sequence id is where a message of an invalid type has it.
    numbered: _Reader = read.read_RiptideInvalid if bits else read.read_Riptide20Invalid
    sequence = numbered(payload, 0, size)
    events: list[Event] = [(Ev.UNIT, type_, "reliable", sequence[1], None, payload)]
    if type_ == "Reliable":
        whole: _Reader = read.read_RiptideReliable if bits else read.read_Riptide20Reliable
        full = whole(payload, 0, size)
        if full is None:
            events.append(truncated("message id"))
        else:
            read.odd_RiptideReliable(full, direction, events)
    return events + size_notes(size, SIZE_LIMIT_21 if bits else SIZE_LIMIT_20)


def invalid(payload: bytes, direction: int, hints: Hints) -> list[Event]:
    """Return the events of a type that no release defines. Receivers still acknowledge it."""
    bits = hints.dialects[direction] not in BYTE_DIALECTS
    number = payload[0] & 0x0F if bits else payload[0]
    events = reliable_with_faults(payload, f"Invalid{number}", direction, hints)
    read.odd_RiptideInvalid((number,), direction, events)
    return events


def _welcome(
    values: tuple[Any, ...] | None, payload: bytes, direction: int, hints: Hints
) -> list[Event]:
    """Return the events of a Welcome from (type, sequence id, client id, end)."""
    if values is None:
        return reliable_with_faults(payload, "Welcome", direction, hints)
    _, sequence, client_id, end = values
    unit: Event = (Ev.UNIT, "Welcome", "reliable", sequence, None, payload)
    notes: list[Event] = [trailing("Welcome")] if end < len(payload) else []
    state: DecoderState = hints.extra or DecoderState()
    if not direction:
        if state.client_id is not None and client_id != state.client_id:
            notes.append((Ev.NOTE, "riptide-welcome-again", f"client answers with id {client_id}"))
        if not state.answered and state.phase != Phase.CLOSED:
            named = client_id if state.client_id is None else state.client_id
            learned = DecoderState(Phase.CONNECTED, named, answered=True)
            notes.append((Ev.HINTS, Hints(hints.dialects, learned)))
        return [unit, (Ev.STATE, "established", None), *notes]
    # Before the client has answered, the server sends the same Welcome again.
    is_first = state.answered or client_id != state.client_id
    if state.phase == Phase.RECONNECTING and sequence == 1 and is_first:
        return [(Ev.RESTART, "*")]
    if state.phase in (Phase.CONNECTED, Phase.RECONNECTING):
        if client_id != state.client_id:
            notes.append((Ev.NOTE, "riptide-welcome-again", f"server names id {client_id}"))
        return [unit, *notes]
    learned = DecoderState(Phase.CONNECTED, client_id)
    return [
        unit, (Ev.STATE, "welcome", None), (Ev.IDENTITY, "client_id", client_id),
        (Ev.HINTS, Hints(hints.dialects, learned)), *notes,
    ]  # fmt: skip


def _other_client(
    type_: str, values: tuple[Any, ...], payload: bytes, odd: list[Event]
) -> list[Event]:
    """Return the events of a ClientConnected or ClientDisconnected."""
    events: list[Event] = [(Ev.UNIT, type_, "reliable", values[1], None, payload), *odd]
    if values[3] < len(payload):
        events.append(trailing(type_))
    return events


# -- handshakes and endings ------------------------------------------------------------------------


def connect(payload: bytes, direction: int, hints: Hints) -> list[Event]:
    """Return the events of a Connect; one from the server means that the attempt is pending."""
    state: DecoderState = hints.extra or DecoderState()
    events: list[Event] = [(Ev.MESSAGE, "Connect")]
    if direction:
        return [*events, (Ev.STATE, "pending", None)]
    if state.phase == Phase.CLOSED:
        return [(Ev.RESTART, "*")]
    if state.phase in (Phase.CONNECTED, Phase.RECONNECTING):
        learned = state._replace(phase=Phase.RECONNECTING)
        note: Event = (Ev.NOTE, "riptide-connect-again", "Connect on a live connection")
        return [(Ev.RESTART, "?"), *events, note, (Ev.HINTS, Hints(hints.dialects, learned))]
    if len(payload) > 1:
        events.append((Ev.IDENTITY, "connect_data", payload[:_MAX_CONNECT_DATA].hex()))
    return [*events, (Ev.STATE, "connect", None)]


def _reject(
    values: tuple[Any, ...] | None, odd: list[Event], hints: Hints, reasons: tuple[str, ...]
) -> list[Event]:
    events: list[Event] = [(Ev.MESSAGE, "Reject"), *odd]
    if values is None:
        return [*events, truncated("Reject")]
    if odd:
        return events
    state: DecoderState = hints.extra or DecoderState()
    events.append((Ev.STATE, "reject", _reason(values[1], reasons)))
    if state.phase in (Phase.UNKNOWN, Phase.CONNECTING):
        events.append((Ev.HINTS, Hints(hints.dialects, DecoderState(Phase.CLOSED))))
    return events


def _disconnect(
    values: tuple[Any, ...] | None, odd: list[Event], direction: int, hints: Hints
) -> list[Event]:
    events: list[Event] = [(Ev.MESSAGE, "Disconnect"), *odd]
    reason = "Disconnected"
    if direction and values is not None:
        number = values[1]
        if number is None:
            events.append(truncated("Disconnect"))
        elif number == MISENCODED_STOP:
            reason = "ServerStopped"
        else:
            reason = _reason(number, DISCONNECT_REASONS)
    learned = Hints(hints.dialects, DecoderState(Phase.CLOSED))
    return [*events, (Ev.STATE, "disconnect", reason), (Ev.HINTS, learned)]


def _reason(number: int, names: tuple[str, ...]) -> str:
    return names[number] if number < len(names) else f"unknown reason {number}"


def handler_of(layer: str, type_: str, reasons: tuple[str, ...]) -> Handler:
    """Return the handler of a message whose meaning does not depend on the packing.

    Args:
        layer: name of the layer that describes the message in this packing.
        type_: `Welcome`, `Reject`, `Disconnect`, `ClientConnected` or `ClientDisconnected`.
        reasons: names of the reasons of a Reject, by number.

    """
    reader: _Reader = getattr(read, f"read_{layer}")
    rules: _Rules | None = getattr(read, f"odd_{layer}", None)

    def handle(payload: bytes, direction: int, hints: Hints) -> list[Event]:
        values = reader(payload, 0, len(payload))
        odd: list[Event] = []
        if rules is not None and values is not None:
            rules(values, direction, odd)
        if type_ == "Welcome":
            return _welcome(values, payload, direction, hints)
        if type_ == "Reject":
            return _reject(values, odd, hints, reasons)
        if type_ == "Disconnect":
            return _disconnect(values, odd, direction, hints)
        if values is None:
            return reliable_with_faults(payload, type_, direction, hints)
        return _other_client(type_, values, payload, odd)

    return handle
