"""`netdissect show`: all fields of one frame."""

from __future__ import annotations

from itertools import chain, islice

import click

from netdissect.cli import options
from netdissect.cli.output import print_json
from netdissect.cli.request import Request
from netdissect.model.errors import UsageError


@click.command("show")
@options.capture({"frame": options.COUNT})
@options.narrowed
@options.count
@options.flag("-x", "hexed", help="Also show the bytes, on the wire and decompressed.")
@click.option("--field", metavar="NAME", help="Highlight a field in the tree and in the bytes.")
@options.secrets
@options.report
def command(
    request: Request, frame: int | None, hexed: bool, field: str | None, secrets: bool | None
) -> int:
    """Show every field of one frame (or with -Y, of those that match) with its offset and size.

    Offsets are byte.bit; a quote after an offset means that it refers to a second buffer, such as
    decompressed bytes. Values in brackets are derived, not read from the bytes.

    \b
    netdissect show game.pcap 41 -x --field sequence_id
    netdissect show game.pcap -Y 'msg.resend' -c 3
    """
    if frame is None and request.display_filter is None:
        raise click.UsageError("Give the number of a FRAME, or a filter with -Y.")
    from netdissect.cli.read import shown  # noqa: PLC0415
    from netdissect.pipeline.passwords import mask_passwords  # noqa: PLC0415
    from netdissect.render.show import has_field, show_record  # noqa: PLC0415

    with request.session() as session:
        match = request.match(session)
        # Show the later fate of the frame's units as well.
        if match.reports is None:
            match.look_ahead(session)
        found = islice(
            (
                record
                for record in session.records()
                if (frame is None or frame == record.frame or frame in record.frames)
                and match.datagram(record, session.first_ns)
            ),
            request.limit,
        )
        # Fetch the first one now, so that a wrong number is refused before anything is printed.
        first = list(islice(found, 1))
        if not first and frame is not None:
            last = session.reader.info.frames
            if frame > last:
                raise UsageError(f"there is no frame {frame}: the capture has {last}")
            why = (
                "; it may be a fragment, or a TCP segment without data (SYN, ACK, FIN or RST)"
                if request.display_filter is None
                else " that matches"
            )
            raise UsageError(f"frame {frame} holds no datagram or message{why}")
        visible = shown(secrets, request.as_json)
        records = (record if visible else mask_passwords(record) for record in chain(first, found))
        if request.as_json:
            from netdissect.export import json  # noqa: PLC0415

            print_json(json.shown(record) for record in records)
        else:
            screen = request.look.screen()
            clock = request.clock(session.first_ns)
            for number, record in enumerate(records):
                if number:
                    screen.text()
                marks = field if frame is not None or has_field(record, field) else None
                show_record(screen, record, clock, hexed=hexed, field=marks)
        return session.status()
