from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
from click.testing import CliRunner

from netdissect.browse.app import BrowserApp
from netdissect.browse.browser import Browser
from netdissect.cli import cli
from netdissect.cli.browsing import Browsed
from netdissect.cli.session import Choices
from netdissect.render.console import line_plain

ROOT = Path(__file__).resolve().parents[2]
LOSSY = ROOT / "captures" / "riptide" / "udp_2.2.1_lossy_clientleg.pcap"


def app_of(*, plain: bool = False) -> BrowserApp:
    return BrowserApp(Browser(Browsed(str(LOSSY), Choices()), plain=plain))


def seen(app: BrowserApp) -> str:
    """Return what the widget hands to the terminal."""
    height = app.board.size.height
    return "\n".join(app.board.render_line(y).text for y in range(height))


async def until(app: BrowserApp, pilot: object, text: str) -> str:
    for _ in range(600):
        found = seen(app)
        if text in found:
            return found
        await asyncio.sleep(0.05)
    raise AssertionError(f"{text!r} did not appear in\n{found}")


@pytest.mark.parametrize("size", [(80, 24), (160, 50)])
def test_the_program_on_a_screen(size: tuple[int, int]) -> None:
    async def run() -> None:
        app = app_of()
        async with app.run_test(size=size) as pilot:
            await until(app, pilot, "Closed by the client")
            await pilot.press("v", "tab", "j")
            found = await until(app, pilot, "type_id = 5")
            assert ("│" in found.splitlines()[5]) == (size[0] >= 110)
            assert "0000 [05]" in found
            await pilot.resize_terminal(60, 20)
            await pilot.pause()
            assert {len(line) for line in seen(app).splitlines()} == {60}
            await pilot.press("q")
        assert app.return_value == 0

    asyncio.run(run())


def test_ascii_is_ascii() -> None:
    async def run() -> None:
        app = app_of(plain=True)
        async with app.run_test(size=(80, 24)) as pilot:
            await until(app, pilot, "Closed by the client")
            for key in "12345":
                await pilot.press(key)
                assert seen(app).isascii()

    asyncio.run(run())


def test_without_a_terminal_it_prints_connections() -> None:
    browsed = CliRunner().invoke(cli, ["browse", str(LOSSY)])
    listed = CliRunner().invoke(cli, ["connections", str(LOSSY)])
    assert (browsed.exit_code, browsed.stdout) == (0, listed.stdout)


@pytest.mark.parametrize(
    ("words", "status", "said"),
    [
        (["-i", "lo"], 2, "sniff --live"),
        ([], 2, "Missing capture"),
        (["nothing-here.pcap"], 3, "No such file"),
    ],
)
def test_what_cannot_be_browsed_is_said(words: list[str], status: int, said: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "netdissect", "browse", *words],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == status
    assert said in done.stderr


@pytest.mark.skipif(shutil.which("tmux") is None, reason="tmux is not there")
def test_in_a_real_terminal(tmp_path: Path) -> None:
    socket = str(tmp_path / "tmux")

    def tmux(*words: str) -> str:
        return subprocess.run(
            ["tmux", "-S", socket, *words], capture_output=True, text=True, check=False
        ).stdout

    def until_seen(text: str) -> str:
        end = time.monotonic() + 60
        shown = ""
        while time.monotonic() < end:
            shown = tmux("capture-pane", "-p")
            if text in shown:
                return shown
            time.sleep(0.2)
        raise AssertionError(f"{text!r} did not appear in\n{shown}")

    program = f"{sys.executable} -m netdissect browse {LOSSY}; echo left $?; sleep 60"
    env = {**os.environ, "TERM": "xterm"}
    subprocess.run(
        ["tmux", "-S", socket, "new-session", "-d", "-x", "80", "-y", "24", program],
        check=True, env=env,
    )  # fmt: skip
    try:
        until_seen("Closed by the client")
        tmux("send-keys", "v", "Tab", "j")
        assert "▌" in until_seen("0000 [05]")
        tmux("send-keys", "q")
        until_seen("left 0")
    finally:
        tmux("kill-server")


def test_line_plain_is_what_is_drawn() -> None:
    assert line_plain([("a\x1b", ""), ("b", "title")]) == "a\\x1bb"
