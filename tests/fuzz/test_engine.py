from __future__ import annotations

import itertools
import json
import socket
import sys
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from agreement import CAPTURES
from fuzzing import free_target, running, server_command
from netdissect.capture import open_capture
from netdissect.fuzz import (
    CONNECTED,
    FuzzReport,
    Step,
    fuzz_target,
    load_failure,
    minimise_failure,
    monitors,
    replay_failure,
    replay_tries,
    seeds_from_capture,
)
from netdissect.fuzz import target as links
from netdissect.fuzz.cases import Case
from netdissect.fuzz.drivers import Driver, driver_class
from netdissect.fuzz.drivers.knet import Builder, KnetDriver
from netdissect.fuzz.drivers.riptide import RiptideDriver
from netdissect.fuzz.engine import Engine
from netdissect.fuzz.minimise import ddmin
from netdissect.fuzz.sessions import Sessions
from netdissect.fuzz.watch import Watch
from netdissect.fuzz.watchers import parse_monitors
from netdissect.model.errors import UsageError

CLEAN = CAPTURES / "riptide" / "udp_2.2.1_clean.pcap"
CAPTURE = {
    "riptide-2.2": CLEAN,
    "riptide-2.1": CAPTURES / "riptide" / "udp_2.1.2_clean.pcap",
    "riptide-2.1dev": CAPTURES / "riptide" / "udp_2.1dev_clean.pcap",
    "riptide-2.0": CAPTURES / "riptide" / "udp_2.0.0_lossy_clientleg.pcap",
}


@pytest.mark.parametrize("dialect", RiptideDriver.dialects)
def test_a_good_server_withstands_and_takes_the_good_messages(dialect: str, tmp_path: Path) -> None:
    with running("riptide", dialect) as (target, server):
        report = fuzz_target(
            "riptide",
            target,
            tmp_path / "run",
            dialect=dialect,
            captures=[CAPTURE[dialect]],
            cases=300,
            rate=0,
        )
    assert report.findings == {}
    assert report.cases == 300
    assert report.ended == "all cases sent"
    share = report.share("control")
    assert share is not None
    assert share >= 0.9
    assert server.delivered > 20  # type: ignore[attr-defined]
    lines = (tmp_path / "run" / "cases.jsonl").read_text().splitlines()
    assert len(lines) == 300
    assert sum(report.mutations.values()) == 300
    assert report.datagrams == sum(len(json.loads(line)["steps"]) for line in lines)


def test_the_report_says_what_was_reached_in_which_state(tmp_path: Path) -> None:
    with running("riptide") as (target, _server):
        report = fuzz_target(
            "riptide", target, tmp_path / "run", captures=[CLEAN], cases=600, rate=0
        )
    assert report.stages == ("fresh", "connecting", CONNECTED)
    assert report.mutated["Reliable", CONNECTED] > 50
    assert report.mutated["Reliable", "fresh"] > 0
    assert report.controls["Reliable", CONNECTED] > 20
    assert report.reached["Ack", CONNECTED] > 100
    assert report.reached["Welcome", "connecting"] >= report.sessions
    assert ("Invalid11", CONNECTED) in report.never()
    assert ("Reliable", CONNECTED) not in report.never()
    data = json.loads((tmp_path / "run" / "report.json").read_text())
    listed = Counter(
        (step["type"], row["stage"])
        for row in map(json.loads, (tmp_path / "run" / "cases.jsonl").read_text().splitlines())
        for step in row["steps"]
    )
    assert listed == report.mutated + report.controls
    row = next(
        row for row in data["coverage"] if (row["type"], row["state"]) == ("Reliable", CONNECTED)
    )
    assert row["mutated"] == report.mutated["Reliable", CONNECTED]
    assert data["accepted"]["control"]["expected"] == report.expected["control"]
    assert data["never_mutated"] == [list(pair) for pair in report.never()]


def test_the_same_seed_sends_the_same_messages(tmp_path: Path) -> None:
    runs = []
    for name in ("one", "two"):
        with running("riptide") as (target, _server):
            fuzz_target(
                "riptide", target, tmp_path / name, seed=9, cases=100, rate=0, feedback=False
            )
        rows = [
            json.loads(line) for line in (tmp_path / name / "cases.jsonl").read_text().splitlines()
        ]
        runs.append({row["case"]: [step["octets"] for step in row["steps"]] for row in rows})
    one, two = runs
    # On a busy machine a case may wait for its session longer than the run lasts.
    assert len(one.keys() & two.keys()) > 80
    assert all(one[number] == two[number] for number in one.keys() & two.keys())


def test_nobody_there(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"accepts no riptide-2\.2 session"):
        fuzz_target(
            "riptide", free_target(), tmp_path / "run", cases=5, monitors=[], answer_seconds=0.1
        )


