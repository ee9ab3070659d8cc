"""What the command line promises to programs: exit statuses, streams, the keys of `--json`."""

from __future__ import annotations

import json
import os
import pty
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from itertools import islice, takewhile
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

import console_docs
import hostile
from netdissect.capture import PcapWriter, open_capture
from netdissect.cli import ALIASES, cli, default_command
from netdissect.cli.request import Selection
from netdissect.craft.encode import encode_text
from netdissect.flow import Decapsulator
from netdissect.pipeline import parallel, table
from packetbuild import ipv4, link_frame, udp

ROOT = console_docs.ROOT
LOSSY = str(ROOT / "captures" / "riptide" / "udp_2.2.1_lossy_clientleg.pcap")
SERVER = LOSSY.replace("client", "server")


@pytest.fixture(autouse=True)
def _no_settings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.setenv("NO_COLOR", "1")


def invoke(*words: str, **extra: Any) -> Result:
    return CliRunner().invoke(cli, list(words), prog_name="netdissect", **extra)


def objects(*words: str) -> list[dict[str, Any]]:
    result = invoke(*words, "--json")
    assert result.exit_code == 0, result.output
    return [json.loads(line) for line in result.stdout.splitlines()]


# -- exit statuses ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "status", "said"),
    [
        (["info", LOSSY], 0, ""),
        (["--version"], 0, ""),
        ([], 2, "Usage"),
        (["read"], 2, "Missing capture FILE"),
        (["read", LOSSY, "extra"], 2, "extra"),
        (["show", LOSSY], 2, "FRAME"),
        (["show", LOSSY, "x"], 2, "x"),
        (["show", LOSSY, "999999"], 2, "999999"),
        (["connections", LOSSY, "99"], 2, "99"),
        (["timeline", LOSSY, "99"], 2, "there is no connection 99"),
        (["timeline", LOSSY, "99", "--json"], 2, "there is no connection 99"),
        (["ladder", LOSSY, "99"], 2, "there is no connection 99"),
        (["ladder", LOSSY, "--from", "9s", "--to", "9.0001s"], 2, "or lies in the span"),
        (["plot", "acks", LOSSY, "99"], 2, "there is no connection 99"),
        (["plot", "acks", LOSSY, "0"], 2, "write 1, or 1,3"),
        (["plot", "nosuch", LOSSY], 2, "snapshots"),
        (["plot", "snapshots", LOSSY], 2, "nothing to plot"),
        (["plot", "acks", LOSSY, "--space", "vital"], 2, "known: notify, reliable"),
        (["plot", "acks", LOSSY, "-o", "picture.png"], 2, ".svg"),
        (["plot", "acks", LOSSY, "--from", "9m"], 2, "nothing to plot"),
        (["report", "missing.pcap"], 3, "missing.pcap"),
        (["follow", LOSSY, "99"], 2, "there is no connection 99"),
        (["stats", LOSSY, "99"], 2, "there is no connection 99"),
        (["read", LOSSY, "-e", "frame.number"], 2, "-T csv"),
        (["show", LOSSY, "1074"], 2, "there is no frame 1074: the capture has 1073"),
        (["encode", "riptide", "Ack", "last_received=65536"], 2, "must be 0 to 65535"),
        (
            ["encode", "riptide", "Ack", "last_received=many"],
            2,
            "is neither a number nor the name of one",
        ),
        (["nosuchcommand"], 2, "nosuchcommand"),
        (["read", LOSSY, "--nosuch"], 2, "--nosuch"),
        (["decode", "nosuch", "00"], 2, "riptide"),
        (["decode", "riptide", "0"], 2, "hexadecimal"),
        (["decode", "riptide", "--dialect", "9", "00"], 2, "riptide-2.2"),
        (["explain", "ack-of-unsend"], 2, "ack-of-unsent"),
        (["read", LOSSY, "-d", "nonsense"], 2, "udp.port==PORT"),
        (["read", LOSSY, "-d", "udp.port==1,nosuch"], 2, "nosuch"),
        (["read", LOSSY, "--disable-protocol", "nosuch"], 2, "nosuch"),
        (["read", LOSSY, "--dialect", "nosuch"], 2, "nosuch"),
        (["read", LOSSY, "--schema", "missing.json"], 2, "missing.json"),
        (["read", LOSSY, "-T", "csv"], 2, "-e"),
        (["-z", "nosuch", LOSSY], 2, "nosuch"),
        (["ladder", LOSSY, "--from", "soon"], 2, "soon"),
        (["ladder", LOSSY, "99"], 2, "99"),
        (["ladder", LOSSY, "--from", "9m"], 2, "the capture ends after 12.5"),
        (["read", "missing.pcap"], 3, "missing.pcap"),
        (["missing.pcap"], 3, "missing.pcap"),
        (["info", str(ROOT / "README.md")], 3, "README.md"),
        (["info", str(ROOT / "docs")], 3, "docs"),
        (["read", LOSSY, "-Y", "nosuch.field == 1"], 4, "^"),
        (["connections", LOSSY, "-Y", "frame.number =="], 4, "^"),
        (["read", LOSSY, "-T", "csv", "-e", "nosuch"], 4, "nosuch"),
        (["anomalies", LOSSY, "--fail-on", "note"], 7, ""),
        (["anomalies", LOSSY, "--fail-on", "error"], 0, ""),
        (["anomalies", LOSSY, "--min", "error", "--fail-on", "note"], 7, ""),
    ],
)
def test_exit_statuses(words: list[str], status: int, said: str) -> None:
    result = invoke(*words)
    assert result.exit_code == status, result.output
    assert said in result.stderr
    assert "Traceback" not in result.output


