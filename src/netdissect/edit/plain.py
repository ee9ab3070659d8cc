"""Blocks of any capture as blocks of one little-endian pcapng section.

Numbers in options change their byte order too; texts and bytes stay. Times keep the resolution of
their interface, so none is rounded.
"""

from __future__ import annotations

from collections.abc import Iterator
from struct import pack, unpack_from

from netdissect.capture import codes
from netdissect.capture.account import Ledger
from netdissect.capture.blocks import INTERFACE, PACKET, Block
from netdissect.capture.pcap import MAGICS
from netdissect.capture.pcapng import DROPS_UNKNOWN, Section
from netdissect.capture.writer import block_bytes, option
from netdissect.model.packets import LINK_TYPE
from netdissect.model.reports import CaptureInfo

_WIDE = {
    codes.INTERFACE: frozenset({8, 14, 16, 17}),
    codes.PACKET: frozenset({4, 5}),
    codes.STATISTICS: frozenset({4, 5, 6, 7, 8}),
}
"""Block type -> options that are a 64-bit number."""
_WORDS = {
    codes.INTERFACE: frozenset[int](),
    codes.PACKET: frozenset({2, 6}),
    codes.STATISTICS: frozenset({2, 3}),
}
"""Block type -> options that consist of 32-bit numbers."""
_WORD = 0xFFFFFFFF
_UNTIMED = b"This frame had no timestamp. The time is that of the frame before it in its file."
"""Comment of a frame that was a Simple Packet Block."""


def options(raw: bytes, start: int, end: int, order: str) -> Iterator[tuple[int, bytes]]:
    """Yield (code, value) of the complete options between two offsets."""
    return Section(order, Ledger(CaptureInfo(path="", format="pcapng"))).options(raw, start, end)


def section_header() -> bytes:
    """Return the header of a little-endian section of unknown length."""
    return block_bytes(0x0A0D0D0A, pack("<IHHq", 0x1A2B3C4D, 1, 0, -1))


class Plain:
    """Rewrites the blocks of one file.

    Args:
        name: name for the interface of a pcap file, which has none of its own.

    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._numbers: list[int] = []
        """Interface in the current section -> its number in the output."""
        self.dropped = 0
        """Blocks that were dropped because they belong to nothing written, or are of an unknown
        type.
        """

    def of_pcap(self, block: Block, number: int) -> bytes:
        """Return the description of the only interface of a pcap file, from its header."""
        self._numbers = [number]
        snap_length, link = unpack_from(f"{block.order}II", block.raw, 16)
        nanosecond = MAGICS[block.raw[:4]][1] == 1
        more = option(codes.IF_DESCRIPTION, self._name.encode("utf-8", "replace"))
        more += option(codes.IF_TSRESOL, b"\x09" if nanosecond else b"\x06")
        body = pack("<HHI", link & LINK_TYPE, 0, snap_length) + more + b"\0\0\0\0"
        return block_bytes(codes.INTERFACE, body)

    def section(self) -> None:
        """Start a new section, which has interfaces of its own."""
        self._numbers = []

    def interface(self, block: Block, number: int) -> bytes:
        """Return the description of an interface; in the output its number is `number`."""
        self._numbers.append(number)
        link, reserved, snap = unpack_from(f"{block.order}HHI", block.raw, 8)
        head = pack("<HHI", link, reserved, snap)
        return block_bytes(codes.INTERFACE, head + self._options(block, 16, codes.INTERFACE))

    def packet(self, block: Block) -> bytes:
        """Return a frame as an Enhanced Packet Block."""
        number = self._numbers[block.interface]
        kept = self._options(block, block.options, codes.PACKET) if block.options else b""
        if block.drops != DROPS_UNKNOWN:
            dropped = option(codes.EPB_DROPCOUNT, pack("<Q", block.drops))
            kept = dropped + (kept or b"\0\0\0\0")
        if not block.timed:
            kept = option(codes.COMMENT, _UNTIMED) + b"\0\0\0\0"
        data = block.data
        high, low = block.ticks >> 32 & _WORD, block.ticks & _WORD
        head = pack("<IIIII", number, high, low, len(data), block.wire)
        return block_bytes(codes.PACKET, head + data + b"\0" * (-len(data) % 4) + kept)

    def other(self, block: Block) -> bytes:
        """Return the statistics of an interface; b"" for any other block."""
        kind = unpack_from(f"{block.order}I", block.raw)[0]
        index = unpack_from(f"{block.order}I", block.raw, 8)[0] if kind == codes.STATISTICS else 0
        if kind != codes.STATISTICS or index >= len(self._numbers):
            self.dropped += 1
            return b""
        times = unpack_from(f"{block.order}II", block.raw, 12)
        head = pack("<III", self._numbers[index], *times)
        return block_bytes(codes.STATISTICS, head + self._options(block, 20, codes.STATISTICS))

    def rewrite(self, block: Block, number: int) -> bytes:
        """Return any block but a section header; `number` is the next free interface number."""
        if block.kind == PACKET:
            return self.packet(block)
        return self.interface(block, number) if block.kind == INTERFACE else self.other(block)

    @staticmethod
    def _options(block: Block, start: int, kind: int) -> bytes:
        kept = b""
        for code, value in options(block.raw, start, len(block.raw) - 4, block.order):
            size = 8 if code in _WIDE[kind] else 4 if code in _WORDS[kind] else 0
            if block.order == ">" and size:
                numbers = (value[at : at + size][::-1] for at in range(0, len(value), size))
                kept += option(code, b"".join(numbers))
            else:
                kept += option(code, value)
        return kept + b"\0\0\0\0" if kept else b""
