"""`scan` of Teeworlds: one datagram to its events.

Headers and chunks are read here by hand: a datagram has two or three of them, and calls of the
derived readers would cost as much as all the rest. Tests hold both to the same answers on every
datagram. Control and connectionless packets, which are rare, go through `control`.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from netdissect.model.claims import Hints
from netdissect.model.events import Ev, Event
from netdissect.protocols.teeworlds import control, facts
from netdissect.protocols.teeworlds.learnt import (
    ACCEPTED,
    ONLINE,
    Learnt,
    learnt_of,
)
from netdissect.protocols.teeworlds.names import (
    D065,
    D07,
    DDNET,
    PAYLOAD_LIMITS,
    message_types,
    uuid_types,
)
from netdissect.wire.huffman import HuffmanError, decompress
from netdissect.wire.varint import TEEWORLDS, VarintError

__all__ = ["scan"]

_MESSAGE, _UNIT, _ACK = int(Ev.MESSAGE), int(Ev.UNIT), int(Ev.ACK)
_PROBE, _REPLY, _STATE = int(Ev.PROBE), int(Ev.REPLY), int(Ev.STATE)
_NOTE, _HINTS, _COUNTER = int(Ev.NOTE), int(Ev.HINTS), int(Ev.COUNTER)
_RESTART, _RESEND_REQUEST = int(Ev.RESTART), int(Ev.RESEND_REQUEST)

_ASKS: Final[Event] = (_RESEND_REQUEST, "vital")
_LATE: Final[Event] = (_COUNTER, "late_inputs", 1)
_MARKED: Final[Event] = (_COUNTER, "resend_marked", 1)
_UNKNOWN: Final = ("game.unknown", "sys.unknown")
_NO_TOKEN: Final = b"\xff\xff\xff\xff"
_UUID_OCTETS = 16

_read = TEEWORLDS.read

INPUT, TIMING, SNAP, SNAP_PART, PING, PONG, FACT = range(1, 8)
"""What further events a message gives, beside being counted."""
_SPECIAL: Final = {
    "sys.input": INPUT,
    "sys.input_timing": TIMING,
    "sys.snap_empty": SNAP,
    "sys.snap_single": SNAP,
    "sys.snap": SNAP_PART,
    "sys.ping": PING,
    "sys.ping_reply": PONG,
    **dict.fromkeys(facts.TYPES, FACT),
}


class _Kind(NamedTuple):
    """What `scan` needs to know about a message by its first number."""

    event: Event
    """Its MESSAGE event; shared, as events are never changed."""
    type: str
    special: int


def _kinds(family: str) -> dict[int, _Kind]:
    return {
        head: _Kind((_MESSAGE, name), name, _SPECIAL.get(name, 0))
        for head, name in message_types(family).items()
    }


class _Format(NamedTuple):
    """What a dialect's packets look like to the loop below."""

    dialect: str
    header: int
    """Octets of the header, without a token that a flag announces."""
    control: int
    compressed: int
    asks: int
    """Masks in octet 0."""
    flagged: int
    """Mask of the flag that announces a token behind the header; 0 = none does."""
    tail: int
    """Octets of a token at the end of the payload."""
    size_bits: int
    """Bits of a chunk's size in its second octet."""
    kinds: dict[int, _Kind]
    limit: int


def _format(dialect: str) -> _Format:
    if dialect == D07:
        return _Format(dialect, 7, 0x04, 0x10, 0x08, 0, 0, 6, _kinds("0.7"), PAYLOAD_LIMITS[D07])
    flagged = 0x08 if dialect == D065 else 0
    tail = 4 if dialect == DDNET else 0
    limit = PAYLOAD_LIMITS[dialect]
    return _Format(dialect, 3, 0x10, 0x80, 0x40, flagged, tail, 4, _kinds("0.6"), limit)


_FORMATS: dict[str, _Format] = {}


