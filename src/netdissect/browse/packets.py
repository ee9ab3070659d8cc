"""The list of datagrams, and one datagram in full: its tree and its bytes."""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Sequence

from netdissect.browse.clock import BrowseClock
from netdissect.browse.pane import NARROW, Pane, Text, padded
from netdissect.model.dissection import FieldNode
from netdissect.model.records import DatagramRecord
from netdissect.pipeline.index import (
    ACKED,
    AGAIN,
    COPY,
    FINDING,
    GONE,
    LOST,
    RESENT,
    UNKNOWN,
    Index,
)
from netdissect.pipeline.passwords import mask_passwords
from netdissect.render.console import Line, fit_end
from netdissect.render.hexdump import hex_rows
from netdissect.render.safe import safe
from netdissect.render.summary import datagram_summary
from netdissect.render.tree import tree_lines, walk
from netdissect.render.units import arrow_of, counted, direction_style

MAX_RECORDS = 200
"""Decoded datagrams that are kept."""
MAX_SUMMARIES = 2000
"""Rows whose text is kept."""

_NO_TIME = 45
"""On a screen with fewer columns, the list has no times."""
_MIN_TEXT = 20
"""Columns of the text of a datagram: with fewer, other columns are left out."""
_BYTES_PER_BIT_ROW = 6
_ENDPOINT_COLUMNS = 16
"""A longer address is cut at its beginning."""

_SIGNS = (
    (LOST, "✗", "bad"), (AGAIN | RESENT, "»", "resend"), (COPY, "○", "duplicate"),
    (GONE, "x", "warn"), (UNKNOWN, "?", "note"), (FINDING, "!", "note"),
)  # fmt: skip
"""(mark of a row, its sign, its style), worst first."""


def mark_of(marks: int) -> tuple[str, str]:
    """Return sign and style of the worst mark of a row."""
    return next(((sign, style) for mark, sign, style in _SIGNS if marks & mark), (" ", ""))


