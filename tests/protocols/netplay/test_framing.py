"""Netplay's framers: any segmentation, gaps, middles, damage; and what receivers would misread."""

from __future__ import annotations

import random
from typing import Any

import pytest

from agreement import assert_sound
from netdissect.dissect.engine import Request, dissect
from netdissect.model.claims import Hints
from netdissect.model.segments import StreamPiece
from netdissect.protocols.netplay import PROTOCOL
from netdissect.protocols.netplay.framing import MAX_TEXT_OCTETS
from netdissect.wire.netplay import split_frame
from streams import cut, damaged, streams

LOGIN = bytes.fromhex("000900000000044a6f686e")
CHAT = bytes.fromhex("001700000200044a6f686e000c48656c6c6f2c20576f726c64")
TEXT = b'NetworkMessageLogin\n{"username":"John"}\n'
DIALECTS = ("bin1", "bin2", "bin3", "text")
ODD = ("malformed", "wrap", "stalls", "serializer", "mixed", "snaplen", "incomplete", "zlib", "reuse", "oversize")
"""Captures whose streams are not messages from start to end."""


def frame(dialect: str, pieces: Any) -> list[Any]:
    """Return what the framer of a dialect makes of pieces, and of their end."""
    framer = PROTOCOL.framer(f"netplay-{dialect}", 0)
    found = [item for piece in pieces for item in framer.feed(piece)]
    return found + framer.finish()


def whole(octets: bytes) -> list[StreamPiece]:
    return [StreamPiece(0, octets, (1,))]


def messages(found: list[Any]) -> list[tuple[int, bytes]]:
    return [(offset, octets) for octets, _, _, offset in found if octets]


def codes(found: list[Any]) -> list[str]:
    return [fault if isinstance(fault, str) else fault[0] for item in found for fault in item[2]]


def clean_streams() -> list[tuple[str, bytes]]:
    """Return (dialect, bytes) of the streams that hold messages from start to end."""
    named = [(name.split("_")[0], name, octets) for name, octets in streams("netplay")]
    kept = [(dialect, octets) for dialect, name, octets in named if not any(word in name for word in ODD)]
    return [(dialect, octets) for dialect, octets in kept if codes(frame(dialect, whole(octets))) == []]


def test_messages_do_not_depend_on_how_the_stream_is_cut() -> None:
    chance = random.Random(3)
    for dialect, octets in clean_streams():
        wanted = messages(frame(dialect, whole(octets)))
        assert b"".join(message for _, message in wanted) == octets
        for longest in (2, 30, 1400):
            assert messages(frame(dialect, cut(octets, chance, longest=longest))) == wanted


def test_behind_gaps_only_real_messages_are_found() -> None:
    chance = random.Random(4)
    real = got = 0
    for dialect, octets in clean_streams():
        wanted = set(messages(frame(dialect, whole(octets))))
        for _ in range(3):
            found = set(messages(frame(dialect, cut(octets, chance, longest=300, gaps=0.1))))
            assert found <= wanted
            real += len(wanted)
            got += len(found)
    assert got > 0.6 * real


def test_a_gap_is_named_and_never_glued() -> None:
    pieces = [StreamPiece(0, LOGIN[:7], (1,)), StreamPiece(9, LOGIN[9:] + CHAT * 3, (2,), 2)]
    found = frame("bin1", pieces)
    assert [octets for _, octets in messages(found)] == [CHAT] * 3
    assert codes(found) == ["octets-skipped"]
    assert found[0][2][0][1] == "9 bytes skipped, 2 or more are not in the capture"


def test_a_gap_inside_a_long_frame_keeps_the_rhythm() -> None:
    """The frame's end is known from its length: what follows needs no search."""
    long = b"\x03\xe8\0\0\2" + bytes(997)
    pieces = [StreamPiece(0, long[:300], (1,)), StreamPiece(700, long[700:] + LOGIN, (2,), 400)]
    assert messages(frame("bin1", pieces)) == [(len(long), LOGIN)]


def test_in_the_middle_of_text_the_first_line_is_never_believed() -> None:
    """A class name that is cut looks like one."""
    octets = b'Login\n{"username":"a"}\n' + TEXT
    found = frame("text", [StreamPiece(0, octets, (1,), 1)])
    assert [message for _, message in messages(found)] == [TEXT]


def test_frames_name_the_capture_frames_that_they_came_from() -> None:
    octets = LOGIN + CHAT
    pieces = [StreamPiece(i, octets[i : i + 1], (10 + i,)) for i in range(len(octets))]
    found = frame("bin1", pieces)
    assert [item[1] for item in found] == [tuple(range(10, 21)), tuple(range(21, 21 + len(CHAT)))]


@pytest.mark.parametrize(
    ("dialect", "octets", "code", "text"),
    [
        ("bin1", LOGIN[:9], "incomplete-frame-at-close", "2 bytes are missing"),
        ("bin1", LOGIN + b"\0", "incomplete-frame-at-close", "1 bytes are missing"),
        ("bin3", b"\0" + LOGIN[:5], "incomplete-frame-at-close", "6 bytes are missing"),
        ("text", TEXT[:-3], "incomplete-message-at-close", "body has no line feed after 17 bytes"),
    ],
)
def test_what_is_left_at_the_end(dialect: str, octets: bytes, code: str, text: str) -> None:
    last = frame(dialect, whole(octets))[-1]
    assert last[0] == b""
    assert last[2] == ((code, text),)


