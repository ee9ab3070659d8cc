"""The corpus: cases that brought something new and are mutated again. It is kept in memory and in a
folder that several runs and workers may share.

An entry is a file `<name>.json` whose name is a hash of the case, so that the same case of two runs
is one file. Files written by other runs are validated like any foreign file.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from netdissect.fuzz.cases import LATE_SIGN, Case, Step
from netdissect.fuzz.chance import Chance
from netdissect.fuzz.folder import Folder

MAX_ENTRIES = 10_000
"""Maximum number of entries; further ones are left out and counted."""
MAX_ENTRY_OCTETS = 1 << 20
"""Maximum size of one file, in bytes."""
MAX_ENTRY_STEPS = 256
_SHARE = 2
"""Once there is an entry, one case in this many is made from the corpus."""
_TIMES = 4
"""An entry stays fresh for one mutant per this many cases sent before it: what took longer to find
is worth more mutants, ..."""
_MUTANTS = (64, 2048)
"""... at least and at most this many."""
_LATEST = 4
"""The next mutant is made from one of this many of the latest fresh entries, which lead furthest.
"""


@dataclass(frozen=True, slots=True)
class Entry:
    """One case of the corpus."""

    name: str
    """Sixteen hexadecimal digits."""
    stage: str
    """State of the session in which it is sent."""
    steps: tuple[Step, ...]
    """The steps to send."""
    signs: tuple[str, ...] = ()
    """The new signs that it brought."""
    case: int = 0
    """Number of the case that became this entry."""


class Corpus:
    """The entries of one protocol and dialect."""

    def __init__(self, folder: Path, protocol: str, dialect: str, stages: tuple[str, ...]) -> None:
        """Open the folder, created if missing, and read its entries.

        Raises:
            UsageError: the folder cannot be created or opened.
        """
        self._folder = Folder.made(folder)
        self._facts = {"schema": 1, "protocol": protocol, "dialect": dialect}
        self._stages = stages
        self._names: set[str] = set()
        self.entries: list[Entry] = []
        """All entries, in the order in which they were added."""
        self.signs: set[str] = set()
        """All signs that entries brought; none of them is new any more."""
        self.left_out = 0
        """Number of files that were damaged, of another dialect, or too many."""
        self._fresh: list[tuple[Entry, int]] = []
        """(entry, number of mutants for which it stays fresh), oldest first."""
        self.refresh()

    def refresh(self) -> None:
        """Read the entries that other runs have added since the last call."""
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
        """Return the entry to mutate next; None if a seed is to be mutated."""
        if not self.entries or not chance.one_in(_SHARE):
            return None
        if not self._fresh:
            return chance.choice(self.entries)
        at = len(self._fresh) - 1 - chance.below(min(_LATEST, len(self._fresh)))
        entry, left = self._fresh[at]
        self._fresh[at : at + 1] = [(entry, left - 1)] if left > 1 else []
        return entry

    def add(self, case: Case, signs: list[str]) -> None:
        """Add a case that brought something new."""
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
            # Slow answers may be due to a busy machine, so such cases get few mutants.
            most = least
        self._fresh.append((entry, max(least, min(most, entry.case // _TIMES))))

    def _read(self, name: str) -> Entry | None:
        """Return the entry in a file; None if it is invalid or of another dialect."""
        try:
            row = json.loads(self._folder.read(name, MAX_ENTRY_OCTETS))
            if any(row[key] != value for key, value in self._facts.items()):
                return None
            steps = tuple(Step.from_json(each) for each in row["steps"][:MAX_ENTRY_STEPS])
            stage, signs = str(row["stage"]), tuple(map(str, row.get("signs", ())))
            number = int(row.get("case", 0))
        except (  # the file may hold anything
            OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError, OverflowError,
        ):  # fmt: skip
            return None
        return Entry(name.removesuffix(".json"), stage, steps, signs, number) if (
            steps and stage in self._stages
        ) else None  # fmt: skip
