from __future__ import annotations

import pytest

from netdissect.plot.axes import clock_label, nice, nice_span_ns, number, ticks, time_ticks

SECOND = 1_000_000_000


@pytest.mark.parametrize(
    ("least", "step"), [(0.07, 0.1), (1, 1), (1.1, 2), (3, 5), (5.01, 10), (140, 200), (0, 1)]
)
def test_steps_are_one_two_or_five(least: float, step: float) -> None:
    assert nice(least) == pytest.approx(step)


def test_ticks_are_round_and_inside() -> None:
    assert ticks(0, 257, 5) == [0, 50, 100, 150, 200, 250]
    assert ticks(-20, 20, 4) == [-20, -10, 0, 10, 20]
    assert ticks(0, 1, 5, whole=True) == [0, 1]
    assert ticks(3, 3, 5) == [3]


def test_labels_have_the_decimals_that_their_step_needs() -> None:
    assert [number(value, 0.5) for value in (0, 0.5, 1)] == ["0.0", "0.5", "1.0"]
    assert number(12_000, 2000) == "12,000"
    assert clock_label(2_500_000_000, 500_000_000) == "2.5 s"
    assert clock_label(200_000, 50_000) == "0.20 ms"


def test_long_times_are_those_of_a_clock() -> None:
    marks = time_ticks(0, 4000 * SECOND, 6)
    assert [label for _, label in marks][:3] == ["0:00", "10:00", "20:00"]
    assert clock_label(3_800 * SECOND, 60 * SECOND, long=True) == "1:03:20"
    assert [label for _, label in time_ticks(0, 12 * SECOND, 6)] == [
        f"{second} s" for second in range(0, 13, 2)
    ]


def test_spans_of_a_rate_are_round() -> None:
    assert nice_span_ns(12 * SECOND, 60) == 500_000_000
    assert nice_span_ns(10 * 86_400 * SECOND, 60) % (3600 * SECOND) == 0


def test_a_short_span_deep_in_a_long_capture_has_ticks() -> None:
    start = 201 * SECOND + SECOND // 10
    assert [label for _, label in time_ticks(start, start + SECOND, 5)][:2] == [
        "201.2 s",
        "201.4 s",
    ]
    assert [label for _, label in time_ticks(start, start + 9 * SECOND, 6)][:2] == ["3:22", "3:23"]
