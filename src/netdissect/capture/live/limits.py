"""When a capture stops by itself, and when it starts the next file: `-a`, `-b` and `-c`."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Self

from netdissect.model.errors import UsageError
from netdissect.model.packets import NS_PER_S
from netdissect.model.text import quoted

_KILO = 1000
"""Bytes of a kB, as in dumpcap."""
_MOST = 9_000_000_000
"""Largest value of any limit. Python cannot wait for more seconds."""


@dataclass(frozen=True, slots=True)
class Autostop:
    """When a capture stops; None = no such limit."""

    duration_ns: int | None = None
    """Duration of the capture."""
    octets: int | None = None
    """Size of the file being written."""
    packets: int | None = None
    """Number of packets."""
    files: int | None = None
    """Number of full files."""

    @classmethod
    def parse(cls, texts: Iterable[str], *, packets: int | None = None) -> Self:
        """Return the limits that `duration:5`, `filesize:1024` (kB), `packets:100` and `files:3`
        state.

        Raises:
            UsageError: an unknown word, or an invalid number.

        """
        found = _numbers(texts, ("duration", "filesize", "packets", "files"), "-a")
        counts = [count for count in (packets, _whole(found, "packets")) if count is not None]
        return cls(
            duration_ns=_nanoseconds(found),
            octets=_octets(found),
            packets=min(counts, default=None),
            files=_whole(found, "files"),
        )


@dataclass(frozen=True, slots=True)
class RingRule:
    """When a capture starts the next file, and how many files it keeps; None = no such limit."""

    duration_ns: int | None = None
    """Time since the first packet of the file."""
    octets: int | None = None
    """Size of the file."""
    packets: int | None = None
    """Number of packets in the file."""
    files: int | None = None
    """Number of files to keep; the oldest are removed."""
    by_frame: bool = False
    """Whether files are named by the number of their first frame, for `Segments`."""

    @classmethod
    def parse(cls, texts: Iterable[str]) -> Self | None:
        """Return the rule that `filesize:1024` (kB), `duration:60`, `packets:1000` and `files:3`
        state; None without any.

        Raises:
            UsageError: an unknown word, an invalid number, or nothing that says when a file is
                full.

        """
        found = _numbers(texts, ("duration", "filesize", "packets", "files"), "-b")
        if not found:
            return None
        if set(found) == {"files"}:
            raise UsageError("-b files:N also wants when a file is full: -b filesize:KB, for one")
        return cls(
            _nanoseconds(found), _octets(found), _whole(found, "packets"), _whole(found, "files")
        )


def _numbers(texts: Iterable[str], known: tuple[str, ...], option: str) -> dict[str, float]:
    found: dict[str, float] = {}
    for text in texts:
        name, colon, number = text.partition(":")
        # Only a duration may have a fraction.
        plain = number.replace(".", "", 1) if name == "duration" else number
        if name not in known or not colon or not (plain.isascii() and plain.isdecimal()):
            wanted = ", ".join(f"{word}:N" for word in known)
            raise UsageError(f"{option} wants one of {wanted}, not {quoted(text)}")
        if not 0 < float(number) <= _MOST:
            raise UsageError(f"{option} {name}: must be more than 0 and at most {_MOST:,}")
        found[name] = float(number)
    return found


def _whole(found: dict[str, float], name: str) -> int | None:
    return int(found[name]) if name in found else None


def _octets(found: dict[str, float]) -> int | None:
    return int(found["filesize"]) * _KILO if "filesize" in found else None


def _nanoseconds(found: dict[str, float]) -> int | None:
    return int(found["duration"] * NS_PER_S) if "duration" in found else None
