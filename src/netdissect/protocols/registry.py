"""The list of protocols. To add one takes a line here, or an entry point of a distribution."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any

from netdissect.dissect.foreign import faults
from netdissect.model.errors import UsageError, unknown
from netdissect.protocols.base import Protocol
from netdissect.protocols.foreign import admitted

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

_MODULES: dict[str, str] = {
    "eoudp": "netdissect.protocols.eoudp",  # first, as its size field refuses nearly all others
    "riptide": "netdissect.protocols.riptide",
    "knet": "netdissect.protocols.knet",
    "teeworlds": "netdissect.protocols.teeworlds",
    "netplay": "netdissect.protocols.netplay",
}
"""Name -> module that holds `PROTOCOL`; imported on first use. Flows are shown to them in this
order, and to no further one after a claim that is certain.
"""

ENTRY_POINT_GROUP = "netdissect.protocols"
"""Group of the entry points of other distributions: name = module (or module:object) that holds
`PROTOCOL`.
"""


@cache
def _entry_points() -> dict[str, EntryPoint]:
    """Return the entry points of other distributions by name.

    `importlib.metadata` takes a tenth of a short run, so it is used only if some distribution has
    an entry point of the group.
    """
    if not any(_has_plugin(folder) for folder in sys.path):
        return {}
    from importlib.metadata import entry_points  # noqa: PLC0415

    found = reversed(list(entry_points(group=ENTRY_POINT_GROUP)))  # the first of a name counts
    return {point.name: point for point in found}


def _has_plugin(folder: str) -> bool:
    """Return whether a distribution in a folder of Python's path has an entry point of the group.

    True as well for an archive, which is not searched.
    """
    try:
        with os.scandir(folder or ".") as entries:
            return any(_is_plugin(entry.path) for entry in entries
                       if entry.name.endswith((".dist-info", ".egg-info", "EGG-INFO")))
    except NotADirectoryError:
        return True
    except OSError:
        return False


def _is_plugin(path: str) -> bool:
    """Return whether the distribution with this metadata folder has an entry point of the group."""
    try:
        with open(os.path.join(path, "entry_points.txt"), "rb") as file:  # noqa: PTH118, PTH123 - fast
            return ENTRY_POINT_GROUP.encode() in file.read()
    except OSError:
        return False


@cache
def names() -> tuple[str, ...]:
    """Return the names of all protocols, the built-in ones first."""
    return (*_MODULES, *sorted(_entry_points().keys() - _MODULES))


@cache
def get(name: str) -> Protocol:
    """Return a protocol by name. That of a plug-in is guarded; see `foreign`.

    Raises:
        UsageError: no protocol has this name, or it is disabled.
    """
    if name in _MODULES:
        return import_module(_MODULES[name]).PROTOCOL  # type: ignore[no-any-return]
    if name in _entry_points():
        found = admitted(name, _entry_points()[name].load)
        if found is None:
            raise UsageError(f"protocol {name} is disabled: {faults[name]}")
        return found
    raise UsageError(unknown("protocol", name, names()))


def protocols(without: Iterable[str] = ()) -> tuple[Protocol, ...]:
    """Return all protocols except those named and the plug-ins that cannot be loaded."""
    excluded = frozenset(without)
    found = []
    for name in names():
        if name not in excluded:
            try:
                found.append(get(name))
            except UsageError:
                continue  # `foreign` has reported it
    return tuple(found)


def load(reference: str) -> Any:
    """Return the object that "module:name" refers to."""
    module, _, name = reference.partition(":")
    return getattr(import_module(module), name)
