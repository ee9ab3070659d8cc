"""Descriptions of protocols, dialects and fields: what `protocols` and `fields` print, and what
filters check names against.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import Self


@dataclass(frozen=True, slots=True)
class DialectInfo:
    """One dialect of a protocol."""

    name: str
    """Full name."""
    title: str
    """The versions of the program that use it."""
    message_types: tuple[str, ...]
    """Names of its message types, as counted by `connections`."""


@dataclass(frozen=True, slots=True)
class ProtocolInfo:
    """One protocol."""

    name: str
    """Lower-case name."""
    title: str
    """Name for people."""
    dialects: tuple[DialectInfo, ...]
    """The first one is assumed when the dialect cannot be determined."""
    transports: tuple[str, ...]
    """`udp`, `tcp` or both."""
    default_ports: tuple[int, ...]
    """Ports that its programs use by default."""
    spaces: tuple[str, ...] = ()
    """Names of its sequence spaces."""
    probes: tuple[str, ...] = ()
    """Names of its probes."""
    disabled: str = ""
    """Why it cannot be used (a plug-in that fails, for example); "" if it can."""


@dataclass(frozen=True, slots=True)
class FieldInfo:
    """A field that filters and columns may name."""

    name: str
    """Full dotted name."""
    kind: str
    """`int`, `float`, `str`, `bool`, `bytes`, `list`, `address`, `presence` or `any`."""
    meaning: str
    """One line for `netdissect fields`."""
    unit: str = ""
    """Unit of a number."""
    minimum: float = -inf
    """Smallest possible number, if known."""
    maximum: float = inf
    """Largest possible number, if known."""

    @classmethod
    def parse(cls, name: str, text: str) -> Self:
        """Return the description of field `name` from what `FieldInfo.text` returned for it."""
        kind, *limits = text.split()
        return cls(name, kind, "", "", *map(int, limits))

    @property
    def text(self) -> str:
        """Return the kind, followed by the range of a number if it is known: `int 0 255`."""
        return (
            self.kind
            if inf in (self.maximum, -self.minimum)
            else f"{self.kind} {self.minimum} {self.maximum}"
        )
