"""How the browser shows times, and reads those that the user types."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Final

from netdissect.model.packets import NS_PER_S
from netdissect.render.units import Clock, seconds

STYLES: Final = {
    "r": "times: seconds since the first frame of the capture",
    "c": "times: seconds since the first frame of the connection",
    "d": "times: in lists of packets, seconds since the line above",
    "a": "times: of day",
}
"""Style -> message about it, in the order in which the key goes through them."""
_MAX_SECONDS: Final = 1e12
"""Times beyond this do not fit into 64 bits of nanoseconds."""


class BrowseClock(Clock):
    """Formats times in at most 12 columns. What a line shows does not depend on others. Compiled,
    as `Clock` is.
    """

    def __init__(self, style: str = "r", first_ns: int | None = None) -> None:
        """Take the same as `Clock`."""
        super().__init__(style, first_ns)
        self.connection_ns: int | None = None
        """Time of the first frame of the selected connection; None = none is selected."""

    def turn(self) -> str:
        """Switch to the next style; return a message about it."""
        names = list(STYLES)
        self.style = names[(names.index(self.style) + 1) % len(names)]
        return STYLES[self.style]

    @property
    def columns(self) -> int:
        """Return how wide the column of the times in a list is."""
        return 12 if self.style == "a" else 11

    def show(self, time_ns: int | None) -> str:
        """Return a time."""
        if time_ns is None:
            return "-"
        if self.style == "a" and (moment := _local(time_ns)) is not None:
            return f"{moment:%H:%M:%S}.{time_ns % NS_PER_S // 1_000_000:03d}"
        zero = self.connection_ns if self.style == "c" else None
        return seconds(time_ns - ((self.first_ns or 0) if zero is None else zero))

    def line(self, time_ns: int, above_ns: int | None) -> str:
        """Return the time of a line of a list; `above_ns`: that of the line above it."""
        if self.style != "d":
            return self.show(time_ns)
        return seconds(0 if above_ns is None else time_ns - above_ns)

    def read(self, text: str, here_ns: int) -> int | None:
        """Return the time that a user means: seconds since the first frame (`12.5`), from `here_ns`
        on (`+1.2`, `-0.5`), or the next such time of day (`03:15:02`); None if it is none of these.
        """
        zero, text = self.first_ns or 0, text.strip()
        if ":" in text:
            return _next_time_of_day(text, zero)
        try:
            since = float(text)
        except ValueError:
            return None
        if not abs(since) < _MAX_SECONDS:
            return None
        return max(0, (here_ns if text[0] in "+-" else zero) + int(since * NS_PER_S))


def _local(time_ns: int) -> datetime | None:
    try:
        return datetime.fromtimestamp(time_ns // NS_PER_S, UTC).astimezone()
    except (OverflowError, ValueError, OSError):
        return None


def _next_time_of_day(text: str, first_ns: int) -> int | None:
    """Return the first moment with this time of day that is not before `first_ns`."""
    first = _local(first_ns)
    for form in ("%H:%M:%S.%f", "%H:%M:%S", "%H:%M"):
        try:
            given = datetime.strptime(text, form)  # noqa: DTZ007 - the zone is that of `first`
        except ValueError:
            continue
        if first is None:
            return None
        moment = first.replace(
            hour=given.hour, minute=given.minute, second=given.second, microsecond=0
        )
        nanoseconds = int(moment.timestamp()) * NS_PER_S + given.microsecond * 1000
        if nanoseconds < first_ns:
            nanoseconds = int((moment + timedelta(days=1)).timestamp()) * NS_PER_S
            nanoseconds += given.microsecond * 1000
        return nanoseconds
    return None
