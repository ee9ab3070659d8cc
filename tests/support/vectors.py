"""The vectors of the reference documents: bytes of real programs, and the values that are in them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from netdissect.dissect.engine import Request
from netdissect.lookup import protocol_infos

FOLDER = Path(__file__).parents[1] / "vectors"
PROTOCOLS = sorted(path.name.split(".")[0] for path in FOLDER.iterdir())


def payload_vectors(protocol: str) -> list[dict[str, Any]]:
    """Return the vectors that are payloads: not a number, a string or a UUID alone."""
    rows: list[dict[str, Any]] = json.loads((FOLDER / f"{protocol}.vectors.json").read_text("utf-8"))
    return [
        row for row in rows
        if row["dialect"] not in (None, "any") and (row["fields"] or {}).get("kind") != "vle"
    ]  # fmt: skip


def transport(protocol: str, vector: dict[str, Any]) -> str:
    stream = protocol == "netplay" or vector["name"].startswith("tcp_") or "TCP" in vector["name"]
    return "tcp" if stream else "udp"


def requests(protocol: str, vector: dict[str, Any]) -> list[Request]:
    """Return how the vector is read, in each dialect that it is for."""
    (info,) = [each for each in protocol_infos() if each.name == protocol]
    named = vector["dialect"]
    direction = {"c2s": 0, "s2c": 1}.get(vector["direction"])
    return [
        Request(each.name, direction, transport(protocol, vector))
        for each in info.dialects
        if named == "all" or each.name in (named, f"{protocol}-{named}")
    ]
