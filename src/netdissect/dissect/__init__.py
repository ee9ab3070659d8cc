"""From bytes to annotated trees: the walker, the derived readers and user schemas.

Importing this package does not import Scapy; the first call of `dissect()` does.
"""

from __future__ import annotations

from netdissect.dissect.engine import dissect

__all__ = ["dissect"]
