"""Reading commands can open no socket and start no program, whatever a capture makes of them."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path
from struct import iter_unpack

import pytest

from netdissect.system import sandbox

ROOT = Path(__file__).parents[2]
FILE = str(ROOT / "captures" / "riptide" / "udp_2.2.1_lossy_clientleg.pcap")
OTHER = FILE.replace("clientleg", "serverleg")
needs_sandbox = pytest.mark.skipif(
    not sandbox.available(), reason="this kernel cannot confine a process"
)
TRIES = """
import ctypes, os, socket, subprocess, sys
from netdissect.system import sandbox
def copied():  # pidfd_getfd, of this process's standard output
    if ctypes.CDLL(None).syscall(438, os.pidfd_open(os.getpid()), 1, 0) < 0:
        raise PermissionError
if sys.argv[1] == "ours":
    sandbox.permit()
print(sandbox.confine(), sandbox.active())
for act in (
    lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM).close(),
    lambda: socket.socket(socket.AF_UNIX).close(),
    lambda: subprocess.check_call(["/bin/true"]) or None,
    copied,
    lambda: open("/dev/null").close(),
):
    try:
        print(act())
    except PermissionError:
        print("refused")
"""
AFTER = """
import sys
from netdissect.cli import Group
from netdissect.system import interrupt, sandbox
ended = interrupt.ended
def told(code):
    print("confined" if sandbox.active() else "free", file=sys.stderr)
    ended(code)
interrupt.ended = told
from netdissect.__main__ import run
sys.argv = ["netdissect", *sys.argv[1:]]
sys.exit(run())
"""


def python(script: str, *words: str, **environ: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", script, *words], capture_output=True, text=True, errors="surrogateescape", check=False,
        env={**os.environ, **environ}, cwd=ROOT,
    )  # fmt: skip


@needs_sandbox
def test_sockets_and_programs_are_refused_and_files_are_not() -> None:
    told = python(TRIES, "ours").stdout.split()
    assert told == ["True", "True", *["refused"] * 4, "None"]


CALLS = """
import ctypes, os, sys
from netdissect.system import sandbox
sandbox.permit()
assert sandbox.confine()
library = ctypes.CDLL(None, use_errno=True)
for number in map(int, sys.argv[1:]):
    # Of no avail anyway: without the filter, the kernel names another error.
    done = library.syscall(number, -1, -1, -1, -1, -1, -1)
    print(done, ctypes.get_errno())
"""


@needs_sandbox
def test_each_call_is_refused_for_itself() -> None:
    """Programs are also started by `execveat`, sockets are also had from other processes."""
    # execve, execveat, socket, connect, bind, ptrace, process_vm_readv and _writev, bpf,
    # io_uring_setup, pidfd_getfd. Source: asm/unistd.h.
    numbers = {
        "x86_64": [59, 322, 41, 42, 49, 101, 310, 311, 321, 425, 438],
        "aarch64": [221, 281, 198, 203, 200, 117, 270, 271, 280, 425, 438],
    }[os.uname().machine]
    told = python(CALLS, *map(str, numbers)).stdout.splitlines()
    assert told == [f"-1 {errno.EPERM}"] * len(numbers)


def test_a_process_that_is_not_ours_is_left_alone() -> None:
    assert python(TRIES, "theirs").stdout.split() == ["False", "False", *["None"] * 5]


@needs_sandbox
@pytest.mark.parametrize(
    "words",
    [["read", FILE], ["info", FILE], ["connections", FILE, "--json"], ["timeline", FILE], ["stats", FILE],
     ["anomalies", FILE], ["diagnose", FILE], ["show", FILE, "5"], ["ladder", FILE], ["follow", FILE, "1"],
     ["diff", FILE, "1", "2"], ["plot", "acks", FILE], ["report", FILE, "-o", "-"], ["join", FILE, OTHER],
     ["slice", FILE, "-w", "-"], ["merge", FILE, OTHER, "-w", "-"], ["browse", FILE], ["sniff", "-r", FILE],
     ["export", FILE, "--qlog", "-"], ["export", FILE, "--pcapng-notes", "-"],
     ["anonymise", FILE, "-w", "-", "--key-file", "KEY"]],
    ids=lambda words: " ".join(words[:2:2]),
)  # fmt: skip
def test_reading_commands_are_confined_and_say_the_same(words: list[str], tmp_path: Path) -> None:
    key = tmp_path / "key"
    key.write_text("00" * 32)
    command = [str(key) if word == "KEY" else word for word in words]
    confined = python(AFTER, *command)
    free = python(AFTER, *command, NETDISSECT_UNCONFINED="1")
    assert confined.stderr.splitlines()[-1] == "confined", confined.stderr
    assert free.stderr.splitlines()[-1] == "free"
    assert (confined.returncode, confined.stdout) == (free.returncode, free.stdout)


@needs_sandbox
def test_a_filter_of_another_confines_nothing_of_ours() -> None:
    """Containers have one; the kernel does not tell whose it is."""
    foreign = """
import socket
from netdissect.system import sandbox
sandbox.permit()
refused, sandbox._CALLS = sandbox._CALLS, {"reboot": (169, 142)}
print(sandbox.confine())
sandbox._CALLS, sandbox._confined = refused, False
print(sandbox.confine())
try:
    socket.socket()
except PermissionError:
    print("refused")
"""
    assert python(foreign).stdout.split() == ["True", "True", "refused"]


def verdict(program: bytes, machine: int, number: int) -> int:
    """Return what the filter says to a system call, as the kernel runs it."""
    rows = list(iter_unpack("=HBBI", program))
    held, at = 0, 0
    while True:
        code, yes, no, operand = rows[at]
        at += 1
        if code == 0x20:
            held = {0: number, 4: machine}[operand]
        elif code == 0x06:
            return operand
        else:
            at += yes if {0x15: held == operand, 0x35: held >= operand}[code] else no


@pytest.mark.parametrize("name", sandbox._MACHINES)
def test_no_other_interface_of_the_kernel_leads_around_it(name: str) -> None:
    """The calls of 32-bit programs and of x32 have other numbers."""
    column, machine = sandbox._MACHINES[name]
    program = sandbox._filter(column, machine)
    refused = {numbers[column] for numbers in sandbox._CALLS.values()}
    allowed, denied = 0x7FFF0000, 0x00050000 | errno.EPERM
    for number in range(600):
        assert verdict(program, machine, number) == (denied if number in refused else allowed)
        assert verdict(program, machine, number | 0x4000_0000) == denied
        for other in (0x40000003, 0x40000028, 0):  # i386, arm
            assert verdict(program, other, number) == denied
