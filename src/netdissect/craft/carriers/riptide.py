"""Riptide: a message in a stream stands behind its length."""

from __future__ import annotations

from typing import Any

from netdissect.layers.riptide.common import RiptideMessage
from netdissect.layers.riptide.frames import FRAMES, RiptideFrame

__all__ = ["wrap"]


def wrap(dialect: str, transport: str, packet: Any) -> Any:
    """Return what carries a message in one dialect, None where the dialect does not have it."""
    if transport != "tcp":
        return packet
    frame = FRAMES.get(dialect, RiptideFrame)
    return frame(data=packet) if isinstance(packet, RiptideMessage) else None
