from __future__ import annotations

import re

import pytest

from netdissect.dissect.catalogue import Catalogue
from netdissect.dissect.engine import catalogue
from netdissect.dissect.readers import __path__ as readers_path
from netdissect.layers import PROTOCOLS


def test_protocol_rows_join_the_common_ones() -> None:
    rows = catalogue("riptide")
    assert "truncated" in rows
    assert "riptide-invalid-type" in rows
    assert all(re.fullmatch(r"[a-z0-9.-]+", code) for code in rows)
    assert all(row.title and row.meaning.endswith((".", ")")) for row in rows.values())


def test_unknown_codes_are_refused() -> None:
    with pytest.raises(KeyError):
        Catalogue()["riptide-invalid-type"]


def test_every_protocol_with_readers_is_known() -> None:
    assert readers_path
    assert "riptide" in PROTOCOLS
