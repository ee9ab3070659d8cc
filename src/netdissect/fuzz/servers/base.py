"""Minimal servers: a peer for tests, tutorials and Scapy users. They play one protocol's server side
as far as a client needs it; nothing more.
"""

from __future__ import annotations

import socket
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, TypeAlias

__all__ = ["Address", "PlantedBugError", "Replies", "Server", "serve_udp"]

Address: TypeAlias = tuple[Any, ...]
"""A peer's socket address."""
Replies: TypeAlias = "list[tuple[bytes, Address]]"
"""Datagrams to send, with their receivers."""

PEER_LIMIT = 64
"""Peers that a server knows at once; a new one takes the place of the one silent for longest."""
_TICK = 0.05
"""Seconds at most between two looks at the timers."""


class PlantedBugError(Exception):
    """What a server with a planted bug dies of."""


class Server(ABC):
    """The server side of a protocol without sockets: datagrams in, datagrams out, time passed in.
    """

    BUGS: tuple[str, ...] = ()
    """Names of the bugs that can be planted."""

    def __init__(self, dialect: str, bugs: frozenset[str] = frozenset()) -> None:
        self.dialect = dialect
        self.bugs = bugs
        self.silent = False
        """True when a planted bug has made the server deaf."""

    @abstractmethod
    def handle(self, data: bytes, peer: Address, now: float) -> Replies:
        """Return the answers to one datagram."""

    @abstractmethod
    def tick(self, now: float) -> Replies:
        """Return what is due: repetitions."""


def serve_udp(
    server: Server,
    listener: socket.socket,
    *,
    stop: Callable[[], bool] = lambda: False,
    clock: Callable[[], float] = time.monotonic,
) -> None:
    """Answer datagrams until `stop()`; one that kills the server is first named on stderr."""
    listener.settimeout(_TICK)
    while not stop():
        replies: Replies = []
        try:
            data, peer = listener.recvfrom(1 << 16)
        except (TimeoutError, ConnectionRefusedError):
            data = b""
        else:
            try:
                replies = server.handle(data, peer, clock())
            except PlantedBugError as bug:
                print(f"fatal: planted bug {bug}", file=sys.stderr, flush=True)  # noqa: T201
                raise
        for octets, to in () if server.silent else (*replies, *server.tick(clock())):
            listener.sendto(octets, to)
