"""The fields of a layer while it is read. Not compiled: mypyc has no `__getattr__` for a dict."""

from __future__ import annotations

from typing import Any

from netdissect.layers.base import Layer

__all__ = ["Scope"]


class Scope(dict[str, Any]):
    """The fields of one layer as read so far; unknown names are looked up in the layers around it.

    Stands in for the packet when Field objects ask for other fields.
    """

    __slots__ = ("layer", "outer")

    def __init__(self, outer: Scope | None = None, layer: type[Layer] | None = None) -> None:
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

    def __contains__(self, name: object) -> bool:
        return super().__contains__(name) or (self.outer is not None and name in self.outer)

    def getfieldval(self, name: str) -> Any:
        """Return a field's value as a Scapy packet would."""
        return self[name]

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError:
            raise AttributeError(name) from None
