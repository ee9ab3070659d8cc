"""Text of Teeworlds written over so that no size changes, compressed or not: see
`pipeline/privacy.py`.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from netdissect.wire import huffman
from netdissect.wire.teeworlds_snapshots import pack_string, unpack_string
from netdissect.wire.varint import TEEWORLDS

__all__ = ["COSTS", "PACKERS", "WRITERS"]

COSTS: tuple[int, ...] = huffman.bit_lengths()
"""Bits of each byte in a compressed packet."""
_NAME, _CLAN = 4, 3
"""Integers of a name and of a clan in a client_info item of 0.6."""
_NAMED = re.compile(rb"(?=((?:[\x80-\xff]{4}[\x00-\x7f]){7}))")
"""Seven integers in a row that take five bytes each, as those of packed text do."""
_TRIES = 20_000
_U32 = 0xFFFFFFFF


def _repack(packed: bytes, plain: bytes, wanted: bytes) -> bytes | None:
    """Return the code of other bytes in the size of the old one, None where that is too small."""
    del plain
    end = huffman.inspect(packed)
    code = huffman.compress(wanted)
    if len(code) > len(packed):
        code = code[:-1]  # the byte that may follow the end symbol
    if end is None or len(code) > len(packed):
        return None
    return code + packed[len(code) :] if len(code) >= end else code.ljust(len(packed), b"\0")


def _snapshot(octets: bytes, spell: Callable[[bytes], bytes]) -> bytes:
    """Return the data of a snapshot with other names and clans in its client_info items.

    The sum of the integers stays, and with it the checksum of this snapshot and of all that build
    on it; so do the bytes and, in a compressed packet, the bits.
    """
    at = 0
    while (match := _NAMED.search(octets, at)) is not None:
        at = match.start() + 1
        raw = match[1]
        found = _respelt(raw, spell)
        if found is not None:
            at = match.start() + len(raw)
            octets = octets[: match.start()] + found + octets[at:]
    return octets


def _respelt(raw: bytes, spell: Callable[[bytes], bytes]) -> bytes | None:
    """Return the seven integers of another name and clan, None where these are none."""
    ints = [TEEWORLDS.read(raw, start, start + 5)[0] for start in range(0, len(raw), 5)]
    if ints[_NAME - 1] & 0xFF or ints[-1] & 0xFF:
        return None  # the last byte of packed text is always zero
    name, clan = (
        unpack_string(part).encode("utf-8", "surrogateescape")
        for part in (ints[:_NAME], ints[_NAME:])
    )
    free = _NAME - 1 if len(name) < 4 * (_NAME - 1) else _NAME + _CLAN - 1
    if len(name) >= 4 * (_NAME - 1) and len(clan) >= 4 * (_CLAN - 1):
        name, free = name[: 4 * (_NAME - 1) - 1], _NAME - 1  # a shorter one leaves room
    cost = sum(COSTS[octet] for octet in raw)
    nearest: bytes | None = None
    for attempt in range(_TRIES):
        salt = attempt.to_bytes(4, "big")
        words = [spell(salt + text)[len(salt) :] for text in (name, clan)]
        tried = pack_string(words[0], _NAME) + pack_string(words[1], _CLAN)
        # Behind the end of a text its integers hold anything: what keeps the sum.
        rest = (sum(ints) - sum(tried) + tried[free]) & _U32
        tried[free] = rest - (1 << 32) if rest >> 31 else rest
        new = b"".join(map(TEEWORLDS.write, tried))
        if len(new) == len(raw):
            nearest = new
            if sum(COSTS[octet] for octet in new) == cost:
                return new
    return nearest


PACKERS = {"decompressed": _repack}
WRITERS = {"snapshot": _snapshot}
