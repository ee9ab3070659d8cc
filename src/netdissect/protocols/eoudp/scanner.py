"""The scanner of EOUDP: reads the most frequent datagrams as machine words."""

from __future__ import annotations

from struct import pack, unpack
from typing import Final

from netdissect.model.claims import Hints
from netdissect.model.events import Event
from netdissect.model.native import i64, read_i64_be, read_i64_le
from netdissect.model.sinks import EventSink
from netdissect.protocols.eoudp.dialects import ROWS, Row
from netdissect.protocols.eoudp.rules import SPACE
from netdissect.protocols.eoudp.scan import scan
from netdissect.protocols.eoudp.state import DecoderState
from netdissect.protocols.scanner import Scanner
from netdissect.wire import eoudp_names as eoudp
from netdissect.wire.eoudp_names import FAR_ID, RECEIVE_LIMIT, command_name, time_limits

_PLAIN: Final = {"EVENT": 5, "DELETE_ENTITY": 8}
"""Types whose messages mean nothing beyond their own number -> size of their content, bytes."""
_TYPES: Final = ("COMPONENT_OF", "ACK", *_PLAIN)
_U32: Final = 0xFFFFFFFF
_BIG: Final = ">"


class EoudpScanner(Scanner):
    """Reads components, acknowledgements, key events and deletions of entities, if they have no
    fault and do not begin an epoch.

    Here a comparison of numbers replaces a soft rule, while the derived reader makes an object of
    every field first. All other datagrams are left to `scan`. A test compares the two on every
    datagram.
    """

    __slots__ = ("_dialect", "_direction", "_form")

    def __init__(self, direction: int) -> None:
        super().__init__(_TYPES, (SPACE,))
        self._direction = direction
        self._dialect = ""
        self._form: _Form | None = None
        """Form of this dialect."""

    def scan(self, sink: EventSink, payload: bytes, hints: Hints) -> list[Event] | None:
        """Report the events of a frequent datagram, return those of any other."""
        direction = self._direction
        # Indexed by a variable, compiled code would make an object of the pair first.
        dialect = hints.dialects[1] if direction else hints.dialects[0]
        if dialect is not self._dialect:
            self._dialect, self._form = dialect, _FORMS.get(dialect)
        form = self._form
        if form is not None and form.report(sink, payload, direction, hints.extra):
            return None
        return scan(payload, direction, hints)


