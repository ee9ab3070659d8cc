"""The timeline: one record per unit and per event of a connection, handed on when it is settled.

Only `timeline` and `read` pay for it. Records leave in order of their first copy; one that waits
for its acknowledgement holds back those behind it until it is settled, too old, or too many wait.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from netdissect.model.reports import ConnectionEvent, Copy, UnitRecord

if TYPE_CHECKING:
    from netdissect.track.ledger import Ledger

__all__ = ["HOLD_NS", "LINGER_NS", "MAX_COPIES", "MAX_GAPS", "MAX_PENDING", "Recorder", "add_copy"]

MAX_PENDING = 65536
"""Records held back at most; beyond, the oldest leaves as it stands."""
MAX_COPIES = 256
"""Copies listed in one record; further ones are listed in another."""
MAX_GAPS = 256
"""Newest gaps of a space in which numbers that come late are looked for."""
LINGER_NS: Final = 5_000_000_000
"""A settled unit is held for so long after its last copy or acknowledgement, for late copies."""
HOLD_NS: Final = 60_000_000_000
"""A unit that is not settled is held for so long after its first copy."""


class Recorder:
    """Records of all connections, in order of time."""

    def __init__(self) -> None:
        self.pending: deque[UnitRecord | ConnectionEvent] = deque()
        self.touched: list[tuple[UnitRecord, Copy]] = []
        """Units of the datagram at hand, in wire order, with the copy that it carried."""
        self.connection = 0
        """Number of the connection at hand."""
        self._records: dict[int, dict[int, UnitRecord]] = {}
        self._orders: dict[int, int] = {}
        self._gaps: dict[int, deque[ConnectionEvent]] = {}

    # -- called by `Space` -------------------------------------------------------------------------

    def first(
        self, space: Ledger, seq: int, wire_seq: int, type_: str | None, frame: int, time_ns: int
    ) -> UnitRecord:
        """Open the record of a new unit."""
        order = self._orders.get(id(space), 0) + 1
        self._orders[id(space)] = order
        record = self.apart(space, seq, wire_seq, type_, frame, time_ns)
        record.delivered_order = order if space.receiver_near else None
        records = self._records.setdefault(id(space), {})
        records[seq] = record
        if len(records) > 2 * space.rule.memory:
            for old in list(records)[: space.rule.memory]:
                del records[old]
        return record

    def apart(
        self, space: Ledger, seq: int, wire_seq: int, type_: str | None, frame: int, time_ns: int
    ) -> UnitRecord:
        """Open the record of a unit whose number is another one's, or nobody's: what comes later
        is no copy of it.
        """
        resend = space.rule.resend
        copy = Copy(frame, time_ns, "original")
        if resend is not None and resend.attempts is not None and space.sender_near is not False:
            copy.attempts_left = resend.attempts - 1
        record = UnitRecord(
            connection=self.connection,
            direction=space.direction,
            space=space.rule.name,
            wire_seq=wire_seq,
            seq=seq,
            type=type_,
            copies=[copy],
            acked_frame=None,
            acked_time_ns=None,
            rtt_ms=None,
            rtt_ambiguous=False,
            outcome="unknown",
            delivered_order=None,
            next_resend_due_ns=time_ns + space.delay_ns if space.delay_ns else None,
        )
        self.pending.append(record)
        self.touched.append((record, copy))
        return record

    def adopt(self, space: Ledger, record: UnitRecord, seq: int) -> None:
        """Count a unit that stood apart with those of its space, as number `seq`."""
        record.seq = seq
        record.extra.pop("apart", None)
        if record.outcome == "unknown":
            record.settled_ns = None
        self._records.setdefault(id(space), {})[seq] = record

    def again(
        self,
        space: Ledger,
        record: UnitRecord,
        copied: bool,  # noqa: FBT001 - called from one place
        labelled: bool | None,  # noqa: FBT001 - as in the event
        frame: int,
        time_ns: int,
        due_ns: int,
    ) -> Copy:
        """Add a further copy; return it."""
        copy = Copy(frame, time_ns, "duplicate" if copied else "retransmission", "inferred")
        if labelled and not copied:
            copy.basis = "declared"
        elif space.sender_near:
            copy.basis = "observed"
        resend = space.rule.resend
        if resend is not None and not copied:
            if space.delay_ns:
                copy.due_ns = due_ns
                record.next_resend_due_ns = time_ns + space.delay_ns
            if resend.attempts is not None and space.sender_near is not False:
                sent = 1 + sum(other.kind != "duplicate" for other in record.copies)
                copy.attempts_left = max(0, resend.attempts - sent)
        if _full(record):
            known = self._records.setdefault(id(space), {})
            record = known[record.seq] = self.open_for(known.get(record.seq, record))
        self.touched.append((record, copy))
        add_copy(record, copy)
        return copy

    def open_for(self, record: UnitRecord) -> UnitRecord:
        """Return a record of the same unit that takes further copies."""
        if not _full(record):
            return record
        first = record.copies[0].frame
        extra = {"continued": record.extra.get("continued", first)}
        further = replace(record, copies=[], told=False, extra=extra)
        self.pending.append(further)
        return further

    def late(
        self,
        space: Ledger,
        seq: int,
        copied: bool,  # noqa: FBT001 - as in `again`
        labelled: bool | None,  # noqa: FBT001 - as in the event
        frame: int,
        time_ns: int,
        due_ns: int,
    ) -> Copy:
        """Add a copy of a unit that is settled already; return it."""
        known = self._records.setdefault(id(space), {})
        record = known.get(seq)
        if record is None:
            wire_seq = seq & (1 << space.rule.bits) - 1
            record = known[seq] = self.forgotten(space.direction, space.rule.name, wire_seq, seq)
        return self.again(space, record, copied, labelled, frame, time_ns, due_ns)

    def forgotten(self, direction: int, space: str, wire_seq: int, seq: int) -> UnitRecord:
        """Open a record for further copies of a unit of which nothing is remembered."""
        record = UnitRecord(
            self.connection, direction, space, wire_seq, seq, None,
            [], None, None, None, False, "unknown", None,
        )  # fmt: skip
        record.extra["continued"] = None
        self.pending.append(record)
        return record

    def withdraw(self, space: Ledger) -> None:
        """Take back in which order units came: that shows only next to their receiver."""
        for record in self._records.get(id(space), {}).values():
            record.delivered_order = None

    def acked(self, record: UnitRecord, frame: int, time_ns: int, *, ambiguous: bool) -> None:
        """Note the first acknowledgement; an ambiguous one tells no round trip."""
        record.acked_frame = frame
        record.acked_time_ns = time_ns
        record.rtt_ambiguous = ambiguous
        if not ambiguous:
            record.rtt_ms = (time_ns - record.copies[0].time_ns) / 1e6
        record.outcome = "acked"
        record.settled_ns = time_ns

    def dropped(self, record: UnitRecord, outcome: str, *, lost: bool = False) -> None:
        """Note the end of a unit that was not acknowledged, and whether it is known to be lost."""
        record.outcome = outcome
        record.lost = lost or None
        record.settled_ns = record.copies[-1].time_ns

    def gap(
        self, space: Ledger, low: int, high: int, frame: int, time_ns: int, stride: int = 1
    ) -> None:
        """Note skipped numbers, `stride` apart."""
        text = f"{space.rule.name} {low}" if low == high else f"{space.rule.name} {low} to {high}"
        data = {"space": space.rule.name, "first_seq": low, "last_seq": high}
        if stride > 1:
            data["step"] = stride
        event = ConnectionEvent(
            self.connection, "gap", time_ns, frame, space.direction, f"{text} not seen", data
        )
        self.pending.append(event)
        self._gaps.setdefault(id(space), deque(maxlen=MAX_GAPS)).append(event)

    def came(self, space: Ledger, seq: int) -> None:
        """Note that a number that was skipped has come after all."""
        gaps = self._gaps.get(id(space), ())
        index = bisect_right(gaps, seq, key=_first_seq) - 1
        if index >= 0 and seq <= gaps[index].data["last_seq"]:
            gaps[index].came += 1

    # -- called by `Connection` --------------------------------------------------------------------

    def event(
        self,
        event: str,
        time_ns: int,
        frame: int | None,
        direction: int | None,
        text: str,
        data: dict[str, Any] | None = None,
    ) -> None:
        """Add an event of the connection at hand."""
        self.pending.append(
            ConnectionEvent(self.connection, event, time_ns, frame, direction, text, data or {})
        )

    def forget(self, space: Ledger) -> None:
        """Drop what was kept for late copies of a space whose connection is over."""
        self._records.pop(id(space), None)
        self._orders.pop(id(space), None)
        self._gaps.pop(id(space), None)

    # -- called by the pipeline --------------------------------------------------------------------

    def ready(self, now_ns: int) -> Iterator[UnitRecord | ConnectionEvent]:
        """Yield the records that may leave, in order."""
        pending = self.pending
        while pending:
            head = pending[0]
            if isinstance(head, UnitRecord):
                held = now_ns - head.copies[0].time_ns < HOLD_NS
                if head.settled_ns is not None:
                    held = now_ns - max(head.settled_ns, head.copies[-1].time_ns) < LINGER_NS
                if held and len(pending) <= MAX_PENDING:
                    return
            pending.popleft()
            if isinstance(head, UnitRecord):
                head.told = True
            yield head

    def rest(self) -> Iterator[UnitRecord | ConnectionEvent]:
        """Yield everything that is left, in order of time and frame."""
        left = sorted(self.pending, key=_moment)
        self.pending.clear()
        yield from left


def add_copy(record: UnitRecord, copy: Copy) -> None:
    """Add a copy to a record that has room for it."""
    record.copies.append(copy)
    if "continued" in record.extra:
        record.settled_ns = copy.time_ns


def _full(record: UnitRecord) -> bool:
    """Return whether a further copy needs another record."""
    return record.told or len(record.copies) >= MAX_COPIES


def _first_seq(gap: ConnectionEvent) -> int:
    """Return where a gap begins; the gaps of a space come in this order."""
    first: int = gap.data["first_seq"]
    return first


def _moment(record: UnitRecord | ConnectionEvent) -> tuple[int, int]:
    if isinstance(record, UnitRecord):
        return record.copies[0].time_ns, record.copies[0].frame
    return record.time_ns, record.frame or 0
