from __future__ import annotations

import pytest

from netdissect.model.policy import AckRule, ResendRule
from netdissect.track import lane as module
from netdissect.track.findings import Findings
from netdissect.track.lane import Lane
from tracking import MS, policy, rule


def lane(**changes):
    return Lane(policy(**changes), 0, Findings(1, {}, None), None)


@pytest.mark.parametrize(
    ("samples", "smoothed"),
    [([100], 100.0), ([100, 200], 130.0), ([10, 11], 10.0), ([-5], 1.0), ([1, 1, 1], 1.0)],
)
def test_smoothing_is_the_peers_own(samples, smoothed) -> None:
    """Whole milliseconds, cut off, at least 1: as `trunc(0.7 x old + 0.3 x new)` gives them."""
    made = lane()
    for sample in samples:
        made.add_rtt(sample)
    assert made.trip.mean_ms == smoothed


def test_a_sender_may_know_a_round_trip_that_it_states_later() -> None:
    made = lane(spaces=(rule(duplicate_window_ms=5.0),))
    (space,) = made.space_list
    space.context.started = True
    assert space.context.timer_known
    made.add_rtt(20, here=True)
    assert not space.context.timer_known
    made.add_rtt(20, own=True)
    assert space.context.timer_known


def test_peers_that_keep_no_round_trip() -> None:
    made = lane(rtt_smoothing=0.0)
    made.add_rtt(50)
    assert made.trip.mean_ms is None


def test_bounds_of_types_and_counters() -> None:
    made = lane()
    for number in range(2 * module.MAX_TYPES):
        made.count(f"type-{number}", 5, 7)
        made.add(f"counter-{number}", 2)
    assert len(made.messages) <= module.MAX_TYPES + 1
    assert made.messages["other"].count == module.MAX_TYPES
    assert len(made.counters) <= module.MAX_COUNTERS
    beyond = 2 * module.MAX_TYPES - module.MAX_COUNTERS
    assert made._findings.limits() == {"MAX_TYPES": module.MAX_TYPES, "MAX_COUNTERS": beyond}


def test_the_last_message_of_some_types() -> None:
    made = lane()
    assert made.last_of(None) is None
    made.count("Ping", 10, 1)
    made.count("Data", 20, 2)
    assert made.last_of(frozenset({"Ping", "Pong"})) == (10, 1)
    assert made.last_of(frozenset({"Pong"})) is None


def test_a_dialect_learnt_later() -> None:
    made = lane()
    made.adopt(policy(spaces=(rule(resend=ResendRule(7.0)),)))
    assert made.spaces["things"].context.delay_ns == 7_000_000
    made.adopt(policy(spaces=(rule(ack=AckRule.EXACT, resend=ResendRule(9.0)),)))
    assert made.spaces["things"].context.delay_ns == 7_000_000  # another kind of space: left as it is


def test_a_round_trip_that_the_peer_states_judges_copies_once_it_can_have_come() -> None:
    """What is on its way back was sent by the rule of the round trip before."""
    resend = ResendRule(
        initial_ms=50.0, rtt_factor=1.2, floor_ms=10.0, guard_ms=25.0, guard_rtt_factor=0.5
    )
    spaces = (rule(resend=resend, duplicate_window_ms=5.0),)
    lane = Lane(policy(spaces=spaces, rtt_smoothing=0.3), 1, Findings(1, {}, None), None)
    found = [lane.spaces["things"].context.far_guard_ns // MS]
    for stated_ms in (200.0, 200.0, 20.0, 20.0):
        lane.add_rtt(stated_ms)
        found.append(lane.spaces["things"].context.far_guard_ns // MS)
    assert found == [25, 25, 100, 73, 54]
    lane.add_rtt(10.0, own=True)
    assert lane.spaces["things"].context.far_guard_ns // MS == 39
