"""The TCP connection as the tracker sees it: units, holes, copies, acknowledgements, ends, messages."""

from __future__ import annotations

from typing import Any

import pytest

from netdissect.model.annotations import code_rows
from netdissect.model.reports import Anomaly, SpaceReport, UnitRecord
from netdissect.model.segments import StreamPiece, TcpSegment
from netdissect.track import stream, tcp
from netdissect.track.conclusion import conclude
from netdissect.track.findings import Findings
from netdissect.track.pruning import Pruner
from netdissect.track.recorder import LINGER_NS, Recorder
from netdissect.track.stream import StreamTrack
from netdissect.track.tcp import MAX_HOLES, MAX_UNITS
from tracking import connection

FIN, SYN, RST, PSH, ACK = 1, 2, 4, 8, 16
MS = 1_000_000
ROWS = {row.code: row for row in (*code_rows("common"), *code_rows("track"), *code_rows("tcp"))}


class Wire:
    """Writes segments of one connection into a tracker: client 0, server 1."""

    def __init__(self, *, isn: tuple[int, int] = (1000, 5000), record: bool = False) -> None:
        self.anomalies: list[Anomaly] = []
        self.recorder = Recorder() if record else None
        scribe = None if self.recorder is None else self.recorder.of(1)
        self.steps: list[tuple[str, int]] = []
        findings = Findings(1, ROWS, self.anomalies.append)
        self.track = StreamTrack(findings, scribe, self._step)
        self.isn = isn
        self.frame = 0

    def _step(self, name: str, _detail: str | None, direction: int, _frame: int, _time: int) -> None:
        self.steps.append((name, direction))

    def send(
        self, side: int, start: int, size: int, ms: float, *, ack: int | None = None, flags: int = ACK,
        window: int = 500, ip_id: int = 0, stamps: tuple[int, int] | None = None, mid: bool = False,
    ) -> None:  # fmt: skip
        """Send bytes [start, start + size) of one side; `ack` is an offset of the other side."""
        self.frame += 1
        seq = (self.isn[side] + 1 + start - bool(flags & SYN)) % (1 << 32)
        wire_ack = 0 if ack is None else (self.isn[1 - side] + 1 + ack) % (1 << 32)
        segment = TcpSegment(
            seq, wire_ack, flags, window, size, ip_id, stamps, (), start, 1, (), mid
        )
        self.track.segment(side, self.frame, int(ms * MS), segment)

    def open(self) -> Wire:
        self.send(0, 0, 0, 0, flags=SYN)
        self.send(1, 0, 0, 30, ack=0, flags=SYN | ACK)
        self.send(0, 0, 0, 31, ack=0)
        return self

    def report(self, direction: int, kind: str = "tcp") -> SpaceReport:
        reports = self.track.finish(10_000 * MS, 100 * MS)
        return next(r for r in reports if (r.space, r.direction) == (kind, direction))

    def codes(self) -> list[str]:
        return [anomaly.code for anomaly in self.anomalies]


def recorded() -> tuple[Wire, Recorder]:
    wire = Wire(record=True).open()
    assert wire.recorder is not None
    return wire, wire.recorder


def facts(report: SpaceReport) -> dict[str, int]:
    extra = report.extra
    return {
        "new": extra["new"], "filling": extra["hole_filling"],
        "again": report.retransmissions, "copies": report.duplicates,
    }  # fmt: skip


def test_each_segment_is_judged_once() -> None:
    wire = Wire().open()
    wire.send(0, 0, 10, 40, ip_id=1)
    wire.send(0, 20, 10, 41, ip_id=3)
    wire.send(0, 10, 10, 42, ip_id=2)
    wire.send(0, 0, 10, 43, ip_id=4)
    wire.send(0, 20, 10, 44, ip_id=3)
    wire.send(0, 25, 10, 45, ip_id=5)
    report = wire.report(0)
    assert facts(report) == {"new": 2, "filling": 1, "again": 2, "copies": 1}
    assert report.copies == 6 == report.units + report.retransmissions + report.duplicates
    assert report.extra["reordered"] == 1
    assert report.extra["missing_octets"] == 0


