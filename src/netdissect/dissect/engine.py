"""`dissect()`: one payload to one annotated tree, whatever the protocol.

The layer module of a protocol is imported on first use. Its function `root` chooses the layer of a
payload, and its `CODES` are rows of the catalogue. Whatever needs the whole payload is in
`dissect/finishers/<protocol>.py`.
"""

from __future__ import annotations

import logging
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from netdissect.dissect.catalogue import Catalogue
from netdissect.dissect.foreign import (
    LOAD_SECONDS,
    Overrun,
    attempt,
    disable,
    fault_of,
    faults,
)
from netdissect.layers import PROTOCOLS
from netdissect.model.annotations import Annotation, Severity
from netdissect.model.dissection import Buffer, Dissection, FieldNode
from netdissect.wire.inflate import Bounds
from netdissect.wire.values import Values

if TYPE_CHECKING:
    from netdissect.dissect.reading import Reader

_log = logging.getLogger(__name__)
_UNREAD = FieldNode("", None, 0, 0)
"""Root of a payload that was not read yet."""


class Request:
    """What a layer module may use to read a payload, besides the bytes."""

    __slots__ = ("bounds", "dialect", "direction", "hints", "lines", "schema", "transport",
                 "unframed")

    # Not a dataclass, whose `__init__` is not compiled: one of these is made per datagram.
    def __init__(
        self,
        dialect: str,
        direction: int | None = None,
        transport: str = "udp",
        *,
        unframed: bool = False,
        schema: Any = None,
        hints: Any = None,
        bounds: Bounds | None = None,
        lines: bool = True,
    ) -> None:
        self.dialect = dialect
        """Full dialect name, such as `riptide-2.1`."""
        self.direction = direction
        """`Direction`, or None if unknown."""
        self.transport = transport
        """`udp` or `tcp`."""
        self.unframed = unframed
        """True if the payload is a message from a TCP stream, without its framing."""
        self.schema = schema
        """A `netdissect.dissect.schema.Schema` for user messages, or None."""
        self.hints = hints
        """`Hints.extra` of the connection, or None."""
        self.bounds = bounds or Bounds()
        """Limits for decompression."""
        self.lines = lines
        """False if nobody reads the summary lines of messages, which then are empty."""


@cache
def layer_module(protocol: str) -> Any:
    """Return the layer module of a built-in protocol, or of a plug-in by its dotted name."""
    return import_module(f"netdissect.layers.{protocol}" if protocol in PROTOCOLS else protocol)


@cache
def finisher(protocol: str) -> Any:
    """Return the protocol's `finish(dissection, request, walker)`, or None."""
    return getattr(_finisher_module(protocol), "finish", None)


def schema_values(protocol: str) -> tuple[Values, ...]:
    """Return the encodings of values that a user schema of the protocol may use."""
    return getattr(_finisher_module(protocol), "SCHEMA_VALUES", ())


def _finisher_module(protocol: str) -> Any:
    """Return the finisher of a built-in protocol, or None; the layer module of a plug-in."""
    if protocol not in PROTOCOLS:
        return layer_module(protocol)
    name = f"netdissect.dissect.finishers.{protocol}"
    return None if find_spec(name) is None else import_module(name)


@cache
def catalogue(protocol: str) -> Catalogue:
    """Return the catalogue for the layers of a protocol."""
    return Catalogue(layer_module(protocol).CODES)


@cache
def _reader(protocol: str) -> Reader:
    """Return what reads the payloads of a protocol."""
    from netdissect.dissect.reading import Reader  # noqa: PLC0415 - imports Scapy

    return Reader(catalogue(protocol), layer_module(protocol), finisher(protocol))


def dissect(
    protocol: str,
    payload: bytes,
    request: Request,
    *,
    module: str | None = None,
    strict: bool = False,
) -> Dissection:
    """Return the annotated tree of one payload. Never raises on input.

    Args:
        protocol: name of the protocol.
        payload: UDP payload, message of a TCP stream with its framing, or start of a stream.
        request: dialect, direction and whatever else the layers may use.
        module: dotted name of a plug-in's layer module.
        strict: re-raise an exception of the layers instead of reporting `dissector-bug`.

    """
    where = module or protocol
    ours = where == protocol or where.startswith("netdissect.")
    dissection = Dissection(
        protocol,
        request.dialect,
        request.direction,
        request.transport,
        [Buffer("payload", payload)],
        _UNREAD,
    )
    try:
        if ours:
            _reader(where).read(dissection, payload, request)
        # A plug-in's code may fail when it is imported, or never return: it gets a time limit.
        elif protocol not in faults:
            reader = attempt(_reader, where, seconds=LOAD_SECONDS)
            attempt(reader.read, dissection, payload, request)
    except (Exception, Overrun) as bug:
        if not ours:
            disable(protocol, fault_of(bug))
        # The only place that catches a bug in a layer. It is reported as a finding.
        if strict:
            raise
        _log.info("layer of %s failed", protocol, exc_info=True)
        row = Catalogue()["dissector-bug"]
        dissection.annotations.append(
            Annotation(
                row.code,
                Severity.ERROR,
                row.group,
                f"{type(bug).__name__}: {bug}",
                0,
                8 * len(payload),
            )
        )
    if dissection.root is _UNREAD:
        dissection.root = FieldNode(protocol, None, 0, 8 * len(payload))
    return dissection
