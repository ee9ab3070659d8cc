"""`netdissect follow`: what the application got, in order, once each."""

from __future__ import annotations

from itertools import islice

import click

from netdissect.cli import options
from netdissect.cli.asked import Asked
from netdissect.cli.output import one_view, print_json

__all__ = ["command"]


@click.command("follow")
@options.capture({"connection": options.COUNT})
@options.narrowed
@options.count
@click.option(
    "--as",
    "form",
    type=click.Choice(["line", "hex", "tree"]),
    help="Format of each row.",
)
@options.secrets
@options.report
def command(
    asked: Asked,
    form: str | None,
    secrets: bool | None,
) -> int:
    """Show the reliable messages of a connection in order, once each.

    Messages are in the order of their numbers, with the time of the first copy and a colour
    per side; those that were sent again say so. Without a number, connection 1 is followed.

    \b
    netdissect follow game.pcap 2 | less -R
    """
    from netdissect.cli.read import shown  # noqa: PLC0415
    from netdissect.pipeline.delivery import delivered  # noqa: PLC0415
    from netdissect.pipeline.secrets import masked  # noqa: PLC0415

    one_view(("--json", asked.as_json), ("--as", form))
    with asked.session(streams=True) as session:
        session.only = frozenset({asked.connection or 1})
        match = asked.match(session)
        session.hold = asked.as_json or match.waits
        records = (
            record
            for record in session.of(asked.connection, session.records())
            if record.connection == (asked.connection or 1)
        )
        found = (
            (record, item)
            for record, item in delivered(records)
            if match.datagram(record, session.first_ns) and item in match.messages(record)
        )
        visible = shown(secrets, asked.as_json)
        rows = islice(
            ((record if visible else masked(record), item) for record, item in found), asked.limit
        )
        if asked.as_json:
            from netdissect.export import json  # noqa: PLC0415

            print_json((json.message(record, item) for record, item in rows), flush=session.live)
        else:
            from netdissect.render.follow import FollowView  # noqa: PLC0415

            clock = asked.clock()
            view = FollowView(asked.look.screen(flush=session.live), clock, form or "line")
            for record, item in rows:
                clock.first_ns = session.first_ns
                view.show(record, item)
        return session.status()
