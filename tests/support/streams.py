"""Streams of captures, cut, damaged and taken apart again: for framers of protocols over TCP."""

from __future__ import annotations

import random
from collections.abc import Iterator
from functools import cache

from agreement import captures
from netdissect.capture import open_capture
from netdissect.flow import packets
from netdissect.model.packets import PacketKind
from netdissect.model.segments import StreamPiece

__all__ = ["cut", "damaged", "streams"]


@cache
def streams(protocol: str) -> tuple[tuple[str, bytes], ...]:
    """Return (capture name, bytes) of every direction of every TCP connection of a protocol."""
    found: dict[tuple[str, bytes, int], bytearray] = {}
    for path in captures(protocol):
        with open_capture(path) as capture:
            for packet in packets(capture):
                if packet[0] not in (PacketKind.TCP, PacketKind.TCP_STREAM) or packet[5] is None:
                    continue
                key = (path.name, packet[3], packet[5].connection)
                for piece in packet[5].stream:
                    found.setdefault(key, bytearray()).extend(piece.data)
    return tuple((key[0], bytes(octets)) for key, octets in found.items() if octets)


def cut(
    octets: bytes, chance: random.Random, *, longest: int = 1400, gaps: float = 0.0
) -> Iterator[StreamPiece]:
    """Yield a stream in pieces of random length; a share `gaps` of them is missing."""
    position = missing = 0
    frame = 1
    while position < len(octets):
        size = chance.randrange(1, longest + 1)
        data = octets[position : position + size]
        if chance.random() < gaps:
            missing += len(data)
        else:
            yield StreamPiece(position, data, (frame,), missing)
            missing = 0
            frame += 1
        position += len(data)


def damaged(octets: bytes, chance: random.Random) -> bytes:
    """Return a stream with bytes flipped, removed, inserted or exchanged."""
    data = bytearray(octets)
    for _ in range(chance.randrange(1, 6)):
        place = chance.randrange(len(data) + 1)
        kind = chance.randrange(5)
        if kind == 0 and place < len(data):
            data[place] ^= 1 << chance.randrange(8)
        elif kind == 1:
            del data[place : place + chance.randrange(1, 9)]
        elif kind == 2:
            data[place:place] = chance.randbytes(chance.randrange(1, 9))
        elif kind == 3 and place < len(data):
            data[place] = chance.choice((0, 1, 2, 3, 10, 0x40, 0x7F, 0x80, 0xC0, 0xFF))
        else:
            other = chance.randrange(len(data) + 1)
            data[place:place] = data[other : other + chance.randrange(1, 200)]
    return bytes(data)
