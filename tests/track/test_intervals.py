from __future__ import annotations

import pytest

import samples
from netdissect.model.reports import ConnectionEvent, Copy, SpaceReport, UnitRecord
from netdissect.track import intervals
from netdissect.track.intervals import LATE_NS, MAX_INTERVALS, MAX_SAMPLES, Intervals

S = 1_000_000_000


def test_datagrams_fall_into_their_spans() -> None:
    table = Intervals(S)
    table.datagram(0, 10 * S, 100)
    table.datagram(0, 10 * S + 5, 100, repeated=True)
    table.datagram(0, 10 * S + 6, 50)
    table.datagram(1, 12 * S + 1, 30)
    rows = table.rows()
    assert [(row.start_ns, row.direction) for row in rows] == [
        (10 * S, 0), (10 * S, 1), (11 * S, 0), (11 * S, 1), (12 * S, 0), (12 * S, 1),
    ]  # fmt: skip
    assert (rows[0].datagrams, rows[0].octets, rows[0].goodput) == (3, 250, 150)
    assert rows[2].datagrams == 0
    assert (rows[5].octets, rows[5].resend_share) == (30, None)


def test_every_copy_counts_in_its_own_span() -> None:
    table = Intervals(S)
    copies = [
        Copy(1, samples.START, "original"),
        Copy(2, samples.START + 5, "retransmission"),
        Copy(3, samples.START + S, "retransmission"),
        Copy(4, samples.START + S + 1, "duplicate"),
    ]
    table.unit(samples.unit(copies=copies))
    rows = [row for row in table.rows() if row.direction == 0]
    assert [(row.units, row.copies, row.retransmissions) for row in rows] == [(1, 2, 1), (0, 2, 1)]
    assert [row.resend_share for row in rows] == [0.5, 0.5]
    some = Intervals(S)
    some.datagram(0, samples.START, 1)
    some.unit(samples.unit(copies=copies), frames={2, 4})
    assert [row.copies for row in some.rows() if row.direction == 0] == [1, 1]


def test_the_share_is_of_what_is_sent_again_at_all() -> None:
    """Unreliable copies beside the reliable ones thin it no more."""
    table = Intervals(S)
    once = [Copy(9, samples.START, "original")]
    for space in ("reliable", "notify", "notify"):
        table.unit(samples.unit(space=space, copies=once))
    assert table.rows()[0].resend_share is None
    table.unit(samples.unit(copies=[*once, Copy(10, samples.START + 1, "retransmission")]))
    row = table.rows()[0]
    assert (row.copies, row.retransmissions, row.resend_share) == (5, 1, 1 / 3)
    table.unit(samples.unit(space="timed", copies=once, next_resend_due_ns=samples.START + 5))
    assert table.rows()[0].resend_share == 1 / 4
    report = samples.connection(transport="tcp", spaces=[SpaceReport("notify", 0)])
    table.place([report])
    assert table.rows()[0].resend_share == 1 / 6


def test_units_count_where_they_were_first_sent() -> None:
    table = Intervals(S)
    table.datagram(0, samples.START, 1)
    table.unit(samples.unit(rtt_ms=60.0, rtt_ambiguous=False))
    table.unit(samples.unit(rtt_ms=80.0, rtt_ambiguous=False))
    table.unit(samples.unit(outcome="given_up", lost=True))
    table.unit(samples.unit(outcome="given_up"))  # its acknowledgements may have been lost
    table.unit(samples.unit(copies=[]))
    row = table.rows()[2]
    assert (row.units, row.unacked, row.rtt_ms, row.rtt_samples) == (4, 2, 70.0, 2)
    assert (row.lost, row.decided, row.loss_share) == (1, 3, 1 / 3)


def test_what_nobody_said_is_not_counted_as_lost() -> None:
    """A missing acknowledgement is no proof of loss; that the receiver says so is."""
    table = Intervals(S)
    table.unit(samples.unit(outcome="unacked"))
    table.unit(samples.unit(outcome="unknown"))
    (row,) = [row for row in table.rows() if row.units]
    assert (row.unacked, row.decided, row.loss_share) == (1, 0, None)
    table.unit(samples.unit(outcome="unacked", extra={"reported": "lost"}))
    table.unit(samples.unit(outcome="acked"))
    assert row.loss_share == 1 / 2


def gap(first: int, last: int, *, came: int = 0) -> ConnectionEvent:
    data = {"space": "reliable", "first_seq": first, "last_seq": last}
    return ConnectionEvent(1, "gap", samples.START, 9, 0, "", data, came)


def near(seq: int) -> UnitRecord:
    return samples.unit(seq=seq, space="reliable", outcome="unacked", rtt_ms=3.0)


