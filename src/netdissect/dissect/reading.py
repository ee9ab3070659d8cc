"""Reads the payloads of one protocol with its layers. It imports Scapy: `dissect.engine`, which
does not, imports it on first use.
"""

from __future__ import annotations

from typing import Any

from netdissect.dissect.catalogue import Catalogue
from netdissect.dissect.scope import Scope
from netdissect.dissect.walker import Walker
from netdissect.model.dissection import Dissection


class Reader:
    """Reads the payloads of one protocol."""

    def __init__(self, rows: Catalogue, layers: Any, finish: Any) -> None:
        """Take what is particular to the protocol.

        Args:
            rows: rows of its findings.
            layers: its layer module.
            finish: completes a dissection; None if there is nothing to complete.

        """
        self._rows = rows
        self._layers = layers
        self._finish = finish

    def read(self, dissection: Dissection, payload: bytes, request: Any) -> None:
        """Fill in the dissection of a payload."""
        walker = Walker(self._rows)
        dissection.annotations = walker.annotations
        dissection.messages = walker.messages
        outer = Scope()
        outer["_direction"] = request.direction
        layer = self._layers.root(payload, request)
        node, _scope, used = walker.walk(layer, payload, outer=outer)
        walker.used = used
        dissection.root = node
        if self._finish is not None:
            self._finish(dissection, request, walker)
        walker.conclude(dissection, lines=request.lines)
        walker.free()
