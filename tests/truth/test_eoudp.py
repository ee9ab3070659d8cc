"""EOUDP's captures against what their makers wrote down: relay logs, programs' logs, wire counts.

Truth keys that are not compared, and why:

| key | reason |
|---|---|
| `what`, `made_with`, `ports`, `impairment`, `vantage`, `notes`, `definitions`, `extra.steps` | text for people |
| `implementation_log`, `peer_log`, `peer_rules` | what happened inside the programs; the wire counts that agree with them are compared |
| `relay_log.actions.forward`, `.reorder`, `.drop`, `.blackout` | what the relay did with datagrams that one leg cannot show; the losses that it can show are compared |
| `acks_for_ids_not_seen_before` | only in hand-made traffic; `ack-of-unsent` and `eoudp-far-id` report it |
| `duration_s`, `first_frame_time` | facts about the file, tested with the captures of all protocols |
"""

from __future__ import annotations

import json
from collections import Counter
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from agreement import captures
from netdissect.export import json as shapes
from netdissect.model.records import DatagramRecord
from netdissect.model.reports import UnitRecord
from netdissect.pipeline import analyze, iter_timeline
from netdissect.pipeline.iterate import iter_records

PATHS = captures("eoudp")
TOLD = [path for path in PATHS if path.stem != "decoys"]
WAYS = ("c2s", "s2c")

LONG32 = "late_long32_client_vs_64_server"
"""Its truth counts the one datagram of the long32 client as exodia-late reads it: not important."""
CROSSING = 2
"""Datagrams under way when a PACKET_INFO is made."""
MALFORMED = "late_malformed"
"""Its truth counts dropped datagrams apart, takes an id of 2^40 for one of the space, and an id that
a hand-made client uses twice (frames 20 and 21) for the first of its two messages.
"""


@cache
def told(path: Path) -> dict[str, Any]:
    truth: dict[str, Any] = json.loads(path.with_suffix(".truth.json").read_text())
    return truth


@cache
def reports(path: Path) -> list[dict[str, Any]]:
    return [shapes.connection(report) for report in analyze(path).connections]


@cache
def units(path: Path) -> list[UnitRecord]:
    return [record for record in iter_timeline(path) if isinstance(record, UnitRecord)]


@cache
def records(path: Path) -> list[DatagramRecord]:
    return list(iter_records(path))


def connections(path: Path) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    """Return (truth, report) of every connection."""
    found = {int(report["client"].rsplit(":")[-1]): report for report in reports(path)}
    expected = told(path)["expect"]["connections"]
    assert len(found) == len(reports(path)) == len(expected)
    return [(truth, found[truth["client_port"]]) for truth in expected]


def whole(path: Path, connection: int, way: int) -> list[DatagramRecord]:
    """Return the datagrams of one direction that their receiver takes as messages."""
    return [
        record
        for record in records(path)
        if record.connection == connection and record.direction == way and counted(record)
    ]


def counted(record: DatagramRecord) -> bool:
    return not {"truncated", "eoudp-size-mismatch"} & codes(record)


def codes(record: DatagramRecord) -> set[str]:
    return {note.code for message in record.messages for note in message.annotations}


def shown(record: DatagramRecord) -> dict[str, Any]:
    return record.messages[0].fields


def ids(path: Path) -> pytest.MarkDecorator:
    return path.stem  # type: ignore[return-value]


every = pytest.mark.parametrize("path", TOLD, ids=ids)


def test_decoys_belong_to_no_protocol() -> None:
    path = next(path for path in PATHS if path.stem == "decoys")
    analysis = analyze(path)
    assert analysis.other_datagrams == sum(size for _, size in Counter(
        kind for kind, _ in told(path)["extra"]["kinds_in_order"]).items())
    assert analysis.connections == []
    assert told(path)["extra"]["expect_eoudp_datagrams"] == 0


@every
def test_messages_sizes_and_broken_datagrams(path: Path) -> None:
    expect = told(path)["expect"]
    found = records(path)
    assert len(found) == expect["datagrams"]
    assert max(record.length for record in found) == expect["largest_datagram"]
    assert [r.frame for r in found if "truncated" in codes(r)] == expect["undecodable"]
    mismatched = [r.frame for r in found if "eoudp-size-mismatch" in codes(r)]
    assert mismatched == expect["size_mismatch"]
    for way in WAYS:
        total: Counter[str] = Counter()
        for report in reports(path):
            total.update(report["messages"][way])
        assert total == expect["messages"].get(way, {})
    assert {report["dialect"]["s2c"] for report in reports(path)} == {told(path)["dialect"]}


