"""The layers as Scapy citizens, and the three readings of one description on every capture."""

from __future__ import annotations

from typing import Any

import pytest
from scapy.packet import Raw, fuzz
from scapy.volatile import VolatileValue

from agreement import SHARES, assert_agree, mutations, payloads
from derived import compile_reader
from netdissect.dissect.catalogue import Catalogue
from netdissect.dissect.engine import layer_module
from netdissect.dissect.walker import Walker
from netdissect.layers import eoudp
from netdissect.layers.eoudp import (
    EoudpAck,
    EoudpComponentOf,
    EoudpComponentOf32,
    EoudpConnectAccept,
    EoudpConnectAcceptText,
    EoudpDeleteComponent,
    EoudpDeleteComponent32,
    EoudpDeleteEntity,
    EoudpDeleteEntity32,
    EoudpEarly,
    EoudpEvent,
    EoudpGameEvent,
    EoudpLate,
    EoudpLateLong32,
    EoudpPacketInfo,
    EoudpPair,
    EoudpRfc02,
    EoudpString,
    EoudpSystemLoad,
)
from netdissect.layers.eoudp.components import Health, TransformComponent, component_layer
from netdissect.layers.eoudp.contents import content_layer
from netdissect.layers.eoudp.documents import LAYERS as DOCUMENT_LAYERS
from netdissect.layers.eoudp.headers import HEADERS
from netdissect.protocols.eoudp.dialects import ROWS
from netdissect.protocols.eoudp.recognition import decided
from netdissect.wire.eoudp import text_reading
from netdissect.wire.eoudp_names import DIALECTS, KEYS, canonical, command_name

STAMP = 1.79e12
LAYERS = (
    *HEADERS.values(), EoudpPair, EoudpPacketInfo, EoudpAck, EoudpConnectAccept,
    EoudpConnectAcceptText, EoudpEvent, EoudpDeleteEntity, EoudpDeleteEntity32, EoudpComponentOf,
    EoudpComponentOf32, EoudpDeleteComponent, EoudpDeleteComponent32, EoudpString, EoudpSystemLoad,
)  # fmt: skip


@pytest.mark.parametrize(
    ("packet", "octets"),
    [
        (EoudpLate(timestamp=STAMP), "81427a0c4506c00000" + 17 * "00"),
        (
            EoudpLate(timestamp=STAMP, id=3, important=1) / EoudpEvent(key=265),
            "8b427a0c4506c0000000000000000000030100000000000000050901000001",
        ),
        (
            EoudpEarly(timestamp=0.0, id=2) / EoudpEvent(key=32, pressed=0),
            "820000000000000000000000020000000000000005002000000000",
        ),
        (
            EoudpRfc02(timestamp=1.0, id=1) / EoudpAck(acked_id=2),
            "013f800000000000000000000100000000000000080200000000000000",
        ),
        (
            EoudpLateLong32(timestamp=STAMP, id=7) / EoudpDeleteEntity32(entity=5),
            "0e427a0c4506c00000000000070000000004000000000000000005000000",
        ),
    ],
)
def test_headers_take_command_and_size_from_their_content(packet: object, octets: str) -> None:
    built = bytes(packet)  # type: ignore[call-overload]
    assert built.hex() == octets
    again = type(packet)(built)
    assert not again.haslayer(Raw)
    assert again.size == len(built) - again.length


def test_wrong_values_stay_where_they_are_given() -> None:
    packet = EoudpLate(cmd=0x42, size=99, important=7) / EoudpEvent()
    again = EoudpLate(bytes(packet))
    assert (again.cmd, again.size, again.important) == (0x42, 99, 7)


def test_contents_fill_in_their_lengths() -> None:
    body = EoudpComponentOf(entity=1, component=b"Health", data=bytes(Health(current=3, max=5)))
    again = EoudpLate(bytes(EoudpLate() / body)).payload
    assert (again.name_length, again.component, again.data_length) == (6, b"Health", 8)
    strings = EoudpGameEvent(entries=[EoudpString(text=b"a"), EoudpString(text=b"bc")])
    assert bytes(strings) == b"\1\0\0\0a\2\0\0\0bc"
    for (order, form), layers in DOCUMENT_LAYERS.items():
        data = bytes(layers.components(entity=1, component=b"Tag", data=b"xyz"))
        assert text_reading("components", data, order) == (order, form)  # type: ignore[arg-type]


@pytest.mark.parametrize("dialect", DIALECTS)
def test_header_layers_agree_with_the_rows_of_the_protocol(dialect: str) -> None:
    header, row = HEADERS[dialect], ROWS[dialect]
    assert header.length == row.start
    names = [field.name for field in header.fields_desc]
    assert ("important" in names) == row.flagged
    padding = [field.sz for field in header.fields_desc if field.name == "padding"]
    assert sum(padding) == row.padding
    assert (header.fields_desc[1].sz == 8) == row.wide_stamp
    assert canonical(f"eoudp-{dialect}") == dialect


@pytest.mark.parametrize("layer", LAYERS, ids=lambda x: x.__name__)
def test_layers_are_good_scapy_citizens(layer: type) -> None:
    built = bytes(layer())
    again = layer(built)
    assert again.fault is None
    assert bytes(eval(again.command(), vars(eoudp))) == built  # noqa: S307
    for _ in range(20):
        octets = bytes(fuzz(layer()))
        assert bytes(layer(octets)) == octets


