from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from agreement import CAPTURES
from fuzzing import free_target, running
from netdissect.capture import open_capture
from netdissect.flow import packets
from netdissect.fuzz import CONNECTED, Case, Step, Target, fuzz_target, load_failure
from netdissect.fuzz.monitors import Verdict
from netdissect.fuzz.pcap import Packets, TrafficWriter
from netdissect.fuzz.store import Sent, Store
from netdissect.fuzz.target import Traffic
from netdissect.model.errors import UsageError
from netdissect.model.packets import PacketKind, flow_endpoints

TARGET = Target("127.0.0.1", 7777)
CLEAN = CAPTURES / "riptide" / "udp_2.2.1_clean.pcap"
LOCAL = ("127.0.0.1", 40000)


def sent(number: int, octets: bytes = b"ab") -> Sent:
    return Sent(
        number, 1, CONNECTED, Step(octets, "Reliable", ("ack",), (("sequence", 2),)), octets + b"!"
    )


def test_a_failure_reads_back_as_it_was_written(tmp_path: Path) -> None:
    store = Store(tmp_path / "run")
    steps = [sent(1), sent(2, b"xyz")]
    traffic = [Traffic(5, True, b"hello", LOCAL), Traffic(6, False, b"back", LOCAL)]
    folder = store.write_failure(
        Verdict("exit", "status 1"), {"protocol": "riptide", "case": 2}, steps, number=1, example=1,
        log=b"log", traffic=traffic, target=TARGET, transport="udp",
    )  # fmt: skip
    store.close()
    failure = load_failure(folder)
    assert failure.kind == "exit"
    assert failure.steps == tuple(steps)
    assert failure.facts["protocol"] == "riptide"
    assert (folder / "log.txt").read_bytes() == b"log"
    assert [path.read_bytes() for path in sorted((folder / "datagrams").iterdir())] == [
        b"ab!",
        b"xyz!",
    ]
    with open_capture(folder / "traffic.pcapng") as capture:
        seen = [
            (packet[2], str(flow_endpoints(packet[3])[1]), packet[4]) for packet in packets(capture)
        ]
    assert seen == [(5, "127.0.0.1:7777", b"hello"), (6, "127.0.0.1:40000", b"back")]


def test_a_run_that_has_sent_nothing_does_not_take_the_folder(tmp_path: Path) -> None:
    target = free_target()
    for monitors in (["memory:x"], [], []):
        with pytest.raises(UsageError, match=r"is not a monitor|accepts no"):
            fuzz_target("riptide", target, tmp_path / "run", captures=[CLEAN], monitors=monitors)


def test_a_run_does_not_overwrite_another(tmp_path: Path) -> None:
    running_one = Store(tmp_path)
    with pytest.raises(UsageError, match="--out"):
        Store(tmp_path)
    running_one.write_case(Case(0, "field:flip", (Step(b"a"),)), [b"a"])
    running_one.close()
    with pytest.raises(UsageError, match="--out"):
        Store(tmp_path)


@pytest.mark.parametrize("content", [None, "", "{}", '{"kind": 1}', "[1]", "nonsense"])
def test_what_is_no_failure_folder(tmp_path: Path, content: str | None) -> None:
    if content is not None:
        (tmp_path / "failure.json").write_text(content)
        (tmp_path / "steps.jsonl").write_text("not json\n")
    with pytest.raises(UsageError, match="no failure folder"):
        load_failure(tmp_path)


@pytest.mark.parametrize(
    ("host", "transport"), [("127.0.0.1", "tcp"), ("::1", "udp"), ("::1", "tcp")]
)
def test_traffic_is_a_capture_that_reads_back(tmp_path: Path, host: str, transport: str) -> None:
    local = (host, 40000)
    traffic = [
        Traffic(1, True, b"one", local),
        Traffic(2, False, b"two", local),
        Traffic(3, True, b"3", local),
    ]
    with (tmp_path / "x.pcap").open("wb") as file:
        writer = TrafficWriter(file, Target(host, 7777), transport)  # type: ignore[arg-type]
        for each in traffic:
            writer.write(each)
        writer.close()
    with open_capture(tmp_path / "x.pcap") as capture:
        found = list(packets(capture))
    assert [packet[4] for packet in found] == [b"one", b"two", b"3"]
    assert {packet[0] for packet in found} == {
        PacketKind.UDP if transport == "udp" else PacketKind.TCP
    }
    assert all(not packet[6] for packet in found)


