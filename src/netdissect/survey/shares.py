"""Reads one large capture with several workers.

Each worker reads all of the capture and tracks its share of the flows, as processes do in
`pipeline.parallel`. The rows are the same as from one worker: if a bound on the number of
connections is hit, one worker reads the capture again, because a share hits it at other places.
One worker has no room for a very large capture: that is always read in the same shares, and the
bounds apply to each of them.

The steps are Dask tasks, and exchange files in a folder of the dataset, so that a worker that ends
takes nothing along but what it is doing: `_identify` the capture;
`_read` each share; `_merge` the shares, which gives connections their numbers; write the `_rows` of
each share; `_finish` with the rows that belong to no share, and commit all of them. The findings of
a very large capture go from a share's reading to its rows: no process has room for those of all.
"""

from __future__ import annotations

import hashlib
import pickle
import shutil
from array import array
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import IO, Any
from uuid import uuid4

from netdissect.capture import open_capture
from netdissect.model.annotations import Severity
from netdissect.model.errors import CaptureFileError, UsageError
from netdissect.model.files import PinnedFiles, pinned_files
from netdissect.model.reports import Anomaly
from netdissect.model.survey import Outcome
from netdissect.pipeline import Analysis, Pipeline, Sums, parallel, with_placements
from netdissect.pipeline.anomalies import MAX_ANOMALIES
from netdissect.pipeline.counting import count_datagrams
from netdissect.pipeline.reports import Reports
from netdissect.pipeline.servers import Servers
from netdissect.pipeline.spreading import QUIET_PLACES
from netdissect.survey.dataset import Dataset, Drafts, Staged
from netdissect.survey.slim import free_memory, need_new_process
from netdissect.survey.sources import LocalCopy, Source, local_copy
from netdissect.survey.work import (
    Partitions,
    Plan,
    Spans,
    conclude,
    connection_rows,
    failed,
    findings,
    survey_one,
    unit_writer,
)

LARGE_OCTETS = 1_000_000_000
"""Bytes of a capture that is always read in LARGE_SHARES: connections take 20 to 150 kB while they
are followed, and 600 at a time, with those that have just fallen silent, would take one worker 500
MB. To read the packets of other shares costs a hundredth of tracking them.
"""
LARGE_SHARES = QUIET_PLACES // 2
"""Shares of such a capture; each has whole places for quiet connections."""
_BATCH = 512
"""Findings in one piece of a share's file: each piece names their class and its fields once."""


@dataclass(frozen=True, slots=True)
class _Task:
    """A capture that several workers read."""

    source: Source
    plan: Plan
    count: int
    """Number of shares. One more has the flows that only all shares together recognise."""
    file: LocalCopy
    files: PinnedFiles
    """Identity of the file, which must not change between tasks."""

    @property
    def large(self) -> bool:
        """Return whether the shares do not depend on the workers, so that the bounds can apply to
        each of them.
        """
        return self.source.plain_octets >= LARGE_OCTETS

    @property
    def folder(self) -> Path:
        """Return the folder for the files of the tasks."""
        return _folder(self.source, self.plan)

    @property
    def copy(self) -> Path:
        """Return where a capture is that was fetched, or joined of several files."""
        return self.folder / "capture"

    def part(self, index: int) -> Path:
        """Return the file with the result of `_read` for a share, but for the reports."""
        return self.folder / f"part-{index}"

    @property
    def merged(self) -> Path:
        """Return the file with the result of `_merge`."""
        return self.folder / "merged"

    def rows(self, index: int) -> Path:
        """Return the file with the result of `_rows` for a share."""
        return self.folder / f"rows-{index}"

    def reports(self, index: int) -> Path:
        """Return the file with the reports of a share."""
        return self.folder / f"reports-{index}"

    @property
    def servers(self) -> Path:
        """Return the file with the servers that all shares know together."""
        return self.folder / "servers"

    def findings(self, index: int) -> Path:
        """Return the file with the findings of a share; those about no connection are in that of
        the large capture's share, but in the merged result of another capture.
        """
        return self.folder / f"findings-{index}"

    def write(self, file: Path, write: Callable[[IO[bytes]], None]) -> None:
        """Write a file, which appears when it is complete."""
        draft = file.with_suffix(f".{uuid4().hex}")  # another worker may write the same file
        with draft.open("wb") as out:
            write(out)
        draft.replace(file)

    def dump(self, file: Path, value: object) -> None:
        """Write a file with one value."""
        self.write(file, lambda out: pickle.dump(value, out, pickle.HIGHEST_PROTOCOL))


