from __future__ import annotations

from pathlib import Path

import pytest
from scapy.layers.inet import UDP
from scapy.sendrecv import sniff

from agreement import CAPTURES
from netdissect.layers import riptide, teeworlds
from netdissect.pipeline.records import iter_records
from netdissect.scapy_session import NetdissectSession, rdpcap

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


def test_what_no_session_has_seen_knows_nothing() -> None:
    assert riptide.RiptideConnect().netdissect is None
    with pytest.raises(AttributeError):
        _ = riptide.RiptideConnect().netdissekt
