"""The operand FOLDER of `replay` and `minimise`: a failure folder, which may not be trusted."""

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

_F = TypeVar("_F", bound=Callable[..., Any])

answer = click.option(
    "--answer",
    "answer_seconds",
    type=Amount(min=0.05),
    default=2.0,
    show_default=True,
    metavar="SECONDS",
    help="A target that does not answer for this long counts as failed.",
)


def failed_before(monitors: str) -> Callable[[_F], _F]:
    """Add FOLDER, the target and its monitors, passed as keywords `failure`, `where`, `watchers`.

    Args:
        monitors: help of `--monitor`.

    """

    def decorate(function: _F) -> _F:
        @click.argument("folder", type=click.Path(path_type=Path))
        @click.option(
            "--target", metavar="HOST:PORT", help="The server; by default the target of the run."
        )
        @options.own_host
        @options.repeated("--monitor", "given", metavar="KIND:...", help=monitors)
        @options.flag(
            "--trust-folder",
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
    """Return the monitors of the command line, or those of the folder if it is trusted.

    The folder's monitors are always shown, so that the user knows what would be trusted.

    Raises:
        UsageError: both are given.

    """
    if trusted and given:
        raise UsageError("give --monitor or --trust-folder, not both")
    if failure.monitors and not given:
        text = "monitor of the folder" if trusted else "not used without --trust-folder"
        for each in failure.monitors:
            click.echo(f"netdissect: {text}: {safe(each)}", err=True)
    return failure.monitors if trusted else given


def _target_of(failure: Failure, given: str | None, *, own_host: bool) -> Target:
    """Return the target of the command line, otherwise the folder's if it is this machine.

    Raises:
        UsageError: not an address and port, or the folder would choose another machine.
        AccessError: another machine without --i-own-this-host.

    """
    from netdissect.fuzz import Target  # noqa: PLC0415 - imports scapy

    if own_host and given is None:
        raise UsageError("--i-own-this-host needs --target: a folder cannot choose the target")
    return Target.parse(given or str(failure.facts.get("target", "")), own_host=own_host)
