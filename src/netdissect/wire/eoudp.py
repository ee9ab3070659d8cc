"""Detects what EOUDP's documents leave open: the byte order and the form of strings in a content.

The documents name no byte order, and do not say whether the length of a string counts its NUL. Real
programs write little-endian and no NUL. A reading is right if it consumes the content exactly.
Source: docs/protocols/eoudp.md, "Document forms".
"""

from __future__ import annotations

import struct
from typing import Final, Literal, TypeAlias

from netdissect.wire.eoudp_names import DIALECTS, DOCUMENT_SIZES, DOCUMENTS, ID_OCTETS, SIZES

Order: TypeAlias = Literal["<", ">"]
LITTLE: Final = "<"
BIG: Final = ">"
EXCLUDES_NUL: Final = "length_excludes_nul"
"""Form of a string: length of the text, text, NUL."""
INCLUDES_NUL: Final = "length_includes_nul"
"""Form of a string: length of text and NUL, text, NUL."""
NO_NUL: Final = "no_nul"
"""Form of a string that programs use: length of the text, text."""
TEXTS: Final = {
    "SYSTEM_LOAD": "strings", "GAME_EVENT": "strings", "COMPONENT_OF": "components",
    "DELETE_COMPONENT": "deleted",
}  # fmt: skip
"""Command whose content has strings -> kind of the content; see `consumes`."""
FORMS: Final = (EXCLUDES_NUL, INCLUDES_NUL, NO_NUL)
"""Forms of strings in the order in which they are tried: the first that fits is used."""

DIGITS_LIMIT: Final = 20
"""Digits of the largest 64-bit number."""

_LONG32: Final = frozenset(name for name in DIALECTS if name.endswith("long32"))
_IN_DIGITS: Final = frozenset(name for name in DIALECTS if name.startswith("exodia-early"))
"""Dialects that may write a client's index as text: a content that has not eight bytes is one."""
_LENGTH: Final = 4
"""Size of the length of a string or block, bytes."""
_FAIL: Final = -1
"""Offset that says that the content does not fit."""
_U32: Final = {"<": struct.Struct("<I").unpack_from, ">": struct.Struct(">I").unpack_from}

_NUMBERS: Final = {
    "PACKET_INFO": ("i", 1 << 20), "ACK": ("Q", 1 << 32), "CONNECT_ACCEPT": ("Q", 1 << 32),
    "CONNECT_REJECT": ("Q", 1 << 32), "DISCONNECT": ("Q", 1 << 32), "EVENT": ("I", 1 << 16),
    "IMPORTANT_EVENT": ("I", 1 << 16), "EVENT_0x11": ("I", 1 << 16), "EVENT_0x8a": ("I", 1 << 16),
    "IMPORTANT_EVENT_0x8c": ("I", 1 << 16),
}  # fmt: skip
"""Command -> (`struct` format of the number with which its content begins, limit of a plausible
one).
"""


def string_end(data: bytes, at: int, order: str, form: str) -> int:
    """Return the offset of the end of the string at `at`; -1 if there is none of this form."""
    start = at + _LENGTH
    if start > len(data):
        return _FAIL
    end: int = start + _U32[order](data, at)[0]
    if form == EXCLUDES_NUL:
        return end + 1 if end < len(data) and not data[end] else _FAIL
    if end > len(data):
        return _FAIL
    if form == INCLUDES_NUL:
        return end if end > start and not data[end - 1] else _FAIL
    return end


def _block_end(data: bytes, at: int, order: str) -> int:
    """Return the offset of the end of the length-prefixed block at `at`; -1 if there is none."""
    start = at + _LENGTH
    if start > len(data):
        return _FAIL
    end: int = start + _U32[order](data, at)[0]
    return end if end <= len(data) else _FAIL


def consumes(kind: str, data: bytes, order: str, form: str) -> bool:
    """Return whether a content of a kind, read in this order and form, ends with `data`.

    Kinds: `strings` (one or more strings), `components` (one or more times entity, name, data),
    `deleted` (entity, name, and optionally data).
    """
    return _walk(kind, data, order, form)[1] == len(data) > 0


