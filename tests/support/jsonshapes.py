"""The JSON Schema of what `--json` prints, made from the values that are printed.

What an attribute of a model's class says (type, meaning) is taken from there; what stands here is how
`export` and `cli` differ from it. `pytest --update-expected` writes `data/output.schema.json`.
"""

from __future__ import annotations

import ast
import inspect
import re
import textwrap
import types
from dataclasses import is_dataclass
from enum import IntEnum
from functools import cache
from typing import Any, Union, get_args, get_origin, get_type_hints

from netdissect.export.json import SCHEMA
from netdissect.flow.stats import FlowStats
from netdissect.fuzz.cases import Step
from netdissect.fuzz.store import Sent
from netdissect.model.annotations import Annotation, CodeRow
from netdissect.model.diagnosis import (
    AddedDelay,
    Cause,
    Ceiling,
    Diagnosis,
    Ending,
    LateUnit,
    Loss,
    SilenceLoss,
)
from netdissect.model.facts import Difference
from netdissect.model.intervals import Interval
from netdissect.model.joined import (
    Burst,
    ClockReport,
    FateRow,
    JoinedConnection,
    JoinReport,
    ResendReport,
    StreamReport,
    WayReport,
)
from netdissect.model.names import DialectInfo, FieldInfo, ProtocolInfo
from netdissect.model.packets import Direction
from netdissect.model.records import DatagramRecord, Finding, MessageRecord, Reliability
from netdissect.model.reports import (
    Anomaly,
    CaptureInfo,
    ConnectionEvent,
    ConnectionReport,
    Copy,
    ProbeReport,
    QuietSpan,
    RttSummary,
    SpaceReport,
    TimeoutVerdict,
    UnitRecord,
)

__all__ = ["document"]

Shape = dict[str, Any]

INT: Shape = {"type": "integer"}
NUMBER: Shape = {"type": "number"}
TEXT: Shape = {"type": "string"}
FLAG: Shape = {"type": "boolean"}
ANY: Shape = {}
OBJECT: Shape = {"type": "object"}
HEX: Shape = {"type": "string", "pattern": "^([0-9a-f]{2})*$"}


def also_null(shape: Shape) -> Shape:
    if "enum" in shape:
        return {**shape, "enum": [*shape["enum"], None]}
    if "type" in shape:
        return {**shape, "type": [shape["type"], "null"]}
    return {"anyOf": [shape, {"type": "null"}]}


def words(*allowed: str | int) -> Shape:
    return {"enum": list(allowed)}


def many(item: Shape) -> Shape:
    return {"type": "array", "items": item}


def row(*items: Shape) -> Shape:
    return {"type": "array", "prefixItems": list(items), "items": False, "minItems": len(items)}


def named(value: Shape) -> Shape:
    """An object whose keys are data."""
    return {"type": "object", "additionalProperties": value}


def closed(properties: dict[str, Shape], *, optional: tuple[str, ...] = ()) -> Shape:
    return {
        "type": "object",
        "properties": properties,
        "required": [name for name in properties if name not in optional],
        "additionalProperties": False,
    }


def with_keys(shape: Shape, optional: dict[str, Shape], **more: Shape) -> Shape:
    """A closed shape with further keys, those of `optional` not always there."""
    properties = {**shape["properties"], **more, **optional}
    missing = tuple(name for name in properties if name in optional)
    kept = tuple(set(shape["properties"]) - set(shape["required"]))
    return closed(properties, optional=(*missing, *kept))


def ref(name: str) -> Shape:
    return {"$ref": f"#/$defs/{name}"}


def both(value: Shape) -> Shape:
    """Two values by direction."""
    return closed({direction.label: value for direction in Direction})


DIRECTION = words(*(direction.label for direction in Direction))
WAY = also_null(DIRECTION)


