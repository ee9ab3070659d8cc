"""The numbered messages that numbered datagrams carry; `carrier` has the datagrams.

Most datagrams carry a run of consecutive new messages. A run shares one entry (`Carried`) until one
of its messages comes again, and the numbers seen are stored as ranges.
"""

from __future__ import annotations

from typing import Any, Final, cast

from netdissect.model.native import ABSENT, i64
from netdissect.model.policy import SpaceRule
from netdissect.track.carrier import CarrierSpace
from netdissect.track.context import Heard
from netdissect.track.findings import Findings
from netdissect.track.ranges import Ranges
from netdissect.track.recorder import ConnectionRecorder
from netdissect.track.repeats import FINDING
from netdissect.track.space import Space
from netdissect.track.strays import FORGED
from netdissect.track.unit import Carried, Unit
from netdissect.track.unitstore import MAX_OUTSTANDING

MAX_AGAIN = 4096
"""Messages sent more than once whose copies are counted one by one."""
MAX_LISTED = 256
"""Datagrams listed per message in its record."""
_FEW_RUNS: Final = 8
"""Settled runs are dropped when there are this many more of them than outstanding ones."""


class _Run:
    """Messages that follow each other and whose numbers are far from all others."""

    __slots__ = (
        "before", "datagram", "datagrams", "first_datagram", "messages", "seq", "undone",
        "units_before",
    )  # fmt: skip

    def __init__(self, datagram: int, units: int) -> None:
        self.first_datagram = self.datagram = datagram
        """Numbers of the first and of the newest datagram that carries them."""
        self.datagrams = 1
        self.messages = 0
        self.seq = 0
        """Number of the newest message."""
        self.units_before = units
        """Messages of the space before these."""
        self.before = 0
        """Newest number of the space before they were confirmed."""
        self.undone = False
        """Whether they were confirmed, and then the old numbers went on."""


