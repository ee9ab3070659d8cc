"""Lists whose items are of several layers: read alike by Scapy and by the walker."""

from __future__ import annotations

from typing import Any, ClassVar

import pytest
from scapy.fields import BitEnumField, BitField, ByteField, ShortField

from derived import compile_reader
from netdissect.dissect.catalogue import Catalogue
from netdissect.dissect.derive_fields import source
from netdissect.dissect.walker import Walker
from netdissect.layers.base import Layer
from netdissect.layers.fields import Items


class Small(Layer):
    is_item = True
    fields_desc: ClassVar[list[Any]] = [
        BitField("high", 0, 4), BitEnumField("low", 1, 4, {1: "one"}),
    ]  # fmt: skip


class Large(Small):
    fields_desc: ClassVar[list[Any]] = [ByteField("kind", 2), ShortField("value", 7)]


def choose(_fields: Any, octets: bytes) -> type[Layer]:
    return Large if octets[0] == 2 else Small


class Mixed(Layer):
    fields_desc: ClassVar[list[Any]] = [Items("items", Small, choose=choose)]


def test_each_item_has_the_layer_that_its_octets_name() -> None:
    octets = b"\x02\x01\x02\x31\x02\x00\x09"
    packet = Mixed(octets)
    assert [type(item) for item in packet.items] == [Large, Small, Large]
    packet.clear_cache()
    assert bytes(packet) == octets
    node, _scope, used = Walker(Catalogue()).walk(Mixed, octets)
    assert used == len(octets)
    items = node.children[0].children
    assert [[child.value for child in item.children] for item in items] == [[2, 258], [3, 1], [2, 9]]


def test_their_reader_is_made_by_hand() -> None:
    assert compile_reader(Small)(b"\x31", 0, 1) == (3, 1, 1)
    with pytest.raises(TypeError, match="several layers"):
        source(Mixed)
