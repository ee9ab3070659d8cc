"""`netdissect fuzz`: sends mutated messages to a target and watches it."""

from __future__ import annotations

import itertools
import sys
from pathlib import Path
from typing import Any

import click

from netdissect.cli import options
from netdissect.cli.complete import PROTOCOL
from netdissect.cli.errors import EXIT
from netdissect.cli.failures import answer
from netdissect.cli.output import Look, print_json
from netdissect.cli.spans import SPAN, Amount, Whole
from netdissect.model.errors import UsageError
from netdissect.system.interrupt import at_once, check

_UNLIMITED_STEP = 5000
"""Cases between two lines of progress if the number of cases is not limited."""


def _plan(ctx: click.Context, _param: click.Parameter, path: str | None) -> str | None:
    """Use the values of a plan file as the defaults of this command's options."""
    if path is not None and not ctx.resilient_parsing:
        from netdissect.cli.fuzzplan import read_plan  # noqa: PLC0415 - only with --plan

        # Only defaults: the command line takes precedence.
        ctx.default_map = {**(ctx.default_map or {}), **read_plan(path, ctx.command)}
    return path


@click.command("fuzz")
@click.argument("protocol", type=PROTOCOL)
@options.target
@click.option(
    "--plan",
    # Processed before the options whose defaults it sets.
    is_eager=True,
    expose_value=False,
    callback=_plan,
    metavar="FILE",
    help="A TOML file with these options and `protocol`. Its commands are run: only use your own.",
)
@options.own_host
@click.option(
    "--dialect", metavar="DIALECT", help="Dialect to speak, with or without the protocol's prefix."
)
@options.transport
@options.repeated(
    "--seeds",
    "captures",
    metavar="FILE",
    help="A capture whose messages are mutated; may be repeated. By default, messages with default"
    " values.",
)
@options.number(
    "--seed", 1, "Seed of the random generator; the same seed gives the same mutations.",
    options.Count(min=0),
)
@click.option(
    "--cases",
    type=options.COUNT,
    metavar="N",
    help="Number of cases to send; 1000 unless --duration is given.",
)
@click.option("--duration", type=SPAN, metavar="TIME", help="Stop after this time: 30s, 10m.")
@options.repeated(
    "--type",
    "types",
    metavar="TYPE",
    help="Mutate only messages of this type (* is a wildcard); may be repeated.",
)
@options.repeated(
    "--mutator",
    "mutators",
    metavar="NAME",
    help="Use only this mutator, such as field:*, octets:flip, order:*; may be repeated.",
)
@options.repeated(
    "--dict",
    "dictionaries",
    metavar="FILE",
    help='A file of values that mean something to the target, in lines name="\\x00text".',
)
@options.repeated(
    "--schema", metavar="FILE", help="Layout of user messages, so that their values are mutated."
)
@click.option(
    "--corpus",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="FOLDER",
    help="Folder for cases that found something new, shared by runs; by default in --out.",
)
@click.option(
    "--no-feedback",
    "feedback",
    is_flag=True,
    flag_value=False,
    default=True,
    help="Generate every case from the seeds, without feedback from the target.",
)
@options.number(
    "--workers",
    1,
    "Processes, each with its own target on consecutive ports from that of --target.",
    Whole(min=1, max=64),
)
@options.number(
    "--rate",
    1000.0,
    "Maximum number of messages per second; 0 means unlimited.",
    Amount(min=0),
    "R",
)
@options.repeated(
    "--monitor",
    "monitors",
    metavar="KIND:...",
    help="exec:COMMAND, pid:N, log:REGEX, log:FILE:REGEX, memory:MIB, cpu:PERCENT, latency:MS, "
    "rules; {port} is the port of the target.",
)
@answer
@options.number("--failures", 10, "Stop after N different failures.")
@options.number(
    "--examples", 3, "Keep the first N occurrences of each failure, and only count the others."
)
@options.repeated(
    "--skip",
    "masked",
    metavar="KIND",
    help="Only count this known failure, given by its eight digits or part of its text.",
)
@click.option(
    "--out",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="FOLDER",
    help="Folder for cases, failures and reports; by default a new one in the current folder.",
)
@options.flag("--resume", help="Continue the run in --out.")
@options.flag(
    "--traffic", help="Also write traffic.pcapng: all traffic, with the cases as comments."
)
@options.json_output
@options.screen
def command(
    protocol: str,
    target: str,
    i_own_this_host: bool,
    duration: int | None,
    schema: tuple[str, ...],
    out: Path | None,
    as_json: bool,
    look: Look,
    **rest: Any,
) -> None:
    """Send mutated messages to your own server, inside connections that stay valid.

    Every case is written to disk before it is sent. A failure of the target (it exits, stops
    answering, logs a pattern, grows, or breaks the rules of the protocol) becomes a folder for
    `replay` and `minimise`, and the exit status is 7. Mutants that find something new are mutated
    further.

    \b
    netdissect fuzz riptide --target 127.0.0.1:7777 --seeds game.pcap --cases 5000 \\
        --monitor 'exec:./server --port 7777'
    """
    from netdissect.fuzz import Target, fuzz_target  # noqa: PLC0415 - imports scapy
    from netdissect.lookup import known_protocols, load_schemas  # noqa: PLC0415 - imports scapy

    known_protocols([protocol])
    if rest["resume"] and out is None:
        raise UsageError("--resume needs the folder of the run: --out FOLDER")
    schemas = load_schemas(schema)
    if schemas and protocol not in schemas:
        raise UsageError(f"the schemas describe {', '.join(schemas)}, not {protocol}")
    folder = out or _new_folder(protocol)
    seconds = None if duration is None else duration / 1e9
    progress = _Progress(rest["cases"], seconds, shown=not look.quiet)
    with at_once():
        report = fuzz_target(
            protocol,
            Target.parse(target, own_host=i_own_this_host),
            folder,
            duration=seconds,
            schema=schemas.get(protocol),
            progress=progress.update,
            seeded=progress.seeded,
            **rest,
        )
    progress.done()
    _write_reports(folder, report.to_json(), f"fuzz {protocol} at {target}")
    if as_json:
        print_json([{"schema": 1, **report.to_json()}])
    else:
        _show(report, look.screen())
    # After an interruption, report what was sent before exiting.
    check()
    if report.findings:
        raise click.exceptions.Exit(EXIT.FOUND)