class CarriedSpace(Space):
    """The messages of one direction that the datagrams of a `CarrierSpace` carry."""

    __slots__ = (
        "_highest", "_jump", "_open", "_run", "_runs", "_seen", "_sent_again", "disordered",
        "singles",
    )  # fmt: skip

    def __init__(
        self, rule: SpaceRule, direction: int, findings: Findings,
        recorder: ConnectionRecorder | None,
    ) -> None:  # fmt: skip
        super().__init__(rule, direction, findings, recorder)
        self._seen = Ranges()
        self._runs: list[Carried] = []
        """The runs of messages sent once, by number, including some settled ones."""
        self._open: i64 = 0
        """How many of them are outstanding."""
        self._sent_again: dict[int, int] = {}
        """Number -> how often its sender has sent it, if more than once."""
        self._highest = -1
        """Highest number that asked to be delivered in order."""
        self._run: _Run | None = None
        """The newest messages far from all others, while nothing confirms them."""
        self._jump: _Run | None = None
        """The newest confirmed ones, while they may still turn out to be forged."""
        self.singles = 0
        """Messages whose number is far from all others."""
        self.disordered = 0
        """Messages that asked for order and came after a later one that did."""

    @property
    def _by(self) -> CarrierSpace:
        return cast("CarrierSpace", self.carrier)

    def run(
        self, wire_seq: i64, count: i64, same: str | None, types: list[str] | None, frame: i64,
        time_ns: i64,
    ) -> None:  # fmt: skip
        """Process consecutive messages. Their types are `types`, or `same` if that is None."""
        numbers = self.numbers
        by = self._by
        last = numbers.newest
        if last == ABSENT:
            last = numbers.begin(wire_seq)
        ahead = (wire_seq - last) & numbers.mask
        recorder, record = self.recorder, None
        together = recorder is None or (
            # Messages that share a record also have consecutive numbers on the wire.
            recorder.counted and (wire_seq & numbers.mask) + count <= numbers.modulus
        )
        # Copies, late messages and strays are not alike, so each message is classified on its own.
        if not together or not 0 < ahead <= self.context.rule.reach or by.copied is not False:
            for index in range(count):
                type_ = same if types is None else types[index]
                self.unit(wire_seq + index, None, None, type_, frame, time_ns)
            return
        start: i64 = last + ahead
        end: i64 = start + count
        numbers.newest = end - 1
        self.units += count
        if not self.store.max_copies:
            self.store.max_copies = 1
        self._seen.add(start, end)
        if recorder is not None:
            number = wire_seq & numbers.mask
            record = recorder.run(self.context, start, number, count, frame, time_ns)
        run = Carried(
            self.place, start, count, time_ns, by.current_number, frame, record, is_open=True
        )
        self._runs.append(run)
        self._open += 1
        self._load(run)
        if self._open > MAX_OUTSTANDING:
            self._shed_runs()
        # A list that may double before it is filtered costs a constant time for each run.
        if len(self._runs) > 2 * self._open + _FEW_RUNS:
            self._runs = self._waiting()

    def _waiting(self) -> list[Carried]:
        """Return the outstanding runs."""
        return [run for run in self._runs if run.open]

    def _shed_runs(self) -> None:
        """Settle the oldest runs as unknown, because there are too many."""
        for run in self._waiting()[: MAX_OUTSTANDING // 4]:
            self.context.hit("MAX_OUTSTANDING")
            run.open = False
            self._open -= 1
            if self.recorder is not None:
                self.recorder.dropped_run(run, "unknown")

    def ordered(self, asked: list[int], frame: i64, time_ns: i64) -> None:
        """Process the numbers of the next messages that ask to be delivered in order."""
        if self._by.stale_frame == frame:
            return  # the receiver ignores the datagram
        numbers = self.numbers
        # Before the first message, no number can be called far.
        newest = numbers.modulus if numbers.newest == ABSENT else numbers.newest
        farthest = self.context.rule.reach + newest
        for number in asked:
            if number > farthest:
                continue  # it will be a stray
            if number > self._highest:
                self._highest = number
            elif number not in self._seen:
                self.disordered += 1
                self.context.findings.add("order-not-kept", frame, time_ns, self.direction)

    def _explode(self, seq: int) -> None:
        """Give each message of the run that contains `seq` an entry of its own."""
        low, high = 0, len(self._runs)
        while low < high:  # compiled, twice as fast as `bisect` with a key
            middle = (low + high) >> 1
            if self._runs[middle].first <= seq:
                low = middle + 1
            else:
                high = middle
        if not low:
            return
        run = self._runs[low - 1]
        if run.open and seq < run.first + run.count:
            run.open = False
            self._open -= 1
            units = run.units() if self.recorder is None else self.recorder.units_of(run)
            for place, unit in enumerate(units):
                self.store.outstanding.add(run.first + place, unit)

    def unit(
        self,
        wire_seq: i64,
        labelled: bool | None,  # noqa: FBT001 - as in `Space`
        content: Any,
        type_: str | None,
        frame: i64,
        time_ns: i64,
    ) -> None:
        """Process one copy of a message."""
        numbers = self.numbers
        context = self.context
        store = self.store
        del labelled, content
        last = self._last(wire_seq)
        ahead = (wire_seq - last) & numbers.mask
        if ahead > numbers.half:
            ahead -= numbers.modulus
        seq = last + ahead
        again = False
        # If the capture begins later, messages from before may be sent again much later.
        reach = context.rule.reach
        near = ahead <= reach and (not context.started or numbers.first - seq <= reach)
        # The order of these tests matters: only a number that is not near and not known is a stray.
        new = near and ahead > 0
        if new:
            numbers.newest = seq
        # What is new in a copied datagram has come in a stray.
        if (not new or self._by.copied) and seq in self._seen:
            self._repeat(seq, frame, time_ns)
            return
        if not near:
            self._take_stray(seq, last, frame, time_ns)
        elif not new:
            numbers.first = min(numbers.first, seq)
            numbers.out_of_order += 1
            context.findings.add("out-of-order", frame, time_ns, self.direction)
            again = context.misses_first
        self.units += 1
        if not store.max_copies:
            store.max_copies = 1
        self._seen.add(seq, seq + 1)
        record = None
        if self.recorder is not None:
            number = wire_seq & numbers.mask
            record = self.recorder.first(self.context, seq, number, type_, frame, time_ns)
        entry = Unit(time_ns, self._by.current_number, time_ns, frame, record)
        entry.again = again
        store.outstanding.add(seq, entry)
        self._list(entry)
        self._load(Carried.of(self.place, seq))
        if store.outstanding.count > MAX_OUTSTANDING:
            self._shed_oldest()

    def _last(self, wire_seq: i64) -> i64:
        """Return the newest number before this one."""
        numbers = self.numbers
        if numbers.newest == ABSENT:
            return numbers.begin(wire_seq)
        if self._jump is not None:
            self._check_jump(self._jump, wire_seq)
        return numbers.newest

    def _take_stray(self, seq: int, last: int, frame: i64, time_ns: i64) -> None:
        """Process a number far from all before, as `Strays` does. The messages of one datagram
        share its base, which may be damaged, so that only further datagrams can confirm a run.
        """
        numbers, run = self.numbers, self._run
        datagram = int(self._by.current_number)
        if run is None or not 0 < seq - run.seq <= self.context.rule.reach:
            run = self._run = _Run(datagram, self.units)
            self.strays.report_jump(seq, frame, time_ns)
        elif run.datagram != datagram:
            run.datagrams += 1
            if run.datagrams > (1 if seq > last and not run.undone else FORGED):
                self.singles -= run.messages
                self._run = None
                if seq > last and not run.undone:
                    run.before = last
                    self._jump = run
                numbers.newest = max(seq, last)
                numbers.first = min(run.seq, numbers.first)
                return
        run.seq, run.datagram = seq, datagram
        run.messages += 1
        self.singles += 1

    def _check_jump(self, run: _Run, wire_seq: i64) -> None:
        """Undo an accepted jump if a number shows that the old numbers go on."""
        numbers = self.numbers
        datagrams = int(self._by.current_number) - run.first_datagram
        if datagrams > FORGED:
            self._jump = None
        elif 0 < (wire_seq - run.before) & numbers.mask <= self.context.rule.reach:
            run.seq, run.datagram, run.datagrams = int(numbers.newest), -1, datagrams
            run.messages = self.units - run.units_before
            run.undone = True
            self.singles += run.messages
            self._jump, self._run = None, run
            numbers.newest = run.before

    def _repeat(self, seq: int, frame: i64, time_ns: i64) -> None:
        """Process a further copy: the network's if it copied the datagram, else the sender's."""
        copied = self._by.copied
        recorded = self.recorder is not None
        entry = self.store.outstanding.find(seq)
        # A network copy changes no message, so that its run is split only to list the copy.
        if (recorded or copied is False) and entry is None and self._open:
            self._explode(seq)
            entry = self.store.outstanding.find(seq)
        if self.recorder is not None:
            due = time_ns if entry is None else entry.last_ns + self.context.delay_ns
            if entry is not None:
                self.recorder.further_copy(
                    self.context, entry, seq, copied, None, frame, time_ns, due
                )
            else:
                self.recorder.late_copy(self.context, seq, copied, None, frame, time_ns, due)
        if copied is not False:
            if copied:
                self.repeats.duplicates += 1
            else:
                self.repeats.undecided += 1
            self.context.findings.add(FINDING[copied], frame, time_ns, self.direction)
            return
        self.repeats.retransmissions += 1
        self.context.findings.add("retransmission", frame, time_ns, self.direction)
        again = self._sent_again
        copies = again.pop(seq, 1) + 1
        again[seq] = copies
        self.store.max_copies = max(self.store.max_copies, copies)
        if len(again) > MAX_AGAIN:
            self.context.hit("MAX_AGAIN")
            del again[next(iter(again))]
        if entry is None:
            return
        before, number = entry.content, self._by.current_number
        # A datagram that carries a message twice has not timed out.
        if before != number:
            self._by.resent(before)
        entry.content = number
        entry.last_ns = entry.due_ns = time_ns
        self._list(entry)
        self._load(Carried.of(self.place, seq))

    def _list(self, entry: Unit) -> None:
        """List the datagram in the record of a message that it carries."""
        record, recorder = entry.record, self.recorder
        if record is not None and recorder is not None and recorder.events:
            carried = record.extra.setdefault("carried_by", [])
            if len(carried) < MAX_LISTED:
                carried.append(self._by.wire_of(entry.content))
            else:
                self.context.hit("MAX_LISTED")

    # -- ends --------------------------------------------------------------------------------------

    def delivered(self, item: Carried, frame: i64, time_ns: i64) -> None:
        """Process the acknowledgement of a datagram that carried these messages."""
        if not item.open:
            super().delivered(item, frame, time_ns)
            return
        item.open = False
        self._open -= 1
        self.ack_stats.acked += item.count
        sample = time_ns - item.sent_ns
        self.ack_stats.rtt.add_many(max(0, sample), item.count)
        if self.recorder is not None:
            self.recorder.acked_run(item, frame, time_ns)

    def settle(self, seq: i64, unit: Unit, frame: i64, time_ns: i64) -> None:
        """Process the first acknowledgement of one message."""
        copies = self._sent_again.get(seq, 1)
        self.ack_stats.acked += 1
        if copies > 1:
            self.ack_stats.add_resent(seq, unit, copies, time_ns)
        elif unit.again:
            self.ack_stats.rtt.ambiguous += 1
        else:
            self.ack_stats.rtt.add(max(0, time_ns - unit.first_ns))
        if self.recorder is not None:
            self.recorder.acked(unit, frame, time_ns, ambiguous=copies > 1 or unit.again)

    def settle_unacked(self, seq: int, unit: Unit, *, seen: bool) -> None:
        """Settle a message without acknowledgement."""
        del seq
        seen = seen and not self.context.findings.misses
        self.ack_stats.unacked += seen
        if self.recorder is not None:
            self.recorder.dropped(unit, "unacked" if seen else "unknown")

    def end_all(self, heard: Heard) -> None:
        """Settle the outstanding messages at the end."""
        for entry in self.store.outstanding.units():
            seen = self.peer_seen and heard.would_show(entry.last_ns)
            self.settle_unacked(entry.number, entry, seen=seen)
        self.store.outstanding.clear()
        for run in self._waiting():
            unacked = self.peer_seen and heard.would_show(run.sent_ns)
            unacked = unacked and not self.context.findings.misses
            self.ack_stats.unacked += run.count if unacked else 0
            if self.recorder is not None:
                self.recorder.dropped_run(run, "unacked" if unacked else "unknown")
        self._forget_runs()
        if self._seen.merged:
            times = self._seen.merged
            self.context.hit("MAX_RANGES", times)

    def _shed_oldest(self) -> None:
        """Settle the oldest messages as unknown, because there are too many."""
        for entry in self.store.outstanding.units()[: MAX_OUTSTANDING // 4]:
            self.context.hit("MAX_OUTSTANDING")
            self.store.outstanding.remove(entry)
            self.settle_unacked(entry.number, entry, seen=False)

    def restart(self) -> None:
        """Begin a new epoch with its carrier."""
        super().restart()
        self._seen.clear()
        self._highest = -1
        self._run = self._jump = None
        for run in self._waiting():
            if self.recorder is not None:
                self.recorder.dropped_run(run, "unknown")
        self._forget_runs()

    def _forget_runs(self) -> None:
        self._runs.clear()
        self._open = 0

    def _extra(self) -> dict[str, Any]:
        extra = super()._extra()
        if self.singles:
            extra["strays"] = self.singles
        if self._highest >= 0:
            extra["disordered"] = self.disordered
        return extra

