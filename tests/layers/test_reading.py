"""Packets read from bytes: as Scapy itself reads them, and built anew once a value has changed."""

from __future__ import annotations

import itertools
import random
from importlib import import_module
from typing import Any

import pytest
from scapy.fields import BitField, ByteField, ConditionalField, Field, LEShortField
from scapy.packet import Raw

from agreement import captures, mutations, payloads
from netdissect.craft.layers import exported_layers
from netdissect.dissect.choice import reading_layer
from netdissect.layers import PROTOCOLS, knet, riptide, teeworlds
from netdissect.layers.base import Layer
from netdissect.layers.expr import E
from netdissect.layers.fields import READ_FAULTS, FieldFault, Items, Varint
from netdissect.pipeline.iterate import iter_records
from netdissect.wire.varint import TEEWORLDS


def one_by_one(layer: Any, octets: bytes) -> tuple[dict[str, Any], Any]:
    """Return the fields that a loop over them reads, as in Scapy, and the fault."""
    packet, state = layer(), octets
    packet.fields = {}
    for field in layer.fields_desc:
        try:
            state, value = field.getfield(packet, state)
        except READ_FAULTS as fault:
            known = FieldFault.detached(fault)
            return packet.fields, (known.code, str(known))
        if value is not None or not isinstance(field, ConditionalField):
            packet.fields[field.name] = value
    return packet.fields, None


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_fields_are_read_as_one_after_the_other(protocol: str) -> None:
    chance = random.Random(protocol)
    for layer in exported_layers(protocol).values():
        whole = bytes(layer())
        cut = [whole[:size] for size in range(1, min(len(whole), 24))]
        for octets in (whole, *cut, bytes(range(60)), *(chance.randbytes(40) for _ in range(4))):
            if not octets or "dispatch_hook" in vars(layer):
                continue
            packet = layer(octets)
            fault = packet.fault and (packet.fault.code, str(packet.fault))
            expected = one_by_one(layer, octets)
            # A NaN equals nothing.
            assert (repr(packet.fields), fault) == (repr(expected[0]), expected[1]), layer


def test_numbers_of_all_sizes_stand_beside_bits() -> None:
    class Mixed(Layer):
        fields_desc = [
            BitField("a", 0, 3), BitField("b", 0, 13), LEShortField("c", 0), ByteField("d", 0),
            BitField("e", 0, 8), Field("f", 0, "<I"),
        ]  # fmt: skip

    class Optional(Layer):
        fields_desc = [
            BitField("flag", 0, 1), BitField("more", 0, 7),
            ConditionalField(BitField("wide", 0, 12), E("flag")),
            ConditionalField(BitField("thin", 0, 4), E("flag and more is not None")),
            ConditionalField(LEShortField("number", 0), E("more > 1")),
        ]  # fmt: skip

    for layer, size in itertools.product((Mixed, Optional), range(1, 14)):
        for seed in range(20):
            octets = random.Random(seed).randbytes(size)
            packet = layer(octets)
            assert packet.fields == one_by_one(layer, octets)[0]
    assert Optional(b"\x82\x12\x34\x01\x02").fields == {
        "flag": 1, "more": 2, "wide": 0x123, "thin": 4, "number": 0x201,
    }  # fmt: skip


def test_a_packet_begins_as_one_that_scapy_makes() -> None:
    """Bytes in a bytearray take Scapy's own constructor."""
    parent = Raw(b"a")
    for layer in (teeworlds.Tw07, knet.KnetDatagram, riptide.RiptideReliable, teeworlds.Tw07SysInput):
        octets = bytes(layer())
        given = {"_parent": parent, "_underlayer": parent, "_internal": 1}
        fast, usual = layer(octets, **given), layer(bytearray(octets), **given)
        for name in sorted(layer.__all_slots__ - {"raw_packet_cache_fields", "time"}):
            assert getattr(fast, name, "unset") == getattr(usual, name, "unset"), name
        other = layer(octets)
        assert other.time > 0
        for name in ("fields", "overloaded_fields", "post_transforms"):
            assert getattr(other, name) is not getattr(fast, name)