def scan(payload: bytes, direction: int, hints: Hints) -> list[Event]:
    """Return the events of one datagram."""
    dialect = hints.dialects[direction]
    form = _FORMATS.get(dialect)
    if form is None:
        form = _FORMATS[dialect] = _format(dialect if dialect in PAYLOAD_LIMITS else D07)
    start = form.header
    if len(payload) < start or payload[0] & 0x20:
        return control.outside(payload, form.dialect)
    first = payload[0]
    if first & form.control:
        return control.control(payload, direction, hints, compressed=bool(first & form.compressed))
    learnt: Learnt = hints.extra or learnt_of(hints)
    token: bytes | None = None
    if start == 7:  # noqa: PLR2004 - the header of 0.7
        token = payload[3:7]
    elif first & form.flagged:
        token = payload[3:7]
        start = 7
    data, position, end = payload, start, len(payload)
    if first & form.compressed:
        try:
            data = decompress(payload[start:], form.limit)
        except HuffmanError as fault:
            return [(_NOTE, "teeworlds-huffman", str(fault))]
        position, end = 0, len(data)
    if form.tail:
        token = data[end - 4 : end] if end - position >= 4 else None  # noqa: PLR2004
        end = max(position, end - 4)
    ack = (first & 3) << 8 | payload[1]
    if learnt.tokens[direction] is not None and token != learnt.tokens[direction]:
        return _stray(data, position, end, payload[2], form, token)
    events: list[Event] = [(_ACK, "vital", ack, 0)]
    if first & form.asks:
        events.append(_ASKS)
    if learnt.phase != ONLINE:
        _begin(events, direction, hints, learnt, empty=not payload[2])
    _chunks(events, data, position, end, payload[2], payload, form)
    return events


def _begin(
    events: list[Event], direction: int, hints: Hints, learnt: Learnt, *, empty: bool
) -> None:
    """Note the first data of a connection: of the client after the handshake, then of the server."""
    if empty or (direction == 0 and learnt.phase not in (0, ACCEPTED)):
        return
    if direction == 0 and learnt.phase == ACCEPTED and learnt.spoken:
        return
    events.append((_STATE, "data", None))
    if direction == 1 or learnt.phase == 0:
        after = learnt._replace(phase=ONLINE)
    else:
        after = learnt._replace(spoken=True)
    events.append((_HINTS, Hints(hints.dialects, after)))


def _stray(
    data: bytes, position: int, end: int, count: int, form: _Format, token: bytes | None
) -> list[Event]:
    """Return the messages of a packet whose token its receiver does not accept: no unit counts."""
    if token is None:
        note: Event = (_NOTE, "teeworlds-token-missing", "")
    elif token == _NO_TOKEN:
        note = (_NOTE, "teeworlds-no-token", "")
    else:
        note = (_NOTE, "teeworlds-wrong-token", f"token {token.hex()}")
    events: list[Event] = []
    _chunks(events, data, position, end, count, b"", form)
    kept = [(_MESSAGE, event[1]) for event in events if event[0] in (_MESSAGE, _UNIT)]
    return [note, (_COUNTER, "wrong_token", 1), *kept]


def _chunks(
    events: list[Event],
    data: bytes,
    position: int,
    end: int,
    count: int,
    content: bytes,
    form: _Format,
) -> None:
    """Add the events of `count` chunks of data[position:end]; stop where one passes the end.

    Copies made by the network have the same datagram as `content`. A packet may hold a chunk and
    its repetition, so those that are marked as sent again never equal the first one.
    """
    append = events.append
    kinds = form.kinds
    bits = form.size_bits
    seven = bits == 6  # noqa: PLR2004 - chunk headers of 0.7
    mask = 0x3F if seven else 0x0F
    while count:
        count -= 1
        if position + 2 > end:
            append((_NOTE, "list-short", f"{count + 1} chunks are missing"))
            return
        flags = data[position]
        second = data[position + 1]
        size = (flags & 0x3F) << bits | second & mask
        position += 2
        vital = flags & 0x40
        if vital:
            if position >= end:
                append((_NOTE, "truncated", "chunk header"))
                return
            third = data[position]
            position += 1
            sequence = (second & 0xC0) << 2 | third if seven else (second & 0xF0) << 2 | third
        after = position + size
        if after > end:
            append((_NOTE, "length-beyond-end", f"chunk of {size} octets, {end - position} left"))
            return
        head = data[position] if size else 0x40
        position += 1
        if head < 0x40 and head in kinds:  # noqa: PLR2004 - no sign, no second octet
            kind = kinds[head]
        else:
            kind, position = _rare(events, data, position - 1, after, kinds)
        if vital:
            if flags >= 0x80:  # noqa: PLR2004 - the resend mark
                append((_UNIT, kind.type, "vital", sequence, True, (content,)))
                append(_MARKED)
            else:
                append((_UNIT, kind.type, "vital", sequence, False, content))
            if kind.special == FACT:
                _fact(events, kind.type, data, position, after)
        elif kind.special:
            _further(events, kind, data, position, after)
        else:
            append(kind.event)
        position = after