@pytest.mark.parametrize("record", [False, True])
def test_an_acknowledgement_that_the_capture_has_before_its_octets(record: bool) -> None:
    wire = Wire(record=record).open()
    wire.send(0, 0, 10, 40)
    wire.send(1, 0, 0, 50.4, ack=20)
    wire.send(0, 10, 10, 50)
    assert wire.report(0).acked == 2
    rtt = wire.report(0).rtt
    assert (rtt.samples, rtt.ambiguous) == (0, 1)  # a round trip of 0 was told


@pytest.mark.parametrize("isn", [1000, (1 << 32) - 5, (1 << 31) - 5])
def test_sequence_numbers_wrap(isn: int) -> None:
    wire = Wire(isn=(isn, isn)).open()
    for index in range(10):
        wire.send(0, 7 * index, 7, 40 + index)
        wire.send(1, 0, 0, 40.5 + index, ack=7 * index + 7)
    report = wire.report(0)
    assert (report.units, report.acked, report.rtt.samples) == (10, 10, 10)
    assert report.rtt.maximum == 0.5
    assert report.last_seq == 63


def test_a_round_trip_needs_an_exact_acknowledgement_of_octets_sent_once() -> None:
    wire = Wire().open()
    wire.send(0, 0, 10, 40)
    wire.send(0, 10, 10, 50)
    wire.send(1, 0, 0, 60, ack=20)
    wire.send(0, 20, 10, 70)
    wire.send(0, 20, 10, 300)
    wire.send(1, 0, 0, 310, ack=30)
    report = wire.report(0)
    assert (report.rtt.samples, report.rtt.ambiguous, report.rtt.maximum) == (1, 1, 10.0)
    assert (report.acked, report.max_copies) == (3, 2)


def test_part_of_a_unit_sent_again_spoils_its_round_trip() -> None:
    wire = Wire().open()
    wire.send(0, 0, 10, 40)
    wire.send(0, 5, 10, 50)
    wire.send(1, 0, 0, 60, ack=15)
    assert wire.report(0).rtt.samples == 0


@pytest.mark.parametrize("reset", [False, True])
def test_nobody_heard_nothing_concluded(reset) -> None:
    """Whether more of the capture follows says nothing: its peer is silent, or has reset."""
    wire = Wire().open()
    wire.send(0, 0, 10, 40)
    if reset:
        wire.send(1, 0, 0, 50, flags=RST)
    report = wire.report(0)
    assert (report.acked, report.unacked, report.unknown) == (0, reset, not reset)


def test_what_is_never_acknowledged_is_unacked_or_unknown() -> None:
    wire = Wire().open()
    wire.send(0, 0, 10, 40)
    wire.send(0, 10, 10, 9_950)
    wire.send(1, 0, 0, 9_990, ack=0)
    report = wire.report(0)
    assert (report.acked, report.unacked, report.unknown) == (0, 1, 1)


def test_the_same_octets_again_and_again_are_a_stall() -> None:
    wire = Wire().open()
    for ms in (40, 240, 640, 1440):
        wire.send(0, 0, 10, ms)
    assert "stalled" in wire.codes()
    assert wire.report(0).max_copies == 4


def test_a_closed_window_is_noted_but_not_in_a_reset() -> None:
    wire = Wire().open()
    wire.send(1, 0, 0, 50, ack=0, window=0)
    wire.send(1, 0, 0, 51, flags=RST, window=0)
    report = wire.report(1)
    assert report.extra["zero_window"] == 1
    assert (report.extra["pure_acks"], report.extra["rst"]) == (1, 1)
    assert wire.codes() == ["zero-window", "reset"]


