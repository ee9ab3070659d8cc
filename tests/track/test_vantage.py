from __future__ import annotations

import pytest

from netdissect.model.native import ABSENT
from netdissect.track.vantage import Evidence, Vantage

MS = 1_000_000


def evidence(quickest_ms, answers=10, disorder=0, held_ms=0, slow_ms=50, usual_ms=None, passed=0):
    quickest_ns = ABSENT if quickest_ms is None else int(quickest_ms * MS)
    usual_ns = ABSENT if usual_ms is None else usual_ms * MS
    return Evidence(
        quickest_ns, answers, disorder, held_ms * MS, slow_ms * MS, usual_ns, passed=passed
    )


@pytest.mark.parametrize(
    ("client", "server", "word", "near"),
    [
        (evidence(0.1), evidence(40), "client", (True, False)),
        (evidence(40), evidence(0.1), "server", (False, True)),
        (evidence(4.4), evidence(16), "client", (True, False)),
        (evidence(9), evidence(21), "client", (True, False)),  # a slow tick next to the capture
        (evidence(0.1), evidence(0.3), "unknown", (True, True)),  # no network between them
        (evidence(9), evidence(10), "unknown", (None, None)),  # two slow ticks, or a short network
        (evidence(0.1), evidence(40, answers=4), "unknown", (None, None)),  # too few to tell
        (evidence(0.1), evidence(20, answers=7, slow_ms=41), "client", (True, False)),
        (evidence(0.1), evidence(20, answers=5, slow_ms=41), "unknown", (None, None)),  # could be chance
        (evidence(12, answers=1), evidence(21, answers=75), "client", (None, False)),
        (evidence(0.1, answers=4), evidence(40), "unknown", (None, None)),  # of the near side as well
        (evidence(0.1, answers=1), evidence(40, answers=18), "client", (True, False)),
        (evidence(9, answers=1), evidence(40, answers=18), "unknown", (None, None)),
        (evidence(0.1), evidence(46, held_ms=33), "client", (True, False)),  # 13 ms on the way
        (evidence(0.1), evidence(41, held_ms=33), "unknown", (None, None)),  # 8 ms: a busy program
        (evidence(None, 0), evidence(40), "unknown", (None, None)),
        (evidence(None, 0), evidence(None, 0), "unknown", (None, None)),
        (evidence(None, 0, disorder=5), evidence(0.1), "server", (False, True)),
        (evidence(0.1, disorder=1), evidence(0.1), "unknown", (None, None)),
        (evidence(0.3, disorder=1), evidence(40), "unknown", (None, False)),  # a quick path before
        (evidence(None, 0, disorder=5), evidence(None, 0, disorder=5), "unknown", (False, False)),
        (evidence(30, disorder=5), evidence(30, disorder=5), "middle", (False, False)),
        (evidence(0.1, disorder=9), evidence(0.1), "unknown", (None, None)),  # they contradict
        (evidence(30, disorder=9), evidence(25, disorder=3), "unknown", (False, None)),  # the middle?
        (evidence(None, 0, disorder=9), evidence(None, 0), "unknown", (False, None)),  # one way only
        # In the middle of a network that changes the order.
        (evidence(9.9, 90, disorder=2), evidence(10.1, 159, disorder=20), "unknown", (None, False)),
        (evidence(12.5, 723), evidence(11.4, 965, disorder=7), "unknown", (None, False)),
        (evidence(9), evidence(21, disorder=7), "client", (True, False)),
        (evidence(39, 74), evidence(65, 75), "unknown", (None, False)),
        (evidence(0.3, usual_ms=47), evidence(0.1, usual_ms=1), "server", (False, True)),
        (evidence(0.3, usual_ms=7), evidence(0.1, usual_ms=1), "unknown", (True, True)),
        # A path that loses datagrams lies between, however quick it is.
        (evidence(0.3, passed=4), evidence(40), "unknown", (None, False)),
        (evidence(0.3, passed=3), evidence(40), "client", (True, False)),
        (evidence(0.1), evidence(0.1, passed=4), "unknown", (None, None)),
        # No busy program keeps the few answers of a near side waiting that long.
        (evidence(102, answers=4), evidence(None, 0, disorder=15), "unknown", (None, False)),
        # Slow ticks next to the capture do not change the order.
        (evidence(8.6, disorder=3), evidence(19, disorder=51), "unknown", (None, False)),
    ],
)
def test_conclusions(client, server, word, near) -> None:
    made = Vantage()
    made.update(client, server)
    assert (made.word, made.near) == (word, near)


@pytest.mark.parametrize("first", [evidence(0.1), evidence(40), evidence(None, 0), evidence(8, disorder=6)])
@pytest.mark.parametrize("second", [evidence(0.1), evidence(40), evidence(None, 0), evidence(8, disorder=6)])
def test_sides_are_alike(first, second) -> None:
    one, other = Vantage(), Vantage()
    one.update(first, second)
    other.update(second, first)
    assert one.near == other.near[::-1]


def test_changes_are_told_once_and_the_basis_names_the_figures() -> None:
    made = Vantage()
    assert made.basis == "no answer of either side is in the capture"
    assert made.update(evidence(0.1), evidence(40, disorder=2))
    assert not made.update(evidence(0.1), evidence(39, disorder=2))
    assert made.basis == (
        "the quickest of 10 answers of the client took 0.1 ms;"
        " the quickest of 10 answers of the server took 39.0 ms;"
        " 2 units of the server came out of order"
    )


@pytest.mark.parametrize(("usual_ms", "word"), [(26, "unknown"), (51, "server")])
def test_a_program_that_answers_once_a_tick_is_not_far_where_frames_are_missing(
    usual_ms: int, word: str
) -> None:
    """The quickest tenth of the answers does not count: the others may wait for two ticks."""
    made = Vantage((25.0, 21.0))
    made.update(evidence(0.1, answers=300, usual_ms=usual_ms), evidence(0.1))
    assert made.word == word


def test_the_basis_tells_of_units_that_a_near_side_answered_only_again() -> None:
    made = Vantage()
    made.update(evidence(0.3, passed=4), evidence(40))
    assert "4 units on the way to the client were answered only when sent again" in made.basis


@pytest.mark.parametrize(
    ("client", "server", "word"),
    [
        (evidence(0.1), evidence(20), "client"),
        (evidence(4.4), evidence(20), "unknown"),  # a short network before a long one
        (evidence(4.4, 1), evidence(20, 16), "unknown"),
        (evidence(20), evidence(4.4), "unknown"),
        (evidence(1.9), evidence(1.9), "unknown"),
        (evidence(20), evidence(1.9), "server"),
    ],
)
def test_an_operating_system_answers_at_once(client, server, word) -> None:
    made = Vantage(by_kernel=True)
    made.update(client, server)
    assert made.word == word


def test_what_the_network_has_copied_was_sent_on_its_other_side() -> None:
    near = (0.1 * MS, 10, 0, 0, 50 * MS)
    for copied, word in ((0, "client"), (1, "unknown")):
        made = Vantage()
        made.update(Evidence(*map(int, near), copied=copied), evidence(40))
        assert made.word == word
    assert "1 unit of the client came twice, which it never sends again" in made.basis
