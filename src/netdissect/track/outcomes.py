"""What is noted in the record of a unit, whoever tracks it."""

from __future__ import annotations

from typing import Final

from netdissect.model.reports import Copy, UnitRecord

__all__ = ["KIND", "append_copy", "record_acked", "record_dropped", "record_reclassified"]

KIND: Final[dict[bool | None, str]] = {
    True: "duplicate", False: "retransmission", None: "unknown"
}  # fmt: skip
"""Whether the network made a further copy, None where nothing tells -> its kind."""


def record_acked(record: UnitRecord, frame: int, time_ns: int, *, ambiguous: bool) -> None:
    """Note the first acknowledgement; an ambiguous one tells no round trip."""
    record.acked_frame = frame
    record.acked_time_ns = time_ns
    record.rtt_ambiguous = ambiguous
    if not ambiguous:
        record.rtt_ms = (time_ns - record.copies[0].time_ns) / 1e6
    record.outcome = "acked"
    record.settled_ns = time_ns


def record_reclassified(record: UnitRecord) -> None:
    """Note that the network made other copies of a unit than was thought: an acknowledgement tells
    the round trip of what its sender has sent once.
    """
    acked_ns = record.acked_time_ns
    if acked_ns is None or "continued" in record.extra:
        return
    sent = 0
    for copy in record.copies:
        sent += copy.kind != "duplicate" and copy.time_ns <= acked_ns
    record.rtt_ambiguous = sent > 1
    record.rtt_ms = None if sent > 1 else (acked_ns - record.copies[0].time_ns) / 1e6


def record_dropped(record: UnitRecord, outcome: str, *, lost: bool = False) -> None:
    """Note the end of a unit that was not acknowledged, and whether it is known to be lost."""
    record.outcome = outcome
    record.lost = lost or None
    record.settled_ns = record.copies[-1].time_ns


def append_copy(record: UnitRecord, copy: Copy) -> None:
    """Add a copy to a record that has room for it."""
    record.copies.append(copy)
    if "continued" in record.extra:
        record.settled_ns = copy.time_ns