class Packets(Pane):
    """The datagrams that are shown: all, those of a connection, or those that match the filter.

    A line is a datagram. With `by_message`, the lines of the screen are messages: the cursor is
    then on the message `message` of the datagram `cursor`. Only datagrams on the screen are
    decoded, so nobody knows how many messages there are.
    """

    def __init__(self, index: Index, clock: BrowseClock) -> None:
        super().__init__()
        self.index = index
        self.first = index.first
        """The first row that the index still has."""
        self.chosen: Sequence[int] | None = None
        """Rows that are shown; None = all."""
        self.connection: int | None = None
        """The only connection that is shown; None = all."""
        self.endpoints = False
        """Whether each line has the addresses."""
        self.by_message = False
        self.message = 0
        """Index of the message under the cursor in its datagram; 0 without `by_message`."""
        self.paused: int | None = None
        """How many rows there were when the user paused; later ones are hidden. None = not paused.
        """
        self._clock = clock
        self._top_message = 0
        self._on_screen: list[tuple[int, int]] = []
        """(line, message) of each row of the screen, with `by_message`."""
        self._records: dict[int, DatagramRecord] = {}
        self._summaries: dict[int, str] = {}
        self._followed = 0
        """How many lines there were when `follow` was last called."""

    def __len__(self) -> int:
        return len(self.rows())

    def follow(self) -> None:
        """Move the cursor to the newest line if it was on the newest one before."""
        if self.cursor >= self._followed - 1:
            self.go(len(self) - 1)
        self._followed = len(self)

    def row(self, number: int | None = None) -> int | None:
        """Return the row of the index that a line shows, by default the line of the cursor."""
        number = self.cursor if number is None else number
        rows = self.rows()
        return rows[number] if 0 <= number < len(rows) else None

    def rows(self) -> Sequence[int]:
        """Return all rows that are shown, without those that came during a pause."""
        # Once each: a search in the background calls this while the screen changes them.
        chosen, paused = self.chosen, self.paused
        if chosen is not None:
            return chosen
        return range(self.first, self.index.rows if paused is None else paused)

    def place(self, row: int) -> int:
        """Return the line of a row, or of the next row that is shown."""
        if self.chosen is None:
            return max(0, row - self.first)
        return max(0, min(bisect_left(self.chosen, row), len(self.chosen) - 1))

    def show(self, rows: array[int] | None, connection: int | None) -> None:
        """Show these rows; the cursor stays on its row, or goes to the next one."""
        before = self.row()
        self.chosen, self.connection = rows, connection
        self.cursor = 0 if before is None else self.place(before)
        if self.row() != before:
            self.message = 0

    def renumbered(self, row: int | None) -> None:
        """Forget what is known by row: all rows have moved, and that of the cursor is now `row`."""
        self._records.clear()
        self._summaries.clear()
        self.chosen = None
        self.cursor = self.place(row or 0)

    def forget(self, first: int) -> None:
        """Drop the rows before `first`; the other lines keep their places on the screen."""
        dropped = first - self.first
        self.first = first
        if self.chosen is None:
            self.cursor, self.top = max(0, self.cursor - dropped), max(0, self.top - dropped)
            self._followed = max(0, self._followed - dropped)

    def record(self, row: int) -> DatagramRecord:
        """Return a row decoded, with passwords masked."""
        party = self.index.party(row)
        found = self._records.get(row)
        if found is None or (found.connection, found.dialect) != (party.connection, party.dialect):
            found = self._records[row] = mask_passwords(self.index.record(row))
            if len(self._records) > MAX_RECORDS:
                del self._records[next(iter(self._records))]
        return found

    def summary(self, row: int) -> str:
        """Return a row as one line."""
        text = self._summaries.get(row)
        if text is None:
            record = self.record(row)
            text = self._summaries[row] = safe(datagram_summary(record, record.messages))
            if len(self._summaries) > MAX_SUMMARIES:
                del self._summaries[next(iter(self._summaries))]
        return text

    def uncached_summary(self, row: int) -> str:
        """Return the same as `summary`, for any thread: nothing is kept."""
        record = mask_passwords(self.index.record(row))
        return safe(datagram_summary(record, record.messages))

    # -- messages ----------------------------------------------------------------------------------

    def toggle_messages(self) -> None:
        """Switch between one line per datagram and one per message."""
        self.by_message = not self.by_message
        self.message = self._top_message = 0

    def _message_count(self, number: int) -> int:
        """Return on how many rows of the screen a line is shown, with `by_message`."""
        row = self.row(number)
        if row is None or self.index.party(row).protocol is None:
            return 1
        return max(1, len(self.record(row).messages))

    def _neighbour(self, number: int, message: int, by: int) -> tuple[int, int] | None:
        """Return the next message (`by` = 1), or the previous one (-1); None at the end."""
        if by > 0:
            if message + 1 < self._message_count(number):
                return number, message + 1
            return (number + 1, 0) if number + 1 < len(self) else None
        if message:
            return number, message - 1
        return (number - 1, self._message_count(number - 1) - 1) if number else None

    def _screenful(self, start: tuple[int, int], by: int, room: int) -> list[tuple[int, int]]:
        """Return up to `room` messages from one on."""
        found = [start]
        while len(found) < room and (following := self._neighbour(*found[-1], by)) is not None:
            found.append(following)
        return found

    def move(self, by: int) -> None:
        """Move the cursor by this many lines, or messages."""
        if not self.by_message or not len(self):
            super().move(by)
            return
        start = (self.cursor, self.message)
        number, message = self._screenful(start, 1 if by > 0 else -1, abs(by) + 1)[-1]
        self.go(number)
        self.message = message

    def go(self, to: int) -> None:
        """Put the cursor on a line."""
        super().go(to)
        self.message = 0

    def select(self, row: int) -> None:
        """Put the cursor on the line, or message, that is in this row of the screen."""
        if not self.by_message:
            super().select(row)
        elif row < len(self._on_screen):
            number, message = self._on_screen[row]
            self.go(number)
            self.message = message

    def visible(self, width: int, room: int) -> list[tuple[Line, bool]]:
        """Return the lines of the screen, and for each whether the cursor is on it."""
        if not self.by_message or not len(self):
            return super().visible(width, room)
        self.cursor = max(0, min(self.cursor, len(self) - 1))
        self.message = min(self.message, self._message_count(self.cursor) - 1)
        cursor = (self.cursor, self.message)
        top = min((self.top, self._top_message), cursor)
        rows = self._screenful(top, 1, room)
        if cursor > rows[-1]:  # scroll down, just as far as needed
            rows = self._screenful(cursor, -1, room)[::-1]
        elif len(rows) < room:  # the end of the list is in the last row of the screen
            rows = self._screenful(rows[-1], -1, room)[::-1]
        self._on_screen, (self.top, self._top_message) = rows, rows[0]
        return [(self._message_line(*place, width), place == cursor) for place in rows]

    # -- lines -------------------------------------------------------------------------------------

    def head(self, width: int) -> Sequence[Line]:
        """Return the heading."""
        time = f" {'time':>{self._clock.columns}}" if width >= _NO_TIME else ""
        who = " conn" if self.connection is None else ""
        ends = f"{'from → to':<{2 * _ENDPOINT_COLUMNS + 3}}" if self._has_endpoints(width) else ""
        what = "what, by message" if self.by_message else "what"
        return [[(f"   frame{time}{who}{'size':>11}  {ends}{what}", "dim")]]

    def line(self, number: int, width: int) -> Line:
        """Return one datagram."""
        row = self.row(number)
        if row is None:
            return []
        columns, fate = self._columns(number, row, width), self._fate(row, width)
        return self._filled(columns, self._text(row), fate, width)

    def current(self, width: int) -> Line:
        """Return the line, or message, under the cursor."""
        return self._message_line(self.cursor, self.message, width)

    def _message_line(self, number: int, message: int, width: int) -> Line:
        """Return one message; only the first one of a datagram has its columns beside it."""
        row = self.row(number)
        if row is None or not self.by_message or self._message_count(number) == 1:
            return self.line(number, width)
        found = self.record(row).messages[message]
        columns, fate = self._columns(number, row, width), self._fate(row, width)
        if message:
            columns, fate = [(" " * sum(len(part) for part, _ in columns), "")], ""
        return self._filled(columns, safe(found.summary or found.type), fate, width)

    @staticmethod
    def _filled(columns: Line, text: str, fate: str, width: int) -> Line:
        room = width - sum(len(part) for part, _ in columns)
        fate = fate if room - len(fate) >= _MIN_TEXT else ""
        return [*columns, *padded([(text, "")], max(8, room - len(fate))), (fate, "dim")]

    def _text(self, row: int) -> str:
        party = self.index.party(row)
        return self.summary(row) if party.protocol else f"{party.src} → {party.dst}"

    def _has_endpoints(self, width: int) -> bool:
        return self.endpoints and width >= NARROW + _MIN_TEXT

    def _columns(self, number: int, row: int, width: int) -> Line:
        """Return what stands before the text of a datagram."""
        index, party = self.index, self.index.party(row)
        sign, style = mark_of(index.marks[row])
        line: Line = [(f"{index.frames[row]:>7}", "frame")]
        if width >= _NO_TIME:
            above = self.row(number - 1)
            time = self._clock.line(index.times[row], None if above is None else index.times[above])
            line.append((f" {time:>{self._clock.columns}}", "time"))
        if self.connection is None:
            line.append((f" {party.connection or '-':>4}", "dim"))
        line += [
            (f" {arrow_of(party.direction)}", direction_style(party.direction)),
            (f" {sign} ", style),
            (f"{index.length(row):>5} B  ", "dim"),
        ]
        if self._has_endpoints(width):
            ends = " → ".join(fit_end(end, _ENDPOINT_COLUMNS) for end in (party.src, party.dst))
            line += padded([(ends, "")], 2 * _ENDPOINT_COLUMNS + 3)
        return line

    def _fate(self, row: int, width: int) -> str:
        """Return what stands after the text of a datagram, if there is room for it."""
        fate = self.fate(row) if width >= NARROW else ""
        return f"  {fate}" if fate else ""

    def fate(self, row: int) -> str:
        """Return what became of the units of a row."""
        index = self.index
        marks = index.marks[row]
        if marks & (AGAIN | COPY):
            word = "again" if marks & AGAIN else "copy"
            return f"{word} of #{index.firsts[row]}" if index.firsts[row] else word
        if marks & LOST:
            return "never acked"
        if marks & RESENT:
            return "retransmitted" + (f" in #{index.firsts[row]}" if index.firsts[row] else "")
        if marks & GONE:
            return "lost, not retransmitted"
        if marks & UNKNOWN:
            return f"again or copy of #{index.firsts[row]}" if index.firsts[row] else "unknown"
        return f"acked #{index.acked[row]}" if marks & ACKED and index.acked[row] else ""


