"""Times, connections and parts of a capture, as given on the command line."""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterator
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import click

from netdissect.model.errors import UsageError
from netdissect.model.packets import NS_PER_S
from netdissect.model.reports import CaptureInfo
from netdissect.model.text import quoted

PART: Final = "netdissect.part"
"""Key of click's `Context.meta`: the requested `Part`."""

_UNITS = {
    "ns": 1,
    "us": 1_000,
    "ms": 1_000_000,
    "s": 1_000_000_000,
    "": 1_000_000_000,
    "m": 60_000_000_000,
}
_TEXT = re.compile(r"([0-9]{1,18}(?:\.[0-9]{1,18})?)(ns|us|ms|s|m|)\Z")
_MAX_NS = 10**18
"""Longest time, 31 years: the sum of two fits a signed 64-bit integer."""


if TYPE_CHECKING:
    from netdissect.join import Joined
    from netdissect.pipeline.reports import Reports

    _TextType = click.ParamType[int]
    _WordType = click.ParamType[str]
else:  # generic since click 8.2 only
    _TextType = _WordType = click.ParamType


class _Span(_TextType):
    """A span of time, in nanoseconds."""

    name = "time"

    def __init__(self, least: int = 0, *, forms: str = "3s, 250ms or 1.5m") -> None:
        """Take the minimum, in nanoseconds, and what an error message advises to write."""
        self._least = least
        self._forms = forms

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Return nanoseconds."""
        # A default value is in nanoseconds already.
        if isinstance(value, int):
            return value
        match = _TEXT.match(str(value))
        if match is None:
            self.fail(f"{quoted(value)} is not a time; write {self._forms}.", param, ctx)
        found = min(_MAX_NS, round(float(match[1]) * _UNITS[match[2]]))
        if found < self._least:
            self.fail("must be longer than 0.", param, ctx)
        return found


SPAN = _Span()
LENGTH = _Span(least=1)
"""A time above 0, for the length of something."""


def check_order(low: int | None, high: int | None, around: object = None) -> None:
    """Refuse a span that ends before it begins, or that is given together with `--around`."""
    if around is not None and (low, high) != (None, None):
        raise UsageError("--around already sets both ends: leave out --from and --to")
    if low is not None and high is not None and low > high:
        raise UsageError("--from is after --to")


def check_in_capture(option: str, requested: int | None, end: int, *, in_frames: bool) -> None:
    """Refuse a start beyond the end of the capture, both in frames or both in nanoseconds."""
    if requested is None or requested <= end:
        return
    if in_frames:
        raise UsageError(f"{option}: there is no frame {requested}: the capture has {end}")
    raise UsageError(f"{option}: the capture ends after {end / NS_PER_S:.3f} s")


class Part(NamedTuple):
    """The requested part of a capture, or of a pair of captures."""

    start: int | None = None
    end: int | None = None
    """Nanoseconds since the first frame of the (first) capture, or frame numbers; None = open."""
    frames: bool = False
    """Whether `start` and `end` are frame numbers."""
    connections: tuple[int, ...] = ()
    """Empty = all."""
    around: str | None = None
    """The value of `--around`, if the part was given so."""

    def filters(self) -> Iterator[str]:
        """Yield display filters that together select this part of one capture."""
        if self.frames:
            yield f"frame.number in {{{self.start}..{self.end}}}"
        else:
            if self.start is not None:
                yield f"frame.time_relative >= {self.start / 1e9:.9f}"
            if self.end is not None:
                yield f"frame.time_relative <= {self.end / 1e9:.9f}"
        if self.connections:
            yield f"conn.id in {{{', '.join(map(str, sorted(set(self.connections))))}}}"


def requested_part() -> Part:
    """Return the part requested on the command line; everything if none was."""
    context = click.get_current_context(silent=True)
    return Part() if context is None else context.meta.get(PART, Part())


def check_start(info: CaptureInfo, part: Part | None = None) -> None:
    """Refuse a part that starts beyond the end of a capture that has been read.

    Args:
        info: the capture's facts. One that is cut short may have been longer: nothing is refused.
        part: None = the part requested on the command line.

    """
    if info.truncated_at is None and info.last_time_ns is not None:
        _check_start(info, info.last_time_ns, part or requested_part())


def check_joined_start(pairs: Collection[Joined], part: Part) -> None:
    """Refuse a part that starts beyond the end of both captures of every pair. Nothing is refused
    if one of them is cut short.
    """
    captures = [info for pair in pairs for info in pair.report.captures]
    if any(info.truncated_at is not None or info.last_time_ns is None for info in captures):
        return
    # Frames and times of a part are those of the first capture of each pair.
    ends = [
        max(
            pair.common_ns(side, info.frames, info.last_time_ns or 0)
            for side, info in enumerate(pair.report.captures)
        )
        - (pair.report.captures[0].first_time_ns or 0)
        for pair in pairs
    ]
    longest = ends.index(max(ends))
    info = list(pairs)[longest].report.captures[0]
    _check_start(info, ends[longest] + (info.first_time_ns or 0), part)


def _check_start(info: CaptureInfo, end_ns: int, part: Part) -> None:
    """Refuse a part that starts beyond the last frame of a capture, or beyond `end_ns`."""
    option = "--from" if part.around is None else "--around"
    if part.around is not None and part.frames:
        check_in_capture(option, int(part.around[1:]), info.frames, in_frames=True)
    elif info.first_time_ns is not None:
        check_in_capture(option, part.start, end_ns - info.first_time_ns, in_frames=False)


class Whole(click.IntRange):
    """An integer within bounds, in digits alone: Python would also take `1_0` for 10."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the number."""
        if not isinstance(value, int) and not re.fullmatch(r"-?[0-9]+", str(value)):
            self.fail(f"{quoted(value)} is not a number.", param, ctx)
        return super().convert(value, param, ctx)


class Amount(click.FloatRange):
    """A number within bounds, and neither NaN nor infinite."""

    name = "number"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """Return the number."""
        found: float = super().convert(value, param, ctx)
        if not math.isfinite(found) or "_" in str(value):
            self.fail(f"{quoted(value)} is not a number.", param, ctx)
        return found


_MOMENT = _Span(forms="3s, 250ms or 1.5m, or a frame: #12")


class _Around(_WordType):
    """A time, or a frame as `#NUMBER`."""

    name = "moment"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return the text unchanged if it is one of the two."""
        text = str(value)
        if not re.fullmatch(r"#[1-9][0-9]{0,14}", text):
            _MOMENT.convert(text, param, ctx)
        return text


AROUND_TYPE = _Around()


def no_such_connection(number: int, reports: Reports) -> UsageError:
    """Return the error for a number that a capture lacks, or of which a filter left nothing."""
    if reports.by_number(number) is not None:
        return UsageError(f"no datagram of connection {number} matches the filter")
    known = reports.numbers()
    if not known:
        return UsageError(f"there is no connection {number}: the capture has none")
    there = f"{min(known)} to {max(known)}" if len(known) > 1 else f"only {known[0]}"
    return UsageError(f"there is no connection {number}: the capture has {there}")


def check_connections(numbers: Collection[int], reports: Reports) -> None:
    """Raise UsageError for the first number that a capture does not have."""
    known = set(reports.numbers()) if numbers else set()
    for number in numbers:
        if number not in known:
            raise no_such_connection(number, reports)
