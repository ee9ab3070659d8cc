"""Reports in a real browser: what a reader sees, and that nothing leaves the page."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import browser as chromium
import gallery
import written
from browser import Browser

PICTURES = gallery.ROOT / "docs" / "images"


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    yield from chromium.started(tmp_path_factory.mktemp("profile"))


@pytest.fixture(scope="module")
def lossy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return written.report(gallery.LOSSY, tmp_path_factory.mktemp("report"))


@pytest.fixture(scope="module")
def several(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return written.report("eoudp/late_three_clients.pcap", tmp_path_factory.mktemp("report"))


def shown_rows(browser: Browser) -> list[list[str]]:
    return browser.run(
        "return [...document.querySelectorAll('table.sorts tbody tr:not([hidden])')]"
        ".map(row => [...row.cells].map(cell => cell.textContent))"
    )


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [375, 1440])
@pytest.mark.parametrize("page", ["lossy", "several"])
def test_no_complaint_no_request_no_sideways_scroll(
    page: str, width: int, scheme: str, browser: Browser, request: pytest.FixtureRequest
) -> None:
    browser.size(width, 800)
    browser.scheme(scheme)
    browser.open(request.getfixturevalue(page))
    if page == "several":
        browser.run("for (const one of document.querySelectorAll('details')) one.open = true")
    browser.run("scrollTo(0, document.body.scrollHeight)")
    assert browser.run("return document.documentElement.scrollWidth") == width
    assert browser.complaints() == []
    assert browser.requests() == []
    small = browser.run(
        "return [...document.querySelectorAll('.plot .tick')].filter(one => one.tagName === 'text')"
        ".map(one => one.getBoundingClientRect().height).filter(height => height && height < 10)"
    )
    assert small == []


def test_a_number_and_its_percentage_share_a_line(browser: Browser, tmp_path: Path) -> None:
    browser.size(375, 800)
    browser.open(written.report("riptide/udp_2.1.0_broadcast_or_bug.pcap", tmp_path))
    lines = browser.run(
        "return [...document.querySelectorAll('#connections td[data-l=retransmitted]')].map(one => {"
        "const range = document.createRange(); range.selectNodeContents(one);"
        "return new Set([...range.getClientRects()].map(box => box.top)).size})"
    )
    assert lines == [1, 1, 1]


def test_messages_can_be_searched_sorted_and_shown_all(browser: Browser, lossy: Path) -> None:
    browser.size(1440, 900)
    browser.open(lossy)
    assert len(shown_rows(browser)) == 25
    assert browser.one(".count").text == "25 of 200 rows"
    field = browser.one("#q-1")
    field.send_keys("#221")
    assert [row[2] for row in shown_rows(browser)] == ["reliable 17"]
    assert browser.one(".count").text == "1 of 200 rows"
    field.clear()
    field.send_keys("x\b")
    browser.run("document.querySelector('#messages-1 button.more').click()")
    assert len(shown_rows(browser)) == 200
    assert browser.one(".count").text == "200 rows"
    click = "document.querySelectorAll('#messages-1 th button')[4].click()"
    browser.run(click)
    copies = [int(row[4].split()[-1]) for row in shown_rows(browser)]
    assert copies == sorted(copies)
    browser.run(click)
    copies = [int(row[4].split()[-1]) for row in shown_rows(browser)]
    assert copies == sorted(copies, reverse=True)
    sorts = browser.run("return [...document.querySelectorAll('th')].map(one => one.ariaSort)")
    assert sorts.count("descending") == 1
    assert browser.complaints() == []


def test_zoom_shows_a_part_and_all_again(browser: Browser, lossy: Path) -> None:
    browser.size(1440, 900)
    browser.open(lossy)
    places = (
        "return [...document.querySelectorAll('#acks-1-0 .xaxis text')].map(one => one.textContent)"
    )
    whole, path = browser.run(places), "return document.querySelector('#acks-1-0 .dot').outerHTML"
    before = browser.run(path)
    buttons = {one.text: one for one in browser.all("#plots-1 .zoomtools button")}
    buttons["Zoom in"].click()
    part = browser.run(places)
    assert part != whole
    assert 3 <= len(part) <= 14
    assert len(browser.run(path)) < len(before)
    rate = "return document.querySelector('[id^=rate-1] .xaxis text').textContent"
    assert browser.run(rate) == part[0], "all plots of one axis zoom together"
    buttons["Later"].click()
    assert browser.run(places) != part
    buttons["All"].click()
    assert browser.run(places) == whole
    assert browser.run(path) == before
    assert browser.complaints() == []


def test_a_zoom_ends_before_its_ticks_run_out_of_digits(browser: Browser, lossy: Path) -> None:
    browser.open(lossy)
    click = (
        "const button = document.querySelector('#plots-1 [data-zoom=in]');"
        "for (let i = 0; i < 80; i++) button.click();"
        "return document.querySelectorAll('#acks-1-0 .xaxis text').length"
    )
    assert 3 <= browser.run(click) <= 14
    assert browser.complaints() == []


def test_a_drag_zooms_and_the_cursor_names_the_frame(browser: Browser, lossy: Path) -> None:
    from selenium.webdriver.common.action_chains import ActionChains

    browser.size(1440, 900)
    browser.open(lossy)
    plot = browser.one("#acks-1-0")
    browser.run("arguments[0].scrollIntoView({block: 'center', behavior: 'instant'})", plot)
    x, y = browser.run(
        "const place = document.querySelector('#acks-1-0 .box').getAttribute('d').match(/M([\\d.]+) ([\\d.]+)/),"
        "box = arguments[0].getBoundingClientRect(), scale = box.width / 1200;"
        "return [(place[1] - 600) * scale, place[2] * scale - box.height / 2]",
        plot,
    )
    ActionChains(browser.driver).move_to_element_with_offset(plot, int(x), int(y)).perform()
    assert "#4 · several copies" in browser.one("#plots-1 .read").text
    drag = ActionChains(browser.driver).move_to_element_with_offset(plot, -100, 0)
    drag.click_and_hold().move_by_offset(200, 0).release().perform()
    texts = [one.text for one in browser.all("#acks-1-0 .xaxis text")]
    assert "0 s" not in texts
    ActionChains(browser.driver).double_click(plot).perform()
    assert "0 s" in [one.text for one in browser.all("#acks-1-0 .xaxis text")]
    assert browser.complaints() == []


def test_the_worst_part_is_open_and_a_link_opens_another(browser: Browser, several: Path) -> None:
    browser.size(1440, 900)
    browser.open(several)
    opened = "return [...document.querySelectorAll('details')].map(one => one.open)"
    assert browser.run(opened) == [True, False, False]
    last = browser.all("details")[-1].get_attribute("id")
    browser.run("window.gone = 0; addEventListener('hashchange', () => window.gone++)")
    browser.one(f"#connections a[href='#{last}']").click()
    # The page hears of the new address in a task of its own, after the click. Its own listener was
    # added before ours.
    browser.wait("return window.gone")
    assert browser.run(opened) == [True, False, True]
    browser.run("dispatchEvent(new Event('beforeprint'))")
    assert browser.run(opened) == [True, True, True]
    browser.run("dispatchEvent(new Event('afterprint'))")
    assert browser.run(opened) == [True, False, True]


def test_every_part_is_reached_by_keyboard(browser: Browser, lossy: Path) -> None:
    from selenium.webdriver.common.keys import Keys

    browser.size(1440, 900)
    browser.open(lossy)
    reached = []
    for _ in range(45):
        browser.driver.switch_to.active_element.send_keys(Keys.TAB)
        reached.append(
            browser.run(
                "const one = document.activeElement; return one.ariaLabel || one.textContent.trim() || one.id"
            )
        )
    assert reached[0] == "To the report"
    assert {"Zoom in", "Copies", "q-1", "Show all 200"} <= set(reached)
    assert any("scrolls sideways" in name for name in reached)
    browser.one("section[id=messages-1] th button").send_keys(Keys.ENTER)
    assert shown_rows(browser)[0][0] == "0.089 s"


def test_hostile_names_stay_text(browser: Browser, tmp_path: Path) -> None:
    page, evil = written.hostile_report(tmp_path)
    browser.size(1440, 900)
    browser.open(page)
    browser.run("for (const one of document.querySelectorAll('details')) one.open = true")
    assert browser.complaints() == []
    assert browser.requests() == []
    assert browser.run("return document.scripts.length + document.images.length") == 1
    assert browser.run("return window.pwned") is None
    text = browser.run("return document.body.textContent")
    assert text.count(evil) >= 4
    assert "\x1b" not in text
    assert "\u202e" not in text


def test_a_report_prints_on_paper(browser: Browser, lossy: Path) -> None:
    import base64

    browser.open(lossy)
    result = browser.driver.execute_cdp_cmd(
        "Page.printToPDF", {"paperWidth": 8.27, "paperHeight": 11.7}
    )
    pdf = base64.b64decode(result["data"])
    assert pdf.startswith(b"%PDF")
    assert (
        2
        <= pdf.count(b"/Type /Page\n") + pdf.count(b"/Type /Page ") + pdf.count(b"/Type/Page")
        <= 12
    )


@pytest.mark.parametrize(
    ("name", "width", "height", "scheme"),
    [("wide", 1440, 1000, "light"), ("dark", 1440, 1000, "dark"), ("phone", 375, 800, "light")],
)
def test_it_looks_as_it_did(
    name: str, width: int, height: int, scheme: str, browser: Browser, lossy: Path,
    update_expected: bool,
) -> None:  # fmt: skip
    browser.size(width, height)
    browser.scheme(scheme)
    browser.open(lossy)
    picture = browser.picture()
    kept = PICTURES / f"report-{name}.png"
    if update_expected:
        kept.write_bytes(picture)
    assert browser.difference(picture, kept.read_bytes()) < 8
