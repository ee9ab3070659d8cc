"""Sets up and starts runs, replays and minimisations from plain options."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from netdissect.craft.layers import message_types
from netdissect.fuzz.corpus import Corpus
from netdissect.fuzz.drivers import Driver, driver_class
from netdissect.fuzz.engine import Engine, Part, RunOptions
from netdissect.fuzz.feedback import COVERAGE_VARIABLE, Coverage, Feedback
from netdissect.fuzz.folder import Folder, free_path, open_new, write_json
from netdissect.fuzz.generator import Generator, check_mutators
from netdissect.fuzz.grammar import load_words, schema_grammar
from netdissect.fuzz.minimise import Minimised, Minimiser, check_place, save_minimal
from netdissect.fuzz.monitors import NO_ANSWER, Monitors, Verdict
from netdissect.fuzz.pcap import TrafficWriter
from netdissect.fuzz.replay import Replayer
from netdissect.fuzz.report import Finding, FuzzReport
from netdissect.fuzz.seeds import SeedPool, seeds_from_capture, seeds_from_layers
from netdissect.fuzz.store import SCHEMA, Failure, PastRun, Store
from netdissect.fuzz.target import Target
from netdissect.fuzz.watch import Watch
from netdissect.fuzz.watchers import parse_monitors
from netdissect.fuzz.workers import run_workers
from netdissect.model.errors import UsageError, did_you_mean
from netdissect.model.text import quoted

_PORTS = 1 << 16
TRAFFIC_OCTETS = 1 << 30
"""Maximum size of a run's `traffic.pcapng`; later traffic is not written."""
USUAL_CASES = 1000
"""Cases of a run without a given number or duration."""
_HANG_SECONDS = 0.3
"""Time given to a process that is known to hang to end by itself."""


def full_dialect(driver: type[Driver], name: str | None) -> str:
    """Return a dialect's full name; the prefix with the protocol's name may be missing.

    Raises:
        UsageError: the driver does not speak it.
    """
    if name is None:
        return driver.dialects[0]
    for known in driver.dialects:
        if name in (known, known.removeprefix(f"{driver.protocol}-")):
            return known
    raise UsageError(f"no dialect {quoted(name)} to fuzz; there are: {', '.join(driver.dialects)}")


def collect_seeds(driver: type[Driver], dialect: str, captures: Sequence[str | Path]) -> SeedPool:
    """Return the seeds of all captures; without any capture, those made from the layers."""
    if not captures:
        return seeds_from_layers(driver.protocol, dialect, driver.transport)
    pool = SeedPool()
    for capture in captures:
        found = seeds_from_capture(
            driver.protocol, dialect, capture, transport=driver.transport, split=driver.split
        )
        pool.skipped.update(found.skipped)
        for seed in found.seeds:
            pool.add(seed)
    return pool


def fuzz_target(
    protocol: str,
    target: Target,
    out: Path,
    *,
    progress: Callable[[FuzzReport], None] = lambda _report: None,
    seeded: Callable[[SeedPool], None] = lambda _pool: None,
    **fields: Any,
) -> FuzzReport:
    """Fuzz a target and return the report, which is also written to the folder `out`.

    Args:
        protocol: name of the protocol.
        target: where to send; see `Target.parse` for the rule that it must be this machine.
        out: new folder of the run.
        progress: called with the report so far after every few cases.
        seeded: called with the seeds before anything is sent.
        fields: those of `RunOptions`, by name.

    Raises:
        NetdissectError: an unknown name, no seeds, or a target that accepts no session.
    """
    options = RunOptions(**fields)
    driver = driver_class(protocol, options.transport, options.dialect)
    name = full_dialect(driver, options.dialect)
    check_mutators(options.mutators)
    if "" in options.masked:
        raise UsageError("--skip: an empty text is part of every failure")
    pool = collect_seeds(driver, name, options.captures)
    _check_types(driver, name, pool, options.types)
    generator = _generator(driver, name, pool, options)
    seeded(pool)
    run = _Run(driver, name, pool, generator, options)
    if options.workers == 1:
        return run.start(target, out, out, 0, progress)
    if target.port + options.workers > _PORTS:
        raise UsageError(f"{target} leaves no ports for {options.workers} workers")
    with Folder.made(out):
        pass
    report = run_workers(
        options.workers,
        lambda number, told: run.start(
            replace(target, port=target.port + number), out, out / f"worker-{number}", number, told
        ),
        progress,
    )
    with Folder(out) as folder:
        write_json(folder, "report.json", {"schema": SCHEMA, **report.to_json()})
    return report


