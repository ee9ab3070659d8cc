"""What a report says, before it is written."""

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

_SEVERITIES = tuple(severity.label for severity in sorted(Severity, reverse=True))


@dataclass(slots=True)
class Subject:
    """A connection of a report."""

    report: ConnectionReport
    diagnosis: Diagnosis
    """The answer, and its sentences."""
    history: History | None = None
    """None if it has only a row in the table."""
    worst: UnitRecord | None = None
    """The unit whose story the report tells."""
    scene: Sequence[DatagramRecord] = ()
    """The datagrams around that unit."""
    cut: bool = False
    """Whether some of these are left out."""
    frame: DatagramRecord | None = None
    """The frame that is shown bit by bit."""

    @property
    def severity(self) -> str:
        """Severity of its worst finding."""
        return next((name for name in _SEVERITIES if self.report.anomalies.get(name)), "chat")


@dataclass(slots=True)
class Capture:
    """The subject of a whole report."""

    name: str
    """Name of the file, without its folder."""
    info: CaptureInfo
    subjects: list[Subject]
    """Connections, worst first; only the worst ones if there are very many."""
    version: str
    codes: Mapping[str, CodeRow]
    """The catalogue of findings."""
    total: int
    """Number of all connections."""
    endings: Mapping[str, int]
    """`Ending.how` -> number of connections that ended so."""
    part: tuple[int | None, int | None] = (None, None)
    """(from, to) of the time that plots and messages cover, ns since the first frame; None = open.
    """
    join: JoinReport | None = None
    """The comparison with a second capture."""
    delays: Sequence[Chart] = ()
    """Plots of the delays between the two captures."""
    other_datagrams: int = 0
    """Datagrams of no known protocol."""
    limits: Mapping[str, int] = field(default_factory=dict)
    """Limits that were reached, and how often."""

    def span(self, subject: Subject) -> tuple[int | None, int | None]:
        """Return `part` relative to the first frame of a connection."""
        since = subject.report.first_time_ns - (self.info.first_time_ns or 0)
        start, end = self.part
        return (
            None if start is None else max(0, start - since),
            None if end is None else end - since,
        )
