"""Codes of the findings on what goes wrong below the protocols."""

from __future__ import annotations

from typing import Final

from netdissect.model.annotations import code_rows

__all__ = [
    "CAPTURE_DUPLICATE",
    "FLOW_CODES",
    "FRAGMENT_OVERLAP",
    "IP_LENGTH",
    "SNAPPED",
    "TCP_OUT_OF_WINDOW",
    "TCP_OVERLAP",
    "UDP_LENGTH",
    "joined",
]

SNAPPED: Final = "snapped"
"""Row of the catalogue's part `common`."""
CAPTURE_DUPLICATE: Final = "capture-duplicate"
FRAGMENT_OVERLAP: Final = "ip-fragment-overlap"
IP_LENGTH: Final = "ip-length"
UDP_LENGTH: Final = "udp-length"
TCP_OVERLAP: Final = "tcp-overlap"
TCP_OUT_OF_WINDOW: Final = "tcp-out-of-window"

FLOW_CODES: Final = code_rows("flow")
"""Codes that `Packet` tuples carry, besides `snapped`."""


def joined(faults: tuple[str, ...], *more: str) -> tuple[str, ...]:
    """Return fault codes with some added, each once, in order of discovery."""
    return tuple(dict.fromkeys((*faults, *more)))
