"""One kNet message datagram to its events, wherever it stands in its connection.

Layout comes from the derived readers alone. `scan` adds what the position means.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from netdissect.dissect.readers import knet as read
from netdissect.model.claims import Hints
from netdissect.model.events import Ev, Event
from netdissect.protocols.knet.receiver import SHARED
from netdissect.protocols.knet.state import DecoderState, Phase
from netdissect.wire.knet import (
    CONTROLS,
    DIALECTS,
    DISCONNECT,
    DISCONNECT_ACK,
    EMPTY_DATAGRAM,
    FIRST_IDS,
    FLOW_CONTROL,
    LEGACY,
    PACKET_ACK,
    PING_REPLY,
    PING_REQUEST,
    SPECIFICATION,
    acknowledged,
    header_fault,
    message_type,
    size_fault,
)
from netdissect.wire.varint import KNET_7_7_16

__all__ = ["READERS", "Reader", "Values", "broken", "control", "datagram", "fault",
           "flow_control", "kind_of", "parts_last"]  # fmt: skip


_READ_ID: Final = KNET_7_7_16.read
_READ_ACK: Callable[[bytes, int, int], tuple[Any, ...] | None] = read.read_KnetPacketAck
_PING_OCTETS: Final = 2
_ID_OCTETS: Final = 4
"""Contents of control messages with their message ID."""
_RATE_OCTETS: Final = 2
_ACK_CONTENT: Final = 8
"""A PacketAck with its message ID."""
_CONTRARY: Final = 2
"""Control messages of another dialect's numbering that show that it is spoken."""
_FEWEST: Final = 2
"""Fragments of a transfer at least."""
_SHORT: Final = 128
"""Message IDs of one byte."""
_LIVE: Final = (Phase.IDENTIFYING, Phase.OPEN, Phase.RECONNECTING)

Values = tuple[Any, ...]
"""What a derived reader returns."""


class Reader:
    """What reading one dialect takes."""

    __slots__ = ("control", "controls", "datagram", "dialect", "first_id", "legacy", "message",
                 "names", "odd")  # fmt: skip

    def __init__(self, dialect: str) -> None:
        self.dialect = dialect
        self.legacy = legacy = dialect == LEGACY
        self.datagram: Callable[[bytes, int, int], Values | None] = (
            read.read_Knet2010Datagram if legacy else read.read_KnetDatagram
        )
        self.message: Callable[[bytes, int, int], Values | None] = (
            read.read_Knet2010Message if legacy else read.read_KnetMessage
        )
        self.odd: Callable[[Values, int, list[Event]], None] = (
            read.odd_Knet2010Datagram if legacy else read.odd_KnetDatagram
        )
        self.controls = CONTROLS[dialect]
        self.control = bytes(identifier in self.controls for identifier in range(_SHORT))
        """Whether a message ID of one byte is that of a control message."""
        self.names = [message_type(identifier, dialect) for identifier in range(_SHORT)]
        """Type of each message ID of one byte."""
        self.first_id = FIRST_IDS[dialect]


READERS: Final = {dialect: Reader(dialect) for dialect in DIALECTS}
"""Dialect -> how to read it."""


class _Found:
    """What the messages of a datagram have given so far."""

    __slots__ = ("asked", "base", "direction", "events", "hints", "how", "number", "ordered",
                 "parts")  # fmt: skip

    def __init__(
        self, how: Reader, number: int, base: int | None, direction: int, hints: Hints
    ) -> None:
        self.how = how
        self.number = number
        self.base = base or 0
        self.direction = direction
        self.hints = hints
        self.events: list[Event] = []
        self.parts: list[Event] = []
        self.asked = 0
        """Messages of the application with the InOrder bit."""
        self.ordered: list[int] = []
        """Reliable numbers of those that have one."""

    def fragment(self, message: Values) -> None:
        """Take a fragment."""
        kind = _part(message, self.base, self.how, self.parts)
        # A fragment of 2010 carries the number 0 of a message that was never queued: all have it.
        self._add(kind, None if self.how.legacy else message[5], message[9])

    def whole(self, message: Values) -> None:
        """Take a message that is no fragment."""
        _, _, in_order, is_reliable, _, delta, _, _, _, content, _ = message
        identifier = content[0]
        if identifier > 0x7F:  # noqa: PLR2004 - the number goes on
            identifier = _READ_ID(content, 0, len(content))[0]
        kind = kind_of(identifier, self.how)
        self._add(kind, delta if is_reliable else None, content)
        if self.how.legacy and is_reliable and self.base + delta == 0:
            # A message with the number of all fragments.
            self.parts.append((Ev.PART, None, None, 0, SHARED, b""))
        if identifier in self.how.controls:
            numbers = (self.number, self.base + delta if is_reliable else None)
            control(kind, content, numbers, self.direction, self.hints, self.events)
        elif in_order:
            self.asked += 1
            if is_reliable:
                self.ordered.append(self.base + delta)

    def _add(self, kind: str, delta: int | None, content: bytes) -> None:
        if delta is None:
            self.events.append((Ev.MESSAGE, kind))
            return
        self.events.append((Ev.UNIT, kind, "reliable", self.base + delta, None, content))


