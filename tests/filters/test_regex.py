from __future__ import annotations

import random
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from netdissect.filters import regex
from netdissect.filters.regex import MAX_TEXT, PatternError, search

_ATOMS = st.sampled_from(
    ["a", "b", ".", "[ab]", "[^a]", "\\d", "\\w", "(a|b)", "(?:ab)", "^", "$", "c"]
)
_QUANTIFIED = st.tuples(
    _ATOMS, st.sampled_from(["", "*", "+", "?", "{2}", "{1,3}", "{0,2}", "{2,}"])
).map(lambda pair: pair[0] + ("" if pair[0] in "^$" else pair[1]))
_PATTERNS = st.lists(_QUANTIFIED, max_size=6).map("".join)


@given(_PATTERNS, st.text(alphabet="abc1_", max_size=12))
def test_agrees_with_re(pattern: str, text: str) -> None:
    assert search(pattern)(text) == bool(re.search(pattern, text, re.IGNORECASE))


@pytest.mark.parametrize("pattern", ["(a+)+$", "(a*)*b", "(a|aa)+$", "(.*)*x", "((a?){20})+b"])
def test_patterns_that_hang_other_engines_finish(pattern: str) -> None:
    assert not search(pattern)("a" * 3000 + "!")


@pytest.mark.parametrize(
    ("pattern", "position"),
    [
        ("(a", 2),
        ("a)", 1),
        ("*a", 0),
        ("[a", 2),
        ("a{2", 2),
        ("\\", 1),
        ("(?=a)", 1),
        ("a+?", 2),
        ("a{9999}", 2),
        ("a{\u00b2}", 2),  # a digit to Python, and no number
        ("a{" + "1" * 5000 + "}", 2),  # more digits than Python converts
    ],
)
def test_faults_name_their_place(pattern: str, position: int) -> None:
    with pytest.raises(PatternError) as caught:
        search(pattern)
    assert caught.value.position == position


def test_states_are_bounded() -> None:
    with pytest.raises(PatternError, match="states"):
        search("((a{50}){50}){50}")


def test_what_is_remembered_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sets of many states are remembered by their size, not their number."""
    monkeypatch.setattr(regex, "MAX_REMEMBERED", 5_000)
    chance = random.Random(1)
    machine = search("a.{300}b").__self__  # type: ignore[attr-defined]
    assert not machine.found("".join(chance.choice("acde") for _ in range(3_000)))
    kept = machine._steps
    assert kept
    assert sum(map(len, kept.values())) <= 5_000 + 2_000


def test_nesting_is_bounded() -> None:
    with pytest.raises(PatternError, match="nested"):
        search("(" * 1000 + ")" * 1000)


def test_only_the_first_part_of_a_long_text_is_looked_at() -> None:
    assert not search("b")("a" * MAX_TEXT + "b")


def test_case_does_not_matter() -> None:
    assert search("HeLLo")("say hello")


def test_a_closing_bracket_may_come_first_in_a_class() -> None:
    assert search("[]a]")("]")
