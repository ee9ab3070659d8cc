"""Numbered datagrams that carry numbered messages: epochs, strays, copies, timeouts, ranges."""

from __future__ import annotations

from typing import Any

import pytest

from netdissect.model.annotations import code_rows
from netdissect.model.events import Ev
from netdissect.model.policy import AckRule, Policy, ResendRule, SpaceRule
from netdissect.model.reports import UnitRecord
from netdissect.track import carried, carrier, hashes, ranges
from netdissect.track.carried import CarriedSpace
from netdissect.track.carrier import CarrierSpace
from netdissect.track.conclusion import conclude
from netdissect.track.context import Heard
from netdissect.track.findings import MAX_UNREAD, Findings
from netdissect.track.lane import Lane
from netdissect.track.recorder import Recorder
from netdissect.track.unitstore import MAX_OUTSTANDING
from tracking import connection

MS = 1_000_000
OUTER = SpaceRule(
    name="outer", bits=8, ack=AckRule.BITS_AFTER, ack_bits=32, timeout_ms=5000.0, restart_guard_ms=1000.0
)
INNER = SpaceRule(
    name="inner", bits=16, ack=AckRule.EXACT, resend=ResendRule(initial_ms=5000.0),
    consecutive=False, acked_with="outer",
)  # fmt: skip


def lanes() -> tuple[Lane, Lane]:
    policy = Policy(dialect="test", spaces=(OUTER, INNER))
    findings = Findings(1, {}, None)
    first, second = (Lane(policy, direction, findings, None) for direction in (0, 1))
    first.pair(second)
    return first, second


def spaces(lane: Lane) -> tuple[CarrierSpace, CarriedSpace]:
    outer, inner = lane.spaces["outer"], lane.spaces["inner"]
    assert isinstance(outer, CarrierSpace)
    assert isinstance(inner, CarriedSpace)
    return outer, inner


def send(lane: Lane, number: int, first: int, count: int, ms: int, content: bytes = b"") -> None:
    outer, inner = spaces(lane)
    outer.unit(number, None, content or bytes([number & 255]), None, ms, ms * MS)
    if count:
        inner.run(first, count, "m", None, ms, ms * MS)


def finish(lane: Lane, ms: int) -> tuple[Any, Any]:
    outer, inner = spaces(lane)
    for space in (outer, inner):
        space.end_all(Heard(ms * MS, 100 * MS))
    return outer.report(), inner.report()


def test_an_ack_of_a_datagram_is_one_of_all_it_carried() -> None:
    lane, _ = lanes()
    send(lane, 1, 0, 3, 0)
    send(lane, 2, 3, 2, 10)
    lane.spaces["outer"].ack(1, 1, 40, 40 * MS)
    outer, inner = finish(lane, 50)
    assert (outer.units, outer.acked, inner.units, inner.acked) == (2, 2, 5, 5)
    assert (inner.rtt.samples, inner.rtt.minimum, inner.rtt.maximum) == (5, 30.0, 40.0)


def test_a_stray_base_turns_nothing_else_bad() -> None:
    """All messages of a datagram share its base: damaged, it cannot confirm itself."""
    findings: list[Any] = []
    lane, _ = lanes()
    _, inner = spaces(lane)
    inner.context.findings = Findings(1, {}, findings.append)
    send(lane, 1, 0, 2, 0)
    inner.ordered([5002, 5003], 10, 10 * MS)
    send(lane, 2, 5002, 2, 10)
    inner.ordered([2], 20, 20 * MS)
    send(lane, 3, 2, 2, 20)
    lane.spaces["outer"].ack(1, 3, 40, 40 * MS)
    _, report = finish(lane, 50)
    assert [item.code for item in findings] == ["sequence-jump"]
    assert "jumps ahead by 5001; it stands alone unless" in findings[0].message
    assert (report.units, report.acked, report.out_of_order, report.last_seq) == (6, 6, 0, 3)
    assert report.extra == {"disordered": 0, "strays": 2}


