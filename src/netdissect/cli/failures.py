"""What `replay` and `minimise` take from a failure folder, which may come from somebody else."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from netdissect.model.errors import UsageError
from netdissect.render.safe import safe

if TYPE_CHECKING:
    from netdissect.fuzz import Failure, Target

__all__ = ["monitors_of", "target_of", "trust_folder"]

trust_folder = click.option(
    "--trust-folder",
    is_flag=True,
    help="Run the commands and watch the logs that the folder names; they are shown first.",
)


def monitors_of(failure: Failure, given: tuple[str, ...], *, trusted: bool) -> tuple[str, ...]:
    """Return the monitors to use: those of the command line, or the folder's where it is trusted.

    The folder's are shown in any case, so that nobody trusts what they have not seen.

    Raises:
        UsageError: both are asked for.

    """
    if trusted and given:
        raise UsageError("give --monitor or --trust-folder, not both")
    if failure.monitors and not given:
        text = "monitor of the folder" if trusted else "not used without --trust-folder"
        for each in failure.monitors:
            click.echo(f"netdissect: {text}: {safe(each)}", err=True)
    return failure.monitors if trusted else given


def target_of(failure: Failure, given: str | None, *, own_host: bool) -> Target:
    """Return where to send: what the command line says, else this machine at the folder's port.

    Raises:
        UsageError: no address and port, or a folder would say which host is attacked.
        AccessError: another machine, without the word that it is the user's.

    """
    from netdissect.fuzz import Target  # noqa: PLC0415 - imports scapy

    if own_host and given is None:
        raise UsageError("--i-own-this-host wants --target: a folder does not say whom to attack")
    return Target.parse(given or str(failure.facts.get("target", "")), own_host=own_host)
