from __future__ import annotations

import pytest

from netdissect.dissect import dissect
from netdissect.dissect.engine import Request, layer_module


def test_a_bug_of_a_layer_is_reported_not_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_args: object) -> None:
        raise RuntimeError("boom")

    monkeypatch.setattr(layer_module("riptide"), "root", broken)
    out = dissect("riptide", b"\x02", Request("riptide-2.2"))
    assert [note.code for note in out.annotations] == ["dissector-bug"]
    assert "boom" in out.annotations[0].message
    with pytest.raises(RuntimeError):
        dissect("riptide", b"\x02", Request("riptide-2.2"), strict=True)


def test_a_plug_in_names_its_own_module() -> None:
    out = dissect("mine", b"\x02", Request("riptide-2.2"), module="netdissect.layers.riptide")
    assert (out.protocol, out.fields["type"]) == ("mine", "Connect")


def test_octets_after_the_end_are_shown() -> None:
    out = dissect("riptide", bytes.fromhex("1800100000aabb"), Request("riptide-2.2"))
    assert out.fields["trailing"] == b"\xaa\xbb"
    assert [note.code for note in out.annotations] == ["trailing-bytes"]
    assert out.messages[0].type == "Welcome"
