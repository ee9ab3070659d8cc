"""Many captures, many processes. Dask does all of it: it hands out the captures, notices workers
that die, tries again, and ends with its parent.
"""

from __future__ import annotations

import atexit
import logging
import shutil
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import CancelledError
from contextlib import ExitStack, contextmanager
from typing import Any

from netdissect.model.errors import AccessError, NetdissectError
from netdissect.model.survey import Outcome
from netdissect.survey.dataset import Dataset
from netdissect.survey.shares import shares_for, split
from netdissect.survey.sources import Source, is_remote
from netdissect.survey.work import Plan, survey_many, survey_one
from netdissect.system import sandbox
from netdissect.system.interrupt import at_once
from netdissect.system.parent import usable_cores
from netdissect.system.programs import nothing_of_the_folder

__all__ = ["MAX_ATTEMPTS", "survey"]

MAX_ATTEMPTS = 3
"""Attempts at a source that cannot be read; what kills so many workers is given up."""
MAX_BATCH, MAX_BATCH_OCTETS = 16, 1 << 20
"""Small captures that are one task, and their bytes: a task costs as much as one of them."""
_HOW = {"pure": False, "retries": MAX_ATTEMPTS - 1}
"""How tasks are submitted."""
_PATIENCE = ("3s", "20s")
"""How long a scheduler may take to answer at first, and how long to come back."""


def survey(
    sources: Sequence[Source],
    plan: Plan,
    *,
    scheduler: str | None = None,
    workers: int | None = None,
    told: Callable[[Outcome, int], None] | None = None,
    dashboard: Callable[[str], None] | None = None,
) -> list[Outcome]:
    """Put captures into a dataset that is open, and return what became of each, by name.

    Args:
        sources: where they are.
        plan: what is done with each.
        scheduler: address of a Dask scheduler; None = a cluster of this machine.
        workers: processes of that cluster; None = one per core.
        told: told of each, and of how many are done, as they come.
        dashboard: told where Dask shows what its workers do.

    Raises:
        AccessError: no such scheduler.
        NetdissectError: the scheduler has gone and does not come back; what is done is done.

    """
    dataset = Dataset(plan.dataset)
    known = {file.stem for file in dataset.path.glob("captures/*")}
    done: list[Outcome] = []
    # The largest first, so that no worker is left with one of them at the end.
    left = {each.name: each for each in sorted(sources, key=lambda it: (-it.octets, it.name))}
    gone = NetdissectError(
        "the scheduler has gone; what is done is kept, the same command goes on"
    )
    # Workers of ours, which fetch nothing.
    ours = scheduler is None and sandbox.permitted() and not any(map(is_remote, sources))
    with at_once():
        for attempt in range(MAX_ATTEMPTS):
            try:
                with _client(scheduler, workers, _PATIENCE[attempt > 0]) as client:
                    if ours:
                        client.register_worker_callbacks(_confine)
                    if dashboard is not None:
                        dashboard(str(client.dashboard_link))
                    for source, outcome in _outcomes(client, list(left.values()), plan, dataset):
                        del left[source.name]
                        done.append(outcome)
                        if told is not None:
                            told(outcome, len(done))
                break
            except CancelledError:
                if scheduler is None or attempt == MAX_ATTEMPTS - 1:
                    raise gone from None
            except AccessError:
                if attempt:
                    raise gone from None
                raise
    shutil.rmtree(dataset.staging, ignore_errors=True)
    _name_alike([each for each in done if each.capture not in known], dataset)
    return sorted(done, key=lambda outcome: outcome.path)


def _confine(dask_worker: Any) -> None:
    """Have the only thread of a worker that reads captures give up what that never needs. What
    talks to the scheduler is another one.
    """
    sandbox.permit()
    dask_worker.executors["default"].submit(sandbox.confine).result()


