"""encode, send, fuzz, replay and minimise as commands."""

from __future__ import annotations

import json
import re
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from agreement import CAPTURES
from fuzzing import free_target, running, server_command
from netdissect.cli import cli

CLEAN = str(CAPTURES / "riptide" / "udp_2.2.1_clean.pcap")


def run(*words: str, text: str | None = None) -> Result:
    return CliRunner().invoke(cli, list(words), input=text, env={"NO_COLOR": "1"})


@pytest.mark.parametrize(
    ("words", "octets"),
    [
        (["riptide", "Connect"], "02"),
        (
            ["riptide", "reliable", "sequence_id=0x11", "message_id=5", "data=text:hi"],
            "170150809606",
        ),
        (["riptide", "RiptideDisconnect", "reason=Kicked", "--dialect", "2.2"], "4500"),
        (["riptide", "Heartbeat", "ping_id=3", "rtt_ms=none", "--dialect", "2.0"], "0503"),
        (["teeworlds", "sys.ping", "--dialect", "0.7"], "000001ffffffff40010135"),
        (["teeworlds", "Tw07SysPing", "--dialect", "0.7", "--bare"], "35"),
        (["eoudp", "EVENT", "key=65"], None),
        (["netplay", "NetplayFrame", "type=7", "body=0102"], "00050000070102"),
    ],
)
def test_encode_builds_what_decode_reads(words: list[str], octets: str | None) -> None:
    result = run("encode", *words)
    assert result.exit_code == 0, result.output
    digits = result.output.strip()
    assert octets is None or digits == octets
    row = json.loads(run("encode", *words, "--json").output)
    assert row["octets"] == digits
    assert row["length"] == len(digits) // 2
    if "--bare" not in words:
        decoded = json.loads(
            run("decode", words[0], digits, "--json", "--dialect", row["dialect"]).output
        )
        assert [note for note in decoded["annotations"] if note["severity"] == "error"] == []


@pytest.mark.parametrize(
    "digits",
    ["1701050001", "1100100000", "11001000200000", "0400", "04f0ff0f", "18001000", "6020003000ff"],
)
def test_encode_takes_what_decode_prints(digits: str) -> None:
    printed = run("decode", "riptide", digits, "--json", "--dialect", "2.2").output
    assert run("encode", "riptide", "-", text=printed).output.strip() in (digits, digits + "00")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["encode", "riptide", "Nonsense"], "Types of riptide-2.2"),
        (["encode", "riptide", "Ack", "nonsense=1"], "has no field"),
        (["encode", "riptide", "Ack", "nonsense"], "FIELD=VALUE"),
        (["encode", "riptide", "Reliable", "data=xyz"], "data="),
        (["fuzz", "riptide", "--target", "127.0.0.1"], "HOST:PORT"),
        (["fuzz", "riptide", "--target", "127.0.0.1:7777", "--dialect", "9"], "no dialect"),
        (["replay", "nowhere"], "no failure folder"),
        (["minimise", "nowhere"], "no failure folder"),
    ],
)
def test_misuse_is_exit_status_two(words: list[str], said: str) -> None:
    result = run(*words)
    assert result.exit_code == 2, result.output
    assert said in result.output


@pytest.mark.parametrize("words", [["fuzz", "riptide"], ["send", "riptide", "Connect"]])
def test_other_machines_are_refused(words: list[str]) -> None:
    result = run(*words, "--target", "192.0.2.1:7777")
    assert result.exit_code == 5
    assert "--i-own-this-host" in result.output


def test_send_shows_the_answers() -> None:
    with running("riptide") as (target, _server):
        shown = run(
            "send", "riptide", "Reliable", "message_id=3", "--target", str(target), "--wait", "0.3"
        )
        assert "→ sent" in shown.output
        assert "Ack" in shown.output
        words = [
            "send",
            "riptide",
            "Heartbeat",
            "ping_id=77",
            "--target",
            str(target),
            "--wait",
            "0.3",
            "--json",
        ]
        rows = [json.loads(line) for line in run(*words).output.splitlines()]
    assert rows[0]["direction"] == "c2s"
    assert {"ping_id": 77}.items() <= rows[-1]["fields"].items()
    assert rows[-1]["direction"] == "s2c"


def test_send_without_an_answer() -> None:
    result = run(
        "send",
        "riptide",
        "Connect",
        "--target",
        str(free_target()),
        "--no-session",
        "--wait",
        "0.2",
    )
    assert result.exit_code == 0
    assert "nothing listens on that port" in result.output


def test_fuzz_minimise_and_replay(tmp_path: Path) -> None:
    target = free_target()
    monitor = ["--monitor", server_command("riptide", target, "length")]
    found = run(
        "fuzz", "riptide", "--target", str(target), "--seeds", CLEAN, "--seed", "4", "--cases", "5000",
        "--rate", "0", "--failures", "1", "--answer", "0.5", "--out", str(tmp_path / "run"), *monitor,
    )  # fmt: skip
    assert found.exit_code == 7, found.output
    assert "562 seeds" in found.output
    folder = tmp_path / "run" / "failures" / "001-exit"
    assert "001-exit" in found.output
    small = run("minimise", str(folder), "--answer", "0.5", "--trials", "30", "--json", *monitor)
    assert small.exit_code == 0, small.output
    assert json.loads(small.output)["to"] == 1
    again = run("replay", str(folder / "minimal"), "--json", "--trust-folder")
    assert again.exit_code == 7
    assert json.loads(again.stdout)["failed"] is True
    assert f"netdissect: monitor of the folder: {monitor[1]}" in again.stderr
    twice = ["replay", str(folder / "minimal"), "--tries", "2", *monitor]
    assert "failed in 2 of 2 tries\n" in run(*twice).output
    facts = json.loads((folder / "minimal" / "failure.json").read_text())
    other = json.dumps({**facts, "signature": "exit: another crash"})
    (folder / "minimal" / "failure.json").write_text(other)
    assert "failed in 2 of 2 tries, in 2 of them not as recorded" in run(*twice).output
    well = run("replay", str(folder / "minimal"), "--monitor", server_command("riptide", target))
    assert well.exit_code == 0
    assert "the target did not fail" in well.output


