"""The timeline: one record per unit and per event of a connection, emitted when it is settled.

Records are emitted in the order of their first copies. An unsettled one holds back those behind it
until it is settled, it is too old, or too many wait. Only commands that show units pay for this.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import replace
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from netdissect.model.native import ABSENT, i64
from netdissect.model.policy import SpaceRule
from netdissect.model.reports import ConnectionEvent, Copy, UnitRecord
from netdissect.track.choice import FrameChoice
from netdissect.track.context import SpaceContext
from netdissect.track.findings import Findings
from netdissect.track.gaps import Gaps, described
from netdissect.track.outcomes import KIND, append_copy, moment, record_acked, record_dropped
from netdissect.track.retired import Listener, RetiredUnits, TypeNames, count_transmissions
from netdissect.track.unit import Carried, Unit

if TYPE_CHECKING:
    from netdissect.track.intervals import Intervals

Summing: TypeAlias = "Callable[[int], Intervals | None]"
"""Connection -> the `Intervals` that sum it up; None if nothing does."""
MAX_PENDING = 65536
"""Records that wait at most; beyond this, the oldest is emitted unsettled."""
MAX_COPIES = 256
"""Copies in one record; further copies go to another record."""
LINGER_NS: Final = 5_000_000_000
"""A settled unit waits this long after its last copy or acknowledgement for late copies, in ns."""
HOLD_NS: Final = 60_000_000_000
"""An unsettled unit waits at most this long after its first copy, in ns."""
_LEAST_DUE: Final = 1024
"""`Recorder.settled` looks through the waiting records only if there are at least this many."""


class Recorder:
    """The records of all connections, in the order of time."""

    def __init__(
        self, *, counted: bool = False, keeps: bool = False, sums: Summing | None = None,
        choice: FrameChoice | None = None,
    ) -> None:  # fmt: skip
        self.sums = sums
        """Sums up the numbered units of a connection; None = they are recorded."""
        self.choice = choice
        self.keeps = keeps or not counted
        """Whether a copy that comes after its unit's record was emitted gets another record."""
        self.events = not counted
        """Whether to record what only a timeline shows: events, and the types of units."""
        self.counted = counted
        """True if units and gaps are only counted. Then consecutive messages of a datagram share a
        record with their number as `run` in `extra`; it is split if one of them comes again.
        """
        self.pending: deque[UnitRecord | ConnectionEvent] = deque()
        self.bare = True
        """Whether the observer needs datagrams without units."""
        self.scribes: dict[int, ConnectionRecorder] = {}
        """Open connection -> its recorder."""
        self.types = TypeNames()
        self._due = _LEAST_DUE
        self._due_ns = 0
        """`settled` looks through the records again when this many wait, or at this time."""

    def of(self, connection: int, findings: Findings | None = None) -> ConnectionRecorder:
        """Return the recorder of a connection; `findings` is told of the bounds that it reaches."""
        scribe = self.scribes[connection] = ConnectionRecorder(connection, self, findings)
        return scribe

    def blocked(self, now_ns: int) -> bool:
        """Return whether the oldest record holds all others back."""
        pending = self.pending
        if not pending:
            return True
        head = pending[0]
        if len(pending) > MAX_PENDING or not isinstance(head, UnitRecord) or "parts" in head.extra:
            return False  # rare: `ready` looks closer
        return _may_change(head, now_ns)

    def ready(self, now_ns: int) -> Iterator[UnitRecord | ConnectionEvent]:
        """Yield the records that may be emitted, in order."""
        pending = self.pending
        while pending:
            head = pending[0]
            if isinstance(head, UnitRecord):
                parts = head.extra.get("parts") if head.extra else None
                if parts is not None:
                    pending.popleft()
                    head.emitted = True  # its parts take its place
                    pending.extendleft(reversed(parts))
                    continue
                if _may_change(head, now_ns):
                    if len(pending) <= MAX_PENDING:
                        return
                    self._hit(head)
            pending.popleft()
            self.leave(head)
            yield head

    def settled(self, now_ns: int) -> list[UnitRecord]:
        """Return the units that may be emitted, in any order.

        The records are looked through when twice as many wait as the last time, or after
        `LINGER_NS`.
        """
        pending, found = self.pending, list[UnitRecord]()
        if len(pending) < self._due and now_ns < self._due_ns:
            return found
        for _ in range(len(pending)):
            item = pending.popleft()
            if not isinstance(item, UnitRecord):
                continue
            parts = item.extra.get("parts")
            if parts is not None:
                item.emitted = True
                pending.extend(parts)
                continue
            if _may_change(item, now_ns):
                if len(pending) < MAX_PENDING:
                    pending.append(item)
                    continue
                self._hit(item)
            self.leave(item)
            found.append(item)
        self._due, self._due_ns = max(_LEAST_DUE, 2 * len(pending)), now_ns + LINGER_NS
        return found

    def _hit(self, unit: UnitRecord) -> None:
        """Report that a unit is emitted before it is settled, because too many wait."""
        scribe = self.scribes.get(unit.connection)
        if scribe is not None:
            scribe.hit("MAX_PENDING", unit.direction, unit.space)

    def leave(self, item: UnitRecord | ConnectionEvent) -> None:
        """Mark a record as emitted, and have its space forget it."""
        if isinstance(item, UnitRecord):
            item.emitted = True
            scribe = self.scribes.get(item.connection)
            if scribe is None:
                return
            space = scribe.spaces.get((item.direction, item.space))
            if space is not None:
                space.left(item)
            elif scribe.stream is not None:
                scribe.stream.left(item)

    def rest(self) -> Iterator[UnitRecord | ConnectionEvent]:
        """Yield all remaining records, in the order of time and frame."""
        yield from sorted(self.drain(), key=moment)

    def drain(self) -> list[UnitRecord | ConnectionEvent]:
        """Remove and return all remaining records, in any order."""
        left: list[UnitRecord | ConnectionEvent] = []
        for item in self.pending:
            parts = item.extra.get("parts") if isinstance(item, UnitRecord) else None
            left += (item,) if parts is None else parts
        self.pending.clear()
        return left


