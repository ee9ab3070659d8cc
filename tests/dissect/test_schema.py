from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from netdissect.dissect.schema import (
    NODE_LIMIT,
    Decoder,
    Schema,
    SchemaError,
    SchemaMismatch,
    encode,
    load_schema,
    parse_schema,
)
from netdissect.dissect.schema_types import check_types
from netdissect.dissect.walker import node_value
from netdissect.layers.eoudp.values import COMPONENT_VALUES
from netdissect.layers.riptide.values import BIT_VALUES, BYTE_VALUES
from netdissect.wire.cursor import Cursor

EXAMPLE = {
    "format": "netdissect-schema/1",
    "protocol": "riptide",
    "enums": {"Weapon": {"type": "byte", "0": "Sword", "1": "Bow"}},
    "objects": {"Vec": [["x", "float"], ["y", "float"]], "Tree": [["kids", "Tree[]"]]},
    "messages": {
        "1001": {
            "name": "PlayerMove",
            "direction": "c2s",
            "fields": [
                ["counter", "uint"], ["weapon", "Weapon"], ["pos", "Vec"], ["path", "Vec[]"],
                ["raw", "byte[3]"], ["flags", "bools"], ["grid", "short[][2]"], ["name", "string"],
                ["rest", "bytes"],
            ],
        },
        "7": {"name": "Forest", "fields": [["trees", "Tree[]"]]},
    },
}  # fmt: skip
VALUES = {
    "counter": 4000000000, "weapon": 1, "pos": {"x": 1.5, "y": -2.0},
    "path": [{"x": 0.0, "y": 1.0}, {"x": 2.0, "y": 3.0}], "raw": b"abc",
    "flags": [True, False, True], "grid": [[1, -2], [3, 4]], "name": "héllo", "rest": b"\x00\x01",
}  # fmt: skip


@pytest.fixture
def schema() -> Schema:
    return parse_schema(EXAMPLE)


@pytest.mark.parametrize("values", [BYTE_VALUES, BIT_VALUES], ids=["octets", "bits"])
def test_what_is_encoded_is_decoded(schema: Schema, values) -> None:
    message = schema.message("PlayerMove")
    assert message is schema.message(1001)
    octets = encode(schema, values, message.fields, VALUES).getvalue()
    cursor = Cursor(octets, 0, octets.bits)
    nodes = Decoder(schema, values).fields(message.fields, cursor)
    assert {node.name: node_value(node) for node in nodes} == VALUES
    assert cursor.left == 0
    assert nodes[1].display == "Bow (1)"


@pytest.mark.parametrize("values", [BYTE_VALUES, BIT_VALUES], ids=["octets", "bits"])
def test_every_cut_names_the_field_and_keeps_the_ones_before(schema: Schema, values) -> None:
    message = schema.message(1001)
    octets = encode(schema, values, message.fields, VALUES).getvalue()
    for bits in range(octets.bits):
        with pytest.raises(SchemaMismatch) as caught:
            Decoder(schema, values).fields(message.fields, Cursor(octets, 0, bits))
        assert caught.value.position <= bits
        names = [node.name for node in caught.value.nodes]
        assert names == [field.name for field in message.fields][: len(names)]


@given(st.binary(max_size=60))
def test_hostile_payloads_stay_within_bounds(data: bytes) -> None:
    schema = parse_schema(EXAMPLE)
    for values in (BYTE_VALUES, BIT_VALUES):
        for message in ("7", "1001"):
            cursor = Cursor(data)
            try:
                Decoder(schema, values).fields(schema.messages[message].fields, cursor)
            except SchemaMismatch as fault:
                assert 0 <= fault.position <= 8 * len(data)


def test_a_self_referring_object_is_bounded(schema: Schema) -> None:
    with pytest.raises(SchemaMismatch, match="nested"):
        Decoder(schema, BYTE_VALUES).fields(schema.messages["7"].fields, Cursor(b"\x01" * 5000))