@cache
def _meanings(cls: type) -> dict[str, str]:
    """What the docstrings of a class's attributes say, in its body or where `__init__` sets them."""
    (body,) = ast.parse(textwrap.dedent(inspect.getsource(cls))).body
    assert isinstance(body, ast.ClassDef)
    made = [each.body for each in body.body
            if isinstance(each, ast.FunctionDef) and each.name == "__init__"]  # fmt: skip
    found: dict[str, str] = {}
    for block in (*made, body.body):
        name = ""  # the docstring of a function or a class is none of an attribute
        for each in block:
            target = getattr(each, "target", None)
            if isinstance(each, ast.Assign):
                target = each.targets[0]
            if isinstance(target, ast.Name):
                name = target.id
            elif isinstance(target, ast.Attribute):
                name = target.attr
            elif isinstance(each, ast.Expr) and isinstance(each.value, ast.Constant) and name:
                found.setdefault(name, " ".join(str(each.value.value).split()))
    return found


def _hints(cls: type) -> dict[str, Any]:
    """The attributes of a class with their types: those that it declares, else what it is made of."""
    if is_dataclass(cls) or issubclass(cls, tuple):
        return get_type_hints(cls)
    taken = get_type_hints(cls.__init__)
    del taken["return"]
    return taken


def _said(meaning: str) -> str:
    """A meaning in the words of JSON."""
    return re.sub(r"\bNone\b", "null", meaning)


def _shape(hint: Any) -> Shape:  # noqa: PLR0911 - one a kind
    simple = {int: INT, float: NUMBER, str: TEXT, bool: FLAG, bytes: HEX, Any: ANY, object: ANY}
    if hint in simple:
        return simple[hint]
    origin, inner = get_origin(hint), get_args(hint)
    if origin in {Union, types.UnionType}:
        rest = [each for each in inner if each is not type(None)]
        return also_null(_shape(rest[0])) if len(rest) < len(inner) else _shape(rest[0])
    if origin is dict:
        return OBJECT if inner[1] is Any else named(_shape(inner[1]))
    if origin is list or (origin is tuple and inner[-1] is Ellipsis):
        return many(_shape(inner[0]))
    if origin is tuple:
        return row(*map(_shape, inner))
    if issubclass(hint, IntEnum):
        return words(*(each.label for each in hint))  # type: ignore[attr-defined]
    return of(hint)


def of(
    cls: type,
    *,
    drop: str = "",
    keep: str = "",
    rename: dict[str, str] | None = None,
    optional: dict[str, Shape] | None = None,
    **other: Shape,
) -> Shape:
    """The closed shape of a class: its attributes but for `drop`, or those of `keep`."""
    hints = _hints(cls)
    meanings = _meanings(cls)
    assert set(drop.split()) <= set(hints), set(drop.split()) - set(hints)
    assert set(keep.split()) <= set(hints), set(keep.split()) - set(hints)
    properties: dict[str, Shape] = {}
    for name, hint in hints.items():
        if name in drop.split() or (keep and name not in keep.split()):
            continue
        key = (rename or {}).get(name, name)
        shape = other.pop(key) if key in other else WAY if name == "direction" else _shape(hint)
        meaning = meanings.get(name)
        properties[key] = {**shape, "description": _said(meaning)} if meaning else shape
    return with_keys(closed(properties), optional or {}, **other)


def printed(shape: Shape) -> Shape:
    """An object of its own on a line: it says its version."""
    version: dict[str, Shape] = {"schema": {"const": SCHEMA}}
    return {**shape, "properties": {**version, **shape["properties"]},
            "required": ["schema", *shape["required"]]}  # fmt: skip