class Tree(Pane):
    """The fields of a datagram with their offsets."""

    def __init__(self) -> None:
        super().__init__()
        self.record: DatagramRecord | None = None
        self.said = ""
        self.folded: set[int] = set()
        """Indexes (depth first) of the nodes whose children are hidden."""
        self._nodes: list[tuple[FieldNode, int]] = []
        self._lines: list[Line] = []
        self._visible: list[int] = []

    def __len__(self) -> int:
        return len(self._visible)

    def title(self) -> str:
        """Return what the datagram is."""
        return self.said

    def show(self, record: DatagramRecord | None, said: str) -> None:
        """Show a datagram; the cursor keeps its place if it is another one."""
        self.said = said
        if record is self.record:
            return
        self.record = record
        tree = None if record is None else record.dissection
        self._nodes = [] if tree is None else list(walk(tree.root))
        if tree is not None:
            self._lines = list(tree_lines(tree))
        elif record is not None:
            what = f"{record.transport}, {record.length} bytes, of no known protocol"
            self._lines = [[(f" {record.src} → {record.dst}: {what}", "dim")]]
        else:
            self._lines = []
        self.folded.clear()
        self._see()

    def _see(self) -> None:
        """Find out which lines are visible."""
        self._visible, hidden = [], None
        for place, (_, depth) in enumerate(self._nodes):
            if hidden is not None and depth > hidden:
                continue
            hidden = depth if place in self.folded else None
            self._visible.append(place)
        # Lines after the fields, such as findings, are never folded.
        self._visible += range(len(self._nodes), len(self._lines))

    def node(self) -> FieldNode | None:
        """Return the field under the cursor."""
        place = self._visible[self.cursor] if self.cursor < len(self._visible) else -1
        return self._nodes[place][0] if 0 <= place < len(self._nodes) else None

    def find_message(self, message: int) -> None:
        """Put the cursor on a message, given by its index; without messages, on the first line."""
        tree = None if self.record is None else self.record.dissection
        if tree is None:
            return
        node = tree.messages[message].node if message < len(tree.messages) else tree.root
        for line, place in enumerate(self._visible[: len(self._nodes)]):
            if self._nodes[place][0] is node:
                self.go(line)

    def find(self, words: Sequence[str]) -> None:
        """Put the cursor on the first field whose value or display text contains one of the words;
        earlier words take precedence. For a derived field that is the field on the wire it is
        derived from (`message_id` for `message_name`), else the one that contains it.
        """
        for word in words:
            holder = 0
            for line, place in enumerate(self._visible[: len(self._nodes)]):
                node = self._nodes[place][0]
                if node.children:
                    holder = line if node.bit_length else holder
                elif word in str(node.value) or word in node.display:
                    self.go(line if node.bit_length else self._source_of(node.name, holder, line))
                    return

    def _source_of(self, name: str, holder: int, line: int) -> int:
        """Return the line of the field on the wire that a derived field belongs to."""
        stem = name.removesuffix("_name")
        for before in range(line - 1, holder, -1):
            node = self._nodes[self._visible[before]][0]
            if node.bit_length and node.name.startswith(stem):
                return before
        return holder

    def is_folded(self) -> bool:
        """Return whether the children of the field under the cursor are hidden."""
        return self.cursor < len(self._visible) and self._visible[self.cursor] in self.folded

    def fold(self, *, closed: bool) -> None:
        """Hide or show the children of the field under the cursor."""
        if self.cursor >= len(self._visible):
            return
        place = self._visible[self.cursor]
        (self.folded.add if closed else self.folded.discard)(place)
        self._see()

    def line(self, number: int, width: int) -> Line:
        """Return one field."""
        del width
        place = self._visible[number]
        fold = [("  ▸ …", "dim")] if place in self.folded else []
        return [*self._lines[place], *fold]


