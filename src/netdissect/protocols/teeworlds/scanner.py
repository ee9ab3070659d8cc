"""The scanner of Teeworlds: one datagram to its events.

Headers and chunks are read by hand from the rows of `wire.teeworlds_forms`: a datagram has two or
three of them, and calling derived readers would cost as much as everything else together. Rare
packets (control, connectionless) go through `control`.
"""

from __future__ import annotations

from functools import cache
from typing import Final

from netdissect.dissect.readers import teeworlds as read
from netdissect.model.claims import Hints
from netdissect.model.events import Ev, Event
from netdissect.model.native import i64
from netdissect.model.sinks import EventSink
from netdissect.protocols.scanner import Events, Scanner, report_all
from netdissect.protocols.teeworlds import control, facts
from netdissect.protocols.teeworlds.state import DecoderState, Phase, state_of
from netdissect.protocols.teeworlds.strict import is_declined, other_of_06
from netdissect.wire.huffman import HuffmanError, decompress
from netdissect.wire.teeworlds import message_rows, uuid_rows
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

_RESEND_REQUEST: Final[Event] = (Ev.RESEND_REQUEST, "vital")
_LATE_INPUT: Final[Event] = (Ev.COUNTER, "late_inputs", 1)
_RESEND_MARKED: Final[Event] = (Ev.COUNTER, "resend_marked", 1)
_FIRST_LONG: Final = 0x40
"""Smallest first byte of a number that is negative or has a second byte."""
_ONE: Final[i64] = 1
_SPACES: Final = ("vital", "snapshot")
_IN_VITAL: Final = 0
_IN_SNAPSHOT: Final = 1
"""Spaces, and their indices."""
_NO_TOKEN: Final = -1
"""The packet carries no token."""
_CUT_TOKEN: Final = -2
"""The packet ends inside its token."""
_ANY_TOKEN: Final = -3
"""No token was agreed on: every packet is accepted."""
_ODD_TOKEN: Final = -4
"""The token agreed on has not four bytes, so no packet carries it. Tokens of four bytes are never
negative.
"""

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
_MEANINGS: Final = {
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
"""Type -> what its message means if its chunk is not vital; other types are only counted."""


class _Kind:
    """What the scanner needs to know about one type of message."""

    __slots__ = ("follows", "has_facts", "index", "meaning", "name")

    def __init__(self, index: int, name: str) -> None:
        self.index: i64 = index
        """Index of the type."""
        self.name = name
        self.meaning: i64 = _MEANINGS.get(name, _COUNTED)
        self.has_facts = name in facts.TYPES
        """True for a message that states facts about the connection."""
        self.follows = name in facts.FOLLOWED
        """True for a message on which the trees of later datagrams depend."""


class _Kinds:
    """The kinds of all types."""

    def __init__(self) -> None:
        rows = [*uuid_rows().values()]
        for family in FAMILIES:
            rows += message_rows(family).values()
        names = {*(row.type for row in rows), "game.unknown", "sys.unknown", "unknown"}
        self.types = tuple(sorted(names))
        self.by_name = {name: _Kind(index, name) for index, name in enumerate(self.types)}
        self.unknown = (self.by_name["game.unknown"], self.by_name["sys.unknown"])
        """Kind of a message with an unknown id, by its system bit."""
        self.unreadable = self.by_name["unknown"]
        """Kind of a message whose id cannot be read."""
        self.by_uuid = {
            uuid: (row.head, self.by_name[row.type]) for uuid, row in uuid_rows().items()
        }
        """UUID -> (first number, kind) of the messages that a UUID names."""


@cache
def _kinds() -> _Kinds:
    return _Kinds()


@cache
def _by_head(family: str) -> dict[int, _Kind]:
    """Return the kinds of a family by the first number of a message."""
    return {head: _kinds().by_name[row.type] for head, row in message_rows(family).items()}


@cache
def _by_octet(family: str) -> list[_Kind | None]:
    """Return the kinds of a family by the first byte, where that holds the whole first number."""
    heads = _by_head(family)
    return [heads.get(octet) if octet < _FIRST_LONG else None for octet in range(256)]


class TeeworldsScanner(Scanner):
    """Reads the packets that one side sends."""

    __slots__ = (
        "_compressed_mask", "_control_mask", "_dialect", "_direction", "_guessed", "_heads",
        "_hints", "_kinds", "_limit", "_offers", "_online", "_resend_mask", "_size_bits", "_start",
        "_tail", "_token", "_token_mask", "_usual",
    )  # fmt: skip

    def __init__(self, direction: int) -> None:
        self._kinds = _kinds()
        super().__init__(self._kinds.types, _SPACES)
        self._direction = direction
        self._hints: Hints | None = None
        """Hints from which the following attributes were set; those of the dialect are copies of
        `Form`.
        """
        self._dialect = ""
        self._start: i64 = 0
        self._tail: i64 = 0
        self._size_bits: i64 = 0
        self._limit: i64 = 0
        self._control_mask: i64 = 0
        self._compressed_mask: i64 = 0
        self._resend_mask: i64 = 0
        self._token_mask: i64 = 0
        self._usual: list[_Kind | None] = []
        """First byte of a message -> its kind; None where one byte does not tell it."""
        self._heads: dict[int, _Kind] = {}
        """First number of a message -> its kind."""
        self._token: i64 = _ANY_TOKEN
        """Token that packets must carry, as a number."""
        self._offers = False
        """True while the server has not answered a request for this dialect."""
        self._guessed = False
        """True while nothing tells 0.6 from its extensions, whose connectionless messages are the
        same.
        """
        self._online = False

    def scan(  # noqa: C901, PLR0911, PLR0912, PLR0915 - hot path
        self, sink: EventSink, payload: bytes, hints: Hints
    ) -> list[Event] | None:
        """Report the events of a packet with chunks, return those of any other."""
        if hints is not self._hints:
            self._update(hints)
        start = self._start
        end: i64 = len(payload)
        if end < start or payload[0] & CONNLESS_FLAG:
            return control.connless_events(payload, self._dialect)
        first: i64 = payload[0]
        if self._offers and is_declined(payload, self._dialect):
            state: DecoderState = hints.extra
            decided = Hints((D06, D06), state._replace(offered=None))
            events: list[Event] = [(Ev.HINTS, decided), *control.declined(self._dialect)]
            return events + self.events(payload, decided)
        if self._guessed and payload[2]:
            dialect = other_of_06(payload)
            if dialect is not None:
                decided = Hints((dialect, dialect), hints.extra)
                return [(Ev.HINTS, decided), *self.events(payload, decided)]
        if first & self._control_mask:
            compressed = first & self._compressed_mask != 0
            return control.control_events(payload, self._direction, hints, compressed=compressed)
        if first & self._token_mask:
            start += TOKEN_OCTETS
        token: i64 = _NO_TOKEN
        if start > end:
            token = _CUT_TOKEN
        elif start > HEADER:
            token = _read_token(payload, HEADER)
        count: i64 = payload[2]
        data, position = payload, start
        if first & self._compressed_mask:
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
                token = _read_token(data, end)
            else:
                end = position
        if token != self._token and self._token != _ANY_TOKEN:  # noqa: PLR1714 - no tuple here
            carried = data[end : end + TOKEN_OCTETS] if self._tail else payload[HEADER:start]
            chunks = data, position, end, count
            return self._wrong_token(None if token == _NO_TOKEN else carried, chunks)
        self.follows = False
        sink.begin()
        sink.ack(_IN_VITAL, (first & 3) << 8 | payload[1], 0)
        if first & self._resend_mask:
            sink.event(_RESEND_REQUEST)
        if count:
            if not self._online:
                self._first_data(sink, hints)
            self._chunks(sink, data, position, end, count, payload)
        return None

    def _update(self, hints: Hints) -> None:
        """Set what depends on the hints."""
        self._hints = hints
        dialect = hints.dialects[1] if self._direction else hints.dialects[0]
        if dialect != self._dialect:
            form = form_of(dialect)
            self._dialect = dialect
            self._start, self._tail, self._size_bits = form.head, form.tail, form.size_bits
            self._limit, self._control_mask = form.limit, form.control
            self._compressed_mask, self._resend_mask = form.compressed, form.resend
            self._token_mask = form.token_flag
            self._usual = _by_octet(form.family)
            self._heads = _by_head(form.family)
        state = state_of(hints)
        token = state.tokens[self._direction]
        self._token = _ANY_TOKEN
        if token is not None:
            whole = len(token) == TOKEN_OCTETS
            self._token = int.from_bytes(token, "big") if whole else _ODD_TOKEN
        self._offers = state.phase == Phase.REQUESTED and state.offered == dialect
        self._online = state.phase == Phase.ONLINE
        self._guessed = state.phase == Phase.UNKNOWN and dialect == D06

    def _first_data(self, sink: EventSink, hints: Hints) -> None:
        """Report the first data of each side after the handshake."""
        state = state_of(hints)
        # Data that was under way when its receiver closed the connection does not open it again.
        if state.phase == Phase.CLOSED or (self._direction == 0 and state.client_sent_data):
            return
        if self._direction == 1 or state.phase == Phase.UNKNOWN:
            state = state._replace(phase=Phase.ONLINE)
        else:
            state = state._replace(client_sent_data=True)
        sink.event((Ev.STATE, "data", None))
        sink.event((Ev.HINTS, Hints(hints.dialects, state)))

    def _wrong_token(
        self, token: bytes | None, chunks: tuple[bytes, i64, i64, i64]
    ) -> list[Event]:
        """Return the events of a packet whose token its receiver does not accept.

        Args:
            token: token that the packet carries, if any.
            chunks: where its chunks are, as the arguments of `_chunks`.

        """
        if token is None:
            note: Event = (Ev.NOTE, "teeworlds-token-missing", "")
        elif token == NO_TOKEN:
            note = (Ev.NOTE, "teeworlds-no-token", "")
        else:
            note = (Ev.NOTE, "teeworlds-wrong-token", f"token {token.hex()}")
        data, position, end, count = chunks
        found = Events(self.types, self.spaces)
        self._chunks(found, data, position, end, count, b"")
        # Its receiver drops it, so that nothing is acknowledged or delivered.
        counted = (Ev.MESSAGE, Ev.UNIT)
        messages = [(Ev.MESSAGE, event[1]) for event in found.listed if event[0] in counted]
        return [note, (Ev.COUNTER, "wrong_token", 1), *messages]

    def _chunks(  # noqa: C901, PLR0912 - hot path
        self, sink: EventSink, data: bytes, position: i64, end: i64, count: i64, content: bytes
    ) -> None:
        """Report the events of `count` chunks in data[position:end]; stop where one is cut.

        Args:
            sink: receives the events.
            data: buffer with the chunks.
            position: where the first chunk begins.
            end: where the chunks end.
            count: number of chunks.
            content: the datagram. A copy of a unit in an equal datagram was made by the network.

        """
        usual = self._usual
        bits = self._size_bits
        mask = (_ONE << bits) - 1
        while count:
            count -= 1
            if position + 2 > end:
                self._note(sink, "list-short", f"{count + 1} chunks are missing")
                return
            flags: i64 = data[position]
            second: i64 = data[position + 1]
            # The low bits of the size share their byte with the high bits of the sequence number.
            size = (flags & SIZE_HIGH) << bits | second & mask
            position += 2
            sequence: i64 = -1
            if flags & VITAL:
                if position >= end:
                    self._note(sink, "truncated", "chunk header")
                    return
                third: i64 = data[position]
                sequence = (second & ~mask) << 2 | third
                position += 1
            after = position + size
            if after > end:
                detail = f"chunk of {size} bytes, {end - position} left"
                self._note(sink, "length-beyond-end", detail)
                return
            kind = usual[data[position]] if size else None
            if kind is not None:
                position += 1
            else:
                kind, position = self._rare_kind(sink, data, position, after)
            if kind.follows:
                self.follows = True
            if sequence >= 0:
                if flags & RESEND:
                    # One packet may hold a chunk and its retransmission: the tuple keeps the two
                    # from being taken for copies of one datagram.
                    sink.unit(kind.index, _IN_VITAL, sequence, True, (content,))
                    sink.event(_RESEND_MARKED)
                else:
                    sink.unit(kind.index, _IN_VITAL, sequence, False, content)
                if kind.has_facts:
                    report_all(sink, facts.facts(kind.name, data, int(position), int(after)))
            elif kind.meaning == _COUNTED:
                sink.message(kind.index)
            else:
                try:
                    _report(sink, kind, data, position, after)
                except VarintError:
                    sink.message(kind.index)
            position = after

    def _note(self, sink: EventSink, code: str, detail: str) -> None:
        """Report a fault in the chunks."""
        self._odd(sink, [(Ev.NOTE, code, detail)])

    def _odd(self, sink: EventSink, found: list[Event]) -> None:
        """Report faults in the chunks, behind which there may be anything."""
        if found:
            self.follows = True
            report_all(sink, found)

    def _rare_kind(
        self, sink: EventSink, data: bytes, position: i64, end: i64
    ) -> tuple[_Kind, i64]:
        """Return the kind of the message data[position:end], and where its fields begin.

        For messages with a long id, a UUID, or an id that is not known, which is reported.
        """
        odd: list[Event] = []
        try:
            head, after = read_teeworlds(data, position, end)
        except VarintError:
            if position < end:
                odd.append((Ev.NOTE, "truncated", "message id"))
            else:
                read.odd_TwEmpty((), None, odd)
            self._odd(sink, odd)
            return self._kinds.unreadable, end
        kind = self._heads.get(head)
        if kind is not None:
            return kind, after
        kind = self._kinds.unknown[head & 1]
        if head >> 1:
            read.odd_TwUnknown((head,), None, odd)
        else:
            uuid = data[after : min(end, after + UUID_OCTETS)]
            found = self._kinds.by_uuid.get(uuid)
            if found is not None and found[0] == head:
                return found[1], after
            if len(uuid) < UUID_OCTETS:
                odd.append((Ev.NOTE, "truncated", "message UUID"))
            else:
                read.odd_TwUnknownUuid((uuid,), None, odd)
        self._odd(sink, odd)
        return kind, after


def _read_token(data: bytes, position: i64) -> i64:
    """Return the token at `position` as a number."""
    high: i64 = data[position]
    second: i64 = data[position + 1]
    third: i64 = data[position + 2]
    low: i64 = data[position + 3]
    return high << 24 | second << 16 | third << 8 | low


def _report(sink: EventSink, kind: _Kind, data: bytes, position: i64, end: i64) -> None:
    """Report a message that is not vital, whose fields are data[position:end].

    Raises:
        VarintError: the fields are cut short; nothing was reported.

    """
    meaning = kind.meaning
    if meaning == _INPUT:
        # An input acknowledges a snapshot.
        tick = read_teeworlds(data, position, end)[0]
        sink.message(kind.index)
        if tick >= 0:
            sink.ack(_IN_SNAPSHOT, tick, 0)
    elif meaning == _TIMING:
        # The server answers an input: how many milliseconds early it came.
        tick, position = read_teeworlds(data, position, end)
        left = read_teeworlds(data, position, end)[0]
        sink.message(kind.index)
        sink.event((Ev.TIMING, "input_left", left, "snapshot", tick))
        if left < 0:
            sink.event(_LATE_INPUT)
    elif meaning <= _SNAP:
        _report_snapshot(sink, kind, data, position, end)
    elif meaning <= _PONG:
        sink.message(kind.index)
        sink.event((Ev.PROBE if meaning == _PING else Ev.REPLY, "ping", 0))
    else:
        # DDNet's ping and pong carry a UUID behind that of the message.
        start = position + UUID_OCTETS
        number = int.from_bytes(data[start : max(start, min(end, start + UUID_OCTETS))], "big")
        sink.message(kind.index)
        sink.event((Ev.PROBE if meaning == _PING_EX else Ev.REPLY, "ping_ex", number))


def _report_snapshot(sink: EventSink, kind: _Kind, data: bytes, position: i64, end: i64) -> None:
    """Report a snapshot as a unit numbered by its tick; its first part stands for all parts.

    A snapshot with neither changes nor a base does not count as one: a 0.6.5 server sends its token
    to an older client in such ticks, and the client acknowledges one to prove that it has it.
    """
    tick, position = read_teeworlds(data, position, end)
    is_unit = tick >= 0
    if kind.meaning != _SNAP_SINGLE:
        delta, position = read_teeworlds(data, position, end)
        if kind.meaning == _SNAP_EMPTY:
            # A delta of tick + 1 means that there is no base.
            is_unit = is_unit and delta != tick + 1
        else:
            position = read_teeworlds(data, position, end)[1]
            part = read_teeworlds(data, position, end)[0]
            is_unit = is_unit and part == 0
    if is_unit:
        sink.unit(kind.index, _IN_SNAPSHOT, tick, None, None)
    else:
        sink.message(kind.index)


_SCANNERS: Final = (TeeworldsScanner(0), TeeworldsScanner(1))


def scan(payload: bytes, direction: int, hints: Hints) -> list[Event]:
    """Return the events of one datagram."""
    return _SCANNERS[direction].events(payload, hints)
