"""What `decode --json` prints, built again: every vector, and the datagrams of the captures."""

from __future__ import annotations

import json
from collections import Counter
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from agreement import CAPTURES, captures
from netdissect.cli import cli
from netdissect.craft.rebuild import rebuild
from netdissect.export import json as shapes
from netdissect.layers.teeworlds import Tw07
from netdissect.lookup import decode_payload
from netdissect.model.annotations import Severity
from netdissect.model.dissection import Dissection
from netdissect.model.errors import UsageError
from netdissect.model.records import DatagramRecord
from netdissect.pipeline.iterate import iter_records
from netdissect.protocols import registry
from netdissect.wire.teeworlds_forms import DIALECTS
from vectors import PROTOCOLS, payload_vectors, transport

CUT = {
    "malformed_one_byte_datagram", "malformed_two_byte_datagram",
    "malformed_header_only_reliable_without_base", "malformed_one_byte_message_header",
    "malformed 2.2: Reliable cut to 2 bytes", "malformed 2.2: Notify cut to 5 bytes",
    "malformed 2.2: Heartbeat of 1 byte", "malformed 2.0: AckExtra cut to 5 bytes",
}  # fmt: skip
"""Vectors of kNet and Riptide that end inside a field: no fields give them back."""
LONGER = {"odd_overlong_message_id", "odd_overlong_reliable_base"}
"""Vectors of kNet with numbers in more bytes than needed: the value is built in the fewest."""
UNTERMINATED = {"malformed: string without terminator"}
"""Vectors of Teeworlds with a string that has no NUL: JSON shows its bytes as the digits that a
string could have, too."""
BROKEN = {("ddnet_antispoof_broken", 3)}
"""Captured datagrams of Teeworlds, by capture and frame: a server that sends what lay in its memory.
In this one, messages end before their last numbers, which JSON shows as if they were left out."""
UNFRAMED = ("knet", "riptide")
"""Protocols whose records of a stream are messages that were taken out of their frames."""
ENTER_GAME = 31
PER_CAPTURE = 40
SPREAD = 600
"""Datagrams of a capture of which every 15th is built, behind the first `PER_CAPTURE`."""


def vectors() -> list[tuple[str, dict[str, Any]]]:
    return [(protocol, row) for protocol in PROTOCOLS for row in payload_vectors(protocol)]


def printed(tree: Dissection) -> dict[str, Any]:
    row: dict[str, Any] = json.loads(shapes.dump(shapes.decoded(tree)))
    return row


def decoded(protocol: str, vector: dict[str, Any]) -> dict[str, Any]:
    tree = decode_payload(
        protocol,
        bytes.fromhex(vector["hex"]),
        dialect=vector["dialect"],
        direction={"c2s": 0, "s2c": 1}.get(vector["direction"]),
        transport=transport(protocol, vector),
    )
    return printed(tree)


@pytest.mark.parametrize(
    ("protocol", "vector"), [pytest.param(*pair, id=pair[1]["name"]) for pair in vectors()]
)
def test_vectors_come_back(protocol: str, vector: dict[str, Any]) -> None:
    row = decoded(protocol, vector)
    if vector["name"] in CUT:
        try:
            octets = rebuild(protocol, row["dialect"], row["transport"], row["fields"])
        except UsageError:
            return
        assert octets[:1].hex()[1] == vector["hex"][1]
        assert len(octets) > len(vector["hex"]) // 2
        return
    octets = rebuild(protocol, row["dialect"], row["transport"], row["fields"])
    if vector["name"] in LONGER:
        assert len(octets) < len(vector["hex"]) // 2
    elif vector["name"] in UNTERMINATED:
        assert "unterminated-string" in {note["code"] for note in row["annotations"]}
        assert octets.hex() != vector["hex"]
    else:
        assert octets.hex() == vector["hex"]


@pytest.mark.parametrize("protocol", [name for name in PROTOCOLS if name != "teeworlds"])
def test_captured_payloads_come_back(protocol: str) -> None:
    built = 0
    for path in captures(protocol):
        for record in islice(iter_records(path), PER_CAPTURE):
            tree = record.dissection
            whole = tree is not None and record.protocol == protocol and not record.faults
            if not whole or (protocol in UNFRAMED and record.transport == "tcp"):
                continue
            bad = not record.payload or any(
                note.severity is Severity.ERROR for note in tree.annotations
            )
            if bad or (tree.annotations and record.dialect == "netplay-text"):
                continue  # cut, dropped by its size, or not UTF-8
            row = printed(tree)
            octets = rebuild(protocol, record.dialect, record.transport, row["fields"])
            if octets != record.payload:
                # Numbers in more bytes than needed, which only a test of receivers sends.
                assert "malformed" in path.name, (path.name, record.frame)
                assert len(octets) < len(record.payload)
            built += octets == record.payload
    assert built > 1000


