from __future__ import annotations

from math import inf
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import samples
from netdissect.filters import Names, Scope, compile_column, compile_filter
from netdissect.model.annotations import Severity
from netdissect.model.errors import FilterError
from netdissect.model.names import FieldInfo
from netdissect.model.records import ConnectionFacts, Finding, MessageRecord, Reliability

NAMES = Names(
    {
        "riptide": {
            name: FieldInfo(name, kind, "")
            for name, kind in {
                "type": "str",
                "sequence_id": "int",
                "message_id": "int",
                "payload": "bytes",
            }.items()
        },
        "tee": {
            name: FieldInfo(name, kind, "")
            for name, kind in {
                "ack": "int",
                "chunks.vital": "bool",
                "chunks.seq": "int",
                "chunks.text": "str",
            }.items()
        },
    },
    {"tw.chunk.seq": "tee.chunks.seq"},
)


def chunk(index: int, *, vital: bool, seq: int | None, text: str = "") -> MessageRecord:
    kind = "retransmission" if seq == 7 else "original"
    facts = Reliability("vital", seq, seq, True, kind, 3, None, 12.5) if seq is not None else None
    return MessageRecord(
        index, f"Chunk{index}", 3, 4, {"vital": vital, "seq": seq, "text": text}, facts
    )


def two_chunks() -> Any:
    items = [chunk(0, vital=False, seq=5, text="Hello"), chunk(1, vital=True, seq=7, text="bye")]
    tree = samples.dissection(fields={"ack": 9, "chunks": [item.fields for item in items]})
    return samples.datagram(protocol="tee", dialect="tee-1", messages=items, dissection=tree)


def matches(text: str, record: Any = None, **rest: Any) -> bool:
    wanted = compile_filter(text, NAMES)
    wanted.first_ns = samples.START
    return wanted.matches(record or samples.datagram(), **rest)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("riptide", True),
        ("tee", False),
        ("udp", True),
        ("tcp", False),
        ("frame.number == 41", True),
        ("frame.number eq 41", True),
        ("frame.number != 41", False),
        ("41 == frame.number", True),
        ("40 < frame.number", True),
        ("42 < frame.number", False),
        ("frame.number in {1, 40..42}", True),
        ("frame.number in {1 2 3}", False),
        ("frame.number not in {1 2 3}", True),
        ("frame.time_relative > 1.07 and frame.time_relative < 1.08", True),
        ("udp.port == 21105", True),
        ("udp.srcport == 21105", False),
        ("udp.dstport == 0x5271", True),
        ("udp.port != 21105", False),
        ("udp.port ~= 21105", True),
        ("all udp.port == 21105", False),
        ("all udp.port > 1024", True),
        ("udp.port === 21105", False),
        ("udp.port !== 21105", True),
        ("tcp.port != 5", False),
        ("!(tcp.port == 5)", True),
        ("not tcp.port == 5", True),
        ("ip.addr == 127.0.0.1", True),
        ("ip.addr == 127.0.0.0/8", True),
        ("ip.src == 10.0.0.0/8", False),
        ("ip.src in {10.0.0.0/8, 127.0.0.1}", True),
        ("ip.src < 128.0.0.0", True),
        ("riptide.type == Reliable", True),
        ('riptide.type == "Reliable"', True),
        ("riptide.type == reliable", False),
        ('riptide.type matches "^rel"', True),
        ('riptide.type matches "^able"', False),
        ('riptide.type contains "lia"', True),
        ("riptide.type[0:3] == Rel", True),
        ("riptide.type[-4:4] == able", True),
        ("riptide.type[0] == R", True),
        ("riptide.type[1-2] == el", True),
        ("riptide.type[:2] == Re", True),
        ("riptide.type[5:] == ble", True),
        ("riptide.payload == 01:02", True),
        ("riptide.payload == 0x0102", True),
        ("riptide.payload[1:1] == 02", True),
        ('riptide.payload contains "\\x02"', True),
        ("data contains c7:00", True),
        ("len(data) == 6", True),
        ("riptide.sequence_id & 4", True),
        ("riptide.sequence_id & 3", False),
        ("riptide.sequence_id & 8 == 8", True),
        ("riptide.sequence_id & 012 == 12", True),
        ("conn.id == 1", True),
        ("msg.resend", True),
        ("msg.duplicate", False),
        ("msg.resend_of == 33", True),
        ("msg.acked_in == 60", True),
        ("msg.acked_in > frame.number", True),
        ("msg.rtt", False),
        ("msg.seq == 12", True),
        ("anomaly", True),
        ("anomaly == trailing-bytes", True),
        ("anomaly.severity == warn", True),
        ("direction == c2s", True),
        ("count(udp.port) == 2", True),
        ("count(tcp.port) == 0", True),
        ("riptide && !tee || tcp", True),
        ("riptide and (tee or tcp)", False),
        ("! ! riptide", True),
        ("msg.sequence_id == 12", True),
        ("riptide.decoded.anything == 1", False),
        ("msg.decoded.x", False),
    ],
)
def test_one_message(text: str, expected: bool) -> None:
    assert matches(text) is expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("tee.chunks.seq == 5 and tee.chunks.seq == 7", True),
        ("any(msg: msg.vital and msg.seq == 5)", False),
        ("any(msg: msg.vital and msg.seq == 7)", True),
        ("all(msg: msg.seq > 4)", True),
        ("all(msg: msg.vital)", False),
        ("any(msg: tee.ack == 9 and msg.seq == 7)", True),
        ("any(msg: tee.chunks.seq == 7)", True),
        ("any(msg: tee.seq == 7 and tee.text == bye)", True),
        ("any(msg: tee.seq == 5 and tee.text == bye)", False),
        ("tw.chunk.seq == 7", True),
        ("count(tee.chunks.seq) == 2", True),
        ("msg.resend", True),
        ("any(msg: msg.resend and msg.seq == 5)", False),
        ("all msg.rtt == 12.5", True),
        ('tee.text matches "^h.*o$"', True),
    ],
)
def test_several_messages_keep_their_identity(text: str, expected: bool) -> None:
    assert matches(text, two_chunks()) is expected


