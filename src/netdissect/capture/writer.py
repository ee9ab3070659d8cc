"""Writes pcap and pcapng files. Only complete records reach the file, so that it stays readable.

Records are collected and written in one piece by `flush`, which live capture calls after each
batch. If writing fails half-way (full disk), the file is truncated after its last complete record.
"""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from itertools import accumulate
from struct import Struct, pack
from typing import IO, TYPE_CHECKING

from netdissect.capture import codes
from netdissect.model.closing import Closing
from netdissect.model.errors import CaptureFileError
from netdissect.model.packets import MAX_SNAP_OCTETS, NS_PER_S

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from netdissect.model.packets import Frame

FLUSH_OCTETS = 64 * 1024
"""Collected bytes that are written without a call of `flush`."""

_PCAP_MAGIC_US, _PCAP_MAGIC_NS = 0xA1B2C3D4, 0xA1B23C4D
_MAX_OPTION = 65_535  # 16 bits hold the length of an option
_NANOSECONDS = b"\x09"
_PACKET_HEAD, _TOTAL = Struct("<IIIIIII"), Struct("<I")
_PADDING = (b"", b"\0", b"\0\0", b"\0\0\0")


class _Sink(Closing):
    """A file to which complete records are written."""

    def __init__(self, target: str | os.PathLike[str] | IO[bytes]) -> None:
        self._owned = False
        if not isinstance(target, (str, os.PathLike)):
            self._file: IO[bytes] = target
        elif os.fspath(target) == "-":
            self._file = sys.stdout.buffer
        else:
            # Captures may have passwords: only the owner may read a new file.
            self._file = _created(os.fspath(target))
            self._owned = True
        self._gathered: list[bytes] = []
        self._octets = 0
        self._written = 0

    @property
    def octets(self) -> int:
        """Return the number of bytes written, including the collected records."""
        return self._written + self._octets

    def flush(self) -> None:
        """Write the collected records.

        Raises:
            OSError: they cannot be written; the file then ends with its last complete record.

        """
        if not self._octets:
            return
        records = self._gathered
        data = memoryview(b"".join(records))
        self._gathered, self._octets = [], 0
        sent = 0
        try:
            # An unbuffered write may accept only a part of the data.
            while sent < len(data):
                sent += self._file.write(data[sent:]) or 0
            self._file.flush()
        except OSError as error:
            self._cut_back(records, sent)
            self._name(error)
            raise
        self._written += len(data)

    def close(self) -> None:
        """Write the collected records, and close the file unless the caller opened it."""
        try:
            self.flush()
        finally:
            if self._owned:
                try:
                    self._file.close()
                except OSError as error:  # a network file system may report a full disk only now
                    self._name(error)
                    raise

    def _name(self, error: OSError) -> None:
        if self._owned and error.filename is None:
            error.filename = self._file.name

    def _put(self, record: bytes) -> None:
        self._gathered.append(record)
        self._octets += len(record)
        if self._octets >= FLUSH_OCTETS:
            self.flush()

    def _cut_back(self, records: list[bytes], sent: int) -> None:
        """Remove an incomplete record from the end of a file that was opened here."""
        if not self._owned:
            return
        ends = accumulate(map(len, records))
        self._written += max((end for end in ends if end <= sent), default=0)
        with suppress(OSError):
            self._file.truncate(self._written)
            self._file.seek(self._written)


def _created(path: str) -> IO[bytes]:
    try:
        return open(path, "wb", buffering=0, opener=_private)
    except OSError as error:
        raise CaptureFileError(f"{path}: {error.strerror or error}") from error


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


class BlockWriter(_Sink):
    """Writes records or blocks that are already encoded."""

    def write(self, raw: bytes) -> None:
        """Add one complete record or block."""
        self._put(raw)


