"""The main loop of a run: generate a case, record it, send it in a session, check the target."""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from netdissect.dissect.schema import Schema
from netdissect.fuzz.cases import Case, Step
from netdissect.fuzz.drivers import Driver
from netdissect.fuzz.feedback import Feedback
from netdissect.fuzz.generator import Generator
from netdissect.fuzz.lethal import Lethal, Mask
from netdissect.fuzz.monitors import NO_ANSWER, Verdict
from netdissect.fuzz.report import Finding, FuzzReport, kind_key
from netdissect.fuzz.sessions import Sessions
from netdissect.fuzz.store import PastRun, Sent, Store
from netdissect.fuzz.target import Pacer
from netdissect.fuzz.trials import Trials
from netdissect.fuzz.watch import Watch
from netdissect.model.errors import UsageError

REPEAT_LIMIT = 20_000
"""The run ends after this many generated cases in a row that had all been sent before."""
KNOWN_LIMIT = 4_000_000
"""Cases remembered so that none is sent twice; beyond this, the oldest half is forgotten."""
WAITING_LIMIT = 64
"""Cases that may wait for a session of their own. Further ones are left out and counted, so that a
target that opens sessions slowly does not hold up the rest."""
_IDLE_SECONDS = 1.0
"""Time without sending a case after which the target is checked: it may have stopped accepting
sessions because it is gone."""
_GRACE_SECONDS = 0.5
"""Time allowed after the end of a run, in addition to one answer timeout, to judge the last cases.
"""
_LOOK_EVERY = 20
"""Cases between two checks of the target."""
STEP_LIMIT = 12_000
"""Latest steps kept for the folder of a failure."""
_UNPROVEN_LIMIT = 1000
"""Latest cases remembered that the target may not have survived."""
_REFRESH_SECONDS = 2.0
"""Interval at which entries that other runs added to the corpus are read."""
_SUSPECT_STEPS = 200
"""A failure keeps all steps of the sessions in which the latest 200 steps were sent: a target may
still answer for a moment after the step that kills it."""

_SHORT_OCTETS = 8
"""Mutants up to this length recur in many cases that differ only in their other steps."""


@dataclass(frozen=True, slots=True)
class RunOptions:
    """Options of a run."""

    dialect: str | None = None
    """Dialect to speak; None = the driver's first one."""
    transport: str | None = None
    """`udp` or `tcp`; None = the dialect's usual one."""
    captures: Sequence[str | Path] = ()
    """Capture files whose messages are mutated; empty = default messages of the layers."""
    seed: int = 1
    """Seed of the random generator: it determines every mutation."""
    cases: int | None = None
    """Cases to send; None = 1,000 where no duration is given, else no limit."""
    duration: float | None = None
    """Seconds after which to stop; None = no limit."""
    rate: float = 1000.0
    """Messages a second at most, of each worker; 0 = no limit."""
    failures: int = 10
    """Kinds of failure after which to stop."""
    examples: int = 3
    """Failures of one kind that are saved; further ones are only counted."""
    masked: Sequence[str] = ()
    """Known kinds of failure to ignore: short names, or parts of signatures."""
    types: Sequence[str] = ()
    """Types of messages to mutate (`*` matches anything); empty = all."""
    mutators: Sequence[str] = ()
    """Mutators to use, as `cases.jsonl` names them (`field:*`, `order:*`); empty = all."""
    dictionaries: Sequence[str | Path] = ()
    """Dictionaries in AFL's format: byte strings that have a meaning to the target."""
    schema: Schema | None = None
    """Schema of user messages (`dissect.schema.load_schema`), whose values are mutated in place."""
    corpus: Path | None = None
    """Folder of cases that brought something new, shared with other runs; None = `corpus` in the
    folder of the run."""
    feedback: bool = True
    """Keep cases that brought something new, and mutate them again."""
    traffic: bool = False
    """Write all traffic to `traffic.pcapng`, each message with its case."""
    resume: bool = False
    """Continue the run in the folder, which must have the same protocol, dialect and seed. `cases`
    includes those that it has already sent."""
    workers: int = 1
    """Processes that share the cases. Worker N sends to the port of the target plus N."""
    monitors: Sequence[str] = ()
    """`exec:COMMAND`, `pid:N`, `log:REGEX`, `memory:MIB`, `cpu:PERCENT`, `latency:MS`, `rules`.
    `{port}` is replaced by the port of the worker's target."""
    answer_seconds: float = 2.0
    """A target that does not answer for this long has failed."""


