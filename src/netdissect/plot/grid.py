"""The character cells of a terminal plot: 2 x 4 braille dots each, bars in eighths, and signs over
them.
"""

from __future__ import annotations

from netdissect.render.console import Line, merged

_BRAILLE = 0x2800
_DOTS = ((0x01, 0x08), (0x02, 0x10), (0x04, 0x20), (0x40, 0x80))
"""Bit of each dot by row and column. *Source:* Unicode 16, chapter 21, Braille Patterns."""
_EIGHTHS = " ▁▂▃▄▅▆▇█"
_PLAIN_DOTS = " .:*#"
"""In ASCII: one character for each number of dots in a cell; 4 stands for more."""
_HALF = 0.5


class Grid:
    """A drawing area of `columns` by `rows` cells."""

    def __init__(self, columns: int, rows: int, *, plain: bool = False) -> None:
        self.columns = columns
        self.rows = rows
        self.plain = plain
        self._bits = [[0] * columns for _ in range(rows)]
        self._styles = [[""] * columns for _ in range(rows)]
        self._over: dict[tuple[int, int], tuple[str, str]] = {}
        self._under: dict[tuple[int, int], tuple[str, str]] = {}

    def dot(self, x: int, y: int, style: str) -> None:
        """Set a dot; x counts half cells from the left, y quarter cells from the top."""
        column, row = x // 2, y // 4
        if 0 <= column < self.columns and 0 <= row < self.rows:
            self._bits[row][column] |= _DOTS[y % 4][x % 2]
            self._styles[row][column] = style

    def across(self, left: int, right: int, y: int, style: str) -> None:
        """Draw a horizontal line."""
        for x in range(max(0, left), min(2 * self.columns - 1, right) + 1):
            self.dot(x, y, style)

    def behind(self, left: int, right: int, row: int, sign: str, style: str) -> None:
        """Put a sign into cells of a row; dots and marks hide it."""
        if 0 <= row < self.rows:
            for column in range(max(0, left), min(self.columns - 1, right) + 1):
                self._under[row, column] = (sign, style)

    def down(self, x: int, one: int, other: int, style: str) -> None:
        """Draw a vertical line."""
        for y in range(min(one, other), max(one, other) + 1):
            self.dot(x, y, style)

    def mark(self, column: int, row: int, sign: str, style: str) -> None:
        """Put a sign over a cell."""
        if 0 <= column < self.columns and 0 <= row < self.rows:
            self._over[row, column] = (sign, style)

    def bar(
        self, column: int, low: float, high: float, sign: str, style: str, *, down: bool
    ) -> None:
        """Fill a column between two heights, in rows from the bottom. Even the smallest bar is
        visible.
        """
        if not 0 <= column < self.columns or high <= low:
            return
        drawn = False
        for level in range(int(low), min(self.rows, int(high) + 1)):
            covered = min(high, level + 1) - max(low, level)
            if covered <= 0:
                continue
            place = (self.rows - 1 - level, column)
            shown = self._part(sign, covered, down=down, whole=low <= level)
            if shown != " ":
                self._over[place] = (shown, style)
                drawn = True
        if not drawn:
            level = min(self.rows - 1, int(high if not down else low))
            self._over[self.rows - 1 - level, column] = (sign, style)

    def _part(self, sign: str, covered: float, *, down: bool, whole: bool) -> str:
        """Return the character of a cell that a bar covers in part."""
        if sign != "█" or covered >= 1:
            return sign if covered >= _HALF else " "
        if down or not whole:
            return "▀" if down and covered >= _HALF else sign if covered >= _HALF else " "
        return _EIGHTHS[round(covered * 8)]

    def row(self, row: int) -> Line:
        """Return a row as styled text, without spaces at its end."""
        cells: Line = []
        for column in range(self.columns):
            sign, style = self._over.get((row, column), ("", ""))
            bits = self._bits[row][column]
            if not sign and bits:
                sign, style = self._dots(bits), self._styles[row][column]
            elif not sign:
                sign, style = self._under.get((row, column), (" ", ""))
            cells.append((sign, style if sign != " " else cells[-1][1] if cells else ""))
        *line, (text, style) = merged(cells)
        return [*line, (text.rstrip(), style)]

    def _dots(self, bits: int) -> str:
        if self.plain:
            return _PLAIN_DOTS[min(4, bits.bit_count())]
        return chr(_BRAILLE + bits)
