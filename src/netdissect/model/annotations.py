"""Findings about packets: a code, how bad it is, where it is. The rows of a catalogue say what each
code means.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from functools import cache
from pathlib import Path

__all__ = ["Annotation", "CodeRow", "Severity", "code_rows", "shared_rows"]


class Severity(IntEnum):
    """How bad a finding is, in Wireshark's words."""

    CHAT = 0
    NOTE = 1
    WARN = 2
    ERROR = 3

    @property
    def label(self) -> str:
        """Return the word used in output."""
        return _LABELS[self]


_LABELS = tuple(name.lower() for name in Severity.__members__)


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


@dataclass(slots=True, unsafe_hash=True)  # frozen, ten times the instructions to make one
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


_FOLDER = Path(__file__).parents[1] / "data/findings"


@cache
def code_rows(part: str, folder: Path = _FOLDER) -> tuple[CodeRow, ...]:
    """Return the rows of one part of the catalogue, in the order of `<folder>/<part>.txt`.

    The parts: `common`, what any layer may say; `flow`, `track`, `tcp` and `diagnosis`; and one for
    each protocol of the package; a plug-in names its own folder. Between empty lines stand code,
    severity and group, the title, and the lines of the meaning.
    """
    text = (folder / f"{part}.txt").read_text("utf-8")
    return tuple(_row(*block.splitlines()) for block in text.split("\n\n"))


def _row(head: str, title: str, *meaning: str) -> CodeRow:
    code, severity, group = head.split()
    lines = " ".join(line.strip() for line in meaning)
    return CodeRow(code, Severity[severity.upper()], group, title.strip(), lines)


def shared_rows() -> dict[str, CodeRow]:
    """Return every row that belongs to no protocol, by code."""
    return {row.code: row for part in _SHARED for row in code_rows(part)}


_SHARED = ("common", "flow", "track", "tcp", "diagnosis")
