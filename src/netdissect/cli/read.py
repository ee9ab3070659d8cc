"""`netdissect read`: the datagrams of a capture, one line each."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import click

from netdissect.cli import options
from netdissect.cli.complete import FIELD
from netdissect.cli.output import one_view, print_json
from netdissect.cli.request import Match, Request
from netdissect.cli.session import Session
from netdissect.model.records import DatagramRecord, MessageRecord

_Rows = Iterator[tuple[DatagramRecord, list[MessageRecord]]]


@click.command("read")
@options.capture()
@options.narrowed
@options.count
@options.flag("-V", "tree", help="Show the tree of fields below each line.")
@options.flag("-x", "hexed", help="Show the bytes below each line.")
@options.flag("--messages", help="One line per message instead of one per datagram.")
@options.flag("--all", "everything", help="Also show datagrams of no known protocol.")
@click.option(
    "-T",
    "table",
    type=click.Choice(["csv", "tsv", "fields", "json"]),
    help="Print a table for other programs; -e selects its columns. `fields` prints no column"
    " names; `json` is the same as --json.",
)
@options.repeated(
    "-e", "columns", metavar="FIELD", type=FIELD, help="A column for -T; may be repeated."
)
@options.flag("--csv-safe", help="Prefix ' to cells that a spreadsheet would run.")
@options.flag(
    "-l",
    "flush",
    help="Flush every line; on standard input, also show it before its units are settled.",
)
@options.secrets
@options.report
def command(
    request: Request,
    tree: bool,
    hexed: bool,
    messages: bool,
    everything: bool,
    table: str | None,
    columns: tuple[str, ...],
    csv_safe: bool,
    flush: bool,
    secrets: bool | None,
) -> int:
    """Show the datagrams of a capture, one line each.

    Retransmissions, duplicates and findings are marked. `-V` adds the tree of fields, `-x` the
    bytes. `--json` and `-T` print one object or row per message.

    \b
    netdissect read game.pcap -Y 'conn.id == 2 and msg.resend' -c 20
    ssh host tcpdump -U -w - | netdissect read -r -
    """
    one_view(("--json", request.as_json), ("-T", table))
    as_json = request.as_json or table == "json"
    table = None if as_json else table
    if table and (tree or hexed):
        raise click.UsageError("-V and -x cannot be combined with -T; select columns with -e.")
    if csv_safe and not table:
        raise click.UsageError("--csv-safe needs -T csv, -T tsv or -T fields.")
    if columns and not table:
        raise click.UsageError("-e needs -T csv, -T tsv or -T fields.")
    with request.session(streams=True) as session:
        session.keeps_reports = False
        match = request.match(session)
        program = as_json or bool(table)
        session.lines = not program
        # Early records may have another vantage than the final one, which `conn.` columns show.
        early = not any(name.startswith("conn.") for name in columns)
        found = wanted(
            session, match, everything=everything, shown=shown(secrets, program), early=early
        )
        limit = request.limit
        rows = found if limit is None else _limited(found, limit, messages or program)
        session.hold = (program or match.waits) and not flush
        flush = flush or session.live
        if table:
            _print_table(rows, session, table, columns, guard=csv_safe)
        elif as_json:
            print_messages(rows, flush=flush)
        else:
            screen = request.look.screen(flush=flush)
            print_lines(rows, session, request.times, screen, (messages, tree, hexed))
        session.say_unrecognised()
        return session.status()


def shown(secrets: bool | None, program: bool) -> bool:
    """Return whether passwords are shown: only in output for programs, unless the user decides."""
    return program if secrets is None else secrets


def wanted(
    session: Session, match: Match, *, everything: bool, shown: bool = True, early: bool = False
) -> _Rows:
    """Yield the matching datagrams, each with its matching messages.

    Args:
        session: the capture.
        match: the filter.
        everything: include datagrams of no known protocol.
        shown: whether passwords are shown; otherwise they are masked.
        early: as for `Session.records`.

    """
    from netdissect.pipeline.passwords import mask_passwords  # noqa: PLC0415

    match.restrict(session)
    session.others = everything
    for record in session.records(early=early):
        if record.protocol is None and not everything:
            continue
        if match.filter is None:
            items = record.messages
        elif match.datagram(record, session.first_ns):
            items = match.messages(record)
        else:
            continue
        yield record if shown else mask_passwords(record), items


def _limited(rows: _Rows, limit: int, each_message: bool) -> _Rows:
    """Yield at most `limit` datagrams, or messages if each message has its own line."""
    left = limit
    for record, items in rows:
        taken = items[:left] if each_message else items
        yield record, taken
        # A datagram without a message also takes a line.
        left -= max(1, len(taken)) if each_message else 1
        if left <= 0:
            return


def print_messages(rows: _Rows, *, flush: bool) -> None:
    """Print one JSON object per message, or one for a datagram without messages."""
    from netdissect.export import json  # noqa: PLC0415

    objects = (json.message(record, item) for record, items in rows for item in (items or (None,)))
    print_json(objects, flush=flush)


def print_lines(
    rows: _Rows, session: Session, times: str, screen: Any, parts: tuple[bool, bool, bool]
) -> None:
    """Print lines for people; `parts`: (one line per message, tree, bytes)."""
    from netdissect.render.read import ReadView  # noqa: PLC0415
    from netdissect.render.units import Clock  # noqa: PLC0415

    messages, tree, hexed = parts
    clock = Clock(times)
    view = ReadView(screen, clock, messages=messages, tree=tree, hexed=hexed)
    for record, items in rows:
        if clock.first_ns is None:
            clock.first_ns = session.first_ns
        view.show(record, items)


def _print_table(
    rows: _Rows, session: Session, kind: str, columns: tuple[str, ...], *, guard: bool
) -> None:
    from netdissect.cli.request import filter_names  # noqa: PLC0415
    from netdissect.export.table import write_rows  # noqa: PLC0415
    from netdissect.filters import Scope, compile_column  # noqa: PLC0415
    from netdissect.render.safe import safe  # noqa: PLC0415

    if not columns:
        raise click.UsageError("-T needs columns, such as -e frame.number -e msg.type.")
    getters = [compile_column(name, filter_names()) for name in columns]

    def cells() -> Iterator[list[Any]]:
        for record, items in rows:
            groups: list[tuple[MessageRecord, ...]] = [(item,) for item in items]
            for group in groups or [()]:
                scope = Scope(record, group or None, None, session.first_ns or 0)
                yield [get(scope) for get in getters]

    # A terminal would obey control characters in the text; programs get it unchanged.
    clean = safe if sys.stdout.isatty() else None
    write_rows(sys.stdout, columns, cells(), kind=kind, guard=guard, clean=clean)
