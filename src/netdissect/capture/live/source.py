"""What every live source is to those who read it."""

from __future__ import annotations

import os
import select
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Protocol

from netdissect.model.packets import Frame
from netdissect.model.reports import CaptureInfo
from netdissect.system.accounts import Account

__all__ = [
    "DRAIN_S",
    "MAX_SNAP_OCTETS",
    "Counts",
    "LiveRequest",
    "LiveSource",
    "PolledInput",
    "Wake",
]

DRAIN_S = 10.0
"""How long a source that was stopped is read for what came before, seconds."""
MAX_SNAP_OCTETS = 262_144
"""Bytes captured of a frame unless fewer are asked for. Source: libpcap MAXIMUM_SNAPLEN."""


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
    account: Account | None = None
    """Whom this process, if it is root, becomes before it parses."""


@dataclass(slots=True)
class Counts:
    """What became of the packets on the way; None where the source does not tell."""

    kernel: int | None = None
    """Packets that the kernel, the interface or the capture program dropped."""
    taken: int | None = None
    """Packets that the capture program (or the kernel, without one) says it took."""
    unread: bool = False
    """Whether the source was ended before it had handed over all that came before."""


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
        """Have `batches` end soon, after what is on its way; also in a copy of this process."""

    def end(self) -> None:
        """Have `batches` end at once: a limit is reached. For whoever reads them."""

    def hand_over(self) -> None:
        """Leave the reading to a copy of this process: it alone holds the device now."""

    def take_over(self) -> None:
        """Be that copy: the end of the other process is a `stop`."""

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
        """Interrupt the poll now and for ever, here and in a copy of this process."""
        if not self.set:
            self.set = True
            with suppress(OSError):  # the copy is gone
                os.write(self._ends[1], b"!")

    def leave(self) -> None:
        """Be called at the latest when the process that this one is a copy of ends."""
        os.close(self._ends[1])
        self._ends = (self._ends[0], -1)

    def close(self) -> None:
        """Let go of the pipe."""
        self.set = True
        for end in self._ends:
            if end >= 0:
                os.close(end)


class PolledInput:
    """A pipe or file that is read as bytes arrive, until it ends or its reader is woken.

    Once woken it reads on until nothing comes for a while, or `finish` is called: what a program
    and its kernel buffer hold was there before. Then the program is ended, and the rest read.

    Args:
        fd: where to read; it stays open.
        wake: ends the reading.
        quiet_s: the time without bytes after which nothing is left.
        grace_s: how long the rest is waited for.
        end: ends the program that writes.

    """

    name = "<capture>"
    """What the capture is called that is read from it."""

    def __init__(
        self,
        fd: int,
        wake: Wake,
        *,
        quiet_s: float = 0.0,
        grace_s: float = 0.0,
        end: Callable[[], None] | None = None,
    ) -> None:
        self._fd = fd
        self._wake = wake
        self._quiet_s = quiet_s
        self._grace_s = grace_s
        self._end = end
        self._deadline = 0.0
        self._finished = False
        self.woken_ns: int | None = None
        """When it was woken: time of the system, as that of packets."""
        self.unread = False
        """Whether it was still busy with what came before when its time was over."""

    # No `fileno`: whoever reads this shall not wait for the descriptor alone.

    def read(self, size: int) -> bytes:
        """Return at least one byte and at most `size`; b"" at the end."""
        while not self._wake.set:
            ready, _, _ = select.select([self._fd, self._wake.fileno()], [], [])
            self._wake.set = self._wake.fileno() in ready
            if self._fd in ready:
                return os.read(self._fd, size)
        if self.woken_ns is None:
            self.woken_ns = time.clock_gettime_ns(time.CLOCK_REALTIME)
            self._deadline = time.monotonic() + DRAIN_S
        if not self._finished and self._quiet_s:
            ready, _, _ = select.select([self._fd], [], [], self._quiet_s)
            self.unread = bool(ready) and time.monotonic() > self._deadline
            if ready and not self.unread:
                return os.read(self._fd, size)
        self.finish()
        ready, _, _ = select.select([self._fd], [], [], self._grace_s)
        return os.read(self._fd, size) if ready and self._grace_s else b""

    def caught_up(self, time_ns: int) -> None:
        """Take note of the time of a packet: after one that came later, nothing is missing."""
        if self.woken_ns is not None and time_ns >= self.woken_ns:
            self.finish()

    def finish(self) -> None:
        """End the program; what it still hands over can be read."""
        if not self._finished:
            self._finished = True
            if self._end is not None:
                self._end()
