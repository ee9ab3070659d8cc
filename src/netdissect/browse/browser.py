"""Five views of one capture with one selection: what keys do, and what stands where."""

from __future__ import annotations

import time
from array import array
from bisect import bisect_left
from collections.abc import Callable, Sequence

from netdissect.browse.backend import Backend, Entry
from netdissect.browse.connections import SORTS, Connections, answer, deciding_frame
from netdissect.browse.drawn import Drawn
from netdissect.browse.errands import Errands
from netdissect.browse.packets import Octets, Packets, Tree
from netdissect.browse.pane import CONNECTIONS, FINDINGS, PACKETS, PLOTS, TIME, Pane, Text
from netdissect.browse.places import Place, Places
from netdissect.browse.prompt import Prompt
from netdissect.browse.time import Findings, Plots, Units, among, explained, ladder
from netdissect.model.names import FieldInfo
from netdissect.model.reports import ConnectionReport
from netdissect.plot.history import History
from netdissect.render.console import Line
from netdissect.render.units import Clock, dialect_text

__all__ = ["VIEWS", "Browser"]

VIEWS = ("Conn", "Pack", "Time", "Plot", "Find")

_LISTED_S = 0.02
"""A filter that is ahead of the reading looks again after so long."""
_LISTS_S = 1.0
"""While the capture is read, lists are made anew so often."""


