"""The pcapng format: sections of blocks. Each section has its own byte order, and each interface
its own unit of time.

```
block:   type u32 | total length u32 | body, padded to 4 | total length u32
EPB:     interface u32 | time high u32 | time low u32 | captured u32 | wire u32 | bytes, padded |
options
options: code u16 | length u16 | value, padded to 4; ... ; code 0 ends them
```
Source: draft-ietf-opsawg-pcapng-02; Packet Block (obsolete): its appendix A.
"""

from __future__ import annotations

from dataclasses import dataclass
from struct import Struct
from typing import TYPE_CHECKING, Final

from netdissect.capture import codes
from netdissect.capture.account import MAX_TEXT, Format, Ledger
from netdissect.capture.pcap import LATEST_NS, MAX_FRAME_OCTETS
from netdissect.model.packets import LINK_BITS, NS_PER_S

if TYPE_CHECKING:
    from collections.abc import Iterator

    from netdissect.capture.source import Window
    from netdissect.model.sinks import FrameSink

SECTION_HEADER: Final = b"\x0a\x0d\x0d\x0a"
"""Type of the Section Header Block, the same in both byte orders."""

MAX_BLOCK_OCTETS = 16 * 1024 * 1024
"""Largest block, bytes; a larger length is damage. Source: Wireshark wiretap/pcapng.c
MAX_BLOCK_SIZE.
"""
MAX_INTERFACES = 65_536
"""Interfaces of one section; more are damage."""

_MIN_BLOCK: Final = 12  # type and both lengths
_PACKET_OVERHEAD: Final = 32  # an Enhanced Packet Block without its frame and options
DROPS_UNKNOWN: Final = 0xFFFF  # the obsolete Packet Block has no other way to say so
_US_PER_S: Final = 1_000_000
NUMBERED: Final = frozenset({0x9, 0xBAD, 0x40000BAD, 0x204, 0x216, 0x221})
"""Types of blocks that count as a frame although they have no packet: journal entries, Custom
Blocks and Sysdig events. Source: Wireshark wiretap/pcapng.c, those it does not keep `internal`.
"""
_U64_OCTETS: Final = 8
_LEAST_BODY: Final = {
    codes.INTERFACE: 8,
    codes.OLD_PACKET: 20,
    codes.SIMPLE_PACKET: 4,
    codes.STATISTICS: 12,
    codes.PACKET: 20,
    codes.SECTION: 16,
}
"""Length of the fixed part of a block body, bytes."""


@dataclass(slots=True)
class _Interface:
    """One interface of the current section."""

    link: int
    sight: int
    """The link type as in `Frame`: with the number of the interface if there are several."""
    snap_length: int
    ns_per_tick: int
    """Nanoseconds per tick; 0 if that is not an integer, and `ticks_per_s` has to be used."""
    ticks_per_s: int
    offset_ns: int
    drops: int | None = None
    """Dropped packets according to the latest statistics block."""
    packet_drops: int | None = None
    """Dropped packets according to the counters in the packets, summed up."""

    def time_ns(self, ticks: int) -> int:
        """Return the time of a timestamp, limited to the range from the epoch to `LATEST_NS`."""
        time_ns = ticks * self.ns_per_tick or ticks * NS_PER_S // self.ticks_per_s
        return min(max(time_ns + self.offset_ns, 0), LATEST_NS)

    @property
    def lost(self) -> int:
        """Return the number of dropped packets, by the statistics or else by the packets."""
        return (self.packet_drops if self.drops is None else self.drops) or 0


class DamageError(Exception):
    """The block at the window's position cannot be read; the text says why."""


