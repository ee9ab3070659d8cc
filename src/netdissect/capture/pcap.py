"""The pcap format: a file header, followed by records.

```
file header (24 bytes)                      record header (16 bytes; 24 in the "modified" format)
magic | major.minor | zone | sigfigs         seconds | fraction | captured length | wire length
snap length | link type                      [interface u32, protocol u16, type u8, pad u8]
```
Source: draft-ietf-opsawg-pcap-05; for the modified magic libpcap `sf-pcap.c`
(KUZNETZOV_TCPDUMP_MAGIC).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from netdissect.capture.account import Format, Ledger
from netdissect.model.native import read_i64_be, read_i64_le
from netdissect.model.packets import NS_PER_S

if TYPE_CHECKING:
    from mypy_extensions import i64

    from netdissect.capture.source import Window
    from netdissect.model.sinks import FrameSink

MAX_FRAME_OCTETS = 262_144
"""Largest captured frame, bytes; a larger length is damage. Source: libpcap MAXIMUM_SNAPLEN,
Wireshark WTAP_MAX_PACKET_SIZE_STANDARD.
"""

_HEADER_OCTETS: Final = 24  # of the file. Source: draft-ietf-opsawg-pcap section 4
_WORD: Final = 0xFFFF_FFFF
LATEST_NS: Final = (1 << 62) - 1
"""Latest timestamp, later than any that 32 bits of seconds can represent (February 2106). Times are
limited to it, so that sums of times fit into 64 bits.
"""

MAGICS: dict[bytes, tuple[str, int, int]] = {
    b"\xd4\xc3\xb2\xa1": ("<", 1000, 16),
    b"\xa1\xb2\xc3\xd4": (">", 1000, 16),
    b"\x4d\x3c\xb2\xa1": ("<", 1, 16),
    b"\xa1\xb2\x3c\x4d": (">", 1, 16),
    b"\x34\xcd\xb2\xa1": ("<", 1000, 24),
    b"\xa1\xb2\xcd\x34": (">", 1000, 24),
}
"""First four bytes -> (byte order, nanoseconds per unit of the fraction, bytes of a record
header).
"""


class PcapFile(Format):
    """Reads the records of a pcap file."""

    __slots__ = ("_big", "_header", "_ledger", "_link", "_need", "_number", "_scale", "_window")

    def __init__(self, window: Window, ledger: Ledger) -> None:
        """Create a reader; the window already has the magic number."""
        order, self._scale, self._header = MAGICS[window.data[:4]]
        self._big = order == ">"
        self._window = window
        self._ledger = ledger
        self._number = 0
        self._link = -1
        """Link type; -1 until the file header was read."""
        self._need = _HEADER_OCTETS
        """Bytes that are needed to read on."""
        ledger.info.nanosecond = self._scale == 1

    def more(self, taker: FrameSink) -> bool:
        """Read on, and pass each complete frame to the sink; return False at the end."""
        window, ledger, need = self._window, self._ledger, self._need
        if need > self._header + MAX_FRAME_OCTETS:
            ledger.damaged(window, f"record says {need - self._header} captured bytes")
            return False
        if not window.fill(need):
            ledger.cut_short(window, "file header" if self._link < 0 else "record", need)
            return False
        if self._link < 0:
            # The upper half of the link-type word holds flags about a frame check sequence.
            word = window.data[20:24]
            self._link = int.from_bytes(word, "big" if self._big else "little") & 0xFFFF
            ledger.link_type(self._link)
            window.pos += _HEADER_OCTETS
        self._records(taker)
        return True

    def _records(self, taker: FrameSink) -> None:
        """Read all complete records in the window, and set how many bytes the next one needs."""
        window = self._window
        data = window.data
        pos: i64 = window.pos
        end: i64 = len(data)
        header: i64 = self._header
        scale: i64 = self._scale
        second: i64 = NS_PER_S
        longest: i64 = MAX_FRAME_OCTETS
        link: i64 = self._link
        number: i64 = self._number
        before: i64 = number
        big = self._big
        octets: i64 = 0
        first: i64 = LATEST_NS
        last: i64 = 0
        need: i64 = header
        while pos + header <= end:
            # Each read takes two words; the masks remove the sign bits that shifting brings in.
            if big:
                times, sizes = read_i64_be(data, pos), read_i64_be(data, pos + 8)
                seconds, fraction = times >> 32 & _WORD, times & _WORD
                captured, wire = sizes >> 32 & _WORD, sizes & _WORD
            else:
                times, sizes = read_i64_le(data, pos), read_i64_le(data, pos + 8)
                seconds, fraction = times & _WORD, times >> 32 & _WORD
                captured, wire = sizes & _WORD, sizes >> 32 & _WORD
            start = pos + header
            stop = start + captured
            if stop > end or captured > longest:
                need = header + captured
                break
            number += 1
            time_ns = seconds * second + fraction * scale
            octets += wire
            # Interpreted, `min` and `max` would take longer than the rest of the loop.
            if time_ns < first:  # noqa: PLR1730
                first = time_ns
            if time_ns > last:  # noqa: PLR1730
                last = time_ns
            pos = stop
            taker.frame(number, time_ns, link, data, start, stop, wire)
        window.pos = pos
        self._number = number
        self._need = need
        if number > before:
            self._ledger.frames(number - before, octets, first, last)