class _Form:
    """The header of one dialect, as numbers."""

    __slots__ = (
        "acked", "document", "first_id", "flagged", "flags", "id_at", "max_stamp", "min_stamp",
        "size_at", "sizes", "start", "types",
    )  # fmt: skip

    def __init__(self, row: Row) -> None:
        wide = row.wide_stamp
        low, high = time_limits(row.name)
        self.min_stamp: i64 = _stamp_word(low, wide=wide)
        self.max_stamp: i64 = _stamp_word(high, wide=wide)
        """Limits of the eight bytes from the time stamp on, as a number: the lower one is included,
        the upper one excluded.
        """
        self.id_at: i64 = row.stamp_end
        self.flagged = row.flagged
        self.size_at: i64 = row.stamp_end + eoudp.ID_OCTETS + row.flagged
        self.start: i64 = row.start
        self.document = row.document
        self.first_id: i64 = row.first_id
        self.flags = bytes(command in row.must for command in range(256))
        """Command -> whether it must be acknowledged, in a dialect without the flag."""
        self.acked = bytes(row.acked is None or command in row.acked for command in range(256))
        """Command -> whether receivers acknowledge it."""
        types, sizes = bytearray(256), bytearray(256)
        types[eoudp.COMPONENT_OF], types[eoudp.ACK] = 0, 1
        for command in range(256):
            for name, octets in _PLAIN.items():
                if command_name(row.name, command, octets) == name:
                    types[command], sizes[command] = _TYPES.index(name), octets
        self.types = bytes(types)
        """Command -> index of its type in `_TYPES`."""
        self.sizes = bytes(sizes)
        """Command -> size of its content if it is a plain one, else 0."""

    def report(  # noqa: C901, PLR0911, PLR0912 - calls would cost more than what they do
        self, sink: EventSink, payload: bytes, direction: int, state: DecoderState
    ) -> bool:
        """Report the events of a frequent datagram; return False for any other."""
        size: i64 = len(payload)
        start, id_at = self.start, self.id_at
        if size < start or size > RECEIVE_LIMIT:
            return False
        stamp = read_i64_be(payload, 1)
        number = read_i64_be(payload, id_at)
        content = size - start
        opener = state.openers[1] if direction else state.openers[0]
        if (
            # It may begin an epoch, which only `scan` knows about.
            number <= self.first_id + 1
            or number >= FAR_ID
            or stamp < self.min_stamp
            or stamp >= self.max_stamp
            or read_i64_be(payload, self.size_at) != content
            or opener is None
        ):
            return False
        command: i64 = payload[0]
        flag: i64 = payload[id_at + eoudp.ID_OCTETS] if self.flagged else self.flags[command]
        if flag > 1:
            return False
        big = False
        if self.document and not self.sizes[command]:
            if state.order is None:
                return False
            big = state.order == _BIG
        acknowledged: i64 = -1
        if command == eoudp.COMPONENT_OF:
            if not _is_component(payload, start + eoudp.ID_OCTETS, size, big, self.document):
                return False
        elif command == eoudp.ACK:
            if content != eoudp.ID_OCTETS:
                return False
            acknowledged = read_i64_be(payload, start) if big else read_i64_le(payload, start)
            if acknowledged < 0 or acknowledged >= FAR_ID:
                return False
        elif not content or content != self.sizes[command]:
            return False
        elif not direction and state.connect and not state.accepted:
            return False  # A key event shows that its sender was accepted.
        sink.begin()
        type_: i64 = self.types[command]
        if not flag:
            sink.numbered(type_, 0, number)
        elif not self.acked[command]:
            sink.plain_unit(type_, 0, number, payload)
        else:
            # In documents copies carry a fresh time stamp, which is not compared.
            compared = payload[:1] + payload[id_at:] if self.document else payload
            sink.unit(type_, 0, number, None, compared)
        if acknowledged >= 0:
            sink.ack(0, acknowledged, 0)
        return True


def _is_component(payload: bytes, at: i64, size: i64, big: bool, document: bool) -> bool:  # noqa: FBT001
    """Return whether a component's name, whose length is at `at`, and its data fill the payload.

    In documents a NUL may follow the name.
    """
    if size < at + 8:
        return False
    word = read_i64_be(payload, at) >> 32 if big else read_i64_le(payload, at)
    end = at + 4 + (word & _U32)
    if _fills(payload, end, size, big):
        return True
    return document and end < size and not payload[end] and _fills(payload, end + 1, size, big)


def _fills(payload: bytes, at: i64, size: i64, big: bool) -> bool:  # noqa: FBT001
    """Return whether the length at `at`, and that many bytes, fill the rest of the payload."""
    if size < at + 4:
        return False
    # Read the word that ends with the length, because the payload may end there.
    word = read_i64_be(payload, at - 4) if big else read_i64_le(payload, at - 4) >> 32
    return at + 4 + (word & _U32) == size


def _stamp_word(value: float, *, wide: bool) -> int:
    """Return the smallest word that begins with a time stamp of at least `value`.

    A time stamp of four bytes is the upper half of the word. As they are positive, the words have
    the order of the time stamps.
    """
    if wide:
        return int.from_bytes(pack("!d", value), "big")
    octets = pack("!f", value)
    below: bool = unpack("!f", octets)[0] < value
    return (int.from_bytes(octets, "big") + below) << 32


_FORMS: Final = {name: _Form(row) for name, row in ROWS.items() if not row.long32}
"""Dialect -> its header. Those of 32-bit builds have shorter ids and sizes, and are left out."""
