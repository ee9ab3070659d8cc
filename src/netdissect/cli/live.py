"""A session over a running capture: signals, what is lost, and how it ended."""

from __future__ import annotations

import errno
import os
import signal
import sys
from collections.abc import Iterable
from contextlib import suppress
from importlib import import_module
from types import FrameType, TracebackType
from typing import TYPE_CHECKING, Any, Self

from netdissect.cli.errors import EXIT
from netdissect.cli.session import Choices, Session
from netdissect.model.errors import AccessError, CaptureFileError
from netdissect.render.safe import safe
from netdissect.system import interrupt

if TYPE_CHECKING:
    from netdissect.pipeline.live import LiveFeed

__all__ = ["LiveSession", "load"]

_LATE = (
    "hashlib",
    "netdissect.cli.read",
    "netdissect.pipeline.iterate",
    "netdissect.pipeline.passwords",
    "netdissect.render.read",
    "netdissect.render.units",
    "unicodedata",
)
"""Modules that every view of a capture needs only once it runs."""


class LiveSession(Session):
    """A capture that goes on until it is ended; use as a context manager, then ask for `status`."""

    keeps_reports = False
    """A capture may last for days, and nobody asks for the list."""

    def __init__(
        self,
        feed: LiveFeed,
        choices: Choices,
        *,
        write: str | None,
        quiet: bool,
    ) -> None:
        """Take a running capture.

        Args:
            feed: the capture.
            choices: how datagrams are understood.
            write: where it is written to; None for nowhere.
            quiet: nothing on standard error but errors.

        """
        super().__init__("-", choices, quiet=quiet, streams=True, reader=feed)
        self.feed = feed
        self._write = write
        self._ended = False
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Self:
        """Let Ctrl-C and its kin end the capture, and the second one its output as well."""
        for number in interrupt.heard():
            self._before[number] = signal.signal(number, self._signalled)
        if interrupt.take():  # while the capture was opened
            self._signalled(signal.SIGINT, None)
        return self

    def _signalled(self, number: int, frame: FrameType | None) -> None:
        del number, frame
        if self._ended:
            raise KeyboardInterrupt
        self._ended = True
        self.feed.stop()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool | None:
        """Finish the file and say what was lost. What a user ends is no failure."""
        # A signal in this very moment must not break off what follows.
        self._ended = False
        for number in self._before:
            signal.signal(number, signal.SIG_IGN)
        try:
            self.feed.close()
            self._say_counts()
        finally:
            for which, before in self._before.items():
                signal.signal(which, before)
        # What a terminal gives that has gone.
        hung_up = isinstance(error, OSError) and error.errno == errno.EIO
        return isinstance(error, KeyboardInterrupt) or hung_up

    @property
    def ended(self) -> bool:
        """Return whether a signal has ended the capture."""
        return self._ended

    def end_if_unseen(self) -> None:
        """End the capture where nobody is left to see its lines."""
        if not self._ended:
            interrupt.hang_up()

    def say(self, text: str) -> None:
        """Print a line on standard error, unless there is nobody to read it."""
        if not self.quiet and text:
            with suppress(OSError):
                print(f"netdissect: {safe(text)}", file=sys.stderr, flush=True)  # noqa: T201

    def _say_counts(self) -> None:
        feed = self.feed
        kernel = "an unknown number" if feed.kernel_drops is None else f"{feed.kernel_drops:,}"
        plural = "" if feed.packets == 1 else "s"
        text = f"{feed.packets:,} packet{plural}, "
        if feed.live:  # no kernel drops what is in a file
            text += f"{kernel} dropped by kernel, "
        text += f"{feed.own_drops:,} {'' if feed.live else 'dropped '}by netdissect"
        if feed.own_drops and self._write is not None:
            text += " (not shown; they are in the file)"
        self.say(text)
        for sentence in feed.missing if feed.error is None else ():
            self.say(f"not complete: {sentence}")

    def status(self) -> int:
        """Return the exit status: EXIT.CUT_SHORT also where a packet is missing anywhere.

        Raises:
            CaptureFileError: the interface was lost, or the file could not be written further.

        """
        error = self.feed.error
        if isinstance(error, OSError):
            # Who read the capture has seen enough.
            if self._write == "-" and error.errno == errno.EPIPE:
                return EXIT.DONE
            reason = error.strerror or str(error)
            raise CaptureFileError(f"{self._write}: {reason}; what was written before is whole")
        if error is not None:
            raise error
        if self.feed.fault is not None:
            raise AccessError(self.feed.fault)
        status = super().status()
        return EXIT.CUT_SHORT if status == EXIT.DONE and not self.feed.complete else status


def load(choices: Choices, late: Iterable[str]) -> None:
    """Find what is wrong with the choices before anything is captured; as root, also load all that
    is imported late otherwise, as the user that this process becomes may not read root's files.
    """
    choices.options()
    if os.geteuid() != 0:
        return
    from netdissect import lookup  # noqa: PLC0415

    lookup.catalogue()
    lookup.load_layers()
    lookup.load_schemas(choices.schemas)
    for name in (*_LATE, *late):
        import_module(name)
