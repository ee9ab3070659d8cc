"""`dissect()`: one payload to one annotated tree, whatever the protocol.

The layer modules are named by protocol and imported on first use. Each has `root(...)`, which picks
the
layer for a payload, and `CODES`, its rows of the catalogue. What needs the whole payload stands in
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
    from netdissect.dissect.around import Around
    from netdissect.dissect.walker import Walker

__all__ = ["Request", "dissect", "layer_module", "schema_values"]

_log = logging.getLogger(__name__)


class Request:
    """What a layer module may use to read a payload."""

    __slots__ = ("bounds", "dialect", "direction", "hints", "schema", "transport", "unframed")

    # No dataclass: there is one of these in a datagram, and its `__init__` is not compiled.
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
    ) -> None:
        self.dialect = dialect
        """Full dialect name, such as `riptide-2.1`."""
        self.direction = direction
        """`Direction`, or None where it does not matter."""
        self.transport = transport
        """`udp` or `tcp`."""
        self.unframed = unframed
        """True where a TCP message has already been taken out of its framing."""
        self.schema = schema
        """A `netdissect.dissect.schema.Schema` for user payloads, or None."""
        self.hints = hints
        """`Hints.extra` of the connection, or None."""
        self.bounds = bounds or Bounds()
        """How far compressed bodies are inflated."""


@cache
def layer_module(protocol: str) -> Any:
    """Return the layer module of a protocol of ours, or the module of that name."""
    return import_module(f"netdissect.layers.{protocol}" if protocol in PROTOCOLS else protocol)


@cache
def finisher(protocol: str) -> Any:
    """Return the protocol's `finish(dissection, request, walker)`, or None without one."""
    return getattr(_finishing(protocol), "finish", None)


def schema_values(protocol: str) -> tuple[Values, ...]:
    """Return the value tables that a user schema of the protocol may use; () without any."""
    return getattr(_finishing(protocol), "SCHEMA_VALUES", ())


def _finishing(protocol: str) -> Any:
    """Return the module with what needs a whole payload: for a plug-in, its layer module."""
    if protocol not in PROTOCOLS:
        return layer_module(protocol)
    name = f"netdissect.dissect.finishers.{protocol}"
    return None if find_spec(name) is None else import_module(name)


@cache
def catalogue(protocol: str) -> Catalogue:
    """Return the catalogue as the layers of one protocol use it."""
    return Catalogue(layer_module(protocol).CODES)


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
        payload: UDP payload, or one framed message (or stream start) of a TCP connection.
        request: dialect, direction and what else the layers may use.
        module: dotted name of the layer module where it is not one of ours.
        strict: re-raise a fault of our own layers instead of reporting `dissector-bug`.

    """
    where = module or protocol
    dissection = Dissection(
        protocol,
        request.dialect,
        request.direction,
        request.transport,
        [Buffer("payload", payload)],
        FieldNode(protocol, None, 0, 8 * len(payload)),
    )
    try:
        if module is None or module.startswith("netdissect."):
            _read(dissection, where, payload, request, catalogue(where))
        # The code of a plug-in, which may fail when it is imported, or never end: it has a clock.
        elif protocol not in faults:
            rows = attempt(catalogue, where, seconds=LOAD_SECONDS)
            attempt(_read, dissection, where, payload, request, rows)
    except (Exception, Overrun) as bug:
        if isinstance(bug, Overrun):
            disable(protocol, fault_of(bug))
        # The one place that catches a bug of a layer: it is reported, not hidden.
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
    return dissection


@cache
def _tools() -> tuple[type[Around], type[Walker]]:
    """Return what walks: it imports Scapy, so only where something is dissected."""
    from netdissect.dissect.around import Around  # noqa: PLC0415
    from netdissect.dissect.walker import Walker  # noqa: PLC0415

    return Around, Walker


def _read(
    dissection: Dissection, where: str, payload: bytes, request: Request, rows: Catalogue
) -> None:
    around_of, walker_of = _tools()
    walker: Walker = walker_of(rows)
    dissection.annotations = walker.annotations
    dissection.messages = walker.messages
    layer = layer_module(where).root(payload, request)
    around = around_of()
    around["_direction"] = request.direction
    node, _scope, used = walker.walk(layer, payload, outer=around)
    walker.used = used
    dissection.root = node
    finish = finisher(where)
    if finish is not None:
        finish(dissection, request, walker)
    walker.conclude(dissection)
    walker.free()