class Section:
    """The section that is being read: its byte order and interfaces."""

    def __init__(self, order: str, ledger: Ledger) -> None:
        self.ledger = ledger
        self.order = order
        self.word = Struct(order + "I").unpack_from
        self.packet = Struct(order + "IIIIIII").unpack_from
        self._option = Struct(order + "HH").unpack_from
        self._u64 = Struct(order + "Q").unpack_from
        self.interfaces: list[_Interface] = []

    def u32(self, data: bytes, pos: int) -> int:
        """Return the 32-bit number at `pos`."""
        return int(self.word(data, pos)[0])

    def options(self, data: bytes, pos: int, end: int) -> Iterator[tuple[int, bytes]]:
        """Yield (code, value) of each option, up to one that does not fit into its block."""
        while pos + 4 <= end:
            code, length = self._option(data, pos)
            pos += 4
            if code == codes.END_OF_OPTIONS or pos + length > end:
                return
            yield code, data[pos : pos + length]
            pos += (length + 3) & ~3

    def u64(self, value: bytes) -> int | None:
        """Return a 64-bit option value; None if it is too short."""
        return int(self._u64(value)[0]) if len(value) >= _U64_OCTETS else None

    def add_interface(self, data: bytes, pos: int, end: int) -> None:
        """Read an Interface Description Block body."""
        if len(self.interfaces) >= MAX_INTERFACES:
            raise DamageError(f"more than {MAX_INTERFACES} interfaces in one section")
        link, _, snap_length = Struct(self.order + "HHI").unpack_from(data, pos)
        name, resolution, offset = "", 6, 0
        for code, value in self.options(data, pos + 8, end):
            if code == codes.IF_NAME:
                name = _text(value)
            elif code == codes.IF_TSRESOL and value:
                resolution = value[0]
            elif code == codes.IF_TSOFFSET and len(value) >= _U64_OCTETS:
                offset = Struct(self.order + "q").unpack_from(value)[0]
            elif code == codes.COMMENT:
                self.ledger.comment(_text(value))
        # The high bit selects powers of 2 instead of 10 (draft section 4.2, if_tsresol).
        ticks = 2 ** (resolution & 0x7F) if resolution & 0x80 else 10**resolution
        whole, part = divmod(NS_PER_S, ticks)
        ns_per_tick = 0 if part else whole
        self.interfaces.append(
            _Interface(link, link, snap_length, ns_per_tick, ticks, offset * NS_PER_S)
        )
        # As soon as there is a second interface, frames have the number of their interface.
        number = len(self.interfaces)
        if number > 1:
            self.interfaces[0].sight = self.interfaces[0].link | 1 << LINK_BITS
            self.interfaces[-1].sight = link | number << LINK_BITS
        self.ledger.link_type(link)
        self.ledger.interface(name or f"interface {len(self.interfaces) - 1}")
        self.ledger.info.nanosecond |= ticks > _US_PER_S

    def add_statistics(self, data: bytes, pos: int, end: int) -> None:
        """Read an Interface Statistics Block body; a later block replaces an earlier one."""
        number = self.u32(data, pos)
        counts: list[int] = []
        for code, value in self.options(data, pos + 12, end):
            count = self.u64(value) if code in {codes.ISB_IFDROP, codes.ISB_OSDROP} else None
            if count is not None:
                counts.append(count)
            if code == codes.COMMENT:
                self.ledger.comment(_text(value))
        if counts and number < len(self.interfaces):
            of = self.interfaces[number]
            before, of.drops = of.lost, sum(counts)
            self._lose(of.lost - before)

    def packet_options(
        self, data: bytes, pos: int, end: int, *, of: _Interface, frame: int
    ) -> None:
        """Read the options of a packet block."""
        for code, value in self.options(data, pos, end):
            if code == codes.COMMENT:
                self.ledger.comment(f"frame {frame}: {_text(value)}")
            elif code == codes.EPB_DROPCOUNT and (count := self.u64(value)) is not None:
                self.add_packet_drops(of, count)

    def add_packet_drops(self, of: _Interface, count: int) -> None:
        """Add the number of packets that were dropped before a packet, according to it."""
        before, of.packet_drops = of.lost, (of.packet_drops or 0) + count
        self._lose(of.lost - before)

    def _lose(self, more: int) -> None:
        """Add to the dropped packets of all interfaces."""
        self.ledger.info.drops = (self.ledger.info.drops or 0) + more


