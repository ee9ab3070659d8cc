"""The scanner of kNet: reads the most frequent datagrams by hand."""

from __future__ import annotations

from typing import Final

from netdissect.model.claims import Hints
from netdissect.model.events import Ev, Event
from netdissect.model.native import i64, read_i64_le
from netdissect.model.sinks import EventSink
from netdissect.protocols.knet.datagrams import READERS, Reader, type_of
from netdissect.protocols.knet.learning import Candidate, learn
from netdissect.protocols.knet.scan import scan
from netdissect.protocols.knet.state import DecoderState, Phase
from netdissect.protocols.scanner import Scanner
from netdissect.wire.knet import (
    CONTROLS,
    CURRENT,
    LARGEST_SENT,
    LEGACY,
    MIN_FRAGMENTS,
    PACKET_ACK,
    PING_REPLY,
    PING_REQUEST,
    RELIABLE_BASE,
    SPECIFICATION,
    UNDECIDED,
)

_IDENTIFYING: Final = Phase.IDENTIFYING
_OPEN: Final = Phase.OPEN
_ACK_OCTETS: Final = 8
"""Size of a PacketAck with its message ID, bytes."""
_PING_OCTETS: Final = 2
"""Size of a ping or its reply with the message ID, bytes."""
_UNUSED: Final = 0x08
_RELIABLE: Final = 0x10
_IN_ORDER: Final = 0x20
_START: Final = 0x80
_FRAGMENT: Final = 0xC0
"""Message flags, in the byte after the low byte of the length. `_START` marks a first fragment,
either bit of `_FRAGMENT` any fragment.
"""
_LAST_CONTROL: Final = max(id_ for id_ in CONTROLS[CURRENT] if id_ < 0x80)  # noqa: PLR2004
"""Last message ID of a control message with one byte."""
_MAX_SHORT: Final = 0x7F
"""Largest integer of one byte; larger ones continue in the next byte."""
_NONE: Final = -1

_TYPES: Final = tuple(
    dict.fromkeys(
        READERS[CURRENT].types + READERS[LEGACY].types + READERS[UNDECIDED].types
    )
)
_DATAGRAM: Final = 0
_MESSAGES: Final = 1
_SPACES: Final = ("datagram", "reliable")


class _Form:
    """The message IDs of one byte in a dialect."""

    __slots__ = ("ack", "control", "indices", "ping", "reader", "reply")

    def __init__(self, reader: Reader) -> None:
        self.reader = reader
        self.control = reader.control
        indices = {name: index for index, name in enumerate(_TYPES)}
        self.indices = bytes(indices[name] for name in reader.types)
        """Message ID -> index in `_TYPES`."""
        numbers = {name: number for number, name in reader.controls.items()}
        self.ack: i64 = numbers.get(PACKET_ACK, _NONE)
        self.ping: i64 = numbers.get(PING_REQUEST, _NONE)
        self.reply: i64 = numbers.get(PING_REPLY, _NONE)
        """Message IDs of control messages."""


_FORMS: Final = {dialect: _Form(reader) for dialect, reader in READERS.items()}


