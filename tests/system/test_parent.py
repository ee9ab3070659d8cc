"""Copies of the process end with it, by whatever signal it ends."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
from pathlib import Path

import pytest

LIMIT_S = 20
SCRIPT = """
import os, sys, time
from netdissect.system.parent import Lifeline
line = Lifeline(by_signal=sys.argv[1] == "signal")
pid = os.fork()
if not pid:
    line.depend()
    print(os.getpid(), flush=True)
    time.sleep(60)
    os._exit(0)
line.keep()
time.sleep(60)
"""
ANALYSIS = """
import os, signal, sys, time
# A program that a shell has put into the background ignores it.
signal.signal(signal.SIGINT, signal.default_int_handler)
from netdissect.pipeline import parallel
from netdissect import analyze
from netdissect.system import interrupt
main = os.getpid()
def part(*_, **__):
    if os.getpid() != main:
        print(os.getpid(), flush=True)
    for _ in range(600):
        interrupt.check()
        time.sleep(0.1)
parallel.read_share = part
if sys.argv[1] == "command":
    parallel.MIN_OCTETS = 0
    os.sched_getaffinity = lambda _: {0, 1}
    from netdissect.cli import main as command
    sys.argv[1:] = ["connections", sys.argv[2]]
    command()
analyze(sys.argv[2], processes=2)
"""
FUZZER = """
import os, time
from netdissect.fuzz.workers import run_workers
def run(number, progress):
    print(os.getpid(), flush=True)
    time.sleep(60)  # as one that waits for a silent target
run_workers(1, run)
"""
CAPTURE = str(Path(__file__).parents[2] / "captures" / "riptide" / "udp_2.2.1_clean.pcap")


def dies_with_its_parent(script: str, words: list[str], number: int) -> int:
    """Kill a process by a signal; return its status once its copy is gone."""
    with subprocess.Popen(
        [sys.executable, "-c", script, *words], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as parent:
        assert parent.stdout is not None
        copy = os.pidfd_open(int(parent.stdout.readline()))
        parent.send_signal(number)
        status = parent.wait(LIMIT_S)
        assert select.select([copy], [], [], LIMIT_S)[0], "the copy goes on"
        os.close(copy)
    return status


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGKILL])
@pytest.mark.parametrize("way", ["signal", "pipe"])
def test_a_copy_ends_with_its_parent(way: str, number: int) -> None:
    if way == "signal" and sys.platform != "linux":
        pytest.skip("only Linux has a death signal")
    assert dies_with_its_parent(SCRIPT, [way], number) == -number


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGHUP])
def test_what_a_terminal_sends_to_all_is_handled_by_the_parent_alone(number: int) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", SCRIPT, "pipe"], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as parent:
        assert parent.stdout is not None
        copy = int(parent.stdout.readline())
        watched = os.pidfd_open(copy)
        os.kill(copy, number)
        assert not select.select([watched], [], [], 0.3)[0]
        os.close(watched)
        parent.kill()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGKILL])
def test_a_worker_ends_with_the_program_of_a_library_user(number: int) -> None:
    assert dies_with_its_parent(ANALYSIS, ["library", CAPTURE], number) == -number


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGKILL])
def test_a_worker_ends_with_its_command(number: int) -> None:
    status = dies_with_its_parent(ANALYSIS, ["command", CAPTURE], number)
    assert status == (-number if number == signal.SIGKILL else 128 + number)


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has a death signal")
def test_a_worker_of_the_fuzzer_ends_with_it_whatever_it_waits_for() -> None:
    assert dies_with_its_parent(FUZZER, [], signal.SIGKILL) == -signal.SIGKILL


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has a death signal")
def test_a_copy_whose_parent_is_gone_already_does_not_begin() -> None:
    waits = "while os.getppid() == parent: time.sleep(0.01)\n    line.depend()"
    script = "import os; parent = os.getpid()\n" + SCRIPT.replace("line.depend()", waits).replace(
        "line.keep()\ntime.sleep(60)", "line.keep()"
    )
    run = subprocess.run(
        [sys.executable, "-c", script, "signal"], capture_output=True, timeout=LIMIT_S, check=False
    )
    assert run.stdout == b""
