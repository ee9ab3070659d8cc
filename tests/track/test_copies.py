"""Copies judged by the numbers that their sender used up."""

from __future__ import annotations

import pytest

from netdissect.track.copies import (
    BACK_TO_BACK_NS,
    ENOUGH,
    LATEST_NS,
    MAX_COUNTED,
    OVERTAKEN,
    CountedCopies,
)
from tracking import MS

LATER_NS = 50 * MS


def repeater() -> CountedCopies:
    """Return the copies of a sender that is known to repeat: a number each."""
    made = CountedCopies()
    for number in range(-2 * ENOUGH - 2 * OVERTAKEN, -2 * OVERTAKEN, 2):
        made.add(60 * MS, lambda _: None, number * LATER_NS, copied=False)
        made.judge(1, number, number * LATER_NS)
    return made


def judged(
    gap_ms: float, skipped: tuple[tuple[int, int], ...], *, copied: bool
) -> list[bool | None]:
    """Return the verdict on one copy, if any; `skipped` stand around it."""
    turned: list[bool | None] = []
    made = repeater()
    before, after = skipped
    made.judge(*before, 0)
    made.add(int(gap_ms * MS), turned.append, MS, copied=copied)
    made.judge(*after, LATER_NS)
    return turned


def test_a_number_used_up_is_the_senders_copy() -> None:
    assert judged(9, ((0, 10), (1, 12)), copied=True) == [False]
    assert judged(20, ((0, 10), (1, 12)), copied=False) == [False]


def test_a_number_used_up_by_a_sender_of_which_little_is_known() -> None:
    """The number may have been lost. What its further copies show holds for this one, too."""
    for skipped, verdict in ((None, None), (1, False), (0, True)):
        turned: list[bool | None] = []
        made = CountedCopies()
        number = 10
        for more in [1] if skipped is None else [1, *[skipped] * (ENOUGH - 1)]:
            assert not turned[:1] or more == skipped
            made.add(9 * MS, turned.append, number * LATER_NS, copied=True, soon=True)
            number += 1 + more
            made.judge(more, number, number * LATER_NS)
        made.judge_pending()
        assert set(turned) == {verdict}


def test_where_numbers_change_places_no_gap_shows_the_networks_copy() -> None:
    turned: list[bool | None] = []
    made = repeater()
    made.judge(1, 12, 0)
    made.arrived_late(11, 30 * MS)
    made.judge(0, 13, LATER_NS)
    made.add(9 * MS, turned.append, 2 * LATER_NS, copied=True)
    made.judge(0, 14, 3 * LATER_NS)
    assert turned == [None]


def test_no_number_used_up_is_the_networks_copy() -> None:
    assert judged(20, ((0, 10), (0, 11)), copied=False) == [True]
    # Nothing but a held number makes one that comes so late seem unnumbered.
    assert judged(30, ((0, 10), (0, 11)), copied=False) == [None]


def test_where_the_network_copies_a_number_used_up_proves_no_copy_that_comes_soon() -> None:
    """It may have been lost. Of a copy that comes later, no network is suspected."""
    for copying in (False, True):
        for gap_ms, verdict in ((2, None if copying else False), (15, False)):
            turned: list[bool | None] = []
            made = repeater()
            made.network_copies = copying
            made.add(gap_ms * MS, turned.append, 0, copied=True)
            made.judge(1, 12, LATER_NS)
            assert turned == [verdict]


@pytest.mark.parametrize(
    ("gaps_ms", "unknown_ms", "sure_ms"),
    [
        ((18,), 35, 37),
        ((4, 8, 18, 20), 29, 31),
        # One that came late may be an outlier.
        ((*range(1, 20), 90), 20, 22),
        # What comes later than any copy is something else, such as a number used again.
        ((200,), 14, 16),
    ],
)
def test_the_network_may_make_copies_as_late_as_those_that_its_own_numbers_show(
    gaps_ms: tuple[int, ...], unknown_ms: int, sure_ms: int
) -> None:
    made = repeater()
    for gap_ms in gaps_ms:
        made.note_network_copy(gap_ms * MS)
    turned: list[bool | None] = []
    for number, gap_ms in enumerate((unknown_ms, sure_ms)):
        made.add(gap_ms * MS, turned.append, number * LATER_NS, copied=False)
        made.judge(1, 12 + 2 * number, (number + 1) * LATER_NS)
    assert turned == [None, False]


