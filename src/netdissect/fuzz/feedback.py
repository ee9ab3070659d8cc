"""What a target shows of itself without its source: a case that makes it do something for the first
time is worth mutating again.

Signs are short sentences: a type of answer in a state, a class of time, a line of the log without
its numbers, an edge of code where the target was built to count them.
"""

from __future__ import annotations

import mmap
import os
from collections import OrderedDict
from dataclasses import replace
from pathlib import Path

from netdissect.fuzz.cases import Case
from netdissect.fuzz.corpus import Corpus
from netdissect.fuzz.crashes import without_numbers
from netdissect.fuzz.folder import open_new
from netdissect.fuzz.monitors import ProcessMonitor

__all__ = ["COVERAGE_OCTETS", "Coverage", "Feedback"]

COVERAGE_OCTETS = 1 << 16
"""Size of the map in which a target counts the edges that it has run through."""
COVERAGE_VARIABLE = "NETDISSECT_COVERAGE"
"""Names the file of that map to the target."""
_SESSIONS_LIMIT = 64
"""Sessions of which the last cases are remembered."""
_TOGETHER_LIMIT = 4
"""Cases on end at most that may have brought a sign."""
_SIGNS_LIMIT = 100_000
"""Signs that are told apart; more are nothing new."""
_LINES_LIMIT = 1000
"""Lines of the log that are told apart: a target that prints what it was sent never ends."""
_LINE_OCTETS = 200
_LOG_OCTETS = 1 << 16
"""Bytes of the log that are read after one case."""


class Coverage:
    """A file of counters that the target shares: byte N is not 0 once edge N was run through."""

    def __init__(self, path: Path) -> None:
        """Make the file."""
        fd = open_new(path)
        try:
            os.ftruncate(fd, COVERAGE_OCTETS)
            self._map = mmap.mmap(fd, COVERAGE_OCTETS)
        finally:
            os.close(fd)
        self._seen = bytes(COVERAGE_OCTETS)
        self.edges = 0
        """Edges run through so far."""

    def news(self) -> list[int]:
        """Return the edges that were run through since the last call for the first time."""
        now = self._map[:]
        if now == self._seen:
            return []
        new = [at for at, count in enumerate(now) if count and not self._seen[at]]
        self._seen = now
        self.edges += len(new)
        return new

    def close(self) -> None:
        """Let go of the file."""
        self._map.close()


class Feedback:
    """Attributes signs to cases, and keeps those that brought a new one."""

    def __init__(
        self, corpus: Corpus, process: ProcessMonitor | None, coverage: Coverage | None = None
    ) -> None:
        self.corpus = corpus
        """What was kept."""
        self.coverage = coverage
        """The target's counters, None where it does not run here."""
        self._process = process
        self._known = set(corpus.signs)
        self._lines = sum(sign.startswith("log: ") for sign in self._known)
        self._log_at = 0
        self._noticed: list[tuple[int, str]] = []
        self._last: OrderedDict[int, list[Case]] = OrderedDict()
        self._found: dict[bytes, tuple[Case, list[str]]] = {}
        self._latest: list[Case] = []

    def notice(self, session: int, sign: str) -> None:
        """Take a sign of a session, by its number."""
        if sign not in self._known and len(self._known) < _SIGNS_LIMIT:
            self._known.add(sign)
            self._noticed.append((session, sign))

    def sent(self, session: int, case: Case, *, alone: bool = True) -> None:
        """Note which case a session had last. What has come until now is due to those before.

        Args:
            session: its number.
            case: what was sent.
            alone: what comes from now on is due to this one: the target had its time for those
                before. Else it may be due to them too, and all are kept together.
        """
        self.settle()
        before = [] if alone else self._last.get(session, [])
        self._last[session] = self._latest = [*before[1 - _TOGETHER_LIMIT :], case]
        self._last.move_to_end(session)
        while len(self._last) > _SESSIONS_LIMIT:
            self._last.popitem(last=False)

    def settle(self) -> None:
        """Note the cases that brought what was noticed since the last time."""
        for session, sign in self._noticed:
            self._note(self._last.get(session, []), sign)
        self._noticed.clear()
        for sign in (*self._log_lines(), *self._edges()):
            if sign not in self._known and len(self._known) < _SIGNS_LIMIT:
                self._known.add(sign)
                self._note(self._latest, sign)

    def keep(self) -> None:
        """Keep the cases noted: the target is well."""
        self.settle()
        for case, signs in self._found.values():
            self.corpus.add(case, signs)
        self._found.clear()

    def drop(self) -> None:
        """Drop the cases noted: the target has failed, and what led there is kept as a failure."""
        self.settle()
        self._found.clear()
        self._last.clear()
        self._latest = []

    def refresh(self) -> None:
        """Take what other runs have found: it is not new here either."""
        self.corpus.refresh()
        self._known |= self.corpus.signs

    def close(self) -> None:
        """Keep what came last; close the files."""
        self.keep()
        self.corpus.close()
        if self.coverage is not None:
            self.coverage.close()

    def _note(self, cases: list[Case], sign: str) -> None:
        """Good messages are what the seeds are: only mutants are worth keeping."""
        mutants = [each for each in cases if not each.is_control]
        if mutants:
            steps = tuple(step for each in mutants for step in each.steps)
            case = replace(mutants[-1], steps=steps)
            self._found.setdefault(case.key(), (case, []))[1].append(sign)

    def _log_lines(self) -> list[str]:
        if self._process is None:
            return []
        octets = self._process.printed(self._log_at, _LOG_OCTETS)
        # A line that is not yet whole is read again.
        end = octets.rfind(b"\n") + 1 or (len(octets) if len(octets) == _LOG_OCTETS else 0)
        self._log_at += end
        signs = []
        for line in octets[:end].split(b"\n"):
            text = line[:_LINE_OCTETS].decode("utf-8", "replace").strip()
            sign = f"log: {without_numbers(text)}"
            if text and sign not in self._known and self._lines < _LINES_LIMIT:
                self._lines += 1
                signs.append(sign)
        return signs

    def _edges(self) -> list[str]:
        edges = [] if self.coverage is None else self.coverage.news()
        return [f"edge {edge}" for edge in edges]
