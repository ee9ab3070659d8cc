"""Datagrams, one a line, and one of them in full: its tree and its bytes."""

from __future__ import annotations

from array import array
from collections.abc import Sequence

from netdissect.browse.pane import Pane, Text, padded
from netdissect.model.dissection import FieldNode
from netdissect.model.records import DatagramRecord
from netdissect.pipeline.index import ACKED, AGAIN, COPY, FINDING, GONE, LOST, UNKNOWN, Index
from netdissect.pipeline.secrets import masked
from netdissect.render.console import Line, fit_end
from netdissect.render.hexdump import hex_rows
from netdissect.render.summary import datagram_summary
from netdissect.render.tree import tree_lines, walk
from netdissect.render.units import Clock, arrow_of, counted, direction_style

__all__ = ["MAX_RECORDS", "MAX_SUMMARIES", "Octets", "Packets", "Tree", "mark_of"]

MAX_RECORDS = 200
"""Records that are kept decoded."""
MAX_SUMMARIES = 2000
"""Rows whose text is kept."""

_NARROW, _TIGHT = 60, 45
"""Below so many columns the fate of a datagram is left out, and its time."""
_BITS_A_ROW = 6
_END = 16
"""Columns of an address with its port; of a longer one the end is seen."""


_SIGNS = (
    (LOST, "✗", "bad"), (AGAIN, "»", "resend"), (COPY, "○", "duplicate"), (GONE, "x", "warn"),
    (UNKNOWN, "?", "note"), (FINDING, "!", "note"),
)  # fmt: skip
"""Mark, its sign and style, worst first."""


def mark_of(marks: int) -> tuple[str, str]:
    """Return the sign of a row and its style: the worst of what is known of it."""
    return next(((sign, style) for mark, sign, style in _SIGNS if marks & mark), (" ", ""))


