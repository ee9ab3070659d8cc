"""Small files that a user names, and lines of standard input: read with a bound."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator
from typing import Any, BinaryIO, Final

from netdissect.model.errors import UsageError

__all__ = ["numbered_lines", "parse_toml", "read_octets", "read_text"]

MAX_LINE_OCTETS = 16 * 1024 * 1024
"""Of one line of standard input."""
_PART: Final = r"""(?:[\w-]++|"(?:[^"\\\n]++|\\.)*+"?|'[^'\n]*+'?)"""
_TOKENS: Final = re.compile(
    r'"""(?:[^"\\]++|\\.|"(?!""))*+(?:"""|\Z)'
    r"|'''(?:[^']++|'(?!''))*+(?:'''|\Z)"
    r"|#[^\n]*+"
    rf"|(?P<long>{_PART}(?:[ \t]*+\.[ \t]*+{_PART}){{64}})"
    rf"|{_PART}(?:[ \t]*+\.[ \t]*+{_PART})*+",
    re.DOTALL,
)
"""What of TOML may hold dots. A `long` one is a dotted key of more than 64 parts: the time that
Python's reader takes for it grows as the square of their number.
"""


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


def parse_toml(text: str) -> dict[str, Any]:
    """Return what TOML says.

    Raises:
        ValueError: it is none, or deeper than it needs to be; the text says where.

    """
    import tomllib  # noqa: PLC0415 - only where a file exists

    if any(token["long"] for token in _TOKENS.finditer(text)):
        raise ValueError("nested too deeply")
    try:
        return tomllib.loads(text)
    except RecursionError:
        raise ValueError("nested too deeply") from None
