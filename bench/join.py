"""Measures `netdissect join` beside `netdissect connections` on the sum of both captures.

    python bench/join.py                             a pair of each UDP protocol, 100,000 datagrams
    python bench/join.py client.pcap server.pcap     a pair that is there already
    python bench/join.py --keep DIR --protocol knet  leave the pair there

The pairs are the shipped ones (`tests/truth/pairs.json`), replayed on both sides at the same times,
many at once, each with addresses, ports and last bytes of its own. CPU seconds are those of the
whole program, the least of three runs.
"""

from __future__ import annotations

import argparse
import heapq
import itertools
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

from make_capture import CAPTURES, STAGGER_NS, START_NS, Session, Template, load
from netdissect.capture import PcapWriter, open_capture

PAIRS = CAPTURES.parent / "tests" / "truth" / "pairs.json"
PROTOCOLS = ("riptide", "knet")
"""Those whose datagrams end with what users send, unsealed: there, replays can be told apart."""
MAX_RATIO = 2.5
"""CPU seconds of a join for each of `connections` on the sum of both captures."""
CONCURRENT = 20
RUNS = 3
LEAST_MARKED = 42 + 16
_SPREAD = 2_654_435_761


class Pair(NamedTuple):
    """One shipped pair, ready to be replayed."""

    sides: tuple[Template, Template]
    delays_ns: tuple[int, int]
    """When each side begins, after the one that begins first."""
    length_ns: int


def load_pair(paths: list[Path]) -> Pair | None:
    """Return a pair; None where a side holds anything but whole UDP datagrams."""
    first, second = (load(path) for path in paths)
    if first is None or second is None:
        return None
    starts = []
    for path in paths:
        with open_capture(path) as reader:
            starts.append(min(time_ns for _, time_ns, *_ in reader))
    earliest = min(starts)
    delays = (starts[0] - earliest, starts[1] - earliest)
    sides = (first, second)
    ends = [d + side.datagrams[-1].delay_ns for d, side in zip(delays, sides, strict=True)]
    return Pair(sides, delays, max(ends))


def marked(frame: bytes, number: int) -> bytes:
    """Return a frame whose last bytes are those of one replay alone, where it has any to spare."""
    if len(frame) < LEAST_MARKED:
        return frame
    mark = (number * _SPREAD % (1 << 32)).to_bytes(4, "big")
    return frame[:-4] + bytes(was ^ by for was, by in zip(frame[-4:], mark, strict=True))


def replay(pairs: list[Pair]) -> Iterator[tuple[int, int, bytes]]:
    """Yield (time, side, frame) for ever, in order of time."""
    supply = enumerate(itertools.cycle(pairs))
    slots = [START_NS + slot * STAGGER_NS for slot in range(CONCURRENT)]
    heapq.heapify(slots)
    heap: list[tuple[int, int, int, bytes, Session]] = []
    while True:
        while not heap or slots[0] <= heap[0][0]:
            number, pair = next(supply)
            start_ns = slots[0]
            heapq.heapreplace(slots, start_ns + pair.length_ns + STAGGER_NS)
            for side in (0, 1):
                # What leaves a relay has another address and port than what came to it.
                begun_ns = start_ns + pair.delays_ns[side]
                session = Session(pair.sides[side], begun_ns, number, 2 * number + side * 100_000)
                first = session.next()
                if first is not None:
                    heapq.heappush(heap, (first[0], number, side, first[1], session))
        time_ns, number, side, frame, session = heap[0]
        yield time_ns, side, marked(frame, number)
        following = session.next()
        if following is None:
            heapq.heappop(heap)
        else:
            heapq.heapreplace(heap, (following[0], number, side, following[1], session))


def write(protocol: str, datagrams: int, paths: list[Path], both: Path) -> None:
    """Write both sides, of so many datagrams together, and their sum."""
    known = json.loads(PAIRS.read_text())
    files = [
        [CAPTURES / protocol / name for name in row["captures"]]
        for row in known
        if row["protocol"] == protocol and row["kind"] == "relayed"
    ]
    pairs = [pair for pair in map(load_pair, files) if pair is not None]
    with ExitStack() as stack:
        writers = [stack.enter_context(PcapWriter(str(path), 1)) for path in (*paths, both)]
        for time_ns, side, frame in itertools.islice(replay(pairs), datagrams):
            writers[side].write(time_ns, frame)
            writers[2].write(time_ns, frame)


def cost(*words: str) -> tuple[float, float]:
    """Return the CPU seconds, the least of several runs, and the peak memory in MB of a command."""
    found = []
    for _ in range(RUNS):
        command = [sys.executable, "-m", "netdissect", *words]
        with subprocess.Popen(command, stdout=subprocess.DEVNULL) as process:
            _, status, usage = os.wait4(process.pid, 0)
            process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode not in (0, 6):
            sys.exit(f"netdissect {words[0]} ended with {process.returncode}")
        found.append((usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1000))
    return min(found)


def compared(name: str, paths: list[Path], both: Path) -> bool:
    """Measure a pair, print the figures, and return whether the join is within its limit."""
    alone, _ = cost("connections", str(both))
    joined, memory = cost("join", *map(str, paths))
    ratio = joined / alone
    text = f"{name:<10} connections {alone:6.2f} CPU-s  join {joined:6.2f} CPU-s, {memory:.0f} MB"
    good = ratio <= MAX_RATIO
    print(f"{text}  {ratio:.2f} times{'' if good else '  BEYOND THE LIMIT'}", flush=True)
    return good


def main() -> int:
    """Run what was asked for."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("captures", nargs="*", type=Path, metavar="A B")
    parser.add_argument("--datagrams", type=int, default=100_000)
    parser.add_argument("--protocol", choices=PROTOCOLS)
    parser.add_argument("--keep", type=Path, metavar="DIR")
    asked = parser.parse_args()
    good = True
    with tempfile.TemporaryDirectory() as name:
        folder = asked.keep or Path(name)
        if asked.captures:
            both = folder / "both.pcapng"
            command = ["merge", *map(str, asked.captures), "-w", str(both)]
            subprocess.run([sys.executable, "-m", "netdissect", *command], check=True)
            return 0 if compared("", asked.captures, both) else 1
        for protocol in [asked.protocol] if asked.protocol else PROTOCOLS:
            names = [f"{protocol}-{part}.pcap" for part in ("client", "server", "both")]
            *paths, both = [folder / part for part in names]
            write(protocol, asked.datagrams, paths, both)
            good = compared(protocol, paths, both) and good
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
