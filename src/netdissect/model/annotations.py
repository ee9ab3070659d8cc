"""Findings about packets: a code, how bad it is, where it is. The rows of a catalogue say what each
code means.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import IntEnum

__all__ = ["COMMON_CODES", "Annotation", "CodeRow", "Severity", "code_rows"]


class Severity(IntEnum):
    """How bad a finding is, in Wireshark's words."""

    CHAT = 0
    NOTE = 1
    WARN = 2
    ERROR = 3

    @property
    def label(self) -> str:
        """Return the word used in output."""
        return self.name.lower()


@dataclass(frozen=True, slots=True)
class CodeRow:
    """One entry of the catalogue of findings."""

    code: str
    """Stable name, kebab-case."""
    severity: Severity
    """Default severity."""
    group: str
    """Wireshark's word: `malformed`, `protocol`, `sequence`, `checksum`, `comment`, `reassembly`,
    `undecoded`, `security`, `receive`.
    """
    title: str
    """One line for tables."""
    meaning: str
    """What it means, what causes it, what to do: the text of `netdissect explain CODE`."""


@dataclass(frozen=True, slots=True)
class Annotation:
    """One finding about one place of one buffer."""

    code: str
    """Code of the catalogue."""
    severity: Severity
    """Severity of this finding."""
    group: str
    """Group of the code."""
    message: str
    """One sentence with the values found."""
    bit_offset: int
    """Where it starts in its buffer, in bits."""
    bit_length: int
    """How long it is, in bits; 0 = a point."""
    buffer: int = 0
    """Which buffer of the dissection the offset refers to; 0 = the payload on the wire."""


def code_rows(findings: Iterable[tuple[str, str, str, str, str]]) -> tuple[CodeRow, ...]:
    """Return the catalogue rows of (code, name of the severity, group, title, meaning)."""
    return tuple(
        CodeRow(code, Severity[severity], group, title, meaning)
        for code, severity, group, title, meaning in findings
    )


def _row(code: str, severity: Severity, group: str, title: str, meaning: str) -> CodeRow:
    return CodeRow(code, severity, group, title, meaning)


COMMON_CODES: tuple[CodeRow, ...] = (
    _row(
        "truncated",
        Severity.ERROR,
        "malformed",
        "message ends inside a field",
        "The message is shorter than its layout needs. The fields before the cut are shown; "
        "a real receiver reads zeros or drops it.",
    ),
    _row(
        "trailing-bytes",
        Severity.WARN,
        "malformed",
        "octets after the end of the message",
        "More octets than the layout describes. Receivers normally ignore them.",
    ),
    _row(
        "length-beyond-end",
        Severity.ERROR,
        "malformed",
        "stated length goes beyond the end",
        "A length field claims more octets than are left. Nothing is allocated from such a "
        "claim; the octets that are there are shown.",
    ),
    _row(
        "list-short",
        Severity.ERROR,
        "malformed",
        "fewer items than the count states",
        "A count field claims more items than the message holds.",
    ),
    _row(
        "overlong-varint",
        Severity.NOTE,
        "protocol",
        "variable-length integer longer than needed",
        "A shorter encoding of the same value exists. Receivers accept it; the original "
        "senders never write it.",
    ),
    _row(
        "unterminated-string",
        Severity.ERROR,
        "malformed",
        "string without terminator",
        "A NUL-terminated string runs to the end of its message.",
    ),
    _row(
        "nonzero-padding",
        Severity.WARN,
        "protocol",
        "padding bits are not zero",
        "Bits that a sender leaves zero are set. Harmless to receivers; a sign of another "
        "sender, of a mutation, or of another protocol.",
    ),
    _row(
        "depth-limit",
        Severity.WARN,
        "undecoded",
        "nested too deeply",
        "Objects nested deeper than netdissect follows (64). That need not be a fault: the rest is "
        "shown as octets.",
    ),
    _row(
        "schema-mismatch",
        Severity.WARN,
        "undecoded",
        "user schema does not fit the payload",
        "The schema wants other data than the payload holds, from the field named on. The "
        "values before it are shown. Check the schema or the message id.",
    ),
    _row(
        "snapped",
        Severity.NOTE,
        "undecoded",
        "cut by the capture's snap length",
        "The capture stored only the first part of the packet. This is not malformed: "
        "capture with a larger -s.",
    ),
    _row(
        "dissector-bug",
        Severity.ERROR,
        "undecoded",
        "netdissect failed to decode this packet",
        "A fault of netdissect, not of the packet. Please report it with the frame. "
        "--strict re-raises it.",
    ),
)
"""Codes that any layer may use; protocols add their own rows."""
