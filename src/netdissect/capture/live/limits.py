"""When a capture stops by itself, and when it starts the next file: `-a`, `-b` and `-c`."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Self

from netdissect.model.errors import UsageError
from netdissect.model.packets import NS_PER_S
from netdissect.model.text import quoted

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
        duration_ns, octets, count, files = _limits(_numbers(texts, "-a"))
        counts = [each for each in (packets, count) if each is not None]
        return cls(duration_ns, octets, min(counts, default=None), files)


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
        found = _numbers(texts, "-b")
        if not found:
            return None
        if set(found) == {"files"}:
            raise UsageError("-b files:N also wants when a file is full: -b filesize:KB, for one")
        duration_ns, octets, packets, files = _limits(found)
        return cls(duration_ns, octets, packets, files)


_UNITS = {"duration": NS_PER_S, "filesize": 1000, "packets": 1, "files": 1}
"""Word -> size of its unit in ns or bytes; a kB has 1000 bytes, as in dumpcap."""


def _numbers(texts: Iterable[str], option: str) -> dict[str, float]:
    found: dict[str, float] = {}
    for text in texts:
        name, colon, number = text.partition(":")
        # Only a duration may have a fraction.
        plain = number.replace(".", "", 1) if name == "duration" else number
        if name not in _UNITS or not colon or not (plain.isascii() and plain.isdecimal()):
            wanted = ", ".join(f"{word}:N" for word in _UNITS)
            raise UsageError(f"{option} wants one of {wanted}, not {quoted(text)}")
        if not 0 < float(number) <= _MOST:
            raise UsageError(f"{option} {name}: must be more than 0 and at most {_MOST:,}")
        found[name] = float(number)
    return found


def _limits(found: dict[str, float]) -> list[int | None]:
    """Return duration in ns, size in bytes, packets and files."""
    return [int(found[name] * unit) if name in found else None for name, unit in _UNITS.items()]
