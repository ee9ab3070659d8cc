"""Times on the command line: `3s`, `250ms`, `1.5m`; a bare number means seconds."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import click

from netdissect.model.errors import UsageError
from netdissect.model.packets import NS_PER_S
from netdissect.model.reports import CaptureInfo
from netdissect.model.text import quoted

__all__ = [
    "AROUND_TYPE",
    "LENGTH",
    "PART",
    "SPAN",
    "Amount",
    "Part",
    "in_order",
    "part_asked",
    "reached",
    "within",
]

PART: Final = "netdissect.part"
"""Where the context of a command has its `Part`."""

_UNITS = {
    "ns": 1,
    "us": 1_000,
    "ms": 1_000_000,
    "s": 1_000_000_000,
    "": 1_000_000_000,
    "m": 60_000_000_000,
}
_TEXT = re.compile(r"([0-9]{1,18}(?:\.[0-9]{1,18})?)(ns|us|ms|s|m|)\Z")
# 31 years: the sum of two such times fits into 64 bits with a sign.
_MAX_NS = 10**18


if TYPE_CHECKING:
    _TextType = click.ParamType[int]
    _WordType = click.ParamType[str]
else:  # generic since click 8.2 only
    _TextType = _WordType = click.ParamType


class _Span(_TextType):
    """A span of time, in nanoseconds."""

    name = "time"

    def __init__(self, least: int = 0) -> None:
        """Keep the shortest one allowed."""
        self._least = least

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Return nanoseconds."""
        # A default, in nanoseconds already.
        if isinstance(value, int):
            return value
        match = _TEXT.match(str(value))
        if match is None:
            self.fail(f"{quoted(value)} is no time; write 3s, 250ms or 1.5m.", param, ctx)
        found = min(_MAX_NS, round(float(match[1]) * _UNITS[match[2]]))
        if found < self._least:
            self.fail("a span is longer than nothing.", param, ctx)
        return found


SPAN = _Span()
LENGTH = _Span(least=1)
"""A span that is something's length."""


def in_order(low: int | None, high: int | None, around: object = None) -> None:
    """Refuse a span from one moment to an earlier one, and one beside what says both: `around`."""
    if around is not None and (low, high) != (None, None):
        raise UsageError("--around says from when to when: leave out --from and --to")
    if low is not None and high is not None and low > high:
        raise UsageError("--from is after --to")


def reached(option: str, asked: int | None, end: int, *, in_frames: bool) -> None:
    """Refuse what an option asks for behind the end of a capture: a frame, or nanoseconds."""
    if asked is not None and asked > end and in_frames:
        raise UsageError(f"{option}: there is no frame {asked}; there are 1 to {end}")
    if asked is not None and asked > end:
        raise UsageError(f"{option}: the capture ends after {end / NS_PER_S:.3f} s")


class Part(NamedTuple):
    """What of a capture, or of two, is wanted."""

    start: int | None = None
    end: int | None = None
    """Nanoseconds since the first frame of the first one, or frames of it; None = all."""
    frames: bool = False
    connections: tuple[int, ...] = ()
    """Empty = all."""
    around: str | None = None
    """What `--around` says."""

    def filters(self) -> Iterator[str]:
        """Yield display filters that together say the same of one capture."""
        if self.frames:
            yield f"frame.number in {{{self.start}..{self.end}}}"
        else:
            if self.start is not None:
                yield f"frame.time_relative >= {self.start / 1e9:.9f}"
            if self.end is not None:
                yield f"frame.time_relative <= {self.end / 1e9:.9f}"
        if self.connections:
            yield f"conn.id in {{{', '.join(map(str, sorted(set(self.connections))))}}}"


def part_asked() -> Part:
    """Return the part that the command was asked for; all where it was asked for none."""
    context = click.get_current_context(silent=True)
    return Part() if context is None else context.meta.get(PART, Part())


def within(info: CaptureInfo, part: Part | None = None) -> None:
    """Refuse a part of a capture, which has been read, that begins behind its end; where that is,
    nobody knows of one that is cut short. None = what the command was asked for.
    """
    part = part or part_asked()
    whole = info.truncated_at is None
    # Nobody knows where a capture that is cut short would have ended.
    if not whole or info.first_time_ns is None or info.last_time_ns is None:
        return
    option = "--from" if part.around is None else "--around"
    if part.around is not None and part.frames:
        reached(option, int(part.around[1:]), info.frames, in_frames=True)
    else:
        length_ns = info.last_time_ns - info.first_time_ns
        reached(option, part.start, length_ns, in_frames=False)


class Amount(click.FloatRange):
    """A number within bounds: `nan` is none, and `inf` is beyond all."""

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """Return the number."""
        found: float = super().convert(value, param, ctx)
        if not math.isfinite(found):
            self.fail(f"{quoted(value)} is no number.", param, ctx)
        return found


class _Around(_WordType):
    """A moment, as a time or as a frame."""

    name = "moment"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return the text, now that it is known to be one of both."""
        text = str(value)
        if not re.fullmatch(r"#[1-9][0-9]{0,14}", text):
            SPAN.convert(text, param, ctx)
        return text


AROUND_TYPE = _Around()
