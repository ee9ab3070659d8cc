"""`netdissect protocols`: the supported protocols and dialects."""

from __future__ import annotations

import click

from netdissect.cli import options
from netdissect.cli.complete import PROTOCOL
from netdissect.cli.output import Look, print_json
from netdissect.cli.paging import paged


@click.command("protocols")
@click.argument("protocol", required=False, type=PROTOCOL)
@options.json_output
@paged
@options.screen
def command(protocol: str | None, as_json: bool, look: Look) -> None:
    """List the protocols, their dialects, ports and message types.

    Message types are only listed if a PROTOCOL is named.

    \b
    netdissect protocols teeworlds
    """
    from netdissect import lookup  # noqa: PLC0415
    from netdissect.export import json  # noqa: PLC0415
    from netdissect.render.catalogs import show_protocols  # noqa: PLC0415

    infos = lookup.protocol_infos()
    if protocol is not None:
        lookup.known_protocols([protocol])
        infos = [info for info in infos if info.name == protocol]
    if as_json:
        print_json(json.protocol(info) for info in infos)
    else:
        show_protocols(look.screen(), infos, types=protocol is not None)
