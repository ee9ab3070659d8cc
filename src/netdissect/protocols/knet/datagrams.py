"""One kNet message datagram to its events, regardless of its position in the connection.

Layouts come from the derived readers alone. `scan` adds what the position means.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any, Final

from netdissect.dissect.readers import knet as read
from netdissect.model.claims import Hints
from netdissect.model.events import Ev, Event
from netdissect.protocols.knet.deciding import compare_ping, decided
from netdissect.protocols.knet.receiver import SHARED
from netdissect.protocols.knet.state import DecoderState, Phase
from netdissect.wire.knet import (
    CONTROL_SIZES,
    CONTROLS,
    CURRENT,
    DIALECTS,
    DISCONNECT,
    DISCONNECT_ACK,
    EMPTY_DATAGRAM,
    FIRST_IDS,
    FLOW_CONTROL,
    LEGACY,
    MIN_FRAGMENTS,
    PACKET_ACK,
    PERHAPS_2010,
    PING_REPLY,
    PING_REQUEST,
    SPECIFICATION,
    UNDECIDED,
    acknowledged,
    header_fault,
    header_octets,
    message_type,
    size_fault,
)
from netdissect.wire.varint import KNET_7_7_16

_READ_ID: Final = KNET_7_7_16.read
_READ_ACK: Callable[[bytes, int, int], tuple[Any, ...] | None] = read.read_KnetPacketAck
_END_ID_OCTETS: Final = 4
"""Size of the message ID of a Disconnect or DisconnectAck, bytes."""
_MIN_CONTRADICTIONS: Final = 2
"""Control messages that only another dialect numbers so, before that dialect is assumed."""
_SHORT_IDS: Final = 128
"""Number of message IDs that take one byte."""
_BESIDE_2010: Final = (LEGACY, UNDECIDED), (UNDECIDED, LEGACY)
"""By sender: the dialects where it speaks that of 2010, and its peer is undecided."""
_LIVE: Final = (Phase.IDENTIFYING, Phase.OPEN, Phase.RECONNECTING)

MAX_KNOWN: Final = 1472
"""Datagrams up to this size, in bytes, are remembered with what they say: an Ethernet frame's."""
Values = tuple[Any, ...]
"""The fields that a derived reader returns."""
_Read = Callable[[bytes, int, int], Values | None]


class Reader:
    """How to read one dialect."""

    __slots__ = ("control", "controls", "dialect", "first_id", "legacy", "odd", "types")

    def __init__(self, dialect: str) -> None:
        self.dialect = dialect
        self.legacy = legacy = dialect in PERHAPS_2010
        """Whether fragments have no numbers of their own, or perhaps none, and the flags of control
        messages may be left over.
        """
        self.odd: Callable[[Values, int, list[Event]], None] = (
            read.odd_Knet2010Datagram if legacy else read.odd_KnetDatagram
        )
        self.controls = CONTROLS[dialect]
        self.control = bytes(message_id in self.controls for message_id in range(_SHORT_IDS))
        """Whether a message ID of one byte is that of a control message."""
        self.types = [message_type(message_id, dialect) for message_id in range(_SHORT_IDS)]
        """Type of each message ID of one byte."""
        self.first_id = FIRST_IDS.get(dialect, -1)
        """First PacketID of a sender; -1 = unknown."""

    def read(self, payload: bytes) -> Values | None:
        """Return the fields of a datagram up to its first malformed message; None if it ends inside
        its header. The last value is the offset of that message, or the size of the payload.
        """
        read_once = _known_values if len(payload) <= MAX_KNOWN else _newest_values
        return read_once(payload, self.legacy)

    def whole(self, payload: bytes) -> Values | None:
        """Return the fields of a datagram; None if it is malformed."""
        values = self.read(payload)
        return values if values is not None and values[-1] == len(payload) else None


def _values(payload: bytes, legacy: bool) -> Values | None:  # noqa: FBT001 - part of the key
    """Return what `Reader.read` returns, in one of the two layouts."""
    size = len(payload)
    position = header_octets(payload)
    if position > size:
        return None
    read_header: _Read = read.read_Knet2010Datagram if legacy else read.read_KnetDatagram
    read_message: _Read = read.read_Knet2010Message if legacy else read.read_KnetMessage
    header = read_header(payload, 0, position)
    if header is None:
        return None
    messages: list[Values] = []
    while position < size:
        message = read_message(payload, position, size)
        if message is None:
            break
        messages.append(message)
        position = message[-1]
    return (*header[:5], messages, position)