def test_a_terminated_run_leaves_no_target_and_writes_its_account(tmp_path: Path) -> None:
    target = free_target()
    words = [
        sys.executable, "-m", "netdissect", "fuzz", "riptide", "--target", str(target), "--out", str(tmp_path / "run"),
        "--cases", "1000000", "--rate", "200", "--monitor", server_command("riptide", target),
    ]  # fmt: skip
    with subprocess.Popen(words, stderr=subprocess.PIPE, text=True) as run_:
        assert run_.stderr is not None
        assert "seeds" in run_.stderr.readline()
        cases = tmp_path / "run" / "cases.jsonl"
        while not cases.exists() or not cases.stat().st_size:
            assert run_.poll() is None
        run_.send_signal(signal.SIGTERM)
        assert run_.wait(30) == 143
    report = json.loads((tmp_path / "run" / "report.json").read_text())
    assert report["ended"] == "interrupted"
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as free:
        free.bind((target.host, target.port))


def test_a_good_server_is_exit_status_zero_and_the_report_is_json(tmp_path: Path) -> None:
    with running("riptide") as (target, _server):
        words = [
            "fuzz",
            "riptide",
            "--target",
            str(target),
            "--cases",
            "100",
            "--rate",
            "0",
            "-q",
            "--json",
        ]
        result = run(*words, "--out", str(tmp_path / "run"))
    assert result.exit_code == 0
    report = json.loads(result.output)
    assert report["cases"] == 100
    assert report["failures"] == []
    assert {"type", "state", "sent", "mutated", "received"} == set(report["coverage"][0])


PLAN = """
protocol = "riptide"
target = "{target}"
seeds = ["{seeds}"]
cases = 60
rate = 0
out = "{out}"
monitors = ["{monitor}"]
traffic = true

[oracles]
memory_mib = 500
rules = true
"""


def test_a_plan_says_what_the_command_line_does_not(tmp_path: Path) -> None:
    target = free_target()
    plan = tmp_path / "plan.toml"
    plan.write_text(
        PLAN.format(
            target=target, seeds=CLEAN, out=tmp_path / "run",
            monitor=server_command("riptide", target).replace(str(target.port), "{port}"),
        )
    )  # fmt: skip
    found = run("fuzz", "--plan", str(plan), "--cases", "30", "-q")
    assert found.exit_code == 0, found.output
    assert "30 cases" in found.output
    facts = json.loads((tmp_path / "run" / "run.json").read_text())
    assert facts["monitors"][1:] == ["memory:500", "rules"]
    names = {path.name for path in (tmp_path / "run").iterdir()}
    assert {"report.html", "states.svg", "junit.xml", "traffic.pcapng", "corpus"} <= names


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("seads = []", "no key is called 'seads'; did you mean 'seeds'?"),
        ("i-own-this-host = true", "no key is called 'i-own-this-host'"),
        ("[oracles]\nlatncy_ms = 3", "no oracle is called 'latncy_ms'; did you mean 'latency_ms'?"),
        ("[oracles]\nrules = 3", "oracles.rules must be true or false"),
        ("oracles = 3", "oracles must be a table"),
        ("cases = 'many'", "'many' is not a number"),
        ("cases = [1]", "cases takes one value"),
        ("traffic = 1", "traffic must be true or false"),
        ("rate = true", "rate must be a text or a number"),
        ("cases = ", "Invalid value"),
    ],
)
def test_what_is_wrong_in_a_plan_is_named(text: str, words: str, tmp_path: Path) -> None:
    plan = tmp_path / "plan.toml"
    plan.write_text(f"protocol = 'riptide'\ntarget = '127.0.0.1:9'\n{text}\n")
    found = run("fuzz", "--plan", str(plan))
    assert found.exit_code == 2
    assert words in found.output


def test_a_run_to_resume_is_named(tmp_path: Path) -> None:
    words = ["fuzz", "riptide", "--target", "127.0.0.1:9", "--resume"]
    assert "the folder of the run" in run(*words).output
    missing = run(*words, "--out", str(tmp_path / "none"))
    assert missing.exit_code == 2
    assert "cannot open" in missing.output


def test_the_table_of_a_run_has_no_rows_of_types_that_nobody_saw(tmp_path: Path) -> None:
    with running("teeworlds") as (target, _server):
        words = [
            "--target",
            str(target),
            "--cases",
            "40",
            "--rate",
            "0",
            "--out",
            str(tmp_path / "run"),
        ]
        capture = str(CAPTURES / "teeworlds" / "tw07_clean.pcap")
        output = run("fuzz", "teeworlds", *words, "--seeds", capture).output
    told = next(
        line for line in output.splitlines() if line.startswith("neither sent nor received: ")
    )
    assert re.search(r" and \d+ more$", told)
    rows = [line.split() for line in output.splitlines() if re.match(r"\S+ +(never|\d+/)", line)]
    assert rows
    assert all(row[1:] != ["never"] * (len(row) - 1) for row in rows)
