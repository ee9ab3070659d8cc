"""No content of a capture file raises, and what is read before the damage is right."""

from __future__ import annotations

import gzip
import io
import random
from struct import pack

import pytest
import zstandard

from netdissect.capture import CaptureError, open_capture
from netdissect.flow import Decapsulator
from packetbuild import (
    block,
    enhanced,
    frame,
    interface,
    ipv4,
    option,
    pcap_file,
    section,
    tcp,
    udp,
)

_NASTY = [
    0,
    1,
    2,
    3,
    4,
    7,
    8,
    11,
    12,
    16,
    28,
    32,
    0x7FFF,
    0xFFFF,
    1 << 18,
    1 << 24,
    2**31 - 1,
    2**31,
    2**32 - 4,
    2**32 - 1,
]


def seeds():
    packets = [
        frame(1, ipv4(udp(b"game" * 9)))[3],
        frame(2, ipv4(tcp(b"stream", seq=5), 6))[3],
        frame(3, ipv4(udp(b"more" * 30)[:64], bits=0x2000))[3],
    ]
    records = [(i, i, data, len(data)) for i, data in enumerate(packets * 3)]
    plain = pcap_file(records)
    yield plain
    yield pcap_file(records, order=">", magic=0xA1B23C4D)
    ng = section("<", option("<", 1, b"comment")) + interface(options=option("<", 9, b"\x09"))
    ng += b"".join(
        enhanced("<", i, data, options=option("<", 1, b"n")) for i, data in enumerate(packets)
    )
    ng += block("<", 3, pack("<I", 60) + packets[0])
    ng += block("<", 2, pack("<HHIIII", 0, 1, 0, 9, len(packets[1]), 90) + packets[1])
    ng += block("<", 5, pack("<III", 0, 0, 9) + option("<", 5, pack("<Q", 1)))
    ng += section(">") + interface(">", 101) + enhanced(">", 3, packets[0][14:])
    yield ng
    yield gzip.compress(plain, mtime=0)
    yield zstandard.compress(ng)


def mutate(content: bytes, rng: random.Random) -> bytes:
    data = bytearray(content)
    for _ in range(rng.randint(1, 4)):
        at = rng.randrange(len(data))
        way = rng.randrange(6)
        if way == 0:
            data[at] = rng.randrange(256)
        elif way == 1:
            data[at] ^= 1 << rng.randrange(8)
        elif way == 2:
            word = pack(rng.choice("<>") + "I", rng.choice(_NASTY))
            data[at & ~3 : (at & ~3) + 4] = word
        elif way == 3:
            del data[at : at + rng.randint(1, 40)]
        elif way == 4:
            data[at:at] = data[at : at + rng.randint(1, 60)]
        else:
            del data[max(at, 4) :]
        if not data:
            break
    return bytes(data)


def check(rounds: int, seed: int) -> None:
    rng = random.Random(seed)
    originals = list(seeds())
    for _ in range(rounds):
        content = mutate(rng.choice(originals), rng)
        try:
            reader = open_capture(io.BytesIO(content))
        except CaptureError:
            continue
        count = 0
        for number, time_ns, link, data, wire in reader:
            count += 1
            assert number == count
            assert 0 <= time_ns < 2**63
            assert link >= 0
            assert wire >= 0
            assert len(data) <= len(content) * 1000
        assert reader.info.frames == count
        assert (reader.damage is None) == (reader.info.truncated_at is None)
        flow = Decapsulator()
        for packet in flow.packets(open_capture(io.BytesIO(content))):
            assert len(packet[3]) in {12, 36}
        assert flow.stats.frames == count


def test_some_mutated_files():
    check(800, 1)


@pytest.mark.slow
def test_many_mutated_files():
    check(30_000, 2)


def test_the_seeds_themselves_are_whole():
    for content in seeds():
        reader = open_capture(io.BytesIO(content))
        assert len(list(reader)) >= 5
        assert reader.damage is None
