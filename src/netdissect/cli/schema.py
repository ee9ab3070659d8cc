"""`netdissect schema`: the JSON Schema of what `--json` prints."""

from __future__ import annotations

import click

from netdissect.cli.complete import JSON_COMMAND


@click.command("schema")
@click.argument("name", metavar="[COMMAND]", required=False, type=JSON_COMMAND)
def command(name: str | None) -> None:
    """Print the JSON Schema (draft 2020-12) of the lines that a command prints with --json.

    Without COMMAND, it describes the lines of all commands. The layouts of user messages for the
    option --schema are a different format (docs/schemas.md).

    \b
    netdissect schema connections > connections.schema.json
    """
    import json  # noqa: PLC0415

    from netdissect.export.schema import output_schema  # noqa: PLC0415

    click.echo(json.dumps(output_schema(name), indent=1))
