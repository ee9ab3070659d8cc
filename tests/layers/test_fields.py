from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scapy.fields import BitField, ByteField, ConditionalField, LEShortField
from scapy.packet import fuzz

from netdissect.dissect.catalogue import Catalogue
from netdissect.dissect.walker import Walker
from netdissect.layers.base import Layer
from netdissect.layers.expr import E
from netdissect.layers.fields import (
    FieldFault,
    Flag,
    IfLeft,
    Items,
    NulString,
    SizedBytes,
    SizedText,
    Tail,
    Varint,
)
from netdissect.layers.lsb import LsbBits, LsbPad, LsbTail, LsbVarULong
from netdissect.wire.bits import BitString
from netdissect.wire.varint import KNET_7_8


class Bits(Layer):
    name = "bits"
    fields_desc = [
        LsbBits("kind", 1, 4, {1: "one"}),
        LsbBits("delta", -1, 11, signed=True),
        LsbVarULong("number", 0, 16),
        LsbPad(),
    ]


class TailBits(Layer):
    name = "tail"
    fields_desc = [LsbBits("kind", 1, 4), LsbTail("data")]


class Item(Layer):
    name = "item"
    is_item = True
    fields_desc = [ByteField("size", 0), SizedBytes("body", b"", E("size"))]


class Holder(Layer):
    name = "holder"
    fields_desc = [
        Varint("count", 0, KNET_7_8),
        Items("items", Item, E("count")),
        NulString("text"),
        IfLeft(LEShortField("extra", None), 16),
        Tail("rest"),
    ]


@given(st.integers(0, 15), st.integers(-1024, 1023), st.integers(0, 65535))
def test_lsb_fields_round_trip(kind: int, delta: int, number: int) -> None:
    octets = bytes(Bits(kind=kind, delta=delta, number=number))
    back = Bits(octets)
    assert (back.kind, back.delta, back.number) == (kind, delta, number)
    assert bytes(back) == octets
    back.clear_cache()
    assert bytes(back) == octets


@given(st.binary(min_size=1, max_size=20))
def test_any_octets_build_back_to_themselves(data: bytes) -> None:
    for layer in (Bits, TailBits, Item, Holder):
        assert bytes(layer(data)) == data


@given(st.binary(min_size=1, max_size=20))
def test_a_bit_tail_keeps_its_exact_length(data: bytes) -> None:
    packet = TailBits(data)
    assert isinstance(packet.data, BitString)
    packet.clear_cache()
    assert bytes(packet) == data


def test_names_are_accepted_for_numbers() -> None:
    assert Bits(kind="one").kind == 1
    with pytest.raises(ValueError, match="is none of"):
        Bits(kind="nine")


def test_a_list_with_optional_and_rest() -> None:
    packet = Holder(b"\x02\x01a\x02bchi\0\x05\x00zz")
    assert [item.body for item in packet.items] == [b"a", b"bc"]
    assert (packet.text, packet.extra, packet.rest) == (b"hi", 5, b"zz")
    assert Holder(b"\x00hi\0\x05").extra is None


def test_a_failing_field_keeps_the_ones_before_it() -> None:
    packet = Holder(b"\x00no terminator")
    assert packet.count == 0
    assert packet.fault is not None
    assert packet.fault.code == "unterminated-string"
    assert bytes(packet) == b"\x00no terminator"


@pytest.mark.parametrize(
    ("field", "data", "code"),
    [
        (LsbBits("x", 0, 12), b"\x01", "truncated"),
        (LsbVarULong("x", 0), b"\xff" * 3, "truncated"),
        (LsbVarULong("x", 0), b"\xff" * 12, "overlong-varint"),
        (Varint("x", 0, KNET_7_8), b"\x80", "truncated"),
        (SizedBytes("x", b"", lambda _p: 5), b"abc", "length-beyond-end"),
        (SizedBytes("x", b"", lambda _p: -1), b"abc", "length-beyond-end"),
        (NulString("x"), b"abc", "unterminated-string"),
    ],
)
def test_faults_carry_a_code(field: Any, data: bytes, code: str) -> None:
    with pytest.raises(FieldFault) as caught:
        field.getfield(None, data)
    assert caught.value.code == code


class Named(Layer):
    name = "named"
    fields_desc = [
        Flag("loud"),
        BitField("rest", 0, 7),
        Varint("size", None, KNET_7_8, length_of="data"),
        SizedBytes("data", b"", E("size")),
        NulString("nick", b"me"),
        ByteField("title_size", 0),
        SizedText("title", b"", E("title_size")),
    ]


def test_a_length_of_variable_size_is_that_of_its_field() -> None:
    assert bytes(Named(data=b"abc")) == b"\x00\x03abcme\0\0"
    assert bytes(Named(data=b"x" * 200))[1:3] == b"\xc8\x01"
    assert bytes(Named(data=b"abc", size=7))[1] == 7


class Either(Layer):
    name = "either"
    fields_desc = [
        ByteField("is_part", 0),
        Varint("size", None, KNET_7_8, length_of=("words", "part")),
        ConditionalField(SizedText("words", "", E("size")), E("not is_part")),
        ConditionalField(SizedBytes("part", b"", E("size")), E("is_part")),
    ]


def test_a_length_is_that_of_whichever_field_is_present() -> None:
    assert bytes(Either(words="abc")) == b"\x00\x03abc"
    assert bytes(Either(is_part=1, part=b"ab")) == b"\x01\x02ab"


def test_texts_and_flags_are_shown_as_such() -> None:
    octets = bytes(Named(loud=1, nick="J\xf6rg", title_size=3, title="\u20ac"))
    node, _scope, _used = Walker(Catalogue()).walk(Named, octets)
    assert {child.name: child.value for child in node.children} == {
        "loud": True, "rest": 0, "size": 0, "data": b"", "nick": "J\xf6rg",
        "title_size": 3, "title": "\u20ac",
    }  # fmt: skip


def test_overlong_varints_are_found() -> None:
    field = Varint("x", 0, KNET_7_8)
    assert field.findings(5, b"\x85\x00")[0][0] == "overlong-varint"
    assert field.findings(5, b"\x05") == []


@pytest.mark.parametrize("layer", [Bits, TailBits, Item])
def test_fuzz_builds_what_the_layer_reads(layer: type[Layer]) -> None:
    for _ in range(200):
        octets = bytes(fuzz(layer()))
        assert bytes(layer(octets)) == octets