def test_a_server_that_does_not_start_says_why(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"accepts no .* session: .* after: port already in use$"):
        fuzz_target(
            "riptide", free_target(), tmp_path / "run", cases=5, answer_seconds=0.1,
            monitors=["exec:sh -c 'echo port already in use; exit 1'"],
        )  # fmt: skip


def test_riptide_bugs_are_found_minimised_and_replayed(tmp_path: Path) -> None:
    target = free_target()
    report = fuzz_target(
        "riptide", target, tmp_path / "run", captures=[CLEAN], seed=4, cases=20_000, rate=0, failures=1,
        monitors=[server_command("riptide", target, "length")], answer_seconds=0.5,
    )  # fmt: skip
    (finding,) = report.findings.values()
    assert finding.verdict.kind == "exit"
    assert "PlantedBugError: length: " in finding.verdict.detail
    failure = load_failure(finding.folder)
    assert failure.facts["seed"] == 4
    result, folder = minimise_failure(
        failure, target, monitors=failure.monitors, trials=40, answer_seconds=0.5
    )
    assert result.complete
    assert len(result.steps) == 1
    minimal = load_failure(folder)
    assert len(minimal.steps[0].octets) >= 1232
    anywhere = [each.replace(str(target.port), "{port}") for each in minimal.monitors]
    verdict, sent = replay_failure(minimal, free_target(), monitors=anywhere)
    assert verdict is not None
    assert verdict.signature == finding.verdict.signature
    assert len(sent) == 1


def test_a_target_that_hangs_is_found_by_its_silence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(monitors, "EXIT_SECONDS", 0.1)
    target = free_target()
    report = fuzz_target(
        "riptide", target, tmp_path / "run", captures=[CLEAN], seed=4, cases=20_000, rate=0, failures=1,
        monitors=[server_command("riptide", target, "sequence")], answer_seconds=0.3,
    )  # fmt: skip
    (finding,) = report.findings.values()
    assert finding.verdict.kind == "no-answer"
    failure = load_failure(finding.folder)
    verdict, _sent = replay_failure(failure, target, monitors=failure.monitors)
    assert verdict is not None
    assert verdict.kind == "no-answer"


WITNESS = """
import sys
from netdissect.fuzz.servers import make_server, open_listener, serve
server, kept = make_server("riptide"), []
handle = server.handle
def watched(data, peer, now):
    if len(data) > 1300:
        print("PANIC: large message", flush=True)
        kept.append(bytearray(64 << 20))
    return handle(data, peer, now)
server.handle = watched
with open_listener(server, int(sys.argv[1])) as listener:
    print("ready", flush=True)
    serve(server, listener)
"""
"""A server that logs a line and takes 64 MiB at a large message, and answers all the same."""


@pytest.mark.parametrize(("monitor", "kind"), [("log:PANIC", "log"), ("memory:32", "memory")])
def test_a_log_line_and_growth_are_failures_too(monitor: str, kind: str, tmp_path: Path) -> None:
    target = free_target()
    script = tmp_path / "server.py"
    script.write_text(WITNESS)
    report = fuzz_target(
        "riptide", target, tmp_path / "run", captures=[CLEAN], seed=4, cases=3000, rate=0, failures=1,
        monitors=[f"exec:{sys.executable} {script} {target.port}", monitor],
    )  # fmt: skip
    (finding,) = report.findings.values()
    assert finding.verdict.kind == kind
    assert {path.name for path in finding.folder.iterdir()} == {
        "failure.json", "steps.jsonl", "datagrams", "log.txt", "traffic.pcapng",
    }  # fmt: skip
    assert b"PANIC" in (finding.folder / "log.txt").read_bytes()
    steps = load_failure(finding.folder).steps
    assert max(len(step.octets) for step in steps) > 1300
    assert (finding.folder / "traffic.pcapng").stat().st_size > 1300


