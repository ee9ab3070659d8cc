from __future__ import annotations

import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import hostile
import samples
from netdissect.export import json as export
from netdissect.export.jsonline import figure
from netdissect.model.annotations import CodeRow, Severity
from netdissect.model.lasting import Lasting
from netdissect.model.names import DialectInfo, FieldInfo, ProtocolInfo
from netdissect.model.reports import CaptureInfo
from netdissect.model.text import escape_surrogates, unescape_surrogates

MS, START = samples.MS, samples.START


def back(shown: Any) -> Any:
    line = export.dump(shown)
    assert "\n" not in line
    assert line.isascii()
    return json.loads(line, parse_constant=pytest.fail)


def test_a_connection_has_the_keys_of_the_contract() -> None:
    shown = back(export.connection(samples.connection()))
    assert set(shown) >= {
        "schema",
        "connection",
        "protocol",
        "dialect",
        "transport",
        "client",
        "server",
        "roles_from",
        "first_frame",
        "last_frame",
        "first_time_ns",
        "last_time_ns",
        "duration_ms",
        "vantage",
        "handshake",
        "reject_reason",
        "state",
        "close",
        "identity",
        "datagrams",
        "octets",
        "messages",
        "spaces",
        "probes",
        "anomalies",
        "complete",
    }
    assert shown["dialect"] == {"c2s": "riptide-2.1", "s2c": "riptide-2.2"}
    assert shown["duration_ms"] == 12418.0
    assert shown["messages"]["c2s"] == {"Reliable": 134, "Ack": 90}
    assert shown["close"] == {"by": "client", "reason": "Disconnected", "frame": 842}
    assert shown["anomalies"] == {"chat": 0, "note": 0, "warn": 2, "error": 0}


def test_a_space_has_the_keys_of_the_contract() -> None:
    spaces = back(export.connection(samples.connection()))["spaces"]
    assert spaces[0] == {
        "space": "reliable",
        "direction": "c2s",
        "units": 110,
        "copies": 134,
        "retransmissions": 24,
        "duplicates": 0,
        "acked": 110,
        "unacked": 0,
        "unknown": 0,
        "never_seen": 0,
        "out_of_order": 3,
        "given_up": 0,
        "first_seq": 1,
        "last_seq": 110,
        "max_copies": 3,
        "rtt_ms": {
            "samples": 86,
            "ambiguous": 24,
            "min": 50.1,
            "p50": 60.25,
            "p95": 82.0,
            "max": 90.5,
        },
    }
    assert spaces[1]["lost"] == 16


def test_a_message_has_the_keys_of_the_contract() -> None:
    record = samples.datagram()
    shown = back(export.message(record, record.messages[0]))
    assert list(shown) == [
        "schema",
        "frame",
        "index",
        "time_ns",
        "connection",
        "direction",
        "transport",
        "src",
        "dst",
        "protocol",
        "dialect",
        "type",
        "offset",
        "length",
        "fields",
        "reliability",
        "annotations",
        "findings",
    ]
    assert shown["fields"]["payload"] == "0102"
    assert shown["reliability"] == {
        "space": "reliable",
        "wire_seq": 12,
        "seq": 12,
        "reliable": True,
        "kind": "retransmission",
        "of_frame": 33,
        "acked_in": 60,
        "rtt_ms": None,
        "attempts": None,
        "latency_ms": None,
        "added_ms": None,
    }
    assert shown["annotations"][0] == {
        "code": "trailing-bytes",
        "severity": "warn",
        "group": "malformed",
        "message": "1 byte too many",
        "bit_offset": 40,
        "bit_length": 8,
    }


def test_a_datagram_of_no_known_protocol_says_so() -> None:
    record = samples.datagram(
        protocol=None, dialect=None, connection=None, direction=None, messages=[], dissection=None
    )
    shown = back(export.message(record, None))
    assert shown["protocol"] is None
    assert shown["payload"] == "c700000000ff"
    assert shown["length"] == 6


def test_a_tcp_message_names_its_frames() -> None:
    record = samples.datagram(transport="tcp", frames=(3, 4, 9))
    assert back(export.message(record, record.messages[0]))["frames"] == [3, 4, 9]


def test_a_unit_has_the_keys_of_the_contract() -> None:
    shown = back(export.unit(samples.unit()))
    assert set(shown) >= {
        "schema",
        "connection",
        "direction",
        "space",
        "wire_seq",
        "seq",
        "type",
        "copies",
        "acked_frame",
        "acked_time_ns",
        "rtt_ms",
        "rtt_ambiguous",
        "outcome",
        "delivered_order",
    }
    assert shown["copies"][1] == {
        "frame": 41,
        "time_ns": START + 1072 * MS,
        "kind": "retransmission",
        "basis": "inferred",
        "due_ns": START + 1070 * MS,
        "attempts_left": 13,
    }


def test_an_event_has_the_keys_of_the_contract() -> None:
    shown = back(export.event(samples.event()))
    assert (shown["event"], shown["time_ns"], shown["frame"], shown["state"]) == (
        "state",
        START,
        1,
        "connecting",
    )


