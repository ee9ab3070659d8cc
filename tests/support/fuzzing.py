"""Servers on loopback for the tests of the fuzzer: in a thread, or as a command for `exec:`."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from forkserver import python
from netdissect.fuzz import Target
from netdissect.fuzz.servers import Server, make_server, open_listener, serve
from ports import free_port

__all__ = ["free_target", "running", "server_command"]


def free_target(kind: int = socket.SOCK_DGRAM, *, count: int = 1) -> Target:
    """Return an address on loopback at which nobody listens; nor at the `count` - 1 next ports."""
    return Target("127.0.0.1", free_port(kind, count=count))


def server_command(
    protocol: str,
    target: Target,
    *bugs: str,
    dialect: str | None = None,
    transport: str | None = None,
) -> str:
    """Return the monitor that runs the minimal server as a process, which starts at once."""
    words = [python(), "-m", "netdissect.fuzz.servers", protocol, "--port", str(target.port)]
    words += ["--dialect", dialect] if dialect else []
    words += ["--transport", transport] if transport else []
    words += [f"--bug={bug}" for bug in bugs]
    return f"exec:{' '.join(words)}"


@contextmanager
def running(
    protocol: str, dialect: str | None = None, *bugs: str, transport: str | None = None
) -> Iterator[tuple[Target, Server]]:
    """Serve from a thread."""
    server = make_server(protocol, dialect, frozenset(bugs), transport)
    done = threading.Event()
    with open_listener(server) as listener:
        thread = threading.Thread(
            target=serve, args=(server, listener), kwargs={"stop": done.is_set}
        )
        thread.start()
        try:
            yield Target("127.0.0.1", listener.getsockname()[1]), server
        finally:
            done.set()
            thread.join()
