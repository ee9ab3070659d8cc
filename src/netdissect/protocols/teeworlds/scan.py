"""`scan` of Teeworlds: one datagram to its events.

Headers and chunks are read here by the rows of `wire.teeworlds_forms`: a datagram has two or three
of them, and calls of derived readers would cost as much as all the rest. Control and connectionless
packets, which are rare, go through `control`.
"""

from __future__ import annotations

from functools import cache
from typing import Final

from netdissect.dissect.readers import teeworlds as read
from netdissect.model.claims import Hints
from netdissect.model.events import Ev, Event
from netdissect.model.native import i64
from netdissect.model.sinks import EventSink
from netdissect.protocols.scanner import Events, Scanner
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
    FAMILIES,
    HEADER,
    NO_TOKEN,
    RESEND,
    SIZE_HIGH,
    TOKEN_OCTETS,
    UUID_OCTETS,
    VITAL,
    form_of,
)
from netdissect.wire.varint import VarintError, read_teeworlds

__all__ = ["TeeworldsScanner", "scan"]


_ASKS: Final[Event] = (Ev.RESEND_REQUEST, "vital")
_LATE: Final[Event] = (Ev.COUNTER, "late_inputs", 1)
_MARKED: Final[Event] = (Ev.COUNTER, "resend_marked", 1)
_ONE_OCTET: Final = 0x40
"""Numbers from here on take a sign or a second byte."""
_NOTHING: Final = Learnt()
_ONE: Final[i64] = 1
_SPACES: Final = ("vital", "snapshot")
_IN_ORDER: Final = 0
_TICKS: Final = 1
"""Places of the spaces."""
_NO_TOKEN: Final = -1
_CUT_TOKEN: Final = -2
_ANY_TOKEN: Final = -3
_ODD_TOKEN: Final = -4
"""No numbers of four bytes."""

_COUNTED: Final = 0
_INPUT: Final = 1
_TIMING: Final = 2
_SNAP_EMPTY: Final = 3
_SNAP_SINGLE: Final = 4
_SNAP: Final = 5
_PING: Final = 6
_PONG: Final = 7
_PING_EX: Final = 8
_PONG_EX: Final = 9
"""What a chunk that is not vital is, beside a message."""
_FURTHER: Final = {
    "sys.input": _INPUT,
    "sys.input_timing": _TIMING,
    "sys.snap_empty": _SNAP_EMPTY,
    "sys.snap_single": _SNAP_SINGLE,
    "sys.snap": _SNAP,
    "sys.ping": _PING,
    "sys.ping_reply": _PONG,
    "sys.ping_ex": _PING_EX,
    "sys.pong_ex": _PONG_EX,
}


class _Kind:
    """What `scan` needs to know about a message by its first number."""

    __slots__ = ("further", "name", "number", "states")

    def __init__(self, number: int, name: str) -> None:
        self.number: i64 = number
        """Place of its type."""
        self.name = name
        self.further: i64 = _FURTHER.get(name, _COUNTED)
        self.states = name in facts.TYPES
        """True for a message that states facts about the connection."""


class _Kinds:
    """All kinds of messages."""

    def __init__(self) -> None:
        uuids = [name for _, name in uuid_types().values()]
        numbered = [name for family in FAMILIES for name in message_types(family).values()]
        names = {*uuids, *numbered, "game.unknown", "sys.unknown", "unknown"}
        self.types = tuple(sorted(names))
        self.named = {name: _Kind(number, name) for number, name in enumerate(self.types)}
        self.not_known = (self.named["game.unknown"], self.named["sys.unknown"])
        self.unreadable = self.named["unknown"]


@cache
def _kinds() -> _Kinds:
    return _Kinds()


@cache
def _by_head(family: str) -> dict[int, _Kind]:
    """Return the kinds of a family by their first number."""
    return {head: _kinds().named[name] for head, name in message_types(family).items()}


