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

_LIMIT = re.compile(r"\s*([a-z0-9.]+)\s*(>=|>)\s*([0-9]+(?:\.[0-9]+)?)\s*(%|ms|s)?\s*")
_SCALE = {"": 1.0, "%": 0.01, "ms": 1.0, "s": 1000.0}


@dataclass(frozen=True, slots=True)
class Limit:
    """One condition of `--fail-on`."""

    measure: Callable[[Any], float | None]
    beyond: Callable[[float, float], bool]
    value: float

    def hit(self, found: Any) -> bool:
        """Return whether the measured value exceeds the limit; an unknown value does not."""
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
    """Parse a condition such as `loss>5%` or `lag.p95>200ms`.

    Args:
        text: what the user wrote.
        measures: name -> (unit: `%`, `ms` or "", function that returns the value).

    Raises:
        UsageError: the text is not a valid condition.

    """
    found = _LIMIT.fullmatch(text)
    kind, measure = measures.get(found[1] if found else "", ("", None))
    if found is None or measure is None:
        word = re.split("[ <>=]", text.strip())[0]
        near = "" if word in measures else did_you_mean(word, measures)
        near = near or f"; measures: {', '.join(measures)}"
        raise UsageError(f"--fail-on needs MEASURE>NUMBER, not {quoted(text)}{near}")
    unit = found[4] or ""
    # `loss>0.05` could be a share or a percentage.
    if kind and not unit:
        raise UsageError(f"{found[1]} needs a unit, such as {quoted(text.strip() + kind)}")
    # ms and s can replace each other; a count has no unit.
    if (unit == "%") != (kind == "%") or (unit and not kind):
        expected = f"a number of {kind}" if kind else "a plain number"
        raise UsageError(f"{found[1]} is {expected}, not of {unit}")
    value = float(found[3]) * _SCALE[unit]
    # Many digits make an infinite float.
    if isinf(value) or (unit == "%" and value > 1):
        most = "use 100% at most" if unit == "%" else "use a smaller number"
        raise UsageError(f"{found[1]} can never exceed {quoted(text)}: {most}")
    return Limit(measure, ge if found[2] == ">=" else gt, value)


@click.command("diagnose")
@options.capture({"connection": options.COUNT}, second=True)
@options.narrowed
@options.count
@options.repeated(
    "--fail-on",
    "limits",
    metavar="LIMIT",
    help="Exit with status 7 if a connection exceeds this limit, such as 'loss>5%' or"
    " 'lag.p95>200ms'; may be repeated.",
)
@options.report
def command(request: Request, limits: tuple[str, ...]) -> int:
    """Say what happened to each connection, worst first.

    Shows who ended it and why, whose fault that was and how certain that is, what was lost, how
    late messages arrived, what was ruled out, and what a second capture would settle. Whatever
    the capture does not show is said to be unknown. With a capture from the other side as FILE2,
    loss is measured between the two, and a silence is attributed to the network or to an endpoint.
    With a filter or a time span, only connections with a matching datagram are shown.

    \b
    netdissect diagnose game.pcap
    netdissect diagnose game.pcap 3 --fail-on 'loss>5%' --fail-on 'lag.p95>200ms'
    """
    wanted = [limit_of(text) for text in limits]
    with request.session() as session:
        if request.second is None:
            first_ns = None
            reports = reports_of(session, request.display_filter, None)
        else:
            with CapturePair(session, request.second) as both:
                first_ns, reports = both.first_ns, both.reports
            if request.display_filter is not None:
                # `-Y` selects connections of the first capture; the figures are those of both.
                with session.reopen(quiet=True) as once:
                    left = reports_of(once, request.display_filter, None)
                    reports = reports.of(set(left.numbers()))
        reports = request.chosen(reports)
        # Without a limit, no report is read for it.
        failed = bool(wanted) and any(
            each.hit(report.diagnosis) for report in reports for each in wanted if report.diagnosis
        )
        ordered = reports.ordered(_worst_first)
        if request.as_json:
            from netdissect.export import json  # noqa: PLC0415

            print_lines(map(json.diagnosed, ordered[: request.limit]))
        else:
            from netdissect.render.diagnose import show_diagnoses  # noqa: PLC0415

            clock = request.clock(first_ns or session.first_ns)
            screen = request.look.screen()
            show_diagnoses(screen, ordered, clock, request.file, request.limit)
        status = session.status()
    return EXIT.FOUND if failed else status


def _worst_first(report: ConnectionReport) -> int:
    return 0 if report.diagnosis is None else -report.diagnosis.badness
