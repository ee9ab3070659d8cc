"""Whether the target is well: asked between cases, after a replay, and while minimising."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from netdissect.fuzz.cases import CONNECTED
from netdissect.fuzz.drivers import Driver
from netdissect.fuzz.monitors import NO_ANSWER, Monitors, Verdict
from netdissect.fuzz.target import Journal, Link, Target

__all__ = ["Watch"]

_RETRY_SECONDS = 0.1
"""Time between two tries to get into a target that is starting, at most; the first come sooner."""
_FIRST_RETRY_SECONDS = 0.01  # doubled with each try
_REFUSED_SECONDS = 30.0
"""Time in which a target that refuses (it is full) may let somebody in again: most forget silent
clients after 5 to 20 seconds."""
_SLOW = 8.0
"""A target gets so many handshakes or answers of usual length to answer, where that is more than it
is given anyway."""
_SLOW_LIMIT = 3.0
"""At most so many times the time that it is given."""
_SMOOTH = 0.2
"""Share of the newest time in those that are smoothed: more than TCP's, of fewer."""
_SWINGS = 4.0
"""Mean deviations above the mean in which nearly all answers come. Source: RFC 6298, K."""
_SHAKES = 2.0
"""Handshakes in which an answer comes, before one was timed."""
_PROOF_SECONDS = 0.1
"""What kills a target may do so a moment after it has answered: it is looked at again then."""


