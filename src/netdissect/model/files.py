"""Small text files that a user names: read whole, with a bound."""

from __future__ import annotations

import os
import stat

__all__ = ["read_text"]


def read_text(path: str | os.PathLike[str], limit: int) -> str:
    """Return the text of a regular file in UTF-8.

    Args:
        path: the file. A FIFO or a device could wait, or never end, and is refused.
        limit: bytes at most.

    Raises:
        OSError: the file is missing or unreadable.
        ValueError: it is no regular file, larger than `limit`, or no UTF-8; the text says which.

    """
    # Without O_NONBLOCK, opening a FIFO waits for its other end.
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(handle, "rb") as file:
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            raise ValueError("no regular file")
        octets = file.read(limit + 1)
    if len(octets) > limit:
        raise ValueError(f"larger than {limit:,} bytes")
    try:
        return octets.decode("utf-8")
    except UnicodeDecodeError as fault:
        raise ValueError(f"not UTF-8 text (byte {fault.start})") from None