class KnetScanner(Scanner):
    """Reads the most frequent datagrams: whole messages and fragments without any fault.

    It makes two passes over a datagram, the first to check its form, the second to report it.
    Consecutive reliable messages are reported as one RUN. The derived reader would cost more than
    everything else, because it makes a call and a tuple per message. All other datagrams are left
    to `scan`. A test compares the two on every datagram.
    """

    __slots__ = ("_connect", "_count", "_direction", "_first", "_form", "_hints", "_identifying",
                 "_in_order", "_knows_first", "_parts", "_ready", "_same", "_undecided",
                 "_uniform")  # fmt: skip

    def __init__(self, direction: int) -> None:
        super().__init__(_TYPES, _SPACES)
        self._direction = direction
        self._hints: Hints | None = None
        """Hints from which the following attributes were set."""
        self._form = _FORMS[CURRENT]
        self._ready = False
        """Whether the connection is in a phase in which this scanner can read datagrams."""
        self._identifying = False
        """Whether the application is being found out."""
        self._knows_first = False
        """Whether the client's first message datagram was seen."""
        self._connect: bytes | None = None
        """The client's connect datagram."""
        self._undecided = False
        """Whether control messages may tell the dialect of a direction."""

        # The results of the first pass over a datagram.
        self._first: i64 = 0
        """Delta of the first reliable message."""
        self._count: i64 = 0
        """Number of reliable messages."""
        self._in_order: i64 = 0
        """Number of messages with the InOrder bit."""
        self._parts: i64 = 0
        """Number of fragments."""
        self._same: i64 = _NONE
        """Message ID of all reliable messages; -1 if they differ or take more than one byte."""
        self._uniform = False
        """Whether the datagram holds nothing else, so that one RUN reports it completely."""

    def scan(self, sink: EventSink, payload: bytes, hints: Hints) -> list[Event] | None:
        """Report the events of a frequent datagram, return those of any other."""
        if hints is not self._hints:
            self._update(hints)
        size: i64 = len(payload)
        known_connect = self._identifying and payload == self._connect
        if not self._ready or size < 5 or size > LARGEST_SENT or known_connect:  # noqa: PLR2004 - header and message
            return scan(payload, self._direction, hints)
        reader = self._form.reader
        head: i64 = payload[0]
        position: i64 = 3
        base: i64 = 0
        if head & RELIABLE_BASE:
            position = 5
            # Eight bytes are read at once, so shorter datagrams are left to `scan`.
            if size < 8:  # noqa: PLR2004
                return scan(payload, self._direction, hints)
            word = read_i64_le(payload, 0)
            base = word >> 24 & 0xFFFF
            if base > 0x7FFF:  # noqa: PLR2004 - it has two more bytes
                base = base & 0x7FFF | (word >> 40 & 0xFFFF) << 15
                position = 7
        low: i64 = payload[1]
        high: i64 = payload[2]
        number = head & 0x3F | low << 6 | high << 14
        may_open = self._direction or (self._identifying and not self._knows_first)
        if (may_open and number <= reader.first_id) or not self._check(payload, position, size):
            return scan(payload, self._direction, hints)
        # In 2010 all fragments share the reliable number 0.
        if (self._count > 0) != (head & RELIABLE_BASE != 0) or (
            reader.legacy and self._count and not base + self._first
        ):
            return scan(payload, self._direction, hints)
        self._begin(sink, payload, number)
        if self._uniform and not self._identifying:
            self._report_run(sink, base)
        else:
            self._report(sink, payload, position, base)
        return None

    def _update(self, hints: Hints) -> None:
        """Set what depends on the hints."""
        dialect = hints.dialects[self._direction]
        state: DecoderState | None = hints.extra
        self._hints, self._form = hints, _FORMS[dialect]
        phase = Phase.START if state is None else state.phase
        self._identifying = phase == _IDENTIFYING and dialect != SPECIFICATION
        silent = state is not None and state.silent[self._direction]
        self._ready = (self._identifying or phase == _OPEN) and not silent
        self._knows_first = state is not None and state.first_checksum is not None
        self._connect = None if state is None or self._direction else state.connect
        self._undecided = UNDECIDED in hints.dialects

    def _check(  # noqa: C901, PLR0911, PLR0912 - calls would cost more than what they do
        self, payload: bytes, position: i64, size: i64
    ) -> bool:
        """Check and count the messages from `position` on: the first pass.

        Return False where one of them is not of the most frequent form.
        """
        form = self._form
        count: i64 = 0
        in_order: i64 = 0
        parts: i64 = 0
        total: i64 = 0
        same: i64 = _NONE
        while position + 2 < size:
            flags: i64 = payload[position + 1]
            low: i64 = payload[position]
            start = position + 2
            after = start + ((flags & 7) << 8 | low)
            if flags & _UNUSED or after == start:
                return False
            if flags & _RELIABLE:
                delta: i64 = payload[start]
                start += 1
                after += 1
                if not count:
                    self._first = delta
                if delta > _MAX_SHORT or delta != self._first + count:
                    return False
                count += 1
            if flags & _FRAGMENT:
                used = _fragment_header(payload, start, size, flags)
                if form.reader.legacy or not flags & _RELIABLE or used < 0:
                    return False
                start += used
                after += used
                parts += 1
            if start >= size or after > size:
                return False
            message_id: i64 = payload[start]
            if flags & _START or not flags & _FRAGMENT:
                if message_id > _MAX_SHORT:
                    # An ID that would fit one byte may be that of a control message.
                    if after < start + 2 or not 0 < payload[start + 1] <= _MAX_SHORT:
                        return False
                elif form.control[message_id]:
                    if flags & (_RELIABLE | _START):
                        return False
                    if message_id == form.ack:
                        # The PacketID in an ack has 22 bits.
                        if after - start != _ACK_OCTETS or payload[start + 3] > 0x3F:  # noqa: PLR2004
                            return False
                    elif message_id not in (form.ping, form.reply) or (
                        after - start != _PING_OCTETS or self._undecided
                    ):
                        return False
                    # Only the application requests an order; control messages have the bit as well.
                    flags = 0
                elif message_id <= _LAST_CONTROL and self._undecided:
                    return False
                if flags & _IN_ORDER and not flags & _FRAGMENT:
                    in_order += 1
            if flags & _RELIABLE and message_id != same:
                same = message_id if count == 1 and message_id <= _MAX_SHORT else _NONE
            total += 1
            position = after
        if parts:
            same = _NONE
        self._count, self._in_order, self._parts, self._same = count, in_order, parts, same
        self._uniform = same >= 0 and count == total and not in_order
        return position == size

    def _report_run(self, sink: EventSink, base: i64) -> None:
        """Report the reliable messages, which all have the same type."""
        type_: i64 = self._form.indices[self._same]
        sink.same_run(type_, _MESSAGES, base + self._first, self._count)

    def _begin(self, sink: EventSink, payload: bytes, number: i64) -> None:
        """Report the datagram itself."""
        if self._parts:
            self.parts = [(Ev.UNIT, None, "datagram", number, None, payload)]
        elif self.parts:
            self.parts = []
        sink.begin()
        if self._count:
            sink.unit(_NONE, _DATAGRAM, number, None, payload)
        else:
            sink.plain_unit(_NONE, _DATAGRAM, number, payload)

    def _report(  # noqa: C901, PLR0912, PLR0915 - as above
        self, sink: EventSink, payload: bytes, position: i64, base: i64
    ) -> None:
        """Report the messages of a datagram, and list its fragments for the assembler."""
        form = self._form
        reader = form.reader
        names = reader.types
        candidates: list[Candidate] | None = [] if self._identifying else None
        same = self._same
        types: list[str] | None = [] if self._count and same < 0 else None
        ordered: list[int] | None = [] if self._in_order else None
        number = base + self._first
        size: i64 = len(payload)
        while position < size:
            flags: i64 = payload[position + 1]
            low: i64 = payload[position]
            start = position + 2
            after = start + ((flags & 7) << 8 | low)
            if flags & _RELIABLE:
                start += 1
                after += 1
            if flags & _FRAGMENT:
                used = _fragment_header(payload, start, size, flags)
                after += used
                self.parts.append(_part(payload, start, start + used, after, number))
                start += used
                if not flags & _START:
                    if types is not None:
                        types.append("fragment")
                    number += 1
                    position = after
                    continue
            message_id: i64 = payload[start]
            content = start + 1
            if message_id > _MAX_SHORT:
                more: i64 = payload[content]
                message_id = message_id & _MAX_SHORT | more << 7
                content += 1
            if flags & _RELIABLE:
                if ordered is not None and flags & (_IN_ORDER | _START) == _IN_ORDER:
                    ordered.append(number)
                if types is not None:
                    is_long = message_id > _MAX_SHORT
                    type_ = type_of(message_id, reader) if is_long else names[message_id]
                    types.append(f"{type_}(first fragment)" if flags & _START else type_)
                number += 1
            elif message_id > _MAX_SHORT:
                sink.event((Ev.MESSAGE, type_of(message_id, reader)))
            else:
                sink.message(form.indices[message_id])
                if form.control[message_id]:
                    self._control(sink, payload, start, message_id)
                    position = after
                    continue
            if candidates is not None:
                candidates.append((message_id, flags & _RELIABLE != 0, payload[content:after]))
            position = after
        if ordered is not None:
            sink.event((Ev.ORDERED, "reliable", ordered, self._in_order))
        if same >= 0:
            self._report_run(sink, base)
        elif types is not None:
            sink.run(_MESSAGES, base + self._first, types)
        if candidates is not None and self._hints is not None:
            learned = learn(candidates, self._direction, self._hints)
            if learned is not self._hints:
                sink.event((Ev.HINTS, learned))

    def _control(self, sink: EventSink, payload: bytes, start: i64, message_id: i64) -> None:
        """Report what a control message means beyond its type."""
        if message_id == self._form.ack:
            word = read_i64_le(payload, start)
            sink.ack(_DATAGRAM, word >> 8 & 0xFFFFFF, word >> 32 & 0xFFFFFFFF)
        else:
            kind = Ev.PROBE if message_id == self._form.ping else Ev.REPLY
            sink.event((kind, "ping", payload[start + 1]))


def _fragment_header(payload: bytes, start: i64, size: i64, flags: i64) -> i64:
    """Return the size of the fragment fields at `start`, bytes; -1 where they are faulty."""
    if start + 3 > size:
        return -1
    first: i64 = payload[start]
    second: i64 = payload[start + 1]
    if flags & _START:
        # Number of fragments, transfer number.
        return 2 if second and MIN_FRAGMENTS <= first <= _MAX_SHORT else -1
    # Transfer number, fragment number.
    if not first:
        return -1
    if second <= _MAX_SHORT:
        return 2
    return 3 if payload[start + 2] <= _MAX_SHORT else -1


def _part(payload: bytes, start: i64, content: i64, after: i64, number: i64) -> Event:
    """Return the PART of a fragment whose fields begin at `start` and whose content is
    payload[content:after].
    """
    flags: i64 = payload[start - 2]
    first, second = payload[start], payload[start + 1]
    octets = payload[content:after]
    if flags & _START:
        return Ev.PART, second, None, first, number, octets
    index = second & _MAX_SHORT | payload[start + 2] << 7 if second > _MAX_SHORT else second
    return Ev.PART, first, index, None, number, octets