@dataclass(slots=True)
class Watch:
    """Opens sessions with one target and judges it."""

    driver: type[Driver]
    """The driver's class."""
    dialect: str
    """Full dialect name."""
    target: Target
    """The address."""
    monitors: Monitors
    """The other watchers."""
    answer_seconds: float = 2.0
    """A target that answers nothing for so long has failed."""
    start_seconds: float = 10.0
    """Time that a target has to start up and let a session in."""
    journal: Journal = field(default_factory=Journal)
    """The latest traffic of all sessions."""
    reason: str = ""
    """Why the last session could not be opened."""
    handshake: float = 0.0
    """Seconds that a handshake takes with this target, smoothed; 0 before the first."""
    meanwhile: Callable[[], None] = lambda: None
    """Keeps the sessions of a run alive while one of them waits."""
    slow: int = 0
    """How often the target answered only when it was given more time."""
    notice: Callable[[Driver, str], None] = lambda _session, _sign: None
    """Called with what the target does in a session for the first time."""
    timed: list[Callable[[float], None]] = field(default_factory=list)
    """Called with the time, in seconds, that the target took to answer a question."""
    answer: float = 0.0
    """Seconds that the target takes to answer a question, smoothed; 0 before the first."""
    swing: float = 0.0
    """By how much these differ from their mean, smoothed."""
    shut_out: bool = False
    """The last connection was neither accepted nor refused: nobody takes those that wait."""
    end: float = math.inf
    """Monotonic time after which nothing is waited for any more: the run is over."""
    learnt: dict[str, bytes] = field(default_factory=dict)
    """What the sessions have learnt of the target."""

    def __post_init__(self) -> None:
        self.timed.append(self._note_answer)
        self.monitors.attach(self)

    def session(
        self, stage: str = CONNECTED, timeout: float | None = None, *, learn: bool = True
    ) -> Driver | None:
        """Return a session in `stage`, None where the target did not let one in in time."""
        link = self._link()
        if link is None:
            self.reason = "no answer" if self.shut_out else "connection refused"
            return None
        wait = min(self.patience if timeout is None else timeout, self.left)
        began = time.monotonic()
        session = self._driver(link)
        if not session.open(stage, wait) and session.state != "closed":
            session.end("no answer")
        if session.is_open:
            if learn:
                self.note_handshake(time.monotonic() - began)
            self.reason = ""
            return session
        self.reason = "connection refused" if link.refused else session.close_reason
        session.close()
        return None

    @property
    def patience(self) -> float:
        """Return the seconds after which a target that answers nothing has failed."""
        usual = max(self.handshake, self.reply_seconds)
        slow = min(_SLOW * usual, _SLOW_LIMIT * self.answer_seconds)
        return max(self.answer_seconds, slow)

    @property
    def reply_seconds(self) -> float:
        """Return the seconds in which this target usually answers what it answers at all."""
        return self.answer + _SWINGS * self.swing if self.answer else _SHAKES * self.handshake

    def finish(self, end: float) -> None:
        """Wait for nothing after `end`, in monotonic time."""
        self.end = end
        if self.monitors.process is not None:
            self.monitors.process.end = end

    @property
    def left(self) -> float:
        """Return the seconds that are left for waiting."""
        return max(0.0, self.end - time.monotonic())

    @property
    def is_refused(self) -> bool:
        """Return whether the last session could not be opened because the target said no."""
        return self.reason.startswith("refused:")

    def note_handshake(self, seconds: float) -> None:
        """Learn how long handshakes take."""
        before = self.handshake or seconds
        self.handshake = before + _SMOOTH * (seconds - before)

    def _note_answer(self, seconds: float) -> None:
        """Learn how long answers take, as TCP does of its round trips."""
        before = self.answer or seconds
        self.swing += _SMOOTH * (abs(seconds - before) - self.swing)
        self.answer = before + _SMOOTH * (seconds - before)

    def begin(self, stage: str) -> Driver | None:
        """Return a session that sets out for `stage`, None where the connection is refused."""
        link = self._link()
        if link is None:
            return None
        session = self._driver(link)
        session.start(stage)
        return session

    def _driver(self, link: Link) -> Driver:
        session = self.driver(link, self.dialect)
        session.meanwhile = self.meanwhile
        session.notice = self.notice
        session.timed = self._timed
        session.learnt = self.learnt
        return session

    def _timed(self, seconds: float) -> None:
        for told in self.timed:
            told(seconds)

    def patient_session(self) -> Driver | None:
        """Return a connected session with a target that may still be starting, or None.

        A target that answers but refuses (it is full, it limits how often one may connect) is given
        time to forget those who left without its notice.
        """
        self.reason = ""
        # Only a target that we start ourselves may still be starting.
        now = time.monotonic()
        silent = now + (self.start_seconds if self.monitors.process else self.patience)
        refused = now + _REFUSED_SECONDS
        retry = _FIRST_RETRY_SECONDS
        while (left := self._left_to(refused if self.is_refused else silent)) > 0:
            # How long a target takes to start says nothing of its handshakes.
            session = self.session(timeout=min(self.patience, left), learn=False)
            if session is not None:
                self.monitors.settled()
                return session
            if (verdict := self.monitors.check()) is not None and verdict.fatal:
                return None
            time.sleep(retry)
            retry = min(2 * retry, _RETRY_SECONDS)
        return None

    def _left_to(self, until: float) -> float:
        return min(until, self.end) - time.monotonic()

    def proven(self, session: Driver) -> bool:
        """Return whether the target answers what it is asked now, and a moment later still does:
        no late answer counts, and its process has not ended meanwhile.
        """
        for wait in (0.0, _PROOF_SECONDS):
            session.pump(wait)
            if not session.is_open or not session.alive(self.patience, certain=True):
                return False
        return not session.link.refused

    def look(
        self, session: Driver | None, *, certain: bool = False
    ) -> tuple[Verdict | None, Driver | None]:
        """Return (what is wrong with the target or None, the session to go on with or None).

        Neither is returned where it did not answer and there was no time to wait for long enough.

        Args:
            session: session to ask in; None = a new one.
            certain: the session must show that it is open now.
        """
        gone = session is not None and session.link.refused > 0
        verdict = self.monitors.check(gone=gone)
        if verdict is not None:
            return verdict, None
        if session is not None and session.is_open and not gone:
            if session.alive(session.quick_seconds, certain=certain):
                return self.monitors.check(), session
            gone = session.link.refused > 0
            verdict = self.monitors.check(gone=gone)
            if verdict is not None:
                return verdict, None
        fresh = self.session()
        if fresh is None and not self.is_refused and self.reason != "connection refused":
            verdict = self.monitors.check()
            if verdict is not None:
                return verdict, None
            # Slow or gone? More time tells.
            fresh = self.session(timeout=2 * self.patience)
            self.slow += fresh is not None
        if fresh is not None:
            # A stream is accepted by the system, also for a process that is about to end.
            gone = certain and not fresh.alive(fresh.quick_seconds, certain=True)
            return self.monitors.check(gone=gone), fresh
        verdict = self.monitors.check(gone=True)
        if verdict is None and not self.is_refused and self.left > 0:
            seconds = f"{self.answer_seconds:g} s"
            verdict = Verdict(NO_ANSWER, f"no session within {seconds}: {self.reason}")
        return verdict, None

    def _link(self) -> Link | None:
        self.shut_out = False
        try:
            return Link(self.target, self.driver.transport, self.journal)
        except TimeoutError:
            self.shut_out = True
        except OSError:
            pass
        return None