PING = knet.KnetMessage(content=knet.KnetPingRequest(ping_id=1))
INPUT = teeworlds.Tw07Chunk(vital=1, body=teeworlds.Tw07SysInput(input=[1] * 10))
DEEP = [
    (knet.KnetDatagram(messages=[PING]), lambda packet: packet.messages[0].content, "ping_id"),
    (riptide.RiptideFrame(data=riptide.RiptideHeartbeat()), lambda packet: packet.data, "ping_id"),
    (
        teeworlds.Tw07(compressed_flag=0) / teeworlds.Tw07Chunks(chunks=[INPUT]),
        lambda packet: packet.chunks[0].body, "ack_game_tick",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("built", "inner", "name"), DEEP, ids=lambda each: type(each).__name__)
def test_a_value_changed_deep_inside_is_built(built: Any, inner: Any, name: str) -> None:
    packet = type(built)(bytes(built))
    kept = packet.copy()
    setattr(inner(packet), name, 33)
    setattr(inner(built), name, 33)
    assert bytes(packet) == bytes(packet.copy()) == bytes(built) != bytes(kept)


def test_a_number_changed_in_a_list_is_built() -> None:
    packet = teeworlds.Tw07Chunk(bytes(INPUT))
    packet.body.input[-1] = 13
    assert bytes(packet) == bytes(INPUT)[:-2] + b"\x0d\x00"


def test_a_list_that_was_changed_is_built() -> None:
    packet = knet.KnetDatagram(bytes(knet.KnetDatagram(messages=[PING, PING])))
    copied = packet.copy()
    assert copied.messages[0] is not packet.messages[0]
    packet.messages.append(PING.copy())
    assert bytes(packet) == bytes(copied) + bytes(PING)
    del copied.messages[0]
    assert bytes(copied)[-4:] == bytes(PING)
    copied.messages[0] = copied.messages[0] / Raw(b"more")
    assert bytes(copied).endswith(b"more")


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_no_copy_and_no_view_changes_the_bytes(protocol: str) -> None:
    """Neither `copy` nor `hide_defaults` nor `show2` may make an unusual encoding a usual one."""
    dialects = import_module(f"netdissect.layers.{protocol}").DIALECTS
    pool = payloads(protocol)
    for octets in mutations(pool, 150) if pool else ():
        for dialect in dialects if octets else ():
            packet = reading_layer(protocol, octets, dialect, "udp", None)(octets)
            clone = packet.copy()
            packet.hide_defaults()
            packet.show2(dump=True)
            assert bytes(packet) == bytes(clone) == octets


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_captured_bytes_are_built_from_their_fields(protocol: str) -> None:
    """All of them, when this was written: a sample here."""
    for path in captures(protocol):
        whole = "malformed" in path.name
        for record in itertools.islice(iter_records(str(path)), 0, None if whole else 120, 1 if whole else 4):
            if record.protocol == protocol and record.dialect and record.payload:
                asked = (record.payload, record.dialect, record.transport, record.direction)
                packet = reading_layer(protocol, *asked)(record.payload)
                packet.clear_cache()
                assert bytes(packet) == record.payload, (path.name, record.frame)


def test_an_overlong_number_keeps_its_bytes() -> None:
    class Numbers(Layer):
        fields_desc = [Varint("first", 0, TEEWORLDS), Varint("second", 0, TEEWORLDS)]

    packet = Numbers(b"\x85\x00\x06")
    assert (packet.first, packet.second) == (5, 6)
    for again in (packet, packet.copy()):
        again.clear_cache()
        assert bytes(again) == b"\x85\x00\x06"
    packet.second = packet.first + 1
    assert bytes(packet) == b"\x85\x00\x06"
    packet.first = 5
    assert bytes(packet) == b"\x05\x06"
    # The number of another encoding is a number.
    packet.second = knet.KnetApplication(b"\x81\x00").message_id
    assert bytes(packet) == b"\x05\x01"
    wide = riptide.RiptideUnreliable(bytes.fromhex("1008900000000000"))
    wide.clear_cache()
    assert bytes(wide) == bytes.fromhex("1008900000000000")


def test_what_is_behind_an_item_is_padding_but_for_a_list_of_ours() -> None:
    class Item(Layer):
        is_item = True
        fields_desc = [ByteField("one", 0)]

    class Whole(Layer):
        fields_desc = [Items("items", Item)]

    assert bytes(Item(b"ab").payload) == b"b"
    assert Item(b"ab").getlayer("Padding").load == b"b"
    read = Whole(b"abc").items
    assert [(item.original, bytes(item.payload), item.surplus) for item in read] == [
        (octets, b"", None) for octets in (b"a", b"b", b"c")
    ]


def test_a_condition_that_needs_an_absent_field_asks_scapy() -> None:
    class Odd(Layer):
        fields_desc = [
            ByteField("flags", 0),
            ConditionalField(ByteField("inner", 7), E("flags & 1")),
            ConditionalField(ByteField("last", 0), E("inner == 7")),
        ]  # fmt: skip

    assert Odd(b"\x00\x09").fields == {"flags": 0, "last": 9}
    assert Odd(b"\x01\x07\x09").fields == {"flags": 1, "inner": 7, "last": 9}
