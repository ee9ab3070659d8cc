"""Finds and starts other programs.

The current folder may have been filled by an attacker, so nothing here depends on it. A program is
found in a folder that only root or this user can write to. It is started by its absolute path in
`/`, with a minimal environment and without the files that are open here.
"""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeAlias

Program: TypeAlias = "subprocess.Popen[bytes]"
SYSTEM_FOLDERS = (
    "/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin",
)  # fmt: skip
"""PATH of every program that is started."""
_KEPT = ("HOME", "LOGNAME", "USER", "TMPDIR", "XDG_CONFIG_HOME", "XDG_RUNTIME_DIR")
"""Variables that a program inherits; tshark finds its preferences by one of them."""


def find(name: str, *, runnable: bool = True) -> str | None:
    """Return the absolute path of a program; None if it is not installed.

    Empty and relative entries of PATH, the current folder, folders that others may write to, and
    programs that belong to other users are ignored.

    Args:
        name: name of the program without a folder.
        runnable: ignore a program that this user may not run.

    """
    for folder in _trusted_folders():
        path = str(folder / name)
        if _is_trusted(path, stat.S_IFREG) and (not runnable or os.access(path, os.X_OK)):
            return path
    return None


def _trusted_folders() -> Iterator[Path]:
    try:
        here = os.path.realpath(os.curdir)
    except OSError:  # it was removed
        here = ""
    for folder in map(Path, os.get_exec_path()):
        current = os.path.realpath(folder) == here and str(folder) not in SYSTEM_FOLDERS
        if folder.is_absolute() and not current and _is_trusted(str(folder), stat.S_IFDIR):
            yield folder


def _is_trusted(path: str, kind: int) -> bool:
    """Return whether a path is of a kind (S_IFREG, S_IFDIR) and only root or this user can have
    created it.
    """
    try:
        status = os.stat(path)  # noqa: PTH116 - follows links, as exec does
    except (OSError, ValueError):
        return False
    mine = status.st_uid in {0, os.geteuid()}
    return stat.S_IFMT(status.st_mode) == kind and mine and not status.st_mode & stat.S_IWOTH


def environment(environ: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return the environment for a program: English messages, the system's PATH, and the variables
    of this process that name the user or hold absolute paths.
    """
    environ = os.environ if environ is None else environ
    kept = {name: environ[name] for name in _KEPT if name in environ}
    named = ("LOGNAME", "USER")
    found = {name: value for name, value in kept.items() if name in named or value.startswith("/")}
    return {**found, "PATH": ":".join(SYSTEM_FOLDERS), "LC_ALL": "C"}


def answer(words: Sequence[str], timeout_s: float) -> subprocess.CompletedProcess[bytes]:
    """Run a program to its end and return its output.

    Args:
        words: its absolute path, and its arguments.
        timeout_s: time limit, seconds.

    Raises:
        OSError: it cannot be started.
        subprocess.TimeoutExpired: it took longer and was killed.

    """
    return subprocess.run(  # noqa: S603 - an absolute path, no shell
        _absolute(words),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        cwd="/",
        env=environment(),
        timeout=timeout_s,
        check=False,
    )


def start(words: Sequence[str], **streams: Any) -> subprocess.Popen[bytes]:
    """Start a program in a session of its own, so that Ctrl-C only reaches this process.

    Args:
        words: its absolute path, and its arguments.
        streams: `stdin`, `stdout` and `stderr`, as `subprocess.Popen` takes them.

    Raises:
        OSError: it cannot be started.

    """
    return subprocess.Popen(  # noqa: S603 - an absolute path, no shell
        _absolute(words), cwd="/", env=environment(), start_new_session=True, **streams
    )


def start_in_front(words: Sequence[str], variables: Mapping[str, str]) -> Program:
    """Start a program that shares the terminal with this process: it may read keys, and Ctrl-C
    reaches both. Its standard input is a pipe.

    Args:
        words: its absolute path, and its arguments.
        variables: environment variables in addition to `environment`.

    Raises:
        OSError: it cannot be started.

    """
    return subprocess.Popen(  # noqa: S603 - an absolute path, no shell
        _absolute(words), cwd="/", env={**environment(), **variables}, stdin=subprocess.PIPE
    )


@contextmanager
def nothing_of_the_folder() -> Iterator[None]:
    """Within the block, keep libraries that start programs from using the current folder: workers
    of `multiprocessing` start as `python -c`, which imports modules from there, and `platform` runs
    the `uname` of PATH.
    """
    path = os.pathsep.join(map(str, _trusted_folders()))
    ours = {"PYTHONSAFEPATH": "1", "PATH": path or os.pathsep.join(SYSTEM_FOLDERS)}
    before = {name: os.environ.get(name) for name in ours}
    os.environ.update(ours)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def start_script(
    file: str | None, words: Sequence[str] = (), **streams: Any
) -> subprocess.Popen[bytes]:
    """Start one of our own files as a program of this Python, with only its standard library.

    Args:
        file: its path.
        words: its arguments.
        streams: as for `start`.

    """
    # -I also removes the current folder and the user's packages from its module path.
    return start([sys.executable, "-I", "-S", os.path.abspath(str(file)), *words], **streams)  # noqa: PTH100 - a text is wanted


def _absolute(words: Sequence[str]) -> list[str]:
    if not os.path.isabs(words[0]):  # noqa: PTH117 - a text
        raise ValueError(f"{words[0]!r} is no absolute path")
    return list(words)