def _generator(
    driver: type[Driver], dialect: str, pool: SeedPool, options: RunOptions
) -> Generator:
    """Return the generator of cases.

    Raises:
        UsageError: there is no seed, a dictionary is damaged, or the schema describes no seed.
    """
    grammar = None
    if options.schema is not None:
        grammar = schema_grammar(driver.protocol, dialect, driver.transport, options.schema)
    words = load_words(options.dictionaries)
    generator = Generator(pool.seeds, driver.traits, options.seed, words=words, grammar=grammar)
    if grammar is not None and not generator.described:
        raise UsageError("the schema describes no message among the seeds: give other --seeds")
    return generator


@dataclass(frozen=True, slots=True)
class _Run:
    """A prepared run; each worker starts it with a target and a folder of its own."""

    driver: type[Driver]
    dialect: str
    pool: SeedPool
    generator: Generator
    options: RunOptions

    def start(
        self,
        target: Target,
        whole: Path,
        out: Path,
        number: int,
        progress: Callable[[FuzzReport], None],
    ) -> FuzzReport:
        """Run worker `number`, whose folder is `out`; `whole` is the folder of the whole run."""
        options, cases = self.options, self.options.cases
        if cases is None and options.duration is None:
            cases = USUAL_CASES
        if cases is not None:
            # The workers share the cases equally.
            cases = len(range(number, cases, options.workers))
        facts: dict[str, Any] = {
            "protocol": self.driver.protocol,
            "dialect": self.dialect,
            "transport": self.driver.transport,
            "seed": options.seed,
            "monitors": list(options.monitors),
        }
        store = Store(out, resume=options.resume)
        known = _known_types(self.driver, self.dialect, self.pool)
        counts = len(self.pool.seeds), len(self.pool.raw)
        report = FuzzReport(known, self.driver.traits.stages, *counts)
        past = None
        try:
            if options.resume:
                past = _past(store, facts, report)
            else:
                _write_run(store, facts, cases, target, options)
            facts["monitors"] = _with_port(options.monitors, target)
            monitors = parse_monitors(facts["monitors"], out)
            watch = Watch(self.driver, self.dialect, target, monitors, options.answer_seconds)
            feedback = self._feedback(monitors, whole, out)
        except BaseException:
            store.close()
            raise
        part = Part(cases, facts, number, past)
        with _all_traffic(out, watch) if options.traffic else nullcontext():
            return Engine(
                self.generator, watch, store, report, options, part,
                progress=progress, feedback=feedback,
            ).run()  # fmt: skip

    def _feedback(self, monitors: Monitors, whole: Path, out: Path) -> Feedback | None:
        if not self.options.feedback:
            return None
        process, coverage = monitors.process, None
        if process is not None:
            path = free_path(out, "coverage", ".map").absolute()
            coverage = Coverage(path)
            process.environment[COVERAGE_VARIABLE] = str(path)
        stages = self.driver.traits.stages
        folder = self.options.corpus or whole / "corpus"
        corpus = Corpus(folder, self.driver.protocol, self.dialect, stages)
        return Feedback(corpus, process, coverage)


