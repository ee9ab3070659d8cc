"""`netdissect browse`: a capture in a full-screen view."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import IO, TYPE_CHECKING, Any

import click

from netdissect.cli import options
from netdissect.cli.complete import FILE, INTERFACE
from netdissect.cli.errors import LenientText
from netdissect.cli.output import Look
from netdissect.cli.session import Choices, Session
from netdissect.cli.spans import PART, Whole
from netdissect.model.errors import UsageError
from netdissect.system import interrupt, lean, sandbox

if TYPE_CHECKING:
    from netdissect.cli.file_backend import FileBackend

MAX_PIPED = 4_000_000_000
"""Maximum number of bytes copied from standard input to a temporary file."""


@click.command("browse")
@options.capture(optional=True)
@click.option(
    "-i",
    "--interface",
    metavar="IFACE",
    type=INTERFACE,
    help="Capture on an interface and browse while the capture runs.",
)
@options.capture_filter
@click.option(
    "-w", "--write", metavar="FILE", type=FILE, help="Write the captured packets to this file."
)
@click.option(
    "--keep",
    metavar="MB",
    type=Whole(8, 1_000_000),
    help="Megabytes of a running capture to keep; the oldest packets beyond that are dropped."
    "  [default: 4000]",
)
@options.run_as
@options.narrowed
@options.flag("--ascii", "plain", help="Use only ASCII characters.")
@options.flag("--no-mouse", help="Leave the mouse to the terminal.")
@options.analysis
@options.screen
def command(
    file: str | None,
    interface: str | None,
    display_filter: str | None,
    plain: bool,
    no_mouse: bool,
    choices: Choices,
    look: Look,
    **running: Any,
) -> int:
    """Browse a capture in a full-screen view: connections with their verdicts,
    packets with tree and bytes, time, plots and findings.

    All five views share one selection and one filter. `?` lists the keys. If standard output
    is not a terminal, it prints the same as `connections`.

    \b
    netdissect browse game.pcap
    netdissect browse -i eth0 -f 'udp port 8303'
    netdissect browse game.pcap -Y 'msg.resend'
    """
    from netdissect.cli.request import compiled  # noqa: PLC0415

    if (file is None) == (interface is None):
        raise click.UsageError("Give either FILE (`-` reads standard input) or -i IFACE.")
    if interface is None and any(running.values()):
        raise click.UsageError("-f, -w, --keep and --user need a live capture: -i IFACE.")
    if display_filter is not None:
        compiled(display_filter)
    if interface is None:
        sandbox.confine()  # before any thread is started, so that all threads inherit it
    lean.lean()
    if not sys.stdout.isatty():
        if file is None:
            raise click.UsageError("browse -i needs a terminal; `netdissect sniff` does not.")
        from netdissect.cli.connections import print_connections  # noqa: PLC0415

        with Session(file, choices, quiet=look.quiet) as session:
            print_connections(session, display_filter, look)
            return session.status()
    with ExitStack() as stack:
        if interface is not None:
            from netdissect.cli.live_backend import live_backend  # noqa: PLC0415

            capture = live_backend(interface, choices, quiet=look.quiet, **running)
            backend: FileBackend = stack.enter_context(capture)
        else:
            backend = stack.enter_context(_file_backend(str(file), choices))
        from netdissect.browse.app import BrowserApp  # noqa: PLC0415
        from netdissect.browse.browser import Browser  # noqa: PLC0415

        if look.color == "never":
            # Textual reads nothing else.
            os.environ["NO_COLOR"] = "1"
        browser = Browser(backend, plain=plain, expression=display_filter or "")
        with _screen():
            app = BrowserApp(browser)
            app.run(mouse=not no_mouse)
        interrupt.check()
    # The user has seen where the capture ends: no error for a part beyond it.
    click.get_current_context().meta.pop(PART, None)
    return app.browser.backend.status()


@contextmanager
def _screen() -> Iterator[None]:
    """Make Textual draw on standard output, even after `2>FILE`.

    Textual writes in a thread; an error there would end it, and the drawing code would then wait
    for ever. The stream therefore ignores errors.
    """
    before = sys.__stderr__
    with LenientText(os.fdopen(os.dup(1), "wb"), encoding="utf-8") as screen:
        sys.__stderr__ = screen  # type: ignore[misc] # the stream that Textual uses
        try:
            yield
        finally:
            sys.__stderr__ = before  # type: ignore[misc]


def _copied(source: IO[bytes], copy: IO[bytes]) -> bool:
    """Copy up to MAX_PIPED bytes; return whether more would follow."""
    left = MAX_PIPED
    while left and (piece := source.read(min(left, 1 << 20))):
        copy.write(piece)
        left -= len(piece)
    return not left and bool(source.read(1))


@contextmanager
def _file_backend(file: str, choices: Choices) -> Iterator[FileBackend]:
    """Provide the backend for a file.

    Standard input is copied to a temporary file, and keys are then read from the terminal.
    """
    from netdissect.cli.file_backend import FileBackend  # noqa: PLC0415

    if file != "-":
        yield FileBackend(file, choices)
        return
    with tempfile.NamedTemporaryFile(prefix="netdissect-", suffix=".pcap") as copy:
        more = _copied(sys.stdin.buffer, copy)
        copy.flush()
        try:
            terminal = os.open("/dev/tty", os.O_RDWR)
        except OSError as error:
            raise UsageError("browse reads keys from a terminal, and there is none") from error
        # Textual reads keys from descriptor 0, which was the capture.
        os.dup2(terminal, 0)
        os.close(terminal)
        piped = MAX_PIPED if more else None
        yield FileBackend(copy.name, choices, piped=piped, name="standard input")
