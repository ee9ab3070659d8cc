"""What EOUDP's documents leave open: byte order and string form of a content, told by its bytes.

The documents name no byte order and let a string's length count its NUL or not; real code writes
little-endian and no NUL. A reading is right when it consumes the content exactly.
Source: docs/protocols/eoudp.md, "Document forms".
"""

from __future__ import annotations

import struct
from typing import Final, Literal, TypeAlias

from netdissect.wire.eoudp_names import DIALECTS, DOCUMENT_SIZES, DOCUMENTS, SIZES

__all__ = [
    "BIG",
    "DIGITS_LIMIT",
    "EXCLUDES_NUL",
    "FORMS",
    "INCLUDES_NUL",
    "LITTLE",
    "NO_NUL",
    "TEXTS",
    "Order",
    "broken_reading",
    "consumes",
    "legal",
    "number_order",
    "string_end",
    "text_reading",
]

Order: TypeAlias = Literal["<", ">"]
LITTLE: Final = "<"
BIG: Final = ">"
EXCLUDES_NUL: Final = "length_excludes_nul"
"""Length of the text, the text, a NUL."""
INCLUDES_NUL: Final = "length_includes_nul"
"""Length of the text with its NUL, the text, a NUL."""
NO_NUL: Final = "no_nul"
"""Length of the text, the text: what programs send."""
TEXTS: Final = {
    "SYSTEM_LOAD": "strings", "GAME_EVENT": "strings", "COMPONENT_OF": "components",
    "DELETE_COMPONENT": "deleted",
}  # fmt: skip
"""Command whose content has strings -> how they stand in it."""
FORMS: Final = (EXCLUDES_NUL, INCLUDES_NUL, NO_NUL)
"""In the order in which they are tried: the first is the default where several fit."""

DIGITS_LIMIT: Final = 20
"""Digits of the largest 64-bit number."""

_LONG32: Final = frozenset(name for name in DIALECTS if name.endswith("long32"))
_IN_DIGITS: Final = frozenset(name for name in DIALECTS if name.startswith("exodia-early"))
"""Dialects that write a client's number as text, where it has not eight bytes."""
_ENTITY: Final = 8
_LENGTH: Final = 4
_FAIL: Final = -1
_U32: Final = {"<": struct.Struct("<I").unpack_from, ">": struct.Struct(">I").unpack_from}

_NUMBERS: Final = {
    "PACKET_INFO": ("i", 1 << 20), "ACK": ("Q", 1 << 32), "CONNECT_ACCEPT": ("Q", 1 << 32),
    "CONNECT_REJECT": ("Q", 1 << 32), "DISCONNECT": ("Q", 1 << 32), "EVENT": ("I", 1 << 16),
    "IMPORTANT_EVENT": ("I", 1 << 16), "EVENT_0x11": ("I", 1 << 16), "EVENT_0x8a": ("I", 1 << 16),
    "IMPORTANT_EVENT_0x8c": ("I", 1 << 16),
}  # fmt: skip
"""Command -> (format of the numbers that its content starts with, what a sensible one is below)."""


def string_end(data: bytes, at: int, order: str, form: str) -> int:
    """Return the offset after the string at `at`, -1 where there is none of this form."""
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
    start = at + _LENGTH
    if start > len(data):
        return _FAIL
    end: int = start + _U32[order](data, at)[0]
    return end if end <= len(data) else _FAIL


def consumes(kind: str, data: bytes, order: str, form: str) -> bool:
    """Return whether a content of `kind` read this way ends exactly with `data`.

    Kinds: `strings` (one or more), `components` (one or more of entity, name, data), `deleted`
    (entity, name, and data or none).
    """
    return _walked(kind, data, order, form)[1] == len(data) > 0


def _walked(kind: str, data: bytes, order: str, form: str) -> tuple[int, int]:
    """Return how many strings are whole, and where the content ends; -1 = it is broken."""
    whole = at = 0
    while 0 <= at < len(data):
        at = string_end(data, at if kind == "strings" else at + _ENTITY, order, form)
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
    """Return the first reading with most whole strings of a content that none consumes."""
    orders: tuple[Order, ...] = ("<", ">") if order is None else (order,)
    readings = [(candidate, form) for candidate in orders for form in FORMS]
    return max(readings, key=lambda one: _walked(kind, data, one[0], one[1])[0])


def text_reading(kind: str, data: bytes, order: Order | None) -> tuple[Order, str] | None:
    """Return (byte order, string form) of the first reading that consumes `data`, or None.

    `order` is what the flow has shown before; without it little-endian comes first.
    """
    orders: tuple[Order, Order] = (">", "<") if order == BIG else ("<", ">")
    for candidate in orders:
        for form in FORMS:
            if consumes(kind, data, candidate, form):
                return candidate, form
    return None


def number_order(command: str, data: bytes, order: Order | None) -> Order:
    """Return the byte order of a content that fits both ways.

    What the flow has shown decides; else little-endian, unless a number would then be absurd and
    is sensible the other way round (an ACK of id 2^56 is one of id 1).
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
    """Return whether a content has a size that its command may have, and lengths in it that lead to
    its end; None for a command that the dialect does not have.
    """
    size = len(content)
    document = dialect in DOCUMENTS
    if command == "PACKET_INFO" or (document and command == "DELETE_ENTITY"):
        return size > 0 and size % _ENTITY == 0
    if command == "CONNECT_ACCEPT" and size != 8 and dialect in _IN_DIGITS:  # noqa: PLR2004 - an index as number
        return 1 <= size <= DIGITS_LIMIT and content.isascii() and content.isdigit()
    if command == "DELETE_ENTITY" and dialect in _LONG32:
        return size == _ENTITY - 4
    kind = TEXTS.get(command)
    if kind is None:
        sizes = (DOCUMENT_SIZES if document else SIZES).get(command)
        return None if sizes is None else size in sizes
    if document:
        # The Usage section of RFC_02 sends game events as 0x0c.
        kinds = (kind, "strings") if kind == "components" else (kind,)
        return any(text_reading(each, content, None) is not None for each in kinds)
    return _program_text(dialect, kind, content)


def _program_text(dialect: str, kind: str, content: bytes) -> bool:
    """Return whether a program's content with names in it ends where it should."""
    if kind == "strings":
        return text_reading(kind, content, LITTLE) is not None
    if dialect in _LONG32:
        # The entity of a 32-bit build is four bytes shorter: nothing else differs.
        content = bytes(4) + content
    if kind == "deleted":
        # Programs send its name and nothing more.
        return string_end(content, _ENTITY, LITTLE, NO_NUL) == len(content)
    return consumes(kind, content, LITTLE, NO_NUL)
