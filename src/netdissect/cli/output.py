"""What commands write: JSON rows, a view on a `Screen`, a file, a capture."""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, NamedTuple, TextIO

import click

from netdissect.cli.complete import FILE
from netdissect.cli.errors import EXIT
from netdissect.model.errors import UsageError
from netdissect.model.files import PARTIAL_SUFFIX, atomic_write
from netdissect.render.console import Screen
from netdissect.render.safe import safe
from netdissect.system.interrupt import check

if TYPE_CHECKING:
    from netdissect.capture.blocks import BlockReader
    from netdissect.model.reports import CaptureInfo


class Look(NamedTuple):
    """The values of the options that `options.screen` adds."""

    color: str
    width: int | None
    quiet: bool
    verbose: bool

    def screen(self, *, flush: bool = False) -> Screen:
        """Return the screen on standard output, with the user's names and colours."""
        from netdissect.cli.settings import in_force  # noqa: PLC0415

        values = in_force()
        return Screen(
            color=self.color,
            width=self.width,
            flush=flush,
            names=values["endpoints"],
            styles=values["colors"],
        )


def write_file(path: str, text: str) -> int:
    """Write a text file named by the user (`-` = standard output); return its size in bytes.

    Raises:
        OSError: as `open_to_write`.

    """
    # Text from packets may contain lone surrogates.
    octets = text.encode("utf-8", "backslashreplace")
    with open_to_write(path) as file:
        # Python's text layer would hold a second copy of the whole text.
        file.flush()
        file.buffer.write(octets)
    return len(octets)


@contextmanager
def open_to_write(path: str) -> Iterator[TextIO]:
    """Open a text file named by the user; `-` is standard output, which is not closed.

    A regular file is written under a temporary name and renamed when it is complete, so a full disk
    or a signal leaves an existing file intact. Pipes and devices are written to directly.

    Raises:
        OSError: the file cannot be created or written; its `filename` is the user's path.

    """
    if path == "-":
        yield sys.stdout
        return
    try:
        with _replacing(path) as file:
            yield file
    except OSError as error:
        if error.filename is None or str(error.filename).endswith(PARTIAL_SUFFIX):
            error.filename, error.filename2 = path, None
        raise


@contextmanager
def _replacing(path: str) -> Iterator[TextIO]:
    """Open a file that replaces the one at `path` once it is complete, if that is possible."""
    found = os.stat(path) if os.path.exists(path) else None  # noqa: PTH110, PTH116 - as given
    place = os.path.realpath(path)  # keep a symbolic link
    if not _is_replaceable(path, place, found):
        with open(path, "w", encoding="utf-8", newline="") as file:  # noqa: PTH123 - as given
            yield file
        return
    with atomic_write(place, 0o666) as file:
        if found is not None:
            os.fchmod(file.fileno(), stat.S_IMODE(found.st_mode))
        yield file


def _is_replaceable(path: str, place: str, found: os.stat_result | None) -> bool:
    """Return whether a new file may be renamed to `place`.

    True if nothing is there, or a regular file with one link that the user owns. Anything else
    (a pipe, a hard link, somebody else's file) is opened for writing; that fails for a folder.
    """
    if found is None:
        return bool(os.path.basename(path))  # noqa: PTH119 - as given
    return (
        stat.S_ISREG(found.st_mode)
        and found.st_nlink == 1
        and found.st_uid == os.geteuid()
        and os.access(path, os.W_OK)
        and os.access(os.path.dirname(place), os.W_OK)  # noqa: PTH120 - as given
    )


def one_view(*views: tuple[str, Any]) -> None:
    """Refuse more than one output format; each view is (option, whether it was given)."""
    if len(chosen := [name for name, given in views if given]) > 1:
        raise click.UsageError(f"{' and '.join(chosen)} exclude each other: choose one.")


def print_json(rows: Iterable[Mapping[str, Any]], *, flush: bool = False) -> int:
    """Print one object per line and return their number."""
    from netdissect.export.jsonline import dump  # noqa: PLC0415

    return print_lines(map(dump, rows), flush=flush)


def print_lines(lines: Iterable[str], *, flush: bool = False) -> int:
    """Print lines and return their number."""
    write = sys.stdout.write
    shown = 0
    for line in lines:
        check()
        write(line + "\n")
        shown += 1
        if flush:
            sys.stdout.flush()
    return shown


write_option = click.option(
    "-w",
    "--write-file",
    "target",
    metavar="FILE",
    required=True,
    type=FILE,
    help="The file to write; `-` is standard output.",
)


def refuse_input_as_output(target: str, sources: Sequence[str | None]) -> None:
    """Refuse to write to a file that is also read: it would be truncated before it is read.

    Raises:
        UsageError: the target is one of the sources.

    """
    there = _status(target, 1)
    for source in sources:
        # Not by name: links and different spellings of a path lead to the same file.
        if source is not None and there is not None and there == _status(source, 0):
            name = "standard output" if target == "-" else target
            raise UsageError(f"{name} is also an input: write to another file")


@contextmanager
def removed_if_refused(target: str) -> Iterator[None]:
    """Remove the file that the block creates, if the block then refuses what was requested."""
    existed = target == "-" or os.path.lexists(target)
    try:
        yield
    except UsageError:
        if not existed:
            with suppress(OSError):
                os.unlink(target)  # noqa: PTH108 - as given
        raise


def _status(path: str, standard: int) -> tuple[int, int] | None:
    """Return what identifies an existing file; of `-`, the one a standard stream is redirected
    to, None for a terminal or a pipe.
    """
    try:
        found = os.fstat(standard) if path == "-" else os.stat(path)  # noqa: PTH116 - as given
    except (OSError, ValueError):
        return None
    return None if path == "-" and not stat.S_ISREG(found.st_mode) else (found.st_dev, found.st_ino)


def cut_short(captures: Iterable[CaptureInfo], *, quiet: bool) -> int:
    """Report captures that are cut short on standard error; return the status."""
    status = EXIT.DONE
    for info in captures:
        if info.truncated_at is None:
            continue
        status = EXIT.CUT_SHORT
        reason = f": {info.damage}" if info.damage else ""
        if not quiet:
            print(  # noqa: T201 - the message of the contract
                f"netdissect: {safe(info.path)} is cut short at offset"
                f" {info.truncated_at}{safe(reason)}; everything before it was read",
                file=sys.stderr,
            )
    return status


def summarise(
    text: str, readers: Sequence[BlockReader], faults: Sequence[str] = (), *, quiet: bool
) -> int:
    """Report the result, and inputs that are cut short, on standard error; return the status.
    `faults` are those of the readings before, which matter if this one got all.
    """
    damaged = [reader for reader in readers if reader.damage is not None]
    for fault in faults if not (damaged or quiet) else ():
        print(f"netdissect: {safe(fault)}; later frames may be missing", file=sys.stderr)  # noqa: T201 - as below
    for reader in damaged if not quiet else ():
        print(  # noqa: T201 - the message of the contract
            f"netdissect: {safe(reader.path)} is cut short: {safe(reader.damage or '')}; everything"
            " before that was written",
            file=sys.stderr,
        )
    if not quiet:
        print(f"netdissect: {safe(text)}", file=sys.stderr)  # noqa: T201 - as above
    return EXIT.CUT_SHORT if damaged or faults else EXIT.DONE
