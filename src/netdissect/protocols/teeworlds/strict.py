"""The strict test of a packet: whether a real sender of a dialect would have sent these bytes.

Reserved bits must be zero. A compressed payload must decode and end with its end symbol. The chunks
must fill the payload exactly, be as many as the header states, and have known message ids.
Source: docs/protocols/teeworlds.md, joining in the middle of a capture.
"""

from __future__ import annotations

from typing import Final

from netdissect.wire import teeworlds_forms as tw
from netdissect.wire.huffman import HuffmanError, decompress, inspect
from netdissect.wire.teeworlds import (
    MessageRow,
    connless_row,
    message_rows,
    uuid_rows,
)
from netdissect.wire.varint import TEEWORLDS, VarintError

_PADDED: Final = 1 + tw.PADDED_OCTETS
_LENGTHS: Final[dict[str, dict[int, tuple[int, ...]]]] = {
    tw.D06: {0: (1,), 1: (1,), 2: (1,), 3: (1,)},
    tw.D065: {0: (1,), 1: (_PADDED,), 2: (5,)},
    tw.DDNET: {0: (5,), 1: (9,), 2: (9,), 3: (5,)},
    tw.D07: {0: (1,), 1: (_PADDED,), 2: (1, 5), 5: (5, _PADDED)},
}
"""Dialect -> control id -> legal sizes of the body with the id, bytes. `_close` tests a close."""
_CONNLESS_07: Final = bytes([tw.CONNLESS_FLAG | tw.CONNLESS_VERSION])
_CONNLESS_06: Final = (tw.NO_TOKEN[:2] + tw.NO_TOKEN, b"xe")
"""First bytes of connectionless packets."""
_CONNLESS_FIRST: Final = frozenset(start[0] for start in (_CONNLESS_07, *_CONNLESS_06))
_SENDERS: Final = {
    tw.CONNECT: frozenset({0}), tw.ACCEPTED: frozenset({1}), tw.ACCEPT: frozenset({0})
}  # fmt: skip
"""Control id -> the only side that sends it: 0 client, 1 server."""
_NO_ACK: Final = {tw.D07: (1, 5), tw.D06: (1,), tw.D065: (1,), tw.DDNET: (1,)}
"""Dialect -> control ids whose ack is always 0."""
_FIRST_PRINTABLE: Final = 32
"""Bytes below this are control characters, which no close reason holds."""


class Accepted:
    """A packet that passed the test."""

    __slots__ = ("control", "senders")

    def __init__(self, control: int | None, senders: frozenset[int]) -> None:
        self.control = control
        """Control id; None for a packet of chunks."""
        self.senders = senders
        """Sides that alone send these messages: 0 client, 1 server."""


def accepts(payload: bytes, dialect: str) -> Accepted | None:  # noqa: C901, PLR0911 - vetoes
    """Return the packet if a sender of the dialect could have sent it, else None."""
    form: tw.Form = tw.FORMS[dialect]
    start = form.head
    if not start <= len(payload) <= tw.MAX_PACKET or payload[0] & tw.CONNLESS_FLAG:
        return None
    first = payload[0]
    control, packed = first & form.control, first & form.compressed
    if first & form.reserved:
        return None
    if first & form.token_flag:
        start += tw.TOKEN_OCTETS
    elif form.token_flag and not control:
        return None
    body = payload[start:]
    if control:
        return None if packed or payload[2] else _control(payload, body, dialect, start)
    if packed:
        try:
            opened = decompress(body, form.limit)
        except HuffmanError:
            return None
        end = inspect(body)
        if end is None or len(body) - end > 1 or len(opened) <= len(body):
            return None
        body = opened
    if form.tail:
        if len(body) < form.tail:
            return None
        body = body[: -form.tail]
    if not body and not (payload[2] == 0 and first & form.resend):
        return None
    return _chunks(body, payload[2], form.family, form.size_bits)


def _control(  # noqa: PLR0911 - vetoes
    payload: bytes, body: bytes, dialect: str, start: int
) -> Accepted | None:
    """Test a control packet whose body begins at `start`."""
    if not body:
        return None
    number = body[0]
    ack = (payload[0] & 3) << 8 | payload[1]
    if number in _NO_ACK[dialect] and ack:
        return None
    if dialect == tw.D065 and number != tw.CONNECT and start == tw.HEADER:
        return None
    if number == tw.CLOSE:
        return Accepted(number, frozenset()) if _close(body, dialect) else None
    if len(body) not in _LENGTHS[dialect].get(number, ()):
        return None
    if dialect == tw.DDNET and number in (tw.CONNECT, tw.ACCEPTED) and body[1:5] != tw.TOKEN_MAGIC:
        return None
    if dialect == tw.D065 and number == tw.CONNECT and (any(body[1:5]) or any(body[9:])):
        return None
    if dialect == tw.D07 and len(body) == _PADDED and any(body[5:]):
        return None
    return Accepted(number, _SENDERS.get(number, frozenset()))


