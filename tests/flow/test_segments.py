from __future__ import annotations

from struct import pack
from typing import NamedTuple

from hypothesis import given
from hypothesis import strategies as st

from netdissect.flow.segments import read_segment
from packetbuild import tcp

STAMPS = b"\x08\x0a" + pack(">II", 11, 22)


class Header(NamedTuple):
    """The items of a `SegmentHeader`, by name."""

    seq: int
    ack: int
    flags: int
    window: int
    payload: bytes
    length: int
    timestamps: tuple[int, int] | None
    sack: tuple[tuple[int, int], ...]


def read(data):
    return named(read_segment(data, 0, len(data)))


def named(found):
    return Header(*found) if found[5] >= 0 else None


def test_the_header_is_read():
    data = tcp(b"data", seq=2**32 - 5, ack=7, flags=0x1B, window=501)
    assert read(data) == (2**32 - 5, 7, 0x1B, 501, b"data", 4, None, ())


def test_the_usual_options_are_time_stamps():
    assert read(tcp(b"d", options=b"\x01\x01" + STAMPS)).timestamps == (11, 22)


def test_options_are_read_in_any_order():
    sack = b"\x05\x12" + pack(">IIII", 1, 2, 3, 4)
    found = read(tcp(options=b"\x02\x04\x05\xb4" + sack + STAMPS + b"\x01\x00\xff\xff"))
    assert found.timestamps == (11, 22)
    assert found.sack == ((1, 2), (3, 4))
    assert read(tcp(options=STAMPS + b"\x01\x01")).timestamps == (11, 22)


def test_options_behind_the_end_mark_are_not_read():
    assert read(tcp(options=b"\x00\x01" + STAMPS)).timestamps is None


@given(
    st.integers(0, 10).flatmap(lambda n: st.binary(min_size=4 * n, max_size=4 * n)),
    st.binary(max_size=9),
)
def test_any_options_are_read_without_a_fault(options, payload):
    assert read(tcp(payload, options=options)).payload == payload


def test_a_cut_segment_states_its_length_on_the_wire():
    data = tcp(b"payload", options=b"\x01\x01" + STAMPS)
    for cut in range(len(data)):
        found = named(read_segment(data[:cut], 0, len(data)))
        if cut < 20:
            assert found is None
        else:
            assert (found.length, found.payload) == (7, data[32:cut])
            assert found.timestamps == ((11, 22) if cut >= 32 else None)
