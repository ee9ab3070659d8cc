"""Prints connections as a table (wide screens) or a few lines each, or one connection in full."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from copy import copy
from operator import attrgetter
from typing import Any

from netdissect.model.bounds import reached
from netdissect.model.packets import Direction
from netdissect.model.reports import ConnectionReport, ProbeReport, RttSummary, SpaceReport
from netdissect.render.columns import Columns
from netdissect.render.console import UNLIMITED, Line, Screen, cells, fit, line_text
from netdissect.render.diagnose import HANG, brief_lines, loss_text
from netdissect.render.safe import safe
from netdissect.render.tree import SEVERITY_LETTERS
from netdissect.render.units import (
    STATE_STYLES,
    Clock,
    arrow_of,
    counted,
    dialect_text,
    duration,
    octets,
    percent,
    rtt_range,
    seen_at,
    share,
)

_TABLE_FROM = 120
"""Minimum screen width for the table, which is still only used if it fits."""
_REASON_COLUMNS = 16
"""Columns for the reason why a connection ended, if the table does not fit otherwise."""
_VALUE_COLUMNS = 16
"""Maximum width of a value in a space's column; longer ones are printed below the table."""

_HEADS = (
    "c", "dialect", "client", "server", "state", "ended", "start", "lasted", "dgrams →", "←",
    "bytes →", "←", "retrans", "loss →", "←", "late", "RTT", "findings",
)  # fmt: skip
_NUMBERS = frozenset(_HEADS[6:14]) | {"c", "←", "loss →", "late", "RTT"}


def show_connections(
    screen: Screen, reports: Sequence[ConnectionReport], clock: Clock, *, explain: bool = False
) -> None:
    """Print all connections; with `explain` also why each was recognised as its protocol."""
    if not reports:
        screen.text("No connection of a known protocol.")
    elif screen.width < _TABLE_FROM or not _table(screen, reports, clock):
        for report in reports:
            screen.lines(connection_brief(screen, report, clock), hang=HANG)
    for report in reports if explain else ():
        screen.line(
            (f"connection {report.connection} is {report.protocol}: ", "title"),
            ("; ".join(report.explain), ""),
        )


def _table(screen: Screen, reports: Sequence[ConnectionReport], clock: Clock) -> bool:
    """Print the table and return True; return False if it does not fit even with short reasons."""
    for short in (UNLIMITED, _REASON_COLUMNS):
        # Measuring formats every time, which would advance a clock of style d: use a copy.
        columns, measured = Columns(*_HEADS, right=_NUMBERS), copy(clock)
        rows = (_row(screen, report, measured, short) for report in reports)
        if _fits(columns, rows, screen.width):
            screen.lines(columns.head())
            screen.lines(columns.row(_row(screen, report, clock, short)) for report in reports)
            return True
    return False


def _fits(columns: Columns, rows: Iterable[list[Line]], width: int) -> bool:
    """Measure the rows; return whether all of them fit."""
    for row in rows:
        columns.measure(row)
        if columns.width > width:
            return False
    return True


def _row(screen: Screen, report: ConnectionReport, clock: Clock, short: int) -> list[Line]:
    """Return the cells of a row; `short`: columns for the reason why the connection ended."""
    return [
        [(str(report.connection), "")],
        [(dialect_text(report.dialects), "protocol")],
        [(screen.name(report.client), "c2s")],
        [(screen.name(report.server), "s2c")],
        [(_state(report), STATE_STYLES.get(report.state, ""))],
        [(_ending(report, short), "")],
        [(clock.show(report.first_time_ns), "")],
        [(duration((report.last_time_ns - report.first_time_ns) / 1e6), "")],
        *([(str(count), "")] for count in report.datagrams),
        *([(octets(count), "")] for count in report.octets),
        [(_resent(report), "")],
        *([(text, "")] for text in _answer(report)),
        [(_median(report), "")],
        _found(report),
    ]


def _answer(report: ConnectionReport) -> tuple[str, str, str]:
    """Return the loss of both directions, and the 95th percentile of the delay that
    retransmissions added.
    """
    found = report.diagnosis
    if found is None:
        return "?", "?", "-"
    first, second = (loss_text(part) for part in found.loss)
    late = found.lag.late_ms
    return first, second, "-" if late is None else duration(late)


