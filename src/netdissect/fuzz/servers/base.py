"""Minimal servers: a peer for tests, tutorials and Scapy users.

They play one protocol's server side as far as a client needs it; nothing more.
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

__all__ = [
    "SHARED_BUGS", "Address", "DatagramServer", "Event", "PlantedBugError", "Replies", "Server",
    "StreamServer", "open_listener", "serve", "turn",
]  # fmt: skip

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


@dataclass(slots=True)
class Event:
    """One message of a client, as far as the bugs that servers share look at it."""

    slot: object
    """Its client."""
    number: int | None = None
    """Sequence number; None where it has none."""
    newest: int = 0
    """Newest number of the client before it."""
    span: int = 1 << 16
    """Modulus of the numbers."""
    window: int = 32
    """Numbers behind the newest that are remembered."""
    leaves: bool = False
    """Whether it ends the connection."""
    enters: bool = False
    """Whether it begins one."""
    fragment: tuple[int, int, bool] | None = None
    """(transfer, index, whether it is the first) of a fragment."""
    key: object = None
    """What a table of the server would keep of it for ever."""
    content: bytes = b""
    """What it holds of the application's."""


def off_by_one(_server: Server, event: Event) -> None:
    """Die of the oldest number of the window, whose bit is one behind the last."""
    if event.number is not None:
        ahead = (event.number - event.newest) % event.span
        if ahead == event.window + 1:
            raise PlantedBugError(f"off-by-one: bit {event.window} of {event.window}")


def number_wrap(_server: Server, event: Event) -> None:
    """Compare numbers as if they never began again at 0."""
    if event.number is not None:
        behind = (event.newest - event.number) % event.span
        if event.number > event.newest and 0 < behind < event.span // 4:
            raise PlantedBugError(f"number-wrap: {event.number - event.newest} numbers skipped")


def stale_fragment(server: Server, event: Event) -> None:
    """Add a fragment to the transfer of its number, also where that is not there any more."""
    if event.fragment is not None:
        transfer, index, first = event.fragment
        known = server.transfers.setdefault(event.slot, set())
        if first:
            known.add(transfer)
        elif transfer not in known:
            raise PlantedBugError(f"stale-fragment: {index} of transfer {transfer}")


def double_free(server: Server, event: Event) -> None:
    """Free the slot of a client as often as it says that it leaves."""
    if event.enters:
        server.freed.discard(event.slot)
    elif event.leaves:
        if event.slot in server.freed:
            raise PlantedBugError("double-free: a slot that is free")
        server.freed.add(event.slot)


def unbounded_table(server: Server, event: Event) -> None:
    """Keep for ever what clients name; the memory for it ends."""
    if event.key is not None:
        server.table.add(event.key)
        if len(server.table) > TABLE_BUG:
            raise PlantedBugError(f"unbounded-table: {len(server.table)} entries")


def gates(_server: Server, event: Event) -> None:
    """Die of a message that passes one check after the other; say how many it has passed."""
    passed = 0
    for at, nibble in _GATES:
        if len(event.content) <= at or event.content[at] & 0xF != nibble:
            break
        passed += 1
    _reached("gates", passed, len(_GATES))


def steps(server: Server, event: Event) -> None:
    """Die of messages of a client that come in one order; any other takes it back to the start."""
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
"""Name -> what dies of it. A server lists those that its protocol can have among its `BUGS`."""
TABLE_BUG = 300
"""Entries for which the planted table has room."""
_GATES = ((2, 0xA), (5, 0x3), (8, 0xD), (11, 0x6))
"""(byte of a content, its low four bits): what each check of the planted bug wants."""
_STEPS_AT, _STEPS = 2, (0xA, 0x3, 0xD)
"""The byte, and its low four bits in each of the messages that have to follow each other."""


