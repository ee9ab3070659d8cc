"""`netdissect join`: what happened to each datagram between two captures."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click

from netdissect.cli import options
from netdissect.cli.capture_pair import NO_STDIN
from netdissect.cli.complete import FILE
from netdissect.cli.output import Look, cut_short, print_json, refuse_input_as_output
from netdissect.cli.session import Choices
from netdissect.cli.spans import Part, check_joined_start, no_such_connection
from netdissect.system import sandbox

if TYPE_CHECKING:
    from netdissect.join import Link


@click.command("join")
@click.argument("files", nargs=-1, required=True, metavar="A B [C ...]", type=FILE)
@click.option(
    "-w",
    "--write",
    "target",
    metavar="FILE",
    type=click.Path(dir_okay=False),
    help="Write all frames to one pcapng file, on one clock, with their fates as comments.",
)
@options.flag("--datagrams", help="With --json, also print an object for each frame compared.")
@options.part
@options.facts
def command(
    files: tuple[str, ...],
    target: str | None,
    datagrams: bool,
    part: Part,
    as_json: bool,
    choices: Choices,
    look: Look,
) -> int:
    """Join captures of one conversation, and show what the network between them did.

    Matches datagrams by their contents, and aligns the clocks. Shows true loss, duplicates,
    reordering, one-way delay, and how many retransmissions were needed, for each direction.
    Captures that do not belong together are refused.

    --from, --to and --around restrict the figures to datagrams sent in that time, --connection
    to a connection of A.

    \b
    netdissect join client.pcap server.pcap
    """
    from netdissect.join import close_all, join_all, write_joined  # noqa: PLC0415

    if len(files) < 2:  # noqa: PLR2004 - nothing to join
        raise click.UsageError("Give two captures, one from each side.")
    if "-" in files:
        raise click.UsageError(NO_STDIN)
    if datagrams and not as_json:
        raise click.UsageError("--datagrams needs --json.")
    refuse_input_as_output(target or "-", files)
    sandbox.confine()
    links = join_all(files, options=choices.options(), span=(part.start, part.end))
    try:
        check_joined_start([link.joined for link in links], part)
        for link in links:
            _keep(link, part.connections)
        if target is not None:
            write_joined(files, links, target)
        if as_json:
            print_json(_objects(links, datagrams=datagrams))
        # With `-w -`, standard output is the capture.
        elif target != "-":
            _show(links, look.screen())
        known = {info.path: info for link in links for info in link.joined.report.captures}
        return cut_short(known.values(), quiet=look.quiet)
    finally:
        close_all(links)


def _keep(link: Link, connections: tuple[int, ...]) -> None:
    """Keep only the conversations of these connections of the link's first capture."""
    report = link.joined.report
    for number in connections:
        if not any(number in one.connections[0] for one in report.conversations):
            raise no_such_connection(number, link.joined.reports[0])
    if connections:
        report.conversations[:] = [
            one
            for one in report.conversations
            if not set(connections).isdisjoint(one.connections[0])
        ]


def _objects(links: list[Link], *, datagrams: bool) -> Iterator[dict[str, Any]]:
    from netdissect.export import join  # noqa: PLC0415

    for link in links:
        captures = (link.first, link.second)
        yield from join.joined(link.joined.report, captures)
        numbers = {one.number for one in link.joined.report.conversations}
        for side in (0, 1) if datagrams else ():
            for frame, row in link.joined.fates(side, numbers):
                yield join.fate(captures[side], frame, row)


def _show(links: list[Link], screen: Any) -> None:
    from netdissect.render.join import capture_letter, show_join  # noqa: PLC0415

    for index, link in enumerate(links):
        if index:
            screen.line()
        letters = (capture_letter(link.first), capture_letter(link.second))
        show_join(screen, link.joined.report, letters)
