"""Drops the records of settled units early, for commands that show no timeline.

A record takes ten times the memory of what a late copy needs (`RetiredUnits`), and would otherwise
wait behind unsettled ones.
"""

from __future__ import annotations

from typing import Final

from netdissect.model.units import ConnectionEvent, UnitRecord
from netdissect.track.recorder import Recorder, SpaceRecorder

_LEAST: Final = 128


class Pruner:
    """Decides when to look through the waiting records."""

    __slots__ = ("_due", "_packets")

    def __init__(self) -> None:
        self._due = self._packets = _LEAST
        """The records are looked through when `_due` of them wait, or after `_packets` packets."""

    def prune(self, recorder: Recorder, before: int) -> None:
        """Process a packet; nobody asks for the records of frames before `before` any more. The
        records are looked through when there are an eighth more than the last time left, or after
        that many packets.
        """
        pending, scribes = recorder.pending, recorder.scribes
        self._packets -= 1
        if self._packets > 0 and len(pending) < self._due:
            return
        for scribe in scribes.values():
            for space in scribe.spaces.values():
                _retire_settled(space, before)
        left: list[UnitRecord | ConnectionEvent] = []
        for item in pending:
            if isinstance(item, UnitRecord) and (
                item.emitted or (item.connection not in scribes and item.copies[-1].frame < before)
            ):
                continue
            left.append(item)
        pending.clear()
        pending.extend(left)
        self._packets = max(_LEAST, len(pending) // 8)
        self._due = len(pending) + self._packets


def _retire_settled(space: SpaceRecorder, before: int) -> None:
    """Retire the records of settled units that were sent once, before frame `before`. Nothing that
    comes later changes what was reported about them.
    """
    left: list[UnitRecord] = []
    records, mask = space.records, space.mask
    for record in space.unemitted:
        if record.emitted:
            continue
        seq = record.seq
        if (
            record.settled_ns is not None
            and len(record.copies) == 1
            and record.copies[0].frame < before
            and not record.extra
            and record.wire_seq == seq & mask
            and not record.copies[0].doubtful
            and records.get(seq) is record
            and space.retired.retire_fully(record)
        ):
            del records[seq]
            record.emitted = True
        else:
            left.append(record)
    space.keep(left)
    if not records:
        records.clear()  # as in `SpaceRecorder.left`