NUMBERS = named(NUMBER)
KEY: dict[str, Shape] = {"key": {"type": ["integer", "string"]}}
SPACE_EXTRAS: dict[str, Shape] = {
    **KEY,
    **dict.fromkeys(
        [
            "strays",
            "undecided",
            "lost_or_skipped",
            "collisions",
            "forgotten",
            "ack_wanted",
            "timed_out",
            "late_acks",
            "ignored_acks",
            "restarts",
            "refused",
            "disordered",
            "delivered",
            "lost",
            "assumed_lost",
            "poor_quality_run",
            "new",
            "hole_filling",
            "retransmitted",
            "exact_duplicates",
            "reordered",
            "zero_window",
            "syn",
            "fin",
            "rst",
            "pure_acks",
            "octets_on_wire",
            "partly_new",
            "ids_missing",
            "copies_missing",
            "copies_missing_of_seen",
            "window_closures",
            "timer_resends",
            "segments",
            "missing_octets",
            "stream_octets",
            "gap_octets",
            "with_retransmitted_octets",
            "blocked",
            "leftover_octets",
        ],
        INT,
    ),
    "window_closed": closed({"from_ns": INT, "to_ns": also_null(INT), "frames": row(INT, also_null(INT))}),
    **dict.fromkeys(("window_closed_ms", "longest_wait_ms", "max_blocked_ms"), NUMBER),
    "stream_sha256": HEX,
    "feedback_at": TEXT,
    "receiver": named(INT),
    "per_second": closed(
        {"mean": also_null(NUMBER), "peak": INT, "asked": INT}, optional=("asked",)
    ),
}
UNIT_EXTRAS: dict[str, Shape] = {
    **KEY,
    "reported": words("lost"),
    "continued": also_null(INT),
    **dict.fromkeys(("retransmitted", "late", "partly_new", "apart"), FLAG),
    **dict.fromkeys(("offset", "length", "segments", "first_octet_ns", "last_octet_ns"), INT),
    "retransmitted_in": INT,
    "blocked_ms": NUMBER,
    "carried_by": many(ANY),
    "capture": words(0, 1),
    "arrived": also_null(FLAG),
}
EVENTS: dict[str, tuple[dict[str, Shape], dict[str, Shape]]] = {
    "state": ({"from": TEXT, "to": TEXT, "input": TEXT, "detail": ANY}, {}),
    "probe": ({"kind": TEXT, "id": ANY}, {"rtt_ms": also_null(NUMBER)}),
    "timeout": ({"last_heard_ns": also_null(INT), "latest_ns": also_null(INT)}, {}),
    "resend_request": ({"space": TEXT}, {}),
    "reset": ({"space": TEXT}, {}),
    "gap": ({"space": TEXT, "first_seq": INT, "last_seq": INT}, {"step": INT}),
    "tally": (
        {
            "kind": TEXT,
            **dict.fromkeys(("sent", "sent_seen", "received", "received_seen"), INT),
        },
        {},
    ),
    "rate": ({"per_second": INT, "taken": FLAG}, {}),
    "window": ({"open": FLAG}, {"closed_ms": NUMBER}),
    "hole": ({"open": FLAG, "offset": INT, "octets": INT}, {"waited_ms": NUMBER}),
    "rto": ({"offset": INT, "waited_ms": NUMBER, "copy": INT}, {}),
}
"""Event -> the keys that it adds always, and those that it adds sometimes."""


_DATAGRAM = "frame time_ns connection direction transport src dst protocol dialect"
"""What a line about a message has of its datagram."""


def _shared() -> dict[str, Shape]:
    """What several objects hold."""
    return {
        "rtt": of(RttSummary, rename={"minimum": "min", "maximum": "max"}),
        "annotation": of(Annotation, drop="buffer", optional={"buffer": INT}),
        "finding": of(Finding),
        "reliability": of(
            Reliability, drop="since_ms retransmitted_in", optional={**KEY, "retransmitted_in": INT}
        ),
        "message": printed(
            of(
                DatagramRecord,
                keep=_DATAGRAM,
                optional={
                    "buffer": TEXT,
                    "frames": many(INT),
                    "faults": many(TEXT),
                    "payload": HEX,
                },
                index=INT,
                type=also_null(TEXT),
                offset=INT,
                length=INT,
                fields=OBJECT,
                reliability=also_null(ref("reliability")),
                annotations=many(ref("annotation")),
                findings=many(ref("finding")),
            )
        ),
        "decoded": printed(
            closed(
                {
                    "protocol": TEXT,
                    "dialect": TEXT,
                    "direction": WAY,
                    "transport": TEXT,
                    "length": INT,
                    "octets": HEX,
                    "fields": OBJECT,
                    "annotations": many(ref("annotation")),
                    "messages": many(of(MessageRecord, keep="type offset length buffer")),
                    "summary": TEXT,
                }
            )
        ),
        "diagnosis": _diagnosis(),
        "step": of(Sent, drop="octets step", sent=HEX, **of(Step, shift=named(INT))["properties"]),
    }


