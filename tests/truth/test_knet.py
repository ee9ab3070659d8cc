"""kNet's captures against what the two programs and the relay logged.

Truth keys that are not compared, and why:

| key | reason |
|---|---|
| `what`, `made_with`, `ports`, `impairment`, `outcome`, `facts` | text for people; what it says is compared by the figures |
| `bytes_sent`, `app_messages_*`, `messages_received_by_type`, `datagrams_received_*` | inside the programs |
| `reported_smoothed_rtt_ms` | the library's own arithmetic; the samples it rests on are compared |
| `path_log`, `fate_after_this_point` | the other side of the relay, which this capture cannot show |
| counters of the far side of a relay | what it sent or got is not in this capture |
| `udp_no_listener`, `udp_not_accepting` | eight zero bytes and nothing else: no evidence of kNet (section 13) |
| `udp_simulator` timeouts and resends | the library's own simulator dropped datagrams before they were captured: what they carried cannot be seen; what was sent and acknowledged is compared |
| `udp_simulator_corrupt` acks, timeouts, numbers of the client | a quarter of its datagrams carries wrong numbers; what was sent is compared |
| `udp_early_data_ghost*` server timeouts | five connection objects share the address pair and their numbers; their sums are compared |
"""

from __future__ import annotations

import json
from collections import Counter
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from agreement import captures
from netdissect.model.reports import ConnectionReport, UnitRecord
from netdissect.pipeline import Options, analyze, decode_as, iter_timeline
from netdissect.pipeline.iterate import iter_records
from twocaptures import rewritten

PATHS = captures("knet")
WAYS = ("c2s", "s2c")
UNKNOWABLE = ("udp_no_listener", "udp_not_accepting")
SHARED_NUMBERS = ("udp_early_data_ghost", "udp_early_data_ghost_kept")
DAMAGED = ("udp_simulator_corrupt",)
HIDDEN = ("udp_simulator",)
CUT = ("udp_snaplen_96",)
FORKED = ("urho_fork_clean", "urho_fork_loss.client", "urho_fork_loss.server")
"""The Urho3D fork under a test program: its wire format is that of 2.x, its messages are not Urho3D's."""
ONE_MORE = {
    # A datagram 63 03 00 announces a base that is not there: its receiver acknowledges it, the truth's
    # own decoder does not count it.
    ("udp_malformed_to_client.client", "s2c"), ("udp_malformed_to_server.server", "c2s"),
}  # fmt: skip
LAST_MOMENT = {("knet2010_loss.server", 1): 1}
"""Timeouts after the sender's last captured datagram: nothing on the wire shows them."""
PROGRAM_MS = 25.0
"""What a program's own measurement is longer than the wire's at most: its worker threads sleep."""
CLOSING_MS = 150.0
"""From a program's verdict to its FIN at most: its thread ends first."""


@cache
def told(path: Path) -> dict[str, Any]:
    truth: dict[str, Any] = json.loads(path.with_suffix(".truth.json").read_text())
    return truth


@cache
def reports(path: Path) -> list[ConnectionReport]:
    return analyze(path, options=Options(strict=True)).connections


@cache
def units(path: Path) -> list[UnitRecord]:
    return [record for record in iter_timeline(path) if isinstance(record, UnitRecord)]


def near(path: Path) -> set[int]:
    """Return the directions whose sender stands next to the capture."""
    vantage = told(path)["vantage"]
    if vantage.startswith("client"):
        return {0}
    return {1} if vantage.startswith("server") else {0, 1}


def space(report: ConnectionReport, name: str, direction: int) -> Any:
    found = [s for s in report.spaces if s.space == name and s.direction == direction]
    return found[0] if found else None


def with_(key: str, paths: list[Path] = PATHS, without: tuple[str, ...] = ()) -> Any:
    chosen = [
        path for path in paths
        if key in told(path)["expect"] and path.stem not in (*UNKNOWABLE, *without)
    ]  # fmt: skip
    assert chosen
    return pytest.mark.parametrize("path", chosen, ids=[path.stem for path in chosen])


ALL = [path for path in PATHS if path.stem not in UNKNOWABLE]


