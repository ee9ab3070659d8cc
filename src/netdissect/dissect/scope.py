"""The fields of a layer while it is read."""

from __future__ import annotations

from typing import Any, Final

from netdissect.layers.base import Layer
from netdissect.model.native import mypyc_attr

OUTER: Final = "(outer)"
"""Key of the scope of the enclosing layer, if there is one."""
LAYER: Final = "(layer)"
"""Key of the layer."""


@mypyc_attr(allow_interpreted_subclasses=True)
class Scope(dict[str, Any]):
    """The fields of a layer that have been read. Other names are looked up in enclosing layers."""

    # Items and not attributes, which of a dict cost four times as much, also to initialise: a
    # datagram has several scopes.

    @property
    def layer(self) -> type[Layer] | None:
        """Return the layer; None for values around a payload."""
        layer: type[Layer] | None = self.get(LAYER)
        return layer

    def __missing__(self, name: str) -> Any:
        scope: dict[str, Any] | None = self.get(OUTER)
        while scope is not None:
            value = scope.get(name, scope)
            if value is not scope:
                return value
            scope = scope.get(OUTER)
        raise KeyError(name)