@dataclass(frozen=True, slots=True)
class _Merged:
    """What all shares together show."""

    found: Analysis
    """Without reports, and without the findings about connections."""
    numbers: list[array[int]]
    """Per share: the final numbers of its connections."""
    elsewhere: parallel.UnclaimedFlows | None
    """Without the servers."""


class _Written:
    """Findings that go to a file as they are made, up to a bound for each severity."""

    def __init__(self, out: IO[bytes]) -> None:
        self._out = out
        self._batch: list[Anomaly] = []
        self._taken: Counter[Severity] = Counter()

    def take(self, found: Anomaly) -> None:
        """Write one, or only count it."""
        self._taken[found.severity] += 1
        if self._taken[found.severity] <= MAX_ANOMALIES:
            self._batch.append(found)
            if len(self._batch) == _BATCH:
                self._write()

    def settle(self, limits_hit: dict[str, int]) -> None:
        """Write the last ones, and add the others to the bounds that were hit."""
        self._write()
        dropped = sum(max(0, taken - MAX_ANOMALIES) for taken in self._taken.values())
        if dropped:
            limits_hit["MAX_ANOMALIES"] = dropped

    def _write(self) -> None:
        pickle.dump(self._batch, self._out, pickle.HIGHEST_PROTOCOL)
        self._batch.clear()


@dataclass(slots=True)
class _Result:
    """The rows of one share."""

    drafts: Drafts = field(default_factory=list)
    connections: int = 0
    beyond_days: int = 0
    sums: dict[str, Sums] = field(default_factory=dict)