@pytest.mark.parametrize("path", ALL, ids=[path.stem for path in ALL])
def test_every_connection_is_recognised_with_its_dialect(path: Path) -> None:
    wanted = told(path)["dialect"]
    if told(path)["transport"] == "tcp":
        wanted = "knet-tcp"
    if path.stem in FORKED:
        wanted = "knet-2.x"
    connections = told(path)["expect"].get("connections", [])
    assert reports(path)
    assert len(reports(path)) == len(connections) or not connections
    for report in reports(path):
        assert report.protocol == "knet"
        assert report.dialects == (wanted, wanted)


@pytest.mark.parametrize("stem", UNKNOWABLE)
def test_eight_zeros_alone_are_no_evidence(stem: str) -> None:
    path = next(path for path in PATHS if path.stem == stem)
    assert reports(path) == []


@pytest.mark.parametrize("stem", UNKNOWABLE)
def test_eight_zeros_are_an_attempt_where_the_user_says_so(stem: str) -> None:
    path = next(path for path in PATHS if path.stem == stem)
    rule = decode_as(f"udp.port=={told(path)['ports']['server']},knet")
    (report,) = analyze(path, options=Options(strict=True, decode_as=(rule,))).connections
    (wanted,) = told(path)["expect"]["connections"]
    assert (report.client, report.server) == (wanted["client"], wanted["server"])
    # Without an error, the capture ends before an answer is due.
    refused = "ICMP" in wanted["outcome"]
    word = "unanswered" if refused else "not_seen"
    assert (report.handshake, report.datagrams) == (word, (1, 0))
    assert report.messages == ({}, {})
    if refused:
        assert report.close == {"by": "client", "reason": "port unreachable", "frame": 2}
        assert report.state_name == "ConnectionClosed"
    else:
        assert (report.state_name, report.close) == ("ConnectionPending", None)


@with_("this_capture", without=CUT)
def test_datagrams_and_messages_by_type(path: Path) -> None:
    counts = told(path)["expect"]["this_capture"]
    for direction, way in enumerate(WAYS):
        got = sum(report.datagrams[direction] for report in reports(path))
        assert got == counts["udp_datagrams"][way]
        messages: Counter[str] = Counter()
        for report in reports(path):
            messages.update(report.messages[direction])
        wanted = Counter(counts["messages_in_capture"][way])
        if path.stem in DAMAGED:
            # One message more is read before the fault of a damaged datagram.
            assert sum(((messages - wanted) + (wanted - messages)).values()) <= 1
        else:
            assert messages == wanted
        reliable = sum(
            s.extra["ack_wanted"]
            for report in reports(path)
            for s in report.spaces
            if s.space == "datagram" and s.direction == direction
        )
        more = 1 if (path.stem, way) in ONE_MORE else 2 if path.stem in DAMAGED else 0
        assert 0 <= reliable - counts["reliable_datagrams_in_capture"][way] <= more


def test_a_cut_capture_is_read_as_far_as_it_goes() -> None:
    path = next(path for path in PATHS if path.stem in CUT)
    counts = told(path)["expect"]["this_capture"]
    (report,) = reports(path)
    assert sum(report.datagrams) == sum(counts["udp_datagrams"].values())
    heads = counts["header_of_cut_frames_frame_packetid_reliable"]
    whole = sum(counts["reliable_datagrams_in_capture"].values())
    wanted = sum(s.extra["ack_wanted"] for s in report.spaces if s.space == "datagram")
    assert len(counts["frames_cut_by_capture"]) >= len(heads)
    assert wanted >= whole + sum(bool(head[2]) for head in heads)
    assert report.anomalies["error"] == 0


def pairs(path: Path) -> list[tuple[dict[str, Any], ConnectionReport]]:
    """Return each connection of the truth with our report: those of one client in order."""
    connections = told(path)["expect"].get("connections", [])
    found = []
    ours = list(reports(path))
    for wanted in connections:
        report = next(r for r in ours if wanted.get("client") in (r.client, None))
        ours.remove(report)
        found.append((wanted, report))
    return found


ENDPOINTS = ("client_endpoint", "server_endpoint_objects")


