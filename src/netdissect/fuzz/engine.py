"""The loop of a run: make a case, write it down, send it in a good session, watch the target."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from netdissect.fuzz.cases import CONNECTED, Case
from netdissect.fuzz.drivers import Driver
from netdissect.fuzz.generator import Generator
from netdissect.fuzz.monitors import Verdict
from netdissect.fuzz.report import Finding, FuzzReport
from netdissect.fuzz.store import Sent, Store
from netdissect.fuzz.target import Pacer
from netdissect.fuzz.watch import Watch
from netdissect.model.errors import UsageError

__all__ = ["Engine", "Plan"]

STEP_LIMIT = 2000
"""Steps that are remembered for a failure."""
_SUSPECT_STEPS = 200
"""The sessions of so many latest steps are kept whole: a target can look well for a moment after
what kills it."""
_DRAIN_SECONDS = 0.2
"""Time that a target has to acknowledge what was sent last in a session."""


@dataclass(frozen=True, slots=True)
class Plan:
    """How much is sent, and how fast."""

    cases: int = 1000
    """Cases to send."""
    rate: float = 1000.0
    """Messages a second at most; 0 = no limit."""
    look_every: int = 20
    """Cases between two looks at the target."""
    session_cases: int = 500
    """Cases in one session."""
    failures: int = 10
    """Kinds of failure after which the run ends."""
    facts: dict[str, Any] = field(default_factory=dict)
    """What a failure folder says about the run: protocol, dialect, seed, command."""


class Engine:
    """One run against one target."""

    def __init__(
        self,
        generator: Generator,
        watch: Watch,
        store: Store,
        report: FuzzReport,
        plan: Plan,
        *,
        progress: Callable[[FuzzReport], None] = lambda _report: None,
    ) -> None:
        """Prepare the run; nothing is sent yet."""
        self._generator = generator
        self._watch = watch
        self._store = store
        self._plan = plan
        self._progress = progress
        self._session: Driver | None = None
        self._session_number = 0
        self._numbers = 0
        self._session_cases = 0
        self._steps: deque[Sent] = deque(maxlen=STEP_LIMIT)
        self._pacer = Pacer(plan.rate, time.monotonic())
        self.report = report
        """The account so far."""

    def run(self) -> FuzzReport:
        """Send all cases, or those before the run has to end; return the account.

        Raises:
            UsageError: the target does not let even the first session in.
        """
        started = time.monotonic()
        self._watch.monitors.start()
        try:
            self._cases()
        except KeyboardInterrupt:
            self.report.ended = "interrupted"
        finally:
            self._leave()
            self._watch.monitors.stop()
            self.report.seconds = time.monotonic() - started
            self._store.write_report(self.report.to_json())
            self._store.close()
        return self.report

    def _cases(self) -> None:
        if not self._enter():
            raise UsageError(
                f"{self._watch.target} lets no {self._watch.dialect} session in: "
                f"{self._watch.reason or 'no answer'}"
            )
        for number in range(self._plan.cases):
            if not self._ready():
                self.report.ended = f"the target is gone: {self._watch.reason or 'no answer'}"
                return
            case = self._generator.case(number)
            if case.is_control:
                # A mutant may have ended the session unseen: what is accepted would not show.
                self._look(number, certain=True)
                if not self._ready():
                    continue
            self._perform(case)
            self.report.cases += 1
            last = number + 1 == self._plan.cases
            if last or number % self._plan.look_every == self._plan.look_every - 1:
                self._look(number)
                self._progress(self.report)
            if len(self.report.findings) >= self._plan.failures:
                self.report.ended = "as many kinds of failure as asked for"
                return

    # --- sessions -----------------------------------------------------------------------------

    def _ready(self) -> bool:
        """Make sure that there is a session; return whether there is."""
        session = self._session
        if (
            session is not None
            and self._session_cases < self._plan.session_cases
            and session.is_open
        ):
            return True
        self._leave()
        # A new session, or the failure that what was sent has caused.
        self._look(self.report.cases)
        return self._session is not None or self._enter()

    def _enter(self) -> bool:
        session = self._watch.patient_session()
        if session is not None:
            self._adopt(session)
        return session is not None

    def _adopt(self, session: Driver) -> None:
        self._session = session
        self._session_number = self._number()
        self._session_cases = 0
        self.report.sessions += 1

    def _number(self) -> int:
        """Return a number that no session has yet."""
        self._numbers += 1
        return self._numbers

    def _leave(self) -> None:
        """End the session, after the target has had time to acknowledge the rest."""
        if self._session is None:
            return
        session, self._session = self._session, None
        session.drain(_DRAIN_SECONDS)
        session.close()
        self.report.close_session(session)

    # --- cases --------------------------------------------------------------------------------

    def _perform(self, case: Case) -> None:
        """Write a case down and send it."""
        session, number, stage = self._session, self._session_number, CONNECTED
        if case.stage != CONNECTED and (other := self._watch.session(case.stage)) is not None:
            session, number, stage = other, self._number(), case.stage
        if session is None:
            return
        kind = "control" if case.is_control else "mutant"
        stamped = [session.stamp(step) for step in case.steps]
        self._store.write_case(case, [octets for octets, _key in stamped])
        self.report.mutations[case.mutation.partition(" ")[0].partition("+")[0].rstrip(",")] += 1
        for step, (octets, key) in zip(case.steps, stamped, strict=True):
            session.pump(self._pacer.wait(time.monotonic()))
            self._steps.append(Sent(case.number, number, stage, step, octets))
            session.send(octets, key, kind)
            self.report.sent(step.type, stage, control=case.is_control)
        session.pump()
        self._after(case, session)

    def _after(self, case: Case, session: Driver) -> None:
        """Close the session of a case in another state, or one that the case has ended."""
        self._session_cases += 1
        if case.is_control:
            # The next mutant may end the session before the acknowledgements are out.
            session.drain(_DRAIN_SECONDS)
        if session is not self._session:
            session.close()
            self.report.close_session(session)
        elif any(step.type in session.traits.closing for step in case.steps):
            session.end("left")

    # --- failures -----------------------------------------------------------------------------

    def _look(self, number: int, *, certain: bool = False) -> None:
        """Ask whether the target is well; keep the failure and start it again if it is not."""
        verdict, session = self._watch.look(self._session, certain=certain)
        if session is not self._session:
            self._leave()
            if session is not None:
                self._adopt(session)
        if verdict is None:
            return
        self._leave()
        self._keep(verdict, number)
        self._steps.clear()
        if self._watch.monitors.restart():
            self._enter()

    def _keep(self, verdict: Verdict, number: int) -> None:
        known = self.report.findings.get(verdict.signature)
        if known is not None:
            known.count += 1
            return
        latest = {each.session for each in list(self._steps)[-_SUSPECT_STEPS:]}
        steps = [each for each in self._steps if each.session in latest]
        facts = {**self._plan.facts, "case": number, "target": str(self._watch.target)}
        folder = self._store.write_failure(
            verdict,
            facts,
            steps,
            log=self._watch.monitors.log_tail(),
            traffic=list(self._watch.journal),
            target=self._watch.target,
            transport=self._watch.driver.transport,
        )
        self.report.findings[verdict.signature] = Finding(verdict, folder, number)
