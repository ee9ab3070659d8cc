"""Further copies of a unit: the sender's, the network's, and those that nobody can tell."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import pytest

from netdissect.model.policy import AckRule
from netdissect.model.units import CopyGaps
from netdissect.track import copies, copymemory, requests
from netdissect.track.context import Heard
from netdissect.track.space import Space
from tracking import MS, RESEND, rule, space


def send(made, wire, at_ms, content=b"x", labelled=None):
    made.unit(wire, labelled, content, "Thing", at_ms, at_ms * MS)


def finish(made, end_ms=10_000):
    made.end_all(Heard(end_ms * MS, 0))
    return made.report()


def holds(report):
    assert report.copies == report.units + report.retransmissions + report.duplicates
    assert report.units == report.acked + report.unacked + report.unknown


def test_a_repeat_is_a_retransmission_next_to_the_sender() -> None:
    made, _ = space()
    made.repeats.set_vantage(sender_near=True, receiver_near=False)
    send(made, 1, 0)
    send(made, 1, 2)
    assert (made.repeats.retransmissions, made.repeats.duplicates) == (1, 0)


def test_copies_beyond_those_that_the_next_number_judges_are_not_called_the_networks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An EOUDP server that sends all its unacknowledged messages again in each frame."""
    monkeypatch.setattr(copies, "MAX_COUNTED", 3)
    made, _ = space(ack=AckRule.NONE, copies_take_numbers=True, duplicate_window_ms=5.0)
    made.repeats.set_vantage(sender_near=False, receiver_near=True)
    for number in range(6):
        send(made, number, 1 + number)
    for number in range(6):
        send(made, number, 10 + number)
    send(made, 12, 100)
    assert verdicts(made) == [None] * 3 + [False] * 3


def test_a_quick_repeat_is_a_duplicate_next_to_the_receiver() -> None:
    made, _ = space()
    made.repeats.set_vantage(sender_near=False, receiver_near=True)
    send(made, 1, 0)
    send(made, 1, 2)
    send(made, 1, 100)
    assert (made.repeats.retransmissions, made.repeats.duplicates) == (1, 1)
    assert finish(made).max_copies == 2


def verdicts(made: Space) -> list[bool | None]:
    """Return who made the further copies: the network's first, then what nothing tells."""
    report = finish(made)
    assert report.extra.get("undecided", 0) == made.repeats.undecided
    found = so_far(made)
    assert report.copies - report.units == len(found)
    return found


def so_far(made: Space) -> list[bool | None]:
    """Return the same before the end, which shows how often the network copies."""
    repeats = made.repeats
    return (
        [True] * repeats.duplicates + [None] * repeats.undecided + [False] * repeats.retransmissions
    )


@pytest.mark.parametrize("bound", [0, 256])
def test_in_a_network_that_holds_datagrams_back_as_long_as_the_timer_nothing_tells(
    bound, monkeypatch
) -> None:
    """It was seen to hold back two numbers of another space: a resend may come just behind then. A
    copy that came before is as doubtful, once all is known.
    """
    monkeypatch.setattr(copymemory, "MAX_DOUBTFUL", bound)
    made, _ = space(duplicate_window_ms=5.0, resend=replace(RESEND, initial_ms=20.0, guard_ms=15.0))
    other = Space(rule(resend=None), 0, made.context.findings, None)
    made.repeats.set_vantage(sender_near=False, receiver_near=True)
    for seq, undecided in ((1, 0), (11, 1), (21, 2)):
        for wire, at_ms in ((seq, 0), (seq + 2, 2), (seq + 1, 19)):
            send(other, wire, 100 * seq + at_ms)
        send(made, seq, 100 * seq + 30)
        send(made, seq, 100 * seq + 34)
        assert made.repeats.undecided == undecided
    made.repeats.find_common_gaps()
    assert verdicts(made) == [None, None, None]


