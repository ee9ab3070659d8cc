"""Jumps from datagram to datagram: marks, copies, acknowledgements, search results."""

from __future__ import annotations

import time
from bisect import bisect_left
from collections.abc import Callable, Sequence
from functools import partial

from netdissect.browse.browser import Browser
from netdissect.browse.pane import FINDINGS, PACKETS
from netdissect.model.text import quoted
from netdissect.pipeline.index import AGAIN, COPY, FINDING, GONE, LOST, RESENT, UNKNOWN

_SEARCH_S = 0.02
"""A search that takes longer than this continues in the background."""
_MARKED = AGAIN | COPY | LOST | FINDING | GONE | UNKNOWN | RESENT


def _find(browser: Browser, by: int, matches: Callable[[int], bool | int]) -> int | None:
    """Return the next line of the packets (`by` = 1; -1: the previous one) whose row matches."""
    packets = browser.packets
    place = packets.cursor + by
    while (row := packets.row(place)) is not None:
        if matches(row):
            return place
        place += by
    return None


def _go(browser: Browser, by: int, matches: Callable[[int], bool | int]) -> bool:
    """Put the cursor on the next line whose row matches; return False if there is none."""
    place = _find(browser, by, matches)
    if place is not None:
        browser.packets.go(place)
    return place is not None


def next_mark(browser: Browser, by: int) -> None:
    """Go to the next datagram (`by` = 1; -1: the previous one) that has a mark, that contains the
    searched text, or that has the finding by which the packets were opened.
    """
    code, frames = browser.findings.walked
    if browser.searched:
        search(browser, browser.searched, by)
    elif browser.view == FINDINGS:
        browser.deeper()
    elif code:
        if not _go(browser, by, lambda row: _contains(frames, browser.index.frames[row])):
            browser.say(f"no further {code}")
    elif not _go(browser, by, lambda row: browser.index.marks[row] & _MARKED):
        browser.say("no further mark")


def _contains(frames: Sequence[int], frame: int) -> bool:
    place = bisect_left(frames, frame)
    return place < len(frames) and frames[place] == frame


def search(browser: Browser, text: str, by: int = 1) -> None:
    """Go to the next datagram whose line contains a text. A long search continues in the
    background until the cursor is moved.
    """
    browser.searched = text
    if not text:
        return
    packets = browser.packets
    rows, chosen, start = packets.rows(), packets.chosen, packets.row()
    sought = browser.sought = text.lower()

    def abandoned() -> bool:
        return (browser.sought is not sought or packets.chosen is not chosen
                or packets.row() != start)  # fmt: skip

    def finish(at: int, found: bool) -> None:  # noqa: FBT001 - the result of `_search`
        if not abandoned():
            browser.say("" if found else f"no further {quoted(text)}")
            packets.go(packets.place(rows[at]) if found else packets.cursor)

    end = time.monotonic() + _SEARCH_S
    late = lambda: time.monotonic() > end  # noqa: E731 - beside `abandoned`
    at, found = _search(packets.summary, rows, packets.cursor + by, by, sought, late)
    if found or not 0 <= at < len(rows):
        finish(at, found)
        return
    browser.say(f"searching for {quoted(text)}…")

    def work() -> Callable[[], None]:
        return partial(finish, *_search(packets.uncached_summary, rows, at, by, sought, abandoned))

    browser.in_background(work)


def _search(
    summary: Callable[[int], str], rows: Sequence[int], at: int, by: int, sought: str,
    stopped: Callable[[], bool],
) -> tuple[int, bool]:  # fmt: skip
    """Return where the search has stopped, and whether it has found the text there."""
    while 0 <= at < len(rows) and not stopped():
        if sought in summary(rows[at]).lower():
            return at, True
        at += by
    return at, False


def next_of_connection(browser: Browser, by: int) -> None:
    """Go to the next datagram (`by` = 1; -1: the previous one) of the same connection."""
    index, row = browser.index, browser.packets.row()
    if row is not None:
        connection = index.party(row).connection
        _go(browser, by, lambda other: index.party(other).connection == connection)


def next_unacknowledged(browser: Browser, by: int) -> None:
    """Go to the next datagram (`by` = 1; -1: the previous one) that was never acknowledged."""
    if not _go(browser, by, lambda row: browser.index.marks[row] & (LOST | UNKNOWN)):
        browser.say("no further one that was never acknowledged")


def other_copy(browser: Browser) -> None:
    """Go from a later copy of a unit to the first one, and from the first one to the next."""
    index, row = browser.index, browser.packets.row()
    if row is None:
        return
    target, frame = index.firsts[row], index.frames[row]
    if not target:
        place = _find(browser, 1, lambda other: index.firsts[other] == frame)
        found = None if place is None else browser.packets.row(place)
        if found is None:
            browser.say("no other copy is shown")
            return
        target = index.frames[found]
    browser.open(PACKETS, frame=target)


def acknowledgement(browser: Browser) -> None:
    """Go to the frame that acknowledges the datagram."""
    row = browser.packets.row()
    if row is not None and browser.index.acked[row]:
        browser.open(PACKETS, frame=browser.index.acked[row])
    else:
        browser.say("no acknowledgement in this capture")
