"""Whether the target is well: asked between cases, after a replay, and while minimising."""

from __future__ import annotations

import time
from collections import deque
from dataclasses import dataclass, field

from netdissect.fuzz.cases import CONNECTED
from netdissect.fuzz.drivers import Driver
from netdissect.fuzz.monitors import Monitors, Verdict
from netdissect.fuzz.target import TRAFFIC_LIMIT, Link, Target, Traffic

__all__ = ["Watch"]

_RETRY_SECONDS = 0.1


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
    journal: deque[Traffic] = field(default_factory=lambda: deque(maxlen=TRAFFIC_LIMIT))
    """The latest traffic of all sessions."""
    reason: str = ""
    """Why the last session could not be opened."""

    def session(self, stage: str = CONNECTED, timeout: float | None = None) -> Driver | None:
        """Return a session in `stage`, None where the target did not let one in in time."""
        link = self._link()
        if link is None:
            self.reason = "connection refused"
            return None
        wait = self.answer_seconds if timeout is None else timeout
        session = self.driver.connect(
            self.target, self.dialect, stage=stage, timeout=wait, link=link
        )
        if session.is_open:
            return session
        self.reason = session.close_reason
        session.close()
        return None

    def begin(self, stage: str) -> Driver | None:
        """Return a session that sets out for `stage`, None where the connection is refused."""
        link = self._link()
        if link is None:
            return None
        session = self.driver(link, self.dialect)
        session.start(stage)
        return session

    def patient_session(self) -> Driver | None:
        """Return a connected session with a target that may still be starting, or None.

        A target that answers but refuses (it is full, it limits how often one may connect) is given
        the same time.
        """
        # Only a target that we start ourselves may still be starting.
        patience = self.start_seconds if self.monitors.process else self.answer_seconds
        end = time.monotonic() + patience
        while (left := end - time.monotonic()) > 0:
            session = self.session(timeout=min(self.answer_seconds, left))
            if session is not None:
                self.monitors.settled()
                return session
            if self.monitors.check() is not None:
                return None
            time.sleep(_RETRY_SECONDS)
        return None

    def look(
        self, session: Driver | None, *, certain: bool = False
    ) -> tuple[Verdict | None, Driver | None]:
        """Return (what is wrong with the target or None, the session to go on with or None).

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
        if fresh is not None:
            # A stream is accepted by the system, also for a process that is about to end.
            gone = certain and not fresh.alive(fresh.quick_seconds, certain=True)
            return self.monitors.check(gone=gone), fresh
        verdict = self.monitors.check(gone=True)
        if verdict is None and not self.reason.startswith("refused:"):
            seconds = f"{self.answer_seconds:g} s"
            verdict = Verdict("no-answer", f"no session within {seconds}: {self.reason}")
        return verdict, None

    def _link(self) -> Link | None:
        try:
            return Link(self.target, self.driver.transport, self.journal)
        except OSError:
            return None
