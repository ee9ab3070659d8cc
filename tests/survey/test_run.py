"""Real schedulers and worker processes, on loopback."""

from __future__ import annotations

import errno
import os
import resource
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from distributed import Future, KilledWorker, Nanny
from distributed.scheduler import WorkerState

import console_docs
from netdissect.cli import cli
from netdissect.model.errors import AccessError
from netdissect.model.survey import Outcome
from netdissect.pipeline import Options, parallel
from netdissect.survey import run as surveying
from netdissect.survey import shares
from netdissect.survey.dataset import Dataset
from netdissect.survey.run import _own_cluster, survey
from netdissect.survey.sources import Source, sources_of
from netdissect.survey.tables import TABLES
from netdissect.survey.work import Plan, survey_one
from netdissect.system import sandbox
from netdissect.system.parent import usable_files
from ports import free_port

RIPTIDE = console_docs.ROOT / "captures" / "riptide"
LOSSY = RIPTIDE / "udp_2.2.1_lossy_clientleg.pcap"


def run(out: Path, folder: Path, plan: Plan, workers: int = 2) -> list[Outcome]:
    told: list[int] = []
    with Dataset(out).opened({}):
        found = survey(
            sources_of([str(folder)]),
            plan,
            workers=workers,
            on_outcome=lambda _, count: told.append(count),
        )
    assert told == list(range(1, len(found) + 1))
    return found


def rows(out: Path, table: str) -> list[str]:
    files = (out / table).rglob("*.parquet")
    return sorted(str(row) for file in files for row in pq.ParquetFile(file).read().to_pylist())


def alone(out: Path, folder: Path) -> None:
    """Survey without anybody's help."""
    with Dataset(out).opened({}):
        for source in sources_of([str(folder)]):
            survey_one(source, Plan(str(out), Options, 10**18))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "captures"
    made.mkdir()
    files = sorted(RIPTIDE.glob("udp_2.2.1_*.pcap"), key=lambda file: file.stat().st_size)[:3]
    for name, file in zip(("c", "b", "z"), files, strict=True):
        shutil.copy(file, made / f"{name}.pcap")
    shutil.copy(files[0], made / "a.pcap")
    (made / "bad.pcap").write_bytes(b"nothing")
    return made


def dying(died: Path, due: Callable[[], bool] = lambda: True) -> Callable[[], Options]:
    """Return what makes options; one worker that asks for them when it is due dies over it."""

    def made() -> Options:
        if due():
            try:
                died.touch(exist_ok=False)
            except FileExistsError:
                return Options()
            os.kill(os.getpid(), signal.SIGKILL)
        return Options()

    return made


def test_a_worker_that_dies_costs_its_capture_another_attempt(folder: Path, tmp_path: Path) -> None:
    died = tmp_path / "died"
    out = tmp_path / "out"
    found = run(out, folder, Plan(str(out), dying(died), 10**18))
    assert died.exists()
    assert {Path(each.path).name: each.status for each in found if each.status == "failed"} == {
        "bad.pcap": "failed"
    }
    rows = [
        row
        for file in (out / "captures").glob("*.parquet")
        for row in pq.ParquetFile(file).read().to_pylist()
    ]
    # `a` and `c` are one capture, called by the first of its names whoever was first.
    assert sorted((Path(row["path"]).name, row["status"]) for row in rows) == [
        ("a.pcap", "done"),
        ("b.pcap", "done"),
        ("bad.pcap", "failed"),
        ("z.pcap", "done"),
    ]
    assert not list((out / "_staging").glob("*"))


def test_a_capture_that_two_workers_read_at_once_counts_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sources = [Source(name, name) for name in ("a", "b", "c")]
    outcomes = [Outcome(each.name, "done", "d" if each.name == "c" else "k", 9, 2) for each in sources]
    monkeypatch.setattr(surveying, "_client", lambda *_: nullcontext())
    monkeypatch.setattr(surveying, "_outcomes", lambda *_: zip(sources, outcomes, strict=True))
    monkeypatch.setattr(surveying, "_unify_names", lambda *_: None)
    found = survey(sources, Plan(str(tmp_path), Options, 10**18), scheduler="here")
    assert [(each.status, each.connections) for each in found] == [("done", 2), ("skipped", 0), ("done", 2)]


