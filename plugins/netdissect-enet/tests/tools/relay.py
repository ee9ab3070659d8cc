"""A seeded relay for UDP on loopback that loses, copies, delays and swaps datagrams, goes black for a
while, and writes what it sees on both sides as pcap files, with a log of what it did.
"""

from __future__ import annotations

import heapq
import random
import select
import socket
import struct
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

__all__ = ["Impairment", "Relay"]


@dataclass(frozen=True)
class Impairment:
    """What the network does to each datagram."""

    loss: float = 0.0
    copies: float = 0.0
    swap: float = 0.0
    """Share that is held back for `swap_ms` more, so that later ones overtake it."""
    delay_ms: float = 0.0
    jitter_ms: float = 0.0
    swap_ms: float = 30.0
    blackouts: tuple[tuple[float, float], ...] = ()
    """(from, to) in seconds since the relay began."""


class _Pcap:
    """A capture of raw IPv4 packets with nanoseconds."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("wb")
        self._file.write(struct.pack("<IHHiIII", 0xA1B23C4D, 2, 4, 0, 0, 65535, 101))

    def add(self, source: tuple[str, int], target: tuple[str, int], octets: bytes) -> None:
        udp = struct.pack("!HHHH", source[1], target[1], 8 + len(octets), 0) + octets
        ip = bytearray(struct.pack(
            "!BBHHHBBH4s4s", 0x45, 0, 20 + len(udp), 0, 0, 64, 17, 0,
            socket.inet_aton(source[0]), socket.inet_aton(target[0]),
        ))  # fmt: skip
        total = sum(struct.unpack("!10H", ip))
        total = (total & 0xFFFF) + (total >> 16)
        ip[10:12] = struct.pack("!H", ~(total + (total >> 16)) & 0xFFFF)
        seconds, rest = divmod(time.time_ns(), 1_000_000_000)
        size = len(ip) + len(udp)
        self._file.write(struct.pack("<IIII", seconds, rest, size, size) + ip + udp)

    def close(self) -> None:
        self._file.close()


@dataclass
class Relay:
    """Between clients and one server: `run` until a moment; `log` counts per direction."""

    server: tuple[str, int]
    impairment: Impairment
    seed: int
    client_leg: Path
    server_leg: Path
    log: dict[str, Counter[str]] = field(
        default_factory=lambda: {"c2s": Counter(), "s2c": Counter()}
    )

    def __post_init__(self) -> None:
        self._chance = random.Random(self.seed)
        self._front = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._front.bind(("127.0.0.1", 0))
        self.port = self._front.getsockname()[1]
        self._near, self._far = _Pcap(self.client_leg), _Pcap(self.server_leg)
        self._backs: dict[tuple[str, int], socket.socket] = {}
        self._due: list[tuple[float, int, Callable[[], None]]] = []
        self._count = 0
        self._start = time.monotonic()

    def run(self, done: Callable[[], bool]) -> None:
        """Pass datagrams on until `done()`; then close the captures."""
        while not done():
            sockets = [self._front, *self._backs.values()]
            wait = min(0.02, max(0.0, self._due[0][0] - time.monotonic())) if self._due else 0.02
            for ready in select.select(sockets, [], [], wait)[0]:
                octets, sender = ready.recvfrom(1 << 16)
                if ready is self._front:
                    self._from_client(octets, sender)
                else:
                    client = next(key for key, back in self._backs.items() if back is ready)
                    self._from_server(octets, client, ready)
            while self._due and self._due[0][0] <= time.monotonic():
                heapq.heappop(self._due)[2]()
        for each in (self._front, *self._backs.values(), self._near, self._far):
            each.close()

    def _from_client(self, octets: bytes, client: tuple[str, int]) -> None:
        back = self._backs.get(client)
        if back is None:
            back = self._backs[client] = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
            back.bind(("127.0.0.1", 0))
        self._near.add(client, ("127.0.0.1", self.port), octets)

        def deliver() -> None:
            self._far.add(back.getsockname(), self.server, octets)
            back.sendto(octets, self.server)

        self._pass("c2s", deliver)

    def _from_server(self, octets: bytes, client: tuple[str, int], back: socket.socket) -> None:
        self._far.add(self.server, back.getsockname(), octets)

        def deliver() -> None:
            self._near.add(("127.0.0.1", self.port), client, octets)
            self._front.sendto(octets, client)

        self._pass("s2c", deliver)

    def _pass(self, way: str, deliver: Callable[[], None]) -> None:
        how, chance, log = self.impairment, self._chance, self.log[way]
        log["datagrams"] += 1
        now = time.monotonic()
        # The same number of draws for each datagram: one more or less changes no other's fate.
        lost, copied, swapped, jitter = (chance.random() for _ in range(4))
        if any(first <= now - self._start < last for first, last in how.blackouts):
            log["blackout"] += 1
            return
        if lost < how.loss:
            log["lost"] += 1
            return
        delay = how.delay_ms + jitter * how.jitter_ms
        if swapped < how.swap:
            log["swapped"] += 1
            delay += how.swap_ms
        times = [delay]
        if copied < how.copies:
            log["copied"] += 1
            times.append(delay + 3.0)
        for ms in times:
            self._count += 1
            heapq.heappush(self._due, (now + ms / 1000, self._count, deliver))