def _resent(report: ConnectionReport) -> str:
    """Return the number of retransmissions, and their share of copies in spaces that retransmit."""
    spaces = [
        space
        for space in report.spaces
        if report.transport == "tcp" or space.timer_ms is not None or space.retransmissions
    ]
    again, copies = (sum(map(attrgetter(name), spaces)) for name in ("retransmissions", "copies"))
    return f"{again} ({percent(share(again, copies))})" if again else "0"


def round_trips(report: ConnectionReport) -> RttSummary | None:
    """Return the round-trip times that the diagnosis takes for those of the path; without a
    diagnosis, the shortest ones.
    """
    every = [*(each.rtt for each in report.probes), *(each.rtt for each in report.spaces)]
    measured = [rtt for rtt in every if rtt.samples]
    if report.diagnosis is None:
        return min(measured, key=lambda rtt: rtt.p50 or 0.0, default=None)
    path_ms = report.diagnosis.lag.path_ms
    return next((rtt for rtt in measured if rtt.p50 == path_ms), None)


def _rtt_text(report: ConnectionReport) -> str:
    best = round_trips(report)
    return "-" if best is None else rtt_range(best.minimum, best.p50, best.maximum)


def _median(report: ConnectionReport) -> str:
    best = round_trips(report)
    return "-" if best is None or best.p50 is None else duration(best.p50)


def _state(report: ConnectionReport) -> str:
    return report.state.replace("_", " ")


def _ending(report: ConnectionReport, short: int) -> str:
    """Return how a connection ended, with its reason cut to `short` columns."""
    if report.close:
        by, reason = report.close.get("by"), str(report.close.get("reason") or "closed")
        return (f"{by}: " if by else "") + fit(safe(reason), short)
    if report.diagnosis is not None:
        return report.diagnosis.ending.text
    if report.handshake == "rejected":
        return f"rejected: {report.reject_reason or 'no reason given'}"
    if report.handshake == "unanswered":
        return "never answered"
    fired = [verdict.side for verdict in report.timeouts if verdict.fired]
    if fired:
        return f"timed out at the {' and the '.join(fired)}"
    return "still open" if report.state == "open" else "-"


def _found(report: ConnectionReport, *, words: bool = False) -> Line:
    """Return the findings by severity: `4W 95C`, or `4 warn, 95 chat`."""
    line: Line = []
    for label in ("error", "warn", "note", "chat"):
        if amount := report.anomalies.get(label, 0):
            line.append(((", " if words else " ") if line else "", ""))
            line.append((f"{amount}{f' {label}' if words else SEVERITY_LETTERS[label]}", label))
    return line or [("none" if words else "-", "dim")]


def connection_brief(screen: Screen, report: ConnectionReport, clock: Clock) -> Iterator[Line]:
    """Yield a summary of a connection in a few lines."""
    lasted = duration((report.last_time_ns - report.first_time_ns) / 1e6)
    yield [
        (f"connection {report.connection}  ", "title"),
        (dialect_text(report.dialects), "protocol"),
        (f"  {screen.name(report.client)} → {screen.name(report.server)} {report.transport}", ""),
    ]
    incomplete = "" if report.complete else ", incomplete"
    yield [
        ("   ", ""),
        ("state ", "dim") if report.state == "unknown" else ("", ""),
        (_state(report), STATE_STYLES.get(report.state, "")),
        # The verdict, if there is one, says how it ended.
        (f", {_ending(report, UNLIMITED)}" if report.diagnosis is None else "", ""),
        (f", from {clock.show(report.first_time_ns)} for {lasted}", "dim"),
        (f", {seen_at(report.vantage)}{incomplete}", "dim"),
    ]
    if report.diagnosis is not None:
        yield from brief_lines(report.diagnosis)
    for direction in Direction:
        yield from _direction_lines(report, direction, screen.width)
    best = round_trips(report)
    if best or any(report.anomalies.values()):
        found = _found(report, words=True)
        yield [("   RTT ", "dim"), (_rtt_text(report), ""), ("; findings: ", "dim"), *found]


