"""Whole pieces of stream as Scapy packets: a list of frames, chunks or text messages.

The walker does not use them: `dissect/finishers/netplay.py` reads the same spans one by one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from scapy.packet import Packet

from netdissect.layers.base import Layer, summary_list
from netdissect.layers.binding import StreamLayer
from netdissect.layers.fields import Items
from netdissect.layers.netplay.frames import NetplayChunk, NetplayFrame, chunks
from netdissect.layers.netplay.text import NetplayText
from netdissect.wire.netplay import chunk_spans, frame_spans, line_spans

__all__ = ["NetplayChunkStream", "NetplayOctets", "NetplayStream", "NetplayTextStream"]


def _layer(item: Any, octets: bytes) -> type[Layer]:
    """Return the layer of an item: that of a frame depends on its length."""
    found: type[Layer] = item.dispatch_hook(octets) if item is NetplayFrame else item
    return found


class Spans(Items):
    """Packets whose ends a function finds; the last may be cut short."""

    __slots__ = ["spans"]

    def __init__(
        self, name: str, item: type[Layer], spans: Callable[[bytes], Iterator[tuple[Any, ...]]]
    ) -> None:
        Items.__init__(self, name, item, choose=lambda _fields, octets: _layer(item, octets))
        self.spans = spans

    def getfield(self, pkt: Any, s: bytes) -> tuple[bytes, list[Packet]]:
        """Read all packets."""
        return b"", [self.cls(s[span[0] : span[1]]) for span in self.spans(s)]


class _Stream(StreamLayer):
    """Messages whose ends a function finds."""

    @classmethod
    def complete_length(cls, data: bytes) -> int:
        """Return the bytes of the messages that are whole."""
        ends = [span[1] for span in cls.fields_desc[0].spans(data) if span[1] <= len(data)]
        return max(ends, default=0)

    def mysummary(self) -> str:
        """Return the one-line form of Scapy's `summary()`."""
        items = self.getfieldval(self.fields_desc[0].name)
        return summary_list([each.mysummary() or each.name for each in items]) or self.name


class NetplayStream(_Stream):
    """Frames of bin1 or bin2, one after the other."""

    name = "Netplay frames"
    fields_desc = [Spans("messages", NetplayFrame, frame_spans)]


class NetplayChunkStream(_Stream):
    """Chunks of bin3, one after the other."""

    name = "Netplay chunks"
    fields_desc = [Spans("chunks", NetplayChunk, chunk_spans)]

    def load_shown(self, shown: Mapping[str, Any], build: Callable[..., Any]) -> None:
        """Cut messages that the chunks do not hold; as many chunks keep their headers."""
        frames = [bytes(frame) for frame in build(NetplayStream, shown).messages]
        told = self.getfieldval("chunks")
        if not frames or b"".join(bytes(chunk.data) for chunk in told) == b"".join(frames):
            return
        made = [chunk for frame in frames for chunk in chunks(frame)]
        if len(told) == len(made):
            for chunk, before in zip(made, told, strict=True):
                chunk.chunk_header = before.chunk_header
        self.setfieldval("chunks", made)


class NetplayTextStream(_Stream):
    """Text messages, one after the other."""

    name = "Netplay text messages"
    fields_desc = [Spans("messages", NetplayText, line_spans)]


class NetplayOctets(Layer):
    """A piece of stream of any dialect: it has messages, and no fields of its own."""

    name = "Netplay stream"
    fields_desc: list[Any] = []
