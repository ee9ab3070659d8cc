from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import islice
from math import inf
from pathlib import Path
from typing import Any

import pytest

from netdissect import lookup
from netdissect.dissect.engine import layer_module
from netdissect.dissect.names import layer_fields
from netdissect.model.errors import UsageError
from netdissect.pipeline.iterate import iter_records

ROOT = Path(__file__).resolve().parents[1]
TABLE = ROOT / "src" / "netdissect" / "data" / "fields.json"

_KINDS = {bool: "bool", int: "int", float: "float", str: "str", bytes: "bytes"}


def vectors(protocol: str) -> list[dict[str, Any]]:
    path = ROOT / "tests" / "vectors" / f"{protocol}.vectors.json"
    return json.loads(path.read_text()) if path.exists() else []


def leaves(value: Any) -> Iterator[tuple[str, str]]:
    """Yield (name, kind) of every field of an object, through objects and lists."""
    if isinstance(value, dict):
        for name, inner in value.items():
            if name == "decoded":
                continue
            if isinstance(inner, (dict, list)):
                yield name, "list" if isinstance(inner, list) else "object"
                yield from leaves(inner)
            elif inner is not None:
                yield (
                    name,
                    next((kind for base, kind in _KINDS.items() if isinstance(inner, base)), "any"),
                )
    elif isinstance(value, list):
        for inner in value:
            yield from leaves(inner)


def expected_table() -> dict[str, dict[str, str]]:
    table: dict[str, dict[str, str]] = {}
    for protocol in lookup.loaded_protocols():
        fields = layer_fields(layer_module(protocol.name))
        names = {name: info.text for name, info in sorted(fields.items())}
        for vector in vectors(protocol.name):
            try:
                dialect = lookup.full_dialect(protocol.name, vector["dialect"])
            except UsageError:
                dialect = None
            tree = lookup.decode_payload(
                protocol.name, bytes.fromhex(vector["hex"]), dialect=dialect
            )
            for name, kind in leaves(tree.fields):
                if names.get(name) in {None, "any"}:
                    names[name] = kind
        table[protocol.name] = dict(sorted(names.items()))
    return table


def test_the_table_of_fields_is_current(update_expected: bool) -> None:
    table = expected_table()
    if update_expected:
        TABLE.write_text(json.dumps(table, indent=1, sort_keys=True) + "\n")
    assert json.loads(TABLE.read_text()) == table


def numbers(value: Any) -> Iterator[tuple[str, int]]:
    """Yield (name, number) of every field of an object that is one."""
    if isinstance(value, dict):
        for name, inner in value.items():
            if isinstance(inner, int):
                yield name, inner
            elif name != "decoded":
                yield from numbers(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from numbers(inner)


@pytest.mark.parametrize("protocol", ["riptide", "teeworlds", "knet", "eoudp", "netplay"])
def test_no_field_holds_more_than_its_range(protocol: str) -> None:
    """Filters refuse other numbers: what a finisher adds under the name of a field counts too."""
    table, seen = lookup.field_table()[protocol], 0
    paths = sorted((ROOT / "captures" / protocol).glob("*.pcap*"), key=lambda path: path.stat().st_size)
    for path in paths[::12]:
        for record in islice(iter_records(path), 100):
            tree = record.dissection
            for name, number in numbers({} if tree is None else tree.fields):
                info = table.get(name)
                assert info is None or info.minimum <= number <= info.maximum, (path.name, name, number)
                seen += info is not None and info.maximum < inf
    assert seen > 20


def test_dialects_are_found_with_and_without_prefix() -> None:
    assert (
        lookup.full_dialect("riptide", "2.1")
        == "riptide-2.1"
        == lookup.full_dialect("riptide", "riptide-2.1")
    )
    with pytest.raises(UsageError, match=r"known: .*riptide-2\.0"):
        lookup.full_dialect("riptide", "9.9")
    with pytest.raises(UsageError, match="riptide"):
        lookup.full_dialect("nosuch", None)


def test_every_finding_has_a_row_and_a_text() -> None:
    for code, row in lookup.catalogue().items():
        assert code == row.code
        assert row.title
        assert len(row.meaning) > 20
        assert code == code.lower()
        assert " " not in code


def test_protocols_state_what_the_contract_names() -> None:
    for info in lookup.protocol_infos():
        assert info.dialects
        assert set(info.transports) <= {"udp", "tcp"}
        assert all(0 < port < 65536 for port in info.default_ports)


def test_a_schema_that_cannot_be_read_is_a_usage_error(tmp_path: Path) -> None:
    with pytest.raises(UsageError):
        lookup.load_schemas((str(tmp_path / "missing.json"),))
    bad = tmp_path / "bad.json"
    bad.write_text("{}")
    with pytest.raises(UsageError, match=r"bad\.json"):
        lookup.load_schemas((str(bad),))
