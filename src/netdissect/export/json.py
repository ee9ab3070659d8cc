"""The shapes of `--json`, one converter per kind of object. docs/json.md describes every key.

Keys are only ever added; renaming or dropping one raises `SCHEMA`. Times are integers in
nanoseconds, durations floats in milliseconds, bytes lower-case hex, `None` means "not knowable
from this capture".
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Final

from netdissect.export.diagnosis import diagnosis, label, pair, quiet
from netdissect.export.jsonline import dump
from netdissect.model.annotations import Annotation, CodeRow
from netdissect.model.dissection import Dissection
from netdissect.model.facts import Difference
from netdissect.model.intervals import Interval
from netdissect.model.names import FieldInfo, ProtocolInfo
from netdissect.model.records import DatagramRecord, MessageRecord, Reliability
from netdissect.model.reports import (
    Anomaly,
    CaptureInfo,
    ConnectionEvent,
    ConnectionReport,
    Copy,
    ProbeReport,
    RttSummary,
    SpaceReport,
    TimeoutVerdict,
    UnitRecord,
)

__all__ = [
    "SCHEMA",
    "annotation",
    "anomaly",
    "capture_info",
    "code",
    "connection",
    "decoded",
    "difference",
    "dump",
    "event",
    "field",
    "interval",
    "message",
    "protocol",
    "shown",
    "unit",
]

SCHEMA = 1
"""Raised when a key is renamed or dropped."""

_NS_PER_MS: Final = 1_000_000


def _ms(nanoseconds: int) -> float:
    return nanoseconds / _NS_PER_MS


def _round(value: float | None) -> float | None:
    """Round a duration to the nanosecond, which removes the noise of binary fractions."""
    return None if value is None or not math.isfinite(value) else round(value, 6)


def annotation(note: Annotation) -> dict[str, Any]:
    """Return one finding about one place of one buffer."""
    shown: dict[str, Any] = {
        "code": note.code,
        "severity": note.severity.label,
        "group": note.group,
        "message": note.message,
        "bit_offset": note.bit_offset,
        "bit_length": note.bit_length,
    }
    if note.buffer:
        shown["buffer"] = note.buffer
    return shown


def decoded(dissection: Dissection) -> dict[str, Any]:
    """Return the object of `decode`: one payload with all its fields."""
    return {
        "schema": SCHEMA,
        "protocol": dissection.protocol,
        "dialect": dissection.dialect,
        "direction": label(dissection.direction),
        "transport": dissection.transport,
        "length": len(dissection.buffers[0].data),
        "octets": dissection.buffers[0].data,
        "fields": dissection.fields,
        "annotations": [annotation(note) for note in dissection.annotations],
        "messages": [
            {"type": view.type, "offset": view.offset, "length": view.length, "buffer": view.buffer}
            for view in dissection.messages
        ],
        "summary": dissection.summary,
    }


def _reliability(facts: Reliability | None) -> dict[str, Any] | None:
    if facts is None:
        return None
    return {
        "space": facts.space,
        **_space_key(facts.space),
        "wire_seq": facts.wire_seq,
        "seq": facts.seq,
        "reliable": facts.reliable,
        "kind": facts.kind,
        "of_frame": facts.of_frame,
        "acked_in": facts.acked_in,
        "rtt_ms": _round(facts.rtt_ms),
        "attempts": facts.attempts,
        "latency_ms": _round(facts.latency_ms),
        "added_ms": _round(facts.added_ms),
    }


def message(record: DatagramRecord, item: MessageRecord | None) -> dict[str, Any]:
    """Return one row of `read --json`; without an item, the datagram stands for itself."""
    shown: dict[str, Any] = {
        "schema": SCHEMA,
        "frame": record.frame,
        "index": item.index if item else 0,
        "time_ns": record.time_ns,
        "connection": record.connection,
        "direction": label(record.direction),
        "transport": record.transport,
        "src": record.src,
        "dst": record.dst,
        "protocol": record.protocol,
        "dialect": record.dialect,
        "type": item.type if item else None,
        "offset": item.offset if item else 0,
        "length": item.length if item else record.length,
        "fields": item.fields if item else {},
        "reliability": _reliability(item.reliability) if item else None,
        "annotations": [annotation(note) for note in item.annotations] if item else [],
        "findings": _findings(record),
    }
    if item and item.buffer and record.dissection:
        shown["buffer"] = record.dissection.buffers[item.buffer].name
    if record.frames:
        shown["frames"] = list(record.frames)
    if record.faults:
        shown["faults"] = list(record.faults)
    if record.protocol is None:
        shown["payload"] = record.payload
    return shown


def _rtt(summary: RttSummary) -> dict[str, Any]:
    # Whole nanoseconds by 1e6, each of them: there is no noise to round off.
    return {
        "samples": summary.samples,
        "ambiguous": summary.ambiguous,
        "min": summary.minimum,
        "p50": summary.p50,
        "p95": summary.p95,
        "max": summary.maximum,
    }


def _space_key(space: str) -> dict[str, Any]:
    """Return the key of a space that has one: a number where it is one."""
    key = space.partition("[")[2].removesuffix("]")
    return {"key": int(key) if key.isdecimal() else key} if key else {}


def _space(space: SpaceReport) -> dict[str, Any]:
    return {
        "space": space.space,
        **_space_key(space.space),
        "direction": label(space.direction),
        "units": space.units,
        "copies": space.copies,
        "retransmissions": space.retransmissions,
        "duplicates": space.duplicates,
        "acked": space.acked,
        "unacked": space.unacked,
        "unknown": space.unknown,
        "never_seen": space.never_seen,
        "out_of_order": space.out_of_order,
        "given_up": space.given_up,
        "first_seq": space.first_seq,
        "last_seq": space.last_seq,
        "max_copies": space.max_copies,
        "rtt_ms": _rtt(space.rtt),
        **space.extra,
    }


def _probe(probe: ProbeReport) -> dict[str, Any]:
    return {
        "kind": probe.kind,
        "direction": label(probe.direction),
        "sent": probe.sent,
        "answered": probe.answered,
        "rtt_ms": _rtt(probe.rtt),
        "declared_rtt_ms": _rtt(probe.declared),
    }


def _timeout(verdict: TimeoutVerdict) -> dict[str, Any]:
    return {
        "side": verdict.side,
        "last_heard_ns": verdict.last_heard_ns,
        "last_heard_frame": verdict.last_heard_frame,
        "due_ns": verdict.due_ns,
        "latest_ns": verdict.latest_ns,
        "fired": verdict.fired,
    }


def connection(report: ConnectionReport) -> dict[str, Any]:
    """Return one object of `connections`."""
    return {
        "schema": SCHEMA,
        "connection": report.connection,
        "protocol": report.protocol,
        "dialect": pair(report.dialects),
        "transport": report.transport,
        "client": report.client,
        "server": report.server,
        "roles_from": report.roles_from,
        "first_frame": report.first_frame,
        "last_frame": report.last_frame,
        "first_time_ns": report.first_time_ns,
        "last_time_ns": report.last_time_ns,
        "duration_ms": _ms(report.last_time_ns - report.first_time_ns),
        "vantage": report.vantage,
        "vantage_basis": report.vantage_basis,
        "handshake": report.handshake,
        "reject_reason": report.reject_reason,
        "state": report.state,
        "state_name": report.state_name,
        "close": report.close,
        "identity": report.identity,
        "datagrams": pair(report.datagrams),
        "octets": pair(report.octets),
        "messages": pair(report.messages),
        "spaces": [_space(space) for space in report.spaces],
        "probes": [_probe(probe) for probe in report.probes],
        "timeouts": [_timeout(verdict) for verdict in report.timeouts],
        "counters": pair(report.counters),
        "anomalies": report.anomalies,
        "codes": report.codes,
        "complete": report.complete,
        "limits_hit": report.limits_hit,
        "explain": list(report.explain),
        "timings_ms": pair(
            [{name: _rtt(kept) for name, kept in side.items()} for side in report.timings]
        ),
        "clock_ms": pair([_rtt(clock) if clock.samples else None for clock in report.clocks]),
        "quiet": [quiet(span) for span in report.quiet],
        "diagnosis": None if report.diagnosis is None else diagnosis(report.diagnosis),
    }


def diagnosed(report: ConnectionReport) -> dict[str, Any]:
    """Return one object of `diagnose`."""
    return {
        "schema": SCHEMA,
        "connection": report.connection,
        "protocol": report.protocol,
        "client": report.client,
        "server": report.server,
        "vantage": report.vantage,
        "state": report.state,
        **({} if report.diagnosis is None else diagnosis(report.diagnosis)),
    }


def _fate(copy: Copy) -> dict[str, Any]:
    return {"fate": copy.fate, "delay_ms": _round(copy.delay_ms)}


def unit(record: UnitRecord) -> dict[str, Any]:
    """Return one reliable unit of `timeline`."""
    return {
        "schema": SCHEMA,
        "connection": record.connection,
        "direction": label(record.direction),
        "space": record.space,
        **_space_key(record.space),
        "wire_seq": record.wire_seq,
        "seq": record.seq,
        "type": record.type,
        "copies": [
            {
                "frame": copy.frame,
                "time_ns": copy.time_ns,
                "kind": copy.kind,
                "basis": copy.basis,
                "due_ns": copy.due_ns,
                "attempts_left": copy.attempts_left,
                **({} if copy.fate is None else _fate(copy)),
            }
            for copy in record.copies
        ],
        "acked_frame": record.acked_frame,
        "acked_time_ns": record.acked_time_ns,
        "rtt_ms": _round(record.rtt_ms),
        "rtt_ambiguous": record.rtt_ambiguous,
        "outcome": record.outcome,
        "lost": record.lost,
        "delivered_order": record.delivered_order,
        "next_resend_due_ns": record.next_resend_due_ns,
        **record.extra,
    }


def event(record: ConnectionEvent) -> dict[str, Any]:
    """Return one connection event of `timeline`."""
    return {
        "schema": SCHEMA,
        "connection": record.connection,
        "event": record.event,
        "time_ns": record.time_ns,
        "frame": record.frame,
        "direction": label(record.direction),
        "text": record.text,
        **record.data,
    }


def anomaly(record: Anomaly) -> dict[str, Any]:
    """Return one object of `anomalies`."""
    return {
        "schema": SCHEMA,
        "code": record.code,
        "severity": record.severity.label,
        "group": record.group,
        "frame": record.frame,
        "time_ns": record.time_ns,
        "concluded_ns": record.concluded_ns,
        "connection": record.connection,
        "direction": label(record.direction),
        "message": record.message,
        "evidence": record.evidence,
        "repeats": record.repeats,
    }


def code(row: CodeRow) -> dict[str, Any]:
    """Return one row of the catalogue, for `explain --json`."""
    return {
        "schema": SCHEMA,
        "code": row.code,
        "severity": row.severity.label,
        "group": row.group,
        "title": row.title,
        "meaning": row.meaning,
    }


def capture_info(
    info: CaptureInfo,
    protocols: Mapping[str, tuple[int, int]],
    other_datagrams: int,
    flow: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Return the object of `info`.

    Args:
        info: facts about the file.
        protocols: name -> (datagrams, connections).
        other_datagrams: datagrams of no known protocol.
        flow: what became of the frames below the protocols; None = not counted.

    """
    return {
        "schema": SCHEMA,
        "path": info.path,
        "format": info.format,
        "link_types": info.link_types,
        "interfaces": info.interfaces,
        "comments": info.comments,
        "frames": info.frames,
        "octets": info.octets,
        "first_time_ns": info.first_time_ns,
        "last_time_ns": info.last_time_ns,
        "nanosecond": info.nanosecond,
        "truncated_at": info.truncated_at,
        "damage": info.damage,
        "drops": info.drops,
        "limits_hit": info.limits_hit,
        "protocols": {
            name: {"datagrams": datagrams, "connections": connections}
            for name, (datagrams, connections) in sorted(protocols.items())
        },
        "other_datagrams": other_datagrams,
        "flow": flow,
    }


