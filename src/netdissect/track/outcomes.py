"""Updates of a unit's record in the timeline, shared by sequence spaces and TCP streams."""

from __future__ import annotations

from typing import Any, Final

from netdissect.model.reports import ConnectionEvent, Copy, UnitRecord

KIND: Final[dict[bool | None, str]] = {
    True: "duplicate", False: "retransmission", None: "unknown"
}  # fmt: skip
"""Verdict on a further copy (True: made by the network, None: unknown) -> kind of the copy."""


def record_acked(record: UnitRecord, frame: int, time_ns: int, *, ambiguous: bool) -> None:
    """Record the first acknowledgement; an ambiguous one gives no round trip."""
    record.acked_frame = frame
    moment: Any = time_ns  # compiled, one object for both times
    record.acked_time_ns = moment
    record.rtt_ambiguous = ambiguous
    if not ambiguous:
        record.rtt_ms = (time_ns - record.copies[0].time_ns) / 1e6
    record.outcome = "acked"
    record.settled_ns = moment


def record_reclassified(record: UnitRecord) -> None:
    """Recompute the round trip after the verdict on a copy has changed: there is one only if the
    sender had sent the unit once when it was acknowledged.
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
    """Record the outcome of an unacknowledged unit, and whether it is known to be lost."""
    record.outcome = outcome
    record.lost = lost or None
    record.settled_ns = record.copies[-1].time_ns


def append_copy(record: UnitRecord, copy: Copy) -> None:
    """Append a copy to a record that has room for it."""
    record.copies.append(copy)
    if "continued" in record.extra:
        record.settled_ns = copy.time_ns


def last_sent_ns(record: UnitRecord | None, otherwise_ns: int) -> int:
    """Return when the newest transmission of a unit was seen, as far as its record tells."""
    for copy in () if record is None else reversed(record.copies):
        if copy.kind != "duplicate":
            return copy.time_ns
    return otherwise_ns


def moment(record: UnitRecord | ConnectionEvent) -> tuple[int, int]:
    """Return the time and the frame at which a record begins."""
    if isinstance(record, UnitRecord):
        return record.copies[0].time_ns, record.copies[0].frame
    return record.time_ns, record.frame or 0
