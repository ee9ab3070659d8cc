from __future__ import annotations

import gzip
import zlib

from hypothesis import given
from hypothesis import strategies as st

from netdissect.wire.inflate import inflate

LIMIT = 1 << 20


@given(st.binary(max_size=300), st.binary(max_size=20))
def test_whole_streams(data: bytes, tail: bytes) -> None:
    out = inflate(zlib.compress(data, 9) + tail, limit=LIMIT, ratio=2000)
    assert (out.data, out.complete, out.trailing, out.error) == (data, True, len(tail), None)


def test_gzip_is_read_when_asked_for() -> None:
    packed = gzip.compress(b"hello")
    assert inflate(packed, limit=LIMIT, ratio=200, gzip=True).data == b"hello"
    assert inflate(packed, limit=LIMIT, ratio=200).error is not None


def test_a_bomb_stops_at_the_ratio_and_at_the_limit() -> None:
    bomb = zlib.compress(bytes(64 << 20), 9)
    by_ratio = inflate(bomb, limit=LIMIT, ratio=2)
    assert (by_ratio.limited, len(by_ratio.data)) == (True, 2 * len(bomb))
    by_limit = inflate(bomb, limit=1000, ratio=200)
    assert (by_limit.limited, len(by_limit.data)) == (True, 1000)


@given(st.binary(min_size=30, max_size=200), st.integers(1, 29))
def test_cut_and_damaged_streams_keep_what_came_before(data: bytes, cut: int) -> None:
    packed = zlib.compress(data)
    short = inflate(packed[:-cut], limit=LIMIT, ratio=2000)
    assert not short.complete
    assert short.error is not None
    assert data.startswith(short.data)
    wrong = inflate(packed[:-1] + bytes([packed[-1] ^ 1]), limit=LIMIT, ratio=2000)
    assert "incorrect data check" in str(wrong.error)
    assert wrong.data == data


@given(st.binary(max_size=60))
def test_no_octets_raise(data: bytes) -> None:
    out = inflate(data, limit=1000, ratio=200)
    assert len(out.data) <= 1000