def test_a_server_that_lets_nobody_else_in_has_not_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As kNet, whose queue of connections is full: it answers late, but those who are there."""
    with running("riptide") as (target, server):
        connect, handle = server._connect, server.handle  # type: ignore[attr-defined]
        calls = itertools.count(1)

        def only_the_first(peer: Any, now: float) -> Any:
            return [] if server._peers else connect(peer, now)  # type: ignore[attr-defined]

        def slow_at_times(data: bytes, peer: Any, now: float) -> Any:
            if next(calls) % 60 == 0:
                time.sleep(0.4)
            return handle(data, peer, now)

        monkeypatch.setattr(server, "_connect", only_the_first)
        monkeypatch.setattr(server, "handle", slow_at_times)
        report = fuzz_target(
            "riptide", target, tmp_path / "run", captures=[CLEAN], seed=1, cases=120, rate=0,
            answer_seconds=0.3,
        )  # fmt: skip
    assert report.findings == {}
    assert report.slow


def test_a_session_is_not_held_while_it_is_found_that_the_target_hangs(tmp_path: Path) -> None:
    target = free_target()
    report = fuzz_target(
        "riptide", target, tmp_path / "run", captures=[CLEAN], seed=1, cases=3000, rate=0,
        failures=1, answer_seconds=1.0, monitors=[server_command("riptide", target, "sequence")],
    )  # fmt: skip
    assert [each.verdict.kind for each in report.findings.values()] == ["no-answer"]
    # No new session within a second, nor within another one.
    assert 0 < report.held_seconds < report.seconds - 2.0


@pytest.mark.slow
def test_a_short_mutant_that_ends_the_target_is_sent_once(tmp_path: Path) -> None:
    target = free_target()
    report = fuzz_target(
        "riptide", target, tmp_path / "run", captures=[CLEAN], seed=1, cases=3000, rate=0,
        answer_seconds=0.3, monitors=[server_command("riptide", target, "empty")],
    )  # fmt: skip
    (finding,) = report.findings.values()
    assert (finding.verdict.kind, finding.count) == ("no-answer", 1)
    assert b"" in [each.octets for each in load_failure(finding.folder).steps]


@pytest.mark.slow
def test_three_planted_bugs_within_twenty_thousand_cases(tmp_path: Path) -> None:
    """One capture as seed; a length, a sequence and a decompression bug in a Teeworlds server."""
    target = free_target()
    report = fuzz_target(
        "teeworlds", target, tmp_path / "run", captures=[CAPTURES / "teeworlds" / "tw07_clean.pcap"],
        seed=2, cases=20_000, failures=3, answer_seconds=0.5,
        monitors=[server_command("teeworlds", target, "length", "sequence", "decompression")],
    )  # fmt: skip
    details = {finding.verdict.detail.partition("PlantedBugError: ")[2].partition(":")[0] or finding.verdict.kind
               for finding in report.findings.values()}  # fmt: skip
    assert details == {"length", "decompression", "no-answer"}
    for finding in report.findings.values():
        failure = load_failure(finding.folder)
        result, folder = minimise_failure(
            failure, target, monitors=failure.monitors, trials=120, answer_seconds=0.5
        )
        # A number that is far ahead may be so only of what other steps have brought.
        assert len(result.steps) <= 4
        # What the server has received by then depends on time, so that it may take a further try.
        again = (
            replay_failure(load_failure(folder), target, monitors=failure.monitors)[0]
            for _ in range(3)
        )
        verdict = next(filter(None, again), None)
        assert verdict is not None
        assert verdict.signature == finding.verdict.signature


def test_ddmin_finds_the_least_part() -> None:
    asked: list[int] = []

    def fails(part: object) -> bool:
        items = list(part)  # type: ignore[call-overload]
        asked.append(len(items))
        return 13 in items and 57 in items

    assert ddmin(list(range(100)), fails) == [13, 57]
    assert len(asked) < 100
    assert ddmin([5], lambda _part: True) == [5]
    assert ddmin(list(range(8)), lambda part: len(part) >= 3) == [5, 6, 7]


def test_a_failure_that_does_not_come_again(tmp_path: Path) -> None:
    target = free_target()
    report = fuzz_target(
        "riptide", target, tmp_path / "run", captures=[CLEAN], seed=4, cases=20_000, rate=0, failures=1,
        monitors=[server_command("riptide", target, "length")], answer_seconds=0.5,
    )  # fmt: skip
    (finding,) = report.findings.values()
    failure = load_failure(finding.folder)
    good = [server_command("riptide", target)]
    assert replay_failure(failure, target, monitors=good)[0] is None
    with pytest.raises(UsageError, match="do not make the target fail"):
        minimise_failure(failure, target, monitors=good, answer_seconds=0.5)
    with pytest.raises(UsageError, match="exec:"):
        minimise_failure(failure, target, monitors=[])


def test_no_case_is_sent_twice(tmp_path: Path) -> None:
    with running("eoudp") as (target, _server):
        report = fuzz_target("eoudp", target, tmp_path / "run", cases=1500, rate=0)
    rows = [
        json.loads(line) for line in (tmp_path / "run" / "cases.jsonl").read_text().splitlines()
    ]
    seen = {
        json.dumps([row["stage"], [{**step, "sent": "", "type": ""} for step in row["steps"]]])
        for row in rows
        if row["mutation"] != "none"
    }
    assert len(rows) == 1500
    assert len(seen) == sum(row["mutation"] != "none" for row in rows)
    assert report.repeats > 20


@pytest.mark.slow
def test_a_frequent_failure_does_not_hide_others_and_can_be_masked(tmp_path: Path) -> None:
    """Two crashes with different places are two kinds; the masked one is counted, not kept."""
    target = free_target()
    run = {
        "captures": [CAPTURES / "teeworlds" / "tw07_clean.pcap"], "seed": 2, "rate": 0,
        "monitors": [server_command("teeworlds", target, "length", "decompression")],
        "answer_seconds": 0.5,
    }  # fmt: skip
    report = fuzz_target("teeworlds", target, tmp_path / "a", cases=20_000, failures=2, **run)  # type: ignore[arg-type]
    assert {finding.verdict.place for finding in report.findings.values()} == {
        finding.verdict.signature.removeprefix("exit: ") for finding in report.findings.values()
    }
    kinds = sorted(report.findings)
    assert len(kinds) == 2
    assert all("Python: " in kind and "PlantedBugError in _check_" in kind for kind in kinds)
    length = next(kind for kind in kinds if "_check_length" in kind)
    again = fuzz_target(
        "teeworlds", target, tmp_path / "b", cases=20_000, failures=1,
        masked=[report.findings[length].key], **run,  # type: ignore[arg-type]
    )  # fmt: skip
    assert list(again.findings) == [kind for kind in kinds if kind != length]


def test_what_a_report_says_masks_the_kind(tmp_path: Path) -> None:
    """The numbers of a failure are no part of its kind, but of what the user reads."""
    target = free_target()
    report = fuzz_target(
        "riptide", target, tmp_path / "run", captures=[CLEAN], seed=4, cases=60, rate=0,
        monitors=[server_command("riptide", target, "length")], answer_seconds=0.5,
        mutators=["octets:extend", "octets:repeat"], masked=["PlantedBugError: length: "],
    )  # fmt: skip
    assert report.findings == {}
    assert report.masked.total() > 0


def test_examples_of_a_kind_are_kept_and_the_rest_is_counted(tmp_path: Path) -> None:
    target = free_target()
    report = fuzz_target(
        "riptide", target, tmp_path / "run", captures=[CLEAN], seed=4, cases=400, rate=0, examples=1,
        monitors=[server_command("riptide", target, "length")], answer_seconds=0.5,
        mutators=["octets:extend", "octets:repeat"],
    )  # fmt: skip
    (finding,) = report.findings.values()
    assert finding.count > 1
    assert [folder.name for folder in finding.folders] == ["001-exit"]
    assert all(load_failure(folder).kind == "exit" for folder in finding.folders)
    names = set(report.mutations)
    assert all(name.startswith(("octets:", "corpus:", "none")) for name in names), names


def test_a_run_ends_when_its_time_is_over(tmp_path: Path) -> None:
    with running("riptide") as (target, _server):
        report = fuzz_target("riptide", target, tmp_path / "run", duration=0.6, rate=50)
    assert report.ended == "the time is over"
    assert 0.5 < report.seconds < 20
    assert report.cases > 5


STALLS = """
import os, signal, sys
from netdissect.fuzz.servers import make_server, open_listener, serve
server, count = make_server("riptide"), 0
handle = server.handle
signal.signal(signal.SIGTERM, signal.SIG_IGN)
def stalls(data, peer, now):
    global count
    count += 1
    if count > 60:
        os.kill(os.getpid(), signal.SIGSTOP)
    return handle(data, peer, now)
