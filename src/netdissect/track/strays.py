"""Numbers far from all others: damaged, forged, behind a long gap, or after an unseen restart.

A far number is a *stray* at first: a unit of its own, which says nothing about the numbers between
it and others. Otherwise a few damaged or forged numbers would turn everything after them into
retransmissions. Strays that follow each other are a *run*, which is accepted as follows:

* A run ahead of all others is accepted with its second number, which may be lower than its first.
  If the old numbers go on soon after that, it was forged: the jump is undone, and its units are
  strays again. The run is then accepted only if it goes on beyond what can be forged.
* A run behind the newest number is a restart of the sender, which cannot be undone. It is accepted
  once it is longer than what can be forged, or at the end of the capture.
"""

from __future__ import annotations

from typing import Final

from netdissect.model.native import i64
from netdissect.model.policy import AckRule
from netdissect.track.ackstats import LATE_NS
from netdissect.track.context import SpaceContext
from netdissect.track.numbers import Numbers
from netdissect.track.recorder import SpaceRecorder
from netdissect.track.unit import Unit, Units
from netdissect.track.unitstore import UnitStore

MAX_STRAYS = 64
"""Strays remembered per space, for their acknowledgements."""
FORGED: Final = 3
"""Up to this many far numbers in a row may be damaged or forged."""


class Stray:
    """A number far from all before, and the unit that uses it."""

    __slots__ = ("acked", "frame", "last", "plain", "seq", "time_ns", "unit", "wire_seq")

    def __init__(
        self, wire_seq: int, seq: int, last: int, unit: Unit | None, frame: i64, time_ns: i64
    ) -> None:
        self.wire_seq = wire_seq
        self.seq = seq
        self.last = last
        """Newest number of the space when it came."""
        self.unit = unit
        """None if something that is not a unit uses the number, or if its unit is settled."""
        self.frame = frame
        self.time_ns = time_ns
        self.plain = False
        """True for a unit that is never acknowledged."""
        self.acked = False
        """Whether an acknowledgement has named it, or its unit is settled."""


class Jump:
    """An accepted jump ahead, and what is needed to undo it."""

    __slots__ = ("first", "last", "missing", "placed", "skipped")

    def __init__(self, numbers: Numbers, first: int, placed: int) -> None:
        self.first = first
        """First number after the jump."""
        self.last = int(numbers.newest)
        """Newest number before the jump."""
        self.placed = placed
        """`StrayedUnits.placed` before the jump."""
        self.missing = numbers.missing.copy()
        self.skipped = numbers.skipped
        """As in `Numbers` before the jump."""


class StrayedUnits(Units):
    """The calls that `Strays` makes to the space that it belongs to."""

    __slots__ = ()

    def placed(self) -> int:
        """Return how many numbers were used so far, including strays of units."""
        raise NotImplementedError

    def jump(self, last: int, seq: int, frame: i64, time_ns: i64) -> None:
        """Process a newer number `seq` after `last`."""
        raise NotImplementedError

    def jump_undone(self, last: int) -> None:
        """Forget the gaps after `last`."""

    def restart(self) -> None:
        """Begin a new epoch."""
        raise NotImplementedError


