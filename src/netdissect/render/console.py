"""The one place that decides where output goes, how wide it is, and whether it has colour.

A `Screen` prints lines of (text, style) segments, which are cheap enough for a million rows, and
Rich tables for short results. Every segment passes `safe()` here, so that no view can forget it.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import IO, TYPE_CHECKING, Any, TypeAlias

from netdissect.render.safe import is_plain, safe
from netdissect.system.interrupt import check

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.text import Text

Line: TypeAlias = "list[tuple[str, str]]"
"""One line of output: (text, name of a style, "" for none) from left to right."""

UNLIMITED = 100_000
"""Width of a pipe in columns, where nothing is wrapped or cut."""

STYLES: Mapping[str, str] = {
    "time": "2", "dim": "2", "frame": "34", "c2s": "36", "s2c": "35", "protocol": "1",
    "name": "34", "value": "", "offset": "2", "generated": "2;3", "good": "32", "resend": "33",
    "duplicate": "33", "bad": "1;31", "title": "1", "mark": "7",
    "chat": "2", "note": "34", "warn": "33", "error": "1;31",
}  # fmt: skip
"""Style name -> SGR parameters; "" = plain. Only the 16 colours of the terminal's theme are used.
The same everywhere: the client is cyan, the server magenta, retransmissions and duplicates yellow,
anything bad red. Each colour comes with a sign or word of the same meaning."""


_WORD = re.compile(" *[^ ]+| +")


def wants_color(mode: str, stream: IO[str], environ: Mapping[str, str] | None = None) -> bool:
    """Return whether to use colour: decided by --color, NO_COLOR, FORCE_COLOR, then the terminal.

    Args:
        mode: `auto`, `always` or `never`, from `--color`.
        stream: where the output goes.
        environ: environment; that of the process by default.

    """
    environ = os.environ if environ is None else environ
    if mode != "auto":
        return mode == "always"
    if environ.get("NO_COLOR"):
        return False
    if environ.get("FORCE_COLOR"):
        return True
    return environ.get("TERM") not in {"dumb", "unknown"} and stream.isatty()


def cells(text: str) -> int:
    """Return the width of a text in terminal columns."""
    if text.isascii():
        return len(text)
    from rich.cells import cell_len  # noqa: PLC0415 - only for text outside ASCII

    return cell_len(text)


def fit(text: str, width: int) -> str:
    """Return the text cut to `width` columns, with an ellipsis at the end if it was cut."""
    if width <= 0:
        return ""
    if cells(text) <= width:
        return text
    if text.isascii():
        return text[: width - 1] + "…"
    used = 0
    for index, char in enumerate(text):
        used += cells(char)
        if used > width - 1:
            return text[:index] + "…"
    return text


_CLAUSE = re.compile("[;:,](?= )|[.]$| (?=after |when |without )")
"""Places where a sentence can be shortened."""


def fit_clauses(text: str, width: int) -> str:
    """Return as many whole clauses of a sentence as fit into `width` columns; if not even the
    first one fits, as many words, with an ellipsis.
    """
    if cells(text) <= width:
        return text
    first = text.partition("; ")[0]
    ends = [found.start() for found in _CLAUSE.finditer(text)
            if found[0] in ";." or found.start() < len(first)]  # fmt: skip
    for end in reversed(ends):
        if cells(text[:end]) <= width:
            return text[:end]
    kept = ""
    for word in text.split():
        if cells(kept) + cells(word) + 1 > width:
            break
        kept += f"{word} "
    return kept.rstrip() + "…" if kept else fit(text, width)


def fit_end(text: str, width: int) -> str:
    """Return the end of the text in `width` columns, with an ellipsis at the start if it was cut:
    the port is the most useful part of an address.
    """
    if cells(text) <= width:
        return text
    while text and cells(text) >= width:
        text = text[1:]
    return f"…{text}"


def merged(segments: Iterable[tuple[str, str]]) -> Line:
    """Return a line in which adjacent segments of the same style are joined."""
    line: Line = []
    for text, style in segments:
        if line and line[-1][1] == style:
            line[-1] = (line[-1][0] + text, style)
        else:
            line.append((text, style))
    return line


def line_plain(line: Line) -> str:
    """Return a line as safe text without styles."""
    return "".join(safe(part) for part, _ in line)


def line_text(line: Line) -> Text:
    """Return a line as a Rich `Text`, for tables and pictures."""
    from rich.text import Text  # noqa: PLC0415

    text = Text(no_wrap=True)
    for part, style in line:
        text.append(safe(part), rich_style(style))
    return text


_RICH = {
    "1": "bold", "2": "dim", "3": "italic", "7": "reverse",
    "31": "red", "32": "green", "33": "yellow", "34": "blue", "35": "magenta", "36": "cyan",
}  # fmt: skip
"""SGR parameter -> its name in Rich."""


def rich_style(name: str) -> str:
    """Return the Rich spelling of a style name."""
    return " ".join(_RICH[code] for code in STYLES.get(name, "").split(";") if code)


class Screen:
    """The output that views print on."""

    def __init__(
        self,
        stream: IO[str] | None = None,
        *,
        color: str = "auto",
        width: int | None = None,
        flush: bool = False,
        names: Mapping[str, str] | None = None,
        styles: Mapping[str, str] | None = None,
    ) -> None:
        """Take the stream.

        Args:
            stream: None = the current standard output, which tests and pagers replace.
            color: `auto`, `always` or `never`.
            width: columns; None = the terminal's, or `UNLIMITED` if it is not a terminal.
            flush: flush every line (live capture, reading from a pipe).
            names: the user's names of endpoints ("address:port") and addresses.
            styles: SGR parameters that replace those of STYLES.

        """
        self.stream = sys.stdout if stream is None else stream
        self.color = wants_color(color, self.stream)
        self.flush = flush
        self.names = names or {}
        self.styles = {**STYLES, **(styles or {})}
        self.terminal = self.stream.isatty()
        # No view supports fewer than 20 columns.
        self._width = UNLIMITED if width is None else max(width, 20)
        self._resizes = width is None and self.terminal
        self._console: Console | None = None

    @property
    def width(self) -> int:
        """Return the number of columns; that of a terminal is read anew, as it may be resized."""
        return max(shutil.get_terminal_size().columns, 20) if self._resizes else self._width

    @property
    def wide(self) -> bool:
        """Return whether lines may have any length, as on a pipe."""
        return self.width >= UNLIMITED

    def line(self, *segments: tuple[str, str], cut: bool = False, hang: int | None = None) -> None:
        """Print one line.

        Args:
            segments: the line.
            cut: cut the line at the width of the screen.
            hang: wrap the line between words, and indent the following rows by so many columns.

        """
        if hang is None or self.wide:
            self.row(segments, cut=cut)
        else:
            self.lines(wrapped(segments, self.width, hang))

    def lines(self, lines: Iterable[Line], *, cut: bool = False, hang: int | None = None) -> None:
        """Print several lines, as `line` does."""
        for line in lines:
            self.line(*line, cut=cut, hang=hang)

    def row(self, segments: Sequence[tuple[str, str]], *, cut: bool = False) -> None:
        """Print one line without wrapping; like `line`, but takes a sequence."""
        # A signal ends the output here, between lines.
        check()
        parts = segments
        if cut and (width := self.width) < UNLIMITED:
            parts = narrowed(segments, width)
        if self.color:
            text = "".join(self._painted(part, style) for part, style in parts)
        else:
            text = "".join([part for part, _ in parts])
            if not is_plain(text):
                text = "".join([safe(part) for part, _ in parts])
            # Without colour, drop the padding of the last column.
            text = text.rstrip(" ")
        self.stream.write(text + "\n")
        if self.flush:
            self.stream.flush()

    def name(self, endpoint: str) -> str:
        """Return the user's name of an endpoint, or that of its address plus the port; the
        endpoint itself if it has no name.
        """
        if not self.names:
            return endpoint
        if endpoint in self.names:
            return self.names[endpoint]
        address, _, port = endpoint.rpartition(":")
        known = self.names.get(address.strip("[]"))
        return endpoint if known is None else f"{known}:{port}"

    def _painted(self, part: str, style: str) -> str:
        code = self.styles.get(style, "")
        shown = safe(part)
        return f"\x1b[{code}m{shown}\x1b[0m" if code and shown else shown

    def text(self, text: str = "", style: str = "") -> None:
        """Print a fixed text, which may have several lines."""
        for row in text.split("\n"):
            self.line((row, style))

    def print(self, item: RenderableType) -> None:
        """Print a Rich table or tree."""
        self.console.print(item, soft_wrap=False)

    @property
    def console(self) -> Console:
        """Return the Rich console on the same stream, without markup, emoji and highlighting."""
        if self._console is None:
            from netdissect.render.piped import Piped  # noqa: PLC0415 - most output needs no Rich

            self._console = Piped(
                file=self.stream,
                width=self.width,
                force_terminal=self.color,
                color_system="standard" if self.color else None,
                no_color=not self.color,
                markup=False,
                emoji=False,
                highlight=False,
                legacy_windows=False,
            )
        return self._console

    def table(self, *columns: str, right: Iterable[str] = (), title: str | None = None) -> Any:
        """Return an empty table; `right`: headings of the columns of numbers."""
        from rich.box import SIMPLE_HEAD  # noqa: PLC0415
        from rich.table import Table  # noqa: PLC0415
        from rich.text import Text  # noqa: PLC0415

        numeric = set(right)
        table = Table(
            box=SIMPLE_HEAD,
            padding=(0, 1, 0, 0),
            pad_edge=False,
            show_edge=False,
            title=Text(safe(title)) if title else None,
            title_justify="left",
        )
        for column in columns:
            # Nothing is cut: text wraps, and numbers stay on one line.
            table.add_column(
                column,
                justify="right" if column in numeric else "left",
                overflow="fold",
                no_wrap=column in numeric,
            )
        return table


def wrapped(segments: Iterable[tuple[str, str]], width: int, hang: int) -> Iterator[Line]:
    """Wrap a line between words into rows of at most `width` columns; a longer word is not split.

    Rows after the first are indented by `hang` columns.
    """
    words: list[Line] = []
    for part, style in segments:
        for piece in _WORD.findall(safe(part)):
            if not words or piece.startswith(" "):
                words.append([])
            words[-1].append((piece, style))
    row: Line = []
    used = 0
    for word in words:
        size = sum(cells(piece) for piece, _ in word)
        if used + size > width and used > hang:
            yield row
            row, used = [(" " * hang, "")], hang
            # Drop the space at the line break.
            first, style = word[0]
            size -= len(first) - len(first.lstrip(" "))
            word[0] = first.lstrip(" "), style
        row += word
        used += size
    yield row


def narrowed(segments: Iterable[tuple[str, str]], width: int) -> Line:
    """Return a line cut to `width` columns."""
    line: Line = []
    left = width
    for part, style in segments:
        shown = safe(part)
        size = cells(shown)
        if size > left:
            line.append((fit(shown, left), style))
            break
        line.append((shown, style))
        left -= size
    return line
