"""One capture read by several workers gives the rows that one worker gives."""

from __future__ import annotations

import gc
import os
from collections import Counter
from errno import EPERM
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

import console_docs
from faulty import faulty_capture
from netdissect import analyze
from netdissect.cli.session import Choices
from netdissect.model.errors import CaptureFileError
from netdissect.model.survey import Outcome
from netdissect.pipeline import anomalies, recogniser, stages
from netdissect.pipeline import table as flow_table
from netdissect.survey import shares
from netdissect.survey.dataset import Dataset
from netdissect.survey.shares import shares_for
from netdissect.survey.sources import Source, join_rotated, sources_of
from netdissect.survey.tables import TABLES
from netdissect.survey.work import Plan, survey_one
from packetbuild import ipv4, link_frame, udp
from twocaptures import coming_back, goes_on, interleaved, rewritten

CAPTURES = console_docs.ROOT / "captures"
NAMES = (
    "riptide/udp_2.2.1_reconnect.pcap", "riptide/udp_2.2.1_lossy_clientleg.pcap",
    "riptide/tcp_2.2.1_clean.pcap", "teeworlds/ddnet_loss_client_side.pcap",
    "netplay/bin1_port_reuse.pcap", "eoudp/decoys.pcap", "knet/udp_two_clients.pcap",
)  # fmt: skip


@pytest.fixture(scope="module")
def mixed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Real captures at the same time, and flows that only another flow's server tells about."""
    known = next(iter(analyze(str(CAPTURES / NAMES[0])).connections)).server
    host = bytes(map(int, known.partition(":")[0].split(".")))
    more = []
    for place in range(12):
        payload = udp(b"\xee" * 9, 40_000 + place, int(known.partition(":")[2]))
        packet = link_frame("ethernet", ipv4(payload, src=host, dst=host))[1]
        more.append((10**11 + place, packet, len(packet)))
    target = tmp_path_factory.mktemp("mixed") / "mixed.pcap"
    # A client that goes on from another port: flows of two shares.
    first = CAPTURES / "riptide" / "udp_2.0.0_giveup_clientleg.pcap"
    moved = rewritten(first, target.with_name("moved.pcap"), partial(goes_on, from_another_port=True))
    return interleaved((*(CAPTURES / name for name in NAMES), Path(moved)), target, more)


def plan_for(out: Path, *, units: bool = True) -> Plan:
    return Plan(str(out), Choices().options, 10**9, units=units)


def rows(out: Path, table: str) -> list[str]:
    files = sorted((out / table).rglob("*.parquet"))
    found: list[Any] = [row for file in files for row in pq.ParquetFile(file).read().to_pylist()]
    return sorted(map(str, found))


def by_shares(source: Source, out: Path, count: int, *, units: bool = True) -> Outcome:
    plan = plan_for(out, units=units)
    with Dataset(out).opened({}):
        work = shares._identify(source, plan, count)
        parts = [shares._read(work, index) for index in range(count)]
        merged = shares._merge(work, parts)
        results = [shares._rows(work, merged, index) for index in range(count + 1)]
        return shares._finish(work, merged, results)


