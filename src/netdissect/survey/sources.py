"""Finds captures: files, folders, patterns, and the URLs that fsspec supports."""

from __future__ import annotations

import glob
import hashlib
import os
import re
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

from netdissect.capture.blocks import BlockReader
from netdissect.edit import merge
from netdissect.model.errors import CaptureFileError, UsageError
from netdissect.model.files import open_pinned

MAX_ROTATED = 256
"""Files of a rotated capture that are joined; further ones become another capture."""

_COMPRESSED = re.compile(r"\.(gz|zst|xz|bz2|lz4)\Z", re.IGNORECASE)
_CAPTURE = re.compile(
    rf"\.(pcap|pcapng|cap|dmp|ntar)\d*({_COMPRESSED.pattern[:-2]})?\Z", re.IGNORECASE
)
"""Endings of the names of captures, including those that tcpdump numbers."""
_TO = " ... "
"""Between the first and the last file in the name of a rotated capture."""
_ROTATION = re.compile(
    r"_\d{5,}(?=_\d{14})"  # the number that dumpcap gives, before its time
    r"|(?<!\d)20\d\d-?(?:0[1-9]|1[0-2])-?[0-3]\d"
    r"(?:[T_-]?[0-2]\d[-:h_]?[0-5]\d(?:[-:m_]?[0-5]\d)?)?(?=\D|\Z)"
    r"|(?<=\.pcap)\d+|(?<=\.pcapng)\d+"
)
"""What differs in the names of the files of a rotated capture: dumpcap's number, a date with or
without a time (`tcpdump -G`), a number after the extension (`tcpdump -C`)."""
_NUMBER = re.compile(r"([0-9]+)")
_EXPANSION = 4
"""Bytes of a capture for each byte that is compressed; gzip needs a quarter to a half."""
_CHUNK = 1 << 20
"""Bytes read at once."""
_KEY_DIGITS = 32
"""Hexadecimal digits of a key: 128 bits of a SHA-256."""


@dataclass(frozen=True, slots=True)
class Source:
    """One capture to be read."""

    name: str
    """Its name in the dataset."""
    path: str
    """Its absolute path, or its path within its file system."""
    url: str | None = None
    """URL from which fsspec derives the file system; None = local."""
    octets: int = 0
    """Its size; 0 = unknown."""
    parts: tuple[Source, ...] = ()
    """The files of a rotated capture; () = one file."""

    @property
    def plain_octets(self) -> int:
        """Return an estimate of its size when it is no longer compressed."""
        if self.parts:
            return sum(part.plain_octets for part in self.parts)
        return self.octets * (_EXPANSION if _COMPRESSED.search(self.path) else 1)


def sources_of(words: Iterable[str]) -> list[Source]:
    """Return the sources that words of the command line stand for, each once, in order of names.

    Raises:
        CaptureFileError: there is nothing of that name.
        UsageError: the file system for such a URL is not installed.

    """
    found: dict[str, Source] = {}
    for word in words:
        sources = list(_remote(word) if "://" in word else _local(word))
        if not sources:
            raise CaptureFileError(f"{_shown(word)}: no captures there")
        for source in sources:
            known = found.get(source.name)
            name = source.name
            if known is not None and known.path != source.path:
                # Two URLs that differ only in credentials or query, which names leave out.
                name += f"?{hashlib.sha256(source.path.encode()).hexdigest()[:8]}"
            found[name] = replace(source, name=name)
    return [found[name] for name in sorted(found)]


def join_rotated(sources: Iterable[Source]) -> list[Source]:
    """Return the sources with the files of each rotated capture as one source.

    Files belong to one capture if they are in one folder and their names differ only in the number,
    date and time that dumpcap, tcpdump and `sniff -b` insert. Some may be compressed.
    """
    groups: dict[tuple[str, str, int], list[Source]] = {}
    same: Counter[str] = Counter()
    for source in sorted(sources, key=_by_number):
        plain = _COMPRESSED.sub("", source.name)
        folder, _, name = plain.rpartition("/")
        # A file next to its compressed copy holds the same packets once more.
        groups.setdefault((folder, _ROTATION.sub("", name), same[plain]), []).append(source)
        same[plain] += 1
    found = []
    for group in groups.values():
        for start in range(0, len(group), MAX_ROTATED):
            parts = tuple(group[start : start + MAX_ROTATED])
            octets = sum(part.octets for part in parts)
            name = f"{parts[0].name}{_TO}{last_file(parts[-1].name)}"
            found.append(
                Source(name, name, octets=octets, parts=parts) if len(parts) > 1 else parts[0]
            )
    return found


