from __future__ import annotations

from netdissect.track.findings import Findings
from netdissect.track.recorder import ConnectionRecorder, Recorder
from netdissect.track.stalls import MAX_HOLES, MAX_RESENT, RTO_MIN_NS, StallTracker

MS = 1_000_000


def events(recorder: ConnectionRecorder) -> list[tuple[str, int]]:
    return [(item.event, item.time_ns) for item in recorder.pending]


def test_a_window_is_closed_once_and_opened_once() -> None:
    recorder = Recorder().of(1)
    troubles = StallTracker(1, recorder, Findings(1, {}, None))
    for number in range(3):
        troubles.close(number, number * MS)
    troubles.open(9, 50 * MS)
    troubles.open(10, 60 * MS)
    assert events(recorder) == [("window", 0), ("window", 50 * MS)]
    assert recorder.pending[1].data == {"open": True, "closed_ms": 50.0}
    figures = troubles.report(100 * MS)
    assert (figures["window_closures"], figures["window_closed_ms"]) == (1, 50.0)


def test_a_window_that_stays_closed_counts_to_the_end() -> None:
    troubles = StallTracker(0, None, Findings(1, {}, None))
    troubles.close(1, 10 * MS)
    assert troubles.report(35 * MS)["window_closed_ms"] == 25.0


def test_only_long_waits_are_the_timers() -> None:
    recorder = Recorder().of(1)
    troubles = StallTracker(0, recorder, Findings(1, {}, None))
    moments = [0, 20 * MS, 20 * MS + RTO_MIN_NS, 20 * MS + 3 * RTO_MIN_NS]
    for copy, now in enumerate(moments[1:], start=2):
        troubles.retransmitted(7, troubles.wait(7, moments[0], now), copy, copy, now)
    assert [item.data["waited_ms"] for item in recorder.pending] == [200.0, 400.0]
    figures = troubles.report(0)
    assert (figures["timer_resends"], figures["longest_wait_ms"]) == (2, 400.0)


def test_holes_are_told_when_they_open_and_when_their_octets_come() -> None:
    recorder = Recorder().of(1)
    troubles = StallTracker(0, recorder, Findings(1, {}, None))
    troubles.hole(100, 400, 1, 0)
    troubles.arrived_late(500, 600, 2, 5 * MS)
    troubles.arrived_late(200, 300, 3, 10 * MS)
    troubles.arrived_late(50, 200, 4, 20 * MS)
    troubles.arrived_late(300, 400, 5, 30 * MS)
    told = [(e.data["open"], e.data["offset"], e.data["octets"], e.data.get("waited_ms"))
            for e in recorder.pending]  # fmt: skip
    assert told == [
        (True, 100, 300, None), (False, 200, 100, 10.0), (False, 100, 100, 20.0),
        (False, 300, 100, 30.0),
    ]  # fmt: skip


def test_holes_cost_nothing_where_nobody_looks() -> None:
    troubles = StallTracker(0, None, Findings(1, {}, None))
    troubles.hole(100, 400, 1, 0)
    troubles.arrived_late(100, 400, 2, 0)
    assert not troubles._holes


def test_memory_is_bounded() -> None:
    findings = Findings(1, {}, None)
    troubles = StallTracker(0, Recorder().of(1), findings)
    for start in range(0, 20 * MAX_HOLES, 10):
        troubles.hole(start, start + 5, 1, start)
        assert len(troubles._holes) <= MAX_HOLES
    for start in range(3 * MAX_RESENT):
        troubles.wait(start, 0, start)
        assert len(troubles._last) <= MAX_RESENT
    for _ in range(5):
        troubles.wait(start, 0, start)  # those that are known need no room
    assert findings.limits() == {"MAX_GAPS_TIMED": 1, "MAX_RESENT": 2}
