"""What `export --qlog-flavour qvis` writes, drawn by qvis in a real browser.

qvis is no part of this project: NETDISSECT_QVIS names the folder of one that was built from its
repository, where its index.html lies. It needs the packages of its package-lock.json: with Vue 2.7 in
place of 2.6, its page of statistics redraws itself for ever, whatever file is loaded.
"""

from __future__ import annotations

import json
import os
import time
from collections import Counter
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import browser
import console_docs
from netdissect.cli import cli

HOME = os.environ.get("NETDISSECT_QVIS")
CAPTURES = console_docs.ROOT / "captures"
NAMES = (
    "riptide/udp_2.2.1_lossy_clientleg.pcap", "teeworlds/ddnet_loss_client_side.pcap",
    "knet/udp_any_interface.pcapng", "eoudp/late_all_components.pcap", "netplay/bin1_lossy__client_side.pcap",
)  # fmt: skip
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(HOME is None, reason="NETDISSECT_QVIS names no folder with a qvis that was built"),
]


@pytest.fixture
def window(tmp_path_factory: pytest.TempPathFactory) -> Iterator[browser.Browser]:
    for opened in browser.started(tmp_path_factory.mktemp("profile")):
        opened.size(1400, 1000)
        yield opened


def until(window: browser.Browser, script: str, *values: Any) -> Any:
    """Return what a script in the page returns as soon as that is something."""
    end = time.monotonic() + browser.PATIENCE_S
    while not (found := window.run(script, *values)) and time.monotonic() < end:
        time.sleep(0.1)
    return found


def show(window: browser.Browser, page: str) -> None:
    window.run("location.hash = '#/' + arguments[0]", page)


def table(window: browser.Browser) -> dict[str, int]:
    """Return how often qvis has counted each event."""
    show(window, "stats")
    rows = until(
        window,
        "return [...document.querySelectorAll('tr')].map(row => [...row.children].map(cell => cell.innerText.trim()))",
    )
    return {name: int(count) for row in rows for name, count in pairwise(row) if count.isdigit()}


@pytest.mark.parametrize("name", NAMES)
def test_qvis_counts_and_draws_what_was_written(window: browser.Browser, tmp_path: Path, name: str) -> None:
    file = tmp_path / "game.sqlog"
    words = ["export", str(CAPTURES / name), "--qlog", str(file), "--qlog-flavour", "qvis", "--connection", "1"]
    result = CliRunner().invoke(cli, words)
    assert result.exit_code in {0, 4}, result.stderr
    window.open(Path(str(HOME)) / "index.html")
    window.one("#fileUpload").send_keys(str(file))
    press = "const found = [...document.querySelectorAll('button')].find(each => each.innerText.trim() == 'Import' && !each.disabled);"
    assert until(window, press + "if (found) found.click(); return !!found")
    assert until(window, "return document.querySelectorAll('#loadedGroupsContainer .row').length") == 1
    names = Counter(json.loads(record)["name"] for record in file.read_text().split("\x1e")[2:] if record.strip())
    for page, drawn in (("sequence", "svg text"), ("congestion", "svg text"), ("packetization", "svg rect")):
        show(window, page)
        assert until(window, "return document.querySelectorAll(arguments[0]).length > 20", drawn), page
    counted = table(window)
    assert names["transport:packet_sent"] > 0
    for event, count in names.items():
        assert counted[event.partition(":")[2]] == count
    said = window.complaints()
    assert not [line for line in said if "alert" in line or "not in the correct order" in line or "that we didn't send" in line]
    assert not [url for url in window.requests() if "://" in url and not url.startswith(("file:", "data:", "blob:"))]