def last_file(name: str) -> str:
    """Return the name of a source's only or last file, without its folder."""
    return name.rpartition(_TO)[2].rpartition("/")[2]


def _by_number(source: Source) -> list[str | int]:
    """Return a sort key that puts 2 before 10."""
    return [int(each) if each.isdecimal() else each for each in _NUMBER.split(source.name)]


def _local(word: str) -> Iterator[Source]:
    if os.path.isdir(word):  # noqa: PTH112 - a pattern need not be a path
        closed: list[OSError] = []
        for folder, folders, files in os.walk(word, onerror=closed.append):
            folders[:] = sorted(name for name in folders if not name.startswith("."))
            found = (Path(folder, name) for name in files if _is_capture_name(name))
            yield from map(_file, filter(Path.is_file, found))  # reading a pipe would block
        for error in closed:  # reading it as a capture fails, too, which the dataset shows
            where = str(Path(error.filename).absolute())
            yield Source(where, where)
    elif glob.has_magic(word) and not Path(word).exists():
        for name in glob.glob(word, recursive=True):  # noqa: PTH207 - absolute patterns, too
            if Path(name).is_file():
                yield _file(Path(name))
    else:
        try:
            Path(word).stat()
        except OSError as error:
            raise CaptureFileError(f"{word}: {error.strerror}") from error
        yield _file(Path(word))


def is_remote(source: Source) -> bool:
    """Return whether a source, or a part of it, is not a local file."""
    return source.url is not None or any(map(is_remote, source.parts))


def _is_capture_name(path: str) -> bool:
    """Return whether a file in a folder has the name of a capture."""
    return bool(_CAPTURE.search(path)) and not path.rpartition("/")[2].startswith(".")


def _file(path: Path) -> Source:
    try:
        octets = path.stat().st_size
    except OSError:
        octets = 0  # reading it reports the error
    else:
        if not path.is_file():
            raise CaptureFileError(f"{path}: not a regular file")
    where = str(path.absolute())
    return Source(where, where, octets=octets)


def _remote(word: str) -> Iterator[Source]:
    from fsspec.core import url_to_fs  # noqa: PLC0415 - an extra

    shown, web = _shown(word), word.startswith(("http://", "https://"))
    try:
        system, path = url_to_fs(word)
        if glob.has_magic(path.partition("?")[0] if web else path):
            names = [name for name in system.glob(path) if system.isfile(name)]
        elif web and _is_page(system.info(path)):
            # Of the links of a page, only those with the name of a capture are fetched.
            names = [name for name in system.ls(path, detail=False) if _is_capture_name(name)]
        elif not web and system.isdir(path):
            names = [name for name in system.find(path) if _is_capture_name(name)]
        else:
            names = [path]
        for name in names:
            octets = system.size(name) or 0
            yield Source(_named(system.unstrip_protocol(name), shown), name, word, octets)
    except ImportError as error:
        why = "URLs of the web need aiohttp: pip install aiohttp" if web else str(error)
        raise UsageError(f"{shown}: {why}") from error
    except ValueError as error:
        raise UsageError(f"{shown}: {error}") from error
    except Exception as error:
        # Every file system has exceptions of its own.
        raise CaptureFileError(f"{shown}: {_why(error)}") from error


def _is_page(info: Mapping[str, Any]) -> bool:
    """Return whether a web server answered with a page, such as a folder listing or an error."""
    return info.get("mimetype") == "text/html"