server.handle = stalls
with open_listener(server, int(sys.argv[1])) as listener:
    serve(server, listener)
"""


def test_a_target_that_hangs_again_and_again_holds_no_run_up(tmp_path: Path) -> None:
    """Waits for answers, for its end and for its next start are over with the run."""
    script = tmp_path / "stalls.py"
    script.write_text(STALLS)
    target = free_target()
    report = fuzz_target(
        "riptide", target, tmp_path / "run", duration=2.5, rate=400, failures=9, answer_seconds=0.4,
        monitors=[f"exec:{sys.executable} {script} {target.port}"],
    )  # fmt: skip
    assert report.ended.startswith("the time is over")
    # One answer and half a second to judge it; as long for good-byes, and to end the process.
    assert report.seconds < 2.5 + 0.4 + 0.5 + 0.5 + 0.5 + 0.6


DEAF = """
import socket, sys, time
listener = socket.create_server(("127.0.0.1", int(sys.argv[1])), backlog=4)
listener.accept()[0].recv(1)
time.sleep(60)
"""


def test_a_server_that_hangs_before_it_ever_answers_has_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing has come back that it could be asked for; the system accepts some connections for it,
    and then none. That it hangs is noticed each time, also right after it was restarted.
    """
    monkeypatch.setattr(links, "CONNECT_SECONDS", 0.05)
    script = tmp_path / "deaf.py"
    script.write_text(DEAF)
    target = free_target(socket.SOCK_STREAM)
    report = fuzz_target(
        "netplay", target, tmp_path / "run", duration=8, rate=0, answer_seconds=0.2,
        monitors=[f"exec:{sys.executable} -S {script} {target.port}"],
    )  # fmt: skip
    (finding,) = report.findings.values()
    assert finding.verdict.kind == "no-answer"
    assert finding.count >= 2


LATE_START = """
import sys, time
end = time.monotonic() + float(sys.argv[2])
while time.monotonic() < end:
    pass
from netdissect.fuzz.servers import make_server, open_listener, serve
server = make_server("riptide")
serve(server, open_listener(server, int(sys.argv[1])))
"""