@pytest.mark.parametrize(
    ("held_ms", "gap_ms", "copied"), [(9, 2, None), (7, 4, None), (4, 3, None), (0, 2, True)]
)
def test_what_was_held_back_comes_just_before_the_resend(held_ms, gap_ms, copied) -> None:
    """A sender that sends nothing again within 10 ms can have made the second copy of a unit only
    where the first one was that late; then nothing tells."""
    made, _ = space(duplicate_window_ms=5.0)
    made.repeats.set_vantage(sender_near=False, receiver_near=True)
    send(made, 1, 0)
    if held_ms:
        send(made, 3, 100)
    send(made, 2, 100 + held_ms)
    made.ack(2, 0, 1, (100 + held_ms) * MS)
    send(made, 2, 100 + held_ms + gap_ms)
    assert so_far(made) == [copied]


@pytest.mark.parametrize(
    ("near", "gap_ms", "copied"),
    [
        ((False, True), 6, True),
        ((None, True), 6, True),
        ((False, True), 7, None),
        ((None, None), 6, None),
        ((False, True), 14, None),
        ((None, None), 14, None),
        ((False, True), 24, None),
        ((None, None), 24, None),
        ((True, None), 24, False),
        ((False, True), 25, False),
        ((None, None), 25, False),
        ((True, True), 6, False),
        ((True, True), 4, False),
        ((None, None), 4, True),
    ],
)
@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize("bound", [0, 256])
def test_much_sooner_than_its_sender_could(near, gap_ms, copied, late, bound, monkeypatch) -> None:
    """A third of what the sender waits at least counts only where that is known to be far. Within a
    quarter of what it usually waits, nothing tells.
    """
    monkeypatch.setattr(copymemory, "MAX_DOUBTFUL", bound)
    made, _ = space(duplicate_window_ms=5.0, resend=replace(RESEND, guard_ms=20.0))
    if not late:
        made.repeats.set_vantage(*near)
    send(made, 1, 0)
    send(made, 1, gap_ms)
    if late:
        for seemed in ((True, None), (None, True), near):
            made.repeats.set_vantage(*seemed)
    assert so_far(made) == [copied]


def test_a_copy_soon_after_a_late_retransmission_may_be_of_both() -> None:
    """How late a retransmission came is a guess: it may have waited for its timer twice."""
    made, _ = space(duplicate_window_ms=5.0, resend=replace(RESEND, guard_ms=20.0))
    made.repeats.set_vantage(sender_near=False, receiver_near=True)
    for at_ms in (0, 150, 165):
        send(made, 1, at_ms)
    assert verdicts(made) == [None, False]


@pytest.mark.parametrize(("gap_ms", "copied"), [(14, None), (15, True), (9, True)])
@pytest.mark.parametrize("bound", [0, 256])
def test_a_network_that_brings_resends_close_leaves_no_copy_that_is_surely_its_own(
    gap_ms, copied, bound, monkeypatch
) -> None:
    """A copy sooner than the sender's timer of 50 ms allows was its sender's all the same, as the
    one before it was held back: another one that comes soon, before it or after, may be, too."""
    monkeypatch.setattr(copymemory, "MAX_DOUBTFUL", bound)
    made, _ = space(duplicate_window_ms=5.0, resend=replace(RESEND, initial_ms=50.0, guard_ms=25.0))
    made.repeats.set_vantage(sender_near=False, receiver_near=True)
    for seq, gap in ((1, 3), (2, gap_ms), (3, 3)):
        send(made, seq, 100 * seq)
        send(made, seq, 100 * seq + gap)
    found = so_far(made)
    assert found.count(copied) >= 2
    assert (True in found) is (copied is True)


@pytest.mark.parametrize(
    ("beside", "common"), [((14,), True), ((14, 6), True), ((14, 6, 9), False)]
)
@pytest.mark.parametrize("held", [False, True])
def test_copies_that_always_come_as_soon_are_the_networks(beside, common, held) -> None:
    """Retransmissions come close behind delayed copies here, but with all gaps; ten copies came
    within a tenth of the time.
    """
    made, _ = space(duplicate_window_ms=5.0, resend=replace(RESEND, initial_ms=50.0, guard_ms=25.0))
    made.repeats.set_vantage(sender_near=False, receiver_near=True)
    if held:
        made.context.findings.held_ns[0] = 49 * MS
    for seq, gap in enumerate((*beside, *(2.7 + n / 10 for n in range(10))), start=1):
        made.unit(seq, None, b"x", "Thing", 2 * seq, 100 * seq * MS)
        made.unit(seq, None, b"x", "Thing", 2 * seq + 1, 100 * seq * MS + int(gap * MS))
    assert made.repeats.duplicates == 0
    unknown = len(beside) + 10 * (not common)
    assert verdicts(made) == [True] * (10 * common) + [None] * unknown
    gaps = made.context.findings.copy_gaps[0]
    found = CopyGaps(True, 2_700_000, 3_600_000) if common else CopyGaps(True)
    assert gaps == found._replace(seldom=not common, held_ns=copymemory.LEAST_HELD_NS)


