"""A list of which only the lines that are seen are made."""

from __future__ import annotations

from collections.abc import Sequence

from netdissect.render.console import Line, cells, narrowed

__all__ = ["CONNECTIONS", "FINDINGS", "PACKETS", "PLOTS", "TIME", "Pane", "Text", "padded"]

CONNECTIONS, PACKETS, TIME, PLOTS, FINDINGS = range(5)
"""The views."""


def padded(line: Line, width: int) -> Line:
    """Return a line of exactly a width."""
    found = narrowed(line, width)
    rest = width - sum(cells(part) for part, _ in found)
    return [*found, (" " * rest, "")] if rest > 0 else found


class Pane:
    """Lines with a cursor; the base of every list. A subclass says how many and what they are."""

    selects = True
    """Whether it has a cursor; else it only scrolls."""

    def __init__(self) -> None:
        self.cursor = 0
        self.top = 0
        self.page = 1
        """Lines that were seen last."""
        self.held = False
        """Whether somebody put the cursor where it is: then it stays on its line, whatever comes
        before that; else it stays on the first one, which is the worst.
        """

    def __len__(self) -> int:
        """Return how many lines there are."""
        return 0

    def __bool__(self) -> bool:
        return True

    def title(self) -> str:
        """Return what stands in the rule above it; "" = no rule."""
        return ""

    def head(self, width: int) -> Sequence[Line]:
        """Return lines that stay above the others."""
        del width
        return ()

    def line(self, number: int, width: int) -> Line:
        """Return one line."""
        raise NotImplementedError

    def hidden(self, height: int) -> int:
        """Return how many lines are below those that are seen, where it has so many rows."""
        return max(0, len(self) - self.top - height)

    def move(self, by: int) -> bool:
        """Move the cursor, or what is seen; return whether the cursor moved."""
        return self.go((self.cursor if self.selects else self.top) + by)

    def go(self, to: int) -> bool:
        """Put the cursor on a line; return whether it moved."""
        last = max(0, len(self) - (1 if self.selects else self.page))
        to = max(0, min(last, to))
        if not self.selects:
            self.top = to
            return False
        moved, self.cursor = to != self.cursor, to
        self.held = True
        return moved

    def draw(self, width: int, height: int, *, focused: bool) -> list[Line]:
        """Return exactly `height` lines."""
        head = list(self.head(width))[: max(0, height - 1)]
        room = height - len(head)
        self.page = max(1, room)
        size = len(self)
        if self.selects:
            self.cursor = max(0, min(self.cursor, size - 1))
            self.top = max(min(self.top, self.cursor), self.cursor - room + 1)
        self.top = max(0, min(self.top, size - room))
        lines = [padded(line, width) for line in head]
        for number in range(self.top, min(size, self.top + room)):
            chosen = self.selects and number == self.cursor
            line = padded(self.line(number, width - 1), width - 1)
            if chosen:
                # One bar: reversed colours would make a patchwork of it.
                line = [(text, "focus" if focused else f"{name} title".strip())
                        for text, name in line]  # fmt: skip
            mark = "▌" if focused else "▏"
            lines.append([(mark if chosen else " ", "title"), *line])
        lines += [[(" " * width, "")]] * (height - len(lines))
        return lines


class Text(Pane):
    """Lines that are there already, to scroll."""

    selects = False

    def __init__(self) -> None:
        super().__init__()
        self.lines: Sequence[Line] = ()
        self.named = ""

    def __len__(self) -> int:
        return len(self.lines)

    def title(self) -> str:
        """Return what the lines are about."""
        return self.named

    def line(self, number: int, width: int) -> Line:
        """Return one line."""
        del width
        return self.lines[number]

    def show(self, named: str, lines: Sequence[Line]) -> None:
        """Show other lines, from the first."""
        if named != self.named:
            self.top = 0
        self.named, self.lines = named, lines