def test_a_target_that_is_at_work_may_take_its_time_to_start(tmp_path: Path) -> None:
    script = tmp_path / "server.py"
    script.write_text(LATE_START)
    target = free_target()
    found = parse_monitors([f"exec:{sys.executable} {script} {target.port} 1.5"], tmp_path)
    watch = Watch(RiptideDriver, "riptide-2.2", target, found, start_seconds=0.5)
    found.start()
    session = watch.patient_session()
    found.stop()
    assert session is not None
    session.close()


def test_a_choice_of_types_holds_in_what_follows_a_case_too(tmp_path: Path) -> None:
    with running("riptide") as (target, _server):
        fuzz_target(
            "riptide", target, tmp_path / "run", captures=[CLEAN], cases=250, rate=0, types=["Connect"],
        )  # fmt: skip
    originals = {each.octets.hex() for each in seeds_from_capture("riptide", "riptide-2.2", CLEAN).seeds}
    kinds = Counter()
    for line in (tmp_path / "run" / "cases.jsonl").read_text().splitlines():
        for step in json.loads(line)["steps"]:
            kinds[step["type"], step["octets"] in originals] += 1
    assert kinds["Connect", False] > 100
    assert {name for name, original in kinds if not original} == {"Connect"}


DEAF_END = """
import sys, time
from netdissect.fuzz.servers import make_server, open_listener, serve
from netdissect.fuzz.servers.base import PlantedBugError
server = make_server("riptide", bugs=frozenset({"length"}))
listener = open_listener(server, int(sys.argv[1]))
try:
    serve(server, listener)
except PlantedBugError:
    listener.close()
    end = time.monotonic() + 1.5
    while time.monotonic() < end:
        pass
    sys.exit(3)
"""


def test_a_process_that_takes_its_time_to_end_has_failed_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has closed its socket before, and a busy machine may let it end only much later."""
    monkeypatch.setattr(monitors, "EXIT_SECONDS", 0.4)
    script = tmp_path / "server.py"
    script.write_text(DEAF_END)
    target = free_target()
    report = fuzz_target(
        "riptide", target, tmp_path / "run", captures=[CLEAN], seed=5, cases=400, failures=2,
        monitors=[f"exec:{sys.executable} {script} {target.port}"],
    )  # fmt: skip
    assert [each.verdict.kind for each in report.findings.values()] == ["exit"]


LATE_END = """
import sys, time
from netdissect.fuzz.servers import make_server, open_listener, serve
from netdissect.fuzz.servers.base import PlantedBugError
server = make_server("riptide", bugs=frozenset({"length"}))
handle = server.handle
def late(data, peer, now):
    try:
        return handle(data, peer, now)
    except PlantedBugError:
        print("/a/b.cpp:7:3: runtime error: load of value 7, which is not a valid value", flush=True)
        print("    #0 0x5581 in take /a/b.cpp:7", flush=True)
        print("    #1 0x5582 in main /a/b.cpp:9\\n", flush=True)
        time.sleep(0.4)
        sys.exit(3)
server.handle = late
serve(server, open_listener(server, int(sys.argv[1])))
"""


@pytest.mark.slow
def test_a_replay_waits_for_the_end_that_a_report_comes_before(tmp_path: Path) -> None:
    """As with AddressSanitizer, which takes a second to find the names of a stack."""
    script = tmp_path / "late.py"
    script.write_text(LATE_END)
    target = free_target()
    run = [f"exec:{sys.executable} {script} {target.port}"]
    report = fuzz_target(
        "riptide", target, tmp_path / "run", captures=[CLEAN], seed=4, cases=60, rate=0, monitors=run,
        mutators=["octets:extend", "octets:repeat"], answer_seconds=0.5,
    )  # fmt: skip
    (ended,) = (each for each in report.findings.values() if each.verdict.kind == "exit")
    verdict, _sent = replay_failure(load_failure(ended.folder), target, monitors=run)
    assert verdict is not None
    assert verdict.signature == ended.verdict.signature


HANGS = """
import sys, time
from netdissect.fuzz.servers import make_server, open_listener, serve
from netdissect.fuzz.servers.base import PlantedBugError
server = make_server("netplay", "netplay-bin1", frozenset({"decompression"}))
read = server.read
def hang(peer):
    try:
        return read(peer)
    except PlantedBugError:
        time.sleep(60 if server.delivered > 100 else 0)
        return []