def assert_comes_back(path: Path, record: DatagramRecord) -> None:
    """Assert that a datagram of Teeworlds comes back, or that it is still one of the broken."""
    assert record.dissection is not None
    row = printed(record.dissection)
    octets = rebuild("teeworlds", row["dialect"], row["transport"], row["fields"])
    broken = (path.stem, record.frame) in BROKEN
    assert (octets != record.payload) == broken, (path.name, record.frame)


@pytest.mark.parametrize("path", captures("teeworlds"), ids=lambda path: path.stem)
def test_captured_teeworlds_datagrams_come_back(path: Path) -> None:
    for number, record in enumerate(islice(iter_records(path), SPREAD)):
        if number < PER_CAPTURE or not number % 15:
            assert_comes_back(path, record)


@pytest.mark.slow
def test_every_captured_teeworlds_datagram_comes_back() -> None:
    built: Counter[str | None] = Counter()
    for path in captures("teeworlds"):
        for record in iter_records(path):
            assert_comes_back(path, record)
            built[record.dialect] += 1
    assert set(built) == set(DIALECTS)
    assert sum(built.values()) > 20_000


def assert_all_come_back(step: int, most: int | None) -> None:
    """Assert that `decode --json | encode -` gives back what each `step`th capture holds: all its
    datagrams and messages, or the first `most`.
    """
    built: Counter[str] = Counter()
    for path in sorted(CAPTURES.rglob("*.pcap*"))[::step]:
        rows: dict[str, list[tuple[str, str]]] = {}
        for record in islice(iter_records(path), most):
            if record.protocol not in registry.names():
                continue
            tree = decode_payload(
                record.protocol,
                record.payload,
                dialect=record.dialect,
                direction=record.direction,
                transport=record.transport,
            )
            row = shapes.dump(shapes.decoded(tree)), record.payload.hex()
            rows.setdefault(record.protocol, []).append(row)
        for protocol, pairs in rows.items():
            lines = "\n".join(line for line, _ in pairs)
            result = CliRunner().invoke(cli, ["encode", protocol, "-"], input=lines)
            assert result.exit_code == 0, (path.name, result.output)
            assert result.stdout.split("\n")[:-1] == [digits for _, digits in pairs], path.name
            built[protocol] += len(pairs)
    assert {*built} == set(PROTOCOLS)


def test_the_first_datagrams_of_all_captures_come_back() -> None:
    assert_all_come_back(9, 40)


@pytest.mark.slow
def test_all_datagrams_of_all_captures_come_back() -> None:
    assert_all_come_back(1, None)


def teeworlds(name: str) -> tuple[str, dict[str, Any]]:
    """Return the digits of a vector, and what `decode --json` prints of them, undirected."""
    vector = next(row for protocol, row in vectors() if row["name"] == name)
    words = ["decode", "teeworlds", "--dialect", vector["dialect"], "--json", vector["hex"]]
    return vector["hex"], json.loads(CliRunner().invoke(cli, words).stdout)


def encoded(row: dict[str, Any]) -> str:
    """Return what `encode teeworlds -` prints."""
    result = CliRunner().invoke(cli, ["encode", "teeworlds", "-"], input=json.dumps(row))
    assert result.exit_code == 0, result.output
    return result.stdout.strip()


def test_changed_chunks_are_compressed_anew_with_the_sizes_that_stand_there() -> None:
    digits, row = teeworlds("0.7 chat from client")
    assert encoded(row) == digits
    say = row["fields"]["chunks"][0]
    say["fields"]["message"] = "hello"
    again = Tw07(bytes.fromhex(encoded(row)))
    assert again.compressed_flag
    assert again.chunks[0].size_low == say["size_low"] == 15
    del say["size_low"], row["fields"]["num_chunks"], row["fields"]["chunks"][1]
    again = Tw07(bytes.fromhex(encoded(row)))
    assert (again.num_chunks, again.chunks[0].size_low) == (1, 9)
    assert again.chunks[0].body.message == b"hello"


def test_octets_behind_the_code_of_unchanged_chunks_stay() -> None:
    digits, row = teeworlds("0.7 input")
    row["fields"]["compressed"] += "c0ffee"
    assert encoded(row) == digits + "c0ffee"


def test_the_message_is_that_of_the_number_that_stands_there() -> None:
    _digits, row = teeworlds("0.7 close with reason")
    row["fields"]["control_id"] = 0
    assert encoded(row) == "040000039a998600"
    digits, row = teeworlds("malformed: 0.6 vital chunk with contradicting sequence bits")
    (chunk,) = row["fields"]["chunks"]
    assert chunk["message"] == "ready"
    chunk["fields"]["message_id"] = ENTER_GAME
    assert encoded(row) == digits[:-2] + "1f"
    chunk["fields"] = {"message_id": 1, "message_uuid": "05" * 16, "data": "ab"}
    assert encoded(row) == digits[:-2] + "01" + "05" * 16 + "ab"
    digits, row = teeworlds("0.7 server info request")
    row["fields"]["message_fields"] = {"magic_octets": "ff" * 7, "data": "05"}
    assert encoded(row) == digits[:18] + "ff" * 7 + "05"


