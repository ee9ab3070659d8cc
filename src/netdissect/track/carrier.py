"""Numbered datagrams that carry numbered messages; `carried` has the messages.

A datagram is never sent again. If it is not acknowledged within `SpaceRule.timeout_ms`, its sender
forgets it, ignores later acknowledgements, and sends its messages again in a new datagram. Its
receiver ignores a datagram whose number it has received before, in any epoch.
"""

from __future__ import annotations

from typing import Any, Final, cast

from netdissect.model.native import ABSENT, i64
from netdissect.model.policy import SpaceRule
from netdissect.model.reports import Copy
from netdissect.track.carrierstrays import CarrierStrays
from netdissect.track.findings import Findings
from netdissect.track.hashes import DatagramHashes
from netdissect.track.outcomes import KIND, record_dropped
from netdissect.track.ranges import Recent
from netdissect.track.recorder import ConnectionRecorder
from netdissect.track.repeats import FINDING
from netdissect.track.space import Space
from netdissect.track.strays import Stray
from netdissect.track.unit import Unit

MAX_EPOCHS = 16
"""Earlier epochs whose numbers are remembered."""
LATEST: Final = 1024
"""At most this many numbers of a gap are looked up among the missing ones."""
MAX_OPENINGS = 256
"""Copies remembered that may not be the network's, because another sender may have begun."""
MAX_SKIPS = 256
"""Gaps remembered, to know which acknowledgements may be in datagrams that did not come."""
PATIENCE_NS: Final = 200_000_000
"""An acknowledgement is sent at most this long after the datagram arrived, in ns: the usual 33 to
85 ms, and two worker loops of 50 ms.
"""
SOONEST: Final = 0.8
"""A message that is sent again before this share of the timeout does not show the timeout."""
_MS: Final = 1_000_000
_SECOND: Final = 1_000_000_000


