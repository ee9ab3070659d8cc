"""The dialects of EOUDP as rows: how headers are read, and what is acknowledged.

Layouts come from the derived readers alone. Source: docs/protocols/eoudp.md.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from netdissect.dissect.readers import eoudp as read
from netdissect.model.events import Event
from netdissect.wire import eoudp_names as eoudp

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


REAL_COMMANDS: Final = frozenset(eoudp.COMMANDS) - eoudp.RFC01_ONLY
"""Commands that the programs define."""


_Reader = Callable[[bytes, int, int], tuple[Any, ...] | None]
_LONGEST: Final = 30
"""Size of the longest header, bytes."""
_FLAGGED: Final = 5
"""Fields of a header with the flag, besides padding."""


class Row:
    """One dialect. The reader of its header tells the sizes."""

    def __init__(
        self, name: str, reader: _Reader, odd: Callable[[Any, int, list[Event]], None], *,
        padding: int = 0, wide_stamp: bool = False, must: frozenset[int] = frozenset(),
        acked: frozenset[int] | None = None,
    ) -> None:  # fmt: skip
        self.name = name
        self.read = reader
        """Derived reader of the header."""
        self.odd = odd
        """Soft rules of the header."""
        *values, start = reader(bytes(_LONGEST), 0, _LONGEST) or ()
        self.start = int(start)
        """Offset of the content, bytes."""
        self.flagged = len(values) == _FLAGGED
        """Whether the header has the flag that says that a message must be acknowledged."""
        self.document = name.startswith("rfc")
        """Whether the dialect is that of a document, not of a program."""
        self.long32 = name.endswith("long32")
        """Whether entity ids have four bytes instead of eight."""
        self.padding = padding
        """Zero bytes at the end of the header."""
        self.wide_stamp = wide_stamp
        """Whether the time stamp has eight bytes instead of four."""
        self.must = must
        """Commands that must be acknowledged, in a dialect without the flag."""
        self.acked = acked
        """Commands that receivers do acknowledge; None = all that must be."""
        self.first_id = int(self.document)
        """First id of a sender. The documents do not state it; their peers in the captures use 1.
        """
        self.lengths_at = 0 if self.document else self.start + (4 if self.long32 else 8)
        """Offset of a component's name length, behind its entity; 0 in documents."""
        self.stamp_end = 9 if wide_stamp else 5
        """Offset of the end of the time stamp."""


_ACKED_30: Final = frozenset({eoudp.COMPONENT_OF, eoudp.DELETE_COMPONENT})
_MUST_EARLY: Final = frozenset({eoudp.COMPONENT_OF})
_MUST_DOCUMENTS: Final = frozenset({
    eoudp.SYSTEM_LOAD, eoudp.COMPONENT_OF, eoudp.GAME_EVENT, eoudp.DELETE_ENTITY,
    eoudp.IMPORTANT_EVENT, eoudp.CONNECT,
})  # fmt: skip
_MUST_RFC02: Final = _MUST_DOCUMENTS | {eoudp.DELETE_COMPONENT}
_MUST_RFC01: Final = _MUST_DOCUMENTS | {eoudp.IMPORTANT_EVENT_8C}


def _rows() -> tuple[Row, ...]:
    return (
        Row("exodia-late", read.read_EoudpLate, read.odd_EoudpLate, wide_stamp=True),
        Row("exodia-mid", read.read_EoudpMid, read.odd_EoudpMid, acked=frozenset()),
        Row("exodia-30", read.read_Eoudp30, read.odd_Eoudp30, padding=8, acked=_ACKED_30),
        Row("exodia-early", read.read_EoudpEarly, read.odd_EoudpEarly,
            padding=1, must=_MUST_EARLY),
        Row("exodia-late-long32", read.read_EoudpLateLong32, read.odd_EoudpLateLong32,
            padding=8, wide_stamp=True),
        Row("exodia-mid-long32", read.read_EoudpMidLong32, read.odd_EoudpMidLong32,
            padding=8, acked=frozenset()),
        Row("exodia-early-long32", read.read_EoudpEarlyLong32, read.odd_EoudpEarlyLong32,
            padding=9, must=_MUST_EARLY),
        Row("rfc02", read.read_EoudpRfc02, read.odd_EoudpRfc02, must=_MUST_RFC02),
        Row("rfc01", read.read_EoudpRfc01, read.odd_EoudpRfc01, must=_MUST_RFC01),
        Row("rfc03", read.read_EoudpRfc03, read.odd_EoudpRfc03, wide_stamp=True),
    )  # fmt: skip


ROWS: Final = {row.name: row for row in _rows()}
"""Dialect -> row."""


def row_of(dialect: str) -> Row:
    """Return the row of a dialect, with or without the prefix; an unknown name = exodia-late."""
    return ROWS.get(dialect) or ROWS.get(dialect.removeprefix("eoudp-")) or ROWS["exodia-late"]
