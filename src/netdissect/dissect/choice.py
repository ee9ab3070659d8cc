"""Which dialect of a protocol some bytes are of, judged by these bytes alone.

They are read in every dialect; the one that finds least wrong with them wins, the first of equals.
The others of equals stay candidates.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

from netdissect.dissect.engine import Request, dissect, layer_module
from netdissect.model.annotations import Severity

__all__ = ["Choice", "choose", "reading_layer"]

_WEIGHTS = {Severity.ERROR: 100, Severity.WARN: 10, Severity.NOTE: 1}
_BROKEN = _WEIGHTS[Severity.ERROR]
"""What counts against a dialect that finds no message in the bytes."""
_ODD = _WEIGHTS[Severity.WARN]
"""From here on, the bytes may be damaged, and of any dialect."""
_SIZE = "-oversize"
"""What findings end with that tell of no dialect: programs are set to other limits."""
_TELLING_OCTETS = 8
"""Fewer bytes look right in a dialect by chance; layers may want more (`TELLING_OCTETS`)."""


def reading_layer(
    protocol: str, octets: bytes, dialect: str, transport: str, direction: int | None
) -> Any:
    """Return the Scapy layer that reads a datagram, or a piece of a stream, of a dialect."""
    module = layer_module(protocol)
    reader = getattr(module, "reader", module.root)
    return reader(octets, Request(dialect, direction, transport))


class Choice(NamedTuple):
    """What bytes say of their dialect."""

    dialects: tuple[str, ...]
    """Those that they may be of, the likeliest first."""
    others: tuple[str, ...]
    """Those of them in which another packet would be shown than in the first."""


@lru_cache(maxsize=16)
def choose(
    protocol: str,
    octets: bytes,
    dialects: tuple[str, ...],
    transport: str = "udp",
    direction: int | None = None,
) -> Choice:
    """Return the dialects that the bytes may be of: those against which nothing in them speaks.

    What is odd in every dialect may be a damaged message of any. So may what is short, and what is
    only read in dialects that hardly anybody speaks (`RARE` of the layers).

    Args:
        protocol: name of the protocol.
        octets: one datagram, or the start of a stream.
        dialects: full names, the usual one first.
        transport: `udp` or `tcp`.
        direction: `Direction`, where it is known.
    """
    module = layer_module(protocol)
    reader = getattr(module, "reader", module.root)

    def reading(dialect: str) -> tuple[int, Any]:
        """Return what is wrong with the bytes in a dialect, and what tells the packet shown."""
        request = Request(dialect, direction, transport)
        found = dissect(protocol, octets, request)
        notes = sum(
            _WEIGHTS.get(each.severity, 0)
            for each in found.annotations
            if not each.code.endswith(_SIZE)
        )
        packet = reader(octets, request)
        # One class for every message: only what is in it tells such packets apart.
        if packet in getattr(module, "ONE_LAYOUT", ()):
            packet = tuple(each.type for each in found.messages)
        return notes if found.messages or not octets else notes + _BROKEN, packet

    likely = getattr(module, "likely", None)
    order = dialects if likely is None else likely(octets, transport)
    readings = {each: reading(each) for each in order if each in dialects}
    if not readings:
        return Choice(dialects[:1], ())
    least = min(notes for notes, _packet in readings.values())
    found = [each for each, (notes, _packet) in readings.items() if notes == least]
    rare = {*found} <= {*getattr(module, "RARE", ())}
    telling = getattr(module, "TELLING_OCTETS", _TELLING_OCTETS)
    if rare or least >= _ODD or len(octets) < telling:
        found += [each for each in dialects if each not in found]
    read = {each: (readings.get(each) or reading(each))[1] for each in dialects}
    packets = {read[each] for each in found}
    found += [each for each in dialects if each not in found and read[each] in packets]
    others = tuple(each for each in found if read[each] != read[found[0]])
    return Choice(tuple(found), others)