UNKNOWN, PING_EX, PONG_EX = 8, 9, 10
_NOT_KNOWN: Final = tuple(_Kind((_MESSAGE, name), name, UNKNOWN) for name in _UNKNOWN)
_UNREADABLE: Final = _Kind((_MESSAGE, "unknown"), "unknown", UNKNOWN)
_SPECIAL_UUID: Final = {"sys.ping_ex": PING_EX, "sys.pong_ex": PONG_EX}


def _rare(
    events: list[Event], data: bytes, position: int, end: int, kinds: dict[int, _Kind]
) -> tuple[_Kind, int]:
    """Return the kind of a message with a long id, a UUID or no known id, and where it goes on."""
    try:
        head, position = _read(data, position, end)
    except VarintError:
        code = "truncated" if position < end else "teeworlds-chunk-empty"
        events.append((_NOTE, code, "message id"))
        return _UNREADABLE, end
    kind = kinds.get(head) or _other(data, position, end, head)
    if kind.special == UNKNOWN:
        code = "teeworlds-unknown-message" if head >> 1 else "teeworlds-unknown-uuid"
        events.append((_NOTE, code, f"message id {head >> 1}"))
    return kind, position


def _other(data: bytes, position: int, end: int, head: int) -> _Kind:
    """Return the kind of a message with a UUID, or of an unknown one."""
    if not head >> 1 and position + _UUID_OCTETS <= end:
        found = uuid_types().get(data[position : position + _UUID_OCTETS])
        if found is not None and found[0] == head:
            name = found[1]
            special = FACT if name in facts.TYPES else _SPECIAL_UUID.get(name, 0)
            return _Kind((_MESSAGE, name), name, special)
    return _NOT_KNOWN[head & 1]


def _fact(events: list[Event], name: str, data: bytes, position: int, end: int) -> None:
    """Add what a message says about the connection."""
    events.extend(facts.facts(name, data, position, end))


def _further(events: list[Event], kind: _Kind, data: bytes, position: int, end: int) -> None:
    """Add a message that is more than counted: ticks, inputs, pings."""
    special = kind.special
    try:
        if special == INPUT:
            tick, position = _read(data, position, end)
            intended, position = _read(data, position, end)
            events.append(kind.event)
            events.append((_PROBE, "input", intended))
            if tick >= 0:
                events.append((_ACK, "snapshot", tick, 0))
        elif special == TIMING:
            intended, position = _read(data, position, end)
            left, position = _read(data, position, end)
            events.append(kind.event)
            events.append((_REPLY, "input", intended))
            if left < 0:
                events.append(_LATE)
        elif special in (SNAP, SNAP_PART):
            _snapshot(events, kind, data, position, end)
        else:
            events.append(kind.event)
            _question(events, special, data, position, end, kind.type)
    except VarintError:
        events.append(kind.event)


def _snapshot(events: list[Event], kind: _Kind, data: bytes, position: int, end: int) -> None:
    """Add a snapshot as a unit of its tick; of several parts the first one stands for it.

    An empty snapshot without base is no snapshot: a 0.6.5 server tells an older client its token as
    such ticks, and the client proves it by acknowledging one.
    """
    tick, position = _read(data, position, end)
    delta, position = _read(data, position, end)
    if kind.special == SNAP_PART:
        _parts, position = _read(data, position, end)
        part, position = _read(data, position, end)
        if part:
            events.append(kind.event)
            return
    if tick < 0 or (delta == tick + 1 and kind.type == "sys.snap_empty"):
        events.append(kind.event)
        return
    events.append((_UNIT, kind.type, "snapshot", tick, None, None))


def _question(
    events: list[Event], special: int, data: bytes, position: int, end: int, name: str
) -> None:
    """Add a ping or its answer, or a fact."""
    if special == PING:
        events.append((_PROBE, "ping", 0))
    elif special == PONG:
        events.append((_REPLY, "ping", 0))
    elif special in (PING_EX, PONG_EX):
        start = position + _UUID_OCTETS
        number = int.from_bytes(data[start : min(end, start + _UUID_OCTETS)], "big")
        events.append((_PROBE if special == PING_EX else _REPLY, "ping_ex", number))
    elif special == FACT:
        _fact(events, name, data, position, end)