def logs(path: Path) -> list[tuple[list[dict[str, Any]], ConnectionReport, int]]:
    """Return (logs of the connection objects, our report, direction) of the near sides.

    Connections on one address pair share the server's log: there it is compared with their sum.
    """
    found = []
    for wanted, report in pairs(path):
        alone = sum(other.client == report.client for other in reports(path)) == 1
        found += [
            (wanted[ENDPOINTS[direction]], report, direction)
            for direction in near(path)
            if alone and wanted[ENDPOINTS[direction]]
        ]
    return found


def total(objects: list[dict[str, Any]], key: str) -> int:
    return sum(log.get(key) or 0 for log in objects)


@with_("connections", without=(*SHARED_NUMBERS, *DAMAGED, *HIDDEN))
def test_senders_counted_the_same(path: Path) -> None:
    if told(path)["transport"] == "tcp":
        pytest.skip("no datagrams")
    for objects, report, direction in logs(path):
        datagrams = space(report, "datagram", direction)
        reliable = space(report, "reliable", direction)
        if datagrams is None:
            assert total(objects, "datagrams_sent") == 0
            continue
        assert datagrams.units == total(objects, "datagrams_sent")
        assert datagrams.acked == total(objects, "datagrams_acked")
        late = LAST_MOMENT.get((path.stem, direction), 0)
        assert datagrams.extra["timed_out"] == total(objects, "datagrams_timed_out") - late
        sent = total(objects, "distinct_reliable_messages_sent")
        if reliable is None:
            assert sent == 0
            continue
        assert reliable.units == sent
        assert reliable.retransmissions == total(objects, "reliable_message_retransmissions")
        assert reliable.max_copies == max(log["max_transmissions_of_one_message"] for log in objects)


@pytest.mark.parametrize("stem", SHARED_NUMBERS)
def test_objects_that_share_an_address_pair_add_up(stem: str) -> None:
    """The client has one object; of the server's five each numbers from the start."""
    path = next(path for path in PATHS if path.stem == stem)
    ((wanted, report),) = pairs(path)
    for direction, key in enumerate(ENDPOINTS):
        objects = wanted[key]
        datagrams = space(report, "datagram", direction)
        reliable = space(report, "reliable", direction)
        assert datagrams.copies == total(objects, "datagrams_sent")
        assert datagrams.acked == total(objects, "datagrams_acked")
        assert reliable.units == objects[0]["distinct_reliable_messages_sent"]
        sent = total(objects, "distinct_reliable_messages_sent")
        resent = total(objects, "reliable_message_retransmissions")
        assert reliable.copies == sent + resent
    # The client resends to one object only: nothing of it is shared.
    client = space(report, "datagram", 0), space(report, "reliable", 0)
    (log,) = wanted[ENDPOINTS[0]]
    assert client[0].units == log["datagrams_sent"]
    assert client[0].extra["timed_out"] == log["datagrams_timed_out"]
    assert client[1].retransmissions == log["reliable_message_retransmissions"]
    assert client[1].max_copies == log["max_transmissions_of_one_message"]


@pytest.mark.parametrize("stem", SHARED_NUMBERS)
def test_what_ghosts_begin_with_is_no_network_copy(stem: str) -> None:
    """Each sends an equal first datagram; there was no impairment."""
    report = analyze(next(path for path in PATHS if path.stem == stem)).connections[0]
    assert [space.duplicates for space in report.spaces] == [0, 0, 0, 0]


def test_ghosts_are_explained_where_their_numbers_collide() -> None:
    path = next(path for path in PATHS if path.stem == "udp_early_data_ghost_kept")
    found = [one for one in analyze(path).anomalies if one.code == "number-reused"]
    assert found[0].direction == 1
    assert "ghosts" in found[0].message


@pytest.mark.parametrize("stem", HIDDEN)
def test_what_was_dropped_before_the_capture_is_a_gap(stem: str) -> None:
    path = next(path for path in PATHS if path.stem == stem)
    ((wanted, report),) = pairs(path)
    for direction, key in enumerate(ENDPOINTS):
        (log,) = wanted[key]
        datagrams = space(report, "datagram", direction)
        reliable = space(report, "reliable", direction)
        # Only the last datagrams leave no gap behind.
        assert 0 <= log["datagrams_sent"] - (datagrams.units + datagrams.never_seen) <= 2
        assert datagrams.acked == log["datagrams_acked"]
        assert datagrams.extra["timed_out"] <= log["datagrams_timed_out"]
        hidden = datagrams.never_seen + 2
        assert log["datagrams_timed_out"] - datagrams.extra["timed_out"] <= hidden
        assert reliable.units <= log["distinct_reliable_messages_sent"] <= reliable.units + hidden
        assert reliable.retransmissions <= log["reliable_message_retransmissions"]


