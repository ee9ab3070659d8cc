"""Sends one message in a valid session and collects the answers."""

from __future__ import annotations

import time
from dataclasses import dataclass

from netdissect.fuzz.cases import CONNECTED, Step
from netdissect.fuzz.drivers import driver_class
from netdissect.fuzz.target import Link, Target, Transport
from netdissect.model.errors import UsageError

__all__ = ["Exchange", "exchange"]

_SILENCE_SECONDS = 0.1
"""Without a session, waiting ends after this long without another answer."""


@dataclass(frozen=True, slots=True)
class Exchange:
    """A message and its answers."""

    sent: bytes
    """The message as sent."""
    answers: tuple[bytes, ...]
    """What the target sent, in order of arrival."""
    refused: bool
    """True if nothing listens at the port."""


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
    """Send one message and return the answers that arrive within `wait` seconds.

    Args:
        protocol: name of the protocol.
        target: where to send.
        octets: the message.
        dialect: full name of the dialect.
        wait: seconds to collect answers.
        session: connect first; False sends without a session.
        live: insert the session's token and numbers; False sends the message as it is.
        transport: `udp` or `tcp`.

    Raises:
        UsageError: the target accepts no session, or refuses a TCP connection.
    """
    if not session:
        return _bare(target, octets, wait, transport)
    driver = driver_class(protocol, transport, dialect).connect(target, dialect)
    try:
        if driver.state != CONNECTED:
            raise UsageError(
                f"{target} accepts no {dialect} session: {driver.close_reason or 'no answer'} "
                "(--no-session sends without one)"
            )
        # Wait for the answers to the handshake, so that they do not count as answers to the
        # message.
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
        # Bounded by `end`: a flooding target would never fall silent.
        while time.monotonic() < end and (more := link.receive(min(wait, _SILENCE_SECONDS))):
            answers += more
        return Exchange(octets, tuple(answers), link.refused > 0)
