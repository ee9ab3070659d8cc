"""Reading commands can open no socket and start no program, whatever a capture makes of them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from netdissect.system import sandbox

ROOT = Path(__file__).parents[2]
LOSSY = ROOT / "captures" / "riptide" / "udp_2.2.1_lossy_clientleg.pcap"
needs_sandbox = pytest.mark.skipif(
    not sandbox.available(), reason="this kernel cannot confine a process"
)
TRIES = """
import os, socket, subprocess, sys
from netdissect.system import sandbox
if sys.argv[1] == "ours":
    sandbox.permit()
print(sandbox.confine(), sandbox.active())
for act in (
    lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM).close(),
    lambda: socket.socket(socket.AF_UNIX).close(),
    lambda: subprocess.check_call(["/bin/true"]) or None,
    lambda: open("/dev/null").close(),
):
    try:
        print(act())
    except PermissionError:
        print("refused")
"""
AFTER = """
import sys
from netdissect.cli import session
from netdissect.system import sandbox
status = session.Session.status
def told(self):
    print("confined" if sandbox.active() else "free", file=sys.stderr)
    return status(self)
session.Session.status = told
from netdissect.__main__ import run
sys.argv = ["netdissect", *sys.argv[1:]]
sys.exit(run())
"""


def python(script: str, *words: str, **environ: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", script, *words], capture_output=True, text=True, check=False,
        env={**os.environ, **environ}, cwd=ROOT,
    )  # fmt: skip


@needs_sandbox
def test_sockets_and_programs_are_refused_and_files_are_not() -> None:
    told = python(TRIES, "ours").stdout.split()
    assert told == ["True", "True", "refused", "refused", "refused", "None"]


def test_a_process_that_is_not_ours_is_left_alone() -> None:
    assert python(TRIES, "theirs").stdout.split() == ["False", "False", *["None"] * 4]


@needs_sandbox
@pytest.mark.parametrize(
    "words", [["read"], ["info"], ["connections", "--json"], ["timeline"], ["stats"], ["anomalies"],
              ["diagnose"], ["show", "5"], ["ladder"], ["follow", "1"]],
    ids=lambda words: words[0],
)  # fmt: skip
def test_reading_commands_are_confined_and_say_the_same(words: list[str]) -> None:
    command = [words[0], str(LOSSY), *words[1:]]
    confined = python(AFTER, *command)
    free = python(AFTER, *command, NETDISSECT_UNCONFINED="1")
    assert confined.stderr.splitlines()[-1] == "confined", confined.stderr
    assert free.stderr.splitlines()[-1] == "free"
    assert (confined.returncode, confined.stdout) == (free.returncode, free.stdout)
