from __future__ import annotations

import pytest

from netdissect.model.native import ABSENT
from netdissect.track.vantage import Sight, Vantage

MS = 1_000_000


def sight(quickest_ms, answers=10, disorder=0, held_ms=0, slow_ms=50, usual_ms=None):
    quickest_ns = ABSENT if quickest_ms is None else int(quickest_ms * MS)
    usual_ns = ABSENT if usual_ms is None else usual_ms * MS
    return Sight(quickest_ns, answers, disorder, held_ms * MS, slow_ms * MS, usual_ns)


@pytest.mark.parametrize(
    ("client", "server", "word", "near"),
    [
        (sight(0.1), sight(40), "client", (True, False)),
        (sight(40), sight(0.1), "server", (False, True)),
        (sight(4.4), sight(16), "client", (True, False)),
        (sight(9), sight(21), "client", (True, False)),  # a slow tick next to the capture
        (sight(0.1), sight(0.3), "unknown", (True, True)),  # no network between them
        (sight(9), sight(10), "unknown", (None, None)),  # two slow ticks, or a short network
        (sight(0.1), sight(40, answers=4), "unknown", (None, None)),  # too few to tell
        (sight(0.1), sight(20, answers=7, slow_ms=41), "client", (True, False)),
        (sight(0.1), sight(20, answers=5, slow_ms=41), "unknown", (None, None)),  # could be chance
        (sight(12, answers=1), sight(21, answers=75), "client", (None, False)),
        (sight(0.1, answers=4), sight(40), "unknown", (None, None)),  # of the near side as well
        (sight(0.1, answers=1), sight(40, answers=18), "client", (True, False)),
        (sight(9, answers=1), sight(40, answers=18), "unknown", (None, None)),
        (sight(0.1), sight(46, held_ms=33), "client", (True, False)),  # 13 ms on the way
        (sight(0.1), sight(41, held_ms=33), "unknown", (None, None)),  # 8 ms: a busy program
        (sight(None, 0), sight(40), "unknown", (None, None)),
        (sight(None, 0), sight(None, 0), "unknown", (None, None)),
        (sight(None, 0, disorder=5), sight(0.1), "server", (False, True)),
        (sight(0.1, disorder=4), sight(0.1), "unknown", (True, True)),
        (sight(30, disorder=5), sight(30, disorder=5), "middle", (False, False)),
        (sight(0.1, disorder=9), sight(0.1), "unknown", (None, None)),  # they contradict
        (sight(30, disorder=9), sight(25, disorder=3), "unknown", (False, None)),  # the middle?
        (sight(None, 0, disorder=9), sight(None, 0), "unknown", (False, None)),  # one way only
        # In the middle of a network that changes the order.
        (sight(9.9, 90, disorder=2), sight(10.1, 159, disorder=20), "unknown", (None, False)),
        (sight(12.5, 723), sight(11.4, 965, disorder=7), "unknown", (None, False)),
        (sight(9), sight(21, disorder=7), "client", (True, False)),
        (sight(39, 74), sight(65, 75), "unknown", (None, False)),
        (sight(0.3, usual_ms=47), sight(0.1, usual_ms=1), "server", (False, True)),
        (sight(0.3, usual_ms=7), sight(0.1, usual_ms=1), "unknown", (True, True)),
    ],
)
def test_conclusions(client, server, word, near) -> None:
    made = Vantage()
    made.update(client, server)
    assert (made.word, made.near) == (word, near)


@pytest.mark.parametrize("first", [sight(0.1), sight(40), sight(None, 0), sight(8, disorder=6)])
@pytest.mark.parametrize("second", [sight(0.1), sight(40), sight(None, 0), sight(8, disorder=6)])
def test_sides_are_alike(first, second) -> None:
    one, other = Vantage(), Vantage()
    one.update(first, second)
    other.update(second, first)
    assert one.near == other.near[::-1]


def test_changes_are_told_once_and_the_basis_names_the_figures() -> None:
    made = Vantage()
    assert made.basis == "no answer of either side is in the capture"
    assert made.update(sight(0.1), sight(40, disorder=2))
    assert not made.update(sight(0.1), sight(39, disorder=2))
    assert made.basis == (
        "the quickest of 10 answers of the client took 0.1 ms;"
        " the quickest of 10 answers of the server took 39.0 ms;"
        " 2 units of the server came out of order"
    )
