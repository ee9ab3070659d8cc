"""`netdissect diagnose`: what happened to each connection, worst first."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from math import isinf
from operator import ge, gt
from typing import Any

import click

from netdissect.cli import options
from netdissect.cli.capture_pair import CapturePair
from netdissect.cli.connections import reports_of
from netdissect.cli.errors import EXIT
from netdissect.cli.output import print_lines
from netdissect.cli.request import Request
from netdissect.model.diagnosis import Diagnosis, Loss
from netdissect.model.errors import UsageError, did_you_mean
from netdissect.model.reports import ConnectionReport
from netdissect.model.text import quoted

__all__ = ["Limit", "command", "limit_of"]

_LIMIT = re.compile(r"\s*([a-z0-9.]+)\s*(>=|>)\s*([0-9]+(?:\.[0-9]+)?)\s*(%|ms|s)?\s*")
_SCALE = {"": 1.0, "%": 0.01, "ms": 1.0, "s": 1000.0}


@dataclass(frozen=True, slots=True)
class Limit:
    """One condition of `--fail-on`."""

    measure: Callable[[Any], float | None]
    beyond: Callable[[float, float], bool]
    value: float

    def hit(self, found: Any) -> bool:
        """Return whether what is measured is beyond it; what cannot be told is not."""
        value = self.measure(found)
        return value is not None and self.beyond(value, self.value)


def _known(part: Loss) -> float | None:
    return part.share if part.is_known else None


def _most(values: Iterable[float | None]) -> float | None:
    return max((value for value in values if value is not None), default=None)


_MEASURES: dict[str, tuple[str, Callable[[Diagnosis], float | None]]] = {
    "loss": ("%", lambda found: _most(map(_known, found.loss))),
    "loss.c2s": ("%", lambda found: _known(found.loss[0])),
    "loss.s2c": ("%", lambda found: _known(found.loss[1])),
    "lag.path": ("ms", lambda found: found.lag.path_ms),
    "lag.p50": ("ms", lambda found: _most(late.p50 for late in found.lag.added)),
    "lag.p95": ("ms", lambda found: found.lag.late_ms),
    "lag.max": ("ms", lambda found: _most(late.maximum for late in found.lag.added)),
}


def limit_of(
    text: str, measures: Mapping[str, tuple[str, Callable[[Any], float | None]]] = _MEASURES
) -> Limit:
    """Return the condition of `loss>5%` or `lag.p95>200ms`.

    Args:
        text: what the user wrote.
        measures: name -> unit (`%`, `ms` or none) and what measures it.

    Raises:
        UsageError: it is none.

    """
    found = _LIMIT.fullmatch(text)
    kind, measure = measures.get(found[1] if found else "", ("", None))
    if found is None or measure is None:
        word = re.split("[ <>=]", text.strip())[0]
        near = "" if word in measures else did_you_mean(word, measures)
        names = ", ".join(measures)
        raise UsageError(f"--fail-on wants MEASURE>NUMBER of {names}, not {quoted(text)}{near}")
    unit = found[4] or kind
    # ms and s stand for one another; a share and a time do not, and a mere count has no unit.
    if (unit == "%") != (kind == "%") or (unit and not kind):
        raise UsageError(f"{found[1]} is a number of {kind or 'things'}, not of {unit}")
    value = float(found[3]) * _SCALE[unit]
    # Digits without end make a float infinite.
    if isinf(value) or (unit == "%" and value > 1):
        most = "100% at most" if unit == "%" else "a smaller number"
        raise UsageError(f"{found[1]} is never beyond that: {most}, not {quoted(text)}")
    return Limit(measure, ge if found[2] == ">=" else gt, value)


@click.command("diagnose")
@options.capture({"connection": options.COUNT}, second=True)
@options.narrowed
@options.count
@click.option(
    "--fail-on",
    "limits",
    multiple=True,
    metavar="LIMIT",
    help="End with status 7 if a connection is beyond it, such as 'loss>5%' or 'lag.p95>200ms';"
    " may be repeated.",
)
@options.report
def command(
    request: Request,
    limits: tuple[str, ...],
) -> int:
    """Say what happened to each connection, worst first.

    Who ended it and why, whose fault that was and how sure that is, what was lost, how
    late messages came, what was ruled out, and what a second capture would settle. Where the
    capture cannot tell, it says so. With a capture of the other side as FILE2, loss is what
    both captures together show, and so is whether the network or an endpoint was silent.
    With a filter or a span, only connections with a matching datagram are shown.

    \b
    netdissect diagnose game.pcap
    netdissect diagnose game.pcap 3 --fail-on 'loss>5%' --fail-on 'lag.p95>200ms'
    """
    wanted = [limit_of(text) for text in limits]
    first_ns = None
    with request.session() as session:
        if request.second is None:
            reports = reports_of(session, request.display_filter, None)
        else:
            with CapturePair(session, request.second) as both:
                reports = both.reports
                first_ns = both.first_ns
            if request.display_filter is not None:
                # `-Y` narrows the first capture; both captures together give the figures.
                with session.reopen(quiet=True) as once:
                    left = reports_of(once, request.display_filter, None)
                    reports = reports.of(set(left.numbers()))
        reports = request.chosen(reports)
        failed = any(
            each.hit(report.diagnosis) for report in reports for each in wanted if report.diagnosis
        )
        ordered = reports.ordered(_worst_first)[: request.limit]
        if request.as_json:
            from netdissect.export import json  # noqa: PLC0415

            print_lines(map(json.diagnosed, ordered))
        else:
            from netdissect.render.diagnose import show_diagnoses  # noqa: PLC0415

            clock = request.clock(first_ns or session.first_ns)
            show_diagnoses(request.look.screen(), ordered, clock, request.file)
        status = session.status()
    return EXIT.FOUND if failed else status


def _worst_first(report: ConnectionReport) -> int:
    return 0 if report.diagnosis is None else -report.diagnosis.badness