def _diagnosis() -> Shape:
    late = of(
        AddedDelay,
        drop="limit_ms",
        rename={"p50": "p50_ms", "p95": "p95_ms", "maximum": "max_ms", "over_limit": "late"},
        worst=many(of(LateUnit, drop="time_ns")),
    )
    frames = row(also_null(INT), also_null(INT))
    losses = both(of(Loss, share=also_null(NUMBER)))
    return of(
        Diagnosis,
        rename={"ending": "ended", "settles": "second_capture"},
        ended=of(Ending),
        cause=of(Cause, drop="from_frame to_frame", frames=frames),
        loss=losses,
        around=also_null(of(SilenceLoss, before=losses, inside=losses)),
        lag=closed(
            {"path_ms": also_null(NUMBER), "p95_ms": also_null(NUMBER), "added": both(late)}
        ),
        names=both(also_null(TEXT)),
    )  # fmt: skip


def _connection() -> Shape:
    rtt = ref("rtt")
    frames = row(also_null(INT), also_null(INT))
    return of(
        ConnectionReport,
        keep="connection protocol dialects transport client server roles_from first_frame last_frame "
        "first_time_ns last_time_ns vantage vantage_basis handshake reject_reason state state_name "
        "close identity datagrams octets messages spaces probes timeouts counters anomalies codes "
        "complete limits_hit explain timings clocks quiet diagnosis",
        rename={"dialects": "dialect", "timings": "timings_ms", "clocks": "clock_ms"},
        dialect=both(also_null(TEXT)),
        close=also_null(OBJECT),
        datagrams=both(INT),
        octets=both(INT),
        messages=both(named(INT)),
        spaces=many(
            of(SpaceReport, keep="space direction units copies retransmissions duplicates acked unacked "
               "unknown never_seen out_of_order given_up first_seq last_seq max_copies rtt", rename={"rtt": "rtt_ms"},
               rtt_ms=rtt, optional=SPACE_EXTRAS)
        ),
        probes=many(
            of(ProbeReport, rename={"rtt": "rtt_ms", "declared": "declared_rtt_ms"},
               rtt_ms=rtt, declared_rtt_ms=rtt)
        ),
        timeouts=many(of(TimeoutVerdict)),
        counters=both(named(INT)),
        timings_ms=both(named(rtt)),
        clock_ms=both(also_null(rtt)),
        quiet=many(
            of(QuietSpan, drop="from_frame to_frame before", rename={"unanswered": "asked"},
               frames=frames)
        ),
        diagnosis=also_null(ref("diagnosis")),
        duration_ms=NUMBER,
    )  # fmt: skip


def _unit() -> Shape:
    copy = of(
        Copy, drop="by_place doubtful fate delay_ms", optional={"fate": TEXT, "delay_ms": also_null(NUMBER)}
    )
    return of(UnitRecord, drop="settled_ns emitted extra", copies=many(copy), optional=UNIT_EXTRAS)


def _events() -> list[Shape]:
    shared = of(ConnectionEvent, drop="data came event")
    return [
        printed(with_keys(shared, {**sometimes, "capture": {"const": 0}}, event={"const": event}, **always))
        for event, (always, sometimes) in EVENTS.items()
    ]