class PcapWriter(_Sink):
    """Writes frames of one link type to a pcap file, with times in nanoseconds.

    Args:
        target: a path, `-` for standard output, or an open binary file (which stays open).
        link_type: link type of all frames.
        nanosecond: False truncates times to microseconds, for readers that support nothing else.

    """

    def __init__(
        self, target: str | os.PathLike[str] | IO[bytes], link_type: int, *, nanosecond: bool = True
    ) -> None:
        super().__init__(target)
        self._unit = 1 if nanosecond else 1000
        magic = _PCAP_MAGIC_NS if nanosecond else _PCAP_MAGIC_US
        # Version 2.4, times in UTC, no statement about their accuracy.
        self._put(pack("<IHHiIII", magic, 2, 4, 0, 0, MAX_SNAP_OCTETS, link_type))
        self.flush()

    def write(self, time_ns: int, data: bytes, wire_length: int | None = None) -> None:
        """Add a frame.

        Args:
            time_ns: time since the Unix epoch.
            data: captured bytes.
            wire_length: bytes on the wire; None = all were captured.

        """
        seconds, fraction = divmod(time_ns, NS_PER_S)
        wire = len(data) if wire_length is None else wire_length
        header = pack("<IIII", seconds & 0xFFFFFFFF, fraction // self._unit, len(data), wire)
        self._put(header + data)


class PcapngWriter(_Sink):
    """Writes a pcapng file of one section, with interfaces, times in nanoseconds, comments and drop
    counters.

    Args:
        target: a path, `-` for standard output, or an open binary file (which stays open).
        comment: comment of the whole file.

    """

    def __init__(
        self, target: str | os.PathLike[str] | IO[bytes], *, comment: str | None = None
    ) -> None:
        super().__init__(target)
        self._interfaces = 0
        # Version 1.0; -1 because the length of the section is not known yet.
        body = pack("<IHHq", codes.BYTE_ORDER_MAGIC, 1, 0, -1)
        self._put(block_bytes(codes.SECTION, body + _options([(codes.COMMENT, _text(comment))])))
        self.flush()

    def add_interface(self, link_type: int, name: str | None = None) -> int:
        """Describe an interface; return the number that `write` takes."""
        options = [(codes.IF_NAME, _text(name)), (codes.IF_TSRESOL, _NANOSECONDS)]
        head = pack("<HHI", link_type, 0, MAX_SNAP_OCTETS)
        self._put(block_bytes(codes.INTERFACE, head + _options(options)))
        self._interfaces += 1
        return self._interfaces - 1

    def write(
        self,
        time_ns: int,
        data: bytes,
        wire_length: int | None = None,
        *,
        interface: int = 0,
        comment: str | None = None,
    ) -> None:
        """Add a frame.

        Args:
            time_ns: time since the Unix epoch.
            data: captured bytes.
            wire_length: bytes on the wire; None = all were captured.
            interface: number of its interface.
            comment: comment of this frame.

        Raises:
            ValueError: the interface was not described.

        """
        if not 0 <= interface < self._interfaces:
            raise ValueError(f"interface {interface} was not described")
        wire = len(data) if wire_length is None else wire_length
        high, low = (time_ns >> 32) & 0xFFFFFFFF, time_ns & 0xFFFFFFFF
        padded = data + b"\0" * (-len(data) % 4)
        body = pack("<IIIII", interface, high, low, len(data), wire) + padded
        self._put(block_bytes(codes.PACKET, body + _options([(codes.COMMENT, _text(comment))])))

    def write_all(self, frames: Iterable[Frame], *, interface: int) -> None:
        """Add frames of one interface, without comments."""
        put, head, tail = self._put, _PACKET_HEAD.pack, _TOTAL.pack
        for _, time_ns, _, data, wire in frames:
            size = len(data)
            pad = -size % 4
            total = size + pad + 32
            high, low = (time_ns >> 32) & 0xFFFFFFFF, time_ns & 0xFFFFFFFF
            put(
                head(codes.PACKET, total, interface, high, low, size, wire)
                + data + _PADDING[pad] + tail(total)
            )  # fmt: skip

    def write_statistics(self, time_ns: int, *, received: int, dropped: int) -> None:
        """Add statistics of the first interface: packets received and dropped up to a time."""
        body = pack("<III", 0, (time_ns >> 32) & 0xFFFFFFFF, time_ns & 0xFFFFFFFF)
        counts = [(codes.ISB_IFRECV, pack("<Q", received)), (codes.ISB_IFDROP, pack("<Q", dropped))]
        self._put(block_bytes(codes.STATISTICS, body + _options(counts)))


def _text(text: str | None) -> bytes | None:
    return None if text is None else text.encode("utf-8", "replace")[:_MAX_OPTION]


def _options(options: Sequence[tuple[int, bytes | None]]) -> bytes:
    """Return the encoded options that have a value, with the end mark; b"" if none has one."""
    parts = [option(code, value) for code, value in options if value]
    return b"".join(parts) + b"\0\0\0\0" if parts else b""


def option(code: int, value: bytes, order: str = "<") -> bytes:
    """Return an option of pcapng, padded."""
    return pack(f"{order}HH", code, len(value)) + value + b"\0" * (-len(value) % 4)


def block_bytes(kind: int, body: bytes, order: str = "<") -> bytes:
    """Return a block of pcapng with this body, a whole number of 32-bit words."""
    total = len(body) + 12
    return pack(f"{order}II", kind, total) + body + pack(f"{order}I", total)