def datagram(
    values: Values, payload: bytes, direction: int, hints: Hints, how: Reader
) -> list[Event]:
    """Return the events of a datagram from the values of its reader; PARTs stand last."""
    _, reliable, low, high, base, messages, _ = values
    number = high << 6 | low
    found = _Found(how, number, base, direction, hints)
    events = found.events
    events.append(
        (Ev.UNIT, None, "datagram", number, None, payload)
        if reliable
        else (Ev.PLAIN_UNIT, None, "datagram", number, payload)
    )
    for message in messages:
        # In 2010 what is not reliable is no fragment, but for a first one.
        if message[0] or (message[1] and (message[3] or not how.legacy)):
            found.fragment(message)
        else:
            found.whole(message)
    if found.asked:
        events.insert(1, (Ev.ORDERED, "reliable", found.ordered, found.asked))
    if number == how.first_id and direction:
        _opening(events)
    how.odd(values, direction, events)
    fault = size_fault(len(payload))
    if fault is not None:
        events.append((Ev.NOTE, *fault))
    return events + found.parts


def parts_last(events: list[Event]) -> list[Event]:
    """Return the same events with the PARTs behind all others, where they are looked for."""
    parts = [event for event in events if event[0] == Ev.PART]
    return [*(event for event in events if event[0] != Ev.PART), *parts] if parts else events


def kind_of(identifier: int, how: Reader) -> str:
    """Return the type of a message ID."""
    return how.names[identifier] if identifier < _SHORT else message_type(identifier, how.dialect)


def _part(message: Values, base: int, how: Reader, parts: list[Event]) -> str:
    """Note a fragment for the assembler; return the type under which it counts."""
    start, _, _, is_reliable, _, delta, count, transfer, index, content, _ = message
    number = (SHARED if how.legacy else base + delta) if is_reliable else None
    if not start or count >= _FEWEST:
        parts.append((Ev.PART, transfer, None if start else index, count, number, content))
    if not start:
        return "fragment"
    identifier = _READ_ID(content, 0, len(content))[0]
    return f"{kind_of(identifier, how)}(first fragment)"


# -- control messages ------------------------------------------------------------------------------


def control(
    kind: str, content: bytes, numbers: tuple[int, int | None], direction: int, hints: Hints,
    events: list[Event],
) -> None:  # fmt: skip
    """Add what a control message means; `numbers`: PacketID and reliable number."""
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
        if size - identifier_end != _PING_OCTETS - 1:
            read.odd_KnetWrongSize((), direction, events)
            return
        events.append((Ev.PROBE if kind == PING_REQUEST else Ev.REPLY, "ping", content[-1]))
    elif kind == FLOW_CONTROL:
        _flow_control(content, direction, hints, events)
    else:
        _end(kind, content, numbers, direction, hints, events)


def _flow_control(content: bytes, direction: int, hints: Hints, events: list[Event]) -> None:
    """Add what a FlowControlRequest means, or what it is in the dialect that has another message of
    this number: the PacketAck of 2010, the PingReply of 2.x. Sections 1 and 4.1.
    """
    dialect = hints.dialects[direction]
    legacy = dialect == LEGACY
    form = len(content) == _PING_OCTETS if legacy else (
        len(content) == _ACK_CONTENT and not content[3] & 0xC0
    )
    state: DecoderState = hints.extra or DecoderState()
    if not form or dialect == SPECIFICATION:
        flow_control(content, dialect, events)
        return
    seen = list(state.contradictions)
    seen[direction] += 1
    dialects = list(hints.dialects)
    if seen[direction] < _CONTRARY:
        flow_control(content, dialect, events)
    else:
        dialects[direction] = "knet-2.x" if legacy else LEGACY
        seen[direction] = 0
        text = f"reads as {dialects[direction]} from here on, not as {dialect}"
        events.append((Ev.NOTE, "knet-dialect-revised", text))
    learnt = state.replace(contradictions=(seen[0], seen[1]))
    events.append((Ev.HINTS, Hints((dialects[0], dialects[1]), learnt)))