def _joined() -> list[Shape]:
    rtt = ref("rtt")
    captures = row(INT, INT)
    steps = many(closed({"capture": INT, "frame": INT, "ms": NUMBER}))
    resends = of(ResendReport)["properties"]
    counts = closed(dict.fromkeys(("needed", "spurious", "copied", "unknown"), INT))
    way = of(
        WayReport,
        rename={"sender": "sender_capture", "delay": "delay_ms", "resends": "retransmissions"},
        delay_ms=rtt,
        bursts=many(of(Burst)),
        ceiling=also_null(of(Ceiling)),
        retransmissions=closed({**resends, "spaces": named(counts)}),
        direction=WAY,
        loss_share=also_null(NUMBER),
    )
    stream = of(
        StreamReport,
        rename={"toward": "sender_capture", "delay": "delay_ms"},
        delay_ms=rtt,
        direction=WAY,
    )
    return [
        printed(
            of(
                JoinReport,
                drop="conversations reports",
                kind={"const": "captures"},
                captures=captures,
                files=row(TEXT, TEXT),
                clock=of(ClockReport, steps=steps),
            )
        ),
        printed(
            of(
                JoinedConnection,
                rename={"kind": "how", "client": "client_capture"},
                kind={"const": "conversation"},
                captures=captures,
                connections=row(many(INT), many(INT)),
                ends=row(many(row(TEXT, TEXT)), many(row(TEXT, TEXT))),
                ways=many(way),
                streams=many(stream),
            )
        ),
        printed(
            of(
                FateRow,
                drop="copied reordered",
                kind={"const": "datagram"},
                capture=INT,
                frame=INT,
                optional={"copied": FLAG, "reordered": FLAG},
            )
        ),
    ]  # fmt: skip


def _fuzzed() -> Shape:
    accepted = closed({"expected": INT, "acknowledged": INT, "share": also_null(NUMBER)})
    state = {"type": TEXT, "state": TEXT}
    finding = {
        **dict.fromkeys(("key", "kind", "signature", "detail", "folder"), TEXT),
        "case": INT, "count": INT, "folders": many(TEXT),
    }  # fmt: skip
    return closed(
        {
            "cases": INT, "datagrams": INT, "sessions": INT, "held_seconds": NUMBER,
            "held_messages": INT,
            "seconds": NUMBER, "earlier": INT, "ended": TEXT,
            "seeds": closed({"total": INT, "raw": INT}),
            "mutations": named(INT),
            "accepted": closed({"control": accepted, "mutant": accepted}),
            "undecided": INT,
            "coverage": many(closed({**state, "sent": INT, "mutated": INT, "received": INT})),
            "never_mutated": many(row(TEXT, TEXT)),
            "moves": many(
                closed({"from": TEXT, "to": TEXT, "message": also_null(TEXT), "count": INT})
            ),
            "corpus": INT, "edges": also_null(INT),
            "left_out": closed({"repeats": INT, "no_session": INT}),
            "slow_answers": INT,
            "failures": many(closed(finding)),
            "masked": named(INT),
            "held_back": many(closed({"key": TEXT, "facts": TEXT, "cases": INT})),
        }
    )  # fmt: skip


def _surveyed() -> Shape:
    """A section has columns of its own; their names say what they hold."""
    return {
        "type": "object",
        "properties": {"schema": {"const": SCHEMA}, "section": TEXT},
        "required": ["schema", "section"],
        "patternProperties": {
            "_(share|ms)$": also_null(NUMBER),
            "^(connections|captures|frames|bytes|found|known_of)$": also_null(INT),
            "^(p[0-9]+|max|then|now|change)$": also_null(NUMBER),
        },
        "additionalProperties": also_null(TEXT),
    }