def _walk(kind: str, data: bytes, order: str, form: str) -> tuple[int, int]:
    """Return (number of whole strings, offset of the end of the content; -1 if it is broken)."""
    whole = at = 0
    while 0 <= at < len(data):
        at = string_end(data, at if kind == "strings" else at + ID_OCTETS, order, form)
        if at < 0:
            break
        whole += 1
        if kind == "strings":
            continue
        if kind == "components" or at < len(data):
            at = _block_end(data, at, order)
        if kind == "deleted":
            break
    return whole, at


def broken_reading(kind: str, data: bytes, order: Order | None) -> tuple[Order, str]:
    """Return the reading with most whole strings of a content that no reading consumes."""
    orders: tuple[Order, ...] = ("<", ">") if order is None else (order,)
    readings = [(candidate, form) for candidate in orders for form in FORMS]
    return max(readings, key=lambda one: _walk(kind, data, one[0], one[1])[0])


def text_reading(kind: str, data: bytes, order: Order | None) -> tuple[Order, str] | None:
    """Return (byte order, form of strings) of the first reading that consumes `data`, or None.

    `order` is the byte order that the flow has shown so far, and is tried first. Without one,
    little-endian is.
    """
    orders: tuple[Order, Order] = (">", "<") if order == BIG else ("<", ">")
    for candidate in orders:
        for form in FORMS:
            if consumes(kind, data, candidate, form):
                return candidate, form
    return None


def number_order(command: str, data: bytes, order: Order | None) -> Order:
    """Return the byte order of a content without strings.

    It is the order that the flow has shown. Without one it is little-endian, unless that makes a
    number implausible that is plausible in big-endian (an ACK of id 2^56 is one of id 1).
    """
    if order is not None:
        return order
    row = _NUMBERS.get(command)
    if row is None:
        return "<"
    letter, limit = row
    size = struct.calcsize("<" + letter)
    count = len(data) // size if letter == "i" else min(len(data) // size, 1)
    little = struct.unpack_from(f"<{count}{letter}", data)
    big = struct.unpack_from(f">{count}{letter}", data)
    absurd = any(abs(value) >= limit for value in little)
    return ">" if absurd and all(abs(value) < limit for value in big) else "<"


def legal(dialect: str, command: str, content: bytes) -> bool | None:
    """Return whether a content has a legal size and, if it has lengths, these lead to its end.

    None for a command that the dialect does not have.
    """
    size = len(content)
    document = dialect in DOCUMENTS
    if command == "PACKET_INFO" or (document and command == "DELETE_ENTITY"):
        return size > 0 and size % ID_OCTETS == 0
    if command == "CONNECT_ACCEPT" and size != 8 and dialect in _IN_DIGITS:  # noqa: PLR2004 - an index as number
        return 1 <= size <= DIGITS_LIMIT and content.isascii() and content.isdigit()
    if command == "DELETE_ENTITY" and dialect in _LONG32:
        return size == ID_OCTETS - 4
    kind = TEXTS.get(command)
    if kind is None:
        sizes = (DOCUMENT_SIZES if document else SIZES).get(command)
        return None if sizes is None else size in sizes
    if document:
        # In the Usage section of RFC_02, a 0x0c is a game event.
        kinds = (kind, "strings") if kind == "components" else (kind,)
        return any(text_reading(each, content, None) is not None for each in kinds)
    return _program_text(dialect, kind, content)


def _program_text(dialect: str, kind: str, content: bytes) -> bool:
    """Return whether a content with strings, sent by a program, is legal."""
    if kind == "strings":
        return text_reading(kind, content, LITTLE) is not None
    if dialect in _LONG32:
        # In a 32-bit build the entity id is four bytes shorter, and nothing else differs.
        content = bytes(4) + content
    if kind == "deleted":
        # Programs send no data after the name.
        return string_end(content, ID_OCTETS, LITTLE, NO_NUL) == len(content)
    return consumes(kind, content, LITTLE, NO_NUL)
