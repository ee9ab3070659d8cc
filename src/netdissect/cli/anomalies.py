"""`netdissect anomalies`: the findings of a capture."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import click

from netdissect.cli import options
from netdissect.cli.errors import EXIT
from netdissect.cli.output import print_json
from netdissect.cli.request import Match, Request
from netdissect.cli.session import Session
from netdissect.model.annotations import Severity
from netdissect.model.reports import Anomaly

if TYPE_CHECKING:
    from netdissect.pipeline.anomalies import ContentFindings

_LEVELS = {severity.label: severity for severity in Severity}


@click.command("anomalies")
@options.capture()
@options.narrowed
@options.count
@options.flag("--content", help="Decode every message completely, as -Y does; slower.")
@click.option(
    "--min",
    "least",
    type=click.Choice(list(_LEVELS)),
    default="chat",
    help="Only findings of this severity or worse.",
)
@click.option(
    "--fail-on",
    type=click.Choice(list(_LEVELS)),
    help="End with status 7 if there is a finding of this severity or worse.",
)
@options.report
def command(request: Request, content: bool, least: str, fail_on: str | None) -> int:
    """List what is wrong or worth knowing, worst first.

    Repeated findings on one connection share a line; --json has the 1st, 10th, 100th
    and so on. `netdissect explain CODE` explains a finding. Faults deep inside a message
    are only found with --content or -Y.

    \b
    netdissect anomalies game.pcap --fail-on warn
    netdissect anomalies game.pcap -Y 'conn.id == 2' --json
    """
    with request.session() as session:
        from netdissect.pipeline.anomalies import ContentFindings  # noqa: PLC0415

        every = request.display_filter is None
        contents = ContentFindings() if content or not every else None
        whole = _found(session, request.display_filter, contents)
        # --fail-on looks at all findings, whatever --min and --count list.
        failed = fail_on is not None and any(item.severity >= _LEVELS[fail_on] for item in whole)
        found = [item for item in whole if item.severity >= _LEVELS[least]]
        if request.as_json:
            from netdissect.export import json  # noqa: PLC0415

            print_json(json.anomaly(item) for item in found[: request.limit])
        else:
            from netdissect.render.findings import show_anomalies  # noqa: PLC0415

            show_anomalies(
                request.look.screen(),
                found,
                request.clock(session.first_ns),
                totals=_totals(session, contents) if every else None,
                times=_times(session) if every else None,
                limit=request.limit,
                file=None if session.live else request.file,
            )
        session.say_unrecognised()
        status = session.status()
    return EXIT.FOUND if failed else status


def _found(
    session: Session, display_filter: str | None, contents: ContentFindings | None
) -> list[Anomaly]:
    """Return the tracker's findings, and those of message contents if `contents` is given."""
    if contents is None:
        return _sorted(session.analysis(anomalies=True).anomalies)
    match = Match.compile(display_filter, session)
    session.keeps_anomalies = True
    frames: set[int | None] = set()
    for record in session.records():
        if match.datagram(record, session.first_ns):
            frames |= {record.frame, *record.frames}
            contents.take(record)
    found = [*session.anomalies, *contents.anomalies.listed()]
    contents.anomalies.settle(session.limits_hit)
    return _sorted([item for item in found if match.filter is None or item.frame in frames])


def _totals(session: Session, contents: ContentFindings | None) -> Counter[str]:
    """Return how often each code was found, including repeats that are not reported."""
    totals = Counter() if contents is None else contents.totals.copy()
    for report in session.reports:
        totals.update(report.codes)
    return totals


def _times(session: Session) -> dict[tuple[int | None, str], int]:
    """Return how often each code was found on each connection that has findings."""
    # Only connections with findings: a large capture has a million reports.
    listed = session.reports.of({item.connection for item in session.anomalies if item.connection})
    return {
        (report.connection, code): times
        for report in listed
        for code, times in report.codes.items()
    }


def _sorted(found: list[Anomaly]) -> list[Anomaly]:
    """Return findings in time order; those without a time come last."""
    return sorted(
        found,
        key=lambda item: (
            item.time_ns is None, item.time_ns or 0, item.frame or 0, item.connection or 0,
        ),
    )  # fmt: skip
