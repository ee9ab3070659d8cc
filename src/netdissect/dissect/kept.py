"""What is derived from a plug-in's layers, kept between runs: its readers and its field names.

The layers of ours are read when a release is made; those of another distribution on first use,
which imports Scapy. What comes out is kept in the user's own cache folder and used as long as the
source files that it came from are the same. A file that this user does not own, or that others may
write to, is not read: a reader is run.
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

__all__ = ["field_kinds", "folder", "readers"]

MAX_OCTETS = 1 << 20
"""Size of a kept file at most."""


@cache
def readers(layers: str) -> Any:
    """Return a module with the derived reader of each layer in the `READERS` of a layer module.

    Args:
        layers: name of the layer module.

    """

    def derived() -> str:
        from netdissect.dissect.derive import module_source  # noqa: PLC0415 - imports scapy

        return module_source(layers)

    text = _kept(layers, "readers.py", derived)
    module = ModuleType(f"{layers}.readers")
    # The text was made here from the layers, now or in an earlier run of this user.
    exec(compile(text, f"<readers of {layers}>", "exec"), vars(module))  # noqa: S102
    return module


def field_kinds(layers: str) -> dict[str, str]:
    """Return field name -> `FieldInfo.text` over the layers of a module."""

    def derived() -> str:
        from netdissect.dissect.engine import layer_module  # noqa: PLC0415 - imports scapy
        from netdissect.dissect.names import layer_fields  # noqa: PLC0415

        found = layer_fields(layer_module(layers))
        return json.dumps({name: info.text for name, info in found.items()}, sort_keys=True)

    return json.loads(_kept(layers, "fields.json", derived))  # type: ignore[no-any-return]


def folder() -> Path | None:
    """Return the folder for what is kept, made if need be; None where there is no safe one."""
    base = os.environ.get("XDG_CACHE_HOME") or ""
    try:
        place = (Path(base) if base.startswith("/") else Path.home() / ".cache") / "netdissect"
        place.mkdir(mode=0o700, parents=True, exist_ok=True)
        return place if _is_own(place.lstat(), stat.S_IFDIR) else None
    except (OSError, RuntimeError):
        return None


def _is_own(found: os.stat_result, kind: int) -> bool:
    """Return whether a file is this user's, of that kind, and nobody else may write to it."""
    return (
        stat.S_IFMT(found.st_mode) == kind
        and found.st_uid == os.geteuid()
        and not found.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
    )


def _kept(layers: str, what: str, derived: Callable[[], str]) -> str:
    """Return a text that was kept for these very source files, else derive it and keep it."""
    place, key = folder(), _key(layers)
    if place is None or key is None:
        return derived()
    path = place / f"{layers}-{key}-{what}"
    text = _read(path)
    if text is None:
        text = derived()
        _write(path, text)
        for old in place.glob(f"{layers}-*-{what}"):
            if old != path:
                old.unlink(missing_ok=True)
    return text


def _key(layers: str) -> str | None:
    """Return what changes with the source of the layers; None where it has no files."""
    # Names, sizes and field classes may stand anywhere in the package, and readers hold them.
    spec = find_spec(layers.partition(".")[0])
    if spec is None or spec.origin is None:
        return None
    origin = Path(spec.origin)
    files = sorted(origin.parent.rglob("*.py")) if spec.submodule_search_locations else [origin]
    digest = hashlib.sha256(f"{__version__} {sys.version_info[:2]}".encode())
    try:
        for file in files:
            digest.update(hashlib.sha256(file.read_bytes()).digest())
        # A new netdissect derives anew, too.
        for file in (Path(__file__).with_name("derive.py"), Path(__file__).with_name("names.py")):
            digest.update(hashlib.sha256(file.read_bytes()).digest())
    except OSError:
        return None
    return digest.hexdigest()[:32]


def _read(path: Path) -> str | None:
    """Return the text of a kept file; None where there is none that may be used."""
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
    """Keep a text, whole or not at all; not being able to is no fault."""
    with suppress(OSError), atomic_write(path, 0o600) as file:
        file.write(text)
