"""Every Netplay capture against what its makers counted: TCP facts, streams, messages, states, flags.

Keys of the truth files that are not compared, and why:

================================================  ==================================================
key                                               reason
================================================  ==================================================
`app_log`, `program_output`, `lines_typed`,       what the programs logged and typed. What they sent
`receiver_events`, `receiver_output`,             stands in the message lists; what a receiver lost
`server_received`, `server_events`                in its own buffers is not visible on the wire
`link`, `impairment`                              packets that this side of the link never saw
`ip_id_view`                                      an optional refinement (section 8); shown as
                                                  `reordered` and `exact_duplicates`
`message_list` beyond its first 80 entries        the files hold no more
`sha256_of_payload`, `sha256_of_body`             stand-ins for values too long for the file; the
                                                  `stream_sha256` covers the same bytes
================================================  ==================================================

`ack_rtt_at_this_vantage` counts a range as sent once where no segment with the same end was seen
again; the tracker asks the same of every byte of the range, so it may have up to two samples less,
and none of those that a retransmission with other boundaries spoils.
"""

from __future__ import annotations

import json
from collections import defaultdict
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from netdissect.export.json import dump, message
from netdissect.model.reports import ConnectionReport, SpaceReport
from netdissect.pipeline import Analysis, Options, analyze, decode_as, iter_timeline
from netdissect.pipeline.delivery import delivered
from netdissect.pipeline.iterate import iter_records

CAPTURES = Path(__file__).resolve().parents[2] / "captures" / "netplay"
NAMES = sorted(path.name.removesuffix(".truth.json") for path in CAPTURES.glob("*.truth.json"))
DIRECTIONS = ("c2s", "s2c")
SILENT = {"bin1_default_max_zero", "bin1_port_closed", "text_port_closed"}
"""Captures without one byte of stream: nothing but a rule of the user tells what they are."""


@cache
def truth(name: str) -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads((CAPTURES / f"{name}.truth.json").read_text())
    return loaded


def capture(name: str) -> Path:
    return next(path for path in CAPTURES.glob(f"{name}.pcap*") if path.suffix != ".json")


def options(name: str) -> Options:
    if name not in SILENT:
        return Options(strict=True)
    rule = decode_as(f"tcp.port=={truth(name)['ports']['server']},netplay-{truth(name)['dialect']}")
    return Options(strict=True, decode_as=(rule,))


@cache
def analysis(name: str) -> Analysis:
    return analyze(capture(name), options=options(name))


def endpoint(text: str) -> str:
    """Return an endpoint as netdissect writes it: the truth files have no brackets."""
    address, _, port = text.rpartition(":")
    return f"[{address}]:{port}" if ":" in address else text


@cache
def pairs(name: str) -> list[tuple[dict[str, Any], ConnectionReport]]:
    """Return the connections of a truth file with our reports, in order."""
    left = list(analysis(name).connections)
    found = []
    for wanted in truth(name)["expect"]["connections"]:
        client = endpoint(wanted["client"])
        mine = next(report for report in left if report.client == client)
        left.remove(mine)
        found.append((wanted, mine))
    assert not left, f"{len(left)} connections that the truth file does not have"
    return found


def space(report: ConnectionReport, kind: str, direction: int) -> SpaceReport | None:
    return next((s for s in report.spaces if (s.space, s.direction) == (kind, direction)), None)


@pytest.mark.parametrize("name", NAMES)
def test_connections_states_and_handshakes(name: str) -> None:
    for wanted, report in pairs(name):
        if "dialect" in wanted:
            assert report.dialects == (f"netplay-{wanted['dialect']}",) * 2
        assert report.identity["tcp_state"] == wanted["state_at_end"]
        assert report.first_frame == wanted.get("first_packet_no", report.first_frame)
        if "server" in wanted:
            assert report.server == endpoint(wanted["server"])
        measured = report.identity["syn_to_synack_ms"]
        if wanted.get("syn_to_synack_ms") is not None:
            assert measured == pytest.approx(wanted["syn_to_synack_ms"], abs=0.02)
        if "duration_s" in wanted:
            span = (report.last_time_ns - report.first_time_ns) / 1e9
            assert span == pytest.approx(wanted["duration_s"], abs=0.001)


