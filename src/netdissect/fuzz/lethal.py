"""Learns from failures which cases are lethal, so that the target is not ended by the same over and
over again.

A case is described by facts: the types of its messages, what the dissector finds wrong with them,
and what was mutated. Cases that share the shortest combination of facts that the target has never
survived with one that ended it are held back. This is version-space learning with a single rule;
since it may be wrong, or hide another failure, a few of those held back are sent all the same.
"""

from __future__ import annotations

import math
import re
from collections import Counter, OrderedDict, deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache, lru_cache, reduce
from itertools import combinations
from operator import and_

from netdissect.dissect import dissect
from netdissect.dissect.engine import Request
from netdissect.fuzz.cases import CONNECTED, Case
from netdissect.fuzz.crashes import without_numbers
from netdissect.protocols import registry

Facts = frozenset[str]
"""What describes a case."""

_MUTATION = "mutation "
"""Begins the fact that says how a case was made."""
_SUSPECTS_LIMIT = 64
_FEW_SUSPECTS = 8
"""If none of the suspects is more likely than the others, all are avoided, unless there are more of
them than one for so many survivors."""
_PAIRED_LIMIT = 16
"""If a case has more facts than this, pairs of them are not considered."""
_FAILURES_LIMIT = 256
"""Maximum number of failures from which is learnt."""
_NUMBER = re.compile(r"\b(?!0\b)\w*\d[\w.]*")
"""A number, or what holds digits; not zero."""
_EXCESS = 2
"""Facts that survivors have explain failures only if they are so many times as frequent there."""
_SURVIVORS_LIMIT = 4000
"""Maximum number of different sets of facts that the target survived; later ones are ignored."""
_PAST_LIMIT = 1000
"""Survived cases remembered before the first failure; their facts are read only after it."""
_DARES = 4
"""So many cases that are expected to fail are sent for each mask, ..."""
_CASES_PER_DARE = 200
"""... and another one for so many cases of the run."""
_DARED_LIMIT = 256
"""Maximum number of masks for which this is counted."""
_POSTPONED_LIMIT = 200
"""Maximum number of cases that wait for a trial."""
_TRIED_LIMIT = 1 << 16
"""Maximum number of facts, and of pairs of them, that are known to be survived; beyond this,
everything counts as tried."""


@dataclass(frozen=True, slots=True)
class Mask:
    """Cases to hold back."""

    facts: Facts
    """Facts that they have in common."""
    signature: str
    """The failure that they are expected to cause."""

    @property
    def text(self) -> str:
        """Return the facts as text."""
        return ", ".join(sorted(self.facts))


