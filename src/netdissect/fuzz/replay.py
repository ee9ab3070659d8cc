"""Sends a failure's steps again, in new sessions with fresh tokens and numbers."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

from netdissect.fuzz.drivers import Driver
from netdissect.fuzz.monitors import Verdict
from netdissect.fuzz.store import Sent
from netdissect.fuzz.target import Pacer
from netdissect.fuzz.watch import Watch

__all__ = ["Replayer"]

_STAGE_SECONDS = 2.0
_REPORTS_LIMIT = 100
"""Reports of one replay among which the wanted one is looked for."""


@dataclass(slots=True)
class Replayer:
    """Replays step lists against one target."""

    watch: Watch
    """Opens sessions and judges the target."""
    rate: float = 1000.0
    """Messages a second at most; 0 = no limit."""
    exact: bool = False
    """Send the bytes as they were sent then, without live values."""
    wanted: str = ""
    """Signature of the failure that is looked for, where a target that goes on shows several."""
    sent: int = 0
    """Messages sent so far, in all replays."""

    def fresh_target(self) -> bool:
        """Start the target anew where we can; return whether it lets a session in."""
        self.watch.monitors.restart()
        session = self.watch.patient_session()
        if session is None:
            return False
        session.close()
        return True

    def run(self, steps: Sequence[Sent]) -> tuple[Verdict | None, list[bytes]]:
        """Send the steps; return what the target failed at (or None) and the bytes sent."""
        sessions: dict[int, Driver] = {}
        pacer = Pacer(self.rate, time.monotonic())
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
            self.sent += 1
            if index == final[each.session] and index + 1 < len(steps):
                # Left as it was then: targets count how many sessions one address may have.
                sessions.pop(each.session).close()
        verdict = self._judge(list(sessions.values()))
        return verdict, octets

    def _judge(self, sessions: list[Driver]) -> Verdict | None:
        """Return what is wrong now. What proves that the target lives is the answer to a question
        that is asked after the last step; then its process is looked at once more.
        """
        last = sessions[-1] if sessions else None
        verdict = first = None
        opened = list(sessions)
        for _ in range(_REPORTS_LIMIT):
            verdict, fresh = self.watch.look(last, certain=True)
            opened += [] if fresh is None else [fresh]
            if verdict is None or verdict.fatal or verdict.signature == self.wanted:
                break
            # The process goes on, for now: what it fails at for good may come a moment later.
            first = first or verdict
        if verdict is None and fresh is not None and not self.watch.proven(fresh):
            verdict, fresh = self.watch.look(None, certain=True)
            opened += [] if fresh is None else [fresh]
        for session in {id(each): each for each in opened}.values():
            session.close()
        return verdict or first or self.watch.monitors.check()
