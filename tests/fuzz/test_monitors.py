from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from fuzzing import running
from netdissect.fuzz import Target, monitors
from netdissect.fuzz.drivers.riptide import RiptideDriver
from netdissect.fuzz.monitors import (
    CpuMonitor,
    LatencyMonitor,
    LogMonitor,
    MemoryMonitor,
    Monitors,
    ProcessMonitor,
    Verdict,
)
from netdissect.fuzz.processes import cpu_seconds, resident_octets
from netdissect.fuzz.watch import Watch
from netdissect.fuzz.watchers import parse_monitors
from netdissect.model.errors import UsageError
from netdissect.system import interrupt

TRACES = Path(__file__).parent / "traces"


def process(tmp_path: Path, script: str) -> ProcessMonitor:
    return ProcessMonitor([sys.executable, "-c", script], tmp_path / "target.log")


@pytest.mark.skipif(sys.platform != "linux", reason="only there does the kernel see to it")
def test_the_target_ends_with_a_fuzzer_that_is_killed(tmp_path: Path) -> None:
    """A run that is resumed starts it again, at the same port."""
    script = """
import os, signal, sys
from pathlib import Path
from netdissect.fuzz.monitors import ProcessMonitor
monitor = ProcessMonitor(["sleep", "60"], Path(sys.argv[1]))
monitor.start()
print(monitor.pid, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""
    words = [sys.executable, "-c", script, str(tmp_path / "log")]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == -signal.SIGKILL, done.stderr
    pid, end = int(done.stdout), time.monotonic() + 10
    while resident_octets(pid) is not None:
        assert time.monotonic() < end
        time.sleep(0.01)


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


def test_a_process_is_known_whenever_a_signal_comes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also between its start and its being noted; else nobody would end it."""
    monitor = process(tmp_path, "import threading; threading.Event().wait()")
    started = []

    def popen(*words: object, **options: object) -> subprocess.Popen[bytes]:
        started.append(subprocess.Popen(*words, **options))
        os.kill(os.getpid(), signal.SIGINT)
        return started[0]

    monkeypatch.setattr(monitors, "subprocess", SimpleNamespace(**vars(subprocess) | {"Popen": popen}))
    interrupt.install()
    try:
        with pytest.raises(interrupt.Interrupted), interrupt.at_once():
            monitor.start()
        monitor.stop()
    finally:
        interrupt.uninstall()
    assert started[0].poll() is not None


def test_a_signal_is_named(tmp_path: Path) -> None:
    monitor = process(tmp_path, "import os, signal; os.kill(os.getpid(), signal.SIGABRT)")
    monitor.start()
    monitor._process.wait(30)
    assert monitor.died().detail.startswith("killed by SIGABRT")


def test_a_signal_without_a_name_is_told_by_its_number(tmp_path: Path) -> None:
    monitor = process(tmp_path, "import os; os.kill(os.getpid(), 40)")
    monitor.start()
    monitor._process.wait(30)
    assert monitor.check() == Verdict("exit", "killed by signal 40", "killed by signal 40")
    monitor.close()


def test_a_report_is_judged_when_all_names_of_its_stack_are_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Until then the process answers nothing, for longer than others have to end."""
    report = TRACES / "asan-1.txt"
    script = f"""import sys, time
for line in open({str(report)!r}):
    print(line, end="", flush=True)
    if "READ of" in line or "#1" in line:
        time.sleep(0.2)
