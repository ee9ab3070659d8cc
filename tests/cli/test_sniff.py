"""Live capture on the loopback, and the live path without any interface."""

from __future__ import annotations

import io
import json
import os
import shutil
import signal
import subprocess
import sys
from itertools import chain, pairwise
from pathlib import Path

import pytest
from click.testing import CliRunner

import console_docs
from livetraffic import BACKENDS, LIMIT_SECONDS, Pair, Sniff, needs_capture, payloads
from netdissect.capture import open_capture
from netdissect.cli import cli

ROOT = console_docs.ROOT
LOSSY = ROOT / "captures" / "riptide" / "udp_2.2.1_lossy_clientleg.pcap"
SOME = [(number % 2, b"datagram %d" % number) for number in range(64)]
STARTED = b"capturing on lo"


def frames(path: Path) -> int:
    with open_capture(path) as reader:
        count = sum(map(len, reader.batches()))
        assert reader.damage is None, reader.damage
    return count


def objects(text: bytes | str) -> list[dict]:
    return [json.loads(line) for line in text.splitlines()]


# -- with an interface -----------------------------------------------------------------------------


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_thousand_datagrams_are_a_thousand_records(backend: str, tmp_path: Path) -> None:
    sent = [(number % 2, b"%d" % number) for number in range(1000)]
    path = tmp_path / "out.pcapng"
    with Pair() as pair, Sniff(
        "--backend", backend, "-f", pair.filter, "--all", "--json", "-w", str(path)
    ) as sniff:  # fmt: skip
        sniff.until(STARTED)
        pair.send(sent)
        first = sniff.line()  # the rest has been captured too once the user ends it
        status, out, said = sniff.ended(signal.SIGINT)
    assert status == 0
    assert f"with {backend}" in said
    assert "1,000 packets, 0 dropped by kernel, 0 by netdissect" in said
    assert [row["frame"] for row in objects(first + out)] == list(range(1, 1001))
    assert frames(path) == 1000


@needs_capture
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_signals_end_a_capture_properly(number: signal.Signals, tmp_path: Path) -> None:
    path = tmp_path / "out.pcap"
    with Pair() as pair, Sniff("-f", pair.filter, "-w", str(path), "--all") as sniff:
        sniff.until(STARTED)
        pair.send(SOME)
        sniff.line()
        status, _, said = sniff.ended(number)
    assert status == 0
    assert "64 packets, 0 dropped" in said
    assert frames(path) == 64


@needs_capture
def test_count_ends_a_capture_and_quiet_says_nothing(tmp_path: Path) -> None:
    path = tmp_path / "out.pcapng"
    with Pair() as pair, Sniff("-f", pair.filter, "-c", "20", "-a", "packets:30", "--all") as sniff:
        sniff.until(STARTED)
        pair.send(SOME)
        status, out, _ = sniff.ended()
    assert (status, len(out.splitlines())) == (0, 20)
    with Sniff("-q", "-w", str(path), "-a", "duration:0.1") as sniff:
        assert sniff.ended() == (0, b"", "")
    frames(path)  # whole, however few came


@needs_capture
def test_the_snapshot_length_cuts_what_is_captured() -> None:
    with Pair() as pair, Sniff("-f", pair.filter, "-s", "60", "-c", "1", "-w", "-") as sniff:
        sniff.until(STARTED)
        pair.send([(0, bytes(500))])
        out, _ = sniff.process.communicate(timeout=LIMIT_SECONDS)
    with open_capture(io.BytesIO(out)) as reader:
        ((_, _, _, octets, wire),) = reader
    assert (len(octets), wire) == (60, 542)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives up rights")
