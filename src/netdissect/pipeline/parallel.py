"""One capture, several processes: each reads the whole file and tracks its share of the flows.

`analyze_shares` forks them. A survey distributes the work among its own workers, with `read_share`,
`UnclaimedFlows` and `merged`.

Reading a capture and decoding the headers costs a tenth of tracking, so every process does it, and
only finished reports are sent between them. The result equals that of one process:

* UDP flows are distributed by addresses and ports, both directions alike;
* TCP flows are distributed by the address and port of the server, because one flow may show what
  another flow to the same server was for;
* connections are numbered by their first frames.
"""

from __future__ import annotations

import logging
import os
import pickle
import signal
import sys
from array import array
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from heapq import merge
from io import BytesIO
from pathlib import Path
from typing import IO, Self

from netdissect.capture import CaptureReader, open_capture
from netdissect.dissect.foreign import disable, faults
from netdissect.flow import Decapsulator
from netdissect.flow.stats import FlowStats
from netdissect.model.packets import FlowKey, reverse_key
from netdissect.pipeline.anomalies import Anomalies
from netdissect.pipeline.collector import rare_collections
from netdissect.pipeline.numbering import ConnectionNumbers, common_numbers
from netdissect.pipeline.options import Analysis, Options
from netdissect.pipeline.reports import Reports
from netdissect.pipeline.servers import Servers
from netdissect.pipeline.share import OnlyFlows, Share
from netdissect.pipeline.stages import Pipeline
from netdissect.system.interrupt import check, wait
from netdissect.system.parent import Lifeline, usable_cores

__all__ = [
    "MAX_SHARES",
    "MIN_OCTETS",
    "ShareResult",
    "UnclaimedFlows",
    "analyze_shares",
    "merged",
    "processes_for",
    "read_share",
    "share_of",
]

MIN_OCTETS = 24_000_000
"""Captures below this size are done before a second process would help, bytes."""
MAX_SHARES = 8
"""Processes at most: every one of them reads the whole file."""


@dataclass(slots=True)
class ShareResult:
    """What one process found of its share."""

    analysis: Analysis
    begun: ConnectionNumbers
    servers: Servers
    strays: list[FlowKey]
    """Keys of the UDP flows of nobody."""
    disabled: dict[str, str]
    """Plug-in -> why it failed."""


def processes_for(path: str) -> int:
    """Return how many processes pay for the capture at `path`; 1 for a pipe or a small file."""
    file = Path(path)
    if not hasattr(os, "fork") or not file.is_file() or file.stat().st_size < MIN_OCTETS:
        return 1
    return min(MAX_SHARES, usable_cores())


def share_of(index: int, count: int, elsewhere: UnclaimedFlows | None = None) -> Decapsulator:
    """Return what takes off the headers for share `index` of `count` alone, without the flows that
    are known to be read elsewhere: nobody would recognise them, and what waits for that is held.
    """
    mine = Share(index, count, frozenset() if elsewhere is None else elsewhere.keys)
    return Decapsulator(mine)


def analyze_shares(
    reader: CaptureReader, options: Options, count: int, *, anomalies: bool = True
) -> Analysis:
    """Return the analysis of a capture file, made by `count` processes; this one is the first.

    Args:
        reader: the open file; the other processes open it again by its path.
        options: `on_anomaly` is told of all anomalies at the end.
        count: processes, at least 2.
        anomalies: whether anomalies are collected; where `on_anomaly` is given they are.

    Raises:
        OSError: no process could be started.
        RuntimeError: another process failed.

    """
    wanted = anomalies or options.on_anomaly is not None
    children: list[_Child] = []
    try:
        children.extend(
            _Child.start(reader.info.path, options, (index, count), wanted)
            for index in range(1, count)
        )
        parts = [read_share(reader, options, (0, count), wanted=wanted)]
        parts.extend(child.part() for child in children)
        for name, why in (fault for part in parts for fault in part.disabled.items()):
            disable(name, why)
        elsewhere = UnclaimedFlows.of(parts)
        if elsewhere is not None:
            parts.append(elsewhere.read(reader.info.path, options, wanted=wanted))
        whole, numbers = merged(parts, options)
        whole.connections.renumber(numbers[0])
        for child, theirs in zip(children, numbers[1:count], strict=True):
            child.reports(whole.connections, theirs)
        for part, theirs in zip(parts[count:], numbers[count:], strict=True):
            with BytesIO() as way:
                part.analysis.connections.send(way)
                way.seek(0)
                whole.connections.receive(way, theirs)
    finally:
        for child in children:
            child.end()
    return whole


def read_share(
    reader: CaptureReader, options: Options, share: tuple[int, int], *, wanted: bool = True
) -> ShareResult:
    """Analyse share (index, of how many) of a capture, with anomalies where they are `wanted`."""
    mine, servers = share_of(*share), Servers(weak=False)
    return _taken(reader, options, mine, servers, wanted=wanted, shares=share[1])


def _taken(
    reader: CaptureReader,
    options: Options,
    mine: Decapsulator,
    servers: Servers,
    *,
    wanted: bool,
    shares: int = 1,
) -> ShareResult:
    """Analyse what a decapsulator leaves of a capture."""
    anomalies = Anomalies()
    told = replace(options, on_anomaly=anomalies.take if wanted else None)
    pipeline = Pipeline(told, servers=servers, shares=shares)
    with rare_collections():
        mine.hand_over(reader, pipeline)
        pipeline.finish(reader.info.last_time_ns)
    analysis = pipeline.analysis(reader.info, anomalies, mine.stats)
    strays = pipeline.recogniser.strays()
    return ShareResult(analysis, pipeline.begun, servers, strays, dict(faults))


