"""The commonest kNet datagrams read by hand, for flows that nobody watches."""

from __future__ import annotations

from typing import Final

from netdissect.model.claims import Hints
from netdissect.model.events import Ev, Event
from netdissect.model.native import i64
from netdissect.protocols.knet.datagrams import READERS, Reader, kind_of
from netdissect.protocols.knet.learning import Heard, learn
from netdissect.protocols.knet.phases import Phase, Progress
from netdissect.protocols.knet.scan import scan
from netdissect.wire.knet import LARGEST_SENT, PACKET_ACK, PING_REPLY, PING_REQUEST, SPECIFICATION

__all__ = ["brief"]

_PINGS: Final = {PING_REQUEST: Ev.PROBE, PING_REPLY: Ev.REPLY}
_LEARNING: Final = Phase.LEARNING
_OPEN: Final = Phase.OPEN
_ACK_OCTETS: Final = 8
_PING_OCTETS: Final = 2
_FEWEST: Final = 2
"""Fragments of a transfer at least."""
_START: Final = 0x80
_FRAGMENT: Final = 0xC0
"""Message flags: of a first fragment, of any; bit 3 is unused."""
_LONG: Final = 0x7F
"""Numbers above it go on in the next byte."""


def brief(  # noqa: C901, PLR0911, PLR0912 - calls would cost more than what they do
    payload: bytes, direction: int, hints: Hints
) -> list[Event]:
    """Return the events of one datagram, those of consecutive reliable messages as one RUN.

    The commonest datagrams (whole messages and fragments, one-byte numbers, nothing odd) are read
    here by hand: the derived reader makes a call and a tuple per message, which costs more than the
    rest. What it cannot take it leaves to `scan`. A test holds the two together on every datagram.
    """
    progress: Progress | None = hints.extra
    if progress is None:
        return scan(payload, direction, hints)
    phase, size = progress.phase, len(payload)
    dialect = hints.dialects[direction]
    learning = phase == _LEARNING and dialect != SPECIFICATION
    # A header and a message at least.
    if not (learning or phase == _OPEN) or not 5 <= size <= LARGEST_SENT:  # noqa: PLR2004
        return scan(payload, direction, hints)
    how = READERS[dialect]
    head = payload[0]
    place = 3
    base = 0
    if head & 0x40:
        base = payload[3] | payload[4] << 8
        place = 5
        if base > 0x7FFF:  # noqa: PLR2004 - it goes on
            if size < 8:  # noqa: PLR2004 - no message is behind it
                return scan(payload, direction, hints)
            base = base & 0x7FFF | payload[5] << 15 | payload[6] << 23
            place = 7
    number = head & 0x3F | payload[1] << 6 | payload[2] << 14
    if number == how.first_id and (direction or (learning and progress.opener is None)):
        return scan(payload, direction, hints)
    found = _Found(how, base, learning=learning)
    if not found.messages(payload, place, size):
        return scan(payload, direction, hints)
    types = found.types
    # Number 0 is that of all fragments of 2010.
    if bool(types) != bool(head & 0x40) or (how.legacy and types and not base + found.first):
        return scan(payload, direction, hints)
    if types:
        events: list[Event] = [(Ev.UNIT, None, "datagram", number, None, payload)]
    else:
        events = [(Ev.PLAIN_UNIT, None, "datagram", number, payload)]
    if found.asked:
        events.append((Ev.ORDERED, "reliable", found.ordered or [], found.asked))
    events += found.events
    if types:
        events.append((Ev.RUN, "reliable", base + found.first, types))
    if found.heard is not None:
        learnt = learn(found.heard, direction, hints)
        if learnt is not hints:
            events.append((Ev.HINTS, learnt))
    if found.parts is not None:
        events += found.parts
    return events


