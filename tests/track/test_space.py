"""Units and copies of one space: wraps, gaps, late copies, and the bounds."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from netdissect.model.policy import AckRule
from netdissect.track import numbers as module
from netdissect.track.context import Heard
from netdissect.track.findings import Findings
from netdissect.track.space import Space
from netdissect.track.unitstore import MAX_OUTSTANDING
from tracking import MS, rule, space


def send(made, wire, at_ms, content=b"x", labelled=None):
    made.unit(wire, labelled, content, "Thing", at_ms, at_ms * MS)


def finish(made, end_ms=10_000):
    made.end_all(Heard(end_ms * MS, 0))
    return made.report()


def holds(report):
    assert report.copies == report.units + report.retransmissions + report.duplicates
    assert report.units == report.acked + report.unacked + report.unknown
    assert min(report.acked, report.unacked, report.unknown, report.never_seen) >= 0


def test_numbers_extend_over_the_wrap() -> None:
    made, _ = space()
    for step in range(10):
        send(made, (65530 + step) % 65536, step)
    report = finish(made)
    assert (report.first_seq, report.last_seq) == (65530, 65539)
    assert (report.units, report.never_seen, report.out_of_order) == (10, 0, 0)
    holds(report)


def test_a_silent_space_packs_what_it_remembers_of_settled_units() -> None:
    made, _ = space(memory=64)
    for number in range(50):
        send(made, number, number)
        made.ack(number, 0, number, number * MS + MS)
    made.doze()
    assert not len(made.store.settled.cells)
    assert made.store.last_ns(49) == 49 * MS
    assert len(made.store.settled.cells)


@pytest.mark.parametrize("bits", [10, 16, 22])
def test_a_number_is_extended_to_the_closest_one(bits: int) -> None:
    numbers = space(bits=bits)[0].numbers
    modulus, half = 1 << bits, 1 << bits - 1
    for newest in (3 * modulus - 1, 3 * modulus, 3 * modulus + half):
        numbers.newest = newest
        for ahead in (1 - half, 2 - half, -1, 0, 1, half - 1, half):
            assert numbers.extend((newest + ahead) % modulus) == newest + ahead


def test_three_wraps_give_the_same_as_none() -> None:
    """Promise 13: counters wrapped three times, with loss, reorder and acks."""
    reports = []
    for bits in (8, 24):
        made, _ = space(bits=bits, memory=64)
        order = [n for n in range(1, 900) if n % 13]
        for index in range(0, len(order) - 3, 7):
            order[index], order[index + 2] = order[index + 2], order[index]
        for at, number in enumerate(order):
            send(made, number % (1 << bits), at * 50)
            made.ack(number % (1 << bits), 0, at, at * 50 * MS + MS)
        report = finish(made, 90_000)
        holds(report)
        reports.append(report)
    assert reports[0] == reports[1]
    assert reports[0].never_seen == 900 // 13
    assert reports[0].out_of_order > 200


def test_late_first_copies_and_numbers_never_seen() -> None:
    made, _ = space()
    for at, number in enumerate((1, 2, 5, 3, 9)):
        send(made, number, at)
    report = finish(made)
    assert (report.units, report.out_of_order, report.never_seen) == (5, 1, 4)
    holds(report)


def test_a_number_below_the_first_one_lowers_the_base() -> None:
    made, _ = space()
    for at, number in enumerate((5, 3, 4)):
        send(made, number, at)
    report = finish(made)
    assert (report.first_seq, report.units, report.never_seen) == (3, 3, 0)


def test_a_number_before_zero_is_no_further_copy() -> None:
    made, _ = space()
    made.context.started = False
    send(made, 0, 0)
    made.ack(0, 0, 1, MS)
    send(made, 0xFFFF, 2)
    report = finish(made)
    assert (report.units, report.copies, report.first_seq) == (2, 2, -1)


def test_as_many_settled_units_are_remembered_as_the_rule_says() -> None:
    made, _ = space(memory=64)
    for at in range(3 * 64):
        send(made, at, at)
        made.ack(at, 0, at, at * MS + 1)
        if at:
            send(made, at // 2, at)
    report = finish(made)
    # From number 127 on the one of half of it is older than the newest 64.
    assert (report.units, report.extra["forgotten"]) == (3 * 64, 3 * 64 - 127)
    assert report.copies - report.units + report.extra["forgotten"] == 3 * 64 - 1


def test_other_users_of_the_numbers_leave_no_holes() -> None:
    made, _ = space()
    send(made, 1, 0)
    made.number(2, 1, MS)
    send(made, 3, 2)
    made.number(5, 3, 3 * MS)
    made.number(4, 4, 4 * MS)
    report = finish(made)
    assert (report.units, report.never_seen, report.last_seq) == (2, 0, 5)


def test_plain_units_wait_for_nothing() -> None:
    made, _ = space()
    made.plain_unit(1, b"a", "Thing", 1, 0)
    made.plain_unit(1, b"a", "Thing", 2, MS)
    report = finish(made)
    assert (report.units, report.duplicates, report.unknown, report.unacked) == (1, 1, 1, 0)
    assert not made.store.outstanding.count


def test_spaces_that_skip_numbers_report_no_holes() -> None:
    made, anomalies = space(consecutive=False, bits=32)
    for at, number in enumerate((10, 2000, 90_000)):
        send(made, number, at)
    assert finish(made).never_seen == 0
    assert not anomalies


def test_a_restart_begins_another_epoch() -> None:
    made, _ = space()
    for number in (1, 2, 4):
        send(made, number, number)
    made.restart()
    for number in (1, 2, 3):
        send(made, number, 10 + number)
    report = finish(made)
    assert (report.first_seq, report.last_seq) == (1, 65536 + 3)
    assert (report.units, report.never_seen) == (6, 1)
    assert report.unknown == 3  # those open when the numbers began afresh
    holds(report)


@pytest.mark.parametrize(
    ("number", "sent_ms", "took_ms", "samples"),
    [(2, 110, 2, 1), (3, 110, 2, 1), (3, 110, 60, 2), (4, 110, 2, 2), (2, 1200, 2, 2)],
)
def test_a_quick_answer_soon_after_a_restart_may_be_to_the_unit_before(
    number: int, sent_ms: int, took_ms: int, samples: int
) -> None:
    """Only if that number was in use, and not for longer than a path takes."""
    made, _ = space()
    for earlier in (1, 2, 3):
        send(made, earlier, earlier)
    made.ack(1, 0, 50, 50 * MS)
    made.restart()
    send(made, 1, 100)
    made.ack(1, 0, 101, 101 * MS)
    send(made, number, sent_ms)
    made.ack(number, 0, sent_ms + took_ms, (sent_ms + took_ms) * MS)
    rtt = made.ack_stats.rtt
    assert (rtt.samples, rtt.ambiguous) == (samples, 3 - samples)


@pytest.mark.parametrize(("strays", "samples"), [((), 1), ((5000,), 0), (range(9000, 9400, 3), 0)])
def test_an_answer_may_be_to_an_earlier_stray_of_the_number(strays, samples: int) -> None:
    """A sender that sends in disorder what is left of a long time; of many strays some are
    forgotten.
    """
    made, _ = space(bits=16, reach=1000)
    send(made, 1, 1)
    for at, number in enumerate(strays):
        send(made, number, 2 + at)
        send(made, 2 + at, 2 + at)  # the old numbers go on
    send(made, 900, 500)
    send(made, 1800, 501)
    for at, number in enumerate(range(2600, 5001, 800)):
        send(made, number, 502 + at)
    made.ack(5000, 0, 510, 510 * MS)
    assert made.ack_stats.rtt.samples == samples


def test_carried_units_are_acked_with_their_carrier() -> None:
    carrier, _ = space(name="datagram", ack=AckRule.EXACT, resend=None)
    inner = Space(rule(acked_with="datagram"), 0, Findings(1, {}, None), None)
    inner.carrier = carrier
    carrier.carry(inner)
    inner.peer_seen = True
    carrier.unit(100, None, b"d1", None, 1, 0)
    for number in (1, 2):
        inner.unit(number, None, bytes([number]), "Thing", 1, 0)
    carrier.unit(101, None, b"d2", None, 2, MS)
    inner.unit(3, None, b"3", "Thing", 2, MS)
    carrier.ack(100, 0, 3, 5 * MS)
    assert (carrier.ack_stats.acked, inner.ack_stats.acked) == (1, 2)
    assert inner.store.outstanding.numbers() == [3]


def test_a_far_jump_is_reported() -> None:
    made, anomalies = space()
    send(made, 1, 0)
    send(made, 5001, 1)
    assert [a.code for a in anomalies] == ["sequence-jump"]


@pytest.mark.parametrize("ahead", [5000, 256, 100])
def test_one_stray_number_changes_nothing_for_the_others(ahead: int) -> None:
    """Forged or damaged, perhaps by one bit: it stands alone, and what follows it goes on where it
    was.
    """
    made, _ = space()
    for number in range(1, 60):
        send(made, number, number)
        if number == 20:
            send(made, 20 + ahead, number, b"stray")
            made.ack(20 + ahead, 0, number, number * MS)
        if number % 10 == 0:
            send(made, number - 5, number + 500)
    report = finish(made)
    assert (report.units, report.retransmissions, report.never_seen) == (60, 5, 0)
    assert (report.first_seq, report.last_seq, report.out_of_order) == (1, 59, 0)
    assert (report.acked, report.extra["strays"]) == (1, 1)
    holds(report)


def test_the_next_number_confirms_a_far_one() -> None:
    """After a long blackout."""
    made, anomalies = space()
    for at, number in enumerate((1, 2, 5000, 5001)):
        send(made, number, at)
    made.ack(5000, 0, 9, 9 * MS)
    report = finish(made)
    assert (report.units, report.never_seen, report.last_seq) == (4, 4997, 5001)
    assert report.acked == 1
    assert "strays" not in report.extra
    assert [a.code for a in anomalies] == ["sequence-jump"]
    holds(report)


def test_a_copy_of_a_stray_number_confirms_nothing() -> None:
    made, _ = space()
    for at, number in enumerate((1, 5000, 5000, 2, 3)):
        send(made, number, at)
    report = finish(made)
    assert (report.units, report.duplicates, report.last_seq) == (4, 1, 3)
    assert report.never_seen == 0
    holds(report)


def test_numbers_before_the_first_one_of_a_connection_were_never_sent() -> None:
    made, anomalies = space()
    send(made, 1, 0)
    send(made, 65_500, 1)
    send(made, 2, 2)
    report = finish(made)
    assert (report.first_seq, report.last_seq, report.never_seen) == (1, 2, 0)
    assert [a.code for a in anomalies] == ["number-before-first"]


def test_numbers_far_below_are_another_epoch_when_the_next_one_confirms_it() -> None:
    made, _ = space()
    made.context.started = False
    for at, number in enumerate((9000, 9001, 5, 6, 7)):
        send(made, number, at)
    report = finish(made)
    assert (report.units, report.never_seen, report.out_of_order) == (5, 0, 0)
    holds(report)


def test_a_stray_number_of_no_unit() -> None:
    made, _ = space()
    send(made, 1, 0)
    made.number(9000, 1, MS)
    made.number(9000, 1, MS)
    send(made, 2, 2)
    assert finish(made).never_seen == 0
    made.number(9000, 3, 3 * MS)
    made.number(9001, 4, 4 * MS)
    assert made.numbers.last == 9001


def test_bound_of_open_units() -> None:
    made, _ = space()
    for number in range(2 * MAX_OUTSTANDING):
        send(made, number % 65536, number // 100)
    assert made.store.outstanding.count <= MAX_OUTSTANDING
    assert made.context.findings.limits()["MAX_OUTSTANDING"] > 0
    holds(finish(made))


def test_bound_of_missing_numbers() -> None:
    made, _ = space()
    for number in range(1, 6 * module.MAX_MISSING, 3):
        send(made, number, number)
        made.ack(number, 0, number, number * MS)
    assert made.numbers.missing.size <= module.MAX_MISSING
    assert len(made.numbers.leaps) == module.MAX_LEAPS
    assert made.context.findings.limits()["MAX_MISSING"] > 0
    holds(finish(made))


def test_bound_of_bursts_keeps_the_longest_and_is_told() -> None:
    made, _ = space()
    number = 1
    for burst in range(module.MAX_BURSTS + 5):
        number += 3 if burst < 5 else 9
        send(made, number, number)
    assert len(made.numbers.bursts) == module.MAX_BURSTS
    assert {burst.count for burst in made.numbers.bursts} == {8}
    assert made.context.findings.limits()["MAX_BURSTS"] == 4  # before the first number nothing is missing


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("unit"), st.integers(0, 70), st.sampled_from([None, True, False])),
        st.tuples(st.just("ack"), st.integers(0, 70), st.integers(0, 0xFFFF)),
        st.tuples(st.just("nack"), st.integers(0, 70), st.integers(0, 0xFFFF)),
        st.tuples(st.just("number"), st.integers(0, 70), st.none()),
        st.tuples(st.just("plain"), st.integers(0, 70), st.none()),
        st.tuples(st.just("near"), st.sampled_from([None, True, False]), st.none()),
        st.tuples(st.just("restart"), st.none(), st.none()),
    ),
    max_size=80,
)


@given(steps=STEPS, bits=st.sampled_from([5, 6, 16]), ack=st.sampled_from(list(AckRule)))
def test_identities_hold_whatever_comes(steps, bits, ack) -> None:
    made, _ = space(bits=bits, ack=ack, memory=16)
    for at, (kind, value, more) in enumerate(steps):
        if kind == "unit":
            send(made, value, 7 * at, bytes([value]), more)
        elif kind == "ack":
            made.ack(value, more, at, 7 * at * MS)
        elif kind == "nack":
            made.nack(value, more, at, 7 * at * MS)
        elif kind == "number":
            made.number(value, at, 7 * at * MS)
        elif kind == "plain":
            made.plain_unit(value, b"p", "Thing", at, 7 * at * MS)
        elif kind == "near":
            made.repeats.set_vantage(value, None)
        else:
            made.restart()
    report = finish(made)
    holds(report)
    assert report.retransmissions >= 0
    assert report.duplicates >= 0


@given(copies=st.lists(st.integers(1, 30), min_size=1, max_size=120))
def test_units_are_the_distinct_numbers(copies) -> None:
    """Against `set`: a repeated datagram never changes what counts as a unit."""
    made, _ = space()
    for at, number in enumerate(copies):
        send(made, number, at)
    report = finish(made)
    assert report.units == len(set(copies))
    assert report.copies == len(copies)
    assert report.never_seen == max(copies) - min(copies) + 1 - len(set(copies))


def test_numbers_that_copies_have_taken_are_not_lost() -> None:
    """Of 7 numbers 3 have no unit; two of them went to copies of 1."""
    made, _ = space(copies_take_numbers=True)
    for at, number in enumerate((1, 1, 1, 4, 5, 7)):
        send(made, number, 1000 * at)
    report = finish(made)
    assert (report.units, report.retransmissions, report.never_seen) == (4, 2, 3)
    assert not report.bursts
    assert (made.so_far().units, made.so_far().never_seen) == (6, 1)
    holds(report)


@pytest.mark.parametrize("rules", [{"resend": None}, {"copies_take_numbers": True}])
def test_numbers_that_were_only_overtaken_are_no_burst_of_losses(rules: dict[str, Any]) -> None:
    made, _ = space(**rules)
    for at, number in enumerate((1, 8, 3, 4, 5, 6, 7, 20)):
        send(made, number, at)
    assert [burst.count for burst in finish(made).bursts] == [1, 11]


@pytest.mark.parametrize(
    ("ack", "again_ms", "answered_ms", "passed"),
    [
        (AckRule.EXACT, 200, 5, 5),  # the first copy, or its answer, was lost
        (AckRule.EXACT, 200, 60, 0),  # no quick answer: it may be that to the first copy
        (AckRule.EXACT, 90, 5, 0),  # a busy program
        (AckRule.CUMULATIVE, 200, 5, 0),  # it may have waited for an earlier unit
    ],
)
def test_units_that_only_a_later_copy_brings_to_their_receiver_are_counted(
    ack: AckRule, again_ms: int, answered_ms: int, passed: int
) -> None:
    made, _ = space(ack=ack)
    for number in range(10):  # two of them within a second
        at = 1000 + 700 * number
        send(made, number, at)
        send(made, number, at + again_ms)
        made.ack(number, 0, at, (at + again_ms + answered_ms) * MS)
    assert made.ack_stats.passed == passed


def test_a_burst_begins_when_the_last_number_came_whatever_used_it() -> None:
    made, _ = space()
    send(made, 1, 1)
    for number, at in ((2, 2), (4, 7), (4, 9)):
        made.number(number, at, at * MS)
    send(made, 12, 5000)
    (burst,) = [each for each in finish(made).bursts if each.count > 1]
    assert (burst.count, burst.from_ns, burst.to_ns) == (7, 9 * MS, 5000 * MS)