@pytest.mark.parametrize("ahead", [65, 100, 127])
def test_a_stray_datagram_turns_nothing_else_bad(ahead: int) -> None:
    lane, _ = lanes()
    for number in range(1, 9):
        send(lane, number, number, 1, number)
        if number == 4:
            send(lane, number + ahead, 0, 0, number, b"forged")
    lane.spaces["outer"].ack(1, 0x7F, 20, 20 * MS)
    lane.spaces["outer"].ack(4 + ahead, 0, 20, 20 * MS)
    outer, inner = finish(lane, 30)
    assert (outer.units, outer.acked, outer.never_seen, outer.out_of_order) == (9, 9, 0, 0)
    assert (outer.last_seq, outer.extra["strays"], inner.acked) == (8, 1, 8)


@pytest.mark.parametrize("acked", [False, True])
def test_what_comes_far_ahead_of_the_others_and_again_in_its_place_is_copied(*, acked: bool) -> None:
    """A copy may overtake a queue that the network holds back."""
    lane, _ = lanes()
    for number in range(1, 5):
        send(lane, number, number, 1, number)
    send(lane, 100, 100, 2, 5)
    if acked:
        lane.spaces["outer"].ack(100, 0, 6, 6 * MS)
    for number in range(5, 103):
        send(lane, number, number if number < 101 else number + 1, 2 if number == 100 else 1, 10)
    outer, inner = finish(lane, 30)
    assert (outer.units, outer.duplicates, outer.never_seen) == (102, 1, 0)
    assert (outer.acked, inner.acked) == ((1, 2) if acked else (0, 0))
    assert "strays" not in outer.extra
    assert (inner.units, inner.duplicates, inner.retransmissions) == (103, 2, 0)


def test_what_has_the_number_of_a_far_datagram_and_other_content_is_no_copy_of_it() -> None:
    lane, _ = lanes()
    send(lane, 1, 1, 1, 1)
    send(lane, 100, 0, 0, 2, b"forged")
    for number in range(2, 102):
        send(lane, number, number, 1, number)
    outer, inner = finish(lane, 300)
    assert (outer.units, outer.duplicates, outer.extra["strays"]) == (102, 0, 1)
    assert (inner.units, inner.duplicates, inner.retransmissions) == (101, 0, 0)


def test_a_datagram_behind_a_gap_counts_once_the_next_one_confirms_it() -> None:
    lane, _ = lanes()
    for number in (1, 2, 90, 91):
        send(lane, number, number, 1, number)
    lane.spaces["outer"].ack(90, 1, 200, 200 * MS)
    outer, inner = finish(lane, 210)
    assert (outer.units, outer.acked, outer.never_seen, outer.last_seq) == (4, 2, 87, 91)
    assert inner.acked == 2
    assert "strays" not in outer.extra


def test_a_jump_is_confirmed_by_another_datagram() -> None:
    lane, _ = lanes()
    send(lane, 1, 0, 2, 0)
    send(lane, 2, 5000, 2, 10)
    send(lane, 3, 5002, 2, 20)
    _, report = finish(lane, 50)
    assert (report.units, report.out_of_order, report.last_seq) == (6, 0, 5003)
    assert report.extra == {}


def test_order_asked_for_in_vain() -> None:
    lane, _ = lanes()
    outer, inner = spaces(lane)
    for number, (first, ordered, content) in enumerate(
        [(0, [0], b"a"), (3, [3, 4], b"b"), (1, [1], b"c"), (2, [], b"d"), (5, [5], b"e")], start=1
    ):
        outer.unit(number, None, content, None, number, number * MS)
        inner.ordered(ordered, number, number * MS)
        inner.run(first, max(1, len(ordered)), "m", None, number, number * MS)
    # Number 1 came behind 4; 2 did not ask. Further copies and what nobody reads change nothing.
    outer.unit(3, None, b"c", None, 6, 6 * MS)
    inner.ordered([1], 6, 6 * MS)
    outer.unit(7, None, b"f", None, 7, 7 * MS)
    inner.ordered([1], 7, 7 * MS)
    inner.run(1, 1, "m", None, 7, 7 * MS)
    assert inner.disordered == 1
    assert finish(lane, 20)[1].extra["disordered"] == 1


def test_bits_cross_the_wrap() -> None:
    lane, _ = lanes()
    for index in range(6):
        send(lane, (253 + index) & 255, index, 1, index)
    lane.spaces["outer"].ack(254, 0b111, 20, 20 * MS)
    outer, inner = finish(lane, 30)
    assert (outer.acked, inner.acked, outer.last_seq) == (4, 4, 258)