def test_copies_of_one_moment_do_not_show_the_gap_of_the_networks() -> None:
    """A sender that had stood still sent nine units again at once."""
    made, _ = space(duplicate_window_ms=5.0, resend=replace(RESEND, initial_ms=50.0, guard_ms=25.0))
    for at_ms in (100, 106):
        for seq in range(1, 10):
            made.unit(seq, None, b"x", "Thing", at_ms, at_ms * MS + seq * 10_000)
    assert verdicts(made) == [None] * 9


def test_copies_with_the_gap_of_the_networks_are_not_surely_released_by_a_stall() -> None:
    """Where little is sent, two copies that the network made look like a burst after a silence."""
    made, _ = space(duplicate_window_ms=5.0, resend=replace(RESEND, guard_ms=20.0))
    made.repeats.set_vantage(sender_near=False, receiver_near=True)
    for seq in range(1, 41):
        send(made, seq, 200 * seq)
        if seq % 4 == 0 or seq == 40:
            send(made, seq, 200 * seq + 3)
    send(made, 41, 8005)
    send(made, 41, 8008)
    assert verdicts(made) == [True] * 9 + [None] * 2


@pytest.mark.parametrize(("at_ms", "copied"), [(100, True), (98, True), (210, None), (130, None)])
def test_a_resend_that_came_late_may_have_the_next_one_close_behind(at_ms, copied) -> None:
    made, _ = space(duplicate_window_ms=5.0, resend=replace(RESEND, guard_ms=20.0))
    made.repeats.set_vantage(sender_near=False, receiver_near=True)
    for moment in (0, at_ms, at_ms + 6):
        send(made, 1, moment)
    assert sorted(so_far(made), key=str) == sorted([copied, False], key=str)


def test_bound_of_what_was_held_back(monkeypatch) -> None:
    monkeypatch.setattr(copymemory, "MAX_HELD", 2)
    made, _ = space(duplicate_window_ms=5.0)
    for at_ms, wire in enumerate((1, 5, 2, 3, 4)):
        send(made, wire, at_ms)
    assert made.context.findings.limits() == {"MAX_HELD": 1}


def test_bound_of_units_that_were_sent_again() -> None:
    """After they were acknowledged, or because the receiver asked for them."""
    made, _ = space()
    memory, asked = copymemory.CopyMemory(), requests.Requests()
    asked.note(0)
    for seq in range(1000):
        assert memory.count_after_ack(made.context, seq) == 1
        assert asked.permit(seq, seq, again=True)
    assert made.context.findings.limits() == {"MAX_LATE": 1000 - copymemory.MAX_LATE}
    assert len(memory.after_ack) == copymemory.MAX_LATE
    assert len(asked._first_ns) == len(asked._answers) == requests.MAX_ASKED


def test_a_relay_without_delay_that_loses_datagrams_may_copy_them_too() -> None:
    """And its sender, whose round trip is as short, may have sent them twice at once."""
    made, _ = space(duplicate_window_ms=5.0, resend=replace(RESEND, guard_ms=20.0))
    made.repeats.set_vantage(sender_near=True, receiver_near=True)
    for at_ms, wire in ((0, 1), (1, 1), (10, 3), (20, 2), (30, 4), (31, 4), (38, 4)):
        send(made, wire, at_ms)
    assert verdicts(made) == [None, None, False]


