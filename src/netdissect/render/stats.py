"""Prints rates, loss and round-trip times: a sparkline per figure, and a row per interval."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise

from netdissect.model.intervals import Interval
from netdissect.model.packets import Direction
from netdissect.render.console import Screen
from netdissect.render.units import LEVELS, Clock, arrow_of, duration, octets, percent

_SPARK_COLUMNS = 100


def sparkline(values: Sequence[float | None], columns: int) -> str:
    """Return one bar per value, or the maximum of several values per bar if there are more values
    than columns. Unknown values are spaces.
    """
    if not values:
        return ""
    width = min(columns, len(values))
    ends = [column * len(values) // width for column in range(width + 1)]
    parts = (values[start:end] for start, end in pairwise(ends))
    merged = [max((one for one in part if one is not None), default=None) for part in parts]
    top = max((value for value in merged if value is not None), default=0.0)
    # A one-way delay may be below 0, as the clocks' offset has a bound.
    shares = (value and (max(0.0, value) / top if top > 0 else 0.0) for value in merged)
    steps = len(LEVELS) - 1
    return "".join(" " if share is None else LEVELS[round(share * steps)] for share in shares)


_FIGURES: tuple[tuple[str, Callable[[Interval], float | None], Callable[[float], str]], ...] = (
    ("datagrams/s", lambda row: row.datagrams * 1e9 / row.span_ns, lambda value: f"{value:.0f}"),
    ("bytes/s", lambda row: row.octets * 1e9 / row.span_ns, octets),
    ("retrans", lambda row: row.resend_share, percent),
    ("lost", lambda row: row.loss_share, percent),
    ("RTT", lambda row: row.rtt_ms, duration),
    ("delay", lambda row: row.delay_ms, duration),
)


_CELLS = (
    ("datagrams", 9), ("bytes", 7), ("goodput/s", 9), ("units", 5), ("retrans", 11), ("lost", 10),
    ("RTT", 8), ("delay", 8),
)  # fmt: skip
"""(heading, width) of the columns after time and direction."""
_DROPPED = ("goodput/s", "units", "bytes", "retrans", "RTT", "delay")
"""Columns to leave out on a narrow screen, in this order."""
_FIXED = 14
"""Width of time, gap and arrow."""


def show_stats(screen: Screen, rows: Sequence[Interval], clock: Clock, *, sparks: bool) -> None:
    """Print a sparkline per figure and direction, then one line per interval and direction."""
    if not rows:
        screen.text("No datagram of a known protocol.")
        return
    if sparks:
        _sparks(screen, rows)
    observed = any(row.observed for row in rows)
    shown = _columns(screen.width, observed=observed)
    if observed:
        screen.line(("lost: datagrams, from both captures", "dim"))
    head = "".join(f" {name:>{width}}" for name, width in shown.items())
    screen.line((f"{'from':>12}  {head}", "dim"))
    for row in rows:
        screen.line(*_line(row, clock, shown))


def _columns(width: int, *, observed: bool) -> dict[str, int]:
    """Return the columns that fit: heading -> width; the delay needs two captures."""
    shown = {name: size for name, size in _CELLS if observed or name != "delay"}
    for name in _DROPPED:
        if _FIXED + sum(size + 1 for size in shown.values()) <= width:
            break
        shown.pop(name, None)
    return shown


def _sparks(screen: Screen, rows: Sequence[Interval]) -> None:
    columns = min(_SPARK_COLUMNS, screen.width - 34)
    for name, figure, show in _FIGURES:
        for way in Direction:
            values = [figure(row) for row in rows if row.direction == way]
            known = [value for value in values if value is not None]
            if not known or (name in {"retrans", "lost"} and not any(known)):
                continue
            screen.line(
                (f"{name:>12} ", "dim"),
                (f"{arrow_of(way)} ", way.label),
                (sparkline(values, columns), way.label),
                (f"  max {show(max(known))}", "dim"),
            )
    screen.text()


def _line(row: Interval, clock: Clock, shown: dict[str, int]) -> list[tuple[str, str]]:
    way = Direction(row.direction)
    cells = {
        "datagrams": (f"{row.datagrams}", ""),
        "bytes": (octets(row.octets), ""),
        "goodput/s": (octets(row.goodput), ""),
        "units": (f"{row.units}", ""),
        "retrans": _counted(row.retransmissions, row.resend_share, "resend"),
        "lost": _counted(row.lost, row.loss_share, "bad"),
        "RTT": ("-" if row.rtt_ms is None else duration(row.rtt_ms), ""),
        "delay": ("-" if row.delay_ms is None else duration(row.delay_ms), ""),
    }
    return [
        (f"{clock.show(row.start_ns):>12} ", "time"),
        (arrow_of(way), way.label),
        *((f" {cells[name][0]:>{width}}", cells[name][1]) for name, width in shown.items()),
    ]


def _counted(number: int, share: float | None, style: str) -> tuple[str, str]:
    """Return a number with its share, or a dash if the share is unknown; 0 has no style."""
    known = "-" if share is None else f"{number} ({percent(share)})" if number else "0"
    return known, style if number else "dim"
