"""The published document's own layout: every reading agrees, and a session is followed.

Nobody is known to speak it, so the traffic is built here.
"""

from __future__ import annotations

import io
import random
from collections import Counter
from typing import Any

import pytest
from scapy.packet import Packet

from agreement import assert_sound, mutations
from derived import compile_reader
from netdissect.dissect.engine import Request, dissect
from netdissect.layers.knet import (
    KnetApplication,
    KnetConnectAck,
    KnetConnectSyn,
    KnetConnectSynAck,
    KnetDisconnect,
    KnetDisconnectAck,
    KnetFlowControlRequest,
    KnetFragmentData,
    KnetPingReply,
    KnetPingRequest,
    KnetSpecDatagram,
    KnetSpecHeader,
    KnetSpecMessage,
    KnetSpecPacketAck,
)
from netdissect.model.claims import Hints
from netdissect.model.events import Ev
from netdissect.pipeline import Options, analyze, decode_as, iter_timeline
from netdissect.pipeline.iterate import iter_records
from netdissect.protocols.knet import PROTOCOL
from packetbuild import ipv4, link_frame, pcap_file, udp

SPEC = Hints(("knet-spec", "knet-spec"))
CONTENTS = (
    lambda c: KnetApplication(message_id=c.choice((5, 200, 70_000)), data=c.randbytes(c.randrange(9))),
    lambda c: KnetPingRequest(ping_id=c.randrange(256)),
    lambda c: KnetPingReply(ping_id=c.randrange(256)),
    lambda c: KnetFlowControlRequest(rate=c.randrange(0x10000)),
    lambda c: KnetSpecPacketAck(
        acked_packet_id_low=c.randrange(0x10000), sequence_bits_low=c.randrange(4),
        acked_packet_id_high=c.randrange(64), sequence_bits_high=c.getrandbits(32),
    ),
    lambda _: KnetConnectSyn(),
    lambda _: KnetConnectSynAck(),
    lambda _: KnetConnectAck(),
    lambda _: KnetDisconnect(),
    lambda _: KnetDisconnectAck(),
)  # fmt: skip


def message(chance: random.Random) -> Packet:
    """Return a random message block."""
    values: dict[str, Any] = {"in_order_code": chance.randrange(8)}
    if values["in_order_code"] == 6:
        values["single_in_order_index"] = chance.randrange(4)
    if values["in_order_code"] == 7:
        indexes = [chance.randrange(4) for _ in range(chance.randrange(4))]
        values |= {"multi_in_order_index_count": len(indexes), "multi_in_order_indexes": indexes}
    kind = chance.randrange(5)
    if kind == 0:
        values |= {"fragment_start": 1, "fragment": 1, "fragment_count": chance.choice((2, 300, 20_000))}
        values |= {"transfer_id": chance.randrange(256), "content": CONTENTS[0](chance)}
    elif kind == 1:
        values |= {"fragment": 1, "transfer_id": 7, "fragment_number": chance.choice((1, 128, 20_000))}
        values["content"] = KnetFragmentData(data=chance.randbytes(chance.randrange(1, 300)))
    else:
        values["content"] = chance.choice(CONTENTS)(chance)
    return KnetSpecMessage(**values)


def built(count: int, seed: int) -> list[bytes]:
    """Return random datagrams of the document, built by Scapy."""
    chance = random.Random(seed)
    found = []
    for _ in range(count):
        values: dict[str, Any] = {"packet_id": chance.getrandbits(22), "reliable": chance.randrange(2)}
        if chance.randrange(2):
            deltas = [chance.choice((0, 5, 200, 30_000)) for _ in range(chance.randrange(5))]
            values |= {"in_order": 1, "in_order_delta_count": len(deltas), "in_order_deltas": deltas}
            values["in_order_datagram_indexes"] = [chance.randrange(300) for _ in deltas]
        messages = [message(chance) for _ in range(chance.randrange(5))]
        found.append(bytes(KnetSpecDatagram(messages=messages, **values)))
    return found


HEAD = [field.name for field in KnetSpecHeader.fields_desc]
BLOCK = [field.name for field in KnetSpecMessage.fields_desc]
READ_DATAGRAM = compile_reader(KnetSpecDatagram)


def plain(value: Any) -> Any:
    return list(value) if isinstance(value, (list, tuple)) else value


