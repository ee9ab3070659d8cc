"""Finding one's way in a long capture: spans, order, waits, and findings in groups."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import console_docs
from netdissect.cli import cli

LOSSY = str(console_docs.ROOT / "captures" / "riptide" / "udp_2.2.1_lossy_clientleg.pcap")
BROWSE = str(console_docs.ROOT / "captures" / "teeworlds" / "tw07_lan_browse.pcap")
FIRST_NS = 1795231808227171000


def run(*words: str, code: int = 0) -> str:
    result = CliRunner().invoke(cli, list(words), prog_name="netdissect")
    assert result.exit_code == code, result.output
    return result.stdout


def objects(*words: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in run(*words, "--json").splitlines()]


def seconds(row: dict[str, Any]) -> float:
    return (row["time_ns"] - FIRST_NS) / 1e9


def test_a_span_of_time_is_what_its_filter_shows() -> None:
    spans = ("--from", "3s", "--to", "3500ms", "--connection", "1")
    expression = "frame.time_relative >= 3 and frame.time_relative <= 3.5 and conn.id == 1"
    rows = objects("read", LOSSY, *spans)
    assert rows
    assert rows == objects("read", LOSSY, "-Y", expression)
    assert run("read", LOSSY, "--connection", "2", code=2) == ""


def test_around_a_frame_and_a_moment() -> None:
    frames = [row["frame"] for row in objects("read", LOSSY, "--around", "#100")]
    assert (min(frames), max(frames)) == (80, 120)
    times = [seconds(row) for row in objects("read", LOSSY, "--around", "4s")]
    assert 3.5 <= min(times) < 3.6
    assert 4.4 < max(times) <= 4.5
    assert "not a time" in CliRunner().invoke(cli, ["read", LOSSY, "--around", "#x"]).output


def test_a_span_and_a_filter_hold_both() -> None:
    rows = objects("read", LOSSY, "-Y", "msg.resend or msg.duplicate", "--to", "3s")
    assert rows
    assert all(seconds(row) <= 3 for row in rows)


@pytest.mark.parametrize("view", ["anomalies", "stats", "timeline", "follow"])
def test_every_view_takes_a_span(view: str) -> None:
    words = ["1"] if view == "follow" else []
    assert len(run(view, LOSSY, *words, "--from", "12s")) < len(run(view, LOSSY, *words))


def test_a_span_leaves_the_connections_that_are_in_it() -> None:
    every = [row["connection"] for row in objects("diagnose", BROWSE)]
    assert len(every) > 10
    found = objects("diagnose", BROWSE, "--connection", "1", "--to", "1ms")
    assert [row["connection"] for row in found] == [1]
    assert objects("diagnose", BROWSE, "--from", "3.999s", "--connection", "1") == []
    run("diagnose", BROWSE, "--from", "10m", code=2)


def test_a_part_around_a_frame_or_a_moment_is_written(tmp_path: Path) -> None:
    part = str(tmp_path / "part.pcap")
    run("slice", LOSSY, "--around", "#100", "-w", part)
    assert len(objects("read", part)) == 41
    run("slice", LOSSY, "--around", "4s", "--from", "4s", "-w", part)
    times = [row["time_ns"] for row in objects("read", part)]
    assert 4 * 10**9 <= min(times) - FIRST_NS < max(times) - FIRST_NS <= 4.5 * 10**9


@pytest.mark.parametrize(
    "part", ["--frames=1-9,99999", "--from=1m", "--around=1m", "--around=#99999", "--connection=99"]
)
def test_a_part_that_is_refused_leaves_no_file(part: str, tmp_path: Path) -> None:
    run("slice", LOSSY, part, "-w", str(tmp_path / "part.pcap"), code=2)
    assert not list(tmp_path.iterdir())
    there = tmp_path / "there.pcap"
    there.touch()
    run("slice", LOSSY, part, "-w", str(there), code=2)
    assert there.exists()


def waits(unit: dict[str, Any]) -> int:
    return (unit["acked_time_ns"] or 0) - unit["copies"][0]["time_ns"]


def test_the_slowest_units_come_first() -> None:
    units = objects("timeline", LOSSY, "--only", "units")
    acked = sorted((waits(unit) for unit in units if unit["acked_time_ns"]), reverse=True)
    slowest = objects("timeline", LOSSY, "--slowest", "5")
    assert [waits(unit) for unit in slowest] == acked[:5]
    copies = [len(unit["copies"]) for unit in objects("timeline", LOSSY, "--sort", "copies")]
    assert copies == sorted(copies, reverse=True)


def test_a_filter_asks_how_long_a_unit_took() -> None:
    (slowest,) = objects("timeline", LOSSY, "--slowest", "1")
    limit = waits(slowest) / 1e6 - 0.001
    rows = objects("read", LOSSY, "-Y", f"any(msg: msg.latency > {limit} and msg.attempts > 1)")
    seen = [row["reliability"] for row in rows if row["reliability"]]
    assert {facts["seq"] for facts in seen} == {slowest["seq"]}
    until = sum(copy["time_ns"] <= slowest["acked_time_ns"] for copy in slowest["copies"])
    assert [facts["attempts"] for facts in seen] == [until] * until + [until + 1]
    assert all(0 < facts["added_ms"] < facts["latency_ms"] for facts in seen)


def test_repeats_stand_in_one_line_that_says_how_many() -> None:
    lines = run("anomalies", LOSSY, "--width", "200").splitlines()
    again = [line for line in lines if "retransmission: " in line]
    assert len(again) == 1
    total = objects("connections", LOSSY)[0]["codes"]["retransmission"]
    assert again[0].endswith(f"(and {total - 1} more)")
    assert lines[-2].startswith("netdissect explain ")
    assert lines[-1].startswith("netdissect show ")


def test_each_direction_has_its_own_figure() -> None:
    """What is said of a whole direction hides behind no repeat of the other one's."""
    both = [item for item in objects("anomalies", LOSSY) if item["code"] == "high-loss"]
    assert sorted(item["direction"] for item in both) == ["c2s", "s2c"]
    lines = run("anomalies", LOSSY, "--width", "200").splitlines()
    told = [line for line in lines if "high-loss: " in line]
    assert [item["message"] in line for item, line in zip(both, told, strict=True)] == [True, True]
    arrows = {"c2s": "→ high-loss", "s2c": "← high-loss"}
    assert all(arrows[item["direction"]] in line for item, line in zip(both, told, strict=True))
    assert "more)" not in "".join(told)


def test_counters_of_nothing_are_shown_when_they_are_asked_for() -> None:
    assert "assumed lost" not in run("connections", LOSSY, "1")
    assert "assumed lost" in run("connections", LOSSY, "1", "--all")


def test_one_sign_stands_for_one_kind_of_number() -> None:
    for command in (("connections", "1"), ("timeline", "1"), ("diagnose", "1"), ("read",)):
        shown = run(command[0], LOSSY, *command[1:], "--width", "80")
        assert re.search(r"\bconnection 1\b|\bc1\b", shown)
        assert not re.search(r"#\d+ (riptide|→|←)|#\d+[→←]", shown)
    legend = next(line for line in run("timeline", LOSSY, "1").splitlines() if "frame 5" in line)
    assert "reliable 5 unit 5 of the space reliable" in legend


def test_rows_of_nothing_are_shown_when_they_are_asked_for() -> None:
    usual, whole = run("connections", LOSSY, "1"), run("connections", LOSSY, "1", "--all")
    assert "given up" not in usual
    assert "given up" in whole
