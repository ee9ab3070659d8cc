"""Distributes captures over processes by means of Dask.

Dask assigns tasks, notices workers that die, retries, and ends with its parent. Here it is decided
what a task is (several small captures, one capture, or one share of a large one) and what is to
blame if a task fails: a batch that fails is retried one by one, and a capture that was running when
workers died is retried alone, because Dask also blames tasks that only waited for those workers.
"""

from __future__ import annotations

import atexit
import logging
import shutil
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import CancelledError
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from errno import ENOSPC
from multiprocessing import active_children
from tempfile import TemporaryDirectory
from threading import Event
from time import monotonic, sleep
from typing import Any

from netdissect.model.errors import AccessError, NetdissectError
from netdissect.model.survey import Outcome
from netdissect.survey.dataset import Dataset
from netdissect.survey.shares import shares_for, split
from netdissect.survey.slim import do_without_pandas
from netdissect.survey.sources import Source, is_remote, last_file
from netdissect.survey.work import Plan, survey_many, survey_one
from netdissect.system import sandbox
from netdissect.system.interrupt import Interrupted, at_once, undisturbed
from netdissect.system.parent import usable_cores, usable_files
from netdissect.system.programs import nothing_of_the_folder

MAX_ATTEMPTS = 3
"""Attempts at a source that cannot be read; also workers that one capture may kill."""
MAX_BATCH, MAX_BATCH_OCTETS = 16, 1 << 20
"""Small captures in one task at most, and their bytes: a task costs as much as one of them."""
_REPLACED_AFTER = 2
"""Seconds between two looks for workers that Dask has given up."""
# Dask gives calls with equal arguments one result if they are pure.
_SUBMIT = {"pure": False, "retries": MAX_ATTEMPTS - 1}
"""Options of every task."""
_FILES, _FILES_PER_WORKER = 48, 16
"""Open files that Dask needs, and how many more per worker; measured: 24, and 11 per worker."""
_KILLED_WITHIN = 1.0
"""Seconds within which the workers of an interrupted command have begun and are killed."""
_PATIENCE = ("3s", "20s")
"""How long a scheduler may take to answer, and how long to come back after a restart."""


def survey(
    sources: Sequence[Source],
    plan: Plan,
    *,
    scheduler: str | None = None,
    workers: int | None = None,
    on_outcome: Callable[[Outcome, int], None] | None = None,
    on_dashboard: Callable[[str], None] | None = None,
) -> list[Outcome]:
    """Add captures to a dataset that is open; return the outcome of each, in order of names.

    Args:
        sources: the captures.
        plan: what to do with each.
        scheduler: address of a Dask scheduler; None = a cluster on this machine.
        workers: processes of that cluster; None = one per core.
        on_outcome: called with each outcome, and the number of captures done.
        on_dashboard: called with the address of Dask's dashboard.

    Raises:
        AccessError: there is no such scheduler.
        NetdissectError: the scheduler was lost; finished captures are kept.

    """
    dataset = Dataset(plan.dataset)
    known = {file.stem for file in dataset.path.glob("captures/*")}
    done: list[Outcome] = []
    read: set[str] = set()
    # The largest first, so that none of them runs alone at the end.
    remaining = {each.name: each for each in sorted(sources, key=lambda it: (-it.octets, it.name))}
    lost = NetdissectError(
        "the scheduler was lost; finished captures are kept, and the same command continues"
    )
    # Only our own workers are confined, and only if they need no network.
    confine = scheduler is None and sandbox.permitted() and not any(map(is_remote, sources))
    with at_once():
        for attempt in range(MAX_ATTEMPTS):
            try:
                with _client(scheduler, workers, _PATIENCE[attempt > 0]) as client:
                    if scheduler is None:
                        client.register_worker_callbacks(_confine if confine else _slim)
                    if on_dashboard is not None:
                        on_dashboard(str(client.dashboard_link))
                    captures = list(remaining.values())
                    for source, outcome in _outcomes(client, captures, plan, dataset):
                        del remaining[source.name]
                        done.append(_counted_once(outcome, read))
                        if on_outcome is not None:
                            on_outcome(done[-1], len(done))
                break
            except CancelledError:
                if scheduler is None or attempt == MAX_ATTEMPTS - 1:
                    raise lost from None
            except AccessError:
                # It answered before, so the address is right.
                if attempt:
                    raise lost from None
                raise
    shutil.rmtree(dataset.staging, ignore_errors=True)
    _unify_names([each for each in done if each.capture not in known], dataset)
    done += _replaced(sources, done, dataset)
    return sorted(done, key=lambda outcome: outcome.path)


