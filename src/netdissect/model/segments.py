"""A TCP segment, and the bytes that it made readable. Classes: compiled, one is made in a few
instructions, and its numbers are no objects.
"""

from __future__ import annotations

__all__ = ["StreamPiece", "TcpSegment"]


class StreamPiece:
    """Consecutive bytes of a TCP direction that have just become readable in order."""

    __slots__ = ("data", "frames", "gap_octets", "offset")

    def __init__(
        self, offset: int, data: bytes, frames: tuple[int, ...], gap_octets: int = 0
    ) -> None:
        self.offset = offset
        """Offset in the direction's stream, 0 = the byte after the SYN (or the first byte seen,
        mid-stream).
        """
        self.data = data
        """The bytes."""
        self.frames = frames
        """Frame numbers that the bytes came from, ascending."""
        self.gap_octets = gap_octets
        """Bytes missing right before this piece because the capture does not have them; 0 where the
        stream is whole.
        """


class TcpSegment:
    """One TCP segment, and what it meant for the stream of its direction."""

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
        """Acknowledgement number on the wire, 32 bits; only with ACK (0x10) in `flags`."""
        self.flags = flags
        """TCP flags, low 8 bits: FIN 1, SYN 2, RST 4, PSH 8, ACK 16."""
        self.window = window
        """Receive window as on the wire, unscaled."""
        self.payload_length = payload_length
        """Bytes of data on the wire (may be more than captured)."""
        self.ip_id = ip_id
        """IPv4 identification; None for IPv6."""
        self.timestamps = timestamps
        """TCP timestamp option (value, echo), or None."""
        self.sack = sack
        """SACK blocks as (left edge, right edge), wire sequence numbers."""
        self.stream_start = stream_start
        """Extended (unwrapped) offset of the first data byte in this direction's stream; may be
        negative before the base.
        """
        self.connection = connection
        """Ordinal of the TCP connection on this 4-tuple, from 1: a new SYN with another ISN starts
        the next.
        """
        self.stream = stream
        """What became readable in order because of this segment."""
        self.mid_stream = mid_stream
        """True where the connection's SYN is not in the capture."""
