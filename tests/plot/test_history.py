from __future__ import annotations

from dataclasses import replace

import pytest

import gallery
from netdissect.model.reports import ConnectionEvent, Copy, UnitRecord
from netdissect.pipeline import iter_timeline
from netdissect.plot.gallery import MAX_HISTORIES, Gallery
from netdissect.plot.history import MAX_SLOWEST, MAX_WINDOW, History, took_ms

SECOND = 1_000_000_000


def unit(seq: int, start: int, took: int | None = 1000, **more: object) -> UnitRecord:
    acked = None if took is None else start + took
    copies = [Copy(seq + 1, start, "original")]
    record = UnitRecord(
        1, 0, "reliable", seq, seq, None, copies, None if acked is None else seq + 2, acked,
        None if took is None else took / 1e6, False, "unacked" if took is None else "acked", None,
        start + SECOND,
    )  # fmt: skip
    for name, value in more.items():
        setattr(record, name, value)
    return record


def test_every_unit_of_a_capture_is_a_point_with_its_frame() -> None:
    history = gallery.histories(gallery.LOSSY)[1]
    units = {
        (item.direction, item.space, item.copies[0].frame, item.seq)
        for item in iter_timeline(gallery.path(gallery.LOSSY))
        if isinstance(item, UnitRecord)
    }
    points = {
        (track.direction, track.space, point.frame, point.seq)
        for track in history.tracks.values()
        for point in track.points.points
    }
    assert points == units


def test_the_slowest_come_first_and_those_that_never_were_acknowledged_before_them() -> None:
    history = History(1)
    for seq, took in enumerate([3, 900, 70, None, 20]):
        history.unit(unit(seq, seq * SECOND, None if took is None else took * 1_000_000))
    assert [record.seq for record in history.slowest()] == [3, 1, 2, 4, 0]


def test_late_copies_of_a_unit_are_no_further_unit() -> None:
    """A copy that comes when the record of its unit has left has a record of its own, with an
    acknowledgement that came before it."""
    history = History(1)
    history.unit(unit(1, SECOND, 40_000_000))
    later = unit(1, SECOND, 40_000_000, extra={"continued": 2})
    later.copies = [Copy(900, 20 * SECOND, "retransmission")]
    assert history.unit(later) is False
    assert [point.took_ms for point in history.tracks[0, "reliable"].points.points] == [40.0]
    assert history.slowest()[0].copies[0].frame == 2
    assert len(history.slowest()) == 1
    rows = list(history.bins(0, SECOND))
    assert sum(row.units for row in rows) == 1
    assert [row.again for row in rows] == [0, 1]
    assert history.last_ns == 20 * SECOND


def test_what_is_kept_is_bounded() -> None:
    history = History(1, limit=500)
    for seq in range(5000):
        history.unit(unit(seq, seq * 10_000_000, seq * 1000))
        history.datagram(0, seq * 10_000_000, seq + 1, 40)
    track = history.tracks[0, "reliable"]
    assert len(track.points.points) <= 1000
    assert track.points.total == 5000
    assert len(history.slowest()) == MAX_SLOWEST
    assert len(track.window) <= MAX_WINDOW
    assert track.window[-1].seq == 4999


def test_a_later_unit_that_is_slower_is_reported() -> None:
    history = History(1)
    assert history.unit(unit(1, 0, 5_000_000))
    assert not history.unit(unit(2, SECOND, 4_000_000))
    assert history.unit(unit(3, 2 * SECOND, 6_000_000))


@pytest.mark.parametrize(
    "name", [gallery.LOSSY, gallery.DARK, gallery.SNAPSHOTS, gallery.FLOOD, gallery.STREAM]
)
def test_the_spans_of_a_rate_hold_what_the_report_counts(name: str) -> None:
    for history in gallery.histories(name).values():
        report = history.report
        assert report is not None
        for direction in (0, 1):
            bins = list(history.bins(direction, SECOND))
            spaces = [space for space in report.spaces if space.direction == direction]
            units = sum(space.units for space in spaces if space.space != "tcp")
            assert sum(row.units for row in bins) == units
            assert sum(row.again for row in bins) == sum(space.retransmissions for space in spaces)
            if report.transport == "udp":
                assert sum(row.datagrams for row in bins) == report.datagrams[direction]
                assert sum(row.octets for row in bins) == report.octets[direction]


