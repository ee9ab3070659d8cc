"""What a report says about one connection, before it is written."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from netdissect.model.annotations import CodeRow, Severity
from netdissect.model.diagnosis import Diagnosis
from netdissect.model.joined import JoinReport
from netdissect.model.records import DatagramRecord
from netdissect.model.reports import CaptureInfo, ConnectionReport, UnitRecord
from netdissect.plot.chart import Chart
from netdissect.plot.history import History

__all__ = ["Capture", "Subject"]

_SEVERITIES = tuple(severity.label for severity in sorted(Severity, reverse=True))


@dataclass(slots=True)
class Subject:
    """One connection of a report."""

    report: ConnectionReport
    diagnosis: Diagnosis
    """The answer, and its sentences."""
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

    @property
    def severity(self) -> str:
        """Return the severity of its worst finding."""
        return next((name for name in _SEVERITIES if self.report.anomalies.get(name)), "chat")


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
    endings: Mapping[str, int]
    """`Ending.how` -> how many connections ended so."""
    part: tuple[int | None, int | None] = (None, None)
    """(from, to) of what the plots show and of the messages listed, ns since its first frame; None
    = open.
    """
    join: JoinReport | None = None
    """What a second capture tells beside this one."""
    delays: Sequence[Chart] = ()
    """Pictures of the ways between the two."""
    other_datagrams: int = 0
    """Datagrams of no known protocol."""
    limits: Mapping[str, int] = field(default_factory=dict)
    """Bounds that were hit."""

    def span(self, subject: Subject) -> tuple[int | None, int | None]:
        """Return the part of it in the time of a connection."""
        since = subject.report.first_time_ns - (self.info.first_time_ns or 0)
        start, end = self.part
        return (
            None if start is None else max(0, start - since),
            None if end is None else end - since,
        )
