"""Cases that brought something new, kept to be mutated again: in memory, and in a folder that
several runs and workers may share.

An entry is a file `<name>.json`; its name is a hash of what is in it, so the same entry of two runs
is one file. What another run wrote is read with the care that any foreign file needs.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from netdissect.fuzz.cases import LATE_SIGN, Case, Step
from netdissect.fuzz.chance import Chance
from netdissect.fuzz.folder import Folder

__all__ = ["Corpus", "Entry"]

MAX_ENTRIES = 10_000
"""Entries of a corpus at most; what comes later is left out, and counted."""
MAX_ENTRY_OCTETS = 1 << 20
"""Bytes of one file at most."""
MAX_ENTRY_STEPS = 256
_SHARE = 2
"""One case in so many is made from the corpus, once there is one."""
_TIMES = 4
"""An entry is fresh for one mutant for each so many cases that had been sent before it: what is
hard to come by is worth more."""
_MUTANTS = (64, 2048)
"""Mutants for which an entry is fresh, at least and at most."""
_LATEST = 4
"""Fresh entries among which is chosen, the latest: what came last leads furthest."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One case of the corpus."""

    name: str
    """Sixteen hexadecimal digits."""
    stage: str
    """State of the session in which it is sent."""
    steps: tuple[Step, ...]
    """What is sent."""
    signs: tuple[str, ...] = ()
    """What it brought that was new."""
    case: int = 0
    """Number of the case that it was."""


class Corpus:
    """The entries of one protocol and dialect."""

    def __init__(self, folder: Path, protocol: str, dialect: str, stages: tuple[str, ...]) -> None:
        """Open the folder, made where it is missing, and take what it holds.

        Raises:
            UsageError: it cannot be made or opened.
        """
        self._folder = Folder.made(folder)
        self._facts = {"schema": 1, "protocol": protocol, "dialect": dialect}
        self._stages = stages
        self._names: set[str] = set()
        self.entries: list[Entry] = []
        """What was kept, in order of arrival."""
        self.signs: set[str] = set()
        """What the entries brought: it is not new any more."""
        self.left_out = 0
        """Files that were damaged, of another dialect, or too many."""
        self._fresh: list[tuple[Entry, int]] = []
        """Entries, with the mutants of each that are still to be made."""
        self.refresh()

    def refresh(self) -> None:
        """Take what other runs have added since the last time."""
        for name in sorted(set(self._folder.names()) - self._names):
            if not name.endswith(".json") or name.startswith("."):
                continue
            self._names.add(name)
            entry = self._read(name) if len(self.entries) < MAX_ENTRIES else None
            if entry is None:
                self.left_out += 1
            else:
                self._take(entry)

    def pick(self, chance: Chance) -> Entry | None:
        """Return the entry whose mutant is sent next, None where it is the turn of the seeds."""
        if not self.entries or not chance.one_in(_SHARE):
            return None
        if not self._fresh:
            return chance.choice(self.entries)
        # The latest stand last.
        at = len(self._fresh) - 1 - chance.below(min(_LATEST, len(self._fresh)))
        entry, left = self._fresh[at]
        self._fresh[at : at + 1] = [(entry, left - 1)] if left > 1 else []
        return entry

    def add(self, case: Case, signs: list[str]) -> None:
        """Keep a case that brought something new."""
        name = case.key().hex()[:16]
        file = f"{name}.json"
        if file in self._names:
            self.signs.update(signs)
            return
        self._names.add(file)
        if len(self.entries) >= MAX_ENTRIES:
            self.left_out += 1
            return
        row = {
            **self._facts,
            "stage": case.stage,
            "case": case.number,
            "mutation": case.mutation,
            "signs": signs,
            "steps": [step.to_json() for step in case.steps],
        }
        self._folder.write(file, json.dumps(row, indent=1).encode() + b"\n")
        self._take(Entry(name, case.stage, case.steps, tuple(signs), case.number))

    def close(self) -> None:
        """Close the folder."""
        self._folder.close()

    def _take(self, entry: Entry) -> None:
        self.entries.append(entry)
        self.signs.update(entry.signs)
        least, most = _MUTANTS
        if all(sign.startswith(LATE_SIGN) for sign in entry.signs):
            # Late answers say as much of a busy machine: such cases get few mutants.
            most = least
        self._fresh.append((entry, max(least, min(most, entry.case // _TIMES))))

    def _read(self, name: str) -> Entry | None:
        """Return the entry of a file, None where it is none of this dialect."""
        try:
            row = json.loads(self._folder.read(name, MAX_ENTRY_OCTETS))
            if any(row[key] != value for key, value in self._facts.items()):
                return None
            steps = tuple(Step.from_json(each) for each in row["steps"][:MAX_ENTRY_STEPS])
            stage, signs = str(row["stage"]), tuple(map(str, row.get("signs", ())))
            number = int(row.get("case", 0))
        except (  # whatever another run, or a person, has left there
            OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError, OverflowError,
        ):  # fmt: skip
            return None
        return Entry(name.removesuffix(".json"), stage, steps, signs, number) if (
            steps and stage in self._stages
        ) else None  # fmt: skip
