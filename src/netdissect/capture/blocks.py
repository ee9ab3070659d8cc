"""The raw records of a capture file, for writing some of them to another file unchanged.

The readers in `pcap` and `pcapng` yield frames. This one yields whole records or blocks, including
options that nothing here understands. It accepts the same files, and numbers frames in the same
way.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from struct import Struct
from typing import IO, TYPE_CHECKING, Final

from netdissect.capture import codes
from netdissect.capture.account import Ledger
from netdissect.capture.pcap import MAGICS, MAX_FRAME_OCTETS
from netdissect.capture.pcapng import (
    DROPS_UNKNOWN,
    NUMBERED,
    ORDERS,
    SECTION_HEADER,
    DamageError,
    Section,
    check_body,
    check_length,
)
from netdissect.capture.reader import open_checked
from netdissect.model.closing import Closing
from netdissect.model.packets import NS_PER_S
from netdissect.model.reports import CaptureInfo

if TYPE_CHECKING:
    from collections.abc import Iterator

SECTION: Final = "section"
"""A file header (pcap) or a section header (pcapng)."""
INTERFACE: Final = "interface"
"""The description of an interface (pcapng)."""
PACKET: Final = "packet"
"""One frame."""
OTHER: Final = "other"
"""Any other block: names, statistics, secrets, unknown ones (pcapng)."""

_PCAP_HEADER: Final = 24  # bytes of the file header
_MAGIC: Final = 4  # bytes of the magic number
_LEAST: Final = 12  # bytes of type and both lengths of a pcapng block


@dataclass(slots=True)
class Block:
    """One record or block."""

    kind: str
    """`SECTION`, `INTERFACE`, `PACKET` or `OTHER`."""
    raw: bytes
    """All of its bytes, header included."""
    order: str
    """Byte order of its numbers, as a character of `struct`."""
    frame: int = 0
    """Frame number from 1; 0 for a block that does not count as a frame."""
    time_ns: int = 0
    """ns since the Unix epoch; of a frame without a timestamp, the time of the frame before it."""
    link: int = 0
    """Link type of a frame."""
    sight: int = 0
    """The link type as in `Frame`: with the number of the interface if there are several."""
    interface: int = 0
    """Number of a frame's interface in its section."""
    start: int = 0
    """Offset of the captured bytes in `raw`."""
    captured: int = 0
    """Number of captured bytes."""
    wire: int = 0
    """Length of the frame on the wire, bytes."""
    options: int = 0
    """Offset of the options in `raw`; 0 if such a block cannot have any."""
    ticks: int = 0
    """`time_ns` in units of the interface; in pcap, of the file."""
    timed: bool = False
    """Whether the frame has a timestamp. A Simple Packet Block has none."""
    drops: int = DROPS_UNKNOWN
    """Packets dropped before it, as the obsolete block says; others have an option for it."""

    @property
    def data(self) -> bytes:
        """Return the captured bytes."""
        return self.raw[self.start : self.start + self.captured]