@pytest.mark.parametrize(
    ("ends", "state"),
    [
        ([], "open"),
        ([(0, FIN)], "half_closed_by_client"),
        ([(1, FIN)], "half_closed_by_server"),
        ([(1, FIN), (0, FIN)], "closed"),
        ([(0, FIN), (1, RST)], "reset"),
        ([(1, FIN), (0, FIN), (0, RST)], "reset"),
    ],
)
def test_states_at_the_end(ends: list[tuple[int, int]], state: str) -> None:
    wire = Wire().open()
    for side, flag in ends:
        wire.send(side, 0, 0, 1000, ack=0, flags=flag | ACK)
    assert wire.track.state == state


def test_a_refused_attempt() -> None:
    wire = Wire()
    wire.send(0, 0, 0, 0, flags=SYN)
    wire.send(1, 0, 0, 1, ack=0, flags=RST | ACK)
    assert wire.track.state == "refused"
    assert wire.codes() == ["connection-refused"]
    assert wire.steps == [("syn", 0), ("reset", 1)]


@pytest.mark.parametrize(
    ("octets", "ms", "refused"), [(0, 40, True), (0, 400, False), (5, 40, False)]
)
def test_a_server_that_closes_at_once_has_refused(octets: int, ms: float, refused: bool) -> None:
    wire = Wire().open()
    if octets:
        wire.track.octets(1, StreamPiece(0, bytes(octets), (4,)))
    wire.send(1, octets, 0, ms, ack=0, flags=FIN | ACK)
    wire.report(1)
    assert ("refused-by-immediate-fin" in wire.codes()) is refused


@pytest.mark.parametrize(("round_trip", "refused"), [(120, True), (20, False)])
def test_a_refusal_takes_the_way_to_the_server_and_back(round_trip: int, refused: bool) -> None:
    """Next to a client with a round trip of 120 ms, refusals came 180 ms after the handshake."""
    wire = Wire()
    wire.send(0, 0, 0, 0, flags=SYN)
    wire.send(1, 0, 0, round_trip, ack=0, flags=SYN | ACK)
    wire.send(0, 0, 0, round_trip + 1, ack=0)
    wire.send(1, 0, 0, round_trip + 201, ack=0, flags=FIN | ACK)
    wire.report(1)
    assert ("refused-by-immediate-fin" in wire.codes()) is refused


def test_the_handshake_counts_from_the_attempt_that_was_answered() -> None:
    wire = Wire()
    wire.send(0, 0, 0, 0, flags=SYN, stamps=(100, 0))
    wire.send(0, 0, 0, 1000, flags=SYN, stamps=(1100, 0))
    wire.send(1, 0, 0, 1030, ack=0, flags=SYN | ACK, stamps=(7, 100))
    wire.send(0, 0, 0, 1031, ack=0)
    assert wire.track.facts()["syn_to_synack_ms"] == 1030.0
    assert wire.track.facts()["synack_to_ack_ms"] == 1.0
    assert wire.steps == [("syn", 0), ("syn", 0), ("syn_ack", 1), ("established", 0)]


def test_a_start_in_the_middle_is_named_once() -> None:
    wire = Wire()
    wire.send(0, 0, 5, 1, ack=0, mid=True)
    wire.send(1, 0, 5, 2, ack=5, mid=True)
    assert wire.codes() == ["unknown-start"]
    assert wire.steps == [("data", 0)]
    assert wire.report(0).acked == 1


# -- messages --------------------------------------------------------------------------------------


def test_octets_before_the_first_ones_seen_are_no_repetition_yet() -> None:
    """A capture that begins between a segment and its late or repeated predecessor."""
    wire = Wire()
    for frame, (start, size) in enumerate([(0, 10), (-30, 10), (-20, 20), (-30, 10), (-25, 10)]):
        wire.send(0, start, size, 40 + frame, mid=True)
    assert facts(wire.report(0)) == {"new": 1, "filling": 2, "again": 2, "copies": 0}


