"""The tables of a dataset: the type and unit of each column, and where its value is found in the
objects that `--json` prints. docs/survey.md lists the tables.

Columns are only ever added; renaming or dropping one raises `SCHEMA`. The types are those that
every Parquet reader supports: text, 64-bit integers, doubles, booleans, and UTC times in
microseconds. Times in ns are integers, as not every reader supports timestamps in ns.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Any, Final

from netdissect.export.jsonline import dump
from netdissect.model.text import escape_surrogates

SCHEMA: Final = 1
"""Version of the tables, raised when a column is renamed or dropped."""

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_INT_LIMIT: Final = 2**63
_TIME_LIMIT_NS: Final = 253_402_300_800 * 10**9
"""Start of the year 10000, beyond the range of `datetime`."""


@dataclass(frozen=True, slots=True)
class Column:
    """One column."""

    name: str
    kind: str
    """`name` (text of few values, dictionary-coded), `text`, `json` (text that is an object),
    `int`, `float`, `flag`, `time`.
    """
    path: str = ""
    """Keys in the object, joined by dots; "" = `name`."""
    unit: str = ""


def _int(value: Any) -> int | None:
    return int(value) if -_INT_LIMIT <= value < _INT_LIMIT else None


def _text(value: Any) -> str:
    return escape_surrogates(str(value))


def _json(value: Any) -> str | None:
    if not value:
        return None
    # `dump` writes objects only: a list is wrapped in one, and unwrapped again.
    return dump(value) if isinstance(value, Mapping) else dump({"": value})[4:-1]


def _time(time_ns: int) -> datetime | None:
    if not 0 <= time_ns < _TIME_LIMIT_NS:
        return None
    return _EPOCH + timedelta(microseconds=time_ns // 1000)


_KINDS: Final[Mapping[str, Callable[[Any], Any]]] = {
    "name": _text,
    "text": _text,
    "json": _json,
    "int": _int,
    "float": float,
    "flag": bool,
    "time": _time,
}


def day_of(time_ns: int | None) -> str | None:
    """Return the UTC day of a time as the value of a partition; None if there is none."""
    time = None if time_ns is None else _time(time_ns)
    return None if time is None else time.date().isoformat()


def row_of(table: str, item: dict[str, Any]) -> dict[str, Any]:
    """Return the row of an object; None where it has no value, or one that does not fit."""
    row = {}
    for name, keys, convert in _places(table):
        found: Any = item
        for key in keys:
            found = found.get(key) if isinstance(found, dict) else None
        row[name] = None if found is None else convert(found)
    return row


@cache
def _places(table: str) -> list[tuple[str, list[str], Callable[[Any], Any]]]:
    """Return (name, keys in the object, conversion) of each column of a table."""
    return [
        (each.name, (each.path or each.name).split("."), _KINDS[each.kind])
        for each in TABLES[table]
    ]


def _columns(kind: str, *names: str, unit: str = "") -> tuple[Column, ...]:
    """Return columns of one kind; a name may be followed by `=path`."""
    pairs = (name.partition("=") for name in names)
    return tuple(Column(name, kind, path, unit) for name, _, path in pairs)


_NS: Final = "ns since the Unix epoch"
_KEY: Final = (*_columns("name", "capture"), *_columns("int", "connection"))
_WAY: Final = (*_KEY, *_columns("name", "direction"))

TABLES: Final[Mapping[str, tuple[Column, ...]]] = {
    "captures": (
        *_columns("name", "capture"),
        *_columns("text", "path", "error"),
        *_columns("name", "status", "version", "format"),
        *_columns("int", "file_bytes", "truncated_at", unit="bytes"),
        *_columns("int", "octets", unit="bytes"),
        *_columns("int", "frames", "drops", "connections", "datagrams", "other_datagrams"),
        *_columns("time", "started=first_time_ns", "ended=last_time_ns"),
        *_columns("int", "first_time_ns", "last_time_ns", unit=_NS),
        *_columns("flag", "nanosecond"),
        *_columns("text", "damage"),
        *_columns("json", "link_types", "interfaces", "comments", "limits_hit", "parts"),
    ),
    "connections": (
        *_KEY,
        *_columns("name", "transport", "client", "server", "roles_from"),
        *_columns("name", "dialect_c2s=dialect.c2s", "dialect_s2c=dialect.s2c"),
        *_columns("int", "first_frame", "last_frame"),
        *_columns("time", "started=first_time_ns", "ended=last_time_ns"),
        *_columns("int", "first_time_ns", "last_time_ns", unit=_NS),
        *_columns("float", "duration_ms", unit="ms"),
        *_columns("name", "vantage", "handshake", "state", "state_name", "close_by=close.by"),
        *_columns("text", "vantage_basis", "reject_reason", "close_reason=close.reason"),
        *_columns("int", "close_frame=close.frame"),
        *_columns("flag", "complete"),
        *_columns("json", "identity", "anomalies", "codes", "limits_hit", "spaces", "probes"),
        *_columns("json", "timeouts"),
    ),
    "directions": (
        *_WAY,
        *_columns("name", "dialect", "sender", "receiver"),
        *_columns("int", "datagrams", "messages", "units", "copies", "retransmissions"),
        *_columns("int", "octets", unit="bytes"),
        *_columns("int", "duplicates", "acked", "unacked", "unknown", "never_seen"),
        *_columns("int", "out_of_order", "given_up"),
        *_columns("int", "sent=loss.sent", "lost=loss.lost"),
        *_columns("float", "loss_share=loss.share", unit="1"),
        *_columns("name", "loss_basis=loss.basis"),
        *_columns("int", "resent_units=added.units", "late_units=added.late"),
        *_columns(
            "float",
            "added_p50_ms=added.p50_ms",
            "added_p95_ms=added.p95_ms",
            "added_max_ms=added.max_ms",
            unit="ms",
        ),
        *_columns("json", "message_types", "counters", "timings=timings_ms", "quiet"),
    ),
    "units": (
        *_WAY,
        *_columns("name", "space", "type", "outcome", "key"),
        *_columns("int", "wire_seq", "seq", "delivered_order"),
        *_columns("int", "copies", "retransmissions", "duplicates"),
        *_columns("int", "first_frame", "last_frame", "acked_frame"),
        *_columns("time", "sent_at=first_time_ns"),
        *_columns("int", "first_time_ns", "last_time_ns", "acked_time_ns", unit=_NS),
        *_columns("int", "next_resend_due_ns", unit=_NS),
        *_columns("float", "rtt_ms", unit="ms"),
        *_columns("flag", "rtt_ambiguous", "lost"),
        *_columns("json", "extra"),
    ),
    "findings": (
        *_WAY,
        *_columns("name", "code", "severity", "group"),
        *_columns("int", "frame", "repeats"),
        *_columns("time", "found_at=time_ns"),
        *_columns("int", "time_ns", "concluded_ns", unit=_NS),
        *_columns("text", "message"),
        *_columns("json", "evidence"),
    ),
    "intervals": (
        *_columns("name", "capture", "direction"),
        *_columns("time", "started=start_ns"),
        *_columns("int", "start_ns", unit=_NS),
        *_columns("float", "span_ms", unit="ms"),
        *_columns("int", "datagrams", "units", "copies", "retransmissions", "unacked", "lost"),
        *_columns("int", "octets", unit="bytes"),
        *_columns("float", "goodput_octets_per_s", unit="bytes/s"),
        *_columns("float", "retransmission_share", "loss_share", unit="1"),
        *_columns("float", "rtt_ms", unit="ms"),
        *_columns("int", "rtt_samples"),
    ),
    "verdicts": (
        *_KEY,
        *_columns("text", "verdict", "ended_reason=ended.reason", "cause_text=cause.text"),
        *_columns("name", "ended_by=ended.by", "ended_how=ended.how", "cause=cause.what"),
        *_columns("name", "cause_direction=cause.direction", "confidence=cause.confidence"),
        *_columns("int", "ended_frame=ended.frame", "badness"),
        *_columns("int", "ended_ns=ended.time_ns", unit=_NS),
        *_columns("int", "cause_from_ns=cause.from_ns", "cause_to_ns=cause.to_ns", unit=_NS),
        *_columns("float", "path_ms=lag.path_ms", "p95_ms=lag.p95_ms", unit="ms"),
        *_columns("text", "client_name=names.c2s", "server_name=names.s2c"),
        *_columns("text", "second_capture"),
        *_columns("json", "ruled_out"),
    ),
}
"""Table -> columns, without the `day` and `protocol` that the folders of a file state."""

PARTITIONED: Final = tuple(name for name in TABLES if name != "captures")
"""Tables that are partitioned by day and protocol."""


@cache
def arrow_schema(table: str) -> Any:
    """Return the Arrow schema of a table."""
    import pyarrow as pa  # noqa: PLC0415 - an extra

    kinds = {
        "name": pa.dictionary(pa.int32(), pa.string()),
        "text": pa.string(),
        "json": pa.string(),
        "int": pa.int64(),
        "float": pa.float64(),
        "flag": pa.bool_(),
        "time": pa.timestamp("us", tz="UTC"),
    }
    fields = [
        pa.field(each.name, kinds[each.kind], metadata={"unit": each.unit} if each.unit else None)
        for each in TABLES[table]
    ]
    return pa.schema(fields, metadata={"netdissect.schema": str(SCHEMA), "netdissect.table": table})
