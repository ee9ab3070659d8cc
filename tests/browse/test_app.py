from __future__ import annotations

import asyncio
import gc
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from signal import SIGHUP, SIGINT, SIGTERM
from socket import AF_INET, SOCK_DGRAM, socket

import pytest
from click.testing import CliRunner

from livetraffic import needs_capture, payloads
from netdissect.browse.app import _ASCII, BrowserApp
from netdissect.browse.browser import Browser
from netdissect.cli import cli
from netdissect.cli.file_backend import FileBackend
from netdissect.cli.session import Choices
from netdissect.render.console import line_plain

ROOT = Path(__file__).resolve().parents[2]
LOSSY = ROOT / "captures" / "riptide" / "udp_2.2.1_lossy_clientleg.pcap"


def app_of(*, plain: bool = False) -> BrowserApp:
    return BrowserApp(Browser(FileBackend(str(LOSSY), Choices()), plain=plain))


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


def test_the_mouse_shows_a_span_and_sorts() -> None:
    async def run() -> None:
        app = app_of()
        async with app.run_test(size=(80, 24)) as pilot:
            await until(app, pilot, "Closed by the client")
            await pilot.click(offset=(50, 2))
            assert "oldest first" in seen(app)
            await pilot.press("4")
            await until(app, pilot, "1 of 129 points")
            await pilot.mouse_down(offset=(30, 10))
            await pilot.mouse_up(offset=(50, 10))
            found = await until(app, pilot, "0 shows all")
            start, end = map(float, re.findall(r"([\d.]+) to ([\d.]+) s:", found)[0])
            assert 3.0 < start < 4.5
            assert 6.0 < end < 7.5
            await pilot.press("3")
            await until(app, pilot, "reliable 17")
            await until(app, pilot, "· sent")
            await pilot.mouse_down(offset=(30, 3))
            await pilot.mouse_up(offset=(50, 4))
            found = await until(app, pilot, "0 shows all")
            start, end = map(float, re.findall(r"([\d.]+) to ([\d.]+) s;", found)[0])
            assert 3.0 < start < 4.5
            assert 6.0 < end < 8.0
            await pilot.press("0", "q")

    asyncio.run(run())


@pytest.mark.parametrize(("width", "shown"), [(80, "[5 Find]"), (59, "[1 Conn]")])
def test_a_click_on_the_name_of_a_view_shows_it(width: int, shown: str) -> None:
    async def run() -> None:
        app = app_of()
        async with app.run_test(size=(width, 24)) as pilot:
            await until(app, pilot, "losed by")
            await pilot.click(offset=(width - 3, 0))
            await pilot.pause()
            assert shown in seen(app).splitlines()[0]
            if width == 80:
                await pilot.click(offset=(width - 8, 0))
                assert "[5 Find]" in seen(app)
                await pilot.click(offset=(width - 9, 0))
                assert "[4 Plot]" in seen(app)
                await pilot.click(offset=(2, 0))
                assert "[4 Plot]" in seen(app)
            await pilot.press("q")

    asyncio.run(run())


def test_a_file_is_read_again_with_another_rule() -> None:
    async def run() -> None:
        app = app_of()
        async with app.run_test(size=(80, 24)) as pilot:
            await until(app, pilot, "Closed by the client")
            before = app.browser
            await pilot.press("D")
            app.browser.prompt.text = "udp.port==21109,eoudp-rfc02"  # type: ignore[union-attr]
            await pilot.press("enter")
            await until(app, pilot, "1 rfc02")
            assert app.browser is not before
            assert app.board.browser is app.browser
            await pilot.press("q")

    asyncio.run(run())


PICTURES = {
    "browse-connections.svg": ((80, 24), "Closed by the client", "", ["client →"]),
    "browse-time.svg": ((80, 24), "Closed by the client", "3", ["acknowledged", "client →"]),
    "browse-packets.svg": ((160, 50), "Closed by the client", "v tab", ["0000 [05]"]),
    "browse-plots.svg": ((160, 50), "Closed by the client", "4", ["1 of 129 points"]),
}
"""Name -> size, what is waited for, keys, all that is waited for then."""


