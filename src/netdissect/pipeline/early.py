"""The first records of a file, as far as nothing that comes later can change them: what `read`
shows before the whole file was looked at.

What a record tells can hang on where the capture was taken, and only the whole of it shows that. So
the first packets are tracked once for every place that there is, and what is told the same of all
of them is told for good.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Final, NamedTuple

from netdissect.flow import Decapsulator
from netdissect.model.packets import Packet
from netdissect.model.records import DatagramRecord
from netdissect.pipeline import Source, opened
from netdissect.pipeline.holding import advance
from netdissect.pipeline.messages import reliability
from netdissect.pipeline.observer import Datagram
from netdissect.pipeline.options import PLACEMENTS, UNKNOWN_PLACEMENT, Options, Placement
from netdissect.pipeline.records import Records
from netdissect.pipeline.stages import Pipeline
from netdissect.track.recorder import LINGER_NS

__all__ = ["MAX_EARLY", "MAX_PACKETS", "EarlyRecord", "early_records"]

MAX_EARLY: Final = 64
"""Datagrams that leave early: what fits a large terminal."""
MAX_UNITS: Final = 1024
"""Units of these datagrams: each is decoded, and tracked once for each place."""
MAX_PACKETS: Final = 512
"""Packets that are tracked for them, once for each place."""
MAX_OCTETS: Final = 128 * 1024
"""Bytes of payload of these: a datagram may be of hundreds of units, and each place keeps all."""
_AT_ONCE: Final = 16
"""Packets after which it is looked whether that was enough."""


class EarlyRecord(NamedTuple):
    """A datagram that leaves early."""

    record: DatagramRecord | None
    """None where nobody wants it."""
    first_ns: int | None
    """Time of the first frame, as far as it was known then."""
    skip: tuple[int, int]
    """What is left out of the records of the whole file once this one has left: see `Records`."""


class _Run:
    """One tracking of the first packets: a `Maker` that notes what is told of what leaves."""

    def __init__(
        self, records: Records, options: Options, place: Placement, *, makes: bool,
        most: int = MAX_EARLY,
    ) -> None:
        """Take whether it makes the records, too, and how many datagrams are enough."""
        # One packet begins no more than one connection: these are all numbers that there can be.
        options = replace(options, near=dict.fromkeys(range(1, MAX_PACKETS + 1), place))
        self.pipeline = Pipeline(options, recorder=records.recorder, observer=records)
        self.held, self.recorder = records.held, records.recorder
        self.told: list[tuple[Any, ...]] = []
        self.made: list[DatagramRecord | None] = []
        self.over = False
        """Whether nothing more can leave for good."""
        self._records, self._makes, self._most = records, makes, most
        self._until_ns: int | None = None
        self._begun = self._units = 0

    def take(self, packets: Sequence[Packet]) -> None:
        """Take packets."""
        if packets and self._until_ns is None:
            # Until then no unit was handed on, which those of other connections hold back.
            self._until_ns = packets[0][2] + LINGER_NS
        for at in range(0, len(packets), _AT_ONCE):
            if not self.over:
                advance(packets[at : at + _AT_ONCE], 0, self.pipeline, self, timeline=False)

    def next(self, item: Datagram) -> DatagramRecord | None:
        """Take a datagram that leaves."""
        pipeline = self.pipeline
        if pipeline.begun.count != self._begun:
            self._begun = pipeline.begun.count
            self.over = self.over or not pipeline.begun.in_order
        late = self._until_ns is None or pipeline.now_ns >= self._until_ns
        if late or pipeline.undecided():
            self.over = True
        if self.over:
            return None
        self.told.append(_told(item))
        self._units += len(item.touched)
        self.over = len(self.told) >= self._most or self._units >= MAX_UNITS
        if self._makes:
            record = self._records.next(item)
            if record is not None:
                _ = record.messages  # with what is known now
            self.made.append(record)
        return None


def early_records(
    source: Source, make: Callable[[], Records], options: Options
) -> list[EarlyRecord]:
    """Return the first datagrams of a file, in order, that nothing after them can change.

    Args:
        source: what is to be read.
        make: returns what makes records, anew each time; not such a one that is strict.
        options: decode-as rules and the like.

    """
    packets: list[Packet] = []
    firsts: list[int | None] = []
    held = 0
    run = _Run(make(), options, UNKNOWN_PLACEMENT, makes=True)
    with opened(source) as reader:
        for taken in Decapsulator().batches(reader.batches()):
            known = len(packets)
            for packet in taken:
                if len(packets) >= MAX_PACKETS or held >= MAX_OCTETS:
                    break
                packets.append(packet)
                held += len(packet[4])
            run.take(packets[known:])
            firsts += [reader.info.first_time_ns] * (len(run.told) - len(firsts))
            if run.over or len(packets) >= MAX_PACKETS or held >= MAX_OCTETS:
                break
    sure = len(run.told)
    for place in PLACEMENTS[1:]:
        if not sure:
            break
        other = _Run(make(), options, place, makes=False, most=sure)
        other.take(packets)
        both = zip(run.told[:sure], other.told, strict=False)
        same = [one == another for one, another in both]
        sure = same.index(False) if False in same else len(same)
    found: list[EarlyRecord] = []
    skip = (0, 0)
    for told, record, first_ns in zip(run.told[:sure], run.made, firsts, strict=False):
        left = skip[1] if told[0] == skip[0] else 0
        skip = (told[0], left + (record is not None))
        found.append(EarlyRecord(record, first_ns, skip))
    return found


def _told(item: Datagram) -> tuple[Any, ...]:
    """Return what is told of a datagram beside what its bytes tell."""
    connection = item.connection
    if connection is None:
        return (item.frame,)
    machine = connection.machine
    return (
        item.frame, item.direction, item.hints, item.findings, item.frames, item.faults,
        connection.number, connection.endpoints, connection.hints, machine.word, machine.handshake,
        [reliability(*each, reliable=True).values() for each in item.touched],
    )  # fmt: skip
