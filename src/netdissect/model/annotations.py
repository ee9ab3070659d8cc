"""Findings about packets (a code, a severity and a place), and the catalogue that explains each
code.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from functools import cache
from pathlib import Path


class Severity(IntEnum):
    """How bad a finding is. The levels are those of Wireshark's expert information."""

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
    """Group of Wireshark's expert information: `malformed`, `protocol`, `sequence`, `checksum`,
    `comment`, `reassembly`, `undecoded`, `security`, `receive`.
    """
    title: str
    """One line for tables."""
    meaning: str
    """Meaning, usual causes and remedies: the text of `netdissect explain CODE`."""


@dataclass(slots=True, unsafe_hash=True)  # not frozen: that makes creation ten times as slow
class Annotation:
    """One finding, and the bits that it concerns. Nobody changes one."""

    code: str
    """Code in the catalogue."""
    severity: Severity
    """Severity of this finding."""
    group: str
    """Group of the code."""
    message: str
    """One sentence with the values found."""
    bit_offset: int
    """First bit in its buffer."""
    bit_length: int
    """Length in bits; 0 for a position between bits."""
    buffer: int = 0
    """Index into `Dissection.buffers`; 0 = the payload on the wire."""


_FOLDER = Path(__file__).parents[1] / "data/findings"


@cache
def code_rows(part: str, folder: Path = _FOLDER) -> tuple[CodeRow, ...]:
    """Return the rows of one part of the catalogue, in the order of `<folder>/<part>.txt`.

    Args:
        part: `common` (findings of any layer), `flow`, `track`, `tcp`, `diagnosis`, or the name of
            a protocol.
        folder: where the file is; a plug-in passes its own folder.

    The entries of a file are separated by empty lines. The first line of an entry has code,
    severity and group, the second one the title, and the remaining lines have the meaning.

    """
    text = (folder / f"{part}.txt").read_text("utf-8")
    return tuple(_row(*block.splitlines()) for block in text.split("\n\n"))


def _row(head: str, title: str, *meaning: str) -> CodeRow:
    code, severity, group = head.split()
    lines = " ".join(line.strip() for line in meaning)
    return CodeRow(code, Severity[severity.upper()], group, title.strip(), lines)


def shared_rows() -> dict[str, CodeRow]:
    """Return the rows that belong to no protocol, by code."""
    return {row.code: row for part in _SHARED for row in code_rows(part)}


_SHARED = ("common", "flow", "track", "tcp", "diagnosis")
