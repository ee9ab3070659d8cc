"""Rows with several numbers: a few bytes each, and the oldest can be dropped."""

from netdissect.pipeline.column import Tuples


def test_numbers_of_rows_are_those_that_were_added() -> None:
    rows = {3: (1, 2), 4: (5,), 90: (6, 7, 8), 1000: (2, 1)}
    found = Tuples()
    assert found.of(3) == ()
    for row, numbers in rows.items():
        found.add(row, numbers)
    for first in (0, 4, 5, 1000, 2000):
        found.forget(first)
        kept = {row: numbers for row, numbers in rows.items() if row >= first}
        assert {row: found.of(row) for row in range(1100) if found.of(row)} == kept
        assert found.size == sum(map(len, kept.values()))
    found.add(3000, (4, 4))
    assert found.of(3000) == (4, 4)
