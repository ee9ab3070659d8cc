"""`netdissect fields`: the fields for filters and columns."""

from __future__ import annotations

import click

from netdissect.cli import options
from netdissect.cli.complete import PROTOCOL
from netdissect.cli.output import Look, print_json
from netdissect.cli.paging import paged


@click.command("fields")
@click.argument("protocol", required=False, type=PROTOCOL)
@options.json_output
@paged
@options.screen
def command(protocol: str | None, as_json: bool, look: Look) -> None:
    """List the fields that filters and columns can name.

    With a protocol, only its own fields are listed.

    \b
    netdissect fields teeworlds | grep tick
    """
    from netdissect.cli.request import filter_names  # noqa: PLC0415
    from netdissect.export import json  # noqa: PLC0415
    from netdissect.lookup import known_protocols  # noqa: PLC0415
    from netdissect.render.catalogs import show_fields  # noqa: PLC0415

    if protocol is not None:
        known_protocols([protocol])
    every = filter_names().all()
    infos = [info for info in every if protocol in (None, info.name.partition(".")[0])]
    if as_json:
        print_json(json.field(info) for info in infos)
    else:
        show_fields(look.screen(), infos)
