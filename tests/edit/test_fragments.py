"""Fragments, also of tunnels and inside them, in the captures that the editor's commands write."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from struct import pack

import pytest
from scapy.layers.inet import IP

import console_docs
from netdissect.capture import open_capture
from netdissect.edit.frames import MAX_PIECES, Fragments
from packetbuild import fragments4, ipv4, pcap_file, udp
from published import reports, run, texts

pytest.importorskip("cryptography")
CAPTURES = console_docs.ROOT / "captures"
CHAT = CAPTURES / "netplay" / "text_example_chat.pcap"
LOSSY = CAPTURES / "riptide" / "udp_2.2.1_lossy_clientleg.pcap"
NEAR, FAR = bytes([198, 51, 100, 9]), bytes([203, 0, 113, 9])
GRE = b"\x00\x00\x08\x00"
LEAST = 40
"""Bytes of a payload of IP that is cut in two."""


@pytest.fixture
def key(tmp_path: Path) -> Path:
    path = tmp_path / "key"
    path.write_bytes(bytes(range(32)))
    return path


def gre(packet: bytes) -> tuple[int, bytes]:
    return 47, GRE + packet


def ip_in_ip(packet: bytes) -> tuple[int, bytes]:
    return 4, packet


def vxlan(packet: bytes) -> tuple[int, bytes]:
    return 17, udp(b"\x08" + bytes(7) + bytes(12) + b"\x08\x00" + packet, 5000, 4789)


def halves(protocol: int, payload: bytes, ident: int, src: bytes, dst: bytes) -> list[bytes]:
    """Return a packet of IP, in two fragments if it is long enough."""
    if len(payload) < LEAST:
        return [ipv4(payload, protocol, src=src, dst=dst, ident=ident)]
    size = len(payload) // 2 & ~7
    return fragments4(payload, [size], ident=ident, protocol=protocol, src=src, dst=dst)


def inside(packet: bytes, ident: int) -> list[bytes]:
    """Return the fragments of a packet, each in a tunnel of its own."""
    at, whole = IP(packet).ihl * 4, IP(packet).len
    parts = halves(packet[9], packet[at:whole], ident, packet[12:16], packet[16:20])
    return [ipv4(GRE + part, 47, src=NEAR, dst=FAR) for part in parts]


def bare(packet: bytes, ident: int) -> list[bytes]:
    at, whole = IP(packet).ihl * 4, IP(packet).len
    return halves(packet[9], packet[at:whole], ident, packet[12:16], packet[16:20])


def outside(wrap: Callable[[bytes], tuple[int, bytes]]) -> Callable[[bytes, int], list[bytes]]:
    """Return a function that returns the fragments of a tunnel with a packet."""
    return lambda packet, ident: halves(*wrap(packet[: IP(packet).len]), ident, NEAR, FAR)


WAYS = {
    "bare": bare, "inside gre": inside, "of gre": outside(gre), "of ip in ip": outside(ip_in_ip),
    "of vxlan": outside(vxlan),
}  # fmt: skip


def fragmented(source: Path, target: Path, way: str, most: int = 300) -> Path:
    """Write the packets of a capture in fragments."""
    records = []
    with open_capture(source) as reader:
        for number, time_ns, _, data, _ in list(reader)[:most]:
            for packet in WAYS[way](data[14:], number):
                time = time_ns // 10**9, time_ns % 10**9 // 1000
                records.append((*time, bytes(12) + b"\x08\x00" + packet, 14 + len(packet)))
    target.write_bytes(pcap_file(records))
    return target


@pytest.mark.parametrize("source", [CHAT, LOSSY], ids=lambda path: path.parent.name)
@pytest.mark.parametrize("way", WAYS)
def test_a_slice_of_a_connection_has_all_its_fragments(source: Path, way: str, tmp_path: Path) -> None:
    whole = fragmented(source, tmp_path / "in.pcap", way)
    run("slice", whole, "--connection", 1, "-w", tmp_path / "out.pcap")
    (report, *_), (alone, *_) = reports(whole), reports(tmp_path / "out.pcap")
    assert alone["datagrams"] == report["datagrams"]
    assert [space["units"] for space in alone["spaces"]] == [space["units"] for space in report["spaces"]]


@pytest.mark.parametrize("source", [CHAT, LOSSY], ids=lambda path: path.parent.name)
@pytest.mark.parametrize("way", WAYS)
def test_fragments_are_anonymised_like_whole_packets(source: Path, way: str, key: Path, tmp_path: Path) -> None:
    whole = fragmented(source, tmp_path / "in.pcap", way)
    target = tmp_path / "out.pcap"
    run("anonymise", whole, "-o", target, "--key-file", key)
    assert reports(target) == reports(whole)
    assert not texts(target) & texts(whole)
    assert b"charlie" not in target.read_bytes()
    with open_capture(whole) as before, open_capture(target) as after:
        assert [frame[4] for frame in before] == [frame[4] for frame in after]
    assert NEAR not in target.read_bytes()


@pytest.mark.parametrize("way", ["of gre", "inside gre", "of vxlan"])
def test_addresses_in_a_fragmented_tunnel_of_unknown_contents_are_replaced(
    way: str, key: Path, tmp_path: Path
) -> None:
    packet = ipv4(udp(b"GET /private" + bytes(100), 5000, 9), src=FAR, dst=NEAR)
    parts = WAYS[way](packet, 7)
    source, target = tmp_path / "in.pcap", tmp_path / "out.pcap"
    source.write_bytes(
        pcap_file([(1, number, bytes(12) + b"\x08\x00" + part, 14 + len(part)) for number, part in enumerate(parts)])
    )
    run("anonymise", source, "-o", target, "--key-file", key)
    assert len(parts) == 2
    assert b"private" not in target.read_bytes()
    run("anonymise", source, "-o", target, "--key-file", key, "--keep-others")
    written = target.read_bytes()
    assert b"GET /private" in written
    assert NEAR not in written
    assert FAR not in written


def test_fragments_of_a_number_used_again_after_a_time_stand_alone(tmp_path: Path) -> None:
    """The first datagram never came whole, and its fragment is no part of the next one."""
    lone = fragments4(udp(bytes(90), 4000, 7777), [40], ident=7)[0]
    packets = [lone, *fragments4(udp(bytes(90), 4000, 7777), [40], ident=7)]
    seconds = [0, 100, 100]
    records = [
        (second, 0, bytes(12) + pack(">H", 0x0800) + packet, 14 + len(packet))
        for second, packet in zip(seconds, packets, strict=True)
    ]
    source, target = tmp_path / "in.pcap", tmp_path / "out.pcap"
    source.write_bytes(pcap_file(records))
    run("slice", source, "-Y", "udp.port == 7777 or frame.number == 3", "-d", "udp.port==7777,riptide-2.2", "-w", target)
    with open_capture(target) as reader:
        assert len(list(reader)) == 2


def test_a_fragment_that_is_repeated_without_end_takes_no_more_memory() -> None:
    first, second = fragments4(udp(bytes(90), 4000, 7777), [40], ident=7)
    fragments = Fragments()

    def take(number: int, packet: bytes):
        data = bytes(12) + b"\x08\x00" + packet
        return fragments.take((number, number, 1, data, len(data)))

    for number in range(MAX_PIECES + 100):
        assert take(number, first) is None
    found = take(number + 1, second)
    assert found is not None
    assert len(found.pieces) == MAX_PIECES
    assert found.pieces[-1] == (number + 1, 40, 58)
