"""Writes a new plug-in: the example of `docs/plugins.md` under another name."""

from __future__ import annotations

import keyword
import re
from collections.abc import Iterable
from pathlib import Path

from netdissect.model.errors import CaptureFileError, UsageError
from netdissect.model.text import quoted

__all__ = ["new_protocol"]

_EXAMPLE = "tiny"
_NAME = re.compile(r"[a-z][a-z0-9]{1,30}")
_LEFT_OUT = frozenset({"__pycache__", ".pytest_cache", ".hypothesis"})


def new_protocol(name: str, folder: Path, taken: Iterable[str] = ()) -> list[Path]:
    """Write a plug-in for a protocol, with tests that pass; return its files.

    Args:
        name: lower-case name of the protocol.
        folder: new, or empty.
        taken: names that protocols have already.

    Raises:
        UsageError: the name will not do, or there is something in the folder.
        CaptureFileError: a file cannot be written.

    """
    if not _NAME.fullmatch(name) or keyword.iskeyword(name):
        raise UsageError(f"{quoted(name)} is no name: letters a to z and digits, a letter first")
    if name in {*taken, _EXAMPLE}:
        raise UsageError(f"there is a protocol {quoted(name)} already")
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise UsageError(f"{folder} is there already")
    source = _example()
    written = []
    for path in sorted(source.rglob("*")):
        place = path.relative_to(source)
        if not path.is_file() or _LEFT_OUT & {*place.parts} or path.suffix not in {".py", ".toml"}:
            continue
        made = folder / _renamed(str(place), name)
        content = _renamed(path.read_text("utf-8"), name)
        try:
            made.parent.mkdir(parents=True, exist_ok=True)
            made.write_text(content, "utf-8")
        except OSError as error:
            raise CaptureFileError(f"{made}: {error.strerror}") from error
        written.append(made)
    return written


def _renamed(text: str, name: str) -> str:
    return text.replace(_EXAMPLE, name).replace(_EXAMPLE.capitalize(), name.capitalize())


def _example() -> Path:
    """Return the folder of the example: beside the package where it is installed, else the
    repository's own.
    """
    here = Path(__file__).parent
    shipped = here / "data" / "skeleton"
    return shipped if shipped.is_dir() else here.parents[1] / "examples" / "netdissect-tiny"