class Octets(Text):
    """The bytes of a datagram, with those of the chosen field in brackets."""

    def __init__(self) -> None:
        super().__init__()
        self.bitwise = False
        """Whether bytes are shown as bits instead of hexadecimal digits."""

    def show_field(self, record: DatagramRecord | None, node: FieldNode | None, width: int) -> None:
        """Show the buffer that contains a field, scrolled to the field."""
        if record is None:
            self.show("", [])
            return
        buffer = 0 if node is None else node.buffer
        tree = record.dissection
        data = record.payload if tree is None else tree.buffers[buffer].data
        mark = None
        if node is not None and node.bit_length:
            mark = (node.bit_offset // 8, (node.bit_offset + node.bit_length + 7) // 8)
        rows = _bit_rows(data, mark) if self.bitwise else hex_rows(data, width=width, mark=mark)
        made = "" if tree is None or not buffer else f", {tree.buffers[buffer].name}"
        self.show(f"{counted(len(data), 'byte')}{made}{_bit_range(node)}", list(rows))
        if mark is not None:
            at = mark[0] // (_BYTES_PER_BIT_ROW if self.bitwise else _bytes_per_row(width))
            if not self.top <= at < self.top + self.page:
                self.top = at


def _bit_range(node: FieldNode | None) -> str:
    """Return the bit range of a field in words; the brackets around whole bytes do not show it."""
    if node is None or not node.bit_length:
        return ""
    first, last = node.bit_offset, node.bit_offset + node.bit_length - 1
    return f", {node.name}: bits {first // 8}.{first % 8} to {last // 8}.{last % 8}"


def _bytes_per_row(width: int) -> int:
    return 16 if width >= 73 else 8  # noqa: PLR2004 - as `hex_rows` has them


def _bit_rows(data: bytes, mark: tuple[int, int] | None) -> list[Line]:
    """Return bytes as bits, the highest bit of each byte first."""
    first, last = mark or (0, 0)
    rows: list[Line] = []
    for start in range(0, len(data), _BYTES_PER_BIT_ROW):
        line: Line = [(f"{start:04x}", "offset")]
        for place, octet in enumerate(data[start : start + _BYTES_PER_BIT_ROW], start=start):
            inside = first <= place < last
            line += [(" [" if inside else "  ", ""), (f"{octet:08b}", "mark" if inside else ""),
                     ("]" if inside else " ", "")]  # fmt: skip
        rows.append(line)
    return rows
