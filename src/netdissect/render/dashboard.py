"""The dashboard of a running capture: connections, and the end of their timeline.

It draws at most four times a second, in the thread that parses, so that nothing draws while the
terminal is restored. A separate program restores the terminal if this one is killed.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Self

from netdissect.model.annotations import Severity
from netdissect.model.closing import Closing
from netdissect.model.live import ConnectionSnapshot, LiveView, ViewRequest
from netdissect.model.reports import ConnectionEvent, UnitRecord
from netdissect.render import guard
from netdissect.render.console import (
    Line,
    Screen,
    cells,
    fit,
    fit_clauses,
    fit_end,
    line_text,
    narrowed,
    wants_color,
    wrapped,
)
from netdissect.render.dashboard_keys import Controls, Wanted, press
from netdissect.render.diagnose import HANG, brief_lines, loss_line, loss_text, style_of
from netdissect.render.safe import safe
from netdissect.render.tree import SEVERITY_LETTERS
from netdissect.render.units import (
    STATE_STYLES,
    Clock,
    arrow_of,
    counted,
    dialect_text,
    direction_style,
    duration,
    octets,
)
from netdissect.system.keyboard import Keyboard
from netdissect.system.programs import start_script

REFRESH_S = 0.25
"""Minimum time between two frames, in seconds."""
_FIXED_ROWS = 6
"""Lines that show neither connections nor timeline: header, headings, gaps and footer."""
_SPARE_ROWS = 3
"""Lines left free at the end for the final counts and the shell's prompt."""
_NAME_COLUMNS, _NARROW_NAME_COLUMNS = 21, 12
_TYPE_COLUMNS, _NARROW_TYPE_COLUMNS = 20, 12
_WIDE_FROM = 130
"""Minimum screen width for the full width of types in the timeline."""
_VERDICT_COLUMNS = 22
"""Minimum width of a verdict, which gets the rest of the line."""
_OUTCOME_COLUMNS = len("✗ not acked")
_KEYS = ("s sort", "↑↓ select", "Enter detail", "/ filter", "p pause", "f find")
"""Key hints, the least important last; the hint on quitting is always shown."""
_LABELS = tuple(severity.label for severity in Severity)

Look = Callable[[ViewRequest], LiveView]
"""Returns the current state of the capture, as far as the wish asks for it."""


