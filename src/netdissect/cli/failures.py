"""What `replay` and `minimise` take from a failure folder, which may come from somebody else."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from netdissect.cli import options
from netdissect.cli.spans import Amount
from netdissect.model.errors import UsageError
from netdissect.render.safe import safe

if TYPE_CHECKING:
    from netdissect.fuzz import Failure, Target

__all__ = ["answer", "failed_before"]

_F = TypeVar("_F", bound=Callable[..., Any])

answer = click.option(
    "--answer",
    "answer_seconds",
    type=Amount(min=0.05),
    default=2.0,
    show_default=True,
    metavar="SECONDS",
    help="A target that does not answer for this long has failed.",
)


def failed_before(monitors: str) -> Callable[[_F], _F]:
    """Add FOLDER and what its failure is sent to and watched with, handed over as keywords
    `failure`, `where` and `watchers`.

    Args:
        monitors: help on `--monitor`.

    """

    def decorate(function: _F) -> _F:
        @click.argument("folder", type=click.Path(path_type=Path))
        @click.option(
            "--target", metavar="HOST:PORT", help="Where to send; by default the target of the run."
        )
        @options.own_host
        @click.option("--monitor", "given", multiple=True, metavar="KIND:...", help=monitors)
        @click.option(
            "--trust-folder",
            is_flag=True,
            help="Run the commands and watch the logs named in the folder, after showing them.",
        )
        @wraps(function)
        def wrapper(
            folder: Path,
            target: str | None,
            i_own_this_host: bool,
            given: tuple[str, ...],
            trust_folder: bool,
            **rest: Any,
        ) -> Any:
            from netdissect.fuzz import load_failure  # noqa: PLC0415 - imports scapy

            failure = load_failure(folder)
            where = _target_of(failure, target, own_host=i_own_this_host)
            watchers = _monitors_of(failure, given, trusted=trust_folder)
            return function(failure=failure, where=where, watchers=watchers, **rest)

        return wrapper  # type: ignore[return-value]

    return decorate


def _monitors_of(failure: Failure, given: tuple[str, ...], *, trusted: bool) -> tuple[str, ...]:
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


def _target_of(failure: Failure, given: str | None, *, own_host: bool) -> Target:
    """Return where to send: what the command line says, else this machine at the folder's port.

    Raises:
        UsageError: no address and port, or a folder would say which host is attacked.
        AccessError: another machine, without the word that it is the user's.

    """
    from netdissect.fuzz import Target  # noqa: PLC0415 - imports scapy

    if own_host and given is None:
        raise UsageError("--i-own-this-host wants --target: a folder does not say whom to attack")
    return Target.parse(given or str(failure.facts.get("target", "")), own_host=own_host)