class Browser:
    """The state. Its methods are called by one thread; work that takes long runs in others and
    hands its result to `tick`.
    """

    def __init__(self, backend: Backend, *, plain: bool = False, expression: str = "") -> None:
        """Take the capture, whether signs are ASCII only, and the first filter."""
        self.backend = backend
        self.index = backend.index
        self.plain = plain
        self.clock = Clock("r", 0)
        self.view = CONNECTIONS
        self.focus = 0
        self.full = False
        """Whether one pane has all the room."""
        self.help = False
        """Whether a text has all the room: the keys, or what is `explained`."""
        self.explained: tuple[str, list[str]] | None = None
        """A title and paragraphs."""
        self.restarted: Backend | None = None
        """The same capture, to be read anew: decoded otherwise."""
        self.prompt: Prompt | None = None
        self.said = ""
        """What was done last, or went wrong."""
        self.leaving = False
        self.copied: str | None = None
        """Text for the clipboard of the terminal."""
        self.connection: int | None = None
        """The connection that views 2 to 5 show; None = all."""
        self.expression = ""
        self._make_panes(backend)
        self._matching: array[int] | None = None
        """Rows that match the filter; None = there is none."""
        self._places = Places()
        self.pending = ""
        """First key of two."""
        self._rows: tuple[tuple[int, bool], int, array[int]] | None = None
        """((connection, whether all is read), rows looked through, those of it)."""
        self._errands = Errands(self.say)
        self._drawn = Drawn(backend, self._errands, self._rows_of)
        self._generation = 0
        self._counting = False
        self._uncounted = True
        """Whether the findings are not those of what is shown."""
        self._filters: list[str] = []
        self.searched = ""
        """Text that `n` looks for; empty = marks."""
        self.sought = ""
        """The text that is looked for beside the screen: another one ends it."""
        self._seen = (-1, -1)
        self._lists_due = False
        self._lists_at = 0.0
        if expression:
            self.filter(expression)

    def _make_panes(self, backend: Backend) -> None:
        self.connections = Connections(self.clock)
        self.verdict = Text()
        self.packets = Packets(self.index)
        self.packets.clock = self.clock
        self.tree = Tree()
        self.octets = Octets()
        self.units = Units(self.clock)
        self.ladder = Text()
        self.plots: Plots = Plots()
        self.plots.plain = self.plain
        self.point = Text()
        self.findings = Findings(backend.codes())
        self.meaning = Text()
        self.helped = Text()
        self._panes: tuple[tuple[Pane, ...], ...] = (
            (self.connections, self.verdict),
            (self.packets, self.tree, self.octets),
            (self.units, self.ladder),
            (self.plots, self.point),
            (self.findings, self.meaning),
        )

    # -- work --------------------------------------------------------------------------------------

    def begin(self) -> None:
        """Begin to read the capture."""
        self._errands.run(self.backend.read)

    def tick(self) -> bool:
        """Take what has become known; return whether anything has."""
        changed = self._errands.take()
        loaded = self.backend.loaded
        if loaded.done:
            self._settle()
        if self.index.first != self.packets.first:
            self._forget(self.index.first)
        now = (loaded.version, self.index.rows)
        if now != self._seen:
            self._seen, changed = now, True
            self.clock.first_ns = loaded.first_ns
            if self.packets.paused is None:
                self._lists_due = True
                if loaded.live:
                    self.packets.follow()
        return changed

    def pause(self) -> None:
        """Let what comes wait, or take what has come; the capture goes on."""
        self.packets.paused = self.index.rows if self.packets.paused is None else None
        waits, self._seen = self.packets.paused is not None, (-1, -1)
        self.say("paused; p goes on, nothing is lost" if waits else "")

    def _forget(self, first: int) -> None:
        """Let go of rows that the capture no longer keeps."""
        if self._rows is not None:
            asked, end, rows = self._rows
            self._rows = asked, max(first, end), rows[bisect_left(rows, first) :]
        if self._matching is not None:  # in place: who looks for matches adds to it
            del self._matching[: bisect_left(self._matching, first)]
        self.packets.forget(first)
        self._apply()

    def _settle(self) -> None:
        """Follow the rows to their places: some had come late."""
        here = self.packets.row()
        moved = self.index.settle()
        if moved is None:
            return
        self.sought = ""
        self._places.moved(moved)
        self._rows = None
        self.packets.moved(None if here is None else moved(here))
        if self.expression:
            self.filter(self.expression)
        else:
            self._apply()

    def _take_lists(self) -> None:
        """Take connections and findings as they are known now; while loading once a second."""
        now = time.monotonic()
        soon = self.backend.loaded.done or not self.connections.all
        if not self._lists_due or (not soon and now < self._lists_at):
            return
        self._lists_due, self._lists_at = False, now + _LISTS_S
        self.connections.take(self.backend.loaded.entries or self._so_far())
        self._uncounted = True
        if self.connection is not None:
            self._apply()

    def _so_far(self) -> list[Entry]:
        found: dict[int, Entry] = {}
        for party in list(self.index.parties):
            if party.connection is None:
                continue
            known = found.get(party.connection)
            ends = (party.src, party.dst) if not party.direction else (party.dst, party.src)
            found[party.connection] = Entry(
                party.connection, party.dialect or "", *ends, datagrams=party.rows
                + (known.datagrams if known is not None else 0),
            )  # fmt: skip
        return list(found.values())

    def say(self, text: str) -> None:
        """Say something in the last line until the next key."""
        self.said = text

    # -- what is shown -----------------------------------------------------------------------------

    @property
    def panes(self) -> tuple[Pane, ...]:
        """Return the panes of the view, the list first."""
        return (self.helped,) if self.help else self._panes[self.view]

    @property
    def pane(self) -> Pane:
        """Return the pane in focus."""
        return self.panes[min(self.focus, len(self.panes) - 1)]

    def chosen(self) -> int | None:
        """Return the number of the connection that is selected."""
        if self.connection is not None:
            return self.connection
        if self.view == PACKETS:
            row = self.packets.row()
            return None if row is None else self.index.parties[self.index.owners[row]].connection
        entry = self.connections.entry()
        return None if entry is None else entry.number

    def history(self) -> History | None:
        """Return what is drawn of the connection, where it is there; else have it gathered."""
        number = self.chosen()
        return None if number is None else self._drawn.history(number)

    def refresh(self, width: int) -> None:
        """Bring the lower panes up to date with the cursor above them."""
        self._take_lists()
        number = self.chosen()
        if self.view == CONNECTIONS:
            self._show_verdict(number, width)
        elif self.view == PACKETS:
            self._show_packet(width)
        elif self.view == TIME:
            self._show_units(width)
        elif self.view == PLOTS:
            self.plots.show(self.history())
            self.point.show("the point under ▼", self.plots.about() or self._waiting())
        else:
            self._show_meaning(width)

    def _show_packet(self, width: int) -> None:
        row = self.packets.row()
        record, said = None, ""
        if row is not None:
            record, fate = self.packets.record(row), self.packets.fate(row)
            ends = f"{record.src} → {record.dst}"
            said = "  ".join(
                part for part in (f"#{record.frame}", fate, record.dialect, ends) if part
            )
        self.tree.show(record, said)
        self.octets.look(record, self.tree.node(), width)

    def _waiting(self) -> list[Line]:
        if self.chosen() is None:
            return [[(" No connection is selected.", "dim")]]
        if not self.backend.loaded.ready:
            return [[(" Drawn when the whole capture is read.", "dim")]]
        return [[(" Reading this connection…", "dim")]] if self._drawn.busy else []

    def _show_verdict(self, number: int | None, width: int) -> None:
        report = None if number is None else self.backend.connection(number)
        if number is None:
            done = self.backend.loaded.done
            self.verdict.show("nothing is shown" if done else "reading", self._nothing())
            return
        named = f"connection {number}"
        lines = self._drawn.lanes(number, width)
        if report is not None:
            named += f"  {dialect_text(report.dialects)}  {report.client} → {report.server}"
            now_ns = self.index.times[-1] if self.backend.loaded.live and self.index.rows else None
            lines = answer(report, self.clock, width, lines, now_ns)
        self.verdict.show(named, lines)

    def _nothing(self) -> list[Line]:
        loaded = self.backend.loaded
        if not loaded.done:
            return [[(" Reading…", "dim")]]
        if self.connections.all:
            return [[(" No connection matches the filter. Esc takes it back.", "")]]
        return [
            [(" No connection of a known protocol in this file.", "title")],
            [(f" {self.index.rows:,} datagrams were read. 2 lists them all the same.", "")],
            [(" --decode-as udp.port==N,PROTOCOL reads a port as a protocol.", "")],
        ]

    def _rows_of(self, number: int) -> array[int]:
        known, end = self._rows, self.index.rows
        # Connections are numbered anew when all is read.
        asked = (number, self.backend.loaded.done)
        of, first, rows = (asked, 0, array("I")) if known is None or known[0] != asked else known
        if first < end:
            rows = rows + self.index.rows_of(number, first, end)
            self._rows = of, end, rows
        return rows

    def _show_units(self, width: int) -> None:
        number, history = self.chosen(), self.history()
        shown = self.packets.chosen
        if number is not None and (rows := self._rows_of(number)):
            self.units.of((self.index.times[rows[0]], self.index.times[rows[-1]]))
        units = [] if history is None else self.units.inside(history.slowest())
        if self._matching is not None and shown is not None:
            units = [unit for unit in units if any(
                among(self.index, shown, copy.frame) for copy in unit.copies)]  # fmt: skip
        if len(units) != len(self.units.units) or (units and {*map(id, units)} != {
            *map(id, self.units.units)}):  # fmt: skip
            self.units.show(units)
        self.units.lanes = [] if number is None else self._drawn.lanes(
            number, width, self.units.part)  # fmt: skip
        unit = self.units.unit()
        if unit is None:
            said = [[(" Nothing here is numbered and acknowledged.", "dim")]]
            self.ladder.show("units", self._waiting() or said)
        else:
            self.ladder.show(f"ladder of {unit.space} {unit.wire_seq}",
                             ladder(unit, self.clock, width))  # fmt: skip

    def _show_meaning(self, width: int) -> None:
        self._count_findings()
        if not self.findings.rows:
            busy = self._counting or not self.backend.loaded.done
            said = " Reading…" if busy else " Nothing was found here."
            self.meaning.show("what it means", [[(said, "dim")]])
            return
        row, _, _, example = self.findings.rows[min(self.findings.cursor,
                                                    len(self.findings.rows) - 1)]  # fmt: skip
        self.meaning.show(f"{row.code} ({row.severity.label}, {row.group})",
                          explained(row, example, self.clock, width))  # fmt: skip

    def _count_findings(self) -> None:
        """Have the findings counted anew, one count at a time."""
        if self._counting or not self._uncounted:
            return
        self._counting, self._uncounted = True, False
        anomalies, connection = self.backend.loaded.anomalies, self.connection
        shown, filtered = self.packets.chosen, self._matching is not None

        def work() -> Callable[[], None]:
            rows = self.findings.counted(
                self.index, anomalies, connection, shown, filtered=filtered
            )

            def keep() -> None:
                self._counting = False
                self.findings.take(rows)

            return keep

        self._errands.run(work)

    # -- selection ---------------------------------------------------------------------------------

    def here(self) -> Place:
        """Return where one is."""
        return Place(self.view, self.focus, self.connection, self.packets.row())

    def open(self, view: int, *, frame: int | None = None, back: bool = True) -> None:
        """Go to a view, and in it to a frame."""
        if back:
            self._places.back.append(self.here())
        number = None if self.packets.held else self.chosen()
        self.view, self.focus, self.help = view, 0, False
        if frame is None and view == PACKETS and number is not None:
            report = self.backend.connection(number)
            frame = None if report is None else deciding_frame(report)
        if frame is not None:
            self.to_frame(frame)

    def to_frame(self, frame: int) -> None:
        """Put the cursor of the packets on a frame, or on the next that is shown."""
        if not len(self.packets):
            return
        self.packets.go(self.packets.place(self.index.near(frame)))
        row = self.packets.row()
        if row is not None and self.index.frames[row] != frame:
            self.say(f"frame {frame} is not shown here; this is the nearest")

    def scope(self, number: int | None) -> None:
        """Show one connection alone in views 2 to 5; None = all."""
        if number is not None:
            self.connections.held = True
        self.connection = number
        self._apply()

    def _apply(self) -> None:
        rows = self._matching
        if self.connection is not None:
            mine, both = self._rows_of(self.connection), bytearray(self.index.rows)
            for row in rows or ():
                both[row] = 1
            rows = mine if rows is None else array("I", (row for row in mine if both[row]))
        self.packets.show(rows, self.connection)
        self._uncounted = True

    def filter(self, text: str) -> None:
        """Show only what matches, in all views."""
        self._generation += 1
        generation = self._generation
        self.expression, self._matching, self.connections.kept = text, None, None
        if not text:
            self._apply()
            self.connections.take(self.connections.all)
            return
        self._filters.append(text)
        self._matching = found = array("I")
        self.connections.kept = numbers = set[int]()
        self._apply()

        def work() -> Callable[[], None]:
            index = self.index
            for frame, nth in self.backend.select(text):
                if generation != self._generation:
                    break
                while not self._listed(frame):
                    time.sleep(_LISTED_S)
                # One that is not there yet moves all others when it comes: this begins anew then.
                row = index.row_of(frame)
                if row is not None and row + nth < index.rows and index.frames[row + nth] == frame:
                    found.append(row + nth)
                    party = index.parties[index.owners[row + nth]]
                    if party.connection is not None:
                        numbers.add(party.connection)
            return done

        def done() -> None:
            if generation == self._generation:
                self.say(f"{len(found):,} datagrams match")
                self._apply()
                self.connections.take(self.connections.all)

        self._errands.run(work)

    def _listed(self, frame: int) -> bool:
        """Return whether all rows of a frame are listed: a filter may be ahead of the reading."""
        index = self.index
        return self.backend.loaded.done or bool(index.rows and index.keys[index.rows - 1] > frame)

    # -- keys --------------------------------------------------------------------------------------

    def typed(
        self, label: str, done: Callable[[str], None], text: str = "",
        among: Sequence[FieldInfo] = (),
    ) -> None:  # fmt: skip
        """Have something typed, perhaps one of a few words."""
        self.prompt = Prompt(label, done, text=text, fields=among)

    def ask_filter(self) -> None:
        """Have the filter typed."""
        self.prompt = Prompt(
            "Filter /", self.filter, text=self.expression,
            fields=self.backend.fields(), check=self.backend.check, history=self._filters,
        )  # fmt: skip

    def deeper(self) -> None:
        """Go one level deeper; from a text that has all the room back to what it covers."""
        if self.help:
            self.help = False
        elif self.view == CONNECTIONS:
            self.deciding()
        elif self.view == PACKETS and self.focus == 1:
            self.tree.fold(closed=not self.tree.is_folded())
        elif self.view == PACKETS:
            self.focus = 1
        elif self.view == FINDINGS:
            first, self.findings.held = self.findings.first(), True
            if first is not None:
                self.open(PACKETS, frame=first)
            elif self.findings.rows:
                self.say("no single frame shows this; 1 has the verdict, 4 plots")
        else:
            frame = self._frame_here()
            if frame is not None:
                self._scoped(frame)

    def _frame_here(self) -> int | None:
        """Return the frame of the point or of the last copy under the cursor."""
        if self.view == PLOTS:
            point = self.plots.here()
            return None if point is None else point.frame
        unit = self.units.unit()
        return unit.copies[-1].frame if unit is not None and unit.copies else None

    def _scoped(self, frame: int) -> None:
        number = self.chosen()
        self._places.back.append(self.here())
        self.scope(number)
        self.open(PACKETS, frame=frame, back=False)

    def deciding(self) -> None:
        """Go from the verdict to the frame that decides it."""
        number = self.chosen()
        if number is None:
            return
        report = self.backend.connection(number)
        self._places.back.append(self.here())
        self.scope(number)
        self.open(PACKETS, back=False, frame=None if report is None else deciding_frame(report))
        self._deciding_field(report)

    def _deciding_field(self, report: ConnectionReport | None) -> None:
        """Put the cursor of the tree on the field that says how the connection ended."""
        row = self.packets.row()
        if row is None or report is None or report.diagnosis is None:
            return
        record, ending = self.packets.record(row), report.diagnosis.ending
        self.tree.cursor = 0
        self._show_packet(80)
        if ending.frame == record.frame:
            types = [part for message in record.messages for part in message.type.split(".")[-1:]]
            self.tree.find([word for word in (ending.reason, *types) if word])

    def back(self, place: Place | None = None) -> None:
        """Go back to where one was, or to a place."""
        if place is None:
            if not self._places.back:
                return
            place = self._places.back.pop()
        if place.connection != self.connection:
            self.scope(place.connection)
        self.view, self.focus, self.help = place.view, place.focus, False
        if place.row is not None:
            self.packets.go(self.packets.place(place.row))

    def sort(self) -> None:
        """Change the order of the list."""
        if self.view == TIME:
            self.units.by_time = not self.units.by_time
            self.units.show(self.units.units if self.units.by_time else [])
            return
        names = list(SORTS)
        self.connections.sort = names[(names.index(self.connections.sort) + 1) % len(names)]
        self.connections.take(self.connections.all)

    def beside(self, work: Callable[[], Callable[[], None]]) -> None:
        """Have something done that takes long; what it returns is called with the next tick."""
        self._errands.run(work)

    def errand(self, work: Callable[[], str]) -> None:
        """Have something done that takes long, and say what it says."""

        def body() -> Callable[[], None]:
            text = work()
            return lambda: self.say(text)

        self._errands.run(body)

    def mark(self, name: str) -> None:
        """Remember this place under a letter."""
        self._places.marks[name] = self.here()
        self.say(f"mark {name} is set")

    def to_mark(self, name: str) -> None:
        """Go to a place that was marked."""
        place = self._places.marks.get(name)
        if place is None:
            self.say(f"there is no mark {name}")
        else:
            self._places.back.append(self.here())
            self.back(place)
