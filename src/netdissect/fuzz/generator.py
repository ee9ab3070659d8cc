"""Generates cases from seeds. Case N of a run is a function of the run's seed, N and the pool, so
any case can be generated again without those before it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from typing import TypeAlias

from netdissect.craft.layers import build
from netdissect.fuzz.cases import CONNECTED, Case, Step
from netdissect.fuzz.chance import Chance
from netdissect.fuzz.corpus import Corpus
from netdissect.fuzz.fields import FIELD_MUTATORS, reread
from netdissect.fuzz.grammar import Grammar
from netdissect.fuzz.octets import OCTET_MUTATORS, SIZE_LIMIT
from netdissect.fuzz.seeds import Seed
from netdissect.model.errors import UsageError, did_you_mean
from netdissect.model.packets import Direction
from netdissect.model.text import quoted

Lie: TypeAlias = Callable[[bytes, Chance], "tuple[bytes, str] | None"]
"""Makes a message with a wrong compressed part; returns (note, message), None if it does not apply.
"""

_ATTEMPTS = 8
"""Field mutators tried on one seed before its bytes are mutated instead."""
MUTATORS: dict[str, tuple[str, ...]] = {
    "field": tuple(FIELD_MUTATORS),
    "octets": tuple(OCTET_MUTATORS),
    "order": ("once", "repeat", "swap", "drop", "sequence", "ack"),
    "direction": ("wrong",),
    "compression": (),
    "corpus": (),
    "dictionary": (),
    "schema": (),
}
"""Kind -> names of mutators; a mutation starts with both: `field:flip`. A kind without names is
followed by what it changes."""


def check_mutators(patterns: Iterable[str]) -> None:
    """Check that every pattern matches a mutator.

    Raises:
        UsageError: one matches none; the text suggests a similar name.
    """
    full = [f"{kind}:{name}" for kind, names in MUTATORS.items() for name in names]
    for pattern in patterns:
        kind, _, name = pattern.partition(":")
        # A mutation may combine several: `octets:flip+add`.
        parts = [f"{kind}:{part}" for part in name.split("+")] if name else [pattern]
        free = any(fnmatchcase(each, kind) for each, names in MUTATORS.items() if not names)
        if not (free and name) and not all(
            any(fnmatchcase(each, part) for each in full) for part in parts
        ):
            near = did_you_mean(pattern, [*full, *(f"{each}:*" for each in MUTATORS)])
            kinds = ", ".join(f"{each}:*" for each in MUTATORS)
            raise UsageError(
                f"--mutator: no mutator is called {quoted(pattern)}{near or f'; there are {kinds}'}"
            )


_REPEATS = (2, 3, 10)
_CONTROLS = 8
"""Maximum number of messages in a control case."""
_EARLY_SHARE = 16
"""One case in this many is sent in another state than `connected`."""
_OFFSPRING = ((6, "octets"), (4, "field"), (4, "then"), (1, "again"), (1, "join"), (1, "drop"))
"""(weight, operation on a case of the corpus)."""
_STEPS_LIMIT = 64
"""Maximum number of messages in a case."""
_CLOSING_SHARE = 32
"""Of the messages that end a session, one in this many is sent in a connected one."""


@dataclass(frozen=True, slots=True)
class Traits:
    """What the generator needs to know about a protocol beyond its layers."""

    live_fields: Mapping[str, str] = field(default_factory=dict)
    """Field of a layer -> live value that a session inserts there."""
    span: int = 1 << 16
    """Modulus of the sequence numbers."""
    stages: tuple[str, ...] = (CONNECTED,)
    """States of a session in which cases can be sent."""
    controls: frozenset[str] = frozenset()
    """Patterns of message types that a target acknowledges: sent unchanged, they measure what it
    accepts."""
    closing: frozenset[str] = frozenset()
    """Patterns of message types that end a session: mutated as often as others, never repeated, and
    mostly sent in other states, where no session is lost."""
    lies: tuple[Lie, ...] = ()
    """Functions that make wrongly compressed messages."""

    @property
    def live(self) -> tuple[str, ...]:
        """Return the names of the live values."""
        return tuple(sorted(set(self.live_fields.values())))


class Generator:
    """Generates the cases of one run."""

    def __init__(
        self,
        seeds: Sequence[Seed],
        traits: Traits,
        seed: int,
        *,
        words: Sequence[bytes] = (),
        grammar: Grammar | None = None,
    ) -> None:
        """Sort the seeds by type.

        Args:
            seeds: messages to mutate.
            traits: facts about the protocol, from its driver.
            seed: seed of the random generator.
            words: words of dictionaries: byte strings that have a meaning to the target.
            grammar: finds the values of user messages that a schema describes.

        Raises:
            UsageError: there is no seed.
        """
        if not seeds:
            raise UsageError("no seed to mutate: the capture has no message of this dialect")
        # Also those of unknown direction, such as the defaults of the layers.
        forward = [each for each in seeds if each.direction != Direction.S2C]
        self._traits = traits
        self._seed = seed
        self._pool = list(seeds)
        self.originals = frozenset(each.octets for each in seeds)
        """The seeds' bytes."""
        self._forward = _by_type(forward or seeds)
        self._backward = _by_type([each for each in seeds if each.direction == Direction.S2C])
        self._controls = _by_type(
            [each for each in forward if _matches(each.type, traits.controls)]
        )
        self._layers = {each.type: each.layer for each in seeds if each.layer is not None}
        self._varied = sum(map(len, self._controls.values())) > 1
        self._kinds: list[tuple[int, Callable[[Chance], tuple[str, tuple[Step, ...]]]]] = [
            (40, self._field_case),
            (16, self._octet_case),
            (20, self._order_case),
        ]
        if self._controls:
            self._kinds.append((3, self._control_case))
        if self._backward:
            self._kinds.append((5, self._direction_case))
        if traits.lies:
            self._kinds.append((9, self._lie_case))
        self._words = tuple(words)
        if words:
            self._kinds.append((8, self._word_case))
        self._described = [] if grammar is None else [
            (each, found) for each in forward or seeds if (found := grammar(each))
        ]  # fmt: skip
        if self._described:
            self._kinds.append((20, self._value_case))

    def case(self, number: int) -> Case:
        """Return case `number`, from 0; there is no last one."""
        chance = Chance("case", self._seed, number)
        mutation, steps = chance.weighted(self._kinds)(chance)
        return Case(number, mutation, steps, self._stage(mutation, steps, chance))

    @property
    def described(self) -> int:
        """Return the number of seeds that the schema describes."""
        return len(self._described)

    def offspring(self, number: int, corpus: Corpus) -> Case | None:
        """Return case `number` as a mutant of a corpus entry; None if it is to be made from the
        seeds. It depends on the run's seed, the number and the corpus only.
        """
        chance = Chance("offspring", self._seed, number)
        entry = corpus.pick(chance)
        if entry is None:
            return None
        steps = list(entry.steps)
        # The last step is the one that brought something new.
        at = len(steps) - 1 if chance.one_in(2) else chance.below(len(steps))
        name = chance.weighted(_OFFSPRING)
        if name == "again":
            # The repeated step gets the live number of the first copy.
            copy = replace(steps[at], shift=(("sequence", -1),), advance=0)
            again = copy if "sequence" in self._traits.live else steps[at]
            steps[at + 1 : at + 1] = [again] * chance.choice(_REPEATS)
        elif name == "join":
            steps += chance.choice(corpus.entries).steps
        elif name == "then":
            steps.append(self._following(chance))
        elif name == "drop" and len(steps) > 1:
            del steps[at]
        else:
            step = steps[at]
            how, changed = self._mutant(self._as_seed(step, proven=name == "field"), chance)
            # The exact bytes made the entry worth keeping, so live values are not inserted.
            name, steps[at] = how.partition(" ")[0], replace(changed, hold=step.hold)
        kept = tuple(steps[:_STEPS_LIMIT])
        return Case(number, f"corpus:{name} of {entry.name}", kept, entry.stage, entry.name)

    def _as_seed(self, step: Step, *, proven: bool) -> Seed:
        """Return a message of the corpus as a seed; with its layer only if that builds the same
        bytes.
        """
        layer = self._layers.get(step.type) if proven else None
        if layer is not None:
            packet = layer(step.octets)
            packet.clear_cache()
            # A layer that builds other bytes than it dissected would change more than one thing.
            if packet.fault is not None or build(packet) != step.octets:
                layer = None
        return Seed(step.octets, step.type, None, layer, "corpus")

    def _following(self, chance: Chance) -> Step:
        """Return a step to send after a corpus case, which may have changed the state of the
        target.
        """
        seed = self._pick(chance)
        if _matches(seed.type, self._traits.closing) or chance.one_in(4):
            # A message that ends the session would hide what the case before it has done.
            seed = self._pick(chance, self._controls or None)
            return Step(seed.octets, seed.type)
        return self._mutant(seed, chance)[1]

    def _stage(self, mutation: str, steps: Sequence[Step], chance: Chance) -> str:
        others = [name for name in self._traits.stages if name != CONNECTED]
        if not others or mutation == "none":
            return CONNECTED
        if any(_matches(step.type, self._traits.closing) for step in steps):
            early = not chance.one_in(_CLOSING_SHARE)
        else:
            early = chance.one_in(_EARLY_SHARE)
        return chance.choice(others) if early else CONNECTED

    def _pick(self, chance: Chance, table: dict[str, list[Seed]] | None = None) -> Seed:
        """Return a random seed; all types are equally likely."""
        rows = self._forward if table is None else table
        return chance.choice(rows[chance.choice(list(rows))])

    def _control_case(self, chance: Chance) -> tuple[str, tuple[Step, ...]]:
        # Few seeds make few different lists; a varying length avoids repeats.
        count = chance.between(1, _CONTROLS if self._varied else 8 * _CONTROLS)
        seeds = [self._pick(chance, self._controls) for _ in range(count)]
        return "none", tuple(Step(seed.octets, seed.type) for seed in seeds)

    def _field_case(self, chance: Chance) -> tuple[str, tuple[Step, ...]]:
        mutation, step = self._mutant(self._pick(chance), chance)
        return mutation, (step,)

    def _mutant(self, seed: Seed, chance: Chance) -> tuple[str, Step]:
        """Return a field mutant of a seed, or a byte mutant if no layer can build it."""
        if seed.layer is None:
            return self._octets(seed, chance)
        for _ in range(_ATTEMPTS):
            name = chance.choice(list(FIELD_MUTATORS))
            edit = FIELD_MUTATORS[name](reread(seed), seed, chance, self._pool)
            if edit is None or edit.octets == seed.octets:
                continue
            hold = {self._traits.live_fields.get(touched) for touched in edit.touched}
            held = tuple(sorted(each for each in hold if each is not None))
            return f"field:{name} {edit.note}", Step(edit.octets, seed.type, held)
        return self._octets(seed, chance)

    def _octet_case(self, chance: Chance) -> tuple[str, tuple[Step, ...]]:
        mutation, step = self._octets(self._pick(chance), chance)
        return mutation, (step,)

    def _octets(self, seed: Seed, chance: Chance) -> tuple[str, Step]:
        octets = seed.octets
        count = chance.choice((1, 1, 1, 2, 4))
        names = [chance.choice(list(OCTET_MUTATORS)) for _ in range(count)]
        for name in names:
            octets = OCTET_MUTATORS[name](octets, chance)
        hold = self._traits.live if chance.one_in(2) else ()
        return f"octets:{'+'.join(names)}", Step(octets, seed.type, hold)

    def _word_case(self, chance: Chance) -> tuple[str, tuple[Step, ...]]:
        """Insert a word of a dictionary, or overwrite bytes with it."""
        seed, word = self._pick(chance), chance.choice(self._words)
        at = chance.below(len(seed.octets) + 1)
        rest = seed.octets[at + (len(word) if chance.one_in(2) else 0) :]
        octets = (seed.octets[:at] + word + rest)[:SIZE_LIMIT]
        return f"dictionary:{word[:16].hex()} at {at}", (Step(octets, seed.type),)

    def _value_case(self, chance: Chance) -> tuple[str, tuple[Step, ...]]:
        """Change one value that the schema describes, in place."""
        seed, values = chance.choice(self._described)
        value = chance.choice(values)
        octets, note = value.mutated(seed.octets, chance)
        return f"schema:{value.name} {note}", (Step(octets[:SIZE_LIMIT], seed.type),)

    def _direction_case(self, chance: Chance) -> tuple[str, tuple[Step, ...]]:
        seed = self._pick(chance, self._backward)
        if chance.one_in(2):
            return "direction:wrong", (Step(seed.octets, seed.type),)
        mutation, step = self._mutant(seed, chance)
        return f"direction:wrong, {mutation}", (step,)

    def _lie_case(self, chance: Chance) -> tuple[str, tuple[Step, ...]]:
        seed = self._pick(chance)
        lied = chance.choice(self._traits.lies)(seed.octets, chance)
        if lied is None:
            return self._octet_case(chance)
        octets, note = lied
        return f"compression:{note}", (Step(octets, seed.type),)

    def _order_case(self, chance: Chance) -> tuple[str, tuple[Step, ...]]:
        """Send valid messages in a wrong order or with wrong numbers."""
        if "sequence" not in self._traits.live:
            return self._repeat(chance)
        return chance.choice(
            (self._repeat, self._reorder, self._drop, self._jump, self._stale_ack)
        )(chance)

    def _numbered(self, chance: Chance) -> Step:
        seed = self._pick(chance, self._controls or None)
        return Step(seed.octets, seed.type)

    def _repeat(self, chance: Chance) -> tuple[str, tuple[Step, ...]]:
        first = self._numbered(chance)
        if _matches(first.type, self._traits.closing):
            return "order:once", (first,)
        again = replace(first, shift=(("sequence", -1),), advance=0)
        return "order:repeat", (first, *[again] * chance.choice(_REPEATS))

    def _reorder(self, chance: Chance) -> tuple[str, tuple[Step, ...]]:
        late, early = self._numbered(chance), self._numbered(chance)
        return "order:swap", (
            replace(early, shift=(("sequence", 1),)),
            replace(late, shift=(("sequence", -1),)),
        )

    def _drop(self, chance: Chance) -> tuple[str, tuple[Step, ...]]:
        missing = chance.choice((1, 2, 5))
        after = replace(self._numbered(chance), shift=(("sequence", missing),), advance=0)
        return f"order:drop {missing}", (after,)

    def _jump(self, chance: Chance) -> tuple[str, tuple[Step, ...]]:
        step = self._numbered(chance)
        jump = self._distance(chance)
        return f"order:sequence {jump:+d}", (replace(step, shift=(("sequence", jump),), advance=0),)

    def _stale_ack(self, chance: Chance) -> tuple[str, tuple[Step, ...]]:
        step = self._pick(chance)
        jump = self._distance(chance)
        return f"order:ack {jump:+d}", (Step(step.octets, step.type, (), (("ack", jump),), 1),)

    def _distance(self, chance: Chance) -> int:
        """Return a distance at which windows and signs of sequence numbers change."""
        half = self._traits.span // 2
        edges = (1, 2, 8, 16, 17, 32, 33, 64, 100, 256, half - 1, half, half + 1)
        return chance.choice((-1, 1)) * chance.choice([edge for edge in edges if edge <= half + 1])


def _matches(type_name: str, patterns: frozenset[str]) -> bool:
    return any(fnmatchcase(type_name, pattern) for pattern in patterns)


def _by_type(seeds: Sequence[Seed]) -> dict[str, list[Seed]]:
    """Return type -> seeds, in alphabetical order."""
    table: dict[str, list[Seed]] = defaultdict(list)
    for seed in seeds:
        table[seed.type].append(seed)
    return {name: table[name] for name in sorted(table)}
