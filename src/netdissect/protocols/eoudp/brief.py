"""The commonest EOUDP datagrams read by words, for flows that nobody watches."""

from __future__ import annotations

from struct import pack, unpack
from typing import Final

from netdissect.model.claims import Hints
from netdissect.model.events import Ev, Event
from netdissect.model.native import i64, read_i64_be, read_i64_le
from netdissect.protocols.eoudp.rows import COMPONENT_OF, ROWS, Learnt, Row
from netdissect.protocols.eoudp.rules import SPACE
from netdissect.protocols.eoudp.scan import scan
from netdissect.wire.eoudp_names import FAR_ID, RECEIVE_LIMIT, command_name, time_limits

__all__ = ["brief"]

_ACKNOWLEDGE: Final = 0x01
_COMPONENT: Final = COMPONENT_OF
_ID: Final = 8
_PLAIN: Final = {"EVENT": 5, "DELETE_ENTITY": 8}
"""Messages that say nothing beyond their own number, and the size of their contents."""
_U32: Final = 0xFFFFFFFF
_BIG: Final = ">"


def brief(payload: bytes, direction: int, hints: Hints) -> list[Event]:
    """Return the events of one datagram.

    The commonest ones (components, acknowledgements, keys, entities deleted; nothing odd about
    them, in the middle of an epoch) are read here: the derived reader makes objects of all fields,
    of which soft rules ask one by one what here a comparison tells. What it cannot take it leaves
    to `scan`. A test holds the two together on every datagram.
    """
    form = _FORMS.get(hints.dialects[direction])
    events = None if form is None else form.usual(payload, direction, hints.extra)
    return scan(payload, direction, hints) if events is None else events


class _Form:
    """The header of one dialect, as numbers."""

    __slots__ = (
        "acked", "document", "first", "flagged", "flags", "id_at", "names", "since", "size_at",
        "sizes", "start", "until",
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
        self.names = {_COMPONENT: "COMPONENT_OF", _ACKNOWLEDGE: "ACK"}
        sizes = bytearray(256)
        for command in range(256):
            for name, octets in _PLAIN.items():
                if command_name(row.name, command, octets) == name:
                    self.names[command], sizes[command] = name, octets
        self.sizes = bytes(sizes)
        """Size of the content of each plain command; 0 for others."""

    def usual(  # noqa: C901, PLR0911, PLR0912 - calls would cost more than what they do
        self, payload: bytes, direction: int, extra: Learnt
    ) -> list[Event] | None:
        """Return the events of a datagram of the usual form, None for any other."""
        size: i64 = len(payload)
        start, place = self.start, self.id_at
        if size < start or size > RECEIVE_LIMIT:
            return None
        stamp = read_i64_be(payload, 1)
        number = read_i64_be(payload, place)
        content = size - start
        if (
            number <= self.first + 1
            or number >= FAR_ID
            or stamp < self.since
            or stamp >= self.until
            or read_i64_be(payload, self.size_at) != content
            or extra.openers[direction] is None
        ):
            return None
        command: i64 = payload[0]
        flag: i64 = payload[place + _ID] if self.flagged else self.flags[command]
        if flag > 1:
            return None
        big = False
        if self.document and not self.sizes[command]:
            if extra.order is None:
                return None
            big = extra.order == _BIG
        acknowledged: i64 = -1
        if command == _COMPONENT:
            if not _component(payload, start + _ID, size, big, self.document):
                return None
        elif command == _ACKNOWLEDGE:
            if content != _ID:
                return None
            acknowledged = read_i64_be(payload, start) if big else read_i64_le(payload, start)
            if acknowledged < 0 or acknowledged >= FAR_ID:
                return None
        elif not content or content != self.sizes[command]:
            return None
        elif not direction and extra.connect and not extra.accepted:
            return None  # a key says that its sender was accepted
        name = self.names[command]
        if not flag:
            event: Event = (Ev.NUMBERED, name, SPACE, number)
        elif not self.acked[command]:
            event = (Ev.PLAIN_UNIT, name, SPACE, number, payload)
        else:
            # In documents copies carry a fresh time stamp: it is no part of what is compared.
            mark = payload[:1] + payload[place:] if self.document else payload
            event = (Ev.UNIT, name, SPACE, number, None, mark)
        if acknowledged < 0:
            return [event]
        return [event, (Ev.ACK, SPACE, acknowledged, 0)]


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
