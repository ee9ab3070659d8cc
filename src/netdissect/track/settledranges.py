"""The acknowledged units of a stream, for late copies of their bytes."""

from __future__ import annotations

from typing import Final

from netdissect.model.native import ABSENT, append, i64, vec
from netdissect.model.units import STREAM
from netdissect.track.recorder import ConnectionRecorder
from netdissect.track.streamunits import SentRange

_ROW: Final = 8


class SettledRanges:
    """The newest acknowledged units of one direction. Those whose records were emitted are rows of
    a table, which take a tenth of the memory of a record.
    """

    __slots__ = ("_most", "_oldest", "_rows", "units")

    def __init__(self, most: i64) -> None:
        """Create an empty memory of `most` units with records, and as many without."""
        self._most = most
        self.units: list[SentRange] = []
        """Those whose records were not emitted, and few others."""
        self._rows = vec[i64]()
        """Rows of eight: offset of the first byte, offset after the last (0 = unused row), number
        of the first byte on the wire, frame, frame of the acknowledgement, its time in ns, the
        round trip in ns or ABSENT, and whether that is ambiguous.
        """
        self._oldest: i64 = 0
        """Index of the oldest row, once the table is full."""

    def add(self, unit: SentRange) -> None:
        """Add a unit with a record; forget the oldest one if there are too many."""
        self.units.append(unit)
        if len(self.units) > self._most:
            del self.units[0]

    def left(self) -> None:
        """Turn units whose records were emitted into rows."""
        units, place = self.units, 0
        while place < len(units):
            unit = units[place]
            record = unit.record
            if record is None or not record.emitted:
                break
            place += 1
            frame = record.extra.get("continued", record.copies[0].frame)
            if frame is None or record.acked_frame is None or record.acked_time_ns is None:
                continue
            rtt_ms = record.rtt_ms
            rtt_ns: i64 = ABSENT if rtt_ms is None else round(rtt_ms * 1e6)
            at: i64 = len(self._rows)
            if at < _ROW * self._most:
                for _ in range(_ROW):
                    self._rows = append(self._rows, 0)
            else:
                at = self._oldest
                self._oldest = at + _ROW if at + _ROW < len(self._rows) else 0
            rows = self._rows
            rows[at] = unit.start
            rows[at + 1] = unit.end
            rows[at + 2] = record.wire_seq
            rows[at + 3] = frame
            rows[at + 4] = record.acked_frame
            rows[at + 5] = record.acked_time_ns
            rows[at + 6] = rtt_ns
            rows[at + 7] = record.rtt_ambiguous
        del units[:place]

    def retire(self) -> None:
        """Turn all units into rows."""
        for unit in self.units:
            if unit.record is not None:
                unit.record.emitted = True
        self.left()

    def reopen(
        self, start: int, end: int, most: int, direction: int, recorder: ConnectionRecorder
    ) -> None:
        """Give the units that overlap a range records again if theirs were emitted: `most` of them
        at most.
        """
        rows = self._rows
        at: i64 = 0
        while at < len(rows) and most:
            if rows[at + 1] and rows[at] < end and rows[at + 1] > start:
                most -= 1
                self._reopen(at, direction, recorder)
            at += _ROW

    def _reopen(self, at: i64, direction: int, recorder: ConnectionRecorder) -> None:
        rows = self._rows
        record = recorder.open(direction, STREAM, int(rows[at + 2]), int(rows[at]), "data", None)
        record.extra["continued"] = int(rows[at + 3])
        record.acked_frame, record.acked_time_ns = int(rows[at + 4]), int(rows[at + 5])
        record.rtt_ms = None if rows[at + 6] == ABSENT else int(rows[at + 6]) / 1e6
        record.rtt_ambiguous = rows[at + 7] == 1
        record.outcome, record.settled_ns = "acked", record.acked_time_ns
        frame, time_ns = int(rows[at + 3]), int(rows[at + 5])
        self.units.append(SentRange(int(rows[at]), int(rows[at + 1]), time_ns, frame, record))
        rows[at + 1] = 0
