from __future__ import annotations

import pytest

from netdissect.dissect.engine import layer_module
from netdissect.model.annotations import code_rows
from netdissect.model.errors import UsageError
from netdissect.protocols import registry
from netdissect.protocols.base import Protocol


@pytest.mark.parametrize("name", registry.names())
def test_each_protocol_is_whole(name) -> None:
    protocol = registry.get(name)
    assert isinstance(protocol, Protocol)
    assert protocol.name == name
    assert protocol.title
    assert set(protocol.transports) <= {"udp", "tcp"}
    assert protocol.dialects
    for row in protocol.dialects:
        assert protocol.dialect_row(row.name) is row
        assert protocol.dialect_row(row.name.removeprefix(f"{name}-")) is not None
        assert protocol.policy(row.name).dialect
    codes = [row.code for row in protocol.codes]
    assert len(codes) == len(set(codes))


@pytest.mark.parametrize("name", registry.names())
def test_scan_and_walker_raise_codes_of_the_same_rows(name) -> None:
    protocol = registry.get(name)
    scanned = {row.code: row for row in (*code_rows("common"), *protocol.codes)}
    walked = {row.code: row for row in layer_module(protocol.layer_module or name).CODES}
    assert walked
    assert all(row is scanned.get(code, row) for code, row in walked.items())


def test_some_can_be_left_out() -> None:
    left = registry.protocols(without=("riptide",))
    assert "riptide" not in [protocol.name for protocol in left]
    assert len(left) == len(registry.names()) - 1


def test_unknown_names_are_the_users_fault() -> None:
    with pytest.raises(UsageError, match="no protocol is called 'ripptide'; did you mean 'riptide'"):
        registry.get("ripptide")
