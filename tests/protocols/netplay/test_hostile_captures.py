"""Damaged captures of Netplay through the whole pipeline: nothing raises, all views agree."""

from __future__ import annotations

import io
import random
import struct
from functools import cache

import pytest

from agreement import captures
from netdissect.pipeline import Options, analyze, iter_timeline
from netdissect.pipeline.iterate import iter_records

HEADER, RECORD = 24, 16
STRICT = Options(strict=True)


@cache
def pool() -> tuple[tuple[bytes, tuple[bytes, ...]], ...]:
    """Return (file header, records) of the smaller pcap files."""
    found = []
    for path in captures("netplay"):
        data = path.read_bytes()
        if path.suffix != ".pcap" or len(data) > 60_000:
            continue
        records, place = [], HEADER
        while place + RECORD <= len(data):
            (size,) = struct.unpack_from("<I", data, place + 8)
            records.append(data[place : place + RECORD + size])
            place += RECORD + size
        found.append((data[:HEADER], tuple(records)))
    return tuple(found)


def damaged_capture(chance: random.Random) -> bytes:
    """Return a capture with packets changed, lost, repeated, reordered and cut."""
    header, chosen = chance.choice(pool())
    records = list(chosen)
    for _ in range(chance.randrange(1, 30)):
        index, other = chance.randrange(len(records)), chance.randrange(len(records))
        record = bytearray(records[index])
        kind = chance.randrange(5)
        if kind == 0:
            record[chance.randrange(RECORD, len(record))] ^= 1 << chance.randrange(8)
            records[index] = bytes(record)
        elif kind == 1 and len(records) > 5:
            del records[index]
        elif kind == 2:
            records.insert(index, records[other])
        elif kind == 3:
            records[index], records[other] = records[other], records[index]
        else:
            record[-chance.randrange(1, 20) :] = chance.randbytes(chance.randrange(1, 20))
            struct.pack_into("<I", record, 8, len(record) - RECORD)
            records[index] = bytes(record)
    return header + b"".join(records)


def check(data: bytes) -> None:
    """Assert the identities of the contract, and that all views count the same messages."""
    analysis = analyze(io.BytesIO(data), options=STRICT)
    for report in analysis.connections:
        for space in report.spaces:
            assert space.copies == space.units + space.retransmissions + space.duplicates
            assert space.units == space.acked + space.unacked + space.unknown
            assert min(space.acked, space.unacked, space.unknown) >= 0
    counted = sum(sum(side.values()) for report in analysis.connections for side in report.messages)
    records = iter_records(io.BytesIO(data), options=STRICT)
    assert sum(len(record.messages) for record in records if record.protocol) == counted
    units = (item for item in iter_timeline(io.BytesIO(data), options=STRICT) if hasattr(item, "space"))
    assert sum(unit.space == "message" for unit in units) == counted


def test_damaged_captures() -> None:
    chance = random.Random(8)
    for _ in range(80):
        check(damaged_capture(chance))


@pytest.mark.slow
def test_many_damaged_captures() -> None:
    chance = random.Random(9)
    for _ in range(3000):
        check(damaged_capture(chance))