@pytest.mark.parametrize("backend", BACKENDS[:3])
def test_root_becomes_the_calling_user_before_it_parses(backend: str) -> None:
    caller = {"SUDO_UID": "65534", "SUDO_GID": "65533"}
    with Pair() as pair, Sniff(
        "--backend", backend, "-f", pair.filter, "--all", env=caller
    ) as sniff:  # fmt: skip
        sniff.until(STARTED)
        pair.send(SOME)
        assert b"127.0.0.1" in sniff.line()
        lines = Path(f"/proc/{sniff.process.pid}/status").read_text().splitlines()
        status, _, said = sniff.ended(signal.SIGINT)
    facts = {name: text.split() for name, _, text in (line.partition(":") for line in lines)}
    assert facts["Uid"] == ["65534"] * 4
    assert facts["Gid"] == ["65533"] * 4
    assert facts["Groups"] in ([], ["65533"])
    for kind in ("CapPrm", "CapEff", "CapAmb", "CapInh"):
        assert int(facts[kind][0], 16) == 0, kind
    assert facts["NoNewPrivs"] == ["1"]
    assert status == 0
    assert "running as user 65534" in said


@pytest.mark.skipif(
    os.geteuid() != 0 or shutil.which("setpriv") is None, reason="takes root and setpriv"
)
@pytest.mark.parametrize("backend", [None, *BACKENDS])
def test_without_the_right_the_message_names_the_line_that_grants_it(backend: str | None) -> None:
    words = () if backend is None else ("--backend", backend)
    without = ("setpriv", "--bounding-set=-net_raw,-net_admin")
    with Sniff(*words, before=without) as sniff:
        status, out, said = sniff.ended()
    assert (status, out) == (5, b"")
    assert "no right to capture on lo" in said
    assert "sudo setcap cap_net_raw,cap_net_admin=ep /" in said
    assert "Traceback" not in said


@needs_capture
@pytest.mark.parametrize("backend", BACKENDS)
def test_a_bad_capture_filter_is_named(backend: str) -> None:
    with Sniff("--backend", backend, "-f", "udp prt 5") as sniff:
        status, _, said = sniff.ended()
    assert status == 4
    assert "    udp prt 5\n    ^^^^^^^^^\n" in said


# -- without one -----------------------------------------------------------------------------------


def invoke(*words: str, given: bytes | None = None):
    return CliRunner().invoke(cli, list(words), prog_name="netdissect", input=given)


def test_no_such_interface_lists_those_that_there_are() -> None:
    result = invoke("sniff", "-i", "nosuch0")
    assert result.exit_code == 5
    assert "'nosuch0'; there are: " in result.output
    assert "lo" in result.output


def test_interfaces_are_listed() -> None:
    assert "lo" in invoke("sniff", "-D").stdout
    rows = objects(invoke("sniff", "-D", "--json").stdout)
    assert {"lo", "any"} <= {row["interface"] for row in rows}


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "-i INTERFACE"),
        (["-i", "lo", "-r", "x"], "-i INTERFACE"),
        (["-i", "lo", "-a", "soon"], "duration:N"),
        (["-i", "lo", "-a", "duration:0"], "more than 0"),
        (["-i", "lo", "-b", "files:3", "-w", "x"], "filesize"),
        (["-i", "lo", "-b", "filesize:1"], "-w FILE"),
        (["-i", "lo", "-a", "files:1", "-w", "x"], "needs -b"),
        (["-i", "lo", "-d", "nonsense"], "udp.port==PORT"),
        (["-r", str(LOSSY), "-f", "udp"], "-Y"),
        (["-r", "-", "--backend", "tshark"], "standard input"),
    ],
)
def test_wrong_words_are_refused_before_anything_is_captured(words: list[str], said: str) -> None:
    result = invoke("sniff", *words)
    assert result.exit_code == 2, result.output
    assert said in result.output