def test_fuzzed_messages_build_and_are_read_without_a_crash() -> None:
    for header in HEADERS.values():
        for body in (EoudpEvent, EoudpAck, EoudpPacketInfo, EoudpComponentOf, EoudpConnectAccept):
            octets = bytes(fuzz(header() / body()))
            assert bytes(header(octets)) == octets
    assert isinstance(fuzz(EoudpPair()).received, (int, VolatileValue))


def test_answers_and_hashret_match_a_message_with_its_ack() -> None:
    asked = EoudpLate(bytes(EoudpLate(id=5, important=1)))
    ack = EoudpLate(bytes(EoudpLate(id=0) / EoudpAck(acked_id=5)))
    other = EoudpLate(bytes(EoudpLate(id=0) / EoudpAck(acked_id=6)))
    accept = EoudpLate(bytes(EoudpLate(id=0) / EoudpConnectAccept()))
    assert ack.answers(asked)
    assert not other.answers(asked)
    assert accept.answers(asked)
    assert asked.hashret() == ack.hashret()


PASSED_OVER = {
    layer: tuple({"padding", "data"} & {field.name for field in layer.fields_desc})
    for layer in LAYERS
}
READER_OF = {layer: compile_reader(layer, skip) for layer, skip in PASSED_OVER.items()}


STOPS = frozenset({"truncated", "length-beyond-end", "unterminated-string", "eoudp-content-size"})
LISTS = {EoudpPacketInfo: "pairs", EoudpSystemLoad: "entries"}


def agree_on(layer: type[Any], data: bytes) -> bool:
    """Compare the three readings of one layer; True where it could be read."""
    values = READER_OF[layer](data, 0, len(data))
    if layer in LISTS:
        return agree_on_items(layer, data, values)
    if values is not None and any(value != value for value in values):  # noqa: PLR0124 - NaN
        # NaN equals nothing: one byte makes it a number, in all three readings alike.
        stamp = data[:1] + b"\0" + data[2:]
        return agree_on(layer, stamp)
    return assert_agree("eoudp", layer, READER_OF[layer], data, PASSED_OVER[layer], fatal=STOPS)


def agree_on_items(layer: type[Any], data: bytes, values: Any) -> bool:
    walker = Walker(Catalogue(eoudp.CODES))
    _, scope, _ = walker.walk(layer, data)
    fields = {field.name: field for field in layer.fields_desc}
    names = [field.name for field in fields[LISTS[layer]].item.fields_desc]
    items = [[item[name] for name in names if name in item] for item in scope[LISTS[layer]]]
    if values is None:
        assert any(note.code in STOPS for note in walker.annotations)
        return False
    assert [list(item[:-1]) for item in values[0]] == items
    assert [list(item.fields.values()) for item in getattr(layer(data), LISTS[layer])] == items
    return True


def agree(data: bytes, dialect: str) -> None:
    """Compare the three readings of a datagram's header, and of its content."""
    header = HEADERS[dialect]
    if not agree_on(header, data):
        return
    body = data[header.length :]
    how = content_layer(dialect, command_name(dialect, data[0], len(body)), body)
    if how.layer in READER_OF and how.legal and body:
        agree_on(how.layer, body)


@pytest.mark.parametrize("share", SHARES)
def test_three_readings_agree_on_datagrams_of_every_capture(share: int) -> None:
    for data in payloads("eoudp")[::share]:
        agree(data, decided(data)[0] or "exodia-late")


def test_three_readings_agree_on_damaged_datagrams() -> None:
    for number, data in enumerate(mutations(payloads("eoudp"), 4000)):
        agree(data, DIALECTS[number % len(DIALECTS)])


def test_component_layouts_have_the_sizes_of_the_reference() -> None:
    sizes = {
        "TransformComponent": 36, "RigidBody2DComponent": 20, "BoxCollider2DComponent": 20,
        "CircleCollider2DComponent": 16, "CameraComponent": 30, "Health": 8, "Clock": 4,
        "SpriteRendererComponent": 21, "CircleRendererComponent": 24, "SoundComponent": 13,
        "MusicComponent": 12, "IDComponent": 8, "ParentComponent": 0, "Animation": 16,
    }  # fmt: skip
    for name, size in sizes.items():
        layer = component_layer("exodia-late", name)
        assert layer is not None
        assert len(bytes(layer())) == size
    assert component_layer("exodia-late", "Unknown") is None
    early = component_layer("exodia-mid", "SpriteRendererComponent")
    assert early is not None
    assert len(bytes(early(has_texture=1))) == 53
    assert TransformComponent(bytes(36)).scale == [0.0, 0.0, 0.0]


def test_key_codes_are_those_of_glfw() -> None:
    assert {KEYS[32], KEYS[65], KEYS[264], KEYS[290], KEYS[329]} == {
        "SPACE", "A", "DOWN", "F1", "KP_9",
    }  # fmt: skip


def test_the_layer_module_is_the_one_the_engine_finds() -> None:
    assert layer_module("eoudp") is eoudp
