"""What `decode --json` prints, built again: every vector, and the datagrams of the captures."""

from __future__ import annotations

import json
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from agreement import captures
from netdissect.cli import cli
from netdissect.export import json as shapes
from netdissect.fuzz.rebuild import PROTOCOLS, rebuild
from netdissect.lookup import decode_payload
from netdissect.model.annotations import Severity
from netdissect.model.dissection import Dissection
from netdissect.model.errors import UsageError
from netdissect.pipeline.records import iter_records

VECTORS = Path(__file__).parents[1] / "vectors"
CUT = {
    "malformed_one_byte_datagram", "malformed_two_byte_datagram",
    "malformed_header_only_reliable_without_base", "malformed_one_byte_message_header",
}  # fmt: skip
"""Vectors of kNet that end inside a field: no fields give them back."""
LONGER = {"odd_overlong_message_id", "odd_overlong_reliable_base"}
"""Vectors of kNet with numbers in more octets than needed: the value is built in the fewest."""
PER_CAPTURE = 40


def vectors() -> list[tuple[str, dict[str, Any]]]:
    found = []
    for protocol in PROTOCOLS:
        rows = json.loads((VECTORS / f"{protocol}.vectors.json").read_text("utf-8"))
        found += [
            (protocol, row)
            for row in rows
            if row["dialect"] and (row["fields"] or {}).get("kind") != "vle"
        ]
    return found


def printed(tree: Dissection) -> dict[str, Any]:
    row: dict[str, Any] = json.loads(shapes.dump(shapes.decoded(tree)))
    return row


def decoded(protocol: str, vector: dict[str, Any]) -> dict[str, Any]:
    stream = protocol == "netplay" or vector["name"].startswith("tcp_")
    tree = decode_payload(
        protocol,
        bytes.fromhex(vector["hex"]),
        dialect=vector["dialect"],
        direction={"c2s": 0, "s2c": 1}.get(vector["direction"]),
        transport="tcp" if stream else "udp",
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
        assert octets.startswith(bytes.fromhex(vector["hex"]))
        return
    octets = rebuild(protocol, row["dialect"], row["transport"], row["fields"])
    if vector["name"] in LONGER:
        assert len(octets) < len(vector["hex"]) // 2
    else:
        assert octets.hex() == vector["hex"]


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_captured_payloads_come_back(protocol: str) -> None:
    built = 0
    for path in captures(protocol):
        for record in islice(iter_records(path), PER_CAPTURE):
            tree = record.dissection
            whole = tree is not None and record.protocol == protocol and not record.faults
            if not whole or (protocol == "knet" and record.transport == "tcp"):
                continue
            bad = any(note.severity is Severity.ERROR for note in tree.annotations)
            if bad or (tree.annotations and record.dialect == "netplay-text"):
                continue  # cut, dropped by its size, or not UTF-8
            row = printed(tree)
            octets = rebuild(protocol, record.dialect, record.transport, row["fields"])
            assert octets == record.payload, (path.name, record.frame)
            built += 1
    assert built > 1000


def test_changed_values_are_built() -> None:
    words = ["decode", "knet", "--dialect", "2.x", "--direction", "s2c", "--json", "81000002200101"]
    line = CliRunner().invoke(cli, words).stdout
    row = json.loads(line)
    row["fields"]["packet_id_high"] = 2
    row["fields"]["messages"][0]["payload"] = "07"
    result = CliRunner().invoke(cli, ["encode", "knet", "-"], input=json.dumps(row))
    assert result.stdout.strip() == "81020002200107"


@pytest.mark.parametrize(
    ("protocol", "fields"),
    [
        ("knet", {"kind": "datagram"}),
        ("knet", {"kind": "connect", "payload": "xy"}),
        ("eoudp", {"command": 1}),
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
    ],
)
def test_what_is_no_payload_is_refused(protocol: str, fields: dict[str, Any]) -> None:
    dialect = {"knet": "knet-2.x", "eoudp": "exodia-late", "netplay": "netplay-bin1"}[protocol]
    row = {"protocol": protocol, "dialect": dialect, "fields": fields}
    result = CliRunner().invoke(cli, ["encode", protocol, "-"], input=json.dumps(row))
    assert result.exit_code == 2
    assert "Traceback" not in result.output
