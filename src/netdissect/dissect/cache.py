"""A cache, between runs, of what is derived from a plug-in's layers: readers and field names.

For our own layers this is part of a release. For a plug-in it is derived on first use, which
imports Scapy, and stored in the user's cache folder until the plug-in's source changes. Readers
are code that is executed: a file that the user does not own, or that others may write, is ignored.
"""

from __future__ import annotations

import hashlib
import json
import os
import stat
import sys
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any

from netdissect._version import __version__
from netdissect.model.files import atomic_write

MAX_OCTETS = 1 << 20
"""Maximum size of a cached file in bytes."""


@cache
def readers(layers: str) -> Any:
    """Return a module with the derived readers of a layer module.

    Args:
        layers: name of the layer module, whose table `READERS` lists the layers.

    """

    def derive() -> str:
        from netdissect.dissect.derive import module_source  # noqa: PLC0415 - imports scapy

        return module_source(layers)

    text = _cached(layers, "readers.py", derive)
    module = ModuleType(f"{layers}.readers")
    # Safe: derived from the installed layers, now or in an earlier run of this user.
    exec(compile(text, f"<readers of {layers}>", "exec"), vars(module))  # noqa: S102
    return module


def field_kinds(layers: str) -> dict[str, str]:
    """Return field name -> `FieldInfo.text` for the layers of a module."""

    def derive() -> str:
        from netdissect.dissect.engine import layer_module  # noqa: PLC0415 - imports scapy
        from netdissect.dissect.names import layer_fields  # noqa: PLC0415

        found = layer_fields(layer_module(layers))
        return json.dumps({name: info.text for name, info in found.items()}, sort_keys=True)

    return json.loads(_cached(layers, "fields.json", derive))  # type: ignore[no-any-return]


def folder() -> Path | None:
    """Return the cache folder, created if necessary; None if there is no safe one."""
    base = os.environ.get("XDG_CACHE_HOME") or ""
    try:
        place = (Path(base) if base.startswith("/") else Path.home() / ".cache") / "netdissect"
        place.mkdir(mode=0o700, parents=True, exist_ok=True)
        return place if _is_own(place.lstat(), stat.S_IFDIR) else None
    except (OSError, RuntimeError):
        return None


def _is_own(found: os.stat_result, kind: int) -> bool:
    """Return whether a file is of this kind and belongs to this user, and nobody else may write."""
    return (
        stat.S_IFMT(found.st_mode) == kind
        and found.st_uid == os.geteuid()
        and not found.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
    )


def _cached(layers: str, what: str, derive: Callable[[], str]) -> str:
    """Return the cached text for the current source files, else derive and cache it."""
    place, key = folder(), _key(layers)
    if place is None or key is None:
        return derive()
    path = place / f"{layers}-{key}-{what}"
    text = _read(path)
    if text is None:
        text = derive()
        _write(path, text)
        for old in place.glob(f"{layers}-*-{what}"):
            if old != path:
                old.unlink(missing_ok=True)
    return text


def _key(layers: str) -> str | None:
    """Return a digest of all that the derived text depends on; None if the source has no files."""
    # Readers contain sizes, names and code of fields, which may be in any file of the package.
    spec = find_spec(layers.partition(".")[0])
    if spec is None or spec.origin is None:
        return None
    origin = Path(spec.origin)
    files = sorted(origin.parent.rglob("*.py")) if spec.submodule_search_locations else [origin]
    digest = hashlib.sha256(f"{__version__} {sys.version_info[:2]}".encode())
    try:
        for file in files:
            digest.update(hashlib.sha256(file.read_bytes()).digest())
        # Another netdissect may derive another text.
        here = Path(__file__).parent
        for file in (*sorted(here.glob("derive*.py")), here / "names.py"):
            digest.update(hashlib.sha256(file.read_bytes()).digest())
    except OSError:
        return None
    return digest.hexdigest()[:32]


def _read(path: Path) -> str | None:
    """Return the text of a cached file; None if it is missing or not safe."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return None
    with os.fdopen(descriptor, "rb") as file:
        found = os.fstat(descriptor)
        if not _is_own(found, stat.S_IFREG) or found.st_size > MAX_OCTETS:
            return None
        return file.read(MAX_OCTETS).decode("utf-8", "replace")


def _write(path: Path, text: str) -> None:
    """Cache a text, whole or not at all. Failing to do so is no error."""
    with suppress(OSError), atomic_write(path, 0o600) as file:
        file.write(text)