def protocol(info: ProtocolInfo) -> dict[str, Any]:
    """Return one object of `protocols`."""
    return {
        "schema": SCHEMA,
        "protocol": info.name,
        "title": info.title,
        "transports": list(info.transports),
        "default_ports": list(info.default_ports),
        "spaces": list(info.spaces),
        "probes": list(info.probes),
        "disabled": info.disabled or None,
        "dialects": [
            {"dialect": row.name, "title": row.title, "message_types": list(row.message_types)}
            for row in info.dialects
        ],
    }


def field(info: FieldInfo) -> dict[str, Any]:
    """Return one object of `fields`."""
    return {
        "schema": SCHEMA,
        "field": info.name,
        "type": info.kind,
        "unit": info.unit or None,
        "meaning": info.meaning or None,
    }


def difference(item: Difference) -> dict[str, Any]:
    """Return one object of `verify`."""
    return {
        "schema": SCHEMA,
        "frame": item.frame,
        "what": item.what,
        "ours": item.ours,
        "theirs": item.theirs,
        "known": item.known or None,
    }


def shown(record: DatagramRecord) -> dict[str, Any]:
    """Return the object of `show`: the datagram with its tree as plain values and its buffers."""
    tree = record.dissection
    return {
        "schema": SCHEMA,
        "frame": record.frame,
        "frames": list(record.frames),
        "time_ns": record.time_ns,
        "connection": record.connection,
        "direction": label(record.direction),
        "transport": record.transport,
        "src": record.src,
        "dst": record.dst,
        "protocol": record.protocol,
        "dialect": record.dialect,
        "length": record.length,
        "fields": tree.fields if tree else {},
        "buffers": [{"name": buffer.name, "data": buffer.data} for buffer in tree.buffers]
        if tree
        else [{"name": "payload", "data": record.payload}],
        "messages": [message(record, item) for item in record.messages],
        "annotations": [annotation(note) for note in tree.annotations] if tree else [],
        "findings": _findings(record),
    }


def _findings(record: DatagramRecord) -> list[dict[str, Any]]:
    return [
        {"code": finding.code, "severity": finding.severity.label} for finding in record.findings
    ]


def interval(row: Interval) -> dict[str, Any]:
    """Return one object of `stats`."""
    return {
        "schema": SCHEMA,
        "start_ns": row.start_ns,
        "span_ms": _ms(row.span_ns),
        "direction": label(row.direction),
        "datagrams": row.datagrams,
        "octets": row.octets,
        "goodput_octets_per_s": round(row.goodput, 3),
        "units": row.units,
        "copies": row.copies,
        "retransmissions": row.retransmissions,
        "reliable_copies": row.reliable_copies,
        "retransmission_share": _round(row.resend_share),
        "unacked": row.unacked,
        "lost": row.lost if row.decided else None,
        "loss_share": _round(row.loss_share),
        "rtt_ms": _round(row.rtt_ms),
        "rtt_samples": row.rtt_samples,
        **({"observed": True, "delay_ms": _round(row.delay_ms)} if row.observed else {}),
    }
