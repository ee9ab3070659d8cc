"""Captures cut anywhere: what is said of a part contradicts nothing that is said of the whole."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from agreement import CAPTURES, captures
from netdissect.capture import open_capture
from netdissect.capture.writer import PcapWriter
from netdissect.model.packets import SIDES
from netdissect.model.reports import UnitRecord
from netdissect.pipeline import analyze, iter_timeline

PROTOCOLS = ("riptide", "teeworlds", "knet", "eoudp", "netplay")
TELLING = {
    "riptide/tcp_2.0.0_big.pcap",  # no message of the middle shows who is the client
    "teeworlds/ddnet_vote.pcap",  # a direct link whose sides keep step in ticks of 20 ms
    "netplay/bin2_lossy__server_side.pcap",  # octets that come behind the first ones seen
    "netplay/text_lossy__server_side.pcap",
}
LEAST = 40
"""Frames of a capture that is worth a cut."""


def chosen() -> list[Any]:
    paths = [path for name in PROTOCOLS for path in captures(name) if path.suffix == ".pcap"]
    telling = {CAPTURES / name for name in TELLING}
    return [
        pytest.param(path, id=path.stem, marks=() if path in telling else pytest.mark.slow)
        for path in paths
    ]


def windows(count: int) -> Iterable[tuple[int, int]]:
    return (
        (count // 4, count), (count // 2, count), (count // 3, 2 * count // 3), (0, count // 2),
    )  # fmt: skip


def copies(path: Path, offset: int) -> dict[tuple[int, int, str, int], str]:
    return {
        (copy.frame + offset, item.direction, item.space, item.wire_seq): copy.kind
        for item in iter_timeline(path)
        if isinstance(item, UnitRecord)
        for copy in item.copies
    }


def stands(path: Path) -> set[str]:
    """Return at which side a capture can have been taken by the name of its file and its report."""
    for side in SIDES:
        if any(f"{mark}{side}" in path.stem for mark in ("_", ".")):
            return {side, "unknown"}
    return {"unknown"} | {report.vantage for report in analyze(path).connections}


@pytest.mark.parametrize("path", chosen())
def test_a_part_contradicts_nothing_of_the_whole(path: Path, tmp_path: Path) -> None:
    with open_capture(path) as reader:
        frames = list(reader)
    if len(frames) < LEAST:
        pytest.skip("too short")
    whole = {(report.client, report.server) for report in analyze(path).connections}
    kinds = copies(path, 0)
    part = tmp_path / "part.pcap"
    for first, last in windows(len(frames)):
        with PcapWriter(part, frames[0][2]) as out:
            for _, time_ns, _, data, _ in frames[first:last]:
                out.write(time_ns, data)
        for report in analyze(part).connections:
            assert (report.client, report.server) in whole
            assert report.vantage in stands(path), report.vantage_basis
        again = {
            place: kind
            for place, kind in copies(part, first).items()
            if kind != "original" and kinds.get(place) == "original"
        }
        assert not again
