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
from typing import IO, Final, Self

from netdissect.capture import CaptureReader, open_capture
from netdissect.dissect.foreign import disable, faults
from netdissect.flow import Decapsulator
from netdissect.flow.stats import FlowStats
from netdissect.model.packets import FlowKey, reverse_key
from netdissect.model.reports import CaptureInfo
from netdissect.pipeline import recogniser, stages, table
from netdissect.pipeline.anomalies import Anomalies
from netdissect.pipeline.collector import rare_collections
from netdissect.pipeline.numbering import ConnectionNumbers, common_numbers
from netdissect.pipeline.options import Analysis, Options
from netdissect.pipeline.reports import Reports
from netdissect.pipeline.servers import Servers
from netdissect.pipeline.share import OnlyFlows, Share
from netdissect.pipeline.spreading import COUNTS
from netdissect.pipeline.stages import Pipeline
from netdissect.system.interrupt import check, wait
from netdissect.system.parent import Lifeline, usable_cores

MIN_OCTETS = 24_000_000
"""Smallest capture for which a second process saves time, bytes."""
DECISIVE: Final = frozenset((
    "MAX_ALL_OUTSTANDING", "MAX_BRIEF", "MAX_CONNECTIONS", "MAX_DOUBTED", "MAX_REPORTS",
    "MAX_SAMPLED", "MAX_SAMPLED_OCTETS",
))  # fmt: skip
"""Bounds that end connections early, or keep some from being reported."""


@dataclass(slots=True)
class ShareResult:
    """The result of one process."""

    analysis: Analysis
    begun: ConnectionNumbers
    servers: Servers
    strays: list[FlowKey]
    """Keys of the unknown UDP flows."""
    most_flows: tuple[int, int]
    """See `Pipeline`."""
    apart: bool
    """Whether these are `UnclaimedFlows`."""
    late: bool
    """See `Pipeline`."""
    disabled: dict[str, str]
    """Plug-in -> why it failed."""
    fault: str | None
    """Why reading ended early; None if it did not."""


def processes_for(path: str) -> int:
    """Return the number of processes to use for a capture; 1 for a pipe or a small file."""
    file = Path(path)
    if not hasattr(os, "fork") or not file.is_file() or file.stat().st_size < MIN_OCTETS:
        return 1
    return shares_of(usable_cores())


def shares_of(processes: int) -> int:
    """Return how many of these processes can share a capture; each of them reads the whole file."""
    return max(count for count in COUNTS if count <= max(1, processes))


def share_of(index: int, count: int, elsewhere: UnclaimedFlows | None = None) -> Decapsulator:
    """Return a decapsulator for the flows of share `index` of `count`. It leaves out `elsewhere`,
    which another process reads: this one would hold their packets without ever recognising them.
    """
    mine = Share(index, count, frozenset() if elsewhere is None else elsewhere.keys)
    return Decapsulator(mine)


