"""What the user takes out of the program: copied lines, filters on values, files."""

from __future__ import annotations

from array import array

from netdissect.browse.browser import Browser
from netdissect.browse.pane import CONNECTIONS, FINDINGS
from netdissect.render.console import line_plain

_COPIED_COLUMNS = 500
_MAX_VALUE = 200
"""Characters or bytes of a value to filter on."""
_MIN_FILL = 3
"""Columns of a blank part that only fills the line."""


def line_text(browser: Browser) -> str:
    """Return the line, or point, under the cursor as text."""
    pane = browser.pane
    line = pane.current(_COPIED_COLUMNS) if len(pane) else []
    if pane is browser.plots:
        line = [part for row in browser.plots.about() for part in row]
    kept = [(text, style) for text, style in line if text.strip() or len(text) < _MIN_FILL]
    return line_plain(kept).strip()


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
    value = _literal(node.value)
    return None if value is None else f"{record.protocol}.{node.name} == {value}"


def _literal(value: object) -> str | None:
    """Return a value as it is written in a filter; None if it cannot be, or is too long."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, (int, float)):
        return str(value)
    if isinstance(value, str) and len(value) <= _MAX_VALUE:
        escaped = value.replace("\\", "\\\\").replace('"', '\\"')
        return f'"{escaped}"'
    if isinstance(value, bytes) and 1 < len(value) <= _MAX_VALUE:
        return value.hex(":")
    return None


def write(browser: Browser, path: str) -> None:
    """Write the frames that are shown to a file. Where no filter leaves any out, the handshake,
    acknowledgements and end of TCP, which have no row, belong to what is shown.
    """
    if not path:
        return
    index, rows = browser.index, browser.packets.rows()
    frames = array("I", index.frames_of(rows))
    numbers = {index.parties[owner].connection for owner in {index.owners[row] for row in rows}}
    whole = () if browser.expression else tuple(filter(None, numbers))
    browser.say("writing…")
    browser.report_when_done(lambda: browser.backend.write(path, frames, whole))


def report(browser: Browser, path: str) -> None:
    """Write the HTML report of the capture to a file."""
    if path:
        browser.say("writing…")
        browser.report_when_done(lambda: browser.backend.report(path))
