"""`netdissect follow`: the reliable messages of a connection, as the application gets them."""

from __future__ import annotations

from itertools import islice

import click

from netdissect.cli import options
from netdissect.cli.output import one_view, print_json
from netdissect.cli.request import Request


@click.command("follow")
@options.capture({"connection": options.COUNT})
@options.narrowed
@options.count
@click.option(
    "--as", "form", type=click.Choice(["line", "hex", "tree"]), help="How each message is shown."
)
@options.secrets
@options.report
def command(request: Request, form: str | None, secrets: bool | None) -> int:
    """Show the reliable messages of a connection in order, once each.

    Messages are in the order of their numbers, with the time of the first copy, and a colour
    for each side. Without CONNECTION, connection 1 is shown.

    \b
    netdissect follow game.pcap 2 | less -R
    """
    from netdissect.cli.read import shown  # noqa: PLC0415
    from netdissect.pipeline.delivery import delivered  # noqa: PLC0415
    from netdissect.pipeline.passwords import mask_passwords  # noqa: PLC0415

    one_view(("--json", request.as_json), ("--as", form))
    with request.session(streams=True) as session:
        session.only = frozenset({request.connection or 1})
        match = request.match(session)
        session.hold = request.as_json or match.waits
        records = (
            record
            for record in session.of_connection(request.connection, session.records())
            if record.connection == (request.connection or 1)
        )
        found = (
            (record, item)
            for record, item in delivered(records)
            if match.datagram(record, session.first_ns) and item in match.messages(record)
        )
        visible = shown(secrets, request.as_json)
        rows = islice(
            ((record if visible else mask_passwords(record), item) for record, item in found),
            request.limit,
        )
        if request.as_json:
            from netdissect.export import json  # noqa: PLC0415

            print_json((json.message(record, item) for record, item in rows), flush=session.live)
        else:
            from netdissect.render.follow import FollowView  # noqa: PLC0415

            clock = request.clock()
            view = FollowView(request.look.screen(flush=session.live), clock, form or "line")
            for record, item in rows:
                clock.first_ns = session.first_ns
                view.show(record, item)
        session.say_unrecognised()
        return session.status()
