from __future__ import annotations

from pathlib import Path

import pytest
from scapy.layers.inet import IP, TCP, UDP
from scapy.layers.l2 import Ether
from scapy.sendrecv import sniff
from scapy.utils import EDecimal

from agreement import CAPTURES
from netdissect.layers import knet, netplay, riptide, teeworlds
from netdissect.pipeline.iterate import iter_records
from netdissect.scapy_session import NetdissectSession, _frame, rdpcap

LOSSY = CAPTURES / "riptide" / "udp_2.0.0_lossy_clientleg.pcap"


def test_packets_of_a_file_know_their_unit_and_what_they_repeat() -> None:
    packets = rdpcap(LOSSY)
    records = {record.frame: record for record in iter_records(str(LOSSY))}
    assert len(packets) == max(records)
    repeats = 0
    for number, packet in enumerate(packets, start=1):
        record = records.get(number)
        if record is None or record.dialect is None:
            continue
        known = packet.netdissect
        assert (known.frame, known.connection, known.dialect) == (number, record.connection, "riptide-2.0")
        assert bytes(packet[UDP].payload) == record.payload
        reliable = [each.reliability for each in record.messages if each.reliability]
        if reliable:
            assert known.unit == (reliable[0].space, reliable[0].seq)
        if known.resend_of is not None:
            repeats += 1
            assert packets[known.resend_of - 1].netdissect.unit == known.unit
    assert repeats > 50


@pytest.mark.parametrize(
    ("capture", "layer"),
    [("teeworlds/tw07_clean.pcap", teeworlds.Tw07), (str(LOSSY), riptide.Riptide20Reliable)],
)
def test_a_session_reads_each_packet_in_the_dialect_of_its_connection(
    capture: str, layer: type
) -> None:
    path = CAPTURES / capture if not Path(capture).is_absolute() else Path(capture)
    session = NetdissectSession()
    packets = sniff(offline=str(path), session=session)
    assert sum(layer in packet for packet in packets) > len(packets) // 4
    known = [packet.netdissect for packet in packets if getattr(packet, "netdissect", None)]
    assert {each.connection for each in known} == {1}
    assert session.pipeline.tracked()


STREAMS = {
    "netplay/bin2_example_chat.pcap": netplay.NetplayStream,
    "netplay/bin3_example_chat.pcap": netplay.NetplayChunkStream,
    "netplay/text_example_chat.pcap": netplay.NetplayTextStream,
    "riptide/tcp_2.0.0_clean.pcap": riptide.RiptideFrame20,
    "knet/tcp_clean_session.pcap": knet.KnetStream,
}


@pytest.mark.parametrize("capture", STREAMS)
def test_segments_are_read_in_the_dialect_of_their_connection(capture: str) -> None:
    path = CAPTURES / capture
    if not path.exists():
        pytest.skip(f"no {capture}")
    for packets in (rdpcap(path), sniff(offline=str(path), session=NetdissectSession)):
        full = [each for each in packets if TCP in each and len(each[TCP].payload)]
        read = [each for each in full if isinstance(each[TCP].payload, STREAMS[capture])]
        # Messages of bin3 are longer than segments here.
        assert len(read) > len(full) // 3
        for each in read:
            assert each.netdissect.connection is not None
            assert bytes(each[TCP].payload) == bytes(each[TCP])[4 * each[TCP].dataofs :]


def test_what_no_session_has_seen_knows_nothing() -> None:
    assert riptide.RiptideConnect().netdissect is None
    with pytest.raises(AttributeError):
        _ = riptide.RiptideConnect().netdissekt


def test_a_time_of_a_file_keeps_its_nanoseconds() -> None:
    packet = Ether() / IP() / UDP()
    packet.time = EDecimal("1700000000.123456789")
    assert _frame(1, packet)[1] == 1_700_000_000_123_456_789
