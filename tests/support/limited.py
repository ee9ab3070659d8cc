"""A conversation whose way to the server lets through so much a second, or loses by chance, as both
sides capture it.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable, Sequence
from pathlib import Path

from netdissect.capture.writer import PcapWriter
from packetbuild import A4, B4, ipv4, link_frame, udp

START_NS = 1_700_000_000_000_000_000
WAY = 0.02
"""Seconds of the way, each direction, without a queue."""
PINGS = 0.5

Drop = Callable[[float, random.Random], bool]


def seconds(*parts: tuple[int, int], size: int = 200) -> list[tuple[float, int]]:
    """Return what is sent of parts of (seconds, datagrams a second)."""
    found, start, chance = [], 0.0, random.Random(7)
    for length, rate in parts:
        found += [
            (start + (place + chance.random()) / rate, size) for place in range(length * rate)
        ]
        start += length
    return found


def _numbered(number: int, body: bytes) -> bytes:
    """Return a datagram of kNet."""
    return bytes([0x80 | number & 63]) + (number >> 6).to_bytes(2, "little") + body


class _Way:
    """What limits the rate on the way to the server."""

    def __init__(self, limit: int | None, queue: int, bucket: int) -> None:
        self.limit, self.queue, self.bucket = limit, queue, bucket
        self.free, self.tokens, self.filled = 0.0, float(bucket), 0.0

    def arrival(self, time: float, size: int) -> float | None:
        """Return when so many bytes arrive; None where they do not."""
        if not self.limit:
            return time + WAY
        if self.bucket:
            self.tokens += (time - self.filled) * self.limit
            self.tokens, self.filled = min(self.tokens, float(self.bucket)), time
            if self.tokens < size:
                return None
            self.tokens -= size
            return time + WAY
        if max(0.0, self.free - time) * self.limit + size > self.queue:
            return None
        self.free = max(self.free, time) + size / self.limit
        return self.free + WAY


def conversation(
    folder: Path,
    load: Sequence[tuple[float, int]],
    *,
    limit: int | None = None,
    queue: int = 8_000,
    bucket: int = 0,
    drop: Drop = lambda _, __: False,
) -> tuple[str, str]:
    """Write what client and server capture while the client sends a load; return both paths.

    `limit`: bytes a second that a queue of `queue` bytes lets through; with a `bucket` of so many
    bytes nothing waits: what finds no tokens is lost.
    """
    over = load[-1][0]
    chance = random.Random(1)
    pings = [(place + 0.3 * chance.random()) * PINGS for place in range(int(over / PINGS))]
    # What happens, in time: of the client's only when its turn comes is it known what arrives.
    todo: list[tuple[float, int, bytes]] = [(0.0, 0, bytes(8))]
    todo += [(at + 0.1, 0, bytes([size - 6, 0, 20]) + bytes(size - 6 - 1)) for at, size in load]
    todo += [(at + 0.11, 0, bytes([2, 0x20, 1, place & 255])) for place, at in enumerate(pings)]
    todo += [(at + 0.21, 1, bytes([2, 0x20, 1, place & 255])) for place, at in enumerate(pings)]
    heapq.heapify(todo)
    numbers, way = [0, 0], _Way(limit, queue, bucket)
    seen: tuple[list[tuple[float, bytes]], ...] = ([], [])
    while todo:
        time, side, body = heapq.heappop(todo)
        payload = body
        if body != bytes(8):
            numbers[side] += 1
            payload = _numbered(numbers[side], body)
        ends = (
            (udp(payload, 4000, 2345), A4, B4) if side == 0 else (udp(payload, 2345, 4000), B4, A4)
        )
        frame = link_frame("ethernet", ipv4(ends[0], src=ends[1], dst=ends[2]))[1]
        seen[side].append((time, frame))
        arrives: float | None = time + WAY
        if side == 0:
            arrives = None if drop(time, chance) else way.arrival(time, len(payload))
            if arrives is None:
                continue
        seen[1 - side].append((arrives, frame))
        if len(body) == 4 and body[2] == 1:
            heapq.heappush(todo, (arrives + 0.001, 1 - side, bytes([2, 0x20, 2, body[3]])))
    paths = []
    for name, found in zip(("client", "server"), seen, strict=True):
        paths.append(str(folder / f"{name}.pcap"))
        with PcapWriter(folder / f"{name}.pcap", 1) as writer:
            for time, frame in sorted(found, key=lambda each: each[0]):
                writer.write(START_NS + int(time * 1e9), frame, len(frame))
    return paths[0], paths[1]