@dataclass(frozen=True, slots=True)
class Part:
    """One worker's part of a run."""

    cases: int | None
    """Cases to send; None = no limit."""
    facts: Mapping[str, Any]
    """Facts about the run that a failure folder records: protocol, dialect, seed, monitors."""
    number: int = 0
    """Index of the worker. A case belongs to one of them by the hash of what it sends, so that no
    two send the same."""
    past: PastRun | None = None
    """What a resumed run had already sent."""


class Engine:
    """Runs the part of one worker against one target."""

    def __init__(
        self,
        generator: Generator,
        watch: Watch,
        store: Store,
        report: FuzzReport,
        options: RunOptions,
        part: Part,
        *,
        progress: Callable[[FuzzReport], None] = lambda _report: None,
        feedback: Feedback | None = None,
    ) -> None:
        """Prepare the run; nothing is sent yet."""
        if feedback is not None:
            watch.notice = lambda session, sign: feedback.notice(session.number, sign)
        self._feedback = feedback
        self._refresh_at = 0.0
        self._generator = generator
        self._watch = watch
        self._store = store
        self._options = options
        self._part = part
        self._progress = progress
        self._sessions = Sessions(watch, report)
        self._steps: deque[Sent] = deque(maxlen=STEP_LIMIT)
        self._known: dict[bytes, None] = {}
        """Keys of the cases that were sent, oldest first."""
        self._number = 0
        """Number of the next case to generate."""
        if part.past is not None:
            self._known = dict.fromkeys(part.past.keys)
            self._number = part.past.next_number
        self._waiting: deque[Case] = deque()
        """Cases that wait for a session of their own."""
        driver = watch.driver
        self._lethal = Lethal(driver.protocol, watch.dialect, driver.transport)
        """Learns which cases kill the target."""
        self._ending = Lethal(driver.protocol, watch.dialect, driver.transport)
        """Learns which cases end their session."""
        self._unproven: deque[tuple[float, Driver | None, Case]] = deque(maxlen=_UNPROVEN_LIMIT)
        """(when sent, main session if sent in it, case) of cases that the target may not have
        survived."""
        self._suspects: set[bytes] = set()
        """Short mutants that came shortly before a failure."""
        self._trials = Trials(time.monotonic())
        self._end = math.inf
        self._sent_at = 0.0
        """When the last case was sent."""
        self._pacer = Pacer(options.rate, time.monotonic())
        self.report = report
        """Results so far."""

    def run(self) -> FuzzReport:
        """Send cases until all are sent or the run has to end; return the report.

        Raises:
            UsageError: the target does not accept the first session.
        """
        started = self._sent_at = time.monotonic()
        self._trials = Trials(started)
        if self._options.duration is not None:
            self._end = started + self._options.duration
        try:
            self._watch.monitors.start()
            self._cases()
        except KeyboardInterrupt:
            self.report.ended = "interrupted"
        finally:
            self._sessions.close()
            self._watch.monitors.stop()
            while (case := self._lethal.next_postponed()) is not None:
                self._count_held_back(self._lethal.expects(case))
            self.report.seconds = time.monotonic() - started
            self.report.slow = self._watch.slow
            if self._feedback is not None:
                self._feedback.close()
                self.report.kept = len(self._feedback.corpus.entries)
                if self._feedback.coverage is not None:
                    self.report.edges = self._feedback.coverage.edges
            self._store.write_report(self.report.to_json())
            self._store.close()
        return self.report

    def _cases(self) -> None:
        if not self._sessions.enter():
            raise UsageError(
                f"{self._watch.target} accepts no {self._watch.dialect} session: "
                f"{self._watch.trouble}"
            )
        # Only now: a target may take its time to start up, however short the run.
        self._watch.finish(self._end + self._watch.answer_seconds + _GRACE_SECONDS)
        while self._part.cases is None or self.report.cases < self._part.cases:
            if time.monotonic() >= self._end:
                self._time_over()
                return
            if not self._ready():
                if time.monotonic() >= self._end:
                    continue
                self.report.ended = f"the target is gone: {self._watch.trouble}"
                return
            case = self._waiting_case() or self._postponed_case() or self._next_case()
            if case is None:
                self.report.ended = f"nothing new in {REPEAT_LIMIT} cases"
                return
            if not self._perform(case):
                self._idle(case.number)
                continue
            self._sent_at = time.monotonic()
            self.report.cases += 1
            self._trials.advance(self._sent_at, 1)
            self._check_if_due(case.number)
            if len(self.report.findings) >= self._options.failures:
                self.report.ended = "as many kinds of failure as asked for"
                return

    def _idle(self, number: int) -> None:
        """Check the target if every case waits for a session and none has been sent for a while."""
        if time.monotonic() - self._sent_at >= _IDLE_SECONDS:
            self._look(number)
            self._sent_at = time.monotonic()

    def _time_over(self) -> None:
        """End a run whose time is over: check the target once more for the cases sent last."""
        # Without steps, nothing has been sent since the target was restarted.
        if self._steps and self._watch.left > 0:
            self._look(self._number, certain=True)
        self.report.ended = "the time is over"
        if self._watch.left <= 0:
            self.report.ended += " before the target has answered"

    def _check_if_due(self, number: int) -> None:
        """Every few cases, check the target, extend the corpus and report progress."""
        sent = self.report.cases
        # In a trial, it shall be known what is lethal.
        every = 1 if self._trials.trying else _LOOK_EVERY
        last = sent == self._part.cases
        late = self._watch.shut_out or self._sessions.is_late or self._sessions.unread()
        if last or sent % every == 0 or late:
            self._look(number, certain=last or every < _LOOK_EVERY)
            if self._sessions.held is not None:
                self._share()
            self._progress(self.report)

    def _waiting_case(self) -> Case | None:
        """Return the first waiting case if a session is available for it, else None."""
        while self._waiting and self._sessions.has_room(self._waiting[0].stage):
            case = self._waiting.popleft()
            # It may have waited since before what is known now.
            if not self._is_suspect(case) and not self._is_held_back(case):
                return case
        return None

    def _postponed_case(self) -> Case | None:
        """Return the next case that has waited for a trial, if this is one."""
        self._trials.advance(time.monotonic())
        while self._trials.trying and (case := self._lethal.next_postponed()) is not None:
            if not self._is_held_back(case):
                return case
        return None

    def _next_case(self) -> Case | None:
        """Return the next case that has not been sent yet; None if there seem to be no more."""
        for _ in range(REPEAT_LIMIT):
            case = None
            if self._feedback is not None:
                case = self._generator.offspring(self._number, self._feedback.corpus)
            case = case or self._generator.case(self._number)
            self._number += 1
            if not self._wanted(case) or self._is_known(case) or self._is_suspect(case):
                continue
            if not self._is_held_back(case):
                return case
            self._trials.hold_back()
        return None

    def _is_held_back(self, case: Case) -> bool:
        """Return whether a case is expected to fail, or has to wait for a trial."""
        mask = self._lethal.expects(case)
        if mask is not None and not self._lethal.may_dare(mask, self.report.cases):
            self._count_held_back(mask)
            return True
        if self._trials.calm and (mask is not None or self._may_be_lethal(case)):
            if not self._lethal.postpone(case):
                self._count_held_back(mask)
            return True
        if mask is not None:
            self._lethal.dare(mask)
        return False

    def _count_held_back(self, mask: Mask | None) -> None:
        """Note that a case is not sent because of a mask."""
        if mask is not None:
            self.report.held_back[mask.signature, mask.text] += 1

    def _may_be_lethal(self, case: Case) -> bool:
        """Return whether nothing tells that the target survives a case."""
        held = self._sessions.held
        # What puts a stream out of step may be read as anything.
        loose = held is not None and held.transport == "tcp" and any(map(held.risks, case.steps))
        return loose or self._lethal.is_untried(case)

    def _is_suspect(self, case: Case) -> bool:
        """Return whether the case sends a short mutant that came shortly before a failure. A target
        that fails at an empty datagram would otherwise fail at nothing else.
        """
        return any(step.octets in self._suspects for step in case.steps)

    def _is_known(self, case: Case) -> bool:
        """Return whether the same case was sent before or belongs to another worker; mark it as
        sent.
        """
        key = case.key()
        if int.from_bytes(key[:4], "big") % self._options.workers != self._part.number:
            return True
        if key in self._known:
            self.report.repeats += 1
            return True
        if len(self._known) >= KNOWN_LIMIT:
            self._known = dict.fromkeys(list(self._known)[KNOWN_LIMIT // 2 :])
        self._known[key] = None
        return False

    def _wanted(self, case: Case) -> bool:
        """Return whether the user's choice of types and mutators includes the case."""
        options = self._options
        if case.is_control:
            return True
        name = case.mutation.partition(" ")[0].rstrip(",")
        mutated = not options.mutators or any(fnmatchcase(name, each) for each in options.mutators)
        if not mutated or not options.types:
            return mutated
        others = [
            step
            for step in case.steps
            if not any(fnmatchcase(step.type, each) for each in options.types)
        ]
        # Unchanged messages of other types may stand beside them.
        return len(others) < len(case.steps) and all(
            step.octets in self._generator.originals for step in others
        )

    def _ready(self) -> bool:
        """Make sure that there is a main session; return False if the target accepts none."""
        held = self._sessions.held
        if held is not None and not held.is_open:
            self._note_end(held)
        if self._sessions.renew():
            return True
        # This opens a new session, or finds the failure that the latest cases have caused.
        self._look(self.report.cases)
        return self._sessions.held is not None or self._sessions.enter()

    # --- cases --------------------------------------------------------------------------------

    def _perform(self, case: Case) -> bool:
        """Record and send a case; return False if it has to wait for a session or is left out."""
        self._sessions.pump()
        # While behind the rate, others are sent in the meantime.
        patient = not self._pacer.is_late(time.monotonic())
        ends = self._ending.expects(case) is not None
        placed = self._sessions.place(case, ends=ends, patient=patient)
        if placed is None:
            if len(self._waiting) < WAITING_LIMIT:
                self._waiting.append(case)
            else:
                self.report.left_out += 1
            return False
        session, stage = placed
        if stage != case.stage:
            # Sent in another state than planned, it may be the same as an earlier case.
            case = replace(case, stage=stage)
            if self._is_known(case):
                self._sessions.done(session)
                return False
        self._wait(case.steps[0])
        if self._feedback is not None:
            # On a busy machine, even a short wait takes long.
            briefly = not self._pacer.is_late(time.monotonic())
            alone = session is not self._sessions.held or self._sessions.hear(briefly=briefly)
            self._feedback.sent(session.number, case, alone=alone)
        kind = "control" if case.is_control else "mutant"
        stamped = [session.stamp(step) for step in case.steps]
        self._store.write_case(case, [octets for octets, _key in stamped])
        self.report.mutations[case.kind] += 1
        for index, (step, (octets, key)) in enumerate(zip(case.steps, stamped, strict=True)):
            if index:
                self._wait(step)
            self._steps.append(Sent(case.number, session.number, stage, step, octets))
            session.send(octets, key, kind, f"case {case.number}: {case.mutation}")
            self.report.sent(step.type, stage, control=case.is_control)
        self._sessions.done(session)
        held = session if session is self._sessions.held else None
        self._unproven.append((time.monotonic(), held, case))
        return True

    def _wait(self, step: Step) -> None:
        """Keep the sessions alive until the next message is due and the target can take it."""
        self._sessions.pump(self._pacer.wait(time.monotonic()))
        self._sessions.heed(len(step.octets))

    def _share(self) -> None:
        """Add cases that brought something new to the corpus; from time to time read other
        workers'.
        """
        if self._feedback is None:
            return
        self._feedback.keep()
        now = time.monotonic()
        if now >= self._refresh_at:
            self._refresh_at = now + _REFRESH_SECONDS
            self._feedback.refresh()
            self.report.kept = len(self._feedback.corpus.entries)

    # --- failures -----------------------------------------------------------------------------

    def _look(self, number: int, *, certain: bool = False) -> None:
        """Check the target; save each failure, and restart the target after a fatal one."""
        self._sessions.note_time()
        held, began = self._sessions.held, time.monotonic()
        while (verdict := self._next_verdict(certain=certain)) is not None:
            known = self._keep(verdict, number)
            self._watch.hangs |= known and verdict.kind == NO_ANSWER
            if verdict.fatal:
                self._settle(held.proven_at if held is not None else 0.0)
                suspects = [case for _sent, _held, case in self._unproven]
                self._lethal.killed(suspects, verdict.signature, known=known)
                self._recover(known=known)
                return
        if held is not None and held is not self._sessions.held:
            self._note_end(held)
        if certain or held is not self._sessions.held:
            self._settle(began)
        elif held is not None:
            self._settle(held.proven_at)

    def _settle(self, proven_at: float) -> None:
        """Note that the target has survived all cases sent before a moment."""
        while self._unproven and self._unproven[0][0] < proven_at:
            _sent, held, case = self._unproven.popleft()
            self._lethal.survived(case)
            if held is not None:
                self._ending.survived(case)

    def _note_end(self, held: Driver) -> None:
        """Note that the held session has ended, by one of the last cases sent in it."""
        self._settle(held.proven_at)
        suspects = [case for _sent, session, case in self._unproven if session is held]
        self._ending.killed(suspects, "end of the session", known=True)
        # The target may have read none of those that came after the end: they prove nothing.
        rest = [each for each in self._unproven if each[1] is not held]
        self._unproven.clear()
        self._unproven.extend(rest)

    def _next_verdict(self, *, certain: bool) -> Verdict | None:
        """Return the next failure, None if the target is well."""
        held = self._sessions.held
        # Where nobody can connect, only a new session can tell.
        asked = None if self._watch.shut_out else held
        began = time.monotonic()
        verdict = session = None
        if held is not None and not certain and held.is_open and not held.link.refused:
            verdict = self._watch.monitors.check()
            if verdict is None and self._sessions.well() and not self._watch.shut_out:
                return None
            # The session had its time to answer: only a new one can tell now.
            asked = None
        if verdict is None:
            verdict, session = self._watch.look(asked, certain=certain)
        if (
            verdict is not None
            and verdict.kind == NO_ANSWER
            and not self._watch.shut_out
            and held is not None
            and (held.reads_since(began) or held.alive(held.quick_seconds, certain=True))
        ):
            # It is too busy to accept a session, but still serves the one that is open.
            self._watch.slow += 1
            self._sessions.wait()
            return None
        if verdict is not None and not verdict.fatal:
            if session is not None and session is not held:
                session.close(0.0)
            return verdict
        if session is None or session is not held:
            self._sessions.replace(session)
        return verdict

    def _recover(self, *, known: bool) -> None:
        self._sessions.close()
        if self._feedback is not None:
            self._feedback.drop()
        latest = list(self._steps)[-_SUSPECT_STEPS:]
        octets = {each.step.octets for each in latest if len(each.step.octets) <= _SHORT_OCTETS}
        # Valid messages are in nearly every session, so they are not suspected.
        self._suspects |= octets - self._generator.originals
        self._steps.clear()
        self._unproven.clear()
        if time.monotonic() < self._end and self._watch.monitors.restart():
            self._sessions.enter()
        self._trials.failed(time.monotonic(), known=known)

    def _keep(self, verdict: Verdict, number: int) -> bool:
        """Save a failure; return whether its kind needs no further examples."""
        signature = verdict.signature
        described = f"{signature}\n{verdict.detail}"
        if any(each == kind_key(signature) or each in described for each in self._options.masked):
            self.report.masked[signature] += 1
            return True
        findings = self.report.findings
        finding = findings.setdefault(signature, Finding(verdict, number))
        finding.count += 1
        if len(finding.folders) >= self._options.examples:
            return True
        latest = {each.session for each in list(self._steps)[-_SUSPECT_STEPS:]}
        steps = [each for each in self._steps if each.session in latest]
        facts = {**self._part.facts, "case": number, "target": str(self._watch.target)}
        facts["learnt"] = {name: value.hex() for name, value in self._watch.learnt.items()}
        folder = self._store.write_failure(
            verdict,
            facts,
            steps,
            number=list(findings).index(signature) + 1,
            example=len(finding.folders) + 1,
            log=self._watch.monitors.log_tail(),
            traffic=list(self._watch.journal),
            target=self._watch.target,
            transport=self._watch.driver.transport,
        )
        finding.folders.append(folder)
        return len(finding.folders) >= self._options.examples
