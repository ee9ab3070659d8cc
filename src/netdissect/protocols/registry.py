"""The list of protocols. Adding one is one line here, or an entry point of another distribution."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from importlib import import_module
from importlib.metadata import entry_points
from typing import Any

from netdissect.dissect.foreign import faults
from netdissect.model.errors import UsageError, did_you_mean
from netdissect.model.text import quoted
from netdissect.protocols.base import Protocol
from netdissect.protocols.foreign import admitted

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
    """Return a protocol by name; one of another distribution is watched, see `foreign`.

    Raises:
        UsageError: no protocol has this name, or it is disabled.
    """
    if name in _MODULES:
        return import_module(_MODULES[name]).PROTOCOL  # type: ignore[no-any-return]
    for point in entry_points(group=ENTRY_POINT_GROUP, name=name):
        found = admitted(name, point.load)
        if found is None:
            raise UsageError(f"protocol {name} is disabled: {faults[name]}")
        return found
    near = did_you_mean(name, names()) or f"; known: {', '.join(names())}"
    raise UsageError(f"no protocol is called {quoted(name)}{near}")


def protocols(without: Iterable[str] = ()) -> tuple[Protocol, ...]:
    """Return all protocols that load but those named; a plug-in that does not is disabled."""
    left_out = frozenset(without)
    found = []
    for name in names():
        if name not in left_out:
            try:
                found.append(get(name))
            except UsageError:
                continue  # `foreign` has named it
    return tuple(found)


def load(place: str) -> Any:
    """Return what a place "module:name" of a protocol's row names."""
    module, _, name = place.partition(":")
    return getattr(import_module(module), name)
