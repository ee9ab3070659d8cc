"""The options of the pipeline, and the result of an analysis."""

from __future__ import annotations

import re
from array import array
from bisect import bisect_left
from collections.abc import Callable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from itertools import product
from typing import Final, TypeAlias

from netdissect.flow.stats import FlowStats
from netdissect.model.annotations import Severity
from netdissect.model.claims import Claim
from netdissect.model.diagnosis import Limits
from netdissect.model.errors import UsageError, did_you_mean
from netdissect.model.reports import Anomaly, CaptureInfo, ConnectionReport
from netdissect.model.text import quoted
from netdissect.model.units import Placement
from netdissect.pipeline.reports import Lines, Reports
from netdissect.protocols import registry
from netdissect.protocols.base import Protocol, Reading
from netdissect.protocols.claiming import DecodeAs
from netdissect.wire.inflate import Bounds

_PORT = re.compile(r"[0-9]{1,5}")
_LAST_PORT = 65_535
_AGAIN: Final = frozenset({"retransmission", "duplicate", "unknown"})
"""Kinds of copies of units that were seen more than once."""
LateClaim: TypeAlias = tuple[int, Claim]
"""Packets of a flow when it was judged, and what it was claimed for."""
UNKNOWN_PLACEMENT: Final = Placement()
PLACEMENTS: Final = tuple(
    Placement((client, server), misses_frames)
    for client, server, misses_frames in product(
        (None, False, True), (None, False, True), (False, True)
    )
)
"""All placements without `CopyGaps`; the unknown one is the first."""


@dataclass(frozen=True, slots=True)
class Options:
    """What to analyse and how, and the callbacks for results."""

    decode_as: tuple[DecodeAs, ...] = ()
    """Rules that assign flows to protocols by port; the first that matches applies."""
    without: frozenset[str] = frozenset()
    """Names of protocols that are not recognised."""
    dialects: Mapping[str, str] = field(default_factory=dict)
    """Protocol -> full name of the dialect to use wherever the protocol is found."""
    reading: Reading | None = None
    """What the user states about bytes because the wire does not show it; None = nothing."""
    limits: Limits = field(default_factory=Limits)
    """Thresholds of findings about quality."""
    strict: bool = False
    """Re-raise exceptions in a protocol instead of reporting `dissector-bug`."""
    begins: array[int] | None = None
    """Sorted first frames of all connections, from a first pass; they determine the numbers of
    connections. None = number connections as they are recognised.
    """
    late: Mapping[int, LateClaim] = field(default_factory=dict)
    """First frame of a flow -> what it was claimed for at the end of a first pass. Nothing else
    would be learnt by waiting for the end again, which holds all later datagrams back.
    """
    named: Callable[[tuple[str, str], int, int], int] | None = None
    """(endpoints, first frame, number) -> number to use instead, for reading a part of a capture
    whose connections are numbered already. None = keep the number.
    """
    near: Mapping[int, Placement] | None = None
    """Connection -> placement, from a first pass, so that conclusions that depend on it are right
    from the start. None without a first pass.
    """
    repeated: AbstractSet[int] | None = None
    """Connections with a unit that was seen more than once, from a first pass; None = unknown."""
    only: AbstractSet[int] | None = None
    """Connections, by the numbers of `begins`, whose datagrams, units and events are needed; None =
    all. Of other connections there are only reports.
    """
    others: bool = True
    """Whether to show the observer datagrams of unknown protocols."""
    on_anomaly: Callable[[Anomaly], None] | None = None
    """Called for every anomaly as it is found (by `analyze` at the end); None = only count them."""
    on_late: Callable[[str, Severity, int], None] | None = None
    """Called with code, severity and frame of a finding that is made after its frame."""
    on_report: Callable[[ConnectionReport], None] | None = None
    """Called for every connection as it ends; None = collect the reports."""
    lines: Lines | None = None
    """How to format reports, if only `Reports.lines` will be called; None = keep the reports."""
    together: int = 1
    """`table.MAX_ALL_OUTSTANDING` is divided by this if captures are analysed at the same time."""
    reported: bool = True
    """Whether reports are needed; otherwise only connections that are observed are concluded."""
    placing: bool = False
    """Whether only `Analysis.begins`, `near` and `repeated` are needed, and no reports."""

    def may_begin(self, frame: int) -> bool:
        """Return whether a connection begins with a frame; True without a first pass."""
        if self.begins is None:
            return True
        place = bisect_left(self.begins, frame)
        return place < len(self.begins) and self.begins[place] == frame

    def narrowed(self, kinds: AbstractSet[str | None] | None) -> Options:
        """Return options that suffice for the datagrams with a copy of one of `kinds` (None = all
        datagrams): `only` leaves out connections that cannot have any.
        """
        if self.repeated is None or kinds is None or not kinds <= _AGAIN:
            return self
        only = self.repeated if self.only is None else self.only & self.repeated
        return replace(self, only=only)


