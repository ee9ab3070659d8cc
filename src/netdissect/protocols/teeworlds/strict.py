"""The strict test of a packet: whether a real sender of a dialect would have sent exactly this.

Reserved bits are zero, a compressed payload decodes and ends with its end symbol, the chunks fill
the payload exactly and their number is that of the header, every message id is known. *Source:*
docs/protocols/teeworlds.md, joining in the middle of a capture.
"""

from __future__ import annotations

from typing import Final

from netdissect.protocols.teeworlds.names import (
    D06,
    D065,
    D07,
    DDNET,
)
from netdissect.wire.huffman import HuffmanError, decompress, inspect
from netdissect.wire.teeworlds import (
    MAX_PACKET,
    PAYLOAD_LIMITS,
    MessageRow,
    connless_rows,
    message_rows,
    uuid_rows,
)
from netdissect.wire.varint import TEEWORLDS, VarintError

__all__ = ["Accepted", "accepts", "connless"]

_UUID_OCTETS: Final = 16
_MAGIC: Final = b"TKEN"
_LENGTHS: Final[dict[str, dict[int, tuple[int, ...]]]] = {
    D06: {0: (1,), 1: (1,), 2: (1,), 3: (1,)},
    D065: {0: (1,), 1: (513,), 2: (5,)},
    DDNET: {0: (5,), 1: (9,), 2: (9,), 3: (5,)},
    D07: {0: (1,), 1: (513,), 2: (1, 5), 5: (5, 513)},
}
"""Dialect -> control id -> octets of the body with the id. Close is looked at by `_close`."""
_CLOSE: Final = 4
_NO_ACK: Final = {D07: (1, 5), D06: (1,), D065: (1,), DDNET: (1,)}
"""Control messages whose ack is 0."""


class Accepted:
    """A packet that passed: whether it is control, and which side its messages name as sender."""

    __slots__ = ("control", "senders")

    def __init__(self, control: int | None, senders: frozenset[int]) -> None:
        self.control = control
        """Control id, None for chunks."""
        self.senders = senders
        """0 client, 1 server: what its messages are sent by."""


def accepts(payload: bytes, dialect: str) -> Accepted | None:  # noqa: C901, PLR0911 - vetoes
    """Return what a packet is if a sender of the dialect could have sent it, else None."""
    seven = dialect == D07
    start = 7 if seven else 3
    if not start <= len(payload) <= MAX_PACKET or payload[0] & 0x20:
        return None
    first = payload[0]
    control, packed = first & (4 if seven else 16), first & (16 if seven else 128)
    if first & 0xC0 if seven else first & (4 if dialect == D065 else 12):
        return None
    if dialect == D065:
        if first & 8:
            start = 7
        elif not control:
            return None
    body = payload[start:]
    if control:
        return None if packed or payload[2] else _control(payload, body, dialect, start)
    if packed:
        try:
            opened = decompress(body, PAYLOAD_LIMITS[dialect])
        except HuffmanError:
            return None
        end = inspect(body)
        if end is None or len(body) - end > 1 or len(opened) <= len(body):
            return None
        body = opened
    if dialect == DDNET:
        if len(body) < 4:  # noqa: PLR2004 - the token
            return None
        body = body[:-4]
    if not body and not (payload[2] == 0 and first & (8 if seven else 64)):
        return None
    return _chunks(body, payload[2], "0.7" if seven else "0.6", 6 if seven else 4)


def _control(  # noqa: PLR0911 - vetoes
    payload: bytes, body: bytes, dialect: str, start: int
) -> Accepted | None:
    if not body:
        return None
    number = body[0]
    ack = (payload[0] & 3) << 8 | payload[1]
    if number in _NO_ACK[dialect] and ack:
        return None
    if dialect == D065 and number != 1 and start == 3:  # noqa: PLR2004 - without token
        return None
    if number == _CLOSE:
        return Accepted(number, frozenset()) if _close(body, dialect) else None
    if len(body) not in _LENGTHS[dialect].get(number, ()):
        return None
    if dialect == DDNET and number in (1, 2) and body[1:5] != _MAGIC:
        return None
    if dialect == D065 and number == 1 and (any(body[1:5]) or any(body[9:])):
        return None
    if dialect == D07 and len(body) == 513 and any(body[5:]):  # noqa: PLR2004 - padded to 512
        return None
    return Accepted(number, frozenset())