def test_a_late_ack_changes_nothing_and_the_resend_settles_the_message() -> None:
    lane, _ = lanes()
    send(lane, 1, 0, 2, 0)
    send(lane, 2, 0, 2, 5010)
    lane.spaces["outer"].ack(1, 0, 5020, 5020 * MS)
    assert spaces(lane)[1].ack_stats.acked == 0
    lane.spaces["outer"].ack(2, 0, 5050, 5050 * MS)
    outer, inner = finish(lane, 5060)
    assert (outer.acked, outer.given_up, outer.extra["timed_out"]) == (1, 1, 1)
    assert (inner.units, inner.retransmissions, inner.acked, inner.max_copies) == (2, 2, 2, 2)
    assert inner.rtt.ambiguous == 2


def test_an_ack_behind_a_step_of_the_clock_is_not_late() -> None:
    """Nothing else shows that the timeout has passed: the messages are not sent again."""
    lane, _ = lanes()
    send(lane, 1, 0, 2, 0)
    send(lane, 2, 2, 1, 7010)
    lane.spaces["outer"].ack(1, 1, 7020, 7020 * MS)
    outer, inner = finish(lane, 7060)
    assert (outer.acked, outer.given_up, inner.acked) == (2, 0, 3)
    assert outer.rtt.samples == 1


def test_an_ack_is_late_if_its_sender_was_heard_until_the_timeout() -> None:
    lane, _ = lanes()
    send(lane, 1, 0, 2, 0)
    for number in range(2, 9):
        send(lane, number, 2, 0, 1000 * number)
    lane.spaces["outer"].ack(1, 0, 8010, 8010 * MS)
    assert (spaces(lane)[0].late_acks, spaces(lane)[1].ack_stats.acked) == (1, 0)


def test_a_copied_datagram_copies_its_messages() -> None:
    lane, _ = lanes()
    send(lane, 1, 0, 2, 0)
    send(lane, 1, 0, 2, 7000)
    outer, inner = finish(lane, 7001)
    assert (outer.duplicates, inner.duplicates, inner.retransmissions) == (1, 2, 0)
    assert (inner.units, inner.copies) == (2, 4)


def test_acks_in_a_datagram_that_nobody_reads_do_not_count() -> None:
    lane, other = lanes()
    send(lane, 1, 0, 1, 0)
    send(other, 1, 0, 0, 0)
    send(other, 1, 0, 0, 10)  # a copy: its receiver reads nothing of it
    lane.spaces["outer"].ack(1, 0, 10, 10 * MS)
    outer, _ = spaces(lane)
    assert (outer.ack_stats.acked, outer.ignored) == (0, 1)
    send(lane, 2, 1, 1, 12)
    lane.spaces["outer"].ack(2, 0, 15, 15 * MS)  # in a datagram of its own, without a number
    assert (outer.ack_stats.acked, outer.ignored) == (1, 1)
    send(other, 2, 0, 0, 20)
    lane.spaces["outer"].ack(1, 0, 20, 20 * MS)
    assert outer.ack_stats.acked == 2


def test_a_new_epoch_collides_with_the_old_one() -> None:
    _, lane = lanes()
    outer, inner = spaces(lane)
    for number in range(1, 4):
        send(lane, number, number, 1, number)
    assert not outer.may_restart(500 * MS)
    assert outer.may_restart(2000 * MS)
    outer.restart()
    inner.restart()
    send(lane, 1, 0, 1, 2000)
    assert outer.stale_frame == 2000
    send(lane, 4, 1, 1, 2010)
    assert outer.stale_frame != 2010
    assert (outer.restarts, outer.units, inner.units, inner.repeats.duplicates) == (1, 5, 5, 0)


def test_an_epoch_across_the_wrap_is_known_to_the_next_one() -> None:
    _, lane = lanes()
    outer, _ = spaces(lane)
    for index in range(6):
        send(lane, (253 + index) & 255, index, 1, index)
    outer.restart()
    stale = []
    for index, number in enumerate((252, 253, 255, 0, 2, 3)):
        send(lane, number, 0, 0, 2000 + index)
        stale.append(outer.stale_frame == 2000 + index)
    assert stale == [False, True, True, True, True, False]


