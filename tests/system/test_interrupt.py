from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Iterator
from contextlib import nullcontext

import pytest

from netdissect.system import interrupt


@pytest.fixture(autouse=True)
def handlers() -> Iterator[None]:
    before = [signal.getsignal(each) for each in (*interrupt.SIGNALS, signal.SIGALRM)]
    interrupt.install()
    yield
    interrupt.uninstall()
    assert [signal.getsignal(each) for each in (*interrupt.SIGNALS, signal.SIGALRM)] == before


@pytest.mark.parametrize("number", interrupt.SIGNALS)
def test_a_signal_is_seen_where_it_is_looked_for(number: int) -> None:
    interrupt.check()
    os.kill(os.getpid(), number)
    with pytest.raises(KeyboardInterrupt):
        interrupt.check()
    assert interrupt.status() == 128 + number


def test_nothing_is_raised_where_a_signal_arrives() -> None:
    """That may be in the middle of a line, or in compiled arithmetic."""
    for number in interrupt.SIGNALS:
        try:
            signal.raise_signal(number)
        except KeyboardInterrupt:
            pytest.fail("the handler raised")
        interrupt.uninstall()
        interrupt.install()


def test_the_second_one_does_not_wait() -> None:
    os.kill(os.getpid(), signal.SIGTERM)
    with pytest.raises(KeyboardInterrupt):
        os.kill(os.getpid(), signal.SIGINT)
    assert interrupt.status() == 143


def test_what_only_waits_is_interrupted_at_once() -> None:
    with pytest.raises(KeyboardInterrupt), interrupt.at_once():
        os.kill(os.getpid(), signal.SIGINT)
    with pytest.raises(KeyboardInterrupt), interrupt.at_once():
        pytest.fail("the signal came before")


def test_what_must_not_be_disturbed_is_interrupted_after_it() -> None:
    done = []

    def work() -> None:
        os.kill(os.getpid(), signal.SIGINT)
        done.append(True)

    with pytest.raises(KeyboardInterrupt), interrupt.at_once(), interrupt.undisturbed():
        work()
    assert done


class Thing:
    """Something to which a weak reference can be held."""


@pytest.mark.parametrize("eager", [True, False])
def test_what_a_callback_drops_comes_again_and_nobody_is_told(
    eager: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Out of the callback of a weak reference nothing can be raised: Python prints it instead."""
    things = [Thing()]

    def gone(_: object) -> None:
        signal.raise_signal(signal.SIGINT)
        if not eager:
            signal.raise_signal(signal.SIGALRM)

    def work() -> None:
        things.clear()
        while time.monotonic() < begin + 5:
            pass

    reference = weakref.ref(things[0], gone)
    begin = time.monotonic()
    with pytest.raises(KeyboardInterrupt), interrupt.at_once() if eager else nullcontext():
        work()
    assert time.monotonic() < begin + 1
    assert reference() is None
    assert capsys.readouterr().err == ""


def test_where_nobody_looks_an_exception_comes_after_all(monkeypatch: pytest.MonkeyPatch) -> None:
    # It comes again after as long: on a busy machine, not before the test has taken the signal.
    monkeypatch.setattr(interrupt, "PATIENCE_S", 0.5)

    def work() -> None:
        os.kill(os.getpid(), signal.SIGINT)
        threading.Event().wait(30)

    with pytest.raises(KeyboardInterrupt):
        work()
    assert interrupt.take()


def test_waiting_for_a_pipe_ends_with_its_octets_or_with_a_signal() -> None:
    read, write = os.pipe()
    os.write(write, b"x")
    interrupt.wait(read)
    os.read(read, 1)
    timer = threading.Timer(0.05, os.kill, [os.getpid(), signal.SIGINT])
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        interrupt.wait(read)
    timer.join()
    os.close(read)
    os.close(write)


def test_nothing_disturbs_the_end() -> None:
    os.kill(os.getpid(), signal.SIGINT)
    interrupt.ending()
    for number in interrupt.SIGNALS:
        os.kill(os.getpid(), number)
    interrupt.check()


def test_a_caller_can_take_the_signal_for_itself() -> None:
    assert not interrupt.take()
    os.kill(os.getpid(), signal.SIGHUP)
    assert interrupt.take()
    interrupt.check()


LEAVES = """
import atexit, os, signal, sys, time
from netdissect.system import interrupt

class Torn:
    def __del__(self):
        os.write(1, b"taken apart")

kept, interrupt.LAST_S = Torn(), 0.2
if "hangs" in sys.argv:
    atexit.register(time.sleep, 60)
atexit.register(print, "folders deleted", flush=True)
interrupt.install()
signal.raise_signal(signal.SIGINT)
print("the last line")
interrupt.ending()
interrupt.ended(130)
"""


@pytest.mark.parametrize("words", [[], ["hangs"]])
def test_an_interrupted_program_is_not_taken_apart(words: list[str]) -> None:
    """Modules that were half imported crash there; what is to be done at the exit is done."""
    run = subprocess.run(
        [sys.executable, "-c", LEAVES, *words], capture_output=True, check=False, timeout=30
    )
    assert (run.returncode, run.stderr) == (130, b"")
    assert run.stdout == b"the last line\nfolders deleted\n"


def test_a_pipe_that_nobody_reads_is_a_hang_up() -> None:
    reader, writer = os.pipe()
    try:
        assert not interrupt.hang_up(writer)
        os.close(reader)
        assert interrupt.hang_up(writer)
    finally:
        os.close(writer)
    assert interrupt.pending()
    assert interrupt.status() == 129
