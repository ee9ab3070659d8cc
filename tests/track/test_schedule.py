"""Copies that come too soon for a timer that both sides have stated."""

from __future__ import annotations

from typing import Any

import pytest

from netdissect.model.policy import ResendRule
from netdissect.model.units import CopyGaps
from netdissect.track import copymemory, schedule
from netdissect.track.context import Heard
from netdissect.track.space import Space
from tracking import MS, space


def send(made: Space, seq: int, at_ms: int) -> None:
    """Process a copy."""
    made.unit(seq, None, b"x", "Thing", at_ms, at_ms * MS)


def verdicts(made: Space) -> list[bool | None]:
    """Return who made the further copies: the network's first, then what nothing tells."""
    made.end_all(Heard(1_000_000 * MS, 0))
    return so_far(made)


def so_far(made: Space) -> list[bool | None]:
    """Return the same before the end, which shows how often the network copies."""
    repeats = made.repeats
    return (
        [True] * repeats.duplicates + [None] * repeats.undecided + [False] * repeats.retransmissions
    )


def send_with_copies(made: Space, gaps: list[int]) -> None:
    """Process a unit each 20 ms, and a copy of every tenth, so many ms after it."""
    for seq in range(10 * len(gaps)):
        send(made, seq, 20 * seq)
        if seq % 10 == 5:
            send(made, seq, 20 * seq + gaps[seq // 10])


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
        ((20, 23, 29, 21), True),  # the timer is 120 ms, and the shortest wait 50 ms
        ((20, 23, 29, 21, 70), None),  # so soon, a delayed retransmission may come
        ((20, 23, 29, 21, 80), None),  # or then, and that one is hardly the network's
        ((20, 23, 29, 21, 100), True),  # that one is nearly in time
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
    soon = sum(gap < 50 for gap in gaps) + (70 in gaps)
    assert verdicts(made) == [copied] * soon + [False] * (len(gaps) - soon + 3)


@pytest.mark.parametrize("gap_ms", [31, 41, 49, 70])
@pytest.mark.parametrize("near", [(False, True), (None, None), (True, False)])
@pytest.mark.parametrize("late", [False, True])
def test_far_too_soon_for_its_sender_a_copy_is_nobodys_for_sure(gap_ms, near, late) -> None:
    """More than two fifths of the timer of 120 ms too soon, the network may have made it as well.
    Next to its sender, there is none yet.
    """
    made, _ = space(**STATED)
    made.context.retime(100.0, 0.0, 100.0, 100.0)
    if not late:
        made.repeats.set_vantage(*near)
    for seq, gap in enumerate((gap_ms, 121, 135, 110), start=1):
        send(made, seq, 1000 * seq)
        send(made, seq, 1000 * seq + gap)
    if late:
        for seemed in ((True, None), (None, True), near):
            made.repeats.set_vantage(*seemed)
    assert verdicts(made) == [False if near[0] else None] + [False] * 3


@pytest.mark.parametrize(("late_ms", "made_by"), [(0, None), (40, False)])
def test_a_retransmission_is_as_much_too_soon_as_the_copy_before_it_was_late(
    late_ms, made_by
) -> None:
    """A later number came that much before the first copy, which the second one follows by 65 ms of
    120.
    """
    made, _ = space(**STATED)
    made.context.retime(100.0, 0.0, 100.0, 100.0)
    made.repeats.set_vantage(sender_near=False, receiver_near=True)
    send(made, 1, 1000)
    if late_ms:
        send(made, 3, 2000 - late_ms)
    send(made, 2, 2000)
    send(made, 2, 2065)
    assert verdicts(made) == [made_by]


@pytest.mark.parametrize(
    ("started", "gap_ms", "made_by"),
    [(True, 20, None), (True, 29, None), (True, 31, False), (True, 50, False), (False, 20, False)],
)
def test_before_any_round_trip_the_first_timer_tells(started, gap_ms, made_by) -> None:
    """Of a sender that was seen from its start, whose first timer is 50 ms."""
    made, _ = space(**STATED)
    made.context.started = started
    made.context.retime(None)
    made.repeats.set_vantage(sender_near=False, receiver_near=True)
    send(made, 1, 1000)
    send(made, 1, 1000 + gap_ms)
    assert verdicts(made) == [made_by]


@pytest.mark.parametrize(
    ("timer_ms", "gap_ms", "copied"), [(120, 3, True), (120, 15, True), (120, 31, None), (42, 3, None)]
)
@pytest.mark.parametrize("close", [False, True])
def test_with_a_known_timer_only_delays_make_a_quick_copy_doubtful(
    timer_ms, gap_ms, copied, close
) -> None:
    """Any network may hold a datagram back for 40 ms. Whether other retransmissions came close
    behind delayed copies says nothing of this one.
    """
    made, _ = space(**STATED)
    made.context.findings.copy_gaps = (CopyGaps(close), CopyGaps(close))
    made.context.retime(timer_ms / 1.2, 0.0, timer_ms / 1.2, timer_ms / 1.2)
    made.repeats.set_vantage(sender_near=False, receiver_near=True)
    send(made, 1, 1000)
    send(made, 2, 1040)
    send(made, 2, 1040 + gap_ms)
    assert verdicts(made) == [copied]


@pytest.mark.parametrize(("pause_ms", "copied"), [(150, True), (290, None)])
def test_where_little_is_sent_a_usual_pause_is_no_stall(pause_ms, copied) -> None:
    """One unit each 90, 150, or 210 ms, with a timer of 120 ms. One copy came too soon, but not far
    too soon, so that the timer alone does not tell.
    """
    made, _ = space(**STATED)
    made.context.retime(100.0, 0.0, 100.0, 100.0)
    made.repeats.set_vantage(sender_near=False, receiver_near=True)
    send(made, 0, 900)
    send(made, 0, 970)
    at_ms = 1000
    for seq in range(1, 11):
        at_ms += (90, 150, 210)[seq % 3]
        send(made, seq, at_ms)
    send(made, 11, at_ms + pause_ms)
    send(made, 11, at_ms + pause_ms + 3)
    assert so_far(made) == [copied, None]


def test_a_burst_of_copies_is_no_sure_work_of_the_network() -> None:
    """A sender repeated all its units at once, a moment before its shortest wait was over."""
    made, _ = space(**STATED)
    made.context.retime(100.0, 0.0, 100.0, 100.0)
    for at_ms in (1000, 1045):
        for seq in range(1, 21):
            send(made, seq, at_ms)
    assert verdicts(made) == [None] * 20


def test_a_retransmission_in_time_stays_one_behind_a_network_copy() -> None:
    made, _ = space(**STATED)
    made.context.retime(100.0, 0.0, 100.0, 100.0)
    made.repeats.set_vantage(sender_near=False, receiver_near=True)
    for seq in range(1, 6):
        for at_ms in (0, 25, 121):
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


@pytest.mark.parametrize("bound", [0, 256])
@pytest.mark.parametrize(("copies", "copied"), [(1, None), (2, None), (3, True), (5, True)])
def test_a_network_that_copies_does_so_again_and_again(
    copies: int, copied: bool | None, bound: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One or two copies may be retransmissions just behind datagrams that were held back, where
    another one was. What the first pass has found holds in the second from the start.
    """
    monkeypatch.setattr(copymemory, "MAX_DOUBTFUL", bound)

    def made_with(gaps: tuple[CopyGaps, CopyGaps] | None) -> Space:
        made, _ = space(**STATED)
        if gaps is not None:
            made.context.findings.copy_gaps, made.context.findings.gaps_known = gaps, True
        made.context.retime(100.0, 0.0, 100.0, 100.0)
        made.repeats.set_vantage(sender_near=False, receiver_near=True)
        send_with_copies(made, [*[2] * copies, 70])
        return made

    made = made_with(None)
    assert so_far(made) == [True] * copies + [None]
    assert verdicts(made) == [copied] * copies + [None]
    again = made_with(made.context.findings.copy_gaps)
    assert so_far(again) == verdicts(again) == [copied] * copies + [None]


def test_before_any_round_trip_a_copy_may_follow_a_datagram_that_was_held_back() -> None:
    """The first timer of a sender is shorter than the time for which any network may do so."""
    made, _ = space(**STATED)
    made.context.begin(started=True)
    made.context.retime(None)
    made.repeats.set_vantage(sender_near=False, receiver_near=True)
    send_with_copies(made, [2, 2, 2, 2])
    assert verdicts(made) == [None] * 4


@pytest.mark.parametrize("near", [(None, None), (False, True), (False, False)])
def test_both_passes_over_a_capture_say_the_same_of_a_copy_behind_a_late_one(near) -> None:
    """Also where the vantage is unknown: what the end of the first pass says, views show."""

    def made_with(gaps: tuple[CopyGaps, CopyGaps] | None) -> Space:
        made, _ = space(**STATED)
        if gaps is not None:
            made.context.findings.copy_gaps, made.context.findings.gaps_known = gaps, True
        made.context.retime(100.0, 0.0, 100.0, 100.0)
        made.repeats.set_vantage(*near)
        send_with_copies(made, [2, 2, 70, 2])
        for seq, at_ms in ((41, 830), (42, 840), (40, 842), (40, 843)):
            send(made, seq, at_ms)
        return made

    first = made_with(None)
    assert verdicts(first) == [True] * 3 + [None] * 2
    assert verdicts(made_with(first.context.findings.copy_gaps)) == [True] * 3 + [None] * 2
