"""What a user may ask of the pipeline, and what an analysis hands back."""

from __future__ import annotations

import re
from array import array
from collections.abc import Callable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from itertools import product
from typing import Final, TypeAlias

from netdissect.flow.stats import FlowStats
from netdissect.model.annotations import Severity
from netdissect.model.diagnosis import Limits
from netdissect.model.errors import UsageError, did_you_mean
from netdissect.model.reports import Anomaly, CaptureInfo, ConnectionReport
from netdissect.model.text import quoted
from netdissect.pipeline.reports import Lines, Reports
from netdissect.protocols import registry
from netdissect.protocols.base import Reading
from netdissect.protocols.claiming import DecodeAs
from netdissect.wire.inflate import Bounds

__all__ = [
    "PLACEMENTS",
    "UNKNOWN_PLACEMENT",
    "Analysis",
    "Options",
    "Placement",
    "Reading",
    "decode_as",
    "reading",
]

_PORT = re.compile(r"[0-9]{1,5}")
_LAST_PORT = 65_535
_AGAIN: Final = frozenset({"retransmission", "duplicate", "unknown"})
"""Kinds of copies of units that came more than once."""


Placement: TypeAlias = tuple[bool | None, bool | None, bool, tuple[bool, bool]]
"""Whether (client, server) is next to the capture, None = not known; whether it misses frames; by
direction, whether the network brings resends close to the copies before them.
"""
UNKNOWN_PLACEMENT: Final[Placement] = (None, None, False, (False, False))
PLACEMENTS: Final[tuple[Placement, ...]] = tuple(
    product((None, False, True), (None, False, True), (False, True), ((False, False),))
)
"""All there are but for resends, the one that is not known first."""


@dataclass(frozen=True, slots=True)
class Options:
    """What a user may ask for."""

    decode_as: tuple[DecodeAs, ...] = ()
    """Rules that take flows by port; the first that fits counts."""
    without: frozenset[str] = frozenset()
    """Names of protocols that are not to be recognised."""
    dialects: Mapping[str, str] = field(default_factory=dict)
    """Protocol -> full name of the dialect to use wherever the protocol is found."""
    reading: Reading | None = None
    """What the user says about bytes that nothing on the wire tells; None = nothing."""
    limits: Limits = field(default_factory=Limits)
    """From where on a connection is told to be bad."""
    strict: bool = False
    """Re-raise a fault of our own instead of reporting `dissector-bug`."""
    begins: array[int] | None = None
    """Frames at which connections begin, in order, from an earlier look at the whole capture: they
    number the connections. None = numbered as they are recognised.
    """
    named: Callable[[tuple[str, str], int, int], int] | None = None
    """Gives a connection its number, from its endpoints, its first frame and the number that it has
    else: where a part of a capture is read whose connections have numbers already. None = none
    have.
    """
    near: Mapping[int, Placement] | None = None
    """Connection -> where the capture was taken, from an earlier look at the whole of it; None = no
    such look. What hangs on it is then told right from the start.
    """
    repeated: AbstractSet[int] | None = None
    """Connections with a unit that came more than once, from the same look; None = not known."""
    only: AbstractSet[int] | None = None
    """Connections whose datagrams, units and events are wanted, by the numbers of `begins`; None =
    all. Of the others only the reports are made.
    """
    others: bool = True
    """Whether an observer is shown datagrams of no known protocol."""
    on_anomaly: Callable[[Anomaly], None] | None = None
    """Told of every anomaly as it is found (`analyze`: at the end); None = only counted."""
    on_late: Callable[[str, Severity, int], None] | None = None
    """Told code, severity and frame of what is concluded after its frame has passed."""
    on_report: Callable[[ConnectionReport], None] | None = None
    """Told of every connection as it ends; None = they are collected."""
    lines: Lines | None = None
    """How reports are written, where nothing but `Reports.lines` will be asked of those that are
    collected; None = they are kept as they are.
    """
    placing: bool = False
    """Whether only `Analysis.begins`, `near` and `repeated` are wanted: no connection is reported.
    """

    def narrowed(self, kinds: AbstractSet[str | None] | None) -> Options:
        """Return the options of who wants to see only datagrams with a copy of these kinds, None =
        all datagrams.
        """
        if self.repeated is None or kinds is None or not kinds <= _AGAIN:
            return self
        only = self.repeated if self.only is None else self.only & self.repeated
        return replace(self, only=only)