@pytest.mark.parametrize("stem", DAMAGED)
def test_what_is_damaged_before_the_capture_still_counts_as_sent(stem: str) -> None:
    path = next(path for path in PATHS if path.stem == stem)
    ((wanted, report),) = pairs(path)
    for direction, key in enumerate(ENDPOINTS):
        objects = wanted[key]
        datagrams = space(report, "datagram", direction)
        assert datagrams.units == total(objects, "datagrams_sent")
    # Every re-created object of the server numbers from the start.
    assert datagrams.extra["restarts"] == len(objects) - 1
    assert datagrams.acked == total(objects, "datagrams_acked")
    reliable = space(report, "reliable", 0)
    (log,) = wanted[ENDPOINTS[0]]
    assert reliable.retransmissions == log["reliable_message_retransmissions"]
    assert abs(reliable.units - log["distinct_reliable_messages_sent"]) <= 2


@with_("connections", without=(*SHARED_NUMBERS, *DAMAGED, *HIDDEN))
def test_round_trips(path: Path) -> None:
    for objects, report, direction in logs(path):
        measured = sorted(rtt for log in objects for rtt in log.get("ping_rtt_ms", []))
        probes = [probe for probe in report.probes if probe.direction == direction]
        if measured:
            rtt = probes[0].rtt
            assert rtt.samples == len(measured)
            assert -1 < measured[0] - rtt.minimum < PROGRAM_MS
            assert -1 < measured[-1] - rtt.maximum < 3 * PROGRAM_MS
        acks = [log["ack_rtt_ms"] for log in objects if "ack_rtt_ms" in log]
        datagrams = space(report, "datagram", direction)
        if acks and datagrams is not None:
            assert abs(datagrams.rtt.minimum - min(log["min"] for log in acks)) < 5
            assert abs(datagrams.rtt.maximum - max(log["max"] for log in acks)) < 5


@with_("connections")
def test_states(path: Path) -> None:
    """What the wire shows of the end: a graceful, one-sided or missing disconnect."""
    for wanted, report in pairs(path):
        outcome = wanted.get("outcome", "")
        if "graceful" in outcome and path.stem not in HIDDEN:
            assert (report.state, report.state_name) == ("closed", "ConnectionClosed")
            assert report.close is not None
            assert report.close["by"] == ("server" if "by the server" in outcome else "client")
            assert report.close["reason"] == "Disconnect"
        if "stays in ConnectionDisconnecting" in outcome and 0 in near(path):
            assert report.state_name == "ConnectionDisconnecting"
        if "silence timeout" in outcome and report.transport == "udp" and "client stays" not in outcome:
            # Where the capture ends with the last ping the verdict is not due yet.
            assert report.state in ("timed_out", "silent")
        if "ICMP" in outcome:
            assert report.state == "closed"
            assert report.close is not None
            assert (report.close["by"], report.close["reason"]) == ("client", "port unreachable")
        if "never established" in outcome:
            assert report.handshake == "unanswered"
        elif path.stem != "udp_midstream_join":
            assert report.handshake == "accepted"
        if "half-closed (ConnectionPeerClosed)" in outcome and 0 in near(path):
            assert report.state_name == "ConnectionPeerClosed"


@pytest.mark.parametrize(
    ("stem", "disordered"),
    [("udp_loss8.server", (18, 0)), ("udp_loss8.client", (0, 2)), ("knet2010_loss.server", (8, 0)),
     ("udp_clean_session", (0, 0)), ("udp_simulator", (8, 1))],
)  # fmt: skip
def test_messages_that_asked_for_order_in_vain(stem: str, disordered: tuple[int, int]) -> None:
    """Counted once more from the trees alone: first arrivals behind a later number."""
    path = next(path for path in PATHS if path.stem == stem)
    (report,) = reports(path)
    highest, met = [-1, -1], [set[int](), set[int]()]
    late, asked = [0, 0], [0, 0]
    for record in iter_records(path):
        side = record.direction
        for item in record.messages if side is not None else ():
            fields = item.fields
            if not fields.get("in_order") or "message_name" in fields or "transfer_id" in fields:
                continue
            asked[side] += 1
            number = fields.get("reliable_number")
            if number is None:
                continue
            late[side] += number < highest[side] and number not in met[side]
            highest[side] = max(highest[side], number)
            met[side].add(number)
    assert tuple(late) == disordered
    for side in (0, 1):
        reliable = space(report, "reliable", side)
        assert reliable.extra.get("disordered", 0) == disordered[side]
        assert report.counters[side].get("in_order_requested", 0) == asked[side]


