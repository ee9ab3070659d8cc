"""A capture file, or a capture on standard input, read like an interface."""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Iterator

from netdissect.capture.live.source import Counts, LiveRequest, PolledInput, Wake
from netdissect.capture.reader import open_capture
from netdissect.model.packets import Frame


class ReplaySource:
    """The frames of a capture file or pipe."""

    backend = "file"
    link_type: int | None = None
    settle_s = 0.0
    live = False
    """False: it may wait for its reader, because a file does not change, and the writer of a pipe
    keeps what was not read.
    """

    def __init__(self, request: LiveRequest) -> None:
        """Open the file.

        Raises:
            CaptureError: it is missing, unreadable or not a capture.

        """
        self._wake = Wake()
        self._stopped = False
        name = request.file or "-"
        source: object = name
        if name == "-":
            fd = sys.stdin.fileno()
            if not stat.S_ISREG(os.fstat(fd).st_mode):
                source = PolledInput(fd, self._wake)
        self._reader = open_capture(source)  # type: ignore[arg-type]
        self.info = self._reader.info
        self.counts = Counts()
        self.fault: str | None = None

    def batches(self) -> Iterator[list[Frame]]:
        """Yield frames to the end of the file, or until stopped."""
        for batch in self._reader.batches():
            yield batch
            if self._stopped:
                break
        self.counts.kernel = self.info.drops
        if self._stopped:
            # The end is missing because reading was stopped, not because of the file.
            self.info.truncated_at = self.info.damage = None

    def stop(self) -> None:
        """End `batches`."""
        self._stopped = True
        self._wake.call()

    def end(self) -> None:
        """End `batches`."""
        self.stop()

    def hand_over(self) -> None:
        """Do nothing: a file is read by a thread of this process."""

    take_over = hand_over

    def close(self) -> None:
        """Close the file."""
        self._reader.close()
        self._wake.close()
