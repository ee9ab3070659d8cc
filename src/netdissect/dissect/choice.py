"""The dialect of some bytes, judged by these bytes alone.

They are read in every dialect. The dialect in which least is wrong wins, and the first one of
equals. All equals are candidates.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

from netdissect.dissect.engine import Request, dissect, layer_module
from netdissect.model.annotations import Severity

_WEIGHTS = {Severity.ERROR: 100, Severity.WARN: 10, Severity.NOTE: 1}
"""Severity of a finding -> penalty for the dialect."""
_NO_MESSAGE = _WEIGHTS[Severity.ERROR]
"""Penalty for a dialect that finds no message in the bytes."""
_DAMAGED = _WEIGHTS[Severity.WARN]
"""Penalty from which the bytes may be damaged, and then in any dialect."""
_SIZE = "-oversize"
"""Suffix of findings without penalty: they depend on a program's limits, not on the dialect."""
_TELLING_OCTETS = 8
"""Minimum number of bytes from which to judge: fewer fit a dialect by chance. A layer package may
require more (`TELLING_OCTETS`).
"""


def reading_layer(
    where: str, octets: bytes, dialect: str, transport: str, direction: int | None
) -> Any:
    """Return the Scapy layer that reads a datagram, or a piece of a stream, of a dialect. `where`
    is the name of a built-in protocol, or that of a plug-in's layer module.
    """
    module = layer_module(where)
    reader = getattr(module, "reader", module.root)
    return reader(octets, Request(dialect, direction, transport))


class Choice(NamedTuple):
    """The dialects that bytes may be in."""

    dialects: tuple[str, ...]
    """All candidates, the likeliest first."""
    others: tuple[str, ...]
    """Candidates in which the packet looks different from that in the first."""


def likeliest(
    protocol: str,
    octets: bytes,
    dialects: tuple[str, ...],
    transport: str = "udp",
    direction: int | None = None,
) -> str:
    """Return the first candidate of `choose`: no dialect after one that fits is tried.

    Arguments as `choose`.
    """
    order = _order(protocol, octets, dialects, transport) or dialects[:1]
    if len(order) == 1:
        return order[0]
    penalties: dict[int, str] = {}
    for each in order:
        penalty = _penalty(protocol, octets, Request(each, direction, transport))[0]
        penalties.setdefault(penalty, each)
        if not penalty:
            break
    return penalties[min(penalties)]


@lru_cache(maxsize=16)
def choose(
    protocol: str,
    octets: bytes,
    dialects: tuple[str, ...],
    transport: str = "udp",
    direction: int | None = None,
) -> Choice:
    """Return the dialects that the bytes may be in: those with the smallest penalty.

    All dialects remain candidates if the bytes are damaged in every one, if they are few, or if
    only rare dialects fit (`RARE` of the layer package).

    Args:
        protocol: name of the protocol.
        octets: one datagram, or the start of a stream.
        dialects: full names, the default first.
        transport: `udp` or `tcp`.
        direction: `Direction`, or None if unknown.
    """
    module = layer_module(protocol)
    reader = getattr(module, "reader", module.root)

    def judge(dialect: str) -> tuple[int, Any]:
        """Return the penalty of a dialect, and what identifies the packet that is shown."""
        request = Request(dialect, direction, transport)
        penalty, types = _penalty(protocol, octets, request)
        packet = reader(octets, request)
        # Layers that differ only in the names of messages show different packets if names differ.
        return penalty, types if packet in getattr(module, "ONE_LAYOUT", ()) else packet

    order = _order(protocol, octets, dialects, transport)
    judged = {each: judge(each) for each in order}
    if not judged:
        return Choice(dialects[:1], ())
    least = min(penalty for penalty, _packet in judged.values())
    found = [each for each, (penalty, _packet) in judged.items() if penalty == least]
    rare = {*found} <= {*getattr(module, "RARE", ())}
    telling = getattr(module, "TELLING_OCTETS", _TELLING_OCTETS)
    if rare or least >= _DAMAGED or len(octets) < telling:
        found += [each for each in dialects if each not in found]
    # Also those that were not judged: they may show the same packet as a candidate.
    packets = {each: (judged.get(each) or judge(each))[1] for each in dialects}
    shown = {packets[each] for each in found}
    found += [each for each in dialects if each not in found and packets[each] in shown]
    others = tuple(each for each in found if packets[each] != packets[found[0]])
    return Choice(tuple(found), others)


def _order(
    protocol: str, octets: bytes, dialects: tuple[str, ...], transport: str
) -> tuple[str, ...]:
    """Return the dialects to try, the likeliest first."""
    likely = getattr(layer_module(protocol), "likely", None)
    order = dialects if likely is None else likely(octets, transport)
    return tuple(each for each in order if each in dialects)


def _penalty(protocol: str, octets: bytes, request: Request) -> tuple[int, tuple[str, ...]]:
    """Return the penalty of a dialect, and the types of the messages that it finds."""
    found = dissect(protocol, octets, request)
    penalty = sum(
        _WEIGHTS.get(each.severity, 0)
        for each in found.annotations
        if not each.code.endswith(_SIZE)
    )
    types = tuple(each.type for each in found.messages)
    return penalty if types or not octets else penalty + _NO_MESSAGE, types
