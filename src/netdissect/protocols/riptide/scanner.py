"""The scanner of Riptide: one message to its events. Layouts come from the derived readers alone.

Frequent messages are reported by calls. Handshakes, endings and messages that no release sends go
to the handlers in `control`.
"""

from __future__ import annotations

from typing import Final, TypeAlias

from netdissect.dissect.readers import riptide as read
from netdissect.model.claims import Hints
from netdissect.model.events import Ev, Event
from netdissect.model.native import ABSENT, i64
from netdissect.model.sinks import EventSink
from netdissect.protocols.riptide.control import (
    BYTE_DIALECTS,
    Handler,
    connect,
    handler_of,
    invalid,
    reliable_with_faults,
    size_notes,
    trailing,
    truncated,
)
from netdissect.protocols.scanner import Events, Scanner, report_all
from netdissect.wire.riptide import (
    BITS,
    BYTES_20,
    BYTES_21DEV,
    REJECT_REASONS,
    REJECT_REASONS_20,
    SIZE_LIMIT_20,
    SIZE_LIMIT_21,
    TYPES_20,
    TYPES_21,
    UNDECIDED,
    UNDECIDED_BYTES,
)
from netdissect.wire.varint import low_word

_WHOLE_ID: Final = 14
"""Size, bytes, from which on a message id (80 bits at most, from bit 20 on) cannot be cut short."""
_ID_BIT: Final = 20
"""Bit at which a message id begins: behind 4 bits of type and 16 of sequence id."""
_LAST_GROUP_BIT: Final = 44
"""Bit at which the last group of a message id begins that ends within seven bytes."""
_WORD_OCTETS: Final = 7
"""Bytes that a machine word holds without its sign."""
_MIN_BYTES_RELIABLE: Final = 5
"""Size of type, sequence id and message id in the byte packings, bytes: 1 + 2 + 2."""
_LONG_ACK: Final = 7
"""Size of an Ack of 2.1, bytes. Acks of 2.2 have it only where they name a message."""
_NOTIFY_21DEV: Final = 6
"""Type number of Notify in 2.1dev; in 2.0 it is that of Disconnect."""
_MIN_NOTIFY: Final = 6
"""Size of the header of a Notify, bytes."""
_BYTE_DIALECT_BY_SHAPE: Final = {
    (1, 0, 7): BYTES_21DEV, (1, 1, 7): BYTES_21DEV, (2, 0, 7): BYTES_20, (2, 1, 7): BYTES_20,
    (2, 0, 1): BYTES_21DEV, (2, 1, 1): BYTES_21DEV, (3, 0, 1): BYTES_20, (4, 0, 4): BYTES_21DEV,
    (5, 0, 4): BYTES_20, (5, 0, 1): BYTES_21DEV, (6, 0, 1): BYTES_20,
}  # fmt: skip
"""(type number, direction, size) of messages that only one of the byte packings has -> dialect.
Source: section 1.2.
"""

_TYPES: Final = ("Unreliable", "Ack", "AckExtra", "Notify", "Reliable", "Heartbeat")
_UNRELIABLE: Final = 0
_ACK: Final = 1
_ACK_EXTRA: Final = 2
_NOTIFY: Final = 3
_RELIABLE: Final = 4
_HEARTBEAT: Final = 5
"""Types that are reported by calls, and their indices."""
_SPACES: Final = ("reliable", "notify")
_IN_RELIABLE: Final = 0
_IN_NOTIFY: Final = 1
"""Spaces, and their indices."""

_NOTHING: Final[list[Event]] = []


