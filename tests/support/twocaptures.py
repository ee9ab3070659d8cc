"""Rewrites captures as another clock, card or network would have left them."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from pathlib import Path
from zlib import crc32

import console_docs
from netdissect.capture import open_capture
from netdissect.capture.writer import PcapWriter
from packetbuild import A4, ipv4, ipv6, link_frame, udp

CAPTURES = console_docs.ROOT / "captures"
Record = tuple[int, bytes, int]
"""(time in ns, bytes, length on the wire)."""
Change = Callable[[list[Record]], Iterable[Record]]


def records(path: Path) -> list[Record]:
    with open_capture(path) as reader:
        return [(time, data, wire) for _, time, _, data, wire in reader]


def on_ethernet(path: Path) -> list[Record]:
    """Return the records of a capture of Ethernet or of bare IP packets, on Ethernet."""
    with open_capture(path) as reader:
        found = [(time, link, data, wire) for _, time, link, data, wire in reader]
    return [
        (time, data, wire) if link == 1 else (time, ethernet(data), wire + 14)
        for time, link, data, wire in found
    ]


def named_copy(path: Path, name: str) -> bytes:
    """Return a pcap file with bytes of its own: a hash of the name, in a field that nobody reads."""
    data = path.read_bytes()
    return data[:12] + crc32(name.encode()).to_bytes(4, "little") + data[16:]


def interleaved(paths: Iterable[Path], target: Path, more: Iterable[Record] = ()) -> Path:
    """Write captures of Ethernet as if all had begun at once, and more records in that time."""
    found: list[Record] = []
    for path in paths:
        with open_capture(path) as reader:
            own = list(reader)
        found += [(time - own[0][1], data, wire) for _, time, link, data, wire in own if link == 1]
    with PcapWriter(target, 1) as writer:
        for time, data, wire in sorted([*found, *more], key=lambda record: record[0]):
            writer.write(time + 1_700_000_000_000_000_000, data, wire)
    return target


def rewritten(path: Path, target: Path, *changes: Change, nanosecond: bool = True) -> str:
    """Write a capture as Ethernet after some changes; return its path."""
    found: Iterable[Record] = on_ethernet(path)
    for change in changes:
        found = list(change(list(found)))
    with PcapWriter(target, 1, nanosecond=nanosecond) as writer:
        for time, data, wire in found:
            writer.write(time, data, wire)
    return str(target)


def followed_by(path: Path, after_ns: int) -> Change:
    """Have another capture follow, as in two that were put together."""

    def change(found: list[Record]) -> Iterable[Record]:
        later = on_ethernet(path)
        moved = found[-1][0] + after_ns - later[0][0]
        return [*found, *((time + moved, data, wire) for time, data, wire in later)]

    return change


def goes_on(found: list[Record], *, from_another_port: bool) -> list[Record]:
    """Have a client whose way to the server breaks in the middle stop then, or change its port."""
    port, begun = found[0][1][34:36], found[0][0]
    other = (int.from_bytes(port, "big") + 1).to_bytes(2, "big")
    broken = begun + 4_660_000_000
    return [
        (time, data[:34] + other + data[36:] if late else data, wire)
        for time, data, wire in found
        for late in [time > broken and data[34:36] == port]
        if from_another_port or not late
    ]


def shifted(offset_ns: int, drift: float = 0.0) -> Change:
    def change(found: list[Record]) -> Iterable[Record]:
        start = found[0][0]
        for time, data, wire in found:
            yield time + offset_ns + round((time - start) * drift), data, wire

    return change


def stepped(index: int, span_ns: int) -> Change:
    """Set the clock by a span before a record."""
    return lambda found: [
        (time + (span_ns if place >= index else 0), data, wire)
        for place, (time, data, wire) in enumerate(found)
    ]


def snapped(octets: int) -> Change:
    return lambda found: [(time, data[:octets], wire) for time, data, wire in found]


def padded(extra: int) -> Change:
    """Add a trailer, as a capture with frame check sequences has it."""
    return lambda found: [
        (time, data + b"\xa5" * extra, wire + extra) for time, data, wire in found
    ]


def thinned(share: float, seed: int) -> Change:
    """Leave records out, as a capture that cannot keep up does."""
    chance = random.Random(seed)
    return lambda found: [record for record in found if chance.random() >= share]


def jittered(most_ns: int, seed: int) -> Change:
    chance = random.Random(seed)
    return lambda found: [
        (time + chance.randrange(most_ns), data, wire) for time, data, wire in found
    ]


def with_ip(change: Callable[[int, bytes], Iterable[bytes]]) -> Change:
    """Apply a change to the IP packet of each record of an Ethernet capture: it gets its place and
    returns frames."""

    def changed(found: list[Record]) -> Iterable[Record]:
        for place, (time, data, _) in enumerate(found):
            for frame in change(place, data[14:]):
                yield time, frame, len(frame)

    return changed


def ethernet(packet: bytes) -> bytes:
    return link_frame("ethernet", packet)[1]


def over_ipv6(_: int, packet: bytes) -> Iterable[bytes]:
    """Carry the payload of an IPv4 packet over IPv6, as a translator does."""
    size = (packet[0] & 15) * 4
    prefix = bytes.fromhex("0064ff9b") + bytes(8)
    yield ethernet(
        ipv6(packet[size:], packet[9], src=prefix + packet[12:16], dst=prefix + packet[16:20])
    )


def fragmented(place: int, packet: bytes) -> Iterable[bytes]:
    """Cut a packet into IP fragments of 24 bytes."""
    body = packet[20:]
    for start in range(0, len(body), 24):
        more = 0x2000 if start + 24 < len(body) else 0
        yield ethernet(
            ipv4(
                body[start : start + 24],
                packet[9],
                src=packet[12:16],
                dst=packet[16:20],
                ident=place & 0xFFFF,
                bits=more | start // 8,
            )
        )


def with_port(old: int, new: int, *, since: int = 0) -> Change:
    """Replace a port from a record on, as a NAT that rebinds does."""

    def port(place: int, packet: bytes) -> Iterable[bytes]:
        if place >= since:
            ports = [int.from_bytes(packet[20 + at : 22 + at], "big") for at in (0, 2)]
            swapped = b"".join((new if was == old else was).to_bytes(2, "big") for was in ports)
            packet = packet[:20] + swapped + packet[24:]
        yield ethernet(packet)

    return with_ip(port)


def held_back(port: int, since_ns: int, until_ns: int, by_ns: int) -> Change:
    """Delay what comes from a port in a span; what follows waits for it."""

    def change(found: list[Record]) -> Iterable[Record]:
        start, last, moved = found[0][0], 0, []
        for time, data, wire in found:
            at = time
            if int.from_bytes(data[34:36], "big") == port:
                late = since_ns <= time - start < until_ns
                at = last = max(last, time + by_ns * late)
            moved.append((at, data, wire))
        return sorted(moved, key=lambda record: record[0])

    return change


def coming_back(target: Path) -> Path:
    """Write nine Riptide connections, each followed by a datagram that only its server explains."""
    server, welcome = bytes([10, 1, 1, 1]), bytes.fromhex("1800100000")
    talk = [(0, b"\x02"), (1, welcome), (0, bytes.fromhex("1100100000")), (1, welcome), (0, b"\x07")]
    rows = [(n, n + at, side, octets) for n in range(9) for at, (side, octets) in enumerate(talk)]
    rows += [(99, 20 + n / 10, 0, b"\xee" * 9) for n in range(1500)]
    rows += [(n, 150 + n, 0, b"\xee" * 9) for n in range(9)]
    with PcapWriter(str(target), 1) as writer:
        for n, at, side, octets in sorted(rows, key=lambda row: row[1]):
            ports = (50_000 + n, 7777 + (n == 99))[:: 1 - 2 * side]
            packet = ipv4(udp(octets, *ports), src=(A4, server)[side], dst=(server, A4)[side])
            writer.write(int(at * 1e9), link_frame("ethernet", packet)[1])
    return target
