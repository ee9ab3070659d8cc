"""The commonest kNet datagrams read by hand."""

from __future__ import annotations

from typing import Final

from netdissect.model.claims import Hints
from netdissect.model.events import Ev, Event
from netdissect.model.native import i64, read_i64_le
from netdissect.model.sinks import EventSink
from netdissect.protocols.knet.datagrams import READERS, Reader, kind_of
from netdissect.protocols.knet.learning import Heard, learn
from netdissect.protocols.knet.scan import scan
from netdissect.protocols.knet.state import DecoderState, Phase
from netdissect.protocols.scanner import Scanner
from netdissect.wire.knet import (
    LARGEST_SENT,
    LEGACY,
    PACKET_ACK,
    PING_REPLY,
    PING_REQUEST,
    SPECIFICATION,
)

__all__ = ["KnetScanner"]

_IDENTIFYING: Final = Phase.IDENTIFYING
_OPEN: Final = Phase.OPEN
_ACK_OCTETS: Final = 8
_PING_OCTETS: Final = 2
"""Contents of control messages with their message ID."""
_FEWEST: Final = 2
"""Fragments of a transfer at least."""
_UNUSED: Final = 0x08
_RELIABLE: Final = 0x10
_IN_ORDER: Final = 0x20
_FRAGMENT: Final = 0xC0
_START: Final = 0x80
"""Message flags; those of a fragment are of a first one, and of any."""
_LONG: Final = 0x7F
"""Numbers above it go on in the next byte."""
_NONE: Final = -1

_TYPES: Final = tuple(dict.fromkeys(READERS["knet-2.x"].names + READERS[LEGACY].names))
_DATAGRAM: Final = 0
_MESSAGES: Final = 1
_SPACES: Final = ("datagram", "reliable")


class _Form:
    """What a dialect's message IDs of one byte mean, as numbers."""

    __slots__ = ("ack", "alone", "asks", "control", "how", "places", "replies")

    def __init__(self, how: Reader) -> None:
        self.how = how
        self.control = how.control
        places = {name: place for place, name in enumerate(_TYPES)}
        self.places = bytes(places[name] for name in how.names)
        """Place in `_TYPES` of each."""
        self.alone = [[name] for name in how.names]
        """The types of a run of one, as most are. Shared, as events are never changed."""
        self.ack: i64 = how.names.index(PACKET_ACK)
        self.asks: i64 = how.names.index(PING_REQUEST)
        self.replies: i64 = how.names.index(PING_REPLY)


_FORMS: Final = {dialect: _Form(how) for dialect, how in READERS.items()}


