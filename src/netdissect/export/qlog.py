"""A connection as qlog, one JSON text per record (RFC 7464), for tools that draw QUIC connections.

There are two flavours. `draft` follows draft-ietf-quic-qlog-main-schema, with events under a name
of our own, because a game's datagrams are not QUIC. `qvis` is qlog 0.3 with the event names that
qvis draws (`transport:packet_sent` and others), and frame numbers as packet numbers.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import Any

from netdissect.export.diagnosis import label
from netdissect.model.records import DatagramRecord
from netdissect.model.reports import ConnectionEvent, ConnectionReport, UnitRecord

DRAFT, QVIS = "draft", "qvis"
FLAVOURS = (DRAFT, QVIS)
EVENTS = "tag:netdissect,2026:qlog:events"
"""URI of our own events, which docs/commands/export.md describes."""
_SEPARATOR = "\x1e"
_NS_PER_MS = 1_000_000
_NAMES = {
    DRAFT: {
        "sent": "netdissect:datagram_sent", "received": "netdissect:datagram_received",
        "lost": "netdissect:unit_lost", "metrics": "netdissect:metrics_updated",
    },
    QVIS: {
        "sent": "transport:packet_sent", "received": "transport:packet_received",
        "lost": "recovery:packet_lost", "metrics": "recovery:metrics_updated",
    },
}  # fmt: skip
_SMOOTHING = 8
"""Divisor of the weight of a new round trip in the smoothed one. *Source:* RFC 6298."""
_TABLES = """
create table event (time integer, place integer, frame integer, kind text, data text);
create table ack (frame integer, acked integer);
"""


def qlog(
    items: Iterable[DatagramRecord | UnitRecord | ConnectionEvent],
    report: ConnectionReport,
    flavour: str,
) -> Iterator[str]:
    """Yield the records of one connection, events in order of time.

    Args:
        items: datagrams and timeline of a capture, as they settle; those of other connections are
            skipped.
        report: the connection.
        flavour: one of `FLAVOURS`.

    """
    # Units settle long after their datagrams, so events are sorted in a temporary file.
    base = sqlite3.connect("", isolation_level=None)
    try:
        base.executescript(f"pragma journal_mode=off; pragma synchronous=off; {_TABLES}")
        base.execute("begin")
        # In a capture taken between the two, the client counts as the local side.
        local = 1 if report.vantage == "server" else 0
        for place, item in enumerate(items):
            if item.connection == report.connection:
                for row in _events(item, local, flavour):
                    base.execute("insert into event values (?,?,?,?,?)", (row[0], place, *row[1:]))
                if isinstance(item, UnitRecord) and item.acked_frame is not None:
                    row_of_ack = (item.acked_frame, item.copies[0].frame)
                    base.execute("insert into ack values (?,?)", row_of_ack)
        base.execute("create index acks on ack (frame)")
        base.execute("create index frames on event (frame)")
        yield _SEPARATOR + json.dumps(_header(report, flavour)) + "\n"
        yield from _written(base, report, flavour)
    finally:
        base.close()


def _written(base: sqlite3.Connection, report: ConnectionReport, flavour: str) -> Iterator[str]:
    names = _NAMES[flavour]
    trips: dict[str, tuple[float, float]] = {}
    rows = base.execute("select time, frame, kind, data from event order by time, place")
    shown = "select 1 from event where frame = ? and kind = 'sent'"
    for time_ns, frame, kind, text in rows:
        if flavour == QVIS and kind == "lost" and not base.execute(shown, (frame,)).fetchone():
            continue  # a TCP segment without new data has no packet in the file
        data = json.loads(text)
        if kind == "metrics":
            trip = data["latest_rtt"]
            smoothed, least = trips.get(data["direction"], (trip, trip))
            smoothed += (trip - smoothed) / _SMOOTHING
            trips[data["direction"]] = smoothed, min(least, trip)
            data |= {"smoothed_rtt": round(smoothed, 3), "min_rtt": min(least, trip)}
        elif kind != "lost":
            acked = base.execute("select distinct acked from ack where frame = ?", (frame,))
            found = sorted(number for (number,) in acked)
            if found and flavour == QVIS:
                ranges = [[number, number] for number in found]
                data["frames"].append({"frame_type": "ack", "acked_ranges": ranges})
            elif found:
                data["acknowledges"] = found
        event: dict[str, Any] = {"time": (time_ns - report.first_time_ns) / _NS_PER_MS}
        event |= {"name": names[kind], "data": data}
        yield _SEPARATOR + json.dumps(event) + "\n"


def _events(
    item: DatagramRecord | UnitRecord | ConnectionEvent, local: int, flavour: str
) -> Iterator[tuple[int, int, str, str]]:
    """Yield (time, frame, kind, data) of the events that an item stands for."""
    if isinstance(item, DatagramRecord):
        kind = "sent" if item.direction == local else "received"
        data = _packet(item) if flavour == QVIS else _datagram(item)
        yield item.time_ns, item.frame, kind, json.dumps(data)
    elif isinstance(item, UnitRecord) and (flavour == DRAFT or item.direction == local):
        # qvis draws losses and round trips of what the local side sent.
        first, way = item.copies[0], {"direction": label(item.direction)}
        # Late copies have a record of their own, which repeats the round trip of their unit.
        trip_ms = None if item.rtt_ambiguous or "continued" in item.extra else item.rtt_ms
        if trip_ms is not None and item.acked_time_ns is not None:
            trip = {"latest_rtt": round(trip_ms, 3), **way}
            yield item.acked_time_ns, item.acked_frame or first.frame, "metrics", json.dumps(trip)
        sent = [copy for copy in item.copies if copy.kind != "duplicate"]
        # A copy counts as lost from the moment the next one is sent.
        gone = [(before, after.time_ns) for before, after in pairwise(sent)]
        if sent and (item.lost or item.failed):
            gone.append((sent[-1], item.settled_ns or sent[-1].time_ns))
        for copy, when in gone:
            lost: dict[str, Any] = {"space": item.space, "seq": item.seq, **way}
            lost |= {"frame": copy.frame}
            if flavour == QVIS:
                lost = {"header": {"packet_type": "1RTT", "packet_number": copy.frame}}
            yield when, copy.frame, "lost", json.dumps(lost)


def _datagram(record: DatagramRecord) -> dict[str, Any]:
    """Return a datagram under our own names."""
    messages = []
    for item in record.messages:
        message: dict[str, Any] = {"type": item.type, "length": item.length}
        known = item.reliability
        if known is not None:
            message |= {"space": known.space, "seq": known.seq, "wire_seq": known.wire_seq}
            message |= {"kind": known.kind} if known.kind else {}
            message |= {"of_frame": known.of_frame} if known.of_frame is not None else {}
        messages.append(message)
    return {"frame": record.frame, "raw": {"length": record.length}, "messages": messages}


def _packet(record: DatagramRecord) -> dict[str, Any]:
    """Return a datagram as a QUIC packet whose messages are parts of one stream."""
    frames = [
        {
            "frame_type": "stream" if item.reliability is not None else "datagram",
            "stream_id": 0,
            "offset": item.reliability.seq if item.reliability is not None else 0,
            "length": item.length,
            "netdissect_type": item.type,
        }
        for item in record.messages
    ]
    header = {"packet_type": "1RTT", "packet_number": record.frame}
    return {"header": header, "raw": {"length": record.length}, "frames": frames}


def _header(report: ConnectionReport, flavour: str) -> dict[str, Any]:
    """Return the record that describes the file."""
    title = f"{report.protocol} {report.client} to {report.server}"
    near = report.vantage if report.vantage in {"client", "server"} else "network"
    vantage = {"name": "netdissect", "type": near}
    vantage |= {"flow": "client"} if near == "network" else {}
    if flavour == QVIS:
        common: dict[str, Any] = {
            "protocol_type": [report.protocol], "time_format": "relative",
            "reference_time": report.first_time_ns / _NS_PER_MS,
        }  # fmt: skip
        head: dict[str, Any] = {"qlog_version": "0.3", "qlog_format": "JSON-SEQ", "title": title}
        return {**head, "trace": {"vantage_point": vantage, "common_fields": common}}
    clock = {"clock_type": "system", "epoch": _rfc3339(report.first_time_ns)}
    fields = {"time_format": "relative_to_epoch", "reference_time": clock}
    return {
        "file_schema": "urn:ietf:params:qlog:file:sequential",
        "serialization_format": "application/qlog+json-seq",
        "title": title,
        "trace": {
            "title": title,
            "vantage_point": vantage,
            "event_schemas": [EVENTS],
            "common_fields": {**fields, "protocol_types": [report.protocol]},
        },
    }


def _rfc3339(time_ns: int) -> str:
    from datetime import UTC, datetime  # noqa: PLC0415 - rarely wanted

    whole = datetime.fromtimestamp(time_ns // 1_000_000_000, UTC)
    return f"{whole:%Y-%m-%dT%H:%M:%S}.{time_ns % 1_000_000_000 // 1000:06d}Z"
