"""Numbers as text: equal to what Python's own formatting makes of them."""

from __future__ import annotations

import random

import pytest

from netdissect.model.figures import decimal, digits, tenths


def test_digits_are_those_of_str():
    for value in (-(1 << 70), -1001, -1, *range(1100), 1 << 70):
        assert digits(value) == str(value)


def test_decimals_are_those_of_repr():
    numbers = random.Random(1)
    for _ in range(2000):
        millionths = numbers.randrange(100, 10 ** numbers.randrange(3, 15))
        assert decimal(millionths) == repr(millionths / 1e6)
        assert decimal(1000 * millionths) == repr(millionths / 1e3)


@pytest.mark.parametrize("unit", [10, 1_000_000, 1_000_000_000])
def test_tenths_are_those_of_a_format(unit):
    numbers = random.Random(2)
    ties = [unit // 20 * odd for odd in range(1, 4000, 2)]
    for value in (0, 1, -1, -unit, 1 << 60, *ties, *(tie + step for tie in ties for step in (-1, 1))):
        assert tenths(value, unit) == f"{value / float(unit):.1f}"
    for _ in range(5000):
        value = numbers.randrange(10 ** numbers.randrange(2, 18))
        assert tenths(value, unit) == f"{value / float(unit):.1f}"