@contextmanager
def _all_traffic(out: Path, watch: Watch) -> Iterator[None]:
    """Write all traffic of the run to `traffic.pcapng`, up to `TRAFFIC_OCTETS`."""
    with os.fdopen(open_new(free_path(out, "traffic", ".pcapng")), "wb") as file:
        writer = TrafficWriter(file, watch.target, watch.driver.transport, limit=TRAFFIC_OCTETS)
        watch.journal.taps.append(writer.write)
        try:
            yield
        finally:
            writer.close()


def _past(store: Store, given: Mapping[str, Any], report: FuzzReport) -> PastRun:
    """Read what the run to resume has sent, and add it to `report`.

    Raises:
        UsageError: that run had another protocol, dialect, transport or seed.
    """
    facts = store.read_run()
    for name in ("protocol", "dialect", "transport", "seed"):
        if facts.get(name) != given[name]:
            raise UsageError(
                f"the run in {store.folder} has {name} {quoted(facts.get(name))}, not "
                f"{quoted(given[name])}: give the options that it was started with"
            )
    past = store.past()
    report.cases = report.earlier = past.cases
    report.mutations.update(past.mutations)
    for (type_name, stage, control), count in past.sent.items():
        report.datagrams += count
        (report.controls if control else report.mutated)[type_name, stage] += count
    for verdict, case, folder in past.failures:
        finding = report.findings.setdefault(verdict.signature, Finding(verdict, case))
        finding.count += 1
        finding.folders.append(folder)
    return past


def _write_run(
    store: Store, facts: Mapping[str, Any], cases: int | None, target: Target, options: RunOptions
) -> None:
    """Record the options of the run."""
    store.write_run(
        {
            **facts,
            "target": str(target),
            "cases": cases,
            "duration": options.duration,
            "masked": list(options.masked),
            "types": list(options.types),
            "mutators": list(options.mutators),
            "captures": [str(each) for each in options.captures],
            "dictionaries": [str(each) for each in options.dictionaries],
        }
    )


def _known_types(driver: type[Driver], dialect: str, pool: SeedPool) -> tuple[str, ...]:
    """Return the message types of a dialect and of the seeds, sorted."""
    of_dialect = message_types(driver.protocol, dialect, driver.transport)
    return tuple(sorted({*of_dialect, *(each.type for each in pool.seeds)}))


def _check_types(
    driver: type[Driver], dialect: str, pool: SeedPool, patterns: Sequence[str]
) -> None:
    known = _known_types(driver, dialect, pool)
    for pattern in patterns:
        if not any(fnmatchcase(each, pattern) for each in known):
            near = did_you_mean(pattern, known) or f"; there are {', '.join(known)}"
            raise UsageError(f"--type: {dialect} has no message type {quoted(pattern)}{near}")


def _with_port(monitors: Sequence[str], target: Target) -> list[str]:
    """Return monitors with the port of their target for `{port}`."""
    return [each.replace("{port}", str(target.port)) for each in monitors]


@contextmanager
def _watching(failure: Failure, target: Target, monitors: Sequence[str]) -> Iterator[Watch]:
    """Watch a target as in the run of a failure; its output goes to a temporary folder.

    Raises:
        UsageError: no driver speaks the protocol or dialect, or knows a state.
    """
    facts = failure.facts
    driver = driver_class(facts["protocol"], facts["transport"], facts["dialect"])
    dialect = full_dialect(driver, facts["dialect"])
    unknown = sorted({each.stage for each in failure.steps} - set(driver.traits.stages))
    if unknown:
        raise UsageError(f"{failure.folder}: {facts['protocol']} has no state {quoted(unknown[0])}")
    with TemporaryDirectory(prefix="netdissect-") as folder:
        watched = parse_monitors(_with_port(monitors, target), Path(folder))
        watch = Watch(driver, dialect, target, watched)
        learnt = failure.facts.get("learnt", {})
        watch.learnt.update({name: bytes.fromhex(value) for name, value in learnt.items()})
        try:
            yield watch
        finally:
            watch.monitors.stop()


