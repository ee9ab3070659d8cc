"""The list of connections, and the diagnosis of one of them with its lanes."""

from __future__ import annotations

import textwrap
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence

from netdissect.browse.backend import Entry
from netdissect.browse.pane import NARROW, WIDE, Pane, padded
from netdissect.model.diagnosis import Diagnosis
from netdissect.model.packets import SIDES
from netdissect.model.reports import ConnectionReport
from netdissect.pipeline.index import AGAIN, COPY, FINDING, LOST, RESENT, UNKNOWN, Index
from netdissect.render.console import Line, cells, fit_clauses, fit_end
from netdissect.render.diagnose import loss_text
from netdissect.render.timeline import ruler
from netdissect.render.tree import SEVERITY_LETTERS
from netdissect.render.units import (
    Clock,
    arrow_of,
    dialect_text,
    direction_style,
    duration,
    seen_at,
)

SORTS: dict[str, Callable[[Entry], float]] = {
    "worst": lambda entry: -entry.badness,
    "oldest": lambda entry: entry.first_ns,
    # The negative duration, as sorting is ascending.
    "longest": lambda entry: entry.first_ns - entry.last_ns,
    "most retransmitted": lambda entry: -(entry.again or 0),
    "slowest": lambda entry: -entry.slowest_ms,
    "most datagrams": lambda entry: -entry.datagrams,
}
"""Name of an order -> its sort key."""


_WIDTHS = ((13, 16), (14, 21))
"""Columns of the protocol and the client: on a screen of 80 columns, and on a wide one."""
_SILENT_NS = 2_000_000_000
"""From this length on, a silence in a running capture is mentioned."""
_LABEL = 9
"""Columns of the name of a lane."""
_MAX_SAMPLED = 400_000
"""Lanes are drawn from at most this many rows, evenly spread over the connection."""


class Connections(Pane):
    """The list of connections."""

    def __init__(self, clock: Clock) -> None:
        super().__init__()
        self.all: Sequence[Entry] = ()
        self.shown: Sequence[Entry] = ()
        self.sort = "worst"
        self.reverse = False
        self.traffic = False
        """Whether to show columns about the traffic instead of the endpoints."""
        self.matching: set[int] | None = None
        """Numbers of connections that match the filter; None = all."""
        self._clock = clock

    def __len__(self) -> int:
        return len(self.shown)

    def take(self, entries: Sequence[Entry]) -> None:
        """Show these connections; a cursor that the user has moved stays on its connection."""
        before = self.entry()
        self.all = entries
        matching = self.matching
        found = [entry for entry in entries if matching is None or entry.number in matching]
        self.shown = sorted(found, key=SORTS[self.sort], reverse=self.reverse)
        if before is not None and self.held:
            self.find(before.number)

    def turn(self, *, reverse: bool) -> None:
        """Use the next order, or reverse it."""
        names = list(SORTS)
        if reverse:
            self.reverse = not self.reverse
        else:
            self.sort = names[(names.index(self.sort) + 1) % len(names)]
        self.take(self.all)

    def _traffic(self, entry: Entry) -> Line:
        """Return the columns about the traffic."""
        known = entry.again is not None
        slowest = duration(entry.slowest_ms) if known and entry.slowest_ms else "-"
        return [
            (f"{self._clock.show(entry.first_ns) if known else '?':>10} ", "time"),
            (f"{_lasted(entry) if known else '?':>9} {entry.datagrams:>10,} {slowest:>9} ", ""),
        ]

    def find(self, number: int) -> None:
        """Put the cursor on the connection with this number."""
        for place, entry in enumerate(self.shown):
            if entry.number == number:
                self.cursor = place

    def numbered(self, number: int | None) -> Entry | None:
        """Return the connection with this number, listed or not."""
        return next((entry for entry in self.all if entry.number == number), None)

    def entry(self) -> Entry | None:
        """Return the connection under the cursor."""
        return self.shown[self.cursor] if self.cursor < len(self.shown) else None

    def head(self, width: int) -> Sequence[Line]:
        """Return the heading."""
        order = f"{self.sort} {'last' if self.reverse else 'first'}"
        number = f"   {'#':<{self._digits()}} "
        if width < NARROW:
            return [[(f"{number}verdict, {order}", "dim")]]
        if self.traffic:
            return [[(f"{number}{'begins':>10} {'lasted':>9} {'datagrams':>10} {'slowest':>9}"
                      f" {'again':>6}  verdict, {order}", "dim")]]  # fmt: skip
        server = f"{'server':<22}" if width >= WIDE else ""
        more = f"{'lasted':>9} " if width >= WIDE else ""
        dialect, client = _WIDTHS[width >= WIDE]
        return [[(f"{number}{'protocol':<{dialect}} {'client':<{client}}{server}{more}{'again':>6}"
                  f"  verdict, {order}", "dim")]]  # fmt: skip

    def _digits(self) -> int:
        return len(str(len(self.all)))

    def line(self, number: int, width: int) -> Line:
        """Return one connection."""
        entry = self.shown[number]
        letter = SEVERITY_LETTERS.get(entry.severity, " ")
        line: Line = [
            (f"{letter} ", entry.severity), (f"{entry.number:<{self._digits()}} ", "title")
        ]  # fmt: skip
        if width >= NARROW:
            again = "?" if entry.again is None else f"{entry.again}{'»' if entry.again else ' '}"
            line += self._traffic(entry) if self.traffic else _ends(entry, width)
            line.append((f"{again:>6}  ", "resend" if entry.again else "dim"))
        verdict = entry.verdict or f"still reading; {entry.datagrams:,} datagrams so far"
        room = width - sum(cells(text) for text, _ in line)
        return [*line, (fit_clauses(verdict, room), "" if entry.verdict else "dim")]


