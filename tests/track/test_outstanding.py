"""The outstanding units of a space, compared with a dict, which has the same order."""

from __future__ import annotations

import random

from netdissect.track.outstanding import Outstanding
from netdissect.track.unit import Unit


def unit():
    return Unit(0, 0, 0, 1, None)


def numbers(kept):
    """Return the numbers in order, after a look from both ends."""
    back, one = [], kept.newest
    while one is not None:
        back.append(one.number)
        one = one.before
    assert back[::-1] == kept.numbers()
    assert kept.count == len(back)
    return kept.numbers()


def test_it_keeps_what_a_dict_would_keep_in_the_same_order():
    chance = random.Random(1)
    kept, model = Outstanding(), {}
    for _ in range(3000):
        # Far apart and negative numbers share places with others.
        number = chance.choice((chance.randrange(-4, 40), 64 * chance.randrange(1 << 40)))
        if chance.random() < 0.6 or not model:
            one = unit()
            kept.add(number, one)
            model.pop(number, None)  # added again, it is the newest
            model[number] = one
        else:
            number = chance.choice((number, *model))
            assert kept.pop(number) is model.pop(number, None)
        if chance.random() < 0.1:
            kept.shrink()
        assert kept.find(number) is model.get(number)
        assert numbers(kept) == list(model)
    assert kept.units() == list(model.values())
    kept.clear()
    assert numbers(kept) == []


def test_units_of_a_range_come_in_its_order_if_it_is_narrow():
    kept = Outstanding()
    for number in (3, 1, 2, 9):
        kept.add(number, unit())
    assert [one.number for one in kept.within(1, 4)] == [1, 2, 3]
    assert [one.number for one in kept.within(0, 9)] == [3, 1, 2]
    assert kept.within(4, 9) == kept.within(5, 5) == []


def test_a_unit_that_left_may_be_added_to_another_space():
    here, there = Outstanding(), Outstanding()
    first, second = unit(), unit()
    here.add(8, first)
    here.add(16, second)
    here.remove(first)
    there.add(5, first)
    assert (numbers(here), numbers(there)) == ([16], [5])
    assert there.find(8) is None


def test_units_are_freed_with_a_table_that_is_dropped():
    """The collector does not see compiled units, and neighbours refer to each other."""
    kept = Outstanding()
    one, other = unit(), unit()
    kept.add(1, one)
    kept.add(2, other)
    del kept
    assert one.after is None
    assert other.before is None