@every
def test_handshakes_and_goodbyes(path: Path) -> None:
    for truth, report in connections(path):
        asked = of_type(path, report, 0, "CONNECT")
        accepted = of_type(path, report, 1, "CONNECT_ACCEPT")
        assert len(asked) == truth["connect_datagrams"]
        if path.stem != LONG32:
            assert sorted({shown(r)["id"] for r in asked}) == sorted(set(truth["connect_ids"]))
        assert asked[0].frame == truth["first_connect_frame"]
        assert len(accepted) == truth["accept_datagrams"]
        if accepted:
            assert accepted[0].frame == truth["accept_frame"]
            waited = (accepted[0].time_ns - asked[0].time_ns) / 1e6
            assert waited == pytest.approx(truth["connect_to_accept_ms"], abs=0.001)
        assert report["identity"].get("client_index") == truth.get("client_index")
        word = "accepted" if accepted else "rejected" if truth["reject_frames"] else "unanswered"
        assert report["handshake"] == word
        rejects = of_type(path, report, 1, "CONNECT_REJECT")
        assert [record.frame for record in rejects] == truth["reject_frames"]
        left = of_type(path, report, 0, "DISCONNECT")
        assert [record.frame for record in left] == truth["disconnect_c2s_frames"]
        notices = of_type(path, report, 1, "DISCONNECT")
        assert len(notices) == truth["disconnect_s2c_count"]
        first = notices[0].frame if notices else None
        assert first == truth["disconnect_s2c_first_frame"]


def of_type(path: Path, report: dict[str, Any], way: int, name: str) -> list[DatagramRecord]:
    return [
        record
        for record in whole(path, report["connection"], way)
        if record.messages[0].type == name
    ]


@every
def test_ids(path: Path) -> None:
    for truth, report in connections(path):
        for way, name in enumerate(WAYS):
            check_ids(truth[name], whole(path, report["connection"], way), path.stem)


def check_ids(truth: dict[str, Any], found: list[DatagramRecord], stem: str) -> None:
    """Compare by the definitions of the truth files, which know no epochs."""
    seen: dict[int, set[bytes]] = {}
    copies, reused, late = 0, [], []
    for record in found:
        number = shown(record)["id"]
        known = seen.get(number)
        if known is None:
            late += [record.frame] if seen and number < max(seen) else []
            seen[number] = {record.payload}
        elif record.payload in known:
            copies += 1
        else:
            reused.append(record.frame)
            known.add(record.payload)
    assert len(found) == truth["datagrams"]
    if stem == LONG32 and len(found) == 1:
        return
    assert len(seen) == truth["distinct_ids"]
    assert (min(seen), max(seen)) == (truth["id_min"], truth["id_max"])
    assert copies == truth["exact_duplicates"]
    assert len(reused) == truth["id_reused_with_other_bytes"]
    assert reused == truth.get("id_reused_frames", reused)
    assert len(late) == truth["late_first_arrivals"]
    assert late == truth.get("late_first_arrival_frames", late)
    if truth["missing_ids_count"] is not None:
        missing = sorted(set(range(min(seen), max(seen))) - set(seen))
        assert len(missing) == truth["missing_ids_count"]
        listed = truth.get("missing_ids")
        assert not isinstance(listed, list) or missing[: len(listed)] == listed


@every
def test_units_copies_and_acks(path: Path) -> None:
    if path.stem == MALFORMED:
        pytest.skip("see MALFORMED: compared one by one below")
    for truth, report in connections(path):
        for way, name in enumerate(WAYS):
            if path.stem == LONG32 and way == 0:
                continue
            check_space(truth[name], space(report, name), path)
            mine = [u for u in units(path)
                    if u.connection == report["connection"] and u.direction == way
                    and not u.extra.get("continued")]
            check_units(truth[name], mine)
            answers = report["messages"][WAYS[1 - way]].get("ACK", 0)
            assert answers == truth[name]["acks_seen_for_this_direction"]
            assert report["datagrams"][name] == truth[name]["datagrams"]


def space(report: dict[str, Any], way: str) -> dict[str, Any]:
    return next(one for one in report["spaces"] if one["direction"] == way)


def check_space(truth: dict[str, Any], found: dict[str, Any], path: Path) -> None:
    assert found["space"] == "command"
    assert found["units"] == truth["must_ack_messages"]
    assert found["copies"] == truth["must_ack_datagrams"]
    repeats = found["retransmissions"] + found["duplicates"] + found.get("undecided", 0)
    assert repeats == truth["must_ack_repeat_datagrams"]
    assert found["acked"] == truth["must_ack_acked"]
    assert found["copies"] == found["units"] + repeats
    assert found["units"] == found["acked"] + found["unacked"] + found["unknown"]
    assert found["never_seen"] == truth["missing_ids_count"], path.stem


