"""Minimal servers: peers for tests, tutorials and Scapy users.

Each implements the server side of one protocol as far as a client needs it.
"""

from __future__ import annotations

import select
import socket
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, Literal, Protocol, TypeAlias, TypeVar

Address: TypeAlias = tuple[Any, ...]
"""A peer's socket address."""
Replies: TypeAlias = "list[tuple[bytes, Address]]"
"""(datagram, receiver) pairs to send."""

PEER_LIMIT = 64
"""Maximum number of peers; a new one replaces the one that has been silent for longest."""
_TICK = 0.05
"""Maximum time between two checks of the timers, in seconds."""


class PlantedBugError(Exception):
    """Raised when a planted bug kills the server."""


@dataclass(slots=True)
class Event:
    """The properties of a client's message that shared planted bugs use."""

    slot: object
    """The client."""
    number: int | None = None
    """Sequence number; None if it has none."""
    newest: int = 0
    """Newest number received from the client before."""
    span: int = 1 << 16
    """Modulus of the numbers."""
    window: int = 32
    """Size of the receive window: how many numbers before the newest are remembered."""
    leaves: bool = False
    """Whether it ends the connection."""
    enters: bool = False
    """Whether it begins one."""
    fragment: tuple[int, int, bool] | None = None
    """(transfer, index, whether it is the first) of a fragment."""
    key: object = None
    """The key that the planted unbounded table keeps."""
    content: bytes = b""
    """The content for the application."""


def off_by_one(_server: Server, event: Event) -> None:
    """Fail at the oldest number of the window, whose bit is one beyond the last."""
    if event.number is not None:
        ahead = (event.number - event.newest) % event.span
        if ahead == event.window + 1:
            raise PlantedBugError(f"off-by-one: bit {event.window} of {event.window}")


def number_wrap(_server: Server, event: Event) -> None:
    """Fail to wrap numbers around when comparing them."""
    if event.number is not None:
        behind = (event.newest - event.number) % event.span
        if event.number > event.newest and 0 < behind < event.span // 4:
            raise PlantedBugError(f"number-wrap: {event.number - event.newest} numbers skipped")


def stale_fragment(server: Server, event: Event) -> None:
    """Add a fragment to its transfer even if that is complete and gone."""
    if event.fragment is not None:
        transfer, index, first = event.fragment
        known = server.transfers.setdefault(event.slot, set())
        if first:
            known.add(transfer)
        elif transfer not in known:
            raise PlantedBugError(f"stale-fragment: {index} of transfer {transfer}")


def double_free(server: Server, event: Event) -> None:
    """Free the slot of a client each time it disconnects."""
    if event.enters:
        server.freed.discard(event.slot)
    elif event.leaves:
        if event.slot in server.freed:
            raise PlantedBugError("double-free: a slot that is free")
        server.freed.add(event.slot)


def unbounded_table(server: Server, event: Event) -> None:
    """Keep every name that clients send, until the table is full."""
    if event.key is not None:
        server.table.add(event.key)
        if len(server.table) > TABLE_BUG:
            raise PlantedBugError(f"unbounded-table: {len(server.table)} entries")


def gates(_server: Server, event: Event) -> None:
    """Fail at a message that passes all checks; log how many it has passed."""
    passed = 0
    for at, nibble in _GATES:
        if len(event.content) <= at or event.content[at] & 0xF != nibble:
            break
        passed += 1
    _reached("gates", passed, len(_GATES))


def steps(server: Server, event: Event) -> None:
    """Fail when a client's messages come in one certain order; any other message starts over."""
    if len(event.content) <= _STEPS_AT:
        return
    reached = server.steps.get(event.slot, 0)
    fits = event.content[_STEPS_AT] & 0xF == _STEPS[reached]
    server.steps[event.slot] = reached + 1 if fits else 0
    _reached("steps", server.steps[event.slot], len(_STEPS))


def _reached(bug: str, count: int, most: int) -> None:
    if count == most:
        raise PlantedBugError(f"{bug}: all {most} of them")
    if count:
        print(f"{bug}: {'#' * count}", flush=True)  # noqa: T201 - what a real server logs


