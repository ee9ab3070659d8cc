"""The dissectors that `export lua` writes: what Wireshark reads with them is what we read."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

import console_docs
import twocaptures
from luafields import differences, unread
from netdissect import lookup
from netdissect.dissect.lua import _check, _Maker, rule
from netdissect.layers.base import Check
from netdissect.layers.expr import E
from netdissect.layers.fields import Varint
from netdissect.wire.varint import VarintCodec

CAPTURES = console_docs.ROOT / "captures"
ALL = sorted(CAPTURES.glob("*/*.pcap*"))
SAMPLE = [
    CAPTURES / name
    for name in (
        "eoudp/late_all_components.pcap", "eoudp/early_clean.pcap", "eoudp/late_malformed.pcap", "knet/knet2010_clean.pcap",
        "knet/tcp_clean_session.pcap", "netplay/bin1_example_chat.pcap",
        "netplay/bin3_multichunk.pcap", "netplay/text_big.pcap", "riptide/udp_2.2.1_clean.pcap", "riptide/tcp_2.2.1_split.pcap",
        "teeworlds/tw07_clean.pcap", "teeworlds/ddnet_clean.pcap", "teeworlds/tw064_server_info.pcap",
        "teeworlds/ddnet_antispoof_broken.pcap", "netplay/text_custom_serializer_binary.pcap",
    )
]  # fmt: skip
TSHARK = pytest.mark.skipif(shutil.which("tshark") is None, reason="tshark is not installed")


@pytest.fixture(scope="session")
def scripts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("lua") / "netdissect.lua"
    path.write_text(lookup.wireshark_script(lookup.protocol_names()))
    return path


@TSHARK
@pytest.mark.tshark
@pytest.mark.parametrize("path", SAMPLE, ids=lambda path: path.stem)
def test_wireshark_reads_the_same(path: Path, scripts: Path) -> None:
    assert differences(path, scripts, path.parent.name) == []


def damaged(path: Path, frame: int, at: int, octet: int) -> bytes:
    """Return a capture up to a UDP datagram of which one byte of the payload is another."""
    data, end = path.read_bytes(), 24
    for _ in range(frame):
        start = end + 16
        end = start + int.from_bytes(data[end + 8 : end + 12], "little")
    made = bytearray(data[:end])
    made[start + 40 : start + 42] = b"\0\0"  # without checksum
    made[start + 42 + at] = octet
    return bytes(made)


@TSHARK
@pytest.mark.tshark
@pytest.mark.parametrize(
    ("name", "frame", "at", "octet"),
    [
        pytest.param("teeworlds/tw07_clean", 14, 24, 15, id="bytes behind the chunks"),
        pytest.param("teeworlds/tw07_clean", 75, 15, 222, id="no end symbol"),
        pytest.param("teeworlds/ddnet_clean", 23, 14, 138, id="bytes behind short chunks"),
        pytest.param("teeworlds/ddnet_clean", 23, 9, 61, id="data longer than what is left"),
        pytest.param("teeworlds/ddnet_clean", 5, 27, 28, id="text without NUL"),
        pytest.param("eoudp/early_clean", 6, 0, 0x0D, id="text longer than what is left"),
        pytest.param("eoudp/early_clean", 6, 0, 0x00, id="bytes behind the counters"),
        pytest.param("eoudp/early_clean", 4, 22, 0x41, id="no digits"),
    ],
)
def test_wireshark_reads_the_same_of_what_is_damaged(
    name: str, frame: int, at: int, octet: int, scripts: Path, tmp_path: Path
) -> None:
    path = tmp_path / "damaged.pcap"
    path.write_bytes(damaged(CAPTURES / f"{name}.pcap", frame, at, octet))
    assert differences(path, scripts, name.partition("/")[0]) == []


@TSHARK
@pytest.mark.tshark
def test_wireshark_goes_on_behind_an_impossible_length(scripts: Path, tmp_path: Path) -> None:
    """It waited for as many octets, and showed nothing more of the stream."""
    broken = []

    def change(records: list[twocaptures.Record]) -> Iterator[twocaptures.Record]:
        whole = (each for each in records if len(each[1]) - 66 > 8)
        chosen = list(whole)[8::9]
        for frame, (time, data, wire) in enumerate(records, 1):
            if (time, data, wire) in chosen:
                broken.append(frame)
                yield time, data[:66] + b"\xf7\xf7" + data[68:], wire
            else:
                yield time, data, wire

    path = tmp_path / "broken.pcap"
    twocaptures.rewritten(CAPTURES / "riptide" / "tcp_2.2.1_clean.pcap", path, change)
    found = {int(each.split()[0]) for each in differences(path, scripts, "riptide")}
    # We show its bytes as a message, and Wireshark that it is none.
    assert len(found) > 20
    assert found <= set(broken)


def without_some(records: list[twocaptures.Record]) -> Iterator[twocaptures.Record]:
    """Leave out the handshakes, and later every seventh segment."""
    behind = [each for each in records if len(each[1]) > 66][3:]
    for number, each in enumerate(behind):
        if number % 7 != 4:
            yield each


@TSHARK
@pytest.mark.tshark
@pytest.mark.parametrize(
    ("name", "fewer"),
    [
        ("netplay/bin1_example_chat", 0), ("netplay/bin3_multichunk", 0), ("netplay/bin3_example_chat", 0),
        # The class and the body of one message: nothing in it shows that its class line is whole.
        ("netplay/text_example_chat", 2),
        ("riptide/tcp_2.2.1_clean", 0), ("knet/tcp_clean_session", 0),
    ],
)  # fmt: skip
def test_wireshark_goes_on_behind_missing_bytes(name: str, fewer: int, scripts: Path, tmp_path: Path) -> None:
    path = Path(twocaptures.rewritten(CAPTURES / f"{name}.pcap", tmp_path / "lost.pcap", without_some))
    lost, every = unread(path, scripts, name.partition("/")[0])
    assert every > 20
    assert lost == fewer


def first_gap(path: Path) -> int | None:
    """Return the first frame from which Wireshark does not have every stream from its start, in
    order and once, or None. From there it finds the messages in other frames than we do.
    """
    lost = "tcp.analysis.lost_segment || tcp.analysis.out_of_order || tcp.analysis.retransmission"
    words = ["tshark", "-r", str(path), "-T", "fields", "-e", "tcp.stream", "-e", "frame.number"]

    def rows(rule: str) -> list[tuple[str, int]]:
        found = subprocess.run([*words, "-Y", rule], capture_output=True, text=True, check=True)
        return [(stream, int(frame)) for stream, frame in map(str.split, found.stdout.splitlines())]

    begun = {stream for stream, _ in rows("tcp.flags.syn == 1")}
    broken = [*rows(lost), *(row for row in rows("tcp") if row[0] not in begun)]
    return min((frame for _, frame in broken), default=None)


@TSHARK
@pytest.mark.tshark
@pytest.mark.slow
@pytest.mark.parametrize("path", ALL, ids=lambda path: path.stem)
def test_wireshark_reads_the_same_everywhere(path: Path, scripts: Path) -> None:
    assert differences(path, scripts, path.parent.name, gap=first_gap(path)) == []


def test_a_condition_is_the_same_in_lua() -> None:
    assert rule(E("high << 4 | low")) == "function(v) return BOR(SHL(N(v.high), 4), N(v.low)) end"
    assert rule(E("a and not b")) == "function(v) return AND(N(v.a), B(not T(N(v.b)))) end"
    assert rule(E("kind == 6 or kind in (1, 2)")) == (
        "function(v) return OR(B(N(v.kind) == 6), B((N(v.kind) == 1 or N(v.kind) == 2))) end"
    )


def test_numbers_of_a_plug_in_bring_their_own_lua() -> None:
    """Wireshark stopped at the first of them: the script called a function that was not there."""
    one_byte = VarintCodec("one", lambda data, at, _end: (data[at], at + 1), bytes, 0, 255)
    made = _Maker()
    with pytest.raises(TypeError, match="the VarintCodec one has no lua"):
        made._kind(Varint("size", 0, one_byte))
    read = "function(tvb, place, stop) return tvb(place, 1):uint(), place + 1 end"
    made._kind(Varint("size", 0, replace(one_byte, lua=read)))
    assert made.codecs == {"one": read}


def test_a_check_is_true_or_false_in_lua() -> None:
    made = _check(Check(E("a is not None and 0 <= a < 2 and b not in {3, 4}"), "code", "a", "{a:#x}"))
    assert made is not None
    assert made["text"] == "{a}"
    assert made["when"] == (
        "function(v) return T(AND(AND(B(v.a ~= nil), AND(B(0 <= N(v.a)), B(N(v.a) < 2))),"
        " B(not (N(v.b) == 3 or N(v.b) == 4)))) end"
    )


def test_a_check_that_no_expression_says_is_left_out() -> None:
    assert _check(Check(lambda f: f["a"] == 1, "code", "a", "")) is None
    assert _check(Check(E("items.flag"), "code", "a", "")) is None


def tshark_output(path: Path, scripts: Path, *words: str) -> str:
    """Return what tshark says of a capture with our scripts, its protocol looked for anywhere."""
    anywhere = f"{path.parent.name}.anywhere:TRUE"
    command = ["tshark", "-X", f"lua_script:{scripts}", "-r", str(path), "-o", anywhere, *words]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


@TSHARK
@pytest.mark.tshark
def test_what_is_malformed_is_expert_info(scripts: Path) -> None:
    path = CAPTURES / "riptide" / "udp_2.2.1_malformed.pcap"
    words = ["-d", "udp.port==1-65535,riptide", "-T", "fields", "-e", "_ws.expert.message"]
    assert "truncated: " in tshark_output(path, scripts, *words)


@TSHARK
@pytest.mark.tshark
def test_a_usual_port_is_enough_to_be_found(scripts: Path) -> None:
    path = CAPTURES / "teeworlds" / "tw07_clean.pcap"
    assert tshark_output(path, scripts, "-Y", "teeworlds.ack").count("\n") > 10
