from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scapy.fields import ByteEnumField, ByteField, FlagsField, PacketField, ShortField

from netdissect.dissect.catalogue import Catalogue
from netdissect.dissect.packet_scope import PacketScope
from netdissect.dissect.scope import OUTER
from netdissect.dissect.walker import Walker, node_fields
from netdissect.layers.base import Check, Gen, Layer
from netdissect.layers.expr import E
from netdissect.layers.fields import Items, SizedBytes, Tail, Varint
from netdissect.layers.lsb import LsbBits, LsbPad
from netdissect.model.dissection import FieldNode
from netdissect.wire.varint import KNET_7_8


class Inner(Layer):
    name = "inner"
    is_item = True
    fields_desc = [ByteEnumField("kind", 0, {1: "one"}), ShortField("size", 0)]
    generated = (Gen("total", lambda fields: fields["count"] + fields["size"]),)
    checks = (Check(lambda f: f["kind"] == 9, "trailing-bytes", "kind", "kind {kind} of {count}"),)

    @classmethod
    def message_type(cls, fields):
        return f"Kind{fields['kind']}"


class Outer(Layer):
    name = "outer"
    fields_desc = [
        FlagsField("flags", 0, 8, ["a", "b"]),
        Varint("count", 0, KNET_7_8),
        Items("items", Inner, E("count")),
        PacketField("last", None, Inner),
        Tail("rest"),
    ]


class Forever(Layer):
    name = "forever"
    is_item = True
    fields_desc = [ByteField("depth", 0)]


Forever.fields_desc.append(Items("more", Forever))


class Ruled(Layer):
    name = "ruled"
    fields_desc = [ByteField("a", 0), ByteField("b", 0)]
    concludes_late = True
    generated = (
        Gen("sum", lambda fields: fields["a"] + fields["b"]),
        Gen("made", lambda _fields: MADE.append(1)),
    )
    checks = (
        Check(E("a"), "trailing-bytes", "a", "a is {a}"),
        Check(E("b == 2"), "list-short", "b", "b is {b}"),
    )


MADE: list[int] = []


def walk(layer: type[Layer], data: bytes) -> tuple[Walker, FieldNode, int]:
    walker = Walker(Catalogue())
    around = PacketScope()
    around["_direction"] = None
    node, _scope, used = walker.walk(layer, data, outer=around)
    return walker, node, used


def test_the_tree_has_names_offsets_and_values() -> None:
    walker, node, used = walk(Outer, b"\x02\x02\x01\x00\x05\x09\x00\x06\x03\x00\x07zz")
    assert used == 13
    assert walker.messages[0].type == "Kind1"
    assert [(m.offset, m.length) for m in walker.messages] == [(2, 3), (5, 3), (8, 3)]
    fields = node_fields(node)
    assert fields["flags"] == 2
    assert fields["items"] == [
        {"kind": 1, "size": 5, "total": 7},
        {"kind": 9, "size": 6, "total": 8},
    ]
    assert fields["rest"] == b"zz"
    assert node.children[2].children[0].children[0].display == "one"
    assert [(n.code, n.message, n.bit_offset) for n in walker.annotations] == [
        ("trailing-bytes", "kind 9 of 2", 40)
    ]


def test_a_cut_keeps_what_was_read_and_says_where() -> None:
    walker, node, used = walk(Outer, b"\x00\x01\x01\x00")
    assert used == 4
    assert node_fields(node)["items"] == [{"kind": 1}]
    assert ("truncated", 24) in [(n.code, n.bit_offset) for n in walker.annotations]


class Shown(Layer):
    name = "shown"
    fields_desc = [
        ByteField("size", 0),
        SizedBytes("data", b"", E("size"), shown="hex"),
        Items("more", Inner, optional=True),
    ]


def test_a_cut_value_has_the_name_of_a_whole_one_and_an_empty_list_may_have_none() -> None:
    for octets, found in ((b"\2ab", b"ab"), (b"\2a", b"a")):
        node, _scope, _used = Walker(Catalogue()).walk(Shown, octets)
        assert node_fields(node) == {"size": 2, "hex": found}


