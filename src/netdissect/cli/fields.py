"""`netdissect fields`: the names that filters and columns know."""

from __future__ import annotations

import click

from netdissect.cli import options
from netdissect.cli.complete import PROTOCOL
from netdissect.cli.output import Look, print_json
from netdissect.cli.paging import paged
from netdissect.model.text import quoted

__all__ = ["command"]


@click.command("fields")
@click.argument("protocol", required=False, type=PROTOCOL)
@options.json_output
@paged
@options.screen
def command(protocol: str | None, as_json: bool, look: Look) -> None:
    """List the fields that filters and columns can name.

    With a protocol, only its own fields are listed.

    \b
    netdissect fields teeworlds | grep snap
    """
    from netdissect.cli.naming import names  # noqa: PLC0415
    from netdissect.export import json  # noqa: PLC0415
    from netdissect.model.errors import UsageError, did_you_mean  # noqa: PLC0415
    from netdissect.render.catalogs import show_fields  # noqa: PLC0415

    known = names()
    if protocol is not None and protocol not in known.protocols:
        near = did_you_mean(protocol, known.protocols)
        near = near or f"; known: {', '.join(sorted(known.protocols))}"
        raise UsageError(f"no protocol is called {quoted(protocol)}{near}")
    infos = [
        info for info in known.all() if protocol is None or info.name.partition(".")[0] == protocol
    ]
    if as_json:
        print_json(json.field(info) for info in infos)
    else:
        show_fields(look.screen(), infos)