# A connection's first datagrams are read to recognise it, to find out its dialect, and for their
# events.
_known_values: Final = lru_cache(maxsize=256)(_values)
_newest_values: Final = lru_cache(maxsize=1)(_values)
"""The same of larger datagrams: what handles a malformed one reads it again."""

READERS: Final = {dialect: Reader(dialect) for dialect in DIALECTS}
"""Dialect -> its reader."""


class _Datagram:
    """The events of a datagram, collected message by message."""

    __slots__ = ("base", "direction", "events", "hints", "in_order", "number", "ordered", "parts",
                 "reader")  # fmt: skip

    def __init__(
        self, reader: Reader, number: int, base: int | None, direction: int, hints: Hints
    ) -> None:
        self.reader = reader
        self.number = number
        """PacketID."""
        self.base = base or 0
        """Reliable number to which the deltas of the messages are added."""
        self.direction = direction
        self.hints = hints
        self.events: list[Event] = []
        self.parts: list[Event] = []
        """PART events, for the assembler."""
        self.in_order = 0
        """Messages of the application with the InOrder bit."""
        self.ordered: list[int] = []
        """Reliable numbers of those that have one."""

    def add_fragment(self, message: Values) -> None:
        """Add the events of a fragment."""
        type_ = _add_part(message, self.base, self.reader, self.parts)
        # All fragments of 2010 carry the number of a message that was never queued.
        self._add(type_, None if self.reader.legacy else message[5], message[9])

    def add_message(self, message: Values) -> None:
        """Add the events of a message that is no fragment."""
        _, _, in_order, is_reliable, _, delta, _, _, _, content, _ = message
        message_id = content[0]
        # The first byte of a longer ID has its top bit set.
        if message_id >= _SHORT_IDS:
            message_id = _READ_ID(content, 0, len(content))[0]
        type_ = type_of(message_id, self.reader)
        self._add(type_, delta if is_reliable else None, content)
        if self.reader.legacy and is_reliable and self.base + delta == 0:
            # The receiver knows the number of all fragments from now on.
            self.parts.append((Ev.PART, None, None, 0, SHARED, b""))
        if message_id in self.reader.controls:
            numbers = (self.number, self.base + delta if is_reliable else None)
            control(type_, content, numbers, self.direction, self.hints, self.events)
        elif in_order:
            self.in_order += 1
            if is_reliable:
                self.ordered.append(self.base + delta)

    def _add(self, type_: str, delta: int | None, content: bytes) -> None:
        if delta is None:
            self.events.append((Ev.MESSAGE, type_))
            return
        self.events.append((Ev.UNIT, type_, "reliable", self.base + delta, None, content))


def datagram(
    values: Values, payload: bytes, direction: int, hints: Hints, reader: Reader
) -> list[Event]:
    """Return the events of a datagram from the values of its reader, with the PARTs last."""
    _, reliable, low, high, base, messages, _ = values
    number = high << 6 | low
    found = _Datagram(reader, number, base, direction, hints)
    events = found.events
    events.append(
        (Ev.UNIT, None, "datagram", number, None, payload)
        if reliable
        else (Ev.PLAIN_UNIT, None, "datagram", number, payload)
    )
    for message in messages:
        # In 2010 an unreliable message is a fragment only if it is a first one.
        if message[0] or (message[1] and (message[3] or not reader.legacy)):
            found.add_fragment(message)
        else:
            found.add_message(message)
    if found.in_order:
        # Before the units that it concerns.
        events.insert(1, (Ev.ORDERED, "reliable", found.ordered, found.in_order))
    if number == reader.first_id and direction:
        _add_restart(events)
    reader.odd(values, direction, events)
    fault = size_fault(len(payload))
    if fault is not None:
        events.append((Ev.NOTE, *fault))
    return events + found.parts


def parts_last(events: list[Event]) -> list[Event]:
    """Return the same events with the PARTs last, where the pipeline expects them."""
    parts = [event for event in events if event[0] == Ev.PART]
    return [*(event for event in events if event[0] != Ev.PART), *parts] if parts else events


def type_of(message_id: int, reader: Reader) -> str:
    """Return the type of a message ID."""
    if message_id < _SHORT_IDS:
        return reader.types[message_id]
    return message_type(message_id, reader.dialect)


