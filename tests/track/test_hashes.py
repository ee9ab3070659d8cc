from __future__ import annotations

import pytest

from netdissect.track import hashes
from netdissect.track.hashes import DatagramHashes


def test_a_datagram_is_told_from_others_of_its_number():
    kept = DatagramHashes()
    assert not kept.knows(7)
    assert not kept.has(7, 99)
    for number, content in ((7, 99), (8, -5), (0, 0), (-1, 1 << 40)):
        kept.keep(number, content)
        assert kept.knows(number)
        assert kept.has(number, content)
        assert not kept.has(number, content + 2)
    assert not kept.knows(9)
    kept.keep(7, 3 << 33)
    assert kept.has(7, 3 << 33)
    assert not kept.has(7, 99)


@pytest.mark.parametrize("first", [0, 63, (1 << 31) - 10])
def test_the_newest_are_remembered(first):
    kept = DatagramHashes()
    for number in range(first, first + hashes.MAX_MARKS + 100):
        kept.keep(number, number * 12345)
    oldest = first + 100
    assert [kept.knows(number) for number in (oldest - 1, oldest, number)] == [False, True, True]
    assert kept.has(oldest, oldest * 12345)
