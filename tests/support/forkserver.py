"""Minimal servers as processes that start at once: forked from one that has imported all of them.

To import the layers takes a second, and a failure that is made smaller starts its target a hundred
times. `python()` is a program that stands for Python: `python() -m netdissect.fuzz.servers ...` prints,
answers, ends and obeys signals as the real thing does. Only its process id is another's.
"""

from __future__ import annotations

import atexit
import json
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path
from typing import NoReturn

__all__ = ["python"]

MODULE = "netdissect.fuzz.servers"
STAND_IN = """#!{python} -IS
import json, os, signal, socket, sys
words = sys.argv[1:]
if words[:2] != ["-m", {module!r}]:
    os.execv({python!r}, [{python!r}, *words])
link = socket.socket(socket.AF_UNIX)
link.connect({path!r})
signal.signal(signal.SIGTERM, lambda *_: link.shutdown(socket.SHUT_WR))
socket.send_fds(link, [json.dumps(words[2:]).encode()], [1, 2])
status = int(link.recv(16) or b"1")
if status < 0:
    signal.signal(-status, signal.SIG_DFL)
    os.kill(os.getpid(), -status)
os._exit(status)
"""
"""Asks for a server and ends as it does. SIGTERM is passed on: the port is free when it ends."""


@cache
def python() -> str:
    """Return the path of the program, which works until this process ends."""
    folder = tempfile.TemporaryDirectory()
    path = f"{folder.name}/socket"
    stand_in = Path(folder.name, "python")
    stand_in.write_text(STAND_IN.format(python=sys.executable, module=MODULE, path=path))
    stand_in.chmod(0o755)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path)
        listener.listen(16)
        words = [sys.executable, __file__, str(listener.fileno())]
        parent = subprocess.Popen(words, pass_fds=[listener.fileno()], stdin=subprocess.PIPE)

    def end() -> None:
        parent.terminate()
        parent.communicate()
        folder.cleanup()

    atexit.register(end)
    return str(stand_in)


def parent(listener: socket.socket) -> NoReturn:
    """Fork a process for each server that is asked for, until standard input ends."""
    from netdissect.fuzz.servers import make_server, served

    for protocol in served():
        make_server(protocol)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    while True:
        ready, _, _ = select.select([listener, sys.stdin], [], [])
        if sys.stdin in ready:
            os._exit(0)
        link, _ = listener.accept()
        if not os.fork():
            listener.close()
            keep(link)
        link.close()


def keep(link: socket.socket) -> NoReturn:
    """Run a server until it ends or nobody waits for it any more; then say how it ended."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    words, outputs, _, _ = socket.recv_fds(link, 1 << 16, 2)
    child = os.fork()
    if not child:
        link.close()
        for at, output in enumerate(outputs, 1):
            os.dup2(output, at)
        serve(json.loads(words))
    for output in outputs:
        os.close(output)
    ended = os.pidfd_open(child)
    ready, _, _ = select.select([ended, link], [], [])
    if ended not in ready:
        os.kill(child, signal.SIGKILL)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    try:
        link.sendall(str(status if ended in ready else -signal.SIGTERM).encode())
    finally:
        os._exit(0)


def serve(words: list[str]) -> NoReturn:
    """Be the server, with everything that ends a Python program."""
    from netdissect.fuzz.servers.__main__ import main

    sys.argv = [MODULE, *words]
    status = 0
    try:
        main()
    except SystemExit as ended:
        status = int(ended.code or 0)
    except BaseException as error:  # noqa: BLE001 - whatever it is is shown as Python would
        # Without the line above: no server is started from here.
        trace = error.__traceback__ and error.__traceback__.tb_next
        sys.excepthook(type(error), error.with_traceback(trace), trace)
        status = 1
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


if __name__ == "__main__":
    parent(socket.socket(fileno=int(sys.argv[1])))
