from __future__ import annotations

import pytest

from netdissect.fuzz import Chance
from netdissect.fuzz.octets import OCTET_MUTATORS, SIZE_LIMIT


@pytest.mark.parametrize("name", OCTET_MUTATORS)
def test_every_mutator_takes_anything_and_stays_bounded(name: str) -> None:
    chance = Chance(name)
    changed = 0
    for data in (b"", b"\0", b"ab", bytes(range(256)) * 20):
        for _ in range(50):
            mutant = OCTET_MUTATORS[name](data, chance)
            assert len(mutant) <= SIZE_LIMIT
            changed += mutant != data
    assert changed > 60


def test_mutators_do_what_they_say() -> None:
    chance = Chance(3)
    data = bytes(range(40))
    assert len(OCTET_MUTATORS["insert"](data, chance)) > 40
    assert len(OCTET_MUTATORS["delete"](data, chance)) < 40
    assert data.startswith(OCTET_MUTATORS["truncate"](data, chance))
    assert OCTET_MUTATORS["extend"](data, chance).startswith(data)
    assert len(OCTET_MUTATORS["flip"](data, chance)) == 40
    noisy = OCTET_MUTATORS["noise"](data, chance)
    assert len(noisy) == 40
    assert noisy != data
