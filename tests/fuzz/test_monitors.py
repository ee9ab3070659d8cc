from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from netdissect.fuzz.monitors import (
    LogMonitor,
    MemoryMonitor,
    ProcessMonitor,
    Verdict,
    parse_monitors,
    resident_octets,
)
from netdissect.model.errors import UsageError


def process(tmp_path: Path, script: str) -> ProcessMonitor:
    return ProcessMonitor([sys.executable, "-c", script], tmp_path / "target.log")


def test_exit_is_seen_with_status_and_last_words(tmp_path: Path) -> None:
    monitor = process(tmp_path, "print('last words'); raise SystemExit(3)")
    monitor.start()
    monitor._process.wait(30)
    verdict = monitor.check()
    assert verdict == Verdict(
        "exit", "exited with status 3 after: last words", "exited with status 3"
    )
    assert b"last words" in monitor.log_tail()
    monitor.stop()


def test_a_signal_is_named(tmp_path: Path) -> None:
    monitor = process(tmp_path, "import os, signal; os.kill(os.getpid(), signal.SIGABRT)")
    monitor.start()
    monitor._process.wait(30)
    assert monitor.died().detail.startswith("killed by SIGABRT")


def test_a_process_is_started_again_and_ended_by_its_id(tmp_path: Path) -> None:
    monitor = process(
        tmp_path, "import sys; sys.stdin.read(); import threading; threading.Event().wait()"
    )
    monitor.start()
    first = monitor.pid
    monitor.start()
    assert monitor.pid == first
    assert monitor.check() is None
    monitor.stop()
    assert resident_octets(first) is None
    monitor.start()
    assert monitor.pid != first
    assert monitor.starts == 2
    monitor.stop()


def test_a_command_that_does_not_exist(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot run"):
        ProcessMonitor(["/nowhere/at/all"], tmp_path / "log").start()


def test_log_patterns_are_found_in_new_lines_only(tmp_path: Path) -> None:
    log = tmp_path / "server.log"
    log.write_text("ERROR: old\n")
    monitor = LogMonitor(log, r"ERROR: \w+")
    monitor.start()
    assert monitor.check() is None
    with log.open("a") as file:
        file.write("fine\nERR")
        file.flush()
        assert monitor.check() is None
        file.write("OR: new\nmore\n")
    assert monitor.check() == Verdict("log", "ERROR: new")
    assert monitor.check() is None
    with pytest.raises(UsageError, match="pattern"):
        LogMonitor(log, "(")


def test_memory_growth_is_measured_from_when_the_target_has_started() -> None:
    monitor = MemoryMonitor(16, os.getpid())
    monitor.start()
    start_up = bytearray(64 << 20)
    assert monitor.check() is None
    monitor.settled()
    assert monitor.check() is None
    ballast = bytearray(64 << 20)
    monitor.settled()
    assert monitor.check().kind == "memory"
    assert len(start_up) == len(ballast)


def test_equal_failures_have_one_signature() -> None:
    first = Verdict("exit", "killed by SIGSEGV after: client 12 sent 0x7f octets")
    second = Verdict("exit", "killed by SIGSEGV after: client 3 sent 0x80 octets")
    assert first.signature == second.signature
    assert first.signature != Verdict("exit", "exited with status 1 after: client 3").signature


def test_monitors_are_named_on_the_command_line(tmp_path: Path) -> None:
    monitors = parse_monitors(["log:panic", f"exec:{sys.executable} -c 1", "memory:50"], tmp_path)
    assert monitors.process is not None
    assert monitors.process.command == [sys.executable, "-c", "1"]
    file = tmp_path / "x.log"
    file.write_text("")
    assert parse_monitors([f"log:{file}:panic"], tmp_path).process is None
    for wrong in ("", "exec:", "nonsense:1", "memory:x", "pid:x"):
        with pytest.raises(UsageError):
            parse_monitors([wrong], tmp_path)
    for lonely in ("memory:5", "log:panic"):
        with pytest.raises(UsageError, match="exec:"):
            parse_monitors([lonely], tmp_path)


def test_a_process_of_somebody_else_is_watched(tmp_path: Path) -> None:
    assert parse_monitors([f"pid:{os.getpid()}"], tmp_path).check() is None
    other = process(tmp_path, "pass")
    other.start()
    pid = other.pid
    other._process.wait(30)
    assert parse_monitors([f"pid:{pid}"], tmp_path).check().kind == "exit"
