"""Forged numbers in a row, in every kind of space: everything else is counted as without them."""

from __future__ import annotations

from typing import Any

import pytest

from netdissect.model.policy import AckRule, Policy, ResendRule, SpaceRule
from netdissect.track.context import Heard
from netdissect.track.findings import Findings
from netdissect.track.intervals import Intervals
from netdissect.track.lane import Lane
from netdissect.track.recorder import Recorder
from netdissect.track.strays import FORGED
from tracking import MS, rule

RUNS = [
    run
    for count in range(1, FORGED + 1)
    for start in (5000, 300, 40_000)
    for run in ([start + each for each in range(count)], [start + 9 * each for each in range(count)])
] + [[5001, 5000], [5001, 5000, 5002], [5000, 5002, 5001]]
RULES = {
    "acknowledged": rule(),
    "by number": rule(ack=AckRule.EXACT, ack_bits=0),
    "all before": rule(ack=AckRule.CUMULATIVE, ack_bits=0),
    "never acknowledged": rule(ack=AckRule.NONE, resend=None),
    "stamped": rule(ack=AckRule.STAMPED, ack_bits=0),
    "in order": rule(ack=AckRule.CUMULATIVE, ack_bits=0, in_order_receiver=True),
    "copies take numbers": rule(ack=AckRule.NONE, copies_take_numbers=True),
    "datagrams": rule(ack=AckRule.BITS_AFTER, resend=None, timeout_ms=5000.0),
}


def lane(*rules: SpaceRule, recorder: Recorder | None = None) -> Lane:
    made = Lane(Policy("toy", rules), 0, Findings(1, {}, None), recorder and recorder.of(1))
    for space in made.spaces.values():
        space.peer_seen = space.context.started = True
    return made


def sent(kind: str, forged: list[int], recorder: Recorder | None = None) -> Any:
    """Return the report of 40 numbers, each third of them acknowledged, with some forged behind 20."""
    space = lane(RULES[kind], recorder=recorder).spaces["things"]

    def send(number: int, at_ms: int) -> None:
        content: Any = b"%d" % number
        space.unit(number, None, (number, content) if kind == "stamped" else content, None, at_ms,
                   at_ms * MS)  # fmt: skip

    for number in range(1, 41):
        if number not in (12, 30):
            send(number, 10 * number)
        if number % 3 == 0:
            space.ack(number - 1, number - 1, 10 * number, 10 * number * MS)
        if number == 20:
            for each in forged:
                send(each, 10 * number + 1)
        if number == 22:
            send(12, 10 * number + 1)  # overtaken, or lost and sent again
            send(15, 10 * number + 1)
    space.end_all(Heard(500 * MS, 0))
    return space.report()


def figures(report: Any) -> tuple[Any, ...]:
    return (
        report.retransmissions, report.duplicates, report.acked, report.unacked, report.never_seen,
        report.out_of_order, report.first_seq, report.last_seq, report.bursts,
    )  # fmt: skip


@pytest.mark.parametrize("forged", RUNS, ids=str)
@pytest.mark.parametrize("kind", RULES)
def test_forged_numbers_change_nothing_for_the_others(kind: str, forged: list[int]) -> None:
    clean, found = sent(kind, []), sent(kind, forged)
    assert (found.units, found.extra.get("strays")) == (clean.units + len(forged), len(forged))
    expected, got = figures(clean), figures(found)
    # Whether one of them may be acknowledged is for each rule to say; they are no others' business.
    assert got[:3] == expected[:3]
    assert got[4:5] + got[6:] == expected[4:5] + expected[6:]
    overtaken = forged != sorted(forged)  # counted as long as they were accepted
    assert got[5] == expected[5] + overtaken


@pytest.mark.parametrize(
    ("order", "expected"),
    [
        # Numbers from before a gap that come behind it show a forged run only while that is short.
        ([1, 2, 3, 500, 501, 4, 502, 503, 504, 505], (10, 505, 495)),
        # The first number behind a gap may come second.
        ([1, 2, 3, 501, 500, 502, 503, 504], (8, 504, 496)),
    ],
)
@pytest.mark.parametrize("kind", RULES)
def test_a_real_jump_counts_whatever_comes_late(
    kind: str, order: list[int], expected: tuple[int, int, int]
) -> None:
    space = lane(RULES[kind]).spaces["things"]
    for at, number in enumerate(order):
        content: Any = b"%d" % number
        space.unit(number, None, (at, content) if kind == "stamped" else content, None, at, at * MS)
    space.end_all(Heard(500 * MS, 0))
    report = space.report()
    assert "strays" not in report.extra
    assert (report.units, report.last_seq, report.never_seen) == expected


def test_a_forged_run_leaves_no_gap_in_the_timeline() -> None:
    recorder = Recorder()
    sent("acknowledged", [5000, 5001], recorder)
    items = list(recorder.rest())
    gaps = [item.data["first_seq"] for item in items if getattr(item, "event", "") == "gap"]
    assert gaps == [12, 30]
    assert [item.seq for item in items if getattr(item, "extra", {}).get("apart")] == [5000, 5001]


def test_a_forged_run_is_no_loss_in_sums() -> None:
    tables = []
    for forged in ([], [5000, 5001], [5000, 5004, 5009]):
        table = Intervals(1000 * MS)
        recorder = Recorder(counted=True, sums=lambda _, table=table: table)
        table.datagram(0, 0, 1)
        sent("acknowledged", forged, recorder)
        (totals,) = table._sums[1]
        spans = list(totals.spans.values())
        tables.append((sum(span.skipped for span in spans), totals.newest,
                       sum(span.arrived for span in spans) - len(forged)))  # fmt: skip
    assert len(set(tables)) == 1


@pytest.mark.parametrize("base", [5000, 40_000])
@pytest.mark.parametrize("count", range(1, FORGED + 1))
def test_forged_bases_of_messages_change_nothing_for_the_others(base: int, count: int) -> None:
    reports = []
    for forged in (0, count):
        outer = SpaceRule("outer", 24, AckRule.BITS_AFTER, 32, timeout_ms=5000.0)
        inner = SpaceRule("inner", 16, AckRule.EXACT, resend=ResendRule(5000.0), consecutive=False,
                          acked_with="outer", reach=64)  # fmt: skip
        made = lane(outer, inner)
        carrier, carried = made.spaces["outer"], made.spaces["inner"]
        bases = [2 * number for number in range(20)]
        bases[10:10] = [base + 2 * number for number in range(forged)]
        for number, first in enumerate(bases):
            carrier.unit(number, None, bytes([number]), None, number, number * MS)
            carried.run(first, 2, "m", None, number, number * MS)
        carrier.end_all(Heard(500 * MS, 0))
        carried.end_all(Heard(500 * MS, 0))
        report = carried.report()
        assert (report.units, report.extra.get("strays", 0)) == (40 + 2 * forged, 2 * forged)
        reports.append((report.first_seq, report.last_seq, report.out_of_order, report.never_seen))
    assert reports[0] == reports[1]
