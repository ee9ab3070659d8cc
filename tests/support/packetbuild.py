"""Builds frames byte by byte, for the tests of capture and flow."""

from __future__ import annotations

from pathlib import Path
from struct import pack

A4, B4 = bytes([10, 0, 0, 1]), bytes([10, 0, 0, 2])
A6, B6 = bytes(15) + b"\x01", bytes(15) + b"\x02"

LINK_WRAPPERS = {
    "ethernet": (1, lambda p, kind: bytes(12) + pack(">H", kind) + p),
    "vlan": (1, lambda p, kind: bytes(12) + pack(">HHH", 0x8100, 5, kind) + p),
    "qinq": (1, lambda p, kind: bytes(12) + pack(">HHHHH", 0x88A8, 5, 0x8100, 6, kind) + p),
    "null": (0, lambda p, kind: pack("<I", 2 if kind == 0x800 else 30) + p),
    "null-big-endian": (0, lambda p, kind: pack(">I", 2 if kind == 0x800 else 24) + p),
    "loop": (108, lambda p, kind: pack(">I", 2 if kind == 0x800 else 28) + p),
    "raw": (101, lambda p, _: p),
    "raw-openbsd": (14, lambda p, _: p),
    "ip-only": (None, lambda p, _: p),
    "cooked": (113, lambda p, kind: pack(">HHH8sH", 0, 1, 6, bytes(8), kind) + p),
    "cooked2": (276, lambda p, kind: pack(">HHIHBB8s", kind, 0, 3, 1, 0, 6, bytes(8)) + p),
    "snap": (
        1,
        lambda p, kind: bytes(12) + pack(">H6sH", 40, b"\xaa\xaa\x03\0\0\0", kind) + p,
    ),
    "pppoe": (
        1,
        lambda p, kind: (
            bytes(12)
            + pack(">HBBHHH", 0x8864, 0x11, 0, 1, len(p) + 2, 0x21 if kind == 0x800 else 0x57)
            + p
        ),
    ),
    "ppp": (9, lambda p, kind: (b"\x21" if kind == 0x800 else b"\x57") + p),
    "ppp-hdlc": (50, lambda p, kind: b"\xff\x03\x00" + (b"\x21" if kind == 0x800 else b"\x57") + p),
    "nflog": (239, lambda p, kind: _nflog("<", p, kind)),
    "nflog-big-endian": (239, lambda p, kind: _nflog(">", p, kind)),
    "pktap": (258, lambda p, _: pack("<III96s", 108, 1, 1, b"en0") + link_frame("ethernet", p)[1]),
}
"""Name -> (link type, function of IP packet and Ethernet type). None: 228 or 229 by IP version."""


def _nflog(order, packet, kind):
    """Return a frame of NFLOG: a packet header and a prefix of 5 bytes before the payload."""
    attributes = pack(f"{order}HH", 8, 1) + pack(">HBB", kind, 3, 0)
    attributes += pack(f"{order}HH8s", 9, 10, b"game\0")
    head = pack(">BBH", 2 if kind == 0x800 else 10, 0, 5)
    return head + attributes + pack(f"{order}HH", 4 + len(packet), 9) + packet


def link_frame(name, packet):
    """Return (link type, bytes) of an IP packet in the named link layer."""
    link, wrap = LINK_WRAPPERS[name]
    kind = 0x0800 if packet[0] >> 4 == 4 else 0x86DD
    return (228 if kind == 0x0800 else 229) if link is None else link, wrap(packet, kind)


