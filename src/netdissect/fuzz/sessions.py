"""The sessions of a run: one that is held, a spare, sessions in other states, and those that leave.

Nearly all cases go out in one session, held for as long as the target keeps it. What would end it
(a message that closes, bytes that put a stream out of step) goes out in the spare, which is opened
while the run goes on; what is meant for another state, in a session of its own.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from netdissect.fuzz.cases import CONNECTED, Case, Step
from netdissect.fuzz.drivers import Driver
from netdissect.fuzz.report import FuzzReport
from netdissect.fuzz.watch import Watch

__all__ = ["Sessions"]

_DRAIN_SECONDS = 0.6
"""Time at least that a target has to acknowledge what was sent last in the held session, also what
has to be sent again for that."""
_LINGER_SECONDS = 0.05
"""Time that a target has to answer the case of a session that is then left."""
_PART_SECONDS = 0.5
"""Time at least that a target has to confirm that a session was left."""
_LEAVING_LIMIT = 4
"""Sessions that come or go at once, at most: targets count how many one address may have."""
_CALM_SESSIONS = 32
"""Sessions without a standstill after which one more may come or go at once; twice as many after
each standstill."""
_FAST_SECONDS = 0.02
"""Where a handshake usually takes less than this, cases wait for one, and keep their order."""
_REST = 4.0
"""Times as long as a target has stood still, nobody comes after that: most of a run is not spent
waiting."""
_WAIT_SECONDS = 1.0
_TURN_SECONDS = 0.002  # between two looks at all sessions while something is waited for
_SPARES_LIMIT = 4
"""Spare sessions at most."""
_SIDE_SECONDS = 0.5
"""Time at least that a target has to bring another session to its state; it serves the held one
already."""
_HANDSHAKES = 4.0
"""Handshakes of usual length for which is waited before a session counts as refused."""
_WINDOW = 32
"""Messages at most between two questions in the held session, and while one of them is open: a
target that stands still has about 200 KiB of room for datagrams, and loses what comes then."""
_BACKLOG_SECONDS = 0.2
"""Where an answer takes longer than this, the target has too much before it: fewer messages are
sent between two questions."""
_REPLY_SECONDS = 0.001
"""Time that a target has to show what a mutant makes of it, beside that until the next is due."""
_PAUSE_SECONDS = 1.0
"""Pause after a refused session: targets limit how often one address may connect."""


@dataclass(slots=True)
class _Leaving:
    """A session that had its case."""

    session: Driver
    due: float
    """When it says good-bye."""
    until: float = 0.0
    """When it is given up; 0 before it has said good-bye."""


@dataclass(slots=True)
class _Spare:
    """A session for a case that would end the held one."""

    session: Driver
    began: float
    """When its handshake began."""
    until: float = 0.0
    """When it is given up; 0 once it is connected."""


class Sessions:
    """Opens, holds, and leaves the sessions with one target."""

    def __init__(self, watch: Watch, report: FuzzReport, limit: int) -> None:
        """Open nothing yet; `limit` is the number of cases after which another session is held."""
        self._watch = watch
        self._report = report
        self._limit = limit
        self._cases = 0
        self.held: Driver | None = None
        """The session for most cases, None where there is none."""
        self._held_since = 0.0
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
        self.is_late = False
        """The target owes the held session an answer, and was waited for in vain."""
        watch.meanwhile = self._keep
        watch.timed.append(self._pace_by)

    # --- the held session ---------------------------------------------------------------------

    def enter(self) -> bool:
        """Open a session to hold, also with a target that is still starting; return whether."""
        session = self._watch.patient_session()
        if session is not None:
            self._report.sessions += 1
            self.adopt(session)
        return session is not None

    def adopt(self, session: Driver) -> None:
        """Hold a session that is open."""
        self.release()
        self.held, self._held_since = self._numbered(session), time.monotonic()
        self._cases = self._ahead = 0

    def well(self) -> bool:
        """Return whether the target shows signs of life: in the held session, or for a while in
        the spare one. A mutant may have made the target deaf to one session.
        """
        now = time.monotonic()
        held, spare = self.held, self._ready_spare()
        witness = spare is not None and spare.silence(now) < spare.quick_seconds
        silence = 0.0 if held is None else held.silence(now)
        if held is None or silence <= held.quick_seconds:
            return held is not None
        return witness and silence <= held.patient_seconds

    def replace(self, session: Driver | None) -> None:
        """Go on with a new session that has shown that the target lives: as the spare where the
        held one is alive too, else in its place. None is a failure: nothing is held.
        """
        if session is None:
            self.release()
            return
        self._report.sessions += 1
        held = self.held
        silence = 0.0 if held is None else held.silence(time.monotonic())
        # Before the new one was let in, silence was no sign that this one is over.
        if (
            held is None
            or not held.is_open
            or not held.alive(max(held.patient_seconds, min(silence, self._watch.patience)))
        ):
            self.adopt(session)
            return
        self._stood_still(silence)
        while len(self._spares) >= self._room:
            self._part(self._spares.popleft().session)
        self._spares.append(_Spare(session, 0.0))

    def wait(self) -> None:
        """Let nobody come for as long as the target was asked in vain to let somebody in."""
        self._stood_still(self._watch.patience)

    def _stood_still(self, lasted: float) -> None:
        """Let fewer sessions come and go: some targets stop for `lasted` seconds over several."""
        self._next_open = time.monotonic() + _REST * lasted
        self._together = max(1, self._together // 2)
        self._calm, self._calm_limit = 0, 2 * self._calm_limit

    def renew(self) -> bool:
        """Make sure that a session is held where a spare can take its place; return whether."""
        if self.held is not None and (not self.held.is_open or self._cases >= self._limit):
            self.release()
        if self.held is None and (spare := self._pop_spare()) is not None:
            self.adopt(spare)
        return self.held is not None

    def release(self) -> None:
        """Leave the held session, after the target has had time to acknowledge the rest."""
        if self.held is None:
            return
        self.note_time()
        session, self.held = self.held, None
        session.drain(self._patience(_DRAIN_SECONDS))
        self._part(session)

    def note_time(self) -> None:
        """Tell the report how long the held session has lasted."""
        if self.held is not None:
            lasted = time.monotonic() - self._held_since
            self._report.held_seconds = max(self._report.held_seconds, lasted)

    def close(self) -> None:
        """Leave all sessions."""
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

    def place(self, case: Case) -> tuple[Driver, str] | None:
        """Return the session to send a case in, and its state; None where it has to wait for one.

        Only a target that lets sessions in fast is waited for.
        """
        if case.stage == CONNECTED and not self._ends(case.steps):
            return None if self.held is None else (self.held, CONNECTED)
        shake = self._watch.handshake
        end = time.monotonic() + (_WAIT_SECONDS if shake < _FAST_SECONDS else 0.0)
        while True:
            now = time.monotonic()
            found = self._take_spare() if case.stage == CONNECTED else self._side(case.stage)
            if found is not None:
                return found, case.stage
            if now < self._next_try and "fresh" in self._watch.driver.traits.stages:
                # It lets only one session in.
                stranger = self._side("fresh")
                return None if stranger is None else (stranger, "fresh")
            if now >= end:
                return None
            self.pump(_TURN_SECONDS)

    def has_room(self, stage: str) -> bool:
        """Return whether a case that had to wait could be placed now."""
        if stage == CONNECTED:
            return self._ready_spare() is not None
        return self._may_open(time.monotonic())

    def done(self, session: Driver) -> None:
        """Take a session back after its case; let it linger unless it is the held one."""
        if session is self.held:
            self._cases += 1
        else:
            self._leaving.append(_Leaving(session, time.monotonic() + _LINGER_SECONDS))

    def pump(self, wait: float = 0.0) -> None:
        """Handle what has arrived in all sessions and send what is due, for `wait` seconds."""
        if self.held is not None:
            self.held.pump(wait)
        elif wait > 0:
            time.sleep(wait)
        now = time.monotonic()
        self._see_off(now)
        self._prepare(now)

    def hear(self) -> bool:
        """Return whether the target has shown what it makes of all that was sent in the held
        session, or had the time for it that it usually takes. Waits a moment for that.
        """
        held = self.held
        if held is None or not held.unanswered:
            return True
        had = time.monotonic() - held.sent_at
        left = max(_REPLY_SECONDS, self._watch.reply_seconds) - had
        wait = min(left, _REPLY_SECONDS)
        return held.until(lambda: not held.unanswered, wait) or left <= _REPLY_SECONDS

    def heed(self) -> None:
        """Count a message of the held session. After some, ask the target something, and wait
        until it has answered what was asked before: what it has not read yet may be more than its
        system holds for it, and how long that takes says how much to send. One that stays silent is
        for others to judge.
        """
        held = self.held
        self._ahead += 1
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
            held.ask(now, again=True)
        elif owed > self._watch.patience:
            # The question, or its answer, may have been lost. How long the target has owed one
            # stays what it is: asked anew, one that hangs would never be found.
            held.probe(now)

    def _pace_by(self, seconds: float) -> None:
        """Have fewer messages sent between two questions where answers take long."""
        if seconds > _BACKLOG_SECONDS:
            self._window = max(1, self._window // 2)
        else:
            self._window = min(self._window + 1, _WINDOW)

    def _keep(self) -> None:
        """Let the held session and those that leave live: another one waits."""
        if self.held is not None:
            self.held.pump()
        self._see_off(time.monotonic())

    def _ends(self, steps: Sequence[Step]) -> bool:
        return self.held is not None and any(self.held.risks(step) for step in steps)

    # --- those that leave ---------------------------------------------------------------------

    def _part(self, session: Driver) -> None:
        """Let a session say good-bye at once."""
        now = time.monotonic()
        self._leaving.append(_Leaving(session, now))
        self._see_off(now)

    def _see_off(self, now: float) -> None:
        """Let sessions say good-bye that had time for answers; wait until the target has heard it.

        What the target does not forget stays behind as a dead client, which costs it time.
        """
        for each in self._leaving:
            session = each.session
            session.pump()
            patient = now < each.due + self._patience(_PART_SECONDS)
            if not each.until and now >= each.due and (session.retire() or not patient):
                each.until = now + self._patience(_PART_SECONDS)
                if not session.link.closed:
                    session.leave()
        # Each once: those that stay go to the end.
        for _ in range(len(self._leaving)):
            each = self._leaving.popleft()
            session = each.session
            done = each.until and (session.left() or session.link.closed or now >= each.until)
            # Too many wait for a target that says nothing: the oldest goes without its answer.
            if done or len(self._leaving) >= 2 * _LEAVING_LIMIT:
                self._gone(session)
            else:
                self._leaving.append(each)

    def _gone(self, session: Driver) -> None:
        session.shut()
        self._report.close_session(session)

    # --- the others ---------------------------------------------------------------------------

    def _patience(self, least: float) -> float:
        """Return how long to wait for what a target usually does within a handshake."""
        return min(max(least, _HANDSHAKES * self._watch.handshake), max(least, self._watch.left))

    def _ready_spare(self) -> Driver | None:
        """Return a spare that is connected, None where there is none."""
        spares = (each.session for each in self._spares)
        return next((one for one in spares if one.is_open and one.reached(CONNECTED)), None)

    def _pop_spare(self) -> Driver | None:
        spare = self._ready_spare()
        if spare is not None:
            self._spares = deque(each for each in self._spares if each.session is not spare)
        return spare

    def _prepare(self, now: float) -> None:
        """See to the spares: open them one after the other, keep them alive, give up those that
        are not let in. As many are opened as cases need while one handshake lasts.
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
            self._next_try = now + _PAUSE_SECONDS
            return
        self._pace(now)
        self._spares.append(_Spare(spare, now, now + self._patience(_SIDE_SECONDS)))

    def _pace(self, now: float) -> None:
        """Leave time between two sessions: a slow target gets fewer."""
        self._calm += 1
        if self._calm >= self._calm_limit:
            self._calm, self._together = 0, min(self._together + 1, _LEAVING_LIMIT)
        self._next_open = now + self._watch.handshake / _SPARES_LIMIT

    def _take_spare(self) -> Driver | None:
        """Return a spare that is connected, None where none is yet."""
        spare = self._pop_spare()
        if spare is None:
            # Cases wait for a handshake: from now on there should be one more.
            self._room = min(self._room + 1, _SPARES_LIMIT)
            return None
        return self._numbered(spare)

    def _may_open(self, now: float) -> bool:
        """Return whether another session may be opened: not too soon after the last one, and while
        the target is not busy with those that come and go.
        """
        busy = len(self._leaving) + sum(each.until > 0 for each in self._spares)
        return now >= self._next_open and busy < self._together

    def _side(self, stage: str) -> Driver | None:
        """Return a new session in `stage`, None where the target has no time for one or does not
        let it in.
        """
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
        """Give a session a number that no session of this run has yet."""
        self._numbers += 1
        session.number = self._numbers
        return session
