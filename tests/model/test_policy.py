from __future__ import annotations

import pytest

from netdissect.model.policy import state_words


def test_a_state_has_a_word_of_the_reports() -> None:
    found = state_words(unknown=("new", "asking"), open="up", timed_out="gone")
    assert found == {"new": "unknown", "asking": "unknown", "up": "open", "gone": "timed_out"}
    with pytest.raises(ValueError, match="opening is no word for a state: there are accepted, clo"):
        state_words(opening="asking")
