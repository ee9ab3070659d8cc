"""Builds a large capture from the real ones of a protocol, for measurements.

Whole UDP captures are replayed as sessions, many at a time, each with addresses and client ports of
its
own, so that there are many connections whose sequence numbers are valid within each. Written as it
is made: memory does not grow with the size.

    python bench/make_capture.py --protocol riptide --datagrams 1000000 --out big.pcap
"""

from __future__ import annotations

import argparse
import heapq
import itertools
import sys
from collections.abc import Iterator
from pathlib import Path
from struct import Struct, pack
from typing import NamedTuple

from netdissect.capture import PcapWriter, open_capture
from netdissect.flow import Decapsulator
from netdissect.model.packets import PacketKind, flow_endpoints

CAPTURES = Path(__file__).resolve().parents[1] / "captures"
START_NS = 1_700_000_000_000_000_000
STAGGER_NS = 97_000_000
"""Between the starts of the first sessions, and between the end of one and the start of its
successor.
"""
FIRST_ADDRESS = int.from_bytes(bytes([10, 0, 0, 1]), "big")
ADDRESSES = 1 << 24
LOW_PORT, PORTS = 1024, 65_536 - 1024

_headers = Struct(">12sHBBHHHBBH4s4sHHHH").pack


class Datagram(NamedTuple):
    """One datagram of a template."""

    delay_ns: int
    """Time since the template's first one."""
    source: tuple[int, int]
    """(ordinal of the address in the template, port)."""
    destination: tuple[int, int]
    payload: bytes


class Template(NamedTuple):
    """One real capture, ready to be replayed."""

    name: str
    datagrams: list[Datagram]
    addresses: int
    """Distinct addresses."""
    server_port: int
    """Port that is kept: where the first datagram went."""


def load(path: Path) -> Template | None:
    """Return a capture as template; None where it holds anything but whole UDP datagrams."""
    flow = Decapsulator()
    with open_capture(path) as reader:
        packets = list(flow.packets(reader))
    if not packets or any(p[0] is not PacketKind.UDP or p[6] for p in packets):
        return None
    packets.sort(key=lambda packet: packet[2])
    addresses: dict[str, int] = {}
    datagrams = []
    for _, _, time_ns, key, payload, _, _ in packets:
        ends = [
            (addresses.setdefault(end.address, len(addresses)), end.port)
            for end in flow_endpoints(key)
        ]
        datagrams.append(Datagram(time_ns - packets[0][2], ends[0], ends[1], payload))
    return Template(path.name, datagrams, len(addresses), datagrams[0].destination[1])


class Session:
    """One replay of a template."""

    def __init__(self, template: Template, start_ns: int, number: int, address: int) -> None:
        self._rest = iter(template.datagrams)
        self._start_ns = start_ns
        self._number = number
        self._address = address
        self._server_port = template.server_port

    def next(self) -> tuple[int, bytes] | None:
        """Return (time, frame) of its next datagram; None at its end."""
        datagram = next(self._rest, None)
        if datagram is None:
            return None
        source, sport = self._place(datagram.source)
        destination, dport = self._place(datagram.destination)
        size = len(datagram.payload)
        head = _headers(
            bytes(12), 0x0800, 0x45, 0, 28 + size, 0, 0x4000, 64, 17, 0,
            source, destination, sport, dport, 8 + size, 0,
        )  # fmt: skip
        return self._start_ns + datagram.delay_ns, head + datagram.payload

    def _place(self, end: tuple[int, int]) -> tuple[bytes, int]:
        """Return an endpoint's address and port in this session."""
        ordinal, port = end
        address = pack(">I", FIRST_ADDRESS + (self._address + ordinal) % (ADDRESSES - 2))
        if port != self._server_port and port >= LOW_PORT:
            port = LOW_PORT + (port - LOW_PORT + self._number) % PORTS
        return address, port


def replay(templates: list[Template], concurrent: int) -> Iterator[tuple[int, bytes]]:
    """Yield (time, frame) for ever: `concurrent` sessions at a time, in order of time."""
    supply = enumerate(itertools.cycle(templates))
    addresses = 0

    def start(at_ns: int) -> tuple[int, int, bytes, Session]:
        nonlocal addresses
        number, template = next(supply)
        session = Session(template, at_ns, number, addresses)
        addresses += template.addresses
        first = session.next()
        if first is None:
            raise ValueError(f"{template.name} is empty")
        return first[0], number, first[1], session

    heap = [start(START_NS + slot * STAGGER_NS) for slot in range(concurrent)]
    heapq.heapify(heap)
    while True:
        time_ns, number, frame, session = heap[0]
        yield time_ns, frame
        following = session.next()
        if following is None:
            heapq.heapreplace(heap, start(time_ns + STAGGER_NS))
        else:
            heapq.heapreplace(heap, (following[0], number, following[1], session))


def write(templates: list[Template], datagrams: int, concurrent: int, target: str) -> None:
    """Write a capture of so many datagrams."""
    with PcapWriter(target, 1) as writer:
        for time_ns, frame in itertools.islice(replay(templates, concurrent), datagrams):
            writer.write(time_ns, frame)


def main() -> None:
    """Run the command line."""
    protocols = sorted(path.name for path in CAPTURES.iterdir() if path.is_dir())
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--protocol", required=True, choices=protocols)
    parser.add_argument("--datagrams", type=int, default=1_000_000)
    parser.add_argument("--concurrent", type=int, default=50, help="sessions at a time")
    parser.add_argument("--length", type=int, help="datagrams of a session at most")
    parser.add_argument("--match", default="*", help="file names to use, without suffix")
    parser.add_argument("--out", required=True, help="file to write, or - for standard output")
    options = parser.parse_args()
    found = sorted((CAPTURES / options.protocol).glob(f"{options.match}.pcap*"))
    templates = [
        template._replace(datagrams=template.datagrams[: options.length])
        for template in map(load, found)
        if template is not None
    ]
    if not templates:
        parser.error(f"no whole UDP captures of {options.protocol} match {options.match}")
    write(templates, options.datagrams, options.concurrent, options.out)
    print(f"{options.datagrams} datagrams from {len(templates)} captures", file=sys.stderr)


if __name__ == "__main__":
    main()