def ipv4(payload, protocol=17, *, src=A4, dst=B4, ident=1, bits=0, options=b"", total=None):
    size = 20 + len(options)
    total = size + len(payload) if total is None else total
    head = pack(">BBHHHBBH", 0x40 | size // 4, 0, total, ident, bits, 64, protocol, 0)
    return head + src + dst + options + payload


def ipv6(payload, protocol=17, *, src=A6, dst=B6, extensions=b"", length=None):
    """`protocol` is the first next-header value; `extensions` stand before the payload."""
    length = len(extensions) + len(payload) if length is None else length
    return pack(">IHBB", 6 << 28, length, protocol, 64) + src + dst + extensions + payload


def udp(payload, sport=4000, dport=7777, length=None):
    return pack(">HHHH", sport, dport, 8 + len(payload) if length is None else length, 0) + payload


def tcp(payload=b"", *, seq=0, ack=0, flags=0x10, sport=4000, dport=7777, options=b"", window=500):
    size = 20 + len(options)
    head = pack(
        ">HHIIBBHHH", sport, dport, seq % 2**32, ack % 2**32, size // 4 << 4, flags, window, 0, 0
    )
    return head + options + payload


def frame(number, packet, *, time_ns=None, link="ethernet", wire=None, cut=None):
    """Return a Frame of an IP packet; `cut`: captured bytes."""
    link_type, data = link_frame(link, packet)
    time_ns = number * 1_000_000 if time_ns is None else time_ns
    return (number, time_ns, link_type, data[:cut], len(data) if wire is None else wire)


def fragments4(payload, sizes, *, ident=7, protocol=17, src=A4, dst=B4):
    """Cut an IPv4 payload into fragments of the given sizes (the rest is the last one)."""
    packets, pos = [], 0
    for size in [*sizes, len(payload) - sum(sizes)]:
        more = 0x2000 if pos + size < len(payload) else 0
        piece, bits = payload[pos : pos + size], more | pos // 8
        packets.append(ipv4(piece, protocol, src=src, dst=dst, ident=ident, bits=bits))
        pos += size
    return packets


def fragments6(payload, sizes, *, ident=7, protocol=17):
    """Cut an IPv6 payload into fragments of the given sizes (the rest is the last one)."""
    packets, pos = [], 0
    for size in [*sizes, len(payload) - sum(sizes)]:
        more = 1 if pos + size < len(payload) else 0
        header = pack(">BBHI", protocol, 0, pos | more, ident)
        packets.append(ipv6(payload[pos : pos + size], 44, extensions=header))
        pos += size
    return packets


def pcap_file(records, *, order="<", magic=0xA1B2C3D4, link=1):
    """Return a pcap file; records: (seconds, fraction, bytes, wire length)."""
    out = pack(order + "IHHiIII", magic, 2, 4, 0, 0, 262144, link)
    for seconds, fraction, data, wire in records:
        out += pack(order + "IIII", seconds, fraction, len(data), wire) + data
    return out


def option(order, code, value):
    return pack(order + "HH", code, len(value)) + value + bytes(-len(value) % 4)


def block(order, kind, body):
    body += bytes(-len(body) % 4)
    return pack(order + "II", kind, len(body) + 12) + body + pack(order + "I", len(body) + 12)


def section(order="<", options=b""):
    return block(order, 0x0A0D0D0A, pack(order + "IHHq", 0x1A2B3C4D, 1, 0, -1) + options)


def interface(order="<", link=1, options=b"", snap=0):
    return block(order, 1, pack(order + "HHI", link, 0, snap) + options)


def enhanced(order, ticks, data, *, wire=None, number=0, options=b""):
    wire = len(data) if wire is None else wire
    body = pack(order + "IIIII", number, ticks >> 32, ticks & 0xFFFFFFFF, len(data), wire)
    return block(order, 6, body + data + bytes(-len(data) % 4) + options)


def vital_chunks(path: Path, datagrams: int, chunks: int) -> Path:
    """Write a Teeworlds connection of vital chunks that nobody acknowledges."""
    tokens = b"\1\2\3\4", b"\5\6\7\x08"
    rows = [
        (0, bytes([4, 0, 0]) + b"\xff" * 4 + b"\5" + tokens[0] + bytes(508)),
        (1, bytes([4, 0, 0]) + tokens[0] + b"\5" + tokens[1]),
        (0, bytes([4, 0, 0]) + tokens[1] + b"\1" + tokens[0] + bytes(508)),
        (1, bytes([4, 0, 0]) + tokens[0] + b"\2"),
    ]
    for at in range(datagrams):
        numbers = [(at // 2 * chunks + index + 1) & 1023 for index in range(chunks)]
        body = b"".join(bytes([0x40, seq >> 2 & 0xC0 | 1, seq & 255, 2]) for seq in numbers)
        rows.append((at & 1, bytes([0, 0, chunks]) + tokens[1 - (at & 1)] + body))
    out = []
    for index, (side, payload) in enumerate(rows):
        ends = (A4, B4) if side == 0 else (B4, A4)
        ports = (5000, 8303) if side == 0 else (8303, 5000)
        packet = ipv4(udp(payload, *ports), src=ends[0], dst=ends[1])
        octets = link_frame("ethernet", packet)[1]
        out.append((1_700_000_000, index * 500, octets, len(octets)))
    path.write_bytes(pcap_file(out))
    return path
