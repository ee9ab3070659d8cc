"""Facts about frames below the game protocols, for comparing netdissect with another program."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class FrameFacts:
    """One UDP datagram or TCP segment."""

    frame: int
    """Number, from 1, of the frame that completed it."""
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
    """One fact about a frame on which two programs disagree."""

    frame: int
    what: str
    """Name of the fact, or `frame` if only one of the programs has the frame at all."""
    ours: object
    theirs: object
    known: str = ""
    """The reason, if the other program is known to be wrong."""
