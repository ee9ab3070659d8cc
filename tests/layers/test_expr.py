from __future__ import annotations

import pytest
from scapy.fields import ByteField
from scapy.packet import Packet

from netdissect.layers.expr import E


class Pair(Packet):
    name = "pair"
    fields_desc = [ByteField("high", 1), ByteField("low", None)]


def test_values_come_from_mappings_and_packets() -> None:
    rule = E("high << 6 | low")
    assert rule({"high": 2, "low": 3}) == 131
    assert rule(Pair(high=2, low=3)) == 131
    assert rule(Pair()) == 64, "an absent field counts as 0"
    assert rule.names == ("high", "low")


def test_translate_renames_every_name() -> None:
    text = E("a + 1 if b else a").translate(*[{"a": "v_a", "b": "v_b"}] * 2)
    assert eval(text, {"v_a": 4, "v_b": 1}) == 5  # noqa: S307


def test_a_field_of_the_items_of_a_list_counts_where_any_has_it() -> None:
    rule = E("odd != items.low")
    assert rule({"odd": 0, "items": [{"low": 0}, {"low": 7}, {}]})
    assert not rule({"odd": 0, "items": [{"low": 0}]})
    assert not rule({"odd": 0, "items": None})
    assert rule({"odd": 0, "items": [Pair(low=1)]})


@pytest.mark.parametrize("text", ["__import__('os')", "a.b.c", "a().b", "[a for a in b]", "lambda: 1", "a[0]"])
def test_nothing_but_arithmetic_is_accepted(text: str) -> None:
    with pytest.raises((SyntaxError, TypeError)):
        E(text)


def test_unknown_names_are_a_fault_of_the_layer() -> None:
    with pytest.raises(NameError):
        E("missing")({"a": 1})
    with pytest.raises(NameError):
        E("missing")(Pair())
