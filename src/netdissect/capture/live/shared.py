"""A queue of frames in shared memory, from the process that captures to the one that parses.

```
header, eight u64: bytes put in | bytes taken out | packets captured | packets not put in |
                   1 if the reader has ended | 1 if the writer has ended | 0 | 0
ring:              length u64 | a list of frames as `marshal` writes it | ... to a multiple of 8
```
Each number is written by one process only and in a single store, so that no lock is needed.
"""

from __future__ import annotations

import marshal
import mmap
import os
import select
from contextlib import suppress

from netdissect.model.packets import Frame

MAX_QUEUED_OCTETS = 64 * 1024 * 1024
"""Memory of the frames that wait for being parsed. Beyond that, further frames of an interface are
not parsed but counted (`SharedQueue`), and reading a file waits.
"""

_HEADER = 64  # bytes for the six numbers below, apart from the frames
_PUT, _TAKEN, _PACKETS, _LOST, _GONE, _ENDED = range(6)
_WORD = 8
_FORMAT = 2
"""Version of `marshal` without references between values, which frames do not need."""


class SharedQueue:
    """A queue that is created before a fork. One process puts, the other gets. Frames that are put
    into a full queue are lost, and counted.
    """

    def __init__(self, limit: int = MAX_QUEUED_OCTETS) -> None:
        """Create a queue of `limit` bytes, a multiple of 8."""
        self._limit = limit
        memory = memoryview(mmap.mmap(-1, _HEADER + limit))
        self._figures = memory[:_HEADER].cast("Q")
        self._ring = memory[_HEADER:]
        self._ends = os.pipe()
        """A pipe that the reader polls: a byte for each list, and the end when the writer ends."""
        for end in self._ends:
            os.set_blocking(end, False)
        self._abandoned = 0

    # -- the process that captures -----------------------------------------------------------------

    def write_only(self) -> None:
        """Prepare this process for putting."""
        os.close(self._ends[0])

    def put(self, batch: list[Frame]) -> None:
        """Add frames, or count them as lost if there is no room. Never waits."""
        figures = self._figures
        data = marshal.dumps(batch, _FORMAT)
        begin = figures[_PUT]
        need = _room(len(data))
        if figures[_GONE] or need > self._limit - (begin - figures[_TAKEN]):
            figures[_LOST] += len(batch)
            return
        self._store(begin, len(data).to_bytes(_WORD, "little"))
        self._store(begin + _WORD, data)
        # Stored last, so that the reader only sees complete lists.
        figures[_PUT] = begin + need
        with suppress(OSError):  # a full pipe wakes the reader anyway
            os.write(self._ends[1], b"!")

    def _store(self, place: int, data: bytes) -> None:
        at = place % self._limit
        first = min(len(data), self._limit - at)
        self._ring[at : at + first] = data[:first]
        self._ring[: len(data) - first] = data[first:]

    def count(self, packets: int) -> None:
        """Store how many packets were captured so far."""
        self._figures[_PACKETS] = packets

    def close(self) -> None:
        """End putting; the reader can still get what is left."""
        self._figures[_ENDED] = 1
        os.close(self._ends[1])

    # -- the process that parses -------------------------------------------------------------------

    def read_only(self) -> None:
        """Prepare this process for getting."""
        os.close(self._ends[1])

    @property
    def packets(self) -> int:
        """Return how many packets were captured so far."""
        return self._figures[_PACKETS]

    @property
    def lost(self) -> int:
        """Return how many packets did not fit into the queue, or were not parsed."""
        return self._figures[_LOST] + self._abandoned

    def get(self, timeout_s: float | None = None) -> list[Frame] | None:
        """Return the next frames; an empty list after `timeout_s` without any, None at the end."""
        figures = self._figures
        # Read before the ring, so that what was put before the end is not missed.
        ended = bool(figures[_ENDED])
        if self._is_empty:
            if ended or figures[_GONE]:
                return None
            ended = self._wait(timeout_s)
            if self._is_empty:
                return None if ended else []
        begin = figures[_TAKEN]
        size = int.from_bytes(self._load(begin, _WORD), "little")
        # Safe to unmarshal: the memory is shared with a process of our own only.
        batch: list[Frame] = marshal.loads(self._load(begin + _WORD, size))  # noqa: S302
        figures[_TAKEN] = begin + _room(size)
        return batch

    @property
    def _is_empty(self) -> bool:
        return self._figures[_TAKEN] == self._figures[_PUT]

    def _wait(self, timeout_s: float | None) -> bool:
        """Wait for a list; return True if the writer has ended, or was killed."""
        poll = select.poll()
        poll.register(self._ends[0], select.POLLIN)
        poll.poll(None if timeout_s is None else timeout_s * 1000)
        try:
            # As many bytes as a pipe holds: one poll stands for all lists put so far.
            return not os.read(self._ends[0], 1 << 16)
        except BlockingIOError:
            return False

    def _load(self, place: int, size: int) -> bytes:
        at = place % self._limit
        first = min(size, self._limit - at)
        return bytes(self._ring[at : at + first]) + bytes(self._ring[: size - first])

    def give_up(self, packets: int) -> None:
        """Count packets as lost that were got and will not be parsed."""
        self._abandoned += packets

    def abandon(self) -> None:
        """Discard what is left and what is still put, and count it as lost."""
        while not self._figures[_GONE]:
            batch = self.get(0.0)
            if not batch:
                self._figures[_GONE] = 1
            else:
                self._abandoned += len(batch)

    def leave(self) -> None:
        """Count what was put while the reader ended, after the writer has ended."""
        self._figures[_GONE] = 0
        self.abandon()
        os.close(self._ends[0])


def _room(size: int) -> int:
    """Return the bytes that a list of `size` bytes takes in the ring, with its length."""
    return (size + 2 * _WORD - 1) // _WORD * _WORD
