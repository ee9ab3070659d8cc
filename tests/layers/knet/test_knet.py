"""kNet's Scapy layers: build, dissect, fuzz, and the agreement of all readings."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from scapy.packet import Packet, Raw, fuzz

from agreement import SHARES, mutations, payloads
from netdissect.dissect.engine import Request
from netdissect.dissect.readers import knet as read
from netdissect.layers import knet
from netdissect.layers.knet import (
    Knet2010Datagram,
    KnetApplication,
    KnetConnect,
    KnetDatagram,
    KnetDisconnect,
    KnetFragmentData,
    KnetMessage,
    KnetPacketAck,
    KnetPingReply,
    KnetPingRequest,
    KnetSpecDatagram,
    KnetSpecMessage,
    KnetStream,
    KnetTcpMessage,
    KnetUrho3dDatagram,
)

VECTORS = [
    vector
    for vector in json.loads(
        (Path(__file__).parents[2] / "vectors/knet.vectors.json").read_text(encoding="utf-8")
    )
    if vector["fields"]["kind"] != "vle"
]
LAYERS = [*knet.DATAGRAMS.values(), KnetSpecDatagram, KnetStream]


def renewed(packet: Packet) -> bytes:
    """Build from the fields alone: nothing of the dissected bytes is reused."""
    packet.clear_cache()
    return bytes(packet)


@pytest.mark.parametrize("vector", VECTORS, ids=[vector["name"] for vector in VECTORS])
def test_vectors_rebuild_to_the_same_octets(vector: dict[str, Any]) -> None:
    data = bytes.fromhex(vector["hex"])
    transport = "tcp" if vector["name"].startswith("tcp_") else "udp"
    direction = {"c2s": 0, "s2c": 1}.get(vector["direction"])
    request = Request(vector["dialect"], direction, transport)
    packet = knet.root(data, request)(data)
    assert bytes(packet) == data
    whole = vector["fields"]["kind"] != "malformed" and "overlong" not in vector["name"]
    if whole and "incomplete_at" not in vector["fields"]:
        assert renewed(packet) == data
        assert Raw not in packet


@pytest.mark.parametrize(
    ("packet", "octets"),
    [
        (KnetConnect(), "0000000000000000"),
        (KnetConnect(data=b"user=alice"), "757365723d616c696365"),
        (
            KnetDatagram(
                in_order=1,
                packet_id=1,
                messages=[
                    KnetMessage(in_order=1, content=KnetPingRequest(ping_id=1)),
                    KnetMessage(in_order=1, content=KnetPingRequest(ping_id=2)),
                ],
            ),
            "8100000220010102200102",
        ),
        (
            KnetDatagram(
                reliable=1,
                packet_id=880,
                reliable_base=34500,
                messages=[KnetMessage(reliable=1, content=KnetApplication(message_id=7, data=b"abc"))],
            ),
            "700d00c48601000410000" + "7616263",
        ),
        (
            KnetDatagram(
                packet_id=3,
                in_order=1,
                messages=[
                    KnetMessage(
                        in_order=1, content=KnetPacketAck(acked_packet_id=3, sequence_bits=0xFF)
                    )
                ],
            ),
            "83000008200403000" + "0ff000000",
        ),
        (
            KnetDatagram(
                packet_id=4194303,
                reliable=1,
                messages=[
                    KnetMessage(
                        reliable=1, fragment=1, transfer_id=1, fragment_number=300,
                        content=KnetFragmentData(data=b"x"),
                    )
                ],
            ),
            "7fffff0000015000" + "01ac0278",
        ),
        (KnetTcpMessage(content=KnetPingReply(ping_id=1)), "020201"),
        (
            KnetStream(messages=[KnetTcpMessage(content=KnetApplication(message_id=200, data=bytes(126)))]),
            "8001c801" + "00" * 126,
        ),
        (
            KnetSpecDatagram(
                packet_id=100,
                in_order=1,
                in_order_delta_count=2,
                in_order_deltas=[0, 129],
                in_order_datagram_indexes=[0, 1],
                messages=[
                    KnetSpecMessage(in_order_code=1, content=KnetApplication(message_id=20, data=b"\xaa\xbb"))
                ],
            ),
            "640080020081010001030814aabb",
        ),
    ],
)  # fmt: skip
def test_built_by_hand(packet: Packet, octets: str) -> None:
    assert bytes(packet).hex() == octets


def test_the_documents_multiple_dependencies() -> None:
    from netdissect.dissect.engine import dissect

    packet = KnetSpecDatagram(
        packet_id=10,
        in_order=1,
        in_order_delta_count=3,
        in_order_deltas=[0, 1, 4],
        in_order_datagram_indexes=[0, 0, 0],
        messages=[
            KnetSpecMessage(
                in_order_code=7,
                multi_in_order_index_count=2,
                multi_in_order_indexes=[2, 0],
                content=KnetApplication(message_id=20),
            ),
            KnetSpecMessage(
                in_order_code=6, single_in_order_index=1, content=KnetApplication(message_id=20)
            ),
            KnetSpecMessage(content=KnetApplication(message_id=20)),
        ],
    )
    tree = dissect("knet", bytes(packet), Request("knet-spec"), strict=True)
    assert tree.fields["depends_on_packet_ids"] == [9, 8, 5]
    messages = tree.fields["messages"]
    assert [message.get("depends_on") for message in messages] == [[5, 9], [8], None]
    assert renewed(KnetSpecDatagram(bytes(packet))) == bytes(packet)


def test_the_documents_packet_ack_has_two_more_bits() -> None:
    from netdissect.dissect.engine import dissect

    # u24: PacketID 5, bits 22-23 set; u32: bit 0 set.
    data = bytes.fromhex("01 00 00 08 00 04 05 00 c0 01 00 00 00")
    (message,) = dissect("knet", data, Request("knet-spec"), strict=True).fields["messages"]
    assert (message["acked_packet_id"], message["sequence_bits"]) == (5, 7)
    assert message["acknowledges"] == [5, 6, 7, 8]


def test_a_packet_id_may_be_set_and_read() -> None:
    packet = KnetDatagram(packet_id=5)
    packet.packet_id = 4194302
    assert packet.packet_id == 4194302
    assert KnetDatagram(bytes(packet)).packet_id == 4194302


def test_command_gives_the_packet_back() -> None:
    packet = KnetDatagram(
        packet_id=7, reliable=1, messages=[KnetMessage(reliable=1, content=KnetDisconnect())]
    )
    again = KnetDatagram(bytes(packet))
    assert eval(again.command(), vars(knet)) == again  # noqa: S307


@pytest.mark.parametrize("layer", LAYERS, ids=[layer.__name__ for layer in LAYERS])
def test_fuzzed_packets_build_and_read_back(layer: type[Packet]) -> None:
    for _ in range(100):
        data = bytes(fuzz(layer()))
        assert bytes(layer(data)) == data


NAMES = ("fragment_start", "fragment", "in_order", "reliable", "unused", "reliable_delta",
         "fragment_count", "transfer_id", "fragment_number")  # fmt: skip


def assert_messages(packet: Packet, messages: list[tuple[Any, ...]]) -> None:
    assert len(packet.messages) == len(messages)
    for message, values in zip(packet.messages, messages, strict=True):
        for name, value in zip(NAMES, values, strict=False):
            if value is not None:
                assert message.getfieldval(name) == value
        assert bytes(message.content) == values[9]


def sound(data: bytes) -> bool:
    """Return whether Scapy reads the datagram without a fault anywhere."""
    return knet.parses(data, "knet-2.x")


@pytest.mark.parametrize("share", SHARES)
def test_all_readings_agree_on_captured_datagrams(share: int) -> None:
    for data in payloads("knet")[::share]:
        if data:
            assert sound(data) == (read.read_KnetDatagram(data, 0, len(data)) is not None)
            check_layers(data)


def check_layers(data: bytes) -> None:
    for layer, reader in ((KnetDatagram, read.read_KnetDatagram),
                          (Knet2010Datagram, read.read_Knet2010Datagram)):  # fmt: skip
        values = reader(data, 0, len(data))
        packet = layer(data)
        assert bytes(packet) == data
        if values is not None:
            assert packet.fault is None
            for name, value in zip(
                ("in_order", "reliable", "packet_id_low", "packet_id_high", "reliable_base"),
                values, strict=False,
            ):  # fmt: skip
                assert value is None or packet.getfieldval(name) == value
            assert_messages(packet, values[5])


@pytest.mark.parametrize("share", SHARES)
def test_all_readings_agree_on_mutated_datagrams(share: int) -> None:
    for data in mutations(payloads("knet"), 5000 // share):
        if data:
            assert sound(data) == (read.read_KnetDatagram(data, 0, len(data)) is not None)
            check_layers(data)


def test_application_names_belong_to_their_dialect() -> None:
    data = bytes.fromhex("0500000f000600000000bf9faa3f0000a0400002")
    assert KnetUrho3dDatagram(data).messages[0].content.message_id == 6
    from netdissect.dissect.engine import dissect

    named = dissect("knet", data, Request("knet-urho3d"), strict=True)
    assert named.fields["messages"][0]["application_name"] == "MSG_CONTROLS"
    assert named.messages[0].summary.startswith("MSG_CONTROLS (msg_6)")
    plain = dissect("knet", data, Request("knet-2.x"), strict=True)
    assert "application_name" not in plain.fields["messages"][0]


def test_bind_is_what_changes_scapy(monkeypatch: pytest.MonkeyPatch) -> None:
    from scapy.layers.inet import IP, TCP, UDP

    for layer in (UDP, TCP):
        monkeypatch.setattr(layer, "payload_guess", list(layer.payload_guess))
    raw = bytes(IP() / UDP(sport=40000, dport=2345) / KnetDatagram(packet_id=1))
    assert isinstance(IP(raw)[UDP].payload, Raw)
    knet.bind()
    assert isinstance(IP(raw)[UDP].payload, KnetDatagram)