class Packets(Pane):
    """The datagrams that are shown: all, those of a connection, or those that match."""

    def __init__(self, index: Index) -> None:
        super().__init__()
        self.index = index
        self.first = index.first
        """The first row that there is."""
        self.chosen: Sequence[int] | None = None
        """Rows that are shown; None = all."""
        self.connection: int | None = None
        self.ends = False
        """Whether each row says where it came from and went to."""
        self.clock = Clock("r")
        self._records: dict[int, DatagramRecord] = {}
        self.paused: int | None = None
        """Rows that there were when the user paused; None = none are left out."""
        self._texts: dict[int, str] = {}
        self._followed = 0

    def __len__(self) -> int:
        if self.chosen is not None:
            return len(self.chosen)
        rows = self.index.rows if self.paused is None else self.paused
        return max(0, rows - self.first)

    def follow(self) -> None:
        """Stay on the newest line where the cursor was there."""
        if self.cursor >= self._followed - 1:
            self.go(len(self) - 1)
        self._followed = len(self)

    def row(self, number: int | None = None) -> int | None:
        """Return the row of the index that a line shows, by default that of the cursor."""
        number = self.cursor if number is None else number
        if not 0 <= number < len(self):
            return None
        return self.first + number if self.chosen is None else self.chosen[number]

    def rows(self) -> Sequence[int]:
        """Return the rows of the index that are shown; not those that came during a pause."""
        return range(self.first, self.first + len(self)) if self.chosen is None else self.chosen

    def place(self, row: int) -> int:
        """Return the line of a row, else the nearest after it."""
        if self.chosen is None:
            return max(0, row - self.first)
        low, high = 0, len(self.chosen)
        while low < high:
            middle = (low + high) // 2
            low, high = (middle + 1, high) if self.chosen[middle] < row else (low, middle)
        return max(0, min(low, len(self.chosen) - 1))

    def show(self, rows: array[int] | None, connection: int | None) -> None:
        """Show other rows; the cursor stays on its row as far as that is among them."""
        before = self.row()
        self.chosen, self.connection = rows, connection
        self.cursor = 0 if before is None else self.place(before)

    def moved(self, row: int | None) -> None:
        """Forget what was known by row, as all have moved; the cursor goes where its row went."""
        self._records.clear()
        self._texts.clear()
        self.chosen = None
        self.cursor = self.place(row or 0)

    def forget(self, first: int) -> None:
        """Follow rows before `first` having left: every line keeps its place on the screen."""
        gone = first - self.first
        self.first = first
        if self.chosen is None:
            self.cursor, self.top = max(0, self.cursor - gone), max(0, self.top - gone)
            self._followed = max(0, self._followed - gone)

    def record(self, row: int) -> DatagramRecord:
        """Return a row decoded, passwords masked."""
        party = self.index.parties[self.index.owners[row]]
        found = self._records.get(row)
        known = (party.connection, party.dialect)
        if found is None or (found.connection, found.dialect) != known:
            found = self._records[row] = masked(self.index.record(row))
            if len(self._records) > MAX_RECORDS:
                del self._records[next(iter(self._records))]
        return found

    def summary(self, row: int) -> str:
        """Return what a row says, in one line."""
        text = self._texts.get(row)
        if text is None:
            record = self.record(row)
            text = self._texts[row] = datagram_summary(record, record.messages)
            if len(self._texts) > MAX_SUMMARIES:
                del self._texts[next(iter(self._texts))]
        return text

    def told(self, row: int) -> str:
        """Return the same for whoever looks at it once, in whatever thread."""
        record = masked(self.index.record(row))
        return datagram_summary(record, record.messages)

    def head(self, width: int) -> Sequence[Line]:
        """Return the heading."""
        time = f" {'time':>11}" if width >= _TIGHT else ""
        who = " conn" if self.connection is None else ""
        ends = f"{'from → to':<{2 * _END + 3}}" if self.ends else ""
        return [[(f"   frame{time}{who}{'size':>11}  {ends}what", "dim")]]

    def line(self, number: int, width: int) -> Line:
        """Return one datagram."""
        row = self.row(number)
        if row is None:
            return []
        index = self.index
        party = index.parties[index.owners[row]]
        sign, style = mark_of(index.marks[row])
        line: Line = [(f"{index.frames[row]:>7}", "frame")]
        if width >= _TIGHT:
            line.append((f" {self.clock.show(index.times[row]):>11}", "time"))
        if self.connection is None:
            line.append((f" {party.connection or '-':>4}", "dim"))
        line += [
            (f" {arrow_of(party.direction)}", direction_style(party.direction)),
            (f" {sign} ", style),
        ]
        line.append((f"{index.length(row):>5} B  ", "dim"))
        if self.ends:
            ends = f"{fit_end(party.src, _END)} → {fit_end(party.dst, _END)}"
            line += padded([(ends, "")], 2 * _END + 3)
        fate = self.fate(row) if width >= _NARROW else ""
        room = width - sum(len(part) for part, _ in line) - (len(fate) + 2 if fate else 0)
        text = self.summary(row) if party.protocol else f"{party.src} → {party.dst}"
        return [*line, *padded([(text, "")], max(8, room)), (f"  {fate}" if fate else "", "dim")]

    def fate(self, row: int) -> str:
        """Return what became of the units of a row."""
        index = self.index
        marks = index.marks[row]
        if marks & (AGAIN | COPY):
            word = "again" if marks & AGAIN else "copy"
            return f"{word} of #{index.firsts[row]}" if index.firsts[row] else word
        if marks & LOST:
            return "never acked"
        if marks & GONE:
            return "lost, not resent"
        if marks & UNKNOWN:
            return f"again or copy of #{index.firsts[row]}" if index.firsts[row] else "unknown"
        return f"acked #{index.acked[row]}" if marks & ACKED and index.acked[row] else ""


