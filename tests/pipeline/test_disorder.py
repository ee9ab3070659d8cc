"""Captures whose frames are not in the order in which they were sent, or whose clock was set back."""

from __future__ import annotations

from pathlib import Path

import pytest

from agreement import CAPTURES
from netdissect.model.reports import UnitRecord
from netdissect.pipeline import iter_timeline
from twocaptures import Record, rewritten

EVERY = 20


def swapped(found: list[Record]) -> list[Record]:
    """Exchange the contents of two neighbouring records now and then."""
    for place in range(EVERY, len(found) - 1, EVERY):
        (time, *one), (later, *other) = found[place : place + 2]
        found[place : place + 2] = [(time, *other), (later, *one)]
    return found


def set_back(found: list[Record]) -> list[Record]:
    """Set the clock back by half a second in the middle."""
    half = len(found) // 2
    return found[:half] + [(time - 500_000_000, data, wire) for time, data, wire in found[half:]]


def units(path: Path | str) -> list[UnitRecord]:
    return [item for item in iter_timeline(path) if isinstance(item, UnitRecord)]


@pytest.mark.parametrize("name", ["urho3d_scene_loss.client", "urho3d_scene_clean"])
def test_what_was_acknowledged_before_it_was_seen_is_not_lost(name: str, tmp_path: Path) -> None:
    """Its acknowledgement stands before it in the file, and was forgotten by then."""
    path = CAPTURES / "knet" / f"{name}.pcap"
    true = {(u.direction, u.wire_seq): u.outcome for u in units(path) if u.space == "datagram"}
    for unit in units(rewritten(path, tmp_path / "swapped.pcap", swapped)):
        if unit.space == "datagram" and (unit.outcome == "given_up" or unit.lost):
            assert true[unit.direction, unit.wire_seq] != "acked"


@pytest.mark.parametrize("name", ["udp_2.0.0_giveup_clientleg", "udp_2.1.2_lossy_serverleg"])
def test_a_copy_that_seems_to_come_before_the_one_before_it_is_no_duplicate(
    name: str, tmp_path: Path
) -> None:
    path = CAPTURES / "riptide" / f"{name}.pcap"

    def kinds(name: Path | str) -> dict[tuple[int, int], str]:
        found = [unit for unit in units(name) if unit.space == "reliable"]
        return {(c.frame, unit.wire_seq): c.kind for unit in found for c in unit.copies}

    true = kinds(path)
    for place, kind in kinds(rewritten(path, tmp_path / "back.pcap", set_back)).items():
        assert kind != "duplicate" or true[place] != "retransmission"
