"""Hand-made values of the model for the tests of what prints and exports them."""

from __future__ import annotations

from typing import Any

from netdissect.model.annotations import Annotation, Severity
from netdissect.model.dissection import Buffer, Dissection, FieldNode, MessageView
from netdissect.model.records import DatagramRecord, MessageRecord, Reliability
from netdissect.model.reports import (
    Anomaly,
    ConnectionEvent,
    ConnectionReport,
    Copy,
    ProbeReport,
    RttSummary,
    SpaceReport,
    TimeoutVerdict,
    UnitRecord,
)

__all__ = ["MS", "START", "anomaly", "connection", "datagram", "dissection", "event", "unit"]

START = 1_700_000_000_123_456_789
MS = 1_000_000


def connection(**changes: Any) -> ConnectionReport:
    """Return a Riptide connection with one reliable space a direction."""
    facts: dict[str, Any] = {
        "connection": 1,
        "protocol": "riptide",
        "dialects": ("riptide-2.1", "riptide-2.2"),
        "transport": "udp",
        "client": "127.0.0.1:50654",
        "server": "127.0.0.1:21105",
        "roles_from": "handshake",
        "first_frame": 1,
        "last_frame": 842,
        "first_time_ns": START,
        "last_time_ns": START + 12_418 * MS,
        "vantage": "client",
        "vantage_basis": "the client answers 0.1 ms after what it receives",
        "handshake": "accepted",
        "reject_reason": None,
        "state": "closed",
        "state_name": "NotConnected",
        "close": {"by": "client", "reason": "Disconnected", "frame": 842},
        "identity": {"client_id": 1},
        "datagrams": (420, 422),
        "octets": (12_078, 11_237),
        "messages": ({"Reliable": 134, "Ack": 90}, {"Reliable": 110, "Welcome": 1}),
        "spaces": [
            SpaceReport(
                "reliable",
                0,
                units=110,
                copies=134,
                retransmissions=24,
                acked=110,
                first_seq=1,
                last_seq=110,
                max_copies=3,
                out_of_order=3,
                rtt=RttSummary(86, 24, 50.1, 60.25, 82.0, 90.5),
            ),
            SpaceReport(
                "notify",
                1,
                units=163,
                copies=163,
                acked=147,
                unacked=16,
                first_seq=1,
                last_seq=163,
                max_copies=1,
                extra={"lost": 16},
            ),
        ],
        "probes": [ProbeReport("heartbeat", 0, 12, 12, RttSummary(12, 0, 50.0, 60.0, 70.0, 82.0))],
        "timeouts": [
            TimeoutVerdict(
                "client", START + 11_000 * MS, 800, START + 16_000 * MS, START + 17_000 * MS, False
            ),
            TimeoutVerdict("server", None, None, None, None, None),
        ],
        "counters": ({"fragments": 2}, {}),
        "anomalies": {"chat": 0, "note": 0, "warn": 2, "error": 0},
        "complete": True,
        "limits_hit": {},
        "explain": ("a Connect is followed by a Welcome",),
    }
    facts.update(changes)
    return ConnectionReport(**facts)


def unit(**changes: Any) -> UnitRecord:
    """Return a unit that was sent three times and acknowledged."""
    facts: dict[str, Any] = {
        "connection": 1,
        "direction": 0,
        "space": "reliable",
        "wire_seq": 12,
        "seq": 12,
        "type": "Reliable",
        "copies": [
            Copy(33, START + 1000 * MS, "original"),
            Copy(41, START + 1072 * MS, "retransmission", "inferred", START + 1070 * MS, 13),
            Copy(55, START + 1150 * MS, "retransmission", "inferred", START + 1144 * MS, 12),
        ],
        "acked_frame": 60,
        "acked_time_ns": START + 1212 * MS,
        "rtt_ms": None,
        "rtt_ambiguous": True,
        "outcome": "acked",
        "delivered_order": 12,
        "next_resend_due_ns": None,
    }
    facts.update(changes)
    return UnitRecord(**facts)


def event(**changes: Any) -> ConnectionEvent:
    """Return the start of a connection."""
    facts: dict[str, Any] = {
        "connection": 1,
        "event": "state",
        "time_ns": START,
        "frame": 1,
        "direction": 0,
        "text": "connecting",
        "data": {"state": "connecting"},
    }
    facts.update(changes)
    return ConnectionEvent(**facts)


def anomaly(**changes: Any) -> Anomaly:
    """Return a warning on connection 1."""
    facts: dict[str, Any] = {
        "code": "ack-of-never-sent",
        "severity": Severity.WARN,
        "group": "sequence",
        "frame": 41,
        "time_ns": START + 1072 * MS,
        "connection": 1,
        "direction": 0,
        "message": "acknowledges 99, never sent",
        "evidence": {"seq": 99},
    }
    facts.update(changes)
    return Anomaly(**facts)


def dissection(**changes: Any) -> Dissection:
    """Return a small tree with a second buffer and a finding."""
    payload = bytes.fromhex("c700000000ff")
    root = FieldNode(
        "riptide",
        None,
        0,
        48,
        children=[
            FieldNode("type", 7, 0, 4, "Reliable"),
            FieldNode("sequence_id", 12, 4, 16),
            FieldNode("message_id", 0, 20, 8),
            FieldNode("payload", b"\x01\x02", 0, 16, buffer=1),
            FieldNode("acked", 12, 0, 0, generated=True),
        ],
    )
    facts: dict[str, Any] = {
        "protocol": "riptide",
        "dialect": "riptide-2.2",
        "direction": 0,
        "transport": "udp",
        "buffers": [Buffer("payload", payload), Buffer("re-aligned", b"\x01\x02")],
        "root": root,
        "annotations": [
            Annotation("trailing-bytes", Severity.WARN, "malformed", "1 byte too many", 40, 8)
        ],
        "messages": [MessageView("Reliable", 0, 6, {"sequence_id": 12})],
        "fields": {"type": "Reliable", "sequence_id": 12, "payload": b"\x01\x02"},
        "summary": "",
    }
    facts.update(changes)
    return Dissection(**facts)


def datagram(**changes: Any) -> DatagramRecord:
    """Return a datagram with one message, a resend of frame 33."""
    tree = dissection()
    facts: dict[str, Any] = {
        "frame": 41,
        "time_ns": START + 1072 * MS,
        "connection": 1,
        "direction": 0,
        "transport": "udp",
        "src": "127.0.0.1:50654",
        "dst": "127.0.0.1:21105",
        "protocol": "riptide",
        "dialect": "riptide-2.2",
        "length": 6,
        "payload": tree.buffers[0].data,
        "dissection": tree,
        "messages": [
            MessageRecord(
                0,
                "Reliable",
                0,
                6,
                tree.fields,
                Reliability("reliable", 12, 12, True, "retransmission", 33, 60, None, 72.0),
                list(tree.annotations),
                summary="Reliable sequence_id=12 payload=2 B",
            )
        ],
    }
    facts.update(changes)
    return DatagramRecord(**facts)
