"""`netdissect show`: one frame in full."""

from __future__ import annotations

import click

from netdissect.cli import options
from netdissect.cli.output import make_screen, print_json
from netdissect.cli.session import Choices, Session
from netdissect.model.errors import UsageError
from netdissect.model.records import DatagramRecord

__all__ = ["command"]


@click.command("show")
@options.capture({"frame": click.IntRange(min=1)}, required=1)
@click.option(
    "-x", "hexed", is_flag=True, help="The octets too: on the wire, and what was made of them."
)
@click.option("--field", metavar="NAME", help="Mark a field in the tree and in the octets.")
@options.json_output
@options.time_style
@options.analysis
@options.screen
def command(
    file: str,
    frame: int,
    hexed: bool,
    field: str | None,
    as_json: bool,
    times: str,
    choices: Choices,
    color: str,
    width: int | None,
    quiet: bool,
    verbose: bool,
) -> int:
    """Show one frame: every field with its place, and the octets.

    The place of a field is octet.bit and its width; a quote after it means a second buffer, such as
    decompressed octets. What is concluded and not read stands in brackets.

    \b
    netdissect show game.pcap 41 -x --field sequence_id
    """
    del verbose
    from netdissect.render.show import show_record  # noqa: PLC0415
    from netdissect.render.units import Clock  # noqa: PLC0415

    with Session(file, choices, quiet=quiet) as session:
        found = [record for record in session.records() if _holds(record, frame)]
        if not found:
            raise UsageError(f"frame {frame} holds no datagram or message that could be shown")
        if as_json:
            from netdissect.export import json  # noqa: PLC0415

            print_json(json.shown(record) for record in found)
        else:
            screen = make_screen(color, width)
            for record in found:
                show_record(
                    screen, record, Clock(times, session.first_ns), hexed=hexed, field=field
                )
        return session.status()


def _holds(record: DatagramRecord, frame: int) -> bool:
    return frame == record.frame or frame in record.frames
