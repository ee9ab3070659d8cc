"""The base class of drivers: a client that is complete enough for a server to accept mutants."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable
from typing import ClassVar

from netdissect.fuzz.cases import CONNECTED, LATE_SIGN, Step
from netdissect.fuzz.generator import Traits
from netdissect.fuzz.target import Link, Target, Transport

Key = int | str
"""Identifies a sent unit in acknowledgements: its number."""

_PENDING_LIMIT = 4096
"""Maximum number of sent units that wait for an acknowledgement."""
_TYPE_LIMIT = 512
"""Maximum number of (type, state) pairs per session: the target chooses the names."""
_MOVE_LIMIT = 256
"""Maximum number of distinct state changes per session: the target chooses the names."""
_SLOW_CLASS = 3
"""Answer times up to 2**3 ms form one class; above, each power of 2 is a class."""
_COMPANY = 0.005
"""Maximum time for which waiting does not serve other sessions, in seconds."""
_POLL = 0.02
"""Maximum sleep between two checks of the timers, in seconds."""


class Driver(ABC):
    """A session with the target. Time is passed in or read from `clock`; there are no threads.

    A driver connects, answers what the protocol requires to be answered, and inserts live values
    into steps. It does not judge the target; `Watch` and the monitors do.
    """

    protocol: ClassVar[str]
    """Name of the protocol."""
    transport: ClassVar[Transport] = "udp"
    """`udp` or `tcp`."""
    dialects: ClassVar[tuple[str, ...]]
    """Dialects that it speaks; the first is the default."""
    traits: ClassVar[Traits]
    """What the generator needs to know about the protocol."""
    quick_seconds: ClassVar[float] = 0.15
    """Time within which a healthy server on this machine answers in a session. After a longer
    silence, another session has to show that it is well."""
    patient_seconds: ClassVar[float] = 0.3
    """Silence after which a session is given up although the server is well: a mutant ended it."""

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
        """Why the session was closed, in the target's words."""
        self.answers = 0
        """Number of messages of the target that were understood."""
        self.received: Counter[tuple[str, str]] = Counter()
        """(type, state) -> number of messages of the target."""
        self.accepted: Counter[str] = Counter()
        """Kind of step (`control`, `mutant`) -> number that the target acknowledged."""
        self.expected: Counter[str] = Counter()
        """Kind of step -> number sent that a target acknowledges if it accepts them."""
        self.unanswered = 0
        """Number of messages sent since the target last sent something in this session."""
        self.sent_at = float("-inf")
        """When the last one was sent."""
        self.proven_at = float("-inf")
        """When the latest message was sent that the target has answered. It has read those before,
        too."""
        self.number = 0
        """Number of the session in its run."""
        self.moves: Counter[tuple[str, str, str]] = Counter()
        """(state, next state, message of the target that caused it or "") -> number of transitions.
        """
        self.meanwhile: Callable[[], None] = lambda: None
        """Called while this session waits, to keep the others alive."""
        self.notice: Callable[[Driver, str], None] = lambda _session, _sign: None
        """Called with (self, sign) when the target does something for the first time in this
        session."""
        self.timed: Callable[[float], None] = lambda _seconds: None
        """Called with the seconds that the target took to answer a probe."""
        self.learnt: dict[str, bytes] = {}
        """What the sessions of one run have learnt about the target; shared by all of them."""
        self._pending: dict[Key, tuple[str, float]] = {}
        """Key of an unacknowledged unit -> (kind of step, when it was sent), oldest first."""
        self._sign_at = float("-inf")
        """When the target last showed that it is well and knows the session."""
        self._proven = 0
        """`proofs` at that time."""
        self._asked: tuple[float, int] | None = None
        """(time, `proofs` before) of the last probe."""
        self._owed = False
        """Whether the answer to it has not come yet."""
        self._mutant_at: float | None = None
        """When the first mutant since the last message of the target was sent."""
        self._latest = ""
        """Type of the target's message that is being handled."""

    # --- implemented by each protocol ------------------------------------------------------------

    @abstractmethod
    def begin(self) -> None:
        """Send the first message of the handshake; `handle` and `tick` do the rest."""

    @abstractmethod
    def handle(self, octets: bytes, now: float) -> None:
        """Process one datagram (or piece of a stream) of the target, and answer it if required."""

    @abstractmethod
    def tick(self, now: float) -> None:
        """Send what is due: keepalives and retransmissions."""

    @abstractmethod
    def probe(self, now: float) -> None:
        """Send something that a healthy target answers in this state."""

    @abstractmethod
    def stamp(self, step: Step) -> tuple[bytes, Key | None]:
        """Return (bytes to send with live values, key that will be acknowledged or None).

        Bytes too damaged to hold live values are returned unchanged.
        """

    @abstractmethod
    def leave(self) -> None:
        """Tell the target that the session ends."""

    def ends(self, octets: bytes) -> bool:
        """Return whether a message would end a session, by closing it or desynchronising the
        stream.
        """
        del octets
        return False

    def risks(self, step: Step) -> bool:
        """Return whether a step, sent with live values, would end this session."""
        return self.ends(step.octets)

    def retire(self) -> bool:
        """Prepare to close; return whether the server would understand a disconnect now. Some
        cannot be left during the handshake.
        """
        return True

    def left(self) -> bool:
        """Return whether the server has confirmed the disconnect; True if it never does."""
        return True

    @classmethod
    def split(cls, stream: bytes, dialect: str) -> Iterable[bytes]:
        """Split the start of a TCP stream of one dialect into frames, each with its framing."""
        del dialect
        return (stream,)

    # --- common to all ------------------------------------------------------------------------

    @classmethod
    def connect(
        cls,
        target: Target,
        dialect: str | None = None,
        *,
        stage: str = CONNECTED,
        timeout: float = 5.0,
    ) -> Driver:
        """Return a session in `stage`, or a `closed` one if the target did not accept it."""
        driver = cls(Link(target, cls.transport), dialect)
        if not driver.open(stage, timeout) and driver.state != "closed":
            driver.end("no answer")
        return driver

    def open(self, stage: str = CONNECTED, timeout: float = 5.0) -> bool:
        """Bring the session to `stage`; return whether it got there within `timeout` seconds."""
        self.start(stage)
        return self.until(lambda: self.reached(stage), timeout)

    def start(self, stage: str = CONNECTED) -> None:
        """Start toward `stage`; `reached` returns whether it is there."""
        if stage != "fresh":
            before, self.state = self.state, "connecting"
            self._moved(before, "")
            self.begin()

    def reached(self, stage: str) -> bool:
        """Return whether messages that belong to `stage` can be sent now."""
        return self.state == stage

    @property
    def is_open(self) -> bool:
        """Return whether messages can still be sent in this session."""
        return self.state != "closed" and not self.link.closed

    def pump(self, wait: float = 0.0) -> None:
        """Process what has arrived and send what is due, for `wait` seconds."""
        end = self.clock() + wait
        self._turn(0.0)
        while self.is_open and (left := end - self.clock()) > 0:
            self._turn(left)

    def until(
        self, done: Callable[[], bool], timeout: float, *, pause: float = _COMPANY
    ) -> bool:
        """Pump until `done()` is true; return whether it became so within `timeout` seconds.

        Args:
            done: what is waited for.
            timeout: how long, in seconds.
            pause: seconds until it is asked again, if nothing arrives; doubled each time, up to the
                usual ones.
        """
        end = self.clock() + timeout
        while not done():
            left = end - self.clock()
            # One refusal suffices: nothing listens there.
            if left <= 0 or not self.is_open or self.link.refused:
                return False
            self._turn(min(left, pause))
            pause = min(2 * pause, _COMPANY)
            self.meanwhile()
        return True

    def _turn(self, wait: float) -> None:
        """Process what arrives, waiting briefly for the first, and check the timers once."""
        for octets in self.link.receive(min(_POLL, wait)):
            self._take(octets)
        if self.is_open:
            self.tick(self.clock())

    def _take(self, octets: bytes) -> None:
        before, self._latest = self.state, ""
        now = self.clock()
        self.unanswered = 0
        self.handle(octets, now)
        # Servers also send on their own, and some continue to although they no longer read.
        if self.is_open and self.proofs() != self._proven:
            self._proven, self._sign_at = self.proofs(), now
        if self.state != before:
            self._moved(before, self._latest)
        if self._owed and self._asked is not None and not self.owed(now):
            self._owed = False
            self.proven_at = max(self.proven_at, self._asked[0])
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
        """Send what `stamp` returned; `note` is its comment in capture files."""
        # Only the first of several unanswered mutants counts: one answer may be to any of them.
        if kind == "mutant" and self._mutant_at is None:
            self._mutant_at = self.clock()
        if key is not None:
            self.expected[kind] += 1
            # A number that is sent again becomes the newest.
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
            self.proven_at = max(self.proven_at, waiting[1])

    def forget_mutant(self, key: Key) -> bool:
        """Stop waiting for a mutant, because something else is sent under its number."""
        if self._pending.get(key, ("", 0.0))[0] != "mutant":
            return False
        del self._pending[key]
        return True

    def undecided(self) -> int:
        """Return the number of unacknowledged controls that were sent after the last answer of the
        target in this session: it was over by then, so they were neither accepted nor refused.
        Those sent just before that answer count, too, as it may be to an earlier message.
        """
        return sum(
            kind == "control" and self._sign_at < sent + self.quick_seconds
            for kind, sent in self._pending.values()
        )

    def answered(self, type_name: str, *, ours: bool = False) -> None:
        """Count a message of the target that was understood.

        Args:
            type_name: its type.
            ours: it only returns what was sent to the target, so its type is no sign.
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
            certain: only the answer to a new probe counts, not what arrived just before.
        """
        del certain  # sends a probe in any case; overridden where that is not always needed
        self.pump()
        before = self.proofs()
        self.probe(self.clock())
        return self.until(lambda: self.proofs() > before, timeout) and self.is_open

    def silence(self, now: float) -> float:
        """Return for how many seconds an answer has been overdue in this session; 0 if none is.
        This does not wait: it sends a probe, and later calls see whether it was answered.
        """
        self.ask(now)
        return self.owed(now)

    def ask(self, now: float, *, again: bool = False) -> None:
        """Send a probe unless one is unanswered; with `again`, even then."""
        if again or not self.owed(now):
            self._asked, self._owed = (now, self.proofs()), True
            self.probe(now)

    def owed(self, now: float) -> float:
        """Return for how many seconds the last probe has been unanswered; 0 if it was answered."""
        if self._asked is None or self.proofs() > self._asked[1]:
            return 0.0
        return now - self._asked[0]

    def unread(self, now: float) -> float:
        """Return for how many seconds the target has not read what was sent in this session; 0
        where the system does not tell.
        """
        del now
        return 0.0

    def proofs(self) -> int:
        """Return how often the target has shown that it is well and knows the session. By default
        every message counts; drivers that recognise the answer to a probe count those.
        """
        return self.answers

    def reads_since(self, moment: float) -> bool:
        """Return whether the target has answered something well after `moment`, and has therefore
        read what was sent before.
        """
        return self._sign_at > moment + self.quick_seconds

    def drain(self, timeout: float) -> None:
        """Give the target up to `timeout` seconds to acknowledge the controls, even if the session
        has ended.
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
                # Retransmit what was lost.
                self.tick(self.clock())

    def end(self, reason: str) -> None:
        """Mark the session as over."""
        self.state = "closed"
        self.close_reason = reason

    def shut(self) -> None:
        """Close the socket of a session that was closed."""
        self.link.close()
        before, self.state = self.state, "closed"
        if before != self.state:
            self._moved(before, "")

    def close(self, wait: float = _POLL) -> None:
        """Disconnect, even if the session may have ended, and close the socket.

        Args:
            wait: seconds to wait for what is needed from the server to disconnect.
        """
        if self.state != CONNECTED and self.is_open:
            self.pump(wait)
        if not self.link.closed:
            self.leave()
        self.shut()
