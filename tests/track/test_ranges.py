"""Sets of numbers as ranges: what they hold, their bounds, and that a range costs like a number."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from netdissect.track.ranges import MAX_RANGES, Ranges, Recent


@given(st.lists(st.tuples(st.integers(0, 60), st.integers(1, 8)), max_size=40))
def test_ranges_are_a_set(parts: list[tuple[int, int]]) -> None:
    ranges, numbers = Ranges(), set()
    for start, count in parts:
        ranges.add(start, start + count)
        numbers.update(range(start, start + count))
    assert {number for number in range(80) if number in ranges} == numbers


def test_ranges_are_bounded() -> None:
    ranges = Ranges()
    for number in range(3 * MAX_RANGES):
        ranges.add(2 * number, 2 * number + 1)
    assert ranges.merged == 2 * MAX_RANGES
    assert 6 * MAX_RANGES - 2 in ranges


@given(
    st.lists(
        st.tuples(st.integers(0, 60), st.integers(0, 8), st.integers(0, 40)), max_size=40
    ),
    st.tuples(st.integers(0, 80), st.integers(0, 80)),
)
def test_recent_numbers_are_a_set(parts: list[tuple[int, int, int]], span: tuple[int, int]) -> None:
    """A count of none takes a number out; the third value is how many are kept, where not 0."""
    recent, numbers = Recent(), set()
    for start, count, kept in parts:
        if count:
            recent.add(start, start + count)
            numbers.update(range(start, start + count))
        else:
            recent.discard(start)
            numbers.discard(start)
        if kept:
            recent.keep(kept)
            numbers = set(sorted(numbers)[-kept:])
        assert recent.size == len(numbers)
    assert {number for number in range(80) if number in recent} == numbers
    low, high = span
    assert recent.within(low, high) == sorted(numbers & set(range(low, high)))
    assert recent.touches(low, high) == any(low <= number < high for number in numbers)
