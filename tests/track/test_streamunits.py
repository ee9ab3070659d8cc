"""Which packets of a TCP connection are missing, by their IP identifications."""

from __future__ import annotations

import pytest

from netdissect.track.streamunits import MAX_IDS_MISSING, MAX_SKIPPED, PacketIds


def taken(*numbers: int) -> PacketIds:
    found = PacketIds()
    for at, number in enumerate(numbers):
        found.take(number & 0xFFFF, 10, 1000 * at, at + 1, 1000 * (at + 1))
    return found


@pytest.mark.parametrize("size", [1360, 1448, 1460])
def test_a_segment_that_the_host_has_joined_takes_several(size: int) -> None:
    found = PacketIds()
    number, lost = 0, 0
    for at, (joined, missing) in enumerate([(2, 0), (1, 0), (10, 3), (4, 0), (1, 1), (3, 0)] * 9):
        number += missing + 1
        lost += missing
        found.take(number, size * joined, 1000 * at, at + 1, 1000 * (at + 1))
        if at == 4:
            found.take(number - 3, 10, 1000 * at, at + 1, 1000 * (at + 1))  # a network copy
        number += joined - 1
    assert found.report() == {"ids_missing": lost}
    assert {burst.count for burst in found.bursts()} == {3}


def test_where_segments_are_large_each_takes_one() -> None:
    found = PacketIds()
    for at, number in enumerate([1, 2, 3, 6, 7, 8, 10]):
        found.take(number, 8948, 1000 * at, at + 1, 1000 * (at + 1))
    assert found.report() == {"ids_missing": 3}


@pytest.mark.parametrize("first", [1, 0xFFFD])
def test_missing_ones_are_counted_across_the_wrap(first: int) -> None:
    found = taken(first, first + 1, first + 5, first + 6)
    assert found.report() == {"ids_missing": 3}
    (burst,) = found.bursts()
    assert (burst.count, burst.from_ns, burst.to_ns, burst.frame) == (3, 2000, 3000, 3)


def test_a_late_packet_and_a_copy_are_not_missing() -> None:
    found = taken(10, 13, 11, 11, 12, 14)
    assert found.report() == {"ids_missing": 0}
    assert [burst.count for burst in found.bursts()] == [0]


def test_a_sender_that_numbers_by_chance_counts_nothing() -> None:
    assert taken(10, 10 + MAX_SKIPPED + 1, 12, 13).report() == {}
    assert taken().report() == {}


def test_what_is_remembered_has_a_bound() -> None:
    steps = [1 + 200 * step for step in range(MAX_IDS_MISSING // 199 + 3)]
    assert taken(*steps).report() == {}
    assert not taken(*steps).bursts()
