"""Records that wait for the other parts of a text are bounded."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import twocaptures
from agreement import CAPTURES
from netdissect.model.records import DatagramRecord
from netdissect.pipeline import privacy_parts
from netdissect.pipeline.iterate import iter_records
from netdissect.pipeline.privacy_parts import rewritten


class Same:
    """Leaves texts and addresses as they are."""

    def text(self, octets: bytes, costs: object = None, *, flat: int = 0) -> bytes:
        del costs, flat
        return octets

    def address(self, octets: bytes) -> bytes:
        return octets


@pytest.fixture(scope="module")
def halves(tmp_path_factory: pytest.TempPathFactory) -> list[DatagramRecord]:
    """Return records of a capture that lacks a part of most snapshots."""
    path = tmp_path_factory.mktemp("parts") / "in.pcap"
    source = CAPTURES / "teeworlds" / "ddnet_big_snap.pcap"
    return list(iter_records(Path(twocaptures.rewritten(source, path, lambda frames: frames[::2]))))


def waiting(records: list[DatagramRecord]) -> int:
    """Return how many records wait at most."""
    taken = 0

    def counted() -> Iterator[DatagramRecord]:
        nonlocal taken
        for record in records:
            taken += 1
            yield record

    return max(taken - given for given, _ in enumerate(rewritten(counted(), Same())))


def test_parts_whose_others_are_missing_do_not_wait_for_ever(
    halves: list[DatagramRecord], monkeypatch: pytest.MonkeyPatch
) -> None:
    wholes = waiting(halves)
    assert wholes > 20
    monkeypatch.setattr(privacy_parts, "MAX_WAITING", 4)
    assert 2 < waiting(halves) < 10
    assert waiting(halves + halves) < 10
