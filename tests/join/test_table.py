"""What became of frames is kept, in memory or in a file."""

from __future__ import annotations

from random import Random

import pytest

from netdissect.join import table
from netdissect.model.joined import Fate

FRAMES = 40_000


@pytest.mark.parametrize("in_memory", [0, table.MAX_IN_MEMORY])
def test_rows_stay_what_they_were_written(monkeypatch: pytest.MonkeyPatch, in_memory: int) -> None:
    """Of ten pages most lie in the file, and come back."""
    monkeypatch.setattr(table, "MAX_IN_MEMORY", in_memory)
    rng = Random(1)
    rows = table.FateTable(FRAMES)
    known: dict[int, table.TableRow] = {}
    for _ in range(400):
        frame = rng.randint(1, FRAMES)
        fate, flags = rng.randint(1, 8), rng.randint(0, 7)
        lane, partner = rng.randint(0, 199_999), rng.randint(0, 1 << 32)
        common = rng.randint(-(1 << 62), 1 << 62)
        rows.set(frame, fate, flags=flags, lane=lane, partner=partner, common_ns=common)
        known[frame] = (fate, flags, lane, partner, common)
    flagged = rng.choice(list(known))
    assert rows.add_flags(flagged, table.ANSWERED)
    assert not rows.add_flags(flagged, table.ANSWERED)
    fate, flags, *rest = known[flagged]
    known[flagged] = (int(Fate.LOST), flags | table.ANSWERED, *rest)
    rows.set_fate(flagged, Fate.LOST)
    assert list(rows.rows()) == sorted(known.items())
    assert rows.compared() == len(known)
    lost = [frame for frame, row in sorted(known.items()) if row[0] == Fate.LOST]
    sure = [frame for frame in lost if not known[frame][1] & table.AMBIGUOUS]
    assert rows.count_certain(Fate.LOST) == len(sure)
    assert rows.next_frame(0, table.bit_of(Fate.LOST)) == lost[0]
    assert rows.row(FRAMES + 1) == rows.row(0) == (0, 0, 0, 0, 0)
    rows.close()
