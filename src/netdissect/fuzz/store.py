"""What a run leaves on disk: every case before it is sent, and a folder for every failure.

```
RUN/run.json               what was asked for: protocol, target, seed, monitors, seeds
RUN/cases.jsonl            one line a case, written before its first datagram leaves
RUN/report.json            the account, written at the end
RUN/failures/001-exit/     failure.json  what was seen, in which case, the target and how to run it
                           steps.jsonl   the steps since the target was last found well, in order
                           datagrams/    the same as sent, one file each
                           log.txt       the end of the target's log
                           traffic.pcap  what went over the link, both ways
```
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from netdissect.fuzz.cases import CONNECTED, Case, Step
from netdissect.fuzz.monitors import Verdict
from netdissect.fuzz.pcap import write_pcap
from netdissect.fuzz.target import Target, Traffic, Transport
from netdissect.model.errors import UsageError

__all__ = ["Failure", "Sent", "Store", "load_failure", "write_steps"]

SCHEMA = 1
_FILES_LIMIT = 4096
"""Datagram files of one failure at most."""


@dataclass(frozen=True, slots=True)
class Sent:
    """One step as it went out."""

    case: int
    """Number of its case."""
    session: int
    """Number of the session in which it went out; replays keep sessions apart."""
    stage: str
    """State of that session."""
    step: Step
    """The step, with room for live values."""
    octets: bytes
    """What was sent."""

    def to_json(self) -> dict[str, Any]:
        """Return it as plain values."""
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
            int(data.get("case", 0)),
            int(data.get("session", 0)),
            str(data.get("stage", CONNECTED)),
            Step.from_json(data),
            bytes.fromhex(data.get("sent", "")),
        )


@dataclass(frozen=True, slots=True)
class Failure:
    """A failure folder, read back."""

    folder: Path
    """Where it is."""
    facts: dict[str, Any]
    """`failure.json`."""
    steps: tuple[Sent, ...]
    """The steps that led to it."""

    @property
    def kind(self) -> str:
        """Return the verdict's kind."""
        return str(self.facts["kind"])


class Store:
    """The folder of one run."""

    def __init__(self, folder: Path) -> None:
        """Create the folder.

        Raises:
            UsageError: it holds a run already.
        """
        self.folder = folder
        if (folder / "cases.jsonl").exists():
            raise UsageError(f"{folder} holds a run already: choose another folder with --out")
        folder.mkdir(parents=True, exist_ok=True)
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
        self._cases = os.open(folder / "cases.jsonl", flags, 0o644)
        self.failures: list[Path] = []
        """Folders of the failures found."""

    def write_run(self, facts: Mapping[str, Any]) -> None:
        """Write `run.json`."""
        _write_json(self.folder / "run.json", {"schema": SCHEMA, **facts})

    def write_report(self, facts: Mapping[str, Any]) -> None:
        """Write `report.json`."""
        _write_json(self.folder / "report.json", {"schema": SCHEMA, **facts})

    def write_case(self, case: Case, sent: Sequence[bytes], stage: str | None = None) -> None:
        """Append a case. The operating system has it when this returns: a kill loses nothing.

        Args:
            case: the case.
            sent: its steps as they go out.
            stage: state of the session that it goes out in, where that is not the one it is for.
        """
        line = {
            "case": case.number,
            "mutation": case.mutation,
            "stage": stage or case.stage,
            "steps": [
                {**step.to_json(), "sent": octets.hex()}
                for step, octets in zip(case.steps, sent, strict=True)
            ],
        }
        os.write(self._cases, json.dumps(line, separators=(",", ":")).encode() + b"\n")

    def write_failure(
        self,
        verdict: Verdict,
        facts: Mapping[str, Any],
        steps: Sequence[Sent],
        *,
        log: bytes,
        traffic: Iterable[Traffic],
        target: Target,
        transport: Transport,
    ) -> Path:
        """Write a failure folder and return its path."""
        folder = self.folder / "failures" / f"{len(self.failures) + 1:03d}-{verdict.kind}"
        folder.mkdir(parents=True)
        row = {"schema": SCHEMA, "kind": verdict.kind, "detail": verdict.detail}
        _write_json(folder / "failure.json", {**row, "signature": verdict.signature, **facts})
        write_steps(folder, steps)
        (folder / "log.txt").write_bytes(log)
        write_pcap(folder / "traffic.pcap", traffic, target, transport)
        self.failures.append(folder)
        return folder

    def close(self) -> None:
        """Close the list of cases."""
        os.close(self._cases)


def write_steps(folder: Path, steps: Sequence[Sent]) -> None:
    """Write the step list and the datagrams of a failure."""
    lines = [json.dumps(each.to_json(), separators=(",", ":")) + "\n" for each in steps]
    (folder / "steps.jsonl").write_text("".join(lines), encoding="utf-8")
    datagrams = folder / "datagrams"
    datagrams.mkdir(exist_ok=True)
    for old in datagrams.glob("*.bin"):
        old.unlink()
    for index, each in enumerate(steps[-_FILES_LIMIT:], start=1):
        (datagrams / f"{index:04d}.bin").write_bytes(each.octets)


def load_failure(folder: Path) -> Failure:
    """Read a failure folder.

    Raises:
        UsageError: it is none, or damaged.
    """
    try:
        facts = json.loads((folder / "failure.json").read_text(encoding="utf-8"))
        lines = (folder / "steps.jsonl").read_text(encoding="utf-8").splitlines()
        steps = tuple(Sent.from_json(json.loads(line)) for line in lines if line.strip())
        return Failure(folder, {**facts, "kind": str(facts["kind"])}, steps)
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise UsageError(f"{folder} is no failure folder: {error}") from error


def _write_json(path: Path, data: Mapping[str, Any]) -> None:
    path.write_text(json.dumps(data, indent=2) + "\n", encoding="utf-8")