class RiptideScanner(Scanner):
    """Reads the messages that one side sends."""

    __slots__ = ("_bits", "_dialect", "_direction", "_handlers", "_hints", "_indices", "_limit")

    def __init__(self, direction: int) -> None:
        super().__init__(_TYPES, _SPACES)
        self._direction = direction
        self._hints: Hints | None = None
        """Hints from which the following attributes were set."""
        self._dialect = ""
        self._bits = True
        """True for a dialect that packs bits."""
        self._limit: i64 = 0
        """Size of the largest message, bytes."""
        self._indices: list[int] = []
        """First byte -> index of the type in `_TYPES`, -1 for a type that a handler takes."""
        self._handlers: tuple[Handler, ...] = ()
        """First byte -> handler of the types with index -1."""

    def scan(  # noqa: C901, PLR0911 - hot path
        self, sink: EventSink, payload: bytes, hints: Hints
    ) -> list[Event] | None:
        """Report the events of a frequent message, return those of any other."""
        size: i64 = len(payload)
        if not size:
            return [(Ev.MESSAGE, "Empty"), *size_notes(0, SIZE_LIMIT_21)]
        if hints is not self._hints:
            self._update(hints)
        first = payload[0]
        if self._dialect == UNDECIDED_BYTES:
            dialect = _BYTE_DIALECT_BY_SHAPE.get((first, self._direction, len(payload)))
            if dialect is None and first == _NOTIFY_21DEV and size >= _MIN_NOTIFY:
                dialect = BYTES_21DEV
            if dialect is not None:
                decided = Hints((dialect, dialect), hints.extra)
                # The rules of the dialect must be in force before its units are counted.
                return [(Ev.HINTS, decided), *self.events(payload, decided)]
        index = self._indices[first]
        if index < 0:
            return self._handlers[first](payload, self._direction, hints)
        if index == _RELIABLE:
            return self._reliable(sink, payload, size, hints)
        if index == _NOTIFY:
            return self._notify(sink, payload, size)
        if index == _UNRELIABLE:
            return self._unreliable(sink, payload, size)
        if index == _HEARTBEAT:
            return self._heartbeat(sink, payload, size, hints)
        if self._bits:
            return self._ack(sink, payload, size, hints)
        return self._byte_ack(sink, payload, size, index)

    def _update(self, hints: Hints) -> None:
        """Set what depends on the hints."""
        self._hints = hints
        dialect = hints.dialects[1] if self._direction else hints.dialects[0]
        if dialect != self._dialect:
            self._indices, self._handlers = _TABLES[dialect]
            self._dialect = dialect
            self._bits = dialect not in BYTE_DIALECTS
            self._limit = SIZE_LIMIT_21 if self._bits else SIZE_LIMIT_20

    def _reliable(
        self, sink: EventSink, payload: bytes, size: i64, hints: Hints
    ) -> list[Event] | None:
        if size > self._limit:
            return reliable_with_faults(payload, "Reliable", self._direction, hints)
        if self._bits and (size >= _WHOLE_ID or _id_ends_in_word(payload, size)):
            # The message id is complete, so only the sequence id matters. A message of an invalid
            # type has it at the same place.
            number = read.word_RiptideInvalid(payload, 0, size)[1]
        elif not self._bits and size >= _MIN_BYTES_RELIABLE:
            number = low_word(payload, 1, 2)
        else:
            if self._bits:
                values = read.read_RiptideReliable(payload, 0, size)
            else:
                values = read.read_Riptide20Reliable(payload, 0, size)
            if values is None or values[2] is None:
                return reliable_with_faults(payload, "Reliable", self._direction, hints)
            number = values[1]
        sink.begin()
        sink.unit(_RELIABLE, _IN_RELIABLE, number, None, payload)
        return None

    def _notify(self, sink: EventSink, payload: bytes, size: i64) -> list[Event] | None:
        if self._bits:
            words = read.word_RiptideNotify(payload, 0, size)
            whole, number, newest, received = words[4] >= 0, words[3], words[1], words[2]
        else:
            values = read.read_Riptide21devNotify(payload, 0, size)
            whole = values is not None
            if values is not None:
                number, newest, received = values[3], values[1], values[2]
        if not whole:
            return [(Ev.MESSAGE, "Notify"), truncated("Notify")]
        sink.begin()
        sink.unit(_NOTIFY, _IN_NOTIFY, number, None, payload)
        sink.nack(_IN_NOTIFY, newest, received)
        if self._bits and size > SIZE_LIMIT_21:
            report_all(sink, size_notes(int(size), SIZE_LIMIT_21))
        return None

    def _begin(self, sink: EventSink, odd: list[Event]) -> Events | None:
        """Begin a message; if something is `odd` about it, return the list that takes its events
        instead of the sink.
        """
        if not odd:
            sink.begin()
            return None
        told = self.lister()
        told.begin()
        return told

    def _unreliable(self, sink: EventSink, payload: bytes, size: i64) -> list[Event] | None:
        if _WHOLE_ID <= size <= self._limit:
            sink.begin()
            sink.message(_UNRELIABLE)
            return None
        odd: list[Event] = []
        if self._bits:
            values = read.read_RiptideUnreliable(payload, 0, size)
            odd += size_notes(int(size), SIZE_LIMIT_21)
            if values is None:
                odd.append(truncated("message id"))
        else:
            values = read.read_Riptide20Unreliable(payload, 0, size)
        if values is not None:
            read.odd_RiptideUnreliable(values, self._direction, odd)
        if not self._bits and size > SIZE_LIMIT_20:
            odd += size_notes(int(size), SIZE_LIMIT_20)
        if odd:
            return [(Ev.MESSAGE, "Unreliable"), *odd]
        sink.begin()
        sink.message(_UNRELIABLE)
        return None

    def _ack(self, sink: EventSink, payload: bytes, size: i64, hints: Hints) -> list[Event] | None:
        words = read.word_RiptideAck(payload, 0, size)
        end = words[5]
        if end < 0:
            return [(Ev.MESSAGE, "Ack"), truncated("Ack")]
        has_id, named = words[3], words[4]
        odd = _NOTHING
        if has_id and named == ABSENT:
            odd = []
            read.odd_RiptideAck(read.read_RiptideAck(payload, 0, size) or (), self._direction, odd)
        if end < size:
            odd = [*odd, trailing("Ack")]
        told = self._begin(sink, odd)
        sink = told or sink
        sink.message(_ACK)
        if has_id and named != ABSENT:
            sink.ack(_IN_RELIABLE, named, 0)
        sink.ack(_IN_RELIABLE, words[1], words[2])
        report_all(sink, odd)
        # The size of an Ack tells the release. Source: section 1.2. Both releases send seven bytes
        # where the Ack names a message.
        if self._dialect == UNDECIDED and not (has_id and size == _LONG_ACK):
            dialect = BITS[0] if size == _LONG_ACK else BITS[1]
            first, second = hints.dialects
            decided = (first, dialect) if self._direction else (dialect, second)
            sink.event((Ev.HINTS, Hints(decided, hints.extra)))
        return told.listed if told else None

    def _heartbeat(
        self, sink: EventSink, payload: bytes, size: i64, hints: Hints
    ) -> list[Event] | None:
        odd: list[Event] = []
        if self._bits:
            values = read.read_RiptideHeartbeat(payload, 0, size)
        else:
            values = read.read_Riptide20Heartbeat(payload, 0, size)
        if values is None:
            odd.append(truncated("Heartbeat"))
        else:
            read.odd_Riptide20Heartbeat(values, self._direction, odd)
            if values[3] < size:
                odd.append(trailing("Heartbeat"))
        told = self._begin(sink, odd)
        sink = told or sink
        sink.message(_HEARTBEAT)
        if hints.extra is None:
            sink.event((Ev.STATE, "alive", None))
        if values is not None and self._direction:
            sink.event((Ev.REPLY, "heartbeat", values[1]))
        elif values is not None:
            sink.event((Ev.PROBE, "heartbeat", values[1]))
            # -1 stands for "not measured yet".
            if values[2] != -1:
                # Servers read a missing field as 0. Source: section 11.
                sink.event((Ev.RTT, values[2] or 0))
        report_all(sink, odd)
        return told.listed if told else None

    def _byte_ack(
        self, sink: EventSink, payload: bytes, size: i64, index: i64
    ) -> list[Event] | None:
        """Report an Ack of 2.0 (5 bytes) or 2.1dev (5 or 7 bytes), or an AckExtra."""
        if index == _ACK_EXTRA:
            values = read.read_Riptide20AckExtra(payload, 0, size)
        elif self._dialect == BYTES_20:
            values = read.read_Riptide20Ack(payload, 0, size)
        else:
            values = read.read_Riptide21devAck(payload, 0, size)
        if values is None:
            return [(Ev.MESSAGE, _TYPES[index]), truncated(_TYPES[index])]
        odd = [trailing(_TYPES[index])] if values[-1] < size else _NOTHING
        told = self._begin(sink, odd)
        sink = told or sink
        sink.message(index)
        named = values[3] if len(values) > 4 else None  # noqa: PLR2004 - type, ack, bits, id, end
        if named is not None:
            sink.ack(_IN_RELIABLE, named, 0)
        sink.ack(_IN_RELIABLE, values[1], values[2])
        report_all(sink, odd)
        return told.listed if told else None


