# SPDX-License-Identifier: GPL-2.0-or-later
# scapy.contrib.description = Netplay
# scapy.contrib.status = loads

"""Scapy layers of Netplay (nichnet/netplay): frames of bin1 and bin2, chunks of bin3, and text."""

from __future__ import annotations

import re
from typing import Any, ClassVar

from scapy.fields import ByteEnumField
from scapy.packet import Raw

from netdissect.layers.base import Layer
from netdissect.layers.binding import bind_port, explorable
from netdissect.layers.netplay.frames import (
    NetplayChunk,
    NetplayFrame,
    NetplayShortFrame,
    chunks,
)
from netdissect.layers.netplay.streams import (
    NetplayChunkStream,
    NetplayOctets,
    NetplayStream,
    NetplayTextStream,
)
from netdissect.layers.netplay.text import NetplayText
from netdissect.model.annotations import code_rows
from netdissect.wire.netplay import CHUNK_NAMES, DIALECTS, PORTS, chunk_spans, frame_spans

__all__ = [
    "NetplayChunk",
    "NetplayChunkStream",
    "NetplayFrame",
    "NetplayOctets",
    "NetplayShortFrame",
    "NetplayStream",
    "NetplayText",
    "NetplayTextStream",
    "bind_netplay",
    "chunks",
]

CODES = code_rows("netplay")


def root(payload: bytes, request: Any) -> type[Layer]:
    """Return the layer of a piece of stream. The finisher splits it into messages."""
    del payload, request
    return NetplayOctets


TELLING_OCTETS = 16
"""Minimum number of bytes from which to judge the dialect: frames have no magic number."""
_STREAMS: dict[str, type[Layer]] = {
    "netplay-bin1": NetplayStream,
    "netplay-bin2": NetplayStream,
    "netplay-bin3": NetplayChunkStream,
    "netplay-text": NetplayTextStream,
}


def reader(_payload: bytes, request: Any) -> type[Layer]:
    """Return the layer with which Scapy reads the messages in a piece of stream."""
    return _STREAMS[request.dialect]


class NetplayOnlyChunk(Layer):
    """A frame of bin3 in a single chunk."""

    name = "Netplay frame in one chunk"
    fields_desc: ClassVar[list[Any]] = [ByteEnumField("chunk_header", 0, CHUNK_NAMES)]

    def guess_payload_class(self, payload: bytes) -> type[Any]:
        """Return the layer of the frame."""
        return NetplayFrame if payload else self.bound_layer(payload, Raw)


def wrap(packet: Any, request: Any) -> Any:
    """Return a message with its framing; in bin3 as a single chunk."""
    if request.dialect == "netplay-bin3" and isinstance(packet, NetplayFrame):
        return NetplayOnlyChunk() / packet
    return packet


def message_root(payload: bytes, request: Any) -> type[Layer]:
    """Return the layer of one message with its framing."""
    if request.dialect == "netplay-text":
        return NetplayText
    if request.dialect == "netplay-bin3":
        return NetplayOnlyChunk if payload[:1] == b"\0" else NetplayChunk
    return NetplayFrame


def likely(data: bytes, _transport: str) -> tuple[str, ...]:
    """Return the likeliest dialect of the start of a stream.

    In bin3 it is a chunk header (00 or 40) and a frame of the right length, in text a class name on
    one line and JSON on the next.
    """
    if data[:1] in (b"\x00", b"\x40") and _chunked(data):
        return ("netplay-bin3",)
    return ("netplay-text",) if _TEXT.match(data) else ("netplay-bin1",)


def _chunked(data: bytes) -> bool:
    """Return whether the first message is complete as chunks, but not as a frame."""
    first = next(iter(chunk_spans(data)), None)
    frame = next(iter(frame_spans(data)), None)
    fits = first is not None and first[1] <= len(data)
    return fits and not (frame is not None and frame[1] <= len(data) and frame[1] > _SHORTEST)


_TEXT = re.compile(rb"[A-Za-z_$][\w$]*\n\s*[\[{]")
"""A Java class name, and the start of a JSON object or array on the next line."""
_SHORTEST = 4
"""Bytes of the longest frame that has no room for options and type, hence is no message."""


def bind_netplay(port: int = PORTS[0], dialect: str | None = None) -> None:
    """Let Scapy dissect TCP at `port` as Netplay messages."""
    bind_port("netplay", port, dialect, DIALECTS, ("tcp",))


bind = bind_netplay


READERS: list[tuple[type[Layer], tuple[str, ...]]] = [
    (NetplayFrame, ("body",)),
    (NetplayText, ()),
]
"""(layer, fields to skip) for the derived readers that `protocols/netplay` calls."""
RULES: list[type[Layer]] = [NetplayShortFrame, NetplayChunk]
"""Layers of which `protocols/netplay` needs the soft rules alone."""

explorable("netplay", globals(), __all__)
