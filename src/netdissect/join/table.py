"""What became of every frame of a capture, 16 bytes each.

The table of a small capture is in memory. Of a larger one only the pages used last are; the others
are in an unnamed temporary file, so that memory does not grow with the capture.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from tempfile import TemporaryFile
from typing import IO, Final, TypeAlias

from netdissect.model.joined import Fate
from netdissect.model.native import BytesWriter, i64, read_i64_le, vec, write_i64_le

MAX_IN_MEMORY = 2_000_000
"""Bytes of a table that are in memory; the rest of a larger one is in the file."""

LOST: Final = int(Fate.LOST)
DELIVERED: Final = int(Fate.DELIVERED)
ARRIVED: Final = int(Fate.ARRIVED)
COPY: Final = int(Fate.COPY)
APPEARED: Final = int(Fate.APPEARED)
"""The members of `Fate` as the integers that rows hold: cheaper to compare than members."""

AMBIGUOUS: Final = 1
"""Flag: the fate is only the most likely one. Equal datagrams cannot be told apart, or nothing
shows the clock of that time (`doubt`), or a datagram that seems lost was sent again, to a side
whose capture misses some: perhaps only its answer was lost.
"""
COPIED: Final = 2
"""Flag of a datagram sent: the network copied it."""
REORDERED: Final = 4
"""Flag of a first arrival: a datagram of the same flow that was sent later arrived before it."""

RESENT: Final = 8
"""Flag of a datagram sent: its content was sent again before any of it had arrived."""
ANSWERED: Final = 16
"""Flag of a datagram sent: its receiver acknowledged it."""

TableRow: TypeAlias = tuple[int, int, int, int, int]
"""(`Fate`, flags, lane, frame of the same datagram in the other capture or 0, common time)."""

# A row is two words: lane, partner, flags and fate from the high bits to the low; common time.
_FLAGS_AT: Final = 4
_PARTNER_AT: Final = 9
_LANE_AT: Final = 45
_FATE: Final = (1 << _FLAGS_AT) - 1
_FLAGS: Final = (1 << (_PARTNER_AT - _FLAGS_AT)) - 1
_PARTNER: Final = (1 << (_LANE_AT - _PARTNER_AT)) - 1
_PAGE_BITS: Final = 12
_PAGE: Final = (1 << _PAGE_BITS) - 1
_PAGE_WORDS: Final = 2 << _PAGE_BITS
_PAGE_OCTETS: Final = 8 * _PAGE_WORDS
_ALL_FATES: Final = 0x1FE
"""The bit of every fate but `APART`, which is 0."""
_MIN_PAGES: Final = 4
"""Pages in memory at least: for the writer and for readers of two places at once."""


def fate_of(word: i64) -> i64:
    """Return the fate in the first word of a row."""
    return word & _FATE


def bit_of(fate: i64) -> i64:
    """Return the bit of a fate, for `FateTable.next_frame`."""
    bit: i64 = 1
    return bit << fate


def flags_of(word: i64) -> i64:
    """Return the flags in the first word of a row."""
    return word >> _FLAGS_AT & _FLAGS


def partner_of(word: i64) -> i64:
    """Return the frame in the other capture, or 0, in the first word of a row."""
    return word >> _PARTNER_AT & _PARTNER


def lane_of(word: i64) -> i64:
    """Return the lane in the first word of a row."""
    return word >> _LANE_AT


class _Page:
    """Rows of consecutive frames."""

    __slots__ = ("words",)

    def __init__(self, words: vec[i64]) -> None:
        self.words = words


class FateTable:
    """One row per frame of a capture. Row 0, which no frame has, stands for unknown frames."""

    __slots__ = ("_file", "_loaded", "_pages", "_written", "frames")

    def __init__(self, frames: int) -> None:
        self.frames: i64 = frames
        self._file: IO[bytes] | None = None
        self._pages: list[_Page | None] = [None] * ((frames >> _PAGE_BITS) + 1)
        """None: the page is in the file, or still empty."""
        self._loaded: deque[int] = deque()
        """Numbers of the pages in memory, in the order in which they were loaded."""
        self._written: set[int] = set()
        """Numbers of the pages in the file."""

    def _page(self, frame: i64) -> vec[i64]:
        page = self._pages[frame >> _PAGE_BITS]
        return self._load(frame >> _PAGE_BITS) if page is None else page.words

    def _load(self, number: int) -> vec[i64]:
        """Load a page, evicting the one that was loaded first."""
        if len(self._loaded) >= max(_MIN_PAGES, MAX_IN_MEMORY // _PAGE_OCTETS):
            self._evict(self._loaded.popleft())
        words = vec[i64]([0] * _PAGE_WORDS)
        if self._file is not None and number in self._written:
            self._file.seek(number * _PAGE_OCTETS)
            octets = self._file.read(_PAGE_OCTETS)
            place: i64 = 0
            while place < _PAGE_WORDS:
                words[place] = read_i64_le(octets, 8 * place)
                place += 1
        self._pages[number] = _Page(words)
        self._loaded.append(number)
        return words

    def _evict(self, number: int) -> None:
        page = self._pages[number]
        if page is None:
            return
        if self._file is None:
            self._file = TemporaryFile()  # noqa: SIM115 - it lives as long as the table
        words, writer = page.words, BytesWriter()
        place: i64 = 0
        while place < _PAGE_WORDS:
            write_i64_le(writer, words[place])
            place += 1
        self._file.seek(number * _PAGE_OCTETS)
        self._file.write(writer.getvalue())
        self._written.add(number)
        self._pages[number] = None

    def set(
        self, frame: i64, fate: i64, *, flags: i64, lane: i64, partner: i64, common_ns: i64
    ) -> None:
        """Write the row of a frame."""
        words, at = self._page(frame), (frame & _PAGE) << 1
        words[at] = lane << _LANE_AT | partner << _PARTNER_AT | flags << _FLAGS_AT | fate
        words[at + 1] = common_ns

    def add_flags(self, frame: i64, flags: i64) -> bool:
        """Add flags to the row of a frame; return whether any of them is new."""
        words, at = self._page(frame), (frame & _PAGE) << 1
        before = words[at]
        words[at] = before | flags << _FLAGS_AT
        return words[at] != before

    def set_fate(self, frame: i64, fate: i64) -> None:
        """Replace the fate of a frame."""
        words, at = self._page(frame), (frame & _PAGE) << 1
        words[at] = words[at] & ~_FATE | fate

    def word(self, frame: i64) -> i64:
        """Return the first word of a row, for `fate_of`, `flags_of`, `partner_of`, `lane_of`."""
        if not 0 < frame <= self.frames:
            frame = 0
        return self._page(frame)[(frame & _PAGE) << 1]

    def common_ns(self, frame: i64) -> i64:
        """Return the common time of a frame."""
        if not 0 < frame <= self.frames:
            frame = 0
        return self._page(frame)[((frame & _PAGE) << 1) + 1]

    def row(self, frame: i64) -> TableRow:
        """Return the row of a frame, from 1; an empty row for a frame that does not exist."""
        word = self.word(frame)
        return fate_of(word), flags_of(word), lane_of(word), partner_of(word), self.common_ns(frame)

    def rows(self) -> Iterator[tuple[int, TableRow]]:
        """Yield (frame, row) of all compared frames, in order."""
        frame = self.next_frame(0)
        while frame:
            yield frame, self.row(frame)
            frame = self.next_frame(frame)

    def next_frame(self, after: i64, mask: i64 = _ALL_FATES) -> i64:
        """Return the first frame after another that has one of the fates in `mask`; 0 if none has.

        Without a mask, return the next frame that was compared.
        """
        frame = after + 1
        while frame <= self.frames:
            words, at = self._page(frame), (frame & _PAGE) << 1
            while at < _PAGE_WORDS and frame <= self.frames:
                if mask >> (words[at] & _FATE) & 1:
                    return frame
                frame += 1
                at += 2
        return 0

    def count_certain(self, fate: int) -> int:
        """Return how many frames have a fate for certain."""
        found: i64 = 0
        frame = self.next_frame(0, bit_of(fate))
        while frame:
            found += not flags_of(self.word(frame)) & AMBIGUOUS
            frame = self.next_frame(frame, bit_of(fate))
        return found

    def compared(self) -> int:
        """Return how many frames were compared."""
        return self.frames - self.count_certain(0)

    def fate(self, frame: i64) -> i64:
        """Return the fate of a frame, from 1; 0 for a frame that does not exist."""
        return fate_of(self.word(frame))

    def close(self) -> None:
        """Delete the file."""
        if self._file is not None:
            self._file.close()
            self._file = None