class Lethal:
    """Tells which cases are expected to end the target."""

    def __init__(self, protocol: str, dialect: str, transport: str) -> None:
        self._protocol = protocol
        self._request = Request(dialect, None, transport)
        self._module = registry.get(protocol).layer_module
        self._message = lru_cache(512)(self._message_facts)
        self._past: deque[Case] = deque(maxlen=_PAST_LIMIT)
        self._survived: set[Facts] = set()
        self._survivors: dict[str, int] = {}
        """Fact -> one bit for each survivor that has it."""
        self._failures: deque[tuple[str, list[Facts]]] = deque(maxlen=_FAILURES_LIMIT)
        self._known: set[str] = set()
        self._dared: Counter[Facts] = Counter()
        """Facts of a mask -> cases that were sent although it expects them to fail."""
        self._postponed: OrderedDict[Facts, Case] = OrderedDict()
        self._tried: set[tuple[str, ...]] = set()
        self.masks: list[Mask] = []
        """What is held back."""

    def survived(self, case: Case) -> None:
        """Note that the target is well after a case."""
        if not self._failures:
            self._past.append(case)
            return
        self._try(case)
        facts = self._facts(case)
        if facts not in self._survived and len(self._survived) < _SURVIVORS_LIMIT:
            self._survive(facts)
            if any(mask.facts <= facts for mask in self.masks):
                self._learn()

    def killed(self, suspects: Iterable[Case], signature: str, *, known: bool) -> None:
        """Note that one of these cases ended the target.

        Args:
            suspects: the cases.
            signature: the kind of failure.
            known: whether this kind has been seen often enough, and is to be avoided from now on.
        """
        if known:
            self._known.add(signature)
        while self._past:
            case = self._past.popleft()
            self._try(case)
            self._survive(self._facts(case))
        found = {self._facts(each) for each in suspects}
        new = [facts for facts in found if not any(facts <= each for each in self._survived)]
        if 0 < len(new) <= _SUSPECTS_LIMIT:
            self._failures.append((signature, new))
        self._learn()

    def expects(self, case: Case) -> Mask | None:
        """Return the mask of a case that is expected to cause a failure, else None."""
        if not self.masks:
            return None
        facts = self._facts(case)
        return next((each for each in self.masks if each.facts <= facts), None)

    def may_dare(self, mask: Mask, sent: int) -> bool:
        """Return whether a case that a mask expects to fail may be sent all the same: the mask may
        be wrong, or hide a failure in another place.

        Args:
            mask: the mask.
            sent: cases sent in this run.
        """
        return self._dared[mask.facts] < _DARES + sent / _CASES_PER_DARE

    def dare(self, mask: Mask) -> None:
        """Note that such a case is sent."""
        self._dared[mask.facts] += 1

    def is_untried(self, case: Case) -> bool:
        """Return whether a case sends a message with a fact, or with two at once, that no message
        had which the target survived.
        """
        return len(self._tried) < _TRIED_LIMIT and not self._tried.issuperset(self._tries(case))

    def postpone(self, case: Case) -> bool:
        """Keep a case for the next trial; return False if one like it waits, or too many do."""
        if len(self._postponed) >= _POSTPONED_LIMIT:
            return False
        return self._postponed.setdefault(self._facts(case), case) is case

    def next_postponed(self) -> Case | None:
        """Return the case that has waited longest for a trial, and forget it."""
        return self._postponed.popitem(last=False)[1] if self._postponed else None

    def _try(self, case: Case) -> None:
        if len(self._tried) < _TRIED_LIMIT:
            self._tried.update(self._tries(case))

    def _tries(self, case: Case) -> Iterator[tuple[str, ...]]:
        """Yield the facts of each message of a case, one by one and in pairs."""
        for step in case.steps:
            facts = sorted({*self._message(step.octets), case.stage})
            for count in (1, 2):
                yield from combinations(facts, count)

    def _survive(self, facts: Facts) -> None:
        if facts not in self._survived:
            for each in facts:
                self._survivors[each] = self._survivors.get(each, 0) | 1 << len(self._survived)
            self._survived.add(facts)

    def _learn(self) -> None:
        """Derive the masks from all failures and survivors."""
        masks: dict[Facts, str] = {}
        suspected = self._suspected()
        risk = cache(lambda facts: self._risk(facts, suspected))
        # Those with the fewest suspects first: what is certain may explain the others.
        for signature, suspects in sorted(self._failures, key=lambda each: len(each[1])):
            if signature not in self._known or _shared(masks, suspects):
                continue
            risks = {facts: risk(facts) for each in suspects for facts in _combinations(each)}
            best = min(risks, key=risks.__getitem__, default=None)
            if best is not None and risks[best] <= 1:
                masks[best] = signature
            elif _FEW_SUSPECTS * len(suspects) < len(self._survived):
                # Any of them may be the reason, so all are held back until a chance clears them.
                for each in suspects:
                    own = min(_combinations(each), key=risks.__getitem__)
                    if not self._survivors_with(own):
                        masks[own] = signature
        self.masks = [Mask(facts, signature) for facts, signature in masks.items()]
        if len(self._dared) > _DARED_LIMIT:
            self._dared = Counter({facts: self._dared[facts] for facts in masks})

    def _suspected(self) -> dict[str, list[int]]:
        """Return, for each fact of a suspect, an integer for each failure, which has one bit for
        each suspect that has the fact.
        """
        found: dict[str, list[int]] = {}
        for at, (_signature, suspects) in enumerate(self._failures):
            for number, facts in enumerate(suspects):
                for each in facts:
                    found.setdefault(each, [0] * len(self._failures))[at] |= 1 << number
        return found

    def _risk(self, facts: Facts, suspected: Mapping[str, list[int]]) -> float:
        """Return how little a combination of facts explains failures: 1 if the only suspect of one
        failure and no survivor has it; two failures outweigh 15 survivors, three outweigh 80.
        """
        failures, survivors = len(self._failures), len(self._survived)
        survived = self._survivors_with(facts)
        if survived * _EXCESS > survivors:
            # It is common anyway.
            return math.inf
        caused = sum(
            reduce(and_, having).bit_count() / len(suspects)
            for (_signature, suspects), *having in zip(
                self._failures, *(suspected[each] for each in facts), strict=True
            )
        )
        if survived * failures * _EXCESS > caused * survivors:
            return math.inf
        return float((1 + survived) / caused**4)

    def _survivors_with(self, facts: Facts) -> int:
        return reduce(and_, [self._survivors.get(each, 0) for each in facts]).bit_count()

    def _facts(self, case: Case) -> Facts:
        facts = {f"{_MUTATION}{without_numbers(case.mutation.partition(' of ')[0])}"}
        if case.stage != CONNECTED:
            facts.add(f"state {case.stage}")
        for step in case.steps:
            facts |= self._message(step.octets)
        return frozenset(facts)

    def _message_facts(self, octets: bytes) -> Facts:
        tree = dissect(self._protocol, octets, self._request, module=self._module)
        types = {f"type {each.type}" for each in tree.messages}
        types = types or {f"begins with {octets[:1].hex()}"}
        findings = {f"finding {each.code}" for each in tree.annotations}
        # Zero is often a case of its own: a length, a count, a pointer.
        details = {
            f"finding {each.code}: {_NUMBER.sub('N', each.message)}" for each in tree.annotations
        }
        return frozenset(types | findings | details)


def _shared(masks: Iterable[Facts], suspects: Iterable[Facts]) -> bool:
    """Return whether one of the suspects has one of these combinations of facts."""
    return any(mask <= each for each in suspects for mask in masks)


def _combinations(facts: Facts) -> Iterator[Facts]:
    """Yield the combinations of facts that may explain a failure, shortest first; those of what was
    sent before those of how it was made.
    """
    sent = sorted(each for each in facts if not each.startswith(_MUTATION))
    for count in (1, 2) if len(facts) <= _PAIRED_LIMIT else (1,):
        yield from map(frozenset, combinations(sent, count))
    mutation = facts.difference(sent)
    for each in sent:
        yield mutation | {each}
    if sent:
        yield frozenset(sent)
    yield facts
