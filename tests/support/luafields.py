"""What Wireshark reads with a script of `export lua`, compared with what we read."""

from __future__ import annotations

import re
import subprocess
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from netdissect.model.dissection import FieldNode
from netdissect.model.records import DatagramRecord
from netdissect.model.text import escape_surrogates
from netdissect.pipeline.iterate import iter_records
from netdissect.wire.varint import KNET_7_7_16
from packetbuild import ipv4, pcap_file, tcp

__all__ = ["differences", "unread"]

Found = dict[str, tuple[dict[int, Any], set[tuple[str, str]]]]
"""Dialect -> (frame -> field -> values, the ports by which Wireshark finds them)."""

LISTS = "\x1f"
"""Between two values of one field."""
NO_BYTES = "<MISSING>"
"""What tshark prints of a field of no bytes beside others."""
LENGTHS: dict[str, tuple[str, Callable[[int, str], bytes]]] = {
    "knet": ("content_length", lambda size, _: KNET_7_7_16.write(size)),
    "riptide": (
        "length",
        lambda size, dialect: size.to_bytes(2 if dialect == "riptide-2.0" else 4, "little"),
    ),
}
"""Protocols whose messages follow their length in a stream -> its field, and its bytes. Our trees
begin behind it.
"""
SYN = 2
MAX_SEGMENT = 60_000
"""Bytes of a message that are put into one packet."""
PRINTED = str.maketrans(
    {"\b": r"\b", "\f": r"\f", "\r": r"\r", "\n": r"\n", "\t": r"\t", "\0": r"\x00"}
)
"""As tshark and the script print them."""


def fields_of(script: str, protocol: str) -> dict[str, str]:
    """Return the fields that a script registers, with their kinds."""
    part = script.partition(f"do -- {protocol}\n")[2].partition('["kinds"]={')[2].partition("}")[0]
    rows = (row.split("]=") for row in part.split(",\n"))
    return {name.strip('["'): kind.strip('"') for name, kind in rows}


def leaves(node: FieldNode) -> Iterator[FieldNode]:
    """Yield the fields that the script can read, in order."""
    for child in node.children:
        if child.generated:
            continue
        if child.children:
            yield from leaves(child)
        elif not child.is_list:
            yield child


def shown(value: Any) -> Iterator[str]:
    if isinstance(value, list):
        for item in value:
            yield from shown(item)
    elif isinstance(value, bytes):
        yield value.hex()
    elif isinstance(value, bool):
        yield str(int(value))
    elif isinstance(value, float):
        yield f"{value:.4g}"
    elif value is not None:
        yield escape_surrogates(str(value)).translate(PRINTED)


def ours(
    records: Iterable[tuple[int, DatagramRecord]],
    kinds: dict[str, str],
    protocol: str,
    *,
    unpacks: bool,
) -> Found:
    """Return the fields of records, each with its frame."""
    found: Found = {}
    for place, record in records:
        if record.protocol != protocol or record.dissection is None or record.dialect is None:
            continue
        frames, ports = found.setdefault(
            record.dialect, (defaultdict(lambda: defaultdict(list)), set())
        )
        server = record.dst if record.direction == 0 else record.src
        ports.add((record.transport, server.rpartition(":")[2]))
        if record.transport == "tcp" and protocol in LENGTHS:
            frames[place][LENGTHS[protocol][0]].append(str(len(record.payload)))
        for node in leaves(record.dissection.root):
            if node.name in kinds and (unpacks or not node.buffer):
                frames[place][node.name] += shown(node.value)
    return found


def theirs(
    path: Path,
    script: Path,
    kinds: dict[str, str],
    protocol: str,
    ports: set[tuple[str, str]],
    dialect: str,
) -> dict[int, Any]:
    name = f"nd_{protocol}" if protocol == "knet" else protocol
    words = [
        "tshark",
        "-X",
        f"lua_script:{script}",
        "-r",
        str(path),
        "-o",
        f"{name}.dialect:{dialect}",
    ]
    for transport, port in ports:
        words += ["-d", f"{transport}.port=={port},{name}"]
    words += [
        "-T",
        "fields",
        "-E",
        "separator=/t",
        "-E",
        f"aggregator={LISTS}",
        "-e",
        "frame.number",
    ]
    for field in kinds:
        words += ["-e", f"{protocol}.{field}"]
    told = subprocess.run(words, capture_output=True, check=True)
    assert b"Lua" not in told.stderr, told.stderr
    found: dict[int, Any] = {}
    # Not `splitlines`: a text may hold a vertical tab.
    for line in told.stdout.decode("utf-8", "surrogateescape").split("\n")[:-1]:
        frame, *values = line.split("\t")
        found[int(frame)] = {
            field: value.split(LISTS) for field, value in zip(kinds, values, strict=True) if value
        }
    return found


