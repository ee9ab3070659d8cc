"""`scan` of Riptide: one message to its events. Layout comes from the derived readers alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple, TypeAlias

from netdissect.dissect.readers import riptide as read
from netdissect.model.claims import Hints
from netdissect.model.events import Ev, Event
from netdissect.wire.riptide import (
    BITS,
    BYTES_20,
    BYTES_21DEV,
    DISCONNECT_REASONS,
    MISENCODED_STOP,
    REJECT_REASONS,
    REJECT_REASONS_20,
    SIZE_LIMIT_20,
    SIZE_LIMIT_21,
    TYPES_20,
    TYPES_21,
    UNDECIDED,
    UNDECIDED_BYTES,
    misfit,
)

__all__ = ["CLOSED", "CONNECTED", "CONNECTING", "KNOCKING", "UNKNOWN", "Progress", "scan"]


_Reader: TypeAlias = Callable[[bytes, int, int], Any]
_Odd: TypeAlias = Callable[[Any, int, list[Event]], None]
_READ_RELIABLE: _Reader = read.read_RiptideReliable
_READ_ACK: _Reader = read.read_RiptideAck
_READ_NOTIFY: _Reader = read.read_RiptideNotify
_READ_UNRELIABLE: _Reader = read.read_RiptideUnreliable
_READ_NUMBER: _Reader = read.read_RiptideInvalid
"""Reads type and number of any reliable-class message: an invalid type has them there as well."""

UNKNOWN, CONNECTING, CONNECTED, CLOSED, KNOCKING = range(5)
"""Phases: nothing known (mid-stream), Connect seen, Welcome seen, ended, Connect seen while
connected (a new connection if a first Welcome follows)."""

_MIN_RELIABLE: Final = 3
"""Bytes below which real receivers drop silently. Source: section 3.2."""
_WHOLE_ID: Final = 14
"""In a message of so many bytes no message id (20 bits on, at most 80 bits) can be cut short."""

_TELLING: Final = {
    (1, 0, 7): BYTES_21DEV, (1, 1, 7): BYTES_21DEV, (2, 0, 7): BYTES_20, (2, 1, 7): BYTES_20,
    (2, 0, 1): BYTES_21DEV, (2, 1, 1): BYTES_21DEV, (3, 0, 1): BYTES_20, (4, 0, 4): BYTES_21DEV,
    (5, 0, 4): BYTES_20, (5, 0, 1): BYTES_21DEV, (6, 0, 1): BYTES_20,
}  # fmt: skip
"""(Type, direction, bytes) of messages that only one of the byte packings has. Section 1.2."""
_NOTIFY_21DEV: Final = 6
_MIN_NOTIFY: Final = 6

Scanner: TypeAlias = Callable[[bytes, int, Hints], list[Event]]


class Progress(NamedTuple):
    """`Hints.extra` of Riptide."""

    phase: int = UNKNOWN
    client_id: int | None = None
    """Client id of the last Welcome from the server."""


def scan(payload: bytes, direction: int, hints: Hints) -> list[Event]:
    """Return the events of one message."""
    if not payload:
        return [(Ev.MESSAGE, "Empty"), *_misfit(0, SIZE_LIMIT_21)]
    return _TABLES[hints.dialects[direction]][payload[0]](payload, direction, hints)


# -- bit packing -----------------------------------------------------------------------------------


def _reliable(payload: bytes, direction: int, hints: Hints) -> list[Event]:
    size = len(payload)
    if _WHOLE_ID <= size <= SIZE_LIMIT_21:
        # The longest message id fits: only the number matters here.
        return [(Ev.UNIT, "Reliable", "reliable", _READ_NUMBER(payload, 0, size)[1], None, payload)]
    values = _READ_RELIABLE(payload, 0, size)
    if values is not None and values[2] is not None and size <= SIZE_LIMIT_21:
        return [(Ev.UNIT, "Reliable", "reliable", values[1], None, payload)]
    return _odd_reliable(payload, "Reliable", direction, hints)


def _odd_reliable(payload: bytes, type_: str, direction: int, hints: Hints) -> list[Event]:
    """Return the events of a reliable-class message that has something wrong with it."""
    size = len(payload)
    if size < _MIN_RELIABLE:
        return [(Ev.MESSAGE, type_), _truncated(type_)]
    bits = hints.dialects[0] not in _BYTE_DIALECTS
    numbered: _Reader = read.read_RiptideInvalid if bits else read.read_Riptide20Invalid
    sequence = numbered(payload, 0, size)
    events: list[Event] = [(Ev.UNIT, type_, "reliable", sequence[1], None, payload)]
    if type_ == "Reliable":
        whole: _Reader = read.read_RiptideReliable if bits else read.read_Riptide20Reliable
        full = whole(payload, 0, size)
        if full is None:
            events.append(_truncated("message id"))
        else:
            read.odd_RiptideReliable(full, direction, events)
    return events + _misfit(size, SIZE_LIMIT_21 if bits else SIZE_LIMIT_20)


def _ack(payload: bytes, direction: int, hints: Hints) -> list[Event]:
    del hints
    values = _READ_ACK(payload, 0, len(payload))
    if values is None:
        return [(Ev.MESSAGE, "Ack"), _truncated("Ack")]
    _, newest, bits, extra, named, end = values
    if not extra:
        events: list[Event] = [(Ev.MESSAGE, "Ack"), (Ev.ACK, "reliable", newest, bits)]
    elif named is None:
        events = [(Ev.MESSAGE, "Ack"), (Ev.ACK, "reliable", newest, bits)]
        read.odd_RiptideAck(values, direction, events)
    else:
        events = [
            (Ev.MESSAGE, "Ack"), (Ev.ACK, "reliable", named, 0), (Ev.ACK, "reliable", newest, bits),
        ]  # fmt: skip
    if end < len(payload):
        events.append(_trailing("Ack"))
    return events


def _undecided_ack(payload: bytes, direction: int, hints: Hints) -> list[Event]:
    """Read an Ack and learn from its length which release sent it. Source: section 1.2."""
    events = _ack(payload, direction, hints)
    size = len(payload)
    values = _READ_ACK(payload, 0, size)
    if values is None or (values[3] and size == 7):  # noqa: PLR2004 - both write it so
        return events
    dialects = list(hints.dialects)
    dialects[direction] = BITS[0] if size == 7 else BITS[1]  # noqa: PLR2004
    events.append((Ev.HINTS, Hints((dialects[0], dialects[1]), hints.extra)))
    return events


def _notify(payload: bytes, direction: int, hints: Hints) -> list[Event]:
    del direction, hints
    size = len(payload)
    values = _READ_NOTIFY(payload, 0, size)
    if values is None:
        return [(Ev.MESSAGE, "Notify"), _truncated("Notify")]
    events: list[Event] = [
        (Ev.UNIT, "Notify", "notify", values[3], None, payload),
        (Ev.NACK, "notify", values[1], values[2]),
    ]
    return events + _misfit(size, SIZE_LIMIT_21) if size > SIZE_LIMIT_21 else events


def _unreliable(payload: bytes, direction: int, hints: Hints) -> list[Event]:
    del hints
    size = len(payload)
    if _WHOLE_ID <= size <= SIZE_LIMIT_21:
        return [(Ev.MESSAGE, "Unreliable")]
    values = _READ_UNRELIABLE(payload, 0, size)
    if values is not None and values[1] is not None and size <= SIZE_LIMIT_21:
        return [(Ev.MESSAGE, "Unreliable")]
    events: list[Event] = [(Ev.MESSAGE, "Unreliable"), *_misfit(size, SIZE_LIMIT_21)]
    if values is None:
        events.append(_truncated("message id"))
    else:
        read.odd_RiptideUnreliable(values, direction, events)
    return events


def _bits_invalid(payload: bytes, direction: int, hints: Hints) -> list[Event]:
    return _invalid(payload, payload[0] & 15, direction, hints)


# -- what both packings share ----------------------------------------------------------------------


def _heartbeat(
    values: tuple[Any, ...] | None, size: int, odd: list[Event], direction: int, hints: Hints
) -> list[Event]:
    """Return the events of a heartbeat from (type, ping id, rtt, end)."""
    events: list[Event] = [(Ev.MESSAGE, "Heartbeat")]
    if hints.extra is None:
        events.append((Ev.STATE, "alive", None))
    if values is None:
        return [*events, _truncated("Heartbeat")]
    _, ping, rtt, end = values
    if direction:
        events.append((Ev.REPLY, "heartbeat", ping))
    else:
        events.append((Ev.PROBE, "heartbeat", ping))
        if rtt != -1:
            # A real server reads a missing field as 0. Source: section 11.
            events.append((Ev.RTT, rtt or 0))
    events += odd
    if end < size:
        events.append(_trailing("Heartbeat"))
    return events


def _welcome(
    values: tuple[Any, ...] | None, payload: bytes, direction: int, hints: Hints
) -> list[Event]:
    """Return the events of a Welcome from (type, sequence, client id, end)."""
    if values is None:
        return _odd_reliable(payload, "Welcome", direction, hints)
    _, sequence, client_id, end = values
    unit: Event = (Ev.UNIT, "Welcome", "reliable", sequence, None, payload)
    tail: list[Event] = [_trailing("Welcome")] if end < len(payload) else []
    progress: Progress = hints.extra or Progress()
    if not direction:
        if progress.client_id is not None and client_id != progress.client_id:
            tail.append((Ev.NOTE, "riptide-welcome-again", f"client answers with id {client_id}"))
        if progress.phase in (UNKNOWN, CONNECTING):
            tail.append((Ev.HINTS, Hints(hints.dialects, Progress(CONNECTED, client_id))))
        return [unit, (Ev.STATE, "established", None), *tail]
    if progress.phase == KNOCKING and sequence == 1:
        return [(Ev.RESTART, "*")]
    if progress.phase in (CONNECTED, KNOCKING):
        if client_id != progress.client_id:
            tail.append((Ev.NOTE, "riptide-welcome-again", f"server names id {client_id}"))
        return [unit, *tail]
    learnt = Hints(hints.dialects, Progress(CONNECTED, client_id))
    return [
        unit, (Ev.STATE, "welcome", None), (Ev.IDENTITY, "client_id", client_id),
        (Ev.HINTS, learnt), *tail,
    ]  # fmt: skip


def _other_client(
    type_: str, values: tuple[Any, ...], payload: bytes, odd: list[Event]
) -> list[Event]:
    """Return the events of ClientConnected or ClientDisconnected."""
    events: list[Event] = [(Ev.UNIT, type_, "reliable", values[1], None, payload), *odd]
    if values[3] < len(payload):
        events.append(_trailing(type_))
    return events


def _connect(payload: bytes, direction: int, hints: Hints) -> list[Event]:
    progress: Progress = hints.extra or Progress()
    events: list[Event] = [(Ev.MESSAGE, "Connect")]
    if direction:
        return [*events, (Ev.STATE, "pending", None)]
    if progress.phase == CLOSED:
        return [(Ev.RESTART, "*")]
    if progress.phase in (CONNECTED, KNOCKING):
        learnt = Hints(hints.dialects, Progress(KNOCKING, progress.client_id))
        note: Event = (Ev.NOTE, "riptide-connect-again", "Connect on a live connection")
        return [(Ev.RESTART, "?"), *events, note, (Ev.HINTS, learnt)]
    if len(payload) > 1:
        events.append((Ev.IDENTITY, "connect_data", payload[:64].hex()))
    return [*events, (Ev.STATE, "connect", None)]


def _reject(
    values: tuple[Any, ...] | None, odd: list[Event], hints: Hints, reasons: tuple[str, ...]
) -> list[Event]:
    events: list[Event] = [(Ev.MESSAGE, "Reject"), *odd]
    if values is None:
        return [*events, _truncated("Reject")]
    if odd:
        return events
    progress: Progress = hints.extra or Progress()
    events.append((Ev.STATE, "reject", _reason(values[1], reasons)))
    if progress.phase in (UNKNOWN, CONNECTING):
        events.append((Ev.HINTS, Hints(hints.dialects, Progress(CLOSED))))
    return events


def _disconnect(
    values: tuple[Any, ...] | None, odd: list[Event], direction: int, hints: Hints
) -> list[Event]:
    events: list[Event] = [(Ev.MESSAGE, "Disconnect"), *odd]
    reason = "Disconnected"
    if direction and values is not None:
        number = values[1]
        if number is None:
            events.append(_truncated("Disconnect"))
        elif number == MISENCODED_STOP:
            reason = "ServerStopped"
        else:
            reason = _reason(number, DISCONNECT_REASONS)
    learnt = Hints(hints.dialects, Progress(CLOSED))
    return [*events, (Ev.STATE, "disconnect", reason), (Ev.HINTS, learnt)]


def _invalid(payload: bytes, number: int, direction: int, hints: Hints) -> list[Event]:
    """Return the events of a type that no release defines; it is acknowledged all the same."""
    events = _odd_reliable(payload, f"Invalid{number}", direction, hints)
    read.odd_RiptideInvalid((number,), direction, events)
    return events


def _reason(number: int, names: tuple[str, ...]) -> str:
    return names[number] if number < len(names) else f"unknown reason {number}"


def _truncated(what: str) -> Event:
    return (Ev.NOTE, "truncated", f"{what} is cut short")


def _trailing(what: str) -> Event:
    return (Ev.NOTE, "trailing-bytes", f"bytes after the end of {what}")


def _misfit(size: int, limit: int) -> list[Event]:
    fault = misfit(size, limit)
    return [] if fault is None else [(Ev.NOTE, *fault)]


# -- byte packing ----------------------------------------------------------------------------------


def _byte_invalid(payload: bytes, direction: int, hints: Hints) -> list[Event]:
    return _invalid(payload, payload[0], direction, hints)


def _byte_reliable(payload: bytes, direction: int, hints: Hints) -> list[Event]:
    size = len(payload)
    values = read.read_Riptide20Reliable(payload, 0, size)
    if values is not None and values[2] is not None and size <= SIZE_LIMIT_20:
        return [(Ev.UNIT, "Reliable", "reliable", values[1], None, payload)]
    return _odd_reliable(payload, "Reliable", direction, hints)


def _byte_unreliable(payload: bytes, direction: int, hints: Hints) -> list[Event]:
    del hints
    size = len(payload)
    values = read.read_Riptide20Unreliable(payload, 0, size)
    events: list[Event] = [(Ev.MESSAGE, "Unreliable")]
    if values is not None and values[1] is None:
        read.odd_RiptideUnreliable(values, direction, events)
    return events + _misfit(size, SIZE_LIMIT_20) if size > SIZE_LIMIT_20 else events


def _byte_ack(payload: bytes, direction: int, hints: Hints) -> list[Event]:
    """Read an Ack of 2.0 (5 bytes) or 2.1dev (5 or 7)."""
    size = len(payload)
    if hints.dialects[direction] == BYTES_20:
        values = read.read_Riptide20Ack(payload, 0, size)
        return _acked("Ack", values and (values[1], values[2], None, values[3]), size)
    values = read.read_Riptide21devAck(payload, 0, size)
    return _acked("Ack", values and values[1:], size)


def _byte_ack_extra(payload: bytes, direction: int, hints: Hints) -> list[Event]:
    del direction, hints
    size = len(payload)
    values = read.read_Riptide20AckExtra(payload, 0, size)
    return _acked("AckExtra", values and values[1:], size)


def _acked(type_: str, values: tuple[Any, ...] | None, size: int) -> list[Event]:
    """Return the events of an acknowledgement from (newest, bits, named or None, end)."""
    if not values:
        return [(Ev.MESSAGE, type_), _truncated(type_)]
    newest, bits, named, end = values
    events: list[Event] = [(Ev.MESSAGE, type_)]
    if named is not None:
        events.append((Ev.ACK, "reliable", named, 0))
    events.append((Ev.ACK, "reliable", newest, bits))
    if end < size:
        events.append(_trailing(type_))
    return events


def _byte_notify(payload: bytes, direction: int, hints: Hints) -> list[Event]:
    del direction, hints
    values = read.read_Riptide21devNotify(payload, 0, len(payload))
    if values is None:
        return [(Ev.MESSAGE, "Notify"), _truncated("Notify")]
    return [
        (Ev.UNIT, "Notify", "notify", values[3], None, payload),
        (Ev.NACK, "notify", values[1], values[2]),
    ]


def _undecided_bytes(payload: bytes, direction: int, hints: Hints) -> list[Event]:
    """Read a message of 2.0 or 2.1dev, and learn from its type which of them it is."""
    size = len(payload)
    dialect = _TELLING.get((payload[0], direction, size))
    if dialect is None and payload[0] == _NOTIFY_21DEV and size >= _MIN_NOTIFY:
        dialect = BYTES_21DEV
    if dialect is None:
        return _TABLES[BYTES_20][payload[0]](payload, direction, hints)
    learnt = Hints((dialect, dialect), hints.extra)
    events = _TABLES[dialect][payload[0]](payload, direction, learnt)
    # The rules of the dialect must be in force before its units are counted.
    return [(Ev.HINTS, learnt), *events]


# -- tables ----------------------------------------------------------------------------------------


def _with(name: str, kind: str, names: tuple[str, ...]) -> Scanner:
    """Return the scanner of a message whose meaning does not depend on the packing."""
    reader: _Reader = getattr(read, f"read_{name}")
    rules: _Odd | None = getattr(read, f"odd_{name}", None)

    def scan_one(payload: bytes, direction: int, hints: Hints) -> list[Event]:
        size = len(payload)
        values = reader(payload, 0, size)
        odd: list[Event] = []
        if rules is not None and values is not None:
            rules(values, direction, odd)
        if kind == "Heartbeat":
            return _heartbeat(values, size, odd, direction, hints)
        if kind == "Welcome":
            return _welcome(values, payload, direction, hints)
        if kind == "Reject":
            return _reject(values, odd, hints, names)
        if kind == "Disconnect":
            return _disconnect(values, odd, direction, hints)
        if values is None:
            return _odd_reliable(payload, kind, direction, hints)
        return _other_client(kind, values, payload, odd)

    return scan_one


def _table(
    types: tuple[str, ...], prefix: str, reasons: tuple[str, ...], own: dict[str, Scanner]
) -> tuple[Scanner, ...]:
    return tuple(own.get(name) or _with(f"{prefix}{name}", name, reasons) for name in types)


_BITS_OWN: dict[str, Scanner] = {
    "Unreliable": _unreliable, "Ack": _ack, "Connect": _connect, "Notify": _notify,
    "Reliable": _reliable,
}  # fmt: skip
_BYTES_OWN: dict[str, Scanner] = {
    "Unreliable": _byte_unreliable, "Ack": _byte_ack, "AckExtra": _byte_ack_extra,
    "Connect": _connect, "Notify": _byte_notify, "Reliable": _byte_reliable,
}  # fmt: skip


def _by_nibble(own: dict[str, Scanner]) -> tuple[Scanner, ...]:
    """Return a table for every first byte: the type is its low nibble."""
    nibbles = _table(TYPES_21, "Riptide", REJECT_REASONS, own)
    nibbles += (_bits_invalid,) * (16 - len(nibbles))
    return nibbles * 16


def _by_octet(types: tuple[str, ...], prefix: str, reasons: tuple[str, ...]) -> tuple[Scanner, ...]:
    """Return a table for every first byte: the type is the byte."""
    known = _table(types, prefix, reasons, _BYTES_OWN)
    return known + (_byte_invalid,) * (256 - len(known))


_BITS_TABLE: Final = _by_nibble(_BITS_OWN)
_TABLES: dict[str, tuple[Scanner, ...]] = {
    BYTES_20: _by_octet(TYPES_20, "Riptide20", REJECT_REASONS_20),
    BYTES_21DEV: _by_octet(TYPES_21, "Riptide21dev", REJECT_REASONS),
    **dict.fromkeys(BITS, _BITS_TABLE),
    UNDECIDED: _by_nibble({**_BITS_OWN, "Ack": _undecided_ack}),
    UNDECIDED_BYTES: (_undecided_bytes,) * 256,
}
"""Dialect -> scanner by the first byte."""
_BYTE_DIALECTS: Final = frozenset({BYTES_20, BYTES_21DEV, UNDECIDED_BYTES})
