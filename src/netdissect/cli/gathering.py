"""One pass over a capture for what pictures and reports show."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field

from netdissect.cli.session import Session
from netdissect.model.reports import ConnectionReport, UnitRecord
from netdissect.pipeline.scenes import Scene, Scenes
from netdissect.plot.gallery import Gallery
from netdissect.plot.history import History, took_ms
from netdissect.plot.thin import MAX_POINTS

__all__ = ["Gathered", "gather", "worst"]

_MARGIN = 6
"""Frames before the first copy of a unit and after its acknowledgement that are shown with it."""
_MUCH_WORSE = 1.25
"""A unit is looked at in full where it is slower by this factor than the one before."""


@dataclass(slots=True)
class Gathered:
    """What one pass has found."""

    gallery: Gallery
    scenes: dict[int, tuple[UnitRecord, Scene]] = field(default_factory=dict)
    """Connection -> its slowest unit, and the datagrams around it."""
    other_datagrams: int = 0
    """Datagrams of no known protocol."""
    ends: dict[int, Scene] = field(default_factory=dict)
    """Connection -> the datagram that ended it, where one did and it is remembered."""


class _Stage:
    """Keeps the datagrams around the slowest unit of each connection."""

    def __init__(self, gathered: Gathered, scenes: Scenes) -> None:
        self.gathered = gathered
        self.scenes = scenes
        self._waited: dict[int, float] = {}

    def worst(self, history: History, unit: UnitRecord) -> None:
        """Take the slowest unit of a connection so far."""
        waited = _waited_ms(unit)
        if waited >= _MUCH_WORSE * self._waited.get(history.connection, 0.0):
            self._waited[history.connection] = waited
            self.take(unit)

    def shown(self, connection: int) -> UnitRecord | None:
        """Return the unit around which datagrams are kept."""
        known = self.gathered.scenes.get(connection)
        return None if known is None else known[0]

    def take(self, unit: UnitRecord) -> None:
        """Keep what happened around a unit."""
        frames = {copy.frame for copy in unit.copies}
        if unit.acked_frame is not None:
            frames.add(unit.acked_frame)
        scene = self.scenes.scene(
            unit.connection, frozenset(frames), min(frames) - _MARGIN, max(frames) + _MARGIN
        )
        # The first frame may be forgotten already: a story without its beginning explains nothing.
        if scene.has(min(frames)):
            self.gathered.scenes[unit.connection] = (unit, scene)


def _waited_ms(unit: UnitRecord) -> float:
    taken = took_ms(unit)
    span = (unit.copies[-1].time_ns - unit.copies[0].time_ns) / 1e6
    return max(span, taken or 0.0)


def gather(
    session: Session,
    wanted: Collection[int] | None = None,
    *,
    limit: int = MAX_POINTS,
    span: tuple[int, int] | None = None,
    remember: bool = False,
    narrow: bool = True,
) -> Gathered:
    """Read a capture once; afterwards the session has its reports.

    Args:
        session: the open capture.
        wanted: numbers of connections; None = the first ones.
        limit: points of one kind that are kept.
        span: (from, to), ns since the first datagram of each: units in it are kept in full.
        remember: keep the datagrams around the slowest unit of each connection.
        narrow: track only the wanted ones, where a first look has shown the others.

    """
    from netdissect.pipeline import Pipeline, iter_timeline  # noqa: PLC0415

    gallery = Gallery(wanted, limit=limit, span=span)
    found = Gathered(gallery)
    scenes = session.scenes(gallery.datagram, remember=remember)
    stage = _Stage(found, scenes)
    if remember:
        gallery.worst = stage.worst
    session.only = None if wanted is None else frozenset(wanted)
    options = session.ahead(session.choices.options(on_anomaly=gallery.finding))
    pipeline = Pipeline(options, recorder=scenes.recorder, observer=scenes)
    # Packets of other connections need not be parsed again.
    ends = session.ends(wanted) if narrow else None
    for item in iter_timeline(session.reader, pipeline=pipeline, ends=ends):
        gallery.take(item)
    session.collect(pipeline.reports, pipeline.limits_hit)
    found.other_datagrams = pipeline.other_datagrams
    if ends is not None:
        found.other_datagrams = session.other_datagrams
        # Without the others something went otherwise (a port that was used again): read all of it.
        if not session.settle(wanted or ()):
            with session.again(quiet=True) as whole:
                return gather(
                    whole, wanted, limit=limit, span=span, remember=remember, narrow=False
                )
    gallery.finish(session.reports.of(set(gallery.histories)))
    if remember:
        for number, history in gallery.histories.items():
            # The slowest of all is known only now; that of the stage may be less slow by a little.
            slowest = history.slowest()[:1]
            if slowest and stage.shown(number) is not slowest[0]:
                stage.take(slowest[0])
            report = history.report
            frame = report.close.get("frame") if report is not None and report.close else None
            if frame is not None:
                found.ends[number] = scenes.scene(number, frozenset(), frame, frame)
    return found


def worst(reports: Iterable[ConnectionReport]) -> list[int]:
    """Return the numbers of connections, worst first."""
    from netdissect.diagnosis import diagnose  # noqa: PLC0415

    ranked = [
        ((report.diagnosis or diagnose(report)).badness, -report.connection) for report in reports
    ]
    # Of equally bad ones the earlier goes first.
    return [-number for _, number in sorted(ranked, reverse=True)]