def test_the_caret_stands_under_the_fault() -> None:
    lines = invoke("read", LOSSY, "-Y", "udp and frame.numbr == 4").stderr.splitlines()
    assert "did you mean 'frame.number'" in lines[0]
    assert lines[1].index("frame.numbr") == lines[2].index("^")
    assert lines[2].count("^") == len("frame.numbr")


def test_a_file_that_is_cut_short_is_shown_up_to_the_cut(tmp_path: Path) -> None:
    short = tmp_path / "short.pcap"
    short.write_bytes(Path(LOSSY).read_bytes()[:1000])
    result = invoke("read", str(short), "--json")
    assert result.exit_code == 6
    assert len(result.stdout.splitlines()) > 3
    assert re.search(r"offset \d+", result.stderr)
    assert invoke("info", str(short), "-q").stderr == ""
    truth = json.loads(invoke("info", str(short), "--json").stdout)
    assert truth["truncated_at"] is not None


def test_a_capture_without_connections_has_nothing_to_draw(tmp_path: Path) -> None:
    empty = tmp_path / "empty.pcap"
    empty.write_bytes(Path(LOSSY).read_bytes()[:24])
    for command in ("connections", "timeline", "ladder"):
        result = invoke(command, str(empty))
        assert (result.exit_code, result.output) == (0, "No connection of a known protocol.\n")


def test_an_unexpected_failure_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise RuntimeError("evil \x1b[2J text")

    monkeypatch.setattr("netdissect.lookup.protocol_infos", fail)
    result = invoke("protocols")
    assert result.exit_code == 1
    assert result.stderr.count("\n") == 1
    assert "--debug" in result.stderr
    assert hostile.is_safe(result.stderr)
    assert "Traceback" in invoke("protocols", "--debug").stderr


