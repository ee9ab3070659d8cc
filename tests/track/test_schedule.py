"""Copies that come too soon for a timer that both sides have stated."""

from __future__ import annotations

from typing import Any

import pytest

from netdissect.model.policy import ResendRule
from netdissect.track import schedule
from netdissect.track.context import Heard
from netdissect.track.space import Space
from tracking import MS, space


def send(made: Space, seq: int, at_ms: int) -> None:
    """Process a copy."""
    made.unit(seq, None, b"x", "Thing", at_ms, at_ms * MS)


def verdicts(made: Space) -> list[bool | None]:
    """Return who made the further copies: the network's first, then what nothing tells."""
    made.end_all(Heard(1_000_000 * MS, 0))
    repeats = made.repeats
    return (
        [True] * repeats.duplicates + [None] * repeats.undecided + [False] * repeats.retransmissions
    )


STATED: dict[str, Any] = {
    "duplicate_window_ms": 5.0,
    "resend": ResendRule(
        initial_ms=50.0, rtt_factor=1.2, floor_ms=10.0, guard_ms=25.0, guard_rtt_factor=0.5
    ),
}
"""A sender that waits for 1.2 round trips, and at least for half a one."""


@pytest.mark.parametrize("near", [(False, True), (None, None)])
@pytest.mark.parametrize(
    ("gaps", "copied"),
    [
        ((20, 33, 41, 31), True),  # the timer is 120 ms, and the shortest wait 50 ms
        ((20, 33, 41, 31, 70), None),  # so soon, a delayed retransmission may come
        ((20, 33, 41, 31, 100), True),  # that one is nearly in time
        ((6, 33, 41, 31), False),  # three so late may come behind delayed copies
    ],
)
def test_copies_far_sooner_than_all_retransmissions_are_the_networks(
    gaps: tuple[int, ...], copied: bool | None, near: tuple[bool | None, bool | None]
) -> None:
    made, _ = space(**STATED)
    made.context.retime(100.0, 0.0, 100.0, 100.0)
    made.repeats.set_vantage(*near)
    for seq, gap in enumerate((*gaps, 121, 135, 110), start=1):
        send(made, seq, 1000 * seq)
        send(made, seq, 1000 * seq + gap)
    soon = sum(gap < 50 for gap in gaps)
    expected = [True] + [False] * 3 if copied is False else [copied] * soon
    assert verdicts(made) == expected + [False] * (len(gaps) - soon + 3)


def test_a_burst_of_copies_is_no_work_of_the_network() -> None:
    """A sender repeated all its units at once, a moment before its shortest wait was over."""
    made, _ = space(**STATED)
    made.context.retime(100.0, 0.0, 100.0, 100.0)
    for at_ms in (1000, 1045):
        for seq in range(1, 21):
            send(made, seq, at_ms)
    assert verdicts(made) == [False] * 20


def test_a_retransmission_in_time_stays_one_behind_a_network_copy() -> None:
    made, _ = space(**STATED)
    made.context.retime(100.0, 0.0, 100.0, 100.0)
    made.repeats.set_vantage(sender_near=False, receiver_near=True)
    for seq in range(1, 6):
        for at_ms in (0, 40, 121):
            send(made, seq, 1000 * seq + at_ms)
    assert verdicts(made) == [True] * 5 + [False] * 5


@pytest.mark.parametrize("stated_ms", [None, 100.0])
def test_before_two_round_trips_were_stated_no_copy_is_too_soon_for_the_timer(stated_ms) -> None:
    """The sender may not have learnt the first one yet, and still work with the initial timer."""
    made, _ = space(**STATED)
    made.context.retime(100.0, 0.0, stated_ms, None, learnt=True)
    made.repeats.set_vantage(sender_near=False, receiver_near=True)
    for seq, gap in enumerate((20, 33, 41, 31, 121), start=1):
        send(made, seq, 1000 * seq)
        send(made, seq, 1000 * seq + gap)
    assert made.repeats.duplicates == 0


def test_anchors_beyond_the_bound_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schedule, "MAX_ANCHORS", 3)
    made, _ = space(**STATED)
    made.context.retime(100.0, 0.0, 100.0, 100.0)
    for seq in range(1, 6):
        send(made, seq, 1000 * seq)
        send(made, seq, 1000 * seq + 40)
    assert made.context.findings.limits() == {"MAX_ANCHORS": 2}