class PcapngFile(Format):
    """Reads the blocks of one file."""

    def __init__(self, window: Window, ledger: Ledger, first: int = 1) -> None:
        self.window = window
        self.ledger = ledger
        self._need = 0
        """Bytes that the next block needs; 0 until the first section header was read."""
        self.number = first - 1
        """Number of the latest frame."""
        self.time_ns = 0
        """Time of the latest frame. A Simple Packet Block, which has no timestamp, gets it too."""
        self.section: Section = Section("<", ledger)

    def more(self, taker: FrameSink) -> bool:
        """Read on, and pass each complete frame to the sink; return False at the end."""
        window, need = self.window, self._need
        try:
            if not need and not self._open_section():
                return False
            need = need or _MIN_BLOCK
            if window.left < need and not window.fill(need):
                self.ledger.cut_short(window, "block", need)
                return False
            self._need = self._walk(taker)
        except DamageError as error:
            self.ledger.damaged(window, str(error))
            return False
        return True

    def _walk(self, taker: FrameSink) -> int:
        """Read all complete blocks in the window; return how many bytes the next one needs."""
        window = self.window
        while True:
            if window.left >= _PACKET_OVERHEAD:
                self._packets(taker)
            if window.left < _MIN_BLOCK:
                return _MIN_BLOCK
            need = self._block(taker)
            if need:
                return need

    def _packets(self, taker: FrameSink) -> None:
        """Read consecutive Enhanced Packet Blocks, up to the first other or incomplete block."""
        window, section = self.window, self.section
        data, pos, number = window.data, window.pos, self.number
        end = len(data)
        last = end - _PACKET_OVERHEAD
        interfaces, unpack, word = section.interfaces, section.packet, section.word
        while pos <= last:
            kind, total, index, high, low, captured, wire = unpack(data, pos)
            stop = pos + total
            start = pos + 28
            options = start + ((captured + 3) & ~3)
            if (
                kind != codes.PACKET
                or stop > end
                or options + 4 > stop
                or captured > MAX_FRAME_OCTETS
                or total & 3
                or index >= len(interfaces)
                or word(data, stop - 4)[0] != total
            ):
                break
            interface = interfaces[index]
            time_ns = (high << 32 | low) * interface.ns_per_tick + interface.offset_ns
            if not interface.ns_per_tick or not 0 <= time_ns <= LATEST_NS:
                time_ns = interface.time_ns(high << 32 | low)
            number += 1
            pos = window.pos = stop
            self.number, self.time_ns = number, time_ns
            self.ledger.frames(1, wire, time_ns, time_ns)
            taker.frame(number, time_ns, interface.sight, data, start, start + captured, wire)
            if options + 4 != stop:
                section.packet_options(data, options, stop - 4, of=interface, frame=number)

    def _block(self, taker: FrameSink) -> int:
        """Read one block of any kind; return 0, or how many bytes it needs if it is incomplete."""
        window, section = self.window, self.section
        data, pos = window.data, window.pos
        kind, total = section.u32(data, pos), section.u32(data, pos + 4)
        # Its length is in the byte order that it states itself.
        if kind == codes.SECTION:
            return self._next_section()
        check_length(total)
        size = (total + 3) & ~3
        if window.left < size:
            return size
        again = section.u32(data, pos + size - 4)
        if again != total:
            raise DamageError(f"block of type {kind} has two lengths: {total} and {again}")
        body, end = pos + 8, pos + size - 4
        check_body(kind, end - body)
        if kind == codes.INTERFACE:
            section.add_interface(data, body, end)
        elif kind == codes.STATISTICS:
            section.add_statistics(data, body, end)
        elif kind in {codes.PACKET, codes.OLD_PACKET, codes.SIMPLE_PACKET}:
            self._packet(kind, body, end, taker)
        elif kind in NUMBERED:
            self.number += 1
            self.ledger.info.frames += 1
        window.pos = pos + size
        return 0

    def _packet(self, kind: int, body: int, end: int, taker: FrameSink) -> None:
        """Read a packet block that `_packets` cannot read."""
        section, data = self.section, self.window.data
        index, drops = 0, DROPS_UNKNOWN
        if kind == codes.SIMPLE_PACKET:
            wire = section.u32(data, body)
            start = body + 4
            interface = self._interface(0)
            captured = min(wire, end - start, interface.snap_length or wire)
        else:
            # The seven words of an Enhanced Packet Block, type and length included.
            _, _, index, high, low, captured, wire = section.packet(data, body - 8)
            start = body + 20
            if kind == codes.OLD_PACKET:
                index, drops = Struct(section.order + "HH").unpack_from(data, body)
            interface = self._interface(index)
            self.time_ns = interface.time_ns(high << 32 | low)
        if captured > min(end - start, MAX_FRAME_OCTETS):
            raise DamageError(f"packet block says {captured} captured bytes")
        self.number += 1
        self.ledger.frames(1, wire, self.time_ns, self.time_ns)
        taker.frame(self.number, self.time_ns, interface.sight, data, start, start + captured, wire)
        if drops != DROPS_UNKNOWN:
            section.add_packet_drops(interface, drops)
        if kind != codes.SIMPLE_PACKET:
            options = start + ((captured + 3) & ~3)
            section.packet_options(data, options, end, of=interface, frame=self.number)

    def _interface(self, index: int) -> _Interface:
        interfaces = self.section.interfaces
        if index >= len(interfaces):
            raise DamageError(
                f"packet names interface {index}, but only {len(interfaces)} are described"
            )
        return interfaces[index]

    def _open_section(self) -> bool:
        """Read the first section header; return False if the file ends within it."""
        need = _MIN_BLOCK
        while need:
            if not self.window.fill(need):
                self.ledger.cut_short(self.window, "section header", need)
                return False
            need = self._next_section()
        return True

    def _next_section(self) -> int:
        """Read a Section Header Block; return 0, or how many bytes it needs."""
        window = self.window
        data, pos = window.data, window.pos
        magic = data[pos + 8 : pos + 12]
        if magic not in ORDERS:
            raise DamageError(f"section header has byte-order mark {magic.hex()}")
        section = Section(ORDERS[magic], self.ledger)
        total = section.u32(data, pos + 4)
        check_length(total)
        if total < _MIN_BLOCK + _LEAST_BODY[codes.SECTION]:
            raise DamageError(f"section header is too short: {total} bytes")
        size = (total + 3) & ~3
        if window.left < size:
            return size
        if section.u32(data, pos + size - 4) != total:
            raise DamageError("section header has two different lengths")
        for code, value in section.options(data, pos + 24, pos + size - 4):
            if code == codes.COMMENT:
                self.ledger.comment(_text(value))
        self.section = section
        window.pos = pos + size
        return 0


ORDERS: Final = {
    codes.BYTE_ORDER_MAGIC.to_bytes(4, "little"): "<",
    codes.BYTE_ORDER_MAGIC.to_bytes(4, "big"): ">",
}
"""Byte-order mark of a section -> byte order, as a character of `struct`."""


def check_length(total: int) -> None:
    """Check the total length of a block.

    Raises:
        DamageError: it is too short, or larger than MAX_BLOCK_OCTETS.

    """
    if not _MIN_BLOCK <= total <= MAX_BLOCK_OCTETS:
        raise DamageError(f"block says {total} bytes")


def check_body(kind: int, octets: int) -> None:
    """Check that the body of a block has room for its fixed part.

    Raises:
        DamageError: it is too short.

    """
    if octets < _LEAST_BODY.get(kind, 0):
        raise DamageError(f"block of type {kind} is too short: {_MIN_BLOCK + octets} bytes")


def _text(value: bytes) -> str:
    """Return an option value as text, bounded."""
    text = value.rstrip(b"\0").decode("utf-8", "replace")
    return text if len(text) <= MAX_TEXT else text[:MAX_TEXT] + "…"