sys.exit(1)"""
    monitor = process(tmp_path, script)
    monkeypatch.setattr(monitors, "_QUIET_SECONDS", 0.05)
    monitor.exit_seconds = 0.05
    monitor.start()
    while (verdict := monitor.check()) is None:
        time.sleep(0.01)
    monitor.stop()
    assert verdict.signature == (
        "exit: AddressSanitizer: heap-buffer-overflow in game::read_name(game::Packet&) a.cpp:10"
        " < game::read_all(game::Packet&, int) a.cpp:11 < main a.cpp:17"
    )


def test_what_ubsan_says_of_a_fatal_access_is_no_failure_of_its_own(tmp_path: Path) -> None:
    """It names the access for which AddressSanitizer ends the process a moment later."""
    stack = "    #0 0x1 in game::take(int) /src/game/a.cpp:13\n    #1 0x2 in main /src/game/a.cpp:19\n\n"
    load = "/src/game/a.cpp:13:5: runtime error: load of null pointer of type 'int'\n" + stack
    shift = load.replace(":13", ":14").replace("load of null pointer", "misaligned load")
    fatal = "==7==ERROR: AddressSanitizer: SEGV on unknown address 0x0 (pc 0x1 bp 0x2)\n" + stack
    monitor = process(tmp_path, f"print({shift + load + fatal!r}); raise SystemExit(1)")
    monitor.start()
    monitor._process.wait(30)
    verdicts = [monitor.check(), monitor.check()]
    assert [verdict.signature for verdict in verdicts] == [
        "report: UBSan: misaligned load of type 'int' in game::take(int) a.cpp:14 < main a.cpp:19",
        "exit: AddressSanitizer: SEGV in game::take(int) a.cpp:13 < main a.cpp:19",
    ]
    monitor.stop()


def test_ubsan_is_not_reported_before_address_sanitizer_has_begun(tmp_path: Path) -> None:
    """On a busy machine, the target is stopped between the two."""
    stack = "    #0 0x1 in game::take(int) /src/game/a.cpp:13\n\n"
    load = "/src/game/a.cpp:13:5: runtime error: load of null pointer of type 'int'\n" + stack
    fatal = "==7==ERROR: AddressSanitizer: SEGV on unknown address 0x0 (pc 0x1 bp 0x2)\n" + stack
    monitor = process(
        tmp_path,
        f"import time; print({load!r}, flush=True); time.sleep(0.05); print({fatal!r}); exit(1)",
    )
    monitor.start()
    while (verdict := monitor.check()) is None:
        time.sleep(0.001)
    assert verdict.signature == "exit: AddressSanitizer: SEGV in game::take(int) a.cpp:13"
    monitor.stop()


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


def test_a_log_that_is_begun_anew_is_read_from_its_start(tmp_path: Path) -> None:
    log = tmp_path / "server.log"
    log.write_text("long before\n" * 100)
    monitor = LogMonitor(log, "fatal: .*")
    monitor.start()
    log.write_text("fatal: after a rotation\n")
    assert monitor.check() == Verdict("log", "fatal: after a rotation")
    assert monitor.check() is None
    with log.open("a") as file:
        file.write("fatal: again\n")
    assert monitor.check() == Verdict("log", "fatal: again")


@pytest.mark.parametrize("pattern", ["(", "a{99999999999}", "(" * 9000 + ")" * 9000])
def test_a_pattern_that_cannot_be_used_is_a_usage_error(pattern: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="log pattern"):
        LogMonitor(tmp_path / "log", pattern)


def test_a_pattern_may_hold_any_byte(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.touch()
    monitor = LogMonitor(log, os.fsdecode(b"caf\xe9"))
    monitor.start()
    log.write_bytes(b"un caf\xe9\n")
    assert monitor.check() is not None


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
    first = Verdict("exit", "killed by SIGSEGV after: client 12 sent 0x7f bytes")
    second = Verdict("exit", "killed by SIGSEGV after: client 3 sent 0x80 bytes")
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


def test_late_answers_are_a_failure_when_three_come_on_end() -> None:
    monitor = LatencyMonitor(100)
    watch = Watch(RiptideDriver, "riptide-2.2", Target("127.0.0.1", 9), Monitors([monitor]))

    def timed(seconds: float) -> None:
        for told in watch.timed:
            told(seconds)

    for seconds in (0.2, 0.2, 0.05, 0.3, 0.4):
        timed(seconds)
        assert monitor.check() is None
    timed(0.2)
    verdict = monitor.check()
    assert verdict is not None
    assert verdict.signature == "latency: later than 100 ms"
    assert "400 ms" in verdict.detail
    assert monitor.check() is None


def test_answers_are_timed_by_the_sessions_that_ask() -> None:
    found: list[float] = []
    with running("riptide") as (target, _server):
        watch = Watch(RiptideDriver, "riptide-2.2", target, Monitors())
        watch.timed.append(found.append)
        session = watch.session()
        assert session is not None
        session.silence(time.monotonic())
        session.until(lambda: bool(found), 5.0)
        session.close()
    assert len(found) == 1
    assert 0 < found[0] < 5


def test_a_target_that_takes_a_whole_processor(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The clock and the counters of the system are played: a busy machine gives nobody a whole one.
    """
    used, now = [5.0], [100.0]
    monkeypatch.setattr(monitors, "cpu_seconds", lambda _pid: used[0])
    monkeypatch.setattr(monitors.time, "monotonic", lambda: now[0])
    monitor = CpuMonitor(80, 4242)
    shares = [0.5, 0.9, 0.9, 0.1, 0.9, 0.9, 0.9]
    found = [monitor.check()]
    for share in shares:
        now[0] += 1.0
        used[0] += share
        found.append(monitor.check())
    assert found[:-1] == [None] * len(shares)
    assert found[-1] is not None
    assert found[-1].signature == "cpu: above 80%"


def test_the_time_that_a_process_takes_is_read_from_the_system() -> None:
    before = cpu_seconds(os.getpid())
    end = time.process_time() + 0.1
    while time.process_time() < end:
        continue
    after = cpu_seconds(os.getpid())
    assert before is not None
    assert after is not None
    assert 0.05 < after - before < 5
    assert cpu_seconds(1 << 22) is None


def test_a_silent_target_that_reported_something_is_not_waited_for_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The trace of a thread that ended is one failure, that nothing answers another."""
    found = [Verdict("report", "NegativeArraySizeException")]
    monitor = SimpleNamespace(check=lambda: found.pop() if found and len(waited) > 1 else None)
    monitor.attach = lambda _watch: None
    watch = Watch(RiptideDriver, "riptide-2.2", Target("127.0.0.1", 9), Monitors([monitor]))
    waited: list[float] = []
    monkeypatch.setattr(Watch, "session", lambda _watch, timeout: waited.append(timeout))
    reported, _ = watch.look(None)
    before = len(waited)
    silent, _ = watch.look(None)
    assert reported is not None
    assert silent is not None
    assert (reported.kind, silent.kind) == ("report", "no-answer")
    assert len(waited) == before
