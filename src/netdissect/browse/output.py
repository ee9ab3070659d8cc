"""What the user takes out of the program: copied lines, filters on values, files."""

from __future__ import annotations

from array import array

from netdissect.browse.browser import Browser
from netdissect.browse.pane import CONNECTIONS, FINDINGS
from netdissect.render.console import line_plain

_COPIED_COLUMNS = 500


def line_text(browser: Browser) -> str:
    """Return the line under the cursor as text."""
    pane = browser.pane
    return line_plain(pane.current(_COPIED_COLUMNS)).strip() if len(pane) else ""


def value_filter(browser: Browser) -> str | None:
    """Return a filter that matches the value under the cursor; None if there is no such filter."""
    if browser.view == CONNECTIONS:
        entry = browser.connections.entry()
        return None if entry is None else f"conn.id == {entry.number}"
    if browser.view == FINDINGS:
        code = browser.findings.code()
        return None if code is None else f'anomaly == "{code}"'
    row = browser.packets.row()
    node, record = browser.tree.node(), browser.tree.record
    if row is None or record is None or record.protocol is None:
        return None
    if browser.focus == 0 or node is None or node.children:
        return f"conn.id == {record.connection}"
    if isinstance(node.value, bool):
        return f"{record.protocol}.{node.name} == {str(node.value).lower()}"
    number = isinstance(node.value, (int, float))
    return f"{record.protocol}.{node.name} == {node.value}" if number else None


def write(browser: Browser, path: str) -> None:
    """Write the frames that are shown to a file."""
    if not path:
        return
    packets, index, frames = browser.packets, browser.index, array("I")
    for row in packets.rows():
        frames.extend((index.frames[row], *index.joined(row)))
    browser.say("writing…")
    browser.report_when_done(lambda: browser.backend.write(path, frames))


def report(browser: Browser, path: str) -> None:
    """Write the HTML report of the capture to a file."""
    if path:
        browser.say("writing…")
        browser.report_when_done(lambda: browser.backend.report(path))
