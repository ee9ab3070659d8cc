from __future__ import annotations

import csv
import io
import re
from xml.etree import ElementTree as ET

import pytest

import gallery
from netdissect.model.annotations import Severity
from netdissect.model.reports import Anomaly, ConnectionEvent, Copy, UnitRecord
from netdissect.plot.charts import KINDS, Wanted, charts, compare
from netdissect.plot.history import History
from netdissect.plot.rows import COLUMNS, rows
from netdissect.plot.svg import MAX_MARKS, document, picture
from netdissect.plot.terminal import draw
from netdissect.render.console import cells, line_text

CAPTURES = [gallery.LOSSY, gallery.DARK, gallery.SNAPSHOTS, gallery.FLOOD, gallery.STREAM]


def long_ago(seq: int) -> UnitRecord:
    start, took = seq * 10_000_000, 50_000_000 + seq * 7919 % 20_000_000
    return UnitRecord(
        1, 0, "reliable", seq, seq, None, [Copy(seq + 1, start, "original")], seq + 9, start + took,
        took / 1e6, False, "acked", None, start + 100_000_000,
    )  # fmt: skip


def text(kind: str, name: str = gallery.LOSSY, **more: object) -> list[str]:
    found = charts(kind, gallery.histories(name)[1])
    size = {"width": 80, "height": 10, **more}
    return [line_text(line).plain for chart in found for line in draw(chart, **size)]  # type: ignore[arg-type]


@pytest.mark.parametrize("name", CAPTURES)
@pytest.mark.parametrize("kind", KINDS)
def test_no_line_is_longer_than_the_screen(kind: str, name: str) -> None:
    for history in gallery.histories(name).values():
        for chart in charts(kind, history):
            for width in (40, 80):
                for line in draw(chart, width=width):
                    assert cells(line_text(line).plain) <= width
            plain = list(draw(chart, width=80, plain=True))
            assert "".join(line_text(line).plain for line in plain).isascii()


@pytest.mark.parametrize("name", CAPTURES)
@pytest.mark.parametrize("kind", KINDS)
def test_pictures_are_well_formed_and_inside_their_frame(kind: str, name: str) -> None:
    for history in gallery.histories(name).values():
        found = charts(kind, history)
        if not found:
            continue
        root = ET.fromstring(document(found))  # noqa: S314 - our own
        assert root.tag.endswith("svg")
        for chart in found:
            drawn = picture(chart, "p")
            for x, y in re.findall(r"[ML]([\d.-]+) ([\d.-]+)", drawn):
                assert 0 <= float(x) <= 1200
                assert 0 <= float(y) <= 500
            assert drawn.count('role="img"') == 1
            assert chart.said


def test_every_point_has_its_frame_in_the_rows() -> None:
    history = gallery.histories(gallery.LOSSY)[1]
    (client, server) = charts("acks", history)
    found = list(rows(client))
    again = [row for row in found if row["series"] == "several copies, ambiguous"]
    worst = max(again, key=lambda row: row["value"])
    assert (worst["frame"], worst["label"], worst["unit"]) == (208, "reliable 17", "ms")
    assert worst["value"] == pytest.approx(256.567, abs=0.001)
    assert all(set(row) == set(COLUMNS) for row in found + list(rows(server)))
    assert all(row["frame"] for row in found)
    assert {row["label"] for row in found if row["series"] == "finding"} == {"poor-quality"}


def test_a_receiver_next_to_the_capture_shows_no_round_trip() -> None:
    history = gallery.histories(gallery.LOSSY)[1]
    client, server = charts("acks", history)
    assert not client.notes
    assert "not a round trip" in server.notes[0]
    assert [chart.direction for chart in charts("rtt", history)] == [0]


def test_marks_are_characters_over_the_dots() -> None:
    lines = text("acks")
    assert sum(line.count("»") for line in lines) > 40
    assert any("⠄ one copy, a true round trip" in line for line in lines)
    dark = text("acks", gallery.DARK)
    lane = next(line for line in dark if line.lstrip().startswith("? ┤"))
    assert lane.count("?") > 30


def test_lost_units_are_seen_in_a_rate_however_few() -> None:
    lines = text("rate")
    assert any("▒" in line for line in lines)
    assert any("░" in line for line in lines)


def test_a_silence_is_drawn_with_its_length() -> None:
    assert any("15.57 s" in line or "15.6 s" in line for line in text("gaps", gallery.DARK))


def test_snapshots_are_drawn_where_a_protocol_has_them() -> None:
    assert text("snapshots", gallery.SNAPSHOTS)
    assert charts("snapshots", gallery.histories(gallery.LOSSY)[1]) == []


def test_a_finding_that_lasts_is_a_span() -> None:
    history = History(1)
    for seq in range(100):
        history.unit(long_ago(seq))
    zero = history.first_ns or 0
    evidence = {"from_ns": zero + 100_000_000, "to_ns": zero + 300_000_000, "frames": [10, 30]}
    for severity in (Severity.WARN, Severity.CHAT):
        history.finding(
            Anomaly("burst-loss", severity, "sequence", None, None, 1, 0, "lost", evidence)
        )
    (chart,) = charts("acks", history)
    (band,) = chart.bands
    assert (band.start_ns, band.end_ns, band.label) == (*list(evidence.values())[:2], "burst-loss")
    assert 'class="band finding"' in picture(chart, "p")
    assert [row["until_ns"] for row in rows(chart) if row["series"] == "finding"] == [band.end_ns]
    assert charts("acks", history, Wanted(start_ns=500_000_000))[0].bands == []


