"""Collects in one pass over a capture what plots and reports show."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field

from netdissect.cli.session import Session
from netdissect.model.reports import ConnectionReport, UnitRecord
from netdissect.pipeline.scenes import Scene, Scenes
from netdissect.plot.gallery import Gallery
from netdissect.plot.history import History, span_ms, took_ms
from netdissect.plot.thin import MAX_POINTS

_MARGIN = 6
"""Frames shown before the first copy of a unit and after its acknowledgement."""
_MUCH_WORSE = 1.25
"""Factor by which a unit must be slower than the slowest so far for its surroundings to be kept."""


@dataclass(slots=True)
class PlotData:
    """The result of one pass."""

    gallery: Gallery
    scenes: dict[int, tuple[UnitRecord, Scene]] = field(default_factory=dict)
    """Connection -> its slowest unit, and the datagrams around it."""
    other_datagrams: int = 0
    """Datagrams of no known protocol."""
    ends: dict[int, Scene] = field(default_factory=dict)
    """Connection -> the datagram that ended it, if there is one and it is still remembered."""


class _Stage:
    """Keeps the datagrams around the slowest unit of each connection."""

    def __init__(self, gathered: PlotData, scenes: Scenes) -> None:
        self.gathered = gathered
        self.scenes = scenes
        self._waited: dict[int, float] = {}

    def worst(self, history: History, unit: UnitRecord) -> None:
        """Process a unit that is the slowest of its connection so far."""
        waited = max(span_ms(unit), took_ms(unit) or 0.0)
        if waited >= _MUCH_WORSE * self._waited.get(history.connection, 0.0):
            self._waited[history.connection] = waited
            self.take(unit)

    def shown(self, connection: int) -> UnitRecord | None:
        """Return the unit whose surroundings are kept; None = none yet."""
        known = self.gathered.scenes.get(connection)
        return None if known is None else known[0]

    def take(self, unit: UnitRecord) -> None:
        """Keep the datagrams around a unit."""
        frames = {copy.frame for copy in unit.copies}
        if unit.acked_frame is not None:
            frames.add(unit.acked_frame)
        scene = self.scenes.scene(
            unit.connection, frozenset(frames), min(frames) - _MARGIN, max(frames) + _MARGIN
        )
        # The first frame may have been evicted already; the rest would not explain anything.
        if scene.has(min(frames)):
            self.gathered.scenes[unit.connection] = (unit, scene)

    def finish(self) -> None:
        """Keep what only the end of the capture shows: slowest units, and how connections ended."""
        for number, history in self.gathered.gallery.histories.items():
            # The unit kept so far may be faster by _MUCH_WORSE.
            slowest = history.slowest()[:1]
            if slowest and self.shown(number) is not slowest[0]:
                self.take(slowest[0])
            report = history.report
            frame = report.close.get("frame") if report is not None and report.close else None
            if frame is not None:
                self.gathered.ends[number] = self.scenes.scene(number, frozenset(), frame, frame)


def collect_plot_data(
    session: Session,
    wanted: Collection[int] | None = None,
    *,
    limit: int = MAX_POINTS,
    span: tuple[int, int] | None = None,
    remember: bool = False,
    narrow: bool = True,
    only: Callable[[int], bool] | None = None,
) -> PlotData:
    """Read a capture once and return its plot data; the session then has the reports.

    Args:
        session: the open capture.
        wanted: numbers of the connections to plot; None = the first ones.
        limit: maximum number of points of each kind.
        span: (from, to), ns since the first datagram of each connection; units in it are kept
            without thinning.
        remember: keep the datagrams around the slowest unit of each connection.
        narrow: track only the wanted connections, if a first pass has found the others.
        only: whether the datagrams, findings and copies of units in a frame are plotted; None = all
            are.

    """
    from netdissect.pipeline import Pipeline, iter_timeline  # noqa: PLC0415

    gallery = Gallery(wanted, limit=limit, span=span, only=only)
    found = PlotData(gallery)
    scenes = session.scenes(gallery.datagram, remember=remember)
    stage = _Stage(found, scenes)
    if remember:
        gallery.worst = stage.worst
    session.only = None if wanted is None else frozenset(wanted)
    options = session.with_first_look(session.choices.options(on_anomaly=gallery.finding))
    pipeline = Pipeline(options, recorder=scenes.recorder, observer=scenes)
    # Packets of other connections need not be parsed again.
    ends = session.ends(wanted) if narrow else None
    for item in iter_timeline(session.reader, pipeline=pipeline, ends=ends):
        gallery.take(item)
    session.collect(pipeline.reports, pipeline.limits_hit)
    found.other_datagrams = pipeline.other_datagrams
    if ends is not None:
        found.other_datagrams = session.other_datagrams
        # Without the other connections the result differs (a port was reused): read everything.
        if not session.use_first_look(wanted or ()):
            with session.reopen(quiet=True) as whole:
                return collect_plot_data(
                    whole, wanted, limit=limit, span=span, remember=remember, narrow=False,
                    only=only,
                )  # fmt: skip
    gallery.finish(session.reports.of(set(gallery.histories)))
    if remember:
        stage.finish()
    return found


def worst_first(reports: Iterable[ConnectionReport]) -> list[int]:
    """Return the numbers of connections, worst first."""
    from netdissect.diagnosis import diagnose  # noqa: PLC0415

    ranked = [
        ((report.diagnosis or diagnose(report)).badness, -report.connection) for report in reports
    ]
    # Among equally bad ones, the earlier comes first.
    return [-number for _, number in sorted(ranked, reverse=True)]
