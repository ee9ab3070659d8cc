"""A running capture for the code that parses it: frames, a way to stop, and the losses."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from netdissect.capture.live import open_live
from netdissect.capture.live.limits import Autostop, RingRule
from netdissect.capture.live.pump import PumpThread
from netdissect.capture.live.recorder import Recorder
from netdissect.capture.live.rights import drop_rights, keep_files
from netdissect.capture.live.sink import FileSink
from netdissect.capture.live.source import LiveRequest
from netdissect.model.closing import Closing
from netdissect.model.packets import Frame
from netdissect.model.reports import CaptureInfo

TIMER_DRAIN_S = 0.25
"""Time for parsing the frames that are waiting when the duration of the capture is over."""
STOP_DRAIN_S = 2.0
"""Time for parsing the frames that are waiting when the user stops the capture."""
_TICK_S = 0.1
"""Interval of `LiveFeed.on_tick` while no frames arrive."""
_PRIORITY = -10
"""Niceness of the capturing processes, if the system allows it: waiting would lose packets."""


@contextmanager
def _hurried() -> Iterator[None]:
    """Give processes started meanwhile a higher priority, if root allows it."""
    before = os.getpriority(os.PRIO_PROCESS, 0)
    with suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, 0, min(before, _PRIORITY))
    try:
        yield
    finally:
        os.setpriority(os.PRIO_PROCESS, 0, before)


class LiveFeed(Closing):
    """A context manager for a running capture that yields its frames once.

    First the interface is opened. Then the rights that this needed are given up, and only
    afterwards a file is created and a frame parsed.
    """

    @_hurried()
    def __init__(
        self,
        request: LiveRequest,
        *,
        write: str | None = None,
        autostop: Autostop | None = None,
        ring: RingRule | None = None,
        show: bool = True,
    ) -> None:
        """Begin to capture.

        Args:
            request: what to capture.
            write: path to write to, `-` for standard output; None writes nothing.
            autostop: when to stop.
            ring: when to start the next file.
            show: whether to yield the frames; otherwise they are only written.

        Raises:
            NetdissectError: as `open_live` and `FileSink` say.

        """
        limits = autostop or Autostop()
        self._source = source = open_live(request)
        account = request.account
        # If the new user may not write files, the capturing process keeps the right to: it does
        # not parse anything.
        first = account is None or write is None or account.owns_files
        self.on_tick: Callable[[], None] | None = None
        """Called after each list of frames, and every `_TICK_S` seconds without any."""
        self._deadline: float | None = None
        try:
            self.note = drop_rights(account) if first else ""
            """What was done about the rights; "" if there were none to give up."""
            self._sink: FileSink | None = None
            if write is not None:
                name = request.interface or source.info.path
                self._sink = FileSink(write, interface=name, link_type=source.link_type, ring=ring)
        except BaseException as error:
            if isinstance(error, OSError) and error.filename is None:
                error.filename = write
            source.close()
            raise
        kind = Recorder if source.live else PumpThread
        self._pump = kind(source, sink=self._sink, autostop=limits, show=show)
        if not source.live and not first and self._sink is not None and self._sink.goes_on:
            self.note = "running as root, which writes the file: --user NAME gives that up"
            first = True
        self._pump.start(*(() if first or not source.live else (keep_files,)))
        if not first:
            self.note = drop_rights(account)
        self._show = show
        self._shown = 0
        self._timer: threading.Timer | None = None
        if source.live and limits.duration_ns is not None:
            self._timer = threading.Timer(limits.duration_ns / 1e9, self.stop, [TIMER_DRAIN_S])
            self._timer.daemon = True
            self._timer.start()

    def __iter__(self) -> Iterator[Frame]:
        """Yield frames as they arrive, until the capture has ended and all were yielded, or the
        time for that is over.
        """
        queue, info = self._pump.queue, self._source.info
        while (batch := queue.get(_TICK_S)) is not None:
            if batch and self._source.live:  # the process that reads updates its own copy of `info`
                info.first_time_ns = batch[0][1] if not self._shown else info.first_time_ns
                info.last_time_ns = batch[-1][1]
            left = len(batch)
            try:
                for frame in batch:
                    if self._deadline is not None and time.monotonic() > self._deadline:
                        return
                    left -= 1
                    self._shown += 1
                    yield frame
            finally:
                # The loop may be left early: the rest of the list is not parsed then.
                if left:
                    queue.give_up(left)
                    queue.abandon()
            if self.on_tick is not None:
                self.on_tick()

    def batches(self) -> Iterator[list[Frame]]:
        """Yield the same frames in lists of one, so that each is processed at once."""
        return ([frame] for frame in self)

    @property
    def info(self) -> CaptureInfo:
        """Return the facts about the capture so far."""
        return self._source.info

    @property
    def backend(self) -> str:
        """Return the name of the backend."""
        return self._source.backend

    @property
    def packets(self) -> int:
        """Return how many packets were captured so far."""
        return self._pump.packets

    @property
    def live(self) -> bool:
        """Return True for an interface, False for a file or a pipe."""
        return self._source.live

    @property
    def kernel_drops(self) -> int | None:
        """Return how many packets were lost before they reached this program. None = unknown, also
        while the capture is running.
        """
        return self._source.counts.kernel

    @property
    def own_drops(self) -> int:
        """Return how many packets were not parsed because parsing was too slow."""
        return self._pump.queue.lost

    @property
    def missing(self) -> list[str]:
        """Return a sentence for each difference, at the end, between the packets that the capture
        program took, that arrived here, that are in the file, and that were parsed.
        """
        counts, captured = self._source.counts, self.info.frames
        found = []
        if self._source.live and counts.taken is not None and counts.taken != captured:
            found.append(f"{self.backend} took {counts.taken:,} packets, {captured:,} arrived here")
        if counts.unread:
            found.append("packets that came before the end are missing: it took too long")
        if self.info.damage is not None and self.info.truncated_at is None:
            found.append(self.info.damage)  # tshark does not say at which offset
        if self._sink is not None and self._pump.written != self.packets:
            found.append(f"{self._pump.written:,} of {self.packets:,} packets are in the file")
        if self._show and self._shown + self.own_drops != self.packets:
            found.append(f"{self._shown:,} of {self.packets:,} packets were parsed")
        return found

    @property
    def complete(self) -> bool:
        """Return whether no packet is known to be missing. A file that was not read to its end
        counts as complete.
        """
        lost = self._source.live and (self.kernel_drops or self.own_drops)
        return not (self.missing or lost)

    @property
    def fault(self) -> str | None:
        """Return why the capture ended by itself; None if it did not."""
        return self._source.fault

    @property
    def error(self) -> Exception | None:
        """Return the exception that ended capturing or writing; None without one."""
        return self._pump.error

    def stop(self, drain_s: float = STOP_DRAIN_S) -> None:
        """Stop the capture; frames that are waiting are parsed for at most `drain_s` seconds."""
        if self._deadline is None:
            self._deadline = time.monotonic() + self._source.settle_s + drain_s
        self._source.stop()

    def close(self) -> None:
        """Stop the capture, finish its file and release the device."""
        if self._timer is not None:
            self._timer.cancel()
        if self._pump.is_alive():
            self._source.stop()
            self._pump.queue.abandon()
            self._pump.join()
        self._source.close()
