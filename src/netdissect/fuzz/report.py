"""The account of a run: what was sent in which state, what the target took, what it failed at."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from netdissect.fuzz.drivers import Driver
from netdissect.fuzz.monitors import Verdict

__all__ = ["Finding", "FuzzReport", "kind_key"]


@dataclass(slots=True)
class Finding:
    """One kind of failure."""

    verdict: Verdict
    """What was seen first."""
    case: int
    """The last case before it was seen."""
    folders: list[Path] = field(default_factory=list)
    """Where its first examples are kept."""
    count: int = 0
    """How often it was seen."""

    @property
    def folder(self) -> Path:
        """Return where the first example is kept."""
        return self.folders[0]

    @property
    def key(self) -> str:
        """Return the short name of this kind of failure: the same in every run."""
        return kind_key(self.verdict.signature)


def kind_key(signature: str) -> str:
    """Return eight hexadecimal digits that stand for a kind of failure on a command line."""
    return hashlib.sha256(signature.encode()).hexdigest()[:8]


@dataclass(slots=True)
class FuzzReport:
    """What happened. All counts are of this run."""

    types: tuple[str, ...]
    """Message types of the dialect and of the seeds."""
    stages: tuple[str, ...]
    """States of a session in which messages can be sent."""
    seeds: int = 0
    """Seeds mutated."""
    raw_seeds: int = 0
    """Seeds of which only the bytes can be mutated, not the fields."""
    cases: int = 0
    """Cases sent."""
    datagrams: int = 0
    """Messages sent, controls and mutants."""
    sessions: int = 0
    """Sessions that the target let in."""
    held_seconds: float = 0.0
    """Time that one session was held at the longest."""
    seconds: float = 0.0
    """Wall-clock time."""
    mutations: Counter[str] = field(default_factory=Counter)
    """Kind of mutation -> cases."""
    controls: Counter[tuple[str, str]] = field(default_factory=Counter)
    """(type, state) -> messages sent as they were."""
    mutated: Counter[tuple[str, str]] = field(default_factory=Counter)
    """(type, state) -> mutants sent."""
    reached: Counter[tuple[str, str]] = field(default_factory=Counter)
    """(type, state) -> messages of the target."""
    expected: Counter[str] = field(default_factory=Counter)
    """"control" or "mutant" -> messages that a target acknowledges when it accepts them."""
    accepted: Counter[str] = field(default_factory=Counter)
    """"control" or "mutant" -> those that it acknowledged."""
    undecided: int = 0
    """Controls in sessions that were over before; they are not among the expected ones."""
    findings: dict[str, Finding] = field(default_factory=dict)
    """Signature -> failure."""
    masked: Counter[str] = field(default_factory=Counter)
    """Signature of a kind that the user masks -> how often it was seen."""
    repeats: int = 0
    """Cases that were not sent because they had been sent before."""
    left_out: int = 0
    """Cases that need a session of their own and were not sent: the target opens too few."""
    kept: int = 0
    """Cases of the corpus: they brought something new, here or in a run that shares it."""
    edges: int | None = None
    """Edges of code that the target ran through; None where it does not count them."""
    moves: Counter[tuple[str, str, str]] = field(default_factory=Counter)
    """(state, next state, message of the target that caused it or "") -> how often."""
    slow: int = 0
    """How often the target answered only when it was given more time."""
    ended: str = "all cases sent"
    """Why the run ended."""

    def sent(self, type_name: str, stage: str, *, control: bool) -> None:
        """Count one message."""
        self.datagrams += 1
        (self.controls if control else self.mutated)[type_name, stage] += 1

    def close_session(self, session: Driver) -> None:
        """Add what a session saw."""
        self.reached.update(session.received)
        self.moves.update(session.moves)
        self.expected.update(session.expected)
        self.accepted.update(session.accepted)
        undecided = session.undecided()
        self.undecided += undecided
        self.expected["control"] -= undecided

    def add(self, other: FuzzReport) -> None:
        """Add the account of another worker of the same run."""
        for name in ("cases", "datagrams", "sessions", "undecided", "repeats", "left_out", "slow"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        # One clock and one corpus for all: these are no sums.
        for name in ("seconds", "held_seconds", "kept"):
            setattr(self, name, max(getattr(self, name), getattr(other, name)))
        for name in ("mutations", "controls", "mutated", "reached", "expected", "accepted",
                     "masked", "moves"):  # fmt: skip
            getattr(self, name).update(getattr(other, name))
        if other.edges is not None:
            self.edges = max(self.edges or 0, other.edges)
        self.types = tuple(sorted({*self.types, *other.types}))
        if other.ended not in self.ended.split("; "):
            self.ended += f"; {other.ended}"
        for signature, finding in other.findings.items():
            known = self.findings.get(signature)
            if known is None:
                self.findings[signature] = finding
            else:
                known.count += finding.count
                known.folders += finding.folders

    def share(self, kind: str) -> float | None:
        """Return the accepted share of controls or mutants, None where nothing could be told."""
        expected = self.expected[kind]
        return self.accepted[kind] / expected if expected else None

    def never(self) -> list[tuple[str, str]]:
        """Return the (type, state) pairs in which no mutant was sent."""
        return [
            (name, stage)
            for name in self.types
            for stage in self.stages
            if not self.mutated[name, stage]
        ]

    def to_json(self) -> dict[str, Any]:
        """Return the report as plain values."""
        return {
            "cases": self.cases,
            "datagrams": self.datagrams,
            "sessions": self.sessions,
            "held_seconds": round(self.held_seconds, 3),
            "seconds": round(self.seconds, 3),
            "ended": self.ended,
            "seeds": {"total": self.seeds, "raw": self.raw_seeds},
            "mutations": dict(sorted(self.mutations.items())),
            "accepted": {
                kind: {
                    "expected": self.expected[kind],
                    "acknowledged": self.accepted[kind],
                    "share": self.share(kind),
                }
                for kind in ("control", "mutant")
            },
            "undecided": self.undecided,
            "coverage": [
                {
                    "type": name,
                    "state": stage,
                    "sent": self.controls[name, stage],
                    "mutated": self.mutated[name, stage],
                    "received": self.reached[name, stage],
                }
                for name, stage in self._pairs()
            ],
            "never_mutated": [list(pair) for pair in self.never()],
            "moves": [
                {"from": before, "to": after, "message": cause or None, "count": count}
                for (before, after, cause), count in sorted(self.moves.items())
            ],
            "corpus": self.kept,
            "edges": self.edges,
            "left_out": {"repeats": self.repeats, "no_session": self.left_out},
            "slow_answers": self.slow,
            "failures": [self._finding(each) for each in self.findings.values()],
            "masked": dict(self.masked),
        }

    def _pairs(self) -> Sequence[tuple[str, str]]:
        known = {(name, stage) for name in self.types for stage in self.stages}
        order = {stage: index for index, stage in enumerate(self.stages)}
        pairs = known | set(self.controls) | set(self.mutated) | set(self.reached)
        return sorted(pairs, key=lambda pair: (order.get(pair[1], len(order)), pair[1], pair[0]))

    def _finding(self, finding: Finding) -> dict[str, Any]:
        return {
            "key": finding.key,
            "kind": finding.verdict.kind,
            "signature": finding.verdict.signature,
            "detail": finding.verdict.detail,
            "case": finding.case,
            "count": finding.count,
            "folder": str(finding.folder),
            "folders": [str(each) for each in finding.folders],
        }
