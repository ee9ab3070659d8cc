from __future__ import annotations

from array import array

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agreement import CAPTURES
from netdissect.model.reports import UnitRecord
from netdissect.pipeline import analyze, iter_timeline
from netdissect.pipeline.iterate import iter_records
from netdissect.pipeline.numbering import ConnectionNumbers, common_numbers
from netdissect.pipeline.options import Options
from netdissect.pipeline.stages import Pipeline

LATE = "teeworlds/tw07_lan_browse.pcap"
"""Flows of one datagram are known at its end only, those between them at once."""

RENEWED = "knet/udp_same_endpoint_reconnect.server.pcap"
"""What shows that a connection is a new one comes behind its first datagram."""


def begun(frames: list[int], known: array[int] | None = None) -> ConnectionNumbers:
    found = ConnectionNumbers(known)
    for frame in frames:
        found.add(frame)
    return found


def test_shares_get_the_numbers_of_their_common_order() -> None:
    shares = [begun([9, 1]), begun([]), begun([2, 8, 5])]
    assert [list(numbers) for numbers in common_numbers(shares)] == [[5, 1], [], [2, 4, 3]]


@given(st.lists(st.integers(1, 60), max_size=60))
def test_what_is_known_beforehand_gives_the_same_numbers(frames: list[int]) -> None:
    numbers = common_numbers([begun(frames)])[0]
    again = ConnectionNumbers(array("q", sorted(frames)))
    assert [again.add(frame) for frame in frames] == list(numbers)
    assert begun(frames).in_order == (frames == sorted(frames))


def test_a_file_that_has_changed_meanwhile_gives_no_number_twice() -> None:
    found = ConnectionNumbers(array("q", [1, 5]))
    assert [found.add(frame) for frame in (5, 3, 1, 7)] == [2, 3, 1, 4]


def test_live_no_first_frame_is_kept() -> None:
    pipeline = Pipeline(Options(on_report=lambda _report: None))
    assert [pipeline.begun.add(frame) for frame in (9, 3, 5)] == [1, 2, 3]
    assert (pipeline.begun.count, len(pipeline.begun.frames)) == (3, 0)
    assert pipeline.renumber() is None


@pytest.mark.parametrize("processes", [1, 2])
def test_connections_are_numbered_by_their_first_frames(processes: int) -> None:
    found = analyze(CAPTURES / LATE, processes=processes)
    reports = list(found.connections)
    assert [report.connection for report in reports] == list(range(1, len(reports) + 1))
    frames = [report.first_frame for report in reports]
    assert frames == sorted(frames)
    first = {report.connection: report.first_frame for report in reports}
    last = {report.connection: report.last_frame for report in reports}
    told = [item for item in found.anomalies if item.connection and item.frame]
    assert told
    assert all(first[item.connection] <= item.frame <= last[item.connection] for item in told)  # type: ignore[index,operator]


@pytest.mark.parametrize("name", [LATE, RENEWED])
def test_every_view_numbers_alike(name: str) -> None:
    path = CAPTURES / name
    reports = {report.connection: report for report in analyze(path).connections}
    for record in iter_records(path):
        if record.connection is not None:
            report = reports[record.connection]
            assert {record.src, record.dst} == {report.client, report.server}
            assert report.first_frame <= record.frame <= report.last_frame
    for item in iter_timeline(path):
        frame = item.copies[0].frame if isinstance(item, UnitRecord) else item.frame
        if frame is not None:
            report = reports[item.connection]
            assert report.first_frame <= frame <= report.last_frame
