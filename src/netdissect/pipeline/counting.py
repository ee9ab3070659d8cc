"""Counts datagrams and reports the timeline in one pass without decoding anything, for `stats` and
`survey`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from netdissect.capture import CaptureReader
from netdissect.flow import Decapsulator
from netdissect.model.annotations import Severity
from netdissect.model.packets import Packet
from netdissect.model.reports import ConnectionEvent, UnitRecord
from netdissect.pipeline import Source, opened
from netdissect.pipeline.collector import rare_collections
from netdissect.pipeline.observer import Datagram
from netdissect.pipeline.stages import Pipeline
from netdissect.protocols.base import Protocol as GameProtocol
from netdissect.track.intervals import LATE_NS
from netdissect.track.recorder import HOLD_NS, Recorder, Summing

MAX_UNCOUNTED = 65_536
"""Datagrams held while an earlier one waits for its flow to be recognised. Beyond that, they are
counted before it.
"""

OVER_NS: Final = HOLD_NS + LATE_NS
"""Time after the last packet of a connection when none of its counts can change any more, ns."""

Count = Callable[[int, str, int, int, int, bool], None]
"""Called with connection, protocol, direction, time in ns, bytes, and whether all units in the
datagram had been seen before.
"""

_Held = tuple[int, int, str, int, int, int, bool]
"""(frame, arguments of `Count`)."""


class DatagramCounter:
    """Counts each datagram: an `Observer`."""

    def __init__(
        self, count: Count, *, ordered: bool = True, sums: Summing | None = None
    ) -> None:
        """Create a counter.

        Args:
            count: called for each datagram.
            ordered: whether the datagram counted first has to be the first in the order of frames.
            sums: sums up the units of a connection instead of reporting each of them; None =
                report all units and events.

        """
        self.recorder = Recorder(counted=sums is not None, sums=sums)
        self._ordered = ordered
        """True until the first datagram is counted; the others may come in any order."""
        self.early = 0
        """Datagrams that were counted before an earlier one because of MAX_UNCOUNTED."""
        self._count = count
        self._held: list[_Held] = []
        """Datagrams that wait; the earliest one is the first item."""

    def reads_events(self, protocol: GameProtocol) -> bool:
        """Return False."""
        del protocol
        return False

    def seen(self, item: Datagram) -> None:
        """Count one datagram, or have it wait."""
        connection = item.connection
        if connection is None:
            return
        repeated = bool(item.touched)
        for _, copy in item.touched:
            if copy.kind == "original":
                repeated = False
                break
        if not self._ordered:
            self._count(
                connection.number, connection.protocol, item.direction, item.time_ns,
                len(item.payload), repeated,
            )  # fmt: skip
            return
        held: _Held = (
            item.frame, connection.number, connection.protocol, item.direction, item.time_ns,
            len(item.payload), repeated,
        )  # fmt: skip
        waiting = self._held
        waiting.append(held)
        # Only the earliest one needs its place: it alone decides when all of them are counted.
        if item.frame < waiting[0][0]:
            waiting[0], waiting[-1] = held, waiting[0]

    def other(self, packet: Packet) -> None:
        """Ignore a datagram of an unknown protocol, which has no direction."""

    def finding(self, code: str, severity: Severity, frame: int | None) -> None:
        """Ignore a finding: findings are reported elsewhere."""

    def ready(self, oldest_frame: int | None) -> None:
        """Count the waiting datagrams if no earlier one can come.

        Args:
            oldest_frame: oldest frame whose flow is not recognised yet; None without one.

        """
        held = self._held
        if not held:
            return
        if oldest_frame is not None and held[0][0] > oldest_frame:
            if len(held) <= MAX_UNCOUNTED:
                return
            self.early = len(held)
        self._ordered = False
        for _, number, protocol, direction, time_ns, octets, repeated in held:
            self._count(number, protocol, direction, time_ns, octets, repeated)
        held.clear()


def count_datagrams(
    source: Source,
    counted: DatagramCounter,
    pipeline: Pipeline,
    told: Callable[[UnitRecord | ConnectionEvent], None] | None = None,
    share: Decapsulator | None = None,
) -> None:
    """Read a capture once, counting its datagrams and reporting its units and events.

    Args:
        source: a path, `-` for standard input, an open binary file or reader.
        counted: the observer of the pipeline.
        pipeline: a pipeline with the recorder of `counted`.
        told: called with each unit and event when it is settled; None if they are summed up.
        share: decodes the headers of some flows only; None = of all.

    """
    recorder = counted.recorder
    decapsulator = share or Decapsulator()

    def ready() -> None:
        """Count the datagrams that are ready, and report units and events."""
        counted.ready(pipeline.oldest_sampled)
        if told is not None:
            for item in recorder.ready(pipeline.now_ns):
                told(item)

    with rare_collections(), opened(source) as reader:
        if isinstance(reader, CaptureReader):
            decapsulator.hand_over(reader, pipeline, ready)
        else:
            for packets in decapsulator.batches(reader.batches()):
                pipeline.run(packets)
                ready()
        pipeline.finish(reader.info.last_time_ns)
    counted.ready(None)
    if told is not None:
        for item in recorder.rest():
            told(item)
    if counted.early:
        pipeline.limits_hit["MAX_UNCOUNTED"] = counted.early
