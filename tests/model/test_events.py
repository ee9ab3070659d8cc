from __future__ import annotations

from netdissect.model.events import Ev


def test_every_kind_has_a_number_of_its_own() -> None:
    """Two names for one number would be taken for each other without a word."""
    assert len(Ev.__members__) == len(list(Ev))