class Dashboard(Closing):
    """Draws on the terminal's second screen; use as a context manager."""

    def __init__(
        self, controls: Controls | None = None, *, names: Mapping[str, str] | None = None,
        expression: str = "",
    ) -> None:  # fmt: skip
        """Take what keys do, the user's names of endpoints, and the filter that is applied."""
        from rich.console import Console  # noqa: PLC0415 - nothing else of a capture needs Rich
        from rich.live import Live  # noqa: PLC0415

        stream = sys.stdout
        colour = wants_color("auto", stream)
        self._console = Console(
            file=stream, markup=False, emoji=False, highlight=False, no_color=not colour
        )
        self._live = Live(
            console=self._console, screen=True, auto_refresh=False, redirect_stdout=False,
            redirect_stderr=False,
        )  # fmt: skip
        self._screen = Screen(stream, color="never", names=names)
        self._clock = Clock()
        self._due = 0.0
        self._rates = Rates()
        self._guard: subprocess.Popen[bytes] | None = None
        self._kept: list[Line] = []
        self._keyboard = Keyboard()
        self._controls = controls or Controls()
        self._wanted = Wanted(expression=expression)
        self._view: LiveView | None = None
        """The view on screen."""
        self._listed: list[int] = []
        """Numbers of the connections in the list on screen."""
        self._request: ViewRequest | None = None
        """The wish that `_view` answers: while paused, the view is only updated if it changes."""

    def __enter__(self) -> Self:
        with suppress(OSError):  # the user nobody cannot run a Python below /root
            self._guard = start_script(  # in a session of its own, so that it outlives this program
                guard.__file__, stdin=subprocess.PIPE, stdout=self._console.file.fileno()
            )
        self._keyboard.open()
        self._live.start()
        return self

    def close(self) -> None:
        """Restore the terminal and print the last frame on it."""
        try:
            self._live.stop()
        finally:
            # The guard is released last.
            if self._guard is not None:
                self._guard.communicate(b".")
            self._keyboard.close()
        self._screen.lines(self._kept)

    def keep(self, look: Look) -> None:
        """Keep the last frame, which `close` prints on the normal screen."""
        self._wanted = replace(self._wanted, paused=False, typing="")
        # Without the footer, as keys no longer work.
        *lines, _ = self._picture(look, time.monotonic(), _SPARE_ROWS)
        while lines and not lines[-1]:
            lines.pop()
        self._kept = lines

    def refresh(self, look: Look) -> None:
        """Process keys, and draw the capture if a key was pressed or a frame is due."""
        keys = self._keyboard.pressed()
        for key in keys:
            self._press(key)
        if self._wanted.quits:
            self._controls.end()
        now = time.monotonic()
        if now < self._due and not keys:
            return
        from rich.console import Group  # noqa: PLC0415 - as in __init__

        self._live.update(Group(*map(line_text, self._picture(look, now))), refresh=True)
        # Measured from the end of drawing, so that a slow terminal gets fewer frames.
        self._due = time.monotonic() + REFRESH_S

    def _press(self, key: str) -> None:
        before = self._wanted
        wanted = self._wanted = press(before, key, self._listed)
        if wanted.expression == before.expression:
            return
        self._request = None  # also while paused, what is shown is filtered
        fault = self._controls.choose(wanted.expression)
        if fault:
            self._wanted = replace(before, fault=fault)

    def _picture(self, look: Look, now: float, spare: int = 0) -> list[Line]:
        width, height = self._console.size
        height = max(_FIXED_ROWS, height - spare)
        wanted = self._wanted
        request = ViewRequest(
            max(1, (height - _FIXED_ROWS) // 2), max(0, height - _FIXED_ROWS), wanted.order,
            wanted.text, wanted.selected if wanted.detail else None,
        )  # fmt: skip
        changed = request != self._request and not wanted.typing
        if self._view is None or not wanted.paused or changed:
            self._view, self._request = look(request), request
            if request.only is None:
                self._listed = [one.connection for one in self._view.connections]
            self._rates.update(self._view, now)
        keys = self._keyboard.there
        return compose(
            self._view, (width, height), self._rates, self._clock, self._screen,
            wanted if keys else None,
        )  # fmt: skip


class Rates:
    """Packets per second between two frames, in total and of each connection shown."""

    def __init__(self) -> None:
        self.total = 0.0
        self.of: dict[int, float] = {}
        """Connection -> datagrams per second."""
        self._at: float | None = None
        self._packets = 0
        self._counts: dict[int, int] = {}

    def update(self, view: LiveView, now: float) -> None:
        """Take the view of the next frame, drawn at `now` (seconds)."""
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
    view: LiveView,
    size: tuple[int, int],
    rates: Rates,
    clock: Clock,
    screen: Screen,
    wanted: Wanted | None = None,
) -> list[Line]:
    """Return the lines of one frame, which fit the screen.

    Args:
        view: the current state of the capture.
        size: columns and lines of the screen.
        rates: packets per second.
        clock: formats times.
        screen: knows the user's names.
        wanted: the state controlled by keys; None if there is no keyboard.

    """
    width, height = size
    if clock.first_ns is None and view.now_ns:
        times = [one.first_time_ns for one in view.connections]
        clock.first_ns = min([*times, view.now_ns])
    state = wanted or Wanted()
    lines: list[Line] = [_head(view, rates, width), []]
    one = next((one for one in view.connections if one.connection == state.selected), None)
    if state.detail and one is not None:
        lines += _table([one], width, rates, screen, state)
        lines += _detail(one, width)
    elif state.detail:
        lines.append([(f"Connection {state.selected} has ended; Esc goes back.", "dim")])
    else:
        lines += _table(view.connections, width, rates, screen, state)
        if not view.connections:
            lines.append([(_nothing(view, state), "dim")])
    lines += [[], [(_timeline_head(width), "dim")]]
    room = max(0, height - len(lines) - 1)
    if room:
        lines += [_moment(item, clock, width) for item in view.recent[-room:]]
    lines = lines[: height - 1]
    lines += [[]] * (height - 1 - len(lines))
    lines.append(_foot(view, wanted, width))
    return [narrowed(line, width) for line in lines]


