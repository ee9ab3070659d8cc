"""The first records of a file that nothing in the rest of it can change: what `read` shows before
the first pass over the file is complete.

A record may depend on where the capture was taken, which only the whole file shows. Therefore the
first packets are tracked once for each possible placement; a record that is the same for all of
them is final.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import takewhile
from typing import Any, Final, NamedTuple

from netdissect.flow import Decapsulator
from netdissect.model.packets import Packet
from netdissect.model.records import DatagramRecord
from netdissect.model.units import Placement
from netdissect.pipeline import Source, opened
from netdissect.pipeline.holding import advance
from netdissect.pipeline.messages import reliability
from netdissect.pipeline.observer import Datagram
from netdissect.pipeline.options import PLACEMENTS, UNKNOWN_PLACEMENT, Options
from netdissect.pipeline.records import Records
from netdissect.pipeline.stages import Pipeline
from netdissect.track.recorder import LINGER_NS

MAX_EARLY: Final = 64
"""Datagrams to show early: enough to fill a large terminal."""
MAX_UNITS: Final = 1024
"""Units in these datagrams. Each is decoded, and tracked once for each placement."""
MAX_PACKETS: Final = 512
"""Packets to track for them, once for each placement."""
MAX_OCTETS: Final = 128 * 1024
"""Payload bytes of these packets: a datagram may have hundreds of units."""
_AT_ONCE: Final = 16
"""Packets between two checks of whether enough records are available."""


class EarlyRecord(NamedTuple):
    """A datagram that is shown early."""

    record: DatagramRecord | None
    """None if a filter does not need it."""
    first_ns: int | None
    """Time of the first frame of the capture, if it was known then."""
    skip: tuple[int, int]
    """Value of `Records.skip` once this record has been shown."""


class _Run:
    """Tracks the first packets for one placement, and notes what their records would show."""

    def __init__(
        self, records: Records, options: Options, place: Placement, *, makes: bool,
        most: int = MAX_EARLY,
    ) -> None:
        """Create a run.

        Args:
            records: creates the records.
            options: decode-as rules and so on.
            place: the placement to assume for all connections.
            makes: whether records are needed, or only what they would show.
            most: number of datagrams after which the run is over.

        """
        # A packet begins at most one connection, so there are no other numbers.
        options = replace(options, near=dict.fromkeys(range(1, MAX_PACKETS + 1), place))
        self.pipeline = Pipeline(options, recorder=records.recorder, observer=records)
        self.held, self.recorder = records.held, records.recorder
        self.told: list[tuple[Any, ...]] = []
        self.made: list[DatagramRecord | None] = []
        self.over = False
        """Whether no more records can become final."""
        self._records, self._makes, self._most = records, makes, most
        self._until_ns: int | None = None
        self._begun = self._units = 0

    def take(self, packets: Sequence[Packet]) -> None:
        """Process packets."""
        if packets and self._until_ns is None:
            # No unit is emitted before this time. Afterwards units of other connections matter.
            self._until_ns = packets[0][2] + LINGER_NS
        for at in range(0, len(packets), _AT_ONCE):
            if not self.over:
                advance(packets[at : at + _AT_ONCE], 0, self.pipeline, self, timeline=False)

    def next(self, item: Datagram) -> DatagramRecord | None:
        """Note a datagram that leaves the queue; always return None."""
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
                _ = record.messages  # decodes it with what is known now
            self.made.append(record)
        return None


def early_records(
    source: Source, make: Callable[[], Records], options: Options
) -> list[EarlyRecord]:
    """Return the first datagrams of a file, in order, whose records are final.

    Args:
        source: the capture.
        make: creates a new maker of records with each call; it must not be strict.
        options: decode-as rules and so on.

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
    # Each run needs to go only as far as all runs before it agree.
    for place in PLACEMENTS[1:]:
        if not sure:
            break
        other = _Run(make(), options, place, makes=False, most=sure)
        other.take(packets)
        both = zip(run.told[:sure], other.told, strict=False)
        sure = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], both))
    found: list[EarlyRecord] = []
    skip = (0, 0)
    for told, record, first_ns in zip(run.told[:sure], run.made, firsts, strict=False):
        left = skip[1] if told[0] == skip[0] else 0
        skip = (told[0], left + (record is not None))
        found.append(EarlyRecord(record, first_ns, skip))
    return found


def _told(item: Datagram) -> tuple[Any, ...]:
    """Return everything that a record shows of a datagram and that its bytes do not determine."""
    connection = item.connection
    if connection is None:
        return (item.frame,)
    machine = connection.machine
    return (
        item.frame, item.direction, item.hints, item.findings, item.frames, item.faults,
        connection.number, connection.endpoints, connection.hints, machine.word, machine.handshake,
        [reliability(*each, reliable=True).values() for each in item.touched],
    )  # fmt: skip