def test_a_damaged_number_stands_alone() -> None:
    policy = Policy(dialect="test", spaces=(SpaceRule("outer", 22, AckRule.BITS_AFTER, timeout_ms=5.0),))
    lane = Lane(policy, 0, Findings(1, {}, None), None)
    outer = lane.spaces["outer"]
    assert isinstance(outer, CarrierSpace)
    for index, number in enumerate((1, 2, 300_003, 4, 300_005, 6)):
        outer.unit(number, None, bytes([index]), None, index, index)
    assert (outer.strays.count, outer.units, outer.numbers.last) == (2, 6, 6)
    for index, number in enumerate((90_000, 90_001)):
        outer.unit(number, None, bytes([index]), None, 9, 9)
    assert outer.numbers.last == 90_001


def test_another_datagram_with_a_used_number_is_a_collision() -> None:
    lane, _ = lanes()
    send(lane, 1, 0, 1, 0, b"one")
    send(lane, 1, 9, 1, 1, b"other")
    outer, inner = finish(lane, 2)
    assert (outer.units, outer.duplicates, outer.extra["collisions"]) == (2, 0, 1)
    assert (inner.units, inner.duplicates) == (2, 0)


def test_of_several_senders_with_the_same_numbers_equal_datagrams_are_of_unknown_origin() -> None:
    """A third one may send what another has sent, and so may the network."""
    lane, _ = lanes()
    for number in (1, 2, 3):
        send(lane, number, 2 * number, 2, number, b"one%d" % number)
        send(lane, number, 2 * number, 2, number, b"two%d" % number)
    outer, inner = spaces(lane)
    assert (outer.collisions, outer.repeats.duplicates) == (3, 0)
    before = inner.repeats.retransmissions
    send(lane, 3, 6, 2, 4, b"two3")
    assert (outer.repeats.undecided, inner.repeats.undecided) == (1, 2)
    send(lane, 4, 8, 2, 5, b"one4")
    send(lane, 4, 8, 2, 6, b"one4")
    assert (outer.repeats.undecided, inner.repeats.undecided) == (2, 4)
    assert (outer.repeats.duplicates, inner.repeats.retransmissions) == (0, before)


def with_another_sender(lane: Lane) -> None:
    """Send datagrams 1 to 3, and those of a sender that begins with an equal one."""
    outer, _ = spaces(lane)
    for number in (1, 2, 3):
        send(lane, number, number, 1, number, b"one%d" % number)
    assert not outer.may_restart(400 * MS)
    send(lane, 1, 0, 0, 400, b"one1")


def test_what_another_sender_begins_with_is_no_copy_of_the_network() -> None:
    """That there is one shows only when others of its datagrams collide."""
    recorder = Recorder()
    lane = Lane(Policy("test", (OUTER, INNER)), 0, Findings(1, {}, None), recorder.of(1))
    outer, _ = spaces(lane)
    with_another_sender(lane)
    assert (outer.repeats.duplicates, outer.repeats.undecided) == (1, 0)
    send(lane, 2, 0, 0, 410, b"two2")
    send(lane, 3, 0, 0, 420, b"two3")
    assert (outer.repeats.duplicates, outer.repeats.undecided) == (0, 1)
    kinds = [copy.kind for unit in recorder.pending for copy in unit.copies]
    assert (kinds.count("unknown"), kinds.count("duplicate")) == (1, 0)


@pytest.mark.parametrize("early", [False, True])
def test_whoever_was_asked_twice_may_have_answered_twice(*, early: bool) -> None:
    """Of what the other side sends before the first answer, each datagram may make a sender."""
    lane, other = lanes()
    outer, inner = spaces(lane)
    if early:
        send(other, 1, 0, 1, 1)
        send(other, 2, 1, 1, 2)
    send(lane, 1, 0, 1, 10, b"hello")
    assert not outer.may_restart(40 * MS)
    send(lane, 1, 0, 1, 40, b"hello")
    for repeats in (outer.repeats, inner.repeats):
        assert (repeats.duplicates, repeats.undecided) == ((0, 1) if early else (1, 0))


def test_where_one_sender_numbers_a_copy_of_its_first_datagram_stays_one() -> None:
    lane, _ = lanes()
    outer, _ = spaces(lane)
    with_another_sender(lane)
    send(lane, 2, 0, 0, 410, b"one2")
    send(lane, 3, 0, 0, 420, b"damaged")
    assert (outer.repeats.duplicates, outer.repeats.undecided) == (2, 0)


