"""`netdissect replay`: a failure's steps sent again."""

from __future__ import annotations

from pathlib import Path

import click

from netdissect.cli import options
from netdissect.cli.errors import EXIT
from netdissect.cli.failures import monitors_of, target_of, trust_folder
from netdissect.cli.output import print_json
from netdissect.render.safe import safe
from netdissect.system.interrupt import at_once

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
    help="Monitors, as for `fuzz`.",
)
@trust_folder
@click.option(
    "--exact", is_flag=True, help="Send the octets of then, without fresh tokens and numbers."
)
@click.option(
    "--tries",
    type=click.IntRange(min=1),
    default=1,
    show_default=True,
    metavar="N",
    help="Do so N times, and say in how many the target failed: races do not fail each time.",
)
@options.json_output
def command(
    folder: Path,
    target: str | None,
    i_own_this_host: bool,
    monitors: tuple[str, ...],
    trust_folder: bool,
    exact: bool,
    tries: int,
    as_json: bool,
) -> None:
    """Send the steps of a failure folder again, in new connections; exit status 7 if it fails
    again.

    Tokens, sequence numbers and acknowledgements are those of the new connections, except where the
    mutation was about them.

    \b
    netdissect replay fuzz-riptide-1/failures/001-exit --monitor 'exec:./server --port 7777'
    """
    from netdissect.fuzz import load_failure, replay_tries  # noqa: PLC0415 - imports scapy

    failure = load_failure(folder)
    where = target_of(failure, target, own_host=i_own_this_host)
    watchers = monitors_of(failure, monitors, trusted=trust_folder)
    with at_once():
        replayed = replay_tries(failure, where, tries, monitors=watchers, exact=exact)
    verdict, sent = replayed.verdict, replayed.sent
    if as_json:
        row = {
            "schema": 1,
            "steps": len(failure.steps),
            "sent": len(sent),
            "failed": verdict is not None,
            "tries": tries,
            "failures": replayed.failures,
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
        found_text = f"{verdict.kind}: {safe(verdict.detail)}"
        click.echo(f"{len(sent)} of {len(failure.steps)} steps sent: {found_text}")
    if tries > 1 and not as_json:
        click.echo(f"failed in {replayed.failures} of {tries} tries")
    if verdict is not None:
        raise click.exceptions.Exit(EXIT.FOUND)