def test_a_stream_shows_its_messages_and_not_its_segments_too() -> None:
    history = gallery.histories(gallery.STREAM)[1]
    shown = {track.space for way in (0, 1) for track in history.shown(way)}
    assert shown == {"message"}


def test_a_span_and_a_space_can_be_requested() -> None:
    history = gallery.histories(gallery.LOSSY)[1]
    zero = history.first_ns or 0
    wanted = Wanted("notify", 3_000_000_000, 4_000_000_000)
    (client, server) = charts("acks", history, wanted)
    times = [point.time_ns for series in client.series for point in series.points]
    assert times
    assert min(times) >= zero + 3_000_000_000
    assert max(times) <= zero + 4_000_000_000
    assert (client.start_ns, server.end_ns) == (zero + 3_000_000_000, zero + 4_000_000_000)
    assert charts("acks", history, Wanted("nothing")) == []


@pytest.mark.parametrize("kind", ["acks", "rtt", "rate"])
def test_the_sentence_is_of_the_span_that_is_shown(kind: str) -> None:
    """It had the figures of the whole connection beside a picture of a second."""
    history = gallery.histories(gallery.LOSSY)[1]
    figures = [
        int(re.search(r"([0-9,]+) (?:of|units|round|were)", chart.said)[1].replace(",", ""))
        for wanted in (Wanted(), Wanted(start_ns=3_000_000_000, end_ns=4_000_000_000))
        for chart in charts(kind, history, wanted)[:1]
    ]
    assert 0 < figures[1] < figures[0]


def test_charts_that_are_compared_have_the_same_axes() -> None:
    found = [
        chart
        for history in gallery.histories("eoudp/late_two_clients.pcap").values()
        for chart in charts("acks", history)
    ]
    assert len({chart.connection for chart in found}) == 2
    compare(found)
    assert len({(chart.high, chart.end_ns - chart.zero_ns) for chart in found}) == 1


def test_every_point_of_traffic_has_its_frame() -> None:
    """The start of a queue had none, nor had units given up, nor an interval in which TCP only sent
    again, nor a silence to the end.
    """
    for name in (
        "riptide/udp_2.2.1_lossy_clientleg.pcap", "netplay/bin1_lossy__client_side.pcap",
        "eoudp/late_two_clients_one_killed.pcap",
    ):  # fmt: skip
        for history in gallery.histories(name).values():
            for kind in ("acks", "queue", "rate", "rtt", "seq", "gaps"):
                for chart in charts(kind, history):
                    points = [point for one in chart.series for point in one.points]
                    assert all(point.frame for point in points), (name, kind)
                    silences = [band for band in chart.bands if band.kind == "silence"]
                    assert all(band.frame for band in silences), name


def test_lines_end_with_their_connection() -> None:
    """Beside a longer connection, the last value of a shorter one went on to the end of the axis."""
    found = [
        chart
        for history in gallery.histories("eoudp/late_two_clients.pcap").values()
        for chart in charts("queue", history)[:1]
    ]
    spans = [chart.end_ns - chart.zero_ns for chart in found]
    compare(found)
    ends = [
        float(re.search(r'class="steps[^"]*" d="[^"]*L([0-9.]+) [^L"]*"', picture(chart, "p"))[1])
        for chart in found
    ]
    short, long = sorted(zip(spans, ends, strict=True))
    assert short[0] < long[0]
    assert short[1] < long[1]


def test_a_large_picture_is_thinned_and_says_so() -> None:
    history = History(1)
    for seq in range(9000):
        history.unit(long_ago(seq))
    (chart,) = charts("acks", history)
    whole = picture(chart, "p")
    assert "9,000 points, extremes and marks kept" in chart.notes
    thin = picture(chart, "p", most=200)
    assert len(thin) < len(whole) / 4
    marks = sum(path.count("M") for path in re.findall(r' d="([^"]*)"', thin))
    assert marks <= MAX_MARKS


def test_the_rows_are_those_of_a_table() -> None:
    from netdissect.export.table import write_rows

    chart = charts("rtt", gallery.histories(gallery.LOSSY)[1])[0]
    stream = io.StringIO()
    write_rows(stream, COLUMNS, ([(row[name],) for name in COLUMNS] for row in rows(chart)))
    read = list(csv.DictReader(io.StringIO(stream.getvalue())))
    assert {row["series"] for row in read} >= {"unit sent once", "heartbeat", "smoothed (1/8)"}


def test_every_round_trip_counts_in_the_sentence() -> None:
    history = History(1)
    for ms in (10, 20, 30):
        data = {"kind": "ping", "rtt_ms": ms}
        history.event(ConnectionEvent(1, "probe", ms, ms, 1, "", data))
    (chart,) = charts("rtt", history)
    assert chart.said == "3 round trips from 10.0 ms to 30.0 ms, half of them below 20.0 ms."


def test_a_peer_that_skips_billions_of_numbers_is_drawn() -> None:
    history = History(1)
    history.unit(long_ago(1))
    later = long_ago(2)
    later.seq = 4_000_000_000
    history.unit(later)
    data = {"space": "reliable", "first_seq": 2, "last_seq": 3_999_999_999}
    history.event(ConnectionEvent(1, "gap", 20_000_000, 3, 0, "", data))
    (chart,) = charts("seq", history)
    unseen = next(one for one in chart.series if one.name == "never seen here")
    assert 90 <= len(unseen.points) <= 101
    data["first_seq"], data["last_seq"] = 10, 16
    data["step"] = 2
    (chart,) = charts("seq", history)
    unseen = next(one for one in chart.series if one.name == "never seen here")
    assert [point.value for point in unseen.points] == [10, 12, 14, 16]
