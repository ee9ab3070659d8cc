"""Opens a capture file and reads its frames."""

from __future__ import annotations

import os
from errno import EIO
from typing import IO, TYPE_CHECKING, Final, Self

from netdissect.capture.account import Format, Ledger
from netdissect.capture.pcap import MAGICS, PcapFile
from netdissect.capture.pcapng import SECTION_HEADER, PcapngFile
from netdissect.capture.source import CaptureError, Window, open_window, why_not
from netdissect.model.packets import LINK_TYPE
from netdissect.model.reports import CaptureInfo
from netdissect.model.sinks import FrameList, FrameSink

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from netdissect.model.packets import Frame

_MAGIC_OCTETS: Final = 4
_HEAD_OCTETS: Final = 16 * 1024
"""Bytes at the start of a file in which `head` looks for frames."""


class CaptureReader:
    """A context manager that yields the frames of one capture once, in file order."""

    __slots__ = ("_called", "_first", "_format", "_is_pcap", "_window", "info")

    def __init__(self, window: Window, path: str, first: int = 1) -> None:
        self._window = window
        self._is_pcap = window.data[:_MAGIC_OCTETS] in MAGICS
        name = "pcap" if self._is_pcap else "pcapng"
        suffix = f".{window.compression}" if window.compression else ""
        self.info = CaptureInfo(path=path, format=name + suffix)
        """Facts about the capture; complete when the iteration has ended."""
        self._first = first
        self._format = self._reading(window, self.info)
        self._called: Callable[[], None] | None = None

    def _reading(self, window: Window, info: CaptureInfo) -> Format:
        """Return what reads the frames in a window."""
        ledger = Ledger(info)
        if self._is_pcap:
            return PcapFile(window, ledger)
        return PcapngFile(window, ledger, self._first)

    # Not inherited from `Closing`: a compiled class cannot inherit from an interpreted one.
    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        self.close()

    def __iter__(self) -> Iterator[Frame]:
        for batch in self.batches():
            for number, time_ns, link, data, wire in batch:
                yield number, time_ns, link & LINK_TYPE, data, wire

    def batches(self) -> Iterator[list[Frame]]:
        """Yield the same frames in lists, each with the frames that one read has completed. Unlike
        those of the iteration, their link types have the number of the interface (see `Frame`).
        """
        taken, going = FrameList(), True
        while going:
            going = self._format.more(taken)
            frames, taken.frames = taken.frames, []
            if frames:
                yield frames
                if self._called is not None:
                    self._called()

    def feed(self, taker: FrameSink, after: Callable[[], None] | None = None) -> None:
        """Pass all frames to a sink without creating lists; call `after` after each batch."""
        going = True
        while going:
            going = self._format.more(taker)
            if after is not None:
                after()
            if self._called is not None:
                self._called()

    def head(self) -> list[Frame]:
        """Return the first frames, as in `batches`: those in the bytes that were read when the file
        was opened.
        """
        begun = self._window
        window = Window(begun.raw, iter(()), begun.compression)
        window.data = begun.data[:_HEAD_OCTETS]
        taken = FrameList()
        reading = self._reading(window, CaptureInfo(path="", format=""))
        while not taken.frames and reading.more(taken):
            pass
        return taken.frames

    @property
    def damage(self) -> str | None:
        """Return what is wrong at `info.truncated_at`; None for an undamaged file, and until the
        iteration has ended.
        """
        return self.info.damage

    @property
    def fault(self) -> str | None:
        """Return why reading or decompressing ended early; None if it did not."""
        return self._window.fault

    def failed(self, why: str) -> None:
        """Note that a fault ended a reading of the same file by another process."""
        self._window.fault = self._window.fault or why

    def must_reach(self, frames: int) -> None:
        """Raise OSError if a fault ended reading before that many frames, which others found."""
        if self.fault is not None and self.info.frames < frames:
            raise OSError(EIO, self.fault, self.info.path)

    def on_batch(self, call: Callable[[], None]) -> None:
        """Set a function to call after each batch of frames, to show progress."""
        self._called = call

    def progress(self) -> tuple[int, int | None]:
        """Return (bytes read of the underlying file, its size or None if unknown)."""
        return self._window.raw.position, self._window.raw.total

    def close(self) -> None:
        """Close the file, unless the caller opened it."""
        self._window.raw.close()


def open_capture(source: str | os.PathLike[str] | IO[bytes], *, first: int = 1) -> CaptureReader:
    """Return a reader of a pcap or pcapng file, which may be compressed.

    Args:
        source: a path, `-` for standard input, or an open binary file (which stays open).
        first: number of the first frame of a pcapng file that continues others.

    Raises:
        CaptureError: the file is missing, unreadable or not a capture. Later damage never raises.

    """
    return CaptureReader(*open_checked(source), first)


def open_checked(source: str | os.PathLike[str] | IO[bytes]) -> tuple[Window, str]:
    """Return the bytes of a file that begins as a capture does, and its name.

    Raises:
        CaptureError: as `open_capture`.

    """
    if isinstance(source, (str, os.PathLike)):
        path = os.fspath(source)
    else:
        path = str(getattr(source, "name", "<stream>"))
    try:
        window = open_window(source)
    except CaptureError as error:
        raise CaptureError(f"{path}: {error}") from error
    window.fill(_MAGIC_OCTETS)
    magic = window.data[:_MAGIC_OCTETS]
    if magic not in MAGICS and magic != SECTION_HEADER:
        reason = why_not(window, path)
        window.raw.close()
        raise CaptureError(f"{path}: {reason}")
    return window, path
