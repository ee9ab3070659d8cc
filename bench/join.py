"""Measures `netdissect join` beside `netdissect connections` on the sum of both captures.

    python bench/join.py                             a pair of each protocol, 100,000 datagrams
    python bench/join.py client.pcap server.pcap     a pair that is there already
    python bench/join.py --keep DIR --protocol knet  leave the pair there

The pairs are the shipped ones (`tests/truth/pairs.json`), replayed on both sides at the same times,
many at once, each with addresses and ports of its own, and with what tells its datagrams from those
of another replay: last bytes, times, tokens or sequence numbers. CPU seconds are those of the whole
program, the least of three runs.
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
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from struct import pack, pack_into, unpack_from
from typing import NamedTuple

import make_tcp_capture as tcp
from make_capture import CAPTURES, STAGGER_NS, START_NS, Session, Template, load
from netdissect.capture import PcapWriter, open_capture

PAIRS = CAPTURES.parent / "tests" / "truth" / "pairs.json"
MAX_RATIO = 2.5
"""CPU seconds of a join for each of `connections` on the sum of both captures."""
CONCURRENT = 20
RUNS = 3
HEADERS = 42
"""Bytes of a frame before the UDP payload."""
_SPREAD = 2_654_435_761


Side = Template | tcp.Template


class Pair(NamedTuple):
    """One shipped pair, ready to be replayed."""

    sides: tuple[Side, Side]
    delays_ns: tuple[int, int]
    """When each side begins, after the one that begins first."""
    length_ns: int


def load_pair(paths: list[Path]) -> Pair | None:
    """Return a pair; None where a side holds anything but whole datagrams of one transport."""
    first, second = (load(path) or tcp.template(path) for path in paths)
    if not first or not second:
        return None
    starts = []
    for path in paths:
        with open_capture(path) as reader:
            starts.append(min(time_ns for _, time_ns, *_ in reader))
    earliest = min(starts)
    delays = (starts[0] - earliest, starts[1] - earliest)
    lengths = [
        side.datagrams[-1].delay_ns if isinstance(side, Template) else side[-1][0]
        for side in (first, second)
    ]
    ends = [delay + length for delay, length in zip(delays, lengths, strict=True)]
    return Pair((first, second), delays, max(ends))


def frames_of(
    protocol: str, side: Side, start_ns: int, number: int, address: int
) -> Iterator[tuple[int, bytes]]:
    """Yield (time, frame) of one replay of one side, marked as that of no other replay."""
    if not isinstance(side, Template):
        for time_ns, _, frame in tcp.session(side, address, start_ns):
            yield time_ns, renumbered(frame, number)
        return
    session = Session(side, start_ns, number, address)
    while (following := session.next()) is not None:
        time_ns, frame = following
        yield time_ns, frame[:HEADERS] + MARKS[protocol](side.name, frame[HEADERS:], number)


def last_bytes(_name: str, payload: bytes, number: int) -> bytes:
    """Return a payload that ends with what users send, with an end of this replay's own."""
    if len(payload) < 16:
        return payload
    return payload[:-4] + _mixed(payload[-4:], number)


def moved(name: str, payload: bytes, number: int) -> bytes:
    """Return a payload of EOUDP sent at another time."""
    form, step = (">d", 1009.0) if name.startswith("late") else (">f", 131_072.0)
    if len(payload) < 9:
        return payload
    changed = bytearray(payload)
    pack_into(form, changed, 1, unpack_from(form, payload, 1)[0] + number * step)
    return bytes(changed)


def tokens(_name: str, payload: bytes, number: int) -> bytes:
    """Return a payload of Teeworlds 0.7 with other tokens."""
    if len(payload) < 7 or payload[0] & 0x20:
        return payload
    token = payload[3:7] if payload[3:7] == b"\xff" * 4 else _mixed(payload[3:7], number)
    rest = payload[7:]
    if payload[0] & 0x04 and rest[0] in (1, 5):
        rest = rest[:1] + _mixed(rest[1:5], number) + rest[5:]
    return payload[:3] + token + rest


def renumbered(frame: bytes, number: int) -> bytes:
    """Return a TCP segment of a connection that began with other sequence numbers."""
    moved_by = number * _SPREAD
    changed = bytearray(frame)
    at = 14 + 20
    end = at + (frame[at + 12] >> 4) * 4
    places = [at + 4] + ([at + 8] if frame[at + 13] & 0x10 else [])
    option = at + 20
    while option < end and frame[option]:
        if frame[option] == 1:
            option += 1
            continue
        if frame[option] == 5:
            places += range(option + 2, option + frame[option + 1], 4)
        option += frame[option + 1]
    for place in places:
        pack_into(">I", changed, place, (unpack_from(">I", frame, place)[0] + moved_by) % (1 << 32))
    return bytes(changed)


def _mixed(octets: bytes, number: int) -> bytes:
    mark = pack(">I", number * _SPREAD % (1 << 32))
    return bytes(was ^ by for was, by in zip(octets, mark, strict=True))


MARKS: dict[str, Callable[[str, bytes, int], bytes]] = {
    "riptide": last_bytes,
    "knet": last_bytes,
    "eoudp": moved,
    "teeworlds": tokens,
}
PROTOCOLS = (*MARKS, "netplay")
UNMARKED = {"teeworlds": ("ddnet_blackout", "ddnet_loss", "tw064", "tw065")}
"""Pairs whose replays cannot be told apart: there are no tokens, or they are compressed."""


def replay(protocol: str, pairs: list[Pair]) -> Iterator[tuple[int, int, bytes]]:
    """Yield (time, side, frame) for ever, in order of time."""
    supply = enumerate(itertools.cycle(pairs))
    slots = [START_NS + slot * STAGGER_NS for slot in range(CONCURRENT)]
    heapq.heapify(slots)
    heap: list[tuple[int, int, int, bytes, Iterator[tuple[int, bytes]]]] = []
    while True:
        while not heap or slots[0] <= heap[0][0]:
            number, pair = next(supply)
            start_ns = slots[0]
            heapq.heapreplace(slots, start_ns + pair.length_ns + STAGGER_NS)
            for side in (0, 1):
                # What leaves a relay has another address and port than what came to it.
                begun_ns = start_ns + pair.delays_ns[side]
                address = 2 * number + side * 100_000
                rest = frames_of(protocol, pair.sides[side], begun_ns, number, address)
                time_ns, frame = next(rest)
                heapq.heappush(heap, (time_ns, number, side, frame, rest))
        time_ns, number, side, frame, rest = heap[0]
        yield time_ns, side, frame
        following = next(rest, None)
        if following is None:
            heapq.heappop(heap)
        else:
            heapq.heapreplace(heap, (following[0], number, side, following[1], rest))


def write(protocol: str, datagrams: int, paths: list[Path], both: Path) -> None:
    """Write both sides, of so many datagrams together, and their sum."""
    known = json.loads(PAIRS.read_text())
    files = [
        [CAPTURES / protocol / name for name in row["captures"]]
        for row in known
        if row["protocol"] == protocol
        and row["kind"] in ("relayed", "routed")
        and not row["captures"][0].startswith(UNMARKED.get(protocol, ()))
    ]
    pairs = [pair for pair in map(load_pair, files) if pair is not None]
    with ExitStack() as stack:
        writers = [stack.enter_context(PcapWriter(str(path), 1)) for path in (*paths, both)]
        for time_ns, side, frame in itertools.islice(replay(protocol, pairs), datagrams):
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
