"""Feedback from the target without its source: a case that makes it do something for the first time
is worth mutating again.

A sign is a short text: a type of answer in a state, a class of answer time, a line of the log
without its numbers, or an edge of the code if the target was built to count edges.
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

COVERAGE_OCTETS = 1 << 16
"""Size of the map in which a target counts the edges that it executes."""
COVERAGE_VARIABLE = "NETDISSECT_COVERAGE"
"""Environment variable that tells the target the path of the map."""
_SESSIONS_LIMIT = 64
"""Maximum number of sessions whose latest cases are remembered."""
_TOGETHER_LIMIT = 4
"""Maximum number of consecutive cases to which a sign is attributed."""
_SIGNS_LIMIT = 100_000
"""Maximum number of distinct signs; further ones are ignored."""
_LINES_LIMIT = 1000
"""Maximum number of distinct log lines that are signs: a target may print whatever it was sent."""
_LINE_OCTETS = 200
_LOG_OCTETS = 1 << 16
"""Bytes of the log read after one case."""


class Coverage:
    """A map of counters shared with the target: byte N is not 0 once edge N was executed."""

    def __init__(self, path: Path) -> None:
        """Create the file."""
        fd = open_new(path)
        try:
            os.ftruncate(fd, COVERAGE_OCTETS)
            self._map = mmap.mmap(fd, COVERAGE_OCTETS)
        finally:
            os.close(fd)
        self._seen = bytes(COVERAGE_OCTETS)
        self.edges = 0
        """Number of edges executed so far."""

    def new_edges(self) -> list[int]:
        """Return the edges executed for the first time since the last call."""
        now = self._map[:]
        if now == self._seen:
            return []
        new = [at for at, count in enumerate(now) if count and not self._seen[at]]
        self._seen = now
        self.edges += len(new)
        return new

    def close(self) -> None:
        """Unmap the file."""
        self._map.close()


class Feedback:
    """Attributes signs to cases, and adds those that brought a new one to the corpus."""

    def __init__(
        self, corpus: Corpus, process: ProcessMonitor | None, coverage: Coverage | None = None
    ) -> None:
        self.corpus = corpus
        """The entries so far."""
        self.coverage = coverage
        """The target's counters; None if this run did not start it."""
        self._process = process
        self._known = set(corpus.signs)
        self._lines = sum(sign.startswith("log: ") for sign in self._known)
        self._log_at = 0
        """Offset in the log up to which its lines were read."""
        self._noticed: list[tuple[int, str]] = []
        """(session, new sign) since the last case was sent."""
        self._last: OrderedDict[int, list[Case]] = OrderedDict()
        """Session -> the cases to which a sign in it is attributed."""
        self._found: dict[bytes, tuple[Case, list[str]]] = {}
        """Key of a case -> (case, new signs) until the target is known to be well."""
        self._latest: list[Case] = []
        """The same as in `_last` for signs that belong to no session."""

    def notice(self, session: int, sign: str) -> None:
        """Note a sign in session number `session`."""
        if sign not in self._known and len(self._known) < _SIGNS_LIMIT:
            self._known.add(sign)
            self._noticed.append((session, sign))

    def sent(self, session: int, case: Case, *, alone: bool = True) -> None:
        """Note that a case is sent in a session. All signs until now are due to earlier cases.

        Args:
            session: number of the session.
            case: the case.
            alone: True if the target had time to react to the earlier cases, so that signs from
                now on are due to this one. Otherwise they are attributed to all of them together.
        """
        self.settle()
        before = [] if alone else self._last.get(session, [])
        self._last[session] = self._latest = [*before[1 - _TOGETHER_LIMIT :], case]
        self._last.move_to_end(session)
        while len(self._last) > _SESSIONS_LIMIT:
            self._last.popitem(last=False)

    def settle(self) -> None:
        """Attribute the signs noticed since the last call to cases."""
        for session, sign in self._noticed:
            self._note(self._last.get(session, []), sign)
        self._noticed.clear()
        edges = [] if self.coverage is None else self.coverage.new_edges()
        for sign in (*self._log_lines(), *(f"edge {edge}" for edge in edges)):
            if sign not in self._known and len(self._known) < _SIGNS_LIMIT:
                self._known.add(sign)
                self._note(self._latest, sign)

    def keep(self) -> None:
        """Add the noted cases to the corpus; called when the target is well."""
        self.settle()
        for case, signs in self._found.values():
            self.corpus.add(case, signs)
        self._found.clear()

    def drop(self) -> None:
        """Discard the noted cases: the target has failed, and they are saved as a failure."""
        self.settle()
        self._found.clear()
        self._last.clear()
        self._latest = []

    def refresh(self) -> None:
        """Read what other runs have found, which is not new here either."""
        self.corpus.refresh()
        self._known |= self.corpus.signs

    def close(self) -> None:
        """Keep the last cases and close the files."""
        self.keep()
        self.corpus.close()
        if self.coverage is not None:
            self.coverage.close()

    def _note(self, cases: list[Case], sign: str) -> None:
        """Note the mutants among `cases` for a sign; controls are what the seeds already hold."""
        mutants = [each for each in cases if not each.is_control]
        if mutants:
            steps = tuple(step for each in mutants for step in each.steps)
            case = replace(mutants[-1], steps=steps)
            self._found.setdefault(case.key(), (case, []))[1].append(sign)

    def _log_lines(self) -> list[str]:
        if self._process is None:
            return []
        octets = self._process.printed(self._log_at, _LOG_OCTETS)
        # An incomplete line is read again later.
        # A line longer than what is read at once counts as it is, or nothing after it would be
        # read.
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
