"""What every live source is to those who read it."""

from __future__ import annotations

import os
import select
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Protocol

from netdissect.model.packets import Frame
from netdissect.model.reports import CaptureInfo

__all__ = ["MAX_SNAP_OCTETS", "Counts", "LiveRequest", "LiveSource", "PolledInput", "Wake"]

MAX_SNAP_OCTETS = 262_144
"""Octets captured of a frame unless fewer are asked for. Source: libpcap MAXIMUM_SNAPLEN."""


@dataclass(frozen=True, slots=True)
class LiveRequest:
    """What is to be captured, and how."""

    interface: str | None = None
    """Name or number of an interface."""
    file: str | None = None
    """Instead of an interface: a capture file to take the same way, `-` for standard input."""
    backend: str | None = None
    """One of BACKENDS; None = the best that is usable."""
    capture_filter: str = ""
    """In libpcap's language; "" = everything."""
    snap_octets: int = MAX_SNAP_OCTETS
    promiscuous: bool = True
    recorded: bool = False
    """Whether a file is written: then nothing lost counts for more than shown at once."""
    preferences: tuple[str, ...] = ()
    """For tshark: `-o name:value`."""


@dataclass(slots=True)
class Counts:
    """What was lost on the way; None where the source does not tell."""

    kernel: int | None = None
    """Packets that the kernel, the interface or the capture program dropped."""


class LiveSource(Protocol):
    """Hands out frames as they arrive; `stop` may be called from any thread or signal handler."""

    backend: str
    info: CaptureInfo
    link_type: int | None
    """Link type of its frames, where it is known before the first."""
    counts: Counts
    """Complete when `batches` has ended."""
    fault: str | None
    """Why the capture ended without being told to; None for a proper end."""
    live: bool
    """False for a file: it waits for its reader, an interface does not."""
    settle_s: float
    """How long after `stop` it may still hand over frames that came before, seconds."""

    def batches(self) -> Iterator[list[Frame]]:
        """Yield frames, numbered from 1, in lists that became readable together."""

    def stop(self) -> None:
        """Have `batches` end soon, after what is on its way."""

    def close(self) -> None:
        """Let go of the device or program; `batches` must have ended or never be read again."""


@dataclass(slots=True)
class Wake:
    """Lets any thread or signal handler interrupt a poll."""

    _ends: tuple[int, int] = field(default_factory=os.pipe)
    set: bool = False

    def __post_init__(self) -> None:
        """Make sure that setting it never blocks."""
        os.set_blocking(self._ends[1], False)

    def fileno(self) -> int:
        """Return what to poll."""
        return self._ends[0]

    def call(self) -> None:
        """Interrupt the poll now and for ever."""
        if not self.set:
            self.set = True
            os.write(self._ends[1], b"!")

    def close(self) -> None:
        """Let go of the pipe."""
        self.set = True
        for end in self._ends:
            os.close(end)


class PolledInput:
    """A pipe or file that is read as octets arrive, until it ends or its reader is woken.

    Args:
        fd: where to read; it stays open.
        wake: ends the reading.
        grace_s: how long to go on reading once woken, for what is on its way.

    """

    def __init__(self, fd: int, wake: Wake, *, grace_s: float = 0.0) -> None:
        self._fd = fd
        self._wake = wake
        self._grace_s = grace_s
        self.name = "<capture>"

    # No `fileno`: whoever reads this shall not wait for the descriptor alone.

    def read(self, size: int) -> bytes:
        """Return at least one octet and at most `size`; b"" at the end."""
        while not self._wake.set:
            ready, _, _ = select.select([self._fd, self._wake.fileno()], [], [])
            if self._fd in ready:
                return os.read(self._fd, size)
        ready, _, _ = select.select([self._fd], [], [], self._grace_s)
        return os.read(self._fd, size) if ready and self._grace_s else b""
