"""Riptide's framing over TCP. Source: docs/protocols/riptide.md section 5."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from operator import itemgetter
from re import compile as compile_
from typing import Final

from netdissect.model.claims import Sample
from netdissect.protocols.framing import Prefix, chain_start
from netdissect.protocols.riptide.strict import is_possible
from netdissect.wire.riptide import (
    BYTES_20,
    BYTES_21DEV,
    SIZE_LIMIT_20,
    SIZE_LIMIT_21,
    UNDECIDED,
)

_MAX_FRAME: Final = 65535
"""Largest message in a stream, bytes: lengths of 2.0 have 16 bits."""
_MAX_SEARCHED: Final = 8192
"""Stream bytes that are searched for the first message where none begins the stream."""
_MAX_CHAINS: Final = 8
"""Parts of a stream, between gaps, that are examined."""
_MAX_SAMPLE_OCTETS: Final = 64 * 1024
"""Stream bytes that are examined per direction."""
PREFIXES: Final = {
    UNDECIDED: Prefix(
        4, SIZE_LIMIT_21, 3, partial(is_possible, packing=UNDECIDED),
        compile_(rb"(?s)(?=.[\0-\4]\0\0)"), is_signed=True,
    ),
    BYTES_20: Prefix(
        2, SIZE_LIMIT_20, 4, partial(is_possible, packing=BYTES_20),
        compile_(rb"(?s)(?=.[\0-\4][\0-\n])"),
    ),
    BYTES_21DEV: Prefix(
        4, SIZE_LIMIT_21, 3, partial(is_possible, packing=BYTES_21DEV),
        compile_(rb"(?s)(?=.[\0-\4]\0\0[\0-\n])"), is_signed=True,
    ),
}  # fmt: skip
"""Packing -> how its messages follow their length."""


def messages_of(sample: Sequence[Sample], prefix: Prefix, *, search: bool) -> list[Sample]:
    """Return the length-prefixed messages of both streams, in the order of their completion.

    Nothing where a stream does not begin with one; `search`: nor has one further on.
    """
    streams = (bytearray(), bytearray())
    ends: tuple[list[tuple[int, int]], list[tuple[int, int]]] = ([], [])
    for side, time_ns, octets in sample:
        streams[side].extend(octets[: _MAX_SAMPLE_OCTETS - len(streams[side])])
        ends[side].append((len(streams[side]), time_ns))
    framed: list[Sample] = []
    for side, stream in enumerate(streams):
        messages = _spans(bytes(stream), prefix, search=search)
        # A stream too short for several messages that are found in it says nothing.
        is_short = search and len(stream) <= prefix.chain * (prefix.width + prefix.limit)
        if stream and not messages and not is_short:
            return []
        arrivals = iter(ends[side])
        end, time_ns = 0, 0
        for start, stop in messages:
            while end < stop:
                end, time_ns = next(arrivals)
            framed.append((side, time_ns, bytes(stream[start:stop])))
    return sorted(framed, key=itemgetter(1))


def _spans(stream: bytes, prefix: Prefix, *, search: bool) -> list[tuple[int, int]]:
    """Return (start, end) of each message of a stream."""
    found, broken = _spans_from(stream, 0, prefix)
    if found and broken is None:
        return found
    return _spans_between(stream, prefix) if search else []


def _spans_between(stream: bytes, prefix: Prefix) -> list[tuple[int, int]]:
    """Return (start, end) of the messages of a stream that begins inside one, or has gaps; nothing
    where they do not make up most of it.
    """
    spans: list[tuple[int, int]] = []
    position: int | None = 0
    for _ in range(_MAX_CHAINS):
        if position is None:
            break
        first = chain_start(stream[position : position + _MAX_SEARCHED], prefix)
        if first is None:
            break
        found, broken = _spans_from(stream, position + first, prefix)
        # The last message before a gap goes on with bytes from behind it.
        spans += found if broken is None else found[:-1]
        position = broken
    held = sum(end - start for start, end in spans)
    return spans if position is None or held * 2 > len(stream) else []


def _spans_from(
    stream: bytes, position: int, prefix: Prefix
) -> tuple[list[tuple[int, int]], int | None]:
    """Return (start, end) of each message from `position` on, and where an impossible one begins;
    None = nowhere.
    """
    found: list[tuple[int, int]] = []
    while position + prefix.width <= len(stream):
        start = position + prefix.width
        end = start + prefix.length(stream, position)
        if not start < end <= start + _MAX_FRAME:
            return found, position
        if end <= len(stream):
            if not prefix.is_possible(stream[start:end]):
                return found, position
            found.append((start, end))
        position = end
    return found, None
