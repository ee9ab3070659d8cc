"""A connection as a sequence diagram, in the terminal and as Mermaid text.

Both draw the same rows, as does `plot/ladder.py` for SVG.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from netdissect.model.joined import Fate, Flight
from netdissect.model.packets import Direction
from netdissect.model.records import DatagramRecord, MessageRecord
from netdissect.model.reports import ConnectionEvent, UnitRecord
from netdissect.render.console import Line, cells, fit, fit_end
from netdissect.render.safe import safe
from netdissect.render.summary import datagram_summary
from netdissect.render.units import COPIES, Clock, duration

MIN_WIDTH, MAX_WIDTH = 60, 200
"""Columns of the drawing."""

SILENCE_MS = 1000.0
"""A pause at least this long is drawn as a gap, milliseconds."""

_TIME_COLUMNS = 12
_FRAME_COLUMNS = 8
_LABEL_LIMIT = 120
"""Maximum length of a label in characters, as it may quote text from a packet."""


@dataclass(frozen=True, slots=True)
class Row:
    """One arrow, or a remark across both lanes."""

    time_ns: int
    direction: int | None
    """`Direction`; None for a remark."""
    label: str
    """Safe text."""
    mark: str
    """`""`, `resend`, `duplicate`, `unknown` (one of the two), `lost` (proven), `appeared` (its
    sending was not captured) or `event`."""
    frame: int | None
    arrived_ns: int | None = None
    """Time of arrival in the second capture, if there is one and it arrived; `time_ns` is then the
    time it was sent."""
    names: tuple[str, str] | None = None
    """With two captures: the names of its frame next to the client and next to the server, "" if it
    was not captured there."""


def rows(
    records: Iterable[tuple[DatagramRecord, list[MessageRecord]]],
    events: Iterable[ConnectionEvent] = (),
    lost: frozenset[int] = frozenset(),
    segments: Iterable[UnitRecord] = (),
) -> list[Row]:
    """Return the rows of a connection in time order.

    Args:
        records: its datagrams with the messages to show.
        events: state changes and timeouts, drawn as remarks.
        lost: frames whose datagram provably did not arrive.
        segments: bytes of a TCP stream, whose further copies are drawn.

    """
    arrows = [arrow(record, items) for record, items in records if record.direction is not None]
    return with_remarks(arrows, events, lost, segments)


def with_remarks(
    arrows: Iterable[Row],
    events: Iterable[ConnectionEvent],
    lost: frozenset[int],
    segments: Iterable[UnitRecord],
) -> list[Row]:
    """Return the rows of a connection in time order, as `rows` does, from its finished arrows."""
    found = [replace(row, mark="lost") if row.frame in lost else row for row in arrows]
    found = _with_segments(found, segments)
    for event in events:
        text = safe(f"{event.event}: {event.text}", _LABEL_LIMIT)
        found.append(Row(event.time_ns, None, text, "event", event.frame))
    return sorted(found, key=_place)


def _place(row: Row) -> tuple[int, int, bool]:
    # A remark follows the arrow that caused it.
    return row.time_ns, row.frame or 0, row.direction is None


def _with_segments(arrows: list[Row], segments: Iterable[UnitRecord]) -> list[Row]:
    """Return the arrows of messages, marked if a further copy of bytes completed them, and an
    arrow for each other segment that repeats bytes.
    """
    again: dict[int, Row] = {}
    for unit in segments:
        last = unit.seq + int(unit.extra.get("length", 1)) - 1
        for copy in unit.copies:
            if copy.kind != "original" and copy.frame not in again:
                label = f"bytes {unit.seq} to {last} {COPIES[copy.kind][2]}"
                again[copy.frame] = Row(
                    copy.time_ns, unit.direction, label, _MARKS[copy.kind], copy.frame
                )
    marked = [
        replace(arrow, mark=again.pop(arrow.frame).mark) if arrow.frame in again else arrow
        for arrow in arrows
    ]
    return [*marked, *again.values()]


_MARKS = {"retransmission": "resend", "duplicate": "duplicate", "unknown": "unknown"}
"""Kind of a further copy -> mark."""


def flight_rows(flights: Iterable[tuple[Flight, list[MessageRecord]]]) -> list[Row]:
    """Return the rows of a connection from two captures, in time order.

    Args:
        flights: its datagrams with their fates, and the messages to show.

    """
    found: list[Row] = []
    for flight, items in flights:
        record = flight.record
        if record.direction is None:
            continue
        partner = flight.fate.partner
        here = f"{'AB'[flight.capture]}#{record.frame}"
        there = "" if partner is None else f"{'AB'[1 - flight.capture]}#{partner}"
        # The record comes from the sender's capture, unless only the receiver's has it.
        of_sender = flight.fate.fate.sent or flight.arrived_ns is None
        sender_first = of_sender == (record.direction == Direction.C2S)
        row = arrow(record, items)
        mark = row.mark
        if flight.copy:
            mark = "duplicate"
        elif flight.sent_ns is None:
            mark = "appeared"
        elif flight.fate.fate is Fate.LOST:
            mark = "lost"
        row = replace(
            row,
            time_ns=flight.arrived_ns or 0 if flight.sent_ns is None else flight.sent_ns,
            mark=mark,
            arrived_ns=flight.arrived_ns,
            names=(here, there) if sender_first else (there, here),
        )
        found.append(row)
    return sorted(found, key=_place)


def arrow(record: DatagramRecord, items: list[MessageRecord]) -> Row:
    """Return the arrow of a datagram; some hundred bytes, whatever the datagram holds."""
    kinds = {item.reliability.kind for item in items if item.reliability is not None}
    mark = next((mark for kind, mark in _MARKS.items() if kind in kinds), "")
    label = safe(datagram_summary(record, items), _LABEL_LIMIT)
    return Row(record.time_ns, record.direction, label, mark, record.frame)


def ladder_lines(
    drawn: Iterable[Row], ends: tuple[str, str], clock: Clock, *, width: int
) -> Iterator[Line]:
    """Yield the lines of the diagram, two per arrow: the time and the label above the time since
    the previous row and the arrow.

    Args:
        drawn: rows in time order.
        ends: titles of the client's and the server's lane.
        clock: formats times.
        width: columns, limited to MIN_WIDTH to MAX_WIDTH.

    """
    width = min(MAX_WIDTH, max(MIN_WIDTH, width))
    inner = width - _TIME_COLUMNS - _FRAME_COLUMNS - 3
    margin = ""
    last: int | None = None
    for row in drawn:
        if last is None:
            if row.names is not None:
                # With two captures, the right side has its own times and frames.
                inner = max(MIN_WIDTH // 2, inner - _TIME_COLUMNS - _FRAME_COLUMNS)
                margin = " " * _FRAME_COLUMNS
            yield [(margin, ""), *_heads(ends, inner)]
        elif (row.time_ns - last) / 1e6 >= SILENCE_MS:
            yield [(margin, ""), *_gap(row.time_ns - last, inner)]
        since = "" if last is None else f"+{duration((row.time_ns - last) / 1e6)}"
        if row.direction is None:
            yield [(margin, ""), *_remark(row, clock, inner)]
        else:
            yield from _drawn(row, clock, since, inner)
        last = row.time_ns


def _heads(ends: tuple[str, str], inner: int) -> Line:
    half = inner // 2
    left, right = _end(ends[0], half), _end(ends[1], inner - half - 1)
    space = " " * max(1, inner + 2 - cells(left) - cells(right))
    return [(" " * (_TIME_COLUMNS + 1), ""), (left, "c2s"), (space, ""), (right, "s2c")]


def _end(name: str, width: int) -> str:
    """Return the title of a lane; a long address is cut at its start, so that the port is shown."""
    shown = safe(name)
    side, _, address = shown.partition(" ")
    left = width - cells(side) - 2
    if cells(shown) <= width or left < 1:
        return fit(shown, width)
    return f"{side} {fit_end(address, left + 1)}"


def _gap(nanoseconds: int, inner: int) -> Line:
    text = f" silence of {duration(nanoseconds / 1e6)} "
    return [(" " * (_TIME_COLUMNS + 1) + "┊", "dim"), (f"{text:·^{inner}}", "dim"), ("┊", "dim")]


def _remark(row: Row, clock: Clock, inner: int) -> Line:
    return [
        (f"{clock.show(row.time_ns):>{_TIME_COLUMNS}} ", "time"),
        ("│", "dim"),
        (_centred(f" {row.label} ", inner, "─"), "note"),
        ("│", "dim"),
    ]


def _centred(text: str, width: int, fill: str) -> str:
    text = fit(text, width)
    left = (width - cells(text)) // 2
    return fill * left + text + fill * (width - cells(text) - left)


_STYLES = {"resend": "resend", "duplicate": "duplicate", "unknown": "note", "lost": "bad"}
"""Mark -> style of its arrow."""


def _drawn(row: Row, clock: Clock, since: str, inner: int) -> Iterator[Line]:
    style = _STYLES.get(row.mark, "")
    label = fit(row.label, inner - 2)
    padded = f" {label}{' ' * (inner - 1 - cells(label))}"
    if row.direction == Direction.S2C:
        padded = f"{' ' * (inner - 1 - cells(label))}{label} "
    shaft = (_shaft(row, inner), style or ("c2s" if row.direction == Direction.C2S else "s2c"))
    bar = ("│", "dim")
    if row.names is not None:
        yield from _slanted(row, clock, [bar, (padded, style), bar], [bar, shaft, bar])
        return
    yield [
        (f"{clock.show(row.time_ns):>{_TIME_COLUMNS}} ", "time"),
        bar,
        (padded, style),
        bar,
        (f" #{row.frame}" if row.frame is not None else "", "frame"),
    ]
    yield [(f"{since:>{_TIME_COLUMNS}} ", "dim"), bar, shaft, bar]


def _slanted(row: Row, clock: Clock, above: Line, below: Line) -> Iterator[Line]:
    """Yield a row from two captures: the time sent beside the sender's lane, and one line lower the
    time of arrival beside the receiver's.
    """
    near, far = row.names or ("", "")
    seen_sent, came = row.mark != "appeared", row.arrived_ns is not None
    sent = clock.show(row.time_ns) if seen_sent else ""
    arrived = clock.show(row.arrived_ns) if came else ""
    took = ""
    if row.arrived_ns is not None and seen_sent:
        took = f"+{duration((row.arrived_ns - row.time_ns) / 1e6)}"
    ways = [((near, sent), ("", "")), (("", took), (far, arrived))]
    if row.direction == Direction.S2C:
        ways = [(("", ""), (far, sent)), ((near, arrived), ("", took))]
    for line, ((frame, time), (frame_there, there)) in zip((above, below), ways, strict=True):
        yield [
            (f"{frame:>{_FRAME_COLUMNS - 1}} ", "frame"),
            (f"{time:>{_TIME_COLUMNS}} ", "time"),
            *line,
            (f" {there:<{_TIME_COLUMNS}}", "time"),
            (f" {frame_there}", "frame"),
        ]


def _shaft(row: Row, inner: int) -> str:
    """Return the arrow: with `»` for a retransmission, `○` for a duplicate, `?` if it may be
    either; half an arrow and `╳` for a loss.
    """
    sign = {"resend": "»", "duplicate": "○", "unknown": "?"}.get(row.mark, "─")
    if row.names is not None:
        return _slope(row, inner, sign)
    if row.mark == "lost":
        half = inner // 2
        body = "─" * half + "╳" + " " * (inner - half - 1)
        return body if row.direction == Direction.C2S else body[::-1]
    body = "─" * 2 + sign * 2 + "─" * (inner - 5)
    return body + "▶" if row.direction == Direction.C2S else "◀" + body[::-1]


def _slope(row: Row, inner: int, sign: str) -> str:
    """Return an arrow that slopes down to the receiver; half an arrow if the datagram did not
    arrive, ending in `╳` if it was lost and in `?` if that is unknown.
    """
    size = inner // 2 if row.arrived_ns is None else inner - 1
    # Drawn from left to right, and reversed for the other direction.
    steps = "⎺⎻─⎼⎽"
    body = "".join(steps[at * len(steps) // size] for at in range(size))
    body = body[:2] + sign * 2 + body[4:] if sign != "─" else body
    if row.arrived_ns is None:
        body += ("╳" if row.mark == "lost" else "?").ljust(inner - size)
        return body if row.direction == Direction.C2S else body[::-1]
    if row.mark == "appeared":
        body = " " * (size // 2) + body[size // 2 :]
    return body + "▶" if row.direction == Direction.C2S else "◀" + body[::-1]


SIGNS = {"resend": "» ", "duplicate": "○ ", "unknown": "? ", "lost": "╳ "}
"""Mark -> prefix of the label in a picture."""


def mermaid(drawn: Iterable[Row], ends: tuple[str, str], clock: Clock) -> str:
    """Return the diagram as Mermaid text."""
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
        if row.arrived_ns is not None and row.mark != "appeared":
            text += f" +{duration((row.arrived_ns - row.time_ns) / 1e6)}"
        arrow = "-x" if row.mark == "lost" else "-->>" if row.mark in _WORDS else "->>"
        one, other = ("C", "S") if row.direction == Direction.C2S else ("S", "C")
        word = _WORDS.get(row.mark, "")
        lines.append(f"    {one}{arrow}{other}: {word}{text}")
    return "\n".join(lines) + "\n"


_WORDS = {
    "resend": "retransmission: ", "duplicate": "duplicate: ",
    "unknown": "retransmission or duplicate: ", "lost": "lost: ",
}  # fmt: skip
"""Mark -> prefix of the label in Mermaid text."""


def _mermaid(text: str) -> str:
    """Return text with all characters that are special in Mermaid as entity codes."""
    shown = safe(text, _LABEL_LIMIT)
    return "".join(
        char if char.isalnum() or char in " .:=_+-,/()[]" else f"#{ord(char)};" for char in shown
    )
