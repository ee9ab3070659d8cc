"""The loop of a run: make a case, write it down, send it in a good session, watch the target."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from netdissect.fuzz.cases import Case
from netdissect.fuzz.generator import Generator
from netdissect.fuzz.monitors import Verdict
from netdissect.fuzz.report import Finding, FuzzReport
from netdissect.fuzz.sessions import Sessions
from netdissect.fuzz.store import Sent, Store
from netdissect.fuzz.target import Pacer
from netdissect.fuzz.watch import Watch
from netdissect.model.errors import UsageError

__all__ = ["Engine", "Plan"]

STEP_LIMIT = 12_000
"""Steps that are remembered for a failure."""
_SUSPECT_STEPS = 200
"""The sessions of so many latest steps are kept whole: a target can look well for a moment after
what kills it."""


@dataclass(frozen=True, slots=True)
class Plan:
    """How much is sent, and how fast."""

    cases: int = 1000
    """Cases to send."""
    rate: float = 1000.0
    """Messages a second at most; 0 = no limit."""
    look_every: int = 20
    """Cases between two looks at the target."""
    fragile_cases: int = 200
    """Cases after a failure for which the target counts as fragile."""
    fragile_look_every: int = 5
    """Cases between two looks at a fragile target, which has to answer then: a failure that comes
    often must not hide another that is seen later."""
    session_cases: int = 10_000
    """Cases after which another session is held: what a failure needs is remembered."""
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
        self._sessions = Sessions(watch, report, plan.session_cases)
        self._steps: deque[Sent] = deque(maxlen=STEP_LIMIT)
        self._fragile_until = 0
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
            self._sessions.close()
            self._watch.monitors.stop()
            self.report.seconds = time.monotonic() - started
            self._store.write_report(self.report.to_json())
            self._store.close()
        return self.report

    def _cases(self) -> None:
        if not self._sessions.enter():
            raise UsageError(
                f"{self._watch.target} lets no {self._watch.dialect} session in: "
                f"{self._watch.reason or 'no answer'}"
            )
        for number in range(self._plan.cases):
            if not self._ready():
                self.report.ended = f"the target is gone: {self._watch.reason or 'no answer'}"
                return
            self._perform(self._generator.case(number))
            self.report.cases += 1
            fragile = number < self._fragile_until
            every = self._plan.fragile_look_every if fragile else self._plan.look_every
            last = number + 1 == self._plan.cases
            if last or number % every == every - 1:
                self._look(number, certain=last or fragile)
                self._sessions.note_time()
                self._progress(self.report)
            if len(self.report.findings) >= self._plan.failures:
                self.report.ended = "as many kinds of failure as asked for"
                return

    def _ready(self) -> bool:
        """Make sure that a session is held; return whether one is."""
        if self._sessions.renew():
            return True
        # A new session, or the failure that what was sent has caused.
        self._look(self.report.cases)
        return self._sessions.held is not None or self._sessions.enter()

    # --- cases --------------------------------------------------------------------------------

    def _perform(self, case: Case) -> None:
        """Write a case down and send it."""
        self._wait()
        session, stage = self._sessions.place(case)
        if session is None:
            return
        kind = "control" if case.is_control else "mutant"
        stamped = [session.stamp(step) for step in case.steps]
        self._store.write_case(case, [octets for octets, _key in stamped], stage)
        self.report.mutations[case.mutation.partition(" ")[0].partition("+")[0].rstrip(",")] += 1
        for index, (step, (octets, key)) in enumerate(zip(case.steps, stamped, strict=True)):
            if index:
                self._wait()
            self._steps.append(Sent(case.number, session.number, stage, step, octets))
            session.send(octets, key, kind)
            self.report.sent(step.type, stage, control=case.is_control)
        self._sessions.done(session)

    def _wait(self) -> None:
        """Let the sessions live until the next message is due."""
        self._sessions.pump(self._pacer.wait(time.monotonic()))

    # --- failures -----------------------------------------------------------------------------

    def _look(self, number: int, *, certain: bool = False) -> None:
        """Ask whether the target is well; keep the failure and start it again if it is not."""
        held = self._sessions.held
        asked = held
        verdict = session = None
        if held is not None and not certain and held.is_open and not held.link.refused:
            verdict = self._watch.monitors.check()
            if verdict is None and self._sessions.well():
                return
            # It had its time to answer: only a new session can tell now.
            asked = None
        if verdict is None:
            verdict, session = self._watch.look(asked, certain=certain)
        if session is None or session is not held:
            self._sessions.replace(session)
        if verdict is not None:
            self._fail(verdict, number)

    def _fail(self, verdict: Verdict, number: int) -> None:
        self._sessions.close()
        self._fragile_until = number + self._plan.fragile_cases
        self._keep(verdict, number)
        self._steps.clear()
        if self._watch.monitors.restart():
            self._sessions.enter()

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