def alike(kind: str, mine: list[str], other: list[str]) -> bool:
    if kind == "float":
        return [f"{float(item):.4g}" for item in mine] == [f"{float(item):.4g}" for item in other]
    return mine == other or mine == [replaced(item) for item in other]


def replaced(text: str) -> str:
    """Return a text with U+FFFD for what is no UTF-8, as Java and therefore our layer of Netplay
    read it; the script prints such bytes as `\\xNN`.
    """
    octets = re.sub(rb"\\x(..)", lambda found: bytes.fromhex(found[1].decode()), text.encode())
    return octets.decode("utf-8", "replace")


def apart(path: Path, target: Path) -> list[tuple[int, DatagramRecord]]:
    """Write a capture with each message of TCP in a stream of its own.

    Returns the messages, each with the frame in which it ends there.
    """
    packets: list[bytes] = []
    found = []
    for record in iter_records(path):
        if record.transport == "tcp" and record.protocol is not None:
            server = record.dst if record.direction == 0 else record.src
            ports = {"sport": 1024, "dport": int(server.rpartition(":")[2])}
            src = (0x0A000000 + len(found)).to_bytes(4, "big")
            octets = record.payload
            if record.protocol in LENGTHS:
                write = LENGTHS[record.protocol][1]
                octets = write(len(octets), record.dialect or "") + octets
            packets.append(ipv4(tcp(b"", seq=0, flags=SYN, **ports), 6, src=src))
            for at in range(0, len(octets), MAX_SEGMENT):
                part = octets[at : at + MAX_SEGMENT]
                packets.append(ipv4(tcp(part, seq=1 + at, **ports), 6, src=src))
            found.append((len(packets), record))
    target.write_bytes(pcap_file([(0, 0, octets, len(octets)) for octets in packets], link=101))
    return found


def differences(
    path: Path, script: Path, protocol: str, *, unpacks: bool = True, gap: int | None = None
) -> list[str]:
    """Return where Wireshark reads another value; skip a capture without any field.

    `unpacks`: whether the script reads what is compressed. `gap`: the first frame behind a gap in a
    stream; if there is one, all messages of TCP are also compared each in a stream of its own.
    """
    kinds = fields_of(script.read_text(), protocol)
    whole = [
        (record.frame, record)
        for record in iter_records(path)
        if gap is None or record.frame < gap or record.transport == "udp"
    ]
    found, compared = compare(path, script, protocol, ours(whole, kinds, protocol, unpacks=unpacks))
    if gap is not None:
        with TemporaryDirectory() as folder:
            target = Path(folder, "apart.pcap")
            alone = ours(apart(path, target), kinds, protocol, unpacks=unpacks)
            more, count = compare(target, script, protocol, alone)
        found, compared = found + more, compared + count
    if not compared:
        pytest.skip("no message of the protocol")
    return found


def unread(path: Path, script: Path, protocol: str) -> tuple[int, int]:
    """Return how many values Wireshark does not have in any frame, and how many there are: behind
    missing bytes it finds messages earlier than we do, each in its own frame.
    """
    kinds = fields_of(script.read_text(), protocol)
    lost = every = 0
    records = ((record.frame, record) for record in iter_records(path))
    for dialect, (frames, ports) in ours(records, kinds, protocol, unpacks=True).items():
        other = theirs(path, script, kinds, protocol, ports, dialect)
        mine, found = (
            Counter((name, value) for fields in each.values() for name in fields for value in fields[name])
            for each in (frames, other)
        )
        lost, every = lost + (mine - found).total(), every + mine.total()
    return lost, every


def compare(path: Path, script: Path, protocol: str, read: Found) -> tuple[list[str], int]:
    """Return where Wireshark reads another value, and how many values were compared."""
    every = fields_of(script.read_text(), protocol)
    found = []
    compared = 0
    for dialect, (frames, ports) in read.items():
        kinds = every
        if dialect.startswith("rfc"):
            # The contents of the documents leave the order of bytes open: headers alone.
            kinds = {name: every[name] for name in ("command", "id", "timestamp")}
        other = theirs(path, script, kinds, protocol, ports, dialect)
        for frame, fields in frames.items():
            for field, kind in kinds.items():
                mine = [item for item in fields.get(field, ()) if item]
                got = [
                    item
                    for item in other[frame].get(field, [])
                    if item != NO_BYTES and (item or kind != "str")
                ]
                compared += len(mine)
                if not alike(kind, mine, got):
                    found.append(f"{frame} {field}: ours {mine}, Wireshark's {got}")
    return found, compared