def flow_control(content: bytes, dialect: str, events: list[Event]) -> None:
    """Add what a FlowControlRequest asks for.

    No library obeys it, and Urho3D's hands it to the application; the published document does.
    Section 6.8.
    """
    if dialect == "knet-urho3d":
        return
    after = _READ_ID(content, 0, len(content))[1]
    if len(content) - after == _RATE_OCTETS:
        per_second = int.from_bytes(content[after:], "little")
        events.append((Ev.RATE, per_second, dialect == SPECIFICATION))
    else:
        read.odd_KnetWrongSize((), None, events)


def _end(
    kind: str, content: bytes, numbers: tuple[int, int | None], direction: int, hints: Hints,
    events: list[Event],
) -> None:  # fmt: skip
    """Add what Disconnect and DisconnectAck mean."""
    read.odd_KnetDisconnect((content[_ID_OCTETS:],), direction, events)
    state: DecoderState = hints.extra or DecoderState()
    if kind == DISCONNECT:
        learnt = state.replace(Phase.DISCONNECTING, (direction, *numbers))
        events.append((Ev.STATE, "disconnect", DISCONNECT))
    else:
        closing = state.disconnect
        if closing is None or closing[0] == direction:
            text = "DisconnectAck without Disconnect"
            events.append((Ev.NOTE, "knet-disconnect-ack-alone", text))
        elif closing[2] is not None:
            # Section 5.4: no PacketAck ever names the datagram of a Disconnect.
            events.append((Ev.ACK, "reliable", closing[2], 0))
        learnt = state.replace(Phase.CLOSED)
        events.append((Ev.STATE, "disconnect-ack", DISCONNECT_ACK))
    if learnt != state:
        events.append((Ev.HINTS, Hints(hints.dialects, learnt)))


def _opening(events: list[Event]) -> None:
    """Say that the server may begin anew where its first datagram asks ping 1. Section 5.6."""
    if any(event[0] == Ev.PROBE and event[2] == 1 for event in events):
        events.insert(0, (Ev.RESTART, "datagram"))


# -- what is malformed ----------------------------------------------------------------------------


def broken(payload: bytes, direction: int, hints: Hints) -> list[Event]:
    """Return the events of a malformed datagram: what comes before the fault counts."""
    if not payload:
        note: Event = (Ev.NOTE, *EMPTY_DATAGRAM)
        return [note, (Ev.STATE, "empty", None), *_deafened(direction, hints)]
    how = READERS[hints.dialects[direction]]
    size = len(payload)
    header = None
    for end in (3, 5, 7):
        if end <= size:
            header = header or how.datagram(payload, 0, end)
    if header is None:
        return _headless(payload, direction, hints)
    place, messages = header[-1], []
    # A reliable header that took no message may have read one into its end: begin behind the base.
    while (message := how.message(payload, place, size)) is not None:
        messages.append(message)
        place = message[-1]
    values = (*header[:5], messages, place)
    events = datagram(values, payload, direction, hints, how)
    kept = [event for event in events if event[0] != Ev.NOTE or event[1] != "knet-no-messages"]
    kept.append((Ev.NOTE, fault(payload[place:]), f"malformed at byte {place}"))
    # Receivers of 2010 catch the exception, and read on with the next datagram.
    closes = hints.dialects[1 - direction] != LEGACY
    if closes and not any(event[0] == Ev.HINTS for event in kept):
        kept += _deafened(direction, hints)
    return parts_last(kept)


def _deafened(direction: int, hints: Hints) -> list[Event]:
    """Return the hints after what makes a client read nothing more. Sections 5.6 and 12."""
    state = hints.extra
    if not direction or state is None or state.phase not in _LIVE:
        return []
    return [(Ev.HINTS, Hints(hints.dialects, state.replace(Phase.STOPPED_READING)))]


def _headless(payload: bytes, direction: int, hints: Hints) -> list[Event]:
    """Return the events of a datagram whose header is cut."""
    note: Event = (Ev.NOTE, *header_fault(len(payload)))
    if len(payload) < 3:  # noqa: PLR2004 - the header
        return [note]
    head = bytes([payload[0] & 0xBF]) + payload[1:3]
    values: Values = READERS[hints.dialects[direction]].datagram(head, 0, 3) or ()
    number = values[3] << 6 | values[2]
    return [(Ev.UNIT, None, "datagram", number, None, payload), note]


def fault(rest: bytes) -> str:
    """Return the code of what is wrong with the message at the start of `rest`."""
    if len(rest) < 2:  # noqa: PLR2004 - the message header
        return "truncated"
    length = (rest[1] & 7) << 8 | rest[0]
    if length == 0:
        return "knet-zero-content"
    return "length-beyond-end" if length + 2 > len(rest) else "truncated"
