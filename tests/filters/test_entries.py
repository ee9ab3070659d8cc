"""`any(LIST: ...)`: entries of lists one at a time, and what is shown of them."""

from __future__ import annotations

import csv
import json
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import samples
from netdissect.cli import cli
from netdissect.filters import Names, compile_filter
from netdissect.model.errors import FilterError
from netdissect.model.names import FieldInfo
from netdissect.model.records import MessageRecord

CAPTURE = Path(__file__).resolve().parents[2] / "captures/teeworlds/ddnet_mixed.pcap"
KINDS = {"items": "list", "kind": "str", "id": "int", "x": "int", "tick": "int", "tags": "list"}
NAMES = Names({"tee": {name: FieldInfo(name, kind, "") for name, kind in KINDS.items()}})
ITEMS = [
    {"kind": "player", "id": 0, "x": 5},
    {"kind": "player", "id": 1, "x": 9},
    {"kind": "flag", "id": 0},
]


def record(items: Any = ITEMS) -> Any:
    message = MessageRecord(0, "Snap", 0, 4, {"tick": 12, "items": items}, summary="snapshot")
    tree = samples.dissection(fields={"tick": 12})
    return samples.datagram(protocol="tee", dialect="tee-1", messages=[message], dissection=tree)


@pytest.mark.parametrize(
    ("text", "holds"),
    [
        ("any(items: msg.x == 5 and msg.tick == 12)", True),
        ("any(items: tee.kind == flag and tee.id == 1)", False),
        ("any(items: tee.kind == player and tee.x > 8 and tee.tick == 12)", True),
        ("any(items: tee.x > 8 and tee.id == 0)", False),
        ("all(items: tee.id < 2)", True),
        ("all(items: tee.kind == player)", False),
        ("all(tags: tee.id == 0)", False),
        ("not any(items: tee.id == 7)", True),
        ("any(msg: any(items: tee.id == 1) and tee.tick == 12)", True),
        ("any( items :tee.x == 5)", True),
    ],
)
def test_entries_are_tested_one_at_a_time(text: str, holds: bool) -> None:
    assert compile_filter(text, NAMES).matches(record()) is holds


@pytest.mark.parametrize("items", [None, 5, "text", [], [1, 2], [[1]], {"id": 0}])
def test_what_is_no_list_of_objects_has_no_entries(items: Any) -> None:
    found = compile_filter("any(items: tee.id == 0)", NAMES)
    assert not found.matches(record(items))
    assert found.narrowed(record(items), record(items).messages[0]).fields["items"] in (items, [])


@pytest.mark.parametrize(
    ("text", "ids"),
    [
        ("any(items: tee.x > 1)", [0, 1]),
        ("any(items: tee.x > 8) and tee.tick == 12", [1]),
        ("any(items: tee.x > 8) and any(items: tee.x < 6)", [0, 1]),
        ("any(msg: any(items: tee.x > 8))", [1]),
        ("any(items: tee.x > 8) or tee.tick == 12", None),
        ("not any(items: tee.x > 80)", None),
        ("all(items: tee.id < 2)", None),
    ],
)
def test_only_matching_entries_are_shown(text: str, ids: list[int] | None) -> None:
    whole = record()
    (message,) = whole.messages
    found = compile_filter(text, NAMES)
    assert found.matches(whole)
    shown = found.narrowed(whole, message)
    if ids is None:
        assert shown is message
        return
    assert [entry["id"] for entry in shown.fields["items"]] == ids
    assert message.fields["items"] is ITEMS
    assert shown.summary.startswith("snapshot: kind=player")
    assert shown.fields["tick"] == 12


def test_a_list_that_does_not_exist_is_named() -> None:
    with pytest.raises(FilterError, match='no message has a list "chairs"'):
        compile_filter("any(chairs: tee.id == 0)", NAMES)
    with pytest.raises(FilterError, match='no message has a list "tick"'):
        compile_filter("any(tick: tee.id == 0)", NAMES)


def test_one_item_of_a_game_over_time() -> None:
    text = 'any(items: msg.object == "character" and msg.item_id == 0)'
    words = ["read", str(CAPTURE), "-Y", text, "-c", "40"]
    columns = [
        "-T",
        "csv",
        *(f"-e{name}" for name in ("msg.type", "teeworlds.x", "teeworlds.object")),
    ]
    table = CliRunner().invoke(cli, [*words, *columns])
    rows = list(csv.DictReader(StringIO(table.stdout)))
    assert len(rows) == 40
    assert {row["teeworlds.object"] for row in rows} == {"character"}
    found = CliRunner().invoke(cli, [*words, "--json"]).stdout.splitlines()
    positions = [json.loads(line)["fields"]["items"] for line in found]
    assert [str(entry["x"]) for entries in positions for entry in entries] == [
        row["teeworlds.x"] for row in rows
    ]
    lines = CliRunner().invoke(cli, [*words, "--width", "400"]).stdout.splitlines()
    assert all("object=character" in line for line in lines)
