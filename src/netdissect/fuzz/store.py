"""The files of a run: every case, recorded before it is sent, and a folder for every failure.

```
RUN/run.json               the options: protocol, target, seed, monitors, seeds
RUN/cases.jsonl            one line per case, written before its first datagram is sent
RUN/report.json            the report, written at the end
RUN/failures/001-exit/     (further examples of the same kind: 001-exit-2, 001-exit-3)
                           failure.json  the failure, its case, the target and how to run it
                           steps.jsonl   the steps since the target was last well, in order
                           datagrams/    the same steps as sent, one file each
                           log.txt       the end of the target's log
                           traffic.pcapng  the traffic, each message with its case as comment
```
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from netdissect.fuzz.cases import CONNECTED, Case, Step, object_of, octets_of, value_of
from netdissect.fuzz.folder import Folder, write_json
from netdissect.fuzz.monitors import Verdict
from netdissect.fuzz.pcap import TrafficWriter
from netdissect.fuzz.target import Target, Traffic, Transport
from netdissect.model.errors import UsageError, reason

SCHEMA = 1
_FILES_LIMIT = 4096
"""Maximum number of datagram files of one failure."""
MAX_FACTS_OCTETS = 1 << 20
"""Maximum size of `failure.json` in bytes."""
MAX_STEPS_OCTETS = 64 << 20
"""Maximum size of `steps.jsonl` in bytes."""
MAX_STEPS = 100_000
"""Maximum number of steps read from a failure; a run writes an eighth of that at most."""
MAX_MONITORS = 16
"""Maximum number of monitors named by a failure."""
_MAX_NUMBER = 1 << 64  # a file from somebody else may hold numbers of a million digits
_LINE_OCTETS = 16 << 20
"""Maximum size of one line of `cases.jsonl` in bytes."""


@dataclass(frozen=True, slots=True)
class Sent:
    """One step as sent."""

    case: int
    """Number of its case."""
    session: int
    """Number of its session; a replay uses as many sessions."""
    stage: str
    """State of that session."""
    step: Step
    """The step, with room for live values."""
    octets: bytes
    """The bytes sent."""

    def to_json(self) -> dict[str, Any]:
        """Return JSON values."""
        return {
            "case": self.case,
            "session": self.session,
            "stage": self.stage,
            "sent": self.octets.hex(),
            **self.step.to_json(),
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Sent:
        """Return what `to_json` wrote."""
        return cls(
            _number(value_of(data, "case", 0)),
            _number(value_of(data, "session", 0)),
            value_of(data, "stage", CONNECTED),
            _bounded(Step.from_json(data)),
            octets_of(data, "sent", ""),
        )


@dataclass(frozen=True, slots=True)
class Failure:
    """A failure folder that was read."""

    folder: Path
    """Path of the folder."""
    facts: dict[str, Any]
    """Content of `failure.json`."""
    steps: tuple[Sent, ...]
    """The steps that led to the failure."""

    @property
    def kind(self) -> str:
        """Return the verdict's kind."""
        return str(self.facts["kind"])

    @property
    def monitors(self) -> tuple[str, ...]:
        """Return the monitors of the run; they may contain commands written by somebody else."""
        named = self.facts.get("monitors")
        return tuple(map(str, named[:MAX_MONITORS])) if isinstance(named, list) else ()


@dataclass(slots=True)
class PastRun:
    """What a run had sent and found before it is resumed."""

    keys: dict[bytes, None] = field(default_factory=dict)
    """Keys of the cases sent."""
    next_number: int = 0
    """Number of the next case."""
    cases: int = 0
    """Number of cases sent."""
    sent: Counter[tuple[str, str, bool]] = field(default_factory=Counter)
    """(type, state, whether it is a control) -> number of messages."""
    mutations: Counter[str] = field(default_factory=Counter)
    """Kind of mutation -> number of cases."""
    failures: list[tuple[Verdict, int, Path]] = field(default_factory=list)
    """(verdict, number of the last case before it, folder) of each saved failure."""

    def add(self, case: Case) -> None:
        """Add a case."""
        self.keys[case.key()] = None
        self.next_number = max(self.next_number, case.number + 1)
        self.cases += 1
        self.mutations[case.kind] += 1
        for step in case.steps:
            self.sent[step.type, case.stage, case.is_control] += 1