def test_messages_behind_a_hole_wait_for_it() -> None:
    wire = Wire(record=True).open()
    wire.send(0, 10, 10, 50)
    wire.send(0, 20, 10, 60)
    wire.send(0, 0, 10, 250)
    for start in (0, 10, 20):
        wire.track.message(0, "a", (start, start + 10), wire.frame, 250 * MS)
    wire.send(1, 0, 0, 251, ack=30)
    report = wire.report(0, "message")
    assert (report.units, report.acked) == (3, 3)
    assert report.extra["blocked"] == 2
    assert report.extra["max_blocked_ms"] == 200.0
    assert wire.recorder is not None
    records = [r for r in wire.recorder.rest() if isinstance(r, UnitRecord) and r.space == "message"]
    assert [record.extra["blocked_ms"] for record in records] == [0.0, 200.0, 190.0]
    assert [record.outcome for record in records] == ["acked"] * 3
    assert "head-of-line-blocking" in wire.codes()


def test_a_message_in_pieces_has_a_first_and_a_last_octet() -> None:
    wire = Wire(record=True).open()
    wire.send(0, 0, 4, 40)
    wire.send(0, 4, 4, 45)
    wire.send(0, 4, 4, 300)
    wire.send(0, 8, 8, 310)
    wire.track.message(0, "a", (2, 12), wire.frame, 310 * MS)
    assert wire.recorder is not None
    record = next(r for r in wire.recorder.pending if isinstance(r, UnitRecord) and r.space == "message")
    extra = record.extra
    assert (extra["segments"], extra["first_octet_ns"], extra["last_octet_ns"]) == (3, 40 * MS, 310 * MS)
    assert extra["retransmitted"] is True
    assert extra["retransmitted_in"] == wire.frame - 1
    assert extra["blocked_ms"] == 0


def test_a_message_sent_again_has_no_round_trip() -> None:
    wire = Wire().open()
    wire.send(0, 0, 10, 40)
    wire.track.message(0, "a", (0, 10), wire.frame, 40 * MS)
    wire.send(0, 0, 10, 240)
    wire.send(1, 0, 0, 270, ack=10)
    report = wire.report(0, "message")
    assert (report.acked, report.rtt.samples, report.rtt.ambiguous) == (1, 0, 1)
    assert report.extra["with_retransmitted_octets"] == 1


@pytest.mark.parametrize("record", [True, False])
def test_the_quick_way_counts_like_the_long_one(record: bool) -> None:
    wire = Wire(record=record).open()
    for index in range(50):
        start, now = 10 * index, 40 + index
        wire.send(0, start, 10, now, flags=ACK | PSH)
        if not wire.track.next_message(0, start, start + 10, now * MS):
            wire.track.message(0, "a", (start, start + 10), wire.frame, now * MS)
        if index % 3 == 2:
            wire.send(1, 0, 0, now + 0.5, ack=start + 10)
    wire.send(1, 0, 0, 500, ack=480)
    tcp, messages = wire.report(0), wire.track.messages[0]
    assert (tcp.units, tcp.acked, tcp.unacked, tcp.rtt.samples) == (50, 48, 2, 16)
    assert (messages.count, messages.acked, messages.end) == (50, 48, 500)


def test_bounds_hold_and_are_named() -> None:
    wire: Any = Wire().open()
    for index in range(MAX_UNITS + 50):
        wire.send(0, 20 * index, 10, 40)
    half = wire.track.halves[0]
    assert len(half.outstanding) <= MAX_UNITS
    assert len(half.holes) <= MAX_HOLES
    assert set(half.findings.limits()) == {"MAX_UNITS", "MAX_HOLES"}
    report = wire.report(0)
    assert report.units == report.acked + report.unacked + report.unknown == MAX_UNITS + 50


