"""Teeworlds: messages stand in chunks, these and control messages in packets."""

from __future__ import annotations

from typing import Any

from netdissect.layers import teeworlds as layers
from netdissect.layers.teeworlds import controls, messages

__all__ = ["wrap"]


def wrap(dialect: str, transport: str, packet: Any) -> Any:
    """Return what carries a message in one dialect, None where the dialect does not have it."""
    del transport
    header = layers.ROOTS[dialect]
    family = "0.7" if header is layers.Tw07 else "0.6"
    kind = type(packet)
    extra: dict[str, Any] = {"token_flag": 1} if header is layers.Tw065 else {}
    if kind in controls.CONTROLS[header.dialect].values():
        return header(control_flag=1, num_chunks=0, **extra) / packet
    if kind in messages.CONNLESS[family].values():
        return (layers.Tw07Connless if family == "0.7" else layers.Tw06Connless)(body=packet)
    if kind in (*messages.MESSAGES[family].values(), *messages.UUID_MESSAGES.values()):
        chunk = layers.Tw07Chunk if family == "0.7" else layers.Tw06Chunk
        chunks = {"0.7": layers.Tw07Chunks, "ddnet-0.6": layers.TwDdnetChunks}.get(
            header.dialect, layers.Tw06Chunks
        )
        return header(**extra) / chunks(chunks=[chunk(vital=1, sequence=1, body=packet)])
    return packet if kind in (header, layers.Tw06Connless, layers.Tw07Connless) else None
