"""All Teeworlds captures against their truth files."""

from __future__ import annotations

import json
import statistics
from collections import Counter
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from agreement import captures
from netdissect.model.reports import ConnectionReport, UnitRecord
from netdissect.pipeline import analyze, iter_timeline
from netdissect.pipeline.iterate import iter_records

LEFT_OUT = {
    "what, made_with, vantage, impairment, ports, notes, actions, implementation_logs": (
        "how the capture was made"
    ),
    "relay, path": "what a relay outside of the capture did; `vital` says what the capture shows of it",
    "longest_silence_s, nonvital_chunks, compressed_packets, bytes, duration_s": (
        "not in the contract's report; packets and messages are compared"
    ),
    "last_frame where connectionless packets end a flow": "the truth counts connections without them",
    "resend_in_same_packet_as_original, packets_with_no_chunks_asking_resend": "not in the report",
    "odd, unknown_messages": "counted under their own types or as `unknown`",
}
"""Keys of the truth files that are not compared, and why."""

PATHS = captures("teeworlds")
SIDES = ("c2s", "s2c")


@cache
def truth(path: Path) -> dict[str, Any]:
    return json.loads(path.with_suffix(".truth.json").read_text(encoding="utf-8"))["expect"]


def split(counts: dict[str, int]) -> tuple[dict[str, int], dict[str, int]]:
    """Return (messages of the connection, connectionless ones)."""
    outside = {name: n for name, n in counts.items() if name.startswith("connless.")}
    return {name: n for name, n in counts.items() if name not in outside}, outside


@cache
def reports(path: Path) -> tuple[ConnectionReport, ...]:
    analysis = analyze(path)
    assert all(report.protocol == "teeworlds" for report in analysis.connections)
    return tuple(analysis.connections)


def connections(path: Path) -> list[tuple[ConnectionReport, dict[str, Any]]]:
    real = [r for r in reports(path) if any(split(counts)[0] for counts in r.messages)]
    wanted = truth(path)["connections"]
    assert len(real) == len(wanted)
    return list(zip(real, wanted, strict=True))


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.stem)
def test_connections(path: Path) -> None:
    for report, wanted in connections(path):
        assert (report.client, report.server) == (wanted["client"], wanted["server"])
        assert report.dialects == (f"teeworlds-{wanted['dialect']}",) * 2
        assert report.first_frame == wanted["first_frame"]
        if not any(split(counts)[1] for counts in report.messages):
            assert report.last_frame == wanted["last_frame"]
        offered = report.identity.get("offered_dialect")
        assert offered == (
            f"teeworlds-{wanted['offered_dialect']}" if "offered_dialect" in wanted else None
        )
        for name in ("client_token", "server_token"):
            assert report.identity.get(name) == wanted.get(name)
        for name, value in (wanted.get("info") or {}).items():
            assert report.identity[name] == value


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.stem)
def test_how_they_begin_and_end(path: Path) -> None:
    for report, wanted in connections(path):
        close = report.close
        ends = [{name: close[name] for name in ("by", "reason", "frame")}] if close else []
        assert ends == wanted["close"]
        data = any(
            name.startswith(("sys.", "game.", "unknown")) for m in report.messages for name in m
        )
        assert data == wanted["reached_online"]
        steps = wanted["handshake"]
        accepted = any(step in ("s2c connect_accept", "s2c accept") for step in steps)
        if wanted["close"] and not data and not accepted and wanted["close"][0]["by"] == "server":
            assert report.handshake == "rejected"
        elif accepted and report.state != "rejected":
            assert report.handshake == "accepted"
        elif not accepted and not wanted["close"]:
            # A token is one of a connection alone: not where information was asked for with it, or
            # where it answers what went to another address.
            asked = any(name.startswith("connless") for m in report.messages for name in m)
            begun = report.datagrams[0] and not asked
            assert report.handshake == ("unanswered" if begun else "not_seen")
        if close and close["reason"] == "Timeout":
            assert report.state == "timed_out"


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.stem)
def test_messages(path: Path) -> None:
    outside: Counter[str] = Counter()
    for report in reports(path):
        for side, counts in zip(SIDES, report.messages, strict=True):
            for name, n in split(counts)[1].items():
                outside[f"{side} {name.removeprefix('connless.')}"] += n
    assert outside == Counter(truth(path).get("connless") or {})
    for report, wanted in connections(path):
        for index, side in enumerate(SIDES):
            facts = wanted[side]
            inside, others = split(report.messages[index])
            known = {name: n for name, n in inside.items() if not name.endswith("unknown")}
            expected = {f"control.{name}": n for name, n in facts["control"].items()}
            expected |= {n: c for n, c in facts["messages"].items() if not n.startswith("unknown")}
            assert known == expected
            assert report.datagrams[index] - sum(others.values()) == facts["packets"]
            assert (
                report.counters[index].get("resend_requests", 0) == facts["packets_asking_resend"]
            )


