"""Fills the lower panes of each view with what is under the cursor of its list."""

from __future__ import annotations

from netdissect.browse.browser import Browser
from netdissect.browse.connections import answer
from netdissect.browse.findings import contains_frame, explained
from netdissect.browse.pane import CONNECTIONS, PACKETS, PLOTS, TIME
from netdissect.browse.plots import Plots
from netdissect.browse.units import Units, ladder, whole_ladder
from netdissect.render.console import Line
from netdissect.render.units import dialect_text


def refresh(browser: Browser, width: int) -> None:
    """Update the lists and the lower panes before they are drawn in `width` columns."""
    browser.take_lists()
    if browser.clock.style == "c":
        entry = browser.connections.numbered(browser.chosen())
        browser.clock.connection_ns = None if entry is None else entry.first_ns or None
    if browser.view == CONNECTIONS:
        _show_verdict(browser, width)
    elif browser.view == PACKETS:
        browser.show_packet(width)
    elif browser.view == TIME:
        _show_units(browser, width)
    elif browser.view == PLOTS:
        browser.plots.show(browser.plotted())
        _select(browser, browser.plots)
        browser.point.show("the point under ▼", browser.plots.about() or _waiting(browser))
    else:
        _show_meaning(browser, width)


def _select(browser: Browser, pane: Plots | Units) -> None:
    """Put the cursor of a pane on the frame selected in another view."""
    found = browser.plotted() if pane is browser.plots else browser.history()
    if browser.selected is not None and found is not None:
        pane.find_frame(browser.selected)
        browser.selected = None


def _waiting(browser: Browser) -> list[Line]:
    """Return why nothing can be shown yet; [] if there is nothing to wait for."""
    if browser.chosen() is None:
        return [[(" No connection is selected.", "dim")]]
    if not browser.backend.loaded.ready:
        return [[(" Available when all of the capture has been read.", "dim")]]
    if browser.awaits_filter:
        return [[(" Looking for what matches the filter…", "dim")]]
    return [[(" Reading this connection…", "dim")]] if browser.cache.busy else []


def _show_verdict(browser: Browser, width: int) -> None:
    number, loaded = browser.chosen(), browser.backend.loaded
    if number is None:
        title = "nothing is shown" if loaded.done else "reading"
        browser.verdict.show(title, _no_connection(browser))
        return
    report = browser.backend.connection(number)
    title = f"connection {number}"
    lines = browser.cache.lanes(number, width)
    if report is not None:
        title += f"  {dialect_text(report.dialects)}  {report.client} → {report.server}"
        now_ns = browser.index.times[-1] if loaded.live and browser.index.rows else None
        lines = answer(report, browser.clock, width, lines, now_ns)
    browser.verdict.show(title, lines)


def _no_connection(browser: Browser) -> list[Line]:
    if not browser.backend.loaded.done:
        return [[(" Reading…", "dim")]]
    if browser.connections.all:
        return [[(" No connection matches the filter. Esc undoes it.", "")]]
    return [
        [(" No connection of a known protocol in this file.", "title")],
        [(f" {browser.index.rows:,} datagrams were read. 2 lists them anyway.", "")],
        [(" D decodes a port as a protocol, and reads the file again.", "")],
    ]


def _show_units(browser: Browser, width: int) -> None:
    number, history = browser.chosen(), browser.history()
    pane, index = browser.units, browser.index
    if number is not None and (rows := browser.rows_of(number)):
        pane.set_span((index.times[rows[0]], index.times[rows[-1]]))
    units = [] if history is None else pane.inside(history.slowest())
    shown = browser.packets.chosen
    if browser.expression and shown is not None:
        units = [
            unit
            for unit in units
            if any(contains_frame(index, shown, copy.frame) for copy in unit.copies)
        ]
    if {*map(id, units)} != {*map(id, pane.units)}:
        pane.show(units)
    _select(browser, pane)
    pane.lanes = [] if number is None else browser.cache.lanes(number, width, pane.window.part)
    unit = pane.unit()
    if unit is None:
        nothing: list[Line] = [[(" Nothing here is numbered and acknowledged.", "dim")]]
        browser.ladder.show("units", _waiting(browser) or nothing)
    else:
        name = f"{unit.space} {unit.wire_seq}"
        if pane.everything and number is not None:
            rows = browser.rows_of(number)
            lines = whole_ladder(unit, browser.packets, rows, browser.clock, width)
            browser.ladder.show(f"all datagrams while {name} waited", lines)
        else:
            browser.ladder.show(f"ladder of {name}", ladder(unit, browser.clock, width))


def _show_meaning(browser: Browser, width: int) -> None:
    browser.count_findings()
    kind = browser.findings.kind()
    if kind is None:
        busy = browser.counting or not browser.backend.loaded.done
        text = " Reading…" if busy else " Nothing was found here."
        browser.meaning.show("what it means", [[(text, "dim")]])
        return
    title = f"{kind.row.code} ({kind.row.severity.label}, {kind.row.group})"
    browser.meaning.show(title, explained(kind, browser.clock, width))