class _Found:
    """What the messages of a datagram of the commonest form have given so far."""

    __slots__ = ("asked", "base", "events", "first", "heard", "how", "ordered", "parts",
                 "types")  # fmt: skip

    def __init__(self, how: Reader, base: int, *, learning: bool) -> None:
        self.how = how
        self.base = base
        self.first: i64 = 0
        """Delta of the first reliable message."""
        self.types: list[str] = []
        """Types of the reliable ones."""
        self.events: list[Event] = []
        """Events of the others."""
        self.asked: i64 = 0
        """How many ask for order ..."""
        self.ordered: list[int] | None = None
        """... and the numbers of those that have one."""
        self.parts: list[Event] | None = None
        self.heard: list[Heard] | None = [] if learning else None
        """What tells which application speaks, while that is not known."""

    def messages(  # noqa: C901, PLR0911, PLR0912, PLR0915 - one loop, as above
        self, payload: bytes, place: i64, size: i64
    ) -> bool:
        """Take all messages; False where one is not of the commonest form."""
        how, types = self.how, self.types
        said, controls = how.said, how.control
        count: i64 = 0
        try:
            while place < size:
                flags: i64 = payload[place + 1]
                start: i64 = place + 2
                after: i64 = start + ((flags & 7) << 8 | payload[place])
                if flags & 8:  # the unused bit
                    return False
                if flags & 0x10:
                    delta: i64 = payload[start]
                    start += 1
                    after += 1
                    if not count:
                        self.first = delta
                    if delta > _LONG or delta != self.first + count:
                        return False
                    count += 1
                    if flags & _FRAGMENT:
                        place = self._fragment(payload, start, after, flags, delta)
                        if place < 0:
                            return False
                        continue
                elif flags & _FRAGMENT:
                    return False
                identifier: i64 = payload[start]
                if identifier > _LONG:
                    identifier = _long(payload, start)
                    if identifier < 0:
                        return False
                    event: Event = (Ev.MESSAGE, kind_of(identifier, how))
                    control = False
                else:
                    event = said[identifier]
                    control = bool(controls[identifier])
                    if not event[1]:
                        kind_of(identifier, how)
                        event = said[identifier]
                if after <= start:
                    return False
                if flags & 0x10:
                    if control:
                        return False
                    types.append(event[1])
                    if flags & 0x20:
                        self.asked += 1
                        if self.ordered is None:
                            self.ordered = []
                        self.ordered.append(self.base + delta)
                else:
                    self.events.append(event)
                    if not control:
                        self.asked += flags >> 5
                    elif not _plain_control(event[1], payload, start, after, self.events):
                        return False
                if self.heard is not None and not control:
                    at = start + (1 if identifier <= _LONG else 2)
                    self.heard.append((identifier, flags & 0x10 != 0, payload[at:after]))
                place = after
        except IndexError:
            return False
        return place == size

    def _fragment(self, payload: bytes, start: i64, after: i64, flags: i64, delta: i64) -> i64:
        """Take a reliable fragment of 2.x; return where it ends, -1 for one of another form."""
        number = self.base + delta
        if self.how.legacy or after <= start:
            return -1
        if flags & _START:
            count: i64 = payload[start]
            transfer = payload[start + 1]
            start += 2
            after += 2
            identifier: i64 = payload[start]
            if identifier > _LONG:
                identifier = _long(payload, start)
            if count > _LONG or count < _FEWEST or identifier < 0 or not transfer:
                return -1
            content = payload[start:after]
            kind = kind_of(identifier, self.how)
            self.types.append(f"{kind}(first fragment)")
            part: Event = (Ev.PART, transfer, None, count, number, content)
            if self.heard is not None:
                at = 1 if identifier <= _LONG else 2
                self.heard.append((identifier, True, content[at:]))
        else:
            transfer = payload[start]
            index: i64 = payload[start + 1]
            used: i64 = 2
            if index > _LONG:
                index = _long(payload, start + 1)
                used = 3
            start += used
            after += used
            if index < 0 or not transfer:
                return -1
            self.types.append("fragment")
            part = (Ev.PART, transfer, index, None, number, payload[start:after])
        if self.parts is None:
            self.parts = []
        self.parts.append(part)
        return after


def _long(payload: bytes, start: i64) -> i64:
    """Return the number of two bytes at `start`, -1 for one of four."""
    more: i64 = payload[start + 1]
    low: i64 = payload[start]
    return -1 if more > _LONG else low & _LONG | more << 7


def _plain_control(kind: str, payload: bytes, start: i64, after: i64, events: list[Event]) -> bool:
    """Add what a control message of the usual form means; False for any other."""
    if kind == PACKET_ACK:
        base = payload[start + 1] | payload[start + 2] << 8 | payload[start + 3] << 16
        if after - start != _ACK_OCTETS or base >> 22:
            return False
        bits = int.from_bytes(payload[start + 4 : after], "little")
        events.append((Ev.ACK, "datagram", base, bits))
        return True
    if kind not in _PINGS or after - start != _PING_OCTETS:
        return False
    events.append((_PINGS[kind], "ping", payload[start + 1]))
    return True
