"""A program that runs another program, and ends it when its own standard input is closed: on
request, or because the process that started it has ended.

It keeps the rights that are needed to end the other program, so that the process that parses can
give up its own. It is started as a script of its own.
"""

from __future__ import annotations

import os
import pwd
import select
import signal
import sys
from ctypes import CDLL

GRACE_SECONDS = 2.0
"""Time for the program to end after each of the signals below."""
_NO_HOME = "/proc/nonexistent"
"""A path that nobody can create: tshark refuses to start if HOME exists but cannot be read."""
_DEATH_SIGNAL = 1
"""PR_SET_PDEATHSIG. Source: prctl(2)."""
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGKILL)


def main(words: list[str]) -> int:
    """Run a program and return its exit status; 128 + n for signal n.

    Args:
        words: the absolute path of the program and its arguments, after the options `--input FD`
            (its standard input) and `--as USER:GROUP[,GROUP...]` (the account it runs under).

    """
    source, account, words = _options(words)
    woken, wake = os.pipe()
    os.set_blocking(wake, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(wake)
    null = os.open(os.devnull, os.O_RDWR)
    child = os.fork()
    if not child:
        _become(words, null if source is None else source, account)
    if source is not None:
        os.close(source)
    # The output of the program is open here too, so that its reader sees the end only when the
    # program has ended and everything on standard error is written.
    select.select([0, woken], [], [])
    for number in SIGNALS:
        status = _ended(child)
        if status is not None:
            return status
        os.kill(child, number)
        select.select([woken], [], [], GRACE_SECONDS)
    return _ended(child) or 128 + signal.SIGKILL


def _options(words: list[str]) -> tuple[int | None, list[int], list[str]]:
    """Return (input, user and groups, program with its arguments)."""
    source, account = None, []
    while words[0].startswith("--"):
        option, value, *words = words
        if option == "--input":
            source = int(value)
        else:
            account = [int(number) for number in value.replace(":", ",").split(",")]
    return source, account, words


def _become(words: list[str], source: int, account: list[int]) -> None:
    """In the forked child, execute the program."""
    try:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        if account:
            user, group, *groups = account
            os.setgroups(groups)
            os.setresgid(group, group, group)
            os.setresuid(user, user, user)
            _live_as(user)
        if sys.platform == "linux":
            # If this process is killed, nobody else may be able to end the program.
            CDLL(None).prctl(_DEATH_SIGNAL, signal.SIGTERM, 0, 0, 0)
        os.dup2(source, 0)
        if source > 2:  # noqa: PLR2004 - beyond standard error
            os.close(source)
        os.execv(words[0], words)  # noqa: S606 - an absolute path
    except OSError as error:
        os.write(2, f"{os.path.basename(words[0])}: {error.strerror}\n".encode())  # noqa: PTH119 - an absolute path
    finally:
        os._exit(127)


def _live_as(user: int) -> None:
    """Set the environment of another user: root's folders cannot be read any more. A home folder
    that this user cannot read is replaced by `_NO_HOME`.
    """
    try:
        row = pwd.getpwuid(user)
        name, home = row.pw_name, row.pw_dir
    except KeyError:
        name, home = str(user), ""
    home = home if os.access(home, os.R_OK | os.X_OK) else _NO_HOME
    kept = {key: os.environ[key] for key in ("PATH", "LC_ALL") if key in os.environ}
    os.environ.clear()
    os.environ.update(kept, HOME=home, LOGNAME=name, USER=name)


def _ended(child: int) -> int | None:
    """Return the status of the child; None while it runs."""
    pid, status = os.waitpid(child, os.WNOHANG)
    if not pid:
        return None
    code = os.waitstatus_to_exitcode(status)
    return code if code >= 0 else 128 - code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