def test_a_copy_that_a_newer_number_has_overtaken() -> None:
    """TypeCount beside the receiver in late_resend_peer: 13 comes before the copy that took 12."""
    assert judged(14, ((1, 13), (0, 14)), copied=True) == [False]
    assert judged(14, ((1, 13), (0, 14 + OVERTAKEN)), copied=True) == [True]


def test_no_network_copy_comes_that_late() -> None:
    assert judged(LATEST_NS / MS, ((0, 10), (0, 11)), copied=False) == [False]


def test_copies_beyond_the_bound_are_not_taken() -> None:
    made = CountedCopies()
    taken = [made.add(MS, lambda _: None, 0, copied=True) for _ in range(MAX_COUNTED + 2)]
    assert taken == [True] * MAX_COUNTED + [False] * 2


def test_a_resend_whose_original_is_missing_does_not_judge() -> None:
    """Beside late_resend_lossy's sender: eight copies, then one of 14, then 42 after another."""
    for skipped, verdict in ((27, False), (0, True), (1, True)):
        turned: list[bool] = []
        made = CountedCopies()
        for _ in range(8):
            made.add(MS, turned.append, 0, copied=True)
        made.judge(0, 14, LATER_NS)
        assert not turned
        made.judge(skipped, 15 + skipped, 2 * LATER_NS)
        assert turned == [verdict] * 8


def test_a_loss_behind_a_copy_of_the_network_makes_it_no_resend() -> None:
    """A sender that repeats nothing: the number that one copy of five is followed by was lost."""
    turned: list[bool] = []
    made = CountedCopies()
    number = 10
    for skipped in (0, 0, 0, 1, 0, 1):
        made.add(MS, turned.append, number * LATER_NS, copied=True, soon=True)
        number += 1 + skipped
        made.judge(skipped, number, number * LATER_NS)
    assert turned == [True] * 6
    made.judge(1, number + 2, (number + 2) * LATER_NS)  # lost, within reach of the next copy
    made.add(MS, turned.append, (number + 2) * LATER_NS, copied=True, soon=True)
    made.judge(0, number + 3, (number + 3) * LATER_NS)
    assert turned == [True] * 7


def test_a_skipped_number_that_comes_late_was_used_by_no_copy() -> None:
    turned: list[bool] = []
    made = CountedCopies()
    made.judge(1, 13, 0)
    made.arrived_late(12, MS)
    made.add(14 * MS, turned.append, 2 * MS, copied=True)
    made.judge(0, 14, LATER_NS)
    assert turned == [True]


def test_a_copy_that_has_overtaken_the_number_before_it() -> None:
    """Sent as 10, 11 and 10 again, which takes 12; the last two change places on their way."""
    for last, verdict in ((13, False), (12, True)):
        turned: list[bool | None] = []
        made = repeater()
        made.judge(0, 10, 0)
        made.add(MS, turned.append, MS, copied=True)
        made.judge(0, 11, MS + BACK_TO_BACK_NS)
        assert not turned
        made.judge(last - 12, last, LATER_NS)
        assert turned == [verdict]


def test_a_skipped_number_that_comes_late_behind_a_copy_was_not_its_own() -> None:
    turned: list[bool] = []
    made = CountedCopies()
    made.judge(0, 10, 0)
    made.add(MS, turned.append, MS, copied=True)
    made.judge(1, 12, MS + 1)
    made.arrived_late(11, MS + 2)
    made.judge(0, 13, LATER_NS)
    assert turned == [True]


@pytest.mark.parametrize(("before_ms", "verdict"), [(1, False), (50, None), (150, True)])
def test_a_number_that_went_missing_long_before_a_copy_is_not_the_copys(
    before_ms: int, verdict: bool | None
) -> None:
    """It may have been lost, as numbers do not change places there."""
    turned: list[bool | None] = []
    made = repeater()
    copy_ns = 20 * LATER_NS
    made.judge(1, 12, copy_ns - before_ms * MS)
    made.add(20 * MS, turned.append, copy_ns, copied=False)
    made.judge(0, 13, copy_ns + 3 * MS)
    assert turned == [verdict]


