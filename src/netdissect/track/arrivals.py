"""When the newest units of a space came, for `Repeats`."""

from __future__ import annotations

from itertools import pairwise
from typing import Final

from netdissect.model.native import i64
from netdissect.track.context import NETWORK_COPY_NS
from netdissect.track.numbers import Numbers
from netdissect.track.unitstore import UnitStore
from netdissect.track.vantage import MIN_DISORDER

OVERTAKEN_BY: Final = 32
"""How many of the numbers after a unit are looked up to find out how late the unit is."""


def newest_arrivals(numbers: Numbers, store: UnitStore) -> list[int]:
    """Return when the last copies of the newest units came, the latest first, in ns. The units of
    one datagram count once.
    """
    newest = int(numbers.newest)
    lasts = {store.last_ns(seq) for seq in range(newest - OVERTAKEN_BY + 1, newest + 1)}
    return sorted([last_ns for last_ns in lasts if last_ns is not None], reverse=True)


def burst_after_silence(arrivals: list[int], time_ns: int, guard_ns: int) -> tuple[int, int]:
    """Return (length of the silence before the current burst in ns, units in the burst).

    A silence lasts at least as long as the sender's guard, and is one of the longest fifth of those
    between the arrivals: where little is sent, shorter ones are usual. The burst is shorter than
    the guard. The silence is 0 if there is none.

    Args:
        arrivals: as from `newest_arrivals`.
        time_ns: time of the newest copy of the burst.
        guard_ns: the shortest time that the sender leaves between two transmissions of a unit.

    """
    pauses = sorted([later - before for later, before in pairwise(arrivals)])
    long_ns = max(guard_ns, pauses[len(pauses) * 4 // 5] if pauses else 0)
    since_ns = time_ns
    for count, arrival in enumerate(arrivals):
        if since_ns - arrival >= long_ns:
            return since_ns - arrival, count
        if time_ns - arrival >= guard_ns:
            return 0, count
        since_ns = arrival
    return 0 if len(arrivals) < OVERTAKEN_BY else guard_ns, len(arrivals)


def overtaken(numbers: Numbers, store: UnitStore, seq: int, gap_ns: int, time_ns: int) -> bool:
    """Return whether later numbers came since the copy of `seq` that came `gap_ns` before this one,
    if the gap is that of a network copy and the network keeps the order.
    """
    if gap_ns >= NETWORK_COPY_NS or numbers.out_of_order >= MIN_DISORDER:
        return False
    last = min(seq + OVERTAKEN_BY, int(numbers.newest))
    lasts = [store.arrival_ns(later, 0) for later in range(seq + 1, last + 1)]
    return max(lasts, default=0) > time_ns - gap_ns


def earliest_later(numbers: Numbers, store: UnitStore, seq: i64, time_ns: i64) -> i64:
    """Return when the first of the next `OVERTAKEN_BY` numbers arrived; `time_ns` if none did."""
    first_ns: i64 = time_ns
    last: i64 = min(seq + OVERTAKEN_BY, numbers.newest)
    later: i64 = seq + 1
    while later <= last:
        arrival_ns = store.arrival_ns(later, time_ns)
        if arrival_ns < first_ns:  # noqa: PLR1730 - the builtin would cost more
            first_ns = arrival_ns
        later += 1
    return first_ns
