from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from netdissect.wire.serial import distance, extend


@given(st.integers(-(1 << 40), 1 << 40), st.integers(1, 32), st.integers(-(1 << 31), 1 << 31))
def test_extend_is_congruent_and_closest(near: int, bits: int, offset: int) -> None:
    wire = (near + offset) & ((1 << bits) - 1)
    full = extend(wire, bits, near)
    assert full & ((1 << bits) - 1) == wire
    assert -(1 << bits - 1) < full - near <= 1 << bits - 1


def test_half_the_modulus_is_ahead() -> None:
    assert distance(512, 0, 10) == 512
    assert distance(0, 512, 10) == 512
    assert distance(513, 0, 10) == -511
    assert extend(0, 16, 65535) == 65536
    assert extend(65535, 16, 65536) == 65535
