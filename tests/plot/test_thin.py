from __future__ import annotations

import random
from typing import NamedTuple

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from netdissect.plot.thin import PointList, thinned


class Dot(NamedTuple):
    time_ns: int
    height: float | None
    mark: str = ""


DOTS = st.lists(
    st.builds(
        Dot,
        st.integers(0, 10_000),
        st.one_of(st.none(), st.integers(0, 1000).map(float)),
        st.sampled_from(["", "", "again", "lost"]),
    ),
    max_size=80,
)


def column(point: Dot, points: list[Dot], columns: int) -> int:
    start = min(dot.time_ns for dot in points)
    span = max(dot.time_ns for dot in points) - start + 1
    return (point.time_ns - start) * columns // span


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(DOTS, st.integers(1, 40))
def test_no_extreme_and_no_kind_of_mark_is_lost(points: list[Dot], columns: int) -> None:
    left = thinned(points, columns)
    assert set(left) <= set(points)
    for place in range(columns):
        before = [dot for dot in points if column(dot, points, columns) == place]
        after = [dot for dot in left if column(dot, points, columns) == place]
        assert {dot.mark for dot in after} == {dot.mark for dot in before}
        for mark in {dot.mark for dot in before}:
            tall = [dot.height for dot in before if dot.mark == mark and dot.height is not None]
            kept = [dot.height for dot in after if dot.mark == mark and dot.height is not None]
            if tall:
                assert max(kept) == max(tall)
                assert mark or min(kept) == min(tall)


def test_the_order_stays() -> None:
    points = [Dot(index, float(index % 7)) for index in range(1000)]
    assert thinned(points, 10) == sorted(thinned(points, 10))


def test_every_spike_of_a_long_series_is_kept() -> None:
    chance = random.Random(7)
    kept: PointList[Dot] = PointList(2000)
    spikes = set()
    for index in range(100_000):
        spike = chance.random() < 0.001
        point = Dot(index * 1000, 900.0 + index / 1e6 if spike else chance.random(), "")
        if spike:
            spikes.add(point)
        kept.add(point)
    kept.thin()
    assert kept.total == 100_000
    assert kept.thinned
    assert len(kept.points) <= 2000
    columns = {dot.time_ns * 256 // 100_000_000 for dot in spikes}
    found = {dot.time_ns * 256 // 100_000_000 for dot in kept.points if (dot.height or 0) >= 900}
    assert found == columns


def test_few_points_stay_as_they_are() -> None:
    points = [Dot(5, 1.0), Dot(5, 2.0), Dot(5, 3.0)]
    assert thinned(points, 10) == points
    assert thinned([], 10) == []


def test_what_has_no_room_is_not_the_end() -> None:
    kept: PointList[Dot] = PointList(100)
    for index in range(10_000):
        kept.add(Dot(index, float(index * 7919 % 1000), "again" if index % 2 else "lost"))
    kept.thin()
    assert 50 <= len(kept.points) <= 100
    assert kept.points[-1].time_ns > 9_000
