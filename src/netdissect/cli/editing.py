"""What the commands that write captures share: the target, what was cut short, and the summary."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

import click

from netdissect.capture.blocks import BlockReader
from netdissect.cli.complete import FILE
from netdissect.cli.errors import EXIT
from netdissect.model.errors import UsageError
from netdissect.render.safe import safe

__all__ = ["fit_to_write", "say", "write_to"]

write_to = click.option(
    "-w",
    "--write-file",
    "target",
    metavar="FILE",
    required=True,
    type=FILE,
    help="Where to write; `-` is standard output.",
)


def fit_to_write(target: str, sources: Sequence[str]) -> None:
    """Refuse a target that is one of the sources: it would be emptied before it is read.

    Raises:
        UsageError: it is.

    """
    for source in sources:
        there = os.path.exists(target) and os.path.exists(source)  # noqa: PTH110 - as given
        # Not by name: a link, or another way to write the path, is the same file.
        if target != "-" and there and os.path.samefile(source, target):  # noqa: PTH121 - as above
            raise UsageError(f"{target} is read from: write to another file")


def say(text: str, readers: Sequence[BlockReader], *, quiet: bool) -> int:
    """Say on standard error what was done, and what of the sources could not be read; return the
    exit status.
    """
    damaged = [reader for reader in readers if reader.damage is not None]
    for reader in damaged if not quiet else ():
        print(  # noqa: T201 - the message of the contract
            f"netdissect: {safe(reader.path)} is cut short: {safe(reader.damage or '')}; everything"
            " before it was written",
            file=sys.stderr,
        )
    if not quiet:
        print(f"netdissect: {safe(text)}", file=sys.stderr)  # noqa: T201 - as above
    return EXIT.CUT_SHORT if damaged else EXIT.DONE
