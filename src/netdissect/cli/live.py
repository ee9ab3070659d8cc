"""A session on a running capture: signals, dropped packets, exit status."""

from __future__ import annotations

import errno
import os
import signal
import sys
from collections.abc import Iterable
from contextlib import suppress
from importlib import import_module
from types import FrameType
from typing import TYPE_CHECKING, Any, Self

from netdissect.cli.errors import EXIT
from netdissect.cli.session import Choices, Session
from netdissect.model.errors import AccessError, CaptureFileError
from netdissect.render.safe import safe
from netdissect.system import interrupt

if TYPE_CHECKING:
    from netdissect.pipeline.live import LiveFeed

_LATE = (
    "hashlib",
    "netdissect.cli.progress",
    "netdissect.cli.read",
    "netdissect.dissect.packet_scope",
    "netdissect.dissect.steps",
    "netdissect.pipeline.iterate",
    "netdissect.pipeline.passwords",
    "netdissect.render.read",
    "netdissect.render.units",
    "unicodedata",
)
"""Modules that are otherwise imported only when the capture runs."""


class LiveSession(Session):
    """A capture that runs until it is stopped; use as a context manager, then call `status`."""

    keeps_reports = False
    """A capture may run for days, and its list of reports is not used."""

    def __init__(self, feed: LiveFeed, choices: Choices, *, write: str | None, quiet: bool) -> None:
        """Take a running capture.

        Args:
            feed: the capture.
            choices: how datagrams are decoded.
            write: the file it is written to; None = not written.
            quiet: print only errors on standard error.

        """
        super().__init__("-", choices, quiet=quiet, streams=True, reader=feed)
        self.feed = feed
        self._write = write
        self._ended = False
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Self:
        """Install signal handlers: the first signal ends the capture, the second the output."""
        for number in interrupt.heard():
            self._before[number] = signal.signal(number, self._signalled)
        if interrupt.take():  # a signal arrived while the capture was opened
            self._signalled(signal.SIGINT, None)
        return self

    def _signalled(self, number: int, frame: FrameType | None) -> None:
        del number, frame
        if self._ended:
            raise KeyboardInterrupt
        self._ended = True
        self.feed.stop()

    def close(self) -> None:
        """Finish the file and report dropped packets."""
        # A signal must not interrupt the cleanup.
        self._ended = False
        for number in self._before:
            signal.signal(number, signal.SIG_IGN)
        try:
            self.feed.close()
            self._say_counts()
        finally:
            for which, before in self._before.items():
                signal.signal(which, before)

    def __exit__(self, *error: object) -> bool:
        """Close it; an end by the user is not a failure."""
        self.close()
        _, raised, _ = error
        # Writing to a closed terminal fails with EIO.
        hung_up = isinstance(raised, OSError) and raised.errno == errno.EIO
        return isinstance(raised, KeyboardInterrupt) or hung_up

    @property
    def ended(self) -> bool:
        """Return whether a signal has ended the capture."""
        return self._ended

    def end_if_unseen(self) -> None:
        """Stop the capture if the terminal or the reader of the output is gone."""
        if not self._ended:
            interrupt.hang_up()

    def say(self, text: str) -> None:
        """Print a line on standard error, ignoring write errors."""
        if not self.quiet and text:
            with suppress(OSError):
                print(f"netdissect: {safe(text)}", file=sys.stderr, flush=True)  # noqa: T201

    def _say_counts(self) -> None:
        feed = self.feed
        kernel = "an unknown number" if feed.kernel_drops is None else f"{feed.kernel_drops:,}"
        plural = "" if feed.packets == 1 else "s"
        text = f"{feed.packets:,} packet{plural}, "
        if feed.live:  # the kernel drops nothing that is read from a file
            text += f"{kernel} dropped by kernel, "
        text += f"{feed.own_drops:,} {'' if feed.live else 'dropped '}by netdissect"
        if feed.own_drops and self._write is not None:
            text += " (not shown; they are in the file)"
        self.say(text)
        for sentence in feed.missing if feed.error is None else ():
            self.say(f"not complete: {sentence}")

    def status(self) -> int:
        """Return the exit status: EXIT.CUT_SHORT also if any packet was dropped.

        Raises:
            AccessError: the interface disappeared.
            CaptureFileError: a file could not be read or written.

        """
        error = self.feed.error
        if isinstance(error, OSError):
            # The program that read the capture has exited, which is not a failure.
            if self._write == "-" and error.errno == errno.EPIPE:
                return EXIT.DONE
            reason = error.strerror or str(error)
            raise CaptureFileError(f"{self._write}: {reason}; everything written before is intact")
        if error is not None:
            raise error
        if self.feed.fault is not None:
            raise (AccessError if self.feed.live else CaptureFileError)(self.feed.fault)
        status = super().status()
        return EXIT.CUT_SHORT if status == EXIT.DONE and not self.feed.complete else status


def load(choices: Choices, late: Iterable[str]) -> None:
    """Check the choices before anything is captured. As root, also import everything that is
    otherwise imported late: the user that parses may not be able to read root's files.
    """
    choices.options()
    if os.geteuid() != 0:
        return
    from netdissect import lookup  # noqa: PLC0415
    from netdissect.render.console import cells  # noqa: PLC0415

    cells("→")  # reads a table of widths
    lookup.catalogue()
    lookup.load_layers()
    lookup.load_schemas(choices.schemas)
    for name in (*_LATE, *late):
        import_module(name)