def test_next_to_the_receiver_what_is_captured_came_and_what_was_skipped_did_not() -> None:
    """Numbers 1, 2, 5 and 9 came, 4 came late; 6 to 8 were used by something that is no unit."""
    table = Intervals(S)
    for item in (near(1), near(2), gap(3, 4, came=1), near(5), near(4)):
        table.gap(item) if isinstance(item, ConnectionEvent) else table.unit(item, arrived=True)
    table.reach((1, 0, "reliable"), 9, samples.START)
    table.reach((1, 0, "no such space"), 9, samples.START)
    (row,) = [row for row in table.rows() if row.units]
    assert (row.lost, row.decided, row.loss_share) == (1, 9, 1 / 9)
    assert (row.rtt_ms, row.rtt_samples) == (None, 0), "only the receiver's answer can be seen"


def test_some_of_the_units_do_not_show_which_never_came() -> None:
    table = Intervals(S, partial=True)
    table.unit(near(1), arrived=True)
    table.gap(gap(2, 3))
    table.unit(near(4), arrived=True)
    table.reach((1, 0, "reliable"), 9, samples.START)
    assert {row.loss_share for row in table.rows()} == {None}


def test_spans_and_samples_are_bounded() -> None:
    table = Intervals(1)
    table.datagram(0, 0, 1)
    table.datagram(0, 10**18, 1)
    assert table.overflowed
    assert len(table.rows()) == 2 * MAX_INTERVALS
    many = Intervals(S)
    for _ in range(MAX_SAMPLES + 10):
        many.unit(samples.unit(rtt_ms=1.0))
    assert many.rows()[0].rtt_samples == MAX_SAMPLES + 10


def test_samples_of_all_spans_are_bounded_whoever_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(intervals, "MAX_ALL_SAMPLES", 64)
    monkeypatch.setattr(intervals, "MIN_SAMPLES", 4)
    monkeypatch.setattr(intervals, "_TIDY", 4)
    tables = [Intervals(S), Intervals(S), Intervals(S)]
    for table in tables:
        table.start_ns = samples.START
    for index in range(40 * 20):
        first = samples.START + index // 20 * S
        record = samples.unit(copies=[Copy(index, first, "original")], outcome="acked")
        record.rtt_ms = float(index * 7 % 20)
        tables[0].unit(record)
        tables[1 + index % 2].unit(record)
    tables[1].add(tables[2].sums())
    assert [row.rtt_ms for row in tables[1].rows()] == [row.rtt_ms for row in tables[0].rows()]
    assert all(len(frames) <= 8 for frames, _ in tables[0]._rtts.values())


def test_nothing_gives_no_rows() -> None:
    assert Intervals(S).rows() == []


def test_a_time_before_the_first_counts_into_the_first_span() -> None:
    table = Intervals(S)
    table.datagram(0, 5 * S, 1)
    table.datagram(0, 1 * S, 1)
    assert table.rows()[0].datagrams == 2


def test_units_wait_for_late_copies_but_not_for_ever() -> None:
    table = Intervals(S)
    early = samples.unit(copies=[Copy(1, samples.START, "original")])
    table.tell(early)
    early.copies.append(Copy(2, samples.START + S // 2, "duplicate"))
    table.tell(samples.unit(copies=[Copy(3, samples.START + LATE_NS, "original")]))
    assert not any(row.units for row in table._rows.values())
    table.tell(samples.unit(copies=[Copy(4, samples.START + LATE_NS + 1, "original")]))
    early.copies.append(Copy(5, samples.START + LATE_NS + 2, "duplicate"))
    counted = [(row.units, row.copies) for row in table.rows() if row.units]
    assert counted == [(1, 2), (2, 2)]


def test_so_many_units_wait_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(intervals, "MAX_WAITING", 3)
    table = Intervals(S)
    for number in range(5):
        table.tell(samples.unit(copies=[Copy(number, samples.START, "original")]))
    assert sum(row.units for row in table._rows.values()) == 2
    assert table.early == 2
    assert table.rows()[0].units == 5


def test_what_two_have_counted_is_the_sum_of_both() -> None:
    units = [
        samples.unit(rtt_ms=float(number), copies=[Copy(number, samples.START + number * S, "original")])
        for number in range(1, 7)
    ]
    whole, first, second = (Intervals(2 * S) for _ in range(3))
    for table in (whole, first, second):
        table.start_ns = samples.START
    for number, unit in enumerate(units):
        whole.tell(unit)
        (first, second)[number % 2].tell(unit)
    first.add(second.sums())
    assert first.rows() == whole.rows()
    assert any(row.rtt_ms for row in whole.rows())


def test_sums_of_many_keep_no_more_round_trips_than_one() -> None:
    whole, total = Intervals(S), Intervals(S)
    whole.start_ns = total.start_ns = samples.START
    for share in range(8):
        part = Intervals(S)
        part.start_ns = samples.START
        for at in range(intervals.MAX_SAMPLES // 2):
            number = 1 + share + 8 * at
            unit = samples.unit(rtt_ms=float(number), copies=[Copy(number, samples.START, "original")])
            part.tell(unit)
            whole.tell(unit)
        total.add(part.sums())
    assert len(total.sums()[1][0, 0][0]) <= 2 * intervals.MAX_SAMPLES
    assert total.rows() == whole.rows()


def test_units_without_copies_are_passed_over() -> None:
    table = Intervals(S)
    table.tell(samples.unit(copies=[]))
    assert not any(row.units for row in table.rows())