def _may_change(unit: UnitRecord, now_ns: int) -> bool:
    """Return whether a unit is unsettled, or may still get late copies."""
    if unit.settled_ns is None:
        return now_ns - unit.copies[0].time_ns < HOLD_NS
    return now_ns - max(unit.settled_ns, unit.copies[-1].time_ns) < LINGER_NS


class ConnectionRecorder:
    """Records one connection."""

    __slots__ = (
        "_scribes", "bare", "choice", "connection", "counted", "events", "findings", "keeps",
        "pending", "spaces", "stream", "sums", "touched", "types",
    )  # fmt: skip

    def __init__(self, connection: int, recorder: Recorder, findings: Findings | None) -> None:
        self.findings = findings
        """Counts the bounds that are reached."""
        self._scribes = recorder.scribes
        self.sums = None if recorder.sums is None else recorder.sums(connection)
        self.choice = recorder.choice
        self.spaces: dict[tuple[int, str], SpaceRecorder] = {}
        """(direction, space) -> its recorder."""
        self.stream: Listener | None = None
        """Remembers the units of TCP, whose spaces have no recorder."""
        self.events = recorder.events
        self.counted = recorder.counted
        self.keeps = recorder.keeps
        self.bare = recorder.bare
        """These four as in `Recorder`."""
        self.connection = connection
        self.pending = recorder.pending
        """The waiting records of all connections."""
        self.types = recorder.types
        self.touched: list[tuple[UnitRecord, Copy]] = []
        """The units of the current datagram in wire order, each with the copy that it carried."""

    def hit(self, limit: str, direction: int, space: str) -> None:
        """Count that a bound was reached."""
        if self.findings is not None:
            self.findings.hit(limit, direction, space)

    def end(self) -> None:
        """Forget the connection, after its report."""
        self._scribes.pop(self.connection, None)
        self.spaces.clear()
        self.stream = None

    def event(
        self, event: str, time_ns: int, frame: int | None, direction: int | None, text: str,
        data: dict[str, Any] | None = None,
    ) -> ConnectionEvent:  # fmt: skip
        """Add an event and return it."""
        record = ConnectionEvent(
            self.connection, event, time_ns, frame, direction, text, data or {}
        )
        # `stats` needs the gaps although it shows no events.
        if self.events or (self.counted and event == "gap"):
            self.pending.append(record)
        return record

    def open(
        self, direction: int, space: str, wire_seq: int, seq: int, type_: str | None,
        copy: Copy | None,
    ) -> UnitRecord:  # fmt: skip
        """Open the record of a unit; `copy` is None if its first copy is not remembered."""
        record = UnitRecord(
            self.connection, direction, space, wire_seq, seq, type_,
            [] if copy is None else [copy], None, None, None, False, "unknown", None,
        )  # fmt: skip
        if copy is None:
            record.extra["continued"] = None
        self.pending.append(record)
        return record

    def open_for(self, record: UnitRecord) -> UnitRecord:
        """Return a record of the same unit that has room for another copy."""
        if not _full(record):
            return record
        # Every further record names the frame in which the unit came first.
        first = record.copies[0].frame
        extra = {"continued": record.extra.get("continued", first)}
        further = replace(record, copies=[], emitted=False, extra=extra)
        self.pending.append(further)
        return further