def _add_part(message: Values, base: int, reader: Reader, parts: list[Event]) -> str:
    """Add the PART of a fragment; return the type under which the fragment counts."""
    start, _, _, is_reliable, _, delta, count, transfer, index, content, _ = message
    number = (SHARED if reader.legacy else base + delta) if is_reliable else None
    if not start or count >= MIN_FRAGMENTS:
        parts.append((Ev.PART, transfer, None if start else index, count, number, content))
    if not start:
        return "fragment"
    message_id = _READ_ID(content, 0, len(content))[0]
    return f"{type_of(message_id, reader)}(first fragment)"


# -- control messages ------------------------------------------------------------------------------


def control(
    kind: str, content: bytes, numbers: tuple[int, int | None], direction: int, hints: Hints,
    events: list[Event],
) -> None:  # fmt: skip
    """Add what a control message means beyond its type.

    Args:
        kind: its type.
        content: message ID and what follows.
        numbers: PacketID of the datagram, reliable number of the message.
        direction: which side sends it.
        hints: those of the connection.
        events: where to add.

    """
    size = len(content)
    if kind == PACKET_ACK:
        values = _READ_ACK(content, 0, size)
        if values is None or values[3] != size:
            read.odd_KnetWrongSize((), direction, events)
            return
        _, base, bits, _ = values
        if base >> 22:
            read.odd_KnetPacketAck(values, direction, events)
            events += [(Ev.ACK, "datagram", named, 0) for named in acknowledged(base, bits)]
        else:
            events.append((Ev.ACK, "datagram", base, bits))
    elif kind in (PING_REQUEST, PING_REPLY):
        identifier_end = _READ_ID(content, 0, size)[1]
        if size - identifier_end != CONTROL_SIZES[kind]:
            read.odd_KnetWrongSize((), direction, events)
            return
        events.append((Ev.PROBE if kind == PING_REQUEST else Ev.REPLY, "ping", content[-1]))
        if kind == PING_REQUEST and hints.dialects == _BESIDE_2010[direction]:
            events += compare_ping(content[-1], direction, hints)
    elif kind == FLOW_CONTROL:
        _flow_control(content, direction, hints, events)
    else:
        _end(kind, content, numbers, direction, hints, events)


def _flow_control(content: bytes, direction: int, hints: Hints, events: list[Event]) -> None:
    """Add what a FlowControlRequest means, unless it has the form of another dialect's message.

    Its message ID is that of the PacketAck in 2010 and of the PingReply in 2.x. Sections 1 and 4.1.
    """
    dialect = hints.dialects[direction]
    legacy = dialect == LEGACY
    # With a message ID of one byte.
    is_other = len(content) == 1 + CONTROL_SIZES[PING_REPLY] if legacy else (
        len(content) == 1 + CONTROL_SIZES[PACKET_ACK] and not content[3] & 0xC0
    )
    if not is_other or dialect == SPECIFICATION:
        flow_control(content, dialect, events)
        return
    # What it answers is no proof of the dialect, but without it the peer's datagrams seem lost.
    control(PING_REPLY if legacy else PACKET_ACK, content, (0, None), direction, hints, events)
    if not _contradict(direction, hints, events):
        flow_control(content, dialect, events)


def _contradict(direction: int, hints: Hints, events: list[Event]) -> bool:
    """Count a control message that only the other dialect numbers so; return whether that dialect
    is assumed from here on.
    """
    state: DecoderState = hints.extra or DecoderState()
    dialect = hints.dialects[direction]
    seen = list(state.contradictions)
    seen[direction] += 1
    revised = seen[direction] >= _MIN_CONTRADICTIONS
    if revised:
        other = CURRENT if dialect == LEGACY else LEGACY
        hints = decided(other, direction, hints)
        seen[direction] = 0
        text = f"reads as {other} from here on, not as {dialect}"
        events.append((Ev.NOTE, "knet-dialect-revised", text))
    learned = state.replace(contradictions=(seen[0], seen[1]))
    events.append((Ev.HINTS, Hints(hints.dialects, learned)))
    return revised


