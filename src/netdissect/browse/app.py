"""The browser on a terminal. The only module that imports Textual."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Sequence

from rich.segment import Segment
from rich.style import Style
from textual import events
from textual.app import App, ComposeResult
from textual.geometry import Region
from textual.strip import Strip
from textual.widget import Widget

from netdissect.browse import layout
from netdissect.browse.browser import Browser
from netdissect.browse.keys import press
from netdissect.render.console import Line, rich_style

__all__ = ["BrowserApp"]

_TICK_S = 0.25
"""How often is looked for what has become known."""
_ASKED_S = 0.15
"""For so long after a key the reading gives way."""
_SWITCH_S = 0.001
"""How long another thread may run on before this one answers a key."""
_DRAGGED = 3
"""Columns from which on a click is a drag."""
_STYLES = {"focus": Style(bold=True, reverse=True)}
_ASCII = str.maketrans({
    "→": ">", "←": "<", "»": ">", "○": "o", "✗": "x", "·": ".", "─": "-", "│": "|", "▌": ">",
    "▶": ">", "◀": "<", "…": ".", "▏": "|", "━": "=", "⏎": "*", "⌫": "<", "▼": "v", "▸": "+",
    "↓": "v", "↑": "^", "✓": "+", "–": "-", "╌": "-", "┤": "|", "└": "+", "┬": "+", "●": "*",
})  # fmt: skip


def style_of(names: str) -> Style:
    """Return the look of style names, one or several."""
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
        """Return the parts between columns; not kept, as Textual does: a strip that is all in one
        part would keep itself, until a search for garbage that is rare while a capture is read.
        """
        found = list(cuts)
        return [self] if found == [self.cell_length] else super().divide(found)


class Board(Widget):
    """The whole screen: lines that the browser draws."""

    can_focus = True
    DEFAULT_CSS = "Board { width: 100%; height: 100%; }"

    def __init__(self, browser: Browser) -> None:
        super().__init__()
        self.browser = browser
        self.lines: list[Line] = []
        self._stale = True

    def renew(self) -> None:
        """Draw again."""
        self._stale = True
        self.refresh()

    def render_line(self, y: int) -> Strip:
        """Return one line."""
        width, height = self.size
        if self._stale or len(self.lines) != height:
            self.lines = layout.draw(self.browser, width, height)
            self._stale = False
        plain = self.browser.plain
        return Strip([
            Segment(text.translate(_ASCII).encode("ascii", "replace").decode() if plain else text,
                    style_of(style))
            for text, style in self.lines[y]
        ]).adjust_cell_length(width)  # fmt: skip

    def render_lines(self, crop: Region) -> list[Strip]:
        """Return the lines of a part of the screen."""
        return [_Row(strip, strip.cell_length) for strip in super().render_lines(crop)]

    def on_resize(self) -> None:
        """Draw for the new size."""
        self.renew()


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
        self._dragged: tuple[int, int] | None = None

    def compose(self) -> ComposeResult:
        """Return the one widget there is."""
        yield self.board

    def on_mount(self) -> None:
        """Begin to read."""
        self.board.focus()
        sys.setswitchinterval(_SWITCH_S)
        self.browser.begin()
        self.set_interval(_TICK_S, self._tick)

    def on_unmount(self) -> None:
        """Have what still runs end."""
        sys.setswitchinterval(self._switch)
        self.browser.backend.stop()

    def _tick(self) -> None:
        if self.browser.backend.told_to_end():
            self.exit(0)
        if self.browser.tick():
            self.board.renew()

    async def on_event(self, event: events.Event) -> None:
        """Take keys before anything else does; all of them are the browser's."""
        if isinstance(event, events.Key):
            self.browser.backend.loaded.asked_until = time.monotonic() + _ASKED_S
            press(self.browser, event.key, event.character)
            self._after()
        else:
            await super().on_event(event)

    def _after(self) -> None:
        browser = self.browser
        if browser.copied is not None:
            self.copy_to_clipboard(browser.copied)
            browser.copied = None
        if browser.restarted is not None:
            browser.backend.stop()
            again = Browser(
                browser.restarted, plain=browser.plain, expression=browser.expression
            )
            self.browser = self.board.browser = again
            again.begin()
        if browser.leaving:
            self.exit(0)
        self.board.renew()

    def on_paste(self, event: events.Paste) -> None:
        """Take pasted text where something is typed."""
        if self.browser.prompt is not None:
            self.browser.prompt.paste(event.text)
            self._after()

    def on_mouse_scroll_down(self, event: events.MouseScrollDown) -> None:
        """Scroll what is under the pointer."""
        self._wheel(event, 3)

    def on_mouse_scroll_up(self, event: events.MouseScrollUp) -> None:
        """Scroll what is under the pointer."""
        self._wheel(event, -3)

    def _wheel(self, event: events.MouseEvent, by: int) -> None:
        number, _ = layout.pane_at(
            self.browser, event.x, event.y, (self.size.width, self.size.height)
        )
        self.browser.panes[number].move(by)
        self.board.renew()

    def on_mouse_down(self, event: events.MouseDown) -> None:
        """Begin to drag."""
        self._dragged = event.x, event.y

    def on_mouse_up(self, event: events.MouseUp) -> None:
        """Show the time of lanes or of a plot over which the pointer was dragged."""
        before, self._dragged = self._dragged, None
        browser, size = self.browser, (self.size.width, self.size.height)
        if before is None or abs(event.x - before[0]) < _DRAGGED or browser.help:
            return
        places = [layout.pane_at(browser, *place, size) for place in (before, (event.x, event.y))]
        pane = browser.panes[0]
        if {number for number, _ in places} != {0}:
            return
        if pane is browser.plots:
            # The first column is that of the cursor.
            ends = [browser.plots.moment(x - 1, size[0] - 1) for x in (before[0], event.x)]
            if ends[0] is not None and ends[1] is not None:
                browser.say(browser.plots.span(ends[0], ends[1]))
        elif pane is browser.units and max(line for _, line in places) < len(browser.units.lanes):
            began, ended = (browser.units.moment(x, size[0]) for x in (before[0], event.x))
            browser.say(browser.units.span(began, ended))
        self._after()

    def on_click(self, event: events.Click) -> None:
        """Select what is under the pointer; a double click opens it, one on a heading sorts."""
        browser = self.browser
        width, height = self.size
        number, line = layout.pane_at(browser, event.x, event.y, (width, height))
        pane = browser.panes[number]
        line -= len(pane.head(width))
        browser.focus = number
        if pane is browser.connections and line < 0:
            browser.sort()
        elif pane.selects and line >= 0:
            pane.go(pane.top + line)
            if event.chain == 2:  # noqa: PLR2004 - a double click
                browser.deeper()
        self._after()
