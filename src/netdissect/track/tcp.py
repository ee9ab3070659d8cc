"""One direction of a TCP connection: its segments as units of a space. Knows no protocol.

Bytes have extended offsets; offset 0 is the byte after the SYN. A *unit* is a range of bytes first
sent together. *Sources:* RFC 9293, RFC 6298 (Karn's algorithm), RFC 7323.
"""

from __future__ import annotations

from typing import Any, Final

from netdissect.model.packets import ACK, FIN, HALF_SEQ_SPAN, RST, SEQ_SPAN, SYN
from netdissect.model.reports import Copy, SpaceReport
from netdissect.model.segments import TcpSegment
from netdissect.model.units import STREAM
from netdissect.track.findings import Findings
from netdissect.track.lateness import Lateness
from netdissect.track.outcomes import append_copy, record_acked, record_dropped
from netdissect.track.recorder import ConnectionRecorder
from netdissect.track.reservoir import RttReservoir
from netdissect.track.settledranges import SettledRanges
from netdissect.track.stalls import StallTracker
from netdissect.track.streamunits import Arrival, PacketIds, SegmentHistory, SentRange
from netdissect.track.totalling import summed
from netdissect.track.totals import SpaceTotals

MAX_UNITS = 4096
"""Outstanding units of one direction; beyond this, the oldest is settled as unknown."""
MAX_COVERED = 128
"""Units whose records list a segment that repeats their bytes."""
MAX_HOLES = 1024
"""Missing ranges remembered per direction."""
MAX_ARRIVALS = 4096
"""Segments per direction remembered until their message is complete."""
MAX_IDENTITIES = 1024
"""Segments per direction remembered by IP identification, to recognise network copies."""
STALLED_COPIES: Final = 4
"""The connection is reported as stalled when a range has been sent this many times."""

_PUSH: Final = ACK | 8


