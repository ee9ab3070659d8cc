"""Drops the records of settled units early, for commands that show no timeline.

A record takes ten times the memory of what a late copy needs (`RetiredUnits`), and would otherwise
wait behind unsettled ones.
"""

from __future__ import annotations

from collections.abc import Set as AbstractSet
from typing import Final

from netdissect.model.units import MESSAGES, ConnectionEvent, UnitRecord
from netdissect.track.recorder import Recorder, SpaceRecorder

_LEAST: Final = 128


class Pruner:
    """Decides when to look through the waiting records."""

    __slots__ = ("_due", "_packets")

    def __init__(self) -> None:
        self._due = self._packets = _LEAST
        """The records are looked through when `_due` of them wait, or after `_packets` packets."""

    def is_due(self, recorder: Recorder) -> bool:
        """Process a packet; return whether to look through the records: there are a quarter more
        than the last time left, or that many packets have come.
        """
        self._packets -= 1
        return self._packets <= 0 or len(recorder.pending) >= self._due

    def prune(
        self, recorder: Recorder, before: int, kept: AbstractSet[int], *, least: int = 0
    ) -> None:
        """Look through the records, and again after at least `least` packets. Nobody asks for those
        of frames before `before` any more, except for the frames in `kept`.
        """
        pending, scribes = recorder.pending, recorder.scribes
        for scribe in scribes.values():
            for space in scribe.spaces.values():
                _retire_settled(space, before, kept)
            if scribe.stream is not None:
                scribe.stream.retire()
        left: list[UnitRecord | ConnectionEvent] = []
        for item in pending:
            if not isinstance(item, UnitRecord):
                left.append(item)
                continue
            if item.emitted:
                continue
            # Numbered units and segments were looked at above.
            over = item.connection not in scribes or (
                item.space == MESSAGES and item.settled_ns is not None
            )
            if (
                over
                and item.copies[-1].frame < before
                and kept.isdisjoint([copy.frame for copy in item.copies])
            ):
                recorder.leave(item)
            else:
                left.append(item)
        pending.clear()
        pending.extend(left)
        self._packets = max(_LEAST, least, len(pending) // 4)
        self._due = len(pending) + self._packets


def _retire_settled(space: SpaceRecorder, before: int, kept: AbstractSet[int]) -> None:
    """Retire the records of settled units that were sent once, before frame `before` and not in one
    of `kept`. Nothing that comes later changes what was reported about them.
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
            and record.copies[0].frame not in kept
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
