"""The list of protocols. Adding one is one line here, or an entry point of another distribution."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from importlib import import_module
from importlib.metadata import entry_points
from typing import Any

from netdissect.model.errors import UsageError
from netdissect.protocols.base import Protocol

__all__ = ["get", "load", "names", "protocols"]

_MODULES: dict[str, str] = {
    "riptide": "netdissect.protocols.riptide",
    "knet": "netdissect.protocols.knet",
    "teeworlds": "netdissect.protocols.teeworlds",
    "eoudp": "netdissect.protocols.eoudp",
    "netplay": "netdissect.protocols.netplay",
}
"""Name -> module that holds `PROTOCOL`; imported on first use."""

ENTRY_POINT_GROUP = "netdissect.protocols"
"""Entry points of other distributions: name = module (or module:object) with `PROTOCOL`."""


@cache
def names() -> tuple[str, ...]:
    """Return the names of all protocols, ours first."""
    others = sorted(point.name for point in entry_points(group=ENTRY_POINT_GROUP))
    return (*_MODULES, *(name for name in others if name not in _MODULES))


@cache
def get(name: str) -> Protocol:
    """Return a protocol by name.

    Raises:
        UsageError: no protocol has this name.
    """
    if name in _MODULES:
        return _object(import_module(_MODULES[name]))
    for point in entry_points(group=ENTRY_POINT_GROUP, name=name):
        return _object(point.load())
    raise UsageError(f"no protocol named {name!r}; known: {', '.join(names())}")


def protocols(without: Iterable[str] = ()) -> tuple[Protocol, ...]:
    """Return all protocols but those named."""
    left_out = frozenset(without)
    return tuple(get(name) for name in names() if name not in left_out)


def load(place: str) -> Any:
    """Return what a place "module:name" of a protocol's row names."""
    module, _, name = place.partition(":")
    return getattr(import_module(module), name)


def _object(loaded: object) -> Protocol:
    found = getattr(loaded, "PROTOCOL", loaded)
    if not isinstance(found, Protocol):
        raise UsageError(f"{loaded!r} holds no netdissect protocol")
    return found