class Server(ABC):
    """The server side of a protocol without sockets: bytes in, bytes out, time passed in."""

    DIALECT: ClassVar[str]
    """Dialect that it speaks unless told otherwise."""
    BUGS: ClassVar[tuple[str, ...]] = ()
    """Names of the bugs that can be planted."""
    TRANSPORT: ClassVar[Literal["udp", "tcp"]] = "udp"
    """What it runs over."""

    def __init__(self, dialect: str | None = None, bugs: frozenset[str] = frozenset()) -> None:
        self.dialect = dialect or self.DIALECT
        self.bugs = bugs
        self.closing: set[Address] = set()
        """Peers whose TCP connection the server wants closed."""
        self.silent = False
        """True when a planted bug has made the server deaf."""
        self.transfers: dict[object, set[int]] = {}
        self.freed: set[object] = set()
        self.table: set[object] = set()
        self.steps: dict[object, int] = {}
        """What the planted bugs remember."""

    def event(self, event: Event) -> None:
        """Let the planted bugs look at a message.

        Raises:
            PlantedBugError: the server dies of it.
        """
        for name in self.bugs & SHARED_BUGS.keys():
            SHARED_BUGS[name](self, event)

    @abstractmethod
    def handle(self, data: bytes, peer: Address, now: float) -> Replies:
        """Return the answers to one datagram."""

    @abstractmethod
    def tick(self, now: float) -> Replies:
        """Return what is due: repetitions."""


class _Heard(Protocol):
    """What a server knows of a client."""

    heard: float
    """When it last sent something."""


P = TypeVar("P", bound=_Heard)


class DatagramServer(Server, Generic[P]):
    """A server whose clients are told apart by their addresses."""

    TIMEOUT_SECONDS: ClassVar[float] = 10.0
    """Silence after which a client is forgotten."""

    def __init__(self, dialect: str | None = None, bugs: frozenset[str] = frozenset()) -> None:
        super().__init__(dialect, bugs)
        self._peers: dict[Address, P] = {}
        self.delivered = 0
        """Messages of clients that the server took."""

    def _add(self, address: Address, peer: P) -> P:
        """Take a client in; where there are too many, the one silent for longest goes."""
        while len(self._peers) >= PEER_LIMIT:
            del self._peers[min(self._peers, key=lambda each: self._peers[each].heard)]
        self._peers[address] = peer
        return peer

    def _living(self, now: float) -> list[tuple[Address, P]]:
        """Forget the clients that are silent; return the others."""
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
        """What each peer has sent and nobody has read yet."""
        self.delivered = 0
        """Messages read."""

    def handle(self, data: bytes, peer: Address, now: float) -> Replies:
        """Take bytes of a stream; no bytes at all mean that it has ended."""
        del now
        if not data:
            self.streams.pop(peer, None)
            return []
        replies = [] if peer in self.streams else self.greeting(peer)
        self.streams[peer] = self.streams.get(peer, b"") + data
        return replies + self.read(peer)

    def greeting(self, peer: Address) -> Replies:
        """Return what a peer gets before it is answered for the first time."""
        del peer
        return []

    @abstractmethod
    def read(self, peer: Address) -> Replies:
        """Take the whole messages off a peer's stream; return the answers."""

    def tick(self, now: float) -> Replies:
        """Return nothing: there are no timers, TCP tells who is gone."""
        del now
        return []


def open_listener(server: Server, port: int = 0) -> socket.socket:
    """Return a socket on 127.0.0.1 for a server; port 0 lets the system choose."""
    kind = socket.SOCK_DGRAM if server.TRANSPORT == "udp" else socket.SOCK_STREAM
    listener = socket.socket(socket.AF_INET, kind)
    if kind is socket.SOCK_STREAM:
        # A restarted server must get its port although old connections linger.
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
    """Answer until `stop()`; a planted bug that kills the server is first named on stderr."""
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
    """Answer what has arrived, waiting a moment for it; `links` holds the TCP connections."""
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
        # It may have gone by itself.
        if peer in links:
            links.pop(peer).close()
    server.closing.clear()


def _sent(link: socket.socket, octets: bytes) -> bool:
    """Return whether all of it has gone: a stream with a hole in it is no stream any more."""
    try:
        return link.send(octets) == len(octets)
    except OSError:
        return False
