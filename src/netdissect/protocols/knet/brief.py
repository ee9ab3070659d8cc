"""The commonest kNet datagrams read by hand, for flows that nobody watches."""

from __future__ import annotations

from typing import Final

from netdissect.model.claims import Hints
from netdissect.model.events import Ev, Event
from netdissect.model.native import i64
from netdissect.protocols.knet.datagrams import READERS, Reader
from netdissect.protocols.knet.phases import Phase
from netdissect.protocols.knet.scan import scan
from netdissect.wire.knet import LARGEST_SENT, PACKET_ACK, PING_REPLY, PING_REQUEST

__all__ = ["brief"]

_PINGS: Final = {PING_REQUEST: Ev.PROBE, PING_REPLY: Ev.REPLY}
_OPEN: Final = Phase.OPEN
_ACK_OCTETS: Final = 8
_PING_OCTETS: Final = 2


def brief(payload: bytes, direction: int, hints: Hints) -> list[Event]:
    """Return the events of one datagram, those of consecutive reliable messages as one RUN.

    The commonest datagrams (whole messages, one-byte numbers, nothing odd) are read here by hand:
    the derived reader makes a call and a tuple per message, which costs more than the rest. What
    it cannot take it leaves to `scan`. A test holds the two together on every datagram.
    """
    if hints.extra is None or hints.extra.phase != _OPEN:
        return scan(payload, direction, hints)
    size = len(payload)
    if not 5 <= size <= LARGEST_SENT:  # noqa: PLR2004 - a header and a message
        return scan(payload, direction, hints)
    how = READERS[hints.dialects[direction]]
    head = payload[0]
    place = 3
    base = 0
    if head & 0x40:
        base = payload[3] | payload[4] << 8
        place = 5
    number = head & 0x3F | payload[1] << 6 | payload[2] << 14
    if base > 0x7FFF or (direction and number == how.first_id):  # noqa: PLR2004 - it goes on
        return scan(payload, direction, hints)
    found = _messages(payload, place, size, how)
    if found is None:
        return scan(payload, direction, hints)
    delta, types, events, asked, ordered = found
    # Number 0 is that of all fragments of 2010.
    if bool(types) != bool(head & 0x40) or (how.legacy and types and not base + delta):
        return scan(payload, direction, hints)
    if types:
        unit: Event = (Ev.UNIT, None, "datagram", number, None, payload)
        events.append((Ev.RUN, "reliable", base + delta, types))
    else:
        unit = (Ev.PLAIN_UNIT, None, "datagram", number, payload)
    if asked:
        events.insert(0, (Ev.ORDERED, "reliable", [base + delta for delta in ordered], asked))
    return [unit, *events]


def _messages(  # noqa: C901, PLR0911, PLR0912 - one loop; calls would cost more than what it does
    payload: bytes, place: i64, size: i64, how: Reader
) -> tuple[int, list[str], list[Event], int, list[int]] | None:
    """Return (first delta, types of the reliable ones, events of the others, how many ask for
    order, deltas of those).

    None where a message is not of the commonest form.
    """
    types: list[str] = []
    events: list[Event] = []
    ordered: list[int] = []
    # Machine integers: compiled, a byte is read without making an object.
    first: i64 = 0
    asked: i64 = 0
    names, controls = how.short, how.control
    try:
        while place < size:
            flags: i64 = payload[place + 1]
            start: i64 = place + 2
            after: i64 = start + ((flags & 7) << 8 | payload[place])
            if flags & 0xC8:  # a fragment, or the unused bit
                return None
            if flags & 0x10:
                delta: i64 = payload[start]
                start += 1
                after += 1
                if not types:
                    first = delta
                if delta > 0x7F or delta != first + len(types):  # noqa: PLR2004 - it goes on
                    return None
                identifier: i64 = payload[start]
                if identifier > 0x7F or controls[identifier]:  # noqa: PLR2004
                    return None
                kind = names[identifier]
                if not kind:
                    return None
                types.append(kind)
                if flags & 0x20:
                    asked += 1
                    ordered.append(delta)
            else:
                identifier = payload[start]
                if identifier > 0x7F:  # noqa: PLR2004 - it goes on
                    return None
                kind = names[identifier]
                if not kind:
                    return None
                events.append((Ev.MESSAGE, kind))
                if not controls[identifier]:
                    asked += flags >> 5
                elif not _plain_control(kind, payload, start, after, events):
                    return None
            if after <= start:
                return None
            place = after
    except IndexError:
        return None
    return (int(first), types, events, int(asked), ordered) if place == size else None


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