class SpaceRecorder:
    """Records the units of one space in one direction."""

    __slots__ = (
        "_choice", "_emitted", "_gaps", "_order", "_parent", "_runs", "counted", "events", "keeps",
        "mask", "records", "retired", "unemitted",
    )  # fmt: skip

    def __init__(self, parent: ConnectionRecorder, direction: int, rule: SpaceRule) -> None:
        self._parent = parent
        self._choice = parent.choice
        parent.spaces[direction, rule.name] = self
        self.events = parent.events
        self.counted = parent.counted
        self.keeps = parent.keeps
        """These three as in `Recorder`."""
        self.records: dict[int, UnitRecord] = {}
        """Number -> record that is not emitted yet."""
        self.mask = (1 << rule.bits) - 1
        """Mask of the numbers on the wire."""
        self.retired = RetiredUnits(rule.memory, parent.types, counted=parent.counted)
        """What late copies need of the emitted records."""
        self._order = 0
        """Position of the newest unit in the order of delivery."""
        self._gaps = Gaps()
        self.unemitted: list[UnitRecord] = []
        """The records that are not emitted yet, in order, and few emitted ones."""
        self._emitted = 0
        """How many of them are emitted."""
        self._runs: deque[UnitRecord] | None = None
        """The same of records that several units share, by number; None before the first."""

    def run(
        self, space: SpaceContext, seq: int, wire_seq: int, count: int, frame: int, time_ns: int
    ) -> UnitRecord | None:
        """Open a record shared by consecutive new units with numbers above all others."""
        if self._choice is not None and not self._choice.takes(frame):
            return None
        record = self._open_first(space, seq, wire_seq, None, frame, time_ns)
        if count > 1:
            record.extra["run"] = count
        if self._runs is None:
            self._runs = deque()  # created late: even an empty deque takes 600 bytes
        self._runs.append(record)
        return record

    def left(self, record: UnitRecord) -> None:
        """Forget an emitted record, except for what a late copy of its unit needs."""
        records, runs = self.records, self._runs
        self._emitted += 1
        if 8 * self._emitted > len(self.unemitted):
            self.keep([each for each in self.unemitted if not each.emitted])
        while runs and runs[0].emitted:
            runs.popleft()
        seq = record.seq
        if records.get(seq) is not record:
            return
        del records[seq]
        if not records:
            records.clear()  # frees the table, which deleting items does not
        if self.keeps:
            self.retired.retire(record)

    def doze(self) -> None:
        """Take less memory until the next unit."""
        self.records = dict(self.records)  # without the room of what was deleted
        self.retired.pack()

    def keep(self, unemitted: list[UnitRecord]) -> None:
        """Set the records that are not emitted yet."""
        self.unemitted, self._emitted = unemitted, 0

    def _reopen(self, space: SpaceContext, seq: int) -> UnitRecord:
        """Open a record for a copy of a unit whose own record was emitted."""
        record = self._open(space, seq & (1 << space.rule.bits) - 1, seq, None, None)
        self.retired.restore(record)
        return record

    def units_of(self, run: Carried) -> list[Unit]:
        """Return the units that share the record of a run, each with a record of its own."""
        units = run.units()
        for unit, part in zip(units, self.split(run.record) if run.record else (), strict=False):
            unit.record = part
        return units

    def split(self, run: UnitRecord) -> list[UnitRecord]:
        """Split a shared record; return one record for each unit."""
        parts: list[UnitRecord] = run.extra.get("parts") or [run]
        if "run" in run.extra and "parts" not in run.extra:
            parts = run.extra["parts"] = run.parts(run.extra["run"])
            if not run.emitted:
                self.unemitted.extend(parts)
        for part in parts:
            self.records.setdefault(part.seq, part)
        return parts

    def first(
        self, space: SpaceContext, seq: int, wire_seq: int, type_: str | None, frame: int,
        time_ns: int,
    ) -> UnitRecord | None:  # fmt: skip
        """Open the record of a new unit."""
        if self._choice is not None and not self._choice.takes(frame):
            return None
        self._order += 1
        record = self._open_first(space, seq, wire_seq, type_, frame, time_ns)
        record.delivered_order = self._order if space.receiver_near else None
        self.records[seq] = record
        return record

    def lone(
        self, space: SpaceContext, seq: int, wire_seq: int, type_: str | None, frame: int,
        time_ns: int,
    ) -> UnitRecord | None:  # fmt: skip
        """Open the record of a unit whose number is used by another unit or far from all others:
        no later copy belongs to it.
        """
        record = self._open_first(space, seq, wire_seq, type_, frame, time_ns)
        record.extra["apart"] = True
        record_dropped(record, "unknown")
        return record

    def _open_first(
        self, space: SpaceContext, seq: int, wire_seq: int, type_: str | None, frame: int,
        time_ns: int,
    ) -> UnitRecord:  # fmt: skip
        """Open a record with a first copy."""
        resend = space.rule.resend
        copy = Copy(frame, time_ns, "original")
        if resend is not None and resend.attempts is not None and space.sender_near is not False:
            copy.attempts_left = resend.attempts - 1
        record = self._open(space, wire_seq, seq, type_, copy)
        record.next_resend_due_ns = time_ns + space.delay_ns if space.delay_ns else None
        if not self.counted:  # else nobody shows the datagram
            self._parent.touched.append((record, copy))
        return record

    def adopt(self, unit: Unit, seq: int, wire_seq: int) -> None:
        """Give an isolated unit its number `seq`, now that another number confirms it."""
        del wire_seq
        record = unit.record
        if record is None:
            return
        record.seq = seq
        record.extra.pop("apart", None)
        if record.outcome == "unknown":
            record.settled_ns = None
        self.records[seq] = record

    def isolate(self, seq: int) -> None:
        """Make the record of a unit one of an isolated unit, as in `lone`."""
        record = self.records.pop(seq, None)
        if record is not None:
            record.extra["apart"] = True
            if record.settled_ns is None:
                record_dropped(record, "unknown")

    def further_copy(
        self, space: SpaceContext, unit: Unit, seq: int, copied: bool | None,  # noqa: FBT001
        labelled: bool | None, frame: int, time_ns: int, due_ns: int,  # noqa: FBT001
    ) -> Copy | None:  # fmt: skip
        """Add a further copy of an outstanding unit to its record; return the copy.

        Args:
            space: context of the space.
            unit: the unit.
            seq: its number.
            copied: verdict of `Repeats` on the copy.
            labelled: whether its sender marks it as sent again, as in the event.
            frame: frame of the copy.
            time_ns: its time.
            due_ns: when its sender's timer was due.

        """
        if unit.record is None:
            return self.late_copy(space, seq, copied, labelled, frame, time_ns, due_ns)
        return self._add_copy(space, unit.record, copied, labelled, frame, time_ns, due_ns)

    def _add_copy(
        self, space: SpaceContext, record: UnitRecord, copied: bool | None,  # noqa: FBT001
        labelled: bool | None, frame: int, time_ns: int, due_ns: int,  # noqa: FBT001
    ) -> Copy:  # fmt: skip
        """Add a further copy to the record of its unit, or to a new one if that is full."""
        copy = Copy(frame, time_ns, KIND[copied], "inferred")
        if labelled and copied is False:
            copy.basis = "declared"
        elif space.sender_near:
            copy.basis = "observed"
        resend = space.rule.resend
        if resend is not None and copied is False:
            if space.delay_ns:
                copy.due_ns = due_ns
                record.next_resend_due_ns = time_ns + space.delay_ns
            if resend.attempts is not None and space.sender_near is not False:
                if record.copies:
                    sent = count_transmissions(record)
                else:
                    sent = self.retired.transmissions(record.seq)
                copy.attempts_left = max(0, resend.attempts - sent - 1)
        if _full(record):
            # An earlier copy may have opened a further record already.
            known = self.records.get(record.seq, record)
            record = self.records[record.seq] = self._parent.open_for(known)
            self.unemitted.append(record)
        self._parent.touched.append((record, copy))
        append_copy(record, copy)
        return copy

    def late_copy(
        self, space: SpaceContext, seq: int, copied: bool | None, labelled: bool | None,  # noqa: FBT001
        frame: int, time_ns: int, due_ns: int,
    ) -> Copy:  # fmt: skip
        """Add a copy of a settled unit, as in `further_copy`."""
        record = self.records.get(seq)
        runs = self._runs
        if record is None and runs is not None:
            at = bisect_right(runs, seq, key=attrgetter("seq")) - 1
            if at >= 0 and not runs[at].emitted:
                self.split(runs[at])
                record = self.records.get(seq)
        if record is None:
            record = self.records[seq] = self._reopen(space, seq)
        return self._add_copy(space, record, copied, labelled, frame, time_ns, due_ns)

    def copy_reclassified(self, copy: Copy, before: str) -> None:
        """Process a change of a copy's kind from `before`; its record already has the new one."""

    def acked(
        self, unit: Unit, frame: int, time_ns: int, *, ambiguous: bool, sample_ns: i64 = ABSENT
    ) -> None:
        """Record the first acknowledgement of a unit. An ambiguous one gives no round trip;
        `sample_ns` is the round trip if the acknowledgement names the copy.
        """
        record = unit.record
        if record is not None:
            record_acked(record, frame, time_ns, ambiguous=ambiguous)
            if sample_ns != ABSENT:
                record.rtt_ms = int(sample_ns) / 1e6

    def acked_run(self, run: Carried, frame: int, time_ns: int) -> None:
        """Record the acknowledgement of units that share a record."""
        if run.record is not None:
            record_acked(run.record, frame, time_ns, ambiguous=False)

    def dropped(self, unit: Unit, outcome: str, *, lost: bool = False) -> None:
        """Record the outcome of an unacknowledged unit, and whether it is known to be lost."""
        if unit.record is not None:
            record_dropped(unit.record, outcome, lost=lost)

    def dropped_run(self, run: Carried, outcome: str) -> None:
        """Record the outcome of unacknowledged units that share a record."""
        if run.record is not None:
            record_dropped(run.record, outcome)

    def reported_lost(self, unit: Unit) -> None:
        """Record that the receiver has reported a unit lost."""
        if unit.record is not None:
            unit.record.extra["reported"] = "lost"

    def _open(
        self, space: SpaceContext, wire_seq: int, seq: int, type_: str | None, copy: Copy | None
    ) -> UnitRecord:
        """Open a record, and remember it until it is emitted."""
        record = self._parent.open(space.direction, space.rule.name, wire_seq, seq, type_, copy)
        self.unemitted.append(record)
        return record

    def set_vantage(self, space: SpaceContext) -> None:
        """Update the waiting records to what the vantage shows."""
        for record in self.unemitted:
            if space.receiver_near:
                record.lost = None  # it has arrived here
            else:
                record.delivered_order = None
            for copy in record.copies:
                if space.sender_near is False:
                    copy.attempts_left = None
                if copy.kind != "original" and copy.basis != "declared":
                    copy.basis = "observed" if space.sender_near else "inferred"

    def gap(
        self, space: SpaceContext, low: int, high: int, frame: int, time_ns: int, stride: int = 1
    ) -> None:
        """Record the gap of the skipped numbers from `low` to `high`, `stride` apart."""
        text, data = described(space.rule.name, low, high, stride)
        gap = self._parent.event("gap", time_ns, frame, space.direction, text, data)
        self.note_gap(gap, space)

    def note_gap(self, gap: ConnectionEvent, space: SpaceContext) -> None:
        """Remember a gap, for numbers in it that come late."""
        if not self._gaps.add(gap):
            self._parent.hit("MAX_GAPS", space.direction, space.rule.name)

    def retract_gaps(self, last: int) -> None:
        """Take back the gaps after number `last`: the numbers there were forged."""
        self._gaps.retract_after(last, self._parent.pending)

    def arrived_late(self, seq: int) -> None:
        """Count a skipped number that has come after all."""
        gap = self._gaps.find(seq)
        if gap is not None:
            gap.came += 1


def _full(record: UnitRecord) -> bool:
    """Return whether another copy needs a new record."""
    return record.emitted or len(record.copies) >= MAX_COPIES
