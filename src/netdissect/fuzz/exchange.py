"""One message sent inside a good session, and what the target answers."""

from __future__ import annotations

import time
from dataclasses import dataclass

from netdissect.fuzz.cases import CONNECTED, Step
from netdissect.fuzz.drivers import driver_class
from netdissect.fuzz.target import Link, Target, Transport
from netdissect.model.errors import UsageError

__all__ = ["Exchange", "exchange"]

_SILENCE_SECONDS = 0.1
"""Silence behind an answer after which no more are waited for without a session."""


@dataclass(frozen=True, slots=True)
class Exchange:
    """What went over the link from the message on."""

    sent: bytes
    """The message as it went out."""
    answers: tuple[bytes, ...]
    """Datagrams of the target, in order of arrival."""
    refused: bool
    """True where nobody listens at the port."""


def exchange(
    protocol: str,
    target: Target,
    octets: bytes,
    *,
    dialect: str,
    wait: float = 1.0,
    session: bool = True,
    live: bool = True,
    transport: Transport = "udp",
) -> Exchange:
    """Send one message and return what comes back within `wait` seconds.

    Args:
        protocol: name of the protocol.
        target: where to send.
        octets: the message.
        dialect: full name of the dialect.
        wait: seconds to collect answers.
        session: connect first; False sends from a bare socket.
        live: put the session's token and numbers into the message; False sends it as it is.
        transport: `udp` or `tcp`.

    Raises:
        UsageError: the target lets no session in, or refuses a TCP connection.
    """
    if not session:
        return _bare(target, octets, wait, transport)
    driver = driver_class(protocol, transport, dialect).connect(target, dialect)
    try:
        if driver.state != CONNECTED:
            raise UsageError(
                f"{target} lets no {dialect} session in: {driver.close_reason or 'no answer'} "
                "(--no-session sends without one)"
            )
        # What answers the connection's own messages is out of the way before the message goes out.
        driver.alive(wait)
        driver.link.journal.clear()
        data, key = driver.stamp(Step(octets)) if live else (octets, None)
        driver.send(data, key)
        driver.pump(wait)
        answers = tuple(each.octets for each in driver.link.journal if not each.outgoing)
        return Exchange(data, answers, driver.link.refused > 0)
    finally:
        driver.close()


def _bare(target: Target, octets: bytes, wait: float, transport: Transport) -> Exchange:
    try:
        link = Link(target, transport)
    except OSError as error:
        raise UsageError(f"{target}: {error.strerror or error}") from error
    end = time.monotonic() + wait
    with link:
        link.send(octets)
        answers: list[bytes] = link.receive(wait)
        # A target that floods would go on for ever.
        while time.monotonic() < end and (more := link.receive(min(wait, _SILENCE_SECONDS))):
            answers += more
        return Exchange(octets, tuple(answers), link.refused > 0)