class Strays:
    """The strays of one space."""

    __slots__ = (
        "_by_wire", "_context", "_forgot_ns", "_numbers", "_run", "_undone", "count", "jump",
        "recorder", "store",
    )  # fmt: skip

    def __init__(
        self, context: SpaceContext, numbers: Numbers, store: UnitStore,
        recorder: SpaceRecorder | None,
    ) -> None:  # fmt: skip
        self._context = context
        self._numbers = numbers
        self.store = store
        self.recorder = recorder
        self.count = 0
        """How many there are that were not accepted."""
        self._run: list[Stray] = []
        """The newest run, while it is not accepted."""
        self._undone = False
        """Whether it was accepted before, and undone."""
        self._by_wire: dict[int, Stray] | None = None
        """Number on the wire -> stray; None before the first one."""
        self._forgot_ns = 0
        """When the newest one came that is not remembered."""
        self.jump: Jump | None = None
        """The newest jump, while it may still be undone."""

    @property
    def newest(self) -> Stray | None:
        """Return the newest stray, while it is not accepted."""
        return self._run[-1] if self._run else None

    def step(self, wire_seq: int) -> int | None:
        """Return by how many numbers this one follows the newest stray (negative: comes before it);
        None if they are far from each other.
        """
        if not self._run:
            return None
        before, numbers = self._run[-1], self._numbers
        if before.last != numbers.newest_or_zero() and not self._undone:
            return None  # the old numbers have gone on
        step = int((wire_seq - before.wire_seq) & numbers.mask)
        if step > numbers.half:
            step -= int(numbers.modulus)
        return step if abs(step) <= numbers.reach else None

    def is_ahead(self) -> bool:
        """Return whether the run is ahead of all other numbers."""
        return self._run[0].seq > self._numbers.newest_or_zero()

    def accepts(self, step: int) -> bool:
        """Return whether the run is accepted with a number that is `step` numbers ahead of it."""
        if self.is_ahead() and not self._undone:
            return step != 0  # the network may have changed the places of the first two
        return step > 0 and len(self._run) >= FORGED

    def add(self, stray: Stray, step: int | None) -> None:
        """Remember a stray, which follows the newest one by `step` numbers or begins a run."""
        if step is None or step <= 0:
            self._run, self._undone = [], False
        self._run.append(stray)
        self.count += 1
        by_wire = self._by_wire
        if by_wire is None:
            by_wire = self._by_wire = {}
        by_wire.pop(stray.wire_seq, None)
        by_wire[stray.wire_seq] = stray
        if len(by_wire) > MAX_STRAYS:
            self._context.hit("MAX_STRAYS")
            self._forgot_ns = by_wire.pop(next(iter(by_wire))).time_ns

    def accept(self, units: StrayedUnits, step: int = 0) -> None:
        """Accept the run: its numbers are like all others. The next one is `step` ahead of it."""
        run, numbers = self._run, self._numbers
        ahead, first = self.is_ahead(), run[0]
        if ahead and not self._undone:
            strayed = sum([stray.unit is not None for stray in run])
            self.jump = Jump(numbers, first.seq + min(step, 0), units.placed() - strayed)
        if not ahead:
            self._context.find_restart(first.frame, first.time_ns, seq=first.seq)
            units.restart()
            numbers.newest = numbers.begin(first.wire_seq)
        for stray in run:
            if self._by_wire is not None:
                self._by_wire.pop(stray.wire_seq, None)
            seq = stray.seq if ahead else int(numbers.extend(stray.wire_seq))
            units.jump(int(numbers.newest), seq, stray.frame, stray.time_ns)
            self._accept(stray, seq)
        self.count -= len(run)
        self._run, self._undone = [], False

    def _accept(self, stray: Stray, seq: int) -> None:
        """Count the unit of a stray as number `seq`."""
        unit = stray.unit
        if unit is None and not stray.acked:
            self._numbers.skipped += 1
            return
        self._numbers.isolated -= 1
        if unit is None:
            return
        if self.recorder is not None:
            self.recorder.adopt(unit, seq, stray.wire_seq)
        if stray.plain or stray.acked or self._context.rule.ack is AckRule.NONE:
            self.store.settle(seq, unit)
        else:
            self.store.outstanding.add(seq, unit)

    def check_jump(self, units: StrayedUnits, wire_seq: int) -> i64:
        """Undo the newest jump if a number shows that the old numbers go on; return the newest
        number then.
        """
        jump, numbers = self.jump, self._numbers
        if jump is None:
            return numbers.newest
        if units.placed() - jump.placed > FORGED:
            self.jump = None
        elif 0 < (wire_seq - jump.last) & numbers.mask <= numbers.reach:
            self._undo(units, jump)
        return numbers.newest

    def _undo(self, units: StrayedUnits, jump: Jump) -> None:
        numbers = self._numbers
        newest = int(numbers.newest)
        numbers.newest, numbers.missing = jump.last, jump.missing
        numbers.skipped = jump.skipped
        numbers.bursts = [burst for burst in numbers.bursts if burst.low <= jump.last]
        if self.recorder is not None:
            self.recorder.retract_gaps(jump.last)
        units.jump_undone(jump.last)
        self.reset()
        for seq in range(jump.first, newest + 1):
            unit = self.store.outstanding.pop(seq)
            if unit is not None or self._is_settled(seq):
                numbers.isolated += 1
                if self.recorder is not None:
                    self.recorder.isolate(seq)
                wire_seq = int(seq & numbers.mask)
                stray = Stray(wire_seq, seq, jump.last, unit, 0, 0)
                stray.acked = unit is None
                self.add(stray, 1 if self._run else None)
        self._undone = True

    def _is_settled(self, seq: int) -> bool:
        """Return whether a number is that of a settled unit."""
        return self.store.settled_row(seq) >= 0

    def finish(self, units: StrayedUnits) -> None:
        """Accept a run of several strays at the end of the capture."""
        # A step of 0 from itself: the old numbers have not gone on since.
        if len(self._run) > 1 and self.step(self._run[-1].wire_seq) == 0 and not self._undone:
            self.accept(units)

    def reset(self) -> None:
        """Forget the run and the jump: the sender restarts its numbers."""
        self._run, self._undone, self.jump = [], False, None

    def report(self, wire_seq: int, seq: int, frame: i64, time_ns: i64) -> None:
        """Report a stray."""
        context, numbers = self._context, self._numbers
        if 0 < numbers.first - seq <= numbers.reach:
            context.find(
                "number-before-first", frame, time_ns, context.direction,
                f"{wire_seq} is before {numbers.first & numbers.mask}, the first", seq=seq,
            )  # fmt: skip
        else:
            self.report_jump(seq, frame, time_ns)

    def report_jump(self, seq: int, frame: i64, time_ns: i64) -> None:
        """Report a stray that jumps ahead of the newest number, or back behind it."""
        context = self._context
        if context.findings.only_counts("sequence-jump", frame, time_ns, context.direction):
            return
        last = int(self._numbers.newest_or_zero())
        way = "ahead" if seq > last else "back"
        text = f"number jumps {way} by {abs(seq - last)}"
        context.find(
            "sequence-jump", frame, time_ns, context.direction,
            f"{text}; it stands alone unless later ones confirm it", seq=seq, before=last,
        )  # fmt: skip

    def may_have(self, wire_seq: i64, time_ns: i64) -> bool:
        """Return whether a number that comes now may be that of an earlier stray, which may still
        be answered.
        """
        if self._by_wire is None:
            return False
        return time_ns < self._forgot_ns + LATE_NS or self.find(wire_seq) is not None

    def forget(self, stray: Stray) -> None:
        """Forget a stray whose number has turned out to be like all others."""
        if self._by_wire is not None:
            self._by_wire.pop(stray.wire_seq, None)
        if stray in self._run:
            self._run = []
        self.count -= 1

    def find(self, wire_seq: int) -> Stray | None:
        """Return the stray with this number on the wire; None if there is none."""
        return None if self._by_wire is None else self._by_wire.get(wire_seq)