def test_a_count_bomb_allocates_nothing(schema: Schema) -> None:
    bomb = b"\xff\xff\xff\xff\x7f" * 3
    with pytest.raises(SchemaMismatch):
        Decoder(schema, BIT_VALUES).fields(schema.messages["7"].fields, Cursor(bomb))


@pytest.mark.parametrize("values", [BYTE_VALUES, BIT_VALUES], ids=["octets", "bits"])
def test_values_that_take_no_bits_are_bounded(values, monkeypatch: pytest.MonkeyPatch) -> None:
    assert NODE_LIMIT == 100_000
    monkeypatch.setattr("netdissect.dissect.schema.NODE_LIMIT", 100)
    fields = [["x", "Nothing[]"]]
    schema = parse_schema(
        {"protocol": "riptide", "objects": {"Nothing": []}, "messages": {"1": {"fields": fields}}}
    )
    decode = Decoder(schema, values).fields
    (array,) = decode(schema.messages["1"].fields, Cursor(b"\x32"))
    assert len(array.children) == 50
    with pytest.raises(SchemaMismatch, match="too many"):
        decode(schema.messages["1"].fields, Cursor(b"\xff\x3f"))


@pytest.mark.parametrize(
    ("data", "place"),
    [
        ([], "not a schema"),
        ({"format": "other"}, "not a schema"),
        ({"messages": []}, "messages must be"),
        ({"messages": {"1": 5}}, "messages.1"),
        ({"messages": {"1": {"fields": 5}}}, "fields must be a list"),
        ({"messages": {"1": {"fields": [["a"]]}}}, r"fields\[0\]"),
        ({"messages": {"1": {"fields": [["a", "in t"]]}}}, "is not a type"),
        ({"enums": {"E": {"x": "y"}}}, "enums.E"),
    ],
)
def test_a_wrong_schema_names_its_fault(data, place: str) -> None:
    with pytest.raises(SchemaError, match=place):
        parse_schema(data)


def test_files(tmp_path: Path) -> None:
    path = tmp_path / "s.json"
    path.write_text(json.dumps(EXAMPLE))
    assert load_schema(path).messages.keys() == parse_schema(EXAMPLE).messages.keys()
    toml = tmp_path / "s.toml"
    toml.write_text('[messages.5]\nname = "M"\nfields = [["a", "bits(3)"], ["b", "bits", 4]]\n')
    fields = load_schema(toml).message("M").fields
    assert [field.type.size for field in fields] == [3, 4]
    for text in ("{", "[" * 100_000):
        path.write_text(text)
        with pytest.raises(SchemaError):
            load_schema(path)
    with pytest.raises(SchemaError, match="No such file"):
        load_schema(tmp_path / "missing")
    path.write_bytes(b"\xff")
    with pytest.raises(SchemaError, match="UTF-8"):
        load_schema(path)


@pytest.mark.parametrize("kind", [None, "int", "byte"])
def test_an_enum_may_travel_as_an_alias(kind: str | None) -> None:
    row = {"1": "left", **({} if kind is None else {"type": kind})}
    data = {"enums": {"Side": row}, "messages": {"X": {"fields": [["side", "Side"]]}}}
    found = parse_schema(data)
    check_types(found, [COMPONENT_VALUES])
    fields = found.message("X").fields
    octets = encode(found, COMPONENT_VALUES, fields, {"side": 1}).getvalue()
    assert octets == (b"\1" if kind == "byte" else b"\1\0\0\0")
    (node,) = Decoder(found, COMPONENT_VALUES).fields(fields, Cursor(octets, 0, 8 * len(octets)))
    assert (node.value, node.display) == (1, "left (1)")
    with pytest.raises(SchemaError, match="'float' is not an integer type"):
        check_types(
            parse_schema({"enums": {"Side": {"type": "float"}}, "messages": {}}), [COMPONENT_VALUES]
        )