@dataclass(frozen=True, slots=True)
class UnclaimedFlows:
    """The flows of nobody that go to a server which some share knows: they are a share more, so
    that they are found as one process would have found them.
    """

    keys: frozenset[FlowKey]
    known: tuple[Servers, ...]
    """What each share knows of servers."""

    @classmethod
    def of(cls, parts: Sequence[ShareResult]) -> Self | None:
        """Return those of all shares; None where there are none."""
        made = cls(frozenset(), tuple(part.servers for part in parts))
        servers = made.servers()
        keys = frozenset(
            way
            for part in parts
            for key in part.strays
            if servers.recalls("udp", key)
            for way in (key, reverse_key(key))
        )
        return replace(made, keys=keys) if keys else None

    def servers(self) -> Servers:
        """Return what all shares together know of servers."""
        found = Servers()
        for each in self.known:
            found.merge(each)
        return found

    def share(self) -> Decapsulator:
        """Return what takes off the headers for these flows alone."""
        return Decapsulator(OnlyFlows(self.keys))

    def read(self, path: str, options: Options, *, wanted: bool = True) -> ShareResult:
        """Analyse them."""
        chosen = self.share()
        with open_capture(path) as again:
            part = _taken(again, options, chosen, self.servers(), wanted=wanted)
        # Their shares have counted them as nobody's.
        part.analysis.other_datagrams -= chosen.stats.udp
        part.analysis.flow = FlowStats()
        return part


@dataclass(slots=True)
class _Child:
    """A forked process and the pipe on which it hands back its part."""

    pid: int
    pipe: IO[bytes]
    line: Lifeline

    @classmethod
    def start(cls, path: str, options: Options, share: tuple[int, int], wanted: bool) -> _Child:  # noqa: FBT001 - private
        """Fork a process that analyses one share."""
        receive, send = os.pipe()
        sys.stdout.flush()
        sys.stderr.flush()
        line = Lifeline()
        pid = os.fork()
        if pid:
            os.close(send)
            line.keep()
            return cls(pid, os.fdopen(receive, "rb"), line)
        logging.getLogger("netdissect").disabled = True  # the first process names each plug-in once
        status = 1
        try:
            line.depend()
            os.close(receive)
            with open_capture(path) as reader, os.fdopen(send, "wb") as out:
                part = read_share(reader, options, share, wanted=wanted)
                reports, part.analysis.connections = part.analysis.connections, Reports()
                pickle.dump(part, out, pickle.HIGHEST_PROTOCOL)
                reports.send(out)
            status = 0
        finally:
            # Neither the traceback nor the exit handlers of a forked copy are anybody's business.
            os._exit(status)

    def part(self) -> ShareResult:
        """Wait for the part; its reports stay in the pipe."""
        with _complaint():
            # Not in the read: there, a signal would wait for the whole part.
            wait(self.pipe.fileno())
            # The bytes come from a process of our own, over a pipe that nobody else holds.
            part: ShareResult = pickle.load(self.pipe)  # noqa: S301
        return part

    def reports(self, whole: Reports, numbers: Sequence[int]) -> None:
        """Add the reports of the part, connection n as number `numbers[n - 1]`."""
        with _complaint():
            whole.receive(self.pipe, numbers)

    def end(self) -> None:
        """Close the pipe and reap the process; one that still runs is ended first."""
        self.pipe.close()
        self.line.cut()
        done, _ = os.waitpid(self.pid, os.WNOHANG)
        if not done:
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)


@contextmanager
def _complaint() -> Iterator[None]:
    """Say that another process failed, where what it sends ends too early."""
    try:
        yield
    except (EOFError, pickle.UnpicklingError):
        check()
        raise RuntimeError("a process that analysed a share of the capture failed") from None


def merged(parts: Sequence[ShareResult], options: Options) -> tuple[Analysis, list[array[int]]]:
    """Return one analysis of all parts but their reports, and for each part the numbers that one
    process would have given its connections.
    """
    numbers = common_numbers([part.begun for part in parts])
    whole = parts[0].analysis
    whole.near = {
        numbers[share][number - 1]: near
        for share, part in enumerate(parts)
        for number, near in part.analysis.near.items()
    }
    known = [part.analysis.repeated for part in parts]
    whole.repeated = None if None in known else {
        numbers[share][number - 1] for share, mine in enumerate(known) for number in mine or ()
    }
    for share, part in enumerate(parts):
        for anomaly in part.analysis.anomalies:
            if anomaly.connection is not None:
                anomaly.connection = numbers[share][anomaly.connection - 1]
        if share:
            _add(whole, part.analysis)
    anomalies = Anomalies()
    # One process would have found them by their frames, not share by share.
    for anomaly in sorted(whole.anomalies, key=lambda anomaly: anomaly.frame or 0):
        anomalies.take(anomaly)
    anomalies.settle(whole.limits_hit)
    whole.anomalies = anomalies.listed()
    if options.on_anomaly is not None:
        for anomaly in whole.anomalies:
            options.on_anomaly(anomaly)
    return whole, numbers


def _add(whole: Analysis, part: Analysis) -> None:
    whole.anomalies += part.anomalies
    whole.begins = array("q", merge(whole.begins, part.begins))
    whole.other_datagrams += part.other_datagrams
    whole.flow.add(part.flow)
    for limit, hits in part.limits_hit.items():
        whole.limits_hit[limit] = whole.limits_hit.get(limit, 0) + hits
    for protocol, counts in part.protocols.items():
        mine = whole.protocols.setdefault(protocol, dict.fromkeys(counts, 0))
        for name, amount in counts.items():
            mine[name] = mine.get(name, 0) + amount
