"""Codes of the findings about IP, UDP, TCP and the capture itself."""

from __future__ import annotations

from typing import Final

from netdissect.model.annotations import code_rows

SNAPPED: Final = "snapped"
"""Its row is in the part `common` of the catalogue."""
CAPTURE_DUPLICATE: Final = "capture-duplicate"
FRAGMENT_OVERLAP: Final = "ip-fragment-overlap"
IP_LENGTH: Final = "ip-length"
UDP_LENGTH: Final = "udp-length"
TCP_OVERLAP: Final = "tcp-overlap"
TCP_OUT_OF_WINDOW: Final = "tcp-out-of-window"

FLOW_CODES: Final = code_rows("flow")
"""Rows of the codes in `Packet` tuples, except `snapped`."""


def joined(faults: tuple[str, ...], *more: str) -> tuple[str, ...]:
    """Return all fault codes, each once, in the order of discovery."""
    return tuple(dict.fromkeys((*faults, *more)))
