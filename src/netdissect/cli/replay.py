"""`netdissect replay`: sends the steps of a failure again."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from netdissect.cli import options
from netdissect.cli.errors import EXIT
from netdissect.cli.failures import failed_before
from netdissect.cli.output import print_json
from netdissect.render.safe import safe
from netdissect.system.interrupt import at_once

if TYPE_CHECKING:
    from netdissect.fuzz import Failure, Target


@click.command("replay")
@failed_before("Monitors as for `fuzz`.")
@options.flag("--exact", help="Send the recorded bytes without new tokens and numbers.")
@options.number("--tries", 1, "Replay N times and count the failures, as races do not always fail.")
@options.json_output
def command(
    failure: Failure,
    where: Target,
    watchers: tuple[str, ...],
    exact: bool,
    tries: int,
    as_json: bool,
) -> None:
    """Send the steps of a failure folder again, in new connections.

    The exit status is 7 if the target fails again. Tokens, sequence numbers and acknowledgements
    are those of the new connections, except for mutated ones.

    \b
    netdissect replay fuzz-riptide-1/failures/001-exit --monitor 'exec:./server --port 7777'
    """
    from netdissect.fuzz import replay_tries  # noqa: PLC0415 - imports scapy

    with at_once():
        replayed = replay_tries(failure, where, tries, monitors=watchers, exact=exact)
    verdict, sent = replayed.verdict, replayed.sent
    if as_json:
        print_json([{
            "schema": 1,
            "steps": len(failure.steps),
            "sent": len(sent),
            "failed": verdict is not None,
            "tries": tries,
            "failures": replayed.failures,
            "kind": None if verdict is None else verdict.kind,
            "detail": None if verdict is None else verdict.detail,
        }])  # fmt: skip
    else:
        found = "the target did not fail"
        if verdict is not None:
            found = f"{verdict.kind}: {safe(verdict.detail)}"
        click.echo(f"{len(sent)} of {len(failure.steps)} steps sent: {found}")
        if tries > 1:
            kind = failure.facts.get("signature")
            others = sum(each is not None and each.signature != kind for each in replayed.verdicts)
            also = f", in {others} of them not as recorded" if others else ""
            click.echo(f"failed in {replayed.failures} of {tries} tries{also}")
    if verdict is not None:
        raise click.exceptions.Exit(EXIT.FOUND)
