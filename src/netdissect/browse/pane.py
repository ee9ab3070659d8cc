"""A scrolling list that makes only the lines on the screen."""

from __future__ import annotations

from collections.abc import Sequence

from netdissect.render.console import Line, cells, narrowed

CONNECTIONS, PACKETS, TIME, PLOTS, FINDINGS = range(5)
"""The views."""
NARROW = 60
"""On a screen with fewer columns, lists leave columns out and show one pane at a time."""
WIDE = 110
"""A screen with this many columns has room for more columns, and for panes side by side."""


def padded(line: Line, width: int) -> Line:
    """Return a line cut or filled up to exactly `width` columns."""
    found = narrowed(line, width)
    rest = width - sum(cells(part) for part, _ in found)
    return [*found, (" " * rest, "")] if rest > 0 else found


class Pane:
    """The base of all lists. A subclass says how many lines there are (`__len__`), and makes one
    at a time (`line`).
    """

    selects = True
    """Whether there is a cursor; without one, keys scroll."""

    def __init__(self) -> None:
        self.cursor = 0
        self.top = 0
        """The first line on the screen."""
        self.page = 1
        """Lines on the screen when it was last drawn."""
        self.held = False
        """Whether the user has moved the cursor. Then it stays on its line when lines are inserted
        before it; else it stays on the first line, which is the worst.
        """

    def __len__(self) -> int:
        """Return how many lines there are."""
        return 0

    def __bool__(self) -> bool:
        return True

    def title(self) -> str:
        """Return the text in the rule above the pane; "" = no rule."""
        return ""

    def head(self, width: int) -> Sequence[Line]:
        """Return the heading: lines that do not scroll."""
        del width
        return ()

    def line(self, number: int, width: int) -> Line:
        """Return one line."""
        raise NotImplementedError

    def current(self, width: int) -> Line:
        """Return the line under the cursor, or the first one on the screen."""
        return self.line(self.cursor if self.selects else self.top, width)

    def hidden(self, height: int) -> int:
        """Return how many lines follow the last one on the screen, if `height` lines fit."""
        return max(0, len(self) - self.top - height)

    def move(self, by: int) -> None:
        """Move the cursor by this many lines, or scroll if there is none."""
        self.go((self.cursor if self.selects else self.top) + by)

    def go(self, to: int) -> None:
        """Put the cursor on a line, or scroll to it if there is none."""
        last = max(0, len(self) - (1 if self.selects else self.page))
        to = max(0, min(last, to))
        if self.selects:
            self.cursor, self.held = to, True
        else:
            self.top = to

    def select(self, row: int) -> None:
        """Put the cursor on the line that is in this row of the screen, counted below the head."""
        self.go(self.top + row)

    def draw(self, width: int, height: int, *, focused: bool) -> list[Line]:
        """Return exactly `height` lines of `width` columns."""
        head = list(self.head(width - 1))[: max(0, height - 1)]  # the columns of its lines
        room = height - len(head)
        self.page = max(1, room)
        lines = [padded(line, width) for line in head]
        for line, chosen in self.visible(width - 1, room):
            text = padded(line, width - 1)
            if chosen:
                # One colour for all of it: reversed colours would make a patchwork.
                text = [(part, "focus" if focused else f"{name} title".strip())
                        for part, name in text]  # fmt: skip
            mark = "▌" if focused else "▏"
            lines.append([(mark if chosen else " ", "title"), *text])
        lines += [[(" " * width, "")]] * (height - len(lines))
        return lines

    def visible(self, width: int, room: int) -> list[tuple[Line, bool]]:
        """Return at most `room` lines from `top` on, and for each whether the cursor is on it."""
        size = len(self)
        if self.selects:
            self.cursor = max(0, min(self.cursor, size - 1))
            self.top = max(min(self.top, self.cursor), self.cursor - room + 1)
        self.top = max(0, min(self.top, size - room))
        return [
            (self.line(number, width), self.selects and number == self.cursor)
            for number in range(self.top, min(size, self.top + room))
        ]


class Text(Pane):
    """Ready lines, to scroll through."""

    selects = False

    def __init__(self) -> None:
        super().__init__()
        self.lines: Sequence[Line] = ()
        self._title = ""

    def __len__(self) -> int:
        return len(self.lines)

    def title(self) -> str:
        """Return what the lines are about."""
        return self._title

    def line(self, number: int, width: int) -> Line:
        """Return one line."""
        del width
        return self.lines[number]

    def show(self, title: str, lines: Sequence[Line]) -> None:
        """Show these lines; from the first one if the title is another."""
        if title != self._title:
            self.top = 0
        self._title, self.lines = title, lines