def _batches(sources: Sequence[Source], workers: int) -> Iterator[list[Source]]:
    """Yield what becomes one task each: one source, or some small ones."""
    # Four tasks for each worker at least: of fewer, one would keep all others waiting.
    most = min(MAX_BATCH, -(-len(sources) // (4 * workers)))
    batch: list[Source] = []
    room = 0
    for source in sources:
        octets = source.octets or MAX_BATCH_OCTETS  # not known
        if batch and (len(batch) >= most or octets > room):
            yield batch
            batch, room = [], 0
        room = (room or MAX_BATCH_OCTETS) - octets
        batch.append(source)
    if batch:
        yield batch


def _tasks(client: Any, sources: Sequence[Source], plan: Plan) -> dict[Any, list[Source]]:
    """Have sources read; return what is being done with which of them."""
    octets, threads = sum(each.octets for each in sources), max(1, sum(client.nthreads().values()))
    futures: dict[Any, list[Source]] = {}
    for batch in _batches(sources, threads):
        shares = shares_for(batch[0], threads, octets)
        if len(batch) > 1:
            future = client.submit(survey_many, batch, plan, **_HOW)
        elif shares > 1:
            future = split(client, batch[0], plan, shares, **_HOW)
        else:
            future = client.submit(survey_one, batch[0], plan, **_HOW)
        futures[future] = batch
    return futures


def _outcomes(
    client: Any, sources: Sequence[Source], plan: Plan, dataset: Dataset
) -> Iterator[tuple[Source, Outcome]]:
    """Have sources read, and yield what became of each.

    Raises:
        CancelledError: the scheduler has gone.

    """
    from distributed import KilledWorker, as_completed  # noqa: PLC0415 - an extra

    futures = _tasks(client, sources, plan)
    alone, suspects = len(sources) == 1, list[Source]()
    coming = as_completed(list(futures))

    def again(source: Source) -> None:
        future = client.submit(survey_one, source, plan, **_HOW)
        futures[future] = [source]
        coming.add(future)

    for future in coming:
        batch = futures.pop(future)
        if future.status == "cancelled":
            raise CancelledError
        if future.status == "lost":  # with the worker that held it; Dask does it again
            futures[future] = batch
            coming.add(future)
            continue
        found: list[Outcome | None]
        if len(batch) == 1 and not alone and isinstance(future.exception(), KilledWorker):
            suspects += batch  # Dask blames what waited for a worker that died, too
            batch, found = [], []
        else:
            found = _found(future, batch, dataset)
        future.release()
        for source, outcome in zip(batch, found, strict=True):
            if outcome is not None:
                yield source, outcome
            else:  # what failed among others is tried alone: they are not to blame
                again(source)
        if suspects and not futures:
            alone = True  # nothing waits beside it
            again(suspects.pop(0))


def _found(future: Any, batch: Sequence[Source], dataset: Dataset) -> list[Outcome | None]:
    """Return what became of each source of a task; None = worth another attempt."""
    if len(batch) == 1:
        return [_outcome(future, batch[0], dataset)]
    return [None] * len(batch) if future.exception() is not None else list(future.result())


def _outcome(future: Any, source: Source, dataset: Dataset) -> Outcome:
    from distributed import KilledWorker  # noqa: PLC0415 - an extra

    error = future.exception()
    if error is None:
        found: Outcome = future.result()
        return found
    if isinstance(error, KilledWorker):
        text = f"{MAX_ATTEMPTS} workers died of it"
    elif isinstance(error, OSError):
        text = error.strerror or str(error)
    else:
        text = f"unexpected failure: {type(error).__name__}: {error}"
    outcome = Outcome(source.name, "failed", None, source.octets, error=text)
    dataset.fail(outcome)
    return outcome


def _name_alike(new: Sequence[Outcome], dataset: Dataset) -> None:
    """Call a capture that came from several sources by the first of their names, whichever was
    done first; but one that was in the dataset before keeps its name.
    """
    names: dict[str, list[str]] = {}
    for each in new:
        if each.capture is not None and each.status != "failed":
            names.setdefault(each.capture, []).append(each.path)
    for key, paths in names.items():
        if len(paths) > 1:
            dataset.rename(key, min(paths))


@contextmanager
def _client(scheduler: str | None, workers: int | None, patience: str) -> Iterator[Any]:
    with nothing_of_the_folder(), _connected(scheduler, workers, patience) as client:
        yield client


@contextmanager
def _connected(scheduler: str | None, workers: int | None, patience: str) -> Iterator[Any]:
    import dask  # noqa: PLC0415 - an extra
    from distributed import Client, LocalCluster  # noqa: PLC0415
    from distributed.deploy.spec import close_clusters  # noqa: PLC0415
    from distributed.security import Security  # noqa: PLC0415

    with ExitStack() as stack:
        stack.enter_context(
            dask.config.set({"distributed.scheduler.allowed-failures": MAX_ATTEMPTS - 1})
        )
        if scheduler is None:
            # Whoever may talk to a scheduler may run programs: only this process has the keys.
            try:
                cluster = LocalCluster(
                    n_workers=workers or usable_cores(),
                    threads_per_worker=1,
                    host="127.0.0.1",
                    dashboard_address="127.0.0.1:0",
                    security=Security.temporary(),
                    silence_logs=logging.CRITICAL,  # what became of each capture is said here
                )
            except BaseException as error:
                # Half started it cannot be closed, over which Dask would fail aloud at the end. Its
                # processes end with this one.
                atexit.unregister(close_clusters)
                if isinstance(error, RuntimeError):  # no descriptors; its text says it
                    raise NetdissectError(str(error)) from error
                raise
            stack.enter_context(cluster)
            yield stack.enter_context(Client(cluster))
            return
        logging.getLogger("distributed.client").setLevel(logging.CRITICAL)  # it is said here
        try:
            client = stack.enter_context(Client(scheduler, timeout=patience))
        except (OSError, TimeoutError, ValueError) as error:
            # What Dask tried again until its time was over says why, behind names of its own.
            why = (str(error.__cause__ or "") or str(error)).rpartition("] ")[2]
            raise AccessError(f"no Dask scheduler at {scheduler}: {why}") from error
        yield client