def _write_reports(folder: Path, facts: dict[str, Any], heading: str) -> None:
    """Write the reports for people and for build servers."""
    from netdissect.export.junit import junit  # noqa: PLC0415 - only here
    from netdissect.fuzz.folder import Folder  # noqa: PLC0415 - imports scapy
    from netdissect.report.fuzzing import run_page, states_document  # noqa: PLC0415 - only here

    with Folder(folder) as inside:
        inside.write("report.html", run_page(facts, heading).encode())
        inside.write("states.svg", states_document(facts).encode())
        inside.write("junit.xml", junit(facts, heading).encode())


class _Progress:
    """A line on standard error: updated in place on a terminal, otherwise printed every 10%."""

    def __init__(self, cases: int | None, seconds: float | None, *, shown: bool) -> None:
        from netdissect.fuzz.runs import USUAL_CASES  # noqa: PLC0415 - imports scapy

        self._cases = cases or (USUAL_CASES if seconds is None else None)
        self._shown = shown
        self._live = sys.stderr.isatty()
        self._step = max(1, self._cases // 10) if self._cases else _UNLIMITED_STEP
        self._next = self._step

    def seeded(self, pool: Any) -> None:
        """Report the number of seeds."""
        if self._shown:
            skipped = ", ".join(f"{count} {why}" for why, count in sorted(pool.skipped.items()))
            raw = f", {len(pool.raw)} of them raw" if pool.raw else ""
            left_out = f" (skipped: {skipped})" if skipped else ""
            click.echo(f"{len(pool.seeds)} seeds{raw}{left_out}", err=True)

    def update(self, report: Any) -> None:
        """Report the progress of the run."""
        if not self._shown or (not self._live and report.cases < self._next):
            return
        self._next += self._step
        share = report.share("control")
        of = f"/{self._cases}" if self._cases else ""
        accepted = "" if share is None else f", {share:.0%} of controls accepted"
        text = f"{report.cases}{of} cases, {report.sessions} sessions"
        text += f", {len(report.findings)} failures{accepted}"
        click.echo(f"\r{text}\x1b[K" if self._live else text, err=True, nl=not self._live)

    def done(self) -> None:
        """End the line."""
        if self._shown and self._live:
            click.echo(err=True)


def _new_folder(protocol: str) -> Path:
    """Return the first folder that does not exist: fuzz-riptide-1, fuzz-riptide-2 ..."""
    folders = (Path(f"fuzz-{protocol}-{number}") for number in itertools.count(1))
    return next(folder for folder in folders if not folder.exists())


def _show(report: Any, screen: Any) -> None:
    rate = report.cases_per_second()
    earlier = f" ({report.earlier} before it was resumed)" if report.earlier else ""
    counts = (
        f"{report.cases} cases{earlier}, {report.datagrams} messages, {report.sessions} sessions"
    )
    screen.line(
        (counts, "title"), (f" in {report.seconds:.1f} s ({rate:.0f} cases/s); {report.ended}", "")
    )
    for kind, label in (("control", "unchanged"), ("mutant", "mutated")):
        share = report.share(kind)
        if share is not None:
            of = f"  {report.accepted[kind]} of {report.expected[kind]} that can be acknowledged"
            screen.line((f"{label:>9} accepted: ", "dim"), (f"{share:.1%}", "value"), (of, "dim"))
    edges = f", {report.edges} code edges" if report.edges else ""
    for amount, text in (
        (report.undecided, f"{report.undecided} unchanged messages in sessions that had ended"),
        (1, f"longest session held: {report.held_seconds:.1f} s ({report.held_rate():.0f}/s)"),
        (report.left_out, f"{report.left_out} cases left out: the target accepts too few sessions"),
        (report.kept, f"{report.kept} cases found something new{edges}"),
        (report.slow, f"{report.slow} answers came late; the target was slow, not dead"),
    ):
        if amount:
            screen.line((text, "dim"))
    _coverage(report, screen)
    _failures(report, screen)


def _failures(report: Any, screen: Any) -> None:
    """Print the failures of the target, and the cases left out because of them."""
    from netdissect.fuzz.report import kind_key  # noqa: PLC0415 - imports scapy

    if not report.findings:
        screen.line(("no failure found", "good"))
    for finding in report.findings.values():
        times = f" ({finding.count} times)" if finding.count > 1 else ""
        screen.line((f"{finding.verdict.kind}: ", "bad"), (f"{finding.verdict.detail}{times}", ""))
        screen.line((f"    {finding.key}, up to case {finding.case}: {finding.folder}", "dim"))
    for signature, count in report.masked.items():
        screen.line((f"skipped {count} times: {signature}", "dim"))
    for (signature, facts), count in report.held_back.most_common(_MASKS):
        text = f"held back: {count} cases like those of {kind_key(signature)}: {facts}"
        screen.line((text, "dim"))


_MASKS = 8
"""Maximum number of reasons for holding cases back that are printed; `report.json` has all of them.
"""
_ABSENT = 8
"""Maximum number of unused types that are named; `report.json` has all of them."""


def _coverage(report: Any, screen: Any) -> None:
    """Print a table of types by states: sent unchanged / mutated / received."""
    tables = (report.controls, report.mutated, report.reached)
    further = {state for _name, state in report.reached} - set(report.stages)
    states = [*report.stages, *sorted(further)]
    names = sorted({name for table in tables for name, _ in table})
    first = max((len(name) for name in names), default=4)
    screen.line((f"{'':{first}}  " + "".join(f"{state:>18}" for state in states), "title"))
    screen.line((f"{'':{first}}  " + f"{'sent/mutated/got':>18}" * len(states), "dim"))
    for name in names:
        row = []
        for state in states:
            counts = [table[name, state] for table in tables]
            text = "/".join(map(str, counts)) if any(counts) else "never"
            row.append((f"{text:>18}", "value" if any(counts) else "dim"))
        screen.line((f"{name:{first}}  ", "name"), *row)
    absent = sorted(set(report.types).difference(names))
    if absent:
        more = f" and {len(absent) - _ABSENT} more" if len(absent) > _ABSENT else ""
        screen.line((f"neither sent nor received: {', '.join(absent[:_ABSENT])}{more}", "dim"))
