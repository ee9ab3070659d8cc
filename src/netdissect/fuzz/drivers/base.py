"""What a driver is: the client side of a protocol, as far as mutants need one to be let in."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable
from typing import ClassVar

from netdissect.fuzz.cases import CONNECTED, Step
from netdissect.fuzz.generator import Traits
from netdissect.fuzz.target import Link, Target, Transport

__all__ = ["Driver", "Key"]

Key = int | str
"""What an acknowledgement names: the number of a sent unit."""

_PENDING_LIMIT = 4096
"""Sent units at most whose acknowledgement is waited for."""
_TYPE_LIMIT = 512
"""(type, state) pairs of one session at most: names come from the target."""
_POLL = 0.02
"""Seconds that a wait for the target sleeps at most between two looks at the timers."""


class Driver(ABC):
    """A session with the target. Time is passed in or read from `clock`; nothing runs by itself.

    A driver connects, answers what the protocol wants answered, and puts live values into steps.
    It never judges the target: monitors do.
    """

    protocol: ClassVar[str]
    """Name of the protocol."""
    transport: ClassVar[Transport] = "udp"
    """What it runs over."""
    dialects: ClassVar[tuple[str, ...]]
    """Dialects that it speaks; the first is the default."""
    traits: ClassVar[Traits]
    """What a generator has to know of the protocol."""
    quick_seconds: ClassVar[float] = 0.1
    """Time within which a living server on this machine answers in a session: a longer silence
    means that a mutant has ended the session, and a new one is opened."""

    def __init__(
        self,
        link: Link,
        dialect: str | None = None,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.link = link
        self.dialect = dialect or self.dialects[0]
        self.clock = clock
        self.state = self.traits.stages[0]
        """One of the stages, or `closed`."""
        self.close_reason = ""
        """Why the session is closed, in the target's words."""
        self.answers = 0
        """Messages of the target that were understood."""
        self.received: Counter[tuple[str, str]] = Counter()
        """(type, state) -> messages of the target."""
        self.accepted: Counter[str] = Counter()
        """Kind of step ("control", "mutant") -> how many the target acknowledged."""
        self.expected: Counter[str] = Counter()
        """Kind of step -> how many were sent that a target acknowledges when it accepts them."""
        self._pending: dict[Key, str] = {}

    # --- what a protocol must say -------------------------------------------------------------

    @abstractmethod
    def open(self, stage: str = CONNECTED, timeout: float = 5.0) -> bool:
        """Bring the session to `stage`; return whether that worked within `timeout` seconds."""

    @abstractmethod
    def handle(self, octets: bytes, now: float) -> None:
        """Take one datagram (or piece of a stream) of the target, and answer it if need be."""

    @abstractmethod
    def tick(self, now: float) -> None:
        """Send what is due: keepalives and repetitions."""

    @abstractmethod
    def probe(self, now: float) -> None:
        """Send something that a living target answers in this state."""

    @abstractmethod
    def stamp(self, step: Step) -> tuple[bytes, Key | None]:
        """Return the octets to send, with live values, and the number that will be acknowledged.

        Octets too damaged to hold live values are returned as they are.
        """

    @abstractmethod
    def leave(self) -> None:
        """Tell the target that the session ends."""

    @classmethod
    def split(cls, stream: bytes, dialect: str) -> Iterable[bytes]:
        """Cut the start of a TCP stream of one dialect into whole frames, each with its framing."""
        del dialect
        return (stream,)

    # --- what all have in common --------------------------------------------------------------

    @classmethod
    def connect(
        cls,
        target: Target,
        dialect: str | None = None,
        *,
        stage: str = CONNECTED,
        timeout: float = 5.0,
        link: Link | None = None,
    ) -> Driver:
        """Return a session in `stage`, or a `closed` one where the target did not let it in."""
        driver = cls(link or Link(target, cls.transport), dialect)
        if not driver.open(stage, timeout) and driver.state != "closed":
            driver.end("no answer")
        return driver

    @property
    def is_open(self) -> bool:
        """Return whether messages can still be sent in this session."""
        return self.state != "closed" and not self.link.closed

    def pump(self, wait: float = 0.0) -> None:
        """Handle what has arrived and send what is due; keep doing so for `wait` seconds."""
        end = self.clock() + wait
        self._turn(0.0)
        while self.is_open and (left := end - self.clock()) > 0:
            self._turn(left)

    def until(self, done: Callable[[], bool], timeout: float) -> bool:
        """Handle what arrives until `done()`; return whether that came within `timeout` seconds."""
        end = self.clock() + timeout
        while not done():
            left = end - self.clock()
            if left <= 0 or not self.is_open or self.link.refused:
                return False
            self._turn(left)
        return True

    def _turn(self, wait: float) -> None:
        """Handle the next arrivals, waiting a little for the first; look at the timers once."""
        for octets in self.link.receive(min(_POLL, wait)):
            self.handle(octets, self.clock())
        if self.is_open:
            self.tick(self.clock())

    def send(self, octets: bytes, key: Key | None = None, kind: str = "mutant") -> None:
        """Send what `stamp` returned."""
        if key is not None:
            self.expected[kind] += 1
            self._pending.pop(key, None)
            while len(self._pending) >= _PENDING_LIMIT:
                self._pending.pop(next(iter(self._pending)))
            self._pending[key] = kind
        self.link.send(octets)

    def acknowledged(self, key: Key) -> None:
        """Note that the target acknowledged a sent unit."""
        kind = self._pending.pop(key, None)
        if kind is not None:
            self.accepted[kind] += 1

    def forget_mutant(self, key: Key) -> bool:
        """Wait for a mutant no longer: something else goes out under its number."""
        if self._pending.get(key) != "mutant":
            return False
        del self._pending[key]
        return True

    def answered(self, type_name: str) -> None:
        """Count a message of the target that was understood."""
        self.answers += 1
        known = (type_name, self.state) in self.received or len(self.received) < _TYPE_LIMIT
        self.received[type_name if known else "other", self.state] += 1

    def alive(self, timeout: float, *, certain: bool = False) -> bool:
        """Return whether the target answers within `timeout` seconds.

        Args:
            timeout: seconds to wait for the answer.
            certain: only the answer to a question of now counts, not signs of life just before.
        """
        del certain  # every protocol asks; one that need not always do so overrides this
        self.pump()
        before = self.proofs()
        self.probe(self.clock())
        return self.until(lambda: self.proofs() > before, timeout)

    def proofs(self) -> int:
        """Return how often the target has shown that it lives and knows the session: here, every
        message of it counts. Drivers that can tell the answer to a probe count those.
        """
        return self.answers

    def drain(self, timeout: float) -> None:
        """Give the target up to `timeout` seconds to acknowledge the controls, also of a session
        that has ended since.
        """
        end = self.clock() + timeout
        while not self.link.closed and (wait := end - self.clock()) > 0:
            busy = "control" in self._pending.values()
            arrived = self.link.receive(min(_POLL, wait) if busy else 0.0)
            for octets in arrived:
                self.handle(octets, self.clock())
            if not busy and not arrived:
                return

    def end(self, reason: str) -> None:
        """Mark the session as over."""
        self.state = "closed"
        self.close_reason = reason

    def close(self) -> None:
        """Leave, also a session that may have ended already, and close the socket."""
        if self.state != CONNECTED and self.is_open:
            # What the server has just given us may be needed to leave.
            self.pump(_POLL)
        if not self.link.closed:
            self.leave()
        self.link.close()
        self.state = "closed"