SHARED_BUGS: dict[str, Callable[[Server, Event], None]] = {
    "off-by-one": off_by_one,
    "number-wrap": number_wrap,
    "stale-fragment": stale_fragment,
    "double-free": double_free,
    "unbounded-table": unbounded_table,
    "gates": gates,
    "steps": steps,
}
"""Name -> planted bug. A server lists in `BUGS` those that its protocol can have."""
TABLE_BUG = 300
"""Number of entries that fit into the planted table."""
_GATES = ((2, 0xA), (5, 0x3), (8, 0xD), (11, 0x6))
"""(index of a content byte, its low four bits) that each check of the planted bug requires."""
_STEPS_AT, _STEPS = 2, (0xA, 0x3, 0xD)
"""Index of the byte, and its low four bits in each of the consecutive messages."""


class Server(ABC):
    """The server side of a protocol without sockets: bytes in, bytes out, time as an argument."""

    DIALECT: ClassVar[str]
    """Default dialect."""
    DIALECTS: ClassVar[tuple[str, ...]] = ()
    """Dialects that it speaks; () = all that the driver of its transport speaks."""
    BUGS: ClassVar[tuple[str, ...]] = ()
    """Names of the bugs that can be planted."""
    TRANSPORT: ClassVar[Literal["udp", "tcp"]] = "udp"
    """`udp` or `tcp`."""

    def __init__(self, dialect: str | None = None, bugs: frozenset[str] = frozenset()) -> None:
        self.dialect = dialect or self.DIALECT
        self.bugs = bugs
        self.closing: set[Address] = set()
        """Peers whose TCP connection is to be closed."""
        self.silent = False
        """True once a planted bug has made the server stop answering."""
        self.transfers: dict[object, set[int]] = {}
        self.freed: set[object] = set()
        self.table: set[object] = set()
        self.steps: dict[object, int] = {}
        """State of the planted bugs."""

    def event(self, event: Event) -> None:
        """Run the planted bugs on a message.

        Raises:
            PlantedBugError: one of them kills the server.
        """
        for name in self.bugs & SHARED_BUGS.keys():
            SHARED_BUGS[name](self, event)

    @abstractmethod
    def handle(self, data: bytes, peer: Address, now: float) -> Replies:
        """Return the answers to one datagram."""

    @abstractmethod
    def tick(self, now: float) -> Replies:
        """Return what is due, such as retransmissions."""


class _Heard(Protocol):
    """The state that a server keeps for a client."""

    heard: float
    """When the client last sent something."""


P = TypeVar("P", bound=_Heard)


class DatagramServer(Server, Generic[P]):
    """A server that identifies clients by their addresses."""

    TIMEOUT_SECONDS: ClassVar[float] = 10.0
    """Silence after which a client times out, in seconds."""

    def __init__(self, dialect: str | None = None, bugs: frozenset[str] = frozenset()) -> None:
        super().__init__(dialect, bugs)
        self._peers: dict[Address, P] = {}
        self.delivered = 0
        """Number of messages accepted from clients."""

    def _add(self, address: Address, peer: P) -> P:
        """Add a client; if there are too many, drop the one silent for longest."""
        while len(self._peers) >= PEER_LIMIT:
            del self._peers[min(self._peers, key=lambda each: self._peers[each].heard)]
        self._peers[address] = peer
        return peer

    def _living(self, now: float) -> list[tuple[Address, P]]:
        """Drop clients that have timed out; return the others."""
        for address, peer in list(self._peers.items()):
            if now - peer.heard > self.TIMEOUT_SECONDS:
                del self._peers[address]
        return list(self._peers.items())


