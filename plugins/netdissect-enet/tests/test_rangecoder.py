"""The port of the range coder against the library's own."""

from __future__ import annotations

import ctypes
import ctypes.util
import random

import pytest

from netdissect_enet.rangecoder import MAX_OPENED, RangeCoderError, decompress

NAME = ctypes.util.find_library("enet")
LIBRARY = ctypes.CDLL(NAME) if NAME else None
needs_library = pytest.mark.skipif(LIBRARY is None, reason="libenet is not installed")


class _Buffer(ctypes.Structure):
    _fields_ = [("data", ctypes.c_void_p), ("length", ctypes.c_size_t)]


def coder():
    LIBRARY.enet_range_coder_create.restype = ctypes.c_void_p
    return ctypes.c_void_p(LIBRARY.enet_range_coder_create())


def compressed(octets: bytes) -> bytes:
    LIBRARY.enet_range_coder_compress.restype = ctypes.c_size_t
    source = ctypes.create_string_buffer(octets, len(octets))
    buffer = _Buffer(ctypes.cast(source, ctypes.c_void_p), len(octets))
    out = ctypes.create_string_buffer(3 * MAX_OPENED)
    size = LIBRARY.enet_range_coder_compress(
        coder(), ctypes.byref(buffer), ctypes.c_size_t(1), ctypes.c_size_t(len(octets)), out,
        ctypes.c_size_t(len(out)),
    )  # fmt: skip
    return out.raw[:size]


def reference(octets: bytes) -> bytes:
    LIBRARY.enet_range_coder_decompress.restype = ctypes.c_size_t
    out = ctypes.create_string_buffer(MAX_OPENED)
    size = LIBRARY.enet_range_coder_decompress(
        coder(), octets, ctypes.c_size_t(len(octets)), out, ctypes.c_size_t(MAX_OPENED)
    )
    return out.raw[:size]


def samples():
    chance = random.Random(1)
    for size in (1, 2, 3, 50, 300, 1400, 4096):
        yield chance.randbytes(size)
        yield bytes(size)
        yield bytes(chance.choice(b"abcab") for _ in range(size))
        yield (b"position=1,2,3;" * 300)[:size]
        yield bytes(at * at & 0xFF for at in range(size))


@needs_library
def test_what_the_library_compresses_comes_back() -> None:
    for octets in samples():
        assert decompress(compressed(octets)) == octets


@needs_library
def test_any_octets_come_out_as_in_the_library() -> None:
    """Where the library says nothing came out there may be an error, or too much."""
    chance = random.Random(2)
    opened = 0
    for _ in range(300):
        octets = chance.randbytes(chance.randrange(1, 60))
        if chance.random() < 0.5:
            octets = bytearray(compressed(chance.choice([b"abcabcabc" * 9, bytes(99), octets])))
            octets[chance.randrange(len(octets))] ^= 1 << chance.randrange(8)
        wanted = reference(bytes(octets))
        try:
            found = decompress(bytes(octets))
        except RangeCoderError:
            found = b""
        if wanted:
            opened += 1
            assert found == wanted
    assert opened > 30


def test_a_bomb_is_cut_off() -> None:
    for octets in (b"\xff" * 2000, bytes(2000), b"\x80" * 2000, b"", b"\1"):
        try:
            assert len(decompress(octets)) <= MAX_OPENED
        except RangeCoderError:
            continue
    with pytest.raises(RangeCoderError):
        decompress(b"")
