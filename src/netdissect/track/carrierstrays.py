"""Numbered datagrams whose numbers are far from all others."""

from __future__ import annotations

from netdissect.model.native import i64
from netdissect.track.context import SpaceContext
from netdissect.track.hashes import DatagramHashes
from netdissect.track.numbers import Numbers
from netdissect.track.recorder import SpaceRecorder
from netdissect.track.strays import Stray, Strays
from netdissect.track.unitstore import UnitStore


class CarrierStrays(Strays):
    """Stray datagrams. Accepted ones are known by their hashes, as all others."""

    __slots__ = ("_marks",)

    def __init__(
        self, context: SpaceContext, numbers: Numbers, store: UnitStore,
        recorder: SpaceRecorder | None, marks: DatagramHashes,
    ) -> None:  # fmt: skip
        super().__init__(context, numbers, store, recorder)
        self._marks = marks

    def _accept(self, stray: Stray, seq: int) -> None:
        """Count a stray datagram as number `seq`."""
        self._numbers.isolated -= 1
        unit = stray.unit
        if unit is None:
            return
        self._marks.keep(seq, unit.content)
        if self.recorder is not None:
            self.recorder.adopt(unit, seq, stray.wire_seq)
        if not (stray.plain or stray.acked):
            self.store.outstanding.add(seq, unit)

    def _is_settled(self, seq: int) -> bool:
        """Return whether a number is that of a known datagram that is not outstanding."""
        return self._marks.knows(seq)

    def place(self, wire_seq: i64, seq: int, mark: i64) -> bool:
        """Give a stray its number `seq`, now that the others have come up to it and a datagram with
        the same content uses it; return False if there is none. One of the two is a network copy,
        which was ahead of all others.
        """
        number = int(wire_seq & self._numbers.mask)
        stray = self.find(number)
        if stray is None:
            return False
        unit = stray.unit
        if not (self._marks.has(seq, mark) if unit is None else unit.content == mark):
            return False
        self.forget(stray)
        self._accept(stray, seq)
        return True
