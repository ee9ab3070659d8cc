"""Whole pieces of stream as Scapy packets: a list of frames, chunks or text messages.

The walker does not use them: `dissect/finishers/netplay.py` reads the same spans one by one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from scapy.fields import PacketListField
from scapy.packet import Packet

from netdissect.layers.base import Layer
from netdissect.layers.binding import StreamLayer
from netdissect.layers.fields import Tail
from netdissect.layers.netplay.frames import NetplayChunk, NetplayFrame
from netdissect.layers.netplay.text import NetplayText
from netdissect.wire.netplay import chunk_spans, frame_spans, line_spans

__all__ = ["NetplayChunkStream", "NetplayOctets", "NetplayStream", "NetplayTextStream"]


class Spans(PacketListField):  # type: ignore[misc]
    """Packets whose ends a function finds; the last may be cut short."""

    __slots__ = ["spans"]

    def __init__(
        self, name: str, item: type[Layer], spans: Callable[[bytes], Iterator[tuple[Any, ...]]]
    ) -> None:
        PacketListField.__init__(self, name, [], item)
        self.spans = spans

    def getfield(self, pkt: Any, s: bytes) -> tuple[bytes, list[Packet]]:
        """Read all packets."""
        return b"", [self.cls(s[span[0] : span[1]]) for span in self.spans(s)]


class _Stream(StreamLayer):
    """Messages whose ends a function finds."""

    @classmethod
    def whole(cls, data: bytes) -> int:
        """Return the bytes of the messages that are whole."""
        ends = [span[1] for span in cls.fields_desc[0].spans(data) if span[1] <= len(data)]
        return max(ends, default=0)


class NetplayStream(_Stream):
    """Frames of bin1 or bin2, one after the other."""

    name = "Netplay frames"
    fields_desc = [Spans("messages", NetplayFrame, frame_spans)]


class NetplayChunkStream(_Stream):
    """Chunks of bin3, one after the other."""

    name = "Netplay chunks"
    fields_desc = [Spans("chunks", NetplayChunk, chunk_spans)]


class NetplayTextStream(_Stream):
    """Text messages, one after the other."""

    name = "Netplay text messages"
    fields_desc = [Spans("messages", NetplayText, line_spans)]


class NetplayOctets(Layer):
    """A piece of stream of any dialect, before it is cut into messages."""

    name = "Netplay stream"
    fields_desc = [Tail("octets")]
