from __future__ import annotations

from netdissect.model.events import Ev


def test_every_kind_has_a_number_of_its_own() -> None:
    """Two names for one number would be taken for each other without a word."""
    numbers = [value for name, value in vars(Ev).items() if name.isupper()]
    assert len(numbers) > 20
    assert len(set(numbers)) == len(numbers)