@dataclass(slots=True)
class Analysis:
    """What a capture holds."""

    info: CaptureInfo
    connections: Reports = field(default_factory=Reports)
    """In order of first frame."""
    begins: array[int] = field(default_factory=lambda: array("q"))
    """Frames at which connections begin, in order: see `Options.begins`."""
    near: dict[int, Placement] = field(default_factory=dict)
    """Connection -> where the capture was taken, of those that tell: see `Options.placing`."""
    repeated: set[int] | None = None
    """Connections with a unit that came more than once; None where not looked for, or too many."""
    anomalies: list[Anomaly] = field(default_factory=list)
    """In order of discovery; of very many the worst, see `MAX_ANOMALIES`."""
    protocols: dict[str, dict[str, int]] = field(default_factory=dict)
    """Protocol -> {"datagrams": n, "connections": n}; TCP counts segments with data."""
    other_datagrams: int = 0
    """UDP datagrams of no known protocol."""
    limits_hit: dict[str, int] = field(default_factory=dict)
    """Named bound of the pipeline -> how often it was hit."""
    flow: FlowStats = field(default_factory=FlowStats)
    """What became of the frames below the protocols."""


def reading(
    byte_order: str | None = None,
    inflate_limit: int | None = None,
    inflate_ratio: int | None = None,
) -> Reading | None:
    """Return what the user says about bytes; None where that is nothing.

    Args:
        byte_order: `little` or `big`.
        inflate_limit: bytes of one inflated message at most.
        inflate_ratio: the same as a multiple of its size.

    """
    if (byte_order, inflate_limit, inflate_ratio) == (None, None, None):
        return None
    usual = Bounds()
    bounds = Bounds(inflate_limit or usual.octets, inflate_ratio or usual.ratio)
    return Reading({"little": "<", "big": ">", None: None}[byte_order], bounds)


def decode_as(text: str) -> DecodeAs:
    """Return the rule of `udp.port==7777,riptide-2.1`.

    Raises:
        UsageError: the text is no such rule, or names an unknown protocol or dialect.

    """
    selector, comma, name = text.partition(",")
    transport, _, port = selector.replace(" ", "").partition(".port==")
    name = name.strip()
    if not comma or transport not in ("udp", "tcp") or not _PORT.fullmatch(port):
        raise UsageError(f"decode-as wants udp.port==PORT,PROTOCOL[-DIALECT], not {quoted(text)}")
    if int(port) > _LAST_PORT:
        raise UsageError(f"{quoted(text)}: ports are 0 to {_LAST_PORT}")
    for known in registry.names():
        if name != known and not name.startswith(f"{known}-"):
            continue
        protocol = registry.get(known)
        if transport not in protocol.transports:
            raise UsageError(f"{quoted(text)}: {known} is not carried by {transport}")
        if name == known:
            return DecodeAs(transport, int(port), protocol)
        row = protocol.dialect_row(name)
        if row is not None:
            return DecodeAs(transport, int(port), protocol, row.name)
    speakers = [(known, known.dialect_row(name)) for known in registry.protocols()]
    rows = [(known, row) for known, row in speakers if row is not None]
    if len(rows) == 1:
        return DecodeAs(transport, int(port), rows[0][0], rows[0][1].name)
    if rows:
        names = ", ".join(known.name for known, _ in rows)
        raise UsageError(f"{quoted(name)} is a dialect of {names}: put the protocol in front of it")
    named = [row.name for each in registry.protocols() for row in each.dialects]
    named += registry.names()
    raise UsageError(f"no protocol or dialect is called {quoted(name)}{did_you_mean(name, named)}")
