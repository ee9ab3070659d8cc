"""Sends the steps of a failure again, in new sessions with new tokens and numbers."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

from netdissect.fuzz.drivers import Driver
from netdissect.fuzz.monitors import Verdict
from netdissect.fuzz.store import Sent
from netdissect.fuzz.target import Pacer
from netdissect.fuzz.watch import Watch

_STAGE_SECONDS = 2.0
_RATE = 1000.0
"""Maximum number of messages per second."""
_REPORTS_LIMIT = 100
"""Maximum number of reports of one replay that are searched for the expected failure."""


@dataclass(slots=True)
class Replayer:
    """Replays step lists against one target."""

    watch: Watch
    """Opens sessions and checks the target."""
    exact: bool = False
    """Whether to send the recorded bytes, without live values."""
    wanted: str = ""
    """Signature of the expected failure, in case a target that keeps running shows several."""

    def fresh_target(self) -> bool:
        """Restart the target if we run it; return whether it accepts a session."""
        self.watch.monitors.restart()
        session = self.watch.patient_session()
        if session is None:
            return False
        session.close()
        return True

    def run(self, steps: Sequence[Sent]) -> tuple[Verdict | None, list[bytes]]:
        """Send the steps; return (failure or None, messages sent)."""
        sessions: dict[int, Driver] = {}
        pacer = Pacer(_RATE, time.monotonic())
        octets: list[bytes] = []
        final = {each.session: index for index, each in enumerate(steps)}
        for index, each in enumerate(steps):
            session = sessions.get(each.session)
            if session is None or not session.is_open:
                if session is not None:
                    session.close()
                session = self.watch.session(each.stage, _STAGE_SECONDS)
                if session is None:
                    break
                sessions[each.session] = session
            session.pump(pacer.wait(time.monotonic()))
            data, key = (each.octets, None) if self.exact else session.stamp(each.step)
            session.send(data, key)
            octets.append(data)
            if index == final[each.session] and index + 1 < len(steps):
                # Close the session as the run did: targets limit the sessions of one address.
                sessions.pop(each.session).close()
        verdict = self._judge(list(sessions.values()))
        return verdict, octets

    def _judge(self, sessions: list[Driver]) -> Verdict | None:
        """Return the failure, None if the target is well: it has to answer a probe sent after the
        last step, and its process is checked once more after that.
        """
        last = sessions[-1] if sessions else None
        verdict = first = None
        opened = list(sessions)
        for _ in range(_REPORTS_LIMIT):
            verdict, fresh = self.watch.look(last, certain=True)
            opened += [] if fresh is None else [fresh]
            if verdict is None or verdict.fatal or verdict.signature == self.wanted:
                break
            # The process keeps running for now; a fatal failure may follow a moment later.
            first = first or verdict
        if verdict is None and fresh is not None and not self.watch.proven(fresh):
            verdict, fresh = self.watch.look(None, certain=True)
            opened += [] if fresh is None else [fresh]
        for session in {id(each): each for each in opened}.values():
            session.close()
        return verdict or first or self.watch.monitors.check()