@dataclass(slots=True)
class Analysis:
    """The result of analysing a capture."""

    info: CaptureInfo
    connections: Reports = field(default_factory=Reports)
    """In the order of first frames."""
    begins: array[int] = field(default_factory=lambda: array("q"))
    """For `Options.begins`."""
    late: dict[int, LateClaim] = field(default_factory=dict)
    """For `Options.late`."""
    near: dict[int, Placement] = field(default_factory=dict)
    """For `Options.near`: connections whose placement is known. Only if `Options.placing`."""
    repeated: set[int] | None = None
    """For `Options.repeated`; None without `Options.placing`, or if there are too many."""
    anomalies: list[Anomaly] = field(default_factory=list)
    """In order of discovery; of too many the most severe, see `MAX_ANOMALIES`."""
    protocols: dict[str, dict[str, int]] = field(default_factory=dict)
    """Protocol -> {"datagrams": n, "connections": n}; for TCP, segments with data count."""
    other_datagrams: int = 0
    """UDP datagrams of unknown protocols."""
    limits_hit: dict[str, int] = field(default_factory=dict)
    """Name of a bound of the pipeline -> how often it was hit."""
    flow: FlowStats = field(default_factory=FlowStats)
    """Counts of the frames and packets below the protocols."""


def reading(
    byte_order: str | None = None,
    inflate_limit: int | None = None,
    inflate_ratio: int | None = None,
) -> Reading | None:
    """Return what the user states about bytes; None if all arguments are None.

    Args:
        byte_order: `little` or `big`.
        inflate_limit: largest size of one inflated message, bytes.
        inflate_ratio: largest size of one inflated message, as a multiple of its compressed size.

    """
    if (byte_order, inflate_limit, inflate_ratio) == (None, None, None):
        return None
    usual = Bounds()
    bounds = Bounds(inflate_limit or usual.octets, inflate_ratio or usual.ratio)
    return Reading({"little": "<", "big": ">", None: None}[byte_order], bounds)


def decode_as(text: str) -> DecodeAs:
    """Return the rule that a text such as `udp.port==7777,riptide-2.1` states.

    Raises:
        UsageError: the text is not a rule, or names an unknown protocol or dialect.

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
            raise UsageError(f"{quoted(text)}: {known} does not run over {transport}")
        if name == known:
            return DecodeAs(transport, int(port), protocol)
        row = protocol.dialect_row(name)
        if row is not None:
            return DecodeAs(transport, int(port), protocol, row.name)
    protocol, dialect = _only_speaker(name)
    return DecodeAs(transport, int(port), protocol, dialect)


def _only_speaker(name: str) -> tuple[Protocol, str]:
    """Return the one protocol that has a dialect of this name, and the full name of the dialect.

    Raises:
        UsageError: no protocol has one, or several have.

    """
    speakers = [(known, known.dialect_row(name)) for known in registry.protocols()]
    rows = [(known, row) for known, row in speakers if row is not None]
    if len(rows) == 1:
        return rows[0][0], rows[0][1].name
    if rows:
        names = ", ".join(known.name for known, _ in rows)
        raise UsageError(f"{quoted(name)} is a dialect of {names}: put the protocol in front of it")
    named = [row.name for each in registry.protocols() for row in each.dialects]
    named += registry.names()
    raise UsageError(f"no protocol or dialect is called {quoted(name)}{did_you_mean(name, named)}")