server.read = hang
serve(server, open_listener(server, int(sys.argv[1])))
"""


@pytest.mark.slow
def test_a_server_that_sends_back_and_stands_still_has_failed(tmp_path: Path) -> None:
    """The system accepts connections for a Netplay server that hangs; what always came back shows
    it, in a replay too.
    """
    script = tmp_path / "hangs.py"
    script.write_text(HANGS)
    target = free_target(socket.SOCK_STREAM)
    monitors = [f"exec:{sys.executable} {script} {target.port}"]
    report = fuzz_target(
        "netplay", target, tmp_path / "run", cases=600, rate=0, failures=1, answer_seconds=0.3,
        captures=[CAPTURES / "netplay" / "bin1_types.pcap"], monitors=monitors,
    )  # fmt: skip
    (finding,) = report.findings.values()
    assert finding.verdict.kind == "no-answer"
    verdict, _sent = replay_failure(load_failure(finding.folder), target, monitors=monitors)
    assert verdict is not None
    assert verdict.kind == "no-answer"


def test_a_full_server_refuses_and_has_not_failed(tmp_path: Path) -> None:
    """Riptide says so with Reject: the run waits until there is room again."""
    with running("riptide") as (target, server):
        strangers = [RiptideDriver.connect(target, timeout=2) for _ in range(64)]
        assert server.connected == 64  # type: ignore[attr-defined]
        refused = RiptideDriver.connect(target, timeout=2)
        assert refused.close_reason == "refused: Reject 2"
        refused.close()
        for stranger in strangers[:8]:
            stranger.close()
        report = fuzz_target("riptide", target, tmp_path / "run", cases=300, rate=0)
        for stranger in strangers[8:]:
            stranger.close()
    assert report.findings == {}
    assert report.cases == 300


def test_a_session_is_held_while_the_target_stands_still(tmp_path: Path) -> None:
    """It answers nobody then, which says nothing of one session; fewer come and go from there."""
    with running("knet") as (target, server):
        handle, count = server.handle, itertools.count(1)

        def slow(data: bytes, peer: Any, now: float) -> Any:
            if next(count) % 700 == 0:
                time.sleep(0.6)
            return handle(data, peer, now)

        server.handle = slow  # type: ignore[method-assign]
        capture = CAPTURES / "knet" / "udp_clean_session.pcap"
        report = fuzz_target(
            "knet", target, tmp_path / "run", captures=[capture], duration=5, rate=600
        )
        assert next(count) > 700
    assert report.findings == {}
    assert report.held_seconds > 4
    # Nothing is sent beside it, but at the beginning and the end.
    assert report.datagrams * 0.9 < report.held_messages <= report.datagrams
    share = report.share("control")
    assert share is not None
    assert share >= 0.98


@pytest.mark.parametrize("warm", [0, 1000])
def test_a_target_that_stands_still_gets_no_more_than_its_system_holds_for_it(warm: int) -> None:
    """What comes beyond that is lost, good messages among it. A target that has answered quickly so
    far gets more.
    """
    room, standing = threading.Event(), threading.Event()
    with running("knet") as (target, server):
        handle = server.handle

        def stopped(data: bytes, peer: Any, now: float) -> Any:
            if standing.is_set():
                room.wait(2)
            return handle(data, peer, now)

        server.handle = stopped  # type: ignore[method-assign]
        watch = Watch(KnetDriver, "knet-2.x", target, monitors.Monitors([]))
        sessions = Sessions(watch, FuzzReport((), ()))
        assert sessions.enter()
        held = sessions.held
        assert held is not None
        good = seeds_from_capture("knet", "knet-2.x", CAPTURES / "knet" / "udp_clean_session.pcap")
        step = next(Step(each.octets) for each in good.seeds if each.type.startswith("msg_"))
        began, most = time.monotonic(), 0
        for number in range(warm + 300):
            if number == warm:
                standing.set()
                threading.Timer(0.2, room.set).start()
                began, most = time.monotonic(), 0
            sessions.heed(len(step.octets))
            octets, key = held.stamp(step)
            held.send(octets, key, "control")
            if number < warm:
                sessions.pump(0.001)
            most = max(most, held.unanswered)
        held.drain(1)
        assert time.monotonic() - began >= 0.2
        assert (60 < most < 260) if warm else (20 < most < 100)
        assert held.accepted["control"] == warm + 300
        sessions.close()


def test_after_a_stall_no_case_waits_for_a_session_of_its_own() -> None:
    """None is opened for a while, and the held session has nothing to do meanwhile."""
    with running("knet") as (target, _server):
        watch = Watch(KnetDriver, "knet-2.x", target, monitors.Monitors([]))
        sessions = Sessions(watch, FuzzReport((), ()))
        assert sessions.enter()
        watch.handshake = 0.001
        ending = Case(2, "octets:flip", (Step(b"\x00"),), CONNECTED)
        # The same is true while messages are overdue.
        began = time.monotonic()
        assert sessions.place(ending, ends=True, patient=False) is None
        assert time.monotonic() - began < 0.5
        placed = sessions.place(ending, ends=True)
        assert placed is not None
        sessions.done(placed[0])
        sessions.wait()
        began = time.monotonic()
        assert sessions.place(Case(1, "octets:flip", (Step(b"\x00"),), "fresh")) is None
        assert time.monotonic() - began < 0.5
        sessions.close()


def test_a_probe_that_was_lost_costs_no_more_than_a_moment() -> None:
    with running("knet") as (target, server):
        watch = Watch(KnetDriver, "knet-2.x", target, monitors.Monitors([]))
        sessions = Sessions(watch, FuzzReport((), ()))
        assert sessions.enter()
        sessions.pump(0.1)
        handle, left = server.handle, [sessions.held.link.local] if sessions.held else []

        def losing(data: bytes, peer: Any, now: float) -> Any:
            if peer not in left:
                return handle(data, peer, now)
            left.remove(peer)
            return []

        server.handle = losing  # type: ignore[method-assign]
        sessions.heed(64 * 1024)
        sessions.pump(0.1)
        assert not left
        began = time.monotonic()
        sessions.heed(64 * 1024)
        assert sessions.is_late
        while sessions.is_late:
            sessions.heed(64 * 1024)
        assert time.monotonic() - began < 1.5
        sessions.close()


def test_many_answers_to_one_mutant_push_out_no_acknowledgement() -> None:
    """They come at once, before the fuzzer reads any of them."""
    with running("knet") as (target, server):
        session = KnetDriver.connect(target, timeout=5)
        seeds = seeds_from_capture(
            "knet", "knet-2.x", CAPTURES / "knet" / "udp_clean_session.pcap"
        ).seeds
        pings = Builder("knet-2.x").build(0, *[("PingRequest", b"\x00")] * 340)
        control = next(Step(each.octets) for each in seeds if each.type.startswith("msg_"))
        handled = server.delivered  # type: ignore[attr-defined]
        session.send(pings)
        for _ in range(4):
            session.send(*session.stamp(control), "control")
        while server.delivered < handled + 344:  # type: ignore[attr-defined]
            time.sleep(0.01)
        session.drain(5)
        assert session.accepted["control"] == 4
        session.close()


@pytest.mark.parametrize("silent", [False, True])
def test_what_comes_of_a_mutant_is_waited_for_but_not_long(silent: bool) -> None:
    """Else it would be put down to the next one."""
    with running("knet") as (target, server):
        handle = server.handle

        def slow(data: bytes, peer: Any, now: float) -> Any:
            time.sleep(0.003)
            return handle(data, peer, now)

        server.handle = slow  # type: ignore[method-assign]
        watch = Watch(KnetDriver, "knet-2.x", target, monitors.Monitors([]))
        watch.handshake = 0.01
        sessions = Sessions(watch, FuzzReport((), ()))
        assert sessions.enter()
        held = sessions.held
        assert held is not None
        assert held.alive(1)
        server.silent = silent
        # The server's answers take longer than the moment that is waited for at most.
        watch.answer, watch.swing = 0.2, 0.0
        held.send(*held.stamp(Step(bytes.fromhex("c0 00 00 00 00 05 30 00 14 61626364"))))
        began = time.monotonic()
        assert not sessions.hear()
        assert time.monotonic() - began < 0.1
        held.pump(0.25)
        assert (held.unanswered == 0) != silent
        assert sessions.hear()
        sessions.close()


@pytest.mark.parametrize("protocol", ["riptide", "teeworlds"])
def test_a_slow_server_gets_no_more_than_it_can_answer_soon(protocol: str) -> None:
    """Else it would answer later and later, lose what its system cannot hold, and look gone."""
    driver = driver_class(protocol)
    with running(protocol) as (target, server):
        handle, taken = server.handle, itertools.count()

        def slow(data: bytes, peer: Any, now: float) -> Any:
            time.sleep(0.01)
            next(taken)
            return handle(data, peer, now)

        watch = Watch(driver, driver.dialects[0], target, monitors.Monitors([]))
        sessions = Sessions(watch, FuzzReport((), ()))
        assert sessions.enter()
        held = sessions.held
        assert held is not None
        server.handle = slow  # type: ignore[method-assign]
        for _ in range(128):
            sessions.pump(0.001)
            sessions.heed()
            held.link.send(b"\x00")
        assert 128 - next(taken) < 40
        assert watch.reply_seconds > 0.05
        assert held.alive(watch.patience, certain=True)
        assert sessions.held is held
        sessions.close()


def test_a_session_whose_case_was_known_is_left_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where a target lets one session in, cases that would end it go out to it from a stranger."""
    opened: list[Driver] = []
    place, begin = Sessions.place, Watch.begin

    def begun(self: Watch, stage: str) -> Driver | None:
        session = begin(self, stage)
        return session if session is None else opened.append(session) or session

    def elsewhere(self: Sessions, case: Case, **risk: bool) -> tuple[Driver, str] | None:
        stranger = None if case.is_control else self._side("fresh")
        return place(self, case, **risk) if stranger is None else (stranger, "fresh")

    monkeypatch.setattr(Watch, "begin", begun)
    monkeypatch.setattr(Sessions, "place", elsewhere)
    monkeypatch.setattr(Engine, "_is_known", lambda _self, case: case.stage == "fresh")
    with running("riptide") as (target, _server):
        fuzz_target("riptide", target, tmp_path / "run", cases=30, rate=0)
    assert opened
    assert all(session.link.closed for session in opened)