def _foot(view: LiveView, wanted: Wanted | None, width: int) -> Line:
    if wanted is None:
        return [("Ctrl-C ends the capture", "dim")]
    if wanted.typing:
        name = "find" if wanted.typing == "f" else "filter"
        line: Line = [(f"{name} ", "dim"), (f"{wanted.typed}▏", "title")]
        return [*line, (f"  {wanted.fault}", "bad") if wanted.fault
                else ("  Enter accept, Esc cancel", "dim")]  # fmt: skip
    facts: list[tuple[int, str, str]] = []
    if wanted.paused:
        facts.append((0, "paused, p continues", "bad"))
    if wanted.text:
        facts.append((1, f"only {wanted.text}", "title"))
    if wanted.expression:
        facts.append((1, f"filter {wanted.expression}", "title"))
    facts.append((2, f"by {wanted.order}", ""))
    if view.hidden and not wanted.detail:
        facts.append((3, f"{view.hidden:,} more", ""))
    facts += [
        (rank, key, "dim") for rank, key in enumerate(_KEYS, 4)
        if not (wanted.paused and key == "p pause")
    ]  # fmt: skip
    return _fitted([*facts, (0, "q quit", "dim")], width)


def _head(view: LiveView, rates: Rates, width: int) -> Line:
    facts = [
        (5, "netdissect", "title"),
        (3, view.source, "name"),
        (0, counted(view.packets, "packet"), ""),
        (2, f"{rates.total:,.0f}/s", ""),
        (1, counted(view.connections_begun, "connection"), ""),
        (4, counted(view.other_datagrams, "other datagram"), "dim"),
    ]
    if view.lost:
        facts.append((0, f"{view.lost:,} not shown", "bad"))
    return _fitted(facts, width)


def _fitted(facts: list[tuple[int, str, str]], width: int) -> Line:
    """Return the facts (rank, text, style) that fit; the highest rank is dropped first, 0 never."""
    while (most := max(rank for rank, _, _ in facts)) and (
        sum(cells(safe(text)) + 2 for _, text, _ in facts) - 2 > width
    ):
        facts = [fact for fact in facts if fact[0] != most]
    return [("  " * bool(at) + text, style) for at, (_, text, style) in enumerate(facts)]


@dataclass(frozen=True, slots=True)
class _Column:
    """A column of the table of connections."""

    title: str
    width: int
    """Width; negative if aligned to the left."""
    rank: int
    """On a narrow screen, columns of the highest rank are dropped first."""
    cell: Callable[[ConnectionSnapshot, Rates, Screen], tuple[str, str]]

    def text(self, content: str) -> str:
        """Return the padded content, with a space after it."""
        if self.width < 0:
            return f"{fit(content, -self.width):<{-self.width}} "
        return f"{content:>{self.width}} "


def _loss(one: ConnectionSnapshot, way: int) -> tuple[str, str]:
    if one.diagnosis is None:
        return "?", "dim"
    part = one.diagnosis.loss[way]
    return loss_text(part), "bad" if part.share and part.basis != "bound" else ""


def _late(one: ConnectionSnapshot) -> tuple[str, str]:
    worst = None if one.diagnosis is None else one.diagnosis.lag.late_ms
    return ("-", "dim") if worst is None else (duration(worst), "")


def _alerts(one: ConnectionSnapshot) -> tuple[str, str]:
    _chat, _note, warns, errors = one.anomalies
    text = " ".join(f"{_short(count)}{SEVERITY_LETTERS[name]}"
                    for name, count in (("error", errors), ("warn", warns)) if count)  # fmt: skip
    return text, "bad" if errors else "warn"


def _short(count: int) -> str:
    """Return a count in at most four columns: `999`, `1.7k`, `12k`, `3M`."""
    if count < 10_000:  # noqa: PLR2004
        return str(count) if count < 1000 else f"{count // 100 / 10}k"  # noqa: PLR2004
    return f"{count // 1000}k" if count < 1_000_000 else f"{count // 1_000_000}M"  # noqa: PLR2004


