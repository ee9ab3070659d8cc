"""What Wireshark reads with a script of `export lua`, compared with what we read."""

from __future__ import annotations

import re
import subprocess
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from netdissect.model.dissection import FieldNode
from netdissect.model.text import escape_surrogates
from netdissect.pipeline.iterate import iter_records

__all__ = ["differences"]

LISTS = "\x1f"
"""Between two values of one field."""
NO_BYTES = "<MISSING>"
"""What tshark prints of a field of no bytes beside others."""
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
    path: Path, kinds: dict[str, str], protocol: str, *, unpacks: bool
) -> dict[str, tuple[dict[int, Any], set[tuple[str, str]]]]:
    """Return dialect -> (frame -> field -> values, the ports by which Wireshark finds them)."""
    found: dict[str, tuple[dict[int, Any], set[tuple[str, str]]]] = {}
    for record in iter_records(path):
        if record.protocol != protocol or record.dissection is None or record.dialect is None:
            continue
        frames, ports = found.setdefault(
            record.dialect, (defaultdict(lambda: defaultdict(list)), set())
        )
        server = record.dst if record.direction == 0 else record.src
        ports.add((record.transport, server.rpartition(":")[2]))
        for node in leaves(record.dissection.root):
            if node.name in kinds and (unpacks or not node.buffer):
                frames[record.frame][node.name] += shown(node.value)
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


def differences(
    path: Path, script: Path, protocol: str, *, unpacks: bool = True, before: int | None = None
) -> list[str]:
    """Return where Wireshark reads another value; skip a capture without any field.

    `unpacks`: whether the script reads what is compressed. `before`: the first frame that is not
    compared.
    """
    kinds = fields_of(script.read_text(), protocol)
    found = []
    compared = 0
    for dialect, (read, ports) in ours(path, kinds, protocol, unpacks=unpacks).items():
        frames = read
        if dialect.startswith("rfc"):
            # The contents of the documents leave the order of bytes open: headers alone.
            kinds = {name: kinds[name] for name in ("command", "id", "timestamp")}
            frames = {
                at: {name: row[name] for name in kinds if name in row} for at, row in read.items()
            }
        other = theirs(path, script, kinds, protocol, ports, dialect)
        for frame, fields in frames.items():
            if before is not None and frame >= before:
                continue
            for field, values in fields.items():
                mine = [item for item in values if item]
                got = [
                    item
                    for item in other[frame].get(field, [])
                    if item != NO_BYTES and (item or kinds[field] != "str")
                ]
                compared += len(mine)
                if mine and not alike(kinds[field], mine, got):
                    found.append(f"{frame} {field}: ours {mine}, Wireshark's {got}")
    if not compared:
        pytest.skip("no message of the protocol")
    return found
