"""What travels in a capture, 32 bytes a packet: kept by the first pass, so that the second reads no
frames. In memory for small captures, else in a file without a name.
"""

from __future__ import annotations

from collections.abc import Iterator
from tempfile import TemporaryFile
from typing import IO, TYPE_CHECKING, Final

from netdissect.model.native import BytesWriter, read_i64_le, write_i64_le

if TYPE_CHECKING:
    from mypy_extensions import i64

    from netdissect.join.clock import Clock

__all__ = ["Cursor", "Rows"]

MAX_IN_MEMORY: Final = 1 << 20
"""Bytes of rows in memory; further ones go to a file."""
_ROW: Final = 32
# sample.MAX_FLOWS fits; 47 bits are left for the frame.
_FLOW_BITS: Final = 16
_FLOW: Final = (1 << _FLOW_BITS) - 1
_LENGTH_BITS: Final = 24
_LENGTH: Final = (1 << _LENGTH_BITS) - 1
_NO_EXTENT: Final = -1


class Rows:
    """Row per packet of one capture."""

    __slots__ = ("_file", "_writer")

    def __init__(self) -> None:
        self._writer = BytesWriter()
        self._file: IO[bytes] | None = None

    def add(
        self, time_ns: i64, name: i64, frame: i64, flow: i64, seq: i64 = -1, octets: i64 = 0
    ) -> None:
        """Add a packet; `seq` and `octets` are those of a TCP segment with data."""
        writer = self._writer
        write_i64_le(writer, time_ns)
        write_i64_le(writer, name)
        write_i64_le(writer, frame << _FLOW_BITS | flow)
        # A frame may claim more than any segment has: its number is to stay what it is.
        if octets > _LENGTH:  # noqa: PLR1730 - the builtin would cost more
            octets = _LENGTH
        write_i64_le(writer, _NO_EXTENT if seq < 0 else seq << _LENGTH_BITS | octets)
        if len(writer) >= MAX_IN_MEMORY:
            if self._file is None:
                self._file = TemporaryFile()  # noqa: SIM115 - it lives as long as the rows
            self._file.write(writer.getvalue())
            writer.truncate(0)

    def parts(self) -> Iterator[bytes]:
        """Yield the rows, many at a time."""
        if self._file is not None:
            self._file.seek(0)
            while part := self._file.read(MAX_IN_MEMORY):
                yield part
        yield self._writer.getvalue()

    def close(self) -> None:
        """Free the file."""
        if self._file is not None:
            self._file.close()
            self._file = None


class Cursor:
    """Goes through the rows of one capture, by the clock of the first."""

    __slots__ = (
        "_at", "_behind_ns", "_clock", "_parts", "_plain", "_rows", "capture", "common_ns", "flow",
        "frame", "going", "name",
    )  # fmt: skip

    def __init__(self, capture: int, rows: Rows, clock: Clock) -> None:
        self.capture = capture
        self._clock = clock
        # Most clocks were not set and do not drift apart: no call a row.
        behind = clock.behind(capture)
        self._plain = behind is not None
        self._behind_ns: i64 = behind or 0
        self._parts = rows.parts()
        self._rows = b""
        self._at: i64 = -_ROW
        self.common_ns: i64 = 0
        self.frame: i64 = 0
        self.name: i64 = 0
        self.flow: i64 = 0
        """Number of its flow."""
        self.going = True
        """False behind the last."""
        self.step()

    def step(self) -> None:
        """Go to the next row."""
        self._at += _ROW
        while self._at >= len(self._rows):
            part = next(self._parts, None)
            if part is None:
                self.going = False
                return
            self._rows, self._at = part, 0
        rows, at = self._rows, self._at
        time_ns = read_i64_le(rows, at)
        self.name = read_i64_le(rows, at + 8)
        place = read_i64_le(rows, at + 16)
        self.frame = place >> _FLOW_BITS
        self.flow = place & _FLOW
        if self._plain:
            self.common_ns = time_ns - self._behind_ns
        else:
            self.common_ns = self._clock.common(self.capture, self.frame, time_ns)

    def extent(self) -> tuple[int, int] | None:
        """Return (sequence number, bytes) of a TCP segment with data."""
        word = read_i64_le(self._rows, self._at + 24)
        return None if word < 0 else (word >> _LENGTH_BITS, word & _LENGTH)
