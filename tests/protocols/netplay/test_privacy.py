from __future__ import annotations

import tracemalloc
import zlib

from netdissect.protocols.netplay.privacy import PACKERS


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