@pytest.mark.parametrize(("acked_ms", "outcome"), [(415, "acked"), (450, "unknown")])
def test_an_acknowledgement_may_be_of_what_another_sender_numbers_alike(
    acked_ms: int, outcome: str
) -> None:
    """It names the number alone, so it tells only before the other one has used that as well."""
    recorder = Recorder()
    lane = Lane(Policy("test", (OUTER, INNER)), 0, Findings(1, {}, None), recorder.of(1))
    outer, _ = spaces(lane)
    with_another_sender(lane)
    send(lane, 4, 4, 1, 402, b"one4")
    rows: list[tuple[int, int, bytes | None]] = [
        (2, 405, b"two2"), (3, 410, b"two3"), (4, 420, b"two4"), (4, acked_ms, None),
    ]  # fmt: skip
    for number, at_ms, content in sorted(rows, key=lambda row: row[1]):
        if content is None:
            outer.ack(number, 0, at_ms, at_ms * MS)
        else:
            send(lane, number, 0, 0, at_ms, content)
    finish(lane, 500)
    (first,) = [
        unit for unit in recorder.pending
        if isinstance(unit, UnitRecord) and unit.space == OUTER.name and unit.seq == 4
        and "apart" not in unit.extra
    ]  # fmt: skip
    assert first.outcome == outcome
    assert (first.rtt_ms is None) == (outcome == "unknown")


def test_numbers_of_several_senders_are_not_missing() -> None:
    lane, _ = lanes()
    outer, _ = spaces(lane)
    with_another_sender(lane)
    for index, number in enumerate((2, 3, 40, 4, 41, 5)):
        send(lane, number, 0, 0, 410 + index, b"two%d" % number)
    send(lane, 4, 0, 0, 430, b"one4")
    report, _ = finish(lane, 440)
    assert report.extra["collisions"] == 3
    assert (report.never_seen, report.bursts) == (0, ())
    assert 39 in outer.numbers.missing  # a first copy that comes late is none of another


def test_a_third_datagram_with_a_number_hides_no_copy_of_the_second() -> None:
    lane, _ = lanes()
    outer, inner = spaces(lane)
    for content in (b"one", b"two", b"three", b"two"):
        send(lane, 1, 7, 1, outer.wanted, content)
    assert (outer.collisions, outer.repeats.undecided) == (2, 1)
    assert inner.repeats.undecided == 1


def test_of_a_number_whose_content_is_forgotten_it_is_unknown_who_sent_it_again(monkeypatch) -> None:
    """Another sender may use it, or it may have been forgotten that it is missing."""
    monkeypatch.setattr(hashes, "MAX_MARKS", 64)
    lane, _ = lanes()
    for number in range(70):
        send(lane, number, number, 1, number)
    outer, inner = spaces(lane)
    send(lane, 2, 2, 1, 70)
    assert (outer.repeats.duplicates, outer.repeats.undecided) == (0, 1)
    assert (inner.repeats.retransmissions, inner.repeats.duplicates) == (0, 0)
    assert inner.repeats.undecided == 1
    send(lane, 69, 69, 1, 71)
    assert (outer.repeats.duplicates, inner.repeats.duplicates) == (1, 1)


def test_a_bound_of_the_ranges_is_a_finding(monkeypatch) -> None:
    monkeypatch.setattr(ranges, "MAX_RANGES", 4)
    made, anomalies = connection(spaces=(OUTER, INNER))
    for number in range(6):
        events = [(Ev.UNIT, None, "outer", number, None, b""), (Ev.RUN, "inner", 2 * number, ["m"])]
        made.datagram(0, number + 1, number * MS, b"", events)
    assert conclude(made, 10 * MS).limits_hit == {"MAX_RANGES": 2}
    assert [anomaly.code for anomaly in anomalies] == ["limit-hit"]


def test_messages_by_one_and_in_runs_give_the_same() -> None:
    one, other = lanes()
    for lane in (one, other):
        outer, inner = spaces(lane)
        for number, first in ((1, 0), (2, 3), (3, 1)):
            outer.unit(number, None, bytes([number]), None, number, number * 5100 * MS)
            if lane is one:
                inner.run(first, 3, "m", None, number, number * 5100 * MS)
            else:
                for index in range(3):
                    inner.unit(first + index, None, None, "m", number, number * 5100 * MS)
        outer.ack(3, 0, 9, (3 * 5100 + 30) * MS)
    first, second = finish(one, 16_000), finish(other, 16_000)
    assert first[1].units == 6
    for ours, theirs in zip(first, second, strict=True):
        theirs.direction = ours.direction
        assert ours == theirs