@dataclass(frozen=True, slots=True)
class Replayed:
    """The outcome of sending the steps of a failure again, one or several times."""

    verdicts: tuple[Verdict | None, ...]
    """The failure of each try; None if the target stayed well."""
    sent: tuple[bytes, ...]
    """The messages sent in the last try."""

    @property
    def failures(self) -> int:
        """Return the number of tries in which the target failed."""
        return sum(verdict is not None for verdict in self.verdicts)

    @property
    def verdict(self) -> Verdict | None:
        """Return the first failure; None if no try failed."""
        return next((verdict for verdict in self.verdicts if verdict is not None), None)


def replay_tries(
    failure: Failure,
    target: Target,
    tries: int,
    *,
    monitors: Sequence[str] = (),
    exact: bool = False,
) -> Replayed:
    """Send the steps of a failure again several times, since a race does not fail each time.

    A target run by `exec:` is restarted for each try. The arguments are those of
    `replay_failure`.
    """
    found = [replay_failure(failure, target, monitors=monitors, exact=exact) for _ in range(tries)]
    return Replayed(tuple(verdict for verdict, _sent in found), tuple(found[-1][1]))


def replay_failure(
    failure: Failure,
    target: Target,
    *,
    monitors: Sequence[str] = (),
    exact: bool = False,
) -> tuple[Verdict | None, list[bytes]]:
    """Send the steps of a failure again; return (failure or None, messages sent).

    Args:
        failure: what `load_failure` read.
        target: where to send.
        monitors: as for `fuzz_target`. Those recorded in the folder (`failure.monitors`) may be
            commands written by somebody else, so they are used only if given here.
        exact: send the recorded bytes, not the same steps with new tokens and numbers.

    Raises:
        UsageError: the target accepts no session.
    """
    with _watching(failure, target, monitors) as watch:
        watch.monitors.start()
        replayer = Replayer(watch, exact=exact, wanted=str(failure.facts.get("signature", "")))
        session = watch.patient_session()
        if session is None:
            raise UsageError(f"{target} accepts no session: {watch.trouble}")
        session.close()
        return replayer.run(failure.steps)


def minimise_failure(
    failure: Failure,
    target: Target,
    *,
    monitors: Sequence[str] = (),
    trials: int = 400,
    tries: int = 1,
    answer_seconds: float = 2.0,
    progress: Callable[[int, int], None] = lambda _trials, _left: None,
) -> tuple[Minimised, Path]:
    """Reduce a failure to the fewest steps; return the result and the folder written.

    Args:
        failure: what `load_failure` read.
        target: where to send.
        monitors: as for `fuzz_target`; one of them must be `exec:`.
        trials: maximum number of lists of steps to try.
        tries: how often each list is tried before it counts as harmless, since a race does not
            fail each time.
        answer_seconds: a target that does not answer for this long has failed.
        progress: called with (trials done, steps left).

    Raises:
        UsageError: the failure does not recur, the target cannot be restarted, or nothing can be
            written into the folder.
    """
    check_place(failure.folder)
    with _watching(failure, target, monitors) as watch:
        watch.answer_seconds = answer_seconds
        if watch.monitors.process is None:
            raise UsageError("minimise has to restart the target: give --monitor exec:COMMAND")
        if failure.kind == NO_ANSWER:
            # The target is known to hang: each candidate that hangs would cost the full wait.
            watch.monitors.process.exit_seconds = _HANG_SECONDS
        signature = str(failure.facts.get("signature", ""))
        replayer = Replayer(watch, wanted=signature)
        minimiser = Minimiser(replayer, failure.kind, signature, trials, progress, tries)
        result = minimiser.run(failure.steps)
        failed = 0
        for _ in range(tries):
            replayer.fresh_target()
            verdict, sent = replayer.run(result.steps)
            failed += verdict is not None and verdict.kind == failure.kind
        result = replace(result, failed=failed, tries=tries)
    return result, save_minimal(failure, result, sent)