def shares_for(source: Source, workers: int, octets: int) -> int:
    """Return how many shares a source is split into: 1 unless it is larger than one worker's memory
    may have room for, or a local file larger than the average load of a worker.
    """
    if source.plain_octets >= LARGE_OCTETS:
        return LARGE_SHARES
    if source.url is not None or source.parts:
        return 1
    small = source.octets < max(parallel.MIN_OCTETS, octets // workers)
    return 1 if small else parallel.shares_of(workers)


def split(client: Any, source: Source, plan: Plan, count: int, **how: Any) -> Any:
    """Submit the tasks of one capture to Dask; return the future of its outcome."""
    workers = sorted(client.nthreads())

    def share(task: Callable[..., Any], index: int, *before: Any) -> Any:
        # Dask would give all to the worker with the results before, which are none: they are files.
        usual = [workers[index % len(workers)]] if workers else None
        return client.submit(
            task, work, *before, index, **how, workers=usual, allow_other_workers=bool(workers)
        )

    work = client.submit(_identify, source, plan, count, **how)
    parts = [share(_read, index) for index in range(count)]
    merged = client.submit(_merge, work, parts, **how)
    rows = [share(_rows, index, merged) for index in range(count + 1)]
    return client.submit(_finish, work, merged, rows, **how)


def _folder(source: Source, plan: Plan) -> Path:
    """Return the folder for the files of the tasks: one per source, not per capture."""
    digest = hashlib.sha256(source.name.encode("utf-8", "surrogateescape")).hexdigest()
    return Dataset(plan.dataset).staging / digest[:32]


def _identify(source: Source, plan: Plan, count: int) -> _Task | Outcome:
    dataset, path, folder = Dataset(plan.dataset), source.path, _folder(source, plan)
    folder.mkdir(parents=True, exist_ok=True)
    kept = folder / "task"
    if kept.exists():
        return _Task(source, plan, count, *_loaded(kept))
    try:
        with pinned_files() as files, local_copy(source, dataset.staging) as file:
            path = file.path
            with open_capture(path):
                pass
            if dataset.row_file(file.key).exists():
                dataset.failure_file(source.name).unlink(missing_ok=True)
                return Outcome(source.name, "skipped", file.key, source.octets)
            work = _Task(source, plan, count, file, files)
            if path != source.path:
                work = _with_copy(work)
            work.dump(kept, (work.file, work.files))
            return work
    except (CaptureFileError, UsageError) as error:
        return failed(source, plan, None, str(error).replace(path, source.name))


def _with_copy(work: _Task) -> _Task:
    """Keep a temporary file for the other tasks, whose workers all see the dataset."""
    work.copy.unlink(missing_ok=True)
    try:
        work.copy.hardlink_to(work.file.path)
    except OSError:  # not every file system has links
        shutil.copyfile(work.file.path, work.copy)
    with pinned_files() as files, open_capture(work.copy):
        return replace(work, file=work.file._replace(path=str(work.copy)), files=files)


def _read(work: _Task | Outcome, index: int) -> None:
    """Track a share of the flows."""
    if isinstance(work, Outcome) or work.part(index).exists():
        return
    if work.large:
        need_new_process()
    with pinned_files(work.files), open_capture(work.file.path) as reader:
        share, large = (index, work.count), work.large
        read = partial(parallel.read_share, reader, share=share, bounded=large)
        part = _found(work, index, read)
    free_memory()  # a pipeline is full of cycles, and would stay while the next share is read
    _keep(work, index, part)


def _found(
    work: _Task, index: int, read: Callable[..., parallel.ShareResult]
) -> parallel.ShareResult:
    """Return the result of a share, without its findings if the capture is large."""
    options = work.plan.options()
    if not work.large:
        return read(options=options)
    found = []

    def write(out: IO[bytes]) -> None:
        written = _Written(out)
        found.append(read(options=replace(options, on_anomaly=written.take), wanted=False))
        written.settle(found[0].analysis.limits_hit)

    work.write(work.findings(index), write)
    return found[0]


def _keep(work: _Task, index: int, part: parallel.ShareResult) -> None:
    with part.analysis.connections as reports:
        part.analysis.connections = Reports()
        work.write(work.reports(index), reports.store.send)
        work.dump(work.part(index), part)


def _loaded(file: Path) -> Any:
    # The bytes come from our own workers; whoever can write there controls the dataset anyway.
    return pickle.loads(file.read_bytes())  # noqa: S301


def _merge(work: _Task | Outcome, _reading: Sequence[None]) -> None:
    """Merge the results of all shares, except their reports."""
    if isinstance(work, Outcome) or work.merged.exists():
        return
    parts: list[parallel.ShareResult] = [_loaded(work.part(index)) for index in range(work.count)]
    options = work.plan.options()
    elsewhere = parallel.UnclaimedFlows.of(parts)
    if elsewhere is not None:
        with pinned_files(work.files):
            parts.append(_found(work, work.count, partial(elsewhere.read, work.file.path)))
        if work.large and parallel.begun_twice(parts):
            parts.pop()
            elsewhere = None
        else:
            _keep(work, work.count, parts[-1])
    if not work.large and parallel.beyond_bounds(parts):
        work.dump(work.merged, None)
        return
    if elsewhere is not None:
        # Only the process that reads these flows needs the servers, which may be very many.
        work.dump(work.servers, elsewhere.servers())
        elsewhere = replace(elsewhere, known=())
    found, numbers = parallel.merged(parts, options)
    if not work.large:
        # Not a set of all numbers: there may be millions of connections, but few have findings.
        named = {each.connection for each in found.anomalies}
        for index, those in enumerate(numbers):
            mine = named.intersection(those)
            work.dump(work.findings(index), [it for it in found.anomalies if it.connection in mine])
        found.anomalies = [each for each in found.anomalies if each.connection is None]
    work.dump(work.merged, _Merged(found, numbers, elsewhere))


def _merged(work: _Task) -> _Merged | None:
    """Return the merged results; None if one worker has to read the capture."""
    merged: _Merged | None = _loaded(work.merged)
    return merged


def _listed(work: _Task, index: int, numbers: Sequence[int]) -> Iterator[Anomaly]:
    """Yield the findings in the file of a share, which are numbered already if the capture is not
    large.
    """
    with work.findings(index).open("rb") as file, suppress(EOFError):
        while True:
            for found in pickle.load(file):  # noqa: S301 - as above
                if work.large and found.connection is not None:
                    found.connection = numbers[found.connection - 1]
                yield found


def _rows(work: _Task | Outcome, _merging: None, index: int) -> None:
    """Write the rows of a share, and sum up its part of the intervals."""
    if isinstance(work, Outcome) or work.rows(index).exists():
        return
    if work.large:
        need_new_process()
    work.dump(work.rows(index), _rows_of_share(work, index))
    free_memory()  # as in `_read`


def _rows_of_share(work: _Task, index: int) -> _Result:
    result = _Result()
    merged, plan = _merged(work), work.plan
    if merged is None or (index == work.count and merged.elsewhere is None):
        return result
    numbers = merged.numbers[index]
    reports = Reports()
    staging = Staged(Dataset(plan.dataset), work.file.key, index, work.folder)
    with work.reports(index).open("rb") as file, reports, staging as staged:
        reports.store.receive(file, numbers)
        # The connections of other shares show what happened to clients and servers of this one.
        for other, of_others in enumerate(merged.numbers):
            if other != index:
                with work.reports(other).open("rb") as theirs:
                    reports.store.learn(theirs, of_others)
        merged.numbers.clear()  # as long as the capture, like the neighbours
        partitions = connection_rows(reports, staged)
        reports.store.forget_neighbours()
        findings(_listed(work, index, numbers), staged, partitions)
        staged.end_files()
        free_memory()
        spans = Spans(plan.span_ns, merged.found.info.first_time_ns, reports)
        options = with_placements(plan.options(), merged.found, reports)
        options = replace(options, on_report=None if plan.units else spans.over)
        counted = spans.counted(plan, partitions)
        if merged.elsewhere is not None and index == work.count:
            # One worker reads all unclaimed flows: bounds apply as in a single process.
            servers, share, shares = _loaded(work.servers), merged.elsewhere.share(), 1
        else:
            servers, shares = Servers(weak=False), 1 if work.large else work.count
            share = parallel.share_of(index, work.count, merged.elsewhere)
        pipeline = Pipeline(
            options, recorder=counted.recorder, observer=counted, servers=servers, shares=shares
        )
        with pinned_files(work.files), open_capture(work.file.path) as reader:
            units = unit_writer(spans, staged, partitions) if plan.units else None
            count_datagrams(reader, counted, pipeline, units, share)
            reader.must_reach(merged.found.info.frames)
        result.sums = {name: table.sums() for name, table in spans.tables.items()}
        result.connections, result.beyond_days = len(reports), staged.beyond_days
        result.drafts = staged.seal()
    return result


def _finish(work: _Task | Outcome, _merging: None, _writing: Sequence[None]) -> Outcome:
    """Write the rows that belong to no share, and commit all rows."""
    if isinstance(work, Outcome):
        return work
    merged, plan = _merged(work), work.plan
    if merged is None:
        return survey_one(work.source, plan)
    found = merged.found
    dataset = Dataset(plan.dataset)
    spans = Spans(plan.span_ns, found.info.first_time_ns, Reports())
    drafts: list[Drafts] = []
    connections = 0
    with Staged(dataset, work.file.key, folder=work.folder) as staged:
        for index in range(work.count + 1):  # one by one: each holds many round trips
            result: _Result = _loaded(work.rows(index))
            for protocol, sums in result.sums.items():
                spans.table(protocol).add(sums)
            drafts.append(result.drafts)
            connections += result.connections
            staged.beyond_days += result.beyond_days
        findings(found.anomalies, staged, Partitions())
        outcome = conclude(work.source, work.file, found, spans, staged, connections, drafts)
    dataset.failure_file(work.source.name).unlink(missing_ok=True)
    work.copy.unlink(missing_ok=True)
    return outcome
