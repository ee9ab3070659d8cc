"""Many captures, many processes. Dask does all of it: it hands out the captures, notices workers
that die, tries again, and ends with its parent.
"""

from __future__ import annotations

import atexit
import logging
import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

from netdissect.model.errors import AccessError, NetdissectError
from netdissect.model.survey import Outcome
from netdissect.survey.dataset import Dataset
from netdissect.survey.shares import shares_for, split
from netdissect.survey.sources import Source
from netdissect.survey.work import Plan, survey_one
from netdissect.system.interrupt import at_once

__all__ = ["MAX_ATTEMPTS", "survey"]

MAX_ATTEMPTS = 3
"""Attempts at a source that cannot be read; what kills so many workers is given up."""
_PATIENCE_S = "20s"
"""How long a scheduler may take to answer."""


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
        NetdissectError: the scheduler has gone; what is done is done.

    """
    from distributed import as_completed  # noqa: PLC0415 - an extra

    dataset = Dataset(plan.dataset)
    done: list[Outcome] = []
    with at_once(), _client(scheduler, workers) as client:
        if dashboard is not None:
            dashboard(str(client.dashboard_link))
        # The largest first, so that no worker is left with one of them at the end.
        ordered = sorted(sources, key=lambda source: (-source.octets, source.name))
        octets, threads = sum(source.octets for source in sources), sum(client.nthreads().values())
        how = {"pure": False, "retries": MAX_ATTEMPTS - 1}
        futures = {}
        for source in ordered:
            shares = shares_for(source, max(1, threads), octets)
            future = (
                split(client, source, plan, shares, **how)
                if shares > 1
                else client.submit(survey_one, source, plan, **how)
            )
            futures[future] = source
        for future in as_completed(list(futures)):
            source = futures.pop(future)
            if future.status in ("cancelled", "lost"):
                raise NetdissectError(
                    "the scheduler has gone; what is done is kept, the same command goes on"
                )
            outcome = _outcome(future, source, dataset)
            future.release()
            done.append(outcome)
            if told is not None:
                told(outcome, len(done))
    shutil.rmtree(dataset.staging, ignore_errors=True)
    _name_alike(done, dataset)
    return sorted(done, key=lambda outcome: outcome.path)


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


def _name_alike(done: Sequence[Outcome], dataset: Dataset) -> None:
    """Call a capture that came from several sources by the first of their names, whichever was
    done first; but one that was in the dataset before keeps its name.
    """
    names: dict[str, list[str]] = {}
    new = {each.capture for each in done if each.status in ("done", "cut-short")}
    for each in done:
        if each.capture in new and each.capture is not None:
            names.setdefault(each.capture, []).append(each.path)
    for key, paths in names.items():
        if len(paths) > 1:
            dataset.rename(key, min(paths))


@contextmanager
def _client(scheduler: str | None, workers: int | None) -> Iterator[Any]:
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
                    n_workers=workers or len(os.sched_getaffinity(0)),
                    threads_per_worker=1,
                    host="127.0.0.1",
                    dashboard_address="127.0.0.1:0",
                    security=Security.temporary(),
                    silence_logs=logging.ERROR,  # what became of each capture is said here
                )
            except BaseException:
                # Half started it cannot be closed, over which Dask would fail aloud at the end. Its
                # processes end with this one.
                atexit.unregister(close_clusters)
                raise
            stack.enter_context(cluster)
            yield stack.enter_context(Client(cluster))
            return
        try:
            client = stack.enter_context(Client(scheduler, timeout=_PATIENCE_S))
        except (OSError, TimeoutError, ValueError) as error:
            raise AccessError(f"no Dask scheduler at {scheduler}: {error}") from error
        yield client