def _ends(entry: Entry, width: int) -> Line:
    """Return the columns with the protocol and the endpoints."""
    dialect, client = _WIDTHS[width >= WIDE]
    line: Line = [
        *padded([(entry.dialect, "protocol")], dialect),
        *padded([(f" {fit_end(entry.client, client - 1)}", "c2s")], client + 1),
    ]
    if width >= WIDE:
        line += [*padded([(entry.server, "s2c")], 22), (f"{_lasted(entry):>9} ", "")]
    return line


def _lasted(entry: Entry) -> str:
    return duration((entry.last_ns - entry.first_ns) / 1e6)


def deciding_frame(report: ConnectionReport) -> int:
    """Return the frame that decides the verdict: the one that ended the connection, else the one at
    which its cause appears, else the last one.
    """
    found = report.diagnosis
    if found is not None:
        for frame in (found.ending.frame, found.cause.from_frame, found.cause.to_frame):
            if frame is not None:
                return frame
    return report.last_frame


def answer(
    report: ConnectionReport, clock: Clock, width: int, lanes: Sequence[Line] = (),
    now_ns: int | None = None,
) -> list[Line]:  # fmt: skip
    """Return the diagnosis of a connection with the frames it is based on.

    Args:
        report: the connection.
        clock: how times are shown.
        width: columns of the screen.
        lanes: stand after the verdict and before the details.
        now_ns: time of the newest packet of a running capture; None = not running.

    """
    lines: list[Line] = []

    def say(text: str, style: str = "") -> None:
        for row in textwrap.wrap(text, max(20, width - 2), break_on_hyphens=False) or [""]:
            lines.append([(f" {row}", style)])

    found = report.diagnosis
    if found is not None:
        if now_ns is not None and found.ending.how in {"open", "unknown"}:
            say("Open so far.", "title")
            _waiting(report, now_ns, say)
        else:
            say(found.verdict, "title")
        if found.cause.text and found.cause.text not in found.verdict:
            say(f"{found.cause.text} ({found.cause.confidence})")
        _frames(report, found, clock, say)
    lines += [[], *lanes, []] if lanes else []
    if found is not None:
        _details(report, found, say)
    lines += [[], *_spaces(report)] if width >= NARROW and report.spaces else []
    said = ", ".join(f"{count} {label}" for label, count in report.anomalies.items() if count)
    say(f"{dialect_text(report.dialects)} {report.transport}; findings: {said or 'none'}", "dim")
    return lines


_COUNTS = (
    ("units", "units"), ("copies", "copies"), ("again", "retransmissions"),
    ("net copies", "duplicates"), ("acked", "acked"), ("unacked", "unacked"),
    ("unknown", "unknown"),
)  # fmt: skip
"""(heading of a column, attribute of a space that it shows)"""


def _spaces(report: ConnectionReport) -> list[Line]:
    """Return a table of the sequence spaces and what became of their units."""
    size = max(len(space.space) for space in report.spaces)
    heads = "".join(f"{name:>{max(8, len(name) + 1)}}" for name, _ in _COUNTS)
    lines: list[Line] = [[(f" {'':{size + 2}}{heads}", "dim")]]
    for space in report.spaces:
        way = direction_style(space.direction)
        cells = "".join(
            f"{getattr(space, value):>{max(8, len(name) + 1)},}" for name, value in _COUNTS
        )
        lines.append([(f" {arrow_of(space.direction)} {space.space:{size}}", way), (cells, "")])
    return lines


def _waiting(report: ConnectionReport, now_ns: int, say: Callable[[str, str], None]) -> None:
    """Report which side has been waiting for the other, for how long, and when it gives up."""
    for timer in report.timeouts:
        if timer.last_heard_ns is None or timer.due_ns is None or timer.fired:
            continue
        quiet, patience = now_ns - timer.last_heard_ns, timer.due_ns - timer.last_heard_ns
        if quiet > _SILENT_NS:
            other = SIDES[1 - SIDES.index(timer.side)]
            lasted = f"{duration(quiet / 1e6)} of {duration(patience / 1e6)}"
            then = f"then the {timer.side} gives up"
            say(f"The {other} has been silent for {lasted}; {then}.", "warn")


