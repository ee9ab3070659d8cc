"""Composes the screen as lines: title, filter, panes separated by rules, and the keys."""

from __future__ import annotations

import textwrap

from netdissect.browse.browser import VIEWS, Browser
from netdissect.browse.details import refresh
from netdissect.browse.explanations import paragraphs
from netdissect.browse.keys import help_lines, hints
from netdissect.browse.pane import CONNECTIONS, PACKETS, PLOTS, TIME, WIDE, Pane, padded
from netdissect.render.console import Line, cells, narrowed

SMALLEST = (40, 10)
"""Columns and rows below which the screen shows nothing but a message."""
_ONE_PANE = (60, 15)
"""On a screen with fewer columns or rows, one pane fills the screen."""

_MOST_SAID = 3
"""Lines for a message."""
_NOTES = 4
"""Lines for warnings above the list."""
_LOWER = 10
"""Lines of the lower pane, with its rule, where it shows a ladder or an explanation."""
_LEAST_LOWER = 4
"""A lower pane with fewer lines is not shown."""
_NO_OCTETS = 20
"""On a screen with fewer lines, the bytes are left out."""


def draw(browser: Browser, width: int, height: int) -> list[Line]:
    """Return the lines of the screen, each of exactly `width` columns."""
    if width < SMALLEST[0] or height < SMALLEST[1]:
        said = [padded([("window too small; q quits", "")], width)]
        return said + [padded([], width)] * (height - 1)
    if browser.help:
        if browser.explanation is not None:
            title, texts = browser.explanation
            browser.help_text.show(title, paragraphs(texts, width))
        else:
            browser.help_text.show("keys", help_lines(width, plain=browser.plain))
    left = _left(browser, width)
    refresh(browser, width if left == width else width - left - 1)
    warnings = browser.backend.loaded.notes[:_NOTES]
    notes = [padded([(f"! {note}", "warn")], width) for note in warnings]
    lines = [_title(browser, width), *_filter(browser, width), *notes]
    below, style = _below(browser, width), "note" if browser.said else "dim"
    body = _body(browser, width, height - len(lines) - len(below))
    return [*lines, *body, *(padded([(f" {row}", style)], width) for row in below)]


def _below(browser: Browser, width: int) -> list[str]:
    """Return the last lines: the message, or the keys."""
    said = textwrap.wrap(browser.said, width - 2, break_on_hyphens=False)
    return said[:_MOST_SAID] or [hints(browser, width - 1)]


def _left(browser: Browser, width: int) -> int:
    """Return the columns of the list; fewer than `width` if tree and bytes are beside it."""
    wide = width >= WIDE and browser.view == PACKETS and not browser.full and not browser.help
    return width * 55 // 100 if wide else width


def _title(browser: Browser, width: int) -> Line:
    """Return the first line: the file and the views."""
    loaded = browser.backend.loaded
    views = _views(browser)
    if width < _ONE_PANE[0]:
        views = [views[browser.view]]
    size = sum(cells(text) for text, _ in views)
    share = "" if loaded.share is None else f" {loaded.share:.0%}"
    reading = "" if loaded.done else f"  {loaded.live}" if loaded.live else (
        f"  reading{share}, so far")  # fmt: skip
    file: Line = [(f" {browser.backend.name}", "title"), (reading, "warn")]
    return [*padded(file, max(8, width - size - 1)), (" ", ""), *views]


def _views(browser: Browser) -> Line:
    """Return the names of the views."""
    views: Line = []
    for number, name in enumerate(VIEWS):
        current = number == browser.view
        text = f"[{number + 1} {name}]" if current else f" {number + 1} {name} "
        views.append((text, "title" if current else "dim"))
    return views


def view_at(browser: Browser, column: int, row: int, width: int) -> int | None:
    """Return the view whose name is at a place of the screen; None if there is none."""
    if row or width < _ONE_PANE[0]:
        return None
    views = _views(browser)
    end = width - sum(cells(text) for text, _ in views)
    for number, (text, _) in enumerate(views):
        end += cells(text)
        if column < end:
            return number if column >= end - cells(text) else None
    return None


def _filter(browser: Browser, width: int) -> list[Line]:
    """Return the line of the filter, or that of the prompt with a line about it."""
    prompt = browser.prompt
    if prompt is None:
        shown, total = len(browser.packets), browser.index.rows - browser.packets.first
        count = f"{shown:,} of {total:,}{' so far' if browser.filtering else ''}"
        if browser.expression and browser.backend.filters_later():
            count = "starts when all is read"
        number = browser.chosen() if browser.view in {TIME, PLOTS} else browser.connection
        scope = "" if number is None else f"Connection {number}  "
        line: Line = [
            (f" {scope}", "title"), ("Filter / ", "dim"), (browser.expression, "value"),
        ]  # fmt: skip
        return [[*padded(line, width - len(count) - 1), (f"{count} ", "dim")]]
    before, after = prompt.text[: prompt.at], prompt.text[prompt.at :]
    room = max(8, width - cells(prompt.label) - 4)
    text: Line = [(f" {prompt.label} ", "title"), (before[-room:], ""), ("▏", "title"), (after, "")]
    lines = [padded(text, width)]
    if prompt.fault is not None:
        lines.append(padded([(f"   {prompt.fault}", "bad")], width))
    else:
        offers = prompt.offers()
        if offers:
            about = f"  {len(offers)} · {offers[0].meaning}"
            names = "  ".join(info.name for info in offers[:6])
            lines.append(padded([(f"   {names}", "name"), (about, "dim")], width))
    return lines