class Store:
    """The folder of one run."""

    def __init__(self, folder: Path, *, resume: bool = False) -> None:
        """Create the folder, or open that of a run to resume.

        Raises:
            UsageError: it already holds a run, or none to resume.
        """
        self.folder = folder
        self._open = Folder.made(folder, new=not resume)
        try:
            self._cases = self._open.appending("cases.jsonl", new=not resume)
        except FileExistsError:
            self._open.close()
            raise UsageError(
                f"{folder} holds a run already: choose another folder with --out, or go on with "
                "--resume"
            ) from None
        except OSError as error:
            self._open.close()
            raise UsageError(f"{folder} holds no run to resume: {error.strerror}") from error

    def read_run(self) -> dict[str, Any]:
        """Return `run.json`.

        Raises:
            UsageError: it is missing or damaged.
        """
        try:
            facts = json.loads(self._open.read("run.json", MAX_FACTS_OCTETS))
        except (OSError, ValueError, RecursionError) as error:
            raise UsageError(f"{self.folder} holds no run to resume: {reason(error)}") from error
        return facts if isinstance(facts, dict) else {}

    def past(self) -> PastRun:
        """Read the cases and failures of a run to resume; damaged ones are skipped."""
        past = PastRun()
        self._read_cases(past)
        self._read_failures(past)
        return past

    def _read_cases(self, past: PastRun) -> None:
        whole = 0
        with self._open.reading("cases.jsonl") as file:
            for line in iter(lambda: file.readline(_LINE_OCTETS), b""):
                whole = file.tell() if line.endswith(b"\n") else whole
                try:
                    row = json.loads(line)
                    steps = tuple(Step.from_json(each) for each in row["steps"])
                    mutation, stage = value_of(row, "mutation", str), value_of(row, "stage", str)
                    past.add(Case(_number(row["case"]), mutation, steps, stage))
                except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
                    continue
        # A line cut off by a kill must not swallow the next case.
        os.ftruncate(self._cases, whole)

    def _read_failures(self, past: PastRun) -> None:
        with self._open.inside("failures") as failures:
            for name in sorted(failures.names()):
                try:
                    with failures.inside(name) as folder:
                        facts = json.loads(folder.read("failure.json", MAX_FACTS_OCTETS))
                    kind, signature = str(facts["kind"]), str(facts["signature"])
                    place = signature.removeprefix(f"{kind}: ")
                    verdict = Verdict(kind, str(facts["detail"]), place)
                    past.failures.append((verdict, _number(facts["case"]), folder.path))
                except (OSError, ValueError, KeyError, TypeError, RecursionError):
                    continue

    def write_run(self, facts: Mapping[str, Any]) -> None:
        """Write `run.json`."""
        write_json(self._open, "run.json", {"schema": SCHEMA, **facts})

    def write_report(self, facts: Mapping[str, Any]) -> None:
        """Write `report.json`."""
        write_json(self._open, "report.json", {"schema": SCHEMA, **facts})

    def write_case(self, case: Case, sent: Sequence[bytes]) -> None:
        """Append a case. It has been written to the operating system on return, so a kill loses
        none.

        Args:
            case: the case, with the state of the session in which it is sent.
            sent: its messages as sent.
        """
        line = {
            "case": case.number,
            "mutation": case.mutation,
            "stage": case.stage,
            **({"parent": case.parent} if case.parent else {}),
            "steps": [
                {**step.to_json(), "sent": octets.hex()}
                for step, octets in zip(case.steps, sent, strict=True)
            ],
        }
        # A single write: the line is complete or missing.
        os.write(self._cases, json.dumps(line, separators=(",", ":")).encode() + b"\n")

    def write_failure(
        self,
        verdict: Verdict,
        facts: Mapping[str, Any],
        steps: Sequence[Sent],
        *,
        number: int,
        example: int,
        log: bytes,
        traffic: Iterable[Traffic],
        target: Target,
        transport: Transport,
    ) -> Path:
        """Write a failure folder and return its path: example `example` of kind `number`."""
        name = f"{number:03d}-{verdict.kind}" + (f"-{example}" if example > 1 else "")
        row = {"schema": SCHEMA, "kind": verdict.kind, "detail": verdict.detail}
        with self._open.inside("failures") as failures, failures.inside(name) as folder:
            write_failure(folder, {**row, "signature": verdict.signature, **facts}, steps)
            folder.write("log.txt", log)
            with folder.writing("traffic.pcapng") as file:
                capture = TrafficWriter(file, target, transport)
                for each in traffic:
                    capture.write(each)
                capture.close()
        return folder.path

    def close(self) -> None:
        """Close the list of cases. A run that has sent none can be started again in its folder."""
        if not os.fstat(self._cases).st_size:
            for name in ("cases.jsonl", "run.json"):
                with suppress(OSError):
                    self._open.remove(name)
        os.close(self._cases)
        self._open.close()


