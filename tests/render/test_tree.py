from __future__ import annotations

import pytest

import hostile
from netdissect.render.tree import value_text


@pytest.mark.parametrize(
    ("value", "display", "text"),
    [
        (b"", "", "empty"),
        (b"\x01\x02", "0102", "0102"),
        (bytes(40), bytes(40).hex(), "00" * 32 + "… (40 bytes)"),
        (b"\x01", "one", "01 (one)"),
        (7, "Reliable", "7 (Reliable)"),
        (7, "Reliable (7)", "7 (Reliable)"),
        (True, "", "true"),
        (None, "", "none"),
        (0.5, "", "0.5"),
        (float("nan"), "", "nan"),
        ("a", "", '"a"'),
        ({"control": False, "at": [1, b"\xff"]}, "", "control=false at=(1, ff)"),
        ([], "", "empty"),
        ([[[[[[1]]]]]], "", "((((...))))"),
    ],
)
def test_values_read_like_values(value: object, display: str, text: str) -> None:
    assert value_text(value, display) == text


@pytest.mark.parametrize("evil", hostile.HOSTILE[:40])
def test_members_are_as_safe_as_values(evil: str) -> None:
    for text in (value_text({evil: evil}), value_text([evil]), value_text(evil, evil)):
        assert hostile.is_safe(text)