def test_rates() -> None:
    """What was sent in a second, and what the other side has asked for."""
    path = next(path for path in PATHS if path.stem == "udp_reserved_ids")
    (report,) = reports(path)
    asked = [record for record in iter_timeline(path) if getattr(record, "event", None) == "rate"]
    assert [(one.direction, one.data["per_second"], one.data["taken"]) for one in asked] == [
        (0, 30, False), (0, 65535, False),
    ]  # fmt: skip
    assert report.counters[0]["rate_requests"] == 2
    assert "asked" not in space(report, "datagram", 0).extra["per_second"]
    assert space(report, "datagram", 1).extra["per_second"]["asked"] == 65535


@pytest.mark.parametrize("stem", ["udp_burst_acks", "urho3d_scene_clean", "udp_loss8.server"])
def test_the_fullest_second(stem: str) -> None:
    path = next(path for path in PATHS if path.stem == stem)
    (report,) = reports(path)
    for direction in (0, 1):
        times = [
            copy.time_ns
            for record in units(path)
            if record.space == "datagram" and record.direction == direction
            for copy in record.copies
        ]
        rates = space(report, "datagram", direction).extra["per_second"]
        times.sort()
        mean = len(times) * 1e9 / (times[-1] - times[0])
        assert rates["mean"] == pytest.approx(mean, abs=0.001)
        fullest = max(sum(t <= other < t + 1_000_000_000 for other in times) for t in times)
        # Windows begin with a datagram and do not overlap.
        assert fullest / 2 <= rates["peak"] <= fullest


@with_("connections", without=(*SHARED_NUMBERS, *DAMAGED))
def test_receivers_counted_the_same_copies(path: Path) -> None:
    """Beside the receiver the network's copies are seen as it sees them."""
    if told(path)["transport"] == "tcp":
        pytest.skip("no datagrams")
    for wanted, report in pairs(path):
        if sum(other.client == report.client for other in reports(path)) > 1:
            continue
        for receiver in near(path):
            objects = wanted[ENDPOINTS[receiver]]
            datagrams = space(report, "datagram", 1 - receiver)
            if datagrams is None or not objects:
                continue
            copies = total(objects, "datagrams_received_duplicate")
            refused = datagrams.extra.get("refused", 0)
            assert datagrams.duplicates <= copies <= datagrams.duplicates + refused


@pytest.mark.parametrize(
    ("stem", "unread"), [("udp_connect_dup_late.client", 0), ("udp_blackout_c2s_zombie.client", 1)]
)
def test_a_client_refuses_what_a_server_numbers_anew(stem: str, unread: int) -> None:
    """Its PacketIDs are known to the client: it drops them, and so never learns what they hold."""
    path = next(path for path in PATHS if path.stem == stem)
    ((wanted, report),) = pairs(path)
    datagrams = space(report, "datagram", 1)
    copies = total(wanted["client_endpoint"], "datagrams_received_duplicate")
    assert datagrams.extra["refused"] == copies + unread > 0
    assert datagrams.extra["restarts"] == 1


@with_("connections", without=DAMAGED)
def test_silence_timeouts_are_those_that_the_programs_logged(path: Path) -> None:
    """A side that closed for another reason, or crashed, was silent before its timer was due."""
    if told(path)["transport"] == "tcp":
        pytest.skip("told by a FIN: see test_how_streams_end")
    for wanted, report in pairs(path):
        for side, key in enumerate(ENDPOINTS):
            verdict = next((v for v in report.timeouts if v.side == ("client", "server")[side]), None)
            if verdict is None or verdict.fired is None or not wanted[key]:
                continue
            logged = "timed_out_after_silence_ms" in wanted[key][-1]
            assert verdict.fired == logged
            if logged and side in near(path):
                silence = wanted[key][-1]["timed_out_after_silence_ms"]
                window = [(ns - verdict.last_heard_ns) / 1e6 for ns in (verdict.due_ns, verdict.latest_ns)]
                assert window[0] - PROGRAM_MS < silence < window[1] + PROGRAM_MS


