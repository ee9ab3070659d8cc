from __future__ import annotations

import tracemalloc
import zlib

import pytest

from netdissect.protocols.netplay.privacy import PACKERS
from netdissect.wire.inflate import Bounds
from netdissect.wire.netplay import COMPRESSED, unpack_body


def test_a_bomb_is_not_opened_to_be_written_over() -> None:
    plain = b"a name" * 40
    bomb = zlib.compress(plain + bytes(20_000_000))
    deflate = PACKERS["decompressed"]
    tracemalloc.start()
    try:
        assert deflate(bomb, plain, plain) is None
        assert tracemalloc.get_traced_memory()[1] < 1_000_000
    finally:
        tracemalloc.stop()
    packed = zlib.compress(plain)
    wanted = deflate(packed, plain, plain.replace(b"a", b"b"))
    assert wanted is not None
    assert (len(wanted), zlib.decompress(wanted)) == (len(packed), plain.replace(b"a", b"b"))


PLAIN = b"somebody says " + bytes(range(65, 91)) * 3
PACKED = zlib.compress(PLAIN)


@pytest.mark.parametrize(
    ("packed", "code"),
    [
        (PACKED[:20] + b"\xff\xff\xff" + PACKED[23:], "zlib-data-error"),
        (PACKED[:30], "zlib-truncated"),
        (PACKED[:3], "zlib-truncated"),
        (PACKED[:-1], "zlib-truncated"),
        (PACKED[:-1] + bytes([PACKED[-1] ^ 1]), "zlib-checksum-error"),
    ],
    ids=("damaged", "cut", "cut early", "without checksum", "wrong checksum"),
)
def test_what_cannot_be_unpacked_says_nothing_and_has_the_same_fault(
    packed: bytes, code: str
) -> None:
    was = unpack_body(COMPRESSED, packed, Bounds())
    assert [found for found, _ in was.findings] == [code]
    wanted = b"x" * len(was.data)
    made = PACKERS["decompressed"](packed, was.data, wanted)
    assert made is not None
    assert len(made) == len(packed)
    now = unpack_body(COMPRESSED, made, Bounds())
    assert [found for found, _ in now.findings] == [code]
    assert not {*now.data} - {*b"x", 0}