def test_an_interrupt_is_no_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    def stop(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("netdissect.lookup.protocol_infos", stop)
    result = invoke("protocols")
    assert result.exit_code == 130
    assert "Traceback" not in result.output


@pytest.mark.parametrize(
    "words",
    [
        ("timeline", LOSSY),
        ("timeline", LOSSY, "1", "--only", "resent"),
        ("timeline", LOSSY, "--probes", "-c", "5"),
        ("timeline", LOSSY, SERVER),
        ("timeline", LOSSY, "-Y", "msg.resend"),
        ("timeline", LOSSY, "--json", "-Y", "msg.resend"),
        ("stats", LOSSY, "-Y", "msg.resend"),
    ],
)
def test_units_that_are_too_many_to_keep_are_read_again(
    words: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    few = invoke(*words)
    for module in ("timeline", "request"):
        monkeypatch.setattr(f"netdissect.cli.{module}.MAX_KEPT_ITEMS", 10)
    many = invoke(*words)
    assert (many.stdout, many.stderr, many.exit_code) == (few.stdout, few.stderr, 0)
    assert invoke("timeline", LOSSY, "2").exit_code == 2


def test_many_selected_units_are_read_once_for_each_use(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: list[int] = []
    items = Selection.items

    def counting(selection: Selection) -> Iterator[object]:
        drawn.append(0)
        for item in items(selection):
            drawn[-1] += 1
            yield item

    monkeypatch.setattr(Selection, "items", counting)
    invoke("timeline", LOSSY, "-Y", "msg.resend")
    monkeypatch.setattr("netdissect.cli.timeline.MAX_KEPT_ITEMS", 10)
    invoke("timeline", LOSSY, "-Y", "msg.resend")
    once, lanes, lines = drawn
    assert once == lanes == lines


def test_every_connection_has_an_overview_where_the_table_is_full(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first of several readings, by two processes, follows others than the second one."""
    monkeypatch.setattr(parallel, "MIN_OCTETS", 1)
    monkeypatch.setattr(table, "MAX_CONNECTIONS", 60)
    with open_capture(ROOT / "captures" / "eoudp" / "late_clean.pcap") as capture:
        begin = list(islice(Decapsulator().packets(capture), 30))
    path = tmp_path / "flood.pcap"
    with PcapWriter(str(path), 1) as writer:
        for at, packet in enumerate(begin):
            for port in range(100):
                ports = (1024 + port, 7777)[:: 1 if packet[3] == begin[0][3] else -1]
                octets = link_frame("ethernet", ipv4(udp(packet[4], *ports)))[1]
                writer.write(at * 1_000_000_000 + port, octets)
    few = invoke("timeline", str(path))
    monkeypatch.setattr("netdissect.cli.timeline.MAX_KEPT_ITEMS", 10)
    many = invoke("timeline", str(path))
    assert (many.stdout, many.stderr, many.exit_code) == (few.stdout, few.stderr, 0)


@pytest.mark.parametrize("words", [(), ("-Y", "udp")])
def test_units_of_a_pipe_that_are_too_many_to_keep_are_counted(
    words: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    octets = Path(LOSSY).read_bytes()
    rows = len(invoke("timeline", "-", *words, "--json", input=octets).stdout.splitlines())
    for module in ("timeline", "request"):
        monkeypatch.setattr(f"netdissect.cli.{module}.MAX_KEPT_ITEMS", rows - 3)
    result = invoke("timeline", "-", *words, input=octets)
    assert "3 units and events are missing" in result.stderr


def test_units_beyond_what_a_filter_selects_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("netdissect.cli.request.MAX_SELECTED", 3)
    result = invoke("timeline", LOSSY, "-Y", "msg.resend", "--json", "--only", "units")
    assert len(result.stdout.splitlines()) == 3
    assert "(MAX_SELECTED)" in result.stderr


def test_every_copy_is_listed_however_many_there_are() -> None:
    path = str(ROOT / "captures" / "eoudp" / "late_resend_killed.pcap")
    result = invoke("timeline", path, "--json")
    rows = [json.loads(line) for line in result.stdout.splitlines()]
    listed = sum(len(row.get("copies", ())) for row in rows)
    counted = sum(
        space["copies"] for row in objects("connections", path) for space in row["spaces"]
    )
    assert any("continued" in row for row in rows)
    assert listed == counted
    assert result.stderr == ""


def test_an_interrupt_ends_a_capture_on_standard_input_well() -> None:
    command = [sys.executable, "-m", "netdissect", "read", "-r", "-"]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as running:
        assert running.stdin is not None
        assert running.stdout is not None
        running.stdin.write(Path(LOSSY).read_bytes()[:2000])
        running.stdin.flush()
        assert b"Connect" in running.stdout.readline()
        running.send_signal(signal.SIGINT)
        _, errors = running.communicate()
    assert running.returncode == 0
    assert errors.strip() == b""


def test_hostile_words_are_echoed_safely() -> None:
    for evil in ("\x1b]0;x\x07.pcap", "\u202e.pcap", "[bold].pcap"):
        result = invoke("read", evil)
        assert result.exit_code == 3
        assert hostile.is_safe(result.stderr)


# -- whole processes -------------------------------------------------------------------------------


def process(*words: str, **extra: Any) -> subprocess.CompletedProcess[bytes]:
    env = {
        key: value for key, value in os.environ.items() if key not in {"FORCE_COLOR", "NO_COLOR"}
    }
    return subprocess.run(
        [sys.executable, "-m", "netdissect", *words],
        capture_output=True,
        check=False,
        env=env,
        **extra,
    )


def test_a_closed_stdout_is_silence_and_success() -> None:
    command = (
        f"{sys.executable} -m netdissect read {LOSSY} --json | head -1; exit ${{PIPESTATUS[0]}}"
    )
    result = subprocess.run(["bash", "-c", command], capture_output=True, check=False)
    assert result.returncode == 0
    assert result.stderr == b""
    assert result.stdout.count(b"\n") == 1


@pytest.mark.parametrize("command", ["info", "anomalies", "doctor", "man"])
def test_an_output_closed_before_the_first_line_is_success(command: str) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    words = [command, LOSSY] if command in {"info", "anomalies"} else [command]
    try:
        result = subprocess.run(
            [sys.executable, "-m", "netdissect", *words],
            stdout=writer,
            stderr=subprocess.PIPE,
            check=False,
        )
    finally:
        os.close(writer)
    assert (result.returncode, result.stderr) == (0, b"")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_a_full_disk_is_an_error_in_one_line(unbuffered: str) -> None:
    with Path("/dev/full").open("wb") as full:
        result = subprocess.run(
            [sys.executable, "-m", "netdissect", "info", LOSSY],
            env={**os.environ, "PYTHONUNBUFFERED": unbuffered},
            stdout=full,
            stderr=subprocess.PIPE,
            check=False,
        )
    assert result.returncode == 3
    assert result.stderr.splitlines() == [b"netdissect: No space left on device"]


def test_a_pipe_gets_no_escape_and_whole_lines() -> None:
    result = process("read", LOSSY)
    assert b"\x1b" not in result.stdout
    assert "…".encode() not in result.stdout
    assert result.stdout.count(b"\n") == 1073
    assert b"\x1b" in process("read", LOSSY, "-c", "1", "--color", "always").stdout


def test_standard_input_is_read_like_a_file() -> None:
    data = Path(LOSSY).read_bytes()
    piped = process("connections", "-r", "-", "--json", input=data)
    assert piped.returncode == 0
    assert piped.stdout == process("connections", LOSSY, "--json").stdout


def test_output_does_not_depend_on_the_hash_seed() -> None:
    outputs = set()
    for seed in ("1", "2"):
        env = {**os.environ, "PYTHONHASHSEED": seed}
        command = [sys.executable, "-m", "netdissect", "connections", LOSSY, "--json"]
        outputs.add(subprocess.run(command, capture_output=True, check=True, env=env).stdout)
    assert len(outputs) == 1


def test_help_imports_neither_scapy_nor_rich() -> None:
    code = (
        "import sys\nfrom netdissect.cli import cli\n"
        "try:\n    cli.main(['--help'], prog_name='netdissect')\nexcept SystemExit:\n    pass\n"
        "heavy = {'scapy', 'rich', 'pyshark', 'asyncio', 'netdissect.pipeline', 'netdissect.dissect'}\n"
        "print(sorted(heavy & set(sys.modules)))"
    )
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, check=True, text=True
    )
    assert result.stdout.splitlines()[-1] == "[]"


def test_connections_import_no_scapy() -> None:
    code = (
        "import sys\nfrom netdissect.cli import cli\n"
        f"try:\n    cli.main(['connections', {LOSSY!r}, '--json'], prog_name='netdissect')\n"
        "except SystemExit:\n    pass\nprint('scapy' in sys.modules)"
    )
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, check=True, text=True
    )
    assert result.stdout.splitlines()[-1] == "False"


# -- words -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["x.pcap", "-V"], ["read", "x.pcap", "-V"]),
        (["-"], ["read", "-"]),
        (["-r", "x", "-c", "3"], ["read", "-r", "x", "-c", "3"]),
        (["--debug", "x.pcap"], ["--debug", "read", "x.pcap"]),
        (["info", "x.pcap"], ["info", "x.pcap"]),
        (["--help"], ["--help"]),
        (["nosuch"], ["nosuch"]),
        (["-r", "x.pcap", "-z", "conv,udp"], ["connections", "-r", "x.pcap"]),
        (["x.pcap", "-z", "io,stat,2"], ["stats", "x.pcap", "--interval", "2"]),
        (["x.pcap", "-z", "expert,warn"], ["anomalies", "x.pcap"]),
        (["-i", "lo", "-w", "x.pcap"], ["sniff", "-i", "lo", "-w", "x.pcap"]),
        (["-c", "3", "-ilo"], ["sniff", "-c", "3", "-ilo"]),
        (["-D"], ["sniff", "-D"]),
        (["x.pcap", "connections", "1"], ["connections", "x.pcap", "1"]),
        (["-r", "x", "-w", "y"], ["slice", "-r", "x", "-w", "y"]),
        ([], []),
    ],
)
def test_without_a_command_a_file_is_read_and_letters_of_tshark_name_another(
    words: list[str], expected: list[str]
) -> None:
    assert default_command(words) == expected


def test_the_aliases_run() -> None:
    for alias in ALIASES:
        assert invoke(LOSSY, "-z", alias).exit_code == 0


# -- shapes ----------------------------------------------------------------------------------------


def test_identities_of_the_contract_hold() -> None:
    report = objects("connections", LOSSY)[0]
    assert report["spaces"]
    for space in report["spaces"]:
        repeats = space["retransmissions"] + space["duplicates"] + space.get("undecided", 0)
        assert space["copies"] == space["units"] + repeats
        assert space["units"] == space["acked"] + space["unacked"] + space["unknown"]


def test_read_has_one_object_per_message_in_the_order_of_frames() -> None:
    rows = objects("read", LOSSY)
    assert [row["frame"] for row in rows] == list(range(1, 1074))
    resent = [
        row for row in rows if row["reliability"] and row["reliability"]["kind"] == "retransmission"
    ]
    report = objects("connections", LOSSY)[0]
    assert len(resent) == sum(space["retransmissions"] for space in report["spaces"])
    by_frame = {row["frame"]: row for row in rows}
    for row in resent:
        first = by_frame[row["reliability"]["of_frame"]]["reliability"]
        assert (first["seq"], first["kind"]) == (row["reliability"]["seq"], "original")


def test_the_timeline_is_sorted_and_agrees_with_the_report() -> None:
    rows = objects("timeline", LOSSY)
    moments = [
        (row["copies"][0]["time_ns"], row["copies"][0]["frame"])
        if "copies" in row
        else (row["time_ns"], row["frame"] or 0)
        for row in rows
    ]
    assert moments == sorted(moments)
    units = [row for row in rows if "copies" in row]
    report = objects("connections", LOSSY)[0]
    for space in report["spaces"]:
        mine = [
            u for u in units if (u["space"], u["direction"]) == (space["space"], space["direction"])
        ]
        assert len(mine) == space["units"]
        assert sum(unit["outcome"] == "acked" for unit in mine) == space["acked"]
        assert sum(len(unit["copies"]) for unit in mine) == space["copies"]


def test_a_filter_selects_what_a_predicate_selects() -> None:
    rows = objects("read", LOSSY)
    cases = {
        "msg.resend": lambda row: (
            row["reliability"] and row["reliability"]["kind"] == "retransmission"
        ),
        "msg.rtt > 60": lambda row: row["reliability"] and (row["reliability"]["rtt_ms"] or 0) > 60,
        "riptide.sequence_id in {3..5, 9}": lambda row: (
            row["fields"].get("sequence_id") in {3, 4, 5, 9}
        ),
        "riptide.message_id != 1001": lambda row: row["fields"].get("message_id", 1001) != 1001,
        "direction == s2c and msg.type == Ack": lambda row: (
            row["direction"] == "s2c" and row["type"] == "Ack"
        ),
        'msg.type matches "^(un)?reliable$"': lambda row: row["type"] in {"Reliable", "Unreliable"},
        "not riptide.sequence_id": lambda row: "sequence_id" not in row["fields"],
        "udp.srcport == 21109 || frame.number < 10": lambda row: (
            row["src"].endswith(":21109") or row["frame"] < 10
        ),
    }
    for text, predicate in cases.items():
        found = [row["frame"] for row in objects("read", LOSSY, "-Y", text)]
        assert found == [row["frame"] for row in rows if predicate(row)], text
        assert found


def test_filters_on_other_commands_select_and_do_not_change_verdicts() -> None:
    whole = objects("connections", LOSSY)
    assert objects("connections", LOSSY, "-Y", "frame.number == 5") == whole
    assert objects("connections", LOSSY, "-Y", "frame.number > 5000") == []
    assert objects("connections", LOSSY, "-Y", "conn.state == closed") == whole
    units = objects("timeline", LOSSY, "-Y", "msg.seq == 12 and msg.space == reliable")
    assert {(unit["seq"], unit["space"]) for unit in units if "copies" in unit} == {
        (12, "reliable")
    }
    found = objects("anomalies", LOSSY, "-Y", "frame.number < 100")
    assert found
    assert all(item["frame"] < 100 for item in found)
    spans = objects("stats", LOSSY, "-Y", "msg.type == Ack", "--interval", "100")
    assert sum(span["datagrams"] for span in spans) == sum(
        row["type"] == "Ack" for row in objects("read", LOSSY)
    )


@pytest.mark.parametrize(
    "name",
    ["eoudp/late_malformed", "teeworlds/ddnet_antispoof_broken", "knet/udp_malformed_to_server.server",
     "netplay/bin1_malformed"],
)  # fmt: skip
def test_anomalies_of_contents_are_what_read_shows(name: str) -> None:
    path = str(ROOT / "captures" / f"{name}.pcap")
    shown = {note["code"] for row in objects("read", path) for note in row["annotations"]}
    found = {row["code"] for row in objects("anomalies", path, "--content")}
    assert shown
    assert found == shown | {row["code"] for row in objects("anomalies", path)}
    for code in shown:
        rows = objects("anomalies", path, "-Y", f'anomaly == "{code}"')
        assert code in {row["code"] for row in rows}


def test_the_summary_of_anomalies_counts_what_connections_count() -> None:
    (report,) = objects("connections", LOSSY)
    assert sum(report["codes"].values()) == sum(report["anomalies"].values())
    whole = {row[1]: row[3] for row in _summary("anomalies", LOSSY)}
    assert whole == {code: str(times) for code, times in report["codes"].items()}
    assert whole["out-of-order"] == "2"
    assert {row[1]: row[3] for row in _summary("anomalies", LOSSY, "-c", "1")} == whole
    # Of matching frames only the first of the two is reported.
    filtered = {row[1]: row[3] for row in _summary("anomalies", LOSSY, "-Y", "frame.number > 0")}
    assert filtered["out-of-order"] == "1+"


def _summary(*words: str) -> list[list[str]]:
    table = invoke(*words).stdout.split("\n\n")[0]
    return [line.split() for line in table.splitlines()[2:]]


def test_what_is_left_out_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    from netdissect.pipeline import anomalies, stages

    every = objects("anomalies", LOSSY)
    monkeypatch.setattr(anomalies, "MAX_ANOMALIES", 2)
    monkeypatch.setattr(stages, "MAX_REPORTS", 0)
    for words in ([], ["-Y", "frame.number > 0"]):
        found = invoke("anomalies", LOSSY, "--json", *words)
        missing = len(every) - 2 if not words else r"[1-9]\d*"
        assert len(found.stdout.splitlines()) <= 2
        assert re.search(
            rf"^netdissect: {missing} of the least severe .*MAX_ANOMALIES",
            found.stderr,
            re.MULTILINE,
        )
        assert "MAX_ANOMALIES" not in invoke("anomalies", LOSSY, "-q", *words).stderr
    found = invoke("connections", LOSSY, "--json")
    assert found.stdout == ""
    assert "netdissect: 1 more connections than can be shown (MAX_REPORTS)\n" in found.stderr


def test_filters_select_what_show_info_and_verify_are_about() -> None:
    wanted = objects("read", LOSSY, "-Y", "msg.resend and direction == s2c")
    frames = [row["frame"] for row in wanted]
    shown = objects("show", LOSSY, "-Y", "msg.resend and direction == s2c")
    assert [row["frame"] for row in shown] == frames
    assert (
        objects("show", LOSSY, "-Y", "msg.resend", "-c", "3")
        == objects("show", LOSSY, "-Y", "msg.resend")[:3]
    )
    assert objects("show", LOSSY, str(frames[0]), "-Y", "msg.resend") == shown[:1]
    text = invoke("show", LOSSY, "-Y", "msg.resend", "-c", "2", "--field", "client_id").stdout
    assert text.count("Frame ") == 2
    none = invoke("show", LOSSY, "41", "-Y", "not msg.resend")
    assert (none.exit_code, "frame 41 holds no" in none.output) == (2, True)
    assert invoke("show", LOSSY).exit_code == 2
    assert objects("show", LOSSY, "-Y", "frame.number > 9999") == []
    (whole,), (some,) = objects("info", LOSSY), objects("info", LOSSY, "-Y", "msg.resend")
    assert some.pop("protocols")["riptide"] == {
        "datagrams": len({row["frame"] for row in objects("read", LOSSY, "-Y", "msg.resend")}),
        "connections": 1,
    }
    whole.pop("protocols")
    assert (some.pop("flow"), whole.pop("flow")["frames"]) == (None, whole["frames"])
    assert some == whole
    (all_of_it,) = objects("info", LOSSY, "-Y", "frame.number > 0")
    assert all_of_it["protocols"] == objects("info", LOSSY)[0]["protocols"]


def test_info_counts_datagrams_of_no_known_protocol_that_match() -> None:
    path = str(ROOT / "captures" / "eoudp" / "decoys.pcap")
    (whole,) = objects("info", path)
    assert whole["other_datagrams"]
    # A filter chooses datagrams; what lies below them is counted of the whole file only.
    assert objects("info", path, "-Y", "frame.number > 0") == [{**whole, "flow": None}]
    (none,) = objects("info", path, "-Y", "frame.number > 100000")
    assert (none["other_datagrams"], none["protocols"]) == (0, {})


def test_a_segment_of_no_known_protocol_is_one_of_tcp() -> None:
    path = str(ROOT / "captures" / "netplay" / "mixed_dialects_and_noise.pcap")
    rows = objects("read", path, "--all", "-Y", "not protocol")
    assert rows
    assert {row["transport"] for row in rows} == {"tcp"}


@pytest.mark.skipif(shutil.which("tshark") is None, reason="takes tshark")
def test_a_filter_says_what_verify_compares() -> None:
    result = invoke("verify", LOSSY, "-Y", "msg.resend")
    assert result.exit_code == 0, result.output
    frames = {row["frame"] for row in objects("read", LOSSY, "-Y", "msg.resend")}
    assert f"{len(frames)} " in result.stdout


@pytest.mark.skipif(shutil.which("tshark") is None, reason="takes tshark")
def test_verify_compares_what_stands_before_a_cut(tmp_path: Path) -> None:
    cut = tmp_path / "cut.pcap"
    cut.write_bytes(Path(LOSSY).read_bytes()[:5000])
    result = process("verify", str(cut))
    assert result.stdout.startswith(b"62 datagrams")
    assert (result.returncode, result.stderr.count(b"\n")) == (6, 1)
    assert b"cut short at offset 4929" in result.stderr
    assert process("verify", str(tmp_path / "missing.pcap")).returncode == 3


def test_follow_shows_every_reliable_unit_once_in_order() -> None:
    rows = objects("follow", LOSSY, "1")
    for way in ("c2s", "s2c"):
        numbers = [row["reliability"]["seq"] for row in rows if row["direction"] == way]
        assert numbers == sorted(set(numbers))
    report = objects("connections", LOSSY)[0]
    reliable = [space for space in report["spaces"] if space["space"] == "reliable"]
    assert len(rows) == sum(space["units"] for space in reliable)


def test_follow_shows_the_bytes_of_a_reassembled_message() -> None:
    fragments = str(ROOT / "captures" / "knet" / "udp_fragments_clean.pcap")
    lines = invoke("follow", fragments, "1", "--as", "hex", "--width", "100").stdout.splitlines()
    start = lines.index("reassembled, 1,369 bytes") + 1
    rows = list(takewhile(lambda line: line[0] != " ", lines[start:]))
    whole = objects("follow", fragments, "1")[5]["fields"]["reassembled"]["payload"]
    assert "".join(row[6:53].replace(" ", "") for row in rows) == whole


def test_follow_shows_every_message_whole_however_narrow_the_screen() -> None:
    chat = str(ROOT / "captures" / "netplay" / "bin1_lossy__client_side.pcap")
    whole, narrow = (
        invoke("follow", chat, "-c", "20", *words).stdout for words in ((), ("--width", "60"))
    )
    assert "…" not in narrow
    assert max(map(len, narrow.splitlines())) <= 60
    assert narrow.split() == whole.split()


@pytest.mark.parametrize(
    "name",
    [
        "riptide/udp_2.2.1_lossy_clientleg.pcap",
        "knet/udp_packetid_wrap.client.pcap",
        "eoudp/late_resend_lossy_client.pcap",
        "teeworlds/tw07_loss_client_side.pcap",
    ],
)
def test_stats_add_up(name: str) -> None:
    path = str(ROOT / "captures" / name)
    report = objects("connections", path)[0]
    spans = objects("stats", path, "1", "--interval", "500ms")
    for way in ("c2s", "s2c"):
        mine = [span for span in spans if span["direction"] == way]
        spaces = [space for space in report["spaces"] if space["direction"] == way]
        assert sum(span["datagrams"] for span in mine) == report["datagrams"][way]
        assert sum(span["octets"] for span in mine) == report["octets"][way]
        assert sum(span["copies"] for span in mine) == sum(space["copies"] for space in spaces)
        assert sum(span["units"] for span in mine) == sum(space["units"] for space in spaces)
        assert sum(span["retransmissions"] for span in mine) == sum(
            s["retransmissions"] for s in spaces
        )


@pytest.mark.parametrize(
    "name", ["netplay/bin1_lossy__client_side.pcap", "knet/tcp_loss_retransmit.pcap"]
)
def test_views_agree_on_the_octets_of_a_stream(name: str) -> None:
    path = str(ROOT / "captures" / name)
    octets = objects("connections", path)[0]["octets"]
    assert sum(octets.values()) == sum(
        space["stream_octets"]
        for space in objects("connections", path)[0]["spaces"]
        if space["space"] == "tcp"
    )
    heads = [invoke(view, path, "--width", "80").stdout for view in ("connections", "timeline")]
    sent = [[line for line in head.splitlines() if " segments, " in line] for head in heads]
    assert sent[0] == sent[1]
    assert len(sent[0]) == 2


@pytest.mark.parametrize(
    ("leg", "way"),
    [("clientleg", "s2c"), ("serverleg", "c2s")],
)
def test_stats_count_as_lost_what_its_receiver_never_saw(leg: str, way: str) -> None:
    """Next to the receiver; next to the sender what the receiver has said."""
    path = LOSSY.replace("clientleg", leg)
    spaces = objects("connections", path)[0]["spaces"]
    (never,) = {sum(s["never_seen"] for s in spaces if s["direction"] == way)}
    told = sum(s.get("lost") or 0 for s in spaces if s["direction"] != way)
    rows = objects("stats", path, "--interval", "100s")
    assert [row["lost"] for row in sorted(rows, key=lambda row: row["direction"] != way)] == [
        never, told,
    ]  # fmt: skip
    for row in rows:
        assert 0.04 < row["loss_share"] < 0.1
        assert (row["rtt_ms"] is None) is (row["direction"] == way)
        again = [s for s in spaces if s["direction"] == row["direction"] and s["retransmissions"]]
        copies = sum(space["copies"] for space in again)
        assert 0 < copies == row["reliable_copies"] < row["copies"]
        assert row["retransmission_share"] == round(row["retransmissions"] / copies, 6)


def test_stats_of_commands_count_every_number() -> None:
    """EOUDP: few numbers are units, and those that never came are of all of them."""
    path = str(ROOT / "captures" / "eoudp" / "late_lossy_server.pcap")
    space = objects("connections", path)[0]["spaces"][0]
    row = objects("stats", path, "--interval", "100s")[0]
    assert row["lost"] == space["never_seen"] == 6
    assert row["loss_share"] == round(6 / 138, 6)


def test_ladder_writes_the_same_rows_as_text_svg_and_mermaid(tmp_path: Path) -> None:
    picture = tmp_path / "ladder.svg"
    words = ["ladder", LOSSY, "1", "--from", "1.4s", "--to", "1.6s"]
    text = invoke(*words, "--width", "100").stdout
    mermaid = invoke(*words, "--mermaid").stdout
    assert invoke(*words, "--svg", str(picture)).exit_code == 0
    arrows = text.count("▶") + text.count("◀")
    rows = objects(*words)
    assert sum(row["direction"] is not None for row in rows) == arrows + text.count("╳")
    assert sum(row["mark"] == "resend" for row in rows) == text.count("»»")
    assert [row["time_ns"] for row in rows] == sorted(row["time_ns"] for row in rows)
    assert arrows > 5
    assert "participant C as client 127.0.0.1:51399\n" in mermaid
    assert mermaid.count(">>") + mermaid.count("-x") == arrows + text.count("╳")
    heads = re.findall('class="msg [^"]*" d="[^"]*m-?8 ', picture.read_text())
    assert len(heads) == arrows
    assert invoke(*words).stdout == invoke(*words, "--width", "100").stdout


def test_a_ladder_draws_the_end_of_a_connection() -> None:
    """It is a FIN, and no message."""
    words = ["ladder", str(ROOT / "captures" / "netplay" / "bin1_server_stop.pcap"), "1"]
    assert "half closed by server" in invoke(*words).stdout
    assert "half closed by server" not in invoke(*words, "--count", "1").stdout


def test_a_ladder_draws_half_an_arrow_where_the_receiver_has_said_that_nothing_came() -> None:
    """The capture is next to the client: of its own datagrams it tells which were lost; those of
    the server that are in it have come.
    """
    notify = next(
        space
        for space in objects("connections", LOSSY)[0]["spaces"]
        if (space["space"], space["direction"]) == ("notify", "c2s")
    )
    assert notify["lost"] == 17
    text = invoke("ladder", LOSSY, "--width", "100").stdout
    assert text.count("─╳ ") == text.count("╳") == notify["lost"]
    told = [unit["copies"][0]["frame"] for unit in objects("timeline", LOSSY)
            if unit.get("reported") == "lost" and unit["direction"] == "c2s"]  # fmt: skip
    early = invoke("ladder", LOSSY, "-c", "60", "--width", "100").stdout
    assert early.count("╳") == sum(frame <= 60 for frame in told) > 0


def test_count_stops_the_output() -> None:
    assert len(objects("read", LOSSY, "-c", "7")) == 7
    assert len(objects("timeline", LOSSY, "-c", "7")) == 7
    assert len(invoke("read", LOSSY, "-c", "7", "--width", "200").stdout.splitlines()) == 7


def test_columns_come_back_through_csv() -> None:
    import csv
    import io

    result = invoke(
        "read",
        LOSSY,
        "-T",
        "csv",
        "-e",
        "frame.number",
        "-e",
        "msg.type",
        "-e",
        "riptide.sequence_id",
    )
    rows = list(csv.reader(io.StringIO(result.stdout)))
    assert rows[0] == ["frame.number", "msg.type", "riptide.sequence_id"]
    expected = objects("read", LOSSY)
    assert [row[:2] for row in rows[1:]] == [
        [str(item["frame"]), item["type"]] for item in expected
    ]


def test_fields_are_a_table_without_column_names_as_in_tshark() -> None:
    columns = ("-e", "frame.number", "-e", "ip.src")
    table = invoke("read", LOSSY, "-T", "tsv", *columns).stdout
    bare = invoke("-n", "-r", LOSSY, "-T", "fields", *columns).stdout
    assert table == "frame.number\tip.src\n" + bare
    assert bare.startswith("1\t127.0.0.1\n")


def test_json_as_a_table_is_the_option() -> None:
    words = ("read", LOSSY, "-c", "9")
    assert invoke(*words, "-T", "json").stdout == invoke(*words, "--json").stdout
    assert invoke(*words, "-T", "json", "-V").exit_code == 0


@pytest.mark.parametrize("command", ["read", "connections", "diagnose", "anomalies", "stats"])
def test_a_link_type_that_is_not_supported_is_named(command: str, tmp_path: Path) -> None:
    path = tmp_path / "monitor.pcap"
    head = bytearray(Path(LOSSY).read_bytes())
    head[20:24] = (127).to_bytes(4, "little")
    path.write_bytes(head)
    said = invoke(command, str(path)).stderr
    assert "link type IEEE802_11_RADIO is not supported; its frames were skipped" in said


@pytest.mark.parametrize(
    "digits", ["1100100000", "11:00:10:00:00", "0x1100100000", "11 00 1000 00"]
)
def test_decode_takes_octets_as_other_programs_write_them(digits: str) -> None:
    (row,) = objects("decode", "riptide", digits)
    assert row["fields"]["last_received"] == 1


def test_a_fault_of_a_schema_names_its_file_once(tmp_path: Path) -> None:
    schema = tmp_path / "moves.json"
    for text, said in (
        (
            '{"format": "netdissect-schema/1", "protocol": "riptide", "messages": {"1": {"name": "A", "fields": [["x", "in t"]]}}}',
            "'in t' is not a type",
        ),
        ('{"format": "netdissect-schema/1", "messages": {}}', "protocol"),
        ("{", "line 1"),
        (None, "No such file"),
    ):
        schema.unlink(missing_ok=True)
        if text is not None:
            schema.write_text(text)
        result = invoke("read", LOSSY, "--schema", str(schema))
        assert result.exit_code == 2
        assert result.stderr.startswith(f"netdissect: {schema}: ")
        assert result.stderr.count("moves.json") == 1
        assert said in result.stderr


def test_decode_takes_a_payload_per_line_of_standard_input() -> None:
    result = invoke(
        "decode", "riptide", "--dialect", "2.2", "-", "--json", input="11 00 10 00 00\n\n04f0ff0f\n"
    )
    shown = [json.loads(line) for line in result.stdout.splitlines()]
    assert [item["fields"]["type"] for item in shown] == ["Ack", "Heartbeat"]


def test_a_malformed_payload_is_no_failure() -> None:
    result = invoke("decode", "riptide", "--dialect", "2.2", "17", "--json")
    assert result.exit_code == 0
    assert json.loads(result.stdout)["annotations"][0]["severity"] in {"warn", "error"}


def test_a_protocol_can_be_left_out_and_unknown_datagrams_shown() -> None:
    assert objects("read", LOSSY, "--disable-protocol", "riptide") == []
    rows = objects("read", LOSSY, "--disable-protocol", "riptide", "--all")
    assert len(rows) == 1073
    assert {row["protocol"] for row in rows} == {None}


def test_a_dialect_can_be_forced() -> None:
    report = objects("connections", LOSSY, "--dialect", "riptide-2.1")[0]
    assert report["dialect"]["c2s"].startswith("riptide-2.1")
    forced = objects("connections", LOSSY, "-d", "udp.port==21109,riptide-2.2")[0]
    assert forced["dialect"]["s2c"] == "riptide-2.2"


def test_a_deleted_folder_is_no_failure(tmp_path: Path) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    command = f"cd {gone} && rmdir {gone} && {sys.executable} -m netdissect info {LOSSY}"
    done = subprocess.run(["sh", "-c", command], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""


def test_a_table_on_a_terminal_is_escaped_and_one_in_a_pipe_is_not(tmp_path: Path) -> None:
    octets = encode_text(
        "teeworlds", "teeworlds-0.7", "udp", "sys.info", {"version": "text:\x1b[31m\u202ex"}
    )
    path = tmp_path / "evil.pcap"
    with PcapWriter(str(path), 1) as writer:
        writer.write(0, link_frame("ethernet", ipv4(udp(octets, 50000, 8303)))[1])
    words = ["read", str(path), "-d", "udp.port==8303,teeworlds", "--no-pager", "-e", "teeworlds.version"]
    for kind in ("csv", "tsv", "fields"):
        command = [sys.executable, "-m", "netdissect", *words, "-T", kind]
        ours, theirs = pty.openpty()
        subprocess.run(command, stdout=theirs, stdin=subprocess.DEVNULL, check=True)
        os.close(theirs)
        shown = b""
        # A terminal gives its lines one after another, and an error behind the last one.
        with suppress(OSError):
            while part := os.read(ours, 4096):
                shown += part
        assert b"\\x1b[31m\\u202ex" in shown
        assert b"\x1b" not in shown
        os.close(ours)
        piped = subprocess.run(command, capture_output=True, check=True).stdout
        assert "\x1b[31m\u202ex" in piped.decode()


def test_formulas_in_a_table_are_defused_on_request(tmp_path: Path) -> None:
    fields = {"name_": "text:=1+1", "map": "text:@x"}
    octets = encode_text("teeworlds", "teeworlds-0.6", "udp", "connless.info", fields)
    path = str(tmp_path / "formula.pcap")
    with PcapWriter(path, 1) as writer:
        writer.write(0, link_frame("ethernet", ipv4(udp(octets, 8303, 50000)))[1])
    words = ["read", path, "-d", "udp.port==8303,teeworlds", "-T", "csv", "-e", "teeworlds.name", "-e", "teeworlds.map"]
    assert invoke(*words).stdout.splitlines()[1] == "=1+1,@x"
    assert invoke(*words, "--csv-safe").stdout.splitlines()[1] == "'=1+1,'@x"
