"""Registers the layers with a Scapy shell, so that `conf.exts.load("netdissect")` finds them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from netdissect._version import __version__

__all__ = ["register"]


def register(extension: Any, files: Mapping[str, Path]) -> None:
    """Name every layer module to Scapy: afterwards `load_contrib(PROTOCOL)` works.

    Args:
        extension: Scapy's `ScapyExt`; see its `config` and `register`.
        files: protocol -> file of its layer module.

    """
    extension.config("netdissect", __version__)
    for name, file in files.items():
        extension.register(name, extension.MODE.CONTRIB, file)
