"""`netdissect minimise`: reduces a failure to the fewest steps."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from netdissect.cli import options
from netdissect.cli.failures import answer, failed_before
from netdissect.cli.output import print_json
from netdissect.render.safe import safe
from netdissect.system.interrupt import at_once

if TYPE_CHECKING:
    from netdissect.fuzz import Failure, Target


@click.command("minimise")
@failed_before("Monitors as for `fuzz`; one must be exec:.")
@options.number("--trials", 400, "Maximum number of replays.", options.Count(min=2))
@options.number(
    "--tries", 1, "Try each list N times before it counts as harmless, as races do not always fail."
)
@answer
@options.json_output
@options.quiet
def command(
    failure: Failure,
    where: Target,
    watchers: tuple[str, ...],
    trials: int,
    tries: int,
    answer_seconds: float,
    as_json: bool,
    quiet: bool,
) -> None:
    """Reduce the steps of a failure folder by delta debugging, then the bytes of the rest.

    The target is restarted after every failure. The result is the folder `minimal` inside
    the failure folder, which can be replayed as well.

    \b
    netdissect minimise fuzz-riptide-1/failures/001-exit --monitor 'exec:./server --port 7777'
    """
    from netdissect.fuzz import minimise_failure  # noqa: PLC0415 - imports scapy

    live = sys.stderr.isatty() and not quiet

    def progress(done: int, left: int) -> None:
        if live:
            click.echo(f"\r{done} trials, {left} steps left\x1b[K", err=True, nl=False)

    with at_once():
        result, path = minimise_failure(
            failure,
            where,
            monitors=watchers,
            trials=trials,
            tries=tries,
            answer_seconds=answer_seconds,
            progress=progress,
        )
    if live:
        click.echo(err=True)
    if as_json:
        print_json([{
            "schema": 1,
            "from": len(failure.steps),
            "to": len(result.steps),
            "trials": result.trials,
            "complete": result.complete,
            "failed": result.failed,
            "tries": result.tries,
            "folder": str(path),
            "steps": [each.to_json() for each in result.steps],
        }])  # fmt: skip
    else:
        _show(failure, result, path)


def _show(failure: Any, result: Any, path: Path) -> None:
    steps = result.steps
    click.echo(f"{len(failure.steps)} steps -> {len(steps)} in {result.trials} trials: {path}")
    for each in steps:
        size = f"{len(each.octets)} bytes: {each.octets[:32].hex()}"
        click.echo(f"  {safe(each.stage)}: {safe(each.step.type)}, {size}")
    if result.tries > 1:
        click.echo(f"failed in {result.failed} of {result.tries} tries")
    if not result.complete:
        click.echo("stopped after the maximum number of trials (--trials)", err=True)
