"""Memory of a join of many flows: it grows by little with each, however far apart its times are."""

from __future__ import annotations

import gc
import tracemalloc
from pathlib import Path

import pytest

from netdissect.capture import PcapWriter
from netdissect.join import join
from packetbuild import ipv4, udp

SECOND = 1_000_000_000


def flood(path: Path, flows: int, times: tuple[int, ...], delay_ns: int) -> str:
    """Write flows of a datagram at each of these times, seconds."""
    with PcapWriter(path, 101) as writer:
        for at in times:
            for number in range(flows):
                octets = number.to_bytes(4, "big") + at.to_bytes(4, "big") + bytes(20)
                source = bytes([10, 1, number >> 8, number & 255])
                packet = ipv4(udp(octets, 5000, 6000), src=source)
                time_ns = (at + 1_700_000_000) * SECOND + number * 20_000 + delay_ns
                writer.write(time_ns, packet, len(packet))
    return str(path)


@pytest.mark.parametrize("times", [(0,), (0, 3500)], ids=["one", "an hour"])
def test_a_flow_takes_little_memory(tmp_path: Path, times: tuple[int, ...]) -> None:
    peaks = []
    for flows in (300, 900):
        first = flood(tmp_path / f"{flows}.a.pcap", flows, times, 0)
        second = flood(tmp_path / f"{flows}.b.pcap", flows, times, 3_000_000)
        gc.collect()
        tracemalloc.start()
        try:
            with join(first, second) as found:
                assert len(found.report.conversations) == flows
            peaks.append(tracemalloc.get_traced_memory()[1])
        finally:
            tracemalloc.stop()
    assert (peaks[1] - peaks[0]) / 600 < 7_500 * len(times), peaks
