"""A connection as a sequence diagram of two lanes: in the terminal, as SVG and as Mermaid.

All three draw the same rows, so they show the same thing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from xml.sax.saxutils import escape

from netdissect.model.packets import Direction
from netdissect.model.records import DatagramRecord, MessageRecord
from netdissect.model.reports import ConnectionEvent, UnitRecord
from netdissect.render.console import Line, cells, fit
from netdissect.render.safe import safe
from netdissect.render.summary import datagram_summary
from netdissect.render.units import Clock, duration

__all__ = ["MAX_WIDTH", "MIN_WIDTH", "SILENCE_MS", "Row", "ladder_lines", "mermaid", "rows", "svg"]

MIN_WIDTH, MAX_WIDTH = 60, 200
"""Columns of the drawing."""

SILENCE_MS = 1000.0
"""A pause at least this long is drawn as a gap, milliseconds."""

_TIME_COLUMNS = 12
_FRAME_COLUMNS = 8
_LABEL_LIMIT = 120


@dataclass(frozen=True, slots=True)
class Row:
    """One arrow, or one remark across both lanes."""

    time_ns: int
    direction: int | None
    """`Direction`; None for a remark."""
    label: str
    """Safe text."""
    mark: str
    """`""`, `resend`, `duplicate`, `lost` (never arrived, proven) or `event`."""
    frame: int | None


def rows(
    records: Iterable[tuple[DatagramRecord, list[MessageRecord]]],
    events: Iterable[ConnectionEvent] = (),
    lost: frozenset[int] = frozenset(),
    segments: Iterable[UnitRecord] = (),
) -> list[Row]:
    """Return the rows of a connection, in time.

    Args:
        records: its datagrams with the messages that are wanted.
        events: state changes and timeouts, drawn across both lanes.
        lost: frames whose datagram is proven not to have arrived.
        segments: octets of a TCP stream, whose further copies are drawn.

    """
    found = [
        _arrow(record, items, lost) for record, items in records if record.direction is not None
    ]
    found = _with_segments(found, segments)
    found += [
        Row(
            event.time_ns,
            None,
            safe(f"{event.event}: {event.text}", _LABEL_LIMIT),
            "event",
            event.frame,
        )
        for event in events
    ]
    # A remark stands after the arrow that caused it.
    return sorted(found, key=lambda row: (row.time_ns, row.frame or 0, row.direction is None))


def _with_segments(arrows: list[Row], segments: Iterable[UnitRecord]) -> list[Row]:
    """Return the arrows of messages, marked where a further copy of octets completed them, and one
    for each other segment that repeats octets.
    """
    again: dict[int, Row] = {}
    for unit in segments:
        for copy in unit.copies:
            if copy.kind != "original" and copy.frame not in again:
                last = unit.seq + int(unit.extra.get("length", 1)) - 1
                word, mark = _AGAIN[copy.kind]
                label = f"octets {unit.seq} to {last} {word}"
                again[copy.frame] = Row(copy.time_ns, unit.direction, label, mark, copy.frame)
    marked = [
        replace(arrow, mark=again.pop(arrow.frame).mark) if arrow.frame in again else arrow
        for arrow in arrows
    ]
    return [*marked, *again.values()]


_AGAIN = {"retransmission": ("sent again", "resend"), "duplicate": ("copied", "duplicate")}
"""Kind of a copy -> word and mark."""


def _arrow(record: DatagramRecord, items: list[MessageRecord], lost: frozenset[int]) -> Row:
    kinds = {item.reliability.kind for item in items if item.reliability is not None}
    mark = "resend" if "retransmission" in kinds else "duplicate" if "duplicate" in kinds else ""
    if record.frame in lost:
        mark = "lost"
    label = safe(datagram_summary(record, items), _LABEL_LIMIT)
    return Row(record.time_ns, record.direction, label, mark, record.frame)


def ladder_lines(
    drawn: Iterable[Row], ends: tuple[str, str], clock: Clock, *, width: int
) -> Iterator[Line]:
    """Yield the drawing: absolute time above the time since the row before, the label above its
    arrow.

    Args:
        drawn: rows in time.
        ends: names of the client's and the server's lane.
        clock: how times are written.
        width: columns, brought into MIN_WIDTH to MAX_WIDTH.

    """
    width = min(MAX_WIDTH, max(MIN_WIDTH, width))
    inner = width - _TIME_COLUMNS - _FRAME_COLUMNS - 3
    yield _heads(ends, inner)
    last: int | None = None
    for row in drawn:
        if last is not None and (row.time_ns - last) / 1e6 >= SILENCE_MS:
            yield _gap(row.time_ns - last, inner)
        since = "" if last is None else f"+{duration((row.time_ns - last) / 1e6)}"
        yield from (
            _remark(row, clock, inner)
            if row.direction is None
            else _drawn(row, clock, since, inner)
        )
        last = row.time_ns


def _heads(ends: tuple[str, str], inner: int) -> Line:
    half = inner // 2
    left, right = fit(safe(ends[0]), half), fit(safe(ends[1]), inner - half - 1)
    space = inner + 2 - cells(left) - cells(right)
    return [
        (" " * (_TIME_COLUMNS + 1), ""),
        (left, "c2s"),
        (" " * max(1, space), ""),
        (right, "s2c"),
    ]


def _gap(nanoseconds: int, inner: int) -> Line:
    text = f" silence of {duration(nanoseconds / 1e6)} "
    return [(" " * (_TIME_COLUMNS + 1) + "┊", "dim"), (f"{text:·^{inner}}", "dim"), ("┊", "dim")]


def _remark(row: Row, clock: Clock, inner: int) -> Iterator[Line]:
    yield [
        (f"{clock.show(row.time_ns):>{_TIME_COLUMNS}} ", "time"),
        ("│", "dim"),
        (_centred(f" {row.label} ", inner, "─"), "note"),
        ("│", "dim"),
    ]


def _centred(text: str, width: int, fill: str) -> str:
    text = fit(text, width)
    left = (width - cells(text)) // 2
    return fill * left + text + fill * (width - cells(text) - left)


def _drawn(row: Row, clock: Clock, since: str, inner: int) -> Iterator[Line]:
    style = {"resend": "resend", "duplicate": "duplicate", "lost": "bad"}.get(row.mark, "")
    label = fit(row.label, inner - 2)
    padded = f" {label}{' ' * (inner - 1 - cells(label))}"
    if row.direction == Direction.S2C:
        padded = f"{' ' * (inner - 1 - cells(label))}{label} "
    yield [
        (f"{clock.show(row.time_ns):>{_TIME_COLUMNS}} ", "time"),
        ("│", "dim"),
        (padded, style),
        ("│", "dim"),
        (f" #{row.frame}" if row.frame is not None else "", "frame"),
    ]
    yield [
        (f"{since:>{_TIME_COLUMNS}} ", "dim"),
        ("│", "dim"),
        (_shaft(row, inner), style or ("c2s" if row.direction == Direction.C2S else "s2c")),
        ("│", "dim"),
    ]


def _shaft(row: Row, inner: int) -> str:
    """Return the arrow: `»` for a resend, `○` for a network copy, half of it and `╳` for a loss."""
    sign = {"resend": "»", "duplicate": "○"}.get(row.mark, "─")
    if row.mark == "lost":
        half = inner // 2
        body = "─" * half + "╳" + " " * (inner - half - 1)
        return body if row.direction == Direction.C2S else body[::-1]
    body = "─" * 2 + sign * 2 + "─" * (inner - 5)
    return body + "▶" if row.direction == Direction.C2S else "◀" + body[::-1]


_SVG_STYLE = (
    "text{font:12px monospace;fill:#222}line,path{stroke:#555;fill:none}"
    ".time{fill:#777}.resend{stroke:#b58900}.duplicate{stroke:#8a3ab9}.lost{stroke:#c0392b}.event{fill:#2b6cb0}"
)
_SVG_WIDTH, _SVG_LEFT, _SVG_RIGHT, _SVG_ROW = 900, 130, 820, 34


def svg(drawn: Iterable[Row], ends: tuple[str, str], clock: Clock) -> str:
    """Return the diagram as an SVG document."""
    body: list[str] = []
    top = 60
    last: int | None = None
    for row in drawn:
        if last is not None and (row.time_ns - last) / 1e6 >= SILENCE_MS:
            body.append(
                _svg_text(
                    475, top, f"silence of {duration((row.time_ns - last) / 1e6)}", "time", "middle"
                )
            )
            top += _SVG_ROW
        last = row.time_ns
        body += _svg_row(row, top, clock)
        top += _SVG_ROW
    lanes = [f'<line x1="{x}" y1="40" x2="{x}" y2="{top}"/>' for x in (_SVG_LEFT, _SVG_RIGHT)]
    heads = [
        _svg_text(_SVG_LEFT, 24, safe(ends[0]), "", "middle"),
        _svg_text(_SVG_RIGHT, 24, safe(ends[1]), "", "middle"),
    ]
    marker = (
        '<defs><marker id="a" markerWidth="8" markerHeight="8" refX="8" refY="4" orient="auto">'
        '<path d="M0,0 L8,4 L0,8"/></marker></defs>'
    )
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{_SVG_WIDTH}" height="{top + 20}">',
            f"<style>{_SVG_STYLE}</style>{marker}",
            '<rect width="100%" height="100%" fill="white"/>',
            *heads,
            *lanes,
            *body,
            "</svg>\n",
        ]
    )


def _svg_text(x: int, y: int, text: str, name: str, anchor: str) -> str:
    return f'<text x="{x}" y="{y}" class="{name}" text-anchor="{anchor}">{escape(text)}</text>'


def _svg_row(row: Row, top: int, clock: Clock) -> Iterator[str]:
    yield _svg_text(_SVG_LEFT - 10, top + 4, clock.show(row.time_ns), "time", "end")
    middle = (_SVG_LEFT + _SVG_RIGHT) // 2
    if row.direction is None:
        yield _svg_text(middle, top + 4, row.label, "event", "middle")
        return
    start, end = (
        (_SVG_LEFT, _SVG_RIGHT) if row.direction == Direction.C2S else (_SVG_RIGHT, _SVG_LEFT)
    )
    sign = {"resend": "» ", "duplicate": "○ ", "lost": "╳ "}.get(row.mark, "")
    yield _svg_text(middle, top - 5, fit(sign + row.label, 90), "", "middle")
    if row.mark == "lost":
        yield f'<line class="lost" x1="{start}" y1="{top}" x2="{middle}" y2="{top}"/>'
        yield f'<path class="lost" d="M{middle - 5},{top - 5} l10,10 m0,-10 l-10,10"/>'
    else:
        dashes = ' stroke-dasharray="6 3"' if row.mark else ""
        place = f'x1="{start}" y1="{top}" x2="{end}" y2="{top}"'
        yield f'<line class="{row.mark}" {place}{dashes} marker-end="url(#a)"/>'
    if row.frame is not None:
        yield _svg_text(_SVG_RIGHT + 10, top + 4, f"#{row.frame}", "time", "start")


def mermaid(drawn: Iterable[Row], ends: tuple[str, str], clock: Clock) -> str:
    """Return the diagram in Mermaid's language."""
    lines = [
        "sequenceDiagram",
        f"    participant C as {_mermaid(ends[0])}",
        f"    participant S as {_mermaid(ends[1])}",
    ]
    for row in drawn:
        text = _mermaid(f"{clock.show(row.time_ns)} {row.label}")
        if row.direction is None:
            lines.append(f"    Note over C,S: {text}")
            continue
        arrow = {"": "->>", "resend": "-->>", "duplicate": "-->>", "lost": "-x"}[row.mark]
        one, other = ("C", "S") if row.direction == Direction.C2S else ("S", "C")
        word = {"resend": "resend: ", "duplicate": "copy: ", "lost": "lost: "}.get(row.mark, "")
        lines.append(f"    {one}{arrow}{other}: {word}{text}")
    return "\n".join(lines) + "\n"


def _mermaid(text: str) -> str:
    """Return text without the characters that mean something to Mermaid, as its entity codes."""
    shown = safe(text, _LABEL_LIMIT)
    return "".join(
        char if char.isalnum() or char in " .:=_+-,/()[]" else f"#{ord(char)};" for char in shown
    )
