from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

import hostile
from netdissect.render.safe import LINE_LIMIT, is_plain, safe


def test_the_corpus_has_200_strings() -> None:
    assert len(hostile.HOSTILE) == 200


@pytest.mark.parametrize("index", range(200))
def test_hostile_text_is_harmless(index: int) -> None:
    shown = safe(hostile.HOSTILE[index])
    assert hostile.is_safe(shown)
    assert "\n" not in shown
    shown.encode("utf-8")


@given(st.lists(st.text(alphabet=st.sampled_from("a →\x1b\n\u202e\u0301·"), max_size=5)))
def test_plain_text_is_safe_as_a_whole_and_in_parts(parts: list[str]) -> None:
    text = "".join(parts)
    if is_plain(text):
        assert text == safe(text) == "".join(map(safe, parts))
    assert not is_plain("a" * (LINE_LIMIT + 1))


@given(st.text(alphabet=st.characters()))
def test_any_text_is_harmless(text: str) -> None:
    shown = safe(text)
    assert hostile.is_safe(shown)
    assert "\n" not in shown


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain [bold] text", "plain [bold] text"),
        ("\x1b[2J", "\\x1b[2J"),
        ("a\nb\tc\r", "a\\nb\\tc\\r"),
        ("\x9b", "\\x9b"),
        ("\u202eabc", "\\u202eabc"),
        ("\udc80", "\\x80"),
        ("\ud800", "\\ud800"),
        ("\U000e0041", "\\U000e0041"),
        ("日本", "日本"),
        ("Zoë", "Zoë"),
    ],
)
def test_escapes_are_visible(text: str, shown: str) -> None:
    assert safe(text) == shown


def test_length_is_bounded_and_the_rest_is_counted() -> None:
    assert safe("x" * (LINE_LIMIT + 5)) == "x" * LINE_LIMIT + "… (+5 characters)"


def test_marks_do_not_pile_up() -> None:
    assert safe("a" + "\u0301" * 4) == "a\u0301\u0301\\u0301\\u0301"


@pytest.mark.parametrize(
    "char", "\u034f\u115f\u1160\u17b4\u17b5\u180b\u180f\u2800\u3164\ufe00\ufe0e\uffa0", ids=ascii
)
def test_what_cannot_be_seen_is_escaped(char: str) -> None:
    """Python calls these printable; two names that differ only in them would look alike."""
    assert char.isprintable()
    assert safe(f"name{char}") == safe(f"name{char}" + "x" * 100)[:10] == f"name\\u{ord(char):04x}"