RACE = """
import itertools, os, sys
from netdissect.fuzz.servers import make_server, open_listener, serve
server, turns = make_server("riptide"), itertools.count(int(sys.argv[2]))
handle = server.handle
def watched(data, peer, now):
    replies = handle(data, peer, now)
    if len(data) > 1300 and os.getpid() % 2 == 0:
        # What was asked before is still answered, and a moment later it is over.
        listener.sendto(replies[0][0] if replies else b"", peer)
        os._exit(77)
    return replies
server.handle = watched
with open_listener(server, int(sys.argv[1])) as listener:
    print("ready", flush=True)
    serve(server, listener)
"""
"""A server that dies of a large message in about every other process."""


@pytest.mark.slow
def test_a_race_is_replayed_several_times_and_the_share_is_told(tmp_path: Path) -> None:
    target = free_target()
    script = tmp_path / "server.py"
    script.write_text(RACE)
    monitors = [f"exec:{sys.executable} {script} {target.port} 0"]
    report = fuzz_target(
        "riptide", target, tmp_path / "run", captures=[CLEAN], seed=4, cases=6000, rate=0, failures=1,
        monitors=monitors,
    )  # fmt: skip
    if not report.findings:
        pytest.skip("the process ids were all odd")
    (finding,) = report.findings.values()
    assert finding.verdict.place == "exited with status 77"
    failure = load_failure(finding.folder)
    replayed = replay_tries(failure, target, 8, monitors=monitors)
    assert 0 < replayed.failures <= 8
    assert replayed.verdict is not None
    result, _folder = minimise_failure(
        failure, target, monitors=monitors, tries=4, trials=40, answer_seconds=0.5
    )
    assert 0 < result.failed <= result.tries == 4


