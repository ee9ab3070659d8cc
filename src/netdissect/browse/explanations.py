"""What is under the cursor, explained in full sentences."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator

from netdissect.browse.browser import Browser
from netdissect.browse.pane import CONNECTIONS, FINDINGS, PACKETS, PLOTS, TIME
from netdissect.pipeline.index import ACKED, AGAIN, COPY, GONE, LOST, RESENT, UNKNOWN
from netdissect.render.console import Line
from netdissect.render.units import counted

_FATES = (
    (AGAIN, "» Retransmission: its sender has sent something in this datagram before."),
    (RESENT, "» A TCP segment with it was retransmitted, in a frame that is not listed, because it"
             " brings nothing new."),
    (COPY, "○ Duplicate: the network copied this datagram; its sender sent it once."),
    (LOST, "✗ Something in it was never acknowledged, although its sender waited for that."),
    (GONE, "x Something in it is lost. By design, its sender does not send that again."),
    (UNKNOWN, "? This capture cannot tell whether something in it arrived, or whether its sender or"
              " the network made a copy."),
    (ACKED, "✓ What it carries was acknowledged."),
)  # fmt: skip
_UNITS = {
    "acked": "Its receiver has acknowledged it.",
    "unacked": "Its receiver never acknowledged it.",
    "given_up": "Its sender has given up on it.",
    "unknown": "Whether it arrived is unknown: the acknowledgement may come after the end of the"
    " capture, or the capture contains one direction only.",
}


def paragraphs(texts: list[str], width: int) -> list[Line]:
    """Return texts as lines, with an empty line after each."""
    lines: list[Line] = []
    for text in texts:
        rows = textwrap.wrap(text, max(20, width - 3), break_on_hyphens=False)
        lines += [*([(f" {row}", "")] for row in rows), []]
    return lines


def explain(browser: Browser) -> None:
    """Show an explanation of what is under the cursor, or a message that there is none."""
    title, found = _of(browser)
    if not found:
        browser.say("there is nothing here to explain")
        return
    browser.explanation, browser.help, browser.focus = (title, found), True, 0


def _of(browser: Browser) -> tuple[str, list[str]]:
    topics = {CONNECTIONS: _connection, PLOTS: _plot, FINDINGS: _finding, TIME: _unit}
    if browser.view == PACKETS:
        return _field(browser) if browser.focus else _datagram(browser)
    return topics[browser.view](browser)


def _finding(browser: Browser) -> tuple[str, list[str]]:
    code = browser.findings.code()
    return ("", []) if code is None else (code, [*_code(browser, code)])


def _plot(browser: Browser) -> tuple[str, list[str]]:
    chart = browser.plots.chart()
    if chart is None:
        return "", []
    return chart.title, [text for text in (f"{chart.about}.", chart.said, *chart.notes) if text]


def _unit(browser: Browser) -> tuple[str, list[str]]:
    unit = browser.units.unit()
    if unit is None:
        return "", []
    found = [
        f"{len(unit.copies)} copies of it were seen." if len(unit.copies) != 1
        else "One copy of it was seen.",
        _UNITS.get(unit.outcome, ""),
    ]  # fmt: skip
    if unit.rtt_ambiguous:
        found.append(
            "~ It was sent more than once, and the acknowledgement does not say for which copy it"
            " is: its time counts from the first copy."
        )
    return f"{unit.space} {unit.wire_seq}", [text for text in found if text]


def _connection(browser: Browser) -> tuple[str, list[str]]:
    entry = browser.connections.entry()
    if entry is None:
        return "why nothing was recognised", _unrecognised(browser)
    report = browser.backend.connection(entry.number)
    if report is None or report.diagnosis is None:
        return "", []
    diagnosis = report.diagnosis
    found = [diagnosis.verdict, diagnosis.cause.text,
             *(f"Ruled out {text}." for text in diagnosis.ruled_out),
             diagnosis.settles or ""]  # fmt: skip
    if report.explain:
        found.append(f"Recognised by: {', '.join(report.explain)}.")
    return f"connection {entry.number}", [text for text in found if text]


def _unrecognised(browser: Browser) -> list[str]:
    """Return what was read, if none of it is of a known protocol."""
    if not browser.backend.loaded.done or browser.backend.loaded.entries:
        return []
    parties = sorted(browser.index.parties, key=lambda party: -party.rows)[:5]
    return [
        "A flow is recognised by the contents of several datagrams, not by its port. No flow in"
        " this file matches a known protocol.",
        *(f"{counted(party.rows, 'datagram')} {party.src} → {party.dst} ({party.transport})"
          for party in parties),
        "D decodes a port as a protocol, whatever its datagrams look like.",
    ]  # fmt: skip


def _datagram(browser: Browser) -> tuple[str, list[str]]:
    row, index = browser.packets.row(), browser.index
    if row is None:
        return "", []
    frame, marks = index.frames[row], index.marks[row]
    found = [text for bit, text in _FATES if marks & bit]
    for code, frames in sorted(index.hits.items()):
        if frame in frames:
            found += _code(browser, code)
    if not found and browser.backend.loaded.done:
        found.append("Nothing was found in it, and nothing in it was sent again, copied or lost.")
    return f"frame {frame}", found


def _code(browser: Browser, code: str) -> Iterator[str]:
    row = browser.findings.codes.get(code)
    if row is not None:
        yield f"{row.code} ({row.severity.label}): {row.title}"
        yield row.meaning


def _field(browser: Browser) -> tuple[str, list[str]]:
    node, record = browser.tree.node(), browser.tree.record
    if node is None or record is None or record.protocol is None:
        return "", []
    name = f"{record.protocol}.{node.name}"
    known = next((info for info in browser.backend.fields() if info.name == name), None)
    first, size = node.bit_offset, node.bit_length
    where = f"{counted(size, 'bit')} from bit {first % 8} of byte {first // 8}." if size else (
        "It is not on the wire: it is derived from other fields.")  # fmt: skip
    kind = "" if known is None else f" ({known.kind})"
    meaning = "" if known is None or not known.meaning else f" {known.meaning}."
    found = [f"{name}{kind}.{meaning}", where]
    if known is not None:
        found.append("* filters on the value it has here.")
    return node.name, found
