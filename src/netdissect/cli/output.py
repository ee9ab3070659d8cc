"""How a command prints: rows of JSON to standard output, or a view on a `Screen`."""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple, TextIO

import click

from netdissect.model.files import PARTIAL_SUFFIX, atomic_write
from netdissect.render.console import Screen
from netdissect.system.interrupt import check

__all__ = ["Look", "one_view", "open_to_write", "print_json", "print_lines", "write_file"]


class Look(NamedTuple):
    """How a command prints: the values of the options that `options.screen` adds."""

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
    """Write a file that the user named, `-` is standard output, and return its size in bytes.

    Raises:
        OSError: as `open_to_write`.

    """
    # Text from packets may hold halves of surrogate pairs.
    octets = text.encode("utf-8", "backslashreplace")
    with open_to_write(path) as file:
        # Python's own text layer would hold all of it a second time.
        file.flush()
        file.buffer.write(octets)
    return len(octets)


@contextmanager
def open_to_write(path: str) -> Iterator[TextIO]:
    """Open a text file that the user named; `-` is standard output, which stays open. A file is
    written beside its place and put there when it is whole: on a full disk, or after a signal, what
    stood there before still does. A pipe or a device is written to.

    Raises:
        OSError: there can be no such file, or it cannot take what is written; names it.

    """
    if path == "-":
        yield sys.stdout
        return
    try:
        with _taking_place(path) as file:
            yield file
    except OSError as error:
        if error.filename is None or str(error.filename).endswith(PARTIAL_SUFFIX):
            error.filename, error.filename2 = path, None
        raise


@contextmanager
def _taking_place(path: str) -> Iterator[TextIO]:
    """Open a file that takes its place once all of it is written, where it may."""
    found = os.stat(path) if os.path.exists(path) else None  # noqa: PTH110, PTH116 - as given
    place = os.path.realpath(path)  # the link stays
    if not _may_take(path, place, found):
        with open(path, "w", encoding="utf-8", newline="") as file:  # noqa: PTH123 - as given
            yield file
        return
    with atomic_write(place, 0o666) as file:
        if found is not None:
            os.fchmod(file.fileno(), stat.S_IMODE(found.st_mode))
        yield file


def _may_take(path: str, place: str, found: os.stat_result | None) -> bool:
    """Return whether a new file may take a place: nothing stands there, or a file of the user's
    alone. A pipe, and a file of several names or of somebody else's, can only be written to; no
    name at all, or that of a folder, is refused then.
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
    """Refuse more than one way to show a result: (option, whether it was given) each."""
    if len(chosen := [name for name, given in views if given]) > 1:
        raise click.UsageError(f"{' and '.join(chosen)} are two ways to show it: choose one.")


def print_json(rows: Iterable[Mapping[str, Any]], *, flush: bool = False) -> int:
    """Print one object a line and return how many."""
    from netdissect.export.json import dump  # noqa: PLC0415

    return print_lines(map(dump, rows), flush=flush)


def print_lines(lines: Iterable[str], *, flush: bool = False) -> int:
    """Print lines and return how many."""
    write = sys.stdout.write
    shown = 0
    for line in lines:
        check()
        write(line + "\n")
        shown += 1
        if flush:
            sys.stdout.flush()
    return shown
