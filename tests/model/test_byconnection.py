from __future__ import annotations

import pytest

from netdissect.model.byconnection import MAX_BYTE_CODE, ByConnection


def test_a_value_for_each_connection_that_has_one() -> None:
    found = ByConnection[tuple[str, int]]()
    assert dict(found) == {}
    found.put(3, ("a", 1))
    found.put(1, ("b", 2))
    found.put(7, ("a", 1))
    found.put(1, ("a", 1))
    assert dict(found) == {1: ("a", 1), 3: ("a", 1), 7: ("a", 1)}
    assert len(found) == 3
    for number in (0, 2, 8, -1):
        assert found.get(number) is None
    with pytest.raises(KeyError):
        found[2]


def test_more_values_than_a_byte_tells_apart() -> None:
    found = ByConnection[int]()
    for number in range(1, 3 * MAX_BYTE_CODE):
        found.put(number, number * number)
    assert dict(found) == {number: number * number for number in range(1, 3 * MAX_BYTE_CODE)}
