"""The dissectors that `export lua` writes: what Wireshark reads with them is what we read."""

from __future__ import annotations

import shutil
import subprocess
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import console_docs
from netdissect import lookup
from netdissect.dissect.lua import _check, rule
from netdissect.layers.base import Check
from netdissect.layers.expr import E
from netdissect.model.dissection import FieldNode
from netdissect.model.text import well_formed
from netdissect.pipeline.records import iter_records

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
LISTS = "\x1f"
"""Between two values of one field."""
PRINTED = str.maketrans({"\r": r"\r", "\n": r"\n", "\t": r"\t", "\0": r"\x00"})
"""As tshark and the script print them."""


@pytest.fixture(scope="session")
def scripts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("lua") / "netdissect.lua"
    path.write_text(lookup.wireshark_script(lookup.protocol_names()))
    return path


def fields_of(script: str, protocol: str) -> dict[str, str]:
    """Return the fields that a script registers, with their kinds."""
    part = script.partition(f"do -- {protocol}\n")[2].partition('["kinds"]={')[2].partition("}")[0]
    rows = (row.split("]=") for row in part.split(",\n"))
    return {name.strip('["'): kind.strip('"') for name, kind in rows}


def leaves(node: FieldNode) -> Iterator[FieldNode]:
    """Yield the fields that stand on the wire, in order."""
    for child in node.children:
        if child.generated:
            continue
        if child.children:
            yield from leaves(child)
        elif not child.is_list:
            yield child


def shown(value: Any) -> Iterator[str]:
    if isinstance(value, list):
        for item in value:
            yield from shown(item)
    elif isinstance(value, bytes):
        yield value.hex()
    elif isinstance(value, bool):
        yield str(int(value))
    elif isinstance(value, float):
        yield f"{value:.4g}"
    elif value is not None:
        yield well_formed(str(value)).translate(PRINTED)


def ours(path: Path, kinds: dict[str, str], protocol: str) -> dict[str, tuple[dict[int, Any], set[tuple[str, str]]]]:
    """Return dialect -> (frame -> field -> values, the ports by which Wireshark finds them)."""
    found: dict[str, tuple[dict[int, Any], set[tuple[str, str]]]] = {}
    for record in iter_records(path):
        if record.protocol != protocol or record.dissection is None or record.dialect is None:
            continue
        frames, ports = found.setdefault(record.dialect, (defaultdict(lambda: defaultdict(list)), set()))
        server = record.dst if record.direction == 0 else record.src
        ports.add((record.transport, server.rpartition(":")[2]))
        for node in leaves(record.dissection.root):
            if node.name in kinds:
                frames[record.frame][node.name] += shown(node.value)
    return found


def theirs(path: Path, script: Path, kinds: dict[str, str], protocol: str, ports: set[tuple[str, str]], dialect: str) -> dict[int, Any]:
    name = f"nd_{protocol}" if protocol == "knet" else protocol
    words = ["tshark", "-X", f"lua_script:{script}", "-r", str(path), "-o", f"{name}.dialect:{dialect}"]
    for transport, port in ports:
        words += ["-d", f"{transport}.port=={port},{name}"]
    words += ["-T", "fields", "-E", "separator=/t", "-E", f"aggregator={LISTS}", "-e", "frame.number"]
    for field in kinds:
        words += ["-e", f"{protocol}.{field}"]
    told = subprocess.run(words, capture_output=True, check=True)
    assert b"Lua" not in told.stderr, told.stderr
    found: dict[int, Any] = {}
    for line in told.stdout.decode("utf-8", "surrogateescape").splitlines():
        frame, *values = line.split("\t")
        found[int(frame)] = {
            field: value.split(LISTS) for field, value in zip(kinds, values, strict=True) if value
        }
    return found


def alike(kind: str, mine: list[str], other: list[str]) -> bool:
    if kind == "float":
        return [f"{float(item):.4g}" for item in mine] == [f"{float(item):.4g}" for item in other]
    return mine == other


