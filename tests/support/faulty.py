"""A capture file whose reading fails with EIO behind some place."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from io import FileIO
from pathlib import Path

from netdissect.capture import CaptureReader, open_capture


class _Faulty(FileIO):
    def __init__(self, path: str, until: int) -> None:
        super().__init__(path)
        self._until = until

    def read(self, size: int | None = -1, /) -> bytes:
        if self.tell() >= self._until:
            raise OSError(errno.EIO, "Input/output error")
        left = self._until - self.tell()
        return super().read(left if size is None or size < 0 else min(left, size)) or b""


@contextmanager
def faulty_capture(path: str | Path, until: int) -> Iterator[CaptureReader]:
    """Open a capture of which only the first bytes can be read."""
    with _Faulty(str(path), until) as file, open_capture(file) as reader:
        yield reader
