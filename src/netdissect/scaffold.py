"""Writes a new plug-in: the example of `docs/plugins.md`, renamed."""

from __future__ import annotations

import keyword
import re
from collections.abc import Iterable
from pathlib import Path

from netdissect.model.errors import CaptureFileError, UsageError
from netdissect.model.text import quoted

_EXAMPLE = "tiny"
_NAME = re.compile(r"[a-z][a-z0-9]{1,30}")
_EXCLUDED = frozenset({"__pycache__", ".pytest_cache", ".hypothesis"})


def new_protocol(name: str, folder: Path, taken: Iterable[str] = ()) -> list[Path]:
    """Write a plug-in for a protocol, with tests that pass; return its files.

    Args:
        name: lower-case name of the protocol.
        folder: folder to create; it may exist if it is empty.
        taken: names of existing protocols.

    Raises:
        UsageError: the name is invalid or taken, or the folder is not empty.
        CaptureFileError: a file cannot be written.

    """
    if keyword.iskeyword(name):
        raise UsageError(f"{quoted(name)} is a keyword of Python, and no module can have its name")
    if not _NAME.fullmatch(name):
        raise UsageError(
            f"{quoted(name)} is not a name: use letters a to z and digits, beginning with a letter"
        )
    if name in {*taken, _EXAMPLE}:
        raise UsageError(f"there already is a protocol {quoted(name)}")
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise UsageError(f"{folder} already exists")
    source = _example()
    written = []
    for path in sorted(source.rglob("*")):
        place = path.relative_to(source)
        if not path.is_file() or _EXCLUDED & {*place.parts} or path.suffix not in {".py", ".toml"}:
            continue
        file = folder / _renamed(str(place), name)
        content = _renamed(path.read_text("utf-8"), name)
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(content, "utf-8")
        except OSError as error:
            raise CaptureFileError(f"{file}: {error.strerror}") from error
        written.append(file)
    return written


def _renamed(text: str, name: str) -> str:
    return text.replace(_EXAMPLE, name).replace(_EXAMPLE.capitalize(), name.capitalize())


def _example() -> Path:
    """Return the folder of the example: in the installed package, or in the repository."""
    here = Path(__file__).parent
    shipped = here / "data" / "skeleton"
    return shipped if shipped.is_dir() else here.parents[1] / "examples" / "netdissect-tiny"