def test_no_share_leaves_its_pipeline_to_the_next(
    mixed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Pipelines are full of cycles: a worker held that of one share while it wrote the rows of another."""
    made = []

    def watched(*args: Any, **more: Any) -> stages.Pipeline:
        made.append(more)
        return stages.Pipeline(*args, **more)

    def alive() -> int:
        return sum(isinstance(each, stages.Pipeline) for each in gc.get_objects())

    monkeypatch.setattr(shares, "Pipeline", watched)
    gc.collect()
    gc.disable()
    try:
        before = alive()
        work = by_shares(sources_of([str(mixed)])[0], tmp_path / "out", 2)
        after = alive()
    finally:
        gc.enable()
    assert work.status == "done"
    assert len(made) == 3
    assert after == before


@pytest.fixture(scope="module")
def alone(mixed: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("alone")
    with Dataset(out).opened({}):
        (source,) = sources_of([str(mixed)])
        survey_one(source, plan_for(out))
    return out


def test_a_client_that_may_go_on_elsewhere_is_among_them(alone: Path) -> None:
    assert any("may have continued from another port" in row for row in rows(alone, "verdicts"))


@pytest.mark.parametrize("count", [2, 5])
def test_the_rows_are_those_of_one_worker(mixed: Path, alone: Path, tmp_path: Path, count: int) -> None:
    (source,) = sources_of([str(mixed)])
    outcome = by_shares(source, tmp_path, count)
    assert outcome.status == "done"
    for table in TABLES:
        found = rows(tmp_path, table)
        assert found
        assert found == rows(alone, table), table
    shared = {path.stem.partition("-")[2] for path in tmp_path.rglob("*-*.parquet")}
    assert shared == set(map(str, range(count + 1)))
    assert by_shares(source, tmp_path, count).status == "skipped"


def test_a_large_capture_keeps_its_shares_beyond_a_bound(
    mixed: Path, alone: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One worker has no room for it. Within all bounds, its rows are those of one worker."""
    monkeypatch.setattr(shares, "LARGE_OCTETS", 1)
    (source,) = sources_of([str(mixed)])
    by_shares(source, tmp_path / "usual", 12)
    for table in TABLES:
        assert rows(tmp_path / "usual", table) == rows(alone, table), table
    monkeypatch.setattr(flow_table, "MAX_CONNECTIONS", 5)
    assert by_shares(source, tmp_path / "bounded", 8).status == "done"
    assert list((tmp_path / "bounded").rglob("*-1.parquet"))


def test_a_large_capture_keeps_the_findings_of_all_shares(
    mixed: Path, alone: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No process holds them all: beyond a bound, one list of them would lose those of later frames."""
    monkeypatch.setattr(shares, "LARGE_OCTETS", 1)
    monkeypatch.setattr(shares, "_BATCH", 2)
    monkeypatch.setattr(anomalies, "MAX_ANOMALIES", 1)
    (source,) = sources_of([str(mixed)])
    by_shares(source, tmp_path, 8)
    assert rows(tmp_path, "findings") == rows(alone, "findings")


def test_each_share_of_a_large_capture_writes_so_many_findings_of_a_severity(
    mixed: Path, alone: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shares, "LARGE_OCTETS", 1)
    monkeypatch.setattr(shares, "MAX_ANOMALIES", 2)
    (source,) = sources_of([str(mixed)])
    by_shares(source, tmp_path, 3)
    kept = Counter(
        (file.name, row["severity"])
        for file in (tmp_path / "findings").rglob("*.parquet")
        for row in pq.ParquetFile(file).read(["severity"]).to_pylist()
    )
    assert max(kept.values()) == 2
    dropped = len(rows(alone, "findings")) - len(rows(tmp_path, "findings"))
    (capture,) = rows(tmp_path, "captures")
    assert f'"MAX_ANOMALIES":{dropped}' in capture


@pytest.mark.parametrize("kind", ["rotated", "far", "far, without links"])
def test_a_large_capture_that_is_no_local_file_is_shared_too(
    mixed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    monkeypatch.setattr(shares, "LARGE_OCTETS", 1)
    if kind == "rotated":
        split_in_two(mixed, tmp_path)
        (source,) = join_rotated(sources_of([str(tmp_path / "*.pcap*")]))
        assert len(source.parts) == 2
    else:
        (source,) = sources_of([f"file://{mixed}"])
    if kind == "far, without links":
        monkeypatch.setattr(Path, "hardlink_to", no_links)
    with Dataset(tmp_path / "alone").opened({}):
        survey_one(source, plan_for(tmp_path / "alone"))
    by_shares(source, tmp_path / "shared", shares_for(source, 1, source.octets))
    for table in TABLES:
        assert rows(tmp_path / "shared", table) == rows(tmp_path / "alone", table), table
    assert len({file.stem for file in (tmp_path / "shared").rglob("*-*.parquet")}) > 4
    assert not list((tmp_path / "shared").rglob("_staging/**/capture"))
    assert by_shares(source, tmp_path / "shared", 8).status == "skipped"


def split_in_two(capture: Path, folder: Path) -> None:
    """Write a capture as two files of a rotated one; the second ends in the middle of a record."""
    data = capture.read_bytes()
    at = 24
    while at < len(data) // 2:
        at += 16 + int.from_bytes(data[at + 8 : at + 12], "little")
    (folder / "x.pcap").write_bytes(data[:at])
    (folder / "x.pcap1").write_bytes(data[:24] + data[at:] + b"\0")


def no_links(_self: Path, _target: object) -> None:
    raise PermissionError(EPERM, "Operation not permitted")


def test_what_comes_back_to_a_large_capture_is_listed_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shares, "LARGE_OCTETS", 1)
    (source,) = sources_of([str(coming_back(tmp_path / "back.pcap"))])
    by_shares(source, tmp_path / "out", 3)
    frames = [row["first_frame"] for file in (tmp_path / "out" / "connections").rglob("*.parquet")
              for row in pq.ParquetFile(file).read().to_pylist()]  # fmt: skip
    assert len(frames) == len(set(frames)) == 9


def test_only_who_reads_unclaimed_flows_loads_the_servers(mixed: Path, tmp_path: Path) -> None:
    """They took each worker 30 MB in a capture of 20 GB."""
    (source,) = sources_of([str(mixed)])
    with Dataset(tmp_path).opened({}):
        work = shares._identify(source, plan_for(tmp_path), 3)
        assert isinstance(work, shares._Task)
        shares._merge(work, [shares._read(work, index) for index in range(3)])
        merged = shares._merged(work)
    assert merged is not None
    assert merged.elsewhere is not None
    assert not merged.elsewhere.known


@pytest.mark.parametrize("count", [1, 2, 5])
def test_units_without_rows_count_in_the_same_spans(
    mixed: Path, alone: Path, tmp_path: Path, count: int
) -> None:
    (source,) = sources_of([str(mixed)])
    if count == 1:
        with Dataset(tmp_path).opened({}):
            survey_one(source, plan_for(tmp_path, units=False))
    else:
        by_shares(source, tmp_path, count, units=False)
    for table in TABLES:
        assert rows(tmp_path, table) == ([] if table == "units" else rows(alone, table)), table


@pytest.mark.parametrize(
    ("module", "bound", "most"),
    [
        (flow_table, "MAX_CONNECTIONS", 5), (flow_table, "MAX_CONNECTIONS", 10),
        (recogniser, "MAX_SAMPLED", 5), (recogniser, "MAX_SAMPLED", 16), (stages, "MAX_REPORTS", 15),
    ],
)  # fmt: skip
def test_beyond_a_bound_the_rows_are_those_of_one_worker(
    mixed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, module: Any, bound: str, most: int
) -> None:
    """Also if only all shares together are beyond it."""
    monkeypatch.setattr(module, bound, most)
    (source,) = sources_of([str(mixed)])
    with Dataset(tmp_path / "alone").opened({}):
        survey_one(source, plan_for(tmp_path / "alone"))
    assert f'"{bound}"' in str(rows(tmp_path / "alone", "captures"))
    by_shares(source, tmp_path / "shared", 3)
    for name in TABLES:
        assert rows(tmp_path / "shared", name) == rows(tmp_path / "alone", name), name


def test_what_is_no_capture_is_a_row(tmp_path: Path) -> None:
    bad = tmp_path / "bad.pcap"
    bad.write_bytes(b"nothing at all")
    (source,) = sources_of([str(bad)])
    outcome = by_shares(source, tmp_path / "out", 2)
    assert outcome.status == "failed"
    assert "not a capture file" in (outcome.error or "")
    assert len(rows(tmp_path / "out", "captures")) == 1


def test_a_fault_that_one_share_meets_is_no_dataset(
    mixed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (source,) = sources_of([str(mixed)])
    with Dataset(tmp_path).opened({}):
        task = shares._identify(source, plan_for(tmp_path), 2)
        merged = shares._merge(task, [shares._read(task, index) for index in range(2)])
        half = mixed.stat().st_size // 2
        monkeypatch.setattr(shares, "open_capture", lambda path: faulty_capture(path, half))
        with pytest.raises(OSError, match="Input/output error"):
            shares._rows(task, merged, 0)


def test_what_is_larger_than_a_workers_share_is_split() -> None:
    large = Source("a", "a", octets=10**8)
    assert shares_for(large, 2, 10**8) == 2
    assert shares_for(large, 64, 10**8) == 8
    assert shares_for(large, 2, 2 * 10**8) == 2
    assert shares_for(large, 2, 3 * 10**8) == 1
    assert shares_for(Source("a", "a", octets=10**9), 1, 10**11) == 12
    assert shares_for(Source("b", "b", octets=10**6), 2, 10**6) == 1
    assert shares_for(Source("s3://c", "c", "s3://c", 10**8), 2, 10**8) == 1
    assert shares_for(Source("s3://c", "c", "s3://c", 10**9), 2, 10**9) == 12
    assert shares_for(Source("a.pcap.gz", "a.pcap.gz", octets=25 * 10**7), 1, 10**9) == 12
    parts = (Source("a.pcap.xz", "a.pcap.xz", octets=2 * 10**8), Source("a.pcap1", "a.pcap1", octets=2 * 10**8))
    assert shares_for(Source("a", "a", octets=4 * 10**8, parts=parts), 2, 10**9) == 12
    assert shares_for(Source("a", "a", octets=2 * 10**8, parts=parts[1:]), 2, 10**9) == 1


class Keeping:
    """A client that keeps all futures, so that the scheduler tells where they are."""

    def __init__(self, client: Any) -> None:
        self.client = client
        self.kept: list[tuple[str, Any]] = []

    def nthreads(self) -> dict[str, int]:
        return self.client.nthreads()

    def submit(self, task: Any, *rest: Any, **how: Any) -> Any:
        future = self.client.submit(task, *rest, **how)
        self.kept.append((task.__name__, future))
        return future


def test_each_worker_takes_a_share(mixed: Path, tmp_path: Path) -> None:
    """The second pass was left to the worker that had merged the first."""
    distributed = pytest.importorskip("distributed")
    quiet = {"dashboard_address": None, "silence_logs": 50}
    with (
        distributed.LocalCluster(n_workers=2, threads_per_worker=1, processes=False, **quiet) as cluster,
        distributed.Client(cluster) as client,
        Dataset(tmp_path).opened({}),
    ):
        keeping = Keeping(client)
        (source,) = sources_of([str(mixed)])
        outcome = shares.split(keeping, source, plan_for(tmp_path), 2, pure=False)
        assert outcome.result(timeout=120).status == "done"
        for wanted in ("_read", "_rows"):
            keys = [future.key for name, future in keeping.kept if name == wanted][:2]
            stories = [worker.state.story(*keys) for worker in cluster.workers.values()]
            done = [{step[0] for step in story if "executing" in step} for story in stories]
            assert sorted(map(len, done)) == [1, 1], wanted


@pytest.mark.parametrize("kind", ["fifo", "capture"])
def test_what_is_replaced_meanwhile_is_not_read(kind: str, tmp_path: Path) -> None:
    path, other = tmp_path / "x.pcap", tmp_path / "other"
    path.write_bytes((CAPTURES / NAMES[0]).read_bytes())
    (source,) = sources_of([str(path)])
    work = shares._identify(source, plan_for(tmp_path / "dataset"), 2)
    if kind == "fifo":
        os.mkfifo(other)
    else:
        other.write_bytes(path.read_bytes())
    other.replace(path)
    with pytest.raises(CaptureFileError, match="has been replaced by another file"):
        shares._read(work, 0)


def test_a_pipe_in_the_place_of_a_source_is_not_waited_for(tmp_path: Path) -> None:
    path = tmp_path / "x.pcap"
    path.write_bytes((CAPTURES / NAMES[0]).read_bytes())
    (source,) = sources_of([str(path)])
    path.unlink()
    os.mkfifo(path)
    with pytest.raises(OSError, match="not a regular file"):
        survey_one(source, plan_for(tmp_path / "dataset"))
