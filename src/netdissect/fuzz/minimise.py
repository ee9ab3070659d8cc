"""Reduces a failing list of steps by delta debugging, then the bytes of the remaining steps.

Source: Zeller, Hildebrandt: Simplifying and Isolating Failure-Inducing Input, 2002 (ddmin). Since a
failure shows soon after its cause, the last steps are tried alone first.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TypeVar

from netdissect.fuzz.folder import Folder
from netdissect.fuzz.monitors import Verdict
from netdissect.fuzz.replay import Replayer
from netdissect.fuzz.store import Failure, Sent, write_failure
from netdissect.model.errors import UsageError
from netdissect.model.text import quoted

_T = TypeVar("_T")
_SIMPLE_OCTET = 0
_OCTET_TRIALS = 120
"""Maximum number of replays spent on bytes, which make the result more readable, not shorter."""


class _BudgetSpentError(Exception):
    """The allowed number of trials is used up."""


def ddmin(items: Sequence[_T], fails: Callable[[Sequence[_T]], bool]) -> list[_T]:
    """Return a subsequence of `items` that still fails and from which no single item can be
    removed.

    Args:
        items: a list for which `fails` is true.
        fails: returns whether a subsequence still fails; called a few times at most for each.
    """
    left = list(items)
    parts = 2
    while len(left) > 1:
        size = -(-len(left) // parts)
        cuts = [(at, min(at + size, len(left))) for at in range(0, len(left), size)]
        for start, end in cuts:
            rest = left[:start] + left[end:]
            if rest and fails(rest):
                left = rest
                parts = max(2, parts - 1)
                break
        else:
            if size == 1:
                return left
            parts = min(len(left), 2 * parts)
    return left


@dataclass(frozen=True, slots=True)
class Minimised:
    """The result of minimising a failure."""

    steps: tuple[Sent, ...]
    """Steps that still make the target fail."""
    trials: int
    """Number of trials."""
    complete: bool
    """False if the search for the shortest list ended because the trials were used up."""
    failed: int = 0
    """Number of failures when the steps were replayed again at the end."""
    tries: int = 0
    """Number of these replays."""


@dataclass(slots=True)
class Minimiser:
    """Minimises one failure against a target that can be restarted."""

    replayer: Replayer
    """Replays candidates."""
    kind: str
    """Kind of verdict that counts as the same failure."""
    signature: str = ""
    """Its signature: if the whole list produces it again, every candidate has to."""
    trials: int = 400
    """Maximum number of trials."""
    progress: Callable[[int, int], None] = lambda _trials, _left: None
    """Called with (trials done, steps left)."""
    tries: int = 1
    """Number of replays of a candidate before it counts as harmless."""
    _done: int = field(default=0, init=False)
    _well: bool = field(default=False, init=False)
    _strict: bool = field(default=False, init=False)
    _best: list[Sent] = field(default_factory=list, init=False)

    def run(self, steps: Sequence[Sent]) -> Minimised:
        """Return the shortest list found.

        Raises:
            UsageError: the whole list does not make the target fail, or no longer does.
        """
        self._best = list(steps)
        verdict = self._replays(list(steps))
        self._strict = verdict is not None and verdict.signature == self.signature
        if verdict is None or verdict.kind != self.kind:
            raise UsageError(
                f"the {len(steps)} steps do not make the target fail again with "
                f"{quoted(self.kind)}: is it the same target, in the same state?"
            )
        complete = True
        try:
            self._shrink_list()
        except _BudgetSpentError:
            complete = False
        self.trials = min(self.trials, self._done + _OCTET_TRIALS)
        with suppress(_BudgetSpentError):
            self._shrink_octets()
        return Minimised(tuple(self._best), self._done, complete)

    def _shrink_list(self) -> None:
        size = 1
        whole = self._best
        while size < len(whole):
            if self._try(whole[-size:]):
                break
            size *= 2
        ddmin(self._best, self._try)

    def _shrink_octets(self) -> None:
        """Shorten each remaining message, then set its bytes to 0, in ever smaller blocks."""
        for index in range(len(self._best)):
            fails = self._octets_of(index)
            ddmin(list(self._best[index].step.octets), fails)
            size = len(self._best[index].step.octets)
            while size:
                self._clear_blocks(index, size, fails)
                size //= 2

    def _clear_blocks(self, index: int, size: int, fails: Callable[[Sequence[int]], bool]) -> None:
        """Set those blocks of a message to 0 without which it still fails."""
        for at in range(0, len(self._best[index].step.octets), size):
            octets = list(self._best[index].step.octets)
            block = octets[at : at + size]
            if any(octet != _SIMPLE_OCTET for octet in block):
                fails([*octets[:at], *[_SIMPLE_OCTET] * len(block), *octets[at + size :]])

    def _octets_of(self, index: int) -> Callable[[Sequence[int]], bool]:
        def fails(octets: Sequence[int]) -> bool:
            steps = list(self._best)
            step = steps[index].step.with_octets(bytes(octets))
            steps[index] = replace(steps[index], step=step, octets=bytes(octets))
            return self._try(steps)

        return fails

    def _try(self, steps: Sequence[Sent]) -> bool:
        """Return whether the steps fail; if so, make them the current result."""
        if self._done >= self.trials:
            raise _BudgetSpentError
        if not self._fails(steps):
            return False
        self._best = list(steps)
        self.progress(self._done, len(self._best))
        return True

    def _fails(self, steps: Sequence[Sent]) -> bool:
        verdict = self._replays(steps)
        if verdict is None or verdict.kind != self.kind:
            return False
        return not self._strict or verdict.signature == self.signature

    def _replays(self, steps: Sequence[Sent]) -> Verdict | None:
        """Return the failure of the first try that fails, None if none does."""
        self._done += 1
        for _ in range(self.tries):
            verdict = self._replay(steps)
            if verdict is not None:
                return verdict
        return None

    def _replay(self, steps: Sequence[Sent]) -> Verdict | None:
        # A target that survived the last candidate is used again; one that failed is restarted.
        if not self._well and not self.replayer.fresh_target():
            raise UsageError(f"the target cannot be reached: {self.replayer.watch.trouble}")
        verdict, _octets = self.replayer.run(steps)
        self._well = verdict is None
        return verdict


def check_place(folder: Path) -> None:
    """Make sure, before hours of trials, that `save_minimal` may write into a failure's folder.

    Raises:
        UsageError: something else is there, such as a symbolic link, or a folder for a file.
    """
    found = folder / "minimal"
    if not os.access(folder, os.W_OK):
        raise UsageError(f"cannot write {found}: Permission denied")
    for path in (found, found / "datagrams"):
        if path.is_symlink() or (path.exists() and not path.is_dir()):
            raise UsageError(f"cannot write {path}: Not a directory")
        if path.exists() and not os.access(path, os.W_OK):
            raise UsageError(f"cannot write {path}: Permission denied")
    files = (found / "failure.json", found / "steps.jsonl", *found.glob("datagrams/*.bin"))
    for path in files:
        if path.is_dir() and not path.is_symlink():
            raise UsageError(f"cannot write {path}: Is a directory")


def save_minimal(failure: Failure, result: Minimised, sent: Sequence[bytes]) -> Path:
    """Write the result as a failure folder `minimal` inside the failure's, and return its path.

    Raises:
        UsageError: it cannot be written there.
    """
    facts = {
        **failure.facts,
        "minimised_from": len(failure.steps),
        "trials": result.trials,
        "complete": result.complete,
        "failed": result.failed,
        "tries": result.tries,
    }
    steps = [replace(each, octets=octets) for each, octets in zip(result.steps, sent, strict=False)]
    # The target may fail before the last step, or not be there for the last try.
    steps += result.steps[len(sent) :]
    try:
        with Folder(failure.folder) as outside, outside.inside("minimal") as folder:
            write_failure(folder, facts, steps)
    except OSError as error:
        raise UsageError(f"cannot write {failure.folder / 'minimal'}: {error.strerror}") from error
    return folder.path