@pytest.mark.parametrize("record", [True, False])
def test_the_bound_of_messages_is_named(record: bool) -> None:
    wire = Wire(record=record).open()
    for index in range(MAX_UNITS // 4 + 5):
        start, now = 40 * index, 40 + index
        wire.send(0, start, 40, now, flags=ACK | PSH)
        for end in range(start + 10, start + 50, 10):
            if not wire.track.next_message(0, end - 10, end, now * MS):
                wire.track.message(0, "a", (end - 10, end), wire.frame, now * MS)
    assert wire.track.halves[0].findings.limits() == {"MAX_UNITS": 20}
    wire.send(1, 0, 0, 9_990, ack=0)
    assert wire.report(0, "message").unknown == 20


def test_a_segment_that_repeats_many_units_is_listed_with_some(monkeypatch: pytest.MonkeyPatch) -> None:
    """It cost as much as 1,200 small segments, each time it came."""
    monkeypatch.setattr(tcp, "MAX_COVERED", 3)
    wire = Wire(record=True).open()
    for number in range(6):
        wire.send(0, number, 1, 40 + number)
    wire.send(0, 0, 3, 50)
    assert not wire.track.findings.limits()
    wire.send(0, 0, 6, 60)
    assert wire.track.findings.limits() == {"MAX_COVERED": 1}
    assert wire.recorder is not None
    records = [item for item in wire.recorder.pending if isinstance(item, UnitRecord)]
    assert [len(record.copies) for record in records] == [3, 3, 3, 1, 1, 1]
    assert (wire.report(0).retransmissions, wire.report(0).max_copies) == (2, 3)


def test_what_is_forgotten_of_a_stream_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tcp, "MAX_ARRIVALS", 8)
    monkeypatch.setattr(tcp, "MAX_IDENTITIES", 4)
    monkeypatch.setattr(stream, "MAX_SYNS", 2)
    wire = Wire()
    for number in range(4):
        wire.send(0, 0, 0, number, flags=SYN)
    wire.open()
    hit = wire.track.findings.limits
    assert hit() == {"MAX_SYNS": 3}
    for number in range(12):
        wire.send(0, 10 * number, 10, 40 + number, ip_id=1 + number)
    wire.send(0, 110, 10, 60, ip_id=12)
    wire.track.message(0, "text", (110, 120), wire.frame, 61 * MS)
    assert hit() == {"MAX_SYNS": 3}
    wire.send(0, 0, 10, 70, ip_id=1)
    assert hit() == {"MAX_SYNS": 3, "MAX_IDENTITIES": 1}
    wire.track.message(0, "text", (0, 20), wire.frame, 80 * MS)
    assert hit() == {"MAX_SYNS": 3, "MAX_IDENTITIES": 1, "MAX_ARRIVALS": 1}


@pytest.mark.parametrize("over", [True, False])
def test_a_path_that_worked_in_one_direction_only(over: bool) -> None:
    """The server answers nothing: it is not silent, but sends its own bytes again at growing
    intervals.
    """
    made, _ = connection(
        rows=ROWS, transport="tcp", stream=True, spaces=(), probes=(), timeouts=(None, None)
    )
    frame, ids = 0, [100, 200]
    data = [0, 0]

    def send(side: int, start: int, size: int, ack: int, ms: float, flags: int = ACK) -> None:
        nonlocal frame
        frame, ids[side] = frame + 1, ids[side] + 1
        seq, number = 1001 + start - bool(flags & SYN), 1001 + ack
        piece = TcpSegment(seq, number, flags, 500, size, ids[side], None, (), start, 1, (), False)
        if size:
            made.segment(side, frame, int(ms * MS), size)
            data[side] = max(data[side], start + size)
        made.transport_segment(side, frame, int(ms * MS), piece)

    send(0, 0, 0, 0, 0, SYN)
    send(1, 0, 0, 0, 30, SYN | ACK)
    send(0, 0, 0, 0, 31)
    for step in range(50):
        send(0, data[0], 10, data[1], 100 + 60 * step)
        send(1, data[1], 10, data[0], 130 + 60 * step)
    heard, stale = data[1], data[0]
    for step in range(6):
        send(0, data[0], 10, heard, 3100 + 60 * step)
        send(1, data[1], 10, stale, 3130 + 60 * step)
    for ms in (3700, 4300, 5500, 7900):
        send(0, stale, 10, data[1], ms)
        send(1, heard, 10, stale, ms + 200)
    if over:
        send(0, stale, 10, data[1], 8200)
        send(1, data[1], 0, data[0], 8230)
    spans = conclude(made, 8300 * MS).quiet
    to_ns = 8200 * MS if over else None
    assert [(s.kind, s.direction, s.from_ns, s.to_ns) for s in spans] == [
        ("one-way", 0, 3100 * MS, to_ns)
    ]


