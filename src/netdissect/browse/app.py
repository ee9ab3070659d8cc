"""The browser on a terminal. The only module that imports Textual."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Sequence

from rich.segment import Segment
from rich.style import Style
from textual import events
from textual.app import App, ComposeResult
from textual.geometry import Region, Size
from textual.screen import Screen
from textual.strip import Strip
from textual.widget import Widget

from netdissect.browse import layout
from netdissect.browse.browser import Browser
from netdissect.browse.keys import press
from netdissect.render.console import Line, rich_style

_TICK_S = 0.25
"""Interval at which results of background work are looked for."""
_YIELD_S = 0.15
"""After a key, reading leaves the processor to the screen for this long."""
_SWITCH_S = 0.001
"""How long another thread may run before Python switches to the one that answers keys."""
_DRAG_COLUMNS = 3
"""A click that moves by at least this many columns is a drag."""
_STYLES = {"focus": Style(bold=True, reverse=True)}
_ASCII = str.maketrans({
    "→": ">", "←": "<", "»": "r", "○": "o", "✗": "x", "·": ".", "─": "-", "│": "|", "▌": ">",
    "▶": ">", "◀": "<", "…": ".", "▏": "|", "━": "=", "⏎": "*", "⌫": "<", "▼": "v", "▸": "+",
    "↓": "v", "↑": "^", "✓": "+", "–": "-", "╌": "-", "┤": "|", "└": "+", "┬": "+", "●": "*",
})  # fmt: skip


def style_of(names: str) -> Style:
    """Return the look of one or more style names, separated by spaces."""
    found = _STYLES.get(names)
    if found is None:
        found = Style()
        for name in names.split():
            found += _STYLES.get(name) or Style.parse(rich_style(name) or "none")
        _STYLES[names] = found
    return found


class _Row(Strip):
    """A line of the screen."""

    def divide(self, cuts: Iterable[int]) -> Sequence[Strip]:
        """Return the parts between cuts, without keeping them as Textual does. A strip in one part
        would refer to itself, and garbage collection is rare while a capture is read.
        """
        found = list(cuts)
        return [self] if found == [self.cell_length] else super().divide(found)


class _Ground(Screen[None]):
    """What the board covers: nothing is drawn for it."""

    BLANK = True


class Board(Widget):
    """The only widget: lines that the browser draws. Only those that have changed are sent to the
    terminal.
    """

    can_focus = True
    DEFAULT_CSS = "Board { width: 100%; height: 100%; }"

    def __init__(self, browser: Browser) -> None:
        super().__init__()
        self.browser = browser
        self.lines: list[Line] = []
        self._rows: list[Strip] = []
        """`lines` with their colours."""
        self._drawn = Size(0, 0)
        """The size for which they were drawn."""
        self._due = False
        """Whether `_draw` is going to be called."""

    def redraw(self) -> None:
        """Draw everything again, after the keys that were pressed so far."""
        if not self._due:
            self._due = True
            self.app.call_later(self._draw)

    def _draw(self) -> None:
        self._due = False
        changed = self._changed()
        if changed:
            self.refresh(*(Region(0, y, self.size.width, 1) for y in changed))

    def _changed(self) -> list[int]:
        """Draw, and return which lines are not as before."""
        size = self.size
        lines = layout.draw(self.browser, size.width, size.height)
        known: dict[tuple[tuple[str, str], ...], Strip] = {}
        before = self._rows if size == self._drawn else []
        if before:  # a list that scrolls has the same lines elsewhere
            known = dict(zip(map(tuple, self.lines), before, strict=True))
        rows = [known.get(tuple(line)) or self._row(line, size.width) for line in lines]
        self.lines, self._rows, self._drawn = lines, rows, size
        return [y for y, row in enumerate(rows) if not before or row is not before[y]]

    def _row(self, line: Line, width: int) -> _Row:
        plain = self.browser.plain
        strip = Strip([
            Segment(text.translate(_ASCII).encode("ascii", "replace").decode() if plain else text,
                    style_of(style))
            for text, style in line
        ]).adjust_cell_length(width)  # fmt: skip
        for without in self.app.get_line_filters():  # colour, if NO_COLOR is set
            strip = strip.apply_filter(without, self.background_colors[1])
        return _Row(strip, width)

    def render_line(self, y: int) -> Strip:
        """Return one line."""
        return self.render_lines(Region(0, y, self.size.width, 1))[0]

    def render_lines(self, crop: Region) -> list[Strip]:
        """Return the lines of a part of the screen, which has the full width."""
        if self.size != self._drawn:
            self._changed()
        return self._rows[crop.y : crop.bottom]

    def on_resize(self) -> None:
        """Draw for the new size."""
        self.redraw()


class BrowserApp(App[int]):
    """The program."""

    ENABLE_COMMAND_PALETTE = False
    CSS = "Screen { background: ansi_default; color: ansi_default; }"

    def __init__(self, browser: Browser) -> None:
        # The sixteen colours of the terminal's own theme.
        super().__init__(ansi_color=True)
        self.browser = browser
        self.board = Board(browser)
        self._switch = sys.getswitchinterval()
        self._drag_start: tuple[int, int] | None = None

    def get_default_screen(self) -> Screen[None]:
        """Return the screen."""
        return _Ground(id="_default")

    def compose(self) -> ComposeResult:
        """Return the only widget."""
        yield self.board

    def on_mount(self) -> None:
        """Start reading."""
        self.board.focus()
        sys.setswitchinterval(_SWITCH_S)
        self.browser.begin()
        self.set_interval(_TICK_S, self._tick)

    def on_unmount(self) -> None:
        """Stop reading, and all background work."""
        sys.setswitchinterval(self._switch)
        self.browser.backend.stop()

    def _tick(self) -> None:
        if self.browser.backend.must_exit():
            self.exit(0)
        if self.browser.tick():
            self.board.redraw()

    async def on_event(self, event: events.Event) -> None:
        """Give keys to the browser before Textual acts on them."""
        if isinstance(event, events.Key):
            self.browser.backend.loaded.yield_until = time.monotonic() + _YIELD_S
            press(self.browser, event.key, event.character)
            self._after()
        else:
            await super().on_event(event)

    def _after(self) -> None:
        """Do what the browser has asked for, and redraw."""
        browser = self.browser
        if browser.copied is not None:
            self.copy_to_clipboard(browser.copied)
            browser.copied = None
        if browser.replacement is not None:
            browser.backend.stop()
            self.browser = self.board.browser = Browser(
                browser.replacement, plain=browser.plain, expression=browser.expression
            )
            self.browser.begin()
        if browser.leaving:
            self.exit(0)
        self.board.redraw()

    def on_paste(self, event: events.Paste) -> None:
        """Insert pasted text into the line being typed."""
        if self.browser.prompt is not None:
            self.browser.prompt.paste(event.text)
            self._after()

    def on_mouse_scroll_down(self, event: events.MouseScrollDown) -> None:
        """Scroll the pane under the pointer."""
        self._wheel(event, 3)

    def on_mouse_scroll_up(self, event: events.MouseScrollUp) -> None:
        """Scroll the pane under the pointer."""
        self._wheel(event, -3)

    def _wheel(self, event: events.MouseEvent, by: int) -> None:
        number, _ = layout.pane_at(
            self.browser, event.x, event.y, (self.size.width, self.size.height)
        )
        self.browser.panes[number].move(by)
        self.board.redraw()

    def on_mouse_down(self, event: events.MouseDown) -> None:
        """Start a drag."""
        self._drag_start = event.x, event.y

    def on_mouse_up(self, event: events.MouseUp) -> None:
        """End a drag over lanes or a plot: show the span of time that it covers."""
        start, self._drag_start = self._drag_start, None
        browser, size = self.browser, (self.size.width, self.size.height)
        if start is None or abs(event.x - start[0]) < _DRAG_COLUMNS or browser.help:
            return
        places = [layout.pane_at(browser, *place, size) for place in (start, (event.x, event.y))]
        pane = browser.panes[0]
        if {number for number, _ in places} != {0}:
            return
        if pane is browser.plots:
            # The first column has the sign of the cursor.
            ends = [browser.plots.time_at(x - 1, size[0] - 1) for x in (start[0], event.x)]
            if ends[0] is not None and ends[1] is not None:
                browser.say(browser.plots.select_span(ends[0], ends[1]))
        elif pane is browser.units and max(line for _, line in places) < len(browser.units.lanes):
            began, ended = (browser.units.time_at(x, size[0]) for x in (start[0], event.x))
            browser.say(browser.units.select_span(began, ended))
        self._after()

    def on_click(self, event: events.Click) -> None:
        """Put the cursor on the line under the pointer. A double click opens it; a click on a
        heading sorts, one on the name of a view shows that view.
        """
        browser = self.browser
        width, height = self.size
        view = layout.view_at(browser, event.x, event.y, width)
        if view is not None:
            browser.open(view)
            self._after()
            return
        number, line = layout.pane_at(browser, event.x, event.y, (width, height))
        pane = browser.panes[number]
        line -= len(pane.head(width))
        browser.focus = number
        if pane is browser.connections and line < 0:
            browser.sort()
        elif pane.selects and line >= 0:
            pane.select(line)
            if event.chain == 2:  # noqa: PLR2004 - a double click
                browser.deeper()
        self._after()