@pytest.mark.parametrize("close", [False, True])
def test_resends_that_a_stalled_network_lets_go_at_once(close) -> None:
    """Units of 20 ms, each sent again every 30 ms; for 200 ms nothing gets through."""
    made, _ = space(duplicate_window_ms=5.0, resend=replace(RESEND, guard_ms=20.0))
    made.context.findings.copy_gaps = (CopyGaps(close), CopyGaps(close))
    made.repeats.set_vantage(sender_near=False, receiver_near=True)
    sent = sorted((20 * n + 30 * again, n) for n in range(9, 20) for again in range(4))
    for number in range(1, 9):
        send(made, number, 20 * number)
    for place, (_, number) in enumerate(sent):
        made.unit(number, None, b"x", "Thing", 200 + place, 400 * MS + place * MS // 50)
    assert (made.repeats.retransmissions, made.repeats.duplicates) == (33, 0)


@pytest.mark.parametrize(("silent_ms", "made_by"), [(30, None), (60, False)])
@pytest.mark.parametrize("bound", [0, 256])
def test_a_silence_shorter_than_the_timer_releases_no_sure_resends(
    silent_ms, made_by, bound, monkeypatch
) -> None:
    """Where little is sent, two copies that the network made often come after such a pause."""
    monkeypatch.setattr(copymemory, "MAX_DOUBTFUL", bound)
    made, _ = space(duplicate_window_ms=5.0, resend=replace(RESEND, initial_ms=50.0, guard_ms=20.0))
    made.repeats.set_vantage(sender_near=False, receiver_near=True)
    send(made, 1, 100)
    for seq, at_ms in ((2, 100 + silent_ms), (3, 106 + silent_ms)):
        send(made, seq, at_ms)
        send(made, seq, at_ms + 3)
    assert made.repeats.undecided + made.repeats.retransmissions == 2 - (not bound)
    assert verdicts(made)[-1] is made_by


def test_a_sender_that_sends_many_at_once_resends_nothing_at_once() -> None:
    made, _ = space(duplicate_window_ms=5.0, resend=replace(RESEND, guard_ms=20.0))
    made.repeats.set_vantage(sender_near=False, receiver_near=True)
    for number in range(60):
        at_ns = 100 * MS * (1 + number // 6) + number % 6 * MS // 50
        made.unit(number, None, b"x", "Thing", number, at_ns)
        if number % 6 == 2:
            made.unit(number, None, b"x", "Thing", 100 + number, at_ns + MS // 100)
    assert (made.repeats.retransmissions, made.repeats.duplicates) == (0, 10)


def asked(*, near=False):
    """Return a space whose sender sends everything again when it is asked to."""
    resend = replace(RESEND, initial_ms=1000.0, guard_ms=0.0, on_request=True)
    made, _ = space(duplicate_window_ms=10.0, resend=resend)
    made.repeats.set_vantage(sender_near=near, receiver_near=None if near else True)
    return made


@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize("times", [1, 2])
def test_a_sender_that_is_asked_twice_repeats_everything_twice(times, late) -> None:
    """All eight answers to the second request come within 10 ms of those to the first. If there was
    one request only, the network may have copied it.
    """
    made = asked(near=late)
    for wire in range(1, 9):
        send(made, wire, wire)
    for at_ms in range(times):
        made.repeats.request((10 + at_ms) * MS)
    for answer in range(2):
        for wire in range(1, 9):
            made.unit(wire, True, b"x", "Thing", 20 + answer, (600 + answer) * MS + wire * MS // 16)
    made.repeats.set_vantage(sender_near=False, receiver_near=True)
    assert made.repeats.duplicates == 0
    assert made.repeats.retransmissions == 8 * times


@pytest.mark.parametrize(
    ("times", "gap_ms", "copied"),
    [(0, 3, True), (1, 3, True), (2, 3, None), (2, 12, False), (1, 12, None)],
)
@pytest.mark.parametrize("bound", [0, 256])
def test_a_sender_answers_as_often_as_it_is_asked(
    times, gap_ms, copied, bound, monkeypatch
) -> None:
    monkeypatch.setattr(copymemory, "MAX_DOUBTFUL", bound)
    made = asked()
    for wire in range(1, 9):
        send(made, wire, 2 * wire)
    for at_ms in range(times):
        made.repeats.request((20 + at_ms) * MS)
    send(made, 8, 600, b"x", labelled=True)
    send(made, 8, 600 + gap_ms, b"x", labelled=True)
    assert sorted(verdicts(made), key=str) == sorted([copied, False], key=str)


def test_a_network_whose_copies_come_late_leaves_answers_unknown() -> None:
    """Without the mark of a retransmission, a copy can only be the network's."""
    made = asked()
    for at_ms in (20, 21):
        made.repeats.request(at_ms * MS)
    for at_ms in (0, 600, 630):
        send(made, 1, at_ms, b"x", labelled=at_ms > 0)
    assert verdicts(made) == [False, False]
    for at_ms in (1000, 1040):
        send(made, 2, at_ms, b"x", labelled=False)
    made.repeats.find_common_gaps()
    assert sorted(verdicts(made), key=str) == [False, None, True]


def test_the_units_of_a_datagram_that_was_copied_are_no_burst() -> None:
    made = asked()
    made.repeats.request(0)
    for at_ms in (1, 600, 603):
        for wire in range(1, 9):
            send(made, wire, at_ms, b"x", labelled=at_ms > 1)
    assert (made.repeats.retransmissions, made.repeats.duplicates) == (8, 8)


def test_bounds_of_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(requests, "MAX_ASKED", 1)
    made = asked()
    for at_ms in (10, 11):
        made.repeats.request(at_ms * MS)
    for at_ms in (1, 300, 600):
        for wire in (1, 2):
            send(made, wire, at_ms + wire, b"x", labelled=at_ms > 1)
    assert (made.repeats.retransmissions, made.repeats.duplicates) == (4, 0)


def test_what_one_datagram_carries_twice_was_sent_twice() -> None:
    """A sender that answers two requests in one datagram puts a unit into it twice."""
    made, _ = space(duplicate_window_ms=10.0)
    made.repeats.set_vantage(sender_near=False, receiver_near=True)
    for frame, wire, labelled in (
        (1, 1, None),
        (1, 1, True),
        (2, 2, None),
        (3, 1, True),
        (3, 1, True),
    ):
        made.unit(wire, labelled, b"x", "Thing", frame, frame * 100 * MS)
    assert (made.repeats.retransmissions, made.repeats.duplicates) == (3, 0)
    made.ack(2, 1, 4, 400 * MS)
    for _ in range(2):
        made.unit(1, True, b"x", "Thing", 5, 500 * MS)
    made.unit(1, True, b"x", "Thing", 6, 502 * MS)
    assert (made.repeats.retransmissions, made.repeats.duplicates) == (5, 1)


def test_doubtful_copies_are_judged_again_when_the_vantage_is_known() -> None:
    made, _ = space()
    send(made, 1, 0)
    send(made, 1, 2)
    assert (made.repeats.retransmissions, made.repeats.duplicates) == (0, 1)
    made.ack(1, 0, 3, 3 * MS)
    made.repeats.set_vantage(sender_near=True, receiver_near=True)
    assert (made.repeats.retransmissions, made.repeats.duplicates) == (1, 0)
    assert finish(made).max_copies == 2


def test_doubtful_copies_stay_duplicates_where_the_sender_is_far() -> None:
    made, _ = space()
    send(made, 1, 0)
    send(made, 1, 2)
    made.repeats.set_vantage(sender_near=False, receiver_near=True)
    assert (made.repeats.retransmissions, made.repeats.duplicates) == (0, 1)


def test_without_a_resend_rule_every_repeat_is_the_networks() -> None:
    made, _ = space(resend=None)
    made.repeats.set_vantage(sender_near=True, receiver_near=False)
    send(made, 1, 0)
    send(made, 1, 5_000)
    assert (made.repeats.retransmissions, made.repeats.duplicates) == (0, 1)


def test_over_tcp_every_repeat_is_the_senders() -> None:
    made, _ = space(resend=None)
    made.context.in_stream = True
    send(made, 1, 0)
    send(made, 1, 0)
    assert (made.repeats.retransmissions, made.repeats.duplicates) == (1, 0)


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
    made.repeats.set_vantage(sender_near=False, receiver_near=True)
    send(made, 1, 0, labelled=False)
    send(made, 1, gap_ms, content, labelled)
    assert made.repeats.duplicates == duplicate


def test_deliberate_doubles_are_transmissions() -> None:
    made, _ = space(burst=2)
    for at in (0, 0, 1):
        send(made, 1, at)
    assert (made.repeats.retransmissions, made.repeats.duplicates) == (1, 1)


def test_a_repeated_number_that_is_no_unit_shows_how_late_the_network_copies() -> None:
    """A server that sends all again every 16 ms, behind a relay whose copies come within 20 ms."""
    made, _ = space(ack=AckRule.NONE, copies_take_numbers=True, resend=replace(RESEND, guard_ms=16))
    made.repeats.set_vantage(sender_near=False, receiver_near=True)
    for number, at in ((0, 0), (1, 20), (2, 40), (2, 59), (3, 60), (4, 80), (3, 78), (5, 90)):
        made.number(number, at, at * MS)
    send(made, 6, 100)
    for at, number in ((119, 8), (138, 10), (200, 12)):
        send(made, 6, at)
        made.number(number, at, (at + 10) * MS)
    assert so_far(made) == [None] * 2 + [False]


def test_a_copy_is_compared_with_the_copy_before_it_whoever_made_that() -> None:
    """The second one comes 20 ms after what the sender made for certain, yet 10 after the first."""
    made, _ = space(ack=AckRule.NONE, copies_take_numbers=True, resend=replace(RESEND, guard_ms=16))
    made.repeats.set_vantage(sender_near=False, receiver_near=True)
    made.number(0, 0, 0)
    made.number(0, 0, 2 * MS)
    for seq in range(1, 13, 2):
        send(made, seq, 200 * seq)
        send(made, seq, 200 * seq + 60)
    send(made, 13, 3000)
    send(made, 13, 3010)
    send(made, 13, 3020)
    made.number(16, 40, 3100 * MS)
    assert so_far(made) == [None] * 2 + [False] * 6


@pytest.mark.parametrize(
    ("rows", "undecided"),
    [
        # Twins leave back to back. What comes behind later numbers is a late twin, or a copy of the
        # only one left.
        ([(1, 0), (2, 1), (2, 1), (1, 3)], 1),
        ([(1, 0), (1, 3), (2, 4)], 0),
        ([(2, 0), (1, 1), (1, 1)], 0),
        # A network that holds datagrams back makes no order that tells.
        ([(1, 0), (2, 1), (2, 1), (1, 40)], 0),
        (
            [*((number, 12 - number) for number in range(12, 1, -1)), (20, 11), (21, 12), (20, 13)],
            0,
        ),
    ],
)
def test_a_copy_of_a_lone_twin(rows: list[tuple[int, int]], undecided: int) -> None:
    made, _ = space(burst=2, resend=replace(RESEND, guard_ms=60_000.0))
    for number, at in rows:
        send(made, number, at)
    assert (made.repeats.duplicates, made.repeats.undecided) == (0, undecided)
    made.repeats.set_vantage(sender_near=True, receiver_near=False)
    assert made.repeats.undecided == 0


@pytest.mark.parametrize(
    ("apart", "undecided"), [(0, 0), (2, 0), (3, 1)], ids=["together", "mostly", "scattered"]
)
def test_twins_that_the_network_keeps_together(apart: int, undecided: int) -> None:
    """Then a second copy behind later numbers is the network's; `apart` of 16 come 5 ms apart."""
    made, _ = space(burst=2, resend=replace(RESEND, guard_ms=60_000.0))
    for number in range(1, 17):
        start_ns = 20 * MS * number
        gap_ns = 5 * MS if number <= apart else MS // 10
        made.unit(number, None, b"x", "Thing", 2 * number, start_ns)
        made.unit(number, None, b"x", "Thing", 2 * number + 1, start_ns + gap_ns)
    for number, at in [(17, 400), (18, 401), (18, 401), (17, 403)]:
        send(made, number, at)
    assert (made.repeats.duplicates, made.repeats.undecided) == (1 - undecided, undecided)


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


def test_bound_of_doubtful_copies() -> None:
    made, _ = space()
    for frame in range(copymemory.MAX_DOUBTFUL + 10):
        made.unit(1, None, b"x", "Thing", frame, MS)
    assert made.context.findings.limits()["MAX_DOUBTFUL"] > 0


def test_copies_of_forgotten_units_are_counted_and_said() -> None:
    made, _ = space(memory=64)
    for number in range(1, 300):
        send(made, number, number)
        made.ack(number, 0, number, number * MS)
    send(made, 5, 400)
    assert made.context.findings.limits()["memory"] == 1
    report = finish(made)
    assert (report.units, report.retransmissions, report.duplicates) == (299, 0, 0)
    assert report.extra["forgotten"] == 1
    holds(report)


def test_what_turns_out_later_is_counted_whole_however_many_copies_there_are() -> None:
    made, _ = space()
    count = copymemory.MAX_DOUBTFUL + 10
    for frame in range(count + 1):
        made.unit(1, None, b"x", "Thing", frame, MS)
    made.repeats.set_vantage(sender_near=True, receiver_near=False)
    assert (made.repeats.retransmissions, made.repeats.duplicates) == (count, 0)
    assert made.context.findings.repeats["retransmission"] == count
    made.repeats.set_vantage(sender_near=None, receiver_near=None)
    assert (made.repeats.retransmissions, made.repeats.duplicates) == (0, count)


@pytest.mark.parametrize(("copied", "verdicts"), [(False, (2, 0, 0)), (True, (1, 0, 1))])
def test_a_network_without_delay_that_copies_questions_may_copy_units(copied, verdicts) -> None:
    made, _ = space(duplicate_window_ms=5.0)
    made.context.started = True
    if copied:
        made.context.findings.note_copied()
    made.repeats.set_vantage(True, True)
    send(made, 1, 0)
    send(made, 1, 1)
    send(made, 1, 60)
    found = made.repeats
    assert (found.retransmissions, found.duplicates, found.undecided) == verdicts


def test_a_marked_resend_is_one_whatever_the_guard_is() -> None:
    """A sender that is asked again and again repeats equal datagrams long before its own timer."""
    made, _ = space(duplicate_window_ms=10.0)
    send(made, 1, 0, labelled=False)
    for at in (20, 60, 65):
        send(made, 1, at, b"again", labelled=True)
    assert (made.repeats.retransmissions, made.repeats.duplicates) == (2, 1)


def test_other_octets_are_never_a_network_copy() -> None:
    """A space whose units are never sent again: the number was used for something else."""
    made, anomalies = space(resend=None)
    send(made, 1, 0, b"one")
    send(made, 2, 1, b"two")
    send(made, 2, 2, b"other")
    report = finish(made)
    assert (report.units, report.duplicates, report.never_seen) == (3, 0, 0)
    assert [found.code for found in anomalies] == ["number-reused"]
    holds(report)


LATE_PLACES = [(True, False), (False, True), (True, True), (None, None)]
TIMED = {"ack": AckRule.BITS_BEFORE, "duplicate_window_ms": 5.0}
COUNTED = {"ack": AckRule.NONE, "copies_take_numbers": True}
DOUBLE = {"ack": AckRule.BITS_BEFORE, "burst": 2}


@pytest.mark.parametrize("near", LATE_PLACES)
@pytest.mark.parametrize("changes", [TIMED, COUNTED, DOUBLE], ids=["timed", "counted", "double"])
@pytest.mark.parametrize("seed", range(25))
def test_the_verdicts_do_not_depend_on_when_the_vantage_was_learnt(
    near: tuple[bool | None, bool | None], changes: dict[str, Any], seed: int
) -> None:
    """Views that read a capture twice know it from the start, others only at the end; on the way
    to that, it may have seemed to be another one.
    """
    chance = random.Random(seed)
    sent: list[tuple[int, float]] = []
    number, now_ms = 1, 0.0
    for _ in range(60):
        now_ms += chance.choice((0.4, 3.0, 20.0, 120.0))
        if sent and chance.random() < 0.4:
            sent.append((chance.choice(sent[-6:])[0], now_ms))
            number += changes is COUNTED and chance.random() < 0.5
        else:
            sent.append((number, now_ms))
            number += chance.choice((1, 1, 1, 2))

    def counts(*places: tuple[bool | None, bool | None]) -> tuple[int, int, int]:
        made, _ = space(**changes)
        made.context.retime(40.0, 0.0, 40.0, 40.0)
        for index, (wire, at_ms) in enumerate(sent):
            if index % 20 == 0:
                made.repeats.set_vantage(*places[min(index // 20, len(places) - 1)])
            made.unit(wire, None, b"x", "Thing", index, int(at_ms * MS))
            if index % 3 == 0 and changes is not COUNTED:
                made.ack(wire, 0, index, int(at_ms * MS))
        made.repeats.set_vantage(*near)
        made.end_all(Heard(100_000 * MS, 0))
        repeats = made.repeats
        return repeats.retransmissions, repeats.duplicates, repeats.undecided

    known = counts(near)
    assert sum(known) > 0
    for other in LATE_PLACES:
        assert counts((None, None), other) == known


def learnt_gaps(made: Space) -> None:
    """Have the network copy some units long before their sender's timer of 100 ms expires."""
    made.context.least_timer_ns = made.context.far_delay_ns = 100 * MS
    made.context.far_guard_ns = 60 * MS
    for seq in range(1, 13):
        send(made, seq, 1000 * seq)
        send(made, seq, 1000 * seq + 1)


def test_a_copy_behind_a_late_one_is_nobodys_for_sure_however_others_are() -> None:
    """Without the delay of the one before, which later numbers overtook, it would be in time."""
    made, _ = space(duplicate_window_ms=5.0, resend=replace(RESEND, initial_ms=50.0, guard_ms=25.0))
    made.repeats.set_vantage(sender_near=False, receiver_near=True)
    learnt_gaps(made)
    for wire, at_ms in ((20, 20_000), (22, 20_010), (21, 20_090), (21, 20_101)):
        send(made, wire, at_ms)
    made.repeats.find_common_gaps()
    assert verdicts(made) == [True] * 12 + [None]


def test_what_a_stalled_network_lets_go_in_the_middle_is_not_surely_copied() -> None:
    """Each resend of what was held back comes at once, too, among many that are sent once."""
    made, _ = space(duplicate_window_ms=5.0, resend=replace(RESEND, initial_ms=50.0, guard_ms=25.0))
    made.repeats.set_vantage(sender_near=False, receiver_near=False)
    send(made, 0, 1)
    for seq in range(1, 20):
        made.unit(seq, None, b"x", "Thing", seq, 500 * MS + seq * MS // 50)
    for seq in (1, 2, 3):
        made.unit(seq, None, b"x", "Thing", 30 + seq, 501 * MS + seq * MS // 50)
    assert verdicts(made) == [None] * 3


@pytest.mark.parametrize("bound", [0, 256])
@pytest.mark.parametrize(("later", "copied"), [(9, None), (4, None), (2, True)])
def test_a_sender_that_has_gone_on_since_may_have_made_a_copy(
    later, copied, bound, monkeypatch
) -> None:
    """Its timer expires after some eight numbers. All that the network holds back comes at once, the first
    copy of what was sent again among it.
    """
    monkeypatch.setattr(copymemory, "MAX_DOUBTFUL", bound)
    made, _ = space(duplicate_window_ms=5.0, resend=replace(RESEND, guard_ms=50.0))
    made.repeats.set_vantage(sender_near=False, receiver_near=True)
    for seq in range(40):
        send(made, seq, 10 * seq)
        if seq in {0, 10, 20, 30}:
            send(made, seq, 10 * seq + 1)
    for seq in range(40, 41 + later):
        made.unit(seq, None, b"x", "Thing", seq, 600 * MS + 10_000 * seq)
    made.unit(40, None, b"x", "Thing", 100, 601 * MS)
    made.repeats.find_common_gaps()
    assert verdicts(made) == [True] * 4 + [copied]
