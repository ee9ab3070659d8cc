"""Small files that a user names, and lines of standard input: read with a bound."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from typing import BinaryIO

from netdissect.model.errors import UsageError

__all__ = ["numbered_lines", "read_octets", "read_text"]

MAX_LINE_OCTETS = 16 * 1024 * 1024
"""Of one line of standard input."""


def numbered_lines(file: BinaryIO) -> Iterator[tuple[int, bytes]]:
    """Yield the lines that hold something, with their numbers.

    Raises:
        UsageError: a line is longer than MAX_LINE_OCTETS; the text says which.

    """
    number = 0
    while line := file.readline(MAX_LINE_OCTETS + 1):
        number += 1
        if len(line) > MAX_LINE_OCTETS:
            raise UsageError(f"line {number} is longer than {MAX_LINE_OCTETS:,} bytes")
        if line.strip():
            yield number, line


def read_octets(path: str | os.PathLike[str], limit: int) -> bytes:
    """Return what a regular file holds.

    Args:
        path: the file. A FIFO or a device could wait, or never end, and is refused.
        limit: bytes at most.

    Raises:
        OSError: the file is missing or unreadable.
        ValueError: it is no regular file, or larger than `limit`; the text says which.

    """
    # Without O_NONBLOCK, opening a FIFO waits for its other end.
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(handle, "rb") as file:
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            raise ValueError("no regular file")
        octets = file.read(limit + 1)
    if len(octets) > limit:
        raise ValueError(f"larger than {limit:,} bytes")
    return octets


def read_text(path: str | os.PathLike[str], limit: int) -> str:
    """Return the text of a regular file in UTF-8, as `read_octets` reads it.

    Raises:
        OSError: as there.
        ValueError: as there, or it is no UTF-8.

    """
    try:
        return read_octets(path, limit).decode("utf-8")
    except UnicodeDecodeError as fault:
        raise ValueError(f"not UTF-8 text (byte {fault.start})") from None
