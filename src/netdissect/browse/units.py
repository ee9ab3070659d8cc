"""The units of a connection with its lanes, and the ladder of one unit."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence

from netdissect.browse.connections import time_at
from netdissect.browse.packets import Packets, mark_of
from netdissect.browse.pane import Pane
from netdissect.browse.window import TimeWindow
from netdissect.model.reports import UnitRecord
from netdissect.render.console import Line, fit
from netdissect.render.timeline import unit_head, unit_line
from netdissect.render.units import COPIES, Clock, direction_style, duration

_MAX_LADDER = 60
_BESIDE_LADDER = 47
"""Columns for the time, the frame and the delay of a copy."""
_BESIDE_WHOLE = 24
"""Columns for the time and the frame of a datagram."""
MAX_WHOLE = 200
"""Datagrams in the ladder of all."""
_ON_TIME_MS = 1.0
"""A copy that differs from its due time by less than this is called "on time"."""


class Units(Pane):
    """The slowest units of a connection, below its lanes."""

    def __init__(self, clock: Clock) -> None:
        super().__init__()
        self.units: list[UnitRecord] = []
        self.lanes: Sequence[Line] = ()
        self.by_time = self.reverse = False
        self.everything = False
        """Whether the ladder has all datagrams of the time in which the unit waited."""
        self.window = TimeWindow()
        self._clock = clock

    def __len__(self) -> int:
        return len(self.units)

    def show(self, units: Sequence[UnitRecord]) -> None:
        """Show these units, with the cursor on the first one."""
        self.units = sorted(units, key=_sent_ns) if self.by_time else list(units)
        if self.reverse:
            self.units.reverse()
        self.cursor = self.top = 0

    def turn(self, *, reverse: bool) -> None:
        """Use the other order, or reverse it."""
        if reverse:
            self.reverse = not self.reverse
        else:
            self.by_time = not self.by_time
        self.units = []  # they are ordered when they are shown again

    def unit(self) -> UnitRecord | None:
        """Return the unit under the cursor."""
        return self.units[self.cursor] if self.cursor < len(self.units) else None

    def find_frame(self, frame: int) -> None:
        """Put the cursor on the unit with a copy in a frame, if it is listed."""
        for place, unit in enumerate(self.units):
            if any(copy.frame == frame for copy in unit.copies):
                self.cursor = place

    def cursor_ns(self) -> int | None:
        """Return when the unit under the cursor was first sent."""
        unit = self.unit()
        return None if unit is None else _sent_ns(unit)

    def step(self, by: int) -> None:
        """Put the cursor on the unit that was sent next (`by` = 1), or before (-1)."""
        here = self.cursor_ns()
        if here is None:
            return
        order = sorted(range(len(self.units)), key=lambda place: _sent_ns(self.units[place]))
        at = order.index(self.cursor) + by
        self.cursor = order[max(0, min(at, len(order) - 1))]

    def set_span(self, whole: tuple[int, int]) -> None:
        """Take the first and last moment of the connection; undo the zoom if it is another one."""
        if whole[0] != self.window.whole[0]:
            self.window = TimeWindow()
        self.window.whole = whole

    def inside(self, units: list[UnitRecord]) -> list[UnitRecord]:
        """Return the units that were first sent within the span shown."""
        if self.window.part is None:
            return units
        start, end = self.window.part
        return [unit for unit in units if start <= _sent_ns(unit) <= end]

    def zoom(self, by: int) -> bool:
        """Zoom around the unit under the cursor, as `TimeWindow.zoom` does."""
        return self.window.zoom(by, self.cursor_ns())

    def select_span(self, one_ns: int, other_ns: int) -> str:
        """Show the time between two moments; return a message about it."""
        if not self.window.select(one_ns, other_ns):
            return "no closer than this"
        return f"{self.window.label(self.window.whole[0])}; 0 shows all"

    def time_at(self, column: int, width: int) -> int:
        """Return the time at a column of the lanes."""
        return time_at(column, width, self.window.part or self.window.whole)

    def head(self, width: int) -> Sequence[Line]:
        """Return the lanes and the heading."""
        order = f"{'oldest' if self.by_time else 'slowest'} {'last' if self.reverse else 'first'}"
        return [*self.lanes, [(f" {unit_head(width, order)}", "dim")]]

    def line(self, number: int, width: int) -> Line:
        """Return one unit."""
        return unit_line(self.units[number], self._clock, width)


def _sent_ns(unit: UnitRecord) -> int:
    return unit.copies[0].time_ns


def ladder(unit: UnitRecord, clock: Clock, width: int) -> list[Line]:
    """Return all copies of a unit and its acknowledgement as arrows between two lanes."""
    inner = max(16, min(_MAX_LADDER, width - _BESIDE_LADDER))
    forward = not unit.direction
    name = fit(f" {unit.space} {unit.wire_seq} ", inner - 8)
    lines: list[Line] = []
    previous_ns = None
    for copy in unit.copies:
        sign, style, _ = COPIES.get(copy.kind, ("─", direction_style(unit.direction), ""))
        since = "" if previous_ns is None else f"  +{duration((copy.time_ns - previous_ns) / 1e6)}"
        previous_ns = copy.time_ns
        lines.append([
            (f"{clock.show(copy.time_ns):>12} ", "time"),
            (_arrow(name, sign, inner, forward=forward), style),
            (f" #{copy.frame}", "frame"),
            (f"{since}{_punctuality(copy.time_ns, copy.due_ns)}", "dim"),
        ])  # fmt: skip
    if unit.acked_frame is not None and unit.acked_time_ns is not None and unit.copies:
        took = (unit.acked_time_ns - unit.copies[0].time_ns) / 1e6
        mark = "~" if unit.rtt_ambiguous else ""
        # Above the copies that were sent before the acknowledgement reached their sender.
        place = sum(copy.time_ns <= unit.acked_time_ns for copy in unit.copies)
        lines.insert(place, [
            (f"{clock.show(unit.acked_time_ns):>12} ", "time"),
            (_arrow(" acknowledged ", "─", inner, forward=not forward),
             direction_style(1 - unit.direction)),
            (f" #{unit.acked_frame}", "frame"), (f"  after {mark}{duration(took)}", "good"),
        ])  # fmt: skip
    else:
        lost = unit.failed and unit.outcome != "unknown"
        said = "✗ never acknowledged" if lost else "? no acknowledgement in this capture"
        lines.append([(f"{'':>13}{said}", "bad" if lost else "dim")])
    return lines


def whole_ladder(
    unit: UnitRecord, packets: Packets, rows: Sequence[int], clock: Clock, width: int
) -> list[Line]:
    """Return all datagrams from the first copy of a unit to its acknowledgement, or to its last
    copy, as arrows between two lanes.

    Args:
        unit: the unit.
        packets: makes the text of a datagram.
        rows: those of its connection, in order.
        clock: shows times.
        width: columns of the screen.

    """
    index, inner = packets.index, max(16, min(2 * _MAX_LADDER, width - _BESIDE_WHOLE))
    ends = [copy.time_ns for copy in unit.copies]
    if unit.acked_time_ns is not None:
        ends.append(unit.acked_time_ns)
    when = index.times.__getitem__
    start = bisect_left(rows, min(ends), key=when)
    end = bisect_right(rows, max(ends), key=when)
    lines: list[Line] = []
    for row in rows[start : min(end, start + MAX_WHOLE)]:
        sign, style = mark_of(index.marks[row])
        way = index.party(row).direction or 0
        name = fit(f" {packets.summary(row)} ", inner - 8)
        shaft = sign if sign.strip() else "─"
        lines.append([
            (f"{clock.show(index.times[row]):>12} ", "time"),
            (_arrow(name, shaft, inner, forward=not way), style or direction_style(way)),
            (f" #{index.frames[row]}", "frame"),
        ])  # fmt: skip
    if end - start > MAX_WHOLE:
        lines.append([(f"{'':>13}{end - start - MAX_WHOLE:,} more; 2 lists them", "dim")])
    return lines


def _punctuality(time_ns: int, due_ns: int | None) -> str:
    """Return how a copy relates to the resend timer of its sender."""
    if due_ns is None:
        return ""
    late_ms = (time_ns - due_ns) / 1e6
    if abs(late_ms) < _ON_TIME_MS:
        return "  on time"
    return f"  {duration(abs(late_ms))} {'late' if late_ms >= 0 else 'early'}"


def _arrow(name: str, sign: str, inner: int, *, forward: bool) -> str:
    shaft = f"──{sign * 2}{name:─^{inner - 7}}"
    return f"│{shaft}▶│" if forward else f"│◀{shaft}│"