@pytest.mark.parametrize("name", NAMES)
def test_closing_segments_are_events_of_the_timeline(name: str) -> None:
    for wanted, report in pairs(name):
        if "close_events" not in wanted:
            continue
        ends = [event for event in wanted["close_events"] if event["flag"] in ("FIN", "RST")]
        if not ends:
            assert report.close is None
            continue
        sides = {"c2s": "client", "s2c": "server"}
        assert report.close is not None
        assert report.close["by"] == sides[ends[0]["dir"]]
        assert report.close["reason"] == ends[0]["flag"]
        resets = [event for event in ends if event["flag"] == "RST"]
        if resets and resets[0] is not ends[0]:
            assert report.close["reset_by"] == sides[resets[0]["dir"]]


@pytest.mark.parametrize("name", NAMES)
def test_tcp_facts_and_streams(name: str) -> None:
    for wanted, report in pairs(name):
        for direction, label in enumerate(DIRECTIONS):
            if label not in wanted:
                continue
            facts = wanted[label]["tcp"]
            mine = space(report, "tcp", direction)
            if mine is None:
                assert not any(facts.values())
                continue
            extra = mine.extra
            found = {
                "payload_packets": mine.copies,
                "payload_bytes_on_wire": extra["octets_on_wire"],
                "retransmitted": mine.retransmissions,
                "exact_duplicates_same_ip_id": mine.duplicates,
                **{key: extra[key] for key in facts if key in extra and key != "retransmitted"},
            }
            assert {key: found[key] for key in facts} == facts
            assert mine.copies == mine.units + mine.retransmissions + mine.duplicates
            assert mine.units == mine.acked + mine.unacked + mine.unknown
            assert extra["stream_octets"] == wanted[label]["stream_bytes"]
            assert extra["stream_sha256"] == wanted[label]["stream_sha256"]


@pytest.mark.parametrize("name", NAMES)
def test_messages_by_type_and_what_is_left(name: str) -> None:
    for wanted, report in pairs(name):
        for direction, label in enumerate(DIRECTIONS):
            facts = wanted.get(label, {})
            if "messages" not in facts:
                continue
            found = report.messages[direction]
            assert sum(found.values()) == facts["messages"]
            # The truth files cut class lines that are no names to 40 characters.
            assert sorted((key[:40], n) for key, n in found.items()) == sorted(
                (key[:40], n) for key, n in facts["by_type"].items()
            )
            mine = space(report, "message", direction)
            tcp = space(report, "tcp", direction)
            left = mine.extra["leftover_octets"] if mine else tcp.extra["stream_octets"] if tcp else 0
            assert left == facts["leftover_bytes"]
            if mine is not None:
                assert mine.units == facts["messages"]


@pytest.mark.parametrize("name", NAMES)
def test_round_trips_of_exact_acknowledgements(name: str) -> None:
    for wanted, report in pairs(name):
        for direction, label in enumerate(DIRECTIONS):
            facts = wanted.get("ack_rtt_at_this_vantage", {}).get(label)
            mine = space(report, "tcp", direction)
            if not facts or mine is None:
                continue
            samples = facts["samples_exact_ack_not_retransmitted"]
            assert samples - 2 <= mine.rtt.samples <= samples
            if not mine.rtt.samples:
                continue
            assert mine.rtt.minimum == pytest.approx(facts["min_ms"], abs=0.02)
            assert mine.rtt.maximum is not None
            assert mine.rtt.maximum <= facts["max_ms"] + 0.02
            if mine.rtt.samples == samples:
                assert mine.rtt.maximum == pytest.approx(facts["max_ms"], abs=0.02)


@cache
def read_back(name: str) -> dict[tuple[int, int], list[dict[str, Any]]]:
    """Return the messages of `read --json` by (connection, direction)."""
    found: dict[tuple[int, int], list[dict[str, Any]]] = defaultdict(list)
    for record in iter_records(capture(name), options=options(name)):
        if record.protocol == "netplay" and record.connection is not None:
            rows = [json.loads(dump(message(record, item))) for item in record.messages]
            found[record.connection, record.direction or 0] += rows
    return found