class Tree(Pane):
    """The fields of a datagram, with their places."""

    def __init__(self) -> None:
        super().__init__()
        self.record: DatagramRecord | None = None
        self.said = ""
        self.folded: set[int] = set()
        """Places of nodes, depth first, whose children are hidden."""
        self._nodes: list[tuple[FieldNode, int]] = []
        self._lines: list[Line] = []
        self._visible: list[int] = []

    def __len__(self) -> int:
        return len(self._visible)

    def title(self) -> str:
        """Return the datagram."""
        return "no datagram" if self.record is None else self.said

    def show(self, record: DatagramRecord | None, said: str) -> None:
        """Show another datagram; the cursor stays on a field of the same place."""
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
        self._visible, hidden = [], None
        for place, (_, depth) in enumerate(self._nodes):
            if hidden is not None and depth > hidden:
                continue
            hidden = depth if place in self.folded else None
            self._visible.append(place)
        self._visible += range(len(self._nodes), len(self._lines))

    def node(self) -> FieldNode | None:
        """Return the field under the cursor."""
        place = self._visible[self.cursor] if self.cursor < len(self._visible) else -1
        return self._nodes[place][0] if 0 <= place < len(self._nodes) else None

    def find(self, words: Sequence[str]) -> None:
        """Put the cursor on the first field that says one of the words, the first word first: by
        its value or by what that is called. Of one that follows from others, on that of them with
        its name (`message_id` of `message_name`), else on what they are in.
        """
        for word in words:
            holder = 0
            for line, place in enumerate(self._visible[: len(self._nodes)]):
                node = self._nodes[place][0]
                if node.children:
                    holder = line if node.bit_length else holder
                elif word in str(node.value) or word in node.display:
                    self.go(line if node.bit_length else self._said_in(node.name, holder, line))
                    return

    def _said_in(self, name: str, holder: int, line: int) -> int:
        """Return the line of the field on the wire that a derived value belongs to."""
        stem = name.removesuffix("_name")
        for before in range(line - 1, holder, -1):
            node = self._nodes[self._visible[before]][0]
            if node.bit_length and node.name.startswith(stem):
                return before
        return holder

    def is_folded(self) -> bool:
        """Return whether what lies in the field under the cursor is hidden."""
        return self.cursor < len(self._visible) and self._visible[self.cursor] in self.folded

    def fold(self, *, closed: bool) -> None:
        """Hide or show what lies in the field under the cursor."""
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
    """The bytes of a datagram; those of the chosen field stand in brackets."""

    def __init__(self) -> None:
        super().__init__()
        self.bitwise = False

    def look(self, record: DatagramRecord | None, node: FieldNode | None, width: int) -> None:
        """Show the bytes of a field's buffer."""
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
        self.show(f"{counted(len(data), 'byte')}{made}{_bits(node)}", list(rows))
        if mark is not None:
            at = mark[0] // (_BITS_A_ROW if self.bitwise else _octets_a_row(width))
            if not self.top <= at < self.top + self.page:
                self.top = at


def _bits(node: FieldNode | None) -> str:
    """Return in words which bits a field has: a nibble is not to be seen in bytes."""
    if node is None or not node.bit_length:
        return ""
    first, last = node.bit_offset, node.bit_offset + node.bit_length - 1
    return f", {node.name}: bits {first // 8}.{first % 8} to {last // 8}.{last % 8}"


def _octets_a_row(width: int) -> int:
    return 16 if width >= 73 else 8  # noqa: PLR2004 - as `hex_rows` has them


def _bit_rows(data: bytes, mark: tuple[int, int] | None) -> list[Line]:
    """Return bytes as bits, the highest of each first."""
    first, last = mark or (0, 0)
    rows: list[Line] = []
    for start in range(0, len(data), _BITS_A_ROW):
        line: Line = [(f"{start:04x}", "offset")]
        for place, octet in enumerate(data[start : start + _BITS_A_ROW], start=start):
            inside = first <= place < last
            line += [(" [" if inside else "  ", ""), (f"{octet:08b}", "mark" if inside else ""),
                     ("]" if inside else " ", "")]  # fmt: skip
        rows.append(line)
    return rows
