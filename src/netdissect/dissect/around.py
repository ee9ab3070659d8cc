"""The fields of a layer, then those of the layers around it."""

from __future__ import annotations

from typing import Any

from netdissect.layers.base import Layer
from netdissect.model.native import mypyc_attr

__all__ = ["Around"]


@mypyc_attr(allow_interpreted_subclasses=True)
class Around(dict[str, Any]):
    """The fields of one layer as read so far; unknown names are those of the layers around it."""

    def __init__(self, outer: Around | None = None, layer: type[Layer] | None = None) -> None:
        self.outer = outer
        self.layer = layer

    def __missing__(self, name: str) -> Any:
        around = self.outer
        while around is not None:
            value = around.get(name, around)
            if value is not around:
                return value
            around = around.outer
        raise KeyError(name)
