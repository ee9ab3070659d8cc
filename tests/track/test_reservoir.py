from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from netdissect.track.reservoir import MAX_SAMPLES, RttReservoir


def test_nothing_measured() -> None:
    summary = RttReservoir().summary()
    assert (summary.samples, summary.minimum, summary.p50, summary.maximum) == (0, None, None, None)


@given(st.lists(st.integers(0, 10**9), min_size=1, max_size=200))
def test_small_numbers_of_samples_are_exact(samples) -> None:
    made = RttReservoir()
    for sample in samples:
        made.add(sample)
    ranked = sorted(samples)
    summary = made.summary()
    assert (summary.minimum, summary.maximum) == (ranked[0] / 1e6, ranked[-1] / 1e6)
    assert summary.p50 == ranked[-(-len(ranked) // 2) - 1] / 1e6
    assert summary.p95 == ranked[-(-95 * len(ranked) // 100) - 1] / 1e6


def test_many_samples_stay_bounded_and_close() -> None:
    made = RttReservoir()
    for number in range(100_000):
        made.add((number * 7919) % 100_000 * 1000)
    assert len(made._kept) < MAX_SAMPLES
    summary = made.summary()
    assert summary.samples == 100_000
    assert (summary.minimum, summary.maximum) == (0.0, 99.999)
    assert abs(summary.p50 - 50) < 5
    assert abs(summary.p95 - 95) < 3


def test_the_quickest_but_for_a_tenth() -> None:
    made = RttReservoir()
    for sample in (5, *range(1000, 1008)):
        made.add(sample)
    assert (made.lowest, made.quick()) == (5, 1000)
    for sample in range(2000, 2011):
        made.add(sample)
    assert made.quick() == 1001
    alone = RttReservoir()
    alone.add(7)
    assert alone.quick() == 7


@given(st.lists(st.integers(0, 50), min_size=1, max_size=1200))
def test_to_be_asked_in_between_changes_nothing(samples) -> None:
    asked, quiet = RttReservoir(), RttReservoir()
    for sample in samples:
        asked.add(sample)
        quiet.add(sample)
        if sample % 7 == 0:
            asked.summary(), asked.quick(), asked.percentile(0.95)
    assert asked.summary() == quiet.summary()
    assert list(asked._kept) == list(quiet._kept)
