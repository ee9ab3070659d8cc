"""Builds a large TCP capture from the real Netplay ones, for measurements.

Whole captures are replayed as sessions, many at a time, each with addresses of its own, so that
handshakes, sequence numbers and acknowledgements are valid within each. Written as it is made.

    python bench/make_tcp_capture.py --megabytes 200 --out big-tcp.pcap
    python bench/compare.py tcp big-tcp.pcap
"""

from __future__ import annotations

import argparse
import heapq
import itertools
from collections.abc import Iterator
from pathlib import Path

from netdissect.capture import PcapWriter, open_capture

CAPTURES = Path(__file__).resolve().parents[1] / "captures" / "netplay"
START_NS = 1_700_000_000_000_000_000
STAGGER_NS = 97_000_000
"""Between the starts of the first sessions."""
ETHERNET, RAW = 1, 101
_HEADER = bytes(12) + b"\x08\x00"
_RECORD_OCTETS = 16

Template = list[tuple[int, bytes]]
"""(time since the first packet in ns, IPv4 packet)."""


def template(path: Path) -> Template:
    """Return the IPv4 TCP packets of a capture."""
    found: Template = []
    first = None
    with open_capture(path) as capture:
        for _, time_ns, link, data, wire in capture:
            packet = data[14:] if link == ETHERNET and data[12:14] == b"\x08\x00" else data
            if link not in (ETHERNET, RAW) or packet[:1] != b"\x45" or packet[9:10] != b"\x06":
                continue
            if len(data) < wire:
                return []
            first = time_ns if first is None else first
            found.append((time_ns - first, packet))
    return found


def session(source: Template, number: int, start_ns: int) -> Iterator[tuple[int, int, bytes]]:
    """Yield (time, session, frame) of one replay: both ends get addresses of this session."""
    client = (0x0A000000 + number).to_bytes(4, "big")
    server = (0x0B000000 + number).to_bytes(4, "big")
    for delay_ns, packet in source:
        low = packet[20:22] < packet[22:24]
        ends = server + client if low else client + server
        # The checksum stays as it was: captures on a sending host hold wrong ones anyway.
        yield start_ns + delay_ns, number, _HEADER + packet[:12] + ends + packet[20:]


def frames(templates: list[Template], sessions: int) -> Iterator[tuple[int, bytes]]:
    """Yield (time, frame) without end, in order of time."""
    numbers = itertools.count(1)
    heap: list[tuple[tuple[int, int, bytes], Iterator[tuple[int, int, bytes]]]] = []

    def begin(start_ns: int) -> None:
        number = next(numbers)
        replay = session(templates[number % len(templates)], number, start_ns)
        heapq.heappush(heap, (next(replay), replay))

    for index in range(sessions):
        begin(START_NS + index * STAGGER_NS)
    while True:
        (time_ns, _, frame), replay = heap[0]
        yield time_ns, frame
        following = next(replay, None)
        if following is None:
            heapq.heappop(heap)
            begin(time_ns + STAGGER_NS)
        else:
            heapq.heapreplace(heap, (following, replay))


def main() -> None:
    """Write the capture."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--megabytes", type=int, default=200)
    parser.add_argument("--sessions", type=int, default=64, help="replays going on at once")
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    paths = sorted(path for path in CAPTURES.iterdir() if path.suffix in (".pcap", ".pcapng"))
    templates = [found for path in paths if (found := template(path))]
    left = options.megabytes * 1_000_000
    with PcapWriter(options.out, ETHERNET) as writer:
        for time_ns, frame in frames(templates, options.sessions):
            writer.write(time_ns, frame)
            left -= len(frame) + _RECORD_OCTETS
            if left <= 0:
                break


if __name__ == "__main__":
    main()
