"""`netdissect plot`: plots a connection over time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from netdissect.cli import options
from netdissect.cli.output import Look, one_view, print_json, refuse_input_as_output, write_file
from netdissect.cli.session import Choices, Session
from netdissect.cli.spans import LENGTH, Part, Whole, no_such_connection
from netdissect.model.errors import UsageError
from netdissect.model.text import parse_count, quoted
from netdissect.plot.charts import KINDS, Wanted, charts, compare
from netdissect.plot.rows import COLUMNS, rows
from netdissect.plot.thin import MAX_POINTS
from netdissect.render.console import Screen

if TYPE_CHECKING:
    from netdissect.plot.chart import Chart
    from netdissect.plot.history import History

MAX_EXPORTED = 1_000_000
"""Maximum number of points of each kind in .csv, .json and --json."""
MAX_COMPARED = 8
"""Maximum number of connections in one plot."""
_TOO_MANY = f"at most {MAX_COMPARED} connections fit in one plot."
_ENDINGS = (".svg", ".html", ".csv", ".json")


class _Numbers(click.ParamType):  # type: ignore[type-arg]  # generic since click 8.2 only
    """One connection or several: `1`, `1,3`."""

    name = "connections"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[int, ...]:
        """Return the numbers, each once."""
        if isinstance(value, tuple):
            return value
        words = str(value).split(",")
        numbers = tuple(dict.fromkeys(parse_count(word) or 0 for word in words))
        if 0 in numbers:
            self.fail(f"{quoted(value)} is not a connection; write 1, or 1,3.", param, ctx)
        if len(numbers) > MAX_COMPARED:
            self.fail(_TOO_MANY, param, ctx)
        return numbers


class _Drawing(NamedTuple):
    """The options that are specific to plots."""

    output: str | None
    """File to write; None = draw on the terminal."""
    space: str | None
    interval: int | None
    """Nanoseconds."""
    octets: bool
    height: int | None
    plain: bool
    as_json: bool

    @property
    def exports(self) -> bool:
        """Whether the output is points for other programs."""
        return self.as_json or (self.output or "").endswith((".csv", ".json"))


@click.command("plot")
@click.argument("kind", type=click.Choice(list(KINDS)))
@options.capture({"connections": _Numbers()})
@click.option(
    "-o",
    "--output",
    type=click.Path(dir_okay=False),
    metavar="FILE",
    help="Write the plot (.svg, .html) or its points (.csv, .json) to a file.",
)
@options.part
@click.option("--space", metavar="NAME", help="Only units of this space, such as reliable.")
@click.option("--interval", type=LENGTH, metavar="TIME", help="Length of an interval of `rate`.")
@options.flag("--bytes", "octets", help="Plot `rate` in bytes instead of units.")
@click.option(
    "--height", type=Whole(4, 100), metavar="N", help="Height of the plot in rows."
)
@options.flag("--ascii", "plain", help="Use only ASCII characters.")
@options.json_output
@options.analysis
@options.screen
@options.grouped("drawing", lambda: _Drawing)
def command(
    kind: str,
    file: str,
    connections: tuple[int, ...] | None,
    drawing: _Drawing,
    part: Part,
    choices: Choices,
    look: Look,
) -> int:
    """Plot a connection over time, on the terminal or into a file.

    Kinds: acks (how long each unit waited for its acknowledgement), seq (sequence numbers around
    the slowest unit), rate (units per interval, lost and retransmitted ones marked), rtt
    (round-trip times of units and probes), queue (units in flight), gaps (when each side was
    silent), snapshots (if the protocol has them).

    Without a number, the connection with the worst findings is plotted; `1,3` compares two.
    Times count from the first frame of the connection.

    \b
    netdissect plot acks game.pcap
    netdissect plot seq game.pcap 1 --from 3s --to 5s -o seq.svg
    """
    output = drawing.output
    one_view(("--json", drawing.as_json), ("-o", output is not None))
    if (drawing.octets or drawing.interval is not None) and kind != "rate":
        raise UsageError("--bytes and --interval only apply to `rate`")
    if output is not None and not output.endswith(_ENDINGS):
        raise UsageError(f"the name of the -o file must end in {' or '.join(_ENDINGS)}")
    refuse_input_as_output(output or "-", [file])
    start, end = part.start, part.end
    if part.connections and connections is None:
        if len(part.connections) > MAX_COMPARED:
            raise UsageError(_TOO_MANY)
        connections = part.connections
    from netdissect.cli.plot_data import collect_plot_data, worst_first  # noqa: PLC0415

    with Session(file, choices, quiet=look.quiet) as session:
        limit = MAX_EXPORTED if drawing.exports else MAX_POINTS
        # The worst connection is known only when the whole capture has been read.
        ahead = None if connections else session.first_look()
        wanted = connections if ahead is None else worst_first(ahead)[:1]
        found = collect_plot_data(session, wanted, span=_span(start, end), limit=limit)
        screen = look.screen()
        if not session.reports:
            if not drawing.as_json:
                screen.text("No connection of a known protocol.")
            return session.status()
        numbers = connections or worst_first(session.reports)[:1]
        histories = [_history(found.gallery.histories, number, session) for number in numbers]
        selection = Wanted(drawing.space, start, end, drawing.interval, drawing.octets)
        _check_space(histories, drawing.space)
        drawn = [chart for history in histories for chart in charts(kind, history, selection)]
        if not drawn:
            raise UsageError(f"{_who(histories)} nothing to plot as {quoted(kind)}")
        if len(numbers) > 1:
            compare(drawn)
        _put(screen, drawn, drawing)
        others = len(session.reports) - len(numbers)
        if connections is None and others and output is None and not drawing.as_json:
            screen.line((f" connection {numbers[0]} of {others + 1}", "dim"))
        return session.status()


def _span(start: int | None, end: int | None) -> tuple[int, int] | None:
    """Return the requested span in nanoseconds; None if none was requested."""
    # An open end is 1 << 62 ns: 146 years.
    return None if start is None and end is None else (start or 0, 1 << 62 if end is None else end)


def _history(histories: dict[int, History], number: int, session: Session) -> History:
    history = histories.get(number)
    if history is None or history.report is None:
        raise no_such_connection(number, session.reports)
    return history


def _check_space(histories: Sequence[History], space: str | None) -> None:
    """Raise UsageError if no connection has this sequence space."""
    spaces = sorted({name for history in histories for _, name in history.tracks})
    if space is not None and space not in spaces:
        known = ", ".join(spaces) or "none"
        raise UsageError(f"{_who(histories)} no space {quoted(space)}; known: {known}")


def _who(histories: Sequence[History]) -> str:
    """Return the start of a sentence on what connections have."""
    numbers = ", ".join(str(history.connection) for history in histories)
    return f"connection {numbers} has" if len(histories) == 1 else f"connections {numbers} have"


def _put(screen: Screen, drawn: Sequence[Chart], drawing: _Drawing) -> None:
    """Draw the charts on the screen or into a file, or print their points."""
    if drawing.as_json:
        print_json({"schema": 1, **row} for chart in drawn for row in rows(chart))
    elif drawing.output is None:
        _on_screen(screen, drawn, drawing.height, plain=drawing.plain)
    else:
        text = _document(drawn, Path(drawing.output).suffix, f"{KINDS[drawn[0].kind][1]}")
        write_file(drawing.output, text)


def _document(drawn: Sequence[Chart], ending: str, heading: str) -> str:
    """Return the charts as the text of a file."""
    found: Iterator[dict[str, Any]] = (row for chart in drawn for row in rows(chart))
    if ending == ".svg":
        from netdissect.plot.svg import document  # noqa: PLC0415

        return document(drawn)
    if ending == ".html":
        from netdissect.report.page import plots  # noqa: PLC0415

        return plots(drawn, heading[0].upper() + heading[1:])
    if ending == ".json":
        from netdissect.export.jsonline import dump  # noqa: PLC0415

        return "[\n" + ",\n".join(dump({"schema": 1, **row}) for row in found) + "\n]\n"
    from io import StringIO  # noqa: PLC0415

    from netdissect.export.table import write_columns  # noqa: PLC0415

    text = StringIO()
    write_columns(text, COLUMNS, found)
    return text.getvalue()


def _on_screen(screen: Screen, drawn: Sequence[Chart], height: int | None, *, plain: bool) -> None:
    from netdissect.plot.terminal import HEIGHT, draw  # noqa: PLC0415

    plain = plain or not (getattr(screen.stream, "encoding", None) or "utf-8").lower().startswith(
        "utf"
    )
    width = 100 if screen.wide else screen.width
    for index, chart in enumerate(drawn):
        if index:
            screen.text()
        screen.lines(draw(chart, width=width, height=height or HEIGHT, plain=plain))