def differences(path: Path, script: Path) -> list[str]:
    """Return where Wireshark reads another value; a capture without any field is one, too."""
    protocol = path.parent.name
    kinds = fields_of(script.read_text(), protocol)
    found = []
    compared = 0
    for dialect, (read, ports) in ours(path, kinds, protocol).items():
        frames = read
        if dialect.startswith("rfc"):
            # The contents of the documents leave the order of bytes open: headers alone.
            kinds = {name: kinds[name] for name in ("command", "id", "timestamp")}
            frames = {at: {name: row[name] for name in kinds if name in row} for at, row in read.items()}
        other = theirs(path, script, kinds, protocol, ports, dialect)
        for frame, fields in frames.items():
            for field, values in fields.items():
                mine = [item for item in values if item]
                got = [item for item in other[frame].get(field, []) if item or kinds[field] != "str"]
                compared += len(mine)
                if mine and not alike(kinds[field], mine, got):
                    found.append(f"{frame} {field}: ours {mine}, Wireshark's {got}")
    if not compared:
        pytest.skip("no message of the protocol")
    return found


@TSHARK
@pytest.mark.tshark
@pytest.mark.parametrize("path", SAMPLE, ids=lambda path: path.stem)
def test_wireshark_reads_the_same(path: Path, scripts: Path) -> None:
    assert differences(path, scripts) == []


def is_whole(path: Path) -> bool:
    """Return whether Wireshark has every stream from its start, in order and once: of others it
    makes pieces in other frames than we do.
    """
    lost = "tcp.analysis.lost_segment || tcp.analysis.out_of_order || tcp.analysis.retransmission"
    words = ["tshark", "-r", str(path), "-T", "fields", "-e", "tcp.stream", "-Y"]
    broken = subprocess.run([*words, lost], capture_output=True, text=True, check=True).stdout
    streams, begun = (
        set(subprocess.run([*words, rule], capture_output=True, text=True, check=True).stdout.split())
        for rule in ("tcp", "tcp.flags.syn == 1")
    )
    return not broken and streams == begun


@TSHARK
@pytest.mark.tshark
@pytest.mark.slow
@pytest.mark.parametrize("path", ALL, ids=lambda path: path.stem)
def test_wireshark_reads_the_same_everywhere(path: Path, scripts: Path) -> None:
    if not is_whole(path):
        pytest.skip("a stream with gaps")
    assert differences(path, scripts) == []


def test_a_condition_is_the_same_in_lua() -> None:
    assert rule(E("high << 4 | low")) == "function(v) return BOR(SHL(N(v.high), 4), N(v.low)) end"
    assert rule(E("a and not b")) == "function(v) return AND(N(v.a), B(not T(N(v.b)))) end"
    assert rule(E("kind == 6 or kind in (1, 2)")) == (
        "function(v) return OR(B(N(v.kind) == 6), B((N(v.kind) == 1 or N(v.kind) == 2))) end"
    )


def test_a_check_is_followed_on_every_way() -> None:
    made = _check(Check(lambda f: f["a"] is not None and f["a"] < 2 and f["b"] == 3, "code", "a", "{a:#x}"))
    assert made is not None
    assert made["text"] == "{a}"
    assert made["when"] == (
        "function(v) return (v.a ~= nil and T(B(v.a < 2)) and v.b ~= nil and T(B(v.b == 3))) end"
    )


def test_a_check_that_no_expression_says_is_left_out() -> None:
    assert _check(Check(lambda f: f["a"] in {1: 2}, "code", "a", "")) is None
    assert _check(Check(lambda _f: False, "code", "a", "")) is None


@TSHARK
@pytest.mark.tshark
def test_what_is_malformed_is_expert_info(scripts: Path) -> None:
    path = CAPTURES / "riptide" / "udp_2.2.1_malformed.pcap"
    words = ["tshark", "-X", f"lua_script:{scripts}", "-r", str(path), "-o", "riptide.anywhere:TRUE"]
    words += ["-d", "udp.port==1-65535,riptide", "-T", "fields", "-e", "_ws.expert.message"]
    told = subprocess.run(words, capture_output=True, text=True, check=True).stdout
    assert "truncated: " in told


@TSHARK
@pytest.mark.tshark
def test_a_usual_port_is_enough_to_be_found(scripts: Path, tmp_path: Path) -> None:
    path = CAPTURES / "teeworlds" / "tw07_clean.pcap"
    words = ["tshark", "-X", f"lua_script:{scripts}", "-r", str(path), "-o", "teeworlds.anywhere:TRUE"]
    told = subprocess.run([*words, "-Y", "teeworlds.ack"], capture_output=True, text=True, check=True).stdout
    assert told.count("\n") > 10
