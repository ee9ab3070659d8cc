"""The plot of two joined captures: how long each datagram was on its way, and which were lost."""

from __future__ import annotations

from collections.abc import Iterable

from netdissect.model.joined import Fate, FateRow
from netdissect.model.packets import SIDES
from netdissect.plot.axes import headroom
from netdissect.plot.chart import Chart, Point, Series
from netdissect.plot.thin import MAX_POINTS, PointList
from netdissect.render.units import duration


def delays(
    fates: Iterable[tuple[int, FateRow]], direction: int, zero_ns: int, connection: int
) -> Chart:
    """Return the one-way delays of the datagrams that one side sent, with lanes for lost and copied
    ones.

    Args:
        fates: frame in the capture next to the sender, and what became of its datagram.
        direction: `Direction` of the sender.
        zero_ns: time zero by the clock of the first capture.
        connection: number of the connection.

    """
    came: PointList[Point] = PointList(MAX_POINTS)
    lost: PointList[Point] = PointList(MAX_POINTS)
    copied: PointList[Point] = PointList(MAX_POINTS)
    sent = 0
    end_ns = zero_ns + 1
    for frame, row in fates:
        if not row.fate.sent:
            continue
        sent += 1
        end_ns = max(end_ns, row.common_ns)
        if row.fate is Fate.LOST:
            lost.add(Point(row.common_ns, None, frame, "lost", mark="lost"))
        elif row.delay_ms is not None:
            came.add(Point(row.common_ns, row.delay_ms, frame, "delivered"))
        if row.copied:
            copied.add(Point(row.common_ns, None, frame, "duplicated by the network", mark="copy"))
    other = SIDES[1 - direction]
    chart = Chart(
        "delay", connection, f"One-way delay, {SIDES[direction]} to {other}",
        "milliseconds, by time of sending", "ms", zero_ns, zero_ns, end_ns, 0.0, 1.0, direction,
    )  # fmt: skip
    chart.series = [Series("delivered", "dot", SIDES[direction], came.points, came.total)]
    chart.add_lane("lost on the way", "lost", "bad", lost.points)
    chart.add_lane("duplicated by the network", "copy", "again", copied.points)
    for series in chart.lanes:
        series.total = (lost if series.shape == "lost" else copied).total
    heights = [point.value for point in came.points if point.value is not None]
    chart.low = min(0.0, *(heights or [0.0]))
    chart.high = headroom(max(heights, default=0.0))
    middle = duration(sorted(heights)[len(heights) // 2]) if heights else "unknown"
    chart.said = (
        f"{lost.total:,} of {sent:,} datagrams were lost; half of the others took {middle}."
    )
    return chart
