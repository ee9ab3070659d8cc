"""When a capture ends by itself, and when it goes on in the next file: `-a`, `-b` and `-c`."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Self

from netdissect.model.errors import UsageError
from netdissect.model.packets import NS_PER_S
from netdissect.model.text import quoted

__all__ = ["Autostop", "RingRule"]

_KILO = 1000
"""Bytes of a kB, as dumpcap counts."""
_MOST = 9_000_000_000
"""Of anything; more seconds than that Python does not wait."""


@dataclass(frozen=True, slots=True)
class Autostop:
    """When to end."""

    duration_ns: int | None = None
    """After so long."""
    octets: int | None = None
    """When the file being written has this size."""
    packets: int | None = None
    """After so many packets."""
    files: int | None = None
    """When so many files are full."""

    @classmethod
    def parse(cls, texts: Iterable[str], *, packets: int | None = None) -> Self:
        """Return what `duration:5`, `filesize:1024` (kB), `packets:100` and `files:3` mean.

        Raises:
            UsageError: a word that is none of these, or a number that is none.

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
    """When to go on in the next file, and how many to keep."""

    duration_ns: int | None = None
    """When the first packet of the file is so old."""
    octets: int | None = None
    """When the file has this size."""
    packets: int | None = None
    """When the file holds so many packets."""
    files: int | None = None
    """Files kept; the oldest are removed. None keeps all."""
    by_frame: bool = False
    """Whether files are named by the number of their first frame, for `Segments`."""

    @classmethod
    def parse(cls, texts: Iterable[str]) -> Self | None:
        """Return what `filesize:1024` (kB), `duration:60`, `packets:1000` and `files:3` mean; None
        where nothing is asked for.

        Raises:
            UsageError: a word that is none of these, a number that is none, or nothing that says
                when a file is full.

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
        # Of a duration alone there are fractions.
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
