"""Steps from datagram to datagram: marks, copies, acknowledgements, what a text is found in."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial

from netdissect.browse.browser import Browser
from netdissect.browse.pane import FINDINGS, PACKETS
from netdissect.model.text import quoted
from netdissect.pipeline.index import AGAIN, COPY, FINDING, GONE, LOST, UNKNOWN

__all__ = [
    "acknowledgement",
    "next_mark",
    "of_connection",
    "other_copy",
    "search",
    "unacknowledged",
]

_AT_ONCE_S = 0.02
"""A search longer than this goes on beside the screen."""


def next_mark(browser: Browser, by: int) -> None:
    """Go to the next datagram that has a mark, or that the search finds."""
    if browser.searched:
        search(browser, browser.searched, by)
        return
    if browser.view == FINDINGS:
        browser.deeper()
        return
    packets, marks = browser.packets, browser.index.marks
    place = packets.cursor + by
    while 0 <= place < len(packets):
        row = packets.row(place)
        if row is not None and marks[row] & (AGAIN | COPY | LOST | FINDING | GONE | UNKNOWN):
            packets.go(place)
            return
        place += by
    browser.say("no further mark")


def search(browser: Browser, text: str, by: int = 1) -> None:
    """Go to the next datagram whose line holds a text. What takes longer than a key may is looked
    for beside the screen, until the cursor goes elsewhere.
    """
    browser.searched = text
    if not text:
        return
    packets = browser.packets
    rows, chosen, here = packets.rows(), packets.chosen, packets.row()
    sought = browser.sought = text.lower()

    def left() -> bool:
        return browser.sought is not sought or packets.chosen is not chosen or packets.row() != here

    def tell(at: int, found: bool) -> None:  # noqa: FBT001 - as `_looked` says it
        if not left():
            browser.say("" if found else f"no further {quoted(text)}")
            packets.go(packets.place(rows[at]) if found else packets.cursor)

    end = time.monotonic() + _AT_ONCE_S
    late = lambda: time.monotonic() > end  # noqa: E731 - beside the other one
    at, found = _looked(packets.summary, rows, packets.cursor + by, by, sought, late)
    if found or not 0 <= at < len(rows):
        tell(at, found)
        return
    browser.say(f"searching for {quoted(text)}…")
    browser.beside(lambda: partial(tell, *_looked(packets.told, rows, at, by, sought, left)))


def _looked(
    line: Callable[[int], str], rows: Sequence[int], at: int, by: int, sought: str,
    stopped: Callable[[], bool],
) -> tuple[int, bool]:  # fmt: skip
    """Return where a search has come to, and whether it has found something there."""
    while 0 <= at < len(rows) and not stopped():
        if sought in line(rows[at]).lower():
            return at, True
        at += by
    return at, False


def of_connection(browser: Browser, by: int) -> None:
    """Go to the next datagram of the same connection."""
    index, packets = browser.index, browser.packets
    row = packets.row()
    if row is None:
        return
    mine = index.parties[index.owners[row]].connection
    place = packets.cursor + by
    while (other := packets.row(place)) is not None:
        if index.parties[index.owners[other]].connection == mine:
            packets.go(place)
            return
        place += by


def other_copy(browser: Browser) -> None:
    """Go to another copy of the unit: from a further one to the first, else to the next."""
    row = browser.packets.row()
    if row is None:
        return
    first = browser.index.firsts[row]
    if first:
        browser.open(PACKETS, frame=first)
        return
    frame, place = browser.index.frames[row], browser.packets.cursor + 1
    while (other := browser.packets.row(place)) is not None:
        if browser.index.firsts[other] == frame:
            browser.open(PACKETS, frame=browser.index.frames[other])
            return
        place += 1
    browser.say("no other copy is shown")


def acknowledgement(browser: Browser) -> None:
    """Go to the frame that acknowledges."""
    row = browser.packets.row()
    if row is not None and browser.index.acked[row]:
        browser.open(PACKETS, frame=browser.index.acked[row])
    else:
        browser.say("no acknowledgement in this capture")


def unacknowledged(browser: Browser, by: int) -> None:
    """Go to the next datagram that was never acknowledged and should have been."""
    place = browser.packets.cursor + by
    while (row := browser.packets.row(place)) is not None:
        if browser.index.marks[row] & (LOST | UNKNOWN):
            browser.packets.go(place)
            return
        place += by
    browser.say("none further that was never acknowledged")
