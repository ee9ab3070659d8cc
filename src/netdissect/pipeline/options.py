"""What a user may ask of the pipeline, and what an analysis hands back."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from netdissect.model.errors import UsageError
from netdissect.model.reports import Anomaly, CaptureInfo, ConnectionReport
from netdissect.protocols import registry
from netdissect.protocols.claiming import DecodeAs

__all__ = ["Analysis", "Options", "decode_as"]


@dataclass(frozen=True, slots=True)
class Options:
    """What a user may ask for."""

    decode_as: tuple[DecodeAs, ...] = ()
    """Rules that take flows by port; the first that fits counts."""
    without: frozenset[str] = frozenset()
    """Names of protocols that are not to be recognised."""
    dialects: Mapping[str, str] = field(default_factory=dict)
    """Protocol -> full name of the dialect to use wherever the protocol is found."""
    strict: bool = False
    """Re-raise a fault of our own instead of reporting `dissector-bug`."""
    on_anomaly: Callable[[Anomaly], None] | None = None
    """Told of every anomaly as it is found; None = they are only counted."""
    on_report: Callable[[ConnectionReport], None] | None = None
    """Told of every connection as it ends; None = they are collected."""


@dataclass(slots=True)
class Analysis:
    """What a capture holds."""

    info: CaptureInfo
    connections: list[ConnectionReport] = field(default_factory=list)
    """In order of first frame."""
    anomalies: list[Anomaly] = field(default_factory=list)
    """In order of discovery."""
    protocols: dict[str, dict[str, int]] = field(default_factory=dict)
    """Protocol -> {"datagrams": n, "connections": n}; TCP counts segments with data."""
    other_datagrams: int = 0
    """UDP datagrams of no known protocol."""
    limits_hit: dict[str, int] = field(default_factory=dict)
    """Named bound of the pipeline -> how often it was hit."""


def decode_as(text: str) -> DecodeAs:
    """Return the rule of `udp.port==7777,riptide-2.1`.

    Raises:
        UsageError: the text is no such rule, or names an unknown protocol or dialect.

    """
    selector, comma, name = text.partition(",")
    transport, _, port = selector.replace(" ", "").partition(".port==")
    name = name.strip()
    if not comma or transport not in ("udp", "tcp") or not port.isdecimal():
        raise UsageError(f"decode-as wants udp.port==PORT,PROTOCOL[-DIALECT], not {text!r}")
    for known in registry.names():
        if name != known and not name.startswith(f"{known}-"):
            continue
        protocol = registry.get(known)
        if name == known:
            return DecodeAs(transport, int(port), protocol)
        row = protocol.dialect_row(name)
        if row is not None:
            return DecodeAs(transport, int(port), protocol, row.name)
    raise UsageError(f"no protocol or dialect named {name!r}")
