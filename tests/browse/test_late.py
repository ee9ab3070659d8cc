"""Whoever parses a running capture for root may not be able to read files of the program."""

import subprocess
import sys
from pathlib import Path

CAPTURES = Path(__file__).resolve().parents[2] / "captures"
NAMES = (
    "eoudp/rfc02_lossy_client", "knet/udp_loss8.client", "netplay/bin1_lossy__client_side",
    "riptide/udp_2.2.1_lossy_clientleg", "teeworlds/tw07_blackout_client_side",
)  # fmt: skip

PROGRAM = """
import os, sys, time
from pathlib import Path

from netdissect.browse.browser import Browser
from netdissect.browse.keys import press
from netdissect.browse.layout import draw
from netdissect.cli import live_backend
from netdissect.cli.live import LiveSession, load
from netdissect.cli.session import Choices
from netdissect.pipeline.live import LiveFeed, LiveRequest

os.geteuid = lambda: 0
load(Choices(), live_backend._LATE)
folder, opened = Path(sys.argv[1]), []


def watch(event, arguments):
    name = arguments[0] if event == "open" else None
    if isinstance(name, str) and name.endswith((".py", ".pyc", ".so", ".json", ".css", ".js")):
        opened.append(name)


sys.addaudithook(watch)
for number, capture in enumerate(sys.argv[2:]):
    target = str(folder / f"{number}.pcapng")
    feed = LiveFeed(LiveRequest(file=capture, recorded=True), write=target)
    with LiveSession(feed, Choices(), write=target, quiet=True) as session:
        backend = live_backend.LiveBackend(target, Choices(), session)
        browser = Browser(backend)
        backend.read()

        def rest():
            end = time.monotonic() + 60
            while time.monotonic() < end:
                browser.tick()
                draw(browser, 80, 24)
                if not (browser.cache.busy or browser.filtering or browser.counting):
                    break
                time.sleep(0.02)

        for key in "1e?2gije?j3e?L4e?>>5e?":
            press(browser, key, key)
            rest()
        browser.filter("msg.resend or riptide.sequence_id == 3")
        rest()
        backend.write(f"{target}.part", [1, 2, 3])
        backend.report(f"{target}.html")
print(opened)
"""


def test_all_files_of_the_program_are_read_before_rights_are_given_up(tmp_path: Path) -> None:
    captures = [str(CAPTURES / f"{name}.pcap") for name in NAMES]
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(tmp_path), *captures],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (done.stdout, done.returncode) == ("[]\n", 0), done.stderr
