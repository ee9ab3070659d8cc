"""Pieces of a stream as Scapy packets: lists of frames, chunks or text messages.

The walker does not use them: `dissect/finishers/netplay.py` reads the messages one by one.
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


def _layer(item: Any, octets: bytes) -> type[Layer]:
    """Return the layer of an item; for a frame it depends on the length."""
    found: type[Layer] = item.dispatch_hook(octets) if item is NetplayFrame else item
    return found


class Spans(Items):
    """A list of packets that `spans` splits, a function that yields (start, end, ...) of each."""

    __slots__ = ["spans"]

    def __init__(
        self, name: str, item: type[Layer], spans: Callable[[bytes], Iterator[tuple[Any, ...]]]
    ) -> None:
        Items.__init__(self, name, item, choose=lambda _fields, octets: _layer(item, octets))
        self.spans = spans

    def getfield(self, pkt: Any, s: bytes) -> tuple[bytes, list[Packet]]:
        """Dissect all packets; the last one may be cut short."""
        return b"", [self.cls(s[span[0] : span[1]]) for span in self.spans(s)]


class _Stream(StreamLayer):
    """Base class of streams: one field, a list of messages."""

    @classmethod
    def complete_length(cls, data: bytes) -> int:
        """Return the length of the complete messages at the start of `data`, in bytes."""
        ends = [span[1] for span in cls.fields_desc[0].spans(data) if span[1] <= len(data)]
        return max(ends, default=0)

    def mysummary(self) -> str:
        """Return the one-line form of Scapy's `summary()`."""
        items = self.getfieldval(self.fields_desc[0].name)
        return summary_list([each.mysummary() or each.name for each in items]) or self.name


class NetplayStream(_Stream):
    """Consecutive frames of bin1 or bin2."""

    name = "Netplay frames"
    fields_desc = [Spans("messages", NetplayFrame, frame_spans)]


class NetplayChunkStream(_Stream):
    """Consecutive chunks of bin3."""

    name = "Netplay chunks"
    fields_desc = [Spans("chunks", NetplayChunk, chunk_spans)]

    def load_shown(self, shown: Mapping[str, Any], build: Callable[..., Any]) -> None:
        """Split the messages into new chunks, if they are not what the chunks hold.

        The headers stay if the number of chunks stays.
        """
        frames = [bytes(frame) for frame in build(NetplayStream, shown).messages]
        old = self.getfieldval("chunks")
        if not frames or b"".join(bytes(chunk.data) for chunk in old) == b"".join(frames):
            return
        new = [chunk for frame in frames for chunk in chunks(frame)]
        if len(old) == len(new):
            for chunk, before in zip(new, old, strict=True):
                chunk.chunk_header = before.chunk_header
        self.setfieldval("chunks", new)


class NetplayTextStream(_Stream):
    """Consecutive text messages."""

    name = "Netplay text messages"
    fields_desc = [Spans("messages", NetplayText, line_spans)]


class NetplayOctets(Layer):
    """A piece of stream in any dialect. The finisher adds the messages to its tree."""

    name = "Netplay stream"
    fields_desc: list[Any] = []
