"""`scan` of Teeworlds: one datagram to its events.

Headers and chunks are read here by the rows of `wire.teeworlds_forms`: a datagram has two or three
of them, and calls of derived readers would cost as much as all the rest. Control and connectionless
packets, which are rare, go through `control`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple, TypeAlias

from netdissect.dissect.readers import teeworlds as read
from netdissect.model.claims import Hints
from netdissect.model.events import Ev, Event
from netdissect.protocols.teeworlds import control, facts
from netdissect.protocols.teeworlds.learnt import (
    ASKED,
    CLOSED,
    ONLINE,
    UNKNOWN,
    Learnt,
)
from netdissect.protocols.teeworlds.names import message_types, uuid_types
from netdissect.protocols.teeworlds.strict import declines
from netdissect.wire.huffman import HuffmanError, decompress
from netdissect.wire.teeworlds_forms import (
    CONNLESS_FLAG,
    D06,
    HEADER,
    NO_TOKEN,
    RESEND,
    TOKEN_OCTETS,
    UUID_OCTETS,
    VITAL,
    Form,
    form_of,
)
from netdissect.wire.varint import VarintError, read_teeworlds

__all__ = ["scan"]


_ASKS: Final[Event] = (Ev.RESEND_REQUEST, "vital")
_LATE: Final[Event] = (Ev.COUNTER, "late_inputs", 1)
_MARKED: Final[Event] = (Ev.COUNTER, "resend_marked", 1)
_ONE_OCTET: Final = 0x40
"""Numbers from here on take a sign or a second byte."""
_NOTHING: Final = Learnt()

Further: TypeAlias = Callable[[list[Event], Any, bytes, int, int], None]
"""Adds the events of one message whose fields are data[position:end]; VarintError where they are
too short."""


class _Kind(NamedTuple):
    """What `scan` needs to know about a message by its first number."""

    event: Event
    """Its MESSAGE event; shared, as events are never changed."""
    type: str
    further: Further | None
    """Called for a chunk that is not vital, if it is more than counted."""
    states: bool
    """True for a message that states facts about the connection."""


def _kind(name: str) -> _Kind:
    return _Kind((Ev.MESSAGE, name), name, _FURTHER.get(name), name in facts.TYPES)


# -- messages that are more than counted ----------------------------------------------------------


def _input(events: list[Event], kind: _Kind, data: bytes, position: int, end: int) -> None:
    """Add an input, which acknowledges a snapshot."""
    tick = read_teeworlds(data, position, end)[0]
    events.append(kind.event)
    if tick >= 0:
        events.append((Ev.ACK, "snapshot", tick, 0))


def _timing(events: list[Event], kind: _Kind, data: bytes, position: int, end: int) -> None:
    """Add the server's answer to an input: how many milliseconds early it came."""
    _intended, position = read_teeworlds(data, position, end)
    left = read_teeworlds(data, position, end)[0]
    events.append(kind.event)
    events.append((Ev.TIMING, "input_left", left))
    if left < 0:
        events.append(_LATE)


def _snapshot(events: list[Event], kind: _Kind, data: bytes, position: int, end: int) -> None:
    """Add a whole snapshot as a unit of its tick."""
    tick, position = read_teeworlds(data, position, end)
    if tick < 0:
        events.append(kind.event)
    else:
        events.append((Ev.UNIT, kind.type, "snapshot", tick, None, None))


def _snapshot_empty(events: list[Event], kind: _Kind, data: bytes, position: int, end: int) -> None:
    """Add a snapshot without changes.

    Without base it is none: a 0.6.5 server tells an older client its token as such ticks, and the
    client proves it by acknowledging one.
    """
    tick, position = read_teeworlds(data, position, end)
    delta, position = read_teeworlds(data, position, end)
    if tick < 0 or delta == tick + 1:
        events.append(kind.event)
    else:
        events.append((Ev.UNIT, kind.type, "snapshot", tick, None, None))


def _snapshot_part(events: list[Event], kind: _Kind, data: bytes, position: int, end: int) -> None:
    """Add a part of a snapshot; the first one stands for all."""
    tick, position = read_teeworlds(data, position, end)
    _delta, position = read_teeworlds(data, position, end)
    _parts, position = read_teeworlds(data, position, end)
    part, position = read_teeworlds(data, position, end)
    if part or tick < 0:
        events.append(kind.event)
    else:
        events.append((Ev.UNIT, kind.type, "snapshot", tick, None, None))