def _commands() -> dict[str, list[Shape]]:
    message, decoded = ref("message"), ref("decoded")
    whole = closed({"name": TEXT, "data": HEX})
    shown = of(
        DatagramRecord,
        keep=f"{_DATAGRAM} frames length",
        fields=OBJECT,
        buffers=many(whole),
        messages=many(message),
        annotations=many(ref("annotation")),
        findings=many(ref("finding")),
        direction=WAY,
    )
    counts = dict.fromkeys(("datagrams", "connections"), INT)
    dialect = of(DialectInfo, rename={"name": "dialect"})
    interval = of(
        Interval,
        drop="span_ns repeated_octets decided observed delay_ms lost",
        optional={"observed": {"const": True}, "delay_ms": also_null(NUMBER)},
        span_ms=NUMBER,
        lost=also_null(INT),
        goodput_octets_per_s=NUMBER,
        retransmission_share=also_null(NUMBER),
        loss_share=also_null(NUMBER),
    )
    point = {
        "kind": TEXT, "connection": INT, "direction": WAY, "series": TEXT, "time_ns": INT,
        "until_ns": also_null(INT), "value": also_null(NUMBER), "base": also_null(NUMBER),
        "unit": also_null(TEXT), "frame": also_null(INT), "label": also_null(TEXT),
    }  # fmt: skip
    arrow = closed(
        {
            "connection": INT, "time_ns": INT, "frame": also_null(INT), "direction": WAY,
            "mark": also_null(TEXT), "label": TEXT, "arrived_ns": also_null(INT),
            "frames": many(also_null(TEXT)),
        },
        optional=("arrived_ns", "frames"),
    )  # fmt: skip
    setting = closed({"setting": TEXT, "value": ANY, "origin": TEXT, "meaning": TEXT})
    check = closed(
        {"check": TEXT, "good": also_null(FLAG), "text": TEXT, "remedy": also_null(TEXT)}
    )
    minimised = closed(
        {
            "from": INT, "to": INT, "trials": INT, "complete": FLAG, "failed": INT, "tries": INT,
            "folder": TEXT, "steps": many(ref("step")),
        }
    )  # fmt: skip
    replayed = closed(
        {
            "steps": INT, "sent": INT, "failed": FLAG, "tries": INT, "failures": INT,
            "kind": also_null(TEXT), "detail": also_null(TEXT),
        }
    )  # fmt: skip
    diagnosed = of(
        ConnectionReport,
        keep="connection protocol client server vantage state",
        **_diagnosis()["properties"],
    )
    interface = closed(
        {
            "number": also_null(INT), "interface": TEXT, "up": FLAG, "loopback": FLAG,
            "addresses": many(TEXT),
        }
    )  # fmt: skip
    encoded = {**dict.fromkeys(("protocol", "dialect", "type"), TEXT), "length": INT, "octets": HEX}
    changed = closed(
        {"where": TEXT, "field": TEXT, "before": ANY, "after": ANY}, optional=("before", "after")
    )
    return {
        "anomalies": [printed(of(Anomaly))],
        "config": [printed(setting), printed(closed({"ignored": TEXT}))],
        "connections": [printed(_connection())],
        "decode": [decoded],
        "diagnose": [printed(diagnosed)],
        "diff": [printed(changed)],
        "doctor": [printed(check)],
        "encode": [printed(closed(encoded))],
        "explain": [printed(of(CodeRow))],
        "fields": [
            printed(
                of(FieldInfo,
                   rename={"name": "field", "kind": "type", "minimum": "least", "maximum": "most"},
                   meaning=also_null(TEXT), unit=also_null(TEXT),
                   least=also_null({"type": "number"}), most=also_null({"type": "number"}))
            )
        ],
        "follow": [message],
        "fuzz": [printed(_fuzzed())],
        "info": [
            printed(
                of(CaptureInfo, protocols=named(closed(counts)), other_datagrams=INT,
                   flow=also_null(of(FlowStats)))
            )
        ],
        "join": _joined(),
        "ladder": [printed(arrow)],
        "minimise": [printed(minimised)],
        "plot": [printed(closed(point))],
        "protocols": [
            printed(
                of(ProtocolInfo, rename={"name": "protocol"}, dialects=many(dialect),
                   disabled=also_null(TEXT))
            )
        ],
        "read": [message],
        "replay": [printed(replayed)],
        "send": [decoded],
        "show": [printed(shown)],
        "sniff": [message, printed(interface)],
        "stats": [printed(interval)],
        "survey": [_surveyed()],
        "timeline": [printed(_unit()), *_events()],
        "verify": [printed(of(Difference, known=also_null(TEXT)))],
    }  # fmt: skip


def document() -> Shape:
    """The whole document: a line of any command is valid by it."""
    shared, commands = _shared(), _commands()
    assert not set(shared) & set(commands)
    defs = {
        name: shapes[0] if len(shapes) == 1 else {"anyOf": shapes}
        for name, shapes in commands.items()
    }
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "what netdissect prints with --json, an object a line",
        "anyOf": [ref(name) for name in commands],
        "$defs": {**shared, **defs},
    }