_CLIENT = _Column("client", -_NAME_COLUMNS, 4, lambda one, _r, s: (
    fit_end(safe(s.name(one.client)), _NAME_COLUMNS), "c2s"))  # fmt: skip
_NARROW_CLIENT = _Column("client", -_NARROW_NAME_COLUMNS, 0, lambda one, _r, s: (
    fit_end(safe(s.name(one.client)), _NARROW_NAME_COLUMNS), "c2s"))  # fmt: skip
_COLUMNS = (
    _Column("#", 4, 0, lambda one, _r, _s: (str(one.connection), "frame")),
    _Column("dialect", -15, 6, lambda one, _r, _s: (dialect_text(one.dialects), "protocol")),
    _CLIENT,
    _Column("server", -_NAME_COLUMNS, 11, lambda one, _r, s: (
        fit_end(safe(s.name(one.server)), _NAME_COLUMNS), "s2c")),
    _Column("state", -9, 5, lambda one, _r, _s: (one.state, STATE_STYLES.get(one.state, "note"))),
    _Column("dgrams →", 9, 10, lambda one, _r, _s: (f"{one.datagrams[0]:,}", "")),
    _Column("←", 9, 10, lambda one, _r, _s: (f"{one.datagrams[1]:,}", "")),
    _Column("/s", 6, 9, lambda one, r, _s: (f"{r.of.get(one.connection, 0.0):,.0f}", "")),
    _Column("retrans", 7, 8, lambda one, _r, _s: (
        f"{one.retransmissions:,}", "resend" if one.retransmissions else "dim")),
    _Column("loss →", 7, 1, lambda one, _r, _s: _loss(one, 0)),
    _Column("←", 7, 1, lambda one, _r, _s: _loss(one, 1)),
    _Column("late", 8, 3, lambda one, _r, _s: _late(one)),
    _Column("RTT", 8, 7, lambda one, _r, _s: (
        "-" if one.rtt_ms is None else duration(one.rtt_ms), "")),
    _Column("bytes", 8, 11, lambda one, _r, _s: (octets(sum(one.octets)), "")),
    _Column("alerts", 11, 2, lambda one, _r, _s: _alerts(one)),
)  # fmt: skip


def _chosen_columns(width: int) -> list[_Column]:
    """Return the columns that fit beside the verdict."""
    columns = list(_COLUMNS)
    while rank := max(column.rank for column in columns):
        if sum(abs(column.width) + 1 for column in columns) + _VERDICT_COLUMNS <= width:
            break
        if rank == _CLIENT.rank:
            columns[columns.index(_CLIENT)] = _NARROW_CLIENT
        columns = [column for column in columns if column.rank != rank]
    return columns


def _table(
    connections: list[ConnectionSnapshot], width: int, rates: Rates, screen: Screen, wanted: Wanted
) -> list[Line]:
    columns = _chosen_columns(width)
    room = width - sum(abs(column.width) + 1 for column in columns)
    verdict = room >= _VERDICT_COLUMNS
    head = "".join(column.text(column.title) for column in columns)
    lines: list[Line] = [[(head + ("verdict" if verdict else ""), "dim")]]
    for one in connections:
        found = ((column, *column.cell(one, rates, screen)) for column in columns)
        line = [(column.text(text), style) for column, text, style in found]
        if verdict:
            text, style = _verdict(one)
            line.append((fit_clauses(_losing(one) or text, room), style))
        if one.connection == wanted.selected:
            line = [(text, "mark") for text, _style in line]
            if line[0][0].startswith(" "):  # also where there is no colour
                line[0] = f"▌{line[0][0][1:]}", "mark"
        lines.append(line)
    return lines


def _nothing(view: LiveView, wanted: Wanted) -> str:
    """Return why no connection is shown."""
    if wanted.text:
        return f"no connection matches {wanted.text}"
    if wanted.expression and view.connections_begun:
        return "no datagram has matched the filter yet"
    return "no connection of a known protocol yet"


def _verdict(one: ConnectionSnapshot) -> tuple[str, str]:
    """Return the verdict and its style; for an open connection only what is wrong with it."""
    found = one.diagnosis
    if found is None:
        return "", ""
    if found.ending.how in {"open", "unknown"}:
        return (found.cause.text if found.cause.what != "none" else "open"), style_of(found)
    return found.verdict, style_of(found)


