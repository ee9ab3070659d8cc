"""`netdissect explain`: explains findings."""

from __future__ import annotations

import click

from netdissect.cli import options
from netdissect.cli.output import Look, print_json
from netdissect.cli.paging import paged
from netdissect.model.text import quoted


@click.command("explain")
@click.argument("code", required=False)
@options.json_output
@paged
@options.screen
def command(code: str | None, as_json: bool, look: Look) -> None:
    """Explain a finding of `anomalies` by its code.

    Without a code, all findings are listed.

    \b
    netdissect explain retransmission
    """
    from netdissect import lookup  # noqa: PLC0415
    from netdissect.export import json  # noqa: PLC0415
    from netdissect.model.errors import UsageError, did_you_mean  # noqa: PLC0415
    from netdissect.render.findings import show_catalogue, show_code  # noqa: PLC0415

    rows = lookup.catalogue()
    if code is not None and code not in rows:
        hint = did_you_mean(code, rows) or "; `netdissect explain` lists them"
        raise UsageError(f"no finding is called {quoted(code)}{hint}")
    chosen = list(rows.values()) if code is None else [rows[code]]
    if as_json:
        print_json(json.code(row) for row in chosen)
    elif code is None:
        show_catalogue(look.screen(), chosen)
    else:
        show_code(look.screen(), chosen[0])
