"""Finds a rate limit of a direction (policing or shaping): however much is sent, no more than a
fixed volume per second arrives, and datagrams are lost only then.

The method compares the arrived volume over consecutive lossy seconds with a straight line. With
random losses the sum wanders away from the line like a random walk, because it depends on what was
sent; with a limit it keeps to the line within a datagram or two. In addition, there must be seconds
below the limit without losses, which random losses would not have spared.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from netdissect.model.diagnosis import Ceiling
from netdissect.model.native import append, i64, mypyc_attr, vec
from netdissect.model.reports import SpaceSnapshot

MAX_SECONDS = 120
"""Seconds of a direction remembered after a loss; beyond this, the older half is dropped."""
CALM_SECONDS: Final = 20
"""Seconds of a direction remembered before the first loss."""
SECOND_NS: Final = 1_000_000_000
LEAST_CAME: Final = 8
"""A second needs this many datagrams; with fewer, it is extended."""
LEAST_STRETCH: Final = 6
"""Consecutive lossy seconds that are needed, not counting the first and the last one."""
LEAST_BELOW: Final = 3
"""Lossless seconds below the limit that are needed, in addition to the lossy ones at it."""
SLACK: Final = 0.1
"""Rates of seconds at the limit differ from it by at most this share (or two datagrams)."""
WANDERS: Final = 0.25
"""Largest distance from the line, in standard deviations of a random walk of this length. Over ten
seconds, one random walk in a hundred stays within it.
"""
CHANCE: Final = 12.0
"""The lossless seconds would have had at least this many losses at the loss rate of the others. By
chance, this happens once in e**12.
"""
_WIDTH: Final = 9
_MISSING: Final = 6
_LOST: Final = 8
"""Columns, in the row of a second, of the losses at this place and by the receiver's report."""
APART: Final = 0.05
"""At most this share of all losses may be outside the lossy seconds at the limit."""


class Second(NamedTuple):
    """About a second of one direction."""

    start_ns: int
    frame: int
    """Frame of its first datagram."""
    span_ns: int
    delay_ns: int
    """A delay at its end that includes the queue of this direction; 0 = unknown."""
    volume: int
    """Bytes that arrived, or datagrams if sizes are unknown."""
    came: int
    """Numbered units that arrived."""
    lost: int
    """Numbered units that did not."""


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
        """Rows of `_WIDTH` numbers, one per second: tuples would take six times the memory."""
        self.lossy = False
        self.found: list[Ceiling | None] = [None, None]
        """The longest stretch at a limit so far, by what is missing at this place and by what the
        receiver reports.
        """

    def is_full(self, datagrams: i64) -> bool:
        """Return whether a second may end after `datagrams` datagrams of the direction."""
        return not self._frame or datagrams - self._datagrams >= LEAST_CAME

    def roll(
        self, time_ns: i64, frame: i64, delay_ns: i64, datagrams: i64, octets: i64,
        now: SpaceSnapshot,
    ) -> None:
        """End a second before a datagram, and begin the next one with it.

        Args:
            time_ns: time of the datagram.
            frame: its frame.
            delay_ns: the newest delay that includes the queue of the direction; 0 = unknown.
            datagrams: datagrams of the direction so far.
            octets: their bytes.
            now: the counts of its numbered units so far.

        """
        if self._frame:
            before, rows = self._before, self._rows
            missing = max(0, now.never_seen - before.never_seen)
            lost = max(0, now.lost - before.lost)
            # Appending to a `vec` may move it, so that only the returned one is valid.
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
        """Drop the older half of the seconds."""
        rows = self._rows
        cut = len(rows) // (2 * _WIDTH) * _WIDTH
        self._rows = vec[i64]([rows[at] for at in range(cut, len(rows))])

    def _may_have_limit(self, column: i64) -> bool:
        """Return whether a column of losses has a stretch as in `_stretches`. Most have none, which
        this finds out without an object per second.
        """
        rows = self._rows
        run: i64 = 0
        before = False
        end: i64 = len(rows)
        while column < end:
            after = column + _WIDTH < end and rows[column + _WIDTH] > 0
            lossy = rows[column] > 0
            run = run + 1 if lossy or (before and after) else 0
            if run >= LEAST_STRETCH + 2:
                return True
            before = lossy
            column += _WIDTH
        return False

    def judge(self) -> None:
        """Search for a limit in the remembered seconds."""
        if not self.lossy:
            return
        rows = self._rows
        for way in (0, 1):
            if not self._may_have_limit(_LOST if way else _MISSING):
                continue
            seconds = []
            for at in range(0, len(rows), _WIDTH):
                start_ns, frame, span_ns, delay_ns, octets, came, missing, reports, lost = [
                    int(rows[at + place]) for place in range(_WIDTH)
                ]
                counts = (reports, reports, lost) if way else (octets, came, missing)
                seconds.append(Second(start_ns, frame, span_ns, delay_ns, *counts))
            before = self.found[way]
            new = ceiling_of(seconds, before, "datagrams" if way else "bytes")
            if new is not None and (before is None or new.seconds > before.seconds):
                self.found[way] = new


def ceiling_of(
    seconds: Sequence[Second], before: Ceiling | None = None, unit: str = "datagrams"
) -> Ceiling | None:
    """Return the longest stretch of seconds at a rate limit; None if there is none, or if random
    losses would look the same.

    Args:
        seconds: consecutive seconds.
        before: the limit found earlier, if any: the same limit needs no seconds below it again.
        unit: the unit of volumes.

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
    # A limit in datagrams has datagrams of size 1.
    level, size = float(volume) * SECOND_NS / span_ns, volume / came
    slack = max(SLACK * level, 2 * size)
    inside = {place for low, high in stretches for place in range(low - 1, high + 1)}
    apart = sum(s.lost for place, s in enumerate(seconds) if place not in inside)
    rates = [s.volume * SECOND_NS / s.span_ns for s in seconds]
    # While a queue fills or a token bucket empties, more than the limit gets through.
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
    """Return (first, end) of the runs of lossy seconds, without the first and the last second, in
    which the limit may have begun and ended. One lossless second between two lossy ones is allowed.
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
    """Return the largest distance of the arrived volume from a straight line."""
    far = ahead = 0.0
    for second in held:
        ahead += second.volume - per_ns * second.span_ns
        far = max(far, abs(ahead))
    return far


def _queue_ms(held: Sequence[Second], below: Sequence[Second]) -> float | None:
    """Return by how much delays were longer at the limit, in ms; None if they are unknown."""
    from statistics import median  # noqa: PLC0415 - slow to import, and hardly ever needed

    slow, quick = ([s.delay_ns for s in part if s.delay_ns] for part in (held, below))
    return (median(slow) - median(quick)) / 1e6 if slow and quick else None
