"""The packets of a capture as rows of 32 bytes, so that the second pass reads no frames.

The rows of a small capture are in memory; those of a larger one go to an unnamed temporary file.
"""

from __future__ import annotations

from collections.abc import Iterator
from tempfile import TemporaryFile
from typing import IO, TYPE_CHECKING, Final

from netdissect.model.native import BytesWriter, read_i64_le, write_i64_le

if TYPE_CHECKING:
    from mypy_extensions import i64

    from netdissect.join.clock import Clock

MAX_IN_MEMORY: Final = 1 << 20
"""Bytes of rows in memory before they are moved to the file."""

# A row is four words: time; token; frame and flow; sequence number and length of a TCP segment.
_ROW: Final = 32
_FLOW_BITS: Final = 16
"""Room for `sample.MAX_FLOWS`; 47 bits remain for the frame."""
_FLOW: Final = (1 << _FLOW_BITS) - 1
_LENGTH_BITS: Final = 24
_LENGTH: Final = (1 << _LENGTH_BITS) - 1
_NO_EXTENT: Final = -1


class Rows:
    """The rows of one capture, in order of frames."""

    __slots__ = ("_file", "_writer")

    def __init__(self) -> None:
        self._writer = BytesWriter()
        self._file: IO[bytes] | None = None

    def add(
        self, time_ns: i64, token: i64, frame: i64, flow: i64, seq: i64 = -1, octets: i64 = 0
    ) -> None:
        """Append a packet; `seq` and `octets` are those of a TCP segment with data."""
        writer = self._writer
        write_i64_le(writer, time_ns)
        write_i64_le(writer, token)
        write_i64_le(writer, frame << _FLOW_BITS | flow)
        # A frame may state a greater length than any segment has, which must not spill into seq.
        if octets > _LENGTH:  # noqa: PLR1730 - the builtin would cost more
            octets = _LENGTH
        write_i64_le(writer, _NO_EXTENT if seq < 0 else seq << _LENGTH_BITS | octets)
        if len(writer) >= MAX_IN_MEMORY:
            if self._file is None:
                self._file = TemporaryFile()  # noqa: SIM115 - it lives as long as the rows
            self._file.write(writer.getvalue())
            writer.truncate(0)

    def blocks(self) -> Iterator[bytes]:
        """Yield the rows, many at a time."""
        if self._file is not None:
            self._file.seek(0)
            while block := self._file.read(MAX_IN_MEMORY):
                yield block
        yield self._writer.getvalue()

    def close(self) -> None:
        """Delete the file."""
        if self._file is not None:
            self._file.close()
            self._file = None


class Cursor:
    """Reads the rows of one capture in order, with their times converted to the common time."""

    __slots__ = (
        "_at", "_block", "_blocks", "_clock", "_has_offset", "_offset_ns", "capture", "common_ns",
        "flow", "frame", "has_row", "token",
    )  # fmt: skip

    def __init__(self, capture: int, rows: Rows, clock: Clock) -> None:
        self.capture = capture
        self._clock = clock
        # Most clocks have neither steps nor drift: then no call per row is needed.
        offset = clock.constant_offset(capture)
        self._has_offset = offset is not None
        self._offset_ns: i64 = offset or 0
        self._blocks = rows.blocks()
        self._block = b""
        self._at: i64 = -_ROW
        self.common_ns: i64 = 0
        self.frame: i64 = 0
        self.token: i64 = 0
        self.flow: i64 = 0
        """Number of its flow."""
        self.has_row = True
        """False after the last row."""
        self.advance()

    def advance(self) -> None:
        """Move to the next row."""
        self._at += _ROW
        while self._at >= len(self._block):
            block = next(self._blocks, None)
            if block is None:
                self.has_row = False
                return
            self._block, self._at = block, 0
        block, at = self._block, self._at
        time_ns = read_i64_le(block, at)
        self.token = read_i64_le(block, at + 8)
        place = read_i64_le(block, at + 16)
        self.frame = place >> _FLOW_BITS
        self.flow = place & _FLOW
        if self._has_offset:
            self.common_ns = time_ns - self._offset_ns
        else:
            self.common_ns = self._clock.common(self.capture, self.frame, time_ns)

    def extent(self) -> tuple[int, int] | None:
        """Return (sequence number, bytes) of a TCP segment with data, else None."""
        word = read_i64_le(self._block, self._at + 24)
        return None if word < 0 else (word >> _LENGTH_BITS, word & _LENGTH)