def test_a_count_beyond_the_data_is_reported_once() -> None:
    walker, _node, _used = walk(Outer, b"\x00\xff\xff" + b"\x01\x00\x02" * 2)
    assert [note.code for note in walker.annotations if note.code == "list-short"] == ["list-short"]


def test_nesting_is_bounded() -> None:
    walker, _node, _used = walk(Forever, bytes(100_000))
    assert any(note.code == "list-short" for note in walker.annotations)


def test_padding_is_shown_and_judged() -> None:
    class Bits(Layer):
        name = "bits"
        fields_desc = [LsbBits("x", 0, 4), LsbPad()]

    walker, node, _used = walk(Bits, b"\xf1")
    assert node_fields(node) == {"x": 1, "padding": 15}
    assert [note.code for note in walker.annotations] == ["nonzero-padding"]


@given(st.binary(max_size=40))
def test_no_octets_raise_and_offsets_lie_inside(data: bytes) -> None:
    walker, node, used = walk(Outer, data)
    assert 0 <= used <= len(data)
    assert node.bit_length <= 8 * len(data)
    for note in walker.annotations:
        assert 0 <= note.bit_offset <= note.bit_offset + note.bit_length <= 8 * len(data)


def test_a_code_without_a_row_is_our_fault() -> None:
    with pytest.raises(KeyError):
        Walker(Catalogue()).note("no-such-code", "", 0)


@pytest.mark.parametrize(
    ("data", "codes"),
    [
        (b"\0\0", []),
        (b"\0\2", ["list-short"]),
        (b"\1\2", ["trailing-bytes", "list-short"]),
        (b"\1", ["truncated", "trailing-bytes"]),  # the other rule asks for what is cut
        (b"\0", ["truncated"]),
    ],
)
def test_rules_asked_together_find_what_each_finds(data: bytes, codes: list[str]) -> None:
    walker, _node, _used = walk(Ruled, data)
    assert [note.code for note in walker.annotations] == codes


def test_one_concluded_value_is_made_alone() -> None:
    _walker, node, _used = walk(Ruled, b"\0\4")
    MADE.clear()
    assert (node.value_of("sum"), node.value_of("a"), node.value_of("none")) == (4, 0, None)
    assert not MADE
    assert [child.name for child in node.children] == ["a", "b", "sum"]
    assert MADE


def test_scopes_look_outwards() -> None:
    outer = PacketScope()
    outer["a"] = 1
    inner = PacketScope()
    inner[OUTER] = outer
    inner["b"] = 2
    assert (inner["a"], inner.b, inner.getfieldval("a"), "a" in inner) == (1, 2, 1, True)
    with pytest.raises(AttributeError):
        _ = inner.c


def test_a_line_counts_bytes_quotes_texts_and_names_numbers() -> None:
    node = FieldNode("m", None, 0, 0, children=[
        FieldNode("reason", 3, 0, 8, "TimedOut (3)"), FieldNode("nick", "zoe", 8, 32, "7a6f6500"),
        FieldNode("data", b"ab", 40, 16, "6162"), FieldNode("x", 7, 56, 8),
        FieldNode("sum", 1, 0, 0, generated=True),
    ])  # fmt: skip
    assert node.line("bye") == 'bye reason=TimedOut (3) nick="zoe" data=2 B x=7'


def test_deep_trees_are_freed_without_touching_what_lies_beside_them():
    """Deeply nested objects are freed late, by way of headers that compiled nodes do not have."""
    # As large as a node, so that they lie between nodes, and their last bytes before one.
    size = (FieldNode.__basicsize__ + 15) // 16 * 16 - bytes.__basicsize__
    beside = []
    for turn in range(20):
        root = node = FieldNode("root", None, 0, 0)
        for _ in range(400):
            beside.append(bytes([turn + 1]) * size)
            node.children.append(FieldNode("child", None, 0, 0))
            node = node.children[0]
        del root, node
    assert all(octets == octets[:1] * size for octets in beside)
