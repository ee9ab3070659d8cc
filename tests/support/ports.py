"""Ports on loopback for programs that the tests start."""

from __future__ import annotations

import secrets
import socket
from contextlib import ExitStack

_FIRST, _COUNT = 10_000, 20_000


def free_port(kind: int = socket.SOCK_STREAM, *, count: int = 1) -> int:
    """Return the first of `count` ports that nobody has.

    They are below those that systems give to sockets by themselves: of these, another test could
    get one before the program that it is for has begun.
    """
    while True:
        first = _FIRST + secrets.randbelow(_COUNT)
        with ExitStack() as stack:
            try:
                for port in range(first, first + count):
                    taken = stack.enter_context(socket.socket(socket.AF_INET, kind))
                    taken.bind(("127.0.0.1", port))
            except OSError:
                continue
            return first