def test_an_emitted_unit_leaves_only_what_its_late_copies_need() -> None:
    wire, recorder = recorded()
    for number in range(300):
        wire.send(0, 10 * number, 10, 40 + number, ack=0)
        wire.track.message(0, "Text", (10 * number, 10 * number + 10), wire.frame, (40 + number) * MS)
    wire.send(1, 0, 0, 400, ack=3000)
    half, messages = wire.track.halves[0], wire.track.messages[0]
    assert len(half.settled.units) == 300
    left = [item for item in recorder.ready(400 * MS + LINGER_NS) if isinstance(item, UnitRecord)]
    assert len(left) == 600
    assert not half.settled.units
    assert not messages.settled
    wire.send(0, 20, 15, 6000, ack=0)  # the third unit, and a part of the fourth
    wire.send(0, 20, 10, 6001, ack=0)
    again = [item for item in recorder.rest() if isinstance(item, UnitRecord)]
    known = {record.seq: record for record in left if record.space == "tcp"}
    assert [(one.seq, len(one.copies)) for one in again] == [(20, 2), (30, 1)]
    for one in again:
        first = known[one.seq]
        assert one.extra == {"continued": first.copies[0].frame}
        for name in (
            "wire_seq", "type", "acked_frame", "acked_time_ns", "rtt_ms", "rtt_ambiguous", "outcome",
        ):  # fmt: skip
            assert getattr(one, name) == getattr(first, name), name


def test_only_the_newest_emitted_units_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tcp, "MAX_UNITS", 8)
    wire, recorder = recorded()
    for number in range(20):
        wire.send(0, 10 * number, 10, 40 + number, ack=0)
        wire.send(1, 0, 0, 40.5 + number, ack=10 * number + 10)
        assert len(list(recorder.ready((41 + number) * MS + LINGER_NS))) == 1
    wire.send(0, 0, 200, 6000, ack=0)
    again = [item for item in recorder.rest() if isinstance(item, UnitRecord)]
    assert sorted(one.seq for one in again) == [10 * number for number in range(12, 20)]


def test_where_no_timeline_is_shown_acknowledged_segments_have_no_records() -> None:
    wire, recorder = recorded()
    for number in range(300):
        wire.send(0, 10 * number, 10, 40 + number, ack=0)
    wire.send(1, 0, 0, 400, ack=2000)
    Pruner().prune(recorder, 0, set())
    assert len(recorder.pending) == len(wire.track.halves[0].outstanding) == 100
    wire.send(0, 20, 10, 6001, ack=0)
    assert [item.extra for item in recorder.pending if isinstance(item, UnitRecord)][-1] == {"continued": 6}


def test_where_no_timeline_is_shown_only_needed_messages_have_records() -> None:
    wire, recorder = recorded()
    for number in range(10):
        start = 10 * number
        wire.send(0, start, 10, 40 + number, ack=0)
        wire.track.message(0, "Text", (start, start + 10), wire.frame, (40 + number) * MS)
    wire.send(1, 0, 0, 400, ack=80)
    Pruner().prune(recorder, 10, {6})
    left = [item for item in recorder.pending if isinstance(item, UnitRecord)]
    messages = [record for record in left if record.space == "message"]
    # One of a waiting frame, two of later frames, two that are not acknowledged.
    assert [record.seq for record in messages] == [3, 7, 8, 9, 10]
    wire.send(0, 20, 10, 6000, ack=0)
    assert [record.extra.get("retransmitted_in") for record in messages] == [15, *4 * [None]]