def write_failure(folder: Folder, facts: Mapping[str, Any], steps: Sequence[Sent]) -> None:
    """Write the facts, the step list and the datagrams of a failure.

    Raises:
        OSError: they cannot be written.
    """
    write_json(folder, "failure.json", facts)
    lines = [json.dumps(each.to_json(), separators=(",", ":")) + "\n" for each in steps]
    folder.write("steps.jsonl", "".join(lines).encode())
    with folder.inside("datagrams") as datagrams:
        # An earlier minimisation may have left more files.
        for old in datagrams.names():
            if old.endswith(".bin"):
                datagrams.remove(old)
        # If there are too many, keep the last, which led to the failure.
        for index, each in enumerate(steps[-_FILES_LIMIT:], start=1):
            datagrams.write(f"{index:04d}.bin", each.octets)


def load_failure(folder: Path) -> Failure:
    """Read a failure folder. It may come from somebody else, so no link in it is followed.

    Raises:
        UsageError: it is not a failure folder, is damaged, or exceeds a limit.
    """
    try:
        with Folder(folder) as inside:
            facts_octets = inside.read("failure.json", MAX_FACTS_OCTETS)
            steps_octets = inside.read("steps.jsonl", MAX_STEPS_OCTETS)
        lines = steps_octets.split(b"\n", MAX_STEPS)
        if any(lines[MAX_STEPS:]):
            raise ValueError(f"steps.jsonl has more than {MAX_STEPS:,} lines")  # noqa: TRY301 - see below
        with _within("failure.json"):
            facts = object_of(json.loads(facts_octets))
            facts = {**facts, **_texts(facts), "learnt": _learnt(facts)}
        return Failure(folder, facts, tuple(_steps(lines)))
    except (OSError, ValueError) as error:
        raise UsageError(f"{folder} is no failure folder: {reason(error)}") from error


def _steps(lines: Iterable[bytes]) -> Iterator[Sent]:
    for number, line in enumerate(lines, start=1):
        with _within(f"steps.jsonl, line {number:,}"):
            if line.strip():
                yield Sent.from_json(object_of(json.loads(line)))


@contextmanager
def _within(place: str) -> Iterator[None]:
    """Name the file in errors raised inside."""
    try:
        yield
    except (ValueError, KeyError, RecursionError) as error:
        raise ValueError(f"{place}: {reason(error)}") from error


def _texts(facts: Mapping[str, Any]) -> dict[str, str | None]:
    """Return the facts that decide what to run; they must be texts."""
    found = {name: value_of(facts, name, "") for name in ("protocol", "dialect")}
    transport = None if facts.get("transport") is None else value_of(facts, "transport", str)
    return {**found, "kind": value_of(facts, "kind", str), "transport": transport}


def _learnt(facts: Mapping[str, Any]) -> dict[str, str]:
    """Return what sessions had learnt about the target, as hexadecimal digits."""
    given = object_of(facts.get("learnt", {}))
    return {name: bytes.fromhex(value_of(given, name, str)).hex() for name in given}


def _number(value: Any) -> int:
    if isinstance(value, float):
        # Python's JSON accepts Infinity, for which `int` raises OverflowError.
        raise ValueError("must be a whole number")  # noqa: TRY004 - an error in the file
    number = int(value)
    if abs(number) > _MAX_NUMBER:
        raise ValueError("a number has more than 64 bits")
    return number


def _bounded(step: Step) -> Step:
    for number in (step.advance, *(by for _, by in step.shift)):
        _number(number)
    return step
