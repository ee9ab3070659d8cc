"""What connections show about each other, for very many of them."""

from __future__ import annotations

from array import array
from random import Random

import pytest

from netdissect.diagnosis.neighbours import _BLOCK, _sorted


@pytest.mark.parametrize("count", [0, 1, _BLOCK, 3 * _BLOCK + 5])
def test_rows_are_sorted_as_a_whole_however_many_there_are(count: int) -> None:
    random = Random(count)
    columns = tuple(
        array("q", (random.randrange(most) for _ in range(count))) for most in (9, 1 << 62, 2)
    )
    found = _sorted(columns)
    assert list(zip(*found, strict=True)) == sorted(zip(*columns, strict=True))
    assert len(found) == len(columns)
