"""Formats times, durations, amounts and directions for people."""

from __future__ import annotations

from datetime import UTC, datetime

from netdissect.model.packets import NS_PER_S, Direction
from netdissect.render.safe import safe

LEVELS = "▁▂▃▄▅▆▇█"
"""Bars of growing height."""
COPIES = {
    "retransmission": ("»", "resend", "retransmitted"),
    "duplicate": ("○", "duplicate", "duplicated by the network"),
    "unknown": ("?", "note", "retransmitted, or duplicated by the network"),
}
"""Kind of a further copy -> (sign, style, what happened)."""
STATE_STYLES = {
    "open": "good", "closed": "dim", "timed_out": "bad", "rejected": "bad", "silent": "bad",
    "unknown": "note",
}  # fmt: skip
"""State of a connection -> its style."""
MAX_NAME = 40
"""Characters of a player's name that are shown beside an address."""

_STEPS = ((1.0, "%s%.2f ms"), (99.95, "%s%.1f ms"), (999.5, "%s%.0f ms"))
"""(limit in milliseconds, format): durations have three significant figures."""
_MOST_SECONDS = 99_950.0
"""Limit in milliseconds up to which a duration is in seconds."""
_KILO = 1000
_LABELS = tuple(direction.label for direction in Direction)


def direction_style(direction: int | None) -> str:
    """Return the style name of a direction."""
    return "dim" if direction is None else _LABELS[direction]


def arrow_of(direction: int | None) -> str:
    """Return the arrow of a direction, from the client on the left to the server on the right."""
    return " " if direction is None else "→" if direction == Direction.C2S else "←"


def counted(count: int, name: str) -> str:
    """Return a number with its noun: `1 byte`, `2 bytes`."""
    return f"{count:,} {name}{'' if count == 1 else 's'}"


def seen_at(vantage: str) -> str:
    """Return a phrase that says where a capture was taken."""
    return "capture point unknown" if vantage == "unknown" else f"captured at the {vantage}"


def in_brackets(name: str | None) -> str:
    """Return a player's name as it stands after an address; "" = none. A sender may state a longer
    one than any game accepts.
    """
    return f" ({safe(name, MAX_NAME)})" if name else ""


def dialect_text(dialects: tuple[str, str]) -> str:
    """Return the dialect; if the directions differ, the client's and the server's.

    A slash would look like a dialect that is undecided: `riptide-2.1/2.2`.
    """
    there, back = dialects
    if there == back:
        return there
    family = there.partition("-")[0] + "-"
    return f"{there}, {back.removeprefix(family) if there.startswith(family) else back}"


class Clock:
    """Formats times in one of the styles of `-t`: r, d, a, u, e."""

    def __init__(self, style: str = "r", first_ns: int | None = None) -> None:
        """Take the style and the time of the first frame (None = the first time formatted)."""
        self.style = style
        self.first_ns = first_ns
        self._last_ns: int | None = None

    def show(self, time_ns: int | None) -> str:
        """Return a time with a fixed number of decimals."""
        if time_ns is None:
            return "-"
        if self.first_ns is None:
            self.first_ns = time_ns
        if self.style == "r":
            return seconds(time_ns - self.first_ns)
        if self.style == "d":
            last = time_ns if self._last_ns is None else self._last_ns
            self._last_ns = time_ns
            return seconds(time_ns - last)
        if self.style == "e":
            return f"{time_ns // NS_PER_S}.{time_ns % NS_PER_S:09d}"
        return _wall(time_ns, utc=self.style == "u")


def seconds(nanoseconds: int) -> str:
    """Return a span in seconds with six decimals, truncated so that times stay in order."""
    # Called once per line: an f-string with a format takes ten times the instructions.
    micros = str(abs(nanoseconds) // _KILO)
    if len(micros) < 7:  # noqa: PLR2004 - digits of a second
        micros = micros.zfill(7)
    shown = micros[:-6] + "." + micros[-6:]
    return "-" + shown if nanoseconds < 0 else shown


def _wall(time_ns: int, *, utc: bool) -> str:
    try:
        moment = datetime.fromtimestamp(time_ns // NS_PER_S, UTC)
        moment = moment if utc else moment.astimezone()
    except (OverflowError, ValueError, OSError):
        return f"{time_ns // NS_PER_S}.{time_ns % NS_PER_S:09d}"
    return f"{moment:%Y-%m-%d %H:%M:%S}.{time_ns % NS_PER_S // _KILO:06d}{'Z' if utc else ''}"


def duration(milliseconds: float | None) -> str:
    """Return a duration with three significant figures: `0.42 ms`, `61.3 ms`, `12.4 s`,
    `3 min 05 s`; `?` if unknown.
    """
    if milliseconds is None:
        return "?"
    size = abs(milliseconds)
    sign = "-" if milliseconds < 0 else ""
    for limit, form in _STEPS:
        if size < limit:
            return form % (sign, size)
    if size < _MOST_SECONDS:
        return f"{sign}{size / 1000:.2f} s"
    minutes, rest = divmod(round(size / 1000), 60)
    hours, left = divmod(minutes, 60)
    return f"{sign}{hours} h {left:02d} min" if hours else f"{sign}{minutes} min {rest:02d} s"


def octets(amount: float) -> str:
    """Return a number of bytes: `812 B`, `12.1 kB`, `3.4 MB`; 1 kB = 1000 bytes."""
    if amount < _KILO:
        return f"{amount:.0f} B"
    for unit in ("kB", "MB", "GB"):
        amount /= _KILO
        if amount < _KILO:
            # The format .3g would show 999.7 as 1e+03.
            return f"{amount:.3g} {unit}" if amount < 999.5 else f"{amount:.0f} {unit}"  # noqa: PLR2004
    return f"{amount / _KILO:.3g} TB"


def share(part: int, whole: int) -> float | None:
    """Return part / whole; None if whole is 0."""
    return part / whole if whole else None


def percent(value: float | None) -> str:
    """Return a share as a percentage with one decimal; `-` if unknown."""
    return "-" if value is None else f"{100 * value:.1f}%"


def rtt_range(low: float | None, middle: float | None, high: float | None) -> str:
    """Return round-trip times as `median (min–max)`, with the unit only once if possible."""
    if middle is None:
        return "-"
    if low is None or high is None:
        return duration(middle)
    shown, least, most = duration(middle), duration(low), duration(high)
    if least == most:
        return shown
    unit = " " + shown.rpartition(" ")[2]
    if least.endswith(unit) and most.endswith(unit):
        least, most = least.removesuffix(unit), most.removesuffix(unit)
    return f"{shown} ({least}–{most})"