def drawn(svg: str) -> list[tuple[str, str, str, str]]:
    """Return the words of a picture with their places and looks."""
    looks = dict(re.findall(r"-(r\d+) \{ ([^}]*) \}", svg))
    words = re.findall(r'-(r\d+)" x="([\d.]+)" y="([\d.]+)"[^>]*>([^<]*)</text>', svg)
    return [(x, y, text, looks[look]) for look, x, y, text in words]


@pytest.mark.parametrize("name", PICTURES)
def test_the_pictures_are_what_is_drawn(name: str, update_expected: bool) -> None:
    size, first, keys, then = PICTURES[name]
    path = ROOT / "docs" / "images" / name

    async def run() -> str:
        app = app_of()
        async with app.run_test(size=size) as pilot:
            await until(app, pilot, first)
            await pilot.press(*keys.split())
            for text in then:
                await until(app, pilot, text)
            return app.export_screenshot(title=f"netdissect browse {LOSSY.name}")

    svg = asyncio.run(run())
    if update_expected:
        # A picture asks nothing of a network.
        path.write_text(re.sub(r"@font-face \{[^}]*\}\s*", "", svg))
    assert len(drawn(svg)) > 20
    assert drawn(path.read_text()) == drawn(svg)


def test_a_screen_that_is_drawn_anew_leaves_no_garbage() -> None:
    """While a capture is read, what refers to itself is hardly ever looked for."""

    async def run() -> None:
        app = app_of()
        async with app.run_test(size=(80, 24)) as pilot:
            await until(app, pilot, "Closed by the client")
            gc.collect()
            gc.disable()
            try:
                for _ in range(5):
                    app.board.redraw()
                    await pilot.pause()
                assert gc.collect() < 5 * 24
            finally:
                gc.enable()

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


def test_what_became_of_a_datagram_has_a_sign_of_its_own_in_ascii() -> None:
    signs = "→←»○✗·?"
    assert len(set(signs.translate(_ASCII))) == len(signs)


def test_without_a_terminal_it_prints_connections() -> None:
    browsed = CliRunner().invoke(cli, ["browse", str(LOSSY)])
    listed = CliRunner().invoke(cli, ["connections", str(LOSSY)])
    assert (browsed.exit_code, browsed.stdout) == (0, listed.stdout)