class CarrierSpace(Space):
    """The datagrams of one direction."""

    __slots__ = (
        "_acked_ns", "_asked_before", "_before", "_began_ns", "_busiest", "_delivered_unread",
        "_first_ns", "_gaps", "_guard_ns", "_in_window", "_latest_ns", "_marks",
        "_openings", "_other_marks", "_paused_ns", "_quiet_ns", "_resumed_ns", "_timeout_ns",
        "_window_ns", "collisions",
        "copied", "current_number", "ignored", "late_acks", "refused", "requested_rate", "restarts",
        "reverse", "stale_frame", "wanted",
    )  # fmt: skip

    def __init__(
        self, rule: SpaceRule, direction: int, findings: Findings,
        recorder: ConnectionRecorder | None,
    ) -> None:  # fmt: skip
        super().__init__(rule, direction, findings, recorder)
        self.reverse: CarrierSpace | None = None
        """The datagrams of the other direction, which carry the acknowledgements for these."""
        self.current_number: i64 = 0
        """Extended number of the current datagram."""
        self.copied: bool | None = False
        """Whether the current datagram is a network copy; None = unknown."""
        self.stale_frame: i64 = ABSENT
        """Frame of the newest datagram, if the receiver ignores it because it knows its number. It
        reads what other frames hold, such as acknowledgements without a number.
        """
        self.late_acks = self.ignored = 0
        """Acknowledgements after the timeout of their datagram, and those in ignored datagrams."""
        self.restarts = self.refused = self.collisions = 0
        """Datagrams that are ignored for a number of an earlier epoch, and those with the number of
        another one, and other content.
        """
        self._openings: list[Copy | None] | None = None
        """Duplicates since a copy of the datagram that began the epoch; None before the first such
        copy. Without one, datagrams that collide are rather damaged ones.
        """
        self.wanted: i64 = 0
        """Datagrams, including copies, that ask for an acknowledgement."""
        self._quiet_ns = 0
        """Time of the datagram before the newest stray."""
        self._marks, self._other_marks = DatagramHashes(), DatagramHashes()
        """The first datagram of each number; and the others, in places of their own, as several
        senders may use a number.
        """
        self.strays = CarrierStrays(
            self.context, self.numbers, self.store, self.recorder, self._marks
        )
        self._timeout_ns = int(rule.timeout_ms * _MS)
        self._guard_ns = int(rule.restart_guard_ms * _MS)
        self._asked_before = False
        """Whether the other side had sent numbered datagrams before the epoch began."""
        self._began_ns: i64 = 0
        """Time of the first datagram of the epoch."""
        self._latest_ns: i64 = 0
        """Time of the newest datagram, which shows that its sender is active."""
        self._resumed_ns: i64 = 0
        self._paused_ns: i64 = 0
        """When its newest pause of half the timeout or more ended, and how long it lasted."""
        self._first_ns: i64 = 0
        """Time of the first datagram."""
        self._window_ns: i64 = 0
        """End of the current window of one second."""
        self._in_window: i64 = 0
        self._busiest: i64 = 0
        """Datagrams in the current window, and in the fullest one."""
        self.requested_rate: int | None = None
        """The rate in datagrams per second that the other side last requested."""
        # A list, and below a dict: an empty deque or set takes hundreds of bytes.
        self._gaps: list[tuple[int, int, int, int]] = []
        """(time before, time after, first number, number after the last) of the newest gaps."""
        self._acked_ns: i64 = 0
        """When the newest acknowledged datagram was sent."""
        self._delivered_unread: dict[int, None] = {}
        """Outstanding datagrams named by an acknowledgement that their sender ignored."""
        self._before: list[tuple[int, int, Recent]] = []
        """(first, last, missing numbers) of the earlier epochs, as extended numbers."""

    def release(self) -> None:
        """Drop the reference to the other direction, too."""
        super().release()
        self.reverse = None

    def unit(
        self,
        wire_seq: i64,
        labelled: bool | None,  # noqa: FBT001 - as in `Space`
        content: Any,
        type_: str | None,
        frame: i64,
        time_ns: i64,
    ) -> None:
        """Process one datagram that asks for an acknowledgement."""
        del labelled
        mark: i64 = hash(content)
        self.wanted += 1
        seq = self._take(wire_seq, mark, frame, time_ns)
        if seq == ABSENT:
            return
        record = None
        if self.recorder is not None:
            record = self.recorder.first(self.context, seq, wire_seq, type_, frame, time_ns)
        unit = self.current = Unit(time_ns, mark, time_ns, frame, record)
        self.store.outstanding.add(seq, unit)

    def plain_unit(
        self, wire_seq: int, content: Any, type_: str | None, frame: i64, time_ns: i64
    ) -> None:
        """Process one datagram that is never acknowledged."""
        seq = self._take(wire_seq, hash(content), frame, time_ns)
        if seq == ABSENT:
            stray = self.strays.newest
            if stray is not None and stray.frame == frame:
                stray.plain = True
            return
        self.current = None
        if self.recorder is not None:
            record = self.recorder.first(self.context, seq, wire_seq, type_, frame, time_ns)
            if record is not None:
                record_dropped(record, "unknown")

    def _take(self, wire_seq: i64, mark: i64, frame: i64, time_ns: i64) -> i64:
        """Return the extended number of a new datagram; ABSENT for a copy or a stray."""
        self.copied, self.stale_frame = False, ABSENT
        seq = self._new_number(wire_seq, mark, frame, time_ns)
        if seq == ABSENT:
            return ABSENT
        self.current_number = seq
        if self.strays.count and self._came_far_ahead(wire_seq, seq, mark, frame, time_ns):
            return ABSENT
        self.units += 1
        self._marks.keep(seq, mark)
        if self._before and self._known_before(wire_seq):
            self.stale_frame = frame
            self.refused += 1
        # This walks all outstanding datagrams, so it runs for one datagram in 256 only.
        if not self.units & 255:
            self._settle_overdue(time_ns)
        return seq

    def _new_number(self, wire_seq: i64, mark: i64, frame: i64, time_ns: i64) -> i64:
        """Return the extended number of a datagram; ABSENT for a stray, and if it is not new."""
        numbers = self.numbers
        last = numbers.newest
        before_ns, self._latest_ns = self._latest_ns, time_ns
        if last == ABSENT:
            last = numbers.begin(wire_seq)
            self._began_ns = time_ns
            self._asked_before = self.reverse is not None and self.reverse.units > 0
            self._first_ns = self._first_ns or time_ns
            self.store.max_copies = 1
        if time_ns < self._window_ns:
            self._in_window += 1
        else:
            self._roll(before_ns, time_ns)
        if self.strays.jump is not None:
            last = self.strays.check_jump(self, wire_seq)
        ahead = (wire_seq - last) & numbers.mask
        if ahead == 1:
            numbers.newest = last + 1
            return last + 1
        if self._is_stray(wire_seq, ahead, mark, frame, time_ns, before_ns):
            return ABSENT
        last = numbers.newest
        ahead = (wire_seq - last) & numbers.mask
        if 0 < ahead <= numbers.half:
            seq = last + ahead
            self._add_gap(before_ns, time_ns, last + 1, seq)
            self._advance(last, seq, frame, time_ns)
            return seq
        seq = last + ahead - (numbers.modulus if ahead else 0)
        return ABSENT if self._repeated(seq, mark, frame, time_ns) else seq

    def _roll(self, before_ns: i64, time_ns: i64) -> None:
        """Begin a window with the current datagram; `before_ns` is the time of the one before."""
        if 2 * (time_ns - before_ns) > self._timeout_ns:
            self._resumed_ns, self._paused_ns = time_ns, time_ns - before_ns
        self._busiest = max(self._busiest, self._in_window)
        self._window_ns = time_ns + _SECOND
        self._in_window = 1

    def _rates(self) -> dict[str, float | None]:
        """Return datagrams per second: on average, in the fullest second, and as requested."""
        span = self._latest_ns - self._first_ns
        # Compiled, the quotient of two large `int`s is less exact.
        sent: Any = self.units + self.repeats.duplicates
        found: dict[str, float | None] = {
            "mean": round(sent * _SECOND / span, 3) if span > 0 else None,
            "peak": int(max(self._busiest, self._in_window)),
        }
        if self.requested_rate is not None:
            found["asked"] = self.requested_rate
        return found

    # -- numbers -----------------------------------------------------------------------------------

    def _add_gap(self, before_ns: int, time_ns: i64, low: int, high: int) -> None:
        """Remember a gap."""
        gaps = self._gaps
        if len(gaps) == MAX_SKIPS:
            del gaps[0]
        gaps.append((before_ns, time_ns, low, high))

    def _arrival_ns(self, last: int, time_ns: i64) -> int:
        """Return when the datagram before the newest gap came; times of most are not stored."""
        del last, time_ns
        return self._gaps[-1][0]

    def _is_stray(
        self, wire_seq: int, ahead: int, mark: int, frame: i64, time_ns: i64, before_ns: int
    ) -> bool:
        """Return whether a datagram is a stray. A number that follows strays may confirm them."""
        numbers = self.numbers
        last = numbers.newest_or_zero()
        reach = numbers.reach
        # Neither close ahead of the newest number nor close behind the first one.
        if not reach < ahead < numbers.modulus - reach - last + numbers.first:
            return False
        strays = self.strays
        step = strays.step(wire_seq)
        if step is not None and strays.accepts(step):
            if strays.is_ahead():
                strays.accept(self, step)
            return False
        seq = self.current_number = numbers.extend(wire_seq)
        # The messages that it carries are acknowledged with it, if the next number confirms it.
        unit = self._add_isolated(seq, mark, None, frame, time_ns)
        stray = Stray(wire_seq & numbers.mask, seq, last, unit, frame, time_ns)
        strays.add(stray, step)
        if step is None or step <= 0:
            self._quiet_ns = before_ns
            strays.report_jump(seq, frame, time_ns)
        return True

    def _advance(self, last: i64, seq: i64, frame: i64, time_ns: i64) -> None:
        """Process a newer number. The numbers of several senders may still come, but none are known
        to be missing.
        """
        super()._advance(last, seq, frame, time_ns)
        if not self.numbers.consecutive:
            self.numbers.leap(last, seq, time_ns)

    def jump(self, last: int, seq: int, frame: i64, time_ns: i64) -> None:
        """Process a newer number `seq` after `last`, and remember the gap between them."""
        if seq > last + 1:
            self._add_gap(self._quiet_ns, time_ns, last + 1, seq)
        self._advance(last, seq, frame, time_ns)

    def jump_undone(self, last: int) -> None:
        """Forget the gaps after `last`."""
        self._gaps = [gap for gap in self._gaps if gap[2] <= last]

    def _lone(self, seq: int, mark: int, frame: i64, time_ns: i64) -> None:
        """Add a datagram to which no acknowledgement and no copy can be attributed."""
        self._add_isolated(seq, mark, None, frame, time_ns)
        self.current = None

    def _repeated(self, seq: int, mark: int, frame: i64, time_ns: i64) -> bool:
        """Process a number that is not new; return False if this is a first copy that came late."""
        numbers = self.numbers
        context = self.context
        if seq in numbers.missing:
            self._arrived_late(seq, time_ns)
        elif seq < numbers.first:
            numbers.extend_back(seq)
        else:
            self.current = None
            self.stale_frame = frame
            known = self._marks.knows(seq)
            if not known:
                context.hit("MAX_MARKS")
            if not known or self._marks.has(seq, mark) or self._other_marks.has(seq ^ mark, mark):
                # Several senders may send the same, and what is forgotten may have never come.
                told = known and not self.shared and not self._may_be_two(seq)
                self._copy(seq, frame, time_ns, made=True if told else None)
            else:
                self.collisions += 1
                if self._openings is not None and self.shared:
                    numbers.consecutive = False
                    self._doubt_openings(self._openings)
                    unit = self.store.outstanding.find(seq)
                    if unit is not None:
                        unit.copies += 1
                self._other_marks.keep(seq ^ mark, mark)
                self._lone(seq, mark, frame, time_ns)
                context.find(
                    "number-reused", frame, time_ns, self.direction,
                    f"{seq & numbers.mask} is used by another datagram as well", seq=seq,
                )  # fmt: skip
            return True
        if numbers.consecutive and (context.started or seq > numbers.first):
            numbers.disorder += 1
            self._notify_evidence()
        numbers.out_of_order += 1
        context.findings.add("out-of-order", frame, time_ns, self.direction)
        return False

    def _copy(self, seq: int, frame: i64, time_ns: i64, *, made: bool | None) -> None:
        """Count a copy that the network has made, or perhaps (None) another sender."""
        self.repeats.duplicates += bool(made)
        self.repeats.undecided += not made
        self.copied = made
        self.context.findings.add(FINDING[made], frame, time_ns, self.direction)
        copy = None
        if self.recorder is not None:
            copy = self.recorder.late_copy(self.context, seq, made, None, frame, time_ns, time_ns)
        if made and self._openings is not None:
            if len(self._openings) < MAX_OPENINGS:
                self._openings.append(copy)
            else:
                self.context.hit("MAX_OPENINGS")

    @property
    def shared(self) -> bool:
        """Return whether several senders number from the start: most datagrams with equal numbers
        differ.
        """
        return self.collisions > self.repeats.duplicates + self.repeats.undecided

    def _came_far_ahead(
        self, wire_seq: i64, seq: int, mark: i64, frame: i64, time_ns: i64
    ) -> bool:  # fmt: skip
        """Process a datagram if a copy of it was ahead of all others; return whether it was."""
        if not cast("CarrierStrays", self.strays).place(wire_seq, seq, mark):
            return False
        self.current = None
        self.stale_frame = frame
        self._copy(seq, frame, time_ns, made=True)
        return True

    def _may_be_two(self, seq: int) -> bool:
        """Return whether a copy of a number may be what another sender begins with: each datagram
        that came before the first answer may have made one.
        """
        return self._openings is not None and self._asked_before and seq == self.numbers.first

    def _doubt_openings(self, openings: list[Copy | None]) -> None:
        """Take back that the network made copies: another sender has begun with them."""
        self.repeats.duplicates -= len(openings)
        self.repeats.undecided += len(openings)
        self.context.findings.reclassify(FINDING[True], FINDING[None], len(openings))
        for copy in openings:
            if copy is not None and self.recorder is not None:
                copy.kind = KIND[None]
                self.recorder.copy_reclassified(copy, KIND[True])
        openings.clear()

    def _known_before(self, wire_seq: int) -> bool:
        """Return whether a datagram of an earlier epoch had this number."""
        for first, last, missing in self._before:
            newest = last - ((last - wire_seq) & self.numbers.mask)
            if newest >= first and newest not in missing:
                return True
        return False

    def wire_of(self, number: int) -> int:
        """Return an extended number as it is on the wire."""
        return number & self.numbers.mask

    # -- acknowledgements --------------------------------------------------------------------------

    def ack(self, base: i64, bits: int, frame: i64, time_ns: i64) -> None:
        """Process an acknowledgement, unless its datagram is ignored."""
        if self.reverse is not None and self.reverse.stale_frame == frame:
            self.ignored += 1
            self._note_unread_ack(base, bits)
            return
        self.acks.take(self, base, bits, frame, time_ns)

    def settle(self, seq: i64, unit: Unit, frame: i64, time_ns: i64) -> None:
        """Process the acknowledgement of a datagram and of all messages in it."""
        if unit.copies > 1:  # another sender has used the number since: it may be of that one
            self.settle_unacked(seq, unit, seen=False)
            return
        sample = time_ns - unit.first_ns
        late = sample > self._timeout_ns
        # If its sender was only heard for less time, the clock may have been set forward.
        paused_ns = self._paused_ns if unit.first_ns < self._resumed_ns else 0
        if late and self._latest_ns - unit.first_ns - paused_ns > self._timeout_ns:
            self.late_acks += 1
            self.time_out(seq, unit)
            return
        ack_stats = self.ack_stats
        ack_stats.note_answered(unit.last_ns, frame)
        ack_stats.acked += 1
        self._acked_ns = max(self._acked_ns, unit.first_ns)
        if not late and ack_stats.add_sample(sample):
            self._notify_evidence()
        if self.recorder is not None:
            self.recorder.acked(unit, frame, time_ns, ambiguous=False)
        self.deliver(unit, frame, time_ns)

    def time_out(self, seq: int, unit: Unit) -> None:
        """Settle a datagram that has timed out."""
        # Its late copies must still be recognised.
        if not self._marks.knows(seq):
            self._marks.keep(seq, unit.content)
        self.attempts.given_up += 1
        self.ack_stats.unacked += 1
        self.context.findings.add(
            "datagram-timed-out", unit.frame, unit.first_ns, self.direction,
            concluded_ns=unit.first_ns + self._timeout_ns,
        )  # fmt: skip
        if self.recorder is not None:
            self.recorder.dropped(unit, "given_up", lost=self._is_lost(seq, unit))
        self._delivered_unread.pop(seq, None)

    def _note_unread_ack(self, base: int, bits: int) -> None:
        """Note which outstanding datagrams were delivered, by an ignored acknowledgement."""
        first = self.numbers.extend(base)
        for seq in self.store.outstanding.numbers():
            if seq == first or (seq > first and bits >> (seq - first - 1) & 1):
                self._delivered_unread[seq] = None

    def _is_lost(self, seq: int, unit: Unit) -> bool:
        """Return whether an unacknowledged datagram is known to be lost: its receiver has
        acknowledged later ones, and no datagram that may have carried its acknowledgement is
        missing or malformed.
        """
        reverse, findings = self.reverse, self.context.findings
        if reverse is None or seq in self._delivered_unread or seq in self.acks.unseen:
            return False
        # Not if nothing shows that the receiver was still active after this datagram.
        if self.context.receiver_near or findings.misses or unit.first_ns >= self._acked_ns:
            return False
        rtt = self.ack_stats.rtt
        due_ns = unit.first_ns + PATIENCE_NS + (rtt.highest if rtt.samples else 0)
        heard = reverse.nothing_missing(unit.first_ns, due_ns)
        return heard and findings.read_all(reverse.direction, unit.first_ns, due_ns)

    def nothing_missing(self, start_ns: int, end_ns: int) -> bool:
        """Return whether no datagram of the current epoch is missing in a span of time."""
        if start_ns < self._began_ns or self._latest_ns < end_ns:
            return False
        missing, gaps = self.numbers.missing, self._gaps
        # Forgotten gaps may lie in this span.
        if len(gaps) == MAX_SKIPS and start_ns <= gaps[0][1]:
            self.context.hit("MAX_SKIPS")
            return False
        for before_ns, after_ns, low, high in gaps:
            within = before_ns <= end_ns and after_ns >= start_ns
            if within and missing.touches(low, min(high, low + LATEST)):
                return False
        return True

    def resent(self, seq: int) -> None:
        """Process a message of a datagram that is sent again, which shows that the datagram has
        timed out. If it is too soon for that, another sender uses the same numbers.
        """
        unit = self.store.outstanding.find(seq)
        if unit is not None and int(self._latest_ns - unit.first_ns) > SOONEST * self._timeout_ns:
            self.store.outstanding.remove(unit)
            self.time_out(seq, unit)

    def settle_unacked(self, seq: int, unit: Unit, *, seen: bool) -> None:
        """Settle a datagram without acknowledgement. It has timed out if its sender was active for
        long enough, and would have had the acknowledgement only if the capture had it, too.
        """
        context = self.context
        seen = seen and not context.findings.misses
        told = seen or (context.beside_sender and not context.findings.misses)
        told = told and seq not in self.acks.unseen
        if told and self._latest_ns - unit.first_ns >= self._timeout_ns:
            self.time_out(seq, unit)
            return
        seen = seen and told
        self.ack_stats.unacked += seen
        if self.recorder is not None:
            self.recorder.dropped(unit, "unacked" if seen else "unknown")

    # -- epochs ------------------------------------------------------------------------------------

    def may_restart(self, time_ns: i64) -> bool:
        """Return False if this may be a copy of the datagram that began the epoch."""
        if self.numbers.last is None or time_ns - self._began_ns >= self._guard_ns:
            return True
        if self._openings is None:
            self._openings = []
        return False

    def restart(self) -> None:
        """Begin a new epoch; the receiver remembers the numbers of the old one."""
        numbers = self.numbers
        if numbers.last is None:
            return
        self.restarts += 1
        if self._openings is not None:
            self._openings.clear()
        self._gaps.clear()
        self._delivered_unread.clear()
        span = (numbers.first, numbers.last, numbers.missing)
        if len(self._before) == MAX_EPOCHS:
            self.context.hit("MAX_EPOCHS")
            del self._before[0]
        self._before.append(span)
        super().restart()

    def _extra(self) -> dict[str, Any]:
        extra = super()._extra()
        if self.collisions:
            extra["collisions"] = self.collisions
        extra["ack_wanted"] = self.wanted
        # A datagram is sent once, so that "given up" means that its timeout is over.
        extra["timed_out"] = self.attempts.given_up
        extra["late_acks"] = self.late_acks
        extra["ignored_acks"] = self.ignored
        extra["restarts"] = self.restarts
        if self.restarts:
            extra["refused"] = self.refused
        extra["per_second"] = self._rates()
        return extra