class KnetScanner(Scanner):
    """Reads the commonest datagrams (whole messages and fragments, nothing odd) itself, those of
    consecutive reliable messages as one RUN: first to look whether it can, then to tell. The
    derived reader makes a call and a tuple per message, which costs more than the rest. What it
    cannot take it leaves to `scan`. A test holds the two together on every datagram.
    """

    __slots__ = ("_alike", "_asked", "_count", "_direction", "_first", "_form", "_hints",
                 "_learning", "_opened", "_parts", "_same", "_usual")  # fmt: skip

    def __init__(self, direction: int) -> None:
        super().__init__(_TYPES, _SPACES)
        self._direction = direction
        self._hints: Hints | None = None
        """What the following was taken from."""
        self._form = _FORMS["knet-2.x"]
        self._usual = self._learning = self._opened = False
        """Whether the position in the connection matters, whether the application is looked for,
        and whether the client's first message datagram is known.
        """
        self._first: i64 = 0
        """Delta of the first reliable message of the datagram at hand, ..."""
        self._count: i64 = 0
        """... how many of them there are, ..."""
        self._asked: i64 = 0
        """... how many messages ask for order, ..."""
        self._parts: i64 = 0
        """... how many are fragments, ..."""
        self._same: i64 = _NONE
        """... the message ID of all reliable messages, -1 where they have several, or one of more
        than a byte, ...
        """
        self._alike = False
        """... and whether there are no others, and that is all there is to tell of them."""

    def scan(self, sink: EventSink, payload: bytes, hints: Hints) -> list[Event] | None:
        """Tell the events of a datagram, or return those of one that is not usual."""
        if hints is not self._hints:
            self._take(hints)
        size: i64 = len(payload)
        # A header and a message at least.
        if not self._usual or size < 5 or size > LARGEST_SENT:  # noqa: PLR2004
            return scan(payload, self._direction, hints)
        how = self._form.how
        head: i64 = payload[0]
        place: i64 = 3
        base: i64 = 0
        if head & 0x40:
            place = 5
            # Eight bytes are read at once: of fewer `scan` takes care.
            base = read_i64_le(payload, 0) >> 24 & 0xFFFF if size > 7 else 0xFFFF  # noqa: PLR2004
            if base > 0x7FFF:  # noqa: PLR2004 - it goes on
                if size < 8:  # noqa: PLR2004 - no message is behind it
                    return scan(payload, self._direction, hints)
                base = base & 0x7FFF | (read_i64_le(payload, 0) >> 40 & 0xFFFF) << 15
                place = 7
        low: i64 = payload[1]
        high: i64 = payload[2]
        number = head & 0x3F | low << 6 | high << 14
        opens = self._direction or (self._learning and not self._opened)
        if (opens and number == how.first_id) or not self._fits(payload, place, size):
            return scan(payload, self._direction, hints)
        # Number 0 is that of all fragments of 2010.
        if (self._count > 0) != (head & 0x40 != 0) or (
            how.legacy and self._count and not base + self._first
        ):
            return scan(payload, self._direction, hints)
        self._begin(sink, payload, number)
        if self._alike and not self._learning:
            sink.run(_MESSAGES, base + self._first, self._kinds())
        else:
            self._tell(sink, payload, place, base)
        return None

    def _take(self, hints: Hints) -> None:
        """Take hints that are new."""
        dialect = hints.dialects[self._direction]
        state: DecoderState | None = hints.extra
        self._hints, self._form = hints, _FORMS[dialect]
        phase = Phase.START if state is None else state.phase
        self._learning = phase == _IDENTIFYING and dialect != SPECIFICATION
        self._usual = self._learning or phase == _OPEN
        self._opened = state is not None and state.first_checksum is not None

    def _fits(  # noqa: C901, PLR0911, PLR0912 - calls would cost more than what they do
        self, payload: bytes, place: i64, size: i64
    ) -> bool:
        """Count what messages there are; False where one is not of the commonest form."""
        form = self._form
        count: i64 = 0
        asked: i64 = 0
        parts: i64 = 0
        total: i64 = 0
        same: i64 = _NONE
        while place + 2 < size:
            flags: i64 = payload[place + 1]
            low: i64 = payload[place]
            start = place + 2
            after = start + ((flags & 7) << 8 | low)
            if flags & _UNUSED or after == start:
                return False
            if flags & _RELIABLE:
                delta: i64 = payload[start]
                start += 1
                after += 1
                if not count:
                    self._first = delta
                if delta > _LONG or delta != self._first + count:
                    return False
                count += 1
            if flags & _FRAGMENT:
                used = _before_fragment(payload, start, size, flags)
                if form.how.legacy or not flags & _RELIABLE or used < 0:
                    return False
                start += used
                after += used
                parts += 1
            if start >= size or after > size:
                return False
            identifier: i64 = payload[start]
            if flags & _START or not flags & _FRAGMENT:
                if identifier > _LONG:
                    if after < start + 2 or payload[start + 1] > _LONG:
                        return False
                elif form.control[identifier]:
                    if flags & (_RELIABLE | _START):
                        return False
                    if identifier == form.ack:
                        # Two bits of its base are always clear.
                        if after - start != _ACK_OCTETS or payload[start + 3] > 0x3F:  # noqa: PLR2004 - 22 bits
                            return False
                    elif identifier not in (form.asks, form.replies) or (
                        after - start != _PING_OCTETS
                    ):
                        return False
                    flags = 0
                if flags & _IN_ORDER and not flags & _FRAGMENT:
                    asked += 1
            if flags & _RELIABLE and identifier != same:
                same = identifier if count == 1 and identifier <= _LONG else _NONE
            total += 1
            place = after
        self._count, self._asked, self._parts = count, asked, parts
        self._same = _NONE if parts else same
        self._alike = self._same >= 0 and count == total and not asked
        return place == size

    def _kinds(self) -> list[str]:
        """Return the types of the reliable messages, which are all of one; not to be changed."""
        form = self._form
        if self._count == 1:
            return form.alone[self._same]
        return [form.how.names[self._same]] * int(self._count)

    def _begin(self, sink: EventSink, payload: bytes, number: i64) -> None:
        """Tell of the datagram itself."""
        if self._parts:
            self.parts = [(Ev.UNIT, None, "datagram", number, None, payload)]
        elif self.parts:
            self.parts = []
        sink.begin()
        if self._count:
            sink.unit(_NONE, _DATAGRAM, number, None, payload)
        else:
            sink.plain_unit(_NONE, _DATAGRAM, number, payload)

    def _tell(  # noqa: C901, PLR0912, PLR0915 - as above
        self, sink: EventSink, payload: bytes, place: i64, base: i64
    ) -> None:
        """Tell what stands in a datagram, and list what of it is for the assembler."""
        form = self._form
        how = form.how
        names = how.names
        heard: list[Heard] | None = [] if self._learning else None
        same = self._same
        types: list[str] | None = None
        if self._count:
            types = self._kinds() if same >= 0 else []
        ordered: list[int] | None = [] if self._asked else None
        number = base + self._first
        size: i64 = len(payload)
        while place < size:
            flags: i64 = payload[place + 1]
            low: i64 = payload[place]
            start = place + 2
            after = start + ((flags & 7) << 8 | low)
            if flags & _RELIABLE:
                start += 1
                after += 1
            if flags & _FRAGMENT:
                used = _before_fragment(payload, start, size, flags)
                after += used
                self.parts.append(_part(payload, start, start + used, after, number))
                start += used
                if not flags & _START:
                    if types is not None:
                        types.append("fragment")
                    number += 1
                    place = after
                    continue
            identifier: i64 = payload[start]
            behind = start + 1
            if identifier > _LONG:
                more: i64 = payload[behind]
                identifier = identifier & _LONG | more << 7
                behind += 1
            if flags & _RELIABLE:
                if ordered is not None and flags & (_IN_ORDER | _START) == _IN_ORDER:
                    ordered.append(number)
                if same < 0 and types is not None:
                    long = identifier > _LONG
                    kind = kind_of(identifier, how) if long else names[identifier]
                    types.append(f"{kind}(first fragment)" if flags & _START else kind)
                number += 1
            elif identifier > _LONG:
                sink.event((Ev.MESSAGE, kind_of(identifier, how)))
            else:
                sink.message(form.places[identifier])
                if form.control[identifier]:
                    self._control(sink, payload, start, identifier)
                    place = after
                    continue
            if heard is not None:
                heard.append((identifier, flags & _RELIABLE != 0, payload[behind:after]))
            place = after
        if ordered is not None:
            sink.event((Ev.ORDERED, "reliable", ordered, self._asked))
        if types is not None:
            sink.run(_MESSAGES, base + self._first, types)
        if heard is not None and self._hints is not None:
            learnt = learn(heard, self._direction, self._hints)
            if learnt is not self._hints:
                sink.event((Ev.HINTS, learnt))

    def _control(self, sink: EventSink, payload: bytes, start: i64, identifier: i64) -> None:
        """Tell what a control message of the usual form means."""
        if identifier == self._form.ack:
            word = read_i64_le(payload, start)
            sink.ack(_DATAGRAM, word >> 8 & 0xFFFFFF, word >> 32 & 0xFFFFFFFF)
        else:
            kind = Ev.PROBE if identifier == self._form.asks else Ev.REPLY
            sink.event((kind, "ping", payload[start + 1]))


def _before_fragment(payload: bytes, start: i64, size: i64, flags: i64) -> i64:
    """Return how many bytes tell of a fragment, from `start` on; -1 where they are odd."""
    if start + 3 > size:
        return -1
    first: i64 = payload[start]
    second: i64 = payload[start + 1]
    if flags & _START:
        # How many there are, and the transfer's number.
        return 2 if second and _FEWEST <= first <= _LONG else -1
    if not first:
        return -1
    if second <= _LONG:
        return 2
    return 3 if payload[start + 2] <= _LONG else -1


def _part(payload: bytes, start: i64, content: i64, after: i64, number: i64) -> Event:
    """Return the PART that a fragment is, whose own bytes lie between `content` and `after`."""
    flags: i64 = payload[start - 2]
    first, second = payload[start], payload[start + 1]
    octets = payload[content:after]
    if flags & _START:
        return Ev.PART, second, None, first, number, octets
    index = second & _LONG | payload[start + 2] << 7 if second > _LONG else second
    return Ev.PART, first, index, None, number, octets