def shown(browser: Browser, width: int, height: int) -> list[tuple[Pane, int, bool]]:
    """Return (pane, its rows with its rule, whether it has a rule) for each visible pane."""
    panes = browser.panes
    small = width < _ONE_PANE[0] or height < _ONE_PANE[1] - 3
    if browser.full or small or len(panes) == 1:
        upper = len(panes[0]) + len(panes[0].head(width))
        if browser.view == CONNECTIONS and len(panes) > 1 and browser.pane is panes[0] and (
            height - upper >= _LEAST_LOWER and not browser.full):  # fmt: skip
            return [(panes[0], upper, False), (panes[1], height - upper, True)]
        return [(browser.pane, height, False)]
    if browser.view == PLOTS:
        return [(panes[0], height - 3, False), (panes[1], 3, True)]
    seen = list(panes)
    if len(seen) > 2 and height < _NO_OCTETS - 3 and browser.focus != 2:  # noqa: PLR2004 - the bytes
        seen.pop()
    if len(seen) == 2:  # noqa: PLR2004 - list and detail
        listed = len(seen[0]) + len(seen[0].head(width))
        share = height * 45 // 100
        if browser.view != CONNECTIONS:  # a verdict needs more lines than a ladder
            share = max(share, height - _LOWER)
        upper = max(3, min(share, listed + 1))
        return [(seen[0], upper, False), (seen[1], height - upper, True)]
    octets = min(7, max(4, 2 + len(seen[2]) if seen[2] else 4))
    upper = max(4, (height - octets) * 55 // 100)
    return [
        (seen[0], upper, False),
        (seen[1], height - octets - upper, True),
        (seen[2], octets, True),
    ]


def _body(browser: Browser, width: int, height: int) -> list[Line]:
    """Return the lines of the panes."""
    left = _left(browser, width)
    if left < width:
        return _beside(browser, left, width, height)
    lines: list[Line] = []
    for pane, rows, ruled in shown(browser, width, height):
        lines += _with_rule(browser, pane, width, rows, ruled=ruled)
    return lines


def _beside(browser: Browser, left: int, width: int, height: int) -> list[Line]:
    """Return the list on the left, and tree and bytes on the right."""
    listed, tree, octets = browser.panes
    right = width - left - 1
    below = _octets(browser, height)
    first = listed.draw(left - 1, height, focused=browser.pane is listed)
    second = [
        *_with_rule(browser, tree, right, height - below, ruled=True),
        *_with_rule(browser, octets, right, below, ruled=True),
    ]
    return [[*one, (" │", "dim"), *two] for one, two in zip(first, second, strict=True)]


def _octets(browser: Browser, height: int) -> int:
    """Return the rows of the bytes, with their rule, if they are beside the list."""
    return min(height // 2, 2 + len(browser.panes[2]))


def _with_rule(browser: Browser, pane: Pane, width: int, height: int, *, ruled: bool) -> list[Line]:
    """Return the lines of a pane, with its title in a rule above them if `ruled`."""
    focused = pane is browser.pane
    if not ruled:
        return pane.draw(width, height, focused=focused)
    if height <= 0:
        return []
    lines = pane.draw(width, height - 1, focused=focused)
    # The focused pane has a heavy rule, for those who see no colour.
    rule, style = ("━", "title") if focused else ("─", "dim")
    below = pane.hidden(height - 1 - len(pane.head(width)))
    more = f" {below:,} more ↓ {rule}" if below and not pane.selects else ""
    line = narrowed([(f"{rule} {pane.title()} ", style)], width - cells(more))
    used = sum(cells(text) for text, _ in line) + cells(more)
    return [[*line, (rule * (width - used), "dim"), (more, "dim")], *lines]


def pane_at(browser: Browser, column: int, row: int, size: tuple[int, int]) -> tuple[int, int]:
    """Return the pane at a place of the screen, and which of its lines (from 0; -1: its rule)."""
    width, height = size
    top = 1 + len(_filter(browser, width)) + len(browser.backend.loaded.notes[:_NOTES])
    left, height = _left(browser, width), height - top - len(_below(browser, width))
    if left < width:
        if column < left:
            return 0, row - top
        tree = height - _octets(browser, height)
        return (1, row - top - 1) if row - top < tree else (2, row - top - tree - 1)
    for pane, rows, ruled in shown(browser, width, height):
        if row < top + rows:
            return browser.panes.index(pane), row - top - ruled
        top += rows
    return browser.panes.index(browser.pane), -1
