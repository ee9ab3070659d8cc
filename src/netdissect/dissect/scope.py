"""The fields of a layer while it is read."""

from __future__ import annotations

from typing import Any

from netdissect.layers.base import Layer
from netdissect.model.native import mypyc_attr


@mypyc_attr(allow_interpreted_subclasses=True)
class Scope(dict[str, Any]):
    """The fields of a layer that have been read. Other names are looked up in enclosing layers."""

    def __init__(self, outer: Scope | None = None, layer: type[Layer] | None = None) -> None:
        self.outer = outer
        """Fields of the enclosing layer."""
        self.layer = layer

    def __missing__(self, name: str) -> Any:
        scope = self.outer
        while scope is not None:
            value = scope.get(name, scope)
            if value is not scope:
                return value
            scope = scope.outer
        raise KeyError(name)
