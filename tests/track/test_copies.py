"""Copies judged by the numbers that their sender used up."""

from __future__ import annotations

from netdissect.track.copies import LATEST_NS, MAX_COUNTED, OVERTAKEN, CountedCopies
from tracking import MS


def judged(gap_ms: float, skipped: tuple[tuple[int, int], ...], *, copied: bool) -> list[bool]:
    """Return the verdict on one copy, if any; `skipped` stand around it."""
    turned: list[bool] = []
    made = CountedCopies()
    before, after = skipped
    made.judge(before[0], before[1])
    made.add(int(gap_ms * MS), turned.append, copied=copied)
    made.judge(after[0], after[1])
    return turned


def test_a_number_used_up_is_the_senders_copy() -> None:
    assert judged(9, ((0, 10), (1, 12)), copied=True) == [False]
    assert judged(20, ((0, 10), (1, 12)), copied=False) == [False]


def test_no_number_used_up_is_the_networks_copy() -> None:
    assert judged(20, ((0, 10), (0, 11)), copied=False) == [True]


def test_a_copy_that_a_newer_number_has_overtaken() -> None:
    """Seen beside the receiver in late_resend_peer: 13 comes before the copy that took 12."""
    assert judged(14, ((1, 13), (0, 14)), copied=True) == [False]
    assert judged(14, ((1, 13), (0, 14 + OVERTAKEN)), copied=True) == [True]


def test_no_network_copy_comes_that_late() -> None:
    assert judged(LATEST_NS / MS, ((0, 10), (0, 11)), copied=False) == [False]


def test_copies_beyond_the_bound_keep_their_first_verdict() -> None:
    made = CountedCopies()
    taken = [made.add(MS, lambda _: None, copied=True) for _ in range(MAX_COUNTED + 2)]
    assert taken == [True] * MAX_COUNTED + [False] * 2


def test_a_resend_whose_original_is_missing_does_not_judge() -> None:
    """Beside late_resend_lossy's sender: eight copies, then one of 14, then 42 after another."""
    for skipped, verdict in ((27, False), (0, True), (1, True)):
        turned: list[bool] = []
        made = CountedCopies()
        for _ in range(8):
            made.add(MS, turned.append, copied=True)
        made.judge(0, 14)
        assert not turned
        made.judge(skipped, 15 + skipped)
        assert turned == [verdict] * 8


def test_a_loss_behind_a_copy_of_the_network_makes_it_no_resend() -> None:
    """A sender that repeats nothing: the number that one copy of five is followed by was lost."""
    turned: list[bool] = []
    made = CountedCopies()
    number = 10
    for skipped in (0, 0, 0, 1, 0, 1):
        made.add(MS, turned.append, copied=True, soon=True)
        number += 1 + skipped
        made.judge(skipped, number)
    assert turned == [True] * 6
    made.judge(1, number + 2)  # lost, and within reach of the next copy
    made.add(MS, turned.append, copied=True, soon=True)
    made.judge(0, number + 3)
    assert turned == [True] * 7


def test_a_skipped_number_that_comes_late_was_used_by_no_copy() -> None:
    turned: list[bool] = []
    made = CountedCopies()
    made.judge(1, 13)
    made.came(12)
    made.add(14 * MS, turned.append, copied=True)
    made.judge(0, 14)
    assert turned == [True]