def _direction_lines(report: ConnectionReport, direction: Direction, width: int) -> Iterator[Line]:
    """Yield what one side sent; a space that does not fit starts a new line."""
    count = report.datagrams[direction]
    what = ("segment" if report.transport == "tcp" else "datagram") + "s" * (count != 1)
    amount = f"{count} {what}, {octets(report.octets[direction])}"
    line: Line = [(f"   {arrow_of(direction)} ", direction.label), (amount, "")]
    for space in report.spaces:
        if space.direction != direction or not space.copies:
            continue
        part: Line = [(f"{space.space} {space.units}", "")]
        if space.retransmissions:
            part.append((f", {space.retransmissions} retrans", "resend"))
        if space.unacked:
            part.append((f", {space.unacked} unacked", "bad"))
        used = sum(cells(safe(text)) for text, _ in (*line, *part))
        if used + 3 > width:
            yield line
            line = [("     ", ""), *part]
        else:
            line += [("; ", ""), *part]
    yield line


def show_connection(
    screen: Screen,
    report: ConnectionReport,
    clock: Clock,
    *,
    explain: bool = False,
    everything: bool = False,
) -> None:
    """Print everything about one connection; `everything`: including rows that are all 0."""
    screen.lines(connection_brief(screen, report, clock), hang=HANG)
    screen.text()
    facts = list(_facts(report, clock))
    columns = max(len(name) for name, _ in facts)
    for name, value in facts:
        head = f"{name:>{columns}}  "
        screen.line((head, "dim"), (value, ""), hang=len(head))
    _messages(screen, report)
    _spaces(screen, report.spaces, everything=everything)
    _probes(screen, report.probes)
    if explain:
        screen.text("Why this protocol", "title")
        for reason in report.explain:
            screen.line(("  ", ""), (reason, ""))


def _facts(report: ConnectionReport, clock: Clock) -> Iterator[tuple[str, str]]:
    yield "frames", f"{report.first_frame} to {report.last_frame}"
    yield "time", f"{clock.show(report.first_time_ns)} to {clock.show(report.last_time_ns)}"
    yield "roles from", report.roles_from
    for name, fact, reason in (
        ("captured at", report.vantage, report.vantage_basis),
        ("handshake", report.handshake, report.reject_reason),
    ):
        yield name, f"{fact}: {reason}" if reason else fact
    named = "" if report.state_name == report.state else f" ({report.state_name})"
    yield "state", report.state + named
    if report.close:
        closed = (f"{key} {value}" for key, value in report.close.items() if value is not None)
        yield "closed", ", ".join(closed)
    for key, value in report.identity.items():
        yield _named(key), _measured(key, value)
    for verdict in report.timeouts:
        yield f"{verdict.side} timeout", timeout_text(verdict, clock)
    for direction in Direction:
        for name, amount in report.counters[direction].items():
            yield f"{arrow_of(direction)} {_named(name)}", str(amount)
        for name, kept in report.timings[direction].items():
            span = f"{kept.minimum:g} to {kept.maximum:g} ms, median {kept.p50:g} ms"
            samples = counted(kept.samples, "sample")
            yield f"{arrow_of(direction)} {_named(name)}", f"{span}, {samples}"
    for name, times in report.limits_hit.items():
        yield "limit reached", f"{name}, {reached(name, times)}"


def timeout_text(verdict: Any, clock: Clock) -> str:
    """Return a sentence on what an idle timer did."""
    if verdict.last_heard_ns is None:
        return "no datagram from its peer in this capture"
    heard = f"heard #{verdict.last_heard_frame} at {clock.show(verdict.last_heard_ns)}"
    if verdict.due_ns is None:
        return f"{heard}; no idle timeout"
    outcome = {True: "fired", False: "did not fire", None: "unknown"}[verdict.fired]
    window = f"due {clock.show(verdict.due_ns)}"
    if verdict.latest_ns is not None and verdict.latest_ns != verdict.due_ns:
        window += f"–{clock.show(verdict.latest_ns)}"
    return f"{heard}, {window}: {outcome}"


def _named(key: str) -> str:
    """Return a key of a report as words, without its unit."""
    return key.removesuffix("_ms").replace("_", " ").replace("octets", "bytes")


def _measured(key: str, value: Any) -> str:
    """Return the value of a key as text, with its unit."""
    times = key.endswith("_ms") and isinstance(value, (int, float))
    return duration(value) if times else _fact(value)


