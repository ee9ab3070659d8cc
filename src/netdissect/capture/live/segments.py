"""Reads the files of a private ring as one capture, while the ring is being written."""

from __future__ import annotations

from collections import deque
from io import FileIO, RawIOBase
from pathlib import Path
from typing import Any


def segment(folder: Path, first: int) -> Path:
    """Return the path of the file of a ring that begins with a frame; names sort as frames do."""
    return folder / f"{first:020d}.pcapng"


def first_kept(folder: Path) -> int:
    """Return the number of the first frame that is still in a ring."""
    return int(min(path.stem for path in folder.iterdir()))


class Segments(RawIOBase):
    """The concatenated files of a ring, oldest first, which is a valid pcapng file. A file that was
    opened stays readable when the ring removes it.
    """

    def __init__(self, folder: Path) -> None:
        """Open all files in the folder."""
        super().__init__()
        self._files: deque[FileIO] = deque()
        while not self._files:
            paths = sorted(folder.iterdir())
            try:
                for path in paths:
                    self._files.append(FileIO(path))
            except FileNotFoundError:  # the oldest file has just been removed
                self._let_go()
        self.first = int(paths[0].stem)
        """Number of the first frame."""

    def readable(self) -> bool:
        """Return True."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Read from the files; return 0 at the end of the last one."""
        while self._files:
            size = self._files[0].readinto(buffer)
            if size or len(self._files) == 1:
                return size or 0
            self._files.popleft().close()
        return 0

    def close(self) -> None:
        """Close the files."""
        self._let_go()
        super().close()

    def _let_go(self) -> None:
        while self._files:
            self._files.popleft().close()
