"""Receives the calls of a protocol's scanner for the current datagram of a connection."""

from __future__ import annotations

from typing import Any

from netdissect.model.native import i64
from netdissect.model.sinks import EventSink
from netdissect.track.carried import CarriedSpace
from netdissect.track.lane import Lane
from netdissect.track.recorder import ConnectionRecorder
from netdissect.track.space import Space


class ScanSink(EventSink):
    """Passes the events of the current datagram on to its direction and spaces."""

    def __init__(self, lanes: list[Lane], recorder: ConnectionRecorder | None) -> None:
        self.lanes = lanes
        self.recorder = recorder
        self._lane = self._other = lanes[0]
        """The direction of the current datagram, and the other one."""
        self._frame: i64 = 0
        self._time_ns: i64 = 0
        self._octets: i64 = 0
        """Frame, time and size of the current datagram."""
        self._types: tuple[str, ...] = ()

    def speak(self, types: tuple[str, ...], spaces: tuple[str, ...]) -> None:
        """Set the lists of types and spaces to which the scanner refers by index."""
        self._types = types
        for lane in self.lanes:
            lane.speak(spaces)

    def at(self, lane: Lane, other: Lane, frame: i64, time_ns: i64, octets: i64) -> None:
        """Set the current datagram for the calls that follow; `begin` counts it.

        `other` is the lane of the other direction.
        """
        self._lane = lane
        self._other = other
        self._frame = frame
        self._time_ns = time_ns
        self._octets = octets

    def message(self, type_: i64) -> None:
        """Count a message."""
        self._count(type_, 1)

    def _count(self, type_: i64, number: i64) -> None:
        """Count messages of one type."""
        lane = self._lane
        counts = lane.counts_by_index
        cell = counts[type_] if type_ < len(counts) else None
        if cell is None:
            # The first message creates the count, and beyond `MAX_TYPES` it does so for `other`.
            for _ in range(number):
                lane.count(self._types[type_], self._time_ns, self._frame)
            lane.index_count(type_, self._types[type_])
        else:
            cell.add(number, self._time_ns, self._frame)

    def _counted(self, type_: i64) -> str | None:
        """Count a unit as a message; return its type if types are recorded."""
        self.message(type_)
        return None if self.recorder is None else self._types[type_]

    def unit(
        self, type_: i64, space: i64, wire_seq: i64, labelled: bool | None, content: Any  # noqa: FBT001
    ) -> None:  # fmt: skip
        """Process one copy of a unit."""
        name = None if type_ < 0 else self._counted(type_)
        target = self._lane.spaces_by_index[space]
        target.unit(wire_seq, labelled, content, name, self._frame, self._time_ns)

    def plain_unit(self, type_: i64, space: i64, wire_seq: i64, content: Any) -> None:
        """Process one copy of a unit that is never acknowledged."""
        name = None if type_ < 0 else self._counted(type_)
        target = self._lane.spaces_by_index[space]
        target.plain_unit(wire_seq, content, name, self._frame, self._time_ns)

    def run(self, space: i64, wire_seq: i64, types: list[str]) -> None:
        """Process consecutive messages that the datagram carries."""
        self.carry(self._lane.spaces_by_index[space], wire_seq, types)

    def same_run(self, type_: i64, space: i64, wire_seq: i64, count: i64) -> None:
        """Process consecutive messages of one type that the datagram carries."""
        self._count(type_, count)
        target = self._lane.spaces_by_index[space]
        if isinstance(target, CarriedSpace):
            name = None if self.recorder is None else self._types[type_]
            target.run(wire_seq, count, name, None, self._frame, self._time_ns)

    def carry(self, space: Space, wire_seq: i64, types: list[str]) -> None:
        """Count and process consecutive messages of a space."""
        lane, frame, time_ns = self._lane, self._frame, self._time_ns
        for type_ in types:
            lane.count(type_, time_ns, frame)
        if isinstance(space, CarriedSpace):
            space.run(wire_seq, len(types), None, types, frame, time_ns)

    def numbered(self, type_: i64, space: i64, wire_seq: i64) -> None:
        """Process a message that uses a number but is not a unit."""
        self.message(type_)
        self._lane.spaces_by_index[space].number(wire_seq, self._frame, self._time_ns)

    def ack(self, space: i64, base: i64, bits: i64) -> None:
        """Process an acknowledgement of units of the other direction."""
        self._other.spaces_by_index[space].ack(base, bits, self._frame, self._time_ns)

    def nack(self, space: i64, base: i64, bits: i64) -> None:
        """Process feedback on units of the other direction."""
        self._other.spaces_by_index[space].nack(base, bits, self._frame, self._time_ns)