REPLAYED = [
    "riptide/udp_2.2.1_lossy_clientleg.pcap",
    "riptide/udp_2.2.1_blackout_timeout_serverleg.pcap",
    "riptide/tcp_2.2.1_split.pcap",
    "teeworlds/tw07_loss_client_side.pcap",
    "teeworlds/ddnet_mixed.pcap",
    "teeworlds/tw065_loss_server_side.pcap",
    "knet/udp_any_interface.pcapng",
    "knet/knet2010_loss.client.pcap",
    "knet/tcp_loss_retransmit.pcap",
    "eoudp/late_lossy_server.pcap",
    "eoudp/rfc02_timeout_client.pcap",
    "eoudp/decoys.pcap",
    "netplay/mixed_dialects_and_noise.pcap",
    "netplay/bin1_lossy__client_side.pcap",
    "netplay/text_rev1_example_chat.pcapng",
]


def test_no_kernel_drops_what_is_in_a_file() -> None:
    said = invoke("sniff", "-r", str(LOSSY)).stderr
    assert "packets, 0 dropped by netdissect" in said
    assert "kernel" not in said


@pytest.mark.parametrize("name", REPLAYED)
def test_the_live_path_gives_the_records_of_the_file(name: str) -> None:
    """Byte for byte, of a file that is read once as well: one that is read twice has its
    connections numbered by their first frames. With `-l`, a record leaves at once and lacks at most
    what comes after it: its acknowledgement, and which of several dialects it is.
    """
    path = str(ROOT / "captures" / name)
    given = Path(path).read_bytes()
    read = invoke("read", "-", "--json", "--all", given=given).stdout
    assert read
    assert invoke("sniff", "-r", path, "--json", "--all").stdout == read
    later = objects(read)
    now = objects(invoke("sniff", "-r", path, "--json", "--all", "-l").stdout)
    assert len(now) == len(later)
    order = ("frame", "index")
    now.sort(key=lambda row: [row[key] for key in order])
    later.sort(key=lambda row: [row[key] for key in order])
    for early, final in zip(now, later, strict=True):
        known, settled = early.pop("reliability"), final.pop("reliability")
        before, after = early.pop("dialect"), final.pop("dialect")
        assert before == after or "/" in before, "a dialect is only ever narrowed"
        assert early == final
        for key in settled or {}:
            later_known = {"acked_in", "rtt_ms", "latency_ms", "added_ms", "retransmitted_in"}
            assert (
                known.get(key) == settled[key]
                or (known.get(key) is None and key in later_known)
                or (key == "attempts" and settled[key] and known[key] <= settled[key])
                # What TCP sends again is known of segments only.
                or (settled[key] is None and "retransmitted_in" in settled)
            ), (early["frame"], key)


@pytest.mark.parametrize(
    "words", [["--json"], ["-T", "csv", "-e", "frame.number", "-e", "msg.rtt"]]
)
def test_a_pipe_gives_the_records_of_the_file(words: list[str]) -> None:
    piped = subprocess.run(
        [sys.executable, "-m", "netdissect", "read", "-", *words],
        input=LOSSY.read_bytes(), capture_output=True, check=True,
    )  # fmt: skip
    assert piped.stdout.decode() == invoke("read", str(LOSSY), *words).stdout


@pytest.mark.parametrize("command", ["sniff", "read"])
def test_lines_wait_where_the_filter_asks_for_what_comes_later(command: str) -> None:
    """Acknowledgements and round trips come after the datagram that is shown."""
    slow = "msg.rtt > 60"
    shown = subprocess.run(
        [sys.executable, "-m", "netdissect", command, "-r", "-", "-Y", slow],
        input=LOSSY.read_bytes(), capture_output=True, check=True,
    )  # fmt: skip
    assert shown.stdout.decode() == invoke("read", str(LOSSY), "-Y", slow).stdout
    assert len(shown.stdout.splitlines()) > 10


