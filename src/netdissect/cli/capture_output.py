"""What commands that write captures share: the option `-w`, checks of the target, the summary."""

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

write_option = click.option(
    "-w",
    "--write-file",
    "target",
    metavar="FILE",
    required=True,
    type=FILE,
    help="The file to write; `-` is standard output.",
)


def refuse_input_as_output(target: str, sources: Sequence[str]) -> None:
    """Refuse to write to a file that is also read: it would be truncated before it is read.

    Raises:
        UsageError: the target is one of the sources.

    """
    for source in sources:
        there = os.path.exists(target) and os.path.exists(source)  # noqa: PTH110 - as given
        # Not by name: links and different spellings of a path lead to the same file.
        if target != "-" and there and os.path.samefile(source, target):  # noqa: PTH121 - as above
            raise UsageError(f"{target} is also an input: write to another file")


def summarise(text: str, readers: Sequence[BlockReader], *, quiet: bool) -> int:
    """Report the result, and inputs that are cut short, on standard error; return the status."""
    damaged = [reader for reader in readers if reader.damage is not None]
    for reader in damaged if not quiet else ():
        print(  # noqa: T201 - the message of the contract
            f"netdissect: {safe(reader.path)} is cut short: {safe(reader.damage or '')}; everything"
            " before that was written",
            file=sys.stderr,
        )
    if not quiet:
        print(f"netdissect: {safe(text)}", file=sys.stderr)  # noqa: T201 - as above
    return EXIT.CUT_SHORT if damaged else EXIT.DONE