def _losing(one: ConnectionSnapshot) -> str:
    """Return a short text if an open connection loses many datagrams, otherwise an empty one."""
    found = one.diagnosis
    if found is None or found.cause.what != "loss" or found.ending.how not in {"open", "unknown"}:
        return ""
    shares = (
        f"{loss_text(part)} {arrow_of(way)}" for way, part in enumerate(found.loss) if part.lost
    )
    return f"losing {', '.join(shares)}"


def _detail(one: ConnectionSnapshot, width: int) -> list[Line]:
    """Return the details of the selected connection."""
    lines: list[Line] = [[]]
    found = one.diagnosis
    if found is not None:
        ended = found.ending.how not in {"open", "unknown"}
        for line in brief_lines(found) if ended else [[("   ", ""), _verdict(one)]]:
            lines += wrapped(line, width, HANG)
        for way, part in enumerate(found.loss):
            late = found.lag.added[way]
            line = [("   loss ", "dim"), (loss_line(way, part), direction_style(way))]
            if late.p95 is not None:
                line += [("; late: 95% within ", "dim"), (duration(late.p95), "")]
            lines += wrapped(line, width, HANG)
        lines.append([("   round-trip time ", "dim"), (duration(found.lag.path_ms), "")])
    worst_first = zip(reversed(_LABELS), reversed(one.anomalies), strict=True)
    told = [(f" {count}{SEVERITY_LETTERS[label]}", label) for label, count in worst_first if count]
    lines.append([("   findings", "dim"), *(told or [(" none", "dim")])])
    return lines


def _moments(width: int) -> dict[str, int]:
    """Return the columns of the timeline that fit: name -> width; the outcome gets the rest."""
    columns = {"time": 14, "#": 6, "unit": 17, "type": _NARROW_TYPE_COLUMNS + 1, "copies": 7,
               "took": 12}  # fmt: skip
    for name in ("type", "took", "copies"):
        if sum(columns.values()) + _OUTCOME_COLUMNS > width:
            del columns[name]
    if width >= _WIDE_FROM:
        columns["type"] = _TYPE_COLUMNS + 1
    return columns


def _timeline_head(width: int) -> str:
    columns = _moments(width)
    words = {"time": f"{'time':>12}", "copies": f"{'copies':>6}", "took": f"{'took':>10}"}
    head = "".join(f"{words.get(name, name):<{room}}" for name, room in columns.items())
    return f"{head}outcome" if sum(columns.values()) + _OUTCOME_COLUMNS <= width else head


def _moment(item: UnitRecord | ConnectionEvent, clock: Clock, width: int) -> Line:
    """Return one line of the timeline."""
    way = item.direction
    at = item.copies[0].time_ns if isinstance(item, UnitRecord) else item.time_ns
    line: Line = [
        (f"{clock.show(at):>12}  ", "time"),
        (f"{item.connection:<4}", "frame"),
        (f"{arrow_of(way)} ", direction_style(way)),
    ]
    columns = _moments(width)
    if isinstance(item, ConnectionEvent):
        room = width - columns["time"] - columns["#"] - cells(item.event) - 2
        return [*line, (f"{item.event}: ", "note"), (fit_clauses(safe(item.text), room), "")]
    again = len(item.copies) > 1
    took = "-" if item.rtt_ms is None else duration(item.rtt_ms)
    if item.outcome == "acked":
        outcome, style = "✓ acked", "good"
    elif item.settled_ns is None:
        outcome, style = "… waits", "dim"
    else:
        outcome, style = "✗ not acked", "bad"
    if sum(columns.values()) + len(outcome) > width:
        outcome = outcome[0]
    cells_ = {
        "unit": (fit(f"{item.space} {item.seq}", 16), ""),
        "type": (fit(safe(item.type or "-"), columns.get("type", 1) - 1), "name"),
        "copies": (f"{len(item.copies):>6}", "resend" if again else ""),
        "took": (f"{took:>10}", "resend" if again else ""),
    }
    line += [
        (f"{text:<{columns[name]}}", look)
        for name, (text, look) in cells_.items()
        if name in columns
    ]
    return [*line, (outcome, style)]
