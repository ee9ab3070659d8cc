"""The dialects of EOUDP as rows: how headers are read, and what is acknowledged.

Layouts come from the derived readers alone. Source: docs/protocols/eoudp.md.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from netdissect.dissect.readers import eoudp as read
from netdissect.model.events import Event

DIALECT_TITLES: Final = {
    "exodia-late": "Exodia v1.2.0 to v1.3.3, branches main, server, demo",
    "exodia-mid": "Exodia v1.1.0 to v1.1.2",
    "exodia-30": "Exodia of 31 December 2023, never released",
    "exodia-early": "Exodia v1.0.0, v1.0.1 and the development before",
    "exodia-late-long32": "exodia-late built where C long has 4 bytes",
    "exodia-mid-long32": "exodia-mid built where C long has 4 bytes",
    "exodia-early-long32": "exodia-early built where C long has 4 bytes",
    "rfc02": "RFC_02 as written",
    "rfc01": "RFC_01 and the Details section of RFC_02",
    "rfc03": "RFC_03 as written",
}
"""Dialect -> programs that speak it; the first is the default."""

COMPONENT_OF: Final = 0x0C
DELETE_COMPONENT: Final = 0x0F

REAL_COMMANDS: Final = frozenset(
    {0x00, 0x01, 0x02, 0x03, 0x0B, 0x0C, 0x0D, 0x0E, 0x0F, 0x10, 0x81, 0x82, 0x8B}
)
"""Commands that the programs define."""


@dataclass(frozen=True, slots=True)
class Row:
    """One dialect."""

    name: str
    read: Callable[[bytes, int, int], tuple[Any, ...] | None]
    """Derived reader of the header."""
    odd: Callable[[Any, int, list[Event]], None]
    """Soft rules of the header."""
    start: int
    """Offset of the content, bytes."""
    flagged: bool
    """Whether the header has the flag that says that a message must be acknowledged."""
    document: bool
    """Whether the dialect is that of a document, not of a program."""
    long32: bool = False
    """Whether entity ids have four bytes instead of eight."""
    padding: int = 0
    """Zero bytes at the end of the header."""
    wide_stamp: bool = False
    """Whether the time stamp has eight bytes instead of four."""
    must: frozenset[int] = frozenset()
    """Commands that must be acknowledged, in a dialect without the flag."""
    acked: frozenset[int] | None = None
    """Commands that receivers do acknowledge; None = all that must be."""
    first_id: int = 0
    """First id of a sender. The documents do not state it; their peers in the captures use 1."""

    @property
    def lengths_at(self) -> int:
        """Return the offset of a component's name length, behind its entity; 0 in documents."""
        return 0 if self.document else self.start + (4 if self.long32 else 8)

    @property
    def stamp_end(self) -> int:
        """Return the offset of the end of the time stamp."""
        return 9 if self.wide_stamp else 5


_NONE: Final = frozenset[int]()
_ACKED_30: Final = frozenset({COMPONENT_OF, DELETE_COMPONENT})
_MUST_EARLY: Final = frozenset({COMPONENT_OF})
_MUST_RFC02: Final = frozenset({0x0B, 0x0C, 0x0D, 0x0E, 0x0F, 0x10, 0x81})
_MUST_RFC01: Final = frozenset({0x0B, 0x0C, 0x0D, 0x0E, 0x10, 0x81, 0x8C})

ROWS: Final = {
    row.name: row
    for row in (
        Row("exodia-late", read.read_EoudpLate, read.odd_EoudpLate,
            26, flagged=True, document=False, wide_stamp=True),
        Row("exodia-mid", read.read_EoudpMid, read.odd_EoudpMid,
            22, flagged=True, document=False, acked=_NONE),
        Row("exodia-30", read.read_Eoudp30, read.odd_Eoudp30,
            30, flagged=True, document=False, padding=8, acked=_ACKED_30),
        Row("exodia-early", read.read_EoudpEarly, read.odd_EoudpEarly,
            22, flagged=False, document=False, padding=1, must=_MUST_EARLY),
        Row("exodia-late-long32", read.read_EoudpLateLong32, read.odd_EoudpLateLong32,
            26, flagged=True, document=False, long32=True, padding=8, wide_stamp=True),
        Row("exodia-mid-long32", read.read_EoudpMidLong32, read.odd_EoudpMidLong32,
            22, flagged=True, document=False, long32=True, padding=8, acked=_NONE),
        Row("exodia-early-long32", read.read_EoudpEarlyLong32, read.odd_EoudpEarlyLong32,
            22, flagged=False, document=False, long32=True, padding=9, must=_MUST_EARLY),
        Row("rfc02", read.read_EoudpRfc02, read.odd_EoudpRfc02,
            21, flagged=False, document=True, must=_MUST_RFC02, first_id=1),
        Row("rfc01", read.read_EoudpRfc01, read.odd_EoudpRfc01,
            21, flagged=False, document=True, must=_MUST_RFC01, first_id=1),
        Row("rfc03", read.read_EoudpRfc03, read.odd_EoudpRfc03,
            26, flagged=True, document=True, wide_stamp=True, first_id=1),
    )
}  # fmt: skip
"""Dialect -> row."""


def row_of(dialect: str) -> Row:
    """Return the row of a dialect, with or without the prefix; an unknown name = exodia-late."""
    return ROWS.get(dialect) or ROWS.get(dialect.removeprefix("eoudp-")) or ROWS["exodia-late"]