def _details(report: ConnectionReport, found: Diagnosis, say: Callable[[str, str], None]) -> None:
    """Report what was ruled out, what would settle the rest, and the quality of the path."""
    for text in found.ruled_out[:3]:
        say(f"Ruled out {text}.", "dim")
    if found.settles:
        say(found.settles, "dim")
    there, back = (loss_text(part).replace("<=", "at most ") for part in found.loss)
    trip = duration(found.lag.path_ms)
    say(f"Lost → {there}, ← {back}; round trip {trip}; {seen_at(report.vantage)}.", "dim")


def _frames(
    report: ConnectionReport, found: Diagnosis, clock: Clock, say: Callable[[str, str], None]
) -> None:
    """Report the frames that the verdict is based on."""
    facts = [
        f"{verdict.side} last heard #{verdict.last_heard_frame} at"
        f" {clock.show(verdict.last_heard_ns)}, due {clock.show(verdict.due_ns)}"
        for verdict in report.timeouts
        if verdict.fired and verdict.last_heard_frame is not None
    ]
    frame, time_ns = found.ending.frame, found.ending.time_ns
    if frame is not None and time_ns is not None:
        if frame == report.last_frame:
            time_ns = report.last_time_ns  # a timeout is over before its frame
        facts.append(f"ended in #{frame} at {clock.show(time_ns)}")
    facts.append(f"frames #{report.first_frame} to #{report.last_frame}")
    say("; ".join(facts) + ".", "")


_RANK = " ·?○»✗"
"""Signs of a lane, worst last."""
_WORDS = ("", "sent", "unknown", "duplicated", "retransmitted", "never acknowledged")
"""Meaning of each of these signs."""
_RANKS = ((LOST, 5), (AGAIN | RESENT, 4), (COPY, 3), (UNKNOWN, 2))
"""Mark of a row -> index of its sign in _RANK, worst first."""


def _columns(width: int) -> int:
    """Return how many columns of the screen a lane has."""
    return max(10, width - _LABEL - 3)


def time_at(column: int, width: int, span: tuple[int, int]) -> int:
    """Return the time at a column of the screen, if the lanes show this span."""
    columns = _columns(width)
    inside = max(0, min(columns - 1, column - _LABEL - 1))
    return span[0] + inside * (span[1] - span[0]) // columns


def lanes(
    index: Index, rows: Sequence[int], width: int, part: tuple[int, int] | None = None
) -> list[Line]:
    """Return two lanes, one per direction; each column shows the worst thing that happened in it.

    Args:
        index: knows the time and the marks of each row.
        rows: rows of a connection, in order.
        width: columns of the screen.
        part: first and last moment of what is shown; None = all.

    """
    if not rows:
        return []
    columns = _columns(width)
    zero, end = index.times[rows[0]], index.times[rows[-1]]
    first, last = part or (zero, end)
    if part is not None:
        when = index.times.__getitem__
        rows = rows[bisect_left(rows, first, key=when) : bisect_right(rows, last, key=when)]
    span = max(1, last - first)
    ways = [[0] * columns, [0] * columns]
    events = [" "] * columns
    step = 1 + len(rows) // _MAX_SAMPLED
    for row in rows[::step]:
        marks = index.marks[row]
        at = max(0, min(columns - 1, (index.times[row] - first) * columns // span))
        rank = next((rank for bit, rank in _RANKS if marks & bit), 1)
        lane = ways[index.party(row).direction or 0]
        lane[at] = max(lane[at], rank)
        if marks & FINDING:
            events[at] = "!"
    scale = ruler(span, columns, first - zero)[:columns]
    lines: list[Line] = [[(" " * (_LABEL + 1) + scale, "dim")]]
    styles = ("", "", "note", "duplicate", "resend", "bad")
    for name, style, lane in zip(("client →", "server ←"), ("c2s", "s2c"), ways, strict=True):
        line: Line = [(f" {name:<{_LABEL}}", style)]
        line += [(_RANK[rank], styles[rank]) for rank in lane]
        lines.append(line)
    lines.append([(f" {'found':<{_LABEL}}", "dim"), ("".join(events), "note")])
    if width >= NARROW:
        there = {rank for lane in ways for rank in lane}
        legend = [
            (f"  {sign} {word}", style)
            for rank, (sign, word, style) in enumerate(zip(_RANK, _WORDS, styles, strict=True))
            if rank and rank in there
        ]
        lines.append([(" " * (_LABEL - 1), ""), *legend])
    return lines