def _close(body: bytes, dialect: str) -> bool:
    """Return whether a close has a form that a sender writes: a reason of text, or none."""
    rest = body[1:]
    if dialect == DDNET and len(rest) == 4 and rest[-1]:  # noqa: PLR2004 - a token alone
        return True
    if not rest:
        return dialect != DDNET
    stop = rest.find(b"\0")
    if stop < 1 or any(octet < 32 for octet in rest[:stop]):  # noqa: PLR2004 - controls
        return False
    try:
        rest[:stop].decode("utf-8")
    except UnicodeDecodeError:
        return False
    behind = len(rest) - stop - 1
    return behind == 0 or (dialect == DDNET and behind == 4)  # noqa: PLR2004 - a token


def _chunks(  # noqa: PLR0911 - vetoes
    body: bytes, count: int, family: str, bits: int
) -> Accepted | None:
    """Return the senders of the messages if the chunks fill the body exactly."""
    position, end = 0, len(body)
    mask = (1 << bits) - 1
    senders: set[int] = set()
    while position < end:
        if not count or position + 2 > end:
            return None
        count -= 1
        first, second = body[position], body[position + 1]
        size = (first & 0x3F) << bits | second & mask
        position += 2
        if first & 0x40:
            if position >= end:
                return None
            if bits == 4 and (second >> 4 & 3) != body[position] >> 6:  # noqa: PLR2004 - 0.6
                return None
            position += 1
        elif second >> bits or first & 0x80:
            return None
        if not size or position + size > end:
            return None
        row = _known(body, position, position + size, family)
        if row is None or (row.vital is not None and row.vital and not first & 0x40):
            return None
        if row.sender is not None:
            senders.add(row.sender)
        position += size
    return None if count or len(senders) > 1 else Accepted(None, frozenset(senders))


def _known(body: bytes, position: int, end: int, family: str) -> MessageRow | None:
    """Return the row of a message whose id is known and whose first fields can be read."""
    try:
        head, position = TEEWORLDS.read(body, position, end)
    except VarintError:
        return None
    if head >> 1:
        row = message_rows(family).get(head)
    else:
        row = uuid_rows().get(body[position : position + _UUID_OCTETS])
        position += _UUID_OCTETS
    if row is None or not _readable(row, body, position, end):
        return None
    return row


_INTS: Final = frozenset(("int", "bool", "tick", "enum", "flags", "tune_param"))


def _readable(row: MessageRow, body: bytes, position: int, end: int) -> bool:
    """Return whether the fields of a message fit it, as far as they are plain ones."""
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
            position += field.get("length", _UUID_OCTETS)
            if position > end:
                return False
        else:
            return position <= end
    return position <= end


def connless(payload: bytes) -> tuple[str, int | None, str] | None:
    """Return (dialect, sending side, type name) of a connectionless packet, else None."""
    if len(payload) >= 17 and payload[0] == 0x21:  # noqa: PLR2004 - header of 0.7 and 8 octets
        row = connless_rows("0.7").get(payload[9:17])
        return None if row is None else (D07, row.sender, row.type)
    if len(payload) < 14 or payload[:2] not in (b"\xff\xff", b"xe"):  # noqa: PLR2004
        return None
    if payload[:2] == b"\xff\xff" and payload[2:6] != b"\xff\xff\xff\xff":
        return None
    row = connless_rows("0.6").get(payload[6:14])
    return None if row is None else (D06, row.sender, row.type)