@needs_capture
def test_a_running_capture_gives_the_records_of_its_file(tmp_path: Path) -> None:
    path = tmp_path / "out.pcapng"
    with Pair() as pair, Sniff(
        "-f", pair.filter, "--json", "--all", "-w", str(path), "-c", "400"
    ) as sniff:  # fmt: skip
        sniff.until(STARTED)
        pair.send(payloads(LOSSY)[:400])
        status, out, _ = sniff.ended()
    assert status == 0
    # Read as it comes, the file tells no more than the interface did; where the capture stands is
    # learnt before the first row only of what can be read twice.
    piped = CliRunner().invoke(cli, ["read", "-r", "-", "--json", "--all"], input=path.read_bytes())
    assert out.decode() == piped.stdout
    rows = objects(out)
    assert {row["protocol"] for row in rows} == {"riptide"}
    assert sum((row["reliability"] or {}).get("acked_in") is not None for row in rows) > 50


@pytest.mark.parametrize("command", ["sniff", "read"])
@pytest.mark.parametrize("words", [[], ["--json"], ["--json", "-l"]])
def test_records_of_a_pipe_are_printed_while_it_is_open(command: str, words: list[str]) -> None:
    """As `ssh host tcpdump -U -w - | netdissect sniff -r -` needs it."""
    octets = LOSSY.read_bytes()
    with subprocess.Popen(
        [sys.executable, "-m", "netdissect", command, "-r", "-", *words],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    ) as process:  # fmt: skip
        process.stdin.write(octets[: len(octets) // 2])
        process.stdin.flush()
        line = process.stdout.readline().decode()
        assert json.loads(line)["frame"] == 1 if words else "127.0.0.1" in line
        process.stdin.close()
        process.stdin = None
        process.communicate(timeout=LIMIT_SECONDS)
        # The half of a file ends inside a record: that is said, as for any cut-short file.
        assert process.returncode in {0, 6}


def test_a_ring_keeps_its_newest_files(tmp_path: Path) -> None:
    result = invoke(
        "sniff",
        "-r",
        str(LOSSY),
        "-q",
        "-w",
        str(tmp_path / "ring.pcapng"),
        "-b",
        "filesize:4",
        "-b",
        "files:3",
    )
    assert result.exit_code == 0
    files = sorted(tmp_path.iterdir())
    assert len(files) == 3
    assert [path.name.split("_")[0] for path in files] == ["ring"] * 3
    for path in files:
        assert frames(path) > 0
        assert path.stat().st_size < 6000


@pytest.mark.parametrize("name", ["out.pcapng", "out.pcap"])
def test_durations_are_those_of_the_packets(name: str, tmp_path: Path) -> None:
    """A file says itself how much time has passed: 2 s at most, and files of half a second."""
    words = ["-a", "duration:2", "-b", "duration:0.5"]
    result = invoke("sniff", "-r", str(LOSSY), "-q", "-w", str(tmp_path / name), *words)
    assert result.exit_code == 0
    times = []
    for path in sorted(tmp_path.iterdir()):
        with open_capture(path) as reader:
            times.append([frame[1] for frame in reader])
    with open_capture(LOSSY) as reader:
        whole = [frame[1] for frame in reader]
    assert list(chain(*times)) == [moment for moment in whole if moment <= whole[0] + 2_000_000_000]
    assert len(times) > 2
    for mine, after in pairwise(times):
        assert mine[-1] - mine[0] < 500_000_000 <= after[0] - mine[0]


def test_a_written_file_holds_the_frames_of_the_one_read(tmp_path: Path) -> None:
    for name in ("copy.pcap", "copy.pcapng"):
        path = tmp_path / name
        assert invoke("sniff", "-r", str(LOSSY), "-q", "-w", str(path)).exit_code == 0
        with open_capture(path) as copy, open_capture(LOSSY) as original:
            assert list(copy) == list(original)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_a_capture_on_a_pipe_that_stays_open(number: int) -> None:
    with subprocess.Popen(
        [sys.executable, "-m", "netdissect", "sniff", "-r", "-"],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    ) as process:  # fmt: skip
        process.stdin.write(LOSSY.read_bytes()[:2000])
        process.stdin.flush()
        assert b"127.0.0.1" in process.stdout.readline()
        process.send_signal(number)
        process.wait(LIMIT_SECONDS)
        process.communicate()
    assert process.returncode == 0