def assert_message(row: dict[str, Any], wanted: dict[str, Any]) -> None:
    """Assert that a row of `read` holds what the truth file says of the message."""
    fields = row["fields"]
    for key in ("length", "options", "type", "inflated_len"):
        if key in wanted and "decoded" in wanted:
            assert fields[key] == wanted[key]
    decoded = wanted.get("decoded")
    if decoded is not None and "sha256_of_payload" not in decoded:
        assert fields["decoded"] == decoded
    if "json" in wanted and "sha256_of_body" not in str(wanted["json"])[:60]:
        assert fields["json"] == wanted["json"]
    if "cls" in wanted:
        assert fields["class_name"][:40] == wanted["cls"][:40]
    if "chunks" in wanted:
        assert row["length"] == wanted["length"] + 2
    else:
        assert row["length"] == wanted["size"]
    known = {"length": "frame-length-below-3", "zlib": "zlib", "no": "unknown-type", "payload": "payload-underrun"}
    if "error" in wanted:
        codes = {note["code"] for note in row["annotations"]}
        first = wanted["error"].replace(":", " ").split()[0]
        expected = known.get(first, "json-invalid" if wanted.get("body") else "empty-body-line")
        assert any(expected in code for code in codes), (wanted["error"], codes)


@pytest.mark.parametrize("name", NAMES)
def test_message_lists(name: str) -> None:
    for wanted, report in pairs(name):
        for direction, label in enumerate(DIRECTIONS):
            listed = wanted.get(label, {}).get("message_list", [])
            rows = read_back(name)[report.connection, direction]
            assert len(rows) >= len(listed)
            for row, item in zip(rows, listed, strict=False):
                assert_message(row, item)


@pytest.mark.parametrize("name", NAMES)
def test_expected_flags(name: str) -> None:
    expect = truth(name)["expect"]
    reports = [report for _, report in pairs(name)]
    for flag in expect.get("expected_flags", []):
        report = reports[flag["connection"]]
        assert flag["flag"] in _codes(name, report, DIRECTIONS.index(flag["dir"]))
    for case in expect.get("cases", []):
        if "expected_flags" not in case:
            continue
        report = next(r for r in reports if r.client == endpoint(case["client"]))
        assert set(case["expected_flags"]) <= _codes(name, report, 0)


def _codes(name: str, report: ConnectionReport, direction: int) -> set[str]:
    """Return the codes found about one direction: by the tracker, and in the messages themselves."""
    found = {
        anomaly.code
        for anomaly in analysis(name).anomalies
        if anomaly.connection == report.connection and anomaly.direction in (direction, None)
    }
    rows = read_back(name)[report.connection, direction]
    return found | {note["code"] for row in rows for note in row["annotations"]}


@pytest.mark.parametrize("name", ["bin1_lossy__client_side", "bin3_example_chat", "text_types"])
def test_every_message_is_followed_in_order(name: str) -> None:
    """TCP repeats what is lost: all messages of a stream are reliable."""
    records = list(iter_records(capture(name), options=options(name)))
    for wanted, report in pairs(name):
        found: dict[int, list[int]] = defaultdict(list)
        for record, item in delivered(r for r in records if r.connection == report.connection):
            assert item.reliability is not None
            found[record.direction or 0].append(item.reliability.seq)
        for direction, label in enumerate(DIRECTIONS):
            count = wanted.get(label, {}).get("messages", 0)
            assert found[direction] == list(range(1, count + 1))


def test_timer_resends_double_their_waits() -> None:
    """A dead path: the timer's gaps grow (section 8), and nothing answers."""
    name = "bin1_blackout_tcp_timeout__client_side"
    waits = [
        item.data["waited_ms"]
        for item in iter_timeline(capture(name), options=options(name))
        if getattr(item, "event", None) == "rto"
    ]
    assert len(waits) == 4
    for before, after in pairwise(waits[1:]):
        assert 1.8 < after / before < 2.2
    report, *_ = analysis(name).connections
    client = next(s for s in report.spaces if (s.space, s.direction) == ("tcp", 0))
    assert client.extra["timer_resends"] == client.retransmissions == 4
    assert report.identity["tcp_state"] == "open"


@pytest.mark.parametrize("name", NAMES)
def test_closed_windows_are_events(name: str) -> None:
    """Every zero window lies between a closing and an opening of the timeline."""
    closed: dict[tuple[int, int], int] = defaultdict(int)
    for item in iter_timeline(capture(name), options=options(name)):
        if getattr(item, "event", None) == "window" and not item.data["open"]:
            closed[item.connection, item.direction] += 1
    for _, report in pairs(name):
        for space in report.spaces:
            if space.space == "tcp":
                assert closed[report.connection, space.direction] == space.extra["window_closures"]
                assert bool(space.extra["zero_window"]) == bool(space.extra["window_closures"])
                assert (space.extra["window_closed_ms"] > 0) == bool(space.extra["zero_window"])


