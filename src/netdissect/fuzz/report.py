"""The report of a run: what was sent in which state, what the target accepted, and its failures."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from netdissect.fuzz.drivers import Driver
from netdissect.fuzz.monitors import Verdict


@dataclass(slots=True)
class Finding:
    """One kind of failure."""

    verdict: Verdict
    """The first failure of this kind."""
    case: int
    """Number of the last case sent before it."""
    folders: list[Path] = field(default_factory=list)
    """Folders of its first examples."""
    count: int = 0
    """Number of times it was observed."""

    @property
    def folder(self) -> Path:
        """Return the folder of the first example."""
        return self.folders[0]

    @property
    def key(self) -> str:
        """Return the short name of this kind of failure, which is the same in every run."""
        return kind_key(self.verdict.signature)


def kind_key(signature: str) -> str:
    """Return eight hexadecimal digits that identify a kind of failure on the command line."""
    return hashlib.sha256(signature.encode()).hexdigest()[:8]


@dataclass(slots=True)
class FuzzReport:
    """The results of one run."""

    types: tuple[str, ...]
    """Message types of the dialect and of the seeds."""
    stages: tuple[str, ...]
    """States of a session in which messages can be sent."""
    seeds: int = 0
    """Number of seeds."""
    raw_seeds: int = 0
    """Number of seeds of which only the bytes can be mutated, not the fields."""
    cases: int = 0
    """Number of cases sent."""
    datagrams: int = 0
    """Number of messages sent, controls and mutants."""
    sessions: int = 0
    """Number of sessions that the target accepted."""
    held_seconds: float = 0.0
    """Longest time that one session was held, in seconds."""
    held_messages: int = 0
    """Number of messages sent in that time, in all sessions."""
    seconds: float = 0.0
    """Duration of the run in seconds, since it was last resumed."""
    earlier: int = 0
    """Cases sent before it was last resumed."""
    mutations: Counter[str] = field(default_factory=Counter)
    """Kind of mutation -> number of cases."""
    controls: Counter[tuple[str, str]] = field(default_factory=Counter)
    """(type, state) -> number of controls sent."""
    mutated: Counter[tuple[str, str]] = field(default_factory=Counter)
    """(type, state) -> number of mutants sent."""
    reached: Counter[tuple[str, str]] = field(default_factory=Counter)
    """(type, state) -> number of messages received from the target."""
    expected: Counter[str] = field(default_factory=Counter)
    """`control` or `mutant` -> number of messages sent that a target acknowledges if it accepts
    them."""
    accepted: Counter[str] = field(default_factory=Counter)
    """`control` or `mutant` -> number of those that it acknowledged."""
    undecided: int = 0
    """Number of controls in sessions that ended first; `expected` does not include them."""
    findings: dict[str, Finding] = field(default_factory=dict)
    """Signature -> failure."""
    masked: Counter[str] = field(default_factory=Counter)
    """Signature of a masked kind -> number of times it was observed."""
    held_back: Counter[tuple[str, str]] = field(default_factory=Counter)
    """(signature, facts) -> number of cases not sent because they have these facts in common with
    others that caused this kind of failure."""
    repeats: int = 0
    """Number of generated cases that were not sent because they had been sent before."""
    left_out: int = 0
    """Number of cases not sent because the target opens too few sessions for them."""
    kept: int = 0
    """Number of entries in the corpus, including those of other runs that share it."""
    edges: int | None = None
    """Number of edges of code that the target executed; None if it does not count them."""
    moves: Counter[tuple[str, str, str]] = field(default_factory=Counter)
    """(state, next state, message of the target that caused it or "") -> number of transitions."""
    slow: int = 0
    """Number of times the target answered only after it was given more time."""
    ended: str = "all cases sent"
    """Reason for the end of the run."""

    def sent(self, type_name: str, stage: str, *, control: bool) -> None:
        """Count one message."""
        self.datagrams += 1
        (self.controls if control else self.mutated)[type_name, stage] += 1

    def close_session(self, session: Driver) -> None:
        """Add the counts of a closed session."""
        self.reached.update(session.received)
        self.moves.update(session.moves)
        self.expected.update(session.expected)
        self.accepted.update(session.accepted)
        undecided = session.undecided()
        self.undecided += undecided
        self.expected["control"] -= undecided

    def add(self, other: FuzzReport) -> None:
        """Add the report of another worker of the same run."""
        for name in ("cases", "earlier", "datagrams", "sessions", "undecided", "repeats",
                     "left_out", "slow"):  # fmt: skip
            setattr(self, name, getattr(self, name) + getattr(other, name))
        if other.held_seconds > self.held_seconds:
            self.held_seconds, self.held_messages = other.held_seconds, other.held_messages
        # All workers share one clock and one corpus, so these are not summed.
        for name in ("seconds", "kept"):
            setattr(self, name, max(getattr(self, name), getattr(other, name)))
        for name in ("mutations", "controls", "mutated", "reached", "expected", "accepted",
                     "masked", "held_back", "moves"):  # fmt: skip
            getattr(self, name).update(getattr(other, name))
        if other.edges is not None:
            self.edges = max(self.edges or 0, other.edges)
        self.types = tuple(sorted({*self.types, *other.types}))
        if other.ended.startswith(self.ended):
            self.ended = other.ended
        elif other.ended not in self.ended:
            self.ended += f"; {other.ended}"
        for signature, finding in other.findings.items():
            known = self.findings.get(signature)
            if known is None:
                self.findings[signature] = finding
            else:
                known.count += finding.count
                known.folders += finding.folders

    def cases_per_second(self) -> float:
        """Return the rate since the run was last resumed."""
        return (self.cases - self.earlier) / self.seconds if self.seconds else 0.0

    def held_rate(self) -> float:
        """Return the messages per second sent while the longest session was held."""
        return self.held_messages / self.held_seconds if self.held_seconds else 0.0

    def share(self, kind: str) -> float | None:
        """Return the accepted share of controls or mutants; None if none is expected."""
        expected = self.expected[kind]
        return self.accepted[kind] / expected if expected else None

    def never(self) -> list[tuple[str, str]]:
        """Return the (type, state) pairs without a mutant."""
        return [
            (name, stage)
            for name in self.types
            for stage in self.stages
            if not self.mutated[name, stage]
        ]

    def to_json(self) -> dict[str, Any]:
        """Return the report as JSON values."""
        return {
            "cases": self.cases,
            "datagrams": self.datagrams,
            "sessions": self.sessions,
            "held_seconds": round(self.held_seconds, 3),
            "held_messages": self.held_messages,
            "seconds": round(self.seconds, 3),
            "earlier": self.earlier,
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
            "held_back": [
                {"key": kind_key(signature), "facts": facts, "cases": count}
                for (signature, facts), count in self.held_back.items()
            ],
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
