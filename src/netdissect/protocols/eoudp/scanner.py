"""The commonest EOUDP datagrams read by words."""

from __future__ import annotations

from struct import pack, unpack
from typing import Final

from netdissect.model.claims import Hints
from netdissect.model.events import Event
from netdissect.model.native import i64, read_i64_be, read_i64_le
from netdissect.model.sinks import EventSink
from netdissect.protocols.eoudp.dialects import COMPONENT_OF, ROWS, Row
from netdissect.protocols.eoudp.rules import SPACE
from netdissect.protocols.eoudp.scan import scan
from netdissect.protocols.eoudp.state import DecoderState
from netdissect.protocols.scanner import Scanner
from netdissect.wire.eoudp_names import FAR_ID, RECEIVE_LIMIT, command_name, time_limits

__all__ = ["EoudpScanner"]

_ACKNOWLEDGE: Final = 0x01
_COMPONENT: Final = COMPONENT_OF
_ID: Final = 8
_PLAIN: Final = {"EVENT": 5, "DELETE_ENTITY": 8}
"""Messages that say nothing beyond their own number, and the size of their contents."""
_TYPES: Final = ("COMPONENT_OF", "ACK", *_PLAIN)
_U32: Final = 0xFFFFFFFF
_BIG: Final = ">"


class EoudpScanner(Scanner):
    """Reads the commonest datagrams (components, acknowledgements, keys, entities deleted; nothing
    odd about them, in the middle of an epoch) itself: the derived reader makes objects of all
    fields, of which soft rules ask one by one what here a comparison tells. What it cannot take it
    leaves to `scan`. A test holds the two together on every datagram.
    """

    __slots__ = ("_dialect", "_direction", "_form")

    def __init__(self, direction: int) -> None:
        super().__init__(_TYPES, (SPACE,))
        self._direction = direction
        self._dialect = ""
        self._form: _Form | None = None
        """What reads this dialect."""

    def scan(self, sink: EventSink, payload: bytes, hints: Hints) -> list[Event] | None:
        """Tell the events of a datagram, or return those of one that is not usual."""
        direction = self._direction
        # By a number that varies, compiled, a pair would become an object first.
        dialect = hints.dialects[1] if direction else hints.dialects[0]
        if dialect is not self._dialect:
            self._dialect, self._form = dialect, _FORMS.get(dialect)
        form = self._form
        if form is not None and form.usual(sink, payload, direction, hints.extra):
            return None
        return scan(payload, direction, hints)


class _Form:
    """The header of one dialect, as numbers."""

    __slots__ = (
        "acked", "document", "first", "flagged", "flags", "id_at", "since", "size_at", "sizes",
        "start", "types", "until",
    )  # fmt: skip

    def __init__(self, row: Row) -> None:
        wide = row.wide_stamp
        low, high = time_limits(row.name)
        self.since: i64 = _pattern(low, wide=wide)
        self.until: i64 = _pattern(high, wide=wide)
        """First eight bytes of a time stamp, as a number: not below the one, below the other."""
        self.id_at: i64 = row.stamp_end
        self.flagged = row.flagged
        self.size_at: i64 = row.stamp_end + _ID + row.flagged
        self.start: i64 = row.start
        self.document = row.document
        self.first: i64 = row.first_id
        self.flags = bytes(command in row.must for command in range(256))
        """Whether a command must be acknowledged, where no flag says so."""
        self.acked = bytes(row.acked is None or command in row.acked for command in range(256))
        """Whether receivers acknowledge it."""
        types, sizes = bytearray(256), bytearray(256)
        types[_COMPONENT], types[_ACKNOWLEDGE] = 0, 1
        for command in range(256):
            for name, octets in _PLAIN.items():
                if command_name(row.name, command, octets) == name:
                    types[command], sizes[command] = _TYPES.index(name), octets
        self.types = bytes(types)
        """Place in `_TYPES` of what a command counts as."""
        self.sizes = bytes(sizes)
        """Size of the content of each plain command; 0 for others."""

    def usual(  # noqa: C901, PLR0911, PLR0912 - calls would cost more than what they do
        self, sink: EventSink, payload: bytes, direction: int, extra: DecoderState
    ) -> bool:
        """Tell the events of a datagram of the usual form; False for any other."""
        size: i64 = len(payload)
        start, place = self.start, self.id_at
        if size < start or size > RECEIVE_LIMIT:
            return False
        stamp = read_i64_be(payload, 1)
        number = read_i64_be(payload, place)
        content = size - start
        opener = extra.openers[1] if direction else extra.openers[0]
        if (
            number <= self.first + 1
            or number >= FAR_ID
            or stamp < self.since
            or stamp >= self.until
            or read_i64_be(payload, self.size_at) != content
            or opener is None
        ):
            return False
        command: i64 = payload[0]
        flag: i64 = payload[place + _ID] if self.flagged else self.flags[command]
        if flag > 1:
            return False
        big = False
        if self.document and not self.sizes[command]:
            if extra.order is None:
                return False
            big = extra.order == _BIG
        acknowledged: i64 = -1
        if command == _COMPONENT:
            if not _component(payload, start + _ID, size, big, self.document):
                return False
        elif command == _ACKNOWLEDGE:
            if content != _ID:
                return False
            acknowledged = read_i64_be(payload, start) if big else read_i64_le(payload, start)
            if acknowledged < 0 or acknowledged >= FAR_ID:
                return False
        elif not content or content != self.sizes[command]:
            return False
        elif not direction and extra.connect and not extra.accepted:
            return False  # a key says that its sender was accepted
        sink.begin()
        type_: i64 = self.types[command]
        if not flag:
            sink.numbered(type_, 0, number)
        elif not self.acked[command]:
            sink.plain_unit(type_, 0, number, payload)
        else:
            # In documents copies carry a fresh time stamp: it is no part of what is compared.
            mark = payload[:1] + payload[place:] if self.document else payload
            sink.unit(type_, 0, number, None, mark)
        if acknowledged >= 0:
            sink.ack(0, acknowledged, 0)
        return True


def _component(payload: bytes, at: i64, size: i64, big: bool, document: bool) -> bool:  # noqa: FBT001
    """Return whether the two lengths of a component, of its name at `at` and of its data, lead to
    the end. In documents a name may have a NUL behind it.
    """
    if size < at + 8:
        return False
    word = read_i64_be(payload, at) >> 32 if big else read_i64_le(payload, at)
    end = at + 4 + (word & _U32)
    if _ends(payload, end, size, big):
        return True
    return document and end < size and not payload[end] and _ends(payload, end + 1, size, big)


def _ends(payload: bytes, at: i64, size: i64, big: bool) -> bool:  # noqa: FBT001
    """Return whether data with its length before it lies from `at` to the end."""
    if size < at + 4:
        return False
    # The word that ends with the length is in the payload, whatever follows.
    word = read_i64_be(payload, at - 4) if big else read_i64_le(payload, at - 4) >> 32
    return at + 4 + (word & _U32) == size


def _pattern(value: float, *, wide: bool) -> int:
    """Return the smallest first eight bytes, as a number, of a time stamp not below a value."""
    if wide:
        return int.from_bytes(pack("!d", value), "big")
    octets = pack("!f", value)
    below: bool = unpack("!f", octets)[0] < value
    return (int.from_bytes(octets, "big") + below) << 32


_FORMS: Final = {name: _Form(row) for name, row in ROWS.items() if not row.long32}
"""Dialect -> its header; ids and sizes of 32-bit builds are shorter."""
