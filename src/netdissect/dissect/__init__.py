"""From bytes to annotated trees: the walker, the derived readers, user schemas.

Importing this package imports no scapy; `dissect()` does, on first use.
"""

from __future__ import annotations

from netdissect.dissect.engine import dissect

__all__ = ["dissect"]
