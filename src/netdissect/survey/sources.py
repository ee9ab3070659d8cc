"""Where captures are: files, folders, patterns, and the URLs that fsspec knows."""

from __future__ import annotations

import glob
import hashlib
import os
import re
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from netdissect.model.errors import CaptureFileError, UsageError

__all__ = ["Source", "held", "sources_of"]

_CAPTURE = re.compile(r"\.(pcap|pcapng|cap|dmp|ntar)\d*(\.(gz|zst|xz|bz2|lz4))?\Z", re.IGNORECASE)
"""What the names of captures end with, those that tcpdump has numbered included."""
_PIECE = 1 << 20
_KEY_DIGITS = 32


@dataclass(frozen=True, slots=True)
class Source:
    """One capture that is somewhere."""

    name: str
    """What it is called in the dataset."""
    path: str
    """Where it is: absolute, or as its file system calls it."""
    url: str | None = None
    """The URL that leads to its file system; None = local."""
    octets: int = 0
    """Its size; 0 = not known."""


def sources_of(words: Iterable[str]) -> list[Source]:
    """Return what words of the command line stand for, each source once, in order of their names.

    Raises:
        CaptureFileError: there is nothing of that name.
        UsageError: no file system for such a URL is installed.

    """
    found: dict[str, Source] = {}
    for word in words:
        here = list(_remote(word) if "://" in word else _local(word))
        if not here:
            raise CaptureFileError(f"{word}: no captures there")
        found.update((source.name, source) for source in here)
    return [found[name] for name in sorted(found)]


def _local(word: str) -> Iterator[Source]:
    if os.path.isdir(word):  # noqa: PTH112 - a pattern may be no path
        for folder, folders, files in os.walk(word):
            folders[:] = sorted(name for name in folders if not name.startswith("."))
            found = (Path(folder, name) for name in files if _looks_so(name))
            yield from map(_file, filter(Path.is_file, found))  # a pipe would be waited for
    elif glob.has_magic(word) and not Path(word).exists():
        for name in glob.glob(word, recursive=True):  # noqa: PTH207 - absolute patterns, too
            if Path(name).is_file():
                yield _file(Path(name))
    else:
        yield _file(Path(word))


def _looks_so(path: str) -> bool:
    """Return whether a file in a folder is called as captures are."""
    return bool(_CAPTURE.search(path)) and not path.rpartition("/")[2].startswith(".")


def _file(path: Path) -> Source:
    try:
        octets = path.stat().st_size
    except OSError:
        octets = 0  # reading it says why
    else:
        if not path.is_file():
            raise CaptureFileError(f"{path}: no regular file")
    where = str(path.absolute())
    return Source(where, where, octets=octets)


def _remote(word: str) -> Iterator[Source]:
    from fsspec.core import url_to_fs  # noqa: PLC0415 - an extra

    shown = _shown(word)
    try:
        system, path = url_to_fs(word)
        if glob.has_magic(path.partition("?")[0] if word.startswith("http") else path):
            names = [name for name in system.glob(path) if system.isfile(name)]
        elif not word.startswith("http") and system.isdir(path):
            names = [name for name in system.find(path) if _looks_so(name)]
        else:
            names = [path]
        for name in names:
            octets = system.size(name) or 0
            yield Source(_shown(system.unstrip_protocol(name)), name, word, octets)
    except (ImportError, ValueError) as error:
        raise UsageError(f"{shown}: {error}") from error
    except Exception as error:
        # Every file system has exceptions of its own.
        raise CaptureFileError(f"{shown}: {type(error).__name__}: {error}") from error


def _shown(url: str) -> str:
    """Return a URL without what it may hold of secrets: credentials and query."""
    return re.sub(r"://[^/@]*@", "://", url).partition("?")[0]


@contextmanager
def held(source: Source) -> Iterator[tuple[str, str]]:
    """Give a source as (path of a local file, key of its content) while the context is open.

    What lies elsewhere is fetched into a temporary file, for a capture is read more than once.

    Raises:
        OSError: it cannot be read.

    """
    if source.url is None:
        with Path(source.path).open("rb") as file:
            key = _copied(file, None)
        yield source.path, key
        return
    from fsspec.core import url_to_fs  # noqa: PLC0415 - an extra

    system, _ = url_to_fs(source.url)
    with tempfile.NamedTemporaryFile(prefix="netdissect-") as local:
        with system.open(source.path, "rb") as file:
            key = _copied(file, local)
        local.flush()
        yield local.name, key


def _copied(file: Any, target: Any) -> str:
    """Read a file to its end, write it to another one if there is one, and return its key."""
    digest = hashlib.sha256()
    while piece := file.read(_PIECE):
        digest.update(piece)
        if target is not None:
            target.write(piece)
    return digest.hexdigest()[:_KEY_DIGITS]
