"""The classic capture file: one header, then records.

```
file header (24 octets)                      record header (16 octets; 24 in the "modified" format)
magic | major.minor | zone | sigfigs         seconds | fraction | captured length | wire length
snap length | link type                      [interface u32, protocol u16, type u8, pad u8]
```
Source: draft-ietf-opsawg-pcap-05; for the modified magic libpcap `sf-pcap.c`
(KUZNETZOV_TCPDUMP_MAGIC).
"""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING, Final

from netdissect.capture.account import Ledger

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mypy_extensions import i64

    from netdissect.capture.source import Window
    from netdissect.model.packets import Frame

__all__ = ["MAGICS", "MAX_FRAME_OCTETS", "pcap_batches"]

MAX_FRAME_OCTETS = 262_144
"""Longest captured frame that is believed; a longer length is damage. Source: libpcap
MAXIMUM_SNAPLEN, Wireshark WTAP_MAX_PACKET_SIZE_STANDARD.
"""

_HEADER_OCTETS: Final = 24
_NS_PER_S: Final = 1_000_000_000

MAGICS: dict[bytes, tuple[str, int, int]] = {
    b"\xd4\xc3\xb2\xa1": ("<", 1000, 16),
    b"\xa1\xb2\xc3\xd4": (">", 1000, 16),
    b"\x4d\x3c\xb2\xa1": ("<", 1, 16),
    b"\xa1\xb2\x3c\x4d": (">", 1, 16),
    b"\x34\xcd\xb2\xa1": ("<", 1000, 24),
    b"\xa1\xb2\xcd\x34": (">", 1000, 24),
}
"""First four octets -> (byte order, nanoseconds per unit of the fraction, octets of a record
header).
"""


def pcap_batches(window: Window, ledger: Ledger) -> Iterator[list[Frame]]:
    """Yield the frames of a pcap file, those of one read together."""
    order, scale, header = MAGICS[window.data[:4]]
    ledger.info.nanosecond = scale == 1
    if not window.fill(_HEADER_OCTETS):
        ledger.cut_short(window, "file header", _HEADER_OCTETS)
        return
    # The upper half of the link-type word holds flags about a frame check sequence.
    link = Struct(order + "I").unpack_from(window.data, 20)[0] & 0xFFFF
    ledger.link_type(link)
    window.pos += _HEADER_OCTETS
    records = _Records(order, scale, header, link)
    while True:
        batch, need = records.whole(window)
        if batch:
            ledger.frames(batch)
            yield batch
        if need > header + MAX_FRAME_OCTETS:
            ledger.damaged(window, f"record says {need - header} captured octets")
            return
        if not window.fill(need):
            ledger.cut_short(window, "record", need)
            return


def _time_ns(seconds: i64, fraction: i64, scale: i64) -> i64:
    """Return a time of 32-bit numbers: it fits 63 bits, so native arithmetic has room for it."""
    return seconds * _NS_PER_S + fraction * scale


class _Records:
    """Reads the records of one file, whose frames it numbers."""

    __slots__ = ("_header", "_link", "_number", "_scale", "_unpack")

    def __init__(self, order: str, scale: int, header: int, link: int) -> None:
        self._unpack = Struct(order + "IIII").unpack_from
        self._scale = scale
        self._header = header
        self._link = link
        self._number = 0

    def whole(self, window: Window) -> tuple[list[Frame], int]:
        """Take the records in hand; return their frames, and how many octets the next one needs."""
        batch: list[Frame] = []
        unpack, scale, header, link = self._unpack, self._scale, self._header, self._link
        number = self._number
        data, pos = window.data, window.pos
        end = len(data)
        need = header
        while pos + header <= end:
            # The type makes plain machine integers of them where this is compiled.
            record: tuple[int, int, int, int] = unpack(data, pos)
            seconds, fraction, captured, wire = record
            start = pos + header
            stop = start + captured
            if stop > end or captured > MAX_FRAME_OCTETS:
                need = header + captured
                break
            number += 1
            time_ns = _time_ns(seconds, fraction, scale)
            batch.append((number, time_ns, link, data[start:stop], wire))
            pos = stop
        window.pos = pos
        self._number = number
        return batch, need