@pytest.mark.parametrize("name", ["bin1_lossy__server_side", "text_lossy__server_side"])
def test_every_hole_is_filled_and_told(name: str) -> None:
    """Beside the receiver a lost segment is a hole until its retransmission comes."""
    open_octets = filled = 0
    for item in iter_timeline(capture(name), options=options(name)):
        if getattr(item, "event", None) == "hole":
            if item.data["open"]:
                open_octets += item.data["octets"]
            else:
                filled += item.data["octets"]
                assert item.data["waited_ms"] > 0
    assert open_octets == filled > 1000
    assert all(
        space.extra["missing_octets"] == 0
        for report in analysis(name).connections
        for space in report.spaces
        if space.space == "tcp"
    )


HAZARDS = {"chunk-coalesced", "chunk-split", "utf8-split-across-segments", "desync-suspected"}
"""What the real receiver will misread: segments show it, the bytes of a message alone do not."""


@pytest.mark.parametrize("name", NAMES)
def test_hazards_of_the_receiver_stand_at_their_messages(name: str) -> None:
    for report in analysis(name).connections:
        # Anomalies are told at 1, 10, 100 ... repeats of a code, whatever the direction.
        found = {
            (anomaly.code, anomaly.direction, anomaly.frame)
            for anomaly in analysis(name).anomalies
            if anomaly.connection == report.connection and anomaly.code in HAZARDS
        }
        shown = {
            (note["code"], direction, row["frame"])
            for direction in (0, 1)
            for row in read_back(name)[report.connection, direction]
            for note in row["annotations"]
            if note["code"] in HAZARDS
        }
        assert found <= shown
        assert {code for code, _, _ in shown} == {code for code, _, _ in found}


def test_every_message_of_a_burst_that_bin3_loses_is_marked() -> None:
    """Two segments hold 17 messages: the receiver takes what one read returns for one chunk."""
    rows = read_back("bin3_coalesced_breaks_receiver__server_leg")[1, 0]
    marked = [row["frame"] for row in rows if any(n["code"] == "chunk-coalesced" for n in row["annotations"])]
    assert marked == [30] * 14 + [32] * 3


def test_nothing_foreign_is_claimed() -> None:
    """The mixed capture holds HTTP, DNS, NDJSON, SMTP, RESP, STOMP, TLS and another framing."""
    foreign = set(truth("mixed_dialects_and_noise")["expect"]["must_not_be_claimed_as_netplay"].values())
    assert foreign
    servers = {int(r.server.rpartition(":")[2]) for r in analysis("mixed_dialects_and_noise").connections}
    assert len(servers) == 4
    assert not servers & foreign


@pytest.mark.parametrize("name", ["bin1_midstream_start", "text_midstream_start"])
def test_from_the_middle_only_real_messages_are_shown(name: str) -> None:
    """Each message shown was sent: its sender and text are in the program's own log or schema."""
    (_, report), = pairs(name)
    rows = [row for direction in (0, 1) for row in read_back(name)[report.connection, direction]]
    assert len(rows) > 10
    for row in rows:
        assert "decoded" in row["fields"] or "json" in row["fields"]
    assert not report.complete
    codes = {anomaly.code for anomaly in analysis(name).anomalies}
    assert {"unknown-start", "octets-skipped"} <= codes


def test_octets_cut_by_the_snap_length_are_no_protocol_error() -> None:
    anomalies = analysis("bin1_snaplen_96").anomalies
    assert any(anomaly.code == "snapped" for anomaly in anomalies)
    assert not any(anomaly.severity.label == "error" for anomaly in anomalies)
    assert not any(anomaly.code.startswith("incomplete") for anomaly in anomalies)


def test_lost_segments_hold_back_whole_messages() -> None:
    """Behind the hole all messages become readable at the same moment (section 8)."""
    (_, report), = pairs("bin1_lossy__client_side")
    mine = space(report, "message", 1)
    assert mine is not None
    assert mine.extra["blocked"] > 50
    assert 200 < mine.extra["max_blocked_ms"] < 400
    assert report.vantage == "client"
    (_, other), = pairs("bin1_lossy__server_side")
    assert other.vantage == "server"
