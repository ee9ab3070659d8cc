from __future__ import annotations

import random

import pytest

from agreement import payloads
from netdissect.wire.huffman import HuffmanError, compress, decompress, eof_bit, inspect

LIMIT = 1400


@pytest.mark.parametrize(
    ("plain", "code", "bit"),
    [
        # docs/protocols/teeworlds.md, and pairs from the packet log of 0.7.5
        ("000100020080 00", "b1082a6e00", None),
        ("00041594081000040f940802", "3ddf0ca2eeb9338850dc00", 82),
        ("40030c1400020004159a0a0f00040f9a0a02", "4a1672f8a2e79b0abdbb9e3b157aa1b801", 131),
        ("001129b806b906280001000000000000000000", "4de950b471998d35fe57dc00", 90),
    ],
)
def test_known_pairs(plain: str, code: str, bit: int | None) -> None:
    octets, packed = bytes.fromhex(plain), bytes.fromhex(code)
    assert compress(octets) == packed
    assert decompress(packed, LIMIT) == octets
    assert bit in (None, eof_bit(packed))
    assert (inspect(packed) or 0) in (len(packed), len(packed) - 1)


def test_every_captured_payload_compresses_back_to_the_same_octets() -> None:
    """The first octet tells 0.7 from 0.6: a chunk packet has chunks, control and connless have none."""
    seen = 0
    for data in payloads("teeworlds"):
        first = data[0]
        if first & 0x20 or len(data) < 8 or not data[2]:
            continue
        starts = [7] if first & 0xF0 == 0x10 else [3, 7] if first & 0x80 and not first & 0x10 else []
        opened = [start for start in starts if _whole(data[start:])]
        seen += len(opened)
    assert seen > 10_000


def _whole(code: bytes) -> bool:
    try:
        plain = decompress(code, LIMIT)
    except HuffmanError:
        return False
    return compress(plain) == code


def test_round_trip_of_all_octets() -> None:
    chance = random.Random(1)
    for size in range(300):
        plain = bytes(range(256))[:size] + chance.randbytes(size)
        code = compress(plain)
        assert decompress(code, 2 * LIMIT) == plain
        end = inspect(code)
        assert end is not None
        assert len(code) - end <= 1


@pytest.mark.parametrize("code", ["", "00", "ffff", "ff" * 1400])
def test_without_end_symbol(code: str) -> None:
    with pytest.raises(HuffmanError) as fault:
        decompress(bytes.fromhex(code), LIMIT)
    assert len(fault.value.decoded) <= LIMIT
    assert inspect(bytes.fromhex(code)) is None


def test_output_is_bounded() -> None:
    """Octet 0 has a code of one bit, so 1400 octets stand for 11,200 at most."""
    packed = compress(bytes(11_000))
    assert len(packed) < LIMIT
    assert decompress(packed, 11_000) == bytes(11_000)
    with pytest.raises(HuffmanError, match="11000 octets") as fault:
        decompress(packed, LIMIT)
    assert fault.value.decoded == bytes(LIMIT)