@pytest.mark.parametrize(
    ("direction", "ms", "lost"), [(1, 40, None), (0, 40, True), (1, 400, True), (None, 0, True)]
)
def test_an_unreadable_datagram_may_have_carried_an_acknowledgement(
    direction: int | None, ms: int, lost: bool | None
) -> None:
    """Only one of the receiver, from before its answer was overdue."""
    recorder = Recorder()
    rows = {row.code: row for row in code_rows("common")}
    findings = Findings(1, rows, None)
    policy = Policy("test", (OUTER, INNER))
    lane, back = (Lane(policy, way, findings, recorder.of(1)) for way in (0, 1))
    lane.pair(back)
    lane.set_vantage(sender_near=True, receiver_near=False)
    for number in range(1, 4):
        send(lane, number, 0, 0, 10 * number)
    record = lane.spaces["outer"].store.outstanding.find(1).record
    for number in range(1, 40):
        send(back, number, 0, 0, 10 * number)
    if direction is not None:
        findings.add("length-beyond-end", ms, ms * MS, direction)
    lane.spaces["outer"].ack(2, 1, 60, 60 * MS)
    send(lane, 4, 0, 0, 5500)
    finish(lane, 5500)
    assert (record.outcome, record.lost) == ("given_up", lost)


def test_of_many_unreadable_datagrams_the_times_of_the_newest_are_known() -> None:
    findings = Findings(1, {row.code: row for row in code_rows("common")}, None)
    for ms in range(MAX_UNREAD - 1):
        findings.add("truncated", ms, ms * MS, 1)
    assert findings.read_all(1, -9 * MS, -1)
    assert findings.read_all(0, 0, 9 * MS)
    findings.add("truncated", 100, 100 * MS, 1)
    assert not findings.read_all(1, -9 * MS, -1)
    assert findings.limits() == {"MAX_UNREAD": 1}
    assert findings.read_all(1, 1 * MS + 1, 2 * MS - 1)


def test_what_older_gaps_held_back_is_unknown(monkeypatch) -> None:
    monkeypatch.setattr(carrier, "MAX_SKIPS", 4)
    lane, _ = lanes()
    outer, _ = spaces(lane)
    for index in range(4):
        send(lane, 1 + 2 * index, 0, 0, 10 * index)
    assert outer.nothing_missing(31 * MS, 30 * MS)
    assert not outer.nothing_missing(1 * MS, 3 * MS)
    assert not outer.context.findings.limits()
    for index in range(4, 8):
        send(lane, 1 + 2 * index, 0, 0, 10 * index)
    outer.numbers.missing = type(outer.numbers.missing)()
    assert outer.nothing_missing(65 * MS, 70 * MS)
    assert not outer.nothing_missing(1 * MS, 3 * MS)
    assert outer.context.findings.limits() == {"MAX_SKIPS": 1}


def test_the_datagrams_listed_for_a_message_are_bounded(monkeypatch) -> None:
    monkeypatch.setattr(carried, "MAX_LISTED", 3)
    recorder = Recorder()
    policy = Policy(dialect="test", spaces=(OUTER, INNER))
    findings = Findings(1, {}, None)
    first, second = (
        Lane(policy, way, findings, recorder.of(1, findings)) for way in (0, 1)
    )
    first.pair(second)
    for number in range(5):
        send(first, number, 7, 1, 6000 * number)
    assert findings.limits() == {"MAX_LISTED": 2}


@pytest.mark.parametrize("way", ["run", "unit"])
def test_messages_that_nobody_acknowledges_are_bounded(way: str) -> None:
    lane, _ = lanes()
    outer, inner = spaces(lane)
    most = 0
    for number in range(2 * MAX_OUTSTANDING):
        outer.unit(number & 255, None, b"%d" % number, None, number, number)
        if way == "run":
            inner.run(number & 0xFFFF, 1, "m", None, number, number)
            most = max(most, inner._open)
        else:
            inner.unit(number & 0xFFFF, None, None, "m", number, number)
            most = max(most, inner.store.outstanding.count)
    assert most == MAX_OUTSTANDING
    assert inner.context.findings.limits()["MAX_OUTSTANDING"] >= MAX_OUTSTANDING // 4
