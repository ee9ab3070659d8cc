"""Files that a user names: small ones and lines of standard input read with a bound, large ones the
same whenever they are opened.
"""

from __future__ import annotations

import errno
import os
import re
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from io import FileIO
from typing import Any, BinaryIO, Final, TextIO, TypeAlias

from netdissect.model.errors import UsageError

__all__ = [
    "NOT_WHOLE",
    "Opened",
    "numbered_lines",
    "open_same",
    "parse_toml",
    "read_octets",
    "read_text",
    "unchanged",
    "written_whole",
]

_AT_ONCE: Final = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC
"""Without O_NONBLOCK, opening a FIFO waits for its other end."""
_NEW: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
NOT_WHOLE: Final = ".part"
"""What ends the name of a file that is not whole yet."""
MAX_LINE_OCTETS = 16 * 1024 * 1024
"""Of one line of standard input."""
_NUMBER_BITS: Final = 64
_PART: Final = r"""(?:[\w-]++|"(?:[^"\\\n]++|\\.)*+"?|'[^'\n]*+'?)"""
_TOKENS: Final = re.compile(
    r'"""(?:[^"\\]++|\\.|"(?!""))*+(?:"""|\Z)'
    # All repetitions are possessive (`++`): no text makes the pattern go back and try again.
    r"|'''(?:[^']++|'(?!''))*+(?:'''|\Z)"
    r"|#[^\n]*+"
    rf"|(?P<long>{_PART}(?:[ \t]*+\.[ \t]*+{_PART}){{64}})"
    rf"|{_PART}(?:[ \t]*+\.[ \t]*+{_PART})*+",
    re.DOTALL,
)
"""What of TOML may hold dots. A `long` one is a dotted key of more than 64 parts: the time that
Python's reader takes for it grows as the square of their number.
"""
Opened: TypeAlias = dict[str, os.stat_result]
"""What each file was when it was first opened."""
_opened: ContextVar[Opened | None] = ContextVar("opened", default=None)
"""Those of the innermost `unchanged`."""


@contextmanager
def unchanged(files: Opened | None = None) -> Iterator[Opened]:
    """Have a path mean one file within the block, however often `open_same` opens it: what is read
    twice is to give one answer. `files`: those that another block has opened.
    """
    opened = {} if files is None else files
    token = _opened.set(opened)
    try:
        yield opened
    finally:
        _opened.reset(token)


def open_same(path: str | os.PathLike[str], *, regular: bool = False) -> FileIO:
    """Open a file for reading. Within `unchanged` it is the one that it was the first time, and no
    shorter; it may have grown. `regular`: it is no pipe and no device the first time either.

    Raises:
        OSError: the file is missing or unreadable, or not that one; then nothing has waited.

    """
    first, name = _opened.get(), os.fspath(path)
    before = None if first is None else first.get(name)
    waits = before is None and not regular
    # The first opening may wait for a FIFO's writer; a second one would wait for ever.
    file = FileIO(name if waits else os.open(name, _AT_ONCE))
    now = os.fstat(file.fileno())
    if first is not None and before is None:
        first[name] = now
    fault = ""
    if (regular or before is not None) and not stat.S_ISREG((before or now).st_mode):
        fault = "is no regular file, and has to be read twice"
    elif before is not None and not os.path.samestat(before, now):
        fault = "another file stands there now, and it has to be read twice"
    elif before is not None and now.st_size < before.st_size:
        fault = "has become shorter, and has to be read twice"
    # Longer is no fault: a capture that is being written grows.
    if fault:
        file.close()
        raise OSError(errno.ESTALE, fault, name)
    return file


def numbered_lines(file: BinaryIO) -> Iterator[tuple[int, bytes]]:
    """Yield the lines that hold something, with their numbers.

    Raises:
        UsageError: a line is longer than MAX_LINE_OCTETS; the text says which.

    """
    number = 0
    # One byte more than may be: what tells a line that is too long from one of just that length.
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
    handle = os.open(path, _AT_ONCE)
    with os.fdopen(handle, "rb") as file:
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            raise ValueError("no regular file")
        octets = file.read(limit + 1)
    if len(octets) > limit:
        raise ValueError(f"larger than {limit:,} bytes")
    return octets


@contextmanager
def written_whole(place: str | os.PathLike[str], mode: int) -> Iterator[TextIO]:
    """Give a new text file to write, beside a place that it takes at the end: whatever happens
    before, what stood there still does.

    Args:
        place: where it is to stand; a symbolic link there is replaced, not followed.
        mode: rights of the file, less those that the process gives to none.

    Raises:
        OSError: it cannot be written; names the file beside.

    """
    beside = f"{os.fspath(place)}.{os.getpid():x}{NOT_WHOLE}"
    descriptor = os.open(beside, _NEW, mode)
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8", newline="") as file:
            yield file
        os.replace(beside, place)  # noqa: PTH105 - as given
    except BaseException:
        with suppress(OSError):
            os.unlink(beside)  # noqa: PTH108 - as given
        raise


def read_text(path: str | os.PathLike[str], limit: int) -> str:
    """Return the text of a regular file in UTF-8, as `read_octets` reads it, without the mark that
    editors on Windows put before it.

    Raises:
        OSError: as there.
        ValueError: as there, or it is no UTF-8.

    """
    try:
        return read_octets(path, limit).decode("utf-8").removeprefix("\ufeff")
    except UnicodeDecodeError as fault:
        raise ValueError(f"not UTF-8 text (byte {fault.start})") from None


def parse_toml(text: str) -> dict[str, Any]:
    """Return what TOML says.

    Raises:
        ValueError: it is none, deeper than it needs to be, or has a number of more than 64 bits;
            the text says where it can.

    """
    import tomllib  # noqa: PLC0415 - only where a file exists

    if any(token["long"] for token in _TOKENS.finditer(text)):
        raise ValueError("nested too deeply")
    try:
        found = tomllib.loads(text)
    except RecursionError:
        raise ValueError("nested too deeply") from None
    # `0x` and digits make a number of any size, which Python then refuses to write in decimal.
    left: list[Any] = [found]
    while left:
        value = left.pop()
        if isinstance(value, int) and value.bit_length() > _NUMBER_BITS:
            raise ValueError("a number has too many digits")
        if isinstance(value, dict | list):
            left += value.values() if isinstance(value, dict) else value
    return found
