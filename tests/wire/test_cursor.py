from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from netdissect.wire.cursor import Cursor, OutOfData, Sink

PIECES = st.lists(st.one_of(st.integers(1, 64), st.binary(min_size=1, max_size=6)), max_size=12)


@given(PIECES, st.integers(0, (1 << 64) - 1))
def test_what_a_sink_writes_a_cursor_reads(pieces: list[int | bytes], value: int) -> None:
    sink = Sink()
    for piece in pieces:
        if isinstance(piece, bytes):
            sink.put(piece)
        else:
            sink.bits(value, piece)
    octets = sink.getvalue()
    cursor = Cursor(octets, 0, octets.bits)
    for piece in pieces:
        if isinstance(piece, bytes):
            assert cursor.take(len(piece)) == piece
        else:
            assert cursor.bits(piece) == value & ((1 << piece) - 1)
    assert cursor.left == 0
    with pytest.raises(OutOfData):
        cursor.bits(1)
    with pytest.raises(OutOfData):
        cursor.take(1)


def test_a_negative_length_is_refused() -> None:
    with pytest.raises(OutOfData):
        Cursor(b"abc").take(-1)
