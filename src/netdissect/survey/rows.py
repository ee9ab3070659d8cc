"""Splits what `--json` prints of a report into one object per table row."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from netdissect.export import json
from netdissect.model.packets import SIDES
from netdissect.model.reports import ConnectionReport, UnitRecord

_SUMS = (
    "units", "copies", "retransmissions", "duplicates", "acked", "unacked", "unknown",
    "never_seen", "out_of_order", "given_up",
)  # fmt: skip
"""Counts of spaces that are summed up per direction."""


def connection_items(report: ConnectionReport) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield (table, object) for each row of a connection."""
    whole = json.connection(report)
    yield "connections", whole
    diagnosis = whole["diagnosis"] or {}
    for way, side in zip(("c2s", "s2c"), SIDES, strict=True):
        yield "directions", _direction(whole, diagnosis, way, side)
    if diagnosis:
        yield "verdicts", {"connection": whole["connection"], **diagnosis}


def _direction(
    whole: dict[str, Any], diagnosis: dict[str, Any], way: str, side: str
) -> dict[str, Any]:
    spaces = [space for space in whole["spaces"] if space["direction"] == way]
    types = whole["messages"][way]
    return {
        "connection": whole["connection"],
        "direction": way,
        "dialect": whole["dialect"][way],
        "sender": whole[side],
        "receiver": whole["server" if side == "client" else "client"],
        "datagrams": whole["datagrams"][way],
        "octets": whole["octets"][way],
        "messages": sum(types.values()),
        "message_types": types,
        **{name: sum(space[name] for space in spaces) for name in _SUMS},
        "loss": diagnosis.get("loss", {}).get(way),
        "added": diagnosis.get("lag", {}).get("added", {}).get(way),
        "counters": whole["counters"][way],
        "timings_ms": whole["timings_ms"][way],
        "quiet": [span for span in whole["quiet"] if span["direction"] == way],
    }


def unit_item(record: UnitRecord) -> dict[str, Any]:
    """Return the object of a unit, with its copies counted and its first and last one named."""
    item = json.unit(record)
    copies = item["copies"]
    kinds = [copy["kind"] for copy in copies]
    first, last = (copies[0], copies[-1]) if copies else ({}, {})
    return {
        **item,
        "copies": len(copies),
        "retransmissions": kinds.count("retransmission"),
        "duplicates": kinds.count("duplicate"),
        "first_frame": first.get("frame"),
        "last_frame": last.get("frame"),
        "first_time_ns": first.get("time_ns"),
        "last_time_ns": last.get("time_ns"),
        "extra": record.extra,
    }
