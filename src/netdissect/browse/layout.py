"""The whole screen as lines: title, filter, panes with rules between them, and the keys."""

from __future__ import annotations

from netdissect.browse.browser import VIEWS, Browser
from netdissect.browse.explaining import paragraphs
from netdissect.browse.keys import help_lines, hints
from netdissect.browse.pane import CONNECTIONS, PACKETS, PLOTS, TIME, Pane, padded
from netdissect.render.console import Line, cells, narrowed

__all__ = ["draw", "pane_at"]

SMALLEST = (40, 10)  # columns and rows below which nothing can be read
_ONE_PANE = (60, 15)  # below, the lower pane has no room
_WIDE = 110  # from here on packets and their tree stand side by side
_NOTES = 4
"""Lines above the list: a pipe, cut short, stopped, bounds that were hit."""
_LOWER = 10
"""Lines of a ladder or an explanation, with its rule, while the list above it needs the others."""
_LEAST_LOWER = 4
"""Lines below a list on a small screen that are worth something."""
_NO_OCTETS = 20
"""Below so many lines the bytes are left out."""


def draw(browser: Browser, width: int, height: int) -> list[Line]:
    """Return the lines of the screen, each exactly as wide as it is."""
    if width < SMALLEST[0] or height < SMALLEST[1]:
        said = [padded([("make the window larger; q quits", "")], width)]
        return said + [padded([], width)] * (height - 1)
    inner = _left(browser, width)
    if browser.help:
        if browser.explained is not None:
            named, texts = browser.explained
            browser.helped.show(named, paragraphs(texts, width))
        else:
            browser.helped.show("keys", help_lines(width, plain=browser.plain))
    browser.refresh(inner if browser.view != PACKETS or inner == width else width - inner - 1)
    told = browser.backend.loaded.notes[:_NOTES]
    notes = [padded([(f"! {note}", "warn")], width) for note in told]
    lines = [_title(browser, width), *_filter(browser, width), *notes]
    body = _body(browser, width, height - len(lines) - 1)
    below = browser.said or hints(browser, width - 1)
    last: Line = [(f" {below}", "note" if browser.said else "dim")]
    return [*lines, *body, padded(last, width)]


def _left(browser: Browser, width: int) -> int:
    """Return the columns of the list: all, or where tree and bytes stand beside it, its part."""
    wide = width >= _WIDE and browser.view == PACKETS and not browser.full and not browser.help
    return width * 55 // 100 if wide else width


def _title(browser: Browser, width: int) -> Line:
    loaded = browser.backend.loaded
    views: Line = []
    for number, name in enumerate(VIEWS):
        here = number == browser.view
        text = f"[{number + 1} {name}]" if here else f" {number + 1} {name} "
        views.append((text, "title" if here else "dim"))
    if width < _ONE_PANE[0]:
        views = [views[browser.view]]
    size = sum(cells(text) for text, _ in views)
    share = "" if loaded.share is None else f" {loaded.share:.0%}"
    reading = "" if loaded.done else f"  {loaded.live}" if loaded.live else (
        f"  reading{share}, so far")  # fmt: skip
    file: Line = [(f" {browser.backend.name}", "title"), (reading, "warn")]
    return [*padded(file, max(8, width - size - 1)), (" ", ""), *views]


def _filter(browser: Browser, width: int) -> list[Line]:
    prompt = browser.prompt
    if prompt is None:
        shown, total = len(browser.packets), browser.index.rows - browser.packets.first
        count = f"{shown:,} of {total:,}"
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
    """Return which panes are seen, how high each is with its rule, and whether it has one."""
    panes = browser.panes
    small = width < _ONE_PANE[0] or height < _ONE_PANE[1] - 3
    if browser.full or small or len(panes) == 1:
        upper = len(panes[0]) + len(panes[0].head(width))
        if browser.view == CONNECTIONS and browser.pane is panes[0] and small and (
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
        if browser.view != CONNECTIONS:  # a verdict is long, a ladder and a meaning seldom are
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
    left = _left(browser, width)
    if left < width:
        return _beside(browser, left, width, height)
    lines: list[Line] = []
    for pane, rows, ruled in shown(browser, width, height):
        lines += _with_rule(browser, pane, width, rows, ruled=ruled)
    return lines


def _beside(browser: Browser, left: int, width: int, height: int) -> list[Line]:
    """Return the list on the left, tree and bytes on the right."""
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
    """Return the lines of the bytes, with their rule, where they stand beside the list."""
    return min(height // 2, 2 + len(browser.panes[2]))


def _with_rule(browser: Browser, pane: Pane, width: int, height: int, *, ruled: bool) -> list[Line]:
    focused = pane is browser.pane
    if not ruled:
        return pane.draw(width, height, focused=focused)
    if height <= 0:
        return []
    lines = pane.draw(width, height - 1, focused=focused)
    # The rule of the pane that has the keys is heavy: not by its colour alone.
    rule, style = ("━", "title") if focused else ("─", "dim")
    below = pane.hidden(height - 1 - len(pane.head(width)))
    more = f" {below:,} more ↓ {rule}" if below and not pane.selects else ""
    line = narrowed([(f"{rule} {pane.title()} ", style)], width - cells(more))
    used = sum(cells(text) for text, _ in line) + cells(more)
    return [[*line, (rule * (width - used), "dim"), (more, "dim")], *lines]


def pane_at(browser: Browser, column: int, row: int, size: tuple[int, int]) -> tuple[int, int]:
    """Return the pane at a place of the screen, and which of its lines stands there, from 0."""
    width, height = size
    top = 1 + len(_filter(browser, width)) + len(browser.backend.loaded.notes[:_NOTES])
    left, height = _left(browser, width), height - top - 1
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