def check_units(truth: dict[str, Any], found: list[UnitRecord]) -> None:
    left = [unit.wire_seq for unit in found if unit.acked_frame is None]
    listed = truth["must_ack_unacked_ids"]
    if isinstance(listed, dict):
        assert len(left) == listed["count"]
        assert left[: len(listed["first"])] == listed["first"]
    else:
        assert sorted(left) == sorted(listed)
    timed = truth.get("first_copy_to_first_ack_ms")
    waits = sorted(
        (unit.acked_time_ns - unit.copies[0].time_ns) / 1e6
        for unit in found
        if unit.acked_time_ns is not None
    )
    if timed:
        assert len(waits) == timed["n"]
        assert waits[0] == pytest.approx(timed["min"], abs=0.001)
        assert waits[-1] == pytest.approx(timed["max"], abs=0.001)
        assert waits[(len(waits) - 1) // 2] - 0.001 <= timed["median"]
        assert timed["median"] <= waits[len(waits) // 2] + 0.001


def test_the_hand_made_client_is_counted_by_epoch() -> None:
    path = next(path for path in TOLD if path.stem == MALFORMED)
    ((truth, report),) = connections(path)
    mine = [unit.wire_seq for unit in units(path) if unit.direction == 0]
    assert mine == [0, 6, 7, 8, 13, 14, 15, 18, 19, 20, 21]
    # Without the id of 2^40, which is acknowledged.
    assert len(mine) == truth["c2s"]["must_ack_messages"] - 1
    assert space(report, "c2s")["acked"] == truth["c2s"]["must_ack_acked"] - 1
    left = [unit.wire_seq for unit in units(path) if unit.direction == 0 and not unit.acked_frame]
    assert left == truth["c2s"]["must_ack_unacked_ids"]


@every
def test_contents(path: Path) -> None:
    for truth, report in connections(path):
        number = report["connection"]
        keys = [
            [shown(record)["content"]["key"], shown(record)["content"]["pressed"]]
            for record in whole(path, number, 0)
            if "pressed" in shown(record)["content"]
        ]
        assert len(keys) == truth["events_c2s_count"]
        assert keys[:20] == truth["events_c2s_first20"]
        names: Counter[str] = Counter()
        for way in (0, 1):
            for record in whole(path, number, way):
                if record.messages[0].type == "COMPONENT_OF":
                    content = shown(record)["content"]
                    names.update(
                        item["component"] for item in (content, *content.get("more", ()))
                    )
        assert names == truth["component_of_by_name"]
        for way, name in enumerate(WAYS):
            rows = [
                [record.frame, shown(record)["content_length"], *figures(record)]
                for record in of_type(path, report, way, "PACKET_INFO")
            ]
            listed = truth.get("packet_info", {}).get(name, [])
            assert rows[: len(listed)] == listed


def figures(record: DatagramRecord) -> list[int]:
    content = shown(record)["content"]
    values = [value for pair in content["pairs"] for value in (pair["received"], pair["sent"])]
    if "trailing" in content:
        values.append(int.from_bytes(content["trailing"], "little"))
    return values


def lossy(side: str, way: str) -> list[Path]:
    return [
        path
        for path in TOLD
        if path.stem.endswith(f"_{side}") and told(path).get("relay_log", {}).get(way)
    ]


@pytest.mark.parametrize("path", lossy("server", "c2s") + lossy("client", "s2c"), ids=ids)
def test_losses_that_this_leg_can_see_are_those_of_the_relay(path: Path) -> None:
    """At the receiver of a sender that never sends again, a missing id is a lost one."""
    way = "c2s" if path.stem.endswith("_server") else "s2c"
    log = told(path)["relay_log"][way]
    if "resend" in path.stem or not isinstance(log["lost"], list) or len(reports(path)) != 1:
        return
    double = told(path)["dialect"] in ("exodia-early", "exodia-mid", "exodia-30")
    # The id 0 of a lost CONNECT_ACCEPT is that of the ACK before it, too.
    lost = Counter(number for name, number in log["lost"] if name != "CONNECT_ACCEPT")
    both = {number for number, count in lost.items() if count >= (2 if double else 1)}
    direction = WAYS.index(way)
    seen = {shown(record)["id"] for record in whole(path, 1, direction)}
    missing = set(range(min(seen), max(seen))) - seen
    repeated = told(path)["dialect"].startswith("rfc")
    assert missing <= set(lost) if repeated or double else missing == {
        number for number in both if min(seen) < number < max(seen)
    }
    assert space(reports(path)[0], way)["never_seen"] == len(missing)


@pytest.mark.parametrize(
    ("stem", "way", "retransmissions", "duplicates"),
    [
        # Beside the sender every copy is its own: 31 + 9 resent, as the server's log says.
        ("late_resend_lossy_server", "s2c", 40, 0),
        ("late_resend_peer_client", "c2s", 21, 0),
        ("late_resend_peer_server", "s2c", 6, 0),
        # v1.0 and v1.1 hand every message to the socket twice.
        ("early_clean", "s2c", None, 0),
        ("mid_clean", "s2c", None, 0),
        ("pad30_session", "s2c", 5, 0),
        # No release re-sends; what comes twice was copied on its way.
        ("late_lossy_server", "s2c", 0, 0),
        ("late_clean", "s2c", 0, 0),
        # The relay made 35 copies, three of them of datagrams whose twin it had lost.
        ("early_lossy_client", "s2c", 444, 35),
    ],
)
def test_copies_of_senders_are_told_from_those_of_the_network(
    stem: str, way: str, retransmissions: int | None, duplicates: int
) -> None:
    path = next(path for path in TOLD if path.stem == stem)
    found = space(reports(path)[0], way)
    wanted = found["units"] if retransmissions is None else retransmissions
    assert (found["retransmissions"], found["duplicates"]) == (wanted, duplicates)


def test_network_copies_behind_a_double_sender_are_counted_apart() -> None:
    """No unit of a double sender has more than two copies of its own."""
    for path in TOLD:
        if path.stem.startswith(("early_lossy", "mid_lossy")):
            for unit in units(path):
                kinds = Counter(copy.kind for copy in unit.copies)
                assert kinds["original"] + kinds["retransmission"] <= 2
    extra = sum(one["duplicates"] for path in TOLD if path.stem == "mid_lossy_client"
                for report in reports(path) for one in report["spaces"])
    assert 0 < extra <= told(next(p for p in TOLD if p.stem == "mid_lossy_client"))[
        "relay_log"]["s2c"]["actions"]["dup"]


@pytest.mark.parametrize(
    ("stem", "states"),
    [
        ("late_killed", ["timed_out"]),
        ("late_timeout_server", ["timed_out"]),
        ("late_two_clients_one_killed", ["timed_out", "closed"]),
        ("late_timeout_client", ["silent"]),
        # The client is gone, and the server's rule does not fire while it re-sends.
        ("late_resend_killed", ["silent"]),
        ("late_reject", ["closed"]),
        ("late_three_clients", ["closed", "closed", "open"]),
        ("rfc02_kick", ["closed"]),
        ("rfc02_reject", ["closed", "rejected"]),
        ("mid_clean", ["open"]),
    ],
)
def test_how_connections_end(stem: str, states: list[str]) -> None:
    path = next(path for path in TOLD if path.stem == stem)
    assert [report["state"] for report in reports(path)] == states
    for report in reports(path):
        fired = [verdict for verdict in report["timeouts"] if verdict["fired"]]
        assert len(fired) == (report["state"] == "timed_out")


def test_a_flood_of_goodbyes_is_one_timeout_5_to_6_s_after_the_last_sign_of_life() -> None:
    for stem in ("late_killed", "late_timeout_server", "late_two_clients_one_killed"):
        path = next(path for path in TOLD if path.stem == stem)
        found = [note for note in analyze(path).anomalies if note.code == "timeout"]
        assert len(found) == 1
        (truth, report), *_ = connections(path)
        (verdict,) = report["timeouts"]
        assert report["close"]["frame"] == truth["disconnect_s2c_first_frame"]
        closed = next(r for r in records(path) if r.frame == report["close"]["frame"])
        waited = (closed.time_ns - verdict["last_heard_ns"]) / 1e6
        assert 4750 <= waited <= 6100


@pytest.mark.parametrize("stem", ["late_clean", "late_two_clients", "late_three_clients"])
def test_packet_info_agrees_with_our_own_count_where_nothing_is_lost(stem: str) -> None:
    """Within the few datagrams that cross each other, and the CONNECT_ACCEPT that nobody counts."""
    path = next(path for path in TOLD if path.stem == stem)
    for report in reports(path):
        figures_ = report["counters"]["s2c"]
        assert 0 <= figures_["packet_info_sent_seen"] - figures_["packet_info_sent"] <= 1
        received = figures_["packet_info_received"]
        assert abs(figures_["packet_info_received_seen"] - received) <= CROSSING


def test_clocks_of_one_machine_show_the_way_alone() -> None:
    path = next(path for path in TOLD if path.stem == "late_clean")
    clocks = reports(path)[0]["clock_ms"]
    for way in WAYS:
        assert clocks[way]["samples"] == reports(path)[0]["messages"][way]["PACKET_INFO"]
        assert 0 <= clocks[way]["min"] <= clocks[way]["p50"] < 5


def test_epochs_after_repeated_connects() -> None:
    for stem in ("late_accept_lost_client", "late_accept_lost_server", "late_reconnect"):
        path = next(path for path in TOLD if path.stem == stem)
        truth = told(path)["expect"]["connections"][0]["s2c"]["id_restarts_assumed"]
        resets = [
            record
            for record in iter_timeline(path)
            if not isinstance(record, UnitRecord) and record.event == "reset"
        ]
        assert len([record for record in resets if record.direction == 1]) == truth