def flow_control(content: bytes, dialect: str, events: list[Event]) -> None:
    """Add what a FlowControlRequest asks for.

    No library obeys it, and Urho3D's hands it to the application; the published document does.
    Section 6.8.
    """
    if dialect == "knet-urho3d":
        return
    after = _READ_ID(content, 0, len(content))[1]
    if len(content) - after == CONTROL_SIZES[FLOW_CONTROL]:
        per_second = int.from_bytes(content[after:], "little")
        events.append((Ev.RATE, per_second, dialect == SPECIFICATION))
    else:
        read.odd_KnetWrongSize((), None, events)


def _end(
    kind: str, content: bytes, numbers: tuple[int, int | None], direction: int, hints: Hints,
    events: list[Event],
) -> None:  # fmt: skip
    """Add what Disconnect and DisconnectAck mean."""
    read.odd_KnetDisconnect((content[_END_ID_OCTETS:],), direction, events)
    state: DecoderState = hints.extra or DecoderState()
    if kind == DISCONNECT:
        learned = state.replace(Phase.DISCONNECTING, (direction, *numbers))
        events.append((Ev.STATE, "disconnect", DISCONNECT))
    else:
        disconnect = state.disconnect
        if disconnect is None or disconnect[0] == direction:
            text = "DisconnectAck without Disconnect"
            events.append((Ev.NOTE, "knet-disconnect-ack-alone", text))
        elif disconnect[2] is not None:
            # Section 5.4: no PacketAck ever names the datagram of a Disconnect.
            events.append((Ev.ACK, "reliable", disconnect[2], 0))
        learned = state.replace(Phase.CLOSED)
        events.append((Ev.STATE, "disconnect-ack", DISCONNECT_ACK))
    if learned.phase != state.phase or learned.disconnect != state.disconnect:
        events.append((Ev.HINTS, Hints(hints.dialects, learned)))


def _add_restart(events: list[Event]) -> None:
    """Add a RESTART to a server's first datagram with ping 1: it may be a new one. Section 5.6."""
    if any(event[0] == Ev.PROBE and event[2] == 1 for event in events):
        events.insert(0, (Ev.RESTART, "datagram"))


# -- malformed datagrams ---------------------------------------------------------------------------


def malformed(payload: bytes, direction: int, hints: Hints) -> list[Event]:
    """Return the events of a malformed datagram; everything before the fault counts."""
    if not payload:
        note: Event = (Ev.NOTE, *EMPTY_DATAGRAM)
        return [note, (Ev.STATE, "empty", None), *_stopped_reading(direction, hints)]
    reader = READERS[hints.dialects[direction]]
    values = reader.read(payload)
    if values is None:
        return _cut_header(payload, direction, hints)
    position = values[-1]
    events = datagram(values, payload, direction, hints, reader)
    kept = [event for event in events if event[0] != Ev.NOTE or event[1] != "knet-no-messages"]
    kept.append((Ev.NOTE, fault(payload[position:]), f"malformed at byte {position}"))
    # Receivers of 2010 catch the exception and go on with the next datagram.
    closes = hints.dialects[1 - direction] not in PERHAPS_2010
    if closes and not any(event[0] == Ev.HINTS for event in kept):
        kept += _stopped_reading(direction, hints)
    return parts_last(kept)


def _stopped_reading(direction: int, hints: Hints) -> list[Event]:
    """Return the hints after a datagram that makes a client stop reading. Sections 5.6 and 12."""
    state = hints.extra
    if not direction or state is None or state.phase not in _LIVE:
        return []
    return [(Ev.HINTS, Hints(hints.dialects, state.replace(Phase.STOPPED_READING)))]


def _cut_header(payload: bytes, direction: int, hints: Hints) -> list[Event]:
    """Return the events of a datagram that ends inside its header."""
    note: Event = (Ev.NOTE, *header_fault(len(payload)))
    if len(payload) < 3:  # noqa: PLR2004 - the header
        return [note]
    # Without the Reliable bit, three bytes are a whole header.
    head = bytes([payload[0] & 0xBF]) + payload[1:3]
    values: Values = READERS[hints.dialects[direction]].read(head) or ()
    number = values[3] << 6 | values[2]
    return [(Ev.UNIT, None, "datagram", number, None, payload), note]


def fault(rest: bytes) -> str:
    """Return the code of the fault of the malformed message at the start of `rest`."""
    if len(rest) < 2:  # noqa: PLR2004 - the message header
        return "truncated"
    length = (rest[1] & 7) << 8 | rest[0]
    if length == 0:
        return "knet-zero-content"
    return "length-beyond-end" if length + 2 > len(rest) else "truncated"