def _ping(events: list[Event], kind: _Kind, _data: bytes, _position: int, _end: int) -> None:
    events.append(kind.event)
    events.append((Ev.PROBE, "ping", 0))


def _pong(events: list[Event], kind: _Kind, _data: bytes, _position: int, _end: int) -> None:
    events.append(kind.event)
    events.append((Ev.REPLY, "ping", 0))


def _ping_ex(events: list[Event], kind: _Kind, data: bytes, position: int, end: int) -> None:
    """Add DDNet's ping or its answer, which carry a UUID behind that of the message."""
    start = position + UUID_OCTETS
    number = int.from_bytes(data[start : min(end, start + UUID_OCTETS)], "big")
    events.append(kind.event)
    events.append((Ev.PROBE if kind.type == "sys.ping_ex" else Ev.REPLY, "ping_ex", number))


_FURTHER: Final[dict[str, Further]] = {
    "sys.input": _input,
    "sys.input_timing": _timing,
    "sys.snap_empty": _snapshot_empty,
    "sys.snap_single": _snapshot,
    "sys.snap": _snapshot_part,
    "sys.ping": _ping,
    "sys.ping_reply": _pong,
    "sys.ping_ex": _ping_ex,
    "sys.pong_ex": _ping_ex,
}


# -- packets --------------------------------------------------------------------------------------


_Kinds: TypeAlias = tuple[dict[int, _Kind], dict[int, _Kind]]
"""By first number: those that one byte holds, which is their value, and all."""


def _kinds(family: str) -> _Kinds:
    every = {head: _kind(name) for head, name in message_types(family).items()}
    return {head: kind for head, kind in every.items() if head < _ONE_OCTET}, every


_Read: TypeAlias = tuple[Form, _Kinds]
_FORMS: dict[str, _Read] = {}


def scan(payload: bytes, direction: int, hints: Hints) -> list[Event]:  # noqa: C901 - hot path
    """Return the events of one datagram."""
    name = hints.dialects[direction]
    form, kinds = _FORMS.get(name) or _add_form(name)
    dialect, start, tail, bits, limit, control_bit, packed_bit, asks, flagged, _, _, _ = form
    if len(payload) < start or payload[0] & CONNLESS_FLAG:
        return control.outside(payload, dialect)
    first = payload[0]
    learnt: Learnt = hints.extra or _NOTHING
    if learnt.phase == ASKED and learnt.offered == name and declines(payload, name):
        known = Hints((D06, D06), learnt._replace(offered=None))
        told: list[Event] = [(Ev.HINTS, known), *control.declined(name)]
        return told + scan(payload, direction, known)
    if first & control_bit:
        return control.control(payload, direction, hints, compressed=bool(first & packed_bit))
    token: bytes | None = None
    if first & flagged:
        start += TOKEN_OCTETS
    if start > HEADER:
        token = payload[HEADER:start]
    data, position, end = payload, start, len(payload)
    if first & packed_bit:
        try:
            data = decompress(payload[start:], limit)
        except HuffmanError as fault:
            return [(Ev.NOTE, "teeworlds-huffman", str(fault))]
        position, end = 0, len(data)
    if tail:
        token = data[end - tail : end] if end - position >= tail else None
        end = max(position, end - tail)
    count = payload[2]
    wanted = learnt.tokens[direction]
    if wanted is not None and token != wanted:
        return _stray(data[position:end], count, bits, kinds, token)
    events: list[Event] = [(Ev.ACK, "vital", (first & 3) << 8 | payload[1], 0)]
    if first & asks:
        events.append(_ASKS)
    if learnt.phase != ONLINE and count:
        _begin(events, direction, hints, learnt)
    if count:
        _chunks(events, data, position, end, count, payload, bits, kinds)
    return events


def _add_form(dialect: str) -> _Read:
    form = form_of(dialect)
    read = _FORMS[dialect] = (form, _kinds(form.family))
    return read


