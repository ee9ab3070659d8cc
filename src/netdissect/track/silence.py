"""Whether a side was not heard that should have been: by its own timers, or as it was asked."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from netdissect.track.tcp import COPIES, FIRST_NS

if TYPE_CHECKING:
    from netdissect.track.connection import Connection
    from netdissect.track.lane import Lane

__all__ = ["SILENT_PERIODS", "asked_since", "silent_sides"]

SILENT_PERIODS: Final = 3
"""A side that keeps quiet for so many times its longest pause is silent."""
ASKED: Final = 2
"""Questions without an answer from which on a side counts as silent, where it had time for one ...
"""
MANY_ASKED: Final = 8
"""... and whatever the time."""
PATIENCE_NS: Final = 1_000_000_000
"""An answer is waited for at least so long ..."""
PATIENT_TRIPS: Final = 4
"""... and so many times the longest usual round trip."""
_MS: Final = 1_000_000


def silent_sides(connection: Connection, end_ns: int, patience_ns: int) -> tuple[bool, bool]:
    """Return for client and server whether the capture ends with it silent.

    Args:
        connection: an open connection, before its units are settled.
        end_ns: end of the capture.
        patience_ns: the longest usual round trip.

    """
    patient_ns = max(PATIENCE_NS, PATIENT_TRIPS * patience_ns)
    first, second = (_silent(connection, side, end_ns, patient_ns) for side in (0, 1))
    return first, second


def _silent(connection: Connection, side: int, end_ns: int, patient_ns: int) -> bool:
    lane = connection.lanes[side]
    last_ns = lane.last_ns
    if connection.stream is not None:
        last_ns = max(last_ns, connection.stream.halves[side].last_ns)
    if not last_ns:
        return False  # never heard: the handshake says so
    quiet_ns = end_ns - last_ns
    alive_ms = lane.policy.alive_ms[side]
    if alive_ms is not None and quiet_ns > SILENT_PERIODS * int(alive_ms * _MS):
        return True
    if quiet_ns <= patient_ns:
        return False
    spaces = connection.lanes[1 - side].spaces.values()
    if any((space.gave_up_ns or 0) > last_ns for space in spaces):
        return True  # whoever asked has given the question up already
    asked = asked_since(connection, 1 - side, last_ns)
    return len(asked) >= MANY_ASKED or (
        len(asked) >= ASKED and end_ns - min(asked) > patient_ns
    )


def asked_since(connection: Connection, side: int, since_ns: int) -> list[int]:
    """Return when a side sent what is to be answered and was not, later than `since_ns`.

    Each copy is a question; those between the first and the last count with the time of the last.
    """
    lane: Lane = connection.lanes[side]
    times: list[int] = []
    for space in lane.spaces.values():
        if space.carrier is None:
            for unit in space.outstanding.values():
                times += [unit.first_ns, *[unit.last_ns] * (unit.copies - 1)]
    for track in lane.probes.values():
        times += track.unanswered()
    if connection.stream is not None:
        for segment in connection.stream.halves[side].outstanding:
            times += [segment[FIRST_NS]] * segment[COPIES]
    return [time_ns for time_ns in times if time_ns > since_ns]
