from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from netdissect.wire.varint import (
    KNET_7_7_16,
    KNET_7_8,
    KNET_15_16,
    TEEWORLDS,
    VarintCodec,
    VarintError,
    read_varulong_bits,
    unzigzag,
    varulong_groups,
    zigzag,
)

CODECS = [TEEWORLDS, KNET_7_8, KNET_7_7_16, KNET_15_16]
IDS = [codec.name for codec in CODECS]


@pytest.mark.parametrize("codec", CODECS, ids=IDS)
@given(data=st.data())
def test_round_trip_and_every_prefix_is_short(codec: VarintCodec, data: st.DataObject) -> None:
    value = data.draw(st.integers(codec.minimum, codec.maximum))
    octets = codec.write(value)
    assert codec.read(octets + b"\xff", 0, len(octets)) == (value, len(octets))
    assert codec.is_minimal(octets, value)
    for cut in range(len(octets)):
        with pytest.raises(VarintError):
            codec.read(octets, 0, cut)


@pytest.mark.parametrize("codec", CODECS, ids=IDS)
@given(octets=st.binary(min_size=6, max_size=8))
def test_any_octets_read_to_a_value_in_range(codec: VarintCodec, octets: bytes) -> None:
    value, after = codec.read(octets, 0, len(octets))
    assert codec.minimum <= value <= codec.maximum
    assert 1 <= after <= 5
    assert len(codec.write(value)) <= after


@pytest.mark.parametrize(
    ("codec", "octets", "value"),
    [
        # docs/protocols/teeworlds.md section 4
        (TEEWORLDS, "40", -1), (TEEWORLDS, "7f", -64), (TEEWORLDS, "41", -2),
        (TEEWORLDS, "3f", 63), (TEEWORLDS, "8001", 64), (TEEWORLDS, "8000", 0),
        # docs/protocols/knet.md section 3
        (KNET_7_8, "8001", 128), (KNET_7_8, "ac02", 300), (KNET_7_8, "8080", 16384),
        (KNET_7_7_16, "80800100", 16384), (KNET_7_7_16, "ffffffff", 0x3FFFFFFF),
        (KNET_7_7_16, "ff7f", 16383), (KNET_15_16, "2c01", 300), (KNET_15_16, "ff7f", 32767),
        (KNET_15_16, "00800100", 32768),
    ],
)  # fmt: skip
def test_published_examples(codec: VarintCodec, octets: str, value: int) -> None:
    raw = bytes.fromhex(octets)
    assert codec.read(raw, 0, len(raw)) == (value, len(raw))


def test_overlong_forms_are_told() -> None:
    assert not TEEWORLDS.is_minimal(b"\x80\x00", 0)
    assert not KNET_7_8.is_minimal(b"\x85\x00", 5)


@given(st.integers(0, (1 << 64) - 1), st.integers(0, 7))
def test_varulong_at_any_bit(value: int, start: int) -> None:
    number, bits = varulong_groups(value)
    assert read_varulong_bits(number << start, start, start + bits) == (value, start + bits, True)
    read, after, complete = read_varulong_bits(number << start, start, start + bits - 1)
    assert (after, complete) == (start + bits - 1, False)
    assert read <= value


def test_an_eleventh_group_is_not_read() -> None:
    value, after, complete = read_varulong_bits((1 << 96) - 1, 0, 96)
    assert (after, complete) == (80, False)
    assert value == (1 << 64) - 1


@given(st.integers(-(1 << 63), (1 << 63) - 1))
def test_zigzag_over_the_whole_range(value: int) -> None:
    assert unzigzag(zigzag(value)) == value
    assert 0 <= zigzag(value) < 1 << 64
