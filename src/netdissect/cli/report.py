"""`netdissect report`: an HTML report on a capture."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from netdissect._version import __version__
from netdissect.cli import options
from netdissect.cli.capture_pair import NO_STDIN
from netdissect.cli.complete import FILE
from netdissect.cli.output import Look, refuse_input_as_output, write_file
from netdissect.cli.session import Choices, Session
from netdissect.cli.spans import Part, check_connections, check_start, no_such_connection
from netdissect.model.errors import UsageError
from netdissect.render.safe import safe

if TYPE_CHECKING:
    from netdissect.cli.plot_data import PlotData
    from netdissect.model.records import DatagramRecord
    from netdissect.model.reports import ConnectionReport
    from netdissect.pipeline.reports import Reports
    from netdissect.report.subject import Capture, Subject

MAX_DETAILED = 16
"""Maximum number of connections with a section of their own."""


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
@options.flag(
    "--redact", help="Replace addresses and names, and leave out text and bytes from packets."
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

    Its heading is the verdict. Six figures, plots on one time axis, findings, the slowest
    messages, the history of the slowest one, and one frame bit by bit follow. With several
    connections, it begins with a table of verdicts and has a section for each, worst first. The
    file loads nothing from the network.

    --from, --to and --around zoom the plots and select the slow messages; figures and findings
    are those of whole connections.

    With a second capture of the same conversation, taken elsewhere, it also shows what the
    network between the two did to each datagram.

    \b
    netdissect report game.pcap -o report.html
    netdissect report client.pcap server.pcap
    """
    refuse_input_as_output(output, [file, second])
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
    """Write the report on a capture and return its size in bytes.

    Args:
        session: the capture.
        output: the file to write; `-` = standard output.
        second: a second capture of the same conversation.
        redact: replace addresses and names, and leave out text and bytes from packets.
        part: the part of the capture to report on; None = all.

    """
    from netdissect.cli.plot_data import collect_plot_data, worst_first  # noqa: PLC0415
    from netdissect.report.document import document  # noqa: PLC0415

    ahead = session.first_look()
    part = part or Part()
    only = part.connections
    wanted = only[:MAX_DETAILED] or (None if ahead is None else worst_first(ahead)[:MAX_DETAILED])
    found = collect_plot_data(session, wanted, remember=True)
    # Check before writing, so that an invalid span does not destroy an older report.
    check_start(session.reader.info, part)
    check_connections(only, session.reports)
    numbers = [number for number in worst_first(session.reports) if not only or number in only]
    if second is None:
        contents = capture_of(session, found, numbers, redact=redact)
    else:
        contents = _of_two(session, second, found, numbers, redact=redact)
    contents.part = part.start, part.end
    return write_file(output, document(contents, redact=redact))


def capture_of(
    session: Session,
    found: PlotData,
    numbers: Sequence[int],
    *,
    redact: bool,
    observed: Reports | None = None,
) -> Capture:
    """Return the contents of the report, worst connections first.

    Args:
        session: the capture, which has been read.
        found: its plot data.
        numbers: the connections to report on, worst first.
        redact: replace addresses and names.
        observed: reports from two joined captures, to use instead of the session's.

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
        subject = _subject(report, found, detailed=place < MAX_DETAILED)
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
    """Return the contents of the report on two joined captures."""
    from netdissect.join import join  # noqa: PLC0415
    from netdissect.join.observed import Observed  # noqa: PLC0415
    from netdissect.plot.fates import delays  # noqa: PLC0415

    if "-" in {session.file, second}:
        raise UsageError(NO_STDIN)
    options = session.choices.options()
    with join(session.file, second, options=options) as joined:
        session.joined = joined.report.captures
        observed = Observed(joined, options.limits).reports()
        contents = capture_of(session, found, numbers, redact=redact, observed=observed)
        contents.join = joined.report
        zero = contents.info.first_time_ns or 0
        ways = [one.ways for one in joined.report.conversations if one.ways]
        if len(ways) == 1:
            contents.delays = [
                delays(joined.fates(way.sender), direction, zero, 0)
                for direction, way in enumerate(ways[0])
            ]
    return contents


def _subject(report: ConnectionReport, found: PlotData, *, detailed: bool) -> Subject:
    """Return what the report says about one connection; `detailed`: it has its own section."""
    from netdissect.diagnosis import diagnose  # noqa: PLC0415
    from netdissect.pipeline.passwords import mask_passwords  # noqa: PLC0415
    from netdissect.report.subject import Subject  # noqa: PLC0415

    number = report.connection
    subject = Subject(report, report.diagnosis or diagnose(report))
    if not detailed:
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
    """Return the frame to show bit by bit: the first retransmission of the slowest unit, otherwise
    its first copy, otherwise the frame that ended the connection.
    """
    records = {record.frame: record for record in subject.scene}
    if subject.worst is not None:
        copies = subject.worst.copies
        again = [copy.frame for copy in copies if copy.kind == "retransmission"]
        for number in (*again, copies[0].frame):
            if number in records:
                return records[number]
    return next(iter(ending), None)
