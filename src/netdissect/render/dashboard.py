"""The dashboard of a running capture: connections, and the end of their timeline.

It draws at most four times a second, in the thread that parses, so nothing draws while the terminal
is given back. A program of its own restores the terminal even where this one is killed.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import IO, TYPE_CHECKING, Any, Self

from netdissect.model.live import Glimpse, LiveView
from netdissect.model.reports import ConnectionEvent, UnitRecord
from netdissect.render import guard
from netdissect.render.console import Line, Screen, fit, line_text, wants_color
from netdissect.render.safe import safe
from netdissect.render.tree import SEVERITY_LETTERS
from netdissect.render.units import Clock, arrow_of, dialect_text, direction_style, duration, octets
from netdissect.system.programs import start_script

if TYPE_CHECKING:
    from rich.console import Group

__all__ = ["REFRESH_S", "Dashboard", "compose"]

REFRESH_S = 0.25
"""Least time between two pictures."""
_FIXED_ROWS = 6
"""Lines that are neither connections nor timeline: head, titles, gaps and foot."""
_SPARE_ROWS = 3
"""Lines that the counts at the end and the shell's prompt take."""
_NAME_COLUMNS = 21
_TYPE_COLUMNS, _NARROW_TYPE_COLUMNS = 20, 12
_WIDE_FROM = 130
"""Columns from which every figure of a connection fits."""
_STATES = {"open": "good", "timed_out": "bad", "silent": "bad", "rejected": "bad", "closed": "dim"}
_LABELS = ("chat", "note", "warn", "error")

Look = Callable[[int, int], LiveView]
"""(connections wanted, lines of timeline wanted) -> the capture as it stands."""