@pytest.mark.parametrize(
    "path", [path for path in PATHS if "loss" in path.stem], ids=lambda path: path.stem
)
def test_input_timing(path: Path) -> None:
    """Every answer to an input says how early it came; negative ones came late."""
    answers = [
        message.fields["time_left"]
        for record in iter_records(path)
        for message in record.messages
        if message.type == "sys.input_timing"
    ]
    timings = [report.timings[1].get("input_left") for report in reports(path)]
    found = [kept for kept in timings if kept is not None]
    assert sum(kept.samples for kept in found) == len(answers)
    late = sum(report.counters[1].get("late_inputs", 0) for report in reports(path))
    assert late == sum(left < 0 for left in answers)
    assert min(kept.minimum for kept in found) == min(answers)
    assert max(kept.maximum for kept in found) == max(answers)


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.stem)
def test_vital_chunks(path: Path) -> None:
    for report, wanted in connections(path):
        spaces = {space.direction: space for space in report.spaces if space.space == "vital"}
        for index, side in enumerate(SIDES):
            facts = wanted[side]["vital"]
            if not facts["distinct"]:
                assert index not in spaces
                continue
            space = spaces[index]
            assert space.units == facts["distinct"]
            assert space.copies == facts["first_sends"] + facts["flagged_resends"]
            assert report.counters[index].get("resend_marked", 0) == facts["flagged_resends"]
            assert space.retransmissions + space.duplicates == facts["seen_more_than_once"]
            assert (
                space.duplicates
                <= facts["first_sends"] - facts["distinct"] + facts["flagged_resends"]
            )
            assert space.last_seq == facts["highest_sequence_unwrapped"]
            assert space.acked == facts["acked_by_peer_unwrapped"]
            if "receiver_model" in wanted[side]:
                assert space.extra["receiver"] == wanted[side]["receiver_model"]


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.stem)
def test_round_trips(path: Path) -> None:
    samples: dict[tuple[int, int], list[float]] = {}
    for record in iter_timeline(path):
        if isinstance(record, UnitRecord) and record.space == "vital" and record.rtt_ms is not None:
            samples.setdefault((record.connection, record.direction), []).append(record.rtt_ms)
    for report, wanted in connections(path):
        for index, side in enumerate(SIDES):
            facts = wanted[side].get("ack_rtt_unambiguous")
            if not facts:
                continue
            found = samples[report.connection, index]
            assert len(found) == facts["samples"]
            assert min(found) == pytest.approx(facts["min_ms"], abs=0.006)
            assert max(found) == pytest.approx(facts["max_ms"], abs=0.006)
            assert statistics.median(found) == pytest.approx(facts["median_ms"], abs=0.006)


@pytest.mark.parametrize(
    "path", [path for path in PATHS if truth(path).get("snapshots")], ids=lambda path: path.stem
)
def test_snapshots(path: Path) -> None:
    wanted: Counter[str] = Counter()
    facts = truth(path)["snapshots"]
    for entry in facts if isinstance(facts, list) else [facts]:
        wanted.update(entry["counts"])
    found: Counter[str] = Counter()
    for record in iter_records(path):
        if record.dissection is None:
            continue
        for message in record.messages:
            if message.type.startswith("sys.snap"):
                found[message.type.removeprefix("sys.")] += 1
                if "items" in message.fields and message.type != "sys.snap_empty":
                    found["crc_ok"] += 1
                    codes = {note.code for note in message.annotations}
                    assert not codes & {"teeworlds-snap-crc", "teeworlds-snap-data"}
                elif message.type == "sys.snap_single":
                    found["err"] += 1
    for name, count in wanted.items():
        if name != "multi_complete":
            assert found[name] == count, name
    # All that are complete: singles, and the last part of each other one. Every base is there.
    assert found["crc_ok"] == wanted["snap_single"] + wanted["multi_complete"]


def test_all_snapshots_are_rebuilt() -> None:
    total: Counter[str] = Counter()
    for path in PATHS:
        facts = truth(path).get("snapshots") or []
        for entry in facts if isinstance(facts, list) else [facts]:
            total.update(entry["counts"])
    assert total["crc_ok"] == total["snap_single"] + total["multi_complete"] == 6286


def test_every_datagram_is_told_apart() -> None:
    """Both captures on all interfaces hold each request twice; answers were really sent twice."""
    for path in PATHS:
        analysis = analyze(path)
        assert not analysis.other_datagrams
        assert analysis.protocols["teeworlds"]["datagrams"] == truth(path)["packets"]
        seen = sum(
            counts.get("capture_duplicates", 0) for r in reports(path) for counts in r.counters
        )
        requests = sum(r.datagrams[0] for r in reports(path))
        assert seen == (requests / 2 if "lan_browse" in path.name else 0)
