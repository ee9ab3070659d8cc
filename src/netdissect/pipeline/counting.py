"""Datagrams counted and the timeline told in one pass, and nothing decoded: what `stats` and
`survey` need.
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
from netdissect.track.intervals import LATE_NS
from netdissect.track.recorder import HOLD_NS, Recorder, Summing

__all__ = ["MAX_UNCOUNTED", "OVER_NS", "Count", "DatagramCounter", "count_datagrams"]

MAX_UNCOUNTED = 65_536
"""Datagrams held at most while an earlier one waits for its flow to be recognised; beyond, they
count before it.
"""

OVER_NS: Final = HOLD_NS + LATE_NS
"""After its last packet so much time passes until nothing of a connection counts any more."""

Count = Callable[[int, str, int, int, int, bool], None]
"""Called with connection, protocol, direction, time in ns, bytes, and whether all units in them
were sent before.
"""

_Held = tuple[int, int, str, int, int, int, bool]
"""(frame, what `Count` is called with)."""


class DatagramCounter:
    """Counts each datagram: an `Observer`."""

    def __init__(
        self, count: Count, *, ordered: bool = True, sums: Summing | None = None
    ) -> None:
        """Take who counts, whether the datagram that counts first is the first in the order of
        frames (if not, none waits), and what sums up the units of datagrams: none of them is told
        then. None = all is told that is known of units and events.
        """
        self.recorder = Recorder(counted=sums is not None, sums=sums)
        self._ordered = ordered
        """Whether none has counted yet; further ones do so at once, in any order."""
        self.early = 0
        """Datagrams that were counted before an earlier one, because too many were held."""
        self._count = count
        self._held: list[_Held] = []
        """Those that wait, the first in the order of frames before all others."""

    def seen(self, item: Datagram) -> None:
        """Take one datagram of a known protocol."""
        connection = item.connection
        if connection is not None:
            frame = item.frame
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
                frame, connection.number, connection.protocol, item.direction, item.time_ns,
                len(item.payload), repeated,
            )  # fmt: skip
            waiting = self._held
            waiting.append(held)
            if frame < waiting[0][0]:
                waiting[0], waiting[-1] = held, waiting[0]

    def other(self, packet: Packet) -> None:
        """Take nothing: what is of no known protocol has no direction."""

    def finding(self, code: str, severity: Severity, frame: int | None) -> None:
        """Take nothing: findings are told elsewhere."""

    def ready(self, oldest_frame: int | None) -> None:
        """Count what waits, where the first of it is the first of all.

        Args:
            oldest_frame: frame that waits for its flow to be recognised; later ones stay behind it.

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


class _Teller:
    """Has what is ready counted and told, now and then."""

    def __init__(
        self, counted: DatagramCounter, pipeline: Pipeline,
        told: Callable[[UnitRecord | ConnectionEvent], None] | None,
    ) -> None:  # fmt: skip
        self._counted = counted
        self._pipeline = pipeline
        self._told = told

    def ready(self) -> None:
        """Count the datagrams that are ready, and report units and events."""
        self._counted.ready(self._pipeline.oldest_sampled)
        if self._told is None:
            return
        for item in self._counted.recorder.ready(self._pipeline.now_ns):
            self._told(item)


def count_datagrams(
    source: Source,
    counted: DatagramCounter,
    pipeline: Pipeline,
    told: Callable[[UnitRecord | ConnectionEvent], None] | None = None,
    share: Decapsulator | None = None,
) -> None:
    """Read a capture once: datagrams to `counted`, units and events to `told`, each in order.

    Args:
        source: a path, `-` for standard input, an open binary file or reader.
        counted: the pipeline's observer.
        pipeline: its recorder is that of `counted`.
        told: is called with each unit and event as it settles; None where they are summed up.
        share: takes off the headers of some flows alone; None = of all.

    """
    recorder = counted.recorder
    teller = _Teller(counted, pipeline, told)
    decapsulator = share or Decapsulator()
    with rare_collections(), opened(source) as reader:
        if isinstance(reader, CaptureReader):
            decapsulator.hand_over(reader, pipeline, teller.ready)
        else:
            for packets in decapsulator.batches(reader.batches()):
                pipeline.run(packets)
                teller.ready()
        pipeline.finish(reader.info.last_time_ns)
    counted.ready(None)
    if told is not None:
        for item in recorder.rest():
            told(item)
    if counted.early:
        pipeline.limits_hit["MAX_UNCOUNTED"] = counted.early
