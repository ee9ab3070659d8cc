"""Charts as table rows for other programs: each point with its frame."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from netdissect.model.packets import Direction
from netdissect.plot.chart import Chart

COLUMNS = (
    "kind", "connection", "direction", "series", "time_ns", "until_ns", "value", "base", "unit",
    "frame", "label",
)  # fmt: skip
"""Columns of the CSV, and keys of the JSON."""


def rows(chart: Chart) -> Iterator[dict[str, Any]]:
    """Yield the points of a chart by series, then its silences and its findings."""
    head: dict[str, Any] = {"kind": chart.kind, "connection": chart.connection}
    way = None if chart.direction is None else Direction(chart.direction).label
    for series in chart.series:
        for point in series.points:
            yield {
                **head,
                "direction": way,
                "series": series.name,
                "time_ns": point.time_ns,
                "until_ns": point.until_ns,
                "value": None if point.value is None else round(point.value, 6),
                "base": point.base if point.until_ns is not None else None,
                "unit": chart.unit or None,
                "frame": point.frame,
                "label": point.label,
            }
    for band in chart.bands:
        side = None if band.direction is None else Direction(band.direction).label
        yield {
            **head, "direction": side, "series": band.kind, "time_ns": band.start_ns,
            "until_ns": band.end_ns, "value": (band.end_ns - band.start_ns) / 1e6, "base": None,
            "unit": "ms", "frame": band.frame, "label": band.label,
        }  # fmt: skip
    for flag in chart.flags:
        yield {
            **head, "direction": way, "series": "finding", "time_ns": flag.time_ns,
            "until_ns": None, "value": None, "base": None, "unit": None, "frame": flag.frame,
            "label": flag.label,
        }  # fmt: skip
