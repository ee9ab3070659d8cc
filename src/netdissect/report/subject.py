"""What a report says about one connection, before it is written."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from netdissect.model.annotations import CodeRow
from netdissect.model.records import DatagramRecord
from netdissect.model.reports import CaptureInfo, ConnectionReport, UnitRecord
from netdissect.plot.history import History

__all__ = ["Capture", "Subject", "Verdict"]


@dataclass(frozen=True, slots=True)
class Verdict:
    """The answer: what happened to a connection."""

    line: str
    """One line for a list."""
    sentences: tuple[str, ...]
    """The first is the heading."""
    basis: str
    """What it rests on."""
    severity: str = "chat"
    """`error`, `warn`, `note` or `chat`."""


@dataclass(slots=True)
class Subject:
    """One connection of a report."""

    report: ConnectionReport
    verdict: Verdict
    history: History | None = None
    """None: it has a row in the table and no part of its own."""
    worst: UnitRecord | None = None
    """The unit whose story is told."""
    scene: Sequence[DatagramRecord] = ()
    """The datagrams around it."""
    cut: bool = False
    """Whether the scene leaves some out."""
    frame: DatagramRecord | None = None
    """The frame that is shown bit by bit."""


@dataclass(slots=True)
class Capture:
    """What a report is about."""

    name: str
    """Name of the file, without its folder."""
    info: CaptureInfo
    subjects: list[Subject]
    """Worst first; of very many the worst."""
    version: str
    codes: Mapping[str, CodeRow]
    """The catalogue of findings."""
    total: int
    """All connections."""
    kinds: Mapping[str, int]
    """How they ended, in a few words, and how many did."""
    other_datagrams: int = 0
    """Datagrams of no known protocol."""
    limits: Mapping[str, int] = field(default_factory=dict)
    """Bounds that were hit."""
    notes: Sequence[str] = ()
    """What must be known of the whole report, such as what was left out."""
