"""No frame raises, whatever it holds, and state stays within its bounds."""

from __future__ import annotations

import random
import tracemalloc
from struct import pack

import pytest

from netdissect.flow import Decapsulator, streams
from netdissect.flow.links import LINK_READERS
from netdissect.model.packets import PacketKind
from packetbuild import (
    A4,
    B4,
    LINK_WRAPPERS,
    fragments4,
    fragments6,
    frame,
    ipv4,
    ipv6,
    link_frame,
    tcp,
    udp,
)

_STAMPS = b"\x01\x01\x08\x0a" + bytes(8)
_SEEDS = [
    ipv4(udp(b"game" * 20)),
    ipv4(udp(b"game"), options=bytes(8)),
    ipv6(udp(b"game" * 5), 0, extensions=bytes([60, 0]) + bytes(6) + bytes([17, 0]) + bytes(6)),
    *fragments4(udp(b"f" * 90), [48, 24]),
    *fragments6(udp(b"f" * 90), [48, 24]),
    *(ipv4(tcp(b"stream" * 3, seq=n * 9, ack=n, options=_STAMPS), 6) for n in range(6)),
    ipv4(tcp(seq=2**32 - 1, flags=2), 6),
    ipv4(tcp(b"end", seq=60, flags=0x11), 6),
    ipv4(tcp(ack=40, sport=7777, dport=4000), 6, src=B4, dst=A4),
    ipv4(b"\x03\x03" + bytes(6) + ipv4(udp(b"quoted")), 1),
    ipv4(udp(b"\x08\0\0\0\0\0\x07\0" + link_frame("vlan", ipv4(udp(b"in")))[1], dport=4789)),
    ipv4(b"\xb0\0\x65\x58" + bytes(12) + link_frame("ethernet", ipv6(udp(b"in")))[1], 47),
]


def mutated(rng, count):
    links = [name for name in LINK_WRAPPERS if name != "ip-only"]
    time_ns = 0
    for number in range(1, count + 1):
        link, data = link_frame(rng.choice(links), rng.choice(_SEEDS))
        octets = bytearray(data)
        for _ in range(rng.choice((0, 1, 1, 2, 5))):
            value = rng.choice((0, 1, 0x45, 0x7F, 0xFF, rng.randrange(256)))
            octets[rng.randrange(len(octets))] = value
        if rng.random() < 0.2:
            del octets[rng.randrange(len(octets)) :]
        if rng.random() < 0.05:
            link = rng.choice([*LINK_READERS, 999])
        time_ns += rng.choice((0, 1000, 10**6, 10**8, -(10**7)))
        wire = rng.choice((len(octets), len(data), 0, 2**32 - 1))
        yield (number, max(time_ns, 0), link, bytes(octets), wire)


def check(count, seed):
    flow = Decapsulator()
    made = dict.fromkeys(PacketKind, 0)
    for kind, number, _, key, payload, segment, faults in flow.packets(
        mutated(random.Random(seed), count)
    ):
        made[kind] += 1
        assert 1 <= number <= count
        assert len(key) in {12, 36}
        assert len(payload) <= 65_535
        assert (segment is None) == (kind in {PacketKind.UDP, PacketKind.ICMP_UNREACHABLE})
        assert len(set(faults)) == len(faults)
    stats = flow.stats
    assert stats.frames == count
    assert (made[PacketKind.UDP], made[PacketKind.TCP]) == (stats.udp, stats.tcp)
    assert made[PacketKind.ICMP_UNREACHABLE] == stats.icmp_unreachable
    set_aside = (
        sum(stats.unknown_link.values())
        + stats.non_ip
        + stats.malformed
        + stats.too_deep
        + stats.other_protocols
        + stats.fragments
        - stats.fragments_joined
    )
    # Every frame ends as one packet or in one counter; none vanishes.
    assert stats.udp + stats.tcp + stats.icmp_unreachable + set_aside == count
    assert min(made.values()) > 0


def test_some_mutated_frames():
    check(20_000, 1)


@pytest.mark.slow
def test_many_mutated_frames():
    check(1_000_000, 2)


@pytest.mark.slow
def test_a_million_forged_connections_stay_within_bounds():
    def forged():
        for number in range(1, 1_000_001):
            segment = tcp(b"x" * 50, seq=number * 7919, sport=number % 65_536)
            yield frame(number, ipv4(segment, 6, src=pack(">I", number // 65_536 + 1)))

    flow = Decapsulator()
    tracemalloc.start()
    for _ in flow.packets(forged()):
        pass
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert flow.stats.tcp_connections == 1_000_000
    assert flow.stats.tcp_evicted == 1_000_000 - streams.MAX_TCP_CONNECTIONS
    assert peak < 150_000_000
