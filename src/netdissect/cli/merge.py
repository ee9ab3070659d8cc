"""`netdissect merge`: merges captures into one."""

from __future__ import annotations

from contextlib import ExitStack

import click

from netdissect.cli import options
from netdissect.cli.complete import FILE
from netdissect.cli.output import Look, refuse_input_as_output, summarise, write_option
from netdissect.system import sandbox


@click.command("merge")
@click.argument("files", nargs=-1, required=True, metavar="FILE...", type=FILE)
@write_option
@options.screen
def command(files: tuple[str, ...], target: str, look: Look) -> int:
    """Merge captures in time order; the result is always pcapng.

    Interfaces, time resolution and packet options are kept.

    \b
    netdissect merge server-1.pcap server-2.pcapng.gz -w both.pcapng
    """
    from netdissect.capture.blocks import BlockReader  # noqa: PLC0415
    from netdissect.edit import merge  # noqa: PLC0415

    refuse_input_as_output(target, files)
    sandbox.confine()
    with ExitStack() as stack:
        readers = [(file, stack.enter_context(BlockReader(file))) for file in files]
        done = merge(readers, target)
    text = f"{done.frames:,} frames of {done.interfaces:,} interfaces written to {target}"
    if done.disordered:
        text += f"; {done.disordered:,} are out of order in their own file"
    if done.untimed:
        text += f"; {done.untimed:,} had no timestamp and have that of the frame before them"
    if done.left_out:
        text += f"; {done.left_out:,} blocks other than frames and interfaces left out"
    return summarise(text, [reader for _, reader in readers], quiet=look.quiet)
