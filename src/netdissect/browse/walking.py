"""Steps from datagram to datagram: marks, copies, acknowledgements, what a text is found in."""

from __future__ import annotations

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

_LOOKED_THROUGH = 20_000
"""Rows that a search goes through at a time."""


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
    """Go to the next datagram whose line holds a text."""
    browser.searched = text
    if not text:
        return
    packets, place = browser.packets, browser.packets.cursor
    for _ in range(_LOOKED_THROUGH):
        place += by
        row = packets.row(place)
        if row is None:
            browser.say(f"no further {quoted(text)}")
            return
        if text.lower() in packets.summary(row).lower():
            packets.go(place)
            return
    packets.go(place)
    browser.say(f"not in the next {_LOOKED_THROUGH:,} datagrams; n goes on")


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
