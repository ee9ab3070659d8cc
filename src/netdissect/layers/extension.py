"""Registers the layers with Scapy, for `conf.exts.load("netdissect")` in a shell."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from netdissect._version import __version__


def register(extension: Any, files: Mapping[str, Path]) -> None:
    """Register every layer package, so that `load_contrib(PROTOCOL)` finds it.

    Args:
        extension: Scapy's `ScapyExt`; see its `config` and `register`.
        files: protocol -> file of its layer package.

    """
    extension.config("netdissect", __version__)
    for name, file in files.items():
        extension.register(name, extension.MODE.CONTRIB, file)