def _fact(value: Any) -> str:
    if isinstance(value, (list, tuple)):
        return ", ".join(_fact(item) for item in value)
    if isinstance(value, dict):
        return ", ".join(f"{_named(key)} {_measured(key, item)}" for key, item in value.items())
    return value.hex() if isinstance(value, bytes) else safe(str(value), 400)


def _messages(screen: Screen, report: ConnectionReport) -> None:
    names = sorted(set(report.messages[0]) | set(report.messages[1]))
    if not names:
        return
    screen.text()
    table = screen.table("message", "→", "←", right=("→", "←"))
    for name in names:
        table.add_row(
            line_text([(name, "")]), *(str(report.messages[way].get(name, 0)) for way in Direction)
        )
    screen.print(table)
    screen.text()


_SPACE_ROWS: tuple[tuple[str, str], ...] = (
    ("units", "units"),
    ("copies", "copies seen"),
    ("retransmissions", "retransmissions"),
    ("duplicates", "duplicates"),
    ("acked", "acknowledged"),
    ("unacked", "not acknowledged"),
    ("unknown", "unknown"),
    ("never_seen", "never seen"),
    ("out_of_order", "out of order"),
    ("given_up", "given up"),
    ("max_copies", "most copies"),
    ("rtt.samples", "RTT samples"),
    ("rtt.ambiguous", "RTT ambiguous"),
)
"""(attribute of a space, row heading). Each space is a column, so the table fits 80 columns."""
_RTT_ROWS = (
    ("RTT min", "minimum"), ("RTT median", "p50"), ("RTT p95", "p95"), ("RTT max", "maximum"),
)  # fmt: skip


def _spaces(screen: Screen, spaces: Sequence[SpaceReport], *, everything: bool) -> None:
    """Print the spaces side by side, as many at once as fit the screen."""
    # 20 columns for the row headings, 18 for each space.
    at_once = max(1, (screen.width - 20) // 18) if not screen.wide else max(1, len(spaces))
    for start in range(0, len(spaces), at_once):
        group = spaces[start : start + at_once]
        heads = [f"{space.space} {arrow_of(space.direction)}" for space in group]
        table = screen.table("space", *heads, right=heads)
        table.columns[0].no_wrap = True
        for attribute, label in _SPACE_ROWS:
            numbers = [attrgetter(attribute)(space) for space in group]
            if everything or any(numbers):
                table.add_row(label, *map(str, numbers))
        table.add_row("numbers", *(_numbers(space) for space in group))
        for label, attribute in _RTT_ROWS:
            values = [getattr(space.rtt, attribute) for space in group]
            if any(value is not None for value in values):
                texts = ("-" if value is None else duration(value) for value in values)
                table.add_row(label, *texts)
        below: list[Line] = []
        extras = [one for space in group for one in space.extra.items()]
        for key in sorted({key for key, value in extras if everything or value}):
            name = _named(key)
            values = [
                _measured(key, space.extra[key]) if key in space.extra else "" for space in group
            ]
            if max(map(cells, values)) > _VALUE_COLUMNS:
                below += [
                    [(f"{name} {head}: ", "dim"), (value, "")]
                    for head, value in zip(heads, values, strict=True)
                    if value
                ]
            else:
                table.add_row(
                    line_text([(name, "")]), *(line_text([(value, "")]) for value in values)
                )
        screen.print(table)
        screen.lines(below, hang=HANG)
        screen.text()


def _numbers(space: SpaceReport) -> str:
    return "-" if space.first_seq is None else f"{space.first_seq}..{space.last_seq}"


def _probes(screen: Screen, probes: Sequence[ProbeReport]) -> None:
    if not probes:
        return
    table = screen.table("probe", "", "sent", "answered", "RTT", "p95", right=("sent", "answered"))
    for probe in probes:
        table.add_row(
            line_text([(probe.kind, "")]),
            arrow_of(probe.direction),
            str(probe.sent),
            str(probe.answered),
            rtt_range(probe.rtt.minimum, probe.rtt.p50, probe.rtt.maximum),
            "-" if probe.rtt.p95 is None else duration(probe.rtt.p95),
        )
    screen.print(table)
