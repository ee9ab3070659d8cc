"""Long output on a terminal goes through a pager, unless the user wants none."""

from __future__ import annotations

import os
import pty
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
CLEAN = str(ROOT / "captures" / "riptide" / "udp_2.2.1_clean.pcap")
SEEN = """#!/bin/sh
env > "$SEEN.env"; pwd > "$SEEN.pwd"; echo "$@" > "$SEEN.args"
{body}
"""


def run(arguments: list[str], **variables: str) -> tuple[int, str]:
    """Run a command on a terminal of its own; return its status and what the terminal shows."""
    environ = {"TERM": "xterm", "PATH": os.environ["PATH"], **variables}
    pid, terminal = pty.fork()
    if not pid:
        os.execve(sys.executable, [sys.executable, "-m", "netdissect", *arguments], environ)  # noqa: S606
    shown = b""
    while True:
        try:
            piece = os.read(terminal, 65536)
        except OSError:  # the other end is closed
            break
        if not piece:
            break
        shown += piece
    os.close(terminal)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), shown.decode()


class Fake:
    """A pager that notes how it was started."""

    def __init__(self, folder: Path, body: str) -> None:
        self.folder = folder / "bin"
        self.folder.mkdir(mode=0o755)
        self.seen = folder / "seen"
        path = self.folder / "shower"
        text = SEEN.replace("$SEEN", str(self.seen)).format(body=body)
        path.write_text(text)
        path.chmod(0o755)

    def run(self, *arguments: str, **variables: str) -> tuple[int, str]:
        path = f"{self.folder}:{os.environ['PATH']}"
        return run(list(arguments), **{"PAGER": "shower -x", "PATH": path} | variables)

    def noted(self, what: str) -> str:
        return Path(f"{self.seen}.{what}").read_text()

    @property
    def started(self) -> bool:
        return Path(f"{self.seen}.args").exists()


def test_what_is_shown_passes_the_pager(tmp_path: Path) -> None:
    fake = Fake(tmp_path, "sed 's/^/> /'")
    status, shown = fake.run("info", CLEAN, LESSOPEN="|evil %s", OTHER="x")
    assert status == 0
    assert "> " in shown
    assert [line for line in shown.splitlines() if not line.startswith("> ")] == []
    assert "\x1b[" in shown  # in colour, as on the terminal
    assert fake.noted("args") == "-x\n"
    assert fake.noted("pwd") == "/\n"
    environ = dict(line.split("=", 1) for line in fake.noted("env").splitlines())
    assert (environ["LESS"], environ["LESSSECURE"], environ["TERM"]) == ("FRX", "1", "xterm")
    assert not {"LESSOPEN", "OTHER"} & set(environ)


def test_what_is_said_is_said_behind_it(tmp_path: Path) -> None:
    fake = Fake(tmp_path, "cat; echo end of the pager")
    cut = tmp_path / "cut.pcap"
    cut.write_bytes(Path(CLEAN).read_bytes()[:-7])
    status, shown = fake.run("read", str(cut), "-c", "100000")
    assert status == 6
    assert shown.index("end of the pager") < shown.index("is cut short at offset")
    status, shown = fake.run("read", str(tmp_path / "missing.pcap"))
    assert status == 3
    assert shown.index("end of the pager") < shown.index("No such file")


def test_a_reader_who_leaves_early_is_no_failure(tmp_path: Path) -> None:
    fake = Fake(tmp_path, "head -n 1")
    status, shown = fake.run("read", CLEAN)
    assert status == 0
    assert len(shown.splitlines()) <= 2
    assert "Traceback" not in shown


@pytest.mark.parametrize(
    ("arguments", "variables"),
    [
        (["info", CLEAN, "--no-pager"], {}),
        (["info", CLEAN, "--json"], {}),
        (["info", CLEAN], {"PAGER": "cat"}),
        (["info", CLEAN], {"PAGER": ""}),
        (["info", CLEAN], {"PAGER": "'no end"}),
        (["info", CLEAN], {"PAGER": "is-not-installed"}),
        (["info", CLEAN], {"TERM": "dumb"}),
        (["doctor"], {}),
    ],
)
def test_nothing_is_paged_where_nobody_wants_it(
    arguments: list[str], variables: dict[str, str], tmp_path: Path
) -> None:
    fake = Fake(tmp_path, "cat")
    status, shown = fake.run(*arguments, **variables)
    assert status == 0
    assert shown
    assert not fake.started


def test_no_pager_that_others_may_have_put_there(tmp_path: Path) -> None:
    fake = Fake(tmp_path, "cat")
    fake.folder.chmod(0o777)
    status, shown = fake.run("info", CLEAN)
    assert status == 0
    assert "riptide" in shown
    assert not fake.started