def test_spans_grow_where_there_are_too_many() -> None:
    history = History(1)
    for hour in range(200):
        history.datagram(0, hour * 3600 * SECOND, hour + 1, 10)
    rows = list(history.bins(0, SECOND))
    assert sum(row.datagrams for row in rows) == 200
    assert rows[0].end_ns - rows[0].start_ns >= SECOND


def test_a_silence_is_longer_than_is_usual() -> None:
    history = History(1)
    for step in range(50):
        history.datagram(0, step * 100_000_000, step + 1, 10)
    history.datagram(0, 9 * SECOND, 51, 10)
    (silence,) = history.silences(0)
    assert (silence.start_ns, silence.end_ns, silence.frame) == (4_900_000_000, 9 * SECOND, 51)
    history.datagram(1, 20 * SECOND, 52, 10)
    assert history.silences(0)[-1] == (9 * SECOND, 20 * SECOND, 51)
    slow = History(1)
    for step in range(50):
        slow.datagram(0, step * 3 * SECOND, step + 1, 10)
    assert slow.silences(0) == []


def test_numbers_that_came_late_are_no_loss() -> None:
    history = gallery.histories(gallery.LOSSY)[1]
    lost = sum(row.lost for row in history.bins(1, SECOND))
    gaps = [
        item
        for item in iter_timeline(gallery.path(gallery.LOSSY))
        if isinstance(item, ConnectionEvent) and item.event == "gap" and item.direction == 1
    ]
    numbers = sum(gap.data["last_seq"] - gap.data["first_seq"] + 1 - gap.came for gap in gaps)
    assert lost == numbers == 15


def test_units_wait_until_they_are_acknowledged() -> None:
    history = History(1)
    for seq, (start, took) in enumerate([(0, 50), (10, 100), (20, 5), (200, 1)]):
        history.unit(unit(seq, start, took))
    track = history.tracks[0, "reliable"]
    track.finish(1000)
    waiting = [(step.time_ns, step.waiting) for step in track.waits.points]
    assert waiting == [(0, 1), (10, 2), (20, 3), (25, 2), (50, 1), (110, 0), (200, 1), (201, 0)]


def test_more_connections_than_can_be_followed_are_counted() -> None:
    crowd = Gallery()
    for number in range(1, MAX_HISTORIES + 11):
        crowd.datagram(number, 0, 1, number, 10)
    assert len(crowd.histories) == MAX_HISTORIES
    assert crowd.left_out == 10
    some = Gallery({3})
    some.datagram(1, 0, 1, 1, 10)
    some.datagram(3, 0, 1, 2, 10)
    assert set(some.histories) == {3}
    assert some.left_out == 0


def test_the_time_that_a_unit_took_counts_from_its_first_copy() -> None:
    record = unit(1, 5, 70)
    record.copies.append(Copy(9, 40, "retransmission"))
    assert took_ms(record) == pytest.approx(70 / 1e6)
    assert took_ms(unit(1, 5, None)) is None


def test_numbers_that_are_a_step_apart_are_counted_by_it() -> None:
    history = History(1)
    history.unit(unit(1, 0))
    data = {"space": "reliable", "first_seq": 3, "last_seq": 9, "step": 2}
    history.event(ConnectionEvent(1, "gap", 5, 5, 0, "", data))
    report = gallery.histories(gallery.LOSSY)[1].report
    assert report is not None
    history.finish(replace(report, vantage="server", first_time_ns=0, last_time_ns=10))
    assert [row.lost for row in history.bins(0, SECOND)] == [4]
