"""Datagrams counted and the timeline told in one pass, and nothing decoded: what `stats` and
`survey` need.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from operator import itemgetter

from netdissect.flow import Decapsulator
from netdissect.model.annotations import Severity
from netdissect.model.packets import Packet
from netdissect.model.reports import ConnectionEvent, UnitRecord
from netdissect.pipeline import Source, opened
from netdissect.pipeline.collector import rare_collections
from netdissect.pipeline.observer import Seen
from netdissect.pipeline.stages import Pipeline
from netdissect.track.recorder import Recorder

__all__ = ["MAX_UNCOUNTED", "Count", "Counted", "tell"]

MAX_UNCOUNTED = 65_536
"""Datagrams held at most while an earlier one waits for its flow to be recognised; beyond, the
oldest count before it.
"""

Count = Callable[[int, str, int, int, int, bool], None]
"""Called with connection, protocol, direction, time in ns, bytes, and whether all units in them
were sent before.
"""

_Held = tuple[int, int, str, int, int, int, bool]
"""(frame, what `Count` is called with)."""


class Counted:
    """Counts each datagram, in order of frames: an `Observer`."""

    def __init__(self, count: Count) -> None:
        """Take who counts."""
        self.recorder = Recorder()
        self.early = 0
        """Datagrams that were counted before an earlier one, because too many were held."""
        self._count = count
        self._held: deque[_Held] = deque()
        self._newest = 0
        self._disordered = False

    def seen(self, item: Seen) -> None:
        """Take one datagram of a known protocol."""
        connection = item.connection
        if connection is not None:
            frame = item.frame
            if frame < self._newest:
                self._disordered = True
            self._newest = frame
            repeated = bool(item.touched)
            for _, copy in item.touched:
                if copy.kind == "original":
                    repeated = False
                    break
            self._held.append(
                (
                    frame, connection.number, connection.protocol, item.direction, item.time_ns,
                    len(item.payload), repeated,
                )
            )  # fmt: skip

    def other(self, packet: Packet) -> None:
        """Take nothing: what is of no known protocol has no direction."""

    def finding(self, code: str, severity: Severity, frame: int | None) -> None:
        """Take nothing: findings are told elsewhere."""

    def ready(self, oldest_frame: int | None) -> None:
        """Count what may be counted.

        Args:
            oldest_frame: frame that waits for its flow to be recognised; later ones stay behind it.

        """
        if self._disordered:
            self._held = deque(sorted(self._held, key=itemgetter(0)))
            self._disordered = False
        held = self._held
        while held:
            frame, number, protocol, direction, time_ns, octets, repeated = held[0]
            if oldest_frame is not None and frame > oldest_frame:
                if len(held) <= MAX_UNCOUNTED:
                    return
                self.early += 1
            held.popleft()
            self._count(number, protocol, direction, time_ns, octets, repeated)


def tell(
    source: Source,
    counted: Counted,
    pipeline: Pipeline,
    told: Callable[[UnitRecord | ConnectionEvent], None],
    share: Decapsulator | None = None,
) -> None:
    """Read a capture once: datagrams to `counted`, units and events to `told`, each in order.

    Args:
        source: a path, `-` for standard input, an open binary file or reader.
        counted: the pipeline's observer.
        pipeline: its recorder is that of `counted`.
        told: is called with each unit and event as it settles.
        share: takes off the headers of some flows alone; None = of all.

    """
    recorder = counted.recorder
    with rare_collections(), opened(source) as reader:
        for packets in (share or Decapsulator()).batches(reader.batches()):
            pipeline.run(packets)
            counted.ready(pipeline.oldest_sampled)
            for item in recorder.ready(pipeline.now_ns):
                told(item)
        pipeline.finish(reader.info.last_time_ns)
    counted.ready(None)
    for item in recorder.rest():
        told(item)
    if counted.early:
        pipeline.limits_hit["MAX_UNCOUNTED"] = counted.early
