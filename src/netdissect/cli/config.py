"""`netdissect config`: the settings in force."""

from __future__ import annotations

import click

from netdissect.cli import options
from netdissect.cli.output import Look, print_json


@click.group("config")
def command() -> None:
    """Show the settings in force and where each comes from.

    Precedence: option, environment variable, project file (netdissect.toml), user file, default.

    \b
    netdissect config show --origin
    netdissect config path
    """


@command.command("show")
@options.flag("--origin", help="Show where each value comes from.")
@options.json_output
@options.screen
def show(origin: bool, as_json: bool, look: Look) -> None:
    """Print every setting."""
    from netdissect.cli.settings import load  # noqa: PLC0415
    from netdissect.render.catalogs import show_settings  # noqa: PLC0415

    loaded = load()
    found = [(item.key.name, item.value, item.origin, item.key.meaning) for item in loaded.rows]
    if as_json:
        names = ("setting", "value", "origin", "meaning")
        print_json({"schema": 1, **dict(zip(names, row, strict=True))} for row in found)
        print_json({"schema": 1, "ignored": sentence} for sentence in loaded.ignored)
    else:
        ignored = loaded.ignored if origin else ()
        show_settings(look.screen(), found, ignored, origin=origin)


@command.command("path")
def path() -> None:
    """Print the path of the user file, whether or not it exists."""
    from netdissect.cli.settings import user_file  # noqa: PLC0415
    from netdissect.render.safe import safe  # noqa: PLC0415

    click.echo(safe(str(user_file())))
