"""Length-prefixed messages out of streams that are cut anywhere, damaged, or full of holes."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from netdissect.model.segments import StreamPiece
from netdissect.protocols.framing import LengthPrefixed, Prefix


def framer(width=2, limit=100, *, chain=1, is_possible=lambda _: True, **how):
    prefix = Prefix(width, limit, chain, is_possible, re.compile(rb"(?=.)", re.DOTALL), **how)
    return LengthPrefixed(prefix, fault="bad-length")


def cut(stream, sizes):
    pieces, start, frame = [], 0, 1
    for size in [*sizes, len(stream)]:
        data = stream[start : start + size]
        if data:
            pieces.append(StreamPiece(start, data, (frame,)))
        start, frame = start + len(data), frame + 1
    return pieces


def messages(made, pieces):
    return [found for piece in pieces for found in made.feed(piece)]


@given(
    payloads=st.lists(st.binary(min_size=1, max_size=60), max_size=12),
    sizes=st.lists(st.integers(1, 40), max_size=40),
    width=st.sampled_from([2, 4]),
    order=st.sampled_from(["little", "big"]),
)
def test_any_cut_gives_the_same_messages(payloads, sizes, width, order) -> None:
    stream = b"".join(len(p).to_bytes(width, order) + p for p in payloads)
    made = framer(width, is_signed=width == 4, order=order)
    found = messages(made, cut(stream, sizes))
    assert [octets for octets, _, _, _ in found] == payloads
    assert not made.finish()
    for octets, frames, codes, offset in found:
        assert not codes
        assert list(frames) == sorted(set(frames))
        assert stream[offset : offset + len(octets)] == octets


def test_frames_name_where_a_message_came_from() -> None:
    found = messages(framer(), cut(b"\x03\0abc\x02\0de", [2, 1, 3]))
    assert found == [(b"abc", (1, 2, 3), (), 2), (b"de", (3, 4), (), 7)]


def test_empty_messages_are_skipped() -> None:
    assert messages(framer(), cut(b"\0\0\x01\0a", [])) == [(b"a", (1,), (), 4)]


@pytest.mark.parametrize("prefix", [b"\xff\xff\xff\xff", b"\xff\xff\xff\x7f", b"\x21\x03\0\0"])
def test_impossible_lengths_are_named_and_skipped(prefix) -> None:
    made = framer(4, is_signed=True)
    found = made.feed(StreamPiece(0, prefix + b"rubbish", (1,)))
    assert found == [(prefix, (1,), ("bad-length",), 0)]
    assert made.feed(StreamPiece(11, b"\xff\xff\xff\xffmore", (2,))) == []
    assert made.feed(StreamPiece(19, b"\x02\0\0\0ok", (3,))) == [(b"ok", (3,), (), 23)]


def test_a_gap_drops_what_was_begun() -> None:
    made = framer()
    assert made.feed(StreamPiece(0, b"\x05\0ab", (1,))) == []
    assert made.feed(StreamPiece(9, b"\x01\0z", (2,), gap_octets=5)) == [(b"z", (2,), (), 11)]


def test_an_incomplete_message_at_the_end() -> None:
    made = framer()
    made.feed(StreamPiece(0, b"\x05\0ab", (1,)))
    assert made.finish() == [(b"ab", (1,), ("truncated",), 2)]
    assert made.finish() == []


@given(st.lists(st.binary(max_size=50), max_size=40))
def test_any_octets_stay_in_bounds(pieces) -> None:
    made = framer(2, 10)
    for frame, data in enumerate(pieces):
        made.feed(StreamPiece(0, data, (frame,)))
        assert len(made._buffer.data) <= 16 * 1024 + 50


def test_behind_a_gap_messages_in_a_row_are_looked_for() -> None:
    texts = [b"m%d" % number for number in range(60)]
    stream = b"".join(len(text).to_bytes(2, "little") + text for text in texts)
    made = framer(chain=3, is_possible=lambda octets: octets[:1] == b"m")
    pieces = cut(b"rest" + stream, [1] * 400)
    pieces[0].gap_octets = 1
    found = messages(made, pieces)
    assert [octets for octets, _, _, _ in found] == texts
    assert found[0][3] == len(b"rest") + 2
