from __future__ import annotations

from collections import Counter

from netdissect.fuzz import Chance


def test_words_decide_every_choice() -> None:
    """Written down once: a change here changes every recorded seed."""
    chance = Chance("case", 7, 1)
    assert [chance.below(1000) for _ in range(6)] == FIRST
    assert chance.octets(8).hex() == OCTETS
    assert chance.choice("abcdef") == LETTER


FIRST = [265, 895, 735, 748, 747, 102]
OCTETS = "728b009449de2a4d"
LETTER = "f"


def test_other_words_give_other_choices() -> None:
    assert Chance(1, 2).octets(16) != Chance(2, 1).octets(16)
    assert Chance(1, 2).octets(16) == Chance(1, 2).octets(16)


def test_below_reaches_every_number_and_no_other() -> None:
    chance = Chance("spread")
    counts = Counter(chance.below(7) for _ in range(7000))
    assert sorted(counts) == list(range(7))
    assert min(counts.values()) > 800


def test_between_includes_both_ends() -> None:
    chance = Chance("ends")
    assert {chance.between(-1, 1) for _ in range(100)} == {-1, 0, 1}


def test_weights_count() -> None:
    chance = Chance("weights")
    counts = Counter(
        chance.weighted([(1, "rare"), (9, "often"), (0, "never")]) for _ in range(5000)
    )
    assert counts["never"] == 0
    assert 300 < counts["rare"] < 700


def test_bits_are_bounded() -> None:
    chance = Chance("bits")
    assert all(chance.bits(5) < 32 for _ in range(200))
    assert chance.bits(0) == 0
    assert len(chance.octets(0)) == 0