def _id_ends_in_word(payload: bytes, size: i64) -> bool:
    """Return whether the message id ends within both the message and its first seven bytes."""
    word = low_word(payload, 0, _WORD_OCTETS)
    bit: i64 = _ID_BIT
    while bit <= _LAST_GROUP_BIT and bit + 8 <= 8 * size:
        if not word >> bit & 0x80:
            return True
        bit += 8
    return False


# -- tables ----------------------------------------------------------------------------------------

_Table: TypeAlias = tuple[list[int], tuple[Handler, ...]]
"""Indices of types and handlers; see `RiptideScanner`."""


def _table(types: tuple[str, ...], prefix: str, reasons: tuple[str, ...], numbers: int) -> _Table:
    """Return the table by first byte of a packing.

    Args:
        types: type number -> name.
        prefix: that of the packing's layers.
        reasons: names of the reasons of a Reject.
        numbers: 256 if the type is the whole byte, 16 if it is the low half.

    """
    indices = [_TYPES.index(name) if name in _TYPES else -1 for name in types]
    handlers = [
        invalid if name in _TYPES
        else connect if name == "Connect"
        else handler_of(f"{prefix}{name}", name, reasons)
        for name in types
    ]  # fmt: skip
    undefined, times = numbers - len(types), 256 // numbers
    return (indices + [-1] * undefined) * times, (*handlers, *(invalid,) * undefined) * times


_BYTES_20_TABLE: Final = _table(TYPES_20, "Riptide20", REJECT_REASONS_20, 256)
_TABLES: Final[dict[str, _Table]] = {
    BYTES_20: _BYTES_20_TABLE,
    # Messages that leave the dialect undecided are of types that both dialects number alike.
    UNDECIDED_BYTES: _BYTES_20_TABLE,
    BYTES_21DEV: _table(TYPES_21, "Riptide21dev", REJECT_REASONS, 256),
    **dict.fromkeys((*BITS, UNDECIDED), _table(TYPES_21, "Riptide", REJECT_REASONS, 16)),
}
"""Dialect -> table by first byte."""

_SCANNERS: Final = (RiptideScanner(0), RiptideScanner(1))


def scan(payload: bytes, direction: int, hints: Hints) -> list[Event]:
    """Return the events of one message."""
    return _SCANNERS[direction].events(payload, hints)
