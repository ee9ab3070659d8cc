"""One description, three uses: derived reader == walker == stock Scapy."""

from __future__ import annotations

import re
from importlib import import_module
from pathlib import Path
from typing import Any, ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scapy.fields import (
    BitField,
    ByteField,
    ConditionalField,
    LEIntField,
    LEThreeBytesField,
    ShortField,
    StrFixedLenField,
    StrLenField,
    ThreeBytesField,
    X3BytesField,
)

import netdissect.dissect.readers
from agreement import assert_agree, mutations, payloads
from derived import compile_reader
from netdissect.dissect.derive import module_source
from netdissect.dissect.derive_fields import source
from netdissect.dissect.engine import layer_module
from netdissect.layers.base import Layer
from netdissect.layers.expr import E
from netdissect.layers.fields import IfLeft, NulString, SizedBytes, Tail, Varint
from netdissect.model.native import ABSENT
from netdissect.wire.varint import KNET_15_16, TEEWORLDS

READERS = Path(netdissect.dissect.readers.__file__).parent
PROTOCOLS = sorted(path.stem for path in READERS.glob("*.py") if path.stem != "__init__")


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_the_shipped_readers_are_those_of_the_layers(protocol: str) -> None:
    shipped = (READERS / f"{protocol}.py").read_text(encoding="utf-8")
    assert shipped == module_source(protocol), "run python -m netdissect.dissect.derive"


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_every_shipped_reader_has_a_caller(protocol: str) -> None:
    shipped = (READERS / f"{protocol}.py").read_text(encoding="utf-8")
    text = shipped + "".join(
        file.read_text(encoding="utf-8")
        for file in READERS.parents[1].rglob("*.py")
        if READERS not in file.parents
    )
    names = set(re.findall(r"^(?:def )?(read_[A-Z]\w+)", shipped, re.MULTILINE))
    if protocol == "riptide":  # called by name, through a table
        tables = import_module("netdissect.protocols.riptide.strict")._READERS.values()
        readers = import_module("netdissect.dissect.readers.riptide")
        called = {reader for table in tables for _, reader in table}
        names = {name for name in names if getattr(readers, name) not in called}
    assert not [name for name in names if len(re.findall(rf"\b{name}\b", text)) == 1]


class Everything(Layer):
    name = "everything"
    fields_desc = [
        BitField("flags", 0, 4),
        BitField("ack", 0, 12),
        ByteField("kind", 0),
        ShortField("big", 0),
        LEIntField("little", 0),
        ConditionalField(ByteField("extra", 0), E("flags & 1")),
        ConditionalField(Varint("number", 0, TEEWORLDS), E("flags & 2")),
        Varint("base", 0, KNET_15_16),
        SizedBytes("body", b"", E("kind & 3")),
        NulString("text"),
        IfLeft(ShortField("late", None), 16),
        Tail("rest"),
    ]


EVERYTHING = compile_reader(Everything)


@given(st.binary(max_size=60))
def test_a_layer_with_every_kind_of_field(data: bytes) -> None:
    assert_agree("riptide", Everything, EVERYTHING, data)


@given(st.integers(0, 15), st.binary(min_size=20, max_size=40))
def test_the_same_where_most_inputs_are_whole(flags: int, data: bytes) -> None:
    assert_agree("riptide", Everything, EVERYTHING, bytes([flags << 4]) + data + b"\0")


def test_skipped_fields_are_passed_over() -> None:
    reader = compile_reader(Everything, ("body", "rest"))
    full, short = b"\0\0\2\0\1\1\0\0\0\0\0hi\0", None
    values = reader(full, 0, len(full))
    assert values is not None
    assert b"hi" not in values
    assert reader(full, 0, 5) is short


def test_rules_that_cannot_be_read_are_refused() -> None:
    class Opaque(Layer):
        name = "opaque"
        fields_desc = [ConditionalField(ByteField("x", 0), lambda _packet: True)]

    with pytest.raises(TypeError, match="no E expression"):
        compile_reader(Opaque)

    class Odd(Layer):
        name = "odd"
        fields_desc = [SizedBytes("octets", b"", E("nowhere"))]

    with pytest.raises(TypeError, match="unknown field"):
        compile_reader(Odd)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_readers_of_words_read_the_same(protocol: str) -> None:
    """Of whole messages, and of each of them cut short."""
    readers = import_module(f"netdissect.dissect.readers.{protocol}")
    for layer in getattr(layer_module(protocol), "WORDS", ()):
        word = getattr(readers, f"word_{layer.__name__}")
        whole = getattr(readers, f"read_{layer.__name__}")
        for data in payloads(protocol)[:400]:
            for size in range(min(len(data), 12) + 1):
                read, expected = word(data[:size], 0, size), whole(data[:size], 0, size)
                if expected is None:
                    assert read[-1] == -1
                else:
                    assert read == tuple(ABSENT if v is None else v for v in expected)


def _riptide_layers(data: bytes) -> list[tuple[type[Layer], tuple[str, ...]]]:
    module = layer_module("riptide")
    rows = dict(module.READERS)
    kinds = {
        module.message_layer(data, d) for d in ("riptide-2.0", "riptide-2.1dev", "riptide-2.2")
    }
    return [(kind, rows[kind]) for kind in kinds if kind in rows]


def test_riptide_agrees_on_every_captured_datagram() -> None:
    readers = import_module("netdissect.dissect.readers.riptide")
    read = 0
    for data in payloads("riptide"):
        for layer, skip in _riptide_layers(data):
            read += assert_agree(
                "riptide", layer, getattr(readers, f"read_{layer.__name__}"), data, skip
            )
    assert read > 10_000


@pytest.mark.parametrize(
    "count", [6_000, pytest.param(1_000_000, marks=pytest.mark.slow)], ids=["ci", "soak"]
)
def test_riptide_agrees_on_mutated_datagrams(count: int) -> None:
    readers = import_module("netdissect.dissect.readers.riptide")
    for data in mutations(payloads("riptide"), count):
        for layer, skip in _riptide_layers(data):
            assert_agree("riptide", layer, getattr(readers, f"read_{layer.__name__}"), data, skip)


class Threes(Layer):
    fields_desc: ClassVar[list[Any]] = [
        ThreeBytesField("big", 0), LEThreeBytesField("little", 0), X3BytesField("shown", 0),
        StrFixedLenField("octets", b"abc", 3), ByteField("last", 0),
    ]  # fmt: skip


@pytest.mark.parametrize("size", range(15))
def test_numbers_of_three_octets_and_fixed_octets(size: int) -> None:
    octets = bytes(range(1, 15))[:size]
    values = compile_reader(Threes)(octets, 0, size)
    packet = Threes(octets)
    assert (values is None) == (packet.fault is not None or not octets)
    if values is not None:
        assert values == (0x010203, 0x060504, 0x070809, b"\x0a\x0b\x0c", 13, 13)
        assert [packet.getfieldval(field.name) for field in Threes.fields_desc] == [*values[:-1]]


def test_a_field_that_no_reader_can_read_is_named() -> None:
    class Odd(Layer):
        fields_desc: ClassVar[list[Any]] = [StrLenField("odd", b"", length_from=lambda _: 1)]

    with pytest.raises(TypeError, match=r"Odd\.odd: no reader can be derived for StrLenField"):
        source(Odd)
