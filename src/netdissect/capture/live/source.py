"""The interface of all live sources, and how a process reads from a source that may be stopped."""

from __future__ import annotations

import os
import select
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Protocol

from netdissect.model.packets import MAX_SNAP_OCTETS, Frame
from netdissect.model.reports import CaptureInfo
from netdissect.system.accounts import Account

DRAIN_S = 10.0
"""How long a stopped source is read for packets that were captured before, seconds."""


@dataclass(frozen=True, slots=True)
class LiveRequest:
    """What to capture, and how."""

    interface: str | None = None
    """Name or number of an interface."""
    file: str | None = None
    """Instead of an interface: a capture file to read like one, `-` for standard input."""
    backend: str | None = None
    """One of BACKENDS; None = the best that is usable."""
    capture_filter: str = ""
    """A filter in libpcap's syntax; "" = everything."""
    snap_octets: int = MAX_SNAP_OCTETS
    promiscuous: bool = True
    recorded: bool = False
    """Whether a file is written: avoiding loss is then more important than a short delay."""
    preferences: tuple[str, ...] = ()
    """tshark's preferences, each `name:value`."""
    account: Account | None = None
    """The account that this process changes to before it parses, if it is root."""


@dataclass(slots=True)
class Counts:
    """Losses before packets reached this process; None if the source does not report them."""

    kernel: int | None = None
    """Packets that the kernel, the interface or the capture program dropped."""
    taken: int | None = None
    """Packets that the capture program (or the kernel) reports as captured."""
    unread: bool = False
    """Whether the source was ended before all packets captured until then were read."""


class LiveSource(Protocol):
    """Yields frames as they arrive; `stop` may be called from any thread or signal handler."""

    backend: str
    info: CaptureInfo
    link_type: int | None
    """Link type of its frames; None if it is unknown before the first one."""
    counts: Counts
    """Complete when `batches` has ended."""
    fault: str | None
    """Why the capture ended by itself; None if it did not."""
    live: bool
    """True for an interface; False for a file, which may wait for its reader."""
    settle_s: float
    """How long after `stop` it may still deliver frames captured before, seconds."""

    def batches(self) -> Iterator[list[Frame]]:
        """Yield frames, numbered from 1, in lists that became readable together."""

    def stop(self) -> None:
        """End `batches` after the frames that are on their way; also in a forked copy."""

    def end(self) -> None:
        """End `batches` at once because a limit is reached. Called by the reader."""

    def hand_over(self) -> None:
        """Leave the reading, and the device, to a forked copy of this process."""

    def take_over(self) -> None:
        """Take over the reading in the forked copy. The end of the other process is a `stop`."""

    def close(self) -> None:
        """Release the device or program, after `batches` has ended or was abandoned."""


@dataclass(slots=True)
class Wake:
    """Interrupts a poll from any thread or signal handler."""

    _ends: tuple[int, int] = field(default_factory=os.pipe)
    set: bool = False

    def __post_init__(self) -> None:
        """Make writing to the pipe non-blocking."""
        os.set_blocking(self._ends[1], False)

    def fileno(self) -> int:
        """Return the descriptor to poll."""
        return self._ends[0]

    def call(self) -> None:
        """Interrupt the poll, now and for ever, here and in a forked copy of this process."""
        if not self.set:
            self.set = True
            with suppress(OSError):  # the copy is gone
                os.write(self._ends[1], b"!")

    def leave(self) -> None:
        """In a forked copy: make the end of the original process interrupt the poll too."""
        os.close(self._ends[1])
        self._ends = (self._ends[0], -1)

    def close(self) -> None:
        """Close the pipe."""
        self.set = True
        for end in self._ends:
            if end >= 0:
                os.close(end)


class PolledInput:
    """A pipe or file that is read as bytes arrive, until it ends or `wake` is called.

    After `wake` it reads on until nothing has arrived for a while, or until `finish` is called:
    packets in the buffers of the program and of the kernel were captured before. Then it ends the
    program and reads the rest.

    Args:
        fd: the descriptor to read; it stays open.
        wake: ends the reading.
        quiet_s: time without bytes after which nothing is left, seconds.
        grace_s: how long to wait for the rest, seconds.
        end: ends the program that writes.

    """

    name = "<capture>"
    """Name of the capture in messages."""

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
        self._last = 0.0
        self.woken_ns: int | None = None
        """System time of the call of `wake`, for comparison with packets."""
        self.unread = False
        """Whether DRAIN_S was over before everything captured before `wake` had been read, or
        before the program had ended.
        """

    # No `fileno`, so that nobody polls the descriptor without `wake`.

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
        # If whoever would end the program was killed, it goes on writing.
        left = min(self._grace_s, self._last - time.monotonic())
        ready, _, _ = select.select([self._fd], [], [], max(left, 0))
        self.unread = self.unread or (bool(ready) and self._grace_s > 0 >= left)
        return os.read(self._fd, size) if ready and left > 0 else b""

    def caught_up(self, time_ns: int) -> None:
        """Call `finish` if a packet was captured after `wake`: all earlier ones have been read."""
        if self.woken_ns is not None and time_ns >= self.woken_ns:
            self.finish()

    def finish(self) -> None:
        """End the program; its remaining output can still be read."""
        if not self._finished:
            self._finished = True
            self._last = time.monotonic() + DRAIN_S
            if self._end is not None:
                self._end()
