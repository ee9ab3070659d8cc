from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner

import console_docs
from netdissect.capture.live.clearstreams import ClearStreams
from netdissect.capture.live.tsharklines import frame_of_line
from netdissect.cli import cli
from netdissect.flow import Decapsulator
from netdissect.model.packets import Frame

HERE = Path(__file__).parent
CHAT = console_docs.ROOT / "captures" / "netplay" / "bin1_coalesced__server_leg.pcap"
needs_tshark = pytest.mark.skipif(shutil.which("tshark") is None, reason="takes tshark")

UDP = (
    b"7\t1795271908.895263912\teth:ethertype:ip:udp:data\t127.0.0.1\t127.0.0.2\t\t\t35362\t59020\t3031"
    b"\t\t\t\t\t\t\t\t\t\t\t3031"
)


def frame_of(line: bytes) -> Frame | None:
    return frame_of_line(line, ClearStreams())


def test_a_line_becomes_a_frame_of_the_innermost_packet() -> None:
    frame = frame_of(UDP)
    assert frame is not None
    assert frame[:3] == (7, 1795271908895263912, 101)
    (packet,) = Decapsulator().packets([frame])
    assert packet[1] == 7
    assert packet[3].hex() == "7f0000017f0000028a22e68c"
    assert packet[4] == b"01"


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"\t" * 20,
        UDP.rpartition(b"\t")[0],
        UDP.replace(b":ip:", b":ip:icmp:ip:"),
        UDP.replace(b"59020", b"99999"),
        UDP.replace(b"3031", b"3x"),
    ],
)
def test_other_lines_are_left_out(line: bytes) -> None:
    assert frame_of(line) is None


def test_of_several_occurrences_the_innermost_counts() -> None:
    tunnel = UDP.replace(b":ip:udp:data", b":ip:udp:wg:ip:udp:data")
    tunnel = tunnel.replace(b"127.0.0.1\t127.0.0.2", b"127.0.0.1,10.0.0.1\t127.0.0.2,10.0.0.2")
    tunnel = tunnel.replace(b"35362\t59020\t3031", b"1,35362\t2,59020\taabb,3031")
    frame = frame_of(tunnel)
    assert frame is not None
    (packet,) = Decapsulator().packets([frame])
    assert packet[3].hex() == "0a0000010a0000028a22e68c"
    assert packet[4] == b"01"


def test_what_is_decrypted_takes_the_place_of_what_was_sent() -> None:
    sealed = UDP.replace(b":udp:data", b":udp:dtls:data").replace(b"\t3031\t", b"\tffff\t")
    sealed = sealed.removesuffix(b"\t3031") + b"0xfefd\t6162,6364"
    frame = frame_of(sealed)
    assert frame is not None
    (packet,) = Decapsulator().packets([frame])
    assert packet[4] == b"abcd"


@needs_tshark
@pytest.mark.parametrize("version", ["tls12", "tls13"])
def test_a_stream_that_tshark_decrypts_gives_the_messages_of_the_plain_one(version: str) -> None:
    """The two sides of `bin1_coalesced__server_leg`, sent again through TLS by Python's ssl module, which
    wrote the keys.
    """
    plain = rows("read", str(CHAT), "--json")
    sealed = str(HERE / f"{version}.pcapng")
    keys = f"tls.keylog_file:{HERE / 'tls.keys'}"
    clear = rows("sniff", "-r", sealed, "--backend", "tshark", "-o", keys, "--json")
    assert len({row["connection"] for row in clear}) == 1
    for way in ("c2s", "s2c"):
        assert [facts(row) for row in clear if row["direction"] == way] == [
            facts(row) for row in merged(plain) if row["direction"] == way
        ]
    assert rows("read", sealed, "--json") == [], "without the keys there is nothing to read"
    assert rows("sniff", "-r", sealed, "--backend", "tshark", "--json") == []


@needs_tshark
def test_a_datagram_that_tshark_decrypts_is_read_in_clear() -> None:
    """DTLS 1.2 of `openssl s_client`, which wrote the keys."""
    keys = f"tls.keylog_file:{HERE / 'dtls.keys'}"
    words = ["--backend", "tshark", "-o", keys, "--json", "--all"]
    found = rows("sniff", "-r", str(HERE / "dtls12.pcapng"), *words)
    assert b"hello-dtls\n".hex() in {row["payload"] for row in found}


def rows(*words: str) -> list[dict]:
    result = CliRunner().invoke(cli, list(words), prog_name="netdissect")
    assert result.exit_code == 0, result.output
    return [json.loads(line) for line in result.stdout.splitlines()]


def facts(row: dict) -> tuple[object, ...]:
    return row["protocol"], row["type"], row["length"], row["fields"]


def merged(found: list[dict]) -> list[dict]:
    return sorted(found, key=lambda row: (row["frame"], row["index"]))
