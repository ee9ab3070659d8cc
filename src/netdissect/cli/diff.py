"""`netdissect diff`: compares two captures, or two frames."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import click

from netdissect.cli import options
from netdissect.cli.complete import FILE
from netdissect.cli.errors import EXIT
from netdissect.cli.output import Look, print_json
from netdissect.cli.session import Choices, Session
from netdissect.model.compare import ABSENT, Changed, differences
from netdissect.model.errors import UsageError
from netdissect.model.reports import ConnectionReport
from netdissect.model.text import parse_count

_WHERE = frozenset({"schema", "connection", "explain"})
_PLACES = ("_ns", "frame", "frames")
"""Keys of a report, and ends of keys in it, that are not compared: they depend on its place in the
capture.
"""
_Row = tuple[str, Changed]


@click.command("diff")
@click.argument("words", nargs=-1, required=True, metavar="A B | FILE FRAME FRAME", type=FILE)
@options.facts
def command(words: tuple[str, ...], as_json: bool, choices: Choices, look: Look) -> int:
    """Compare two captures, connection by connection, or two frames of one, field by field.

    Connections are paired by protocol and endpoints, then in order. Frame numbers and times
    are not compared. Ends with status 7 if anything differs.

    \b
    netdissect diff before.pcap after.pcap
    netdissect diff game.pcap 41 44 --json
    """
    if len(words) == 2:  # noqa: PLR2004 - two captures
        rows, status = _captures(words[0], words[1], choices, quiet=look.quiet)
    elif len(words) == 3 and None not in (frames := [parse_count(word) for word in words[1:]]):  # noqa: PLR2004 - see metavar
        rows, status = _frames(words[0], frames, choices, quiet=look.quiet)
    else:
        raise UsageError("give two captures (A B), or a capture and two frames (FILE 41 44)")
    if as_json:
        print_json(_object(*row) for row in rows)
    else:
        from netdissect.render.catalogs import show_changes  # noqa: PLC0415

        show_changes(look.screen(), rows)
    # A difference from a capture that is cut short may be due to the cut.
    return EXIT.FOUND if rows and status == EXIT.DONE else status


def _object(where: str, change: Changed) -> dict[str, Any]:
    shown: dict[str, Any] = {"schema": 1, "where": where, "field": change.path}
    if change.before is not ABSENT:
        shown["before"] = change.before
    if change.after is not ABSENT:
        shown["after"] = change.after
    return shown


def _frames(
    file: str, wanted: Sequence[int | None], choices: Choices, *, quiet: bool
) -> tuple[list[_Row], int]:
    from netdissect.export import json  # noqa: PLC0415

    found: dict[int | None, list[dict[str, Any]]] = defaultdict(list)
    with Session(file, choices, quiet=quiet) as session:
        for record in session.records():
            if record.frame in wanted:
                found[record.frame].append(json.shown(record))
        status = session.status()
        last = session.reader.info.frames
    for frame in wanted:
        if frame not in found:
            raise UsageError(f"frame {frame} holds no datagram; the capture has {last} frames")
    kept = [[_plain(row) for row in found[frame]] for frame in wanted]
    where = f"frames {wanted[0]}, {wanted[1]}"
    return [(where, change) for change in differences(*(_sole(rows) for rows in kept))], status


def _sole(rows: list[dict[str, Any]]) -> Any:
    return rows[0] if len(rows) == 1 else rows


def _plain(row: dict[str, Any]) -> dict[str, Any]:
    """Return the contents of a datagram, without its place in the capture and its raw bytes."""
    names = ("direction", "protocol", "dialect", "length", "fields", "annotations")
    return {name: row[name] for name in names}


def _captures(before: str, after: str, choices: Choices, *, quiet: bool) -> tuple[list[_Row], int]:
    sides, statuses = [], []
    for file in (before, after):
        with Session(file, choices, quiet=quiet) as session:
            sides.append(list(session.analysis().connections))
            statuses.append(session.status())
    rows = [
        (where, change)
        for where, left, right in _paired(*sides)
        for change in differences(_figures(left), _figures(right))
    ]
    return rows, max(statuses)


def _figures(report: ConnectionReport | None) -> Any:
    from netdissect.export import json  # noqa: PLC0415

    if report is None:
        return ABSENT
    figures = json.connection(report)
    return _placeless({name: value for name, value in figures.items() if name not in _WHERE})


def _placeless(value: Any) -> Any:
    """Return a value without the frames and times in it."""
    if isinstance(value, dict):
        return {
            name: _placeless(item) for name, item in value.items() if not name.endswith(_PLACES)
        }
    return [_placeless(item) for item in value] if isinstance(value, list) else value


def _paired(
    before: Iterable[ConnectionReport], after: Iterable[ConnectionReport]
) -> Iterator[tuple[str, ConnectionReport | None, ConnectionReport | None]]:
    """Yield (name, report, report) of corresponding connections; None if there is none."""
    left, right = list(before), list(after)
    # First by endpoints; then the rest by protocol, as client ports differ between two runs.
    for same in (_ends, _kind):
        waiting: dict[Any, deque[ConnectionReport]] = defaultdict(deque)
        for report in right:
            waiting[same(report)].append(report)
        rest = []
        for report in left:
            if waiting[same(report)]:
                yield _name(report), report, waiting[same(report)].popleft()
            else:
                rest.append(report)
        left, right = rest, [report for reports in waiting.values() for report in reports]
    yield from ((_name(report), report, None) for report in left)
    yield from ((_name(report), None, report) for report in right)


def _ends(report: ConnectionReport) -> tuple[str, ...]:
    return report.protocol, report.transport, report.client, report.server


def _kind(report: ConnectionReport) -> tuple[str, ...]:
    return report.protocol, report.transport


def _name(report: ConnectionReport) -> str:
    return f"connection {report.connection} {report.protocol} {report.client} → {report.server}"
