"""The sessions of a run: one that is held, a spare, sessions in other states, and those that leave.

Nearly all cases go out in one session, held for as long as the target keeps it. What would end it
(a message that closes, octets that put a stream out of step) goes out in the spare, which is opened
while the run goes on; what is meant for another state, in a session of its own.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Sequence

from netdissect.fuzz.cases import CONNECTED, Case, Step
from netdissect.fuzz.drivers import Driver
from netdissect.fuzz.report import FuzzReport
from netdissect.fuzz.watch import Watch

__all__ = ["Sessions"]

_DRAIN_SECONDS = 0.2
"""Time that a target has to acknowledge what was sent last in the held session."""
_LINGER_SECONDS = 0.05
"""Time that a target has to answer the case of a session that is then left."""
_LEAVING_LIMIT = 4
"""Sessions that linger at once: targets count how many one address may have."""
_SIDE_SECONDS = 0.5
"""Time that a target has to bring another session to its state; it serves the held one already."""
_PAUSE_SECONDS = 1.0
"""Pause after a refused session: targets limit how often one address may connect."""


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
        self._spare: Driver | None = None
        self._spare_until = 0.0
        self._leaving: deque[tuple[float, Driver]] = deque()
        self._next_try = 0.0
        self._numbers = 0

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
        self._cases = 0

    def well(self) -> bool:
        """Return whether the target shows signs of life: in the held session, or for a while in
        the spare one. A mutant may have made the target deaf to one session.
        """
        now = time.monotonic()
        held, spare = self.held, self._spare
        seen = spare is not None and spare.reached(CONNECTED)
        witness = spare is not None and seen and spare.silence(now) < spare.quick_seconds
        silence = 0.0 if held is None else held.silence(now)
        if held is None or silence <= held.quick_seconds:
            return held is not None
        return witness and silence <= held.patient_seconds

    def replace(self, session: Driver | None) -> None:
        """Go on with a new session that has shown that the target lives: as the spare while the
        held one may come back, else in its place. None is a failure: nothing is held.
        """
        if session is None:
            self.release()
            return
        self._report.sessions += 1
        held = self.held
        if (
            held is None
            or not held.is_open
            or held.silence(time.monotonic()) > held.patient_seconds
        ):
            self.adopt(session)
            return
        if self._spare is not None:
            self._part(self._spare)
        self._spare = session

    def renew(self) -> bool:
        """Make sure that a session is held where the spare can take its place; return whether."""
        if self.held is not None and (not self.held.is_open or self._cases >= self._limit):
            self.release()
        spare = self._spare
        if self.held is None and spare is not None and spare.is_open and spare.reached(CONNECTED):
            self._spare = None
            self.adopt(spare)
        return self.held is not None

    def release(self) -> None:
        """Leave the held session, after the target has had time to acknowledge the rest."""
        if self.held is None:
            return
        self.note_time()
        session, self.held = self.held, None
        session.drain(_DRAIN_SECONDS)
        self._part(session)

    def note_time(self) -> None:
        """Tell the report how long the held session has lasted."""
        if self.held is not None:
            lasted = time.monotonic() - self._held_since
            self._report.held_seconds = max(self._report.held_seconds, lasted)

    def close(self) -> None:
        """Leave all sessions."""
        self.release()
        while self._leaving:
            self._part(self._leaving.popleft()[1])
        if self._spare is not None:
            spare, self._spare = self._spare, None
            self._part(spare)

    # --- one case -----------------------------------------------------------------------------

    def place(self, case: Case) -> tuple[Driver | None, str]:
        """Return the session to send a case in, and its state."""
        stages = self._watch.driver.traits.stages
        if case.stage == CONNECTED and not self._ends(case.steps):
            return self.held, CONNECTED
        side = self._take_spare() if case.stage == CONNECTED else self._side(case.stage)
        if side is not None:
            return side, case.stage
        if "fresh" in stages and (stranger := self._side("fresh")) is not None:
            return stranger, "fresh"
        return self.held, CONNECTED

    def done(self, session: Driver) -> None:
        """Take a session back after its case; let it linger unless it is the held one."""
        if session is self.held:
            self._cases += 1
        else:
            self._leaving.append((time.monotonic() + _LINGER_SECONDS, session))

    def pump(self, wait: float = 0.0) -> None:
        """Handle what has arrived in all sessions and send what is due, for `wait` seconds."""
        if self.held is not None:
            self.held.pump(wait)
        elif wait > 0:
            time.sleep(wait)
        now = time.monotonic()
        for _due, session in self._leaving:
            session.pump()
        while self._leaving and (now >= self._leaving[0][0] or len(self._leaving) > _LEAVING_LIMIT):
            self._part(self._leaving.popleft()[1])
        self._prepare(now)

    def _ends(self, steps: Sequence[Step]) -> bool:
        return self.held is not None and any(self.held.ends(step.octets) for step in steps)

    # --- the others ---------------------------------------------------------------------------

    def _prepare(self, now: float) -> None:
        """See to the spare: open it, keep it alive, give up one that is not let in."""
        spare = self._spare
        if spare is None:
            if now >= self._next_try:
                self._spare = self._watch.begin(CONNECTED)
                self._spare_until = now + _SIDE_SECONDS
                self._next_try = now + _PAUSE_SECONDS if self._spare is None else now
            return
        waiting = not spare.reached(CONNECTED)
        spare.pump()
        if waiting and spare.reached(CONNECTED):
            self._report.sessions += 1
        elif not spare.is_open or spare.link.refused or (waiting and now >= self._spare_until):
            self._spare = None
            self._next_try = now + _PAUSE_SECONDS
            self._part(spare)

    def _take_spare(self) -> Driver | None:
        """Return the spare once it is connected, None where the target does not let it in."""
        if self._spare is None:
            self._prepare(time.monotonic())
        while self._spare is not None and not self._spare.reached(CONNECTED):
            self._spare.until(lambda: False, 0.005)
            self._prepare(time.monotonic())
        spare, self._spare = self._spare, None
        return None if spare is None else self._numbered(spare)

    def _side(self, stage: str) -> Driver | None:
        """Return a new session in `stage`, None where the target does not let it in."""
        if stage != "fresh" and time.monotonic() < self._next_try:
            return None
        side = self._watch.begin(stage)
        if side is None:
            return None
        if side.until(lambda: side.reached(stage), _SIDE_SECONDS):
            return self._numbered(side)
        self._next_try = time.monotonic() + _PAUSE_SECONDS
        self._part(side)
        return None

    def _numbered(self, session: Driver) -> Driver:
        """Give a session a number that no session of this run has yet."""
        self._numbers += 1
        session.number = self._numbers
        return session

    def _part(self, session: Driver) -> None:
        session.close(0.0)
        self._report.close_session(session)
