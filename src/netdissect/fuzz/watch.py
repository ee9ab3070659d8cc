"""Decides whether the target is well: between cases, after a replay, and while minimising."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from netdissect.fuzz.cases import CONNECTED
from netdissect.fuzz.crashes import last_line
from netdissect.fuzz.drivers import Driver
from netdissect.fuzz.monitors import EXIT_SECONDS, NO_ANSWER, Monitors, Verdict
from netdissect.fuzz.processes import WORK_SECONDS, is_at_work
from netdissect.fuzz.target import Journal, Link, Target

_RETRY_SECONDS = 0.1
"""Maximum time between two attempts to connect to a target that is starting ..."""
_FIRST_RETRY_SECONDS = 0.01
"""... and the first such time, which doubles with each attempt."""
_STARTING_SECONDS = 60.0
"""How long a target may take to start, as long as it is at work."""
_REFUSED_SECONDS = 30.0
"""How long to retry when the target refuses (because it is full): most time silent clients out
after 5 to 20 seconds."""
_SLOW = 8.0
"""A slow target may take this many times its usual handshake or answer time, ..."""
_SLOW_LIMIT = 3.0
"""... but at most this many times `answer_seconds`."""
_SMOOTH = 0.2
"""Weight of a new sample in smoothed times. TCP uses 1/8; here there are fewer samples."""
_SWINGS = 4.0
"""Nearly all answers arrive within the mean plus this many mean deviations. Source: RFC 6298, K."""
_SHAKES = 2.0
"""Before an answer was timed, one is expected within this many handshake times."""
_PROOF_SECONDS = 0.1
"""The target is checked again after this long: a fatal message may kill it just after it answered.
"""
_NOBODY = "connection refused"
"""Why there is no session if nobody listens at the port."""


@dataclass(slots=True)
class Watch:
    """Opens sessions with one target and checks whether it is well."""

    driver: type[Driver]
    """The driver's class."""
    dialect: str
    """Full dialect name."""
    target: Target
    """The address."""
    monitors: Monitors
    """Monitors of its process, log and resources."""
    answer_seconds: float = 2.0
    """A target that does not answer for this long has failed."""
    start_seconds: float = 10.0
    """Time given to a target to start up and accept a session."""
    journal: Journal = field(default_factory=Journal)
    """The latest traffic of all sessions."""
    reason: str = ""
    """Why the last session could not be opened."""
    handshake: float = 0.0
    """Smoothed duration of a handshake in seconds; 0 before the first."""
    meanwhile: Callable[[], None] = lambda: None
    """Called while a session waits, to keep the other sessions alive."""
    hangs: bool = False
    """Whether enough examples are known of how the target stops answering."""
    slow: int = 0
    """Number of times the target answered only after it was given more time."""
    notice: Callable[[Driver, str], None] = lambda _session, _sign: None
    """Called with (session, sign) when the target does something for the first time in a session.
    """
    timed: list[Callable[[float], None]] = field(default_factory=list)
    """Called with the time in seconds that the target took to answer a probe."""
    answer: float = 0.0
    """Smoothed time of an answer in seconds; 0 before the first."""
    swing: float = 0.0
    """Smoothed deviation of answer times from `answer`, in seconds."""
    shut_out: bool = False
    """Whether the last TCP connection was neither accepted nor refused."""
    end: float = math.inf
    """Monotonic time at which the run is over and nothing is waited for any more."""
    learnt: dict[str, bytes] = field(default_factory=dict)
    """What sessions have learnt about the target."""
    _mute: bool = False
    """Whether the target had its time to answer and did not, but has reported a failure."""

    def __post_init__(self) -> None:
        self.timed.append(self._note_answer)
        self.monitors.attach(self)

    def session(
        self, stage: str = CONNECTED, timeout: float | None = None, *, learn: bool = True
    ) -> Driver | None:
        """Return a session in state `stage`; None if the target did not accept one in time."""
        link = self._link()
        if link is None:
            self.reason = "no answer" if self.shut_out else _NOBODY
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
        self.reason = _NOBODY if link.refused else session.close_reason
        session.close()
        return None

    @property
    def trouble(self) -> str:
        """Return why the last session could not be opened, with the last line of the log."""
        return f"{self.reason or 'no answer'}{last_line(self.monitors.log_tail())}"

    @property
    def patience(self) -> float:
        """Return the seconds without an answer after which the target has failed."""
        usual = max(self.handshake, self.reply_seconds)
        slow = min(_SLOW * usual, _SLOW_LIMIT * self.answer_seconds)
        return max(self.answer_seconds, slow)

    @property
    def reply_seconds(self) -> float:
        """Return the seconds within which this target usually answers."""
        return self.answer + _SWINGS * self.swing if self.answer else _SHAKES * self.handshake

    def finish(self, end: float) -> None:
        """Set the monotonic time at which the run is over."""
        self.end = end
        if self.monitors.process is not None:
            self.monitors.process.end = end

    @property
    def left(self) -> float:
        """Return the seconds until the run is over."""
        return max(0.0, self.end - time.monotonic())

    @property
    def is_refused(self) -> bool:
        """Return whether the target explicitly refused the last session."""
        return self.reason.startswith("refused:")

    def note_handshake(self, seconds: float) -> None:
        """Update the smoothed handshake time."""
        before = self.handshake or seconds
        self.handshake = before + _SMOOTH * (seconds - before)

    def _note_answer(self, seconds: float) -> None:
        """Update the smoothed answer time and its deviation, as in RFC 6298."""
        before = self.answer or seconds
        self.swing += _SMOOTH * (abs(seconds - before) - self.swing)
        self.answer = before + _SMOOTH * (seconds - before)

    def begin(self, stage: str) -> Driver | None:
        """Start a session toward `stage` and return at once; None if the connection is refused."""
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
        for callback in self.timed:
            callback(seconds)

    def patient_session(self) -> Driver | None:
        """Return a connected session with a target that may still be starting, or None.

        A target that refuses because it is full, or limits connections, gets time to drop clients
        that left without notice.
        """
        self.reason, self._mute = "", False
        # Only a target that we start ourselves may still be starting.
        began, process = time.monotonic(), self.monitors.process
        silent = began + (self.start_seconds if process else self.patience)
        refused = began + _REFUSED_SECONDS
        retry = _FIRST_RETRY_SECONDS
        while True:
            now = time.monotonic()
            if process is not None and is_at_work(process.pid):
                silent = max(silent, min(now + WORK_SECONDS, began + _STARTING_SECONDS))
            left = self._left_to(refused if self.is_refused else silent)
            if left <= 0:
                return None
            # Not learnt from: it includes the start-up of the target.
            session = self.session(timeout=min(self.patience, left), learn=False)
            if session is not None:
                self.monitors.settled()
                return session
            if (verdict := self.monitors.check()) is not None and verdict.fatal:
                return None
            time.sleep(retry)
            retry = min(2 * retry, _RETRY_SECONDS)

    def _left_to(self, until: float) -> float:
        return min(until, self.end) - time.monotonic()

    def proven(self, session: Driver) -> bool:
        """Return whether the target answers a new probe, and another one a moment later. Late
        answers to earlier messages do not count.
        """
        for wait in (0.0, _PROOF_SECONDS):
            session.pump(wait)
            if not session.is_open or not session.alive(self.patience, certain=True):
                return False
        return not session.link.refused

    def look(
        self, session: Driver | None, *, certain: bool = False
    ) -> tuple[Verdict | None, Driver | None]:
        """Check the target; return (failure or None, session to continue with or None).

        Both are None if the target did not answer but the run was over before it could be judged.

        Args:
            session: session to probe; None = a new one.
            certain: the session must answer a probe now.
        """
        gone = session is not None and session.link.refused > 0
        verdict = self.monitors.check(gone=gone)
        if verdict is None and self._mute:
            self._mute, verdict = False, self._no_answer()
        if verdict is not None:
            return verdict, None
        if session is not None and session.is_open and not gone:
            if session.alive(session.quick_seconds, certain=certain):
                return self.monitors.check(), session
            gone = session.link.refused > 0
            verdict = self.monitors.check(gone=gone)
            if verdict is not None:
                return verdict, None
        # Slow or gone? It has twice the time, for a second session if it closes the first. A target
        # that is known to hang costs little if it was only slow.
        began, patience = time.monotonic(), self.patience
        wait = patience if self.hangs else 2 * patience
        fresh = self.session(timeout=wait)
        left = began + wait - time.monotonic()
        if fresh is None and left > 0 and not self.is_refused and self.reason != _NOBODY:
            verdict = self.monitors.check()
            if verdict is not None:
                return verdict, None
            fresh = self.session(timeout=left)
        self.slow += fresh is not None and time.monotonic() > began + patience
        if fresh is not None:
            # The system accepts TCP connections even for a process that is about to end.
            gone = certain and not fresh.alive(fresh.quick_seconds, certain=True)
            return self.monitors.check(gone=gone), fresh
        # A process that was silent for so long had the time to end.
        deaf = self.reason == _NOBODY
        verdict = self.monitors.check(
            gone=deaf or time.monotonic() < began + EXIT_SECONDS, deaf=deaf
        )
        if not self.is_refused and self.left > 0:
            self._mute = verdict is not None and not verdict.fatal
            verdict = verdict or self._no_answer()
        return verdict, None

    def _no_answer(self) -> Verdict:
        return Verdict(NO_ANSWER, f"no session within {self.answer_seconds:g} s: {self.reason}")

    def _link(self) -> Link | None:
        self.shut_out = False
        try:
            return Link(self.target, self.driver.transport, self.journal)
        except TimeoutError:
            self.shut_out = True
        except OSError:
            pass
        return None
