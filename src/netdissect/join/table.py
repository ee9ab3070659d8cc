"""What became of every frame of a capture, 20 bytes each: in memory for small captures, else in a
file without a name. So memory does not grow with a capture.
"""

from __future__ import annotations

import mmap
from collections.abc import Container, Iterator
from struct import Struct
from tempfile import TemporaryFile
from typing import IO, Final, TypeAlias

from netdissect.model.joined import Fate

__all__ = [
    "AMBIGUOUS",
    "ANSWERED",
    "APPEARED",
    "ARRIVED",
    "COPIED",
    "COPY",
    "DELIVERED",
    "LOST",
    "MAX_IN_MEMORY",
    "REORDERED",
    "SENT_AGAIN",
    "FateTable",
    "TableRow",
]

MAX_IN_MEMORY = 2_000_000
"""Bytes of a table in memory; a larger one lies in a file."""

LOST: Final = int(Fate.LOST)
DELIVERED: Final = int(Fate.DELIVERED)
ARRIVED: Final = int(Fate.ARRIVED)
COPY: Final = int(Fate.COPY)
APPEARED: Final = int(Fate.APPEARED)
"""The kinds of `Fate` as rows have them: to compare numbers is cheaper than members of it."""

AMBIGUOUS: Final = 1
"""Flag: equal datagrams cannot be told apart, or what seems lost was sent again for want of an
answer, to a side whose capture misses some; what is said is the likeliest.
"""
COPIED: Final = 2
"""Flag of a sender's datagram: the network copied it."""
REORDERED: Final = 4
"""Flag of a first arrival: one of the same flow that was sent later came before it."""

SENT_AGAIN: Final = 8
"""Flag of a sender's datagram: what it carried was sent again, nothing of it having arrived."""
ANSWERED: Final = 16
"""Flag of a sender's datagram: its receiver has answered it."""

TableRow: TypeAlias = tuple[int, int, int, int, int, int]
"""(`Fate`, flags, 0, lane, frame of the same datagram in the other capture or 0, common time)."""

_RECORD: Final = Struct("<BBHIIq")
_AT_ONCE: Final = 4096
"""Rows that are read together."""


class FateTable:
    """Row per frame of one capture."""

    def __init__(self, frames: int) -> None:
        self.frames = frames
        size = max(1, frames + 1) * _RECORD.size
        self._file: IO[bytes] | None = None
        self._octets: bytearray | mmap.mmap
        if size <= MAX_IN_MEMORY:
            self._octets = bytearray(size)
        else:
            self._file = TemporaryFile()  # noqa: SIM115 - it lives as long as the table
            self._file.truncate(size)
            self._octets = mmap.mmap(self._file.fileno(), size)

    def set(
        self, frame: int, fate: int, *, flags: int, lane: int, partner: int, common_ns: int
    ) -> None:
        """Write the row of a frame."""
        _RECORD.pack_into(
            self._octets, frame * _RECORD.size, fate, flags, 0, lane, partner, common_ns
        )

    def flag(self, frame: int, flags: int) -> bool:
        """Add flags to the row of a frame; return whether that is news."""
        at = frame * _RECORD.size + 1
        before = self._octets[at]
        self._octets[at] = before | flags
        return before & flags != flags

    def fate(self, frame: int, fate: int) -> None:
        """Change what became of a frame."""
        self._octets[frame * _RECORD.size] = fate

    def row(self, frame: int) -> TableRow:
        """Return the row of a frame, from 1; of one that does not exist an empty one."""
        if not 0 < frame <= self.frames:
            return (0, 0, 0, 0, 0, 0)
        row: TableRow = _RECORD.unpack_from(self._octets, frame * _RECORD.size)
        return row

    def rows(self) -> Iterator[tuple[int, TableRow]]:
        """Yield (frame, row) of all compared frames, in order."""
        for first, part in self._parts():
            for frame, row in enumerate(_RECORD.iter_unpack(part), first):
                if row[0]:
                    yield frame, row

    def _parts(self) -> Iterator[tuple[int, bytes]]:
        """Yield (first frame, rows) of all frames, many at a time."""
        size = _RECORD.size
        for first in range(1, self.frames + 1, _AT_ONCE):
            end = min(first + _AT_ONCE, self.frames + 1)
            yield first, bytes(self._octets[first * size : end * size])

    def of(self, fates: Container[int]) -> Iterator[tuple[int, TableRow]]:
        """Yield (frame, row) of those of which one of these became, in order."""
        size = _RECORD.size
        octets = self._octets
        for frame in range(1, self.frames + 1):
            if octets[frame * size] in fates:
                yield frame, self.row(frame)

    def count(self, fate: int) -> int:
        """Return of how many frames this became."""
        return self._octets[:: _RECORD.size].count(fate)

    def compared(self) -> int:
        """Return how many frames were compared."""
        # Row 0 belongs to no frame, but has fate 0, too.
        return self.frames + 1 - self.count(0)

    def kind(self, frame: int) -> int:
        """Return what became of a frame, from 1; of one that does not exist 0."""
        return self._octets[frame * _RECORD.size] if 0 < frame <= self.frames else 0

    def close(self) -> None:
        """Free the file."""
        if isinstance(self._octets, mmap.mmap):
            self._octets.close()
        if self._file is not None:
            self._file.close()
            self._file = None
