"""`scan` of Riptide: one message to its events. Layout comes from the derived readers alone.

Messages that come all the time are told by calls; the others, of handshakes and ends, and what is
of no release, come as lists.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple, TypeAlias

from netdissect.dissect.readers import riptide as read
from netdissect.model.claims import Hints
from netdissect.model.events import Ev, Event
from netdissect.model.native import ABSENT, i64
from netdissect.model.sinks import EventSink
from netdissect.protocols.scanner import Scanner
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
from netdissect.wire.varint import low_word

__all__ = [
    "CLOSED", "CONNECTED", "CONNECTING", "KNOCKING", "UNKNOWN", "Progress", "RiptideScanner",
    "scan",
]  # fmt: skip


_Reader: TypeAlias = Callable[[bytes, int, int], Any]
_Odd: TypeAlias = Callable[[Any, int, list[Event]], None]

UNKNOWN, CONNECTING, CONNECTED, CLOSED, KNOCKING = range(5)
"""Phases: nothing known (mid-stream), Connect seen, Welcome seen, ended, Connect seen while
connected (a new connection if a first Welcome follows)."""

_MIN_RELIABLE: Final = 3
"""Bytes below which real receivers drop silently. Source: section 3.2."""
_WHOLE_ID: Final = 14
"""In a message of so many bytes no message id (20 bits on, at most 80 bits) can be cut short."""
_ID_BIT: Final = 20  # behind 4 bits of type and 16 of number
_LATEST_BIT: Final = 44
"""Where the first group of a message id begins, and the last one that ends in seven bytes."""
_IN_A_WORD: Final = 7
_WHOLE_BYTES: Final = 5
"""Bytes of type, number (two) and message id (two) in the byte packings."""

_TELLING: Final = {
    (1, 0, 7): BYTES_21DEV, (1, 1, 7): BYTES_21DEV, (2, 0, 7): BYTES_20, (2, 1, 7): BYTES_20,
    (2, 0, 1): BYTES_21DEV, (2, 1, 1): BYTES_21DEV, (3, 0, 1): BYTES_20, (4, 0, 4): BYTES_21DEV,
    (5, 0, 4): BYTES_20, (5, 0, 1): BYTES_21DEV, (6, 0, 1): BYTES_20,
}  # fmt: skip
"""(Type, direction, bytes) of messages that only one of the byte packings has. Section 1.2."""
_LONG_ACK: Final = 7
"""Bytes of an Ack of 2.1; one of 2.2 has them only where it names a message."""
_NOTIFY_21DEV: Final = 6
_MIN_NOTIFY: Final = 6

_TYPES: Final = ("Unreliable", "Ack", "AckExtra", "Notify", "Reliable", "Heartbeat")
_UNRELIABLE: Final = 0
_ACK: Final = 1
_ACK_EXTRA: Final = 2
_NOTIFY: Final = 3
_RELIABLE: Final = 4
_HEARTBEAT: Final = 5
_SPACES: Final = ("reliable", "notify")
_IN_RELIABLE: Final = 0
_IN_NOTIFY: Final = 1
"""Types and spaces by which sinks are called, and their places."""

_Listed: TypeAlias = Callable[[bytes, int, Hints], list[Event]]


class Progress(NamedTuple):
    """`Hints.extra` of Riptide."""

    phase: int = UNKNOWN
    client_id: int | None = None
    """Client id of the last Welcome from the server."""


class RiptideScanner(Scanner):
    """Reads what one side sends."""

    __slots__ = ("_bits", "_dialect", "_direction", "_hints", "_limit", "_listed", "_places")

    def __init__(self, direction: int) -> None:
        super().__init__(_TYPES, _SPACES)
        self._direction = direction
        self._hints: Hints | None = None
        self._dialect = ""
        self._bits = True
        self._limit: i64 = 0
        self._places: list[int] = []
        """By the first byte: place of the type in `_TYPES`, -1 for others."""
        self._listed: tuple[_Listed, ...] = ()
        """By the first byte: what lists the events of those others."""

    def _learn(self, hints: Hints) -> None:
        """Take what is known of the connection now."""
        self._hints = hints
        dialect = hints.dialects[1] if self._direction else hints.dialects[0]
        if dialect != self._dialect:
            self._places, self._listed = _TABLES[dialect]
            self._dialect = dialect
            self._bits = dialect not in _BYTE_DIALECTS
            self._limit = SIZE_LIMIT_21 if self._bits else SIZE_LIMIT_20

    def scan(  # noqa: C901 - hot path
        self, sink: EventSink, payload: bytes, hints: Hints
    ) -> list[Event] | None:
        """Tell the events of a usual message, return those of others."""
        size: i64 = len(payload)
        if not size:
            return [(Ev.MESSAGE, "Empty"), *_misfit(0, SIZE_LIMIT_21)]
        if hints is not self._hints:
            self._learn(hints)
        first = payload[0]
        if self._dialect == UNDECIDED_BYTES:
            # Its type may show of which of the two releases it is.
            dialect = _TELLING.get((first, self._direction, len(payload)))
            if dialect is None and first == _NOTIFY_21DEV and size >= _MIN_NOTIFY:
                dialect = BYTES_21DEV
            if dialect is not None:
                learnt = Hints((dialect, dialect), hints.extra)
                # The rules of the dialect must be in force before its units are counted.
                return [(Ev.HINTS, learnt), *self.events(payload, learnt)]
        place = self._places[first]
        if place < 0:
            return self._listed[first](payload, self._direction, hints)
        if place == _RELIABLE:
            return self._reliable(sink, payload, size, hints)
        if place == _NOTIFY:
            return self._notify(sink, payload, size)
        sink.begin()
        if place == _UNRELIABLE:
            self._unreliable(sink, payload, size)
        elif place == _HEARTBEAT:
            self._heartbeat(sink, payload, size, hints)
        elif self._bits:
            self._ack(sink, payload, size, hints)
        else:
            self._byte_ack(sink, payload, size, place)
        return None

    def _reliable(
        self, sink: EventSink, payload: bytes, size: i64, hints: Hints
    ) -> list[Event] | None:
        if size > self._limit:
            return _odd_reliable(payload, "Reliable", self._direction, hints)
        if self._bits and (size >= _WHOLE_ID or _is_whole(payload, size)):
            # The message id fits: only the number matters here. It stands where one of an
            # invalid type does.
            number = read.word_RiptideInvalid(payload, 0, size)[1]
        elif not self._bits and size >= _WHOLE_BYTES:
            number = low_word(payload, 1, 2)
        else:
            if self._bits:
                values = read.read_RiptideReliable(payload, 0, size)
            else:
                values = read.read_Riptide20Reliable(payload, 0, size)
            if values is None or values[2] is None:
                return _odd_reliable(payload, "Reliable", self._direction, hints)
            number = values[1]
        sink.begin()
        sink.unit(_RELIABLE, _IN_RELIABLE, number, None, payload)
        return None

    def _notify(self, sink: EventSink, payload: bytes, size: i64) -> list[Event] | None:
        if self._bits:
            words = read.word_RiptideNotify(payload, 0, size)
            whole, number, newest, told = words[4] >= 0, words[3], words[1], words[2]
        else:
            values = read.read_Riptide21devNotify(payload, 0, size)
            whole = values is not None
            if values is not None:
                number, newest, told = values[3], values[1], values[2]
        if not whole:
            return [(Ev.MESSAGE, "Notify"), _truncated("Notify")]
        sink.begin()
        sink.unit(_NOTIFY, _IN_NOTIFY, number, None, payload)
        sink.nack(_IN_NOTIFY, newest, told)
        if self._bits and size > SIZE_LIMIT_21:
            _tell(sink, _misfit(int(size), SIZE_LIMIT_21))
        return None

    def _unreliable(self, sink: EventSink, payload: bytes, size: i64) -> None:
        sink.message(_UNRELIABLE)
        if _WHOLE_ID <= size <= self._limit:
            return
        odd: list[Event] = []
        if self._bits:
            values = read.read_RiptideUnreliable(payload, 0, size)
            odd += _misfit(int(size), SIZE_LIMIT_21)
            if values is None:
                odd.append(_truncated("message id"))
        else:
            values = read.read_Riptide20Unreliable(payload, 0, size)
        if values is not None:
            read.odd_RiptideUnreliable(values, self._direction, odd)
        if not self._bits and size > SIZE_LIMIT_20:
            odd += _misfit(int(size), SIZE_LIMIT_20)
        _tell(sink, odd)

    def _ack(self, sink: EventSink, payload: bytes, size: i64, hints: Hints) -> None:
        sink.message(_ACK)
        words = read.word_RiptideAck(payload, 0, size)
        end = words[5]
        if end < 0:
            sink.event(_truncated("Ack"))
            return
        extra, named = words[3], words[4]
        if extra and named != ABSENT:
            sink.ack(_IN_RELIABLE, named, 0)
        sink.ack(_IN_RELIABLE, words[1], words[2])
        if extra and named == ABSENT:
            odd: list[Event] = []
            read.odd_RiptideAck(read.read_RiptideAck(payload, 0, size) or (), self._direction, odd)
            _tell(sink, odd)
        if end < size:
            sink.event(_trailing("Ack"))
        if self._dialect == UNDECIDED and not (extra and size == _LONG_ACK):  # both write it so
            # Its length tells which release sent it. Source: section 1.2.
            dialect = BITS[0] if size == _LONG_ACK else BITS[1]
            first, second = hints.dialects
            told = (first, dialect) if self._direction else (dialect, second)
            sink.event((Ev.HINTS, Hints(told, hints.extra)))

    def _heartbeat(self, sink: EventSink, payload: bytes, size: i64, hints: Hints) -> None:
        sink.message(_HEARTBEAT)
        if hints.extra is None:
            sink.event((Ev.STATE, "alive", None))
        odd: list[Event] = []
        if self._bits:
            values = read.read_RiptideHeartbeat(payload, 0, size)
        else:
            values = read.read_Riptide20Heartbeat(payload, 0, size)
        if values is None:
            sink.event(_truncated("Heartbeat"))
            return
        read.odd_Riptide20Heartbeat(values, self._direction, odd)
        if self._direction:
            sink.event((Ev.REPLY, "heartbeat", values[1]))
        else:
            sink.event((Ev.PROBE, "heartbeat", values[1]))
            if values[2] != -1:
                # A real server reads a missing field as 0. Source: section 11.
                sink.event((Ev.RTT, values[2] or 0))
        _tell(sink, odd)
        if values[3] < size:
            sink.event(_trailing("Heartbeat"))

    def _byte_ack(self, sink: EventSink, payload: bytes, size: i64, place: i64) -> None:
        """Read an Ack of 2.0 (5 bytes) or 2.1dev (5 or 7), or an AckExtra."""
        sink.message(place)
        if place == _ACK_EXTRA:
            values = read.read_Riptide20AckExtra(payload, 0, size)
        elif self._dialect == BYTES_20:
            values = read.read_Riptide20Ack(payload, 0, size)
        else:
            values = read.read_Riptide21devAck(payload, 0, size)
        if values is None:
            sink.event(_truncated(_TYPES[place]))
            return
        named = values[3] if len(values) > 4 else None  # noqa: PLR2004 - type, ack, bits, id, end
        if named is not None:
            sink.ack(_IN_RELIABLE, named, 0)
        sink.ack(_IN_RELIABLE, values[1], values[2])
        if values[-1] < size:
            sink.event(_trailing(_TYPES[place]))


def _is_whole(payload: bytes, size: i64) -> bool:
    """Return whether a message id ends in the first seven bytes, and in the message."""
    word = low_word(payload, 0, _IN_A_WORD)
    bit: i64 = _ID_BIT
    while bit <= _LATEST_BIT and bit + 8 <= 8 * size:
        if not word >> bit & 0x80:
            return True
        bit += 8
    return False


def _tell(sink: EventSink, odd: list[Event]) -> None:
    for event in odd:
        sink.event(event)


# -- bit packing -----------------------------------------------------------------------------------


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


def _bits_invalid(payload: bytes, direction: int, hints: Hints) -> list[Event]:
    return _invalid(payload, payload[0] & 15, direction, hints)


# -- what both packings share ----------------------------------------------------------------------


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


# -- tables ----------------------------------------------------------------------------------------


def _with(name: str, kind: str, names: tuple[str, ...]) -> _Listed:
    """Return what lists the events of a message whose meaning does not depend on the packing."""
    reader: _Reader = getattr(read, f"read_{name}")
    rules: _Odd | None = getattr(read, f"odd_{name}", None)

    def scan_one(payload: bytes, direction: int, hints: Hints) -> list[Event]:
        size = len(payload)
        values = reader(payload, 0, size)
        odd: list[Event] = []
        if rules is not None and values is not None:
            rules(values, direction, odd)
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
    types: tuple[str, ...], prefix: str, reasons: tuple[str, ...], invalid: _Listed
) -> tuple[list[int], tuple[_Listed, ...]]:
    """Return places and lists by type number."""
    places = [_TYPES.index(name) if name in _TYPES else -1 for name in types]
    listed = [
        invalid if name in _TYPES
        else _connect if name == "Connect"
        else _with(f"{prefix}{name}", name, reasons)
        for name in types
    ]  # fmt: skip
    return places, tuple(listed)


def _by_nibble() -> tuple[list[int], tuple[_Listed, ...]]:
    """Return them by the first byte: the type is its low nibble."""
    places, listed = _table(TYPES_21, "Riptide", REJECT_REASONS, _bits_invalid)
    left = 16 - len(places)
    return (places + [-1] * left) * 16, (*listed, *(_bits_invalid,) * left) * 16


def _by_octet(
    types: tuple[str, ...], prefix: str, reasons: tuple[str, ...]
) -> tuple[list[int], tuple[_Listed, ...]]:
    """Return them by the first byte: the type is the byte."""
    places, listed = _table(types, prefix, reasons, _byte_invalid)
    left = 256 - len(places)
    return places + [-1] * left, (*listed, *(_byte_invalid,) * left)


_BITS_TABLE: Final = _by_nibble()
_BYTES_20_TABLE: Final = _by_octet(TYPES_20, "Riptide20", REJECT_REASONS_20)
_TABLES: dict[str, tuple[list[int], tuple[_Listed, ...]]] = {
    BYTES_20: _BYTES_20_TABLE,
    # What does not tell is of a type that both have.
    UNDECIDED_BYTES: _BYTES_20_TABLE,
    BYTES_21DEV: _by_octet(TYPES_21, "Riptide21dev", REJECT_REASONS),
    **dict.fromkeys((*BITS, UNDECIDED), _BITS_TABLE),
}
"""Dialect -> by the first byte: place of the type, or -1 and what lists the events."""
_BYTE_DIALECTS: Final = frozenset({BYTES_20, BYTES_21DEV, UNDECIDED_BYTES})
_SCANNERS: Final = (RiptideScanner(0), RiptideScanner(1))


def scan(payload: bytes, direction: int, hints: Hints) -> list[Event]:
    """Return the events of one message."""
    return _SCANNERS[direction].events(payload, hints)
