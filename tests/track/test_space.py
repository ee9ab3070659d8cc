"""Units and copies of one space: wraps, gaps, late copies, and the bounds."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from netdissect.model.policy import AckRule
from netdissect.track import space as module
from netdissect.track.findings import Findings
from netdissect.track.ledger import MAX_OUTSTANDING
from netdissect.track.space import Space
from tracking import MS, rule, space


def send(made, wire, at_ms, content=b"x", labelled=None):
    made.unit(wire, labelled, content, "Thing", at_ms, at_ms * MS)


def finish(made, end_ms=10_000):
    made.end_all(end_ms * MS, 0)
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


def test_a_repeat_is_a_retransmission_next_to_the_sender() -> None:
    made, _ = space()
    made.place(sender_near=True, receiver_near=False)
    send(made, 1, 0)
    send(made, 1, 2)
    assert (made.retransmissions, made.duplicates) == (1, 0)


def test_a_quick_repeat_is_a_duplicate_next_to_the_receiver() -> None:
    made, _ = space()
    made.place(sender_near=False, receiver_near=True)
    send(made, 1, 0)
    send(made, 1, 2)
    send(made, 1, 100)
    assert (made.retransmissions, made.duplicates) == (1, 1)
    assert finish(made).max_copies == 2


def test_doubtful_copies_are_judged_again_when_the_vantage_is_known() -> None:
    made, _ = space()
    send(made, 1, 0)
    send(made, 1, 2)
    assert (made.retransmissions, made.duplicates) == (0, 1)
    made.ack(1, 0, 3, 3 * MS)
    made.place(sender_near=True, receiver_near=True)
    assert (made.retransmissions, made.duplicates) == (1, 0)
    assert finish(made).max_copies == 2


def test_doubtful_copies_stay_duplicates_where_the_sender_is_far() -> None:
    made, _ = space()
    send(made, 1, 0)
    send(made, 1, 2)
    made.place(sender_near=False, receiver_near=True)
    assert (made.retransmissions, made.duplicates) == (0, 1)


def test_without_a_resend_rule_every_repeat_is_the_networks() -> None:
    made, _ = space(resend=None)
    made.place(sender_near=True, receiver_near=False)
    send(made, 1, 0)
    send(made, 1, 5_000)
    assert (made.retransmissions, made.duplicates) == (0, 1)


def test_over_tcp_every_repeat_is_the_senders() -> None:
    made, _ = space(resend=None)
    made.in_stream = True
    send(made, 1, 0)
    send(made, 1, 0)
    assert (made.retransmissions, made.duplicates) == (1, 0)


@pytest.mark.parametrize(
    ("labelled", "content", "gap_ms", "duplicate"),
    [
        (True, b"y", 1, False),  # the sender says so, and the datagram is another
        (True, b"x", 1, True),  # the marked copy itself was copied
        (True, b"x", 500, False),
        (False, b"x", 500, True),  # its sender marks what it sends again
    ],
)
def test_marked_copies(labelled, content, gap_ms, duplicate) -> None:
    made, _ = space()
    made.place(sender_near=False, receiver_near=True)
    send(made, 1, 0, labelled=False)
    send(made, 1, gap_ms, content, labelled)
    assert made.duplicates == duplicate


def test_deliberate_doubles_are_transmissions() -> None:
    made, _ = space(burst=2)
    for at in (0, 0, 1):
        send(made, 1, at)
    assert (made.retransmissions, made.duplicates) == (1, 1)


def test_the_same_number_with_other_content_is_reported() -> None:
    made, anomalies = space(remarks={"number-reused": "known defect"})
    send(made, 1, 0, b"one")
    send(made, 1, 500, b"two")
    (found,) = [a for a in anomalies if a.code == "number-reused"]
    assert "known defect" in found.message
    assert found.evidence == {"space": "things", "seq": 1}


def test_a_unit_resent_again_and_again_after_its_ack_is_reported_once() -> None:
    made, anomalies = space()
    send(made, 1, 0)
    made.ack(1, 0, 1, MS)
    for at in range(1, 8):
        send(made, 1, 200 * at)
    assert [a.code for a in anomalies].count("acked-yet-resent") == 1
    assert finish(made).retransmissions == 7


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
    assert not made.outstanding


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


def test_carried_units_are_acked_with_their_carrier() -> None:
    carrier, _ = space(name="datagram", ack=AckRule.EXACT, resend=None)
    inner = Space(rule(acked_with="datagram"), 0, Findings(1, {}, None), None)
    inner.carrier = carrier
    inner.peer_seen = True
    carrier.unit(100, None, b"d1", None, 1, 0)
    for number in (1, 2):
        inner.unit(number, None, bytes([number]), "Thing", 1, 0)
    carrier.unit(101, None, b"d2", None, 2, MS)
    inner.unit(3, None, b"3", "Thing", 2, MS)
    carrier.ack(100, 0, 3, 5 * MS)
    assert (carrier.acked, inner.acked) == (1, 2)
    assert list(inner.outstanding) == [3]


def test_a_far_jump_is_reported() -> None:
    made, anomalies = space()
    send(made, 1, 0)
    send(made, 1 + 2 * module.SUSPICIOUS_JUMP, 1)
    assert [a.code for a in anomalies] == ["sequence-jump"]


def test_bound_of_open_units() -> None:
    made, _ = space()
    for number in range(2 * MAX_OUTSTANDING):
        send(made, number % 65536, number // 100)
    assert len(made.outstanding) <= MAX_OUTSTANDING
    assert made.limits["MAX_OUTSTANDING"] > 0
    holds(finish(made))


def test_bound_of_missing_numbers() -> None:
    made, _ = space()
    for number in range(1, 6 * module.MAX_MISSING, 3):
        send(made, number, number)
        made.ack(number, 0, number, number * MS)
    assert len(made.missing) <= module.MAX_MISSING
    assert made.limits["MAX_MISSING"] > 0
    holds(finish(made))


def test_bound_of_doubtful_copies() -> None:
    made, _ = space()
    for _ in range(module.MAX_DOUBTFUL + 10):
        send(made, 1, 1)
    assert made.limits["MAX_DOUBTFUL"] > 0


def test_copies_of_forgotten_units_are_counted_and_said() -> None:
    made, _ = space(memory=64)
    for number in range(1, 300):
        send(made, number, number)
        made.ack(number, 0, number, number * MS)
    send(made, 5, 400)
    assert made.limits["memory"] == 1
    report = finish(made)
    assert (report.units, report.retransmissions) == (299, 1)
    holds(report)


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
            made.place(value, None)
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
