"""What became of every frame of a capture, 16 bytes each: in memory for small captures; else what
was not used of late lies in a file without a name. So memory does not grow with a capture.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from tempfile import TemporaryFile
from typing import IO, Final, TypeAlias

from netdissect.model.joined import Fate
from netdissect.model.native import BytesWriter, i64, read_i64_le, vec, write_i64_le

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
    "bit_of",
    "flags_of",
    "kind_of",
    "lane_of",
    "partner_of",
]

MAX_IN_MEMORY = 2_000_000
"""Bytes of a table in memory; of a larger one the rest lies in a file."""

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

# A row is two words: lane, partner, flags and kind from the high bits to the low ones; common time.
_FLAGS_AT: Final = 4
_PARTNER_AT: Final = 9
_LANE_AT: Final = 45
_KIND: Final = (1 << _FLAGS_AT) - 1
_FLAGS: Final = (1 << (_PARTNER_AT - _FLAGS_AT)) - 1
_PARTNER: Final = (1 << (_LANE_AT - _PARTNER_AT)) - 1
_PAGE_BITS: Final = 12
_PAGE: Final = (1 << _PAGE_BITS) - 1
_WORDS: Final = 2 << _PAGE_BITS
_OCTETS: Final = 8 * _WORDS
_KINDS: Final = 0x1FE
"""A bit for each kind of what was compared."""
_LEAST_PAGES: Final = 4
"""The writer and the readers of two places at once need so many."""


def kind_of(word: i64) -> i64:
    """Return the kind of `Fate` in the first word of a row."""
    return word & _KIND


def bit_of(kind: i64) -> i64:
    """Return the bit of a kind, for `FateTable.following`."""
    bit: i64 = 1
    return bit << kind


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
    """Rows of frames that follow each other."""

    __slots__ = ("words",)

    def __init__(self, words: vec[i64]) -> None:
        self.words = words


class FateTable:
    """Row per frame of one capture, frame 0 being none. What asks for other frames gets row 0."""

    __slots__ = ("_file", "_loaded", "_pages", "_written", "frames")

    def __init__(self, frames: int) -> None:
        self.frames: i64 = frames
        self._file: IO[bytes] | None = None
        self._pages: list[_Page | None] = [None] * ((frames >> _PAGE_BITS) + 1)
        """None: in the file, or nothing is in it yet."""
        self._loaded: deque[int] = deque()
        """Numbers of the pages in memory, in the order in which they came there."""
        self._written: set[int] = set()
        """Those in the file."""

    def _page(self, frame: i64) -> vec[i64]:
        page = self._pages[frame >> _PAGE_BITS]
        return self._load(frame >> _PAGE_BITS) if page is None else page.words

    def _load(self, number: int) -> vec[i64]:
        """Bring a page into memory, in place of the one that is there longest."""
        if len(self._loaded) >= max(_LEAST_PAGES, MAX_IN_MEMORY // _OCTETS):
            self._put_away(self._loaded.popleft())
        words = vec[i64]([0] * _WORDS)
        if self._file is not None and number in self._written:
            self._file.seek(number * _OCTETS)
            octets = self._file.read(_OCTETS)
            place: i64 = 0
            while place < _WORDS:
                words[place] = read_i64_le(octets, 8 * place)
                place += 1
        self._pages[number] = _Page(words)
        self._loaded.append(number)
        return words

    def _put_away(self, number: int) -> None:
        page = self._pages[number]
        if page is None:
            return
        if self._file is None:
            self._file = TemporaryFile()  # noqa: SIM115 - it lives as long as the table
        words, writer = page.words, BytesWriter()
        place: i64 = 0
        while place < _WORDS:
            write_i64_le(writer, words[place])
            place += 1
        self._file.seek(number * _OCTETS)
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

    def flag(self, frame: i64, flags: i64) -> bool:
        """Add flags to the row of a frame; return whether that is news."""
        words, at = self._page(frame), (frame & _PAGE) << 1
        before = words[at]
        words[at] = before | flags << _FLAGS_AT
        return words[at] != before

    def fate(self, frame: i64, fate: i64) -> None:
        """Change what became of a frame."""
        words, at = self._page(frame), (frame & _PAGE) << 1
        words[at] = words[at] & ~_KIND | fate

    def word(self, frame: i64) -> i64:
        """Return the first word of a row, for `kind_of` and its like."""
        if not 0 < frame <= self.frames:
            frame = 0
        return self._page(frame)[(frame & _PAGE) << 1]

    def common_ns(self, frame: i64) -> i64:
        """Return the common time of a frame."""
        if not 0 < frame <= self.frames:
            frame = 0
        return self._page(frame)[((frame & _PAGE) << 1) + 1]

    def row(self, frame: i64) -> TableRow:
        """Return the row of a frame, from 1; of one that does not exist an empty one."""
        word = self.word(frame)
        return (
            kind_of(word), flags_of(word), 0, lane_of(word), partner_of(word), self.common_ns(frame)
        )  # fmt: skip

    def rows(self) -> Iterator[tuple[int, TableRow]]:
        """Yield (frame, row) of all compared frames, in order."""
        frame = self.following(0)
        while frame:
            yield frame, self.row(frame)
            frame = self.following(frame)

    def following(self, frame: i64, mask: i64 = _KINDS) -> i64:
        """Return the first frame behind this one that one of the kinds became whose bits the mask
        has, else that was compared; 0 where none follows.
        """
        behind = frame + 1
        while behind <= self.frames:
            words, at = self._page(behind), (behind & _PAGE) << 1
            while at < _WORDS and behind <= self.frames:
                if mask >> (words[at] & _KIND) & 1:
                    return behind
                behind += 1
                at += 2
        return 0

    def count(self, fate: int) -> int:
        """Return of how many frames this became."""
        found: i64 = 0
        frame = self.following(0, bit_of(fate))
        while frame:
            found += 1
            frame = self.following(frame, bit_of(fate))
        return found

    def compared(self) -> int:
        """Return how many frames were compared."""
        return self.frames - self.count(0)

    def kind(self, frame: i64) -> i64:
        """Return what became of a frame, from 1; of one that does not exist 0."""
        return kind_of(self.word(frame))

    def close(self) -> None:
        """Free the file."""
        if self._file is not None:
            self._file.close()
            self._file = None