class Dashboard:
    """Draws on the terminal's second screen; use as a context manager."""

    def __init__(
        self, *, stream: IO[str] | None = None, names: Mapping[str, str] | None = None
    ) -> None:
        """Take the terminal and the user's names of endpoints."""
        from rich.console import Console  # noqa: PLC0415 - nothing else of a capture needs Rich
        from rich.live import Live  # noqa: PLC0415

        stream = sys.stdout if stream is None else stream
        colour = wants_color("auto", stream)
        self._console = Console(
            file=stream, markup=False, emoji=False, highlight=False, no_color=not colour
        )
        self._live = Live(
            console=self._console,
            screen=True,
            auto_refresh=False,
            redirect_stdout=False,
            redirect_stderr=False,
        )
        self._screen = Screen(stream, color="never", names=names)
        self._clock = Clock()
        self._due = 0.0
        self._rates = Rates()
        self._guard: subprocess.Popen[bytes] | None = None
        self._kept: list[Line] = []

    def __enter__(self) -> Self:
        self._guard = start_script(  # neither Ctrl-C nor a closed terminal ends it first
            guard.__file__, stdin=subprocess.PIPE, stdout=self._console.file.fileno()
        )
        self._live.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            self._live.stop()
        finally:
            if self._guard is not None:
                self._guard.communicate(b".")
        for line in self._kept:
            self._screen.line(*line)

    def keep(self, look: Look) -> None:
        """Take the last picture, which is left on the first screen when this one is gone."""
        *lines, _ = self._picture(look, time.monotonic(), _SPARE_ROWS)
        while lines and not lines[-1]:
            lines.pop()
        self._kept = lines

    def refresh(self, look: Look) -> None:
        """Draw the capture as it stands, unless it was drawn just before."""
        now = time.monotonic()
        if now < self._due:
            return
        self._live.update(_group(self._picture(look, now)), refresh=True)
        # Counted from the end: a slow terminal gets fewer pictures, never a queue of them.
        self._due = time.monotonic() + REFRESH_S

    def _picture(self, look: Look, now: float, spare: int = 0) -> list[Line]:
        width, height = self._console.size
        height = max(_FIXED_ROWS, height - spare)
        connections = max(1, (height - _FIXED_ROWS) // 2)
        view = look(connections, max(0, height - _FIXED_ROWS))
        self._rates.update(view, now)
        return compose(view, width, height, self._rates, self._clock, self._screen)


class Rates:
    """Packets per second, of everything and of each connection shown, between two pictures."""

    def __init__(self) -> None:
        self.total = 0.0
        self.of: dict[int, float] = {}
        """Connection -> datagrams per second."""
        self._at: float | None = None
        self._packets = 0
        self._counts: dict[int, int] = {}

    def update(self, view: LiveView, now: float) -> None:
        """Take the next picture, drawn at `now` (seconds)."""
        counts = {one.connection: sum(one.datagrams) for one in view.connections}
        if self._at is not None and now > self._at:
            span = now - self._at
            self.total = (view.packets - self._packets) / span
            self.of = {
                number: (count - self._counts[number]) / span
                for number, count in counts.items()
                if number in self._counts
            }
        self._at, self._packets, self._counts = now, view.packets, counts


def compose(
    view: LiveView, width: int, height: int, rates: Rates, clock: Clock, screen: Screen
) -> list[Line]:
    """Return the lines of one picture, none longer than `width` and no more than `height`."""
    if clock.first_ns is None and view.now_ns:
        times = [one.first_time_ns for one in view.connections]
        clock.first_ns = min([*times, view.now_ns])
    narrow = width < _WIDE_FROM
    lines: list[Line] = [_head(view, rates), []]
    lines.append([(_NARROW_CONNECTIONS if narrow else _CONNECTIONS, "dim")])
    row = _narrow_connection if narrow else _connection
    lines += [row(one, rates, screen) for one in view.connections]
    if not view.connections:
        lines.append([("no connection of a known protocol yet", "dim")])
    types = _NARROW_TYPE_COLUMNS if narrow else _TYPE_COLUMNS
    lines += [[], [(_timeline_head(types), "dim")]]
    room = max(0, height - len(lines) - 1)
    lines += (
        [_moment(item, clock, types) for item in view.recent[len(view.recent) - room :]]
        if room
        else []
    )
    lines = lines[: height - 1]
    lines += [[]] * (height - 1 - len(lines))
    lines.append([("Ctrl-C ends the capture", "dim")])
    return [_cut(line, width) for line in lines]


def _head(view: LiveView, rates: Rates) -> Line:
    line: Line = [
        ("netdissect ", "title"),
        (f"{view.source}  ", "name"),
        (f"{_counted(view.packets, 'packet')}  {rates.total:,.0f}/s  ", ""),
        (f"{_counted(view.connections_begun, 'connection')}  ", ""),
        (_counted(view.other_datagrams, "other datagram"), "dim"),
    ]
    if view.lost:
        line.append((f"  {view.lost:,} not shown", "bad"))
    return line


_CONNECTIONS = (
    f"{'#':>4} {'dialect':<15} {'client':<{_NAME_COLUMNS}} {'server':<{_NAME_COLUMNS}} "
    f"{'state':<9} {'dgrams →':>9} {'←':>9} {'/s':>7} {'resent':>8} {'RTT':>8} {'octets':>8}  found"
)
_NARROW_CONNECTIONS = (
    f"{'#':>3} {'dialect':<13} {'client':<{_NAME_COLUMNS}} {'state':<9} {'→':>6} {'←':>6} "
    f"{'resent':>6} {'RTT':>8}"
)


def _timeline_head(type_columns: int) -> str:
    return (
        f"{'time':>12}  {'#':<4}  {'unit':<16} {'type':<{type_columns}} {'copies':>6} {'took':>10}"
        "  outcome"
    )


def _counted(number: int, what: str) -> str:
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def _narrow_connection(one: Glimpse, rates: Rates, screen: Screen) -> Line:
    """Return what fits 80 columns: who the client is tells connections of one server apart."""
    del rates
    client = fit(safe(screen.name(one.client)), _NAME_COLUMNS)
    rtt = "-" if one.rtt_ms is None else duration(one.rtt_ms)
    return [
        (f"{one.connection:>3} ", "frame"),
        (f"{fit(dialect_text(one.dialects), 13):<13} ", "protocol"),
        (f"{client:<{_NAME_COLUMNS}} ", "c2s"),
        (f"{one.state:<9} ", _STATES.get(one.state, "note")),
        (f"{one.datagrams[0]:>6} {one.datagrams[1]:>6} ", ""),
        (f"{one.retransmissions:>6} ", "resend" if one.retransmissions else "dim"),
        (f"{rtt:>8}", ""),
    ]


def _connection(one: Glimpse, rates: Rates, screen: Screen) -> Line:
    client, server = (
        fit(safe(screen.name(end)), _NAME_COLUMNS) for end in (one.client, one.server)
    )
    rtt = "-" if one.rtt_ms is None else duration(one.rtt_ms)
    return [
        (f"{one.connection:>4} ", "frame"),
        (f"{fit(dialect_text(one.dialects), 15):<15} ", "protocol"),
        (f"{client:<{_NAME_COLUMNS}} ", "c2s"),
        (f"{server:<{_NAME_COLUMNS}} ", "s2c"),
        (f"{one.state:<9} ", _STATES.get(one.state, "note")),
        (f"{one.datagrams[0]:>9,} {one.datagrams[1]:>9,} ", ""),
        (f"{rates.of.get(one.connection, 0.0):>7,.0f} ", ""),
        (f"{one.retransmissions:>8,} ", "resend" if one.retransmissions else "dim"),
        (f"{rtt:>8} {octets(sum(one.octets)):>8} ", ""),
        *_found(one),
    ]


def _found(one: Glimpse) -> Line:
    return [
        (f" {count}{SEVERITY_LETTERS[label]}", label)
        for label, count in reversed(list(zip(_LABELS, one.anomalies, strict=True)))
        if count
    ]


def _moment(item: UnitRecord | ConnectionEvent, clock: Clock, type_columns: int) -> Line:
    """Return one line of the timeline."""
    way = item.direction
    at = item.copies[0].time_ns if isinstance(item, UnitRecord) else item.time_ns
    line: Line = [
        (f"{clock.show(at):>12}  ", "time"),
        (f"{item.connection:<4}", "frame"),
        (f"{arrow_of(way)} ", direction_style(way)),
    ]
    if isinstance(item, ConnectionEvent):
        return [*line, (f"{item.event}: ", "note"), (item.text, "")]
    again = len(item.copies) > 1
    took = "-" if item.rtt_ms is None else duration(item.rtt_ms)
    if item.outcome == "acked":
        outcome, style = "✓ acked", "good"
    elif item.settled_ns is None:
        outcome, style = "… waits", "dim"
    else:
        outcome, style = "✗ not acked", "bad"
    return [
        *line,
        (f"{fit(f'{item.space} {item.seq}', 16):<16} ", ""),
        (f"{fit(safe(item.type or '-'), type_columns):<{type_columns}} ", "name"),
        (f"{len(item.copies):>6} {took:>10}  ", "resend" if again else ""),
        (outcome, style),
    ]


def _cut(line: Line, width: int) -> Line:
    kept: Line = []
    left = width
    for text, style in line:
        shown = fit(safe(text), left)
        kept.append((shown, style))
        left -= len(shown)
        if left <= 0:
            break
    return kept


def _group(lines: list[Line]) -> Group:
    from rich.console import Group  # noqa: PLC0415

    texts: list[Any] = [line_text(line) for line in lines]
    return Group(*texts)
