"""Reads frames from a live source, writes them to a file, and queues them for parsing: the common
part, and a thread that does it for files. `recorder.py` does it in a process for interfaces.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterator

from netdissect.capture.live.limits import Autostop
from netdissect.capture.live.shared import MAX_QUEUED_OCTETS, SharedQueue
from netdissect.capture.live.sink import FileSink
from netdissect.capture.live.source import LiveSource
from netdissect.model.packets import Frame

_FRAME_COST = 200
"""Memory of a frame besides its bytes, estimated."""


class FrameQueue:
    """A queue from the thread that reads a file to the one that parses its frames."""

    def __init__(self, *, limit: int = MAX_QUEUED_OCTETS) -> None:
        """Create a queue of `limit` bytes; `put` waits while it is full."""
        self.lost = 0
        """Frames that were not parsed."""
        self._limit = limit
        self._batches: deque[tuple[list[Frame], int]] = deque()
        self._octets = 0
        self._open = True
        self._changed = threading.Condition()

    def put(self, batch: list[Frame]) -> None:
        """Add frames; they are lost if the reader has ended."""
        cost = sum(len(frame[3]) for frame in batch) + _FRAME_COST * len(batch)
        with self._changed:
            while self._open and self._octets > self._limit:
                self._changed.wait()
            if not self._open:
                self.lost += len(batch)
                return
            self._batches.append((batch, cost))
            self._octets += cost
            self._changed.notify_all()

    def get(self, timeout_s: float | None = None) -> list[Frame] | None:
        """Return the next frames; an empty list after `timeout_s` without any, None at the end."""
        with self._changed:
            if not self._batches and self._open:
                self._changed.wait(timeout_s)
            if self._batches:
                batch, cost = self._batches.popleft()
                self._octets -= cost
                self._changed.notify_all()
                return batch
            return [] if self._open else None

    def close(self) -> None:
        """End putting; the reader can still get what is left."""
        with self._changed:
            self._open = False
            self._changed.notify_all()

    def count(self, packets: int) -> None:
        """Ignore how many packets were captured so far: within a process, `Pump` has the number."""

    def give_up(self, packets: int) -> None:
        """Count packets as lost that were got and will not be parsed."""
        self.lost += packets

    def abandon(self) -> None:
        """Discard what is left, and count it as lost."""
        with self._changed:
            self._open = False
            self.lost += sum(len(batch) for batch, _ in self._batches)
            self._batches.clear()
            self._octets = 0
            self._changed.notify_all()


class Pump:
    """Reads a source until it ends, a limit is reached, or its `stop` is called."""

    def __init__(
        self,
        source: LiveSource,
        *,
        sink: FileSink | None,
        autostop: Autostop,
        show: bool,
        queue: FrameQueue | SharedQueue,
    ) -> None:
        """Create a pump.

        Args:
            source: the source to read.
            sink: the files to write; None for none.
            autostop: when to stop.
            show: whether to put frames into the queue.
            queue: the queue.

        """
        self.queue = queue
        self.packets = 0
        """Frames read so far."""
        self.written = 0
        """Frames in the file."""
        self.error: Exception | None = None
        """What ended the capture early: a full disk, or a fault in our own code."""
        self._source = source
        self._sink = sink
        self._autostop = autostop
        self._show = show
        self._first_ns: int | None = None
        self._last_ns: int | None = None

    def run(self) -> None:
        """Process frames until the source ends, then finish the file."""
        frames = self._source.batches()
        try:
            try:
                for batch in frames:
                    if self._take(batch):
                        break
            except OSError as error:
                self.error = error  # the file cannot be written
            self._drain(frames)
        except Exception as error:  # noqa: BLE001 - raised again where the command can report it
            self.error = error
            self._source.end()
        self._finish()
        self.queue.close()

    def _take(self, batch: list[Frame]) -> bool:
        """Write and queue frames; return True if a limit is reached."""
        taken, done = self._within(batch)
        if not taken:
            return done
        self.packets += len(taken)
        self.queue.count(self.packets)
        self._last_ns = taken[-1][1]
        # The file first, as `put` may wait.
        if self._sink is not None:
            self._sink.write(taken)
            self.written += len(taken)
        if self._show:
            self.queue.put(taken)
        return done or self._written_enough()

    def _within(self, batch: list[Frame]) -> tuple[list[Frame], bool]:
        """Return the frames within the limits, and whether a limit is reached."""
        limits = self._autostop
        if limits.packets is not None and self.packets + len(batch) >= limits.packets:
            return batch[: limits.packets - self.packets], True
        if limits.duration_ns is None or self._source.live or not batch:
            return batch, False
        # For a file, the duration is that of its timestamps.
        self._first_ns = batch[0][1] if self._first_ns is None else self._first_ns
        end_ns = self._first_ns + limits.duration_ns
        kept = [frame for frame in batch if frame[1] <= end_ns]
        return kept, len(kept) < len(batch)

    def _written_enough(self) -> bool:
        limits, sink = self._autostop, self._sink
        if sink is None:
            return False
        full = limits.octets is not None and sink.octets >= limits.octets
        return full or (limits.files is not None and sink.files_full >= limits.files)

    def _drain(self, frames: Iterator[list[Frame]]) -> None:
        """End the source and read it to its end, so that it can report losses."""
        self._source.end()
        for _ in frames:
            pass

    def _finish(self) -> None:
        if self._sink is None:
            return
        try:
            self._sink.close(
                self._last_ns, received=self.packets, dropped=self._source.counts.kernel
            )
        except OSError as error:
            self.error = self.error or error


class PumpThread(Pump):
    """A pump in a thread for a file or a pipe, which can wait, so that nothing is lost."""

    queue: FrameQueue

    def __init__(
        self, source: LiveSource, *, sink: FileSink | None, autostop: Autostop, show: bool
    ) -> None:
        """Create a pump; the arguments are those of `Pump`."""
        super().__init__(source, sink=sink, autostop=autostop, show=show, queue=FrameQueue())
        self._thread = threading.Thread(target=self.run, name="capture", daemon=True)
        self.start, self.is_alive = self._thread.start, self._thread.is_alive
        self.join = self._thread.join