def agree(data: bytes) -> bool:
    """Assert that derived reader, Scapy, walker and `scan` read the same; True where all is well."""
    values = READ_DATAGRAM(data, 0, len(data))
    tree = dissect("knet", data, Request("knet-spec", 0), strict=True)
    assert_sound(tree)
    events = PROTOCOL.scan(data, 0, SPEC)
    shown = Counter(view.type for view in tree.messages)
    assert Counter(event[1] for event in events if event[0] == Ev.MESSAGE) == shown
    numbers = [event[3] for event in events if event[0] in (Ev.UNIT, Ev.PLAIN_UNIT)]
    assert numbers == [tree.fields.get("packet_id")] * len(numbers)
    acks = [event[2:] for event in events if event[0] == Ev.ACK]
    listed = tree.fields.get("messages", [])
    assert acks == [(m["acked_packet_id"], m["sequence_bits"]) for m in listed if "sequence_bits" in m]
    if not data:
        return False
    packet = KnetSpecDatagram(data)
    assert bytes(packet) == data
    messages = packet.messages if packet.fault is None else []
    whole = packet.fault is None and all(item.fault is None for item in messages)
    assert whole == (values is not None)
    if values is None:
        return False
    for name, value in zip(HEAD, values, strict=False):
        assert value is None or plain(packet.getfieldval(name)) == value
        assert value is None or tree.fields.get(name, value) == value
    assert len(messages) == len(values[len(HEAD)]) == len(listed)
    for item, told, node in zip(messages, values[len(HEAD)], listed, strict=True):
        for name, value in zip(BLOCK[:-1], told, strict=False):
            assert value is None or plain(item.getfieldval(name)) == value
            assert value is None or node.get(name, value) == value
        assert bytes(item.content) == told[len(BLOCK) - 1]
    return True


def test_all_readings_agree_on_what_scapy_builds() -> None:
    for data in built(1500, seed=1):
        assert agree(data)


def test_all_readings_agree_on_damaged_datagrams() -> None:
    read_whole = sum(agree(data) for data in mutations(built(300, seed=2), 3000, seed=3))
    assert read_whole > 500


@pytest.mark.slow
def test_all_readings_agree_on_many_damaged_datagrams() -> None:
    for data in mutations(built(3000, seed=4), 60_000, seed=5):
        agree(data)


def test_every_code_names_its_dependencies() -> None:
    deltas = [0, 1, 2, 3, 4, 5]
    for code in range(1, 6):
        packet = KnetSpecDatagram(
            packet_id=50, in_order=1, in_order_delta_count=6, in_order_deltas=deltas,
            in_order_datagram_indexes=[0] * 6,
            messages=[KnetSpecMessage(in_order_code=code, content=KnetApplication())],
        )  # fmt: skip
        tree = dissect("knet", bytes(packet), Request("knet-spec"), strict=True)
        assert tree.fields["messages"][0]["depends_on"] == [50 - (code - 1) - 1]


# -- a session ---------------------------------------------------------------------------------------


def whole(content: Packet, **more: Any) -> Packet:
    return KnetSpecMessage(content=content, **more)


def session() -> list[tuple[float, int, Packet]]:
    """Return (seconds, direction, datagram): connect, data, a timeout, fragments, disconnect."""
    syn, syn_ack, ack = KnetConnectSyn(), KnetConnectSynAck(), KnetConnectAck()
    part = {"fragment": 1, "transfer_id": 3}
    return [
        (0.00, 0, KnetSpecDatagram(packet_id=0, messages=[whole(syn)])),
        (0.02, 1, KnetSpecDatagram(packet_id=0, messages=[whole(syn_ack)])),
        (0.04, 0, KnetSpecDatagram(packet_id=1, messages=[whole(ack)])),
        (0.05, 0, KnetSpecDatagram(packet_id=2, reliable=1, messages=[whole(KnetApplication())])),
        (0.06, 0, KnetSpecDatagram(packet_id=3, reliable=1, messages=[whole(KnetApplication())])),
        (0.07, 0, KnetSpecDatagram(packet_id=4, reliable=1, messages=[whole(KnetApplication())])),
        # Base 2, bit 1 (one of the two above the PacketID): 2 and 4.
        (0.10, 1, KnetSpecDatagram(packet_id=1, messages=[
            whole(KnetSpecPacketAck(acked_packet_id_low=2, sequence_bits_low=2)),
        ])),
        (0.20, 1, KnetSpecDatagram(packet_id=2, messages=[
            KnetSpecMessage(**part, fragment_number=1, content=KnetFragmentData(data=b"cd")),
        ])),
        (0.21, 1, KnetSpecDatagram(packet_id=3, messages=[
            KnetSpecMessage(**part, fragment_start=1, fragment_count=2,
                            content=KnetApplication(message_id=9, data=b"ab")),
        ])),
        (1.00, 0, KnetSpecDatagram(packet_id=5, messages=[whole(KnetPingRequest(ping_id=1))])),
        (1.03, 1, KnetSpecDatagram(packet_id=4, messages=[
            whole(KnetPingReply(ping_id=1)), whole(KnetFlowControlRequest(rate=15)),
        ])),
        (4.00, 0, KnetSpecDatagram(packet_id=6, messages=[whole(KnetDisconnect())])),
        (4.02, 1, KnetSpecDatagram(packet_id=5, messages=[whole(KnetDisconnectAck())])),
    ]  # fmt: skip


