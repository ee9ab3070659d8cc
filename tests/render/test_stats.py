from __future__ import annotations

import io

import pytest

import samples
from netdissect.export import json
from netdissect.model.intervals import Interval
from netdissect.render.console import Screen, cells
from netdissect.render.stats import show_stats, sparkline
from netdissect.render.units import Clock

S = 1_000_000_000


@pytest.mark.parametrize(
    ("values", "columns", "text"),
    [
        ([], 10, ""),
        ([0, 1, 2, 3, 4, 5, 6, 7], 10, "▁▂▃▄▅▆▇█"),
        ([None, 7, None], 10, " █ "),
        ([0, 0], 10, "▁▁"),
        ([None], 10, " "),
        ([0, 7, 0, 3.5], 2, "█▅"),
        ([-5.0, 10.0], 2, "▁█"),
        ([-5.0, -1.0], 2, "▁▁"),
    ],
)
def test_sparklines(values: list[float | None], columns: int, text: str) -> None:
    assert sparkline(values, columns) == text


def rows() -> list[Interval]:
    return [
        Interval(
            samples.START + index * S,
            S,
            way,
            10 * index,
            100 * index,
            0,
            5,
            6,
            1,
            reliable_copies=6,
            unacked=1,
            lost=way,
            decided=4 * way,
            rtt_ms=60.5,
            rtt_samples=4,
        )
        for index in range(3)
        for way in (0, 1)
    ]


def test_every_span_has_a_line_and_every_figure_a_sparkline() -> None:
    stream = io.StringIO()
    show_stats(
        Screen(stream, width=80, color="never"), rows(), Clock("r", samples.START), sparks=True
    )
    text = stream.getvalue()
    assert text.count("→") == 3 + 4, "of this direction no loss can be told"
    assert text.count("←") == 3 + 5
    assert "1 (16.7%)" in text
    assert text.count("1 (25.0%)") == text.count(" - ") == 3
    assert "60.5 ms" in text
    assert max(map(cells, text.splitlines())) <= 80


def test_columns_and_values_go_together() -> None:
    values = json.interval(rows()[2])
    assert {*values} - {"schema"} == {*json.INTERVAL} - {"delay_ms"}
    assert values["direction"] == "c2s"
    assert values["goodput_octets_per_s"] == 100.0
    assert values["rtt_ms"] == 60.5
    assert values["retransmission_share"] == round(1 / 6, 6)
    assert values["lost"] is values["loss_share"] is None
    assert json.interval(rows()[3])["loss_share"] == 0.25


def test_nothing_says_so() -> None:
    stream = io.StringIO()
    show_stats(Screen(stream, width=80), [], Clock(), sparks=True)
    assert "No datagram" in stream.getvalue()


@pytest.mark.parametrize("width", [40, 60, 80, 89, 160])
def test_columns_are_dropped_and_never_cut(width: int) -> None:
    found = rows()
    for row in found:
        row.observed, row.delay_ms = True, 26.1
    stream, clock = io.StringIO(), Clock("r", samples.START)
    show_stats(Screen(stream, width=width, color="never"), found, clock, sparks=False)
    lines = stream.getvalue().splitlines()
    assert max(cells(line) for line in lines) <= width
    assert "lost" in lines[1]
    assert ("delay" in lines[1]) == (width >= 60)
    assert ("goodput/s" in lines[1]) == (width >= 89)
    assert "octets" not in stream.getvalue()