Surveyed = Callable[..., tuple[list[str], bool]]


@pytest.fixture
def rotated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Surveyed:
    """Return a function that writes the files of rotated captures, surveys them without processes,
    and returns the files named by each row of `captures`, and whether one was said to be replaced.
    """
    monkeypatch.setattr(surveying, "_client", lambda *_: nullcontext())
    monkeypatch.setattr(
        surveying,
        "_outcomes",
        lambda _client, sources, plan, _: ((each, survey_one(each, plan)) for each in sources),
    )
    folder, out = tmp_path / "captures", tmp_path / "out"
    folder.mkdir()

    def surveyed(**frames: str) -> tuple[list[str], bool]:
        for name, these in frames.items():
            words = ["slice", str(LOSSY), "--frames", these, "-w", str(folder / f"{name}.pcap")]
            assert CliRunner().invoke(cli, words, prog_name="netdissect").exit_code == 0
        words = ["survey", str(folder), "--out", str(out), "--follow-rotation", "--scheduler", "here"]
        ran = CliRunner().invoke(cli, words, prog_name="netdissect")
        assert ran.exit_code == 0, ran.output
        tables = [pq.read_table(file).to_pylist() for file in (out / "captures").glob("*")]
        # Each row of the other tables is of a capture that is there.
        keys = {row["capture"] for (row,) in tables}
        assert {file.stem for file in (out / "connections").rglob("*.parquet")} == keys
        names = [row["path"].replace(f"{folder}/", "").replace(".pcap", "") for (row,) in tables]
        return sorted(names), ", in place of 1 shorter capture\n" in ran.stderr

    return surveyed


def test_a_rotated_capture_with_new_files_replaces_the_shorter_one(rotated: Surveyed) -> None:
    assert rotated(g_00001_20260131120000="1-300") == (["g_00001_20260131120000"], False)
    # The newest file is still being written.
    two = ["g_00001_20260131120000 ... g_00002_20260131130000"]
    assert rotated(g_00002_20260131130000="301-500") == (two, True)
    assert rotated(g_00002_20260131130000="301-700") == (two, True)
    three = ["g_00001_20260131120000 ... g_00003_20260131140000"]
    assert rotated(g_00003_20260131140000="701-800") == (three, True)
    assert rotated() == (three, False)


def test_a_capture_that_is_not_part_of_a_rotated_one_is_kept(rotated: Surveyed) -> None:
    """Some programs begin again with the name of the first file when there are enough."""
    older = ["g_00001_20260131120000 ... g_00002_20260131130000"]
    first = rotated(g_00001_20260131120000="1-300", g_00002_20260131130000="301-500")
    assert first == (older, False)
    assert rotated(g_00001_20260131120000="501-600") == (older * 2, False)
    assert rotated(other="1-300") == ([*older * 2, "other"], False)


def test_one_large_capture_is_read_by_all_workers_even_if_one_dies(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parallel, "MIN_OCTETS", 1)
    died = tmp_path / "died"
    dies_later = dying(died, lambda: len(list(tmp_path.rglob("part-*"))) == 2)
    out = tmp_path / "out"
    captures = tmp_path / "captures"
    captures.mkdir()
    shutil.copy(RIPTIDE / "udp_2.2.1_reconnect.pcap", captures)
    (found,) = run(out, captures, Plan(str(out), dies_later, 10**9))
    assert died.exists()
    assert found.status == "done"
    one = tmp_path / "one"
    with Dataset(one).opened({}):
        (source,) = sources_of([str(captures)])
        assert survey_one(source, Plan(str(one), Options, 10**9)).connections == found.connections
    for table in ("captures", "connections", "findings", "intervals"):
        assert rows(out, table) == rows(one, table)
    assert list((out / "connections").rglob("*-1.parquet"))
    assert not list((out / "_staging").glob("*"))


