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
            {"schema": 1, "check": one.name, "good": one.good, "text": one.text,
             "remedy": one.remedy or None}
            for one in found
        )  # fmt: skip
    else:
        show_checks(look.screen(), [(one.name, one.good, one.text, one.remedy) for one in found])
