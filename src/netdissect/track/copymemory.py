"""What a space remembers of further copies, for `Repeats`. Most spaces never need it."""

from __future__ import annotations

from typing import Final

from netdissect.model.native import i64
from netdissect.model.reports import Copy, UnitRecord
from netdissect.track.context import SpaceContext

MAX_HELD = 256
"""Units per space whose newest copy is remembered as delayed by the network."""
MAX_LATE = 256
"""Units per space whose transmissions after the acknowledgement are counted."""
STALL_COPIES: Final = 2
"""This many copies that come too soon for their sender, in one burst after a silence, can show that
the network held everything back.
"""
STALL_SHARE: Final = 3
"""A burst after a silence shows a stalled network only if at least 1/3 of its units came too soon
for their sender: networks copy datagrams now and then, not most of them at a time.
"""


class CopyMemory:
    """The memory of further copies in one space."""

    __slots__ = (
        "_burst_copies", "_burst_newest_ns", "_burst_silence_ns", "_repeat_frame", "_repeat_seqs",
        "after_ack", "burst_start", "delays", "doubtful", "unlisted",
    )  # fmt: skip

    def __init__(self) -> None:
        self.doubtful: list[tuple[int, Copy | None, UnitRecord | None, int]] = []
        """(number, copy, record of its unit, class of its gap) of the copies whose verdict depends
        on the vantage.
        """
        self.unlisted = [0, 0, 0]
        """Class of gaps -> how many such copies are counted, but not in `doubtful`."""
        self.delays: dict[int, int] = {}
        """Number -> how much too late its newest copy came, in ns, by the arrival of later numbers
        or by its sender's timer.
        """
        self.after_ack: dict[int, int] = {}
        """Number -> transmissions after its acknowledgement."""
        self._repeat_frame = 0
        """Frame of the newest further copy."""
        self._repeat_seqs: set[int] = set()
        """Numbers whose further copies that frame carried."""
        self._burst_newest_ns: i64 = 0
        """When the newest copy of the current burst of copies that came too soon arrived."""
        self._burst_copies = 0
        """How many copies the burst has."""
        self.burst_start = 0
        """Length of `doubtful` when the burst began."""
        self._burst_silence_ns: i64 = 0
        """How long the direction was silent before the burst."""

    def repeats_in_datagram(self, seq: int, frame: int) -> bool:
        """Process a further copy; return whether its datagram has already carried one of the unit.
        No network puts anything into a datagram, so the sender made both.
        """
        if frame != self._repeat_frame:
            self._repeat_frame = frame
            self._repeat_seqs.clear()
        found = seq in self._repeat_seqs
        self._repeat_seqs.add(seq)
        return found

    def in_stall(self, time_ns: int, silence_ns: int, units: int, guard_ns: i64) -> bool:
        """Process a copy that came too soon; return whether the network has held its burst back.

        Args:
            time_ns: time of the copy.
            silence_ns: how long the direction was silent before the newest units, 0 = it was not.
            units: how many units came since.
            guard_ns: the shortest time that the sender leaves between two transmissions of a unit.

        """
        if time_ns - self._burst_newest_ns > guard_ns:
            self._burst_copies, self.burst_start = 0, len(self.doubtful)
            self._burst_silence_ns = 0
        self._burst_newest_ns = time_ns
        self._burst_silence_ns = max(silence_ns, int(self._burst_silence_ns))
        self._burst_copies += 1
        return (
            self._burst_copies >= STALL_COPIES
            and STALL_SHARE * self._burst_copies >= units
            and self._burst_silence_ns >= guard_ns
        )

    def remember_delay(self, context: SpaceContext, seq: int, delay_ns: int) -> None:
        """Remember how much too late the newest copy of a unit came; 0 or less = not late."""
        delays = self.delays
        if delay_ns <= 0:
            delays.pop(seq, None)
            return
        delays[seq] = delay_ns
        if len(delays) > MAX_HELD:
            context.hit("MAX_HELD")
            del delays[next(iter(delays))]

    def count_after_ack(self, context: SpaceContext, seq: int) -> int:
        """Count a transmission of an acknowledged unit; return how many there were."""
        after_ack = self.after_ack
        after_ack[seq] = count = after_ack.get(seq, 0) + 1
        if len(after_ack) > MAX_LATE:
            context.hit("MAX_LATE")
            del after_ack[next(iter(after_ack))]
        return count
