"""Commands about this machine: doctor and verify."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

import console_docs
from netdissect.capture import tools
from netdissect.cli import cli
from netdissect.model.facts import FrameFacts
from netdissect.system.programs import find
from netdissect.verify import our_facts

CAPTURES = console_docs.ROOT / "captures"
LOSSY = CAPTURES / "riptide" / "udp_2.2.1_lossy_clientleg.pcap"

needs_tshark = pytest.mark.skipif(find("tshark") is None, reason="tshark is not installed")


def invoke(*words: str) -> Result:
    return CliRunner().invoke(cli, list(words), prog_name="netdissect")


def test_doctor_lists_packages_and_programs() -> None:
    result = invoke("doctor", "--json")
    assert result.exit_code == 0
    rows = {row["check"]: row for row in map(json.loads, result.stdout.splitlines())}
    assert {
        "netdissect",
        "python",
        "scapy",
        "rich",
        "tshark",
        "dumpcap",
        "tcpdump",
        "rights",
    } <= set(rows)
    assert rows["scapy"]["good"] is True


def test_doctor_says_of_every_way_to_capture_whether_it_can_be_used() -> None:
    rows = {
        row["check"]: row for row in map(json.loads, invoke("doctor", "--json").stdout.splitlines())
    }
    ways = {name: rows[f"by {name}"] for name in ("dumpcap", "tcpdump", "af_packet", "tshark")}
    assert all(row["text"] for row in ways.values())
    usable = [name for name, row in ways.items() if row["good"] and name != "tshark"]
    assert rows["capture backend"]["text"] == (usable[0] if usable else "none can be used")
    assert rows["capture backend"]["good"] is bool(usable)


def test_doctor_prints_what_to_paste_for_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tools, "find", lambda _: None)
    text = invoke("doctor").stdout
    assert "not found" in text
    assert "sudo apt-get install tshark" in text


def test_a_dumpcap_without_rights_gets_the_setcap_line(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    program = tmp_path / "dumpcap"
    program.write_text("#!/bin/sh\necho dumpcap 1\n")
    program.chmod(0o755)
    monkeypatch.setattr(
        tools, "find", lambda name: str(program) if name == "dumpcap" else None
    )
    monkeypatch.setattr(tools.os, "geteuid", lambda: 1000)
    found = {check.name: check for check in tools.checks()}
    assert found["dumpcap"].text.startswith("dumpcap 1")
    assert found["dumpcap rights"].good is False
    assert f"sudo setcap cap_net_raw,cap_net_admin=ep {program}" in found["dumpcap rights"].remedy


@needs_tshark
@pytest.mark.tshark
@pytest.mark.parametrize(
    "path",
    [
        LOSSY,
        CAPTURES / "riptide" / "tcp_2.2.1_full.pcap",
        CAPTURES / "knet" / "udp_any_interface.pcapng",
        CAPTURES / "netplay" / "bin1_snaplen_96.pcap",
    ],
    ids=lambda path: path.stem,
)
def test_tshark_reads_what_we_read(path: Path) -> None:
    result = invoke("verify", str(path), "--json")
    assert result.exit_code == 0, result.stdout
    assert all(json.loads(line)["known"] for line in result.stdout.splitlines())


@needs_tshark
@pytest.mark.tshark
@pytest.mark.parametrize(
    ("name", "faults"),
    [
        ("udp_large_reliable_delta.client.pcap", {"connect datagram", "from 128 on"}),
        ("udp_fragments_clean.pcap", {"connect datagram", "fragments"}),
        ("tcp_clean_session.pcap", {"lost its place"}),
        ("tcp_rechunked.server.pcap", {"lost its place"}),
    ],
)
def test_known_faults_of_wireshark_are_named_and_do_not_count(name: str, faults: set[str]) -> None:
    result = invoke("verify", str(CAPTURES / "knet" / name), "--json")
    assert result.exit_code == 0
    known = {json.loads(line)["known"] for line in result.stdout.splitlines()}
    for fault in faults:
        assert any(fault in text for text in known)


@needs_tshark
@pytest.mark.tshark
@pytest.mark.parametrize(
    ("name", "frames"),
    [
        ("tcp_loss_retransmit.pcap", "1-150"),
        pytest.param("tcp_loss_retransmit.pcap", "1-", marks=pytest.mark.slow),
        ("tcp_timeout.pcap", "1-"),
    ],
)
def test_messages_of_a_stream_are_compared_too(name: str, frames: str, tmp_path: Path) -> None:
    """Every frame that completes a message has equal fields, or is one that Wireshark does not
    read, because a length of four bytes has made it lose its place.
    """
    path = str(tmp_path / "part.pcap")
    assert invoke("slice", str(CAPTURES / "knet" / name), "--frames", frames, "-w", path).exit_code == 0
    result = invoke("verify", path)
    assert result.exit_code == 0
    equal = re.search(r"knet\.content_length +(\d+) +0", result.stdout)
    assert equal
    missing = [json.loads(line) for line in invoke("verify", path, "--json").stdout.splitlines()]
    assert {(row["what"], "lost its place" in row["known"]) for row in missing} <= {
        ("knet.messages", True)
    }
    rows = invoke("read", path, "--json").stdout.splitlines()
    assert int(equal[1]) + len(missing) == len({json.loads(row)["frame"] for row in rows})
    assert int(equal[1]) > 20


@needs_tshark
@pytest.mark.tshark
def test_differences_are_listed_and_end_with_7(monkeypatch: pytest.MonkeyPatch) -> None:
    def changed(*values: object) -> object:
        for facts in our_facts(*values):
            if facts.frame == 5:
                continue
            yield (
                FrameFacts(
                    *[
                        facts.frame,
                        facts.time_ns,
                        facts.transport,
                        "1.2.3.4:5",
                        facts.dst,
                        facts.length,
                    ]
                )
                if (facts.frame == 7)
                else facts
            )

    monkeypatch.setattr("netdissect.verify.our_facts", changed)
    result = invoke("verify", str(LOSSY), "--json")
    assert result.exit_code == 7
    rows = [json.loads(line) for line in result.stdout.splitlines()]
    assert [(row["frame"], row["what"]) for row in rows] == [(5, "frame"), (7, "src")]
    text = invoke("verify", str(LOSSY)).stdout
    assert "1.2.3.4:5 here, 127.0.0.1:51399 in tshark" in text


@needs_tshark
def test_frames_with_comments_are_compared_as_well(tmp_path: Path) -> None:
    noted = str(tmp_path / "noted.pcapng")
    assert invoke("export", str(LOSSY), "--pcapng-notes", noted).exit_code == 0
    result = invoke("verify", noted, "-Y", "frame.number < 20")
    assert result.exit_code == 0, result.stderr
    assert result.stdout.startswith("19 datagrams and segments compared with tshark")


def test_without_tshark_verify_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("netdissect.capture.tshark.find", lambda _: None)
    result = invoke("verify", str(LOSSY))
    assert result.exit_code == 2
    assert "doctor" in result.stderr
