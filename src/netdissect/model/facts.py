"""What can be said about a frame below the protocols, for comparing with another program."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Difference", "FrameFacts"]


@dataclass(frozen=True, slots=True)
class FrameFacts:
    """One UDP datagram or TCP segment, named by the frame that completed it."""

    frame: int
    """Frame number from 1."""
    time_ns: int
    """Time of the frame, ns since the Unix epoch."""
    transport: str
    """`udp` or `tcp`."""
    src: str
    """"address:port"."""
    dst: str
    length: int
    """Payload bytes on the wire."""
    seq: int | None = None
    """TCP sequence number on the wire."""
    ack: int | None = None
    """TCP acknowledgement number on the wire."""
    flags: int | None = None
    """TCP flags, low 8 bits."""


@dataclass(frozen=True, slots=True)
class Difference:
    """One thing that two programs say differently about a frame."""

    frame: int
    what: str
    """Name of the fact, or `frame` where one of them does not have it at all."""
    ours: object
    theirs: object
    known: str = ""
    """Why, where the other program is known to be wrong."""