def analyze_shares(
    reader: CaptureReader, options: Options, count: int, *, anomalies: bool = True
) -> Analysis:
    """Return the analysis of a capture file by `count` processes, this one included.

    Args:
        reader: the open file; the other processes open its path again.
        options: `on_anomaly` is called for all anomalies at the end.
        count: number of processes, at least 2.
        anomalies: whether to list anomalies; with `on_anomaly` they always are.

    Raises:
        OSError: a process could not be started.
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
        if begun_twice(parts):
            with open_capture(reader.info.path) as again:
                parts = [_taken(again, options, Decapsulator(), Servers(), wanted=wanted)]
        for why in filter(None, [part.fault for part in parts]):
            reader.failed(why)
        whole, numbers = merged(parts, options)
        whole.connections.store.renumber(numbers[0])
        for child, theirs in zip(children, numbers[1:count], strict=False):
            child.reports(whole.connections, theirs)
        for part, theirs in zip(parts[count:], numbers[count:], strict=True):
            with BytesIO() as way:
                part.analysis.connections.store.send(way)
                way.seek(0)
                whole.connections.store.receive(way, theirs)
    finally:
        for child in children:
            child.end()
    return whole


def read_share(
    reader: CaptureReader,
    options: Options,
    share: tuple[int, int],
    *,
    wanted: bool = True,
    bounded: bool = False,
) -> ShareResult:
    """Return the result for share (index, count) of a capture; list anomalies if `wanted`, instead
    of passing each on as it is found, and have the bounds apply to this share alone if it is
    `bounded`.
    """
    mine, servers = share_of(*share), Servers(weak=False)
    shares = 1 if bounded else share[1]
    part = _taken(reader, options, mine, servers, wanted=wanted, shares=shares)
    part.apart = False
    return part


def _taken(
    reader: CaptureReader,
    options: Options,
    mine: Decapsulator,
    servers: Servers,
    *,
    wanted: bool,
    shares: int = 1,
) -> ShareResult:
    """Return the result for the packets that a decapsulator does not leave out."""
    anomalies = Anomalies()
    told = replace(options, on_anomaly=anomalies.take) if wanted else options
    pipeline = Pipeline(told, servers=servers, shares=shares)
    with rare_collections():
        mine.hand_over(reader, pipeline)
        pipeline.finish(reader.info.last_time_ns)
    analysis = pipeline.analysis(reader.info, anomalies, mine.stats)
    strays = pipeline.recogniser.strays()
    return ShareResult(
        analysis, pipeline.begun, servers, strays, pipeline.most_flows, shares == 1, pipeline.late,
        dict(faults), reader.fault,
    )  # fmt: skip


def beyond_bounds(parts: Sequence[ShareResult]) -> bool:
    """Return whether one process might have hit a bound that changes its results, or a share has:
    the results of the shares may then differ from those of one process.
    """
    claimed, waiting = map(sum, zip(*(part.most_flows for part in parts), strict=True))
    return (
        any(DECISIVE & part.analysis.limits_hit.keys() for part in parts)
        or (
            any("MAX_QUIET" in part.analysis.limits_hit for part in parts)
            and any(part.apart or part.late for part in parts)
        )
        or begun_twice(parts)
        or claimed > table.MAX_CONNECTIONS
        or waiting > recogniser.MAX_SAMPLED
        or sum(part.begun.count for part in parts) > stages.MAX_REPORTS
    )


def begun_twice(parts: Sequence[ShareResult]) -> bool:
    """Return whether two parts have the same connection: a flow that its own share claimed, and
    did not recognise when it came back after its end, is among `UnclaimedFlows` as a whole.
    """
    for one in parts:
        if one.apart:
            frames = set(one.begun.frames)
            if any(not frames.isdisjoint(each.begun.frames) for each in parts if not each.apart):
                return True
    return False


@dataclass(frozen=True, slots=True)
class UnclaimedFlows:
    """The UDP flows that their own share did not recognise, but that go to a server which another
    share knows. They are read again as a further share, so that the result is that of one process.
    """

    keys: frozenset[FlowKey]
    known: tuple[Servers, ...]
    """The servers that each share knows."""

    @classmethod
    def of(cls, parts: Sequence[ShareResult]) -> Self | None:
        """Return the flows of all shares; None if there are none."""
        made = cls(frozenset(), tuple(part.servers for part in parts))
        servers = made.servers()
        keys = frozenset(
            way
            for part in parts
            for key in part.strays
            if servers.recalls(key)
            # Both directions: another process may see the reply first.
            for way in (key, reverse_key(key))
        )
        return replace(made, keys=keys) if keys else None

    def servers(self) -> Servers:
        """Return the servers that all shares know together."""
        found = Servers()
        for each in self.known:
            found.merge(each)
        return found

    def share(self) -> Decapsulator:
        """Return a decapsulator for these flows alone."""
        return Decapsulator(OnlyFlows(self.keys))

    def read(self, path: str, options: Options, *, wanted: bool = True) -> ShareResult:
        """Return the result for these flows."""
        chosen = self.share()
        with open_capture(path) as again:
            part = _taken(again, options, chosen, self.servers(), wanted=wanted)
        # Their shares have counted them as unknown.
        part.analysis.other_datagrams -= chosen.stats.udp
        part.analysis.flow = FlowStats()
        return part


@dataclass(slots=True)
class _Child:
    """A forked process, and the pipe over which it returns its result."""

    pid: int
    pipe: IO[bytes]
    line: Lifeline

    @classmethod
    def start(cls, path: str, options: Options, share: tuple[int, int], wanted: bool) -> _Child:  # noqa: FBT001 - private
        """Fork a process that analyses one share."""
        receive, send = os.pipe()
        # Otherwise the child would have a copy of what is buffered, and print it again.
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
                reports.store.send(out)
            status = 0
        finally:
            # A forked copy must neither print a traceback nor run exit handlers.
            os._exit(status)

    def part(self) -> ShareResult:
        """Wait for the result without its reports, which stay in the pipe."""
        with _complaint():
            # Wait before reading: a signal during the read is handled only at its end.
            wait(self.pipe.fileno())
            # Safe to unpickle: the pipe belongs to a process of our own.
            part: ShareResult = pickle.load(self.pipe)  # noqa: S301
        return part

    def reports(self, whole: Reports, numbers: Sequence[int]) -> None:
        """Append the reports of the process; its connection n becomes `numbers[n - 1]`."""
        with _complaint():
            whole.store.receive(self.pipe, numbers)

    def end(self) -> None:
        """Close the pipe and reap the process; kill it first if it still runs."""
        self.pipe.close()
        self.line.cut()
        done, _ = os.waitpid(self.pid, os.WNOHANG)
        if not done:
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)


@contextmanager
def _complaint() -> Iterator[None]:
    """Raise RuntimeError if the data of another process ends too early."""
    try:
        yield
    except (EOFError, pickle.UnpicklingError):
        check()
        raise RuntimeError("a process that analysed a share of the capture failed") from None


def merged(parts: Sequence[ShareResult], options: Options) -> tuple[Analysis, list[array[int]]]:
    """Merge the results of all shares.

    Returns:
        The analysis with the reports of the first share only, and for each share the numbers that
        a single process would have given to its connections.

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
            if part.fault is not None:
                _cut(whole.info, part.analysis.info)
    anomalies = Anomalies()
    # A single process would have found them in the order of frames.
    for anomaly in sorted(whole.anomalies, key=lambda anomaly: anomaly.frame or 0):
        anomalies.take(anomaly)
    anomalies.settle(whole.limits_hit)
    whole.anomalies = anomalies.listed()
    if options.on_anomaly is not None:
        for anomaly in whole.anomalies:
            options.on_anomaly(anomaly)
    return whole, numbers


def _cut(info: CaptureInfo, other: CaptureInfo) -> None:
    """Note where one process could read no further, if the others could."""
    if info.truncated_at is None or (other.truncated_at or 0) < info.truncated_at:
        info.truncated_at, info.damage = other.truncated_at, other.damage


def _add(whole: Analysis, part: Analysis) -> None:
    whole.anomalies += part.anomalies
    whole.begins = array("q", merge(whole.begins, part.begins))
    whole.late.update(part.late)
    whole.other_datagrams += part.other_datagrams
    whole.flow.add(part.flow)
    for limit, hits in part.limits_hit.items():
        whole.limits_hit[limit] = whole.limits_hit.get(limit, 0) + hits
    for protocol, counts in part.protocols.items():
        mine = whole.protocols.setdefault(protocol, dict.fromkeys(counts, 0))
        for name, amount in counts.items():
            mine[name] = mine.get(name, 0) + amount
