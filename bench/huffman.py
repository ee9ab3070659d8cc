"""Measures the Huffman codec of Teeworlds on the compressed payloads of the captures.

Run it as `python bench/huffman.py`.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from netdissect.capture import open_capture
from netdissect.flow import packets
from netdissect.model.packets import PacketKind
from netdissect.wire import huffman

CAPTURES = Path(__file__).resolve().parents[1] / "captures" / "teeworlds"
LIMIT = 1400
ROUNDS = 5


def codes() -> list[bytes]:
    """Return the compressed payloads of 0.7 and 0.6 packets that decode whole."""
    found = []
    for path in sorted(CAPTURES.glob("*.pcap")):
        with open_capture(path) as capture:
            for packet in packets(capture):
                data = packet[4]
                if packet[0] is PacketKind.UDP and len(data) > 8 and data[2] and not data[0] & 0x20:
                    start = 7 if data[0] & 0xF0 == 0x10 else 3 if data[0] & 0x80 else 0
                    if start and huffman.inspect(data[start:]):
                        found.append(data[start:])
    return found


def bit_loop(code: bytes) -> int | None:
    """Walk the tree bit by bit, for comparison."""
    return huffman.eof_bit(code)


def measure(name: str, work: Callable[[bytes], object], data: list[bytes]) -> None:
    """Print megabytes a second of CPU time, the best of some rounds."""
    best = 1e9
    for _ in range(ROUNDS):
        before = time.process_time()
        for item in data:
            work(item)
        best = min(best, time.process_time() - before)
    octets = sum(map(len, data))
    rate = octets / best / 1e6
    print(f"{name:24} {rate:8.1f} MB/s  ({len(data)} payloads, {octets} bytes)")


def main() -> None:
    """Measure building the tables, decoding and encoding."""
    before = time.process_time()
    huffman.decompress(huffman.compress(b""), LIMIT)
    print(f"tables built in {1000 * (time.process_time() - before):.0f} ms")
    data = codes()
    measure("decode", lambda code: huffman.decompress(code, 8 * LIMIT), data)
    measure("decode, bit by bit", bit_loop, data[::20])
    measure("encode", huffman.compress, [huffman.decompress(code, 8 * LIMIT) for code in data[::4]])


if __name__ == "__main__":
    main()