def captured(steps: list[tuple[float, int, Packet]]) -> io.BytesIO:
    records = []
    for seconds, direction, packet in steps:
        ports = (4000, 2345) if direction == 0 else (2345, 4000)
        hosts = {"src": bytes([10, 0, 0, 1 + direction]), "dst": bytes([10, 0, 0, 2 - direction])}
        _, data = link_frame("ethernet", ipv4(udp(bytes(packet), *ports), **hosts))
        records.append((int(seconds), round(seconds % 1 * 1e6), data, len(data)))
    return io.BytesIO(pcap_file(records))


OPTIONS = Options(strict=True, decode_as=(decode_as("udp.port==2345,knet-spec"),))


def test_a_session_is_followed() -> None:
    (report,) = analyze(captured(session()), options=OPTIONS).connections
    assert report.dialects == ("knet-spec", "knet-spec")
    assert (report.client, report.handshake) == ("10.0.0.1:4000", "accepted")
    assert (report.state, report.state_name) == ("closed", "ConnectionClosed")
    assert report.close == {"by": "client", "reason": "Disconnect", "frame": 12}
    assert report.messages[0] == {
        "ConnectAck": 1, "ConnectSyn": 1, "Disconnect": 1, "PingRequest": 1, "msg_20": 3,
    }  # fmt: skip
    client = next(s for s in report.spaces if (s.space, s.direction) == ("datagram", 0))
    assert (client.units, client.acked, client.extra["timed_out"]) == (7, 2, 1)
    assert client.extra["per_second"]["asked"] == 15
    (ping,) = report.probes
    assert (ping.sent, ping.answered, ping.rtt.minimum) == (1, 1, 30.0)
    assert report.counters[1]["transfers_complete"] == 1
    assert "transfers_never_delivered" not in report.counters[1]


def test_its_states_are_the_documents() -> None:
    states = [
        item.data["to"]
        for item in iter_timeline(captured(session()), options=OPTIONS)
        if getattr(item, "event", None) == "state"
    ]
    assert states == [
        "ConnectionSyn", "ConnectionSynAck", "ConnectionOK", "ConnectionClosing", "ConnectionClosed",
    ]  # fmt: skip


def test_a_refusal_is_a_disconnect_ack() -> None:
    steps = [
        (0.0, 0, KnetSpecDatagram(packet_id=0, messages=[whole(KnetConnectSyn())])),
        (0.1, 1, KnetSpecDatagram(packet_id=0, messages=[whole(KnetDisconnectAck())])),
    ]
    (report,) = analyze(captured(steps), options=OPTIONS).connections
    assert (report.handshake, report.state) == ("rejected", "rejected")
    assert report.reject_reason == "DisconnectAck"


def test_read_and_connections_count_the_same() -> None:
    read_types = Counter(
        view.type
        for record in iter_records(captured(session()), options=OPTIONS)
        for view in record.messages
    )
    (report,) = analyze(captured(session()), options=OPTIONS).connections
    assert read_types == Counter(report.messages[0]) + Counter(report.messages[1])


def test_the_document_is_never_recognised() -> None:
    assert all(
        "knet-spec" not in report.dialects
        for report in analyze(captured(session()), options=Options(strict=True)).connections
    )


@pytest.mark.parametrize(
    ("name", "values", "octets"),
    [
        ("ConnectSyn", {}, "0100000400fdffffff"),
        ("PacketAck", {"acked_packet_id_low": "5", "sequence_bits_low": "3"},
         "0100000800040500c000000000"),
        ("FlowControlRequest", {"rate": "20"}, "0100000300031400"),
    ],
)  # fmt: skip
def test_messages_are_built_by_name(name: str, values: dict[str, str], octets: str) -> None:
    from netdissect.craft.encode import encode_text

    built_by_name = encode_text("knet", "knet-spec", "udp", name, values)
    assert built_by_name.hex() == octets
    tree = dissect("knet", built_by_name, Request("knet-spec"), strict=True)
    assert [view.type for view in tree.messages] == [name]
