"""What a frame is, for those of which nothing is known above IP and TCP."""

from __future__ import annotations

from typing import NamedTuple

from netdissect.edit.frames import Fragments
from netdissect.flow import Decapsulator
from netdissect.model.packets import (
    ACK,
    FIN,
    RST,
    SYN,
    FlowKey,
    Frame,
    Packet,
    PacketKind,
    flow_texts,
)

_FLAGS = (("SYN", SYN), ("FIN", FIN), ("RST", RST), ("ACK", ACK))
_UNREAD = {
    "non_ip": "no IP packet, or one that is not captured",
    "too_deep": "too many nested tunnels, tags or extension headers",
    "malformed": "an IP, UDP or TCP header that is broken or not captured",
    "other_protocols": "an IP packet with neither UDP nor TCP",
    "fragments_bad": "an IP fragment that is cut or broken",
    "fragments": "an IP fragment",
}
"""Counter of `FlowStats` -> what a frame is that raises it and yields no packet. Those that are
counted twice are what the first counter says.
"""


class Bare(NamedTuple):
    """What a frame is, whatever it contains."""

    text: str
    stream: tuple[FlowKey, int] | None = None
    """Of TCP, the key of the direction and the ordinal of the connection, as in
    `DatagramRecord.stream`.
    """
    unfinished: bool = False
    """True for a fragment of a packet that may be completed by a later frame."""
    pieces: tuple[int, ...] = ()
    """Earlier frames with fragments of the packet that this frame completes."""


class BareFrames:
    """Reads the frames of one capture in order."""

    def __init__(self) -> None:
        self._flow = Decapsulator()
        self._fragments = Fragments()

    def take(self, frame: Frame) -> Bare:
        """Return what a frame is."""
        stats = self._flow.stats
        before = [getattr(stats, name) for name in _UNREAD]
        packets = self._flow.take((frame,))
        raised = [
            name
            for name, value in zip(_UNREAD, before, strict=True)
            if getattr(stats, name) != value
        ]
        pieces: tuple[int, ...] = ()
        if "fragments" in raised:
            whole = self._fragments.take(frame)
            if whole is None:
                return Bare(_UNREAD[raised[0]], unfinished=True)
            pieces = tuple(number for number, _, _ in whole.pieces if number != frame[0])
        for packet in packets:
            if packet[0] != PacketKind.TCP_STREAM:
                segment = packet[5]
                stream = None if segment is None else (packet[3], segment.connection)
                return Bare(_text(packet), stream, pieces=pieces)
        return Bare(_UNREAD[raised[0]] if raised else "a link type that is not read", pieces=pieces)


def _text(packet: Packet) -> str:
    kind, _, _, key, payload, segment, _ = packet
    if kind == PacketKind.ICMP_UNREACHABLE:
        source, target = flow_texts(key)
        _, _, reason = payload.decode().partition(" ")
        return f"ICMP {reason} for {source} \N{RIGHTWARDS ARROW} {target}"
    if segment is None:
        return f"UDP, {len(payload):,} bytes"
    flags = " ".join(name for name, flag in _FLAGS if segment.flags & flag)
    octets = f", {segment.payload_length:,} bytes" if segment.payload_length else ""
    return f"TCP {flags}".rstrip() + octets
