"""What `export --qlog` writes keeps to the schema, and says what the analysis says."""

from __future__ import annotations

import json
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import console_docs
from netdissect import analyze
from netdissect.cli import cli

CAPTURES = console_docs.ROOT / "captures"
LOSSY = CAPTURES / "riptide" / "udp_2.2.1_lossy_clientleg.pcap"
ONE = [LOSSY, CAPTURES / "knet" / "udp_any_interface.pcapng", CAPTURES / "netplay" / "text_low_mss.pcap"]


def written(path: Path, flavour: str, tmp_path: Path, *more: str) -> list[dict[str, Any]]:
    target = tmp_path / "out.sqlog"
    words = ["export", str(path), "--qlog", str(target), "--qlog-flavour", flavour, *more]
    result = CliRunner().invoke(cli, words)
    assert result.exit_code == 0, result.stderr
    text = target.read_text()
    assert text.startswith("\x1e")
    assert text.endswith("\n")
    return [json.loads(record) for record in text.split("\x1e")[1:]]


@pytest.mark.parametrize("path", ONE, ids=lambda path: path.stem)
def test_the_draft_follows_its_schema(path: Path, tmp_path: Path) -> None:
    head, *events = written(path, "draft", tmp_path, "--connection", "1")
    assert head["file_schema"] == "urn:ietf:params:qlog:file:sequential"
    assert head["serialization_format"] == "application/qlog+json-seq"
    trace = head["trace"]
    assert trace["vantage_point"]["type"] in {"client", "server", "network"}
    assert ("flow" in trace["vantage_point"]) == (trace["vantage_point"]["type"] == "network")
    assert all(":" in uri for uri in trace["event_schemas"])
    common = trace["common_fields"]
    assert common["time_format"] == "relative_to_epoch"
    assert datetime.fromisoformat(common["reference_time"]["epoch"]).tzinfo is not None
    assert events
    for event in events:
        assert set(event) == {"time", "name", "data"}
        assert isinstance(event["time"], float)
        assert event["name"].partition(":")[0] == "netdissect"
        assert isinstance(event["data"], dict)
    times = [event["time"] for event in events]
    assert times == sorted(times)


@pytest.mark.parametrize("path", ONE, ids=lambda path: path.stem)
def test_qvis_gets_the_names_and_members_that_it_draws(path: Path, tmp_path: Path) -> None:
    head, *events = written(path, "qvis", tmp_path, "--connection", "1")
    assert (head["qlog_version"], head["qlog_format"]) == ("0.3", "JSON-SEQ")
    assert isinstance(head["trace"]["common_fields"]["reference_time"], float)
    for event in events:
        data = event["data"]
        match event["name"]:
            case "transport:packet_sent" | "transport:packet_received":
                assert isinstance(data["header"]["packet_number"], int)
                assert data["raw"]["length"] >= 0
                assert all(frame["frame_type"] for frame in data["frames"])
            case "recovery:packet_lost":
                assert isinstance(data["header"]["packet_number"], int)
            case "recovery:metrics_updated":
                assert data["min_rtt"] <= data["latest_rtt"]
                assert data["min_rtt"] <= data["smoothed_rtt"]
            case other:
                raise AssertionError(other)


def test_every_datagram_loss_and_round_trip_is_there(tmp_path: Path) -> None:
    report = next(iter(analyze(LOSSY).connections))
    _, *events = written(LOSSY, "qvis", tmp_path, "--connection", "1")
    names = [event["name"] for event in events]
    local = 1 if report.vantage == "server" else 0
    assert names.count("transport:packet_sent") == report.datagrams[local]
    assert names.count("transport:packet_received") == report.datagrams[1 - local]
    own = [space for space in report.spaces if space.direction == local]
    assert names.count("recovery:metrics_updated") >= sum(space.rtt.samples for space in own) > 0
    assert names.count("recovery:packet_lost") >= sum(space.retransmissions for space in own) > 0
    gone = [event["data"]["header"]["packet_number"] for event in events if event["name"] == "recovery:packet_lost"]
    out = [event["data"]["header"]["packet_number"] for event in events if event["name"] == "transport:packet_sent"]
    assert set(gone) <= set(out)
    acked = [
        number
        for event in events
        for frame in event["data"].get("frames", ())
        if frame["frame_type"] == "ack"
        for first, last in frame["acked_ranges"]
        for number in range(first, last + 1)
    ]
    sent = {event["data"]["header"]["packet_number"] for event in events if "packet_" in event["name"]}
    assert acked
    assert set(acked) <= sent


def test_only_what_was_sent_is_lost_to_qvis(tmp_path: Path) -> None:
    path = CAPTURES / "netplay" / "bin1_lossy__client_side.pcap"
    _, *events = written(path, "qvis", tmp_path, "--connection", "1")
    packets: dict[str, set[int]] = {"transport:packet_sent": set(), "recovery:packet_lost": set()}
    for event in events:
        if event["name"] in packets:
            packets[event["name"]].add(event["data"]["header"]["packet_number"])
    sent, gone = packets.values()
    assert gone <= sent


def test_the_draft_has_losses_and_round_trips_of_both_directions(tmp_path: Path) -> None:
    report = next(iter(analyze(LOSSY).connections))
    _, *events = written(LOSSY, "draft", tmp_path, "--connection", "1")
    for way, name in enumerate(("c2s", "s2c")):
        own = [space for space in report.spaces if space.direction == way]
        told = [(event["name"], event["data"]) for event in events if event["data"].get("direction") == name]
        trips = [data for kind, data in told if kind == "netdissect:metrics_updated"]
        assert len(trips) == sum(space.rtt.samples for space in own) > 0
        assert trips[-1]["min_rtt"] == min(data["latest_rtt"] for data in trips)
        assert len(told) - len(trips) >= sum(space.retransmissions for space in own)


def test_of_several_connections_one_has_to_be_chosen(tmp_path: Path) -> None:
    path = CAPTURES / "riptide" / "udp_2.2.1_clean.pcap"
    result = CliRunner().invoke(cli, ["export", str(path), "--qlog", str(tmp_path / "x")])
    assert result.exit_code == 2
    assert "--connection" in result.stderr


@pytest.mark.parametrize("flavour", ["draft", "qvis"])
def test_a_round_trip_is_written_once(flavour: str, tmp_path: Path) -> None:
    """Also that of a unit one copy of which came long after its acknowledgement."""
    path = CAPTURES / "knet" / "udp_loss8.client.pcap"
    _, *events = written(path, flavour, tmp_path, "--connection", "1")
    trips = [event["time"] for event in events if event["name"].endswith("metrics_updated")]
    samples = sum(
        space.rtt.samples
        for space in analyze(str(path)).connections[0].spaces
        if flavour == "draft" or space.direction == 0
    )
    assert len(trips) == samples
