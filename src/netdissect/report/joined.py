"""The section about two captures: what the network between them did."""

from __future__ import annotations

from collections.abc import Iterator

from netdissect.model.joined import JoinedConnection, JoinReport, WayReport
from netdissect.plot.markup import Html, tag
from netdissect.render.join import KINDS, clock_lines
from netdissect.render.units import arrow_of, duration, percent

_HEADS = ("Way", "Sent", "Delivered", "Lost", "Copied", "Out of order", "Not compared",
          "One-way delay", "Jitter", "Resends needed", "Spurious")  # fmt: skip


def sentence(report: JoinReport) -> str | None:
    """Return what was lost between the two captures; None if no datagram could be compared."""
    parts = []
    for direction in (0, 1):
        ways = [one.ways[direction] for one in report.conversations if len(one.ways) > direction]
        sent = sum(way.delivered + way.lost + way.unseen for way in ways)
        lost = sum(way.lost for way in ways)
        if sent:
            side = ("client to server", "server to client")[direction]
            parts.append(f"{lost:,} of {sent:,} datagrams ({percent(lost / sent)}) from {side}")
    if not parts:
        return None
    return f"Between the two captures were lost {' and '.join(parts)}."


def between(report: JoinReport, *, redact: bool) -> Iterator[Html]:
    """Yield the elements of the section about two captures."""
    for letter, info in zip("AB", report.captures, strict=True):
        name = "a capture" if redact else info.path.rpartition("/")[2]
        yield tag("p", tag("b", letter), f" {name}, {info.frames:,} frames", class_="conn")
    text = sentence(report)
    if text is not None:
        yield tag("p", text, class_="lead")
    if report.same_place:
        words = "Both were taken at the same place: what one of them lacks is not loss."
        yield tag("p", words, class_="lead")
    rows = [row for one in report.conversations for row in _rows(one)]
    if rows:
        head = tag(
            "tr", *(tag("th", name, class_="n" if n else None) for n, name in enumerate(_HEADS))
        )
        table = tag("table", tag("thead", head), tag("tbody", *rows), class_="cards")
        yield tag("div", table, class_="scroll", tabindex="0", role="group",
                  aria_label="Fates of datagrams")  # fmt: skip
    for one in report.conversations:
        if not one.ways:
            yield tag("p", f"Conversation {one.number} is {KINDS[one.kind]}.", class_="dim")
    yield tag(
        "p", tag("b", "Clocks"), " ".join(clock_lines(report.clock, ("A", "B"))), class_="basis"
    )


def _rows(one: JoinedConnection) -> Iterator[Html]:
    for direction, way in enumerate(one.ways):
        name = f"{one.number} {arrow_of(direction)} " + (
            "AB"[way.sender] + " to " + "AB"[1 - way.sender]
            if one.client is None
            else ("client to server", "server to client")[direction]
        )
        values = [name, *_figures(way)]
        cells = [
            tag("td", value, class_="n" if place else None, data_l=head.lower())
            for place, (head, value) in enumerate(zip(_HEADS, values, strict=True))
        ]
        yield tag("tr", *cells)


def _figures(way: WayReport) -> Iterator[str]:
    yield f"{way.sent:,}"
    yield f"{way.delivered:,}"
    yield f"{way.lost:,} ({percent(way.loss_share)})"
    yield f"{way.copies:,}"
    yield f"{way.reordered:,}"
    yield f"{way.outside + way.unseen + way.doubtful:,}"
    delay = way.delay
    span = f"{duration(delay.p50)} ({duration(delay.minimum)} to {duration(delay.maximum)})"
    yield span if delay.samples else "–"
    yield duration(way.jitter_ms) if way.jitter_ms is not None else "–"
    yield f"{way.resends.needed:,}"
    yield f"{way.resends.spurious:,}"
