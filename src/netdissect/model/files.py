"""Files that a user names: bounded reading of small ones, atomic writing, and protection against a
file being replaced while it is read more than once.
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

_READ_FLAGS: Final = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC
"""Without O_NONBLOCK, opening a FIFO would wait for its writer."""
_CREATE_FLAGS: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
PARTIAL_SUFFIX: Final = ".part"
"""Suffix of a file that is still being written."""
MAX_LINE_OCTETS = 16 * 1024 * 1024
"""Longest line of standard input, bytes."""
_NUMBER_BITS: Final = 64
"""Width of the largest integer accepted in TOML."""
_PART: Final = r"""(?:[\w-]++|"(?:[^"\\\n]++|\\.)*+"?|'[^'\n]*+'?)"""
"""One part of a dotted key in TOML: bare or quoted."""
_TOKENS: Final = re.compile(
    r'"""(?:[^"\\]++|\\.|"(?!""))*+(?:"""|\Z)'
    # All repetitions are possessive (`++`), so that no text causes backtracking.
    r"|'''(?:[^']++|'(?!''))*+(?:'''|\Z)"
    r"|#[^\n]*+"
    rf"|(?P<long>{_PART}(?:[ \t]*+\.[ \t]*+{_PART}){{64}})"
    rf"|{_PART}(?:[ \t]*+\.[ \t]*+{_PART})*+",
    re.DOTALL,
)
"""The tokens of TOML that may contain dots. `long` is a dotted key with more than 64 parts, for
which Python's parser takes quadratic time.
"""
PinnedFiles: TypeAlias = dict[str, os.stat_result]
"""Path -> status of the file when it was first opened."""
_pinned: ContextVar[PinnedFiles | None] = ContextVar("pinned", default=None)
"""The files of the innermost `pinned_files` block."""


@contextmanager
def pinned_files(files: PinnedFiles | None = None) -> Iterator[PinnedFiles]:
    """Ensure that within the block `open_pinned` opens the same file each time it gets a path, so
    that the passes over a capture agree with each other.

    Args:
        files: the files pinned by an earlier block, to be used here too.

    """
    pinned = {} if files is None else files
    token = _pinned.set(pinned)
    try:
        yield pinned
    finally:
        _pinned.reset(token)


def open_pinned(path: str | os.PathLike[str], *, regular: bool = False) -> FileIO:
    """Open a file for reading.

    Within a `pinned_files` block, a path that is opened again must be the same regular file as
    before, and no shorter. It may have grown: a capture that is being written does.

    Args:
        path: the file.
        regular: refuse pipes and devices even when the path is opened for the first time.

    Raises:
        OSError: the file is missing, unreadable or another one. Only the first opening may block.

    """
    files, name = _pinned.get(), os.fspath(path)
    before = None if files is None else files.get(name)
    may_block = before is None and not regular
    # The first opening may wait for a FIFO's writer; a second one would wait for ever.
    file = FileIO(name if may_block else os.open(name, _READ_FLAGS))
    now = os.fstat(file.fileno())
    if files is not None and before is None:
        files[name] = now
    fault = ""
    if (regular or before is not None) and not stat.S_ISREG((before or now).st_mode):
        fault = "is not a regular file, and has to be read twice"
    elif before is not None and not os.path.samestat(before, now):
        fault = "has been replaced by another file, and has to be read twice"
    elif before is not None and now.st_size < before.st_size:
        fault = "has become shorter, and has to be read twice"
    if fault:
        file.close()
        raise OSError(errno.ESTALE, fault, name)
    return file


def numbered_lines(file: BinaryIO) -> Iterator[tuple[int, bytes]]:
    """Yield the lines that are not blank, each with its number from 1.

    Raises:
        UsageError: a line is longer than MAX_LINE_OCTETS; the text says which one.

    """
    number = 0
    # One byte more than allowed: otherwise a line of just that length looks like a longer one.
    while line := file.readline(MAX_LINE_OCTETS + 1):
        number += 1
        if len(line) > MAX_LINE_OCTETS:
            raise UsageError(f"line {number} is longer than {MAX_LINE_OCTETS:,} bytes")
        if line.strip():
            yield number, line


def read_octets(path: str | os.PathLike[str], limit: int) -> bytes:
    """Return the content of a regular file.

    Args:
        path: the file. FIFOs and devices are refused, because reading them may block or never end.
        limit: largest size, bytes.

    Raises:
        OSError: the file is missing or unreadable.
        ValueError: it is not a regular file, or larger than `limit`; the text says which.

    """
    handle = os.open(path, _READ_FLAGS)
    with os.fdopen(handle, "rb") as file:
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            raise ValueError("not a regular file")
        octets = file.read(limit + 1)
    if len(octets) > limit:
        raise ValueError(f"larger than {limit:,} bytes")
    return octets


@contextmanager
def atomic_write(place: str | os.PathLike[str], mode: int) -> Iterator[TextIO]:
    """Yield a temporary text file that replaces `place` when the block ends without an exception.
    Otherwise `place` stays as it was.

    Args:
        place: path of the file; a symbolic link there is replaced, not followed.
        mode: permissions of the file, before the process's umask is applied.

    Raises:
        OSError: the file cannot be written; the exception names the temporary file.

    """
    partial = f"{os.fspath(place)}.{os.getpid():x}{PARTIAL_SUFFIX}"
    descriptor = os.open(partial, _CREATE_FLAGS, mode)
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8", newline="") as file:
            yield file
        os.replace(partial, place)  # noqa: PTH105 - any path-like object
    except BaseException:
        with suppress(OSError):
            os.unlink(partial)  # noqa: PTH108 - as above
        raise


def read_text(path: str | os.PathLike[str], limit: int) -> str:
    """Return the text of a regular file in UTF-8 without its byte order mark; see `read_octets`.

    Raises:
        OSError: the file is missing or unreadable.
        ValueError: it is not a regular file, larger than `limit`, or not UTF-8.

    """
    try:
        return read_octets(path, limit).decode("utf-8").removeprefix("\ufeff")
    except UnicodeDecodeError as fault:
        raise ValueError(f"not UTF-8 text (byte {fault.start})") from None


def parse_toml(text: str) -> dict[str, Any]:
    """Return the content of a TOML document.

    Raises:
        ValueError: the text is not TOML, is nested too deeply or has a number of more than 64 bits.
            The message names the place if Python's parser does.

    """
    import tomllib  # noqa: PLC0415 - only where a file exists

    if any(token["long"] for token in _TOKENS.finditer(text)):
        raise ValueError("nested too deeply")
    try:
        found = tomllib.loads(text)
    except RecursionError:
        raise ValueError("nested too deeply") from None
    # A number in hexadecimal may have any size, and Python then refuses to print it in decimal.
    pending: list[Any] = [found]
    while pending:
        value = pending.pop()
        if isinstance(value, int) and value.bit_length() > _NUMBER_BITS:
            raise ValueError("a number has too many digits")
        if isinstance(value, dict | list):
            pending += value.values() if isinstance(value, dict) else value
    return found
