"""The sessions of a run: the held one, spares, sessions in other states, and those that are
leaving.

Nearly all cases are sent in one session, which is held for as long as the target keeps it. A case
that would end it (a closing message, or bytes that desynchronise a stream) is sent in a spare
session, opened in the background; a case for another state, in a session of its own.
"""

from __future__ import annotations

import time
from collections import deque
from dataclasses import dataclass

from netdissect.fuzz.cases import CONNECTED, Case
from netdissect.fuzz.drivers import Driver
from netdissect.fuzz.report import FuzzReport
from netdissect.fuzz.watch import Watch

_DRAIN_SECONDS = 0.6
"""Minimum time given to a target to acknowledge the last messages of the held session, including
retransmissions."""
_HELD_CASES = 10_000
"""Cases after which the held session is replaced, so that the steps of a session stay few enough to
be kept for a failure."""
_LINGER_SECONDS = 0.05
"""Time given to a target to answer a case before its session is closed."""
_PART_SECONDS = 0.5
"""Minimum time given to a target to confirm that a session was closed."""
_LEAVING_LIMIT = 4
"""Initial limit on sessions that are opening or closing at once: targets limit those of one
address."""
_CALM_SESSIONS = 32
"""Sessions without a stall of the target after which that limit grows by one; doubled after each
stall."""
_FAST_SECONDS = 0.02
"""If a handshake usually takes less than this, cases wait for it and keep their order."""
_REST = 4.0
"""After a stall, no session is opened for this many times its duration, so that most of the run is
not spent waiting."""
_WAIT_SECONDS = 1.0
_TURN_SECONDS = 0.002  # between two polls of all sessions while waiting
_SPARES_LIMIT = 4
"""Maximum number of spare sessions."""
_SIDE_SECONDS = 0.5
"""Minimum time given to a target to bring another session to its state while it serves the held
one."""
_HANDSHAKES = 4.0
"""A session counts as refused after this many times the usual handshake time."""
_WINDOW = 32
_MAX_WINDOW = 128
"""Initial and maximum number of messages, each of up to 1 KiB, between two probes of the held
session: a target that stalls has about 200 KiB of room for datagrams, and loses further ones."""
_BACKLOG_SECONDS = 0.2
"""If an answer takes longer than this, the target has a backlog: fewer messages are sent between
two probes."""
_STALL_SECONDS = 0.5
_STALL_TIMES = 4.0
"""If it takes longer than this, and this many times the smoothed time of an answer, the target
stalled, probably because sessions opened or closed."""
_REPLY_SECONDS = 0.001
"""Extra time given to a target to react to a mutant before the next message."""
_UNREAD_SECONDS = 0.5
"""A target that reads nothing for this long may hang: it is checked at once, so that few cases may
be the reason."""
_PAUSE_SECONDS = 1.0
"""Pause after a refused session: targets limit how often an address may connect."""


@dataclass(slots=True)
class _Leaving:
    """A session whose case has been sent."""

    session: Driver
    due: float
    """When it is to be closed."""
    until: float = 0.0
    """When waiting for the confirmation ends; 0 before the session was closed."""


@dataclass(slots=True)
class _Spare:
    """A session for a case that would end the held one."""

    session: Driver
    began: float
    """When its handshake started."""
    until: float = 0.0
    """When its handshake times out; 0 once it is connected."""


