"""Axis scales and their ticks: round values in steps of 1, 2 and 5, and round times of a clock."""

from __future__ import annotations

import math

from netdissect.model.packets import NS_PER_S

_CLOCK = (1, 2, 5, 10, 15, 20, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14_400, 21_600,
          43_200, 86_400)  # fmt: skip
"""Steps of the ticks of long spans, seconds."""
_LONG_S = 180
"""Spans that end later than this are labelled in minutes and seconds..."""
_CLOCK_FROM_S = 0.5
"""... unless the ticks are closer together than this."""
_SLACK = 1.5
"""Up to this many times the requested number of ticks is preferred to fewer."""
_MINUTE, _HOUR = 60, 3600


def nice(least: float) -> float:
    """Return the smallest of 1, 2, 5 times a power of ten that is not below `least`."""
    if least <= 0 or not math.isfinite(least):
        return 1.0
    power = 10.0 ** math.floor(math.log10(least))
    return next(
        (step * power for step in (1, 2, 5, 10) if step * power >= least * (1 - 1e-9)), least
    )


def headroom(high: float, *, whole: bool = False) -> float:
    """Return a round upper end for an axis that has to show `high`."""
    if high <= 0:
        return 1.0
    step = nice(high / 5)
    if whole:
        step = max(1.0, step)
    steps = int(high / step * (1 + 1e-9)) + 1
    return step * steps


def ticks(low: float, high: float, most: int, *, whole: bool = False) -> list[float]:
    """Return the round values from `low` to `high`: about `most` of them, at most."""
    step = nice((high - low) / max(1, most) / _SLACK) if high > low else 1.0
    if whole:
        step = max(1.0, step)
    first = math.ceil(low / step - 1e-9)
    last = math.floor(high / step + 1e-9)
    return [index * step for index in range(first, last + 1)]


def number(value: float, step: float = 1.0) -> str:
    """Return the label of a tick, with the decimals that its step needs."""
    digits = max(0, -math.floor(math.log10(step) + 1e-9)) if step > 0 else 0
    return f"{value:,.{digits}f}"


def time_ticks(start_ns: int, end_ns: int, most: int) -> list[tuple[int, str]]:
    """Return (time, label) of the round times between two times, counted from zero; about `most` at
    most.
    """
    span = max(1, end_ns - start_ns)
    least = span / NS_PER_S / max(1, most) / _SLACK
    # Deep in a long capture a short span has no room for steps of a clock.
    long = end_ns / NS_PER_S >= _LONG_S and least > _CLOCK_FROM_S
    if long:
        seconds = next((step for step in _CLOCK if step >= least), None)
        step = int((seconds or 86_400 * math.ceil(least / 86_400)) * NS_PER_S)
    else:
        step = max(1, round(nice(least) * NS_PER_S))
    first = -(-start_ns // step)
    return [
        (index * step, clock_label(index * step, step, long=long))
        for index in range(first, end_ns // step + 1)
    ]


def clock_label(time_ns: int, step_ns: int = NS_PER_S, *, long: bool = False) -> str:
    """Return the label of a time: `2 s`, `2.5 s`, `3:20`, `1:03:20`."""
    if long:
        minutes, seconds = divmod(round(time_ns / NS_PER_S), _MINUTE)
        hours, minutes = divmod(minutes, _MINUTE)
        return f"{hours}:{minutes:02d}:{seconds:02d}" if hours else f"{minutes}:{seconds:02d}"
    if step_ns < NS_PER_S // 1000:
        return f"{number(time_ns / 1e6, step_ns / 1e6)} ms"
    return f"{number(time_ns / NS_PER_S, step_ns / NS_PER_S)} s"


def nice_span_ns(span_ns: int, most: int) -> int:
    """Return a round interval that divides a span into about `most` parts at most."""
    least = span_ns / max(1, most)
    millisecond = 1_000_000
    for step in (10, 50, 100, 500, 1000, 5000, 10_000, 30_000, 60_000, 300_000, 600_000):
        if step * millisecond >= least:
            return step * millisecond
    return max(1, math.ceil(least / (_HOUR * NS_PER_S))) * _HOUR * NS_PER_S
