"""Captures cut into windows: what recognition says of a piece, held against the whole capture."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from netdissect.capture import open_capture
from netdissect.flow import Decapsulator
from netdissect.model.packets import Frame
from netdissect.model.reports import ConnectionReport, UnitRecord
from netdissect.model.units import MESSAGES
from netdissect.pipeline import Options, Pipeline
from netdissect.protocols import registry
from netdissect.track.recorder import Recorder

__all__ = ["Score", "Whole", "frames_of", "score"]

LENGTH, STEP = 200, 50
"""Frames of a window, and from the start of one to that of the next."""
MANY = 10
"""Reliable messages from which on a window has to be claimed."""
BROADER = {
    "riptide-2.0": {"riptide-2.0/2.1dev"},
    "riptide-2.1dev": {"riptide-2.0/2.1dev"},
    "riptide-2.1": {"riptide-2.1/2.2"},
    "riptide-2.2": {"riptide-2.1/2.2"},
    "knet-2.x": {"knet-2010/2.x"},
    "knet-2010": {"knet-2010/2.x"},
    "knet-urho3d": {"knet-2.x", "knet-2010/2.x"},
    "knet-tundra": {"knet-2.x", "knet-2010/2.x"},
}
"""Dialect -> names that say less and are true of it as well."""

Flow = tuple[str, frozenset[str]]
"""(transport, both endpoints)."""


@dataclass
class Score:
    """What was found in the windows of one or more captures."""

    windows: int = 0
    busy: int = 0
    """(Window, flow) pairs with MANY reliable messages or more."""
    claimed: int = 0
    """Those of them that are claimed."""
    wrong: list[str] = field(default_factory=list)
    """Window, flow and what was said of it, where that is not true."""
    missed: list[str] = field(default_factory=list)

    def __add__(self, other: Score) -> Score:
        return Score(
            self.windows + other.windows,
            self.busy + other.busy,
            self.claimed + other.claimed,
            self.wrong + other.wrong,
            self.missed + other.missed,
        )


class Whole:
    """What the whole capture says: who speaks what, and how many reliable messages a frame has."""

    def __init__(self, path: Path) -> None:
        self.frames = frames_of(path)
        self.connections: dict[Flow, list[ConnectionReport]] = {}
        self.reliable: dict[Flow, Counter[int]] = {}
        recorder = Recorder()
        pipeline = Pipeline(Options(strict=True), recorder=recorder)
        for packet in Decapsulator().packets(self.frames):
            pipeline.feed(packet)
        pipeline.finish()
        flows = {}
        for report in pipeline.reports:
            flow = flow_of(report)
            self.connections.setdefault(flow, []).append(report)
            flows[report.connection] = flow, reliable_spaces(report)
        for item in recorder.rest():
            if isinstance(item, UnitRecord):
                flow, spaces = flows[item.connection]
                if item.space in spaces:
                    counts = self.reliable.setdefault(flow, Counter())
                    counts.update(copy.frame for copy in item.copies)

    def windows(self) -> Iterator[list[Frame]]:
        """Yield the frames of each window."""
        for start in range(0, max(1, len(self.frames) - LENGTH + STEP), STEP):
            yield self.frames[start : start + LENGTH]

    def true_of(self, flow: Flow, first: int, last: int) -> dict[str, set[str]]:
        """Return the dialects of each endpoint between two frames."""
        found: dict[str, set[str]] = {}
        for report in self.connections.get(flow, ()):
            if report.first_frame <= last and report.last_frame >= first:
                for endpoint, dialect in spoken(report):
                    found.setdefault(endpoint, set()).update({dialect}, BROADER.get(dialect, ()))
        return found


def frames_of(path: Path) -> list[Frame]:
    """Return the frames of a capture."""
    with open_capture(path) as reader:
        return list(reader)


def reliable_spaces(report: ConnectionReport) -> set[str]:
    """Return the names of the spaces whose units are sent again when they are lost."""
    policy = registry.get(report.protocol).policy(report.dialects[0])
    return {rule.name for rule in policy.spaces if rule.resend is not None} | {MESSAGES}


def flow_of(report: ConnectionReport) -> Flow:
    """Return the flow of a connection."""
    return report.transport, frozenset((report.client, report.server))


def spoken(report: ConnectionReport) -> list[tuple[str, str]]:
    """Return (endpoint, dialect) of both sides."""
    return list(zip((report.client, report.server), report.dialects, strict=True))


def score(name: str, whole: Whole) -> Score:
    """Return how recognition does on all windows of a capture."""
    total = Score()
    for frames in whole.windows():
        total.windows += 1
        first, last = frames[0][0], frames[-1][0]
        pipeline = Pipeline(Options(strict=True))
        pipeline.run(Decapsulator().packets(frames))
        pipeline.finish()
        claimed: set[Flow] = set()
        for report in pipeline.reports:
            flow = flow_of(report)
            claimed.add(flow)
            truth = whole.true_of(flow, first, last)
            for direction, (endpoint, dialect) in enumerate(spoken(report)):
                if report.datagrams[direction] and dialect not in truth.get(endpoint, ()):
                    total.wrong.append(f"{name} {first}-{last} {endpoint}: {dialect}")
        for flow, counts in whole.reliable.items():
            if sum(counts[frame[0]] for frame in frames) >= MANY:
                total.busy += 1
                total.claimed += flow in claimed
                if flow not in claimed:
                    total.missed.append(f"{name} {first}-{last} {sorted(flow[1])}")
    return total