def _why(error: BaseException) -> str:
    """Return the error of a file system in plain words."""
    status = getattr(error.__cause__, "status", None)
    if status is not None:
        return f"the server answers {status} {getattr(error.__cause__, 'message', '')}"
    if isinstance(error, FileNotFoundError):
        return "No such file or directory" if error.__cause__ is None else str(error.__cause__)
    return f"{type(error).__name__}: {error}"


def _named(url: str, shown: str) -> str:
    """Return the name of a capture: its URL, with the host or archive that a file system leaves
    out of it but that is in what the user named.
    """
    scheme, _, place = _shown(url).partition("://")
    host = shown.partition("://")[2].partition("/")[0] if place.startswith("/") else ""
    inside = shown.partition("::")[2]
    # A cache names its files as they are named where they come from.
    archive = f"::{inside}" if inside and not inside.startswith(f"{scheme}://") else ""
    return f"{scheme}://{host}{place}{archive}"


def _shown(url: str) -> str:
    """Return a URL without its possible secrets: credentials and query."""
    return re.sub(r"://[^/@]*@", "://", url).partition("?")[0]


class LocalCopy(NamedTuple):
    """A source as a local file."""

    path: str
    key: str
    """Hash of its content."""
    damage: str | None = None
    """What is wrong with files of a rotated capture, which the joined file does not show."""
    parts: tuple[str, ...] = ()
    """Keys of the files of a rotated capture."""


@contextmanager
def local_copy(source: Source, folder: Path | None = None) -> Iterator[LocalCopy]:
    """Provide a source as a local file while the context is open.

    Remote sources are fetched into a temporary file, as a capture is read more than once. The files
    of a rotated capture are joined into one, in order of time. Such a file is in `folder`, or in
    the folder for temporary files.

    Raises:
        OSError: it cannot be read.

    """
    if source.parts:
        with _joined(source.parts, folder) as copy:
            yield copy
    elif source.url is not None:
        with _fetched(source.url, source.path, folder) as copy:
            yield copy
    else:
        with open_pinned(source.path, regular=True) as file:
            key = _hash_of(file, None)
        yield LocalCopy(source.path, key)


@contextmanager
def _joined(parts: Sequence[Source], folder: Path | None) -> Iterator[LocalCopy]:
    readers, damage = {}, {}
    with ExitStack() as stack, _temporary(folder) as whole:
        copies = [stack.enter_context(local_copy(part)) for part in parts]
        for part, copy in zip(parts, copies, strict=True):
            try:
                readers[part.name] = stack.enter_context(BlockReader(copy.path))
            except CaptureFileError as error:  # an empty file, for example
                damage[part.name] = str(error).removeprefix(f"{copy.path}: ")
                if len(damage) == len(parts):
                    raise
        merge(list(readers.items()), whole.file)
        whole.flush()
        # Whether a part is cut off shows only at its end, so after merging.
        damage |= {name: each.damage for name, each in readers.items() if each.damage}
        keys = tuple(copy.key for copy in copies)
        key = hashlib.sha256("".join(keys).encode()).hexdigest()[:_KEY_DIGITS]
        text = "; ".join(f"{name}: {why}" for name, why in sorted(damage.items()))
        yield LocalCopy(whole.name, key, text or None, keys)


@contextmanager
def _fetched(url: str, path: str, folder: Path | None) -> Iterator[LocalCopy]:
    from fsspec.core import url_to_fs  # noqa: PLC0415 - an extra

    system, _ = url_to_fs(url)
    with _temporary(folder) as local:
        with system.open(path, "rb") as file:
            key = _hash_of(file, local)
        local.flush()
        yield LocalCopy(local.name, key)


def _temporary(folder: Path | None) -> Any:
    return tempfile.NamedTemporaryFile(prefix="netdissect-", dir=folder)


def _hash_of(file: Any, target: Any) -> str:
    """Return the key of a file; copy it to `target` if there is one."""
    digest = hashlib.sha256()
    while chunk := file.read(_CHUNK):
        digest.update(chunk)
        if target is not None:
            target.write(chunk)
    return digest.hexdigest()[:_KEY_DIGITS]
