"""Netplay: frames follow each other in a stream; those of bin3 are cut into chunks."""

from __future__ import annotations

from typing import Any, ClassVar

from scapy.fields import ByteEnumField
from scapy.packet import Raw

from netdissect.layers import netplay as layers
from netdissect.layers.base import Layer
from netdissect.wire.netplay import CHUNK_NAMES

__all__ = ["NetplayOnlyChunk", "root", "wrap"]


class NetplayOnlyChunk(Layer):
    """A frame of bin3 that fits in one chunk."""

    name = "Netplay frame in one chunk"
    fields_desc: ClassVar[list[Any]] = [ByteEnumField("chunk_header", 0, CHUNK_NAMES)]

    def guess_payload_class(self, payload: bytes) -> type[Any]:
        """Return the layer of the frame."""
        return layers.NetplayFrame if payload else Raw


def wrap(dialect: str, transport: str, packet: Any) -> Any:
    """Return what carries a message in one dialect, None where the dialect does not have it."""
    del transport
    if dialect == "netplay-bin3" and isinstance(packet, layers.NetplayFrame):
        return NetplayOnlyChunk() / packet
    return packet


def root(dialect: str, transport: str, octets: bytes) -> type[Layer]:
    """Return the layer that reads and writes one message with its framing."""
    del transport
    if dialect == "netplay-text":
        return layers.NetplayText
    if dialect == "netplay-bin3":
        return NetplayOnlyChunk if octets[:1] == b"\0" else layers.NetplayChunk
    return layers.NetplayFrame
