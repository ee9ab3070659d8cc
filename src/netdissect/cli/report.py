"""`netdissect report`: a capture as one HTML file."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from netdissect._version import __version__
from netdissect.cli import options
from netdissect.cli.capture_output import refuse_input_as_output
from netdissect.cli.complete import FILE
from netdissect.cli.connection_numbers import check_connections, no_such_connection
from netdissect.cli.output import Look, write_file
from netdissect.cli.session import Choices, Session
from netdissect.cli.spans import Part, check_start
from netdissect.model.errors import UsageError
from netdissect.render.safe import safe

if TYPE_CHECKING:
    from netdissect.cli.plot_data import PlotData
    from netdissect.model.records import DatagramRecord
    from netdissect.model.reports import ConnectionReport
    from netdissect.pipeline.reports import Reports
    from netdissect.report.subject import Capture, Subject

__all__ = ["MAX_TOLD", "capture_of", "command", "write_report"]

MAX_TOLD = 16
"""Connections that get a part of their own at most."""


@click.command("report")
@options.capture({"second": FILE})
@click.option(
    "-o",
    "--output",
    type=click.Path(dir_okay=False, allow_dash=True),
    default="report.html",
    show_default=True,
    metavar="FILE",
    help="The file to write; `-` is standard output.",
)
@click.option(
    "--redact",
    is_flag=True,
    help="Replace addresses and names by words; leave out text and bytes from packets.",
)
@options.part
@options.analysis
@options.screen
def command(
    file: str,
    second: str | None,
    output: str,
    redact: bool,
    part: Part,
    choices: Choices,
    look: Look,
) -> int:
    """Write a report: one HTML file that says what happened.

    It has the answer as its heading, six figures, plots on one time axis, findings, the slowest
    messages, the story of the slowest one, and one frame bit by bit. With several connections it
    begins with a table of verdicts, and each connection is a folded part, worst first. The file
    needs nothing from the network.

    --from, --to and --around zoom the plots and choose the slow messages that are listed;
    figures and findings are those of whole connections.

    With a second capture of the same conversation, taken elsewhere, it also says what the
    network between the two did to each datagram.

    \b
    netdissect report game.pcap -o report.html
    netdissect report client.pcap server.pcap
    """
    refuse_input_as_output(output, [file, second or "-"])
    with Session(file, choices, quiet=look.quiet) as session:
        size = write_report(session, output, second=second, redact=redact, part=part)
        if output != "-":
            screen = look.screen()
            screen.line((f"{safe(output)}", "title"), (f"  {size / 1000:,.0f} kB", "dim"))
        return session.status()


def write_report(
    session: Session,
    output: str,
    *,
    second: str | None = None,
    redact: bool = False,
    part: Part | None = None,
) -> int:
    """Write the report of a capture, and of a second one of the same conversation, or of a part of
    it; return its size in bytes.
    """
    from netdissect.cli.plot_data import collect_plot_data, worst_first  # noqa: PLC0415
    from netdissect.report.document import document  # noqa: PLC0415

    ahead = session.first_look()
    part = part or Part()
    only = part.connections
    wanted = only[:MAX_TOLD] or (None if ahead is None else worst_first(ahead)[:MAX_TOLD])
    found = collect_plot_data(session, wanted, remember=True)
    # Before anything is written: a wrong span leaves an older report alone.
    check_start(session.reader.info, part)
    check_connections(only, session.reports)
    numbers = [number for number in worst_first(session.reports) if not only or number in only]
    if second is None:
        told = capture_of(session, found, numbers, redact=redact)
    else:
        told = _of_two(session, second, found, numbers, redact=redact)
    told.part = part.start, part.end
    return write_file(output, document(told, redact=redact))


def capture_of(
    session: Session,
    found: PlotData,
    numbers: Sequence[int],
    *,
    redact: bool,
    observed: Reports | None = None,
) -> Capture:
    """Return what the report says, worst connections first; `observed`: the connections as two
    captures show them.
    """
    from collections import Counter  # noqa: PLC0415

    from netdissect import lookup  # noqa: PLC0415
    from netdissect.diagnosis import diagnose  # noqa: PLC0415
    from netdissect.report.redact import Redactor  # noqa: PLC0415
    from netdissect.report.subject import Capture  # noqa: PLC0415
    from netdissect.report.tables import MAX_ROWS  # noqa: PLC0415

    redactor = Redactor()
    reports = (session.reports if observed is None else observed).of(set(numbers))
    answers = (report.diagnosis or diagnose(report) for report in reports)
    endings = Counter(answer.ending.how for answer in answers)
    subjects = []
    for place, number in enumerate(numbers[:MAX_ROWS]):
        report = reports.by_number(number)
        if report is None:
            raise no_such_connection(number, reports)
        subject = _subject(report, found, told=place < MAX_TOLD)
        subjects.append(redactor.subject(subject) if redact else subject)
    return Capture(
        "capture" if redact else safe(Path(session.file).name, 120),
        session.reader.info,
        subjects,
        __version__,
        lookup.catalogue(),
        total=len(numbers),
        endings=endings,
        other_datagrams=found.other_datagrams,
        limits=session.limits_hit,
    )


def _of_two(
    session: Session, second: str, found: PlotData, numbers: Sequence[int], *, redact: bool
) -> Capture:
    """Return what the report says of a capture and one of the other side."""
    from netdissect.join import join  # noqa: PLC0415
    from netdissect.join.observed import Observed  # noqa: PLC0415
    from netdissect.plot.fates import delays  # noqa: PLC0415

    if "-" in {session.file, second}:
        raise UsageError("captures are joined by reading them more than once: name files, not `-`")
    options = session.choices.options()
    with join(session.file, second, options=options) as joined:
        observed = Observed(joined, options.limits).reports()
        told = capture_of(session, found, numbers, redact=redact, observed=observed)
        told.join = joined.report
        zero = told.info.first_time_ns or 0
        ways = [one.ways for one in joined.report.conversations if one.ways]
        if len(ways) == 1:
            told.delays = [
                delays(joined.fates(way.sender), direction, zero, 0)
                for direction, way in enumerate(ways[0])
            ]
    return told


def _subject(report: ConnectionReport, found: PlotData, *, told: bool) -> Subject:
    """Return what is said of one connection; only those that are told have a part of their own."""
    from netdissect.diagnosis import diagnose  # noqa: PLC0415
    from netdissect.pipeline.passwords import mask_passwords  # noqa: PLC0415
    from netdissect.report.subject import Subject  # noqa: PLC0415

    number = report.connection
    subject = Subject(report, report.diagnosis or diagnose(report))
    if not told:
        return subject
    subject.history = found.gallery.histories.get(number)
    worst_first, scene = found.scenes.get(number, (None, None))
    if scene is not None:
        subject.worst, subject.cut = worst_first, scene.cut
        subject.scene = [mask_passwords(record) for record in scene.records()]
    end = found.ends.get(number)
    ending = [] if end is None else [mask_passwords(record) for record in end.records()]
    subject.frame = _frame(subject, ending)
    return subject


def _frame(subject: Subject, ending: Sequence[DatagramRecord]) -> DatagramRecord | None:
    """Return the frame that is shown bit by bit: the first copy of the slowest unit that was sent
    again, else its first copy, else what ended the connection.
    """
    records = {record.frame: record for record in subject.scene}
    if subject.worst is not None:
        copies = subject.worst.copies
        again = [copy.frame for copy in copies if copy.kind == "retransmission"]
        for number in (*again, copies[0].frame):
            if number in records:
                return records[number]
    return next(iter(ending), None)
