"""A packed table takes less memory and gives the same rows."""

from __future__ import annotations

import pytest

from netdissect.model.native import ABSENT
from netdissect.track.ring import Ring

WIDTH = 8


def filled(rows: dict[int, list[int]], limit: int = 64) -> Ring:
    ring = Ring(WIDTH, limit)
    for number, words in rows.items():
        at = ring.place(number)
        for place, word in enumerate(words, 1):
            ring.cells[at + place] = word
    return ring


def row(ring: Ring, number: int) -> list[int] | None:
    at = ring.find(number)
    return None if at < 0 else [ring.cells[at + place] for place in range(1, WIDTH)]


BEGIN = 1_700_000_000_000_000_000
ORDINARY = {
    number: [5 * number, 5 * number + 3, 1 << 17, BEGIN + number, ABSENT, BEGIN, 250_000 + number]
    for number in range(40)
}
ODD = {
    -(1 << 60): [0, -1, 1, ABSENT, (1 << 60) - 1, -(1 << 60) + 1, ABSENT],
    7: [ABSENT] * 7,
    8: [(1 << 63) - 1, -(1 << 63), 1 << 61, -(1 << 61) - 1, (1 << 61) - 1, 1 << 62, -1],
    9: [-(1 << 63), (1 << 63) - 1, 0, -(1 << 61) + 1, -(1 << 61) + 1, -(1 << 62), 1],
    (1 << 60) - 1: [255, 256, -255, -256, 1 << 32, -(1 << 32), 0],
}


@pytest.mark.parametrize("rows", [ORDINARY, ODD], ids=["ordinary", "odd"])
def test_a_packed_table_gives_the_same_rows(rows: dict[int, list[int]]) -> None:
    ring = filled(rows)
    size = len(ring.cells)
    ring.pack()
    assert len(ring.cells) == 0
    assert {number: row(ring, number) for number in rows} == rows
    assert row(ring, 41) is None
    assert len(ring.cells) == size
    ring.pack()
    ring.pack()  # a connection may stay silent
    at = ring.place(41)
    ring.cells[at + 1] = 9
    assert row(ring, 41)[0] == 9
    assert {number: row(ring, number) for number in rows} == rows


def test_an_empty_table_can_be_packed() -> None:
    ring = Ring(WIDTH, 64)
    ring.pack()
    assert ring.find(3) == -1
    ring.pack()
    assert ring.place(3) >= 0



@pytest.mark.parametrize("bits", range(0, 61, 4))
def test_packed_words_of_every_size_are_restored(bits: int) -> None:
    ring = Ring(8, 64)
    rows = [[number, *(sign * (1 << bits) + number for sign in (1, -1, 1) * 2)] for number in (1, 2)]
    for row in rows:
        at = ring.place(row[0])
        cells = ring.cells
        for place, word in enumerate([*row, 0]):
            cells[at + place] = word
    ring.pack()
    for row in rows:
        at = ring.find(row[0])
        assert [ring.cells[at + place] for place in range(7)] == row
