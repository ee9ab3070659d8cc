"""The sections of a report: the answer, six numbers, plots, findings, messages, the story of the
slowest one, a frame bit by bit, and what the report is based on.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from netdissect.model.joined import JoinReport
from netdissect.model.packets import SIDES, Direction
from netdissect.model.reports import UnitRecord
from netdissect.plot.chart import Chart
from netdissect.plot.charts import LOCAL_NOTE, Wanted, charts
from netdissect.plot.history import History, took_ms
from netdissect.plot.markup import Html, join, tag
from netdissect.render.diagnose import endings_text
from netdissect.render.units import counted, dialect_text, duration, in_brackets
from netdissect.report import frame, joined, ladder, tables
from netdissect.report.page import figure, page, zoom_tools
from netdissect.report.subject import Capture, Subject

MAX_BYTES: Final = 1_000_000
"""Size of a report at most, bytes: a browser shows that within 0.3 s."""
_RESERVE = 40_000
"""Bytes reserved for everything but the parts of connections and their rows."""
_ROW_BYTES = 700
_MARKS = 3000
"""Marks in one plot, if there is one connection; `_FEW_MARKS` if there are several."""
_FEW_MARKS = 700
_FEW_UNITS = 25
"""Messages listed per connection, if there are several."""
_NEVER_NS: Final = 1 << 62  # 146 years; it stays in 64 bits when a time is added


def document(capture: Capture, *, redact: bool = False) -> str:
    """Return a report as HTML."""
    several = capture.total > 1
    parts = _parts(capture, redact=redact)
    first_ns = capture.info.first_time_ns or 0
    span = (capture.info.last_time_ns or first_ns) - first_ns
    about = f" report  {capture.name} · {capture.info.frames:,} frames · {duration(span / 1e6)}"
    body = [
        tag("a", "To the report", class_="skip", href="#main"),
        tag(
            "header",
            tag("div", tag("b", "netdissect"), tag("span", about, class_="dim")),
            _navigation(capture, several=several),
            class_="top",
        ),
    ]
    main = [*_overview(capture, first_ns), *parts] if several else parts
    if capture.join is not None:
        main.append(_joined(capture, capture.join, redact=redact))
    if not capture.subjects:
        main = [tag("section", tag("h1", "No connection of a known protocol"), class_="verdict")]
    main.append(_about(capture, redact=redact))
    body.append(tag("main", *main, id="main"))
    return page(f"netdissect report: {capture.name}", *body)


def _navigation(capture: Capture, *, several: bool) -> Html:
    links = [("connections", "Connections")] if several else []
    if len(capture.subjects) == 1:
        number = capture.subjects[0].report.connection
        links = [(f"{name}-{number}", title) for name, title in _SECTIONS]
    if capture.join is not None:
        links.append(("between", "Two captures"))
    links.append(("about", "About"))
    return tag("nav", *(tag("a", title, href=f"#{name}") for name, title in links),
               aria_label="Sections")  # fmt: skip


_SECTIONS = (
    ("plots", "Plots"),
    ("findings", "Findings"),
    ("messages", "Messages"),
    ("ladder", "Ladder"),
    ("frame", "Frame"),
)


def _parts(capture: Capture, *, redact: bool) -> list[Html]:
    """Return the parts of the worst connections, as many as fit into MAX_BYTES. The others lose
    their history.
    """
    several = len(capture.subjects) > 1
    left = MAX_BYTES - _RESERVE - _ROW_BYTES * min(len(capture.subjects), tables.MAX_ROWS)
    parts: list[Html] = []
    for subject in capture.subjects:
        if subject.history is None:
            continue
        made = _part(capture, subject, folded=several, redact=redact)
        size = len(made.encode("utf-8", "replace"))
        if size > left:
            subject.history = None
            continue
        left -= size
        if several:
            made = _folded(subject, made, opened=not parts)
        parts.append(made)
    return parts


def _folded(subject: Subject, part: Html, *, opened: bool) -> Html:
    report = subject.report
    ends = f"  {report.protocol} · {report.client} → {report.server}"
    summary = tag(
        "summary",
        tables.severity(subject.severity),
        f" Connection {report.connection}: {subject.diagnosis.verdict}",
        tag("span", ends, class_="dim"),
    )
    return tag("details", summary, part, id=f"c{report.connection}", open=opened)


def _overview(capture: Capture, first_ns: int) -> Iterator[Html]:
    """Yield the answer for several connections, and the table of them."""
    worst = capture.subjects[0]
    count = capture.total
    heading = (
        f"{count:,} connections. The worst is {worst.report.connection}: {worst.diagnosis.verdict}"
    )
    kinds = endings_text(capture.endings)
    yield tag("section", tag("h1", heading), tag("p", kinds, class_="lead"), class_="verdict")
    detailed = sum(subject.history is not None for subject in capture.subjects)
    note = "“From” counts from the beginning of the capture, other times from that of a connection."
    if detailed < count:
        note += f" {detailed} of {count:,} have a part of their own below, the worst first."
    yield tag(
        "section",
        tag("h2", "Connections, worst first"),
        _search("connections-q", "name, port, left"),
        *tables.overview(capture.subjects, capture.total, first_ns),
        tag("p", note, class_="dim"),
        id="connections",
    )


def _search(name: str, example: str) -> Html:
    return tag(
        "p",
        tag("label", "Search", for_=name),
        tag("input", id=name, type="search", placeholder=example, autocomplete="off"),
        tag("span", class_="count", role="status"),
        class_="tools",
        hidden=True,
    )


def _part(capture: Capture, subject: Subject, *, folded: bool, redact: bool) -> Html:
    """Return everything about one connection."""
    report, history = subject.report, subject.history
    zero, span = report.first_time_ns, capture.span(subject)
    name = str(report.connection)
    found = [] if history is None else history.findings
    table = tables.findings(report, found, capture.codes, zero)
    story = _story(subject, zero, redact=redact)
    sections = [
        _verdict(subject, folded=folded),
        tables.tiles(subject, f"ladder-{name}" if story else None),
        _plots(subject, name, Wanted(None, *span), folded=folded),
    ]
    if table is not None:
        box = tag("div", table, class_="scroll", tabindex="0", role="group", aria_label="Findings")
        sections.append(tag("section", tag("h2", "Findings"), box, id=f"findings-{name}"))
    units = [] if history is None else _within(history, span)[: _FEW_UNITS if folded else None]
    if units:
        total = sum(space.units for space in report.spaces)
        title = "Messages, slowest first"
        more = (
            f"The {len(units):,} slowest of {total:,} numbered units."
            if total > len(units)
            else None
        )
        sections.append(
            tag("section", tag("h2", title), _search(f"q-{name}", "17, notify, #221"),
                tables.messages(units, zero), more and tag("p", more, class_="dim"),
                id=f"messages-{name}")
        )  # fmt: skip
    if story is not None:
        sections.append(story)
    if subject.frame is not None:
        sections.append(
            tag("section", tag("h2", f"Frame {subject.frame.frame}, bit by bit"),
                frame.shown(subject.frame, zero, redact=redact), id=f"frame-{name}")
        )  # fmt: skip
    return join(*sections)


def _verdict(subject: Subject, *, folded: bool) -> Html:
    """Return the answer, its cause, and what it is based on."""
    report, found = subject.report, subject.diagnosis
    name = in_brackets(found.names[0])
    ends = join(tag("code", report.client), f"{name} → ", tag("code", report.server))
    head = f"Connection {report.connection} · {dialect_text(report.dialects)} over "
    place = "at an unknown point" if report.vantage == "unknown" else f"at the {report.vantage}"
    blamed = found.cause.what not in {"none", "closed"}
    basis = [
        ("Confidence", found.cause.confidence if blamed else ""),
        ("Captured", place),
        ("Ruled out", "; ".join(found.ruled_out)),
        ("To settle it", found.settles or ""),
    ]
    return tag(
        "section",
        tag("p", f"{head}{report.transport.upper()} · ", ends, class_="conn"),
        # The summary of a folded part says it already.
        None if folded else tag("h1", found.verdict),
        tag("p", found.cause.text, class_="lead"),
        *(tag("p", tag("b", title), text, class_="basis") for title, text in basis if text),
        class_="verdict",
    )


def _within(history: History, span: tuple[int | None, int | None]) -> list[UnitRecord]:
    """Return the slowest units that have a copy in a span."""
    zero = history.first_ns or 0
    low = zero if span[0] is None else zero + span[0]
    high = _NEVER_NS if span[1] is None else zero + span[1]
    return [
        unit
        for unit in history.slowest()
        if any(low <= copy.time_ns <= high for copy in unit.copies)
    ]


def _plots(subject: Subject, name: str, asked: Wanted, *, folded: bool) -> Html | None:
    found = list(_charts(subject, asked))
    if not found:
        return None
    most = _FEW_MARKS if folded else _MARKS
    figures = [
        figure(chart, f"{chart.kind}-{name}-{index}", most=most)
        for index, chart in enumerate(found)
    ]
    return tag("section", tag("h2", "What happened, in time"), zoom_tools(), *figures,
               id=f"plots-{name}")  # fmt: skip


def _charts(subject: Subject, asked: Wanted) -> Iterator[Chart]:
    """Yield the plots that are worth their room: times until acknowledgement in both directions,
    numbers around the slowest unit, rates, and snapshots and silences if there are any.
    """
    history = subject.history
    if history is None:
        return
    acks = charts("acks", history, asked)
    yield from [chart for chart in acks if LOCAL_NOTE not in chart.notes] or acks
    way = Direction.C2S if subject.worst is None else Direction(subject.worst.direction)
    space = None if subject.worst is None else subject.worst.space
    for chart in charts("seq", history):
        if chart.direction == way and space is not None and chart.said.startswith(f"{space} "):
            yield chart
    yield from charts("rate", history, asked)
    yield from charts("snapshots", history, asked)
    yield from (chart for chart in charts("gaps", history, asked) if chart.bands)


def _story(subject: Subject, zero: int, *, redact: bool) -> Html | None:
    """Return the ladder of the slowest unit, and its story."""
    unit = subject.worst
    if unit is None or not subject.scene:
        return None
    title = _question(unit)
    near = subject.report.vantage == SIDES[unit.direction]
    drawn = ladder.drawn(subject.scene, zero, f"Sequence diagram: {title}", redact=redact)
    box = tag("div", drawn, class_="scroll", tabindex="0", role="group",
              aria_label="Ladder, scrolls sideways")  # fmt: skip
    steps = tag(
        "ol", *(tag("li", step) for step in ladder.story(unit, zero, near=near)), class_="story"
    )
    note = tag("p", "Datagrams between these are left out.", class_="dim") if subject.cut else None
    return tag(
        "section", tag("h2", title), tag("div", box, tag("div", steps, note), class_="two"),
        id=f"ladder-{subject.report.connection}",
    )  # fmt: skip


def _question(unit: UnitRecord) -> str:
    taken = took_ms(unit)
    if taken is None:
        return f"What became of {unit.space} {unit.seq}"
    return f"Why {unit.space} {unit.seq} took {duration(taken)}"


def _joined(capture: Capture, report: JoinReport, *, redact: bool) -> Html:
    """Return what the network between two captures did."""
    figures = [
        figure(chart, f"delay-{index}", most=_MARKS) for index, chart in enumerate(capture.delays)
    ]
    drawn = tag("div", zoom_tools(), *figures) if figures else None
    parts = joined.between(report, redact=redact)
    return tag("section", tag("h2", "Between the two captures"), *parts, drawn, id="between")


def _about(capture: Capture, *, redact: bool) -> Html:
    info = capture.info
    links = ", ".join(info.link_types)
    source = "one capture file" if capture.join is None else "two capture files, the first"
    first = (
        f"Made by netdissect {capture.version} from {source} ({info.format}, {links}) of "
        f"{counted(info.frames, 'frame')}; nothing was loaded from a network and nothing will be."
    )
    words = (
        "A dash means that this capture cannot tell, never zero. “Never seen” is a number of which "
        "no copy is in the file; “lost” is said only where the place of the capture or the "
        "protocol itself proves it. “~” stands before a time that may belong to another copy."
    )
    limits = [f"{name} ({counted(count, 'time')})" for name, count in capture.limits.items()]
    remarks = [
        "Addresses and names are replaced by words that stay the same throughout; texts and bytes "
        "from packets are left out."
        if redact
        else None,
        f"The file is cut short at offset {info.truncated_at:,}; everything before it was read."
        if info.truncated_at is not None
        else None,
        f"The capture says that it lost {counted(info.drops, 'packet')}." if info.drops else None,
        f"Of no known protocol: {counted(capture.other_datagrams, 'datagram')}."
        if capture.other_datagrams
        else None,
        f"Bounds that were reached: {', '.join(limits)}." if limits else None,
        *(
            f"Connection {subject.report.connection} was captured at the {subject.report.vantage}: "
            f"{subject.report.vantage_basis}."
            for subject in capture.subjects[:4]
            if subject.report.vantage_basis and subject.report.vantage in {"client", "server"}
        ),
    ]
    return tag(
        "section",
        tag("h2", "About this report"),
        tag("p", first),
        tag("p", words),
        *(tag("p", line) for line in remarks if line),
        id="about",
    )
