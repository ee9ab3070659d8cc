from __future__ import annotations

import re
from pathlib import Path

import pytest

from netdissect.browse.browser import Browser
from netdissect.browse.clock import STYLES, BrowseClock
from netdissect.browse.keys import press
from netdissect.browse.layout import draw
from netdissect.cli.file_backend import FileBackend
from netdissect.cli.session import Choices
from netdissect.render.console import line_plain

LOSSY = Path(__file__).resolve().parents[2] / "captures/riptide/udp_2.2.1_lossy_clientleg.pcap"
SECOND = 1_000_000_000
MIDNIGHT = 1_700_006_400 * SECOND
"""2023-11-15 00:00:00 UTC."""


@pytest.fixture
def browser() -> Browser:
    backend = FileBackend(str(LOSSY), Choices())
    backend.read()
    browser = Browser(backend)
    browser.tick()
    return browser


def keys(browser: Browser, text: str) -> list[str]:
    """Press keys; return the lines of the screen."""
    for key in text.split(" "):
        press(browser, key, key if len(key) == 1 else None)
    return [line_plain(line) for line in draw(browser, 80, 24)]


def times(lines: list[str]) -> list[float]:
    found = [re.match(r"[▌▏ ] *\d+ +(-?[\d.]+) ", line) for line in lines]
    return [float(one[1]) for one in found if one is not None]


def test_the_time_since_the_line_above_is_that_of_the_capture_wherever_the_list_begins(
    browser: Browser,
) -> None:
    index = browser.index
    keys(browser, "2")
    browser.packets.go(500)
    while browser.clock.style != "d":
        keys(browser, "d")
    for key in ("j", "k", "pagedown", "x"):
        seen = times(keys(browser, key))
        assert len(seen) > 5
        first = browser.packets.top
        for row, since in enumerate(seen, first):
            assert since == pytest.approx((index.times[row] - index.times[row - 1]) / 1e9, abs=2e-6)


@pytest.mark.parametrize("style", STYLES)
def test_no_style_moves_the_columns(browser: Browser, style: str) -> None:
    while browser.clock.style != style:
        keys(browser, "d")
    head, *lines = keys(browser, "2")[2:]
    end = head.index("time") + len("time")
    assert all(line[end - 1].isdigit() and line[end] == " " for line in lines[:5])
    seen = keys(browser, "3")
    assert all(len(line) == 80 for line in seen)


def test_times_since_the_first_frame_of_the_connection() -> None:
    clock = BrowseClock("c", 100 * SECOND)
    assert clock.show(107 * SECOND) == "7.000000"  # no connection is selected
    clock.connection_ns = 105 * SECOND
    assert clock.show(107 * SECOND) == "2.000000"


@pytest.mark.parametrize(
    ("text", "since_s"),
    [
        ("12.5", 12.5), ("0", 0), ("+1.2", 51.2), ("-0.5", 49.5), ("-60", -10), ("03:15:02", 8102),
        ("03:15:02.25", 8102.25), ("01:00", 0), ("00:59:59", 86399), ("x", None), ("", None),
        ("1:2:3:4", None), ("nan", None), ("1e30", None), ("25:00", None),
    ],
)  # fmt: skip
def test_what_a_user_types_as_a_time(
    text: str, since_s: float | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    import time

    monkeypatch.setenv("TZ", "UTC-1")  # one hour east
    time.tzset()
    try:
        found = BrowseClock("r", MIDNIGHT).read(text, MIDNIGHT + 50 * SECOND)
    finally:
        monkeypatch.undo()
        time.tzset()
    assert found == (None if since_s is None else MIDNIGHT + int(since_s * SECOND))


def test_at_goes_to_a_time(browser: Browser) -> None:
    keys(browser, "2 @ 3 enter")
    row = browser.packets.row()
    keys(browser, "@ + 1 . 5 enter")
    moved = browser.packets.row()
    assert row is not None
    assert moved is not None
    gone = (browser.index.times[moved] - browser.index.times[row]) / SECOND
    assert 1.5 <= gone < 1.6
    assert "is not a time such as" in keys(browser, "@ x enter")[-1]