def test_a_run_that_was_ended_goes_on_where_it_stopped(tmp_path: Path) -> None:
    """Also one that was killed while it wrote a case: nothing is sent again."""
    with running("eoudp") as (target, _server):
        run = {"captures": [CAPTURES / "eoudp" / "late_clean.pcap"], "rate": 0, "feedback": False}
        fuzz_target("eoudp", target, tmp_path / "run", cases=150, **run)  # type: ignore[arg-type]
        with (tmp_path / "run" / "cases.jsonl").open("a") as file:
            file.write('{"case": 9999, "mut')
        report = fuzz_target(
            "eoudp", target, tmp_path / "run", cases=400, resume=True, **run  # type: ignore[arg-type]
        )  # fmt: skip
        with pytest.raises(UsageError, match="has seed 1, not 2"):
            fuzz_target("eoudp", target, tmp_path / "run", seed=2, resume=True)
    lines = (tmp_path / "run" / "cases.jsonl").read_text().splitlines()
    rows = [json.loads(line) for line in lines]
    numbers = [row["case"] for row in rows]
    assert len(rows) == len(set(numbers)) == report.cases == 400
    assert min(numbers[150:]) > max(numbers[:150])
    assert report.datagrams == sum(len(row["steps"]) for row in rows)
    seen = {json.dumps([row["stage"], [{**step, "sent": "", "type": ""} for step in row["steps"]]])
            for row in rows}  # fmt: skip
    assert len(seen) == 400
    assert report.earlier == 150
    assert report.cases_per_second() == pytest.approx(250 / report.seconds)


def test_failures_of_before_count_in_a_run_that_is_resumed(tmp_path: Path) -> None:
    target = free_target()
    run = {
        "captures": [CLEAN], "seed": 4, "rate": 0, "answer_seconds": 0.5, "failures": 1,
        "monitors": [server_command("riptide", target, "length")],
        "mutators": ["octets:extend", "octets:repeat"],
    }  # fmt: skip
    first = fuzz_target("riptide", target, tmp_path / "run", cases=5000, **run)  # type: ignore[arg-type]
    again = fuzz_target(
        "riptide", target, tmp_path / "run", cases=6000, resume=True, **run  # type: ignore[arg-type]
    )  # fmt: skip
    assert list(again.findings) == list(first.findings)
    assert again.ended == "as many kinds of failure as asked for"
    assert (tmp_path / "run" / "target-2.log").exists()


def test_all_traffic_is_kept_with_its_cases(tmp_path: Path) -> None:
    with running("riptide") as (target, _server):
        report = fuzz_target("riptide", target, tmp_path / "run", cases=60, rate=0, traffic=True)
    octets = (tmp_path / "run" / "traffic.pcapng").read_bytes()
    rows = map(json.loads, (tmp_path / "run" / "cases.jsonl").read_text().splitlines())
    for row in rows:
        assert f"case {row['case']}: {row['mutation']}".encode() in octets
    with open_capture(tmp_path / "run" / "traffic.pcapng") as capture:
        assert sum(1 for _ in capture) > report.datagrams
