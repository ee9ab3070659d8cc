"""Prints the timeline: an overview of both directions, then every reliable unit and event."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

from netdissect.model.packets import Direction
from netdissect.model.reports import ConnectionEvent, ConnectionReport, Copy, UnitRecord
from netdissect.render.connections import connection_brief, timeout_text
from netdissect.render.console import UNLIMITED, Line, Screen, cells, fit, merged
from netdissect.render.diagnose import HANG
from netdissect.render.safe import safe
from netdissect.render.units import (
    COPIES,
    LEVELS,
    Clock,
    arrow_of,
    direction_style,
    duration,
    seconds,
)

Item: TypeAlias = UnitRecord | ConnectionEvent

_OVERVIEW_COLUMNS = 120
"""Maximum width of the overview."""
_LABEL_COLUMNS = 10
_TYPE_COLUMNS = 18
_TICK_COLUMNS = 12

_LEGEND_OF_TWO = "· sent  » retransmission  ○ duplicate  ✗ lost on the way, observed  ! event"
_SIGNS = (
    "#5 frame 5  reliable 5 unit 5 of the space reliable\n"
    "~ since the first copy: the acknowledgement may be for any copy"
)
"""`reliable` is replaced by the space of the first unit."""
LEGEND = (
    "· sent  » retransmission  ○ duplicate  ? unknown  ✗ never acked  ! event\n"
    f"x lost, not retransmitted by design  {_SIGNS}"
)
_LEGEND_OF_LEVELS = (
    f"· all sent once  {LEVELS} share retransmitted or never acked  ! event\n{_SIGNS}"
)
_DENSE = 6
"""Maximum number of copies in a cell for marks; with more, the overview shows shares instead."""
_SENT = frozenset("·»○")
"""Marks of copies; the other marks show the fate of a unit."""

_RANKS: dict[str, tuple[int, str]] = {
    " ": (0, ""),
    "·": (1, "dim"),
    "○": (2, "duplicate"),
    "?": (3, "note"),
    "»": (4, "resend"),
    "x": (3, "warn"),
    "✗": (5, "bad"),
}
"""Mark -> (rank, style); a cell shows the mark of the highest rank."""
_MARKS = tuple(_RANKS)

_OUTCOMES = {
    "acked": ("✓ acked", "good"),
    "unacked": ("✗ never acked", "bad"),
    "given_up": ("✗ given up", "bad"),
    "unknown": ("? unknown", "note"),
}


class Overview:
    """The overview of a connection: a lane of marks for each direction, and a lane of events.

    Takes units and events in any order, and does not keep them.
    """

    __slots__ = (
        "_columns", "_counts", "_first_ns", "_flags", "_lanes", "_marked", "_observed", "_space",
        "_span_ns",
    )  # fmt: skip

    def __init__(self, report: ConnectionReport, width: int) -> None:
        """Take the connection and the width of the screen."""
        self._first_ns = report.first_time_ns
        self._span_ns = max(1, report.last_time_ns - report.first_time_ns)
        self._columns = max(10, min(_OVERVIEW_COLUMNS, width - _LABEL_COLUMNS - 2))
        # As small as may be: tens of thousands of connections may have an overview at once.
        self._lanes = [bytearray(self._columns) for _ in Direction]
        """By direction, for each cell the index of its mark in `_MARKS`."""
        self._counts = [array("I", bytes(12 * self._columns)) for _ in Direction]
        """By direction, for each cell three numbers: copies, retransmissions, losses."""
        self._flags = bytearray(b" " * self._columns)
        self._marked = False
        self._space = ""
        self._observed = False

    def add(self, item: Item) -> None:
        """Mark a unit or an event."""
        if isinstance(item, UnitRecord):
            lane, counts = self._lanes[item.direction], self._counts[item.direction]
            for mark, time_ns in _marks(item):
                at = self._column(time_ns)
                if _RANKS[mark][0] > _RANKS[_MARKS[lane[at]]][0]:
                    lane[at] = _MARKS.index(mark)
                counts[3 * at] += mark in _SENT
                counts[3 * at + 1] += mark == "»"
                counts[3 * at + 2] += mark == "✗"
                self._marked = True
            self._space = self._space or item.space
            self._observed = self._observed or "capture" in item.extra
        elif item.event != "probe":
            self._flags[self._column(item.time_ns)] = ord("!")
            self._marked = True

    def _column(self, time_ns: int) -> int:
        at = (time_ns - self._first_ns) * self._columns // self._span_ns
        return min(self._columns - 1, max(0, at))

    def show(self, screen: Screen) -> None:
        """Print the lanes and the legend; nothing if there are no marks."""
        if not self._marked:
            return
        screen.line((" " * _LABEL_COLUMNS + ruler(self._span_ns, self._columns), "dim"))
        dense = any(max(counts[::3]) > _DENSE for counts in self._counts)
        for way, marks in zip(Direction, self._lanes, strict=True):
            lane = [_MARKS[index] for index in bytes(marks)]  # mypyc cannot walk a bytearray
            label = "client →" if way is Direction.C2S else "server ←"
            line = (
                _levels(self._counts[way], lane) if dense
                else merged((mark, _RANKS[mark][1]) for mark in lane)
            )
            screen.line((f"{label:<{_LABEL_COLUMNS}}", way.label), *line)
        screen.line((f"{'events':<{_LABEL_COLUMNS}}", "dim"), (self._flags.decode(), "note"))
        legend = _LEGEND_OF_TWO if self._observed else LEGEND
        if dense:
            lost = "lost on the way, observed" if self._observed else "never acked"
            legend = _LEGEND_OF_LEVELS.replace("never acked", lost)
        for text in legend.splitlines():
            screen.line((text.replace("reliable", self._space or "reliable"), "dim"), hang=2)


def _marks(unit: UnitRecord) -> Iterator[tuple[str, int]]:
    for copy in unit.copies:
        mark = COPIES[copy.kind][0] if copy.kind in COPIES else "·"
        yield "✗" if copy.fate == "lost" else mark, copy.time_ns
    if unit.failed and unit.copies[-1].fate is None:
        lost = "x" if unit.best_effort else "✗"
        yield ("?" if unit.outcome == "unknown" else lost), unit.copies[-1].time_ns


def _levels(counts: Sequence[int], lane: Sequence[str]) -> Line:
    """Return a lane whose cells show the share of copies that were retransmissions or lost."""
    line: Line = []
    for at, mark in enumerate(lane):
        sent, again, lost = counts[3 * at : 3 * at + 3]
        # One copy may count twice: as a retransmission and as lost.
        bad = min(sent, again + lost)
        if not bad:
            line.append(("·" if sent else mark, "dim"))
            continue
        level = LEVELS[min(len(LEVELS) - 1, (bad * len(LEVELS) - 1) // sent)]
        line.append((level, "bad" if lost else "resend"))
    return line


def ruler(span_ns: int, columns: int, start_ns: int = 0) -> str:
    """Return a ruler with labels at round seconds, at least 12 columns apart."""
    axis = [" "] * (columns + _TICK_COLUMNS)  # the last label may exceed the lane
    least_ns = span_ns * _TICK_COLUMNS / columns
    step_ns = 10 ** max(0, len(str(int(least_ns))) - 1)
    step_ns *= next(factor for factor in (1, 2, 5, 10) if factor * step_ns >= least_ns)
    digits = next((n for n in range(4) if step_ns % 10 ** (9 - n) == 0), 6)
    for tick in range(-(-start_ns // step_ns) * step_ns, start_ns + span_ns, step_ns):
        at = (tick - start_ns) * columns // span_ns
        label = f"|{tick / 1e9:.{digits}f} s"
        axis[at : at + len(label)] = label
    return "".join(axis).rstrip()


def show_items(
    screen: Screen, items: Iterable[Item], clock: Clock, *, several: bool = False
) -> int:
    """Print units and events below a heading, and return their number.

    Args:
        screen: where to print.
        items: units and events, in the order to print.
        clock: formats times.
        several: print the number of the connection on every line.

    """
    shown = 0
    for item in items:
        if not shown:
            screen.line((_header(several=several), "dim"), cut=True)
        who = f"c{item.connection}".ljust(4) + " " if several else ""
        if isinstance(item, UnitRecord):
            for row in _unit(item, clock, who, UNLIMITED if screen.wide else _TYPE_COLUMNS):
                _put(screen, row, len(who))
        else:
            screen.row(_event(item, clock, who), cut=True)
        shown += 1
    return shown


def _header(*, several: bool) -> str:
    who = "     " if several else ""
    return (
        f"{who}{'sent':>11}  {'':1} {'unit':<14} {'type':<18} {'copies':>6} {'took':>10}  outcome"
    )


_Row: TypeAlias = tuple[Line, Line]
"""One line of a unit, and details that are left out if they do not fit, the last one first."""


def _unit(unit: UnitRecord, clock: Clock, who: str, type_columns: int) -> list[_Row]:
    """Return the lines of a unit."""
    first = unit.copies[0] if unit.copies else None
    sent = clock.show(first.time_ns) if first else "not seen"
    text, style = _OUTCOMES.get(unit.outcome, (unit.outcome, ""))
    if unit.outcome == "unacked" and unit.best_effort:
        text, style = "x not acked, not retransmitted by design", "warn"
    again = len(unit.copies) > 1
    # Not by format specifications, which take ten times the instructions.
    line = [
        (who, "dim"),
        (sent.rjust(11) + "  ", "time"),
        (arrow_of(unit.direction) + " ", direction_style(unit.direction)),
        (f"{unit.space} {unit.seq}".ljust(14) + " ", ""),
        (fit(safe(unit.type or "-"), type_columns).ljust(_TYPE_COLUMNS) + " ", "name"),
        (str(len(unit.copies)).rjust(6) + " ", "resend" if again else "dim"),
        (_took(unit).rjust(10) + "  ", ""),
        (text, style),
    ]
    if unit.acked_frame is not None:
        line.append((f" {_letter(unit.extra)}#{unit.acked_frame}", "frame"))
    details: Line = []
    if first is not None and first.fate is not None:
        details.append((f"; {_fate(first)}", "bad" if first.fate == "lost" else "dim"))
    if unit.delivered_order is not None and unit.delivered_order != unit.seq and again:
        details.append((f"; delivered as number {unit.delivered_order}", "dim"))
    if "retransmitted_in" in unit.extra:
        sign, style, word = COPIES["retransmission"]
        details.append((f"; {sign} {word} in #{unit.extra['retransmitted_in']}", style))
    rows: list[_Row] = [(line, details)]
    for index, copy in enumerate(unit.copies[1:]):
        rows.append(_copy(unit, copy, unit.copies[index], who))
    if (
        unit.outcome in {"unacked", "unknown", "given_up"}
        and unit.next_resend_due_ns is not None
        and first
    ):
        due = seconds(unit.next_resend_due_ns - first.time_ns)
        text = f"{who}{'':>13}  next retransmission was due at +{due} s, not seen"
        rows.append(([(text, "dim")], []))
    return rows


def _took(unit: UnitRecord) -> str:
    if unit.rtt_ms is not None:
        return duration(unit.rtt_ms)
    if unit.acked_time_ns is not None and unit.copies:
        # The acknowledgement may be for any copy: show the time since the first one, with a mark.
        mark = "~" if unit.rtt_ambiguous else ""
        return mark + duration((unit.acked_time_ns - unit.copies[0].time_ns) / 1e6)
    return "-"


def _letter(known: Mapping[str, Any]) -> str:
    """Return the letter of the capture that an item's frames refer to, by its further keys; "" if
    there is only one.
    """
    capture = known.get("capture")
    return "" if capture is None else "AB"[capture]


def _fate(copy: Copy) -> str:
    """Return the fate of a copy, from a second capture."""
    if copy.fate == "delivered" and copy.delay_ms is not None:
        return f"delivered after {duration(copy.delay_ms)}"
    return {
        "lost": "lost on the way",
        "unseen": "delivered, not captured there",
        "outside": "the other capture was not running",
        "doubtful": "lost or not captured there",
    }.get(copy.fate or "", copy.fate or "")


def _copy(unit: UnitRecord, copy: Copy, before: Copy, who: str) -> _Row:
    first = unit.copies[0]
    sign, style, word = COPIES.get(copy.kind, ("", "", copy.kind))
    line = [
        (f"{who}{'':>13}", ""),
        (f"{sign} {word} ", style),
        (f"{_letter(unit.extra)}#{copy.frame}", "frame"),
        (f" +{duration((copy.time_ns - first.time_ns) / 1e6)}", ""),
    ]
    details = []
    if copy.due_ns is not None:
        late = (copy.time_ns - copy.due_ns) / 1e6
        word = "late" if late >= 0 else "early"
        due = duration((copy.due_ns - first.time_ns) / 1e6)
        details.append(f"timer due +{due}, {duration(abs(late))} {word}")
    if copy.attempts_left is not None:
        details.append(f"{copy.attempts_left} attempts left")
    gap = duration((copy.time_ns - before.time_ns) / 1e6)
    details.append(f"{gap} after {_letter(unit.extra)}#{before.frame}")
    if copy.fate is not None:
        details.insert(0, f"{_fate(copy)}, {copy.basis}")
    elif copy.basis != "observed":
        details.append(copy.basis)
    bad = copy.fate == "lost"
    more = [
        (("; " if place else "  ") + text, "bad" if bad and not place else "dim")
        for place, text in enumerate(details)
    ]
    return line, more


def _put(screen: Screen, row: _Row, indent: int) -> None:
    """Print a line without the details that do not fit; those that report something bad get a line
    of their own.
    """
    line, details = row
    kept = line + details
    least = len(line)
    while len(kept) > least and sum(cells(text) for text, _ in kept) > screen.width:
        kept.pop()
    screen.row(kept, cut=True)
    for text, style in details[len(kept) - least :]:
        if style == "bad":
            screen.line((" " * (indent + 13), ""), (text.lstrip("; "), style), cut=True)


def _event(event: ConnectionEvent, clock: Clock, who: str) -> Line:
    frame = f" {_letter(event.data)}#{event.frame}" if event.frame is not None else ""
    style = {"timeout": "bad", "reset": "bad", "resend_request": "resend", "gap": "warn"}.get(
        event.event, "note"
    )
    return [
        (who, "dim"),
        (clock.show(event.time_ns).rjust(11) + "  ", "time"),
        (arrow_of(event.direction) + " ", direction_style(event.direction)),
        (f"{event.event}: ", style),
        (safe(event.text, 600), ""),
        (frame, "frame"),
    ]


def show_timeouts(screen: Screen, report: ConnectionReport, clock: Clock) -> None:
    """Print what the idle timers of both sides did, one line each."""
    for verdict in report.timeouts:
        style = "bad" if verdict.fired else "dim"
        screen.line((f"{verdict.side} timer: ", style), (timeout_text(verdict, clock), ""))


def show_timeline(
    screen: Screen,
    reports: Sequence[ConnectionReport],
    items: Iterable[Item],
    shown: Iterable[Item],
    clock: Clock,
) -> None:
    """Print the overview of each connection, then the units and events of all of them.

    Args:
        screen: where to print.
        reports: the connections.
        items: units and events for the overviews.
        shown: units and events to print, iterated after `items`.
        clock: formats times.

    """
    if not reports:
        screen.text("No connection of a known protocol.")
        return
    lanes = {report.connection: Overview(report, screen.width) for report in reports}
    for item in items:
        lane = lanes.get(item.connection)
        if lane is not None:  # else it is beyond the bound of what is reported
            lane.add(item)
    for report in reports:
        screen.lines(connection_brief(screen, report, clock), hang=HANG)
        lanes[report.connection].show(screen)
        show_timeouts(screen, report, clock)
        screen.text()
    show_items(screen, shown, clock, several=len(reports) > 1)


_COLUMNS: tuple[tuple[int, str, int], ...] = (
    (1, "sent", 13), (2, "", 2), (3, "unit", 15), (4, "type", 19), (5, "copies", 7),
    (6, "took", 12),
)  # fmt: skip
"""(index of the segment in a unit's line, heading, width)."""
_OUTCOME, _OUTCOME_COLUMNS = 7, 16
"""Index of the outcome in that line, and its width."""
_DISPENSABLE = (4, 5, 1)
"""Columns to leave out on a narrow screen, in this order."""
_LEAST_TYPE = 8
"""Minimum width of the column of the type."""


def _fitting(width: int) -> tuple[tuple[int, str, int], ...]:
    """Return the columns that fit, with the type's column narrowed if necessary."""
    columns = _COLUMNS
    for place in _DISPENSABLE:
        over = sum(size for *_, size in columns) + _OUTCOME_COLUMNS - width
        if over <= 0:
            break
        if place == 4 and over <= _TYPE_COLUMNS - _LEAST_TYPE:  # noqa: PLR2004 - the type
            return tuple((at, name, size - over * (at == place)) for at, name, size in columns)
        columns = tuple(column for column in columns if column[0] != place)
    return columns


def unit_head(width: int, order: str) -> str:
    """Return the heading for `unit_line`, ending with `order`, the order of the units."""
    text = ""
    for place, name, size in _fitting(width):
        text += {1: f"{name:>11}  ", 5: f"{name:>6} ", 6: f"{name:>10}  "}.get(
            place, f"{name:<{size}}"
        )
    return text + order if len(text + order) <= width else text.rstrip()


def unit_line(unit: UnitRecord, clock: Clock, width: int) -> Line:
    """Return the line of a unit, without the columns that do not fit."""
    columns = _fitting(width)
    size = {place: size for place, _, size in columns}
    parts, _ = _unit(unit, clock, "", size.get(4, _TYPE_COLUMNS + 1) - 1)[0]
    line: Line = []
    for place, (text, style) in enumerate(parts[:_OUTCOME]):
        if place == 4:  # noqa: PLR2004 - the type
            text = f"{text.rstrip():<{size.get(4, 0)}}"  # noqa: PLW2901 - as wide as its column
        if place in size or not place:
            line.append((text, style))
    outcome, room = parts[_OUTCOME:], width - sum(cells(text) for text, _ in line)
    if sum(cells(text) for text, _ in outcome) > room:  # its sign alone
        outcome[0] = outcome[0][0][0], outcome[0][1]
    while len(outcome) > 1 and sum(cells(text) for text, _ in outcome) > room:
        outcome.pop()
    return [*line, *outcome]