def test_numbers_wait_for_each_other_as_long_as_they_come_late() -> None:
    """In a network that has held one number back for 30 ms, another may be as late."""
    turned: list[bool | None] = []
    made = repeater()
    made.judge(1, 12, 0)
    made.arrived_late(11, 30 * MS)
    made.judge(0, 13, LATER_NS)
    made.add(MS, turned.append, LATER_NS + MS, copied=True)
    made.judge(0, 14, LATER_NS + 20 * MS)
    assert not turned
    made.judge(1, 16, 2 * LATER_NS)
    assert turned == [False]


def test_a_sender_whose_copies_use_no_numbers_repeats_nothing() -> None:
    """However late the network's copy is, once that is known, and though a number was lost."""
    turned: list[bool] = []
    made = CountedCopies()
    number = 10
    for skipped in (0, 0, 0, 0, 1):
        made.add(60 * MS, turned.append, number * LATER_NS, copied=False)
        number += 1 + skipped
        made.judge(skipped, number, number * LATER_NS)
    assert turned == [None] * (ENOUGH - 1) + [True] * 2


def test_how_soon_the_senders_copies_come_tells_which_of_two_is_the_networks() -> None:
    """A sender that repeats at once; among two copies that used one number is one 3 ms late."""
    turned: list[tuple[str, bool | None]] = []
    made = CountedCopies()

    def add(name: str, gap_ns: int, place: int) -> None:
        made.add(gap_ns, lambda copied: turned.append((name, copied)), place, copied=True)

    def known() -> list[bool | None]:
        add("soon", 20_000, number * LATER_NS)
        add("late", 3 * MS, number * LATER_NS)
        turned.clear()
        made.judge(1, number + 2, (number + 1) * LATER_NS)
        return [dict(turned).get(name) for name in ("soon", "late")]

    number = 10
    assert known() == [None, None]  # nothing is known of either, nor of their sender
    for _ in range(12):
        number += 3
        add("soon", 20_000, number * LATER_NS)
        made.judge(1, number + 1, (number + 1) * LATER_NS)
        add("late", 3 * MS, (number + 1) * LATER_NS)
        made.judge(0, number + 2, (number + 2) * LATER_NS)
    number += 3
    assert known() == [None, True]  # the number of the first one may have been lost


def test_an_end_of_the_numbers_makes_no_copy_the_networks() -> None:
    turned: list[bool] = []
    made = CountedCopies()
    number = 10
    for _ in range(6):
        made.add(100 * MS, turned.append, number * LATER_NS, copied=False)
        number += 2
        made.judge(1, number, number * LATER_NS)
    made.add(100 * MS, turned.append, number * LATER_NS, copied=False)
    made.judge_pending()
    made.judge(0, 1, (number + 1) * LATER_NS)
    assert turned == [False] * 7


@pytest.mark.parametrize("count", [1, ENOUGH])
def test_copies_that_no_number_follows_may_be_their_senders(count: int) -> None:
    """A server that repeats all it has sent, to a client whose CONNECT makes it count anew; or the
    capture ends behind the first copy.
    """
    turned: list[bool | None] = []
    made = CountedCopies()
    for _ in range(count):
        made.add(12 * MS, turned.append, 0, copied=True)
    made.add(50 * MS, turned.append, 0, copied=False)
    made.judge_pending()
    assert turned == [None] * count + [False]


def test_at_the_end_a_copy_may_be_the_networks_as_well() -> None:
    turned: list[bool | None] = []
    made = repeater()
    made.note_network_copy(3 * MS)
    made.add(9 * MS, turned.append, 0, copied=True)
    made.add(60 * MS, turned.append, 0, copied=False)
    made.judge_pending()
    assert turned == [None, False]


def test_many_copies_without_a_number_show_no_network_if_their_sender_repeats() -> None:
    """It has restarted its numbers, and the first ones are not in the capture."""
    for count, verdict in ((ENOUGH, None), (1, True)):
        turned: list[bool | None] = []
        made = repeater()
        made.judge(0, 10, 0)
        for _ in range(count):
            made.add(16 * MS, turned.append, 0, copied=False)
        made.judge(0, 11, LATER_NS)
        made.judge(0, 12, 2 * LATER_NS)
        assert turned == [verdict] * count