def test_connection_fields_come_from_the_report() -> None:
    report = samples.connection()
    assert matches("conn.state == closed and conn.client contains 50654", None, connection=report)
    assert not matches("conn.state == closed")


def test_findings_of_the_tracker_count() -> None:
    record = samples.datagram(findings=(Finding("ack-of-unsent", Severity.WARN),))
    assert matches("anomaly == ack-of-unsent and anomaly.severity == warn", record)
    assert not matches("anomaly == ack-of-unsent")


def test_what_is_known_so_far_serves_until_the_report_is_there() -> None:
    record = samples.datagram(facts=ConnectionFacts("open", "accepted", "a:1", "b:2", "client"))
    assert matches("conn.state == open and conn.vantage == client", record)
    assert matches("conn.state == closed", record, connection=samples.connection())


def test_a_filter_knows_which_names_it_uses() -> None:
    assert compile_filter("conn.state == open or udp", NAMES).names == {"conn.state", "udp"}


@pytest.mark.parametrize(
    ("text", "start", "message"),
    [
        ("", 0, "empty"),
        ("frame.numbr == 4", 0, "did you mean 'frame.number'"),
        ("riptide and riptide.sequenceid == 4", 12, "did you mean 'riptide.sequence_id'"),
        ("frame.number ==", 15, "ends too early"),
        ("frame.number == 4 4", 18, "expected an operator"),
        ("(riptide", 8, "expected )"),
        ('riptide.type == "abc', 16, "not closed"),
        ("riptide.type[] == 1", 12, "a slice is written"),
        ("riptide.type[a:b] == 1", 12, "a slice is written"),
        ("frame.number in {}", 17, "empty"),
        ("frame.number in 5", 16, "expected {"),
        ('riptide.type matches "(a"', 24, "group is not closed"),
        ("5 == 5", 0, "one side must be a field"),
        ("5", 0, "no field name"),
        ("frame.number & x == 1", 15, "whole number"),
        ("frame.number == $", 16, "unexpected character"),
        ("any(msg: riptide", 16, "expected )"),
        ("any frame.number", 0, "needs a comparison"),
        ("count(", 6, "field name"),
        ("(" * 200 + "riptide" + ")" * 200, 100, "too deeply"),
        ("frame.number == nan", 16, "this is none"),
        ("frame.number < inf", 15, "this is none"),
        ("ip.src > 10.0.0.0/8", 9, "a network has no order"),
        ("riptide or " * 2000 + "riptide", 10_000, "at most"),
    ],
)
def test_faults_have_a_place(text: str, start: int, message: str) -> None:
    with pytest.raises(
        FilterError, match=message.replace("(", r"\(").replace(")", r"\)")
    ) as caught:
        compile_filter(text, NAMES)
    assert caught.value.start == start
    assert caught.value.text == text


@given(st.text(max_size=60))
def test_any_text_compiles_or_is_a_filter_error(text: str) -> None:
    try:
        compiled = compile_filter(text, NAMES)
    except FilterError as error:
        assert 0 <= error.start < error.end <= len(text) + 2
    else:
        assert compiled.matches(samples.datagram()) in {True, False}


_NUMBERS = st.integers(0, 60)


@given(
    st.sampled_from(["==", "!=", "<", "<=", ">", ">="]),
    st.sampled_from(["frame.number", "riptide.sequence_id", "msg.seq", "data.len"]),
    _NUMBERS,
)
def test_comparisons_equal_python(symbol: str, name: str, number: int) -> None:
    actual = {"frame.number": 41, "riptide.sequence_id": 12, "msg.seq": 12, "data.len": 6}[name]
    assert matches(f"{name} {symbol} {number}") is eval(f"{actual} {symbol} {number}")  # noqa: S307 - own text


def test_columns_read_values() -> None:
    record = two_chunks()
    scope = Scope(record, record.messages)
    assert compile_column("tee.chunks.seq", NAMES)(scope) == [5, 7]
    with pytest.raises(FilterError):
        compile_column("tee.nope", NAMES)


def test_deep_values_do_not_overflow() -> None:
    objects: Any = 1
    lists: Any = 1
    for _ in range(5000):
        objects, lists = {"x": objects}, [lists]
    record = samples.datagram(dissection=samples.dissection(fields={"a": objects, "decoded": lists}))
    assert not compile_filter("riptide.decoded == 1", NAMES).matches(record)


def test_a_name_of_several_fields_has_all_of_their_ranges() -> None:
    names = Names({
        "one": {"a.id": FieldInfo("a.id", "int", "", "", 0, 255), "b.id": FieldInfo("b.id", "int", "", "", -1, 9)},
        "two": {"id": FieldInfo("id", "int", "")},
    })  # fmt: skip
    assert names.range("one.id") == (-1, 255)
    assert names.range("one.a.id") == (0, 255)
    assert names.range("two.id") == (-inf, inf) == names.range("msg.id")
    assert Names({**names.protocols, "two": {}}).range("msg.id") == (-inf, inf)