@with_("frames_carrying_resent_reliable_messages", without=(*SHARED_NUMBERS, *DAMAGED, *HIDDEN))
def test_every_resent_message_is_in_the_timeline(path: Path) -> None:
    expect = told(path)["expect"]
    got: dict[tuple[int, int], set[int]] = {}
    for record in units(path):
        if record.space == "reliable":
            for copy in record.copies:
                if copy.kind == "retransmission":
                    got.setdefault((copy.frame, record.direction), set()).add(record.wire_seq)
    for wanted in expect["frames_carrying_resent_reliable_messages"]:
        direction = WAYS.index(wanted["dir"])
        if direction in near(path):
            # Numbers of its first copy only where that copy is in the capture.
            found = got.get((wanted["frame"], direction), set())
            assert set(wanted["resent_reliable_numbers"]) == found


@with_("sender_timeouts", without=(*SHARED_NUMBERS, *DAMAGED, *HIDDEN))
def test_every_timeout_is_in_the_timeline(path: Path) -> None:
    given_up = {
        (record.direction, record.wire_seq)
        for record in units(path)
        if record.space == "datagram" and record.outcome == "given_up"
    }
    wanted = {
        (WAYS.index(event["dir"]), event["packet_id"])
        for event in told(path)["expect"]["sender_timeouts"]
        if WAYS.index(event["dir"]) in near(path)
    }
    missing = wanted - given_up
    late = sum(count for (stem, _), count in LAST_MOMENT.items() if stem == path.stem)
    assert len(missing) <= late
    assert {item for item in given_up if item[0] in near(path)} <= wanted


@with_("fragment_reception", without=DAMAGED)
def test_what_receivers_make_of_fragments(path: Path) -> None:
    """At the receiver's side of a relay our model of it gives its own figures."""
    reception = told(path)["expect"]["fragment_reception"]
    sides = {0: "server_process", 1: "client_processes"}
    vantage = told(path)["vantage"]
    for direction, key in sides.items():
        at_receiver = vantage.startswith(("both", key.split("_", maxsplit=1)[0]))
        if not at_receiver or key not in reception:
            continue
        counters = Counter()
        for report in reports(path):
            counters.update(report.counters[direction])
        log = reception[key]
        whole = counters["transfers_complete"] - counters["transfers_never_delivered"]
        assert whole == log.get("frag_assembled", 0)
        assert counters["transfers_assembled"] == log.get("frag_assembled", 0)
        assert counters["transfers_scrambled"] == log.get("assembled_with_misplaced_fragments", 0)
        assert counters["early_fragments"] == log.get("frag_orphan", 0)


@with_("streams")
def test_streams(path: Path) -> None:
    (report,) = reports(path)
    for name, stream in told(path)["expect"]["streams"].items():
        direction = WAYS.index(name[:3])
        assert report.messages[direction] == stream["by_type"]
        assert report.octets[direction] >= stream["stream_bytes"]
        assert sum(report.messages[direction].values()) == stream["complete_messages"]
        tcp, texts = space(report, "tcp", direction), space(report, "message", direction)
        assert tcp.extra["stream_octets"] == stream["stream_bytes"]
        assert texts.units == stream["complete_messages"]


