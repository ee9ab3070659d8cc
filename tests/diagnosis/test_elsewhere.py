"""Losses in captures that may have been taken anywhere: what is missing there was lost before."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from netdissect.cli import cli
from netdissect.diagnosis import diagnose
from netdissect.model.reports import UnitRecord
from netdissect.pipeline import analyze, iter_timeline
from twocaptures import CAPTURES, Record, rewritten

PORT = slice(34, 36)
"""Bytes of the source port in Ethernet and IPv4."""
TWICE = CAPTURES / "eoudp" / "mid_clean.pcap"
"""Both sides send each message twice at once, and nobody acknowledges any."""


def server_of(path: Path) -> bytes:
    (report,) = analyze(path).connections
    return int(report.server.rpartition(":")[2]).to_bytes(2, "big")


@pytest.mark.parametrize(
    ("name", "lost", "sent"),
    [("eoudp/mid_lossy_client", 12, 204), ("knet/udp_content_id.client", 15, 83)],
)
def test_numbers_or_copies_that_are_missing_anywhere_were_lost(
    name: str, lost: int, sent: int
) -> None:
    """The logs of the relays: 6.76% and 18.07% of the servers' datagrams. Of those that are sent
    twice, the units that came count alone.
    """
    (report,) = analyze(CAPTURES / f"{name}.pcap").connections
    found = report.diagnosis
    assert report.vantage == "unknown"
    assert (found.loss[1].basis, found.loss[1].lost, found.loss[1].sent) == ("least", lost, sent)
    assert (found.cause.what, found.cause.confidence) == ("loss", "likely")
    assert found.cause.text.startswith(f"At least {100 * lost / sent:.1f}% of what the server sent")
    assert "No problem" not in found.verdict + found.cause.text


@pytest.mark.parametrize("seed", range(6))
def test_a_lower_limit_is_no_more_than_what_was_lost(seed: int, tmp_path: Path) -> None:
    server, chance = server_of(TWICE), random.Random(seed)
    dropped: set[int] = set()

    def lossy(found: list[Record]) -> list[Record]:
        dropped.update(
            frame
            for frame, (_, octets, _) in enumerate(found, 1)
            if octets[PORT] == server and chance.random() < 0.06
        )
        return [row for frame, row in enumerate(found, 1) if frame not in dropped]

    (report,) = analyze(rewritten(TWICE, tmp_path / "lossy.pcap", lossy)).connections
    left = [
        sum(copy.frame not in dropped for copy in unit.copies)
        for unit in iter_timeline(TWICE)
        if isinstance(unit, UnitRecord) and unit.direction
    ]
    lost = report.diagnosis.loss[1]
    assert (lost.basis, lost.lost) == ("least", left.count(1))
    assert lost.sent == 2 * (left.count(1) + left.count(2))
    assert report.diagnosis.loss[0].basis == "unknown"


def test_numbers_that_are_missing_in_a_row_are_no_lower_limit(tmp_path: Path) -> None:
    """They may have been skipped: no unit has come only once."""
    server = server_of(TWICE)
    start_ns = analyze(TWICE).info.first_time_ns or 0
    gap = range(start_ns + 3_000_000_000, start_ns + 5_000_000_000)

    def without(found: list[Record]) -> list[Record]:
        return [row for row in found if row[1][PORT] != server or row[0] not in gap]

    (report,) = analyze(rewritten(TWICE, tmp_path / "gap.pcap", without)).connections
    (space,) = (space for space in report.spaces if space.direction == 1)
    assert space.never_seen > 0
    assert report.diagnosis.loss[1].basis == "unknown"


def test_a_lower_limit_is_shown_as_one_and_exceeds_limits() -> None:
    name = str(CAPTURES / "eoudp" / "mid_lossy_client.pcap")
    shown = CliRunner().invoke(cli, ["diagnose", name, "--fail-on", "loss>5%"])
    assert shown.exit_code == 7
    assert "← at least 5.9% of 204, from what is missing in this capture" in shown.stdout
    (report,) = analyze(name).connections
    assert report.codes["high-loss"] == 1
    listed = CliRunner().invoke(cli, ["connections", name, "--width", "200"]).stdout
    assert ">=5.9%" in listed


@pytest.mark.parametrize(("single", "missing", "known"), [
    (12, 192, True), (12, 193, False),  # more than came
    (30, 240, True), (30, 241, False),  # by far more than single copies
])  # fmt: skip
def test_a_sender_that_skips_most_numbers_shows_no_loss(single: int, missing: int, known: bool) -> None:
    """It leaves out single copies as well: no path does both, but a program that repeats too much."""
    (report,) = analyze(CAPTURES / "eoudp" / "mid_lossy_client.pcap").connections
    extra = {"copies_missing_of_seen": single, "copies_missing": missing}
    spaces = [
        replace(space, extra=space.extra | extra) if space.direction else space
        for space in report.spaces
    ]
    found = diagnose(replace(report, spaces=spaces)).loss[1]
    assert found.basis == ("least" if known else "unknown")
