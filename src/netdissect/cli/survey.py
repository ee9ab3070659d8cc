"""`netdissect survey`: collects many captures in one dataset, and summarises it."""

from __future__ import annotations

import atexit
import gc
import logging
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from netdissect.cli import options
from netdissect.cli.complete import FILE, offer_files
from netdissect.cli.errors import EXIT
from netdissect.cli.output import Look, print_json
from netdissect.cli.session import Choices
from netdissect.cli.spans import LENGTH, Whole
from netdissect.model.errors import UsageError
from netdissect.model.survey import Outcome, Section
from netdissect.render.safe import safe
from netdissect.render.units import counted

if TYPE_CHECKING:
    from netdissect.cli.diagnose import Limit
    from netdissect.survey.show import Answers

_SHOW = "show"
_NAMED = 10
"""Failed captures that are named on standard error; the dataset has all of them."""


class _Work(NamedTuple):
    """The options on how captures become a dataset."""

    out: str | None
    """Folder of the dataset."""
    follow: bool
    units: bool
    interval: int
    """Nanoseconds."""
    workers: int | None
    scheduler: str | None


class _Questions(NamedTuple):
    """The options on what to show of a dataset."""

    summary: bool
    against: str | None
    """An older dataset to compare with."""
    limits: tuple[str, ...]
    limit: int | None
    """Maximum number of rows in each table."""
    as_json: bool


@click.command("survey")
@click.argument("sources", nargs=-1, required=True, metavar="SOURCE...", shell_complete=offer_files)
@click.option(
    "--out", metavar="DATASET", type=FILE, help="Folder of the dataset to create or extend."
)
@options.flag(
    "--follow-rotation",
    "follow",
    help="Read files whose names differ in a number or a time as one capture, in time order.",
)
@options.flag("--units", help="Store every reliable unit, not only counts.")
@click.option(
    "--interval", type=LENGTH, default="1m", metavar="TIME", help="Length of an interval."
    "  [default: 1m]",
)
@click.option(
    "--workers",
    type=Whole(1, 1024),
    metavar="N",
    help="Number of processes; by default one per core.",
)
@click.option(
    "--scheduler", metavar="URL", help="Use a running Dask scheduler, such as tcp://host:8786."
)
@options.flag("--summary", help="Show a summary of the dataset afterwards.")
@click.option(
    "--against", metavar="DATASET", type=FILE, help="Show what has changed since another dataset."
)
@options.repeated(
    "--fail-on",
    "limits",
    metavar="LIMIT",
    help="Exit with status 7 if the dataset exceeds this limit, such as 'loss>5%' or, with"
    " --against, 'loss.rise>1%'; may be repeated.",
)
@options.count
@options.json_output
@options.analysis
@options.screen
@options.grouped("work", lambda: _Work)
@options.grouped("questions", lambda: _Questions)
def command(
    sources: tuple[str, ...], work: _Work, questions: _Questions, choices: Choices, look: Look
) -> int:
    """Read many captures into one dataset of Parquet tables, and summarise it.

    A SOURCE is a file, a folder, a pattern, or a URL such as s3://bucket/captures.
    Captures that are already in the dataset are skipped; those that cannot be read are listed
    with their error.

    `survey show DATASET` summarises a dataset: the worst servers, links, clients, releases and
    hours, and the distribution of loss and lag.

    \b
    netdissect survey captures/ 's3://games/2026-*/*.pcapng' --out fleet --summary
    netdissect survey show fleet --against last-week --fail-on 'loss.rise>1%'
    """
    wanted, out, against = _limits(questions.limits, questions.against), work.out, questions.against
    if sources[0] == _SHOW:
        if len(sources) != 2 or out is not None:  # noqa: PLR2004 - `show` and the dataset
            raise UsageError("survey show needs one DATASET (for a file of that name: ./show)")
        out = sources[1]
        _need("duckdb")
        status = EXIT.DONE
    else:
        out = _writable(out, against)
        status = _run(sources, out, choices, work, look)
        if not (questions.summary or against or wanted):
            return status
    with ExitStack() as stack:
        from netdissect.survey.show import opened  # noqa: PLC0415

        atexit.unregister(gc.freeze)  # DuckDB reports objects that are not freed at exit

        answers = stack.enter_context(opened(out))
        older = None if against is None else stack.enter_context(opened(against))
        sections = _sections(answers, older, questions.limit or _NAMED)
        if questions.as_json:
            print_json(row for section in sections for row in _objects(section))
        else:
            from netdissect.render.survey import show_sections  # noqa: PLC0415

            show_sections(look.screen(), sections)
        failed = any(each.hit((answers, older)) for each in wanted)
    return EXIT.FOUND if failed else status


