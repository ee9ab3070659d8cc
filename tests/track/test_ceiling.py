"""Limits of the rate: told where there is one, never where losses come by chance or a radio fades.

Conversations are made: what is sent goes through a queue that lets so much a second through.
"""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from limited import conversation, seconds
from netdissect import analyze
from netdissect.diagnosis.measures import limit_of
from netdissect.join import join
from netdissect.join.observed import Observed
from netdissect.model.diagnosis import Limits
from netdissect.model.reports import SpaceSnapshot
from netdissect.pipeline import Options
from netdissect.track import ceiling
from netdissect.track.ceiling import Load, Second, ceiling_of

ROOT = Path(__file__).parents[2]
BUSY = seconds((12, 20), (20, 60), (12, 20))
LIMIT = 8_000
NEARLY = 0.03


def found(path: str) -> list[Any]:
    return [each for each in analyze(path).anomalies if each.code == "rate-limited"]


def test_a_limit_is_told_next_to_the_receiver_and_by_two_captures(tmp_path: Path) -> None:
    client, server = conversation(tmp_path, BUSY, limit=LIMIT, queue=4000)
    assert found(client) == []  # what is missing shows nowhere there
    (told,) = found(server)
    assert (told.direction, told.evidence["basis"], told.evidence["unit"]) == (
        0,
        "observed",
        "bytes",
    )
    assert abs(told.evidence["per_second"] / LIMIT - 1) < NEARLY
    first_ns = analyze(server).info.first_time_ns
    start, end = ((told.evidence[key] - first_ns) / 1e9 for key in ("from_ns", "to_ns"))
    assert 12 < start < 16
    assert 30 < end < 34
    assert 300 < told.evidence["queue_ms"] < 550
    (report,) = analyze(server).connections
    cause = report.diagnosis.cause
    assert (cause.what, cause.direction) == ("loss", 0)
    assert "The rate was limited" in cause.text
    with join(client, server) as joined:
        (one,) = joined.report.conversations
        assert one.ways[1].ceiling is None
        limit = one.ways[0].ceiling
        assert limit is not None
        assert limit.unit == "datagrams"
        assert abs(limit.per_second / (LIMIT / 200) - 1) < 0.15  # pings are shorter
        (other,) = Observed(joined).reports()
        assert other.diagnosis.cause.what == "loss"  # one capture says: nothing bad was seen
        assert "The rate was limited" in other.diagnosis.cause.text


@pytest.mark.parametrize("bucket", [1_000, 12_000, 30_000])
def test_a_bucket_of_tokens_is_a_limit(bucket: int, tmp_path: Path) -> None:
    """What it holds goes through at any rate first: seven seconds of it hid the limit."""
    client, server = conversation(tmp_path, BUSY, limit=LIMIT, bucket=bucket)
    assert found(client) == []
    (told,) = found(server)
    assert (told.direction, told.evidence["unit"]) == (0, "bytes")
    assert abs(told.evidence["per_second"] / LIMIT - 1) < NEARLY
    first_ns = analyze(server).info.first_time_ns
    start, end = ((told.evidence[key] - first_ns) / 1e9 for key in ("from_ns", "to_ns"))
    empty = 12 + bucket / 4_000
    assert empty - 0.5 < start < empty + 3
    assert 30 < end < 34


@pytest.mark.parametrize(
    "drop",
    [
        lambda _, chance: chance.random() < 0.1,
        lambda time, chance: 12 < time < 32 and chance.random() < 0.3,  # while more is sent
        lambda time, _: 15 < time < 20,  # a radio that breaks off
        lambda time, _: time % 1.0 < 0.1,  # something that beats
        lambda _, __: False,
    ],
    ids=["chance", "busy", "dark", "beat", "clean"],
)
def test_other_losses_are_no_limit(tmp_path: Path, drop: Any) -> None:
    for path in conversation(tmp_path, BUSY, drop=drop):
        assert found(path) == []
    with join(str(tmp_path / "client.pcap"), str(tmp_path / "server.pcap")) as joined:
        assert [way.ceiling for one in joined.report.conversations for way in one.ways] == [
            None,
            None,
        ]


def test_a_limit_with_losses_at_all_rates_is_not_certain(tmp_path: Path) -> None:
    """Half of the losses are by chance: what is lost above a rate is not lost above it only."""
    _, server = conversation(
        tmp_path, BUSY, limit=11_500, drop=lambda _, chance: chance.random() < 0.1
    )
    assert found(server) == []


def test_losses_by_chance_while_more_is_sent_are_hardly_ever_taken_for_one() -> None:
    """Nothing is lost before, and the sender keeps its rate: only the walk tells them apart."""
    wrong = 0
    for seed in range(400):
        chance = random.Random(seed)
        made = [Second(at * 10**9, 1, 10**9, 0, 20, 20, 0) for at in range(15)]
        for at in range(15, 35):
            lost = sum(chance.random() < 0.1 for _ in range(60))
            made.append(Second(at * 10**9, 1, 10**9, 0, 60 - lost, 60 - lost, lost))
        wrong += ceiling_of(made) is not None
    assert wrong <= 4


@pytest.mark.parametrize("size", [[200], [60, 100, 200, 500]])
def test_a_limit_is_found_whatever_the_sizes(size: list[int]) -> None:
    """Bytes keep to a limit also where datagrams differ."""
    for seed in range(20):
        chance = random.Random(seed)
        free, counts = 0.0, [[0, 0, 0] for _ in range(50)]
        for time, _ in BUSY:
            size_now, waits = chance.choice(size), max(0.0, free - time)
            if waits * LIMIT + size_now > 4000:
                counts[int(time + waits)][2] += 1
                continue
            free = max(free, time) + size_now / LIMIT
            counts[int(free)][0] += size_now
            counts[int(free)][1] += 1
        made = [Second(at * 10**9, 1, 10**9, 0, *row) for at, row in enumerate(counts[:44])]
        told = ceiling_of(made)
        assert told is not None
        assert abs(told.per_second / LIMIT - 1) < NEARLY


def test_no_capture_of_ours_went_through_a_limit() -> None:
    """The relays between their ends dropped, held back and copied datagrams, and set no limit."""
    eager = Options(limits=Limits(rate_limited=1))
    for path in sorted((ROOT / "captures").rglob("*loss*.pcap")):
        for report in analyze(str(path), options=eager).connections:
            for way in (0, 1):
                assert limit_of(report, way, eager.limits) is None, (path, way)


def test_the_seconds_that_are_told_are_a_setting(tmp_path: Path) -> None:
    _, server = conversation(tmp_path, BUSY, limit=LIMIT, queue=4000)
    strict = Options(limits=Limits(rate_limited=60))
    assert "rate-limited" not in analyze(server, options=strict).connections[0].codes


def test_memory_is_bounded_and_a_limit_found_early_is_kept() -> None:
    """Ten minutes at a limit; the seconds below it are long forgotten."""
    load, frame = Load(), 0
    units = missing = octets = 0
    for at in range(600):
        came, lost = (40, 20) if at >= 20 else (20, 0)
        load.roll(at * 10**9, frame + 1, 0, frame, octets, SpaceSnapshot("", units, missing, 0, 0))
        frame, units, octets, missing = (
            frame + came,
            units + came,
            octets + came * 200,
            missing + lost,
        )
        assert len(load._rows) <= 9 * ceiling.MAX_SECONDS
    load.judge()
    limit, told = load.found
    assert told is None
    assert limit is not None
    assert (limit.per_second, limit.lost * 2) == (8000, limit.sent - limit.lost)
    assert limit.seconds > 60
