"""Live traffic in miniature: a day of packet time through what `sniff --live` keeps, and the curve
of its memory. Connections of all protocols come and go; nothing is captured, written or shown.

    python bench/soak.py --hours 24 --rate 500
"""

from __future__ import annotations

import argparse
import os
import resource
import sys
import time
from collections.abc import Iterator
from typing import NamedTuple

from make_capture import CAPTURES, Template, load, replay
from netdissect.flow import Decapsulator
from netdissect.model.packets import Frame
from netdissect.pipeline import Options, Pipeline
from netdissect.track.recorder import Recorder

HOUR_NS = 3_600_000_000_000
STEP_NS = HOUR_NS // 6
"""Packet time between two points of the curve."""
_FORGET_PACKETS = 256
"""As `netdissect.pipeline.live.watch` does."""


class Point(NamedTuple):
    """One point of the curve."""

    hours: float
    """Packet time since the start."""
    datagrams: int
    connections: int
    """Begun so far."""
    open: int
    """Connections on the table."""
    octets: int
    """Resident memory of the process."""


def templates() -> list[Template]:
    """Return every whole UDP capture of every protocol."""
    found = (load(path) for path in sorted(CAPTURES.glob("*/*.pcap*")))
    return [template for template in found if template is not None]


def traffic(sources: list[Template], rate: int, hours: float) -> Iterator[Frame]:
    """Yield the frames of so many hours; as many sessions at a time as give `rate` a second."""
    seconds = sum(one.datagrams[-1].delay_ns for one in sources) / 1e9
    each = sum(len(one.datagrams) for one in sources) / seconds
    start_ns = None
    for number, (time_ns, octets) in enumerate(replay(sources, max(1, round(rate / each))), 1):
        start_ns = time_ns if start_ns is None else start_ns
        if time_ns - start_ns > hours * HOUR_NS:
            return
        yield number, time_ns, 1, octets, len(octets)


def soak(frames: Iterator[Frame]) -> Iterator[Point]:
    """Yield the curve of a capture that runs."""

    def forget(_: object) -> None:
        """Keep nothing, as a dashboard does."""

    recorder = Recorder()
    pipeline = Pipeline(Options(on_anomaly=forget, on_report=forget), recorder=recorder)
    start_ns = due_ns = 0
    for count, packet in enumerate(Decapsulator().packets(frames)):
        start_ns = start_ns or packet[2]
        if packet[2] >= due_ns:
            due_ns = max(due_ns, start_ns) + STEP_NS
            begun = sum(one["connections"] for one in pipeline.counts.values())
            hours = (packet[2] - start_ns) / HOUR_NS
            yield Point(hours, count, begun, len(pipeline.tracked()), resident())
        pipeline.feed(packet)
        if not count % _FORGET_PACKETS:
            for _ in recorder.ready(pipeline.now_ns):
                pass
    pipeline.finish()


def resident() -> int:
    """Return the resident memory of this process in bytes."""
    with open("/proc/self/statm", encoding="ascii") as file:  # noqa: PTH123 - a measurement
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n", 1)[0])
    parser.add_argument("--hours", type=float, default=24.0, help="of packet time")
    parser.add_argument("--rate", type=int, default=500, help="datagrams a second, about")
    options = parser.parse_args()
    after_first = last = None
    print("  hours   datagrams  connections    open   memory MB")
    for point in soak(traffic(templates(), options.rate, options.hours)):
        last = point
        if after_first is None and point.hours >= 1:
            after_first = point
        print(
            f"{point.hours:7.2f}  {point.datagrams:10,}  {point.connections:11,}  {point.open:6,}"
            f"  {point.octets / 1e6:10.1f}",
            flush=True,
        )
    if after_first is not None and last is not None:
        grown = (last.octets - after_first.octets) / 1e6
        print(f"grown by {grown:.1f} MB after the first hour", end="; ")
    usage = resource.getrusage(resource.RUSAGE_SELF)
    print(f"{usage.ru_utime + usage.ru_stime:.0f} s of processor time, {time.ctime()}")


if __name__ == "__main__":
    sys.exit(main())