def test_impossible_frames_are_cut_as_they_stand_and_suspected() -> None:
    """As the sender's own length says, without searching: see the truth of bin1_length_wrap."""
    found = frame("bin1", whole(LOGIN + b"\0\1\7" + b"\0\4\xff\0\0\0" + LOGIN))
    assert [message for _, message in messages(found)] == [LOGIN, b"\0\1\7", b"\0\4\xff\0\0\0", LOGIN]
    assert codes(found) == ["desync-suspected"]


# -- hazards ---------------------------------------------------------------------------------------

CHUNK = b"\0" + LOGIN


@pytest.mark.parametrize(
    ("sizes", "wanted"),
    [
        ((12, 12), []),
        ((24,), ["chunk-coalesced", "chunk-coalesced"]),
        ((5, 7, 12), ["chunk-split"]),
        ((5, 19), ["chunk-coalesced", "chunk-split", "chunk-coalesced"]),
    ],
)
def test_chunks_beside_segments(sizes: tuple[int, ...], wanted: list[str]) -> None:
    octets, pieces, start = CHUNK * 2, [], 0
    for size in sizes:
        pieces.append(StreamPiece(start, octets[start : start + size], (start,)))
        start += size
    assert codes(frame("bin3", pieces)) == wanted


def test_a_large_message_in_one_segment_per_chunk_is_no_hazard() -> None:
    parts = split_frame(b"\x09\xc4\0\0\2" + bytes(2497))
    pieces, start = [], 0
    for part in parts:
        pieces.append(StreamPiece(start, part, (start,)))
        start += len(part)
    assert codes(frame("bin3", pieces)) == []
    assert codes(frame("bin3", whole(b"".join(parts)))) == ["chunk-coalesced"]


def test_characters_across_segments() -> None:
    octets = 'A\n{"x":"é"}\n'.encode() + TEXT
    place = octets.index(b"\xa9")
    pieces = [StreamPiece(0, octets[:place], (1,)), StreamPiece(place, octets[place:], (2,))]
    found = frame("text", pieces)
    assert codes(found[:1]) == ["utf8-split-across-segments"]
    assert codes(found[1:]) == []


# -- bounds ----------------------------------------------------------------------------------------


def test_a_line_without_end_is_bounded() -> None:
    framer = PROTOCOL.framer("netplay-text", 0)
    block, found, offset = b"x" * (1 << 20), [], 0
    for _ in range(40):
        found += framer.feed(StreamPiece(offset, block, (1,)))
        offset += len(block)
    assert "message-too-long" in codes(found)
    assert len(framer._buffer.data) <= MAX_TEXT_OCTETS + len(block)
    found = framer.feed(StreamPiece(offset, b"\n" + TEXT * 2, (2,)))
    assert [message for _, message in messages(found)] == [TEXT] * 2


def test_noise_in_a_lost_stream_is_let_go() -> None:
    framer = PROTOCOL.framer("netplay-bin1", 0)
    chance = random.Random(5)
    for index in range(300):
        framer.feed(StreamPiece(1000 * index, chance.randbytes(1000), (index,), 1))
        assert len(framer._buffer.data) <= 8192


def _hold_to_its_bounds(count: int, seed: int) -> int:
    """Damage and cut streams; assert what must hold of everything found; return the messages."""
    chance = random.Random(seed)
    pool = [(name.split("_")[0], octets[:20_000]) for name, octets in streams("netplay")]
    seen = 0
    for _ in range(count):
        dialect, octets = chance.choice(pool)
        if dialect == "mixed" or chance.random() < 0.2:
            dialect = chance.choice(DIALECTS)
        octets = damaged(octets, chance)
        pieces = cut(octets, chance, longest=chance.choice((3, 40, 1400)), gaps=chance.choice((0, 0.02, 0.2)))
        last = 0
        for message, _, _, offset in frame(dialect, pieces):
            assert offset >= last
            last = offset + len(message)
            assert octets[offset:last] == message
            if message:
                seen += 1
                _agree(dialect, message, thorough=seen % 5 == 0)
    return seen


def _agree(dialect: str, message: bytes, *, thorough: bool) -> None:
    """Assert that scan and tree name the same type and the same frame-level findings."""
    name = f"netplay-{dialect}"
    events = PROTOCOL.scan(message, 0, Hints((name, name)))
    if not thorough:
        return
    tree = dissect("netplay", message, Request(name, 0, "tcp", unframed=True), strict=True)
    assert_sound(tree)
    assert [view.type for view in tree.messages] == [event[1] for event in events if event[0] == 0]
    noted = {event[1] for event in events if event[0] == 12}
    assert noted <= {note.code for note in tree.annotations}


def test_damaged_streams_raise_nothing() -> None:
    assert _hold_to_its_bounds(400, seed=1) > 1000


@pytest.mark.slow
def test_many_damaged_streams_raise_nothing() -> None:
    assert _hold_to_its_bounds(10_000, seed=2) > 50_000


def test_scan_and_tree_agree_on_every_message_of_every_capture() -> None:
    for name, octets in streams("netplay"):
        dialect = name.split("_")[0]
        for candidate in DIALECTS if dialect == "mixed" else (dialect,):
            for _, message in messages(frame(candidate, whole(octets)))[:60]:
                _agree(candidate, message, thorough=True)
