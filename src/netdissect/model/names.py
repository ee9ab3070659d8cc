"""What netdissect knows by name: protocols, dialects, fields. Printed by `protocols` and `fields`,
used by filters.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import Self

__all__ = ["DialectInfo", "FieldInfo", "ProtocolInfo"]


@dataclass(frozen=True, slots=True)
class DialectInfo:
    """One dialect of a protocol."""

    name: str
    """Full name."""
    title: str
    """Which versions speak it."""
    message_types: tuple[str, ...]
    """Type names that `connections` counts."""


@dataclass(frozen=True, slots=True)
class ProtocolInfo:
    """One protocol."""

    name: str
    """Lower-case name."""
    title: str
    """Name for people."""
    dialects: tuple[DialectInfo, ...]
    """The first is used where nothing tells them apart."""
    transports: tuple[str, ...]
    """Of `udp` and `tcp`."""
    default_ports: tuple[int, ...]
    """Ports that its programs use unless told otherwise."""
    spaces: tuple[str, ...] = ()
    """Names of its sequence spaces."""
    probes: tuple[str, ...] = ()
    """Names of its probes."""
    disabled: str = ""
    """Why it cannot be used: a plug-in that does not load or fails; "" = it can."""


@dataclass(frozen=True, slots=True)
class FieldInfo:
    """One name that filters and columns may use."""

    name: str
    """Full dotted name."""
    kind: str
    """`int`, `float`, `str`, `bool`, `bytes`, `list`, `address`, `presence` or `any`."""
    meaning: str
    """One line for `netdissect fields`."""
    unit: str = ""
    """Unit of numbers."""
    least: float = -inf
    """The least number that it can hold, where that is known."""
    most: float = inf
    """The largest, likewise."""

    @classmethod
    def read(cls, name: str, text: str) -> Self:
        """Return what `text` of another one says, under a name, with no meaning."""
        kind, *limits = text.split()
        return cls(name, kind, "", "", *map(int, limits))

    @property
    def text(self) -> str:
        """Return the kind, and behind it the range of a number that has one."""
        return (
            self.kind
            if inf in (self.most, -self.least)
            else f"{self.kind} {self.least} {self.most}"
        )
