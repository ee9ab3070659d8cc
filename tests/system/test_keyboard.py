"""Keys reach the dashboard one by one, and the terminal is given back as it was."""

import os
import pty
import sys
import termios
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from netdissect.system.keyboard import Keyboard


@contextmanager
def opened() -> Iterator[Keyboard]:
    keyboard = Keyboard()
    keyboard.open()
    with closing(keyboard):
        yield keyboard


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch):
    master, slave = pty.openpty()
    with os.fdopen(slave, "r") as stdin:
        monkeypatch.setattr(sys, "stdin", stdin)
        yield master
    os.close(master)


def test_keys_come_by_name_or_as_characters(terminal: int) -> None:
    with opened() as keyboard:
        assert keyboard.there
        assert keyboard.pressed() == []
        os.write(terminal, "q\x1b[A\x1bOB\x1b[15~é\r\x7f\x1b".encode())
        keys = keyboard.pressed()
    assert keys == ["q", "up", "down", "é", "enter", "backspace", "escape"]


def test_the_terminal_is_as_before(terminal: int) -> None:
    before = termios.tcgetattr(sys.stdin.fileno())
    with opened():
        assert not termios.tcgetattr(sys.stdin.fileno())[3] & (termios.ECHO | termios.ICANON)
    assert termios.tcgetattr(sys.stdin.fileno()) == before


def test_a_flood_of_octets_is_taken_in_parts(terminal: int) -> None:
    with opened() as keyboard:
        os.write(terminal, b"\xff\x00\x1b[999999999" * 60)
        assert len(keyboard.pressed()) <= 256


def test_without_a_terminal_nothing_is_pressed(monkeypatch: pytest.MonkeyPatch) -> None:
    with Path(os.devnull).open() as nothing:
        monkeypatch.setattr(sys, "stdin", nothing)
        with opened() as keyboard:
            assert not keyboard.there
            assert keyboard.pressed() == []


def test_keys_come_from_the_terminal_where_a_capture_comes_by_pipe() -> None:
    script = (
        "import sys, time; from netdissect.system.keyboard import Keyboard; k = Keyboard(); k.open();"
        "print('ready', k.there, flush=True)\n"
        "while not (keys := k.pressed()): time.sleep(.01)\n"
        "k.close(); print(keys, flush=True)"
    )
    child, master = pty.fork()
    if not child:
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.execv(sys.executable, [sys.executable, "-c", script])  # noqa: S606
    said = b""
    while b"ready True" not in said:
        said += os.read(master, 100)
    os.write(master, b"s")
    while b"['s']" not in said:
        said += os.read(master, 100)
    status = os.waitpid(child, 0)[1]
    os.close(master)
    assert status == 0


def test_a_terminal_that_has_gone_is_left_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    master, slave = pty.openpty()
    with os.fdopen(slave, "r") as stdin:
        monkeypatch.setattr(sys, "stdin", stdin)
        keyboard = Keyboard()
        keyboard.close()
        keyboard.open()
        os.close(master)
        keyboard.close()