@pytest.mark.parametrize(
    ("words", "status", "said"),
    [
        (["-i", "lo"], 2, "browse -i needs a terminal"),
        ([], 2, "Give either FILE"),
        ([str(LOSSY), "-i", "lo"], 2, "Give either FILE"),
        ([str(LOSSY), "-w", "copy.pcapng"], 2, "need a live capture"),
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


class Terminal:
    """A terminal of 80x24 in which the browser runs."""

    def __init__(self, folder: Path, words: str) -> None:
        self.socket = str(folder / "tmux")
        program = f"{sys.executable} -m netdissect browse {words}; echo left $?; sleep 60"
        subprocess.run(
            ["tmux", "-S", self.socket, "new-session", "-d", "-x", "80", "-y", "24", program],
            check=True, env={**os.environ, "TERM": "xterm"},
        )  # fmt: skip

    def press(self, *keys: str) -> None:
        self._tmux("send-keys", *keys)

    def until_seen(self, text: str) -> str:
        end = time.monotonic() + 60
        shown = ""
        while time.monotonic() < end:
            shown = self._tmux("capture-pane", "-p")
            if text in shown:
                return shown
            time.sleep(0.2)
        raise AssertionError(f"{text!r} did not appear in\n{shown}")

    def programs(self) -> list[int]:
        """Return the processes of the browser, below the shell of the terminal."""
        shell = self._tmux("list-panes", "-F", "#{pane_pid}").strip()
        found = subprocess.run(["pgrep", "-P", shell], capture_output=True, text=True, check=False)
        return [int(line) for line in found.stdout.split()]

    def close(self) -> None:
        self._tmux("kill-server")

    def _tmux(self, *words: str) -> str:
        return subprocess.run(
            ["tmux", "-S", self.socket, *words], capture_output=True, text=True, check=False
        ).stdout


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[Callable[[str], Terminal]]:
    """Opens the browser in a terminal of its own."""
    if shutil.which("tmux") is None:
        pytest.skip("tmux is not there")
    terminals: list[Terminal] = []

    def open_terminal(words: str) -> Terminal:
        terminals.append(Terminal(tmp_path, words))
        return terminals[-1]

    yield open_terminal
    for terminal in terminals:
        terminal.close()


@pytest.mark.parametrize("more", ["", " 2>/dev/null"])
def test_in_a_real_terminal(opened: Callable[[str], Terminal], more: str) -> None:
    terminal = opened(f"{LOSSY}{more}")
    terminal.until_seen("Closed by the client")
    terminal.press("v", "Tab", "j")
    assert "▌" in terminal.until_seen("0000 [05]")
    terminal.press("q")
    terminal.until_seen("left 0")


RUNNING = [
    pytest.param(str(LOSSY), "Closed by the client", 128, id="file"),
    pytest.param("-i lo -f 'udp port 9'", "● 0:0", 0, id="live", marks=needs_capture),
]


@pytest.mark.parametrize("number", [SIGTERM, SIGHUP, SIGINT])
@pytest.mark.parametrize(("words", "text", "status"), RUNNING)
def test_a_signal_ends_it(
    opened: Callable[[str], Terminal], words: str, text: str, status: int, number: int
) -> None:
    terminal = opened(words)
    terminal.until_seen(text)
    (program,) = terminal.programs()
    os.kill(program, number)
    terminal.until_seen(f"left {status + number if status else 0}")


@pytest.mark.parametrize("keys", [0, 100], ids=["idle", "busy"])
@pytest.mark.parametrize(("words", "text", "status"), RUNNING)
def test_it_ends_with_its_terminal(
    opened: Callable[[str], Terminal], words: str, text: str, status: int, keys: int
) -> None:
    del status
    terminal = opened(words)
    terminal.until_seen(text)
    (program,) = terminal.programs()
    terminal.press(*["j", "Tab", "v"] * keys)  # what is drawn next is more than may wait
    terminal.close()
    end = time.monotonic() + 60
    while os.path.exists(f"/proc/{program}"):  # noqa: PTH110 - a process
        assert time.monotonic() < end
        time.sleep(0.1)


@needs_capture
@pytest.mark.skipif(os.geteuid() != 0 or "SUDO_UID" in os.environ, reason="not plain root")
def test_root_names_who_reads_what_is_kept(
    opened: Callable[[str], Terminal], tmp_path: Path
) -> None:
    terminal = opened(f"-i lo -w {tmp_path / 'kept.pcapng'}")
    terminal.until_seen("--user NAME")
    terminal.until_seen("left 2")


@needs_capture
def test_a_capture_that_runs(opened: Callable[[str], Terminal]) -> None:
    with socket(AF_INET, SOCK_DGRAM) as first, socket(AF_INET, SOCK_DGRAM) as second:
        ends = first, second
        for end in ends:
            end.bind(("127.0.0.1", 0))
        port = first.getsockname()[1]
        terminal = opened(f"-i lo -f 'udp port {port}'")
        terminal.until_seen("● 0:0")
        sent = payloads(LOSSY)
        for side, payload in sent[:300]:
            ends[side].sendto(payload, ends[1 - side].getsockname())
            time.sleep(0.001)
        terminal.until_seen("riptide-2.2")
        terminal.press("2")
        assert "▌" in terminal.until_seen("300 of 300")
        terminal.press("p")
        terminal.until_seen("paused")
        for side, payload in sent[300:]:
            ends[side].sendto(payload, ends[1 - side].getsockname())
            time.sleep(0.001)
        terminal.until_seen(f"300 of {len(sent):,}")
        terminal.press("p")
        terminal.until_seen(f"{len(sent):,} of {len(sent):,}")
        terminal.press("3")
        terminal.until_seen("ladder of")
        terminal.press("q")
        terminal.until_seen("left 0")


def test_line_plain_is_what_is_drawn() -> None:
    assert line_plain([("a\x1b", ""), ("b", "title")]) == "a\\x1bb"
