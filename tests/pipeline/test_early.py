"""Records that leave before the whole file was looked at are those that leave after it."""

from __future__ import annotations

from pathlib import Path

import pytest

from netdissect.capture import open_capture
from netdissect.pipeline import Options, look_ahead
from netdissect.pipeline.early import MAX_EARLY, early_records
from netdissect.pipeline.iterate import iter_both
from netdissect.pipeline.records import Records
from netdissect.pipeline.stages import Pipeline

CAPTURES = Path(__file__).resolve().parents[2] / "captures"
FILES = sorted(path for path in CAPTURES.glob("*/*.pcap*") if path.stat().st_size < 2_000_000)
SAMPLE = FILES[::16]


def _make() -> Records:
    return Records(lazy=True)


def _shown(record) -> object:
    facts = record.facts and (record.facts.state, record.facts.handshake)
    return (
        record.frame, record.connection, record.direction, record.dialect, record.kinds, facts,
        record.findings, record.faults, [repr(item.reliability) for item in record.messages],
        [repr(item.fields) for item in record.messages],
    )  # fmt: skip


def _all(path: Path, skip: tuple[int, int] = (0, 0)) -> list[object]:
    records = _make()
    records.skip = skip
    options = look_ahead(str(path), Options())
    pipeline = Pipeline(options, recorder=records.recorder, observer=records)
    return [_shown(record) for record in iter_both(str(path), records, pipeline, timeline=False)]


def _compare(path: Path) -> int:
    early = early_records(str(path), _make, Options())
    shown = [_shown(each.record) for each in early]
    whole = _all(path)
    assert shown == whole[: len(shown)]
    skip = early[-1].skip if early else (0, 0)
    assert _all(path, skip) == whole[len(shown) :]
    return len(shown)


@pytest.mark.parametrize("path", SAMPLE, ids=lambda path: path.stem)
def test_what_leaves_early_is_what_leaves_in_the_end(path):
    _compare(path)


@pytest.mark.slow
def test_what_leaves_early_is_what_leaves_in_the_end_of_more_captures():
    counts = [_compare(path) for path in FILES[::4]]
    assert sum(count >= MAX_EARLY // 2 for count in counts) > len(counts) // 4


def test_a_clean_capture_shows_a_screen_full_early():
    assert _compare(CAPTURES / "riptide" / "udp_2.2.1_clean.pcap") >= 24  # rows


def test_nothing_leaves_early_that_hangs_on_the_place_of_the_capture():
    path = CAPTURES / "riptide" / "udp_2.2.1_lossy_clientleg.pcap"
    early = early_records(str(path), _make, Options())
    resent = [each for each in early if each.record is not None and "duplicate" in each.record.kinds]
    assert not resent
    with open_capture(path) as reader:
        next(iter(reader.batches()))
        assert early[0].first_ns == reader.info.first_time_ns
