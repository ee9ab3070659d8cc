"""Folders of runs and failures. They may come from somebody else, so symbolic links in them are
neither followed nor written through.

Files are opened relative to the open folder and never through a symbolic link. A file is written
under a new name and then renamed, which replaces whatever had that name.
"""

from __future__ import annotations

import errno
import json
import os
import secrets
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

from netdissect.model.closing import Closing
from netdissect.model.errors import UsageError

_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
"""Non-blocking, so that a FIFO is refused instead of waited for."""
_NEW = os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC


class Folder(Closing):
    """An open folder; use as a context manager."""

    def __init__(self, path: Path, fd: int | None = None) -> None:
        """Open a folder named by the user, who may name a link.

        Raises:
            OSError: it cannot be opened.
        """
        self.path = path
        self._fd = os.open(path, _FOLDER) if fd is None else fd

    @classmethod
    def made(cls, path: Path, *, new: bool = True) -> Folder:
        """Open a folder for output; create it if it is missing and `new` is true.

        Raises:
            UsageError: it cannot be created or opened.
        """
        try:
            if new:
                path.mkdir(parents=True, exist_ok=True)
            return cls(path)
        except OSError as error:
            raise UsageError(f"cannot open {path}: {error.strerror}") from error

    def close(self) -> None:
        """Close the folder."""
        os.close(self._fd)

    def inside(self, name: str) -> Folder:
        """Open the folder `name` inside this one, created if missing.

        Raises:
            OSError: it is not a folder, such as a symbolic link.
        """
        with suppress(FileExistsError):
            os.mkdir(name, dir_fd=self._fd)
        fd = os.open(name, _FOLDER | os.O_NOFOLLOW, dir_fd=self._fd)
        return Folder(self.path / name, fd)

    def names(self) -> list[str]:
        """Return the names in the folder."""
        return os.listdir(self._fd)  # noqa: PTH208 - the open folder, not its path

    def read(self, name: str, limit: int) -> bytes:
        """Return the content of a regular file.

        Raises:
            OSError: it cannot be opened, or is a link.
            ValueError: it is not a regular file, or has more than `limit` bytes.
        """
        with self.reading(name) as file:
            data = file.read(limit + 1)
        if len(data) > limit:
            raise ValueError(f"{name} has more than {limit:,} bytes")
        return data

    @contextmanager
    def writing(self, name: str) -> Iterator[IO[bytes]]:
        """Provide a new file to write, which is renamed to `name` at the end.

        Raises:
            OSError: it cannot be written.
        """
        new = f".{name}.{secrets.token_hex(8)}"
        fd = os.open(new, os.O_WRONLY | _NEW, 0o644, dir_fd=self._fd)
        try:
            with os.fdopen(fd, "wb") as file:
                yield file
            os.rename(new, name, src_dir_fd=self._fd, dst_dir_fd=self._fd)
        except BaseException:
            with suppress(OSError):
                os.unlink(new, dir_fd=self._fd)
            raise

    def write(self, name: str, data: bytes) -> None:
        """Write a file.

        Raises:
            OSError: it cannot be written.
        """
        with self.writing(name) as file:
            file.write(data)

    @contextmanager
    def reading(self, name: str) -> Iterator[IO[bytes]]:
        """Open a regular file of any size for reading.

        Raises:
            OSError: it cannot be opened, or is a link; the text names it.
            ValueError: it is not a regular file, such as a pipe or a device.
        """
        try:
            fd = os.open(name, _READ, dir_fd=self._fd)
        except OSError as error:
            reason = "a symbolic link" if error.errno == errno.ELOOP else error.strerror
            raise OSError(error.errno, f"{name}: {reason}") from error
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            os.close(fd)
            raise ValueError(f"{name} is not a regular file")
        with os.fdopen(fd, "rb") as file:
            yield file

    def appending(self, name: str, *, new: bool = True) -> int:
        """Return the descriptor of a file opened for appending; by default the file must be new.

        Raises:
            OSError: the name is taken, or the file cannot be created.
        """
        flags = _NEW if new else os.O_NOFOLLOW | os.O_CLOEXEC
        return os.open(name, os.O_WRONLY | os.O_APPEND | flags, 0o644, dir_fd=self._fd)

    def remove(self, name: str) -> None:
        """Remove a file; of a symbolic link, the link itself.

        Raises:
            OSError: it cannot be removed.
        """
        os.unlink(name, dir_fd=self._fd)


def open_new(path: Path) -> int:
    """Return the descriptor of a new file opened for reading and appending.

    Raises:
        OSError: the name is taken, or the file cannot be created.
    """
    return os.open(path, os.O_RDWR | os.O_APPEND | _NEW, 0o644)


def free_path(folder: Path, name: str, end: str) -> Path:
    """Return the first unused path of target.log, target-2.log, ...: a resumed run keeps the files
    of earlier runs.
    """
    path, number = folder / f"{name}{end}", 1
    while os.path.lexists(path):
        number += 1
        path = folder / f"{name}-{number}{end}"
    return path


def write_json(folder: Folder, name: str, data: Mapping[str, Any]) -> None:
    """Write an indented JSON file.

    Raises:
        OSError: it cannot be written.
    """
    folder.write(name, json.dumps(data, indent=2).encode() + b"\n")
