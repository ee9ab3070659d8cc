"""What a driver is: the client side of a protocol, as far as mutants need one to be let in."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable
from typing import ClassVar

from netdissect.fuzz.cases import CONNECTED, LATE_SIGN, Step
from netdissect.fuzz.generator import Traits
from netdissect.fuzz.target import Link, Target, Transport

__all__ = ["Driver", "Key"]

Key = int | str
"""What an acknowledgement names: the number of a sent unit."""

_PENDING_LIMIT = 4096
"""Sent units at most whose acknowledgement is waited for."""
_TYPE_LIMIT = 512
"""(type, state) pairs of one session at most: names come from the target."""
_MOVE_LIMIT = 256
"""Different changes of state of one session at most: names come from the target."""
_SLOW_CLASS = 3
"""Answers within 2 to this power ms are of one class of time; others of one for each power of 2."""
_COMPANY = 0.005
"""Seconds that a wait lets other sessions alone."""
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
    quick_seconds: ClassVar[float] = 0.15
    """Time within which a living server on this machine answers in a session: after a longer
    silence somebody else has to show that it lives."""
    patient_seconds: ClassVar[float] = 0.3
    """Silence after which a session is given up although the server lives: a mutant has ended it.
    """

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
        self.unanswered = 0
        """Messages sent since the target has last been heard in this session."""
        self.sent_at = float("-inf")
        """When the last one was sent."""
        self.number = 0
        """Ordinal of the session in its run."""
        self.moves: Counter[tuple[str, str, str]] = Counter()
        """(state, next state, what the target sent, empty where that was not it) -> how often."""
        self.meanwhile: Callable[[], None] = lambda: None
        """Called while this session waits: others have to be kept alive."""
        self.notice: Callable[[Driver, str], None] = lambda _session, _sign: None
        """Called with what the target does for the first time in this session."""
        self.timed: Callable[[float], None] = lambda _seconds: None
        """Called with the time that the target took to answer a question."""
        self.learnt: dict[str, bytes] = {}
        """What the sessions of one run have learnt of the target; they share it."""
        self._pending: dict[Key, tuple[str, float]] = {}
        self._sign_at = float("-inf")
        self._proven = 0
        self._asked: tuple[float, int] | None = None
        self._owed = False
        self._mutant_at: float | None = None
        self._latest = ""

    # --- what a protocol must say -------------------------------------------------------------

    @abstractmethod
    def begin(self) -> None:
        """Send the first message of the handshake; `handle` and `tick` do the rest."""

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
        """Return the bytes to send, with live values, and the number that will be acknowledged.

        Bytes too damaged to hold live values are returned as they are.
        """

    @abstractmethod
    def leave(self) -> None:
        """Tell the target that the session ends."""

    def ends(self, octets: bytes) -> bool:
        """Return whether a message would end a good session: it closes, or spoils the stream."""
        del octets
        return False

    def risks(self, step: Step) -> bool:
        """Return whether a step would end this session, as it goes out with live values."""
        return self.ends(step.octets)

    def retire(self) -> bool:
        """Get ready to leave; return whether the server would understand a good-bye now: some know
        no way out of an unfinished handshake.
        """
        return True

    def left(self) -> bool:
        """Return whether the server knows that we have left; True where it never says so."""
        return True

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
    ) -> Driver:
        """Return a session in `stage`, or a `closed` one where the target did not let it in."""
        driver = cls(Link(target, cls.transport), dialect)
        if not driver.open(stage, timeout) and driver.state != "closed":
            driver.end("no answer")
        return driver

    def open(self, stage: str = CONNECTED, timeout: float = 5.0) -> bool:
        """Bring the session to `stage`; return whether that worked within `timeout` seconds."""
        self.start(stage)
        return self.until(lambda: self.reached(stage), timeout)

    def start(self, stage: str = CONNECTED) -> None:
        """Set out for `stage`; `reached` tells when it is there."""
        if stage != "fresh":
            before, self.state = self.state, "connecting"
            self._moved(before, "")
            self.begin()

    def reached(self, stage: str) -> bool:
        """Return whether messages can be sent that belong to `stage`."""
        return self.state == stage

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
            # One refusal is enough here: nobody listens.
            if left <= 0 or not self.is_open or self.link.refused:
                return False
            self._turn(min(left, _COMPANY))
            self.meanwhile()
        return True

    def _turn(self, wait: float) -> None:
        """Handle the next arrivals, waiting a little for the first; look at the timers once."""
        for octets in self.link.receive(min(_POLL, wait)):
            self._take(octets)
        if self.is_open:
            self.tick(self.clock())

    def _take(self, octets: bytes) -> None:
        before, self._latest = self.state, ""
        now = self.clock()
        self.unanswered = 0
        self.handle(octets, now)
        # Servers send of themselves too, and some go on with that when they have ceased to read.
        if self.is_open and self.proofs() != self._proven:
            self._proven, self._sign_at = self.proofs(), now
        if self.state != before:
            self._moved(before, self._latest)
        if self._owed and self._asked is not None and not self.owed(now):
            self._owed = False
            self.timed(now - self._asked[0])
        if self._mutant_at is not None:
            took = (round(1000 * (now - self._mutant_at)) >> _SLOW_CLASS).bit_length()
            self._mutant_at = None
            if took:
                self.notice(self, f"{LATE_SIGN} {1 << (took + _SLOW_CLASS - 1)} ms")

    def _moved(self, before: str, cause: str) -> None:
        move = (before, self.state, cause)
        if move not in self.moves and len(self.moves) >= _MOVE_LIMIT:
            move = (before, self.state, "other")
        self.moves[move] += 1

    def send(
        self, octets: bytes, key: Key | None = None, kind: str = "mutant", note: str = ""
    ) -> None:
        """Send what `stamp` returned; `note` says in capture files what it is."""
        if kind == "mutant" and self._mutant_at is None:
            self._mutant_at = self.clock()
        if key is not None:
            self.expected[kind] += 1
            # Sent again under the same number, it is the youngest once more.
            self._pending.pop(key, None)
            while len(self._pending) >= _PENDING_LIMIT:
                self._pending.pop(next(iter(self._pending)))
            self._pending[key] = (kind, self.clock())
        self.unanswered += 1
        self.link.send(octets, note)
        self.sent_at = self.clock()

    def acknowledged(self, key: Key) -> None:
        """Note that the target acknowledged a sent unit."""
        waiting = self._pending.pop(key, None)
        if waiting is not None:
            self.accepted[waiting[0]] += 1
            self._sign_at = self.clock()

    def oldest_pending(self) -> Key | None:
        """Return the unit that waits for an acknowledgement for longest, None where none does."""
        return next(iter(self._pending), None)

    def forget_mutant(self, key: Key) -> bool:
        """Wait for a mutant no longer: something else goes out under its number."""
        if self._pending.get(key, ("", 0.0))[0] != "mutant":
            return False
        del self._pending[key]
        return True

    def undecided(self) -> int:
        """Return how many controls wait for an acknowledgement although the target has answered
        nothing in this session since they were sent: it was over, which says nothing of them. An
        answer so soon after one may be to what went before it.
        """
        return sum(
            kind == "control" and self._sign_at < sent + self.quick_seconds
            for kind, sent in self._pending.values()
        )

    def answered(self, type_name: str, *, ours: bool = False) -> None:
        """Count a message of the target that was understood.

        Args:
            type_name: its type.
            ours: it is what was sent to the target, so its type says nothing of the target.
        """
        self.answers += 1
        self._latest = type_name
        known = (type_name, self.state) in self.received
        if not known and len(self.received) < _TYPE_LIMIT:
            known = True
            if not ours:
                self.notice(self, f"{type_name} in {self.state}")
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
        return self.until(lambda: self.proofs() > before, timeout) and self.is_open

    def silence(self, now: float) -> float:
        """Return for how many seconds the target has owed an answer in this session, 0 where it
        owes none. Does not wait: it asks, and later calls see whether an answer has come.
        """
        self.ask(now)
        return self.owed(now)

    def ask(self, now: float, *, again: bool = False) -> None:
        """Ask the target something, unless it owes an answer; `again`: also then."""
        if again or not self.owed(now):
            self._asked, self._owed = (now, self.proofs()), True
            self.probe(now)

    def owed(self, now: float) -> float:
        """Return for how many seconds the target has not answered what it was asked last."""
        if self._asked is None or self.proofs() > self._asked[1]:
            return 0.0
        return now - self._asked[0]

    def proofs(self) -> int:
        """Return how often the target has shown that it lives and knows the session: here, every
        message of it counts. Drivers that can tell the answer to a probe count those.
        """
        return self.answers

    def reads_since(self, moment: float) -> bool:
        """Return whether the target has answered something well after `moment`: what it read
        before that was answered by then.
        """
        return self._sign_at > moment + self.quick_seconds

    def drain(self, timeout: float) -> None:
        """Give the target up to `timeout` seconds to acknowledge the controls, also of a session
        that has ended since.
        """
        end = self.clock() + timeout
        while not self.link.closed and (wait := end - self.clock()) > 0:
            busy = self.is_open and any(kind == "control" for kind, _ in self._pending.values())
            arrived = self.link.receive(min(_POLL, wait) if busy else 0.0)
            for octets in arrived:
                self._take(octets)
            if not busy and not arrived:
                return
            if busy and self.is_open:
                # What was lost on the way is sent again.
                self.tick(self.clock())

    def end(self, reason: str) -> None:
        """Mark the session as over."""
        self.state = "closed"
        self.close_reason = reason

    def shut(self) -> None:
        """Close the socket of a session that has been left."""
        self.link.close()
        before, self.state = self.state, "closed"
        if before != self.state:
            self._moved(before, "")

    def close(self, wait: float = _POLL) -> None:
        """Leave, also a session that may have ended already, and close the socket.

        Args:
            wait: seconds in which the server may still give us what is needed to leave.
        """
        if self.state != CONNECTED and self.is_open:
            self.pump(wait)
        if not self.link.closed:
            self.leave()
        self.shut()
