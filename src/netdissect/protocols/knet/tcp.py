"""Whether a TCP flow is kNet: by its pings. Source: docs/protocols/knet.md section 13."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from netdissect.model.claims import Claim, Sample
from netdissect.wire.knet import PING_MS

OPENING: Final = 64
MIDDLE: Final = 64
PINGS: Final = 85
"""Scores of the evidence; see `model.claims.STRONG`."""

_MAX_STREAM_OCTETS: Final = 128 * 1024
"""Stream bytes that are examined per direction."""
_PING_NS: Final = int(PING_MS * 1_000_000)
_MIN_TIMED: Final = 3
"""Pings and replies in it that prove a stream of which one side was captured."""
_PINGS: Final = (b"\x02\x01", b"\x02\x02")
"""Length and message ID of a ping and of its reply in a stream."""


def recognise(sample: Sequence[Sample], *, final: bool) -> Claim | None:
    """Return the claim on a TCP flow.

    The evidence is ping 1 or its reply at the start of both directions; mid-stream, two answered
    pings; in a capture of one direction, pings that follow their timer.
    """
    streams = (bytearray(), bytearray())
    pieces: list[tuple[int, int, int, int]] = []
    for side, time_ns, octets in sample:
        start = len(streams[side])
        streams[side].extend(octets[: _MAX_STREAM_OCTETS - start])
        pieces.append((side, time_ns, start, len(streams[side])))
    answered, by_timer = _answered(pieces, streams)
    if all(_pings(stream, 0, 1) in ([(1, 1)], [(2, 1)]) for stream in streams) and answered:
        score = PINGS if answered > 1 else OPENING
        reason = f"both streams begin with ping 1 or its reply; {answered} pings answered"
    elif answered > 1 and by_timer:
        score, reason = MIDDLE, f"{answered} pings answered"
    elif final and not all(streams) and (timed := _timed(pieces, streams)) >= _MIN_TIMED:
        score, reason = MIDDLE, f"one side alone, {timed} pings and replies on their timer"
    else:
        return None
    return Claim(
        protocol="knet",
        score=score,
        dialects=("knet-tcp", "knet-tcp"),
        client=None,
        roles_from="first_frame",
        reasons=(reason,),
    )


def _answered(
    pieces: list[tuple[int, int, int, int]], streams: tuple[bytearray, bytearray]
) -> tuple[int, bool]:
    """Return how many pings were answered, and whether both sides send pings as rarely as a timer.

    Only pings at the start of a piece count. `pieces`: (side, time, start and end in the stream).
    """
    sent_ns: dict[tuple[int, int], int] = {}
    last_ns: list[int | None] = [None, None]
    answered, by_timer = 0, True
    for side, time_ns, start, end in pieces:
        for kind, number in _pings(streams[side], start, end):
            if kind == 1:
                last = last_ns[side]
                by_timer &= last is None or time_ns - last > _PING_NS // 2
                sent_ns[side, number] = last_ns[side] = time_ns
            else:
                at = sent_ns.pop((1 - side, number), None)
                answered += at is not None and 0 <= time_ns - at < _PING_NS
    return answered, by_timer


def _timed(
    pieces: list[tuple[int, int, int, int]], streams: tuple[bytearray, bytearray]
) -> int:
    """Return how many pings and replies come one interval after the previous number."""
    last: dict[int, tuple[int, int]] = {}
    timed = 0
    for side, time_ns, start, end in pieces:
        for kind, number in _pings(streams[side], start, end):
            before, at = last.get(kind, (number, time_ns))
            gap_ns = time_ns - at
            timed += (number - before) % 256 == 1 and 0.8 * _PING_NS < gap_ns < 1.3 * _PING_NS
            last[kind] = number, time_ns
    return timed


def _pings(stream: bytearray, start: int, end: int) -> list[tuple[int, int]]:
    """Return (message ID, number) of the pings and replies with which stream[start:end] begins.

    None where an impossible length follows them. Section 8.
    """
    found = []
    at = start
    while at < end and at + 2 < len(stream) and bytes(stream[at : at + 2]) in _PINGS:
        found.append((stream[at + 1], stream[at + 2]))
        at += 3
    return [] if at < end and stream[at : at + 1] == b"\0" else found
