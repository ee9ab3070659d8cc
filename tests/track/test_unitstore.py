"""Timers, memory and ends of the units of one space."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from netdissect.model.policy import AckRule, Exhausted, ResendRule
from netdissect.track.context import Heard
from netdissect.track.recorder import Recorder
from netdissect.track.unitstore import EXPIRY_NS
from tracking import MS, RESEND, rule, space


@pytest.mark.parametrize(
    ("smoothed", "delay_ms", "guard_ms"),
    [(None, 50, 25), (10.0, 12, 5), (5.0, 10, 2.5), (100.0, 120, 50)],
)
def test_timers_follow_the_round_trip(smoothed, delay_ms, guard_ms) -> None:
    resend = ResendRule(50.0, rtt_factor=1.2, floor_ms=10.0, guard_ms=25.0, guard_rtt_factor=0.5)
    made, _ = space(resend=resend)
    made.context.retime(smoothed)
    assert (made.context.delay_ns, made.context.guard_ns) == (delay_ms * MS, guard_ms * MS)


def test_an_own_window_replaces_the_guard() -> None:
    made, _ = space(duplicate_window_ms=3.0)
    made.context.retime(40.0)
    assert made.context.guard_ns == 3 * MS


def test_units_without_ack_are_settled_after_a_minute() -> None:
    made, _ = space()
    for heard_ns, unacked in ((0, 0), (EXPIRY_NS, 1)):
        made, _ = space()
        made.peer = SimpleNamespace(last_ns=heard_ns)
        made.unit(1, None, b"x", "Thing", 1, 0)
        for number in range(2, 600):
            made.unit(number, None, b"x", "Thing", number, EXPIRY_NS + number * MS)
        assert made.store.outstanding.find(1) is None
        # Where nothing of the other direction came, no acknowledgement could have been seen.
        assert made.ack_stats.unacked == unacked


@pytest.mark.parametrize(
    ("peer_seen", "waited_ms", "outcome"),
    [(True, 500, "unacked"), (True, 50, "unknown"), (False, 500, "unknown")],
)
def test_what_is_open_at_the_end(peer_seen, waited_ms, outcome) -> None:
    made, _ = space()
    made.peer_seen = peer_seen
    made.unit(1, None, b"x", "Thing", 1, 0)
    made.end_all(Heard(waited_ms * MS, 100 * MS))
    assert getattr(made.report(), outcome) == 1


def test_exhausted_units_name_the_moment() -> None:
    made, anomalies = space()
    for attempt in range(RESEND.attempts):
        made.unit(1, None, b"x", "Thing", attempt, attempt * 100 * MS)
    made.end_all(Heard(1000 * MS, 0))
    assert made.attempts.gave_up_ns == 300 * MS
    assert made.report().given_up == 1
    assert anomalies[-1].evidence["copies"] == RESEND.attempts


@pytest.mark.parametrize(("heard_ms", "lost"), [(190, True), (90, None), (0, None)])
def test_what_was_sent_in_vain_while_nothing_was_heard_is_not_called_lost(heard_ms, lost) -> None:
    """That all answers were lost is unlikely only while others came."""
    made, _ = space(Recorder().of(1))
    made.peer = SimpleNamespace(last_ns=heard_ms * MS, spaces={})
    for attempt in range(RESEND.attempts):
        made.unit(1, None, b"x", "Thing", attempt, attempt * 100 * MS)
    made.peer.last_ns = 900 * MS
    record = made.store.outstanding.find(1).record
    made.end_all(Heard(1000 * MS, 0))
    assert (record.outcome, record.lost) == ("given_up", lost)


def given_up(record_of):
    made, _ = space(Recorder().of(1))
    made.peer = SimpleNamespace(last_ns=390 * MS, spaces={})
    for attempt in range(RESEND.attempts):
        made.unit(1, None, b"x", "Thing", attempt, attempt * 100 * MS)
    record = made.store.outstanding.find(1).record
    record_of(made)
    made.end_all(Heard(2000 * MS, 0))
    return record.outcome, record.lost


def test_what_is_acknowledged_after_it_was_given_up_is_not_lost() -> None:
    assert given_up(lambda _: None) == ("given_up", True)
    assert given_up(lambda made: made.ack(1, 0, 9, 1000 * MS)) == ("given_up", None)


@pytest.mark.parametrize(("numbers", "lost"), [(range(1, 40), True), (range(1, 40, 2), None)])
def test_where_hardly_any_answer_comes_nothing_is_called_lost(numbers, lost) -> None:
    """Units of the other side, which are sent again as well, are missing in the end."""
    other, _ = space()
    for number in numbers:
        other.unit(number, None, b"x", "Thing", number, number * MS)

    def answered(made) -> None:
        made.peer.spaces[made.context.rule.name] = other

    assert given_up(answered) == ("given_up", lost)


def test_senders_that_never_stop_give_nothing_up() -> None:
    made, _ = space(resend=ResendRule(10.0, attempts=2, exhausted=Exhausted.NEVER))
    for attempt in range(2):
        made.unit(1, None, b"x", "Thing", attempt, attempt * 100 * MS)
    made.end_all(Heard(1000 * MS, 0))
    assert made.report().given_up == 0


def test_remarks_of_the_protocol_stand_in_the_message() -> None:
    made, anomalies = space(remarks={"sequence-jump": "seen after a restart"})
    made.context.find("sequence-jump", 1, 0, 0, "jumps", step=9)
    assert anomalies[0].message == "things jumps; seen after a restart"
    assert anomalies[0].evidence == {"space": "things", "step": 9}


def test_a_dialect_learnt_later_changes_the_rules_and_keeps_the_counts() -> None:
    made, _ = space()
    made.unit(1, None, b"x", "Thing", 1, 0)
    made.obey(rule(resend=ResendRule(7.0)))
    assert (made.units, made.context.delay_ns) == (1, 7 * MS)


def test_nothing_is_kept_where_nothing_is_acknowledged() -> None:
    made, _ = space(ack=AckRule.NONE)
    for number in range(1, 100):
        made.unit(number, None, b"x", "Thing", number, number * MS)
    assert not made.store.outstanding.count
    report = made.report()
    assert (report.units, report.unknown, report.max_copies) == (99, 99, 1)


def test_release_leaves_no_way_back() -> None:
    made, _ = space()
    made.on_evidence = lambda: None
    made.release()
    made.ack(1, 0, 1, 0)
    assert made.on_evidence is None
    assert made.ack_stats.acked == 0