def test_text_that_is_no_utf8_comes_back_in_teeworlds() -> None:
    digits, row = teeworlds("0.7 close with reason")
    row["fields"]["reason"] = "\udcff"
    assert encoded(row) == digits[:16] + "ff00"


def test_changed_values_are_built() -> None:
    words = ["decode", "knet", "--dialect", "2.x", "--direction", "s2c", "--json", "81000002200101"]
    line = CliRunner().invoke(cli, words).stdout
    row = json.loads(line)
    row["fields"]["packet_id_high"] = 2
    ping = row["fields"]["messages"][0]
    ping["ping_id"] = 7
    result = CliRunner().invoke(cli, ["encode", "knet", "-"], input=json.dumps(row))
    assert result.exit_code == 2
    assert "payload says otherwise than ping_id" in result.output
    ping["payload"] = "07"
    for left_out in ("", "payload", "ping_id"):
        changed = {**row, "fields": {**row["fields"], "messages": [{**ping}]}}
        changed["fields"]["messages"][0].pop(left_out, None)
        result = CliRunner().invoke(cli, ["encode", "knet", "-"], input=json.dumps(changed))
        assert result.stdout.strip() == "81020002200107", left_out


def test_changed_conclusions_are_named_and_ignored() -> None:
    digits, row = teeworlds("0.7 chat from client")
    row["fields"]["chunks"][0]["kind"] = "sys"
    row["fields"]["ack"] += 1
    result = CliRunner().invoke(cli, ["encode", "teeworlds", "-"], input=json.dumps(row))
    assert result.stdout.strip() not in ("", digits)
    (line,) = result.stderr.splitlines()
    assert line.startswith("netdissect: chunks.0.kind is ignored: ")


def test_changed_messages_in_frames_are_built() -> None:
    words = ["decode", "riptide", "--dialect", "2.0", "--transport", "tcp", "--json"]
    row = json.loads(CliRunner().invoke(cli, [*words, "0400000500aa0400000500bb"]).stdout)
    first, (second,) = row["fields"]["message"], row["fields"]["more"]
    first["message_id"] = 6
    second["message"].update(type_id=7, sequence_id=3)
    del second["length"]
    result = CliRunner().invoke(cli, ["encode", "riptide", "-"], input=json.dumps(row))
    assert result.stdout.strip() == "0400000600aa" + "0600" + "0703000500bb"


def test_changed_messages_are_cut_into_chunks_anew() -> None:
    digits = next(row["hex"] for _, row in vectors() if row["name"] == "bin3_login_john")
    words = ["decode", "netplay", "--dialect", "bin3", "--transport", "tcp", "--json", digits]
    row = json.loads(CliRunner().invoke(cli, words).stdout)
    row["fields"]["messages"][0].update(payload_hex="01" * 1500, length=1503)
    result = CliRunner().invoke(cli, ["encode", "netplay", "-"], input=json.dumps(row))
    assert result.stdout.startswith("4005df000000" + "01" * 1018 + "80" + "01")


@pytest.mark.parametrize(
    ("protocol", "fields"),
    [
        ("knet", {"kind": "datagram"}),
        ("knet", {"kind": "connect", "payload": "xy"}),
        (
            "eoudp",
            {
                "command": 1,
                "command_name": "ACK",
                "content_length": 8,
                "content": {"acked_id": "x"},
            },
        ),
        ("netplay", {}),
        ("netplay", {"messages": [{"type": 1 << 20}]}),
        ("netplay", {"messages": 5}),
        ("teeworlds", {"chunks": 5}),
        ("teeworlds", {"token": "3f5a53"}),
        ("teeworlds", {"ack": 1024}),
        ("teeworlds", {"num_chunks": 256, "chunks": []}),
        ("teeworlds", {"chunks": [{"fields": {"message_id": "info"}}]}),
        ("teeworlds", {"message_fields": {"magic_octets": "info"}}),
        ("teeworlds", {"compressed_flag": True, "compressed": 5}),
    ],
)
def test_what_is_no_payload_is_refused(protocol: str, fields: dict[str, Any]) -> None:
    dialect = {
        "knet": "knet-2.x",
        "eoudp": "exodia-late",
        "netplay": "netplay-bin1",
        "teeworlds": "teeworlds-0.7",
    }[protocol]
    row = {"protocol": protocol, "dialect": dialect, "fields": fields}
    result = CliRunner().invoke(cli, ["encode", protocol, "-"], input=json.dumps(row))
    assert result.exit_code == 2
    assert "Traceback" not in result.output
