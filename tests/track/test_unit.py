"""Units, and what the datagrams carry, are freed without harm."""

from __future__ import annotations

import sys

from netdissect.model.reports import UnitRecord
from netdissect.track.unit import Carried, Unit

ENTRIES = 300


def loaded(record: UnitRecord) -> Unit:
    """Return the unit of a datagram with messages that do not follow each other."""
    unit = Unit(0, 0, 0, 0, None)
    for number in range(ENTRIES):
        unit.load(Carried(0, 2 * number, 1, 0, 0, 0, record, is_open=False))
    return unit


def test_a_long_chain_of_carried_units_is_freed_completely() -> None:
    """Compiled, freeing more than fifty overwrote memory: some were never freed, others twice."""
    record = UnitRecord(1, 0, "reliable", 0, 0, "m", [], None, None, None, False, "outstanding", None)
    before = sys.getrefcount(record)
    for _ in range(6):
        units = [loaded(record) for _ in range(20)]
        assert sys.getrefcount(record) == before + 20 * ENTRIES
        del units
        assert sys.getrefcount(record) == before
