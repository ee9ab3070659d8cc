"""The target: its address, the rule that it must be this machine, and the socket."""

from __future__ import annotations

import contextlib
import ipaddress
import select
import socket
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from netdissect.model.closing import Closing
from netdissect.model.errors import AccessError, UsageError
from netdissect.model.text import parse_count, quoted
from netdissect.system.sockets import is_read

TRAFFIC_LIMIT = 4096
"""Latest payloads kept for the capture file of a failure."""
READ_OCTETS = 1 << 16
UNSENT_OCTETS = 1 << 20
"""Maximum bytes queued for a target that does not read its stream; further messages are dropped."""
ROOM_OCTETS = 4 << 20
"""Receive buffer asked for; short datagrams take about 768 bytes of it each."""
CONNECT_SECONDS = 1.0
"""Timeout of a TCP connection attempt."""
CATCH_UP_SECONDS = 5.0
"""A delay of up to this long is made up for by sending faster: some targets stall for a second."""
_SO_RCVBUFFORCE = 33
_LATE = 4.0
_PORTS = 1 << 16
_BURST = 64
"""Maximum number of reads per call, so that a flooding target cannot block the engine."""

Transport = Literal["udp", "tcp"]


@dataclass(frozen=True, slots=True)
class Target:
    """One address and port."""

    host: str
    """IPv4 or IPv6 address."""
    port: int
    """UDP or TCP port."""

    @classmethod
    def parse(cls, text: str, *, own_host: bool = False) -> Target:
        """Return the target named by `127.0.0.1:7777` or `[::1]:7777`.

        Args:
            text: host and port; `localhost` means 127.0.0.1, other names are not looked up.
            own_host: the user states that the host is theirs, so it may be another machine.

        Raises:
            UsageError: not an address and port.
            AccessError: not a loopback address, and `own_host` is False.
        """
        host, _, port = text.rpartition(":")
        if host[:1] == "[" and host[-1:] == "]":
            host = host[1:-1]
        host = "127.0.0.1" if host == "localhost" else host
        try:
            address = ipaddress.ip_address(host)
        except ValueError:
            raise UsageError(f"{quoted(text)} is no HOST:PORT with a numeric address") from None
        if not 0 < (parse_count(port) or 0) < _PORTS:
            raise UsageError(f"{quoted(text)} has no port from 1 to 65535")
        if not address.is_loopback and not own_host:
            raise AccessError(
                f"{host} is not this machine. Mutated traffic goes to loopback only, unless "
                "--i-own-this-host says that you may attack that host."
            )
        return cls(str(address), int(port))

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@dataclass(frozen=True, slots=True)
class Traffic:
    """One datagram, or one send or read of a stream, on a link."""

    time_ns: int
    """Nanoseconds since the Unix epoch."""
    outgoing: bool
    """True if we sent it."""
    octets: bytes
    """The payload."""
    local: tuple[str, int]
    """Our address and port."""
    note: str = ""
    """Comment in the capture file: the case that it belongs to."""


class Journal(deque[Traffic]):
    """The latest traffic of some links; `taps` get all of it."""

    def __init__(self, limit: int = TRAFFIC_LIMIT) -> None:
        super().__init__(maxlen=limit)
        self.taps: list[Callable[[Traffic], None]] = []
        """Callbacks that get every payload on the links."""

    def append(self, traffic: Traffic) -> None:
        """Add a payload and pass it to the taps."""
        super().append(traffic)
        for tap in self.taps:
            tap(traffic)


