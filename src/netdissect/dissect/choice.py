"""Which dialect of a protocol some bytes are of, judged by these bytes alone.

They are read in every dialect; the one that finds least wrong with them wins, the first of equals.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from netdissect.dissect.engine import Request, dissect, layer_module
from netdissect.model.annotations import Severity

__all__ = ["choose", "reading_layer"]

_WEIGHTS = {Severity.ERROR: 100, Severity.WARN: 10, Severity.NOTE: 1}


def reading_layer(
    protocol: str, octets: bytes, dialect: str, transport: str, direction: int | None
) -> Any:
    """Return the Scapy layer that reads a datagram of a dialect."""
    return layer_module(protocol).root(octets, Request(dialect, direction, transport))


def choose(
    protocol: str,
    octets: bytes,
    dialects: Sequence[str],
    transport: str = "udp",
    direction: int | None = None,
) -> str:
    """Return the dialect in which the bytes make most sense.

    Args:
        protocol: name of the protocol.
        octets: one datagram, or the start of a stream.
        dialects: full names, the usual one first.
        transport: `udp` or `tcp`.
        direction: `Direction`, where it is known.
    """

    def wrong(dialect: str) -> int:
        found = dissect(protocol, octets, Request(dialect, direction, transport))
        notes = sum(_WEIGHTS.get(each.severity, 0) for each in found.annotations)
        return notes if found.messages or not octets else notes + _WEIGHTS[Severity.ERROR]

    likely = getattr(layer_module(protocol), "likely", None)
    order = dialects if likely is None else likely(octets, transport)
    return min([each for each in order if each in dialects] or dialects, key=wrong)
