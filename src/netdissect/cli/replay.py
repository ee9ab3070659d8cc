"""`netdissect replay`: a failure's steps sent again."""

from __future__ import annotations

from pathlib import Path

import click

from netdissect.cli import options
from netdissect.cli.errors import EXIT
from netdissect.cli.output import print_json

__all__ = ["command"]


@click.command("replay")
@click.argument("folder", type=click.Path(path_type=Path))
@click.option("--target", metavar="HOST:PORT", help="Where to send; by default that of the run.")
@options.own_host
@click.option(
    "--monitor",
    "monitors",
    multiple=True,
    metavar="KIND:...",
    help="Monitors, as for `fuzz`; by default those of the run.",
)
@click.option(
    "--exact", is_flag=True, help="Send the octets of then, without fresh tokens and numbers."
)
@options.json_output
def command(
    folder: Path,
    target: str | None,
    i_own_this_host: bool,
    monitors: tuple[str, ...],
    exact: bool,
    as_json: bool,
) -> None:
    """Send the steps of a failure folder again, in new connections; exit status 7 if it fails
    again.

    Tokens, sequence numbers and acknowledgements are those of the new connections, except where the
    mutation was about them.

    \b
    netdissect replay fuzz-riptide-1/failures/001-exit
    """
    from netdissect.fuzz import Target, load_failure, replay_failure  # noqa: PLC0415 - imports scapy

    failure = load_failure(folder)
    where = Target.parse(target or str(failure.facts.get("target", "")), own_host=i_own_this_host)
    verdict, sent = replay_failure(failure, where, monitors=monitors or None, exact=exact)
    if as_json:
        row = {
            "schema": 1,
            "steps": len(failure.steps),
            "sent": len(sent),
            "failed": verdict is not None,
        }
        found = (
            {"kind": verdict.kind, "detail": verdict.detail}
            if verdict
            else {"kind": None, "detail": None}
        )
        print_json([{**row, **found}])
    elif verdict is None:
        click.echo(f"{len(sent)} of {len(failure.steps)} steps sent: the target is well")
    else:
        click.echo(
            f"{len(sent)} of {len(failure.steps)} steps sent: {verdict.kind}: {verdict.detail}"
        )
    if verdict is not None:
        raise click.exceptions.Exit(EXIT.FOUND)
