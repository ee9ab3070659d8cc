"""The lines of `read`: one per datagram, or one per message."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from netdissect.model.annotations import Annotation
from netdissect.model.packets import Direction, FlowKey, reverse_key
from netdissect.model.records import (
    DatagramRecord,
    Finding,
    FrameNote,
    MessageRecord,
    Reliability,
)
from netdissect.render.console import Line, Screen, cells, fit
from netdissect.render.hexdump import hex_rows
from netdissect.render.safe import safe
from netdissect.render.summary import datagram_summary
from netdissect.render.tree import SEVERITY_LETTERS, hex_views, tree_lines
from netdissect.render.units import COPIES, Clock, direction_style, duration

_ADDRESSES_FROM = 120
"""Minimum screen width for both addresses on every line. Narrower screens show the number of the
connection, with a line that introduces it when it first appears."""


class ReadView:
    """Prints records, and introduces each connection when it first appears."""

    def __init__(
        self,
        screen: Screen,
        clock: Clock,
        *,
        messages: bool = False,
        tree: bool = False,
        hexed: bool = False,
    ) -> None:
        """Take the screen and the options.

        Args:
            screen: where to print.
            clock: formats times.
            messages: print one line per message instead of one per datagram.
            tree: print the tree of fields below each line.
            hexed: print the bytes below each line.

        """
        self.screen = screen
        self.clock = clock
        self.messages = messages
        self.tree = tree
        self.hexed = hexed
        self._introduced: set[int] = set()

    def show(self, record: DatagramRecord, items: list[MessageRecord]) -> None:
        """Print one record; `items`: those of its messages to show."""
        if self.messages and items:
            for item in items:
                self._line(record, [item], f"{item.index}")
        else:
            self._line(record, items, "")
        self.screen.lines(self._below(record))

    def _line(self, record: DatagramRecord, items: list[MessageRecord], index: str) -> None:
        number = f"{record.frame}.{index}" if index else str(record.frame)
        line: Line = [
            (number.rjust(6), "frame"),
            (f" {self.clock.show(record.time_ns).rjust(11)}  ", "time"),
        ]
        line += self._ends(record)
        marks = _marks(record, items)
        summary = datagram_summary(record, items)
        if not self.screen.wide:
            used = sum(cells(safe(text)) for text, _ in (*line, *marks))
            summary = fit(safe(summary), max(12, self.screen.width - used))
        line.append((summary, ""))
        line += marks
        self.screen.row(line, cut=not self.tree)

    def _ends(self, record: DatagramRecord) -> Line:
        style = direction_style(record.direction)
        if self.screen.width >= _ADDRESSES_FROM or record.connection is None:
            name = record.dialect or record.protocol or record.transport
            source, target = self.screen.name(record.src), self.screen.name(record.dst)
            return [(f"{source} → {target}  ", style), (f"{name}  ", "protocol")]
        if record.connection not in self._introduced:
            self._introduced.add(record.connection)
            self._introduce(record)
        arrow = "-" if record.direction is None else "→←"[record.direction]
        return [(f"c{record.connection}{arrow} ", style)]

    def _introduce(self, record: DatagramRecord) -> None:
        left, right = self.screen.name(record.src), self.screen.name(record.dst)
        if record.direction == Direction.S2C:
            left, right = right, left
        name = record.dialect or record.protocol or ""
        self.screen.line(
            (f"   c{record.connection}  {left} → {right} {record.transport}  ", "dim"),
            (name, "protocol"),
            cut=True,
        )

    def _below(self, record: DatagramRecord) -> Iterator[Line]:
        if self.tree and record.dissection:
            yield from tree_lines(record.dissection, indent=4)
        if not self.hexed:
            return
        if record.dissection:
            yield from hex_views(record.dissection, width=self.screen.width)
        else:
            yield from hex_rows(record.payload, width=self.screen.width)


_WORDS = {"retransmission": "retransmission", "duplicate": "duplicate", "unknown": "copy"}
"""Kind of a further copy -> word in its mark; `copy`: retransmission or duplicate."""


def _marks(record: DatagramRecord, items: list[MessageRecord]) -> Line:
    marks: Line = []
    notes: list[Annotation | Finding] = []
    for item in items:
        facts = item.reliability
        if facts is not None and facts.kind is not None and facts.kind in _WORDS:
            text = _copy_mark(facts, _WORDS[facts.kind], several=len(items) > 1)
            marks.append((text, COPIES[facts.kind][1]))
        elif facts is not None and facts.retransmitted_in is not None:
            _, style, word = COPIES["retransmission"]
            marks.append((f"  [{word} in #{facts.retransmitted_in}]", style))
        notes += item.annotations
    notes += [found for found in record.findings if found.code not in record.faults]
    if notes:
        # One mark per code, with the severity of the first finding, in order of first findings.
        worst = {note.code: note.severity.label for note in reversed(notes) if note.severity > 0}
        for code, label in reversed(worst.items()):
            marks.append((f"  [{SEVERITY_LETTERS[label]} {code}]", label))
    for code in record.faults:
        marks.append((f"  [{code}]", "note"))
    if len(record.frames) > 1:
        marks.append((f"  [{len(record.frames)} frames from #{record.frames[0]}]", "dim"))
    return marks


def _copy_mark(facts: Reliability, word: str, *, several: bool) -> str:
    which = f" {facts.space} {facts.seq}" if several else ""
    origin = f" of #{facts.of_frame}" if facts.of_frame is not None else ""
    since = f", +{duration(facts.since_ms)}" if facts.since_ms is not None else ""
    return f"  [{word}{which}{origin}{since}]"


def frame_notes(records: Iterable[DatagramRecord]) -> Iterator[FrameNote]:
    """Yield what records say of frames, in the order of records: of the frames that complete them,
    and of those that only have part in them.
    """
    for record in records:
        if record.protocol is None:
            yield FrameNote(record.frame, "")
            marks = "".join(text for text, _ in _marks(record, []))
            if marks:
                yield FrameNote(record.frame, marks, mark=True)
            continue
        streams: tuple[tuple[tuple[FlowKey, int], str], ...] = ()
        if record.stream is not None:
            key, ordinal, _ = record.stream
            back = None if record.direction is None else 1 - record.direction
            streams = (
                ((key, ordinal), _whose(record, record.direction)),
                ((reverse_key(key), ordinal), _whose(record, back)),
            )
        yield FrameNote(record.frame, frame_note(record), streams=streams)
        for frame in record.frames:
            if frame != record.frame:
                yield FrameNote(frame, f"  [part of #{record.frame}]", mark=True)
        # A datagram that acknowledges or repeats another has a record of its own.
        facts = [item.reliability for item in record.messages] if record.stream else []
        for found in filter(None, facts):
            if found.acked_in is not None:
                yield FrameNote(found.acked_in, f"  [acknowledges #{record.frame}]", mark=True)
            if found.retransmitted_in is not None:
                text = f"  [retransmission of #{record.frame}]"
                yield FrameNote(found.retransmitted_in, text, mark=True)


def _whose(record: DatagramRecord, direction: int | None) -> str:
    way = "" if direction is None else f" {Direction(direction).label}"
    whose = "" if record.connection is None else f"c{record.connection}{way} "
    return f"{whose}{record.dialect or record.protocol or record.transport}: "


def frame_note(record: DatagramRecord) -> str:
    """Return everything about a datagram in one line of plain text, for a comment in a capture."""
    marks = "".join(text for text, _ in _marks(record, record.messages))
    acked = [
        item.reliability.acked_in
        for item in record.messages
        if item.reliability is not None and item.reliability.acked_in is not None
    ]
    ended = f"  [acknowledged in #{acked[0]}]" if acked else ""
    whose = _whose(record, record.direction)
    return safe(f"{whose}{datagram_summary(record, record.messages)}{marks}{ended}")


def record_title(record: DatagramRecord, clock: Clock) -> Line:
    """Return the heading of `show`: frame, time, addresses, connection."""
    who = f"c{record.connection} " if record.connection is not None else ""
    direction = "" if record.direction is None else f" {Direction(record.direction).label}"
    line: Line = [
        (f"Frame {record.frame}", "title"),
        (f"  {clock.show(record.time_ns)}  ", "time"),
        (f"{record.src} → {record.dst} {record.transport}  ", direction_style(record.direction)),
        (f"{who}{record.dialect or record.protocol or 'no known protocol'}{direction}", "protocol"),
        (f"  {record.length} bytes", "dim"),
    ]
    if len(record.frames) > 1:
        line.append((f"  from frames {', '.join(map(str, record.frames))}", "dim"))
    return line