def _counted_once(outcome: Outcome, read: set[str]) -> Outcome:
    """Return an outcome; as skipped if another source with the same content has been read, which
    two workers may do at the same time.
    """
    key = outcome.capture
    if key is None or outcome.status not in {"done", "cut-short"}:
        return outcome
    if key in read:
        return replace(outcome, status="skipped", connections=0)
    read.add(key)
    return outcome


def _slim(dask_worker: Any) -> None:
    """Make a worker of our own smaller."""
    dask_worker.executors["default"].submit(do_without_pandas).result()


def _confine(dask_worker: Any) -> None:
    """Drop the privileges of a worker's reading thread; another one talks to the scheduler."""
    _slim(dask_worker)
    sandbox.permit()
    dask_worker.executors["default"].submit(sandbox.confine).result()


def _batches(sources: Sequence[Source], workers: int) -> Iterator[list[Source]]:
    """Yield the sources of each task: one, or several small ones."""
    # At least four tasks per worker: with fewer, the last one would keep the others waiting.
    most = min(MAX_BATCH, -(-len(sources) // (4 * workers)))
    batch: list[Source] = []
    room = 0
    for source in sources:
        octets = source.octets or MAX_BATCH_OCTETS  # unknown
        if batch and (len(batch) >= most or octets > room):
            yield batch
            batch, room = [], 0
        room = (room or MAX_BATCH_OCTETS) - octets
        batch.append(source)
    if batch:
        yield batch


def _tasks(client: Any, sources: Sequence[Source], plan: Plan) -> dict[Any, list[Source]]:
    """Submit the tasks for all sources; return future -> sources."""
    octets, threads = sum(each.octets for each in sources), max(1, sum(client.nthreads().values()))
    futures: dict[Any, list[Source]] = {}
    for batch in _batches(sources, threads):
        shares = shares_for(batch[0], threads, octets)
        if len(batch) > 1:
            future = client.submit(survey_many, batch, plan, **_SUBMIT)
        elif shares > 1:
            future = split(client, batch[0], plan, shares, **_SUBMIT)
        else:
            future = client.submit(survey_one, batch[0], plan, **_SUBMIT)
        futures[future] = batch
    return futures


def _outcomes(
    client: Any, sources: Sequence[Source], plan: Plan, dataset: Dataset
) -> Iterator[tuple[Source, Outcome]]:
    """Read all sources, and yield the outcome of each as it comes.

    Raises:
        CancelledError: the scheduler was lost.

    """
    from distributed import KilledWorker, as_completed  # noqa: PLC0415 - an extra

    futures = _tasks(client, sources, plan)
    alone, suspects = len(sources) == 1, list[Source]()
    coming = as_completed(list(futures))

    def retry(source: Source) -> None:
        future = client.submit(survey_one, source, plan, **_SUBMIT)
        futures[future] = [source]
        coming.add(future)

    for future in coming:
        batch = futures.pop(future)
        if future.status == "cancelled":
            raise CancelledError
        if future.status == "lost":  # with its worker; Dask runs it again
            futures[future] = batch
            coming.add(future)
            continue
        result, error = _awaited(future)
        found: list[Outcome | None]
        if len(batch) > 1:
            found = [None] * len(batch) if error is not None else list(result)
        elif isinstance(error, KilledWorker) and not alone:
            suspects += batch  # perhaps it only waited for the worker that died
            batch, found = [], []
        else:
            found = [result if error is None else _failed(batch[0], error, dataset)]
        future.release()
        for source, outcome in zip(batch, found, strict=True):
            if outcome is not None:
                yield source, outcome
            else:  # a batch failed: retry its sources one by one
                retry(source)
        if suspects and not futures:
            alone = True  # nothing else is waiting
            retry(suspects.pop(0))


def _awaited(future: Any) -> tuple[Any, Exception | None]:
    """Return the result of a task, and its error or None.

    Raises:
        CancelledError: the scheduler was lost.

    """
    try:
        # Not `exception()` before it: if the worker with the result dies, the task runs again.
        return future.result(), None
    except CancelledError:
        raise
    except Exception as error:  # noqa: BLE001 - whatever happened on the worker
        return None, error


def _failed(source: Source, error: Exception, dataset: Dataset) -> Outcome:
    """Write the row of a source that could not be read, and return its outcome."""
    from distributed import KilledWorker  # noqa: PLC0415 - an extra

    if isinstance(error, KilledWorker):
        text = f"{MAX_ATTEMPTS} workers died of it"
    elif isinstance(error, OSError):
        text = error.strerror or str(error)
    else:
        text = f"unexpected failure: {type(error).__name__}: {error}"
    outcome = Outcome(source.name, "failed", None, source.octets, error=text)
    dataset.fail(outcome)
    return outcome


def _unify_names(new: Sequence[Outcome], dataset: Dataset) -> None:
    """Name a capture that several sources contain after the first of their names, so that two runs
    give equal tables. One that was in the dataset before keeps its name.
    """
    names: dict[str, list[str]] = {}
    for each in new:
        if each.capture is not None and each.status != "failed":
            names.setdefault(each.capture, []).append(each.path)
    for key, paths in names.items():
        if len(paths) > 1:
            dataset.rename(key, min(paths))


def _replaced(
    sources: Sequence[Source], done: Sequence[Outcome], dataset: Dataset
) -> list[Outcome]:
    """Delete what earlier runs have made of rotated captures before they were as long as now, and
    return that.
    """
    found = {each.path: each.capture for each in done if each.status != "failed" and each.capture}
    rotated = {
        found[each.name]: [last_file(part.name) for part in each.parts]
        for each in sources
        if each.parts and each.name in found
    }
    shorter = dataset.drop_included(rotated, found.values()) if rotated else {}
    return [Outcome(path, "replaced", key) for key, path in shorter.items()]


@contextmanager
def _kept_at(cluster: Any, count: int) -> Iterator[None]:
    """Have a cluster replace workers that it has given up while the context is open.

    Dask restarts a worker that dies, but gives it up if it dies again at once, or is slow to come.
    Without workers the tasks would wait for ever.
    """
    from distributed import Status  # noqa: PLC0415 - an extra
    from tornado.ioloop import PeriodicCallback  # noqa: PLC0415

    def replaced() -> None:
        for name, worker in list(cluster.workers.items()):
            if worker.status in {Status.closed, Status.failed}:
                del cluster.workers[name]
        cluster.scale(count)

    repeated = PeriodicCallback(replaced, 1000 * _REPLACED_AFTER)
    cluster.loop.add_callback(repeated.start)
    try:
        yield
    finally:
        cluster.loop.add_callback(repeated.stop)


@contextmanager
def _own_cluster(workers: int) -> Iterator[Any]:
    """Run a cluster on this machine while the context is open."""
    from distributed import LocalCluster, Nanny  # noqa: PLC0415 - an extra
    from distributed.deploy.spec import close_clusters  # noqa: PLC0415
    from distributed.security import Security  # noqa: PLC0415

    # Checked first: with too few, Dask waits for ever for a worker, or names an internal part.
    needed = _FILES + workers * _FILES_PER_WORKER
    usable = usable_files(needed)
    if usable < needed:
        raise NetdissectError(
            f"--workers {workers} needs {needed} open files, and the limit is {usable}:"
            " raise it (ulimit -n), or use fewer --workers"
        )
    over = Event()
    keepers: set[Any] = set()

    class Keeper(Nanny):  # type: ignore[misc]
        """Starts a worker, and another one if it dies, until all is over."""

        async def instantiate(self) -> Any:
            if over.is_set():
                raise RuntimeError("interrupted")
            keepers.add(self)
            return await super().instantiate()

    cluster = None
    try:
        cluster = LocalCluster(
            n_workers=workers,
            threads_per_worker=1,
            host="127.0.0.1",
            dashboard_address="127.0.0.1:0",
            worker_class=Keeper,
            lifetime_restart=True,  # see `need_new_process`
            # Anyone who can talk to a scheduler can run programs: only this process has the keys.
            security=Security.temporary(),
            silence_logs=logging.CRITICAL,  # the outcomes are reported instead
        )
        yield cluster
        cluster.close()
    except BaseException as error:
        # A cluster that failed to start cannot be closed, which Dask would report at exit. To close
        # an interrupted one takes seconds: Dask waits for workers that read or only start.
        if cluster is None or isinstance(error, Interrupted):
            atexit.unregister(close_clusters)
            over.set()
            _kill(keepers)
        else:
            cluster.close()
        if cluster is None and isinstance(error, RuntimeError):  # such as too many open files
            raise _not_started(error) from error
        raise


def _kill(keepers: set[Any]) -> None:
    """Kill the workers of keepers that start none any more. Left alone, those that are starting
    would print tracebacks: what they start with ends with this process.
    """
    end = monotonic() + _KILLED_WITHIN
    for keeper in keepers:
        passed = Event()
        keeper.loop.add_callback(passed.set)  # behind what it has begun
        passed.wait(end - monotonic())
        while _starts(keeper) and monotonic() < end:
            sleep(0.001)
        if (worker := keeper.process) is not None:
            _kept.append((worker.init_result_q, worker.child_stop_q))
    for child in active_children():
        child.kill()
        child.join(end - monotonic())


_kept: list[Any] = []
"""Queues of workers that were killed. Freed by another thread while this process exits, they could
be reported as leaked."""


def _starts(keeper: Any) -> bool:
    """Return whether a worker has a process that a thread of Dask's has yet to start."""
    process = keeper.process and keeper.process.process
    return process is not None and process.pid is None


def _not_started(error: BaseException) -> Exception:
    """Return the error for a cluster that did not start: the one that others followed from, which
    names no internal part.
    """
    while (earlier := error.__cause__ or error.__context__) is not None:
        error = earlier
    if isinstance(error, OSError) and error.errno == ENOSPC:
        place = error.filename or "/dev/shm, or the folder for temporary files"  # noqa: S108
        return OSError(ENOSPC, f"{error.strerror}: Dask's workers did not start", place)
    return NetdissectError(f"Dask's workers did not start: {str(error) or type(error).__name__}")


@contextmanager
def _client(scheduler: str | None, workers: int | None, patience: str) -> Iterator[Any]:
    with nothing_of_the_folder(), ExitStack() as stack:
        import dask  # noqa: PLC0415 - an extra
        from distributed import Client  # noqa: PLC0415

        failures = {"distributed.scheduler.allowed-failures": MAX_ATTEMPTS - 1}
        stack.enter_context(dask.config.set(failures))
        if scheduler is None:
            # Dask leaves the folders of workers that are killed.
            with undisturbed():
                folder = TemporaryDirectory(prefix="netdissect-", ignore_cleanup_errors=True)
                place = stack.enter_context(folder)
            stack.enter_context(dask.config.set({"temporary-directory": place}))
            cluster = stack.enter_context(_own_cluster(workers or usable_cores()))
            stack.enter_context(_kept_at(cluster, len(cluster.worker_spec)))
            yield stack.enter_context(Client(cluster))
            return
        logging.getLogger("distributed.client").setLevel(logging.CRITICAL)  # see below
        try:
            client = stack.enter_context(Client(scheduler, timeout=patience))
        except (OSError, TimeoutError, ValueError) as error:
            # The reason follows internal names in the error of Dask's last attempt.
            why = (str(error.__cause__ or "") or str(error)).rpartition("] ")[2]
            raise AccessError(f"no Dask scheduler at {scheduler}: {why}") from error
        yield client
