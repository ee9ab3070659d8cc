"""A scope for code that expects a packet. Not compiled: mypyc has no `__getattr__` for a dict."""

from __future__ import annotations

from typing import Any

from netdissect.dissect.scope import OUTER, Scope


class PacketScope(Scope):
    """Takes the place of the packet when field objects of a plug-in ask for other fields."""

    __slots__ = ()

    def __contains__(self, name: object) -> bool:
        outer = self.get(OUTER)
        return super().__contains__(name) or (outer is not None and name in outer)

    def getfieldval(self, name: str) -> Any:
        """Return a field's value, as a Scapy packet does."""
        return self[name]

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError:
            raise AttributeError(name) from None