@cache
def _by_octet(family: str) -> list[_Kind | None]:
    """Return the same by the first byte, where that holds the whole number."""
    heads = _by_head(family)
    return [heads.get(octet) if octet < _ONE_OCTET else None for octet in range(256)]


class TeeworldsScanner(Scanner):
    """Reads what one side sends."""

    __slots__ = (
        "_asked", "_asks", "_control", "_dialect", "_direction", "_flagged", "_heads", "_hints",
        "_kinds", "_limit", "_online", "_packed", "_size_bits", "_start", "_tail", "_usual",
        "_wanted",
    )  # fmt: skip

    def __init__(self, direction: int) -> None:
        self._kinds = _kinds()
        super().__init__(self._kinds.types, _SPACES)
        self._direction = direction
        self._hints: Hints | None = None
        self._dialect = ""
        self._start: i64 = 0
        self._tail: i64 = 0
        self._size_bits: i64 = 0
        self._limit: i64 = 0
        self._control: i64 = 0
        self._packed: i64 = 0
        self._asks: i64 = 0
        self._flagged: i64 = 0
        self._usual: list[_Kind | None] = []
        self._heads: dict[int, _Kind] = {}
        self._wanted: i64 = _ANY_TOKEN
        self._asked = False
        self._online = False

    def _learn(self, hints: Hints) -> None:
        """Take what is known of the connection now."""
        self._hints = hints
        dialect = hints.dialects[1] if self._direction else hints.dialects[0]
        if dialect != self._dialect:
            form = form_of(dialect)
            self._dialect = dialect
            self._start, self._tail, self._size_bits = form.head, form.tail, form.size_bits
            self._limit, self._control, self._packed = form.limit, form.control, form.compressed
            self._asks, self._flagged = form.resend, form.token_flag
            self._usual = _by_octet(form.family)
            self._heads = _by_head(form.family)
        learnt: Learnt = hints.extra or _NOTHING
        wanted = learnt.tokens[self._direction]
        self._wanted = _ANY_TOKEN
        if wanted is not None:
            whole = len(wanted) == TOKEN_OCTETS
            self._wanted = int.from_bytes(wanted, "big") if whole else _ODD_TOKEN
        self._asked = learnt.phase == ASKED and learnt.offered == dialect
        self._online = learnt.phase == ONLINE

    def scan(  # noqa: C901, PLR0912 - hot path
        self, sink: EventSink, payload: bytes, hints: Hints
    ) -> list[Event] | None:
        """Tell the events of a packet with chunks, return those of others."""
        if hints is not self._hints:
            self._learn(hints)
        start = self._start
        end: i64 = len(payload)
        if end < start or payload[0] & CONNLESS_FLAG:
            return control.outside(payload, self._dialect)
        first: i64 = payload[0]
        if self._asked and declines(payload, self._dialect):
            learnt: Learnt = hints.extra
            known = Hints((D06, D06), learnt._replace(offered=None))
            told: list[Event] = [(Ev.HINTS, known), *control.declined(self._dialect)]
            return told + self.events(payload, known)
        if first & self._control:
            compressed = first & self._packed != 0
            return control.control(payload, self._direction, hints, compressed=compressed)
        if first & self._flagged:
            start += TOKEN_OCTETS
        token: i64 = _NO_TOKEN
        if start > end:
            token = _CUT_TOKEN
        elif start > HEADER:
            token = _token(payload, HEADER)
        count: i64 = payload[2]
        data, position = payload, start
        if first & self._packed:
            try:
                data = decompress(payload, self._limit, start)
            except HuffmanError as fault:
                return [(Ev.NOTE, "teeworlds-huffman", str(fault))]
            position = 0
            end = len(data)
        if self._tail:
            token = _NO_TOKEN
            if end - position >= TOKEN_OCTETS:
                end -= TOKEN_OCTETS
                token = _token(data, end)
            else:
                end = position
        if token != self._wanted and self._wanted != _ANY_TOKEN:  # noqa: PLR1714 - no tuple here
            carried = data[end : end + TOKEN_OCTETS] if self._tail else payload[HEADER:start]
            where = data, position, end, count
            return self._stray(None if token == _NO_TOKEN else carried, where)
        sink.begin()
        sink.ack(_IN_ORDER, (first & 3) << 8 | payload[1], 0)
        if first & self._asks:
            sink.event(_ASKS)
        if count:
            if not self._online:
                self._begin(sink, hints)
            self._chunks(sink, data, position, end, count, payload)
        return None

    def _begin(self, sink: EventSink, hints: Hints) -> None:
        """Note the first data of a connection: the client's after the handshake, the server's."""
        learnt: Learnt = hints.extra or _NOTHING
        if self._direction == 0 and (learnt.spoken or learnt.phase == CLOSED):
            return
        if self._direction == 1 or learnt.phase == UNKNOWN:
            learnt = learnt._replace(phase=ONLINE)
        else:
            learnt = learnt._replace(spoken=True)
        sink.event((Ev.STATE, "data", None))
        sink.event((Ev.HINTS, Hints(hints.dialects, learnt)))

    def _stray(self, token: bytes | None, where: tuple[bytes, i64, i64, i64]) -> list[Event]:
        """Return the messages of a packet with a token that its receiver does not accept."""
        if token is None:
            note: Event = (Ev.NOTE, "teeworlds-token-missing", "")
        elif token == NO_TOKEN:
            note = (Ev.NOTE, "teeworlds-no-token", "")
        else:
            note = (Ev.NOTE, "teeworlds-wrong-token", f"token {token.hex()}")
        data, position, end, count = where
        found = Events(self.types, self.spaces)
        self._chunks(found, data, position, end, count, b"")
        kept = [(Ev.MESSAGE, item[1]) for item in found.listed if item[0] in (Ev.MESSAGE, Ev.UNIT)]
        return [note, (Ev.COUNTER, "wrong_token", 1), *kept]

    def _chunks(  # noqa: C901, PLR0912 - hot path
        self, sink: EventSink, data: bytes, position: i64, end: i64, count: i64, content: bytes
    ) -> None:
        """Tell the events of `count` chunks of data[position:end]; stop where one passes the end.

        Copies made by the network have the same datagram as `content`. A packet may hold a chunk
        and its repetition, so those that are marked as sent again never equal the first one.
        """
        usual = self._usual
        bits = self._size_bits
        mask = (_ONE << bits) - 1
        while count:
            count -= 1
            if position + 2 > end:
                sink.event((Ev.NOTE, "list-short", f"{count + 1} chunks are missing"))
                return
            flags: i64 = data[position]
            second: i64 = data[position + 1]
            size = (flags & SIZE_HIGH) << bits | second & mask
            position += 2
            sequence: i64 = -1
            if flags & VITAL:
                if position >= end:
                    sink.event((Ev.NOTE, "truncated", "chunk header"))
                    return
                third: i64 = data[position]
                sequence = (second & ~mask) << 2 | third
                position += 1
            after = position + size
            if after > end:
                detail = f"chunk of {size} bytes, {end - position} left"
                sink.event((Ev.NOTE, "length-beyond-end", detail))
                return
            kind = usual[data[position]] if size else None
            if kind is not None:
                position += 1
            else:
                kind, position = self._rare(sink, data, position, after)
            if sequence >= 0:
                if flags & RESEND:
                    sink.unit(kind.number, _IN_ORDER, sequence, True, (content,))
                    sink.event(_MARKED)
                else:
                    sink.unit(kind.number, _IN_ORDER, sequence, False, content)
                if kind.states:
                    for event in facts.facts(kind.name, data, int(position), int(after)):
                        sink.event(event)
            elif kind.further == _COUNTED:
                sink.message(kind.number)
            else:
                try:
                    _tell(sink, kind, data, position, after)
                except VarintError:
                    sink.message(kind.number)
            position = after

    def _rare(self, sink: EventSink, data: bytes, position: i64, end: i64) -> tuple[_Kind, i64]:
        """Return the kind of a message with a long id, a UUID or no known id, and what follows."""
        odd: list[Event] = []
        try:
            head, after = read_teeworlds(data, position, end)
        except VarintError:
            if position < end:
                odd.append((Ev.NOTE, "truncated", "message id"))
            else:
                read.odd_TwEmpty((), None, odd)
            return _told(sink, odd, self._kinds.unreadable), end
        kind = self._heads.get(head)
        if kind is not None:
            return kind, after
        kind = self._kinds.not_known[head & 1]
        if head >> 1:
            read.odd_TwUnknown((head,), None, odd)
            return _told(sink, odd, kind), after
        uuid = data[after : min(end, after + UUID_OCTETS)]
        found = uuid_types().get(uuid)
        if found is not None and found[0] == head:
            return self._kinds.named[found[1]], after
        if len(uuid) < UUID_OCTETS:
            odd.append((Ev.NOTE, "truncated", "message UUID"))
        else:
            read.odd_TwUnknownUuid((uuid,), None, odd)
        return _told(sink, odd, kind), after


