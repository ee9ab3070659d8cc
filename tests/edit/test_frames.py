from __future__ import annotations

import random

import pytest

from netdissect.edit import FrameSet, parse_frames, pieces
from netdissect.edit.frames import assembled
from netdissect.model.errors import UsageError
from packetbuild import fragments4, fragments6, frame, ipv4, udp


def test_a_set_of_frames_is_a_set() -> None:
    chance = random.Random(3)
    numbers = {chance.randrange(1, 5000) for _ in range(500)}
    found = FrameSet(numbers)
    assert {number for number in range(6000) if number in found} == numbers
    assert found
    assert not FrameSet()


def test_ranges_are_read() -> None:
    assert parse_frames("1-100,250, 300-") == [(1, 100), (250, 250), (300, None)]


@pytest.mark.parametrize("text", ["", "0", "5-2", "a", "1,,2", "-3", "1-2-3", "9" * 99])
def test_what_is_no_range_is_named(text: str) -> None:
    with pytest.raises(UsageError, match="frames are written"):
        parse_frames(text)


def test_all_pieces_of_a_fragmented_datagram_belong_to_it() -> None:
    mine = fragments4(udp(bytes(90), 4000, 7777), [40, 40, 18], ident=7)
    other = fragments4(udp(bytes(90), 4001, 7778), [40, 40, 18], ident=8)
    six = fragments6(udp(bytes(90), 4000, 7777), [40, 40, 18])
    whole = ipv4(udp(b"x", 4000, 7777))
    sent = [mine[0], other[0], six[0], mine[2], other[1], other[2], six[2], mine[1], whole, six[1]]
    frames = [frame(number, packet) for number, packet in enumerate(sent, start=1)]
    found = set(pieces([frames], lambda packet: packet[3][-2:] == (7777).to_bytes(2, "big")))
    assert found == {1, 4, 8, 3, 7, 10, 9}


def test_pieces_under_a_number_that_is_used_again_belong_to_their_own_datagram() -> None:
    """Identifications come round: the pieces of the first datagram are no pieces of the second."""
    first = fragments4(udp(bytes(90), 4000, 7777), [40], ident=7)
    second = fragments4(udp(bytes(90), 4001, 7778), [40], ident=7)
    frames = [frame(number, packet) for number, packet in enumerate([*first, *second], start=1)]
    assert [found for _, found in assembled([frames])] == [(1, 2), (3, 4)]


def test_pieces_that_are_never_joined_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("netdissect.edit.frames.MAX_PENDING", 2)
    firsts = [fragments4(udp(bytes(90)), [40, 58], ident=ident)[0] for ident in range(5)]
    last = fragments4(udp(bytes(90)), [40, 58], ident=0)[1]
    frames = [frame(number, packet) for number, packet in enumerate([*firsts, last], start=1)]
    assert set(pieces([frames], lambda _: True)) == {6}
