"""A limit on the rate of a direction: however much is sent, no more than so much a second arrives,
and what is lost is lost then only.

Losses by chance come and go with what is sent; what a limit lets through does not. Over seconds in
a row in which something was lost, what came is therefore laid against a straight line: losses by
chance wander away from it as a random walk does, a limit keeps to it within a datagram or two.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from netdissect.model.diagnosis import Ceiling
from netdissect.model.native import append, i64, mypyc_attr, vec
from netdissect.model.reports import SpaceSnapshot

__all__ = ["MAX_SECONDS", "Load", "Second", "ceiling_of"]

MAX_SECONDS = 120
"""Seconds of a direction remembered once something was lost; the older half then goes."""
CALM_SECONDS: Final = 20
"""Seconds remembered of a direction that has lost nothing yet."""
SECOND_NS: Final = 1_000_000_000
LEAST_CAME: Final = 8
"""Datagrams of a second before it is judged; with fewer it grows longer."""
LEAST_STRETCH: Final = 6
"""Seconds in a row, its first and last left out, that can be laid against a line."""
LEAST_BELOW: Final = 3
"""Seconds below the limit that are needed beside those at it."""
SLACK: Final = 0.1
"""Share by which seconds at a limit, or two datagrams, differ from it."""
WANDERS: Final = 0.25
"""Distance from the line, in standard deviations of a random walk as long. One walk of a hundred
stays within it over ten seconds."""
CHANCE: Final = 12.0
"""Losses that the seconds below would have had with the share of those above; they have none. Once
in e**12 such a thing happens by chance."""
_WIDTH: Final = 9
_MISSING: Final = 6
_LOST: Final = 8
"""Columns of the row of a second, of `_WIDTH` numbers, with what did not come."""
APART: Final = 0.05
"""Share of all losses that may lie outside of such seconds."""


class Second(NamedTuple):
    """About a second of one direction."""

    start_ns: int
    frame: int
    """Its first one."""
    span_ns: int
    delay_ns: int
    """A delay at its end that holds the queue of this direction; 0 = not known."""
    volume: int
    """Bytes that came, or datagrams where sizes are not known."""
    came: int
    """Numbered units that came."""
    lost: int
    """Those that did not."""


@mypyc_attr(acyclic=True)
class Load:
    """The seconds of one direction, in bounded memory."""

    __slots__ = (
        "_before", "_datagrams", "_frame", "_octets", "_rows", "_since_ns", "found", "lossy",
    )  # fmt: skip

    def __init__(self) -> None:
        self._since_ns: i64 = 0
        self._frame: i64 = 0
        self._datagrams: i64 = 0
        self._octets: i64 = 0
        self._before = SpaceSnapshot("", 0, 0, 0, 0)
        self._rows = vec[i64]()
        """A row a second, of `_WIDTH` numbers: tuples would take six times as much."""
        self.lossy = False
        self.found: list[Ceiling | None] = [None, None]
        """The longest stretch at a limit so far: by what is missing at this place, and by what the
        receiver told."""

    def is_full(self, datagrams: i64) -> bool:
        """Return whether a second may end after so many datagrams of the direction."""
        return not self._frame or datagrams - self._datagrams >= LEAST_CAME

    def roll(
        self, time_ns: i64, frame: i64, delay_ns: i64, datagrams: i64, octets: i64,
        now: SpaceSnapshot,
    ) -> None:
        """End a second before a datagram, and begin the next with it; behind the delay comes what
        the direction has had until now.
        """
        if self._frame:
            before, rows = self._before, self._rows
            missing = max(0, now.never_seen - before.never_seen)
            lost = max(0, now.lost - before.lost)
            rows = append(rows, self._since_ns)
            rows = append(rows, self._frame)
            rows = append(rows, time_ns - self._since_ns)
            rows = append(rows, delay_ns)
            rows = append(rows, octets - self._octets)
            rows = append(rows, now.units - before.units)
            rows = append(rows, missing)
            rows = append(rows, now.delivered - before.delivered)
            rows = append(rows, lost)
            self._rows = rows
            self.lossy = self.lossy or missing > 0 or lost > 0
            if len(rows) > _WIDTH * (MAX_SECONDS if self.lossy else CALM_SECONDS):
                self.judge()
                self._halve()
        self._since_ns, self._frame, self._before = time_ns, frame, now
        self._datagrams, self._octets = datagrams, octets

    def _halve(self) -> None:
        """Let the older half of the seconds go."""
        rows = self._rows
        cut = len(rows) // (2 * _WIDTH) * _WIDTH
        self._rows = vec[i64]([rows[at] for at in range(cut, len(rows))])

    def _may_have_limit(self, column: i64) -> bool:
        """Return whether seconds enough have losses in a column, for in a stretch every other one
        has some: it takes far less than to look for a stretch.
        """
        rows = self._rows
        lossy: i64 = 0
        while column < len(rows):
            lossy += rows[column] > 0
            column += _WIDTH
        return lossy > LEAST_STRETCH // 2

    def judge(self) -> None:
        """Look for a limit in the seconds that are remembered."""
        if not self.lossy:
            return
        rows = self._rows
        for way in (0, 1):
            if not self._may_have_limit(_LOST if way else _MISSING):
                continue
            seconds = []
            for at in range(0, len(rows), _WIDTH):
                start_ns, frame, span_ns, delay_ns, octets, came, missing, told, lost = [
                    int(rows[at + place]) for place in range(_WIDTH)
                ]
                counts = (told, told, lost) if way else (octets, came, missing)
                seconds.append(Second(start_ns, frame, span_ns, delay_ns, *counts))
            before = self.found[way]
            new = ceiling_of(seconds, before, "datagrams" if way else "bytes")
            if new is not None and (before is None or new.seconds > before.seconds):
                self.found[way] = new


def ceiling_of(
    seconds: Sequence[Second], before: Ceiling | None = None, unit: str = "datagrams"
) -> Ceiling | None:
    """Return the longest stretch of seconds in which a direction sat at a limit of its rate; None
    where there is none, or losses by chance would look the same.

    Args:
        seconds: one after the other.
        before: the limit found earlier; its seconds below count for these too.
        unit: what volumes count.

    """
    stretches = _stretches(seconds)
    if not stretches:
        return None
    first, end = max(stretches, key=lambda stretch: stretch[1] - stretch[0])
    held = seconds[first:end]
    came, lost = sum(s.came for s in held), sum(s.lost for s in held)
    volume, span_ns = sum(s.volume for s in held), sum(s.span_ns for s in held)
    if not (came and lost and volume):
        return None
    level, size = float(volume) * SECOND_NS / span_ns, volume / came
    slack = max(SLACK * level, 2 * size)
    inside = {place for low, high in stretches for place in range(low - 1, high + 1)}
    apart = sum(s.lost for place, s in enumerate(seconds) if place not in inside)
    rates = [s.volume * SECOND_NS / s.span_ns for s in seconds]
    # What fills a queue comes through at more than the limit, and so does what a bucket of tokens
    # holds, until it is empty.
    filling = {place for low, high in stretches for place in (low - 2, low - 1, high)}
    for low, _ in stretches:
        place = low - 2
        while place >= 0 and not seconds[place].lost and rates[place] > level + slack:
            filling.add(place)
            place -= 1
    if (
        _wanders(held, level / SECOND_NS) > WANDERS * size * (lost * came / (came + lost)) ** 0.5
        or apart > APART * sum(s.lost for s in seconds)
        or any(rate > level + slack for place, rate in enumerate(rates) if place not in filling)
    ):
        return None
    below = [
        s for s, rate in zip(seconds, rates, strict=True) if not s.lost and rate < level - slack
    ]
    known = before is not None and abs(before.per_second - level) <= slack
    spared = sum(s.came for s in below) * lost / (came + lost)
    if not known and (len(below) < LEAST_BELOW or spared < CHANCE):
        return None
    return Ceiling(
        round(level), unit, span_ns // SECOND_NS, came + lost, lost,
        held[0].start_ns, held[-1].start_ns + held[-1].span_ns, held[0].frame, held[-1].frame,
        _queue_ms(held, below),
    )  # fmt: skip


def _stretches(seconds: Sequence[Second]) -> list[tuple[int, int]]:
    """Return (first, end) of seconds in a row with losses, without the first and the last one: a
    limit may have begun and ended within them. One without a loss may lie between two with some.
    """
    lossy = [second.lost > 0 for second in seconds]
    found, start = [], None
    for place in range(len(seconds) + 1):
        on = place < len(seconds) and (
            lossy[place] or (0 < place < len(lossy) - 1 and lossy[place - 1] and lossy[place + 1])
        )
        if on and start is None:
            start = place
        elif not on and start is not None:
            if place - start >= LEAST_STRETCH + 2:
                found.append((start + 1, place - 1))
            start = None
    return found


def _wanders(held: Sequence[Second], per_ns: float) -> float:
    """Return how far what came lies away from a straight line, at most."""
    far = ahead = 0.0
    for second in held:
        ahead += second.volume - per_ns * second.span_ns
        far = max(far, abs(ahead))
    return far


def _queue_ms(held: Sequence[Second], below: Sequence[Second]) -> float | None:
    """Return by how much delays were longer at the limit; None where they are not known."""
    from statistics import median  # noqa: PLC0415 - long to import, and hardly ever needed

    slow, quick = ([s.delay_ns for s in part if s.delay_ns] for part in (held, below))
    return (median(slow) - median(quick)) / 1e6 if slow and quick else None