class Link(Closing):
    """A connected, non-blocking socket that records its traffic."""

    def __init__(
        self, target: Target, transport: Transport = "udp", journal: Journal | None = None
    ) -> None:
        """Open the socket and, for TCP, connect.

        Raises:
            OSError: nothing listens there (TCP), or no socket is available.
        """
        self.target = target
        self.transport: Transport = transport
        self.journal = Journal() if journal is None else journal
        """The latest traffic."""
        self.refused = 0
        """Number of ICMP errors and resets that say that nothing listens there."""
        self.closed = False
        """True once a stream has ended."""
        self._unsent = bytearray()
        family = socket.AF_INET6 if ":" in target.host else socket.AF_INET
        kind = socket.SOCK_DGRAM if transport == "udp" else socket.SOCK_STREAM
        self._socket = socket.socket(family, kind)
        try:
            self._socket.settimeout(CONNECT_SECONDS)
            self._socket.connect((target.host, target.port))
            if transport == "tcp":
                # Send every message at once, in a segment of its own.
                self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            else:
                _make_room(self._socket)
            self._socket.setblocking(False)
        except OSError:
            self._socket.close()
            raise
        name = self._socket.getsockname()
        self.local = (str(name[0]), int(name[1]))
        """Our address and port."""

    def close(self) -> None:
        """Close the socket."""
        self._socket.close()
        self.closed = True

    def send(self, octets: bytes, note: str = "") -> None:
        """Send one datagram, or bytes of the stream. A refusal is only counted (`refused`)."""
        self.journal.append(Traffic(time.time_ns(), True, octets, self.local, note))
        if self.transport == "tcp":
            if len(self._unsent) < UNSENT_OCTETS:
                self._unsent += octets
            self._flush()
            return
        try:
            self._socket.send(octets)
        except ConnectionRefusedError:
            self.refused += 1
        except OSError:
            # Sending into a full buffer or above the system's size limit counts as loss.
            pass

    def is_read(self) -> bool | None:
        """Return whether the target has accepted the connection and read all that was sent; None if
        that is not known: the system tells it of TCP within this machine only.
        """
        if self.transport != "tcp" or self.closed:
            return None
        if self._unsent:
            return False
        return is_read((self.target.host, self.target.port), self.local)

    def _flush(self) -> None:
        """Send as much of the queued stream as the target's system takes."""
        try:
            while self._unsent and not self.closed:
                del self._unsent[: self._socket.send(self._unsent)]
        except BlockingIOError:
            pass
        except OSError:
            self.closed = True

    def receive(self, wait: float = 0.0) -> list[bytes]:
        """Return the payloads that have arrived; wait up to `wait` seconds for the first."""
        if self._unsent:
            self._flush()
        if self.closed:
            return []
        ready, _, _ = select.select([self._socket], [], [], max(0.0, wait))
        got: list[bytes] = []
        while ready and len(got) < _BURST:
            try:
                octets = self._socket.recv(READ_OCTETS)
            except BlockingIOError:
                break
            except ConnectionRefusedError:
                self.refused += 1
                # The system reports each refusal once; data may follow.
                continue
            except OSError:
                self.closed = True
                break
            if not octets and self.transport == "tcp":
                self.closed = True
                break
            self.journal.append(Traffic(time.time_ns(), False, octets, self.local))
            got.append(octets)
        return got


def _make_room(own: socket.socket) -> None:
    """Let the system keep more datagrams for a socket than it usually does. One mutant of a
    thousand pings has as many answers, which would push out acknowledgements that come with them.
    """
    own.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, ROOM_OCTETS)
    # Linux: only root may have more than `net.core.rmem_max`.
    with contextlib.suppress(OSError):
        own.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, ROOM_OCTETS)


class Pacer:
    """Limits sending to `rate` messages per second; a short delay is made up for."""

    def __init__(self, rate: float, now: float) -> None:
        """Start at `now`; `rate` 0 means no limit."""
        self._gap = 1.0 / rate if rate > 0 else 0.0
        self._next = now

    def is_late(self, now: float) -> bool:
        """Return whether the next send is overdue by several messages."""
        return self._gap > 0 and now > self._next + _LATE * self._gap

    def wait(self, now: float) -> float:
        """Count the next send; return the seconds to wait before it."""
        due = max(self._next, now - CATCH_UP_SECONDS)
        self._next = due + self._gap
        return max(0.0, due - now)