def _writable(out: str | None, against: str | None) -> str:
    """Return the dataset to write, after the checks that need no reading."""
    if not out:
        raise UsageError("name the dataset to write: --out DATASET")
    if "://" in out:
        raise UsageError("--out is a folder of this machine, not a URL")
    _need("distributed", "pyarrow", "fsspec", "cryptography", "duckdb")
    if against is not None:
        from netdissect.survey.dataset import schema_of  # noqa: PLC0415

        schema_of(against)  # refuse a wrong one before hours of reading
    return out


def _need(*modules: str) -> None:
    """Raise UsageError if a module of the extra `survey` is missing."""
    from importlib.util import find_spec  # noqa: PLC0415

    missing = [name for name in modules if find_spec(name) is None]
    if missing:
        raise UsageError(f"survey needs {', '.join(missing)}: pip install 'netdissect[survey]'")


def _run(words: tuple[str, ...], out: str, choices: Choices, work: _Work, look: Look) -> int:
    """Read the sources into the dataset, and report the outcome."""
    from netdissect.survey.dataset import Dataset  # noqa: PLC0415
    from netdissect.survey.run import survey  # noqa: PLC0415
    from netdissect.survey.sources import join_rotated, sources_of  # noqa: PLC0415
    from netdissect.survey.work import Plan  # noqa: PLC0415

    # Hide Dask's errors about an interruption; failures are reported here.
    logging.getLogger("asyncio").setLevel(logging.CRITICAL)
    choices.options()  # raises for invalid choices now, not in every worker
    sources = join_rotated(sources_of(words)) if work.follow else sources_of(words)

    def say(text: str) -> None:
        if not look.quiet:
            click.echo(f"netdissect: {safe(text, 400)}", err=True)

    def told(outcome: Outcome, count: int) -> None:
        if look.verbose:
            say(f"{count:,} of {len(sources):,}: {outcome.path}: {outcome.status}")

    dataset = Dataset(out)
    settings = {"units": work.units, "interval_ns": work.interval}
    try:
        with dataset.opened({**asdict(choices), **settings}):
            done = survey(
                sources,
                Plan(str(dataset.path), choices.options, work.interval, units=work.units),
                scheduler=work.scheduler,
                workers=work.workers,  # several read one large capture
                on_outcome=told,
                on_dashboard=say if look.verbose else None,
            )
    except OSError as error:
        error.filename = error.filename or out  # a full disk names no file
        raise
    failed = [outcome for outcome in done if outcome.status == "failed"]
    for outcome in failed[:_NAMED]:
        said = outcome.error or "failed"
        say(said if outcome.path in said else f"{outcome.path}: {said}")
    count = Counter(outcome.status for outcome in done)
    read, cut, replaced = count["done"] + count["cut-short"], count["cut-short"], count["replaced"]
    instead = f", in place of {counted(replaced, 'shorter capture')}" if replaced else ""
    connections = sum(outcome.connections for outcome in done)
    say(
        f"{counted(read, 'capture')} read{f' ({cut:,} cut short)' if cut else ''}, "
        f"{count['skipped']:,} already known, {len(failed):,} failed; "
        f"{counted(connections, 'connection')} added to {out}{instead}"
    )
    # Not a failure if any could be read: among thousands of captures, some are broken.
    return EXIT.NO_CAPTURE if len(failed) == len(done) else EXIT.DONE


def _limits(texts: tuple[str, ...], against: str | None) -> list[Limit]:
    if not texts:
        return []
    _need("duckdb")
    from netdissect.cli.diagnose import limit_of  # noqa: PLC0415
    from netdissect.survey.show import MEASURES, rise  # noqa: PLC0415

    kinds = {"failed": "", **{name: kind for name, (kind, _) in MEASURES.items()}}

    def now(name: str) -> Callable[[Any], float | None]:
        return lambda pair: pair[0].measures()[name]

    def risen(name: str) -> Callable[[Any], float | None]:
        return lambda pair: rise(pair[1].measures()[name], pair[0].measures()[name])

    known = {name: (kind, now(name)) for name, kind in kinds.items()}
    if against is not None:
        known |= {f"{name}.rise": (kind, risen(name)) for name, kind in kinds.items()}
    return [limit_of(text, known) for text in texts]


def _sections(answers: Answers, older: Answers | None, limit: int) -> Iterator[Section]:
    if older is not None:
        yield from answers.against(older, limit)
    yield from answers.sections(limit)


def _objects(section: Section) -> Iterator[dict[str, Any]]:
    from netdissect.export.json import SCHEMA  # noqa: PLC0415

    for row in section.rows:
        values = dict(zip(section.columns, row, strict=True))
        yield {"schema": SCHEMA, "section": section.name, **values}
