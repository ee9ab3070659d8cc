from __future__ import annotations

import pytest

from netdissect.track.vantage import Sight, Vantage

MS = 1_000_000


def sight(quickest_ms, answers=10, disorder=0):
    return Sight(None if quickest_ms is None else int(quickest_ms * MS), answers, disorder)


@pytest.mark.parametrize(
    ("client", "server", "word", "near"),
    [
        (sight(0.1), sight(40), "client", (True, False)),
        (sight(40), sight(0.1), "server", (False, True)),
        (sight(4.4), sight(16), "client", (True, False)),
        (sight(9), sight(21), "client", (True, False)),  # a slow tick next to the capture
        (sight(0.1), sight(0.3), "unknown", (True, True)),  # no network between them
        (sight(9), sight(10), "unknown", (None, None)),  # two slow ticks, or a short network
        (sight(0.1), sight(40, answers=2), "unknown", (None, None)),  # too few to tell
        (sight(None, 0), sight(40), "unknown", (None, None)),
        (sight(None, 0), sight(None, 0), "unknown", (None, None)),
        (sight(None, 0, disorder=5), sight(0.1), "server", (False, True)),
        (sight(0.1, disorder=1), sight(0.1), "unknown", (True, True)),
        (sight(30, disorder=5), sight(30, disorder=5), "middle", (False, False)),
        (sight(0.1, disorder=9), sight(0.1), "server", (False, True)),
    ],
)
def test_conclusions(client, server, word, near) -> None:
    made = Vantage()
    made.update(client, server)
    assert (made.word, made.near) == (word, near)


@pytest.mark.parametrize("first", [sight(0.1), sight(40), sight(None, 0), sight(8, disorder=3)])
@pytest.mark.parametrize("second", [sight(0.1), sight(40), sight(None, 0), sight(8, disorder=3)])
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
        "quickest of 10 answers of the client 0.1 ms; quickest of 10 answers of the server 39.0 ms;"
        " 2 units of the server out of order"
    )
