"""One large capture, several workers: each reads all of it and tracks its share of the flows, as
`pipeline.parallel` has processes do. The rows are those of one worker.

Each function is a task of Dask's; what a task leaves for the next lies in a folder below that of
the dataset. The steps of a capture: `identify`; `read` each share; `agree` on numbers and on what
only all shares together know; `rows` of each share; `finish`.
"""

from __future__ import annotations

import hashlib
import pickle
from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import IO, Any
from uuid import uuid4

from netdissect.capture import open_capture
from netdissect.model.errors import CaptureFileError, UsageError
from netdissect.model.files import PinnedFiles, pinned_files
from netdissect.model.survey import Outcome
from netdissect.pipeline import Analysis, Pipeline, Sums, parallel, with_placements
from netdissect.pipeline.counting import count_datagrams
from netdissect.pipeline.reports import Reports
from netdissect.pipeline.servers import Servers
from netdissect.survey.dataset import Dataset, Drafts, Staged
from netdissect.survey.sources import Source, held
from netdissect.survey.work import (
    Places,
    Plan,
    Spans,
    conclude,
    connection_rows,
    failed,
    findings,
    teller,
)

__all__ = ["shares_for", "split"]


@dataclass(frozen=True, slots=True)
class _Work:
    """A capture that is being read."""

    source: Source
    plan: Plan
    key: str
    count: int
    """Shares of its flows; one more are those that only all shares together recognise."""
    files: PinnedFiles
    """The file that every task is to read."""

    @property
    def folder(self) -> Path:
        """Return where tasks leave files for each other: one for each source, as two may hold the
        same capture.
        """
        digest = hashlib.sha256(self.source.name.encode("utf-8", "surrogateescape")).hexdigest()
        return Dataset(self.plan.dataset).staging / f"{self.key}-{digest[:8]}"

    def part(self, index: int) -> Path:
        """Return the file of what was read of a share."""
        return self.folder / f"part-{index}"

    def leave(self, file: Path, *values: Any, reports: Reports | None = None) -> None:
        """Write a file; it appears when it is whole."""
        draft = file.with_suffix(f".{uuid4().hex}")  # another worker may be at the same
        with draft.open("wb") as out:
            for value in values:
                pickle.dump(value, out, pickle.HIGHEST_PROTOCOL)
            if reports is not None:
                reports.send(out)
        draft.replace(file)


@dataclass(frozen=True, slots=True)
class _Agreed:
    """What all shares together know."""

    found: Analysis
    """Without reports."""
    numbers: list[array[int]]
    """For each share: what its connections are called in the dataset."""
    elsewhere: parallel.UnclaimedFlows | None


@dataclass(slots=True)
class _Told:
    """What the rows of one share come to."""

    drafts: Drafts = field(default_factory=list)
    connections: int = 0
    beyond_days: int = 0
    sums: dict[str, Sums] = field(default_factory=dict)


