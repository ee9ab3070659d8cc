"""Scapy automata: a client (from the drivers) and a minimal server of every protocol.

`ClientMachine("riptide", "127.0.0.1:7777", packets=[RiptideReliable(...)]).run()` connects, sends
the packets, disconnects, and returns the answers. Neither automaton needs raw sockets.
"""

# ruff: noqa: RSE102 - a state is raised as what it returns when it is called

from __future__ import annotations

import time
from typing import Any

from scapy.automaton import ATMT, Automaton, ObjectPipe

from netdissect.fuzz.cases import CONNECTED, Step
from netdissect.fuzz.drivers import Driver, driver_class
from netdissect.fuzz.servers import make_server, open_listener
from netdissect.fuzz.servers.base import Server, turn
from netdissect.fuzz.target import Link, Target

__all__ = ["ClientMachine", "ServerAutomaton"]

_POLL = 0.02  # seconds between two looks of a state at its session


def _no_socket(**_kwargs: Any) -> ObjectPipe[Any]:
    """Return a placeholder for the sockets that an automaton requires: drivers open their own."""
    return ObjectPipe("netdissect")


class _Machine(Automaton):  # type: ignore[misc]
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        # Scapy would open a raw socket for each automaton otherwise.
        kwargs.setdefault("ll", _no_socket)
        kwargs.setdefault("recvsock", _no_socket)
        super().__init__(*args, **kwargs)


class ClientMachine(_Machine):
    """Connects, sends packets with live tokens and numbers, disconnects. `run()` returns the
    answers.
    """

    def parse_args(
        self,
        protocol: str,
        target: str,
        dialect: str | None = None,
        transport: str | None = None,
        packets: Any = (),
        wait: float = 0.5,
        timeout: float = 5.0,
        **kwargs: Any,
    ) -> None:
        """Set the task.

        Args:
            protocol: name of the protocol.
            target: `127.0.0.1:7777`; loopback only, like everything the fuzzer sends.
            dialect: dialect to speak; None = the driver's first one.
            transport: `udp` or `tcp`.
            packets: what to send once connected: packets or bytes.
            wait: seconds to collect answers.
            timeout: seconds within which the server must accept the session.
            kwargs: arguments of `Automaton`.
        """
        super().parse_args(**kwargs)
        self.driver_class: type[Driver] = driver_class(protocol, transport, dialect)
        self.target = Target.parse(target)
        self.dialect = dialect or self.driver_class.dialects[0]
        self.outgoing, self.wait, self.patience = list(packets), wait, timeout
        self.answers: list[bytes] = []

    @ATMT.state(initial=1)  # type: ignore[untyped-decorator]
    def BEGIN(self) -> None:  # noqa: N802 - states are written in capitals
        """Send the first message of the handshake."""
        self.driver = self.driver_class(
            Link(self.target, self.driver_class.transport), self.dialect
        )
        self.driver.start()
        self.until = time.monotonic() + self.patience

    @ATMT.timeout(BEGIN, _POLL)  # type: ignore[untyped-decorator]
    def in_handshake(self) -> None:
        """Go on with the handshake."""
        self.driver.pump()
        if self.driver.reached(CONNECTED):
            raise self.CONNECTED()
        if not self.driver.is_open or time.monotonic() >= self.until:
            raise self.REFUSED()
        raise self.WAITING()

    @ATMT.state()  # type: ignore[untyped-decorator]
    def WAITING(self) -> None:  # noqa: N802
        """Wait for the server."""

    @ATMT.timeout(WAITING, _POLL)  # type: ignore[untyped-decorator]
    def still_waiting(self) -> None:
        """Go on with the handshake."""
        self.in_handshake()

    @ATMT.state()  # type: ignore[untyped-decorator]
    def CONNECTED(self) -> None:  # noqa: N802
        """Send the packets."""
        self.driver.link.journal.clear()
        for packet in self.outgoing:
            self.driver.send(*self.driver.stamp(Step(bytes(packet))))
        self.until = time.monotonic() + self.wait
        raise self.LISTENING()

    @ATMT.state()  # type: ignore[untyped-decorator]
    def LISTENING(self) -> None:  # noqa: N802
        """Collect answers."""

    @ATMT.timeout(LISTENING, _POLL)  # type: ignore[untyped-decorator]
    def listening(self) -> None:
        """Receive, and keep the session alive."""
        self.driver.pump()
        if time.monotonic() >= self.until or not self.driver.is_open:
            raise self.LEFT()
        raise self.LISTENING()

    @ATMT.state(final=1)  # type: ignore[untyped-decorator]
    def LEFT(self) -> list[bytes]:  # noqa: N802
        """Disconnect; return what the server sent after the packets."""
        self.answers = [each.octets for each in self.driver.link.journal if not each.outgoing]
        self.driver.close()
        return self.answers

    @ATMT.state(error=1)  # type: ignore[untyped-decorator]
    def REFUSED(self) -> None:  # noqa: N802
        """Give up: the server did not accept the session."""
        self.driver.close()


class ServerAutomaton(_Machine):
    """Runs a minimal server for a while, over UDP or TCP. `run()` returns the `Server`."""

    def parse_args(
        self,
        protocol: str,
        port: int = 0,
        dialect: str | None = None,
        transport: str | None = None,
        seconds: float = 10.0,
        **kwargs: Any,
    ) -> None:
        """Listen on 127.0.0.1; with port 0 the system chooses the port (see `address`)."""
        super().parse_args(**kwargs)
        self.server: Server = make_server(protocol, dialect, frozenset(), transport)
        self.listener = open_listener(self.server, port)
        self.address = self.listener.getsockname()
        self.links: dict[Any, Any] = {}
        self.until = time.monotonic() + seconds

    @ATMT.state(initial=1)  # type: ignore[untyped-decorator]
    def SERVING(self) -> None:  # noqa: N802
        """Wait for messages."""

    @ATMT.timeout(SERVING, 0.001)  # type: ignore[untyped-decorator]
    def serve(self) -> None:
        """Answer the messages that have arrived."""
        turn(self.server, self.listener, self.links, time.monotonic)
        raise self.SERVING() if time.monotonic() < self.until else self.DONE()

    @ATMT.state(final=1)  # type: ignore[untyped-decorator]
    def DONE(self) -> Server:  # noqa: N802
        """Close the server."""
        for link in self.links.values():
            link.close()
        self.listener.close()
        return self.server