class StreamHalf:
    """The bytes that one side sent: units, copies, gaps (holes) and acknowledgements."""

    __slots__ = (
        "_before", "_forgotten", "_identities", "_named", "_newest_id", "_shut", "_summed",
        "acked", "acked_wire", "answered_ns", "arrivals", "base", "counts", "direction", "findings",
        "first", "highest", "holes", "ids", "last", "last_frame", "last_ns", "lateness",
        "max_copies", "new", "octets_on_wire", "outstanding", "partly_new", "pure_acks",
        "quickest_ns", "recorder", "repeated", "rtt", "segments", "sender_present", "settled",
        "totals", "troubles", "units_acked", "units_unacked",
    )  # fmt: skip

    def __init__(  # noqa: PLR0915 - one line per fact, each with its meaning
        self, direction: int, findings: Findings, recorder: ConnectionRecorder | None
    ) -> None:
        self.direction = direction
        self.findings = findings
        self.totals: SpaceTotals | None = summed(recorder, direction, STREAM)
        """Counts the units instead of recording them; None = nothing counts them."""
        self.recorder = recorder = recorder if self.totals is None else None
        self.base: int | None = None
        """Sequence number of offset 0; None before the first segment."""
        self.highest = 0
        """Offset after the highest byte seen."""
        self.acked_wire = -1
        """The last acknowledgement number."""
        self._named = -1
        """The last acknowledgement number while nothing of this side was captured."""
        self.sender_present = False
        """Whether these numbers differed: this side is active, but not captured."""
        self.acked = 0
        """Offset up to which the other side has acknowledged."""
        self.holes: list[tuple[int, int]] = []
        """Missing ranges below `highest`."""
        self.arrivals: list[Arrival] = []
        """First copies of bytes, by offset, for the messages that they belong to."""
        self._forgotten = 0
        """Offset after the last forgotten one."""
        self.repeated: list[tuple[int, int, int]] = []
        """Ranges that were recently sent again."""
        self.outstanding: list[SentRange] = []
        self.settled = SettledRanges(MAX_UNITS)
        """The newest acknowledged units with a record, for their late copies."""
        self._summed = SegmentHistory()
        """The same for units that are only counted."""
        self.partly_new: set[int] = set()
        """Offsets of new bytes at the end of retransmitted segments: no units of their own."""
        self.rtt = RttReservoir()
        self.quickest_ns = 1 << 62
        self.counts = dict.fromkeys(
            ("hole_filling", "retransmitted", "exact_duplicates", "reordered", "zero_window",
             "syn", "fin", "rst"), 0,
        )  # fmt: skip
        """Rarer counts; the next three are counted on the fast path."""
        self.new = 0
        """Segments with data above everything seen."""
        self.pure_acks = 0
        self.octets_on_wire = 0
        self.segments = 0
        """Segments of any kind."""
        self.units_acked = 0
        self.units_unacked = 0
        self.max_copies = 0
        self.first: int | None = None
        """Offset of the first unit."""
        self.last = 0
        """Offset of the unit with the highest offset."""
        self.last_ns = 0
        """Time of the newest segment of any kind."""
        self.last_frame = 0
        self.answered_ns = 0
        """When the newest segment was sent that the other side is known to have received."""
        self.lateness = Lateness(STREAM, findings.late_ms)
        """The delays caused by retransmissions."""
        self.troubles = StallTracker(direction, recorder, findings)
        """What stalls the stream."""
        self._shut = False
        """Whether the receive window of this side is closed."""
        self._before: list[tuple[int, int]] = []
        """Ranges seen from before the start of the capture."""
        self._newest_id: int | None = None
        self.ids, self._identities = PacketIds(), SegmentHistory()

    # -- input -------------------------------------------------------------------------------------

    def take(  # noqa: C901 - hot path: calls would cost as much as the work
        self, segment: TcpSegment, frame: int, time_ns: int
    ) -> None:
        """Process one segment that this side sent."""
        flags = segment.flags
        counts = self.counts
        self.segments += 1
        if segment.ip_id:
            self.ids.take(segment.ip_id, segment.payload_length, self.last_ns, frame, time_ns)
        self.last_ns = time_ns
        self.last_frame = frame
        length = segment.payload_length
        if flags in (ACK, _PUSH) and segment.window and not self._shut and self.base is not None:
            # The usual segment: a pure acknowledgement, or the next bytes.
            if not length:
                self.pure_acks += 1
                return
            start = segment.stream_start
            usual = self.recorder is None and self.first is not None
            if usual and self.acked <= start == self.highest:
                self.octets_on_wire += length
                self._next(start, start + length, segment.ip_id, frame, time_ns)
                return
        if self.base is None:
            start = segment.seq + 1 if flags & SYN else segment.seq
            self.base = (start - segment.stream_start) % SEQ_SPAN
        if flags & (SYN | FIN | RST):
            counts["syn"] += bool(flags & SYN)
            counts["fin"] += bool(flags & FIN)
            counts["rst"] += bool(flags & RST)
        if not segment.window and not flags & (SYN | RST):
            self._zero_window(frame, time_ns)
        elif self._shut:
            self._shut = False
            self.troubles.open(frame, time_ns)
        if segment.payload_length:
            self.octets_on_wire += segment.payload_length
            self._data(segment, frame, time_ns)
        elif flags & (SYN | FIN | RST | ACK) == ACK:
            self.pure_acks += 1

    def _next(self, start: int, end: int, ip_id: int | None, frame: int, time_ns: int) -> None:
        """Process the next bytes of the stream: `_data` and `_unit` in one, for the usual case."""
        self.new += 1
        self.highest = end
        self.last = start
        self._newest_id = ip_id or self._newest_id
        self._identities.add(ip_id, start, end, MAX_IDENTITIES)
        self.arrivals.append(Arrival(start, end, time_ns, frame))
        if self.totals is not None:
            self.totals.new(time_ns, 1, self.totals.arrive(start, start, 1))
        outstanding = self.outstanding
        outstanding.append(SentRange(start, end, time_ns, frame, None))
        if len(outstanding) > MAX_UNITS:
            self.hit("MAX_UNITS")
            self._settle_unacked(outstanding.pop(0), "unknown")
        if len(self.arrivals) > MAX_ARRIVALS:
            self._forget()

    def _zero_window(self, frame: int, time_ns: int) -> None:
        self.counts["zero_window"] += 1
        self._shut = True
        self.troubles.close(frame, time_ns)
        self.findings.add(
            "zero-window", frame, time_ns, self.direction,
            "its receive buffer is full: the peer may send no more",
        )  # fmt: skip

    def _data(self, segment: TcpSegment, frame: int, time_ns: int) -> None:
        """Process a segment with data."""
        start = segment.stream_start
        end = start + segment.payload_length
        ip_id, known = segment.ip_id, self._identities
        if start < self.highest and ip_id and known.knows(ip_id, start, end):
            # This very packet was seen before: the network duplicated it.
            self.counts["exact_duplicates"] += 1
            self.findings.add("duplicate", frame, time_ns, self.direction)
            self._note_copies(start, end, frame, time_ns, "duplicate", segment.seq)
            return
        known.add(ip_id, start, end, MAX_IDENTITIES)
        if start >= self.highest:
            self.new += 1
            if start > self.highest:
                self._hole(self.highest, start)
                self.troubles.hole(self.highest, start, frame, time_ns)
            self.highest = end
            self._unit(start, end, frame, time_ns, segment, late=False)
        elif self._fills(start, end, frame, time_ns):
            self.counts["hole_filling"] += 1
            if self._is_late(segment.ip_id):
                self.counts["reordered"] += 1
            self._unit(start, end, frame, time_ns, segment, late=True)
        else:
            if ip_id and known.is_older(start, MAX_IDENTITIES):
                self.hit("MAX_IDENTITIES")
            self.counts["retransmitted"] += 1
            self.findings.add("retransmission", frame, time_ns, self.direction)
            self._repeat(start, end, frame, time_ns, segment)
        if not self._is_late(segment.ip_id):
            self._newest_id = segment.ip_id or self._newest_id

    def _is_late(self, ip_id: int | None) -> bool:
        """Return whether a packet was sent before one already seen, by increasing IP ids."""
        if not ip_id or self._newest_id is None:
            return False
        return (ip_id - self._newest_id) & 0xFFFF >= 0x8000  # noqa: PLR2004 - half of 16 bits

    # -- holes -------------------------------------------------------------------------------------

    def _hole(self, start: int, end: int) -> None:
        self.holes.append((start, end))
        if len(self.holes) > MAX_HOLES:
            self.hit("MAX_HOLES")
            del self.holes[0]

    def _fills(self, start: int, end: int, frame: int, time_ns: int) -> bool:
        """Return whether nothing of a range was seen before, and remove it from the gaps."""
        if end <= 0:
            # Bytes from before the start of the capture.
            whole = all(end <= low or start >= high for low, high in self._before)
            if len(self._before) == MAX_HOLES:
                self.hit("MAX_BEFORE")
                del self._before[0]
            self._before.append((start, end))
            return whole
        if not self.holes:
            return False
        whole = any(low <= start and end <= high for low, high in self.holes)
        self._close(start, end, frame, time_ns)
        return whole

    def _close(self, start: int, end: int, frame: int, time_ns: int) -> None:
        """Remove a range from the gaps."""
        self.troubles.arrived_late(start, end, frame, time_ns)
        left: list[tuple[int, int]] = []
        for low, high in self.holes:
            if end <= low or start >= high:
                left.append((low, high))
                continue
            if low < start:
                left.append((low, start))
            if end < high:
                left.append((end, high))
        self.holes = left

    # -- units -------------------------------------------------------------------------------------

    def _unit(
        self, start: int, end: int, frame: int, time_ns: int, segment: TcpSegment, *, late: bool
    ) -> None:
        """Add bytes seen for the first time."""
        if self.first is None or start < self.first:
            self.first = start
        self.last = max(self.last, start)
        self._arrive(start, end, time_ns, frame)
        record = None
        if self.totals is not None:
            self.totals.new(time_ns, 1, self.totals.arrive(start, start, 1))
        if self.recorder is not None:
            record = self.recorder.open(
                self.direction, STREAM, (segment.seq + start - segment.stream_start) % SEQ_SPAN,
                start, "data", Copy(frame, time_ns, "original"),
            )  # fmt: skip
            record.extra["length"] = end - start
            if late:
                record.extra["late"] = True
            if start in self.partly_new:
                record.extra["partly_new"] = True
        if not self.max_copies:
            self.max_copies = 1
        unit = SentRange(start, end, time_ns, frame, record)
        unit.doubtful = start in self.partly_new or end <= self.acked
        outstanding = self.outstanding
        if end <= self.acked:
            self._settle(unit, frame, time_ns, exact=False)
        elif late:
            # Late bytes fill a gap, so that their place is in the middle.
            place = sum(1 for other in outstanding if other.start < start)
            outstanding.insert(place, unit)
        else:
            outstanding.append(unit)
        if len(outstanding) > MAX_UNITS:
            self.hit("MAX_UNITS")
            self._settle_unacked(outstanding.pop(0), "unknown")

    def _arrive(self, start: int, end: int, time_ns: int, frame: int) -> None:
        arrivals = self.arrivals
        arrival = Arrival(start, end, time_ns, frame)
        place = len(arrivals)
        # From the end: as a rule, new bytes are the last ones.
        while place and arrivals[place - 1].start > start:
            place -= 1
        arrivals.insert(place, arrival)
        if len(arrivals) > MAX_ARRIVALS:
            self._forget()

    def _forget(self) -> None:
        """Forget the oldest first copies; only a long message still needs them."""
        cut = MAX_ARRIVALS // 4
        self._forgotten = self.arrivals[cut - 1].end
        del self.arrivals[:cut]

    def _repeat(self, start: int, end: int, frame: int, time_ns: int, segment: TcpSegment) -> None:
        """Process bytes of which some were seen before."""
        if len(self.repeated) == MAX_ARRIVALS:
            self._forgotten = max(self._forgotten, self.repeated[0][1])
            del self.repeated[0]
        self.repeated.append((start, end, frame))
        self._close(start, end, frame, time_ns)
        self._note_copies(start, end, frame, time_ns, "retransmission", segment.seq)
        if end > self.highest:
            low, self.highest = self.highest, end
            if len(self.partly_new) >= MAX_UNITS:
                self.hit("MAX_UNITS")
                self._arrive(low, end, time_ns, frame)
                return
            self.partly_new.add(low)
            self._unit(low, end, frame, time_ns, segment, late=False)

    def _note_copies(
        self, start: int, end: int, frame: int, time_ns: int, kind: str, wire_seq: int
    ) -> None:
        """Count a further copy for the units that it covers."""
        if self.recorder is not None:
            self._record_copy(self.recorder, start, end, Copy(frame, time_ns, kind), wire_seq)
        covered = 0 if self.totals is None else self._summed.overlapping(start, end)
        first = True
        for unit in self.outstanding:
            if unit.start >= end:
                break
            if unit.end <= start:
                continue
            unit.doubtful = True
            covered += 1
            if kind == "retransmission":
                unit.copies += 1
                unit.last_ns = time_ns
                waited = self.troubles.wait(unit.start, unit.first_ns, time_ns)
                if first:
                    self.troubles.retransmitted(unit.start, waited, unit.copies, frame, time_ns)
                first = False
                self.max_copies = max(self.max_copies, unit.copies)
                if unit.copies == STALLED_COPIES:
                    self._stalled(unit, frame, time_ns)
        if self.totals is not None:
            self.totals.add_copies(time_ns, max(1, covered), resent=kind == "retransmission")

    def _record_copy(
        self, recorder: ConnectionRecorder, start: int, end: int, copy: Copy, wire_seq: int
    ) -> None:
        """Add a copy to the records of the units that it covers, including settled ones."""
        self.settled.reopen(start, end, MAX_COVERED, self.direction, recorder)
        covered = [
            (unit, unit.record)
            for units in (self.settled.units, self.outstanding)
            for unit in units
            if unit.record is not None and unit.start < end and unit.end > start
        ]
        if len(covered) > MAX_COVERED:
            self.hit("MAX_COVERED")
        for unit, record in covered[:MAX_COVERED]:
            unit.record = recorder.open_for(record)
            append_copy(unit.record, Copy(copy.frame, copy.time_ns, copy.kind))
        if not covered:
            record = recorder.open(self.direction, STREAM, wire_seq, start, None, None)
            record.extra["length"] = end - start
            append_copy(record, copy)

    def _stalled(self, unit: SentRange, frame: int, time_ns: int) -> None:
        self.findings.add(
            "stalled", frame, time_ns, self.direction,
            f"bytes from {unit.start} on were sent {unit.copies} times without an answer",
            {"offset": unit.start, "since_ms": (time_ns - unit.first_ns) / 1e6},
        )  # fmt: skip

    # -- acknowledgements --------------------------------------------------------------------------

    def unseen_before(self, seq: int) -> int:
        """Return how many bytes before a sequence number the capture misses, counting a FIN as one;
        -1 if unknown.
        """
        return -1 if self.base is None else (seq - self.base - self.highest) % SEQ_SPAN

    def offset_of(self, wire: int) -> int:
        """Return the offset that a sequence number acknowledges up to, as far as this is known."""
        # A distance with its sign: an acknowledgement may be ahead of what was captured.
        ahead = (wire - (self.base or 0) - self.highest + HALF_SEQ_SPAN) % SEQ_SPAN
        return self.highest + ahead - HALF_SEQ_SPAN

    def acknowledge(self, wire: int, frame: int, time_ns: int) -> None:
        """Process an acknowledgement number of the other side."""
        if self.base is None:
            self.sender_present = self.sender_present or wire != self._named >= 0
            self._named = wire
            return
        # Most segments repeat the acknowledgement before them.
        if wire == self.acked_wire:
            return
        self.acked_wire = wire
        offset = self.offset_of(wire)
        if offset <= self.acked:
            return
        self.acked = offset
        outstanding = self.outstanding
        while outstanding and outstanding[0].end <= offset:
            unit = outstanding.pop(0)
            self.answered_ns = max(self.answered_ns, unit.last_ns)
            if unit.doubtful or unit.record is not None or self.totals is not None:
                self._settle(unit, frame, time_ns, exact=unit.end == offset)
                continue
            self.units_acked += 1
            sample = time_ns - unit.first_ns
            if unit.end == offset and sample >= 0:
                self.rtt.add(sample)
                self.quickest_ns = min(self.quickest_ns, sample)

    def _settle(self, unit: SentRange, frame: int, time_ns: int, *, exact: bool) -> None:
        """Process the first acknowledgement of a unit. It gives a round trip only if the unit was
        sent once (Karn) and the acknowledgement is exact: one of later bytes may be delayed.
        """
        if unit.record is not None:
            self.settled.add(unit)
        if self.totals is not None:
            self._summed.add(None, unit.start, unit.end, MAX_IDENTITIES)
            self.totals.settled(unit.first_ns, unit.frame, time_ns, ambiguous=unit.doubtful)
        if unit.start in self.partly_new:
            if unit.record is not None:
                record_acked(unit.record, frame, time_ns, ambiguous=unit.doubtful)
            return
        self.units_acked += 1
        ambiguous = unit.doubtful
        sample = time_ns - unit.first_ns
        if ambiguous:
            self.rtt.ambiguous += 1
            if unit.copies > 1:
                usual_ns = self.rtt.lowest if self.rtt.samples else 0
                first = (unit.frame, unit.first_ns)
                self.lateness.take(unit.start, first, unit.copies, sample - usual_ns)
        elif exact and sample >= 0:
            self.rtt.add(sample)
            self.quickest_ns = min(self.quickest_ns, sample)
        if unit.record is not None:
            record_acked(unit.record, frame, time_ns, ambiguous=ambiguous)

    def _settle_unacked(self, unit: SentRange, outcome: str) -> None:
        if unit.start in self.partly_new:
            pass  # its segment counts as a retransmission
        elif outcome != "unknown":
            self.units_unacked += 1
        if self.totals is not None and outcome != "unknown":
            self.totals.span(unit.first_ns).unacked += 1
        if unit.record is not None:
            record_dropped(unit.record, outcome)

    def hit(self, limit: str) -> None:
        """Count that a bound was reached."""
        self.findings.hit(limit, self.direction, STREAM)

    # -- messages ----------------------------------------------------------------------------------

    def arrivals_of(self, start: int, end: int) -> tuple[list[Arrival], int]:
        """Return the first copies of the bytes of a range, and the frame in which some were sent
        again; 0 = none were.

        Everything before `start` is forgotten, because messages come in order.
        """
        arrivals = self.arrivals
        if start < self._forgotten:
            self.hit("MAX_ARRIVALS")
        if arrivals and not self.repeated:
            newest = arrivals[-1]
            if newest.start <= start and end <= newest.end:
                if len(arrivals) > 1:
                    del arrivals[:-1]
                return arrivals, 0
        done = 0
        while done < len(arrivals) and arrivals[done].end <= start:
            done += 1
        if done:
            del arrivals[:done]
        found: list[Arrival] = []
        for arrival in arrivals:
            if arrival.start >= end:
                break
            found.append(arrival)
        repeated = self.repeated
        while repeated and repeated[0][1] <= start:
            repeated.pop(0)
        again = [frame for low, high, frame in repeated if low < end and start < high]
        return found, again[0] if again else 0

    # -- end ---------------------------------------------------------------------------------------

    def finish(self, end_ns: int, until_ns: int) -> SpaceReport:
        """Settle the outstanding units and return the report. For units sent before `until_ns`, the
        capture would have shown an acknowledgement.
        """
        while self.outstanding:
            unit = self.outstanding.pop(0)
            self._settle_unacked(unit, "unacked" if unit.first_ns < until_ns else "unknown")
        counts = self.counts
        units = self.new + counts["hole_filling"]
        extra: dict[str, Any] = {
            "new": self.new,
            **counts,
            "pure_acks": self.pure_acks,
            "octets_on_wire": self.octets_on_wire,
            "partly_new": len(self.partly_new),
        }
        extra |= self.troubles.report(end_ns)
        extra |= self.ids.report()
        extra["segments"] = self.segments
        extra["missing_octets"] = sum(high - low for low, high in self.holes)
        return SpaceReport(
            space=STREAM,
            direction=self.direction,
            units=units,
            copies=units + counts["retransmitted"] + counts["exact_duplicates"],
            retransmissions=counts["retransmitted"],
            duplicates=counts["exact_duplicates"],
            acked=self.units_acked,
            unacked=self.units_unacked,
            unknown=units - self.units_acked - self.units_unacked,
            never_seen=0,
            out_of_order=counts["hole_filling"],
            given_up=0,
            first_seq=self.first,
            last_seq=self.last if units else None,
            max_copies=self.max_copies,
            rtt=self.rtt.summary(),
            added=self.lateness.summary(),
            bursts=self.ids.bursts(),
            extra=extra,
        )
