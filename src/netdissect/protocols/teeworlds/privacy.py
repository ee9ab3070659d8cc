"""Overwrites text in Teeworlds packets without changing a size, compressed or not.

See `pipeline/privacy.py`.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from hashlib import sha256
from itertools import chain, pairwise, starmap
from operator import le
from random import Random

from netdissect.wire import huffman
from netdissect.wire.teeworlds import object_named
from netdissect.wire.teeworlds_forms import D06, D065, DDNET, TOKEN_MAGIC
from netdissect.wire.teeworlds_snapshots import (
    PACKED,
    pack_string,
    read_counts,
    read_item_head,
    static_sizes,
    unpack_string,
)
from netdissect.wire.varint import TEEWORLDS, VarintError

COSTS: tuple[int, ...] = huffman.bit_lengths()
"""Length of each byte in a compressed packet, bits."""
_NAME, _CLAN = PACKED["name"], PACKED["clan"]
"""Numbers of the first integers of a client_info item of 0.6 that hold a name and a clan."""
_NAMELESS = (*pack_string(b"", _NAME), *pack_string(b"", _CLAN))
_CANDIDATES = re.compile(rb"(?<![\x80-\xff])(?=((?:[\x80-\xff]{1,4}[\x00-\x7f]){7}))")
"""Seven consecutive integers of two to five bytes each, as packed text has. Five are usual; an
integer whose first letter is one of `_SHORT` has four, and some parts of UTF-8 have fewer.
"""
_SHORT = b"xyz"
"""Letters that become the first byte of a small negative integer."""
_ATTEMPTS = 20_000
"""Replacements that are tried for one name and clan."""
_ENOUGH = 2000
"""Those after which one that is shorter in a compressed packet is taken."""
_STANDARD = (
    rb"Timeout|Server shutdown|Wrong password|This server is full",
    rb"Only \d+ players with the same IP are allowed",
    rb"Wrong version\. Server is running '[\w. ]*' and client '[\w. ]*'|Error loading map",
    rb"Unable to connect to the server|Too many connections in a short time",
    rb"0\.7 connections are not accepted at this time",
    rb"[Tt]oo weak connection \((?:out of buffer|not acked for \d+ seconds)\)",
    rb"Kicked by (?:console|vote)|Kicked for (?:spamming|inactivity|being inactive)",
    rb"Too many remote console authentication tries|Stressing network",
    rb"You have been banned(?: for(?: life|ever| \d+ minutes?))?",
)
"""Reasons of a close that programs give. *Source:* docs/protocols/teeworlds.md; the sources of
Teeworlds 0.6 and 0.7 and of DDNet.
"""
_WITHOUT_PEOPLE = re.compile(b"|".join(_STANDARD))
_WITH_PEOPLE = re.compile(rb"((?:Kicked|Banned|" + _STANDARD[-1] + rb") \()(.*)(\))", re.DOTALL)
"""The same before a reason that somebody may have typed."""
_MORE = 0x80
"""Bit of a byte of an integer that says that another follows."""
_USUAL, _LONGEST = 4, 5
"""Bytes of an integer of text: usually at least, and at most."""


def _recompress(packed: bytes, plain: bytes, wanted: bytes) -> bytes | None:
    """Return the code of `wanted` in the size of the old one; None where that is too small."""
    del plain
    end = huffman.inspect(packed)
    code = huffman.compress(wanted)
    if len(code) > len(packed):
        code = code[:-1]  # Only filler: the end symbol is complete before the last byte.
    if end is None or len(code) > len(packed):
        return None
    return code + packed[len(code) :] if len(code) >= end else code.ljust(len(packed), b"\0")


def _close_reason(octets: bytes, spell: Callable[[bytes], bytes]) -> bytes:
    """Return the reason of a close without what somebody may have typed."""
    text = octets.rstrip(b"\0")
    if _WITHOUT_PEOPLE.fullmatch(text):
        return octets
    framed = _WITH_PEOPLE.fullmatch(text)
    if framed is None:
        return spell(text) + octets[len(text) :]
    before, typed, after = framed.groups()
    inside = typed if _WITHOUT_PEOPLE.fullmatch(typed) else spell(typed)
    return before + inside + after + octets[len(text) :]


def _snapshot(
    octets: bytes,
    spell: Callable[[bytes], bytes],
    cuts: Sequence[int] = (),
    *,
    begins: bool = True,
    ends: bool = True,
) -> bytes:
    """Return the data of a snapshot with other names and clans in its client_info items.

    The sum of the integers does not change, and so neither does the checksum of this snapshot and
    of those built on it. Nor does the size, even in compressed packets: of one with the whole data,
    or of several that divide it at `cuts`. Parts may be missing before and behind the data, unless
    it `begins` and `ends` the snapshot: then nobody can tell the checksum.
    """
    if not begins:
        # Nobody can tell where an item begins.
        return _shuffled(octets, [(0, len(octets))], cuts, _random(octets, spell))
    old, at = octets, 0
    while (match := _CANDIDATES.search(octets, at)) is not None:
        at = match.start() + 1
        raw = match[1]
        inner = [cut - match.start() for cut in cuts if 0 < cut - match.start() < len(raw)]
        found = _replacement(raw, spell, inner)
        if found is not None:
            at = match.start() + len(raw)
            octets = octets[: match.start()] + found + octets[at:]
    items, whole = _names(old)
    # Only a name that is new is there as text; of one that changes, it is the differences.
    left = [
        span
        for spans in items
        if all(old[start:end] == octets[start:end] for start, end in spans)
        for span in spans
        if span[0] < span[1]
    ]
    return _without(octets, left, spell, cuts, sum_stays=whole and ends) if left else octets


def _names(octets: bytes) -> tuple[list[list[tuple[int, int]]], bool]:
    """Return (start, end) of each integer but 0 of the names and clans in the data of a snapshot,
    item by item, and whether the data is complete.
    """
    items: list[list[tuple[int, int]]] = []
    sizes, client_info = static_sizes("0.6"), object_named("client_info", "0.6")["type_id"]
    read, end = TEEWORLDS.read, len(octets)
    try:
        gone, changed, at = read_counts(octets)
        for _ in range(gone):
            _, at = read(octets, at, end)
        for _ in range(changed):
            kind, _, size, at = read_item_head(octets, at, sizes)
            spans: list[tuple[int, int]] = []
            values = []
            if kind == client_info:
                items.append(spans)
            for place in range(size):
                start = at
                spans.append((start, end))
                value, at = read(octets, at, end)
                values.append(value)
                spans[-1] = (start, at)
                if not value or place >= _NAME + _CLAN:
                    del spans[-1]
            if tuple(values[: _NAME + _CLAN]) == _NAMELESS:
                spans.clear()
    except VarintError:
        return items, False
    return items, True


def _without(
    octets: bytes,
    spans: Sequence[tuple[int, int]],
    spell: Callable[[bytes], bytes],
    cuts: Sequence[int],
    *,
    sum_stays: bool,
) -> bytes:
    """Return the data with other integers of the same sizes, and perhaps the same sum, at `spans`.

    A single integer whose sum must stay cannot be another: the checksums tell it.
    """
    parts = [octets[start:end] for start, end in spans]
    pieces = [[bisect_right(cuts, at) for at in range(*span)] for span in spans]

    def costs(made: Sequence[bytes]) -> list[int]:
        """Return the length of the code in each piece, bits."""
        out = [0] * (len(cuts) + 1)
        for octet, piece in zip(chain(*made), chain(*pieces), strict=True):
            out[piece] += COSTS[octet]
        return out

    wanted = costs(parts)
    free = parts.index(max(parts, key=len))
    total = sum(map(_value, parts)) if sum_stays else 0
    random = _random(b"".join(parts), spell)
    best = octets if sum_stays else _shuffled(octets, spans, cuts, random)
    for attempt in range(_ATTEMPTS if len(parts) > 1 or not sum_stays else 0):
        made = [_other(part, random) for part in parts]
        if sum_stays:
            made[free] = TEEWORLDS.write(total - sum(map(_value, made)) + _value(made[free]))
        if len(made[free]) != len(parts[free]):
            continue
        found = costs(made)
        if all(map(le, found, wanted)):
            best = _put(octets, spans, made)
        if found == wanted:
            break
        if best is not octets and attempt >= _ENOUGH:
            break
    return best


def _put(octets: bytes, spans: Sequence[tuple[int, int]], parts: Sequence[bytes]) -> bytes:
    """Return the data with other bytes at `spans`."""
    out = bytearray(octets)
    for (start, end), part in zip(spans, parts, strict=True):
        out[start:end] = part
    return bytes(out)


def _value(octets: bytes) -> int:
    return TEEWORLDS.read(octets, 0, len(octets))[0]


def _random(octets: bytes, spell: Callable[[bytes], bytes]) -> Random:
    """Return numbers that depend on the key and the input."""
    return Random(spell(sha256(octets).hexdigest().encode()))  # noqa: S311 - the seed is secret


@cache
def _choices(kind: str) -> tuple[range, list[float]]:
    """Return the bytes that may stand in an integer, and how often each does by its code."""
    found = {"more": range(0x80, 0x100), "last": range(1, 0x80), "fifth": range(1, 0x10)}[kind]
    return found, [2.0 ** -COSTS[octet] for octet in found]


def _other(octets: bytes, random: Random) -> bytes:
    """Return another integer of the same size; the end of both may be missing."""
    more = random.choices(*_choices("more"), k=len(octets))
    if not octets[-1] & _MORE:
        kind = "fifth" if len(octets) == _LONGEST else "last"
        more[-1:] = random.choices(*_choices(kind))
    return bytes(more)


def _shuffled(
    octets: bytes, spans: Sequence[tuple[int, int]], cuts: Sequence[int], random: Random
) -> bytes:
    """Return the data with the bytes at `spans` in another order. The integers keep their sizes,
    and the pieces theirs in a compressed packet.
    """
    out = bytearray(octets)
    groups = defaultdict[tuple[int, int], list[int]](list)
    for at in chain.from_iterable(starmap(range, spans)):
        groups[octets[at] & _MORE, bisect_right(cuts, at)].append(at)
    for places in groups.values():
        for at, other in zip(places, random.sample(places, len(places)), strict=True):
            out[at] = octets[other]
    return bytes(out)


def _costs(octets: bytes, cuts: Sequence[int]) -> list[int]:
    """Return the length of the code of each piece, bits."""
    return [
        sum(COSTS[octet] for octet in octets[start:end])
        for start, end in pairwise((0, *cuts, len(octets)))
    ]


def _replacement(
    raw: bytes, spell: Callable[[bytes], bytes], cuts: Sequence[int]
) -> bytes | None:
    """Return the seven integers of another name and clan; None if `raw` holds no name and clan."""
    ints, sizes, at = list[int](), list[int](), 0
    while at < len(raw):
        value, end = TEEWORLDS.read(raw, at, len(raw))
        ints.append(value)
        sizes.append(end - at)
        at = end
    if ints[_NAME - 1] & 0xFF or ints[-1] & 0xFF:
        return None  # The last byte of packed text is always zero.
    name, clan = (
        unpack_string(part).encode("utf-8", "surrogateescape")
        for part in (ints[:_NAME], ints[_NAME:])
    )
    both = name + clan
    if not name or min(both) < ord(" ") or (min(sizes) < _USUAL and not _is_utf8(both)):
        return None  # Other integers, such as positions.
    free = _NAME - 1 if len(name) < 4 * (_NAME - 1) else _NAME + _CLAN - 1
    if len(name) >= 4 * (_NAME - 1) and len(clan) >= 4 * (_CLAN - 1):
        name, free = name[: 4 * (_NAME - 1) - 1], _NAME - 1  # Shorten the name to make room.
    costs = _costs(raw, cuts)
    best: bytes | None = None
    for new in _others(ints, sizes, (name, clan), free, spell):
        if len(new) == len(raw):
            new_costs = _costs(new, cuts)
            if new_costs == costs:
                return new
            if not cuts or all(map(le, new_costs, costs)):
                best = new
    return best


def _others(
    ints: Sequence[int],
    sizes: Sequence[int],
    texts: tuple[bytes, bytes],
    free: int,
    spell: Callable[[bytes], bytes],
) -> Iterator[bytes]:
    """Yield replacements of a name and clan, with the same sum of the integers.

    Args:
        ints: the integers, of which the one at `free` can hold anything.
        sizes: their sizes, bytes.
        texts: name and clan, without the parts behind `free`.
        free: index of the integer behind the end of a text.
        spell: replaces text.

    """
    # Where an integer was short, one of the new ones has to be.
    shortest = sorted(range(len(ints)), key=sizes.__getitem__)
    short = shortest[: sum(_LONGEST - size for size in sizes)]
    for attempt in range(_ATTEMPTS):
        salt = attempt.to_bytes(4, "big")
        words = [bytearray(spell(salt + text)[len(salt) :]) for text in texts]
        for place in short:
            word, first = words[place >= _NAME], 4 * (place % _NAME)
            if first < len(word):
                word[first] = _SHORT[word[first] % len(_SHORT)]
        new_ints = pack_string(bytes(words[0]), _NAME) + pack_string(bytes(words[1]), _CLAN)
        new_ints[free] += sum(ints) - sum(new_ints)
        yield b"".join(map(TEEWORLDS.write, new_ints))


def _is_utf8(octets: bytes) -> bool:
    try:
        octets.decode()
    except UnicodeDecodeError:
        return False
    return True


_OFFER = rb"\A.{4}" + TOKEN_MAGIC + rb".{4}"
"""A control message whose sender asks for tokens, or gives one."""
KEPT = {
    D06: re.compile(_OFFER, re.DOTALL),
    D065: re.compile(_OFFER, re.DOTALL),
    DDNET: re.compile(_OFFER + rb"|.{4}\Z", re.DOTALL),
}
"""What the analysis goes by. DDNet's token is at the end, whatever damage is before it."""
PACKERS = {"decompressed": _recompress}
WRITERS = {"close_reason": _close_reason, "snapshot": _snapshot}
PARTS = {"snapshot": ("tick", "part", "num_parts")}
