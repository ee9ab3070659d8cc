"""`netdissect doctor`: checks the installation and the rights to capture."""

from __future__ import annotations

import click

from netdissect.cli import options
from netdissect.cli.output import Look, print_json


@click.command("doctor")
@options.json_output
@options.screen
def command(as_json: bool, look: Look) -> None:
    """Check versions, capture backends and rights. Paste the output into bug reports.

    \b
    netdissect doctor --json
    """
    from netdissect._version import __version__  # noqa: PLC0415
    from netdissect.lookup import doctor_checks  # noqa: PLC0415
    from netdissect.render.catalogs import show_checks  # noqa: PLC0415

    found = doctor_checks(__version__)
    if as_json:
        print_json(
            {
                "schema": 1,
                "check": item.name,
                "good": item.good,
                "text": item.text,
                "remedy": item.remedy or None,
            }
            for item in found
        )
    else:
        show_checks(
            look.screen(),
            [(item.name, item.good, item.text, item.remedy) for item in found],
        )