@pytest.mark.parametrize(
    ("stem", "first", "last"),
    [
        ("tcp_loss_retransmit", 200, 400), ("tcp_loss_retransmit", 350, 541),
        ("tcp_rechunked.server", 850, 1050),
    ],
)  # fmt: skip
def test_a_stream_is_known_from_its_middle_by_its_pings(
    stem: str, first: int, last: int, tmp_path: Path
) -> None:
    path = next(path for path in PATHS if path.stem == stem)
    part = rewritten(path, tmp_path / "part.pcap", lambda found: found[first:last])
    (report,) = analyze(part, options=Options(strict=True)).connections
    (whole,) = reports(path)
    assert (report.client, report.server) == (whole.client, whole.server)
    assert report.codes.keys() <= {
        "unknown-start", "retransmission", "head-of-line-blocking", "closed-by", "duplicate",
        "late-delivery",
    }  # fmt: skip
    kinds = {(unit.copies[0].frame, unit.direction, unit.type) for unit in units(path)}
    found = [unit for unit in iter_timeline(Path(part)) if isinstance(unit, UnitRecord)]
    assert found
    for unit in found:
        assert (unit.copies[0].frame + first, unit.direction, unit.type) in kinds


@pytest.mark.parametrize("dialect", ["knet-tundra", "knet-2.x", "knet-tcp"])
def test_a_stream_is_a_stream_whatever_it_is_said_to_be(dialect: str) -> None:
    path = next(path for path in PATHS if path.stem == "tcp_clean_session")
    rule = decode_as(f"tcp.port==23040,{dialect}")
    (told_so,) = analyze(path, options=Options(strict=True, decode_as=(rule,))).connections
    (found,) = reports(path)
    assert told_so.dialects == (dialect, dialect)
    assert (told_so.messages, told_so.spaces) == (found.messages, found.spaces)
    assert (told_so.probes, told_so.state_name) == (found.probes, found.state_name)


@with_("segments")
def test_segments(path: Path) -> None:
    (report,) = reports(path)
    segments = told(path)["expect"]["segments"]
    for direction, way in enumerate(WAYS):
        tcp = space(report, "tcp", direction)
        assert report.datagrams[direction] == segments[f"data_segments_{way}"]
        assert tcp.retransmissions == segments.get(f"retransmitted_segments_{way}", 0)
    assert sum(s.extra["syn"] for s in report.spaces if s.space == "tcp") == segments["syn"]


@with_("streams")
def test_how_streams_end(path: Path) -> None:
    (report,) = reports(path)
    (wanted,) = told(path)["expect"]["connections"]
    outcome = wanted["outcome"]
    assert report.close is not None
    if "silence timeout" in outcome:
        assert (report.state, report.close["by"]) == ("timed_out", "client")
        assert [verdict.fired for verdict in report.timeouts] == [True, False]
        (silence,) = wanted["client_endpoint"]
        told_ms = silence["timed_out_after_silence_ms"]
        heard = report.timeouts[0].last_heard_ns
        records = [r for r in iter_timeline(path) if getattr(r, "event", None) == "state"]
        closed_ns = next(r.time_ns for r in records if r.data["input"] == "timeout")
        assert 0 <= (closed_ns - heard) / 1e6 - told_ms < CLOSING_MS
        return
    assert report.state == "closed"
    assert not any(verdict.fired for verdict in report.timeouts)
    if "reset" in outcome:
        assert report.close["reason"] == "RST"
    elif "by the server" in outcome or "server closed" in outcome:
        assert report.close["by"] == "server"
    else:
        assert (report.close["by"], report.close["reason"]) == ("client", "FIN")


@pytest.mark.parametrize("path", ALL, ids=[path.stem for path in ALL])
def test_a_watched_connection_has_the_same_figures(path: Path) -> None:
    """`scan` with a recorder and a scanner without conclude the same."""
    from netdissect.pipeline import Pipeline
    from netdissect.track.recorder import Recorder

    pipeline = Pipeline(recorder=Recorder())
    for _ in iter_timeline(path, pipeline=pipeline):
        pass
    watched = sorted(pipeline.reports, key=lambda report: report.first_frame)
    assert len(watched) == len(reports(path))
    for one, other in zip(watched, reports(path), strict=True):
        assert one.messages == other.messages
        assert one.spaces == other.spaces
        assert one.counters == other.counters
        assert (one.state, one.anomalies) == (other.state, other.anomalies)


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.stem)
def test_the_timeline_has_the_units_that_are_counted(path: Path) -> None:
    listed = Counter(
        (unit.connection, unit.direction, unit.space)
        for unit in units(path)
        if not unit.extra.get("continued")
    )
    assert listed == {
        (report.connection, space.direction, space.space): space.units
        for report in reports(path)
        for space in report.spaces
        if space.units
    }
