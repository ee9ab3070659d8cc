"""Runs of the command as processes that start at once: forked from one that has imported it.

A run that is to be signalled somewhere takes a tenth of a second; to start Python and import what
the command needs takes two to ten times as long. `Prefork().start(...)` runs a command in a process
of its own, from `run()` of `netdissect.__main__` to the end of the interpreter.
"""

from __future__ import annotations

import json
import os
import pkgutil
import select
import signal
import socket
import subprocess
import sys
import tempfile
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Self


class Prefork:
    """The process that the commands are forked from; ended when the context is left."""

    def __init__(self, folder: Path) -> None:
        """Start it; the commands run in `folder`."""
        self._at = tempfile.TemporaryDirectory()
        path = f"{self._at.name}/socket"
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(path)
        self._listener.listen(1)
        self._path = path
        handle = self._listener.fileno()
        self._process = subprocess.Popen(
            [sys.executable, __file__, str(handle)], pass_fds=[handle], cwd=folder,
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
        )  # fmt: skip

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()
        self._listener.close()
        self._at.cleanup()

    def start(self, words: list[str], terminal: int | None = None) -> Run:
        """Run a command: with pipes for its output, or in a session of its own on a terminal. Only
        one may run at a time.
        """
        link = socket.socket(socket.AF_UNIX)
        link.connect(self._path)
        if terminal is not None:
            socket.send_fds(link, [json.dumps(words).encode()], [terminal] * 3)
            return Run(link)
        with open(os.devnull, "rb") as nothing:  # noqa: PTH123
            (out, their_out), (said, their_said) = os.pipe(), os.pipe()
            theirs = [nothing.fileno(), their_out, their_said]
            socket.send_fds(link, [json.dumps(words).encode()], theirs)
        os.close(their_out)
        os.close(their_said)
        return Run(link, (out, said))


class Run:
    """A command that was started, with what a test needs of `subprocess.Popen`."""

    def __init__(self, link: socket.socket, pipes: tuple[int, ...] = ()) -> None:
        self.pid = int(link.recv(16, socket.MSG_WAITALL))
        self.returncode: int | None = None
        self._link, self._pipes = link, pipes

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.wait()
        for each in (self._link.fileno(), *self._pipes):
            os.close(each)
        self._link.detach()

    def poll(self) -> int | None:
        """Return its status, if it has ended."""
        with suppress(BlockingIOError):
            self._take(socket.MSG_DONTWAIT)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int | None:
        """Return its status when it has ended."""
        self._link.settimeout(timeout)
        self._take(0)
        return self.returncode

    def _take(self, flags: int) -> None:
        if self.returncode is None and self._link.recv(5, flags):
            self._link.sendall(b"!")
            self.returncode = int(self._link.recv(16))

    def send_signal(self, number: int) -> None:
        """Send it a signal, unless it has ended."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def communicate(self, timeout: float) -> tuple[bytes, bytes]:
        """Return what it has written to standard output and to standard error by its end."""
        found: dict[int, bytearray] = {each: bytearray() for each in self._pipes}
        left = set(found)
        while left:
            for pipe in select.select(left, (), (), timeout)[0] or [None]:
                if pipe is None:
                    raise TimeoutError
                octets = os.read(pipe, 1 << 16)
                found[pipe] += octets
                left -= set() if octets else {pipe}
        self.wait(timeout)
        out, said = map(bytes, found.values())
        return out, said


def main() -> None:
    """Fork a process for each command that is asked for."""
    listener = socket.socket(fileno=int(sys.argv[1]))
    import netdissect

    for module in pkgutil.walk_packages(netdissect.__path__, "netdissect."):
        if not module.name.endswith("__main__"):
            with suppress(ImportError):  # of an extra that is not installed
                import_module(module.name)
    while True:
        link, _ = listener.accept()
        words, streams, _, _ = socket.recv_fds(link, 1 << 16, 3)
        child = os.fork()
        if not child:
            break
        for each in streams:
            os.close(each)
        link.sendall(b"%-16d" % child)
        os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT)
        link.sendall(b"ended")
        link.recv(1)  # Until the test knows, the process id is no other's.
        _, status = os.waitpid(child, 0)
        link.sendall(b"%d" % os.waitstatus_to_exitcode(status))
        link.close()
    listener.close()
    link.close()
    os.setsid()
    for at, each in enumerate(streams):
        os.dup2(each, at)
        os.close(each)
    if os.isatty(0):
        os.close(os.open(os.ttyname(0), os.O_RDWR))  # becomes that of the session
    sys.stdin = os.fdopen(0, closefd=False)
    sys.stdout = os.fdopen(1, "w", closefd=False)
    sys.stderr = os.fdopen(2, "w", buffering=1, errors="backslashreplace", closefd=False)
    sys.argv = ["netdissect", *json.loads(words)]
    from netdissect.__main__ import run

    run()


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.default_int_handler)
    main()
