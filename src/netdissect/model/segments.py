"""A TCP segment, and the bytes that it made readable. These are classes without properties:
compiled, creating one takes a few instructions, and its integers are not objects.
"""

from __future__ import annotations

from netdissect.model.native import mypyc_attr


@mypyc_attr(free_list_len=1)
class StreamPiece:
    """Consecutive bytes of a TCP direction that have just become readable in order."""

    __slots__ = ("data", "frames", "gap_octets", "offset")

    def __init__(
        self, offset: int, data: bytes, frames: tuple[int, ...], gap_octets: int = 0
    ) -> None:
        self.offset = offset
        """Offset in the stream of its direction. 0 is the byte after the SYN, or the first byte
        captured if the SYN was not.
        """
        self.data = data
        self.frames = frames
        """Numbers of the frames that the bytes came from, ascending."""
        self.gap_octets = gap_octets
        """Bytes right before this piece that are missing in the capture; 0 without a gap."""


@mypyc_attr(free_list_len=1)
class TcpSegment:
    """One TCP segment, and its effect on the stream of its direction."""

    __slots__ = (
        "ack", "connection", "flags", "ip_id", "mid_stream", "payload_length", "sack", "seq",
        "stream", "stream_start", "timestamps", "window",
    )  # fmt: skip

    def __init__(
        self, seq: int, ack: int, flags: int, window: int, payload_length: int, ip_id: int | None,
        timestamps: tuple[int, int] | None, sack: tuple[tuple[int, int], ...], stream_start: int,
        connection: int, stream: tuple[StreamPiece, ...], mid_stream: bool,  # noqa: FBT001
    ) -> None:  # fmt: skip
        self.seq = seq
        """Sequence number on the wire, 32 bits."""
        self.ack = ack
        """Acknowledgement number on the wire, 32 bits; valid only if `flags` has ACK (0x10)."""
        self.flags = flags
        """TCP flags, low 8 bits: FIN 1, SYN 2, RST 4, PSH 8, ACK 16."""
        self.window = window
        """Receive window as on the wire, unscaled."""
        self.payload_length = payload_length
        """Bytes of data on the wire, which may be more than were captured."""
        self.ip_id = ip_id
        """IPv4 identification; None for IPv6."""
        self.timestamps = timestamps
        """TCP timestamp option (value, echo), or None."""
        self.sack = sack
        """SACK blocks as (left edge, right edge), wire sequence numbers."""
        self.stream_start = stream_start
        """Unwrapped offset of the first data byte in the stream of its direction, counted as in
        `StreamPiece.offset`; negative for bytes before offset 0.
        """
        self.connection = connection
        """Ordinal of the TCP connection on these endpoints, from 1. A SYN with another initial
        sequence number starts the next one.
        """
        self.stream = stream
        """Bytes that became readable in order because of this segment."""
        self.mid_stream = mid_stream
        """True if the SYN of the connection is not in the capture."""