def test_a_case_is_on_disk_before_it_is_sent(tmp_path: Path) -> None:
    store = Store(tmp_path)
    store.write_case(Case(3, "field:boundary x", (Step(b"\1"),)), [b"\2"])
    row = json.loads((tmp_path / "cases.jsonl").read_text())
    assert row["case"] == 3
    assert row["steps"][0]["octets"] == "01"
    assert row["steps"][0]["sent"] == "02"
    store.close()


def test_no_case_is_lost_when_the_fuzzer_is_killed(tmp_path: Path) -> None:
    """Kill it in the middle of a run: every datagram that the server got stands in the file."""
    with running("riptide") as (target, server):
        got: list[bytes] = []
        handle = server.handle
        server.handle = lambda data, peer, now: (got.append(data), handle(data, peer, now))[1]  # type: ignore[method-assign]
        script = (
            "import sys; from pathlib import Path; from netdissect.fuzz import Target, fuzz_target\n"
            "fuzz_target('riptide', Target.parse(sys.argv[1]), Path(sys.argv[2]), cases=100000, captures=[sys.argv[3]],\n"
            "            progress=lambda report: print(report.cases, flush=True))"
        )
        command = [sys.executable, "-c", script, str(target), str(tmp_path / "run"), str(CLEAN)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as fuzzer:
            assert fuzzer.stdout is not None
            for _ in range(5):
                assert fuzzer.stdout.readline()
            os.kill(fuzzer.pid, signal.SIGKILL)
            fuzzer.wait(30)
    lines = (tmp_path / "run" / "cases.jsonl").read_text().splitlines()
    rows = [json.loads(line) for line in lines]
    assert len(rows) >= 100
    numbers = [row["case"] for row in rows]
    assert len(set(numbers)) == len(numbers)
    written = {step["sent"] for row in rows for step in row["steps"]}
    # Messages of the driver itself are shorter.
    mutants = [data.hex() for data in got if len(data) > 8]
    assert len(mutants) > 20
    assert [data for data in mutants if data not in written] == []


def test_free_targets_are_free() -> None:
    assert free_target().port > 0


@pytest.mark.parametrize(
    "damaged",
    [
        {"case": 1e999, "mutation": "none", "stage": CONNECTED, "steps": []},
        {"case": 1, "mutation": [], "stage": CONNECTED, "steps": []},
        {"case": 1, "mutation": "none", "stage": 7, "steps": []},
        {"case": 1, "mutation": "none", "stage": "\ud800", "steps": []},
    ],
)
def test_damaged_cases_are_passed_over_when_a_run_goes_on(tmp_path: Path, damaged: object) -> None:
    folder = tmp_path / "run"
    store = Store(folder)
    store.write_case(Case(1, "none", (Step(b"ab", "Reliable"),), CONNECTED), [b"ab"])
    store.close()
    with (folder / "cases.jsonl").open("a") as file:
        file.write(json.dumps(damaged) + "\n")
    broken = folder / "failures" / "001-exit"
    broken.mkdir(parents=True)
    (broken / "failure.json").write_text(
        '{"kind": "exit", "signature": "exit: x", "detail": "x", "case": Infinity}'
    )
    store = Store(folder, resume=True)
    past = store.past()
    store.close()
    assert (past.cases, past.next_number, past.failures) == (1, 2, [])
    assert sum(past.sent.values()) == sum(past.mutations.values()) == len(past.keys) == 1


def test_sequence_numbers_of_a_long_stream_wrap() -> None:
    packets_of = Packets(TARGET, "tcp")
    packets_of._sequences[*LOCAL, True] = 0xFFFF_FFFE
    first, second = (
        next(packets_of.of(Traffic(5, True, octets, LOCAL))) for octets in (b"hello", b"again")
    )
    assert first[24:28] == bytes.fromhex("fffffffe")
    assert second[24:28] == bytes.fromhex("00000003")


@pytest.mark.parametrize("name", ["cases.jsonl", "run.json"])
def test_a_run_is_not_resumed_through_a_link(name: str, tmp_path: Path) -> None:
    """Cases would be appended to what it names."""
    folder, other = tmp_path / "run", tmp_path / "other"
    store = Store(folder)
    store.write_run({})
    store.write_case(Case(1, "none", (Step(b"ab", "Reliable"),), CONNECTED), [b"ab"])
    store.close()
    (folder / name).rename(other)
    (folder / name).symlink_to(other)
    before = other.read_bytes()
    with pytest.raises(UsageError, match="holds no run to resume"):
        Store(folder, resume=True).read_run()
    assert other.read_bytes() == before