def _told(sink: EventSink, odd: list[Event], kind: _Kind) -> _Kind:
    """Tell what is odd about a message; return its kind."""
    for event in odd:
        sink.event(event)
    return kind


def _token(data: bytes, position: i64) -> i64:
    """Return a token as a number."""
    high: i64 = data[position]
    second: i64 = data[position + 1]
    third: i64 = data[position + 2]
    low: i64 = data[position + 3]
    return high << 24 | second << 16 | third << 8 | low


def _tell(sink: EventSink, kind: _Kind, data: bytes, position: i64, end: i64) -> None:
    """Tell the events of a message that is more than counted, whose fields are data[position:end].

    Raises:
        VarintError: they are too short; nothing was told.

    """
    what = kind.further
    if what == _INPUT:
        # It acknowledges a snapshot.
        tick = read_teeworlds(data, position, end)[0]
        sink.message(kind.number)
        if tick >= 0:
            sink.ack(_TICKS, tick, 0)
    elif what == _TIMING:
        # The server's answer to an input: how many milliseconds early it came.
        position = read_teeworlds(data, position, end)[1]
        left = read_teeworlds(data, position, end)[0]
        sink.message(kind.number)
        sink.event((Ev.TIMING, "input_left", left))
        if left < 0:
            sink.event(_LATE)
    elif what <= _SNAP:
        _snapshot(sink, kind, data, position, end)
    elif what <= _PONG:
        sink.message(kind.number)
        sink.event((Ev.PROBE if what == _PING else Ev.REPLY, "ping", 0))
    else:
        # DDNet's ping or its answer, which carry a UUID behind that of the message.
        start = position + UUID_OCTETS
        number = int.from_bytes(data[start : max(start, min(end, start + UUID_OCTETS))], "big")
        sink.message(kind.number)
        sink.event((Ev.PROBE if what == _PING_EX else Ev.REPLY, "ping_ex", number))


def _snapshot(sink: EventSink, kind: _Kind, data: bytes, position: i64, end: i64) -> None:
    """Tell of a snapshot as a unit of its tick; the first part of one stands for all.

    One without changes and without base is none: a 0.6.5 server tells an older client its token as
    such ticks, and the client proves it by acknowledging one.
    """
    tick, position = read_teeworlds(data, position, end)
    counts = tick >= 0
    if kind.further != _SNAP_SINGLE:
        delta, position = read_teeworlds(data, position, end)
        if kind.further == _SNAP_EMPTY:
            counts = counts and delta != tick + 1
        else:
            position = read_teeworlds(data, position, end)[1]
            part = read_teeworlds(data, position, end)[0]
            counts = counts and part == 0
    if counts:
        sink.unit(kind.number, _TICKS, tick, None, None)
    else:
        sink.message(kind.number)


_SCANNERS: Final = (TeeworldsScanner(0), TeeworldsScanner(1))


def scan(payload: bytes, direction: int, hints: Hints) -> list[Event]:
    """Return the events of one datagram."""
    return _SCANNERS[direction].events(payload, hints)
