"""How a command prints: rows of JSON to standard output, or a view on a `Screen`."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from typing import Any

from netdissect.render.console import Screen
from netdissect.system.interrupt import check

__all__ = ["make_screen", "print_json"]


def make_screen(color: str, width: int | None, *, flush: bool = False) -> Screen:
    """Return the screen on standard output, with the user's names and colours."""
    from netdissect.cli.settings import in_force  # noqa: PLC0415

    values = in_force()
    return Screen(
        color=color, width=width, flush=flush, names=values["endpoints"], styles=values["colors"]
    )


def print_json(rows: Iterable[Mapping[str, Any]], *, flush: bool = False) -> int:
    """Print one object a line and return how many."""
    from netdissect.export.json import dump  # noqa: PLC0415

    write = sys.stdout.write
    shown = 0
    for row in rows:
        check()
        write(dump(row) + "\n")
        shown += 1
        if flush:
            sys.stdout.flush()
    return shown
