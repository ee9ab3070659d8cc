from __future__ import annotations

import random
import tracemalloc

import pytest

from netdissect.wire.huffman import HuffmanError, compress, decompress, eof_bit, inspect, tree

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


def test_hostile_codes_cost_no_more_than_the_limit() -> None:
    """65,507 bytes of one-bit codes would give half a megabyte."""
    packed = compress(bytes(8 * 65_507))[:65_507]
    decompress(compress(b""), 0)  # builds the tables
    tracemalloc.start()
    try:
        with pytest.raises(HuffmanError):
            decompress(packed, LIMIT)
        assert tracemalloc.get_traced_memory()[1] < 32 * LIMIT
    finally:
        tracemalloc.stop()


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
    """Byte 0 has a code of one bit, so 1400 bytes stand for 11,200 at most."""
    packed = compress(bytes(11_000))
    assert len(packed) < LIMIT
    assert decompress(packed, 11_000) == bytes(11_000)
    with pytest.raises(HuffmanError, match="more than the limit of 1400") as fault:
        decompress(packed, LIMIT)
    assert fault.value.decoded == bytes(LIMIT)


def test_whatever_comes_is_decoded_as_by_walking_the_tree() -> None:
    """Whole codes, codes cut short, codes with a bit turned, and noise."""
    chance = random.Random(2)
    for _ in range(1500):
        plain = bytes(chance.choice([0, 0, 1, 2, chance.randrange(256)]) for _ in range(30))
        code = bytearray(compress(plain[: chance.randrange(30)]))
        match chance.randrange(4):
            case 0:
                del code[chance.randrange(len(code)) :]
            case 1:
                code[chance.randrange(len(code))] ^= 1 << chance.randrange(8)
            case 2:
                code[:] = chance.randbytes(chance.randrange(30))
        limit = chance.choice([0, 7, LIMIT])
        octets, end = _walked(bytes(code))
        assert eof_bit(bytes(code)) == end
        try:
            assert decompress(bytes(code), limit) == octets
            assert end is not None
        except HuffmanError as fault:
            assert fault.decoded == octets[:limit]
            assert end is None or len(octets) > limit


def _walked(code: bytes) -> tuple[bytes, int | None]:
    """Return the bytes of a code, and the bit behind its end symbol."""
    zeros, ones, root = tree()
    node, out = root, bytearray()
    for bit in range(8 * len(code)):
        node = ones[node] if code[bit // 8] >> bit % 8 & 1 else zeros[node]
        if node == 256:
            return bytes(out), bit + 1
        if node < 256:
            out.append(node)
            node = root
    return bytes(out), None
