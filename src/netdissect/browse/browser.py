"""The state of the program: five views of one capture with one selection."""

from __future__ import annotations

import time
from array import array
from bisect import bisect_left
from collections.abc import Callable, Sequence

from netdissect.browse.backend import Backend, Entry
from netdissect.browse.background import Background
from netdissect.browse.cache import ResultCache
from netdissect.browse.clock import BrowseClock
from netdissect.browse.connections import Connections, deciding_frame
from netdissect.browse.findings import Findings
from netdissect.browse.matching import Matching
from netdissect.browse.packets import Octets, Packets, Tree
from netdissect.browse.pane import CONNECTIONS, FINDINGS, PACKETS, PLOTS, TIME, Pane, Text
from netdissect.browse.places import Place, Places
from netdissect.browse.plots import Plots
from netdissect.browse.prompt import Prompt
from netdissect.browse.units import Units
from netdissect.model.names import FieldInfo
from netdissect.model.reports import ConnectionReport
from netdissect.plot.history import History
from netdissect.render.units import counted

VIEWS = ("Conn", "Pack", "Time", "Plot", "Find")

_LISTS_S = 1.0
"""While the capture is being read, the lists are updated this often."""


class Browser:
    """The state. One thread calls its methods; slow work runs in the background, and `tick` takes
    its results.
    """

    def __init__(self, backend: Backend, *, plain: bool = False, expression: str = "") -> None:
        """Take the capture, whether to show ASCII only, and the first filter."""
        self.backend = backend
        self.index = backend.index
        self.plain = plain
        self.clock = BrowseClock("r", 0)
        self.view, self.focus = CONNECTIONS, 0
        self.full = False
        """Whether one pane fills the screen."""
        self.help = False
        """Whether a text fills the screen: the keys, or an `explanation`."""
        self.explanation: tuple[str, list[str]] | None = None
        """Its title and paragraphs; None = the keys."""
        self.replacement: Backend | None = None
        """The same capture decoded in another way, to be opened instead of this one."""
        self.prompt: Prompt | None = None
        self.said = ""
        """Message in the last line, until the next key."""
        self.leaving = False
        self.copied: str | None = None
        """Text to put on the clipboard."""
        self.connection: int | None = None
        """The connection that views 2 to 5 show; None = all."""
        self.expression = ""
        self._make_panes(backend)
        self._matching: Matching | None = None
        """Rows that match the filter; None = no filter."""
        self._places = Places()
        self.pending = ""
        """First key of a command of two keys."""
        self._rows: tuple[tuple[int, bool], int, array[int]] | None = None
        """(connection and whether all of the capture was read; rows examined; rows of the
        connection)
        """
        self._background = Background(self.say)
        self.cache = ResultCache(backend, self._background, self.rows_of)
        self.counting = False
        """Whether the findings are being counted."""
        self._uncounted = True
        """Whether the findings must be counted again."""
        self._filters: list[str] = []
        """Filters for the history of the prompt."""
        self._outer_filters: list[str] = []
        """What the filter was before each addition that made it what it is."""
        self.searched = ""
        """Text that `n` searches for; "" = `n` goes to marks, or to findings."""
        self.sought = ""
        """Text that a search in the background looks for; that search ends when another one starts.
        """
        self._seen = (-1, -1)
        """`Loaded.version` and number of rows at the last redrawing."""
        # Whether the lists lack something, and from when on (monotonic clock, s) they are updated.
        self._lists_due, self._lists_at = False, 0.0
        if expression:
            self.filter(expression)

    def _make_panes(self, backend: Backend) -> None:
        self.connections = Connections(self.clock)
        self.verdict = Text()
        self.packets = Packets(self.index, self.clock)
        self.tree = Tree()
        self.octets = Octets()
        self._message_shown: tuple[int | None, int] | None = None
        """Row and message that the tree shows, if the packets are listed by message."""
        self.units = Units(self.clock)
        self.ladder = Text()
        self.plots = Plots(plain=self.plain)
        self.selected: int | None = None
        """Frame for the cursor of the units and of the plot, once these are known."""
        self.point = Text()
        self.findings = Findings(backend.codes())
        self.meaning = Text()
        self.help_text = Text()
        self._panes: tuple[tuple[Pane, ...], ...] = (
            (self.connections, self.verdict),
            (self.packets, self.tree, self.octets),
            (self.units, self.ladder),
            (self.plots, self.point),
            (self.findings, self.meaning),
        )

    # -- work --------------------------------------------------------------------------------------

    def begin(self) -> None:
        """Start reading the capture."""
        self._background.run(self.backend.read)

    def tick(self) -> bool:
        """Take results of background work and new rows; return whether to redraw the screen."""
        changed = self._background.collect()
        loaded = self.backend.loaded
        if loaded.done:
            self._settle()
        if self.index.first != self.packets.first:
            self._forget(self.index.first)
        if self._matching is not None and self._matching.has_more_to_draw():
            changed = True
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
        """Hide rows that are captured from now on, or show them again. The capture continues."""
        self.packets.paused = self.index.rows if self.packets.paused is None else None
        waits, self._seen = self.packets.paused is not None, (-1, -1)
        self.say("paused; p continues, nothing is lost" if waits else "")

    def _forget(self, first: int) -> None:
        """Drop rows that the capture no longer has."""
        if self._rows is not None:
            asked, end, rows = self._rows
            self._rows = asked, max(first, end), rows[bisect_left(rows, first) :]
        if self._matching is not None:  # in place: who looks for matches adds to it
            del self._matching.rows[: bisect_left(self._matching.rows, first)]
        self.packets.forget(first)
        self._apply()

    def _settle(self) -> None:
        """Adapt to a new order of the rows: some were listed too late."""
        here = self.packets.row()
        moved = self.index.settle()
        if moved is None:
            return
        # The rows of a search that is still running are no longer valid.
        self.sought = ""
        self._places.move(moved)
        self._rows = None
        self.packets.renumbered(None if here is None else moved(here))
        if self.expression:
            self._start_filter(self.expression)
        else:
            self._apply()

    def take_lists(self) -> None:
        """Update connections and findings; once a second while the capture is being read."""
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
        """Return the connections while the capture is being read: without verdicts."""
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
        """Show a message in the last line until the next key."""
        self.said = text

    # -- what is shown -----------------------------------------------------------------------------

    @property
    def panes(self) -> tuple[Pane, ...]:
        """The panes of the view, the list first."""
        return (self.help_text,) if self.help else self._panes[self.view]

    @property
    def pane(self) -> Pane:
        """The pane that has the focus."""
        return self.panes[min(self.focus, len(self.panes) - 1)]

    @property
    def filtering(self) -> bool:
        """Whether a filter is still looking for matches."""
        return self._matching is not None and self._matching.running

    @property
    def awaits_filter(self) -> bool:
        """Whether the filter is still to find all of it; in a running capture it never has."""
        return self.filtering and not self.backend.loaded.live

    def chosen(self) -> int | None:
        """Return the number of the selected connection."""
        if self.connection is not None:
            return self.connection
        if self.view == PACKETS:
            row = self.packets.row()
            return None if row is None else self.index.party(row).connection
        entry = self.connections.entry()
        return None if entry is None else entry.number

    def history(self) -> History | None:
        """Return the history of the selected connection; None if it is still being made."""
        number = self.chosen()
        return None if number is None else self.cache.history(number)

    def plotted(self) -> History | None:
        """Return the history of what is shown of the selected connection, as `history` does."""
        number = self.chosen()
        if not self.expression or number is None:
            return self.history()
        if self.awaits_filter:
            return None
        rows, index = self.packets.rows(), self.index
        return self.cache.history(number, self.expression, lambda: index.frames_of(rows))

    def show_packet(self, width: int) -> None:
        """Show the datagram under the cursor, its tree and its bytes."""
        row = self.packets.row()
        record, said = None, "no datagram"
        if row is None and self.expression:
            so_far = " so far" if self.filtering else ""
            said = f"No datagram matches the filter{so_far}. Esc undoes it."
        elif row is None and self.connection is not None and self.backend.loaded.done:
            said = f"connection {self.connection} carried no message; b goes back to its verdict"
        if row is not None:
            record, fate = self.packets.record(row), self.packets.fate(row)
            ends = f"{record.src} → {record.dst}"
            said = "  ".join(
                part for part in (f"#{record.frame}", fate, record.dialect, ends) if part
            )
        self.tree.show(record, said)
        self._follow_message(row)
        self.octets.show_field(record, self.tree.node(), width)

    def _follow_message(self, row: int | None) -> None:
        """Put the cursor of the tree on the message under the cursor, if that is another one."""
        shown = (row, self.packets.message) if self.packets.by_message else None
        if shown != self._message_shown and shown is not None:
            self.tree.find_message(self.packets.message)
        self._message_shown = shown

    def rows_of(self, number: int) -> array[int]:
        """Return the rows of a connection. They are kept, and only new rows are examined."""
        # Connections get other numbers when all of the capture has been read.
        key = (number, self.backend.loaded.done)
        first, rows = 0, array("I")
        if self._rows is not None and self._rows[0] == key:
            _, first, rows = self._rows
        end = self.index.rows
        if first < end:
            rows = rows + self.index.rows_of(number, first, end)  # other threads have the old array
            self._rows = key, end, rows
        return rows

    def count_findings(self) -> None:
        """Count the findings in the background, unless they are being counted."""
        if self.counting or not self._uncounted:
            return
        self.counting, self._uncounted = True, False
        anomalies, connection = self.backend.loaded.anomalies, self.connection
        shown, filtered = self.packets.chosen, self._matching is not None

        def work() -> Callable[[], None]:
            kinds = self.findings.count(self.index, anomalies, connection, shown, filtered=filtered)

            def keep() -> None:
                self.counting = False
                self.findings.take(kinds)

            return keep

        self._background.run(work)

    # -- selection ---------------------------------------------------------------------------------

    def here(self) -> Place:
        """Return the current place."""
        return Place(self.view, self.focus, self.connection, self.packets.row())

    def open(self, view: int, *, frame: int | None = None, back: bool = True) -> None:
        """Go to a view, and there to a frame; remember the current place if `back`. The connection
        and the datagram that were selected stay so.
        """
        if back:
            self._places.back.append(self.here())
        if view in (TIME, PLOTS) and self.view != view and (self.view != PLOTS or self.plots.held):
            self.selected = self._frame_here()
        chosen = self.chosen()
        if self.view == PACKETS and chosen is not None:
            self.connections.held = True
            self.connections.find(chosen)
        number = None if self.packets.held else chosen
        self.view, self.focus, self.help, self.findings.walked = view, 0, False, ("", ())
        if frame is None and view == PACKETS and number is not None:
            report = self.backend.connection(number)
            frame = None if report is None else deciding_frame(report)
        if frame is not None:
            self.to_frame(frame)

    def to_frame(self, frame: int) -> None:
        """Put the cursor of the packets on a frame, or on the next one that is shown."""
        if not len(self.packets):
            return
        self.packets.go(self.packets.place(self.index.near(frame)))
        row = self.packets.row()
        if row is not None and self.index.frames[row] != frame:
            self.say(f"frame {frame} is not shown here; this is the nearest")

    def scope(self, number: int | None) -> None:
        """Show one connection in views 2 to 5; None = all."""
        if number is not None:
            self.connections.held = True
        self.connection = number
        self._apply()

    def _apply(self) -> None:
        """Show the rows that match the filter and belong to the chosen connection."""
        rows = None if self._matching is None else self._matching.rows
        if self.connection is not None:
            mine = self.rows_of(self.connection)
            if rows is None:
                rows = mine
            else:
                matching = bytearray(self.index.rows)  # a set would take 60 times the memory
                for row in rows:
                    matching[row] = 1
                rows = array("I", (row for row in mine if matching[row]))
        self.packets.show(rows, self.connection)
        self._uncounted = True

    def add_filter(self, text: str) -> None:
        """Show only that part of what is shown that matches a filter as well."""
        before = self.expression
        self._outer_filters.append(before)
        self._start_filter(f"({before}) and {text}" if before else text)

    def undo_filter(self) -> None:
        """Take back the last addition to the filter; all of it if it was typed."""
        self._start_filter(self._outer_filters.pop() if self._outer_filters else "")

    def filter(self, text: str) -> None:
        """Show only what matches a filter, in all views; "" = everything."""
        self._outer_filters.clear()
        self._start_filter(text)

    def _start_filter(self, text: str) -> None:
        self.expression, self._matching, self.connections.matching = text, None, None
        if not text:
            self._apply()
            self.connections.take(self.connections.all)
            return
        self._filters.append(text)
        self._matching = matching = Matching()
        self.connections.matching = matching.connections
        self._apply()

        def work() -> Callable[[], None]:
            matching.look(text, self.backend, lambda: self._matching is matching)
            return done

        def done() -> None:
            if self._matching is matching:
                rows = len(matching.rows)
                self.say(f"{counted(rows, 'datagram')} match{'es' if rows == 1 else ''}")
                self._apply()
                self.connections.take(self.connections.all)

        self._background.run(work)

    # -- keys --------------------------------------------------------------------------------------

    def ask(
        self, label: str, done: Callable[[str], None], text: str = "",
        names: Sequence[FieldInfo] = (),
    ) -> None:  # fmt: skip
        """Ask for a line of text and call `done` with it; `names` can be completed."""
        self.prompt = Prompt(label, done, text=text, fields=names)

    def ask_filter(self) -> None:
        """Ask for the filter."""
        self.prompt = Prompt(
            "Filter /", self.filter, text=self.expression,
            fields=self.backend.fields(), check=self.backend.check, history=self._filters,
        )  # fmt: skip

    def deeper(self) -> None:
        """Go one level deeper; close a text that fills the screen."""
        if self.help:
            self.help = False
        elif self.view == CONNECTIONS:
            self.deciding()
        elif self.view == PACKETS and self.focus == 1:
            self.tree.fold(closed=not self.tree.is_folded())
        elif self.view == PACKETS:
            self.focus = 1
        elif self.view == FINDINGS:
            self._to_finding()
        else:
            frame = self._frame_here()
            if frame is not None:
                self._scoped(frame)

    def _to_finding(self) -> None:
        """Go to the first frame with the finding under the cursor."""
        kind, self.findings.held = self.findings.kind(), True
        if kind is not None and kind.first is not None:
            self.open(PACKETS, frame=kind.first)
            code, self.searched = kind.row.code, ""
            self.findings.walked = code, array("I", sorted(self.index.hits.get(code, ())))
        elif kind is not None:
            self.say("no single frame shows this; 1 has the verdict, 4 plots")

    def _frame_here(self) -> int | None:
        """Return the frame of the datagram, point or unit (its first copy) under the cursor."""
        if self.view == PLOTS:
            point = self.plots.here()
            return None if point is None else point.frame
        if self.view == TIME:
            unit = self.units.unit()
            return unit.copies[0].frame if unit is not None and unit.copies else None
        row = self.packets.row() if self.view == PACKETS else None
        return None if row is None else self.index.firsts[row] or self.index.frames[row]

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
        self._to_deciding_field(report)

    def _to_deciding_field(self, report: ConnectionReport | None) -> None:
        """Put the cursor of the tree on the field that says how the connection ended."""
        row = self.packets.row()
        if row is None or report is None or report.diagnosis is None:
            return
        packets, ending = self.packets, report.diagnosis.ending
        # Each message of a TCP segment has a row: the last one ends the connection.
        while (later := packets.row(packets.cursor + 1)) is not None and (
            self.index.frames[later] == ending.frame):  # fmt: skip
            packets.go(packets.cursor + 1)
            row = later
        record = packets.record(row)
        self.tree.cursor = 0
        self.show_packet(80)
        if ending.frame == record.frame:
            types = [part for message in record.messages for part in message.type.split(".")[-1:]]
            self.tree.find([word for word in (ending.reason, *types) if word])

    def back(self, place: Place | None = None) -> None:
        """Go to a place; by default to the previous one."""
        if place is None:
            if not self._places.back:
                return
            place = self._places.back.pop()
        if place.connection != self.connection:
            self.scope(place.connection)
        self.view, self.focus, self.help = place.view, place.focus, False
        if place.row is not None:
            self.packets.go(self.packets.place(place.row))

    def sort(self, *, reverse: bool = False) -> None:
        """Use the next order of the list, or reverse it."""
        if self.view == TIME:
            self.units.turn(reverse=reverse)
        elif self.view == CONNECTIONS:
            self.connections.turn(reverse=reverse)
        else:
            self.say("connections and messages have other orders; 1 and 3 show them")

    def in_background(self, work: Callable[[], Callable[[], None]]) -> None:
        """Run slow work in a thread; the next tick calls the function that it returns."""
        self._background.run(work)

    def report_when_done(self, work: Callable[[], str]) -> None:
        """Run slow work in a thread, and show the message that it returns."""

        def body() -> Callable[[], None]:
            text = work()
            return lambda: self.say(text)

        self._background.run(body)

    def mark(self, name: str) -> None:
        """Remember this place under a letter."""
        self._places.marks[name] = self.here()
        self.say(f"mark {name} is set")

    def to_mark(self, name: str) -> None:
        """Go to the place that is remembered under a letter."""
        place = self._places.marks.get(name)
        if place is None:
            self.say(f"there is no mark {name}")
        else:
            self._places.back.append(self.here())
            self.back(place)