class BlockReader(Closing):
    """A context manager that yields the blocks of one capture once, in file order."""

    def __init__(self, source: str | os.PathLike[str] | IO[bytes], *, first: int = 1) -> None:
        """Open a capture; the arguments are those of `open_capture`.

        Raises:
            CaptureError: the file is missing, unreadable or not a capture.

        """
        self._window, self.path = open_checked(source)
        magic = self._window.data[:_MAGIC]
        self._before = first - 1
        self.is_pcap = magic in MAGICS
        """True for pcap, False for pcapng."""
        self.damage: str | None = None
        """What is wrong after the last block, at the end; None for an undamaged file."""

    def close(self) -> None:
        """Close the file, unless the caller opened it."""
        self._window.raw.close()

    def __iter__(self) -> Iterator[Block]:
        return self._pcap() if self.is_pcap else self._pcapng()

    def progress(self) -> tuple[int, int | None]:
        """Return (bytes read of the underlying file, its size or None if unknown)."""
        return self._window.raw.position, self._window.raw.total

    def _take(self, size: int) -> bytes:
        """Consume and return `size` bytes. If the file ends before, return b"" and set `damage`."""
        window = self._window
        if window.left < size and not window.fill(size):
            if window.left or window.fault:
                self.damage = window.fault or f"{window.left} of {size} bytes left"
            return b""
        raw = window.data[window.pos : window.pos + size]
        window.pos += size
        return raw

    def _peek(self, size: int) -> bytes:
        window = self._window
        if window.left < size:
            window.fill(size)
        return window.data[window.pos : window.pos + size]

    def _pcap(self) -> Iterator[Block]:
        order, scale, header = MAGICS[self._window.data[:_MAGIC]]
        ticks_per_s = NS_PER_S // scale
        raw = self._take(_PCAP_HEADER)
        if not raw:
            return
        # The upper half of the word holds flags about a frame check sequence.
        link = Struct(order + "I").unpack_from(raw, 20)[0] & 0xFFFF
        yield Block(SECTION, raw, order)
        unpack = Struct(order + "IIII").unpack_from
        frame = 0
        while len(head := self._peek(header)) == header:
            seconds, fraction, captured, wire = unpack(head)
            if captured > MAX_FRAME_OCTETS:
                self.damage = f"record says {captured} captured bytes"
                return
            raw = self._take(header + captured)
            if not raw:
                return
            frame += 1
            ticks = seconds * ticks_per_s + fraction
            yield Block(
                PACKET, raw, order, frame, ticks * scale, link, link, 0, header, captured, wire,
                ticks=ticks, timed=True,
            )  # fmt: skip
        # Sets `damage` if a part of a header is left.
        self._take(header)

    def _pcapng(self) -> Iterator[Block]:
        section = Section("<", Ledger(CaptureInfo(path="", format="pcapng")))
        frame, time_ns = self._before, 0
        try:
            while len(head := self._peek(_LEAST)) == _LEAST:
                if head[:_MAGIC] == SECTION_HEADER:
                    section = Section(_order(head), section.ledger)
                raw = self._take_block(section, head)
                if not raw:
                    return
                block = self._block(section, raw, frame + 1, time_ns)
                if block.frame:
                    frame, time_ns = block.frame, block.time_ns
                yield block
        except DamageError as error:
            self.damage = str(error)
            return
        self._take(_LEAST)

    def _take_block(self, section: Section, head: bytes) -> bytes:
        """Return the block that begins with `head`; b"" if the file ends within it."""
        total = section.u32(head, 4)
        check_length(total)
        size = (total + 3) & ~3
        raw = self._take(size)
        if raw and section.u32(raw, size - 4) != total:
            raise DamageError("a block has two different lengths")
        return raw

    def _block(self, section: Section, raw: bytes, frame: int, before_ns: int) -> Block:
        """Return a block; a frame without a timestamp has the time `before_ns`."""
        kind = section.u32(raw, 0)
        check_body(kind, len(raw) - _LEAST)
        if raw[:_MAGIC] == SECTION_HEADER:
            return Block(SECTION, raw, section.order)
        if kind == codes.INTERFACE:
            section.add_interface(raw, 8, len(raw) - 4)
            return Block(INTERFACE, raw, section.order)
        if kind == codes.SIMPLE_PACKET:
            return self._simple(section, raw, frame, before_ns)
        if kind not in {codes.PACKET, codes.OLD_PACKET}:
            numbered = frame if kind in NUMBERED else 0
            return Block(OTHER, raw, section.order, numbered, before_ns)
        index, high, low, captured, wire = Struct(section.order + "IIIII").unpack_from(raw, 8)
        drops = DROPS_UNKNOWN
        if kind == codes.OLD_PACKET:
            index, drops = Struct(section.order + "HH").unpack_from(raw, 8)
        start, end = 28, len(raw) - 4
        if captured > min(end - start, MAX_FRAME_OCTETS) or index >= len(section.interfaces):
            raise DamageError(f"packet block says {captured} captured bytes of interface {index}")
        interface = section.interfaces[index]
        ticks = high << 32 | low
        return Block(
            PACKET, raw, section.order, frame, interface.time_ns(ticks), interface.link,
            interface.sight, index, start, captured, wire, start + (captured + 3 & ~3),
            ticks=ticks, timed=True, drops=drops,
        )  # fmt: skip

    @staticmethod
    def _simple(section: Section, raw: bytes, frame: int, time_ns: int) -> Block:
        if not section.interfaces:
            raise DamageError("packet names interface 0, but none is described")
        wire = section.u32(raw, 8)
        interface = section.interfaces[0]
        # The captured length follows from the length of the block and the snap length.
        captured = min(wire, len(raw) - 16, interface.snap_length or wire)
        if captured > MAX_FRAME_OCTETS:
            raise DamageError(f"packet block says {captured} captured bytes")
        ticks = max(time_ns - interface.offset_ns, 0) * interface.ticks_per_s // NS_PER_S
        return Block(
            PACKET, raw, section.order, frame, time_ns, interface.link, interface.sight, 0, 12,
            captured, wire, ticks=ticks,
        )  # fmt: skip


def _order(head: bytes) -> str:
    mark = head[8:12]
    if mark not in ORDERS:
        raise DamageError(f"section header has byte-order mark {mark.hex()}")
    return ORDERS[mark]
