"""How a command prints: rows of JSON to standard output, or a view on a `Screen`."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple

import click

from netdissect.model.errors import CaptureFileError
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
        CaptureFileError: there can be no such file.

    """
    # Text from packets may hold halves of surrogate pairs.
    octets = text.encode("utf-8", "backslashreplace")
    try:
        with click.open_file(path, "wb") as file:
            file.write(octets)
    except BrokenPipeError:
        raise  # Who reads standard output has seen enough.
    except OSError as error:
        raise CaptureFileError(f"{path}: {error.strerror or error}") from error
    return len(octets)


@contextmanager
def open_to_write(path: str) -> Iterator[Any]:
    """Open a text file that the user named; `-` is standard output, which stays open.

    Raises:
        CaptureFileError: there can be no such file.
        OSError: it cannot take what is written; names it.

    """
    try:
        opened = click.open_file(path, "w", encoding="utf-8")
    except OSError as error:
        raise CaptureFileError(f"{path}: {error.strerror or error}") from error
    try:
        with opened as file:
            yield file
    except OSError as error:
        if error.filename is None and path != "-":
            error.filename = path
        raise


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