@pytest.mark.parametrize("workers", [1, 2])
def test_each_share_of_a_very_large_capture_has_a_process_of_its_own(
    workers: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """What a process has freed lies in pieces, so that each share would take more than the last."""
    monkeypatch.setattr(shares, "LARGE_SHARES", 2)
    used, out, one = tmp_path / "used", tmp_path / "out", tmp_path / "one"

    def options() -> Options:
        with used.open("a") as file:
            file.write(f"{os.getpid()}\n")
        return Options()

    source = Source("game.pcap", str(LOSSY), octets=shares.LARGE_OCTETS)
    with Dataset(out).opened({}):
        (outcome,) = survey([source], Plan(str(out), options, 10**9), workers=workers)
    assert (outcome.status, outcome.connections) == ("done", 1)
    assert not capfd.readouterr().err
    # Both shares are read and written; the capture has no datagrams for the one that all have.
    assert len(set(used.read_text().split())) == 4
    with Dataset(one).opened({}):
        survey_one(source, Plan(str(one), Options, 10**9))
    for table in ("captures", "connections", "findings", "intervals"):
        assert rows(out, table) == rows(one, table)


@pytest.mark.slow
def test_what_kills_every_worker_is_a_row_with_that_error(folder: Path, tmp_path: Path) -> None:
    def dies() -> Options:
        os.kill(os.getpid(), signal.SIGKILL)
        return Options()

    for name in ("a", "b", "z", "bad"):
        (folder / f"{name}.pcap").unlink()
    out = tmp_path / "out"
    (outcome,) = run(out, folder, Plan(str(out), dies, 10**18), workers=1)
    assert outcome.error == "3 workers died of it"
    assert len(list((out / "captures").glob("failed-*.parquet"))) == 1


@pytest.mark.slow
def test_a_scheduler_that_is_not_there_is_said_soon(tmp_path: Path, folder: Path) -> None:
    plan = Plan(str(tmp_path / "out"), Options, 10**18)
    said = "^no Dask scheduler at tcp://127.0.0.1:9: (Connection refused|Timed out .* after 3 s)$"
    start = time.monotonic()
    with Dataset(plan.dataset).opened({}), pytest.raises(AccessError, match=said):
        survey(sources_of([str(folder)]), plan, scheduler="tcp://127.0.0.1:9")
    assert time.monotonic() - start < 15  # Dask would try for twenty


@pytest.fixture
def fleet(tmp_path: Path) -> Path:
    """Many captures of content of their own, so that several are one task."""
    made = tmp_path / "fleet"
    made.mkdir()
    octets = (RIPTIDE / "udp_2.2.1_reject_custom.pcap").read_bytes()
    for number in range(40):
        (made / f"{number:02}.pcap").write_bytes(octets[:-1] + bytes([number]))
    (made / "bad.pcap").write_bytes(b"nothing")
    return made


def test_a_worker_that_dies_amid_small_captures_costs_none_of_them(fleet: Path, tmp_path: Path) -> None:
    died, out, whole = tmp_path / "died", tmp_path / "out", tmp_path / "whole"
    dies_later = dying(died, lambda: len(list((out / "captures").glob("*"))) >= 5)
    found = run(out, fleet, Plan(str(out), dies_later, 10**18))
    assert died.exists()
    assert len(found) == 41
    assert [Path(each.path).name for each in found if each.status == "failed"] == ["bad.pcap"]
    alone(whole, fleet)
    for table in TABLES:
        assert rows(out, table) == rows(whole, table)


def test_results_that_are_lost_with_their_worker_cost_an_attempt(
    fleet: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A task whose result was not fetched yet runs again, perhaps on workers that die."""
    fetched, lost = Future.result, list[str]()

    def result(self: Future, *args: object) -> object:
        if len(lost) < 2:
            lost.append(self.key)
            raise KilledWorker(self.key, WorkerState.__new__(WorkerState), 2)
        return fetched(self, *args)

    monkeypatch.setattr(Future, "result", result)
    found = run(tmp_path / "out", fleet, Plan(str(tmp_path / "out"), Options, 10**18), workers=1)
    assert len(lost) == 2
    assert sorted(Path(each.path).name for each in found) == sorted(file.name for file in fleet.iterdir())
    assert [Path(each.path).name for each in found if each.status == "failed"] == ["bad.pcap"]


@pytest.mark.usefixtures("bounded")
def test_a_worker_that_is_given_up_is_replaced(
    fleet: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If a worker dies before Dask has noticed that it runs, Dask does not start it again."""
    died, out = tmp_path / "died", tmp_path / "out"
    started = Nanny.instantiate

    async def instantiate(self: Nanny) -> object:
        if self.process is not None:
            await self.close(reason="it died as it was started again")
            raise OSError
        return await started(self)

    monkeypatch.setattr(Nanny, "instantiate", instantiate)
    found = run(out, fleet, Plan(str(out), dying(died), 10**18), workers=1)
    assert died.exists()
    assert len(found) == 41
    assert [Path(each.path).name for each in found if each.status == "failed"] == ["bad.pcap"]


@pytest.fixture
def bounded() -> Iterator[None]:
    """Ten minutes, not for ever."""

    def late(*_: object) -> None:
        # No OSError, which would be a capture that cannot be read.
        pytest.fail("it takes more than ten minutes")

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(600)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


@pytest.mark.slow
@pytest.mark.usefixtures("bounded")
@pytest.mark.parametrize("count", [4, 12], ids=["alone", "together"])
def test_what_kills_every_worker_takes_no_small_capture_along(
    fleet: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    out = tmp_path / "out"
    for file in sorted(fleet.iterdir())[count:]:
        file.unlink()

    def one(source: Source, plan: Plan) -> Outcome:
        """Die of the second one, behind which another waits for the only worker."""
        if source.name.endswith("01.pcap"):
            os.kill(os.getpid(), signal.SIGKILL)
        return survey_one(source, plan)

    def many(sources: Sequence[Source], plan: Plan) -> list[Outcome]:
        return [one(source, plan) for source in sources]

    monkeypatch.setattr(surveying, "survey_one", one)
    monkeypatch.setattr(surveying, "survey_many", many)
    found = run(out, fleet, Plan(str(out), Options, 10**18), workers=1)
    assert len(found) == count
    assert [(Path(each.path).name, each.error) for each in found if each.status == "failed"] == [
        ("01.pcap", "3 workers died of it")
    ]
    assert len(list((out / "captures").glob("failed-*"))) == 1


@pytest.mark.skipif(not sandbox.available(), reason="this kernel cannot confine a process")
@pytest.mark.parametrize("ours", [True, False])
def test_workers_of_a_command_can_open_no_socket_while_they_read(
    ours: bool, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sandbox, "_permitted", ours)
    out, tried = tmp_path / "out", tmp_path / "tried"

    def trying() -> Options:
        with tried.open("a") as file:
            try:
                socket.socket().close()
                file.write("opened\n")
            except PermissionError:
                file.write("refused\n")
        return Options()

    found = run(out, folder, Plan(str(out), trying, 10**18), workers=1)
    assert {each.status for each in found} == {"done", "skipped", "failed"}
    assert set(tried.read_text().split()) == {"refused" if ours else "opened"}
    socket.socket().close()  # this process is as it was


class Program:
    """A program of Dask's."""

    def __init__(self, *words: str) -> None:
        command = [sys.executable, "-m", *words]
        self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()


def scheduler(port: int) -> Program:
    here = ("--host", "127.0.0.1", "--port", str(port), "--no-dashboard")
    return Program("distributed.cli.dask_scheduler", *here)


def worker(address: str) -> Program:
    return Program("distributed.cli.dask_worker", address, "--no-nanny", "--nthreads", "1", "--no-dashboard")


@pytest.mark.slow
def test_a_scheduler_that_is_started_again_gets_the_rest(fleet: Path, tmp_path: Path) -> None:
    out, whole = tmp_path / "out", tmp_path / "whole"
    port = free_port()
    address = f"tcp://127.0.0.1:{port}"
    words = ["survey", str(fleet), "--out", str(out), "--scheduler", address, "--interval", "999999999"]
    running = [scheduler(port), worker(address)]
    try:
        command = [sys.executable, "-m", "netdissect", *words]
        with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as survey_of_fleet:
            until = time.monotonic() + 120
            while len(list((out / "captures").glob("*"))) < 5 and time.monotonic() < until:
                time.sleep(0.01)
            for program in running:
                program.kill()
            assert len(list((out / "captures").glob("*"))) < 41
            running += [scheduler(port), worker(address)]
            said = survey_of_fleet.communicate(timeout=180)[1]
        assert survey_of_fleet.returncode == 0, said
        assert "1 failed" in said
    finally:
        for program in running:
            program.kill()
    alone(whole, fleet)
    for table in ("captures", "connections", "findings"):
        assert rows(out, table) == rows(whole, table)


INTERRUPTED = """
import asyncio, sys
import distributed
from netdissect.__main__ import run
from netdissect.system.interrupt import Interrupted

class Cluster:
    # Interrupted while a worker begins, which then fails, and nobody asks for the result.
    def __init__(self, **_):
        async def fail():
            raise RuntimeError("Nanny failed to start.")
        loop = asyncio.new_event_loop()
        task = loop.create_task(fail())
        loop.run_until_complete(asyncio.wait([task]))
        raise Interrupted

distributed.LocalCluster = Cluster
sys.exit(run())
"""


def test_interrupted_before_its_workers_have_begun_it_prints_no_traceback(
    folder: Path, tmp_path: Path
) -> None:
    ended = subprocess.run(
        [sys.executable, "-c", INTERRUPTED, "survey", str(folder), "--out", str(tmp_path / "out")],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert ended.returncode == 130
    assert ended.stderr.strip() == "netdissect: interrupted"


SIGNALLED = """
import distributed, signal, sys, time
from multiprocessing import active_children
from pathlib import Path
from threading import Thread, main_thread
from netdissect.__main__ import run

def begun():
    return Path("out/captures").exists() if when == "reads" else active_children()

def signalled():
    while not begun():
        time.sleep(0.001)
    time.sleep(0 if when == "reads" else float(when))
    signal.pthread_kill(main_thread().ident, signal.SIGTERM)

def close(*_, **__):
    print("waited for it", file=sys.stderr)

when = sys.argv.pop(1)
distributed.LocalCluster.close = close
Thread(target=signalled, daemon=True).start()
sys.exit(run())
"""


@pytest.mark.parametrize("when", ["0", "0.02", "0.1", "0.5", "reads"])
def test_interrupted_it_kills_its_workers(when: str, fleet: Path, tmp_path: Path) -> None:
    """Some seconds after the first has begun to start, or when they read."""
    place = tmp_path / "tmp"
    place.mkdir()
    words = [when, "survey", str(fleet), "--out", "out", "--workers", "3"]
    ended = subprocess.run(
        [sys.executable, "-c", SIGNALLED, *words], capture_output=True, text=True, check=False,
        cwd=tmp_path, env={**os.environ, "TMPDIR": str(place)},
    )  # fmt: skip
    assert ended.stderr.strip() == "netdissect: interrupted"
    assert ended.returncode == 143
    assert not [*place.iterdir()]


def test_why_no_worker_starts_is_told_by_the_first_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """Dask only says that a part of it did not start."""

    def full(**_: object) -> None:
        raise RuntimeError("Nanny failed to start.") from OSError(
            errno.ENOSPC, "No space left on device"
        )

    monkeypatch.setattr("distributed.LocalCluster", full)
    with pytest.raises(OSError, match="No space left on device") as raised, _own_cluster(1):
        pass
    assert raised.value.filename.startswith("/dev/shm")  # noqa: S108


@pytest.mark.parametrize("files", [12, 16, 24])
def test_too_few_file_descriptors_are_told_before_dask_starts(files: int, tmp_path: Path) -> None:
    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (files, files))

    command = [sys.executable, "-m", "netdissect", "survey", str(RIPTIDE), "--out", "fleet"]
    ended = subprocess.run(
        [*command, "--workers", "1"], preexec_fn=limit, cwd=tmp_path, capture_output=True,
        text=True, timeout=60, check=False,
    )  # fmt: skip
    assert ended.returncode == 1
    assert f"--workers 1 needs 64 open files, and the limit is {files}" in ended.stderr


def test_the_limit_on_file_descriptors_is_raised_where_it_may_be() -> None:
    usable, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (usable - 1, most))
        assert usable_files(usable) == usable == resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (usable, most))