def shares_for(source: Source, workers: int, octets: int) -> int:
    """Return how many shares a source is read in: 1 unless it is larger than what a worker has to
    read on average, and a file that all workers see.
    """
    small = source.octets < max(parallel.MIN_OCTETS, octets // workers)
    if small or source.url is not None or source.parts:
        return 1
    return min(workers, parallel.MAX_SHARES)


def split(client: Any, source: Source, plan: Plan, count: int, **how: Any) -> Any:
    """Submit the tasks of one capture to Dask, and return the future of its outcome."""
    work = client.submit(_identify, source, plan, count, **how)
    parts = [client.submit(_read, work, index, **how) for index in range(count)]
    agreed = client.submit(_agree, work, parts, **how)
    told = [client.submit(_rows, work, agreed, index, **how) for index in range(count + 1)]
    return client.submit(_finish, work, agreed, told, **how)


def _identify(source: Source, plan: Plan, count: int) -> _Work | Outcome:
    dataset = Dataset(plan.dataset)
    try:
        with pinned_files() as files, held(source) as (_, key, _), open_capture(source.path):
            pass
    except (CaptureFileError, UsageError) as error:
        return failed(source, plan, None, str(error))
    if dataset.row_file(key).exists():
        dataset.failure_file(source.name).unlink(missing_ok=True)
        return Outcome(source.name, "skipped", key, source.octets)
    work = _Work(source, plan, key, count, files)
    work.folder.mkdir(parents=True, exist_ok=True)
    return work


def _read(work: _Work | Outcome, index: int) -> None:
    """Track a share of the flows."""
    if isinstance(work, Outcome) or work.part(index).exists():
        return
    with pinned_files(work.files), open_capture(work.source.path) as reader:
        part = parallel.read_share(reader, work.plan.options(), (index, work.count))
    _keep(work, index, part)


def _keep(work: _Work, index: int, part: parallel.ShareResult) -> None:
    with part.analysis.connections as reports:
        part.analysis.connections = Reports()
        work.leave(work.part(index), part, reports=reports)


def _opened(work: _Work, index: int) -> tuple[IO[bytes], parallel.ShareResult]:
    file = work.part(index).open("rb")
    # The bytes come from another worker of ours; whoever may write there has the dataset anyway.
    return file, pickle.load(file)  # noqa: S301


def _agree(work: _Work | Outcome, _parts: Sequence[None]) -> None:
    """Join what the shares found, but for their reports."""
    if isinstance(work, Outcome):
        return
    parts = []
    for index in range(work.count):
        file, part = _opened(work, index)
        file.close()
        parts.append(part)
    options = work.plan.options()
    elsewhere = parallel.UnclaimedFlows.of(parts)
    if elsewhere is not None:
        with pinned_files(work.files):
            parts.append(elsewhere.read(work.source.path, options))
        _keep(work, work.count, parts[-1])
    found, numbers = parallel.merged(parts, options)
    work.leave(work.folder / "agreed", _Agreed(found, numbers, elsewhere))


def _agreed(work: _Work) -> _Agreed:
    agreed: _Agreed = pickle.loads((work.folder / "agreed").read_bytes())  # noqa: S301 - as above
    return agreed


def _rows(work: _Work | Outcome, _agreement: None, index: int) -> _Told:
    """Write the rows of a share, and count its part of the spans."""
    told = _Told()
    if isinstance(work, Outcome):
        return told
    agreed, plan = _agreed(work), work.plan
    if index == work.count and agreed.elsewhere is None:
        return told
    file, _ = _opened(work, index)
    numbers = agreed.numbers[index]
    reports = Reports()
    with file, reports, Staged(Dataset(plan.dataset), work.key, index, work.folder) as staged:
        reports.receive(file, numbers)
        # A client that fell silent here may have gone on in another share, or its server there.
        for other, of_others in enumerate(agreed.numbers):
            if other != index:
                theirs, _ = _opened(work, other)
                with theirs:
                    reports.learn(theirs, of_others)
        places = connection_rows(reports, staged)
        mine = frozenset(numbers)
        told_of_mine = (each for each in agreed.found.anomalies if each.connection in mine)
        findings(told_of_mine, staged, places)
        # They are written, and nothing else asks for them.
        agreed.found.anomalies.clear()
        staged.end_files()
        spans = Spans(plan.span_ns, agreed.found.info.first_time_ns, reports)
        options = with_placements(plan.options(), agreed.found, reports)
        options = replace(options, on_report=None if plan.units else spans.over)
        counted = spans.counted(plan, places)
        if agreed.elsewhere is not None and index == work.count:
            servers, share, shares = agreed.elsewhere.servers(), agreed.elsewhere.share(), 1
        else:
            servers, shares = Servers(weak=False), work.count
            share = parallel.share_of(index, work.count, agreed.elsewhere)
        pipeline = Pipeline(
            options, recorder=counted.recorder, observer=counted, servers=servers, shares=shares
        )
        with pinned_files(work.files):
            units = teller(spans, staged, places) if plan.units else None
            count_datagrams(work.source.path, counted, pipeline, units, share)
        told.sums = {name: table.sums() for name, table in spans.tables.items()}
        told.connections, told.beyond_days = len(reports), staged.beyond_days
        told.drafts = staged.seal()
    return told


def _finish(work: _Work | Outcome, _agreement: None, told: Sequence[_Told]) -> Outcome:
    """Write what is of no share, and have all rows appear."""
    if isinstance(work, Outcome):
        return work
    found, plan = _agreed(work).found, work.plan
    dataset = Dataset(plan.dataset)
    spans = Spans(plan.span_ns, found.info.first_time_ns, Reports())
    for each in told:
        for protocol, sums in each.sums.items():
            spans.table(protocol).add(sums)
    with Staged(dataset, work.key, folder=work.folder) as staged:
        staged.beyond_days = sum(each.beyond_days for each in told)
        findings((each for each in found.anomalies if each.connection is None), staged, Places())
        connections = sum(each.connections for each in told)
        outcome = conclude(
            work.source, found, spans, staged, connections, [each.drafts for each in told]
        )
    dataset.failure_file(work.source.name).unlink(missing_ok=True)
    return outcome
