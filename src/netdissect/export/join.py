"""The objects of `join --json`."""

from __future__ import annotations

from collections.abc import Iterator
from json import loads
from typing import Any

from netdissect.export.json import SCHEMA, rounded, rtt
from netdissect.model.diagnosis import Ceiling
from netdissect.model.joined import (
    Fate,
    FateRow,
    JoinedConnection,
    JoinReport,
    StreamReport,
    WayReport,
)
from netdissect.model.packets import Direction


def joined(report: JoinReport, captures: tuple[int, int] = (0, 1)) -> Iterator[dict[str, Any]]:
    """Yield an object for the two captures, then one for each conversation."""
    clock = report.clock
    yield {
        "schema": SCHEMA,
        "kind": "captures",
        "captures": list(captures),
        "files": [info.path for info in report.captures],
        "same_place": report.same_place,
        "overlap_ms": rounded(report.overlap_ms),
        "clock": {
            "offset_ms": rounded(clock.offset_ms),
            "bound_ms": rounded(clock.bound_ms),
            "drift_ppm": rounded(clock.drift_ppm),
            "drift_bound_ppm": rounded(clock.drift_bound_ppm),
            "least_delay_ms": [rounded(value) for value in clock.least_delay_ms],
            "anchors": clock.anchors,
            "contradicting": clock.contradicting,
            "steps": [
                {"capture": captures[capture], "frame": frame, "ms": rounded(span)}
                for capture, frame, span in clock.steps
            ],
        },
        "apart": list(report.apart),
        "limits_hit": report.limits_hit,
    }
    for conversation in report.conversations:
        yield _conversation(conversation, captures)


def _conversation(one: JoinedConnection, captures: tuple[int, int]) -> dict[str, Any]:
    return {
        "schema": SCHEMA,
        "kind": "conversation",
        "number": one.number,
        "how": one.kind,
        "transport": one.transport,
        "protocol": one.protocol,
        "captures": list(captures),
        "connections": [list(numbers) for numbers in one.connections],
        "ends": [[list(pair) for pair in ends] for ends in one.ends],
        "client_capture": None if one.client is None else captures[one.client],
        "ways": [
            {"direction": _direction(one, index), **_way(way, captures)}
            for index, way in enumerate(one.ways)
        ],
        "streams": [
            {"direction": _direction(one, index), **_stream(stream, captures)}
            for index, stream in enumerate(one.streams)
        ],
    }


def _direction(one: JoinedConnection, index: int) -> str | None:
    return None if one.client is None else Direction(index).label


def _way(way: WayReport, captures: tuple[int, int]) -> dict[str, Any]:
    return {
        "sender_capture": captures[way.sender],
        "sent": way.sent,
        "delivered": way.delivered,
        "lost": way.lost,
        "outside": way.outside,
        "unseen": way.unseen,
        "doubtful": way.doubtful,
        "ambiguous": way.ambiguous,
        "arrived": way.arrived,
        "copies": way.copies,
        "appeared": way.appeared,
        "reordered": way.reordered,
        "loss_share": rounded(way.loss_share),
        "delay_ms": loads(rtt(way.delay)),
        "jitter_ms": rounded(way.jitter_ms),
        "burst_count": way.burst_count,
        "bursts": [burst._asdict() for burst in way.bursts],
        "ceiling": None if way.ceiling is None else _ceiling(way.ceiling),
        "retransmissions": {
            "needed": way.resends.needed,
            "spurious": way.resends.spurious,
            "unknown": way.resends.unknown,
            "copied": way.resends.copied,
            "spaces": {
                space: dict(zip(("needed", "spurious", "copied", "unknown"), counts, strict=True))
                for space, counts in way.resends.spaces.items()
            },
        },
    }


def _ceiling(limit: Ceiling) -> dict[str, Any]:
    return {
        "per_second": limit.per_second,
        "unit": limit.unit,
        "seconds": limit.seconds,
        "sent": limit.sent,
        "lost": limit.lost,
        "from_ns": limit.from_ns,
        "to_ns": limit.to_ns,
        "first_frame": limit.first_frame,
        "last_frame": limit.last_frame,
        "queue_ms": rounded(limit.queue_ms),
    }


def _stream(stream: StreamReport, captures: tuple[int, int]) -> dict[str, Any]:
    return {
        "sender_capture": captures[stream.toward],
        "octets": list(stream.octets),
        "equal": stream.equal,
        "differs_at": stream.differs_at,
        "delay_ms": loads(rtt(stream.delay)),
    }


def fate(capture: int, frame: int, row: FateRow) -> dict[str, Any]:
    """Return what became of a frame."""
    shown = {
        "schema": SCHEMA,
        "kind": "datagram",
        "capture": capture,
        "frame": frame,
        "common_ns": row.common_ns,
        "fate": row.fate.label,
        "partner": row.partner,
        "delay_ms": rounded(row.delay_ms),
        "ambiguous": row.ambiguous,
    }
    if row.fate in {Fate.ARRIVED, Fate.COPY}:
        shown["reordered"] = row.reordered
    elif row.fate is Fate.DELIVERED:
        shown["copied"] = row.copied
    return shown