def _close(body: bytes, dialect: str) -> bool:
    """Return whether a close is one that a sender writes: with a reason of text, or without."""
    rest = body[1:]
    if dialect == tw.DDNET and len(rest) == tw.TOKEN_OCTETS and rest[-1]:
        return True
    if not rest:
        return dialect != tw.DDNET
    stop = rest.find(b"\0")
    if stop < 1 or any(octet < _FIRST_PRINTABLE for octet in rest[:stop]):
        return False
    try:
        rest[:stop].decode("utf-8")
    except UnicodeDecodeError:
        return False
    behind = len(rest) - stop - 1
    return behind == 0 or (dialect == tw.DDNET and behind == tw.TOKEN_OCTETS)


def _chunks(  # noqa: PLR0911 - vetoes
    body: bytes, count: int, family: str, bits: int
) -> Accepted | None:
    """Test whether `count` chunks of known messages fill the body exactly."""
    position, end = 0, len(body)
    mask = (1 << bits) - 1
    senders: set[int] = set()
    while position < end:
        if not count or position + 2 > end:
            return None
        count -= 1
        first, second = body[position], body[position + 1]
        size = (first & tw.SIZE_HIGH) << bits | second & mask
        position += 2
        if first & tw.VITAL:
            if position >= end:
                return None
            if bits == 4 and (second >> 4 & 3) != body[position] >> 6:  # noqa: PLR2004 - 0.6
                return None
            position += 1
        elif second >> bits or first & tw.RESEND:
            return None
        if not size or position + size > end:
            return None
        row = _known(body, position, position + size, family)
        if row is None or (row.vital is not None and row.vital and not first & tw.VITAL):
            return None
        if row.sender is not None:
            senders.add(row.sender)
        position += size
    return None if count or len(senders) > 1 else Accepted(None, frozenset(senders))


def _known(body: bytes, position: int, end: int, family: str) -> MessageRow | None:
    """Return the row of the message body[position:end] if its id is known and its fields fit."""
    try:
        head, position = TEEWORLDS.read(body, position, end)
    except VarintError:
        return None
    if head >> 1:
        row = message_rows(family).get(head)
    else:
        row = uuid_rows().get(body[position : position + tw.UUID_OCTETS])
        position += tw.UUID_OCTETS
    if row is None or not _readable(row, body, position, end):
        return None
    return row


_INTS: Final = frozenset(("int", "bool", "tick", "enum", "flags", "tune_param"))
"""Types of fields that are one variable-length integer."""


def _readable(row: MessageRow, body: bytes, position: int, end: int) -> bool:
    """Return whether the fields of a message fit into it, up to the first of a variable size."""
    for field in row.fields:
        if field.get("optional") and position >= end:
            return True
        kind = field["type"]
        if kind in _INTS:
            try:
                _value, position = TEEWORLDS.read(body, position, end)
            except VarintError:
                return False
        elif kind == "string":
            stop = body.find(b"\0", position, end)
            if stop < 0:
                return False
            position = stop + 1
        elif kind == "uuid" or (kind == "raw" and "length" in field):
            position += field.get("length", tw.UUID_OCTETS)
            if position > end:
                return False
        else:
            return position <= end
    return position <= end


def is_declined(payload: bytes, offered: str) -> bool:
    """Return whether a packet shows that the server declined the offered dialect and its token.

    Then a sender of 0.6, which has no token, could have sent it, and one of the offered dialect
    could not.
    """
    return (
        offered != tw.D06
        and accepts(payload, offered) is None
        and accepts(payload, tw.D06) is not None
    )


def other_of_06(payload: bytes) -> str | None:
    """Return the dialect of the 0.6 family with a token that alone could have sent a packet; None
    if there is none, or if 0.6 could have sent it.
    """
    if accepts(payload, tw.D06) is not None:
        return None
    found = [name for name in (tw.D065, tw.DDNET) if accepts(payload, name) is not None]
    return found[0] if len(found) == 1 else None


def connless(payload: bytes) -> tuple[str, int | None, str] | None:
    """Return (dialect, sending side, type name) of a connectionless packet, else None."""
    if not payload or payload[0] not in _CONNLESS_FIRST:
        return None  # without the cost of comparing further bytes, which dominates floods
    if payload.startswith(_CONNLESS_07):
        dialect = tw.D07
    elif payload.startswith(_CONNLESS_06):
        dialect = tw.D06
    else:
        return None
    row = connless_row(payload, tw.FORMS[dialect].family)
    return None if row is None else (dialect, row.sender, row.type)
