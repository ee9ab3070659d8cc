from __future__ import annotations

import pickle

from hypothesis import given
from hypothesis import strategies as st

from netdissect.wire.bits import BitString, extract, insert, slice_bits

PLACES = st.integers(0, 90)


@given(st.binary(max_size=12), PLACES, PLACES)
def test_extract_equals_the_bit_by_bit_reading(data: bytes, start: int, length: int) -> None:
    wanted = 0
    for index in range(length):
        place = start + index
        if place < 8 * len(data):
            wanted |= (data[place // 8] >> place % 8 & 1) << index
    assert extract(data, start, length) == wanted


@given(st.binary(max_size=12), PLACES)
def test_slice_and_insert_are_inverse(data: bytes, start: int) -> None:
    part = slice_bits(data, start)
    number, bits = insert(part)
    assert bits == max(0, 8 * len(data) - start)
    assert number == int.from_bytes(data, "little") >> start


def test_a_bit_string_masks_its_last_octet_and_survives_repr_and_pickle() -> None:
    value = BitString(b"\xff\xff", 11)
    assert bytes(value) == b"\xff\x07"
    assert value.bits == 11
    assert eval(repr(value)) == value  # noqa: S307
    assert eval(repr(value)).bits == 11  # noqa: S307
    assert pickle.loads(pickle.dumps(value)).bits == 11  # noqa: S301
    assert insert(b"\x01\x02") == (0x0201, 16)
