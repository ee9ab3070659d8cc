"""What is promised of Tiny: one description, exact conclusions, every command, fuzzing."""

from __future__ import annotations

import json
import struct
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner
from netdissect_tiny.layers import TinyAck, TinyData

from netdissect.cli import cli
from netdissect.fuzz import FuzzReport, Target, fuzz_target
from netdissect.fuzz.servers import make_server, open_listener
from netdissect.pipeline import analyze


def capture(path: Path, rows: list[tuple[int, int, bytes]]) -> str:
    """Write (ms, direction, payload) as a capture of UDP over IPv4 without link headers."""
    out = struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 65535, 101)
    ends = (b"\x0a\0\0\1", 40000), (b"\x0a\0\0\2", 5459)
    for ms, direction, octets in rows:
        (source, sport), (target, dport) = ends[direction], ends[1 - direction]
        udp = struct.pack("!HHHH", sport, dport, 8 + len(octets), 0) + octets
        ip = struct.pack("!BBHHHBBH", 0x45, 0, 20 + len(udp), 0, 0, 64, 17, 0) + source + target
        out += struct.pack("<IIII", ms // 1000, ms % 1000 * 1000, *[20 + len(udp)] * 2) + ip + udp
    path.write_bytes(out)
    return str(path)


@pytest.fixture
def lossy(tmp_path: Path) -> str:
    """Data 1 is acknowledged, data 2 is sent again, data 3 never arrives anywhere."""
    return capture(tmp_path / "lossy.pcap", [
        (0, 0, bytes(TinyData(number=1, data=b"one"))), (40, 1, bytes(TinyAck(number=1))),
        (100, 0, bytes(TinyData(number=2, data=b"two"))),
        (300, 0, bytes(TinyData(number=2, data=b"two"))), (340, 1, bytes(TinyAck(number=2))),
        (400, 0, bytes(TinyData(number=4, data=b"four"))), (440, 1, bytes(TinyAck(number=4))),
    ])  # fmt: skip


def run(*words: str, text: str | None = None) -> str:
    result = CliRunner().invoke(cli, list(words), input=text, env={"NO_COLOR": "1"})
    assert result.exit_code == 0, result.output
    return result.output


def test_what_became_of_each_unit(lossy: str) -> None:
    (report,) = analyze(lossy).connections
    (space,) = report.spaces
    assert report.protocol == "tiny"
    assert (space.units, space.retransmissions, space.acked, space.never_seen) == (3, 1, 3, 1)
    assert space.rtt.minimum == 40


def test_every_command_knows_it(lossy: str) -> None:
    assert "plug-in, works" in run("doctor")
    assert "data, ack" in run("protocols", "tiny")
    assert "tiny-magic" in run("explain")
    assert "tiny.number" in run("fields", "tiny")
    assert len(run("read", lossy, "-Y", "tiny.number == 2").splitlines()) >= 3
    for words in (("connections",), ("timeline",), ("ladder", "1"), ("stats",), ("anomalies",)):
        assert run(words[0], lossy, *words[1:])
    digits = run("encode", "tiny", "data", "number=7", "data=text:hi").strip()
    assert digits == "545901" + "0007" + "0002" + b"hi".hex()
    shown = run("decode", "tiny", digits, "--json")
    empty = capture(Path(lossy).with_name("empty.pcap"), [(0, 0, bytes(TinyData()))])
    assert "tiny-empty" in run("anomalies", empty)
    assert run("encode", "tiny", "-", text=shown).strip() == digits
    wrong = json.loads(run("decode", "tiny", "0000" + digits[4:], "--json"))
    assert [note["code"] for note in wrong["annotations"]] == ["tiny-magic"]


def fuzzed(folder: Path, *options: str) -> FuzzReport:
    with open_listener(make_server("tiny")) as probe:
        port = probe.getsockname()[1]
    words = [sys.executable, "-m", "netdissect.fuzz.servers", "tiny", f"--port={port}", *options]
    target, monitors = Target("127.0.0.1", port), [f"exec:{' '.join(words)}"]
    return fuzz_target("tiny", target, folder / "run", cases=80, failures=1, monitors=monitors)


def test_the_server_takes_what_is_unchanged(tmp_path: Path) -> None:
    report = fuzzed(tmp_path)
    assert (report.share("control") or 0) > 0.9
    assert not report.findings


def test_the_fuzzer_finds_the_planted_bug(tmp_path: Path) -> None:
    assert fuzzed(tmp_path, "--bug=length").findings
