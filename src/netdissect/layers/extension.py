"""Registers the layers with a Scapy shell, so that `conf.exts.load("netdissect")` finds them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from netdissect._version import __version__
from netdissect.layers import PROTOCOLS

__all__ = ["register"]


def register(extension: Any) -> None:
    """Name every layer module to Scapy: afterwards `load_contrib("riptide")` and the like work.

    Args:
        extension: Scapy's `ScapyExt`; see its `config` and `register`.

    """
    folder = Path(__file__).parent
    extension.config("netdissect", __version__)
    for name in PROTOCOLS:
        extension.register(name, extension.MODE.CONTRIB, (folder / name / "__init__.py").absolute())
