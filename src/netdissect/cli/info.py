"""`netdissect info`: the facts of a capture file."""

from __future__ import annotations

import click

from netdissect.cli import options
from netdissect.cli.output import make_screen, print_json
from netdissect.cli.session import Choices, Session

__all__ = ["command"]


@click.command("info")
@options.capture()
@options.json_output
@options.analysis
@options.screen
def command(
    file: str,
    as_json: bool,
    choices: Choices,
    color: str,
    width: int | None,
    quiet: bool,
    verbose: bool,
) -> int:
    """Show the facts of a capture file and the protocols in it."""
    del verbose
    with Session(file, choices, quiet=quiet) as session:
        found = session.analysis()
        protocols = {
            name: (counts["datagrams"], counts["connections"])
            for name, counts in found.protocols.items()
        }
        if as_json:
            from netdissect.export import json  # noqa: PLC0415

            print_json([json.capture_info(found.info, protocols, found.other_datagrams)])
        else:
            from netdissect.render.catalogs import show_info  # noqa: PLC0415

            show_info(make_screen(color, width), found.info, protocols, found.other_datagrams)
        return session.status()
