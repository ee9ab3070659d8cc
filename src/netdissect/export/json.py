"""The objects of `--json`, one converter per kind. docs/json.md describes every key.

Keys are only ever added; renaming or removing one increments `SCHEMA`. Times are integers in
nanoseconds, durations floats in milliseconds, bytes lower-case hex; None means that the capture
does not show it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from json import loads
from typing import TYPE_CHECKING, Any, Final

from netdissect.export.diagnosis import cause, diagnosis, label, pair, parts, quiet, rows
from netdissect.export.jsonline import dump, figure, text
from netdissect.model.annotations import Annotation, CodeRow
from netdissect.model.diagnosis import Cause, Diagnosis
from netdissect.model.dissection import Dissection
from netdissect.model.figures import digits
from netdissect.model.intervals import Interval
from netdissect.model.policy import split_space_name
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

if TYPE_CHECKING:
    from netdissect.model.facts import Difference
    from netdissect.model.names import FieldInfo, ProtocolInfo

SCHEMA = 1
"""Incremented when a key is renamed or removed."""

_NS_PER_MS: Final = 1_000_000
_NO_SAMPLES: Final = '{"samples":0,"ambiguous":0,"min":null,"p50":null,"p95":null,"max":null}'


def _ms(nanoseconds: int) -> float:
    return nanoseconds / _NS_PER_MS


def rounded(value: float | None) -> float | None:
    """Round a duration to nanoseconds, which removes the noise of binary fractions."""
    return None if value is None or not math.isfinite(value) else round(value, 6)


def annotation(note: Annotation) -> dict[str, Any]:
    """Return a finding about a place in a buffer."""
    shown: dict[str, Any] = {
        "code": note.code,
        "severity": note.severity.label,
        "group": note.group,
        "message": note.message,
        "bit_offset": note.bit_offset,
        "bit_length": note.bit_length,
    }
    # Buffer 0, the payload, is the default.
    if note.buffer:
        shown["buffer"] = note.buffer
    return shown


def decoded(dissection: Dissection) -> dict[str, Any]:
    """Return the object of `decode`: a payload with all its fields."""
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
    resent_in = facts.retransmitted_in
    return {
        "space": facts.space,
        **_space_key(facts.space),
        "wire_seq": facts.wire_seq,
        "seq": facts.seq,
        "reliable": facts.reliable,
        "kind": facts.kind,
        "of_frame": facts.of_frame,
        "acked_in": facts.acked_in,
        "rtt_ms": rounded(facts.rtt_ms),
        "attempts": facts.attempts,
        "latency_ms": rounded(facts.latency_ms),
        "added_ms": rounded(facts.added_ms),
        **({} if resent_in is None else {"retransmitted_in": resent_in}),
    }


def message(record: DatagramRecord, item: MessageRecord | None) -> dict[str, Any]:
    """Return a row of `read --json`; without a message, the row is about the datagram itself."""
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
    # No protocol has decoded it, so its bytes are all there is.
    if record.protocol is None:
        shown["payload"] = record.payload
    return shown


def rtt(summary: RttSummary) -> str:
    """Return a summary of round trips, or of other times, as JSON."""
    if summary.minimum is None and not summary.samples and not summary.ambiguous:
        return _NO_SAMPLES  # as nearly half of them are
    # All values are whole nanoseconds divided by 1e6, so there is no noise to round off.
    return (
        f'{{"samples":{digits(summary.samples)},"ambiguous":{digits(summary.ambiguous)},'
        f'"min":{figure(summary.minimum)},"p50":{figure(summary.p50)},'
        f'"p95":{figure(summary.p95)},"max":{figure(summary.maximum)}}}'
    )


def _space_key(space: str) -> dict[str, Any]:
    """Return the key of a space that has one; as a number if it is one."""
    _, key = split_space_name(space)
    return {"key": int(key) if key.isdecimal() else key} if key else {}


def _space(space: SpaceReport) -> str:
    key = "" if "[" not in space.space else dump(_space_key(space.space))[1:-1] + ","
    # Keys that only some spaces have come last.
    further = dump(space.extra)
    return (
        # The key is written only for the few spaces that have one.
        f'{{"space":{text(space.space)},{key}'
        f'"direction":{text(label(space.direction))},"units":{digits(space.units)},'
        f'"copies":{digits(space.copies)},"retransmissions":{digits(space.retransmissions)},'
        f'"duplicates":{digits(space.duplicates)},"acked":{digits(space.acked)},'
        f'"unacked":{digits(space.unacked)},'
        f'"unknown":{digits(space.unknown)},"never_seen":{digits(space.never_seen)},'
        f'"out_of_order":{digits(space.out_of_order)},"given_up":{digits(space.given_up)},'
        f'"first_seq":{figure(space.first_seq)},"last_seq":{figure(space.last_seq)},'
        f'"max_copies":{digits(space.max_copies)},"rtt_ms":{rtt(space.rtt)}'
        f"{',' if space.extra else ''}{further[1:]}"
    )


def _probe(probe: ProbeReport) -> str:
    return (
        f'{{"kind":{text(probe.kind)},"direction":{text(label(probe.direction))},'
        f'"sent":{digits(probe.sent)},"answered":{digits(probe.answered)},"rtt_ms":{rtt(probe.rtt)},'
        f'"declared_rtt_ms":{rtt(probe.declared)}}}'
    )


def _timeout(verdict: TimeoutVerdict) -> str:
    return (
        f'{{"side":{text(verdict.side)},"last_heard_ns":{figure(verdict.last_heard_ns)},'
        f'"last_heard_frame":{figure(verdict.last_heard_frame)},'
        f'"due_ns":{figure(verdict.due_ns)},"latest_ns":{figure(verdict.latest_ns)},'
        f'"fired":{_truth(verdict.fired)}}}'
    )


def _truth(value: bool | None) -> str:  # noqa: FBT001 - the value itself
    return "null" if value is None else "true" if value else "false"


def _timings(side: dict[str, RttSummary]) -> str:
    written = [f"{dump(name)}:{rtt(kept)}" for name, kept in side.items()]
    return f"{{{','.join(written)}}}"


def connection_line(report: ConnectionReport) -> str:
    """Return a line of `connections`."""
    found = report.diagnosis
    if found is None:
        return f"{_undiagnosed(report)}null}}"
    return diagnosed_line(line_parts(report, found), found.cause, found.ruled_out)


def line_parts(report: ConnectionReport, found: Diagnosis) -> tuple[str, str, str]:
    """Return a line of `connections` in three pieces: what comes before the cause, between the
    cause and what is ruled out, and after that. Other connections may change these two.
    """
    before, between, after = parts(found)
    return _undiagnosed(report) + before, between, after + "}"


def diagnosed_line(line: tuple[str, str, str], found: Cause, ruled_out: tuple[str, ...]) -> str:
    """Return a line of `connections` from its three pieces, the cause, and what is ruled out."""
    before, between, after = line
    return f"{before}{cause(found)}{between}{dump(ruled_out)}{after}"


def _undiagnosed(report: ConnectionReport) -> str:
    """Return the line of a connection up to its diagnosis.

    It is written directly: building an object of some 200 values first would take as long again.
    """
    first, second = report.clocks
    return (
        f'{_head(report.connection)},"protocol":{text(report.protocol)},'
        f'"dialect":{pair(text(report.dialects[0]), text(report.dialects[1]))},'
        f'"transport":{text(report.transport)},"client":{text(report.client)},'
        f'"server":{text(report.server)},"roles_from":{text(report.roles_from)},'
        f'"first_frame":{report.first_frame},"last_frame":{report.last_frame},'
        f'"first_time_ns":{report.first_time_ns},"last_time_ns":{report.last_time_ns},'
        f'"duration_ms":{figure(_ms(report.last_time_ns - report.first_time_ns))},'
        f'"vantage":{text(report.vantage)},"vantage_basis":{text(report.vantage_basis)},'
        f'"handshake":{text(report.handshake)},"reject_reason":{dump(report.reject_reason)},'
        f'"state":{text(report.state)},"state_name":{text(report.state_name)},'
        f'"close":{dump(report.close)},"identity":{dump(report.identity)},'
        f'"datagrams":{pair(digits(report.datagrams[0]), digits(report.datagrams[1]))},'
        f'"octets":{pair(str(report.octets[0]), str(report.octets[1]))},'
        f'"messages":{pair(dump(report.messages[0]), dump(report.messages[1]))},'
        f'"spaces":{rows([_space(space) for space in report.spaces])},'
        f'"probes":{rows([_probe(probe) for probe in report.probes])},'
        f'"timeouts":{rows([_timeout(verdict) for verdict in report.timeouts])},'
        f'"counters":{pair(dump(report.counters[0]), dump(report.counters[1]))},'
        f'"anomalies":{dump(report.anomalies)},"codes":{dump(report.codes)},'
        f'"complete":{_truth(report.complete)},"limits_hit":{dump(report.limits_hit)},'
        f'"explain":{dump(report.explain)},'
        f'"timings_ms":{pair(_timings(report.timings[0]), _timings(report.timings[1]))},'
        f'"clock_ms":{pair(_clock(first), _clock(second))},'
        f'"quiet":{rows([quiet(span) for span in report.quiet])},"diagnosis":'
    )


def _head(connection: int) -> str:
    return f'{{"schema":{SCHEMA},"connection":{connection}'


def renumbered(line: str, connection: int) -> str:
    """Return the line of a connection with another number."""
    # A line is written when its connection ends, but numbers are final only at the end of the file.
    return _head(connection) + line[line.index(',"protocol":') :]


def _clock(offset: RttSummary) -> str:
    return rtt(offset) if offset.samples else "null"


def connection(report: ConnectionReport) -> dict[str, Any]:
    """Return an object of `connections`."""
    shown: dict[str, Any] = loads(connection_line(report))
    return shown


def diagnosed(report: ConnectionReport) -> str:
    """Return a line of `diagnose`."""
    found = report.diagnosis
    return (
        f'{_head(report.connection)},"protocol":{text(report.protocol)},'
        f'"client":{text(report.client)},"server":{text(report.server)},'
        f'"vantage":{text(report.vantage)},"state":{text(report.state)}'
        f"{'}' if found is None else ',' + diagnosis(found)[1:]}"
    )


def _fate(copy: Copy) -> dict[str, Any]:
    return {"fate": copy.fate, "delay_ms": rounded(copy.delay_ms)}


def unit(record: UnitRecord) -> dict[str, Any]:
    """Return a unit of `timeline`."""
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
        "rtt_ms": rounded(record.rtt_ms),
        "rtt_ambiguous": record.rtt_ambiguous,
        "outcome": record.outcome,
        "lost": record.lost,
        "delivered_order": record.delivered_order,
        "next_resend_due_ns": record.next_resend_due_ns,
        **record.extra,
    }


def event(record: ConnectionEvent) -> dict[str, Any]:
    """Return a connection event of `timeline`."""
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
    """Return an object of `anomalies`."""
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
    """Return an entry of the catalogue, for `explain --json`."""
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
    """Return an object of `protocols`."""
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
    """Return an object of `fields`."""
    return {
        "schema": SCHEMA,
        "field": info.name,
        "type": info.kind,
        "unit": info.unit or None,
        "meaning": info.meaning or None,
        "least": info.minimum if math.isfinite(info.minimum) else None,
        "most": info.maximum if math.isfinite(info.maximum) else None,
    }


def difference(item: Difference) -> dict[str, Any]:
    """Return an object of `verify`."""
    return {
        "schema": SCHEMA,
        "frame": item.frame,
        "what": item.what,
        "ours": item.ours,
        "theirs": item.theirs,
        "known": item.known or None,
    }


def shown(record: DatagramRecord) -> dict[str, Any]:
    """Return the object of `show`: a datagram with its tree as plain values, and its buffers."""
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


INTERVAL: Final = (
    "start_ns", "span_ms", "direction", "datagrams", "octets", "goodput_octets_per_s", "units",
    "copies", "retransmissions", "reliable_copies", "retransmission_share", "unacked", "lost",
    "loss_share", "rtt_ms", "rtt_samples", "delay_ms",
)  # fmt: skip
"""Keys of `interval` that become columns of CSV, in order."""


def interval(row: Interval) -> dict[str, Any]:
    """Return an object of `stats`."""
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
        "retransmission_share": rounded(row.resend_share),
        "unacked": row.unacked,
        "lost": row.lost if row.decided else None,
        "loss_share": rounded(row.loss_share),
        "rtt_ms": rounded(row.rtt_ms),
        "rtt_samples": row.rtt_samples,
        **({"observed": True, "delay_ms": rounded(row.delay_ms)} if row.observed else {}),
    }
