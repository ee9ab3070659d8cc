"""`netdissect browse`: a capture on the whole terminal."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager

import click

from netdissect.cli import options
from netdissect.cli.complete import INTERFACE
from netdissect.cli.session import Choices, Session
from netdissect.model.errors import UsageError

__all__ = ["command"]

MAX_PIPED = 4_000_000_000
"""Bytes of standard input that are copied to a file at most."""


@click.command("browse")
@options.capture(optional=True)
@click.option(
    "-i",
    "--interface",
    metavar="IFACE",
    type=INTERFACE,
    help="Not yet: says how to look at an interface instead.",
)
@options.display_filter
@click.option("--ascii", "plain", is_flag=True, help="Signs of ASCII only.")
@click.option("--no-mouse", is_flag=True, help="Leave the mouse to the terminal.")
@options.analysis
@options.screen
def command(
    file: str | None,
    interface: str | None,
    display_filter: str | None,
    plain: bool,
    no_mouse: bool,
    choices: Choices,
    color: str,
    width: int | None,
    quiet: bool,
    verbose: bool,
) -> int:
    """Look around in a capture on the whole terminal: connections with their verdicts, packets with
    tree and bytes, time, plots and findings.

    One selection goes through all five views, one filter holds for all. `?` lists the keys. Without
    a terminal on standard output it prints what `connections` prints.

    \b
    netdissect browse game.pcap
    netdissect browse game.pcap -Y 'msg.resend'
    """
    del verbose
    from netdissect.cli.browsing import Browsed, refuse_live  # noqa: PLC0415
    from netdissect.cli.naming import names  # noqa: PLC0415
    from netdissect.filters import compile_filter  # noqa: PLC0415

    if interface is not None:
        raise refuse_live(interface)
    if file is None:
        raise click.UsageError("Missing capture FILE (`-` reads standard input).")
    if not sys.stdout.isatty():
        return _printed(file, display_filter, choices, color, width, quiet=quiet)
    with _named(file) as name:
        backend = Browsed(name, choices)
        if display_filter is not None:
            compile_filter(display_filter, names())
        from netdissect.browse.app import BrowserApp  # noqa: PLC0415
        from netdissect.browse.browser import Browser  # noqa: PLC0415

        if color == "never":
            os.environ["NO_COLOR"] = "1"
        browser = Browser(backend, plain=plain, expression=display_filter or "")
        BrowserApp(browser).run(mouse=not no_mouse)
        return backend.status()


def _printed(
    file: str,
    display_filter: str | None,
    choices: Choices,
    color: str,
    width: int | None,
    *,
    quiet: bool,
) -> int:
    from netdissect.cli.connections import print_connections  # noqa: PLC0415

    with Session(file, choices, quiet=quiet) as session:
        print_connections(session, display_filter, color, width)
        return session.status()


@contextmanager
def _named(file: str) -> Iterator[str]:
    """Give the name of the file; of standard input that of a copy, and take keys from the
    terminal.
    """
    if file != "-":
        yield file
        return
    with tempfile.NamedTemporaryFile(prefix="netdissect-", suffix=".pcap") as copy:
        left = MAX_PIPED
        while left and (piece := sys.stdin.buffer.read(min(left, 1 << 20))):
            copy.write(piece)
            left -= len(piece)
        copy.flush()
        try:
            terminal = os.open("/dev/tty", os.O_RDWR)
        except OSError as error:
            raise UsageError("browse takes keys from the terminal, and there is none") from error
        os.dup2(terminal, 0)
        os.close(terminal)
        yield copy.name