class Sessions:
    """Opens, holds and closes the sessions with one target."""

    def __init__(self, watch: Watch, report: FuzzReport) -> None:
        """Open nothing yet."""
        self._watch = watch
        self._report = report
        self._cases = 0
        self.held: Driver | None = None
        """The held session, used for most cases; None if there is none."""
        self._held_since, self._sent_before = 0.0, 0
        self._spares: deque[_Spare] = deque()
        self._room = 1
        self._leaving: deque[_Leaving] = deque()
        self._next_try = 0.0
        self._next_open = 0.0
        self._numbers = 0
        self._together = _LEAVING_LIMIT
        self._calm = 0
        self._calm_limit = _CALM_SESSIONS
        self._window = _WINDOW
        self._ahead = 0
        self._overdue = 0.0
        """Seconds after which an answer is asked for again; doubled each time."""
        self.is_late = False
        """Whether an answer to the held session is overdue."""
        watch.meanwhile = self._keep
        watch.timed.append(self._pace_by)

    def unread(self) -> bool:
        """Return whether the target has stopped reading the held session."""
        held = self.held
        return held is not None and held.unread(time.monotonic()) > _UNREAD_SECONDS

    # --- the held session ---------------------------------------------------------------------

    def enter(self) -> bool:
        """Open the session to hold, even if the target is still starting; return whether it
        succeeded.
        """
        session = self._watch.patient_session()
        if session is not None:
            self._report.sessions += 1
            self.adopt(session)
        return session is not None

    def adopt(self, session: Driver) -> None:
        """Make an open session the held one."""
        self.release()
        self.held = self._numbered(session)
        self._held_since, self._sent_before = time.monotonic(), self._report.datagrams
        self._cases = self._ahead = 0

    def well(self) -> bool:
        """Return whether the target responds: in the held session, or for a while in a spare one,
        since a mutant may have made the target ignore one session.
        """
        now = time.monotonic()
        held, spare = self.held, self._ready_spare()
        witness = spare is not None and spare.silence(now) < spare.quick_seconds
        silence = 0.0 if held is None else held.silence(now)
        if held is None or silence <= held.quick_seconds:
            return held is not None
        return witness and silence <= held.patient_seconds

    def replace(self, session: Driver | None) -> None:
        """Continue with a new session that showed that the target is well. It becomes a spare if
        the held one still works, else the held one. None means a failure: no session is held.
        """
        if session is None:
            # The time until the failure was known is no time for which it was held.
            self._held_since = time.monotonic()
            self.release(_LINGER_SECONDS)
            return
        self._report.sessions += 1
        held = self.held
        silence = 0.0 if held is None else held.silence(time.monotonic())
        # Only now does silence in the held session mean that it is over.
        if (
            held is None
            or not held.is_open
            or not held.alive(max(held.patient_seconds, min(silence, self._watch.patience)))
        ):
            self.adopt(session)
            return
        while len(self._spares) >= self._room:
            self._part(self._spares.popleft().session)
        self._spares.append(_Spare(session, 0.0))

    def wait(self) -> None:
        """Open no session for as long as the target has just failed to accept one."""
        self._note_stall(self._watch.patience)

    def _note_stall(self, lasted: float) -> None:
        """Open and close fewer sessions at once, after the target stalled for `lasted` seconds."""
        self._next_open = time.monotonic() + _REST * lasted
        self._together = max(1, self._together // 2)
        self._calm, self._calm_limit = 0, 2 * self._calm_limit

    def renew(self) -> bool:
        """Return whether a session is held; one that has ended is replaced by a spare."""
        if self.held is not None and (not self.held.is_open or self._cases >= _HELD_CASES):
            self.release()
        if self.held is None and (spare := self._pop_spare()) is not None:
            self.adopt(spare)
        return self.held is not None

    def release(self, drain: float = _DRAIN_SECONDS) -> None:
        """Close the held session after the target had at least `drain` seconds to acknowledge the
        rest.
        """
        if self.held is None:
            return
        self.note_time()
        session, self.held = self.held, None
        session.drain(self._patience(drain))
        self._part(session)

    def note_time(self) -> None:
        """Update the longest held time in the report."""
        if self.held is not None:
            lasted = time.monotonic() - self._held_since
            if lasted > self._report.held_seconds:
                self._report.held_seconds = lasted
                self._report.held_messages = self._report.datagrams - self._sent_before

    def close(self) -> None:
        """Close all sessions."""
        self.release()
        while self._spares:
            self._part(self._spares.popleft().session)
        end = time.monotonic() + self._patience(_PART_SECONDS)
        while self._leaving and time.monotonic() < end:
            self._see_off(time.monotonic())
            time.sleep(_TURN_SECONDS)
        while self._leaving:
            self._gone(self._leaving.popleft().session)

    # --- one case -----------------------------------------------------------------------------

    def place(
        self, case: Case, *, ends: bool = False, patient: bool = True
    ) -> tuple[Driver, str] | None:
        """Return (session for a case, its state); None if the case has to wait for a session.

        This waits only for a target that accepts sessions quickly, and not after a stall.

        Args:
            case: the case.
            ends: whether it is expected to end its session, whatever the driver says.
            patient: whether there is time to wait.
        """
        held = self.held
        ends = ends or (held is not None and any(map(held.risks, case.steps)))
        if case.stage == CONNECTED and not ends:
            return None if held is None else (held, CONNECTED)
        now = time.monotonic()
        soon = max(self._watch.handshake, self._next_open - now) < _FAST_SECONDS
        end = now + (_WAIT_SECONDS if patient and soon else 0.0)
        while True:
            now = time.monotonic()
            found = self._take_spare() if case.stage == CONNECTED else self._side(case.stage)
            if found is not None:
                return found, case.stage
            if now < self._next_try and "fresh" in self._watch.driver.traits.stages:
                # The target accepts only one session.
                stranger = self._side("fresh")
                return None if stranger is None else (stranger, "fresh")
            if now >= end:
                return None
            self.pump(_TURN_SECONDS)

    def has_room(self, stage: str) -> bool:
        """Return whether a waiting case for this state could be placed now."""
        if stage == CONNECTED:
            return self._ready_spare() is not None
        return self._may_open(time.monotonic())

    def done(self, session: Driver) -> None:
        """Take back a session after its case; one that is not held lingers and is closed."""
        if session is self.held:
            self._cases += 1
        else:
            self._leaving.append(_Leaving(session, time.monotonic() + _LINGER_SECONDS))

    def pump(self, wait: float = 0.0) -> None:
        """Process what has arrived in all sessions and send what is due, for `wait` seconds."""
        if self.held is not None:
            self.held.pump(wait)
        elif wait > 0:
            time.sleep(wait)
        now = time.monotonic()
        self._see_off(now)
        self._prepare(now)

    def hear(self, *, briefly: bool = True) -> bool:
        """Return whether the target has reacted to everything sent in the held session, or had its
        usual time to do so; wait `briefly` for it.
        """
        held = self.held
        if held is None or not held.unanswered:
            return True
        had = time.monotonic() - held.sent_at
        left = max(_REPLY_SECONDS, self._watch.reply_seconds) - had
        if not briefly:
            return left <= 0
        wait = min(left, _REPLY_SECONDS)
        return held.until(lambda: not held.unanswered, wait) or left <= _REPLY_SECONDS

    def heed(self, octets: int = 0) -> None:
        """Count a message of this size in the held session. Every few messages, send a probe and
        wait for the answer to the previous one. This keeps unread datagrams within the target's
        receive buffer, and the answer time decides how many to send. `Watch` judges a target that
        stays silent.
        """
        held = self.held
        self._ahead += 1 + octets // 1024
        if held is None or self._ahead < self._window:
            return
        now = time.monotonic()
        end = now + min(held.patient_seconds, self._watch.left)
        while held.owed(now) and held.is_open and not held.link.refused and now < end:
            self.pump(_TURN_SECONDS)
            now = time.monotonic()
        owed = held.owed(now)
        self.is_late = owed > 0
        if not self.is_late:
            self._ahead = 0
            self._overdue = held.quick_seconds
            held.ask(now, again=True)
        elif owed > self._overdue:
            # The probe or its answer may have been lost. The time for which an answer is overdue
            # keeps running, or a target that hangs would never be noticed.
            held.probe(now)
            self._overdue = 2 * owed

    def _pace_by(self, seconds: float) -> None:
        """Send fewer messages between two probes if answers take long, and open fewer sessions if
        one takes far longer than usual.
        """
        if seconds > max(_STALL_SECONDS, _STALL_TIMES * self._watch.answer):
            self._note_stall(seconds)
        if seconds > _BACKLOG_SECONDS:
            self._window = max(1, self._window // 2)
        else:
            self._window = min(self._window + 1 + self._window // 8, _MAX_WINDOW)

    def _keep(self) -> None:
        """Keep the held and the leaving sessions alive while another one waits."""
        if self.held is not None:
            self.held.pump()
        self._see_off(time.monotonic())

    # --- leaving sessions ---------------------------------------------------------------------

    def _part(self, session: Driver) -> None:
        """Close a session now."""
        now = time.monotonic()
        self._leaving.append(_Leaving(session, now))
        self._see_off(now)

    def _see_off(self, now: float) -> None:
        """Close sessions that had time for answers, and wait for the target to confirm it.

        Otherwise they would stay in the target as dead clients, which cost it time.
        """
        for each in self._leaving:
            session = each.session
            session.pump()
            patient = now < each.due + self._patience(_PART_SECONDS)
            if not each.until and now >= each.due and (session.retire() or not patient):
                each.until = now + self._patience(_PART_SECONDS)
                if not session.link.closed:
                    session.leave()
        # Each once: those that remain are appended again.
        for _ in range(len(self._leaving)):
            each = self._leaving.popleft()
            session = each.session
            done = each.until and (session.left() or session.link.closed or now >= each.until)
            # Too many wait for a silent target: drop the oldest without its confirmation.
            if done or len(self._leaving) >= 2 * _LEAVING_LIMIT:
                self._gone(session)
            else:
                self._leaving.append(each)

    def _gone(self, session: Driver) -> None:
        session.shut()
        self._report.close_session(session)

    # --- the others ---------------------------------------------------------------------------

    def _patience(self, least: float) -> float:
        """Return how long to wait for a response that usually takes no longer than a handshake."""
        return min(max(least, _HANDSHAKES * self._watch.handshake), max(least, self._watch.left))

    def _ready_spare(self) -> Driver | None:
        """Return a connected spare without removing it; None if there is none."""
        spares = (each.session for each in self._spares)
        return next((one for one in spares if one.is_open and one.reached(CONNECTED)), None)

    def _pop_spare(self) -> Driver | None:
        spare = self._ready_spare()
        if spare is not None:
            self._spares = deque(each for each in self._spares if each.session is not spare)
        return spare

    def _prepare(self, now: float) -> None:
        """Open spares one by one, keep them alive, and give up those that are not accepted. Their
        number is that of the cases that need one during one handshake.
        """
        kept: deque[_Spare] = deque()
        for each in self._spares:
            spare, waiting = each.session, each.until > 0
            spare.pump()
            if waiting and spare.reached(CONNECTED):
                self._watch.note_handshake(now - each.began)
                self._report.sessions += 1
                each.until = 0.0
            elif not spare.is_open or spare.link.refused or (waiting and now >= each.until):
                if waiting:
                    self._next_try, self._room = now + _PAUSE_SECONDS, 1
                self._part(spare)
                continue
            kept.append(each)
        self._spares = kept
        if len(kept) < self._room and now >= self._next_try and self._may_open(now):
            self._open(now)

    def _open(self, now: float) -> None:
        spare = self._watch.begin(CONNECTED)
        if spare is None:
            # It may have taken long to find out.
            self._next_try = time.monotonic() + _PAUSE_SECONDS
            return
        self._pace(now)
        self._spares.append(_Spare(spare, now, now + self._patience(_SIDE_SECONDS)))

    def _pace(self, now: float) -> None:
        """Schedule the next session: a slow target gets fewer."""
        self._calm += 1
        if self._calm >= self._calm_limit:
            self._calm, self._together = 0, min(self._together + 1, _LEAVING_LIMIT)
        self._next_open = now + self._watch.handshake / _SPARES_LIMIT

    def _take_spare(self) -> Driver | None:
        """Remove and return a connected spare; None if there is none yet."""
        spare = self._pop_spare()
        if spare is None:
            # Cases have to wait for a handshake: keep one more spare from now on.
            self._room = min(self._room + 1, _SPARES_LIMIT)
            return None
        return self._numbered(spare)

    def _may_open(self, now: float) -> bool:
        """Return whether another session may be opened: not too soon after the last one, and not
        while the target is busy opening and closing others.
        """
        busy = len(self._leaving) + sum(each.until > 0 for each in self._spares)
        return now >= self._next_open and busy < self._together

    def _side(self, stage: str) -> Driver | None:
        """Return a new session in `stage`; None if the target is too busy or does not accept it."""
        now = time.monotonic()
        if (stage != "fresh" and now < self._next_try) or not self._may_open(now):
            return None
        side = self._watch.begin(stage)
        if side is None:
            return None
        self._pace(now)
        if side.until(lambda: side.reached(stage), self._patience(_SIDE_SECONDS)):
            return self._numbered(side)
        self._next_try = time.monotonic() + _PAUSE_SECONDS
        self._part(side)
        return None

    def _numbered(self, session: Driver) -> Driver:
        """Assign the next session number of this run."""
        self._numbers += 1
        session.number = self._numbers
        return session