def _begin(events: list[Event], direction: int, hints: Hints, learnt: Learnt) -> None:
    """Note the first data of a connection: the client's after the handshake, then the server's."""
    if direction == 0 and (learnt.spoken or learnt.phase == CLOSED):
        return
    if direction == 1 or learnt.phase == UNKNOWN:
        learnt = learnt._replace(phase=ONLINE)
    else:
        learnt = learnt._replace(spoken=True)
    events.append((Ev.STATE, "data", None))
    events.append((Ev.HINTS, Hints(hints.dialects, learnt)))


def _stray(data: bytes, count: int, bits: int, kinds: _Kinds, token: bytes | None) -> list[Event]:
    """Return the messages of a packet whose token its receiver does not accept: no unit counts."""
    if token is None:
        note: Event = (Ev.NOTE, "teeworlds-token-missing", "")
    elif token == NO_TOKEN:
        note = (Ev.NOTE, "teeworlds-no-token", "")
    else:
        note = (Ev.NOTE, "teeworlds-wrong-token", f"token {token.hex()}")
    events: list[Event] = []
    _chunks(events, data, 0, len(data), count, b"", bits, kinds)
    kept = [(Ev.MESSAGE, event[1]) for event in events if event[0] in (Ev.MESSAGE, Ev.UNIT)]
    return [note, (Ev.COUNTER, "wrong_token", 1), *kept]


def _chunks(  # noqa: C901, PLR0912 - hot path
    events: list[Event],
    data: bytes,
    position: int,
    end: int,
    count: int,
    content: bytes,
    bits: int,
    kinds: _Kinds,
) -> None:
    """Add the events of `count` chunks of data[position:end]; stop where one passes the end.

    Copies made by the network have the same datagram as `content`. A packet may hold a chunk and
    its repetition, so those that are marked as sent again never equal the first one.
    """
    usual = kinds[0]
    mask = (1 << bits) - 1
    while count:
        count -= 1
        if position + 2 > end:
            events.append((Ev.NOTE, "list-short", f"{count + 1} chunks are missing"))
            return
        flags = data[position]
        second = data[position + 1]
        size = (flags & 0x3F) << bits | second & mask
        position += 2
        vital = flags & VITAL
        if vital:
            if position >= end:
                events.append((Ev.NOTE, "truncated", "chunk header"))
                return
            third = data[position]
            position += 1
            sequence = (second & ~mask) << 2 | third
        after = position + size
        if after > end:
            detail = f"chunk of {size} bytes, {end - position} left"
            events.append((Ev.NOTE, "length-beyond-end", detail))
            return
        kind = usual.get(data[position]) if size else None
        position += 1
        if kind is None:
            kind, position = _rare(events, data, position - 1, after, kinds[1])
        event, name, further, states = kind
        if vital:
            if flags >= RESEND:
                events.append((Ev.UNIT, name, "vital", sequence, True, (content,)))
                events.append(_MARKED)
            else:
                events.append((Ev.UNIT, name, "vital", sequence, False, content))
            if states:
                events.extend(facts.facts(name, data, position, after))
        elif further is None:
            events.append(event)
        else:
            try:
                further(events, kind, data, position, after)
            except VarintError:
                events.append(event)
        position = after


_NOT_KNOWN: Final = (_kind("game.unknown"), _kind("sys.unknown"))
_UNREADABLE: Final = _kind("unknown")


def _rare(
    events: list[Event], data: bytes, position: int, end: int, kinds: dict[int, _Kind]
) -> tuple[_Kind, int]:
    """Return the kind of a message with a long id, a UUID or no known id, and where it goes on."""
    try:
        head, after = read_teeworlds(data, position, end)
    except VarintError:
        if position < end:
            events.append((Ev.NOTE, "truncated", "message id"))
        else:
            read.odd_TwEmpty((), None, events)
        return _UNREADABLE, end
    kind = kinds.get(head)
    if kind is not None:
        return kind, after
    if head >> 1:
        read.odd_TwUnknown((head,), None, events)
        return _NOT_KNOWN[head & 1], after
    uuid = data[after : min(end, after + UUID_OCTETS)]
    found = uuid_types().get(uuid)
    if found is not None and found[0] == head:
        return _kind(found[1]), after
    if len(uuid) < UUID_OCTETS:
        events.append((Ev.NOTE, "truncated", "message UUID"))
    else:
        read.odd_TwUnknownUuid((uuid,), None, events)
    return _NOT_KNOWN[head & 1], after
