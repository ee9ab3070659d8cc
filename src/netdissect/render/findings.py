"""Prints findings, and the catalogue that explains them."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from netdissect.model.annotations import CodeRow
from netdissect.model.reports import Anomaly
from netdissect.render.console import Screen, cells, line_text, wrapped
from netdissect.render.safe import safe
from netdissect.render.tree import SEVERITY_LETTERS
from netdissect.render.units import Clock, arrow_of

_TEXT_COLUMNS = 78
_INDENT = 12
"""Indentation of a message that is printed below its code, in columns."""


def show_anomalies(
    screen: Screen,
    found: Sequence[Anomaly],
    clock: Clock,
    *,
    totals: Mapping[str, int] | None = None,
    times: Mapping[tuple[int | None, str], int] | None = None,
    limit: int | None = None,
    file: str | None = None,
) -> None:
    """Print a summary by code, worst first, then the findings in order.

    Args:
        screen: where to print.
        found: all reported findings.
        clock: formats times.
        totals: code -> number of occurrences, including unreported repeats; None = unknown.
        times: (connection, code) -> number of occurrences.
        limit: maximum number of findings below the summary; None = all.
        file: the capture, for suggested commands; None = it cannot be read again.

    """
    if not found:
        screen.text("No findings.")
        return
    codes: dict[str, list[Anomaly]] = {}
    for item in found:
        codes.setdefault(item.code, []).append(item)
    table = screen.table(
        "", "code", "group", "count", "first frame", right=("count", "first frame")
    )
    for code, items in sorted(
        codes.items(), key=lambda pair: (-max(a.severity for a in pair[1]), pair[0])
    ):
        label = max(item.severity for item in items).label
        table.add_row(
            line_text([(SEVERITY_LETTERS[label], label)]),
            line_text([(code, label)]),
            line_text([(items[0].group, "")]),
            _times(items, (totals or {}).get(code, 0)),
            "-" if items[0].frame is None else str(items[0].frame),
        )
    screen.print(table)
    screen.text()
    for item, way, more in _grouped(found, times or {})[:limit]:
        _finding(screen, item, clock, way, more)
    _commands(screen, found, file)


def _grouped(
    found: Sequence[Anomaly], times: Mapping[tuple[int | None, str], int]
) -> list[tuple[Anomaly, str, str]]:
    """Group findings by code and connection; return (finding, arrow, note on repeats) to print.

    The first finding of each group is kept, and the first in the other direction if its message
    differs; both then have an arrow. Findings that belong to no connection are not grouped.
    """
    groups: dict[tuple[str, int], dict[int | None, Anomaly]] = {}
    most: Counter[tuple[str, int]] = Counter()
    for item in found:
        key = (item.code, -id(item) if item.connection is None else item.connection)
        ways = groups.setdefault(key, {})
        if all(item.message != first.message for first in ways.values()):
            ways.setdefault(item.direction, item)
        most[key] = max(most[key], item.repeats)
    shown = []
    for item in found:
        key = (item.code, -id(item) if item.connection is None else item.connection)
        firsts = groups[key]
        if firsts.get(item.direction) is not item:
            continue
        known = times.get((item.connection, item.code), 0)
        more = max(known, most.pop(key)) - len(firsts) if key in most else 0
        again = f" (and {'' if known else 'at least '}{more} more)" if more > 0 else ""
        shown.append((item, arrow_of(item.direction) + " " if len(firsts) > 1 else "", again))
    return shown


def _commands(screen: Screen, found: Sequence[Anomaly], file: str | None) -> None:
    """Print commands that explain and show the worst finding."""
    worst = max(found, key=lambda item: (item.severity, item.frame is not None))
    screen.text()
    screen.line((f"netdissect explain {worst.code}", "dim"))
    if file is not None and worst.frame is not None:
        screen.line((f"netdissect show {shlex.quote(file)} {worst.frame}", "dim"))


def _times(items: Sequence[Anomaly], total: int) -> str:
    """Return how often a code occurred; `N+` if only a minimum is known, because of repeats only
    the 1st, 10th, 100th and so on are reported.
    """
    most: Counter[int] = Counter()
    for item in items:
        if item.connection is not None:
            most[item.connection] = max(most[item.connection], item.repeats)
    alone = sum(item.connection is None for item in items)
    least = most.total()
    return str(alone + total) if total >= least else f"{alone + least}+"


def _finding(screen: Screen, item: Anomaly, clock: Clock, way: str, again: str) -> None:
    """Print one finding; its message is printed below the code if it does not fit beside it."""
    label = item.severity.label
    frame = "" if item.frame is None else f"#{item.frame}"
    who = "" if item.connection is None else f"connection {item.connection}  "
    if item.concluded_ns is not None and item.concluded_ns != item.time_ns:
        again = f" (concluded at {clock.show(item.concluded_ns)}){again}"
    message = f"{safe(item.message, 600)}{again}"
    head = [
        (f"{SEVERITY_LETTERS[label]} ", label),
        (f"{frame:>7} ", "frame"),
        (f"{clock.show(item.time_ns):>11}  ", "time"),
        (f"{who}{way}", "dim"),
        (item.code, label),
    ]
    used = sum(cells(text) for text, _ in head) + 2
    if screen.wide or used + cells(message) <= screen.width:
        screen.line(*head, (f": {message}", ""))
        return
    screen.line(*head, cut=True)
    screen.line((" " * _INDENT + message, ""), hang=_INDENT)


def show_code(screen: Screen, row: CodeRow) -> None:
    """Print the explanation of a code."""
    label = row.severity.label
    screen.line((row.code, "title"), (f"  {label}", label), (f", {row.group}", "dim"))
    screen.text(row.title)
    screen.text()
    screen.lines(wrapped([(row.meaning, "")], min(_TEXT_COLUMNS, screen.width), 0))


def show_catalogue(screen: Screen, rows: Iterable[CodeRow]) -> None:
    """Print all codes, one per line."""
    for row in rows:
        label = row.severity.label
        screen.line(
            (f"{SEVERITY_LETTERS[label]} ", label),
            (f"{row.code:<34} ", "name"),
            (row.title, ""),
            cut=True,
        )
