"""One sequence space in one direction: its units, their copies, and what acknowledged them.

`seq` is the extended (unwrapped) number, `wire_seq` the one on the wire. The hot path is `unit`
followed by one of the `ack` methods; a unit that is not yet acknowledged is a plain list, because
a class instance costs three times as much.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from netdissect.model.policy import AckRule, Exhausted, SpaceRule
from netdissect.model.reports import Copy, SpaceReport
from netdissect.track.copies import CountedCopies
from netdissect.track.feedback import Feedback, Quality
from netdissect.track.findings import Findings
from netdissect.track.reservoir import RttReservoir
from netdissect.track.vantage import MIN_ANSWERS, MIN_DISORDER

if TYPE_CHECKING:
    from netdissect.track.recorder import Recorder

__all__ = ["EXPIRY_NS", "MAX_MISSING", "MAX_OUTSTANDING", "SUSPICIOUS_JUMP", "Space", "Unit"]

MAX_OUTSTANDING = 4096
"""Units of one space that wait for an acknowledgement; beyond, the oldest is given up as unknown."""
MAX_MISSING = 1024
"""Skipped numbers remembered per space, to tell a late first copy from a repeated one."""
SUSPICIOUS_JUMP = 1024
"""A step of more numbers than this is reported."""
MAX_DOUBTFUL = 256
"""Copies per space whose kind is open until it is known where the capture was taken."""
EXPIRY_NS = 60_000_000_000
"""Without an acknowledgement for so long after its last copy a unit is settled as it stands."""

Unit = list[Any]
"""[first time, last time, copies, content hash, due time, first frame, record, carried units]; a
copy made by the network does not count as one of `copies`.
"""
FIRST, LAST, COPIES, CONTENT, DUE, FRAME, RECORD, CARRIED = range(8)

_MS = 1_000_000


class Space:
    """Units of one space in one direction."""

    def __init__(
        self, rule: SpaceRule, direction: int, findings: Findings, recorder: Recorder | None
    ) -> None:
        self.rule = rule
        self.direction = direction
        self.findings = findings
        self.recorder = recorder
        self.carrier: Space | None = None
        """Space whose units carry those of this one."""
        self.current: Unit | None = None
        """As a carrier: the unit of the datagram at hand."""
        self._modulus = 1 << rule.bits
        self._mask = self._modulus - 1
        self._half = self._modulus >> 1
        self._keeps = rule.ack is not AckRule.NONE
        self.last: int | None = None
        """Newest extended number."""
        self.first = 0
        """Oldest extended number."""
        self.units = 0
        self.plain = 0
        self.retransmissions = 0
        self.duplicates = 0
        self.acked = 0
        self.given_up = 0
        self.out_of_order = 0
        self.max_copies = 0
        self.skipped = 0
        """Numbers used by something that is no unit."""
        self.unacked = 0
        """Settled units whose acknowledgement could have been seen and was not."""
        self.started = False
        """True where the connection is in the capture from its start."""
        self.peer_seen = False
        """True once the other direction has a datagram in the capture."""
        self.rtt = RttReservoir()
        self.outstanding: dict[int, Unit] = {}
        self.missing: set[int] = set()
        self.limits: dict[str, int] = {}
        """Named bound -> how often it was hit."""
        self.in_stream = False
        """True over TCP, which hands no octet on twice: every further copy is the sender's."""
        self.sender_near: bool | None = None
        """True: no network lies between the sender and the capture; None: not known."""
        self.receiver_near: bool | None = None
        """True: no network lies between the capture and the receiver; None: not known."""
        self.delay_ns = 0
        """Resend delay that the sender works with now; 0 without a timer."""
        self.guard_ns = 0
        """Copies closer than this are the network's."""
        self.quickest_ns = 1 << 62
        """Shortest unambiguous time from a unit to its acknowledgement."""
        self.on_sight: Callable[[], None] | None = None
        """Called where something new is known that tells where the capture was taken."""
        self.disorder = 0
        """First copies out of order that only a network explains."""
        self._doubtful: list[tuple[Unit | int, Copy | None]] = []
        self._counted = CountedCopies()
        """Copies since the newest number, which the next number judges."""
        """Duplicates judged before it was known where the capture was taken."""
        self.gave_up_ns: int | None = None
        """When the sender gave up the last unit that it had sent as often as it may."""
        self._never_before = 0
        """Numbers spanned by the epochs that a restart has ended."""
        self._spans: tuple[int, int] | None = None
        """(first, last) of the epochs that a restart has ended."""
        self._seqs: array[int] | None = None
        self.feedback: Feedback | None = None
        self.quality = Quality(rule.quality) if rule.quality else None
        self.retime(None)
        self.ack: Callable[[int, int, int, int], None] = {
            AckRule.EXACT: self._ack_exact,
            AckRule.BITS_BEFORE: self._ack_before,
            AckRule.BITS_AFTER: self._ack_after,
            AckRule.CUMULATIVE: self._ack_cumulative,
            AckRule.NONE: self._ack_exact,
        }[rule.ack]

    # -- timers ------------------------------------------------------------------------------------

    def retime(self, smoothed_ms: float | None) -> None:
        """Recompute delay and guard for the round trip that the sender knows."""
        resend = self.rule.resend
        guard_ms = self.rule.duplicate_window_ms
        if resend is not None:
            known = smoothed_ms is not None
            delay_ms = resend.initial_ms
            if smoothed_ms is not None and resend.rtt_factor:
                delay_ms = max(resend.floor_ms, resend.rtt_factor * smoothed_ms)
            self.delay_ns = int(delay_ms * _MS)
            factor = resend.guard_rtt_factor
            own = factor * (smoothed_ms or 0.0) if known and factor else resend.guard_ms
            guard_ms = guard_ms or own
        self.guard_ns = int(guard_ms * _MS)

    # -- units -------------------------------------------------------------------------------------

    def unit(
        self,
        wire_seq: int,
        labelled: bool | None,  # noqa: FBT001 - hot path, as in the event
        content: Any,
        type_: str | None,
        frame: int,
        time_ns: int,
    ) -> None:
        """Take one copy of a unit that its sender wants acknowledged."""
        last = self.last
        if last is None:
            last = self._begin(wire_seq)
        ahead = (wire_seq - last) & self._mask
        if ahead > self._half:
            ahead -= self._modulus
        seq = last + ahead
        if ahead > 0:
            if ahead > 1:
                self._gap(last, seq, frame, time_ns)
            if self._counted:
                self._counted.judge(ahead - 1)
            self.last = seq
        else:
            known = self.outstanding.get(seq)
            if known is not None:
                self._again(seq, known, labelled, hash(content), frame, time_ns)
                return
            if self._repeats_settled(seq, labelled, hash(content), frame, time_ns):
                return
        self.units += 1
        record = None
        if self.recorder is not None:
            record = self.recorder.first(self, seq, wire_seq & self._mask, type_, frame, time_ns)
        unit: Unit = [
            time_ns, time_ns, 1, hash(content), time_ns + self.delay_ns, frame, record, None,
        ]  # fmt: skip
        if self._keeps:
            outstanding = self.outstanding
            outstanding[seq] = unit
            if not self.units & 63 or len(outstanding) > MAX_OUTSTANDING:
                self._shed(time_ns)
        else:
            self._remember(seq, unit)
        self.current = unit
        if self.carrier is not None:
            self._load(seq)

    def plain_unit(
        self, wire_seq: int, content: Any, type_: str | None, frame: int, time_ns: int
    ) -> None:
        """Take one copy of a unit that nobody will acknowledge."""
        before = self.units
        self.unit(wire_seq, None, content, type_, frame, time_ns)
        if self.units != before:
            self.plain += 1
            unit = self.current
            seq = next(reversed(self.outstanding), None)
            if seq is not None and self.outstanding[seq] is unit:
                del self.outstanding[seq]
                self._remember(seq, unit)

    def number(self, wire_seq: int, frame: int, time_ns: int) -> None:
        """Take a number that something else than a unit has used."""
        last = self.last
        if last is None:
            last = self._begin(wire_seq)
            ahead = 1
        else:
            ahead = (wire_seq - last) & self._mask
            if ahead > self._half:
                ahead -= self._modulus
        seq = last + ahead
        if ahead > 0:
            if ahead > 1:
                self._gap(last, seq, frame, time_ns)
            if self._counted:
                self._counted.judge(ahead - 1)
            self.last = seq
            self.skipped += 1
        elif seq in self.missing:
            self.missing.discard(seq)
            self.skipped += 1
        elif seq < self.first:
            self._lower(seq)
            self.skipped += 1

    def _lower(self, seq: int) -> None:
        """Take a number below all so far: those in between are still to come."""
        if self.rule.consecutive:
            self._miss(seq + 1, self.first)
        self.first = seq

    def _begin(self, wire_seq: int) -> int:
        """Take the first number of an epoch as base; return the number before it."""
        base = wire_seq & self._mask
        if self._spans is not None:
            # Extended numbers never repeat: a new epoch starts at the next multiple of the modulus.
            base += ((self._spans[1] >> self.rule.bits) + 1) << self.rule.bits
        self.first = base
        return base - 1

    def _gap(self, last: int, seq: int, frame: int, time_ns: int) -> None:
        """Note the numbers between the newest one and a newer one."""
        if not self.rule.consecutive:
            return
        step = seq - last
        if step > SUSPICIOUS_JUMP:
            self.findings.add(
                "sequence-jump", frame, time_ns, self.direction,
                f"{self.rule.name} number jumps ahead by {step}",
                {"space": self.rule.name, "from": last, "to": seq},
            )  # fmt: skip
        self._miss(last + 1, seq)
        if self.recorder is not None:
            self.recorder.gap(self, last + 1, seq - 1, frame, time_ns)

    def _miss(self, low: int, end: int) -> None:
        """Remember the newest of the numbers from `low` to before `end` as not seen."""
        missing = self.missing
        missing.update(range(max(low, end - MAX_MISSING), end))
        if len(missing) > MAX_MISSING:
            self._hit("MAX_MISSING")
            for old in sorted(missing)[: len(missing) - MAX_MISSING // 2]:
                missing.discard(old)

    def _again(
        self,
        seq: int,
        unit: Unit,
        labelled: bool | None,  # noqa: FBT001 - as in `unit`
        content: int,
        frame: int,
        time_ns: int,
    ) -> None:
        """Take a further copy of a unit that is not acknowledged."""
        copied = self._is_copy(
            labelled, content == unit[CONTENT], time_ns - unit[LAST], unit[COPIES]
        )
        if copied:
            self.duplicates += 1
            self.findings.add("duplicate", frame, time_ns, self.direction)
        else:
            self.retransmissions += 1
            if content != unit[CONTENT] and labelled is None:
                self._reused(seq, frame, time_ns)
            self.findings.add("retransmission", frame, time_ns, self.direction)
            unit[COPIES] += 1
        copy = None
        if self.recorder is not None and unit[RECORD] is not None:
            due = unit[DUE]
            copy = self.recorder.again(self, unit[RECORD], copied, labelled, frame, time_ns, due)
        if self.rule.copies_take_numbers:
            self._count_copy(unit, copy, time_ns - unit[LAST], copied=copied)
        if copied:
            self._doubt(unit, copy)
        else:
            unit[LAST] = time_ns
            unit[CONTENT] = content
            unit[DUE] = time_ns + self.delay_ns
        self.current = unit if not copied else None
        if self.carrier is not None:
            self._load(seq)

    def _is_copy(
        self,
        labelled: bool | None,  # noqa: FBT001 - as in `unit`
        same: bool,  # noqa: FBT001 - private
        gap_ns: int,
        copies: int,
    ) -> bool:
        """Return True where a further copy was made by the network, not by the sender."""
        if self.in_stream:
            return False
        if self.rule.resend is None:
            return True
        if not same or copies < self.rule.burst:
            return False
        if labelled is False:
            return True
        return gap_ns < self.guard_ns and not self.sender_near

    def _doubt(self, unit: Unit | int, copy: Copy | None) -> None:
        """Note a duplicate that is none if the sender turns out to be next to the capture."""
        rule = self.rule
        if self.sender_near is None and rule.resend is not None and not rule.copies_take_numbers:
            if len(self._doubtful) < MAX_DOUBTFUL:
                self._doubtful.append((unit, copy))
            else:
                self._hit("MAX_DOUBTFUL")

    def _count_copy(
        self, unit: Unit | int, copy: Copy | None, gap_ns: int, *, copied: bool
    ) -> None:
        """Keep a further copy in mind until the next number shows who made it."""

        def turn(by_network: bool) -> None:  # noqa: FBT001
            step = 1 if by_network else -1
            self.duplicates += step
            self.retransmissions -= step
            if isinstance(unit, int):
                self._recount(unit, -step)
            else:
                unit[COPIES] -= step
            if copy is not None:
                copy.kind = "duplicate" if by_network else "retransmission"

        self._counted.add(gap_ns, turn, copied=copied)

    def place(self, sender_near: bool | None, receiver_near: bool | None) -> None:  # noqa: FBT001
        """Take what has become known about where the capture was taken."""
        self.sender_near, self.receiver_near = sender_near, receiver_near
        if sender_near is None:
            return
        for unit, copy in self._doubtful if sender_near else ():
            self.duplicates -= 1
            self.retransmissions += 1
            if isinstance(unit, int):
                self._recount(unit)
            else:
                unit[COPIES] += 1
            if copy is not None:
                copy.kind = "retransmission"
        self._doubtful.clear()

    def _recount(self, seq: int, step: int = 1) -> None:
        """Count one transmission more (or less) of a settled unit."""
        slot = seq & (self.rule.memory - 1)
        if self._seqs is not None and self._seqs[slot] == seq:
            self._counts[slot] += step
            self.max_copies = max(self.max_copies, self._counts[slot])

    def _reused(self, seq: int, frame: int, time_ns: int) -> None:
        self.findings.add(
            "number-reused", frame, time_ns, self.direction,
            f"{self.rule.name} {seq & self._mask} carries other content than before",
            {"space": self.rule.name, "seq": seq},
        )  # fmt: skip

    # -- memory of acknowledged units --------------------------------------------------------------

    def _remember(self, seq: int, unit: Unit) -> None:
        """Keep time and content of a settled unit in a ring, to judge its late copies."""
        seqs = self._seqs
        size = self.rule.memory
        if seqs is None:
            seqs = self._seqs = array("q", [-1]) * size
            self._times = array("q", [0]) * size
            self._contents = array("q", [0]) * size
            self._counts = array("q", [0]) * size
        slot = seq & (size - 1)
        seqs[slot] = seq
        self._times[slot] = unit[LAST]
        self._contents[slot] = unit[CONTENT]
        self._counts[slot] = unit[COPIES]
        if unit[COPIES] > self.max_copies:
            self.max_copies = unit[COPIES]

    def _repeats_settled(
        self,
        seq: int,
        labelled: bool | None,  # noqa: FBT001 - as in `unit`
        content: int,
        frame: int,
        time_ns: int,
    ) -> bool:
        """Take a number that is not newer; return False where it is a first copy that came late."""
        slot = seq & (self.rule.memory - 1)
        if self._seqs is not None and self._seqs[slot] == seq:
            self._settled_again(seq, slot, labelled, content, frame, time_ns)
            return True
        if seq in self.missing:
            self.missing.discard(seq)
        elif seq >= self.first and self.rule.consecutive:
            # Forgotten: it was seen, or it is older than the memory of skipped numbers.
            self._hit("memory")
            self.retransmissions += 1
            self.current = None
            return True
        elif seq < self.first:
            self._lower(seq)
        if self.rule.consecutive and (self.started or seq > self.first):
            self.disorder += 1
            if self.disorder <= MIN_DISORDER and self.on_sight is not None:
                self.on_sight()
        self.out_of_order += 1
        self.findings.add("out-of-order", frame, time_ns, self.direction)
        return False

    def _settled_again(
        self,
        seq: int,
        slot: int,
        labelled: bool | None,  # noqa: FBT001 - as in `unit`
        content: int,
        frame: int,
        time_ns: int,
    ) -> None:
        same = content == self._contents[slot]
        copied = self._is_copy(
            labelled, same, time_ns - self._times[slot], self._counts[slot]
        )
        if copied:
            self.duplicates += 1
            self.findings.add("duplicate", frame, time_ns, self.direction)
        else:
            self.retransmissions += 1
            self._counts[slot] += 1
            self.max_copies = max(self.max_copies, self._counts[slot])
            if not same and labelled is None:
                self._reused(seq, frame, time_ns)
            elif self._keeps:
                self.findings.add("acked-yet-resent", frame, time_ns, self.direction)
            self._contents[slot] = content
        copy = None
        if self.recorder is not None:
            due = self._times[slot] + self.delay_ns
            copy = self.recorder.late(self, seq, copied, labelled, frame, time_ns, due)
        if self.rule.copies_take_numbers:
            self._count_copy(seq, copy, time_ns - self._times[slot], copied=copied)
        if copied:
            self._doubt(seq, copy)
        else:
            self._times[slot] = time_ns
        self.current = None

    def _shed(self, now_ns: int) -> None:
        """Drop units that have waited too long, and the oldest beyond the bound."""
        outstanding = self.outstanding
        horizon = now_ns - EXPIRY_NS
        while outstanding:
            seq = next(iter(outstanding))
            unit = outstanding[seq]
            over = len(outstanding) > MAX_OUTSTANDING
            if not over and unit[LAST] > horizon:
                break
            del outstanding[seq]
            if over:
                self._hit("MAX_OUTSTANDING")
            self._end(seq, unit, seen=self.peer_seen and not over)

    def _hit(self, limit: str) -> None:
        self.limits[limit] = self.limits.get(limit, 0) + 1

    def skipped_start(self, first: int) -> bool:
        """Return True where no copy of the protocol's first number is in the capture."""
        return self.last is not None and self._spans is None and self.first > first

    # -- acknowledgements --------------------------------------------------------------------------

    def _extend(self, wire_seq: int) -> int:
        last = self.last or 0
        ahead = (wire_seq - last) & self._mask
        return last + (ahead - self._modulus if ahead > self._half else ahead)

    def _ack_exact(self, base: int, bits: int, frame: int, time_ns: int) -> None:
        del bits
        if self.last is None:
            return
        seq = self._extend(base)
        unit = self.outstanding.pop(seq, None)
        if unit is not None:
            self._settle(seq, unit, frame, time_ns)
        elif seq > self.last:
            self._unsent(base, frame, time_ns)

    def _ack_before(self, base: int, bits: int, frame: int, time_ns: int) -> None:
        last = self.last
        if last is None:
            return
        ahead = (base - last) & self._mask
        seq = last + (ahead - self._modulus if ahead > self._half else ahead)
        outstanding = self.outstanding
        unit = outstanding.pop(seq, None)
        if unit is not None:
            self._settle(seq, unit, frame, time_ns)
        elif seq > last:
            self._unsent(base, frame, time_ns)
        if bits and (outstanding or self.missing):
            self._ack_bits(seq - self.rule.ack_bits, seq - 1, bits, seq, frame, time_ns)

    def _ack_after(self, base: int, bits: int, frame: int, time_ns: int) -> None:
        if self.last is None:
            return
        seq = self._extend(base)
        unit = self.outstanding.pop(seq, None)
        if unit is not None:
            self._settle(seq, unit, frame, time_ns)
        elif seq > self.last:
            self._unsent(base, frame, time_ns)
        while bits:
            low = bits & -bits
            bits ^= low
            other = seq + low.bit_length()
            unit = self.outstanding.pop(other, None)
            if unit is not None:
                self._settle(other, unit, frame, time_ns)

    def _ack_bits(
        self, low: int, high: int, bits: int, base: int, frame: int, time_ns: int
    ) -> None:
        """Settle what the bit field before `base` covers."""
        outstanding = self.outstanding
        if len(outstanding) > self.rule.ack_bits:
            covered = [seq for seq in range(low, high + 1) if seq in outstanding]
        else:
            covered = [seq for seq in outstanding if low <= seq <= high]
        for seq in covered:
            if bits >> (base - 1 - seq) & 1:
                self._settle(seq, outstanding.pop(seq), frame, time_ns)
        if self.missing:
            for seq in [seq for seq in self.missing if low <= seq <= high]:
                if bits >> (base - 1 - seq) & 1:
                    self._unseen(seq, frame, time_ns)

    def _ack_cumulative(self, base: int, bits: int, frame: int, time_ns: int) -> None:
        del bits
        last = self.last
        outstanding = self.outstanding
        if last is None:
            return
        ahead = (base - last) & self._mask
        seq = last + (ahead - self._modulus if ahead > self._half else ahead)
        if seq > last:
            self._unsent(base, frame, time_ns)
            return
        if not outstanding:
            return
        for covered in [other for other in outstanding if other <= seq]:
            self._settle(covered, outstanding.pop(covered), frame, time_ns)

    def _settle(self, seq: int, unit: Unit, frame: int, time_ns: int) -> None:
        """Take the first acknowledgement of a unit."""
        if self._exhausted(unit) and time_ns > unit[DUE]:
            # Its sender had dropped it when this acknowledgement came.
            self._end(seq, unit, seen=True)
            return
        self.acked += 1
        copies = unit[COPIES]
        if copies == 1:
            sample = time_ns - unit[FIRST]
            if sample >= 0:
                self.rtt.add(sample)
                if sample < self.quickest_ns or self.rtt.samples <= MIN_ANSWERS:
                    self.quickest_ns = min(sample, self.quickest_ns)
                    if self.on_sight is not None:
                        self.on_sight()
        else:
            self.rtt.ambiguous += 1
        if self.quality is not None and self.quality.rule.measure == "attempts":
            if self.quality.outcome(copies, time_ns):
                self._poor(frame, time_ns)
        self._remember(seq, unit)
        if unit[RECORD] is not None and self.recorder is not None:
            self.recorder.acked(unit[RECORD], copies, frame, time_ns)
        if unit[CARRIED]:
            for space, inner in unit[CARRIED]:
                carried = space.outstanding.pop(inner, None)
                if carried is not None:
                    space._settle(inner, carried, frame, time_ns)  # noqa: SLF001 - same class

    def _load(self, seq: int) -> None:
        """Note with the unit of the datagram at hand that it carries a unit of this space."""
        carrier = self.carrier
        if carrier is None or carrier.current is None:
            return
        unit = carrier.current
        if unit[CARRIED] is None:
            unit[CARRIED] = []
        unit[CARRIED].append((self, seq))

    def _unsent(self, base: int, frame: int, time_ns: int) -> None:
        self.findings.add(
            "ack-of-unsent", frame, time_ns, 1 - self.direction,
            f"acknowledges {self.rule.name} {base}, which was never sent",
            {"space": self.rule.name, "wire_seq": base},
        )  # fmt: skip

    def _unseen(self, seq: int, frame: int, time_ns: int) -> None:
        self.findings.add(
            "ack-of-unseen", frame, time_ns, 1 - self.direction,
            f"acknowledges {self.rule.name} {seq & self._mask}, of which no copy was seen",
            {"space": self.rule.name, "seq": seq},
        )  # fmt: skip

    def _poor(self, frame: int, time_ns: int) -> None:
        self.findings.add(
            "poor-quality", frame, time_ns, self.direction,
            f"the sender of {self.rule.name} counts more loss than it tolerates",
            {"space": self.rule.name},
        )  # fmt: skip

    # -- feedback ----------------------------------------------------------------------------------

    def nack(self, base: int, bits: int, frame: int, time_ns: int) -> None:
        """Take feedback that tells once and for all what was delivered."""
        feedback = self.feedback
        if feedback is None:
            feedback = self.feedback = Feedback(self.rule.ack_bits)
        if self.last is None:
            return
        seq = self._extend(base)
        if seq > self.last:
            self._unsent(base, frame, time_ns)
            return
        start = self.rule.first_seq - 1 if self.started and self.rule.first_seq else None
        for number, delivered in feedback.told(seq, bits, start):
            unit = self.outstanding.pop(number, None)
            if delivered is None:
                feedback.assumed_lost += 1
            elif delivered:
                feedback.delivered += 1
            else:
                feedback.lost += 1
            if unit is not None:
                if delivered:
                    self._settle(number, unit, frame, time_ns)
                else:
                    if unit[RECORD] is not None:
                        unit[RECORD].extra["reported"] = "assumed lost" if delivered is None else "lost"
                    self._end(number, unit, seen=delivered is not None)
            elif delivered and number in self.missing:
                self._unseen(number, frame, time_ns)
            if delivered is None or self.quality is None or self.quality.rule.measure != "loss":
                continue
            if self.quality.outcome(0 if delivered else 1, time_ns):
                self._poor(frame, time_ns)

    # -- end ---------------------------------------------------------------------------------------

    def _exhausted(self, unit: Unit) -> bool:
        """Return True where the unit was sent exactly as often as its sender permits.

        More copies than that show a sender whose limit is switched off.
        """
        resend = self.rule.resend
        if resend is None or resend.attempts is None or resend.exhausted is Exhausted.NEVER:
            return False
        return bool(unit[COPIES] == resend.attempts)

    def _end(self, seq: int, unit: Unit, *, seen: bool) -> None:
        """Settle a unit without acknowledgement; `seen`: one could have been seen."""
        given_up = self._exhausted(unit)
        self.given_up += given_up
        self.unacked += seen or given_up
        if given_up:
            self.gave_up_ns = max(self.gave_up_ns or 0, unit[DUE])
            self.findings.add(
                "attempts-exhausted", unit[FRAME], unit[LAST], self.direction,
                f"{self.rule.name} {seq & self._mask} was sent {unit[COPIES]} times",
                {"space": self.rule.name, "seq": seq, "copies": unit[COPIES]},
            )  # fmt: skip
        self._remember(seq, unit)
        if unit[RECORD] is not None and self.recorder is not None:
            word = "given_up" if given_up else "unacked" if seen else "unknown"
            self.recorder.dropped(unit[RECORD], word)

    def finish(self, end_ns: int, patience_ns: int) -> SpaceReport:
        """Settle what is left and return the figures.

        Args:
            end_ns: end of the capture, or of the connection's time in it.
            patience_ns: a unit sent later than this before the end may still be acknowledged.

        """
        for seq, unit in list(self.outstanding.items()):
            waited = end_ns - unit[LAST] > patience_ns
            self._end(seq, unit, seen=self.peer_seen and waited)
        self.outstanding.clear()
        span = self._never_before
        if self.last is not None and self.rule.consecutive:
            span += self.last - self.first + 1
        span -= self.units + self.skipped
        first, last = self.first, self.last
        if self._spans is not None:
            first = self._spans[0]
            last = self._spans[1] if last is None else last
        return SpaceReport(
            space=self.rule.name,
            direction=self.direction,
            units=self.units,
            copies=self.units + self.retransmissions + self.duplicates,
            retransmissions=self.retransmissions,
            duplicates=self.duplicates,
            acked=self.acked,
            unacked=self.unacked,
            unknown=self.units - self.acked - self.unacked,
            never_seen=max(0, span) if self.rule.consecutive else 0,
            out_of_order=self.out_of_order,
            given_up=self.given_up,
            first_seq=None if last is None else first,
            last_seq=last,
            max_copies=self.max_copies,
            rtt=self.rtt.summary(),
            extra=self._extra(),
        )

    def _extra(self) -> dict[str, Any]:
        feedback = self.feedback
        extra: dict[str, Any] = {}
        if feedback is not None:
            extra = {
                "delivered": feedback.delivered,
                "lost": feedback.lost,
                "assumed_lost": feedback.assumed_lost,
            }
        if self.quality is not None and self.quality.peak:
            extra["poor_quality_run"] = self.quality.peak
        return extra

    def restart(self) -> None:
        """Begin a new epoch: its sender numbers afresh. What is open stays open no longer."""
        if self.last is None:
            return
        for seq, unit in list(self.outstanding.items()):
            self._end(seq, unit, seen=False)
        self.outstanding.clear()
        self.missing.clear()
        if self.rule.consecutive:
            self._never_before += self.last - self.first + 1
        first = self._spans[0] if self._spans else self.first
        self._spans = (first, self.last)
        self.last = None
        self.current = None
        self.feedback = None
