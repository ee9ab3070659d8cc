from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from netdissect.pipeline.numbering import Begun, common_numbers

MOMENTS = st.tuples(st.integers(1, 40), st.integers(1, 40))


def begun(moments: list[tuple[int, int]]) -> Begun:
    found = Begun()
    for moment in moments:
        found.add(*moment)
    return found


def test_no_moment_is_before_the_one_before_it() -> None:
    found = Begun()
    assert [found.add(5, 2), found.add(4, 9), found.add(5, 1), found.add(7, 1)] == [1, 2, 3, 4]
    assert list(found) == [(5, 2), (5, 2), (5, 2), (7, 1)]
    assert len(found) == 4


def test_shares_get_the_numbers_of_their_common_order() -> None:
    shares = [begun([(1, 1), (9, 3)]), begun([]), begun([(2, 2), (5, 5), (9, 2)])]
    assert [list(numbers) for numbers in common_numbers(shares)] == [[1, 5], [], [2, 3, 4]]


@given(st.lists(st.tuples(MOMENTS, st.integers(0, 2)), max_size=60))
def test_one_process_and_several_number_alike(moments: list[tuple[tuple[int, int], int]]) -> None:
    moments.sort()
    shares = [begun([moment for moment, share in moments if share == n]) for n in range(3)]
    numbers = common_numbers(shares)
    assert sorted(number for share in numbers for number in share) == list(
        range(1, len(moments) + 1)
    )
    order = [0] * len(moments)
    for share, mine in zip(shares, numbers, strict=True):
        assert list(mine) == sorted(mine)
        for moment, number in zip(share, mine, strict=True):
            order[number - 1] = moment  # type: ignore[call-overload]
    assert order == [moment for moment, _ in moments]