def test_an_anomaly_has_the_keys_of_the_contract() -> None:
    shown = back(export.anomaly(samples.anomaly()))
    assert {
        key: shown[key] for key in ("code", "severity", "group", "frame", "connection", "direction")
    } == {
        "code": "ack-of-never-sent",
        "severity": "warn",
        "group": "sequence",
        "frame": 41,
        "connection": 1,
        "direction": "c2s",
    }
    assert shown["evidence"] == {"seq": 99}


def test_a_decoded_payload_has_the_keys_of_the_contract() -> None:
    shown = back(export.decoded(samples.dissection()))
    assert set(shown) >= {
        "schema",
        "protocol",
        "dialect",
        "direction",
        "length",
        "fields",
        "annotations",
    }
    assert (shown["length"], shown["direction"]) == (6, "c2s")
    assert back(export.decoded(samples.dissection(direction=None)))["direction"] is None


def test_info_protocols_fields_and_codes() -> None:
    info = CaptureInfo(
        "x.pcap", "pcap", ["EN10MB"], frames=3, octets=300, first_time_ns=START, last_time_ns=START
    )
    shown = back(export.capture_info(info, {"riptide": (2, 1)}, 1))
    assert set(shown) >= {
        "schema",
        "format",
        "link_types",
        "frames",
        "octets",
        "first_time_ns",
        "last_time_ns",
        "nanosecond",
        "truncated_at",
        "drops",
        "protocols",
        "other_datagrams",
    }
    assert shown["protocols"] == {"riptide": {"datagrams": 2, "connections": 1}}
    row = ProtocolInfo(
        "riptide", "Riptide", (DialectInfo("riptide-2.0", "2.0.0", ("Ack",)),), ("udp",), (7777,)
    )
    assert back(export.protocol(row))["dialects"][0]["message_types"] == ["Ack"]
    assert back(export.field(FieldInfo("frame.number", "int", "frame")))["type"] == "int"
    assert back(export.code(CodeRow("x", Severity.NOTE, "g", "t", "m")))["severity"] == "note"


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (math.nan, "NaN"),
        (math.inf, "inf"),
        (-math.inf, "-inf"),
        (b"\xab\x01", "ab01"),
        (2**70, 2**70),
        ({1: {b"\x02": [math.nan, (1, b"\x03")]}}, {"1": {"02": ["NaN", [1, "03"]]}}),
        (frozenset({3, 1}), [1, 3]),
    ],
)
def test_values_that_json_lacks(value: Any, shown: Any) -> None:
    assert back({"x": value}) == {"x": shown}


def test_hostile_strings_come_back() -> None:
    for text in hostile.HOSTILE:
        written = escape_surrogates(text)
        assert back({"x": text, text: 1}) == {"x": written, written: 1}
        assert unescape_surrogates(written) == text


_VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(alphabet=st.characters(codec=None))
    | st.binary(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=10,
)


@given(_VALUES)
def test_any_value_is_one_line_of_strict_json(value: Any) -> None:
    back({"x": value})


def test_the_same_value_is_always_the_same_line() -> None:
    first = export.dump(export.connection(samples.connection()))
    assert first == export.dump(export.connection(samples.connection()))


PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_characters="\\", exclude_categories=["Cs"])),
    lambda inner: st.lists(inner) | st.dictionaries(st.text('abc"\u00e9'), inner),
    max_leaves=20,
)  # fmt: skip


@given(PLAIN)
def test_a_line_is_what_python_writes(value: Any) -> None:
    assert export.dump(value) == json.dumps(value, separators=(",", ":"))


@given(st.integers(0, 2 * 10**15), st.floats())
def test_a_figure_is_what_python_writes(millionths: int, other: float) -> None:
    for value in (millionths / 1e6, millionths % 10**9 / 1e6, other):
        if math.isfinite(value):
            assert figure(value) == repr(value)


@pytest.mark.parametrize(
    "value", [0.0, -0.0, 1e-06, 9.9e-05, 0.0001, 0.000101, 1.0, 12.3, 1e9, 999999999.999999, 1e16]
)
def test_a_figure_at_an_edge_is_what_python_writes(value: float) -> None:
    assert figure(value) == repr(value)


def test_a_key_is_written_alike_whatever_came_before() -> None:
    for _ in range(2):
        assert export.dump({"a\udc80": 1}) == '{"a\\\\x80":1}'
        assert export.dump({"a": {"b": 1}, "b": 2}) == '{"a":{"b":1},"b":2}'
        assert export.dump({"b": 2, "a": 1}) == '{"b":2,"a":1}'


def test_an_object_that_occurs_again_is_written_as_the_first_time() -> None:
    for shared in (Lasting({"x": 1, "y": ["é"]}), Lasting()):
        value = [shared, {"in": shared}]
        written = json.dumps(value, separators=(",", ":"))
        assert [export.dump(value), export.dump(value)] == [written, written]


def test_a_value_too_deep_is_refused() -> None:
    value: Any = 1
    for _ in range(2000):
        value = [value]
    with pytest.raises(RecursionError):
        export.dump({"value": value})