class StreamServer(Server):
    """The streams of all connections of a protocol over TCP that has no timers."""

    TRANSPORT = "tcp"

    def __init__(self, dialect: str | None = None, bugs: frozenset[str] = frozenset()) -> None:
        super().__init__(dialect, bugs)
        self.streams: dict[Address, bytes] = {}
        """Peer -> received bytes that are not processed yet."""
        self.delivered = 0
        """Number of messages read."""

    def handle(self, data: bytes, peer: Address, now: float) -> Replies:
        """Process bytes of a stream; empty bytes mean that it has ended."""
        del now
        if not data:
            self.streams.pop(peer, None)
            return []
        replies = [] if peer in self.streams else self.greeting(peer)
        self.streams[peer] = self.streams.get(peer, b"") + data
        return replies + self.read(peer)

    def greeting(self, peer: Address) -> Replies:
        """Return what is sent to a new peer first."""
        del peer
        return []

    @abstractmethod
    def read(self, peer: Address) -> Replies:
        """Process the complete messages of a peer's stream; return the answers."""

    def tick(self, now: float) -> Replies:
        """Return nothing: there are no timers, and TCP reports closed connections."""
        del now
        return []


def open_listener(server: Server, port: int = 0) -> socket.socket:
    """Return a socket on 127.0.0.1 for a server; port 0 lets the system choose."""
    kind = socket.SOCK_DGRAM if server.TRANSPORT == "udp" else socket.SOCK_STREAM
    listener = socket.socket(socket.AF_INET, kind)
    if kind is socket.SOCK_STREAM:
        # A restarted server must get its port even while old connections linger.
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind(("127.0.0.1", port))
    if kind is socket.SOCK_STREAM:
        listener.listen(PEER_LIMIT)
    return listener


def serve(
    server: Server,
    listener: socket.socket,
    *,
    stop: Callable[[], bool] = lambda: False,
    clock: Callable[[], float] = time.monotonic,
) -> None:
    """Serve until `stop()`; a planted bug that kills the server is named on stderr first."""
    links: dict[Address, socket.socket] = {}
    try:
        while not stop():
            try:
                turn(server, listener, links, clock)
            except PlantedBugError as bug:
                print(f"fatal: planted bug {bug}", file=sys.stderr, flush=True)  # noqa: T201
                raise
    finally:
        for link in links.values():
            link.close()


def turn(
    server: Server,
    listener: socket.socket,
    links: dict[Address, socket.socket],
    clock: Callable[[], float],
) -> None:
    """Wait briefly and answer what has arrived; `links` holds the TCP connections."""
    (_udp_turn if server.TRANSPORT == "udp" else _tcp_turn)(server, listener, links, clock)


def _udp_turn(
    server: Server,
    listener: socket.socket,
    _links: dict[Address, socket.socket],
    clock: Callable[[], float],
) -> None:
    listener.settimeout(_TICK)
    replies: Replies = []
    try:
        data, peer = listener.recvfrom(1 << 16)
        replies = server.handle(data, peer, clock())
    except (TimeoutError, ConnectionRefusedError):
        replies = []
    for octets, to in () if server.silent else (*replies, *server.tick(clock())):
        listener.sendto(octets, to)


def _tcp_turn(
    server: Server,
    listener: socket.socket,
    links: dict[Address, socket.socket],
    clock: Callable[[], float],
) -> None:
    ready, _, _ = select.select([listener, *links.values()], [], [], _TICK)
    replies: Replies = []
    for link in ready:
        if link is listener:
            fresh, peer = listener.accept()
            fresh.setblocking(False)
            fresh.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            links[peer] = fresh
            continue
        peer = next(address for address, known in links.items() if known is link)
        try:
            data = link.recv(1 << 16)
        except OSError:
            data = b""
        replies += server.handle(data, peer, clock())
        if not data:
            server.closing.add(peer)
    for octets, to in () if server.silent else (*replies, *server.tick(clock())):
        if to in links and not _sent(links[to], octets):
            server.closing.add(to)
    for peer in list(server.closing):
        server.handle(b"", peer, clock())
        # The peer may have closed it already.
        if peer in links:
            links.pop(peer).close()
    server.closing.clear()


def _sent(link: socket.socket, octets: bytes) -> bool:
    """Return whether everything was sent: a stream with a gap is useless."""
    try:
        return link.send(octets) == len(octets)
    except OSError:
        return False
