from __future__ import annotations

from netdissect.capture.live.clearstreams import MAX_FLOWS, MAX_MARKS, ClearStreams

THERE = ("10.0.0.1", "1000", "10.0.0.2", "443")
BACK = ("10.0.0.2", "443", "10.0.0.1", "1000")
SYN, ACK, PUSH = 0x02, 0x10, 0x18


def opened(streams: ClearStreams, first: int = 100, second: int = 900) -> None:
    """A handshake: its numbers stay."""
    assert streams.segment(THERE, (first, 0), SYN, b"", None) == (first, 0, b"")
    answer = streams.segment(BACK, (second, first + 1), SYN | ACK, b"", None)
    assert answer == (second, first + 1, b"")
    numbers = (first + 1) & 0xFFFFFFFF, second + 1
    assert streams.segment(THERE, numbers, ACK, b"", None) == (*numbers, b"")


def test_clear_octets_are_numbered_as_if_they_had_been_sent() -> None:
    streams = ClearStreams()
    opened(streams)
    hello = streams.segment(THERE, (101, 901), PUSH, bytes(500), b"")
    assert hello == (101, 901, b""), "the handshake of TLS holds nothing"
    assert streams.segment(BACK, (901, 601), PUSH, bytes(300), b"") == (901, 101, b"")
    assert streams.segment(THERE, (601, 1201), PUSH, bytes(50), b"abc") == (101, 901, b"abc")
    assert streams.segment(THERE, (651, 1201), PUSH, bytes(40), b"de") == (104, 901, b"de")
    assert streams.segment(BACK, (1201, 651), ACK, b"", None) == (901, 104, b"")
    assert streams.segment(BACK, (1201, 691), PUSH, bytes(30), b"f") == (901, 106, b"f")
    # Sent again: tshark does not decrypt it twice.
    assert streams.segment(THERE, (651, 1231), PUSH, bytes(40), None) == (106, 902, b"")


def test_other_streams_stay_as_they_are() -> None:
    streams = ClearStreams()
    opened(streams)
    assert streams.segment(THERE, (101, 901), PUSH, b"plain", None) == (101, 901, b"plain")


def test_a_stream_seen_from_its_middle_begins_where_it_was_seen_first() -> None:
    streams = ClearStreams()
    assert streams.segment(THERE, (5000, 70), PUSH, bytes(9), b"x") == (5000, 70, b"x")
    assert streams.segment(BACK, (70, 5009), PUSH, bytes(9), b"yz") == (70, 5001, b"yz")


def test_numbers_wrap() -> None:
    streams = ClearStreams()
    opened(streams, first=0xFFFFFFFE)
    assert streams.segment(THERE, (0xFFFFFFFF, 901), PUSH, bytes(50), b"abc")[0] == 0xFFFFFFFF
    assert streams.segment(THERE, (49, 901), PUSH, bytes(50), b"d")[0] == 2
    assert streams.segment(BACK, (901, 99), ACK, b"", None)[1] == 3


def test_a_new_handshake_begins_a_new_stream() -> None:
    streams = ClearStreams()
    opened(streams)
    streams.segment(THERE, (101, 901), PUSH, bytes(50), b"abc")
    opened(streams, first=7000, second=8000)
    assert streams.segment(THERE, (7001, 8001), PUSH, b"plain", None) == (7001, 8001, b"plain")


def test_what_is_remembered_is_bounded() -> None:
    streams = ClearStreams()
    for port in range(3 * MAX_FLOWS):
        way = ("10.0.0.1", str(port), "10.0.0.2", "443")
        streams.segment(way, (1, 1), PUSH, bytes(9), b"x")
    assert len(streams._starts) <= 2 * MAX_FLOWS
    assert len(streams._sides) <= 4 * MAX_FLOWS
    for number in range(2 * MAX_MARKS):
        streams.segment(THERE, (number, 1), PUSH, b"x", b"x")
    assert len(streams._sides[THERE].marks) == MAX_MARKS
