"""Records leave in order of time, when they are settled, too old, or too many."""

from __future__ import annotations

import sys

import pytest

from netdissect.pipeline.messages import reliability
from netdissect.track import recorder as module
from netdissect.track.pruning import Pruner
from netdissect.track.recorder import HOLD_NS, LINGER_NS, Recorder
from netdissect.track.retired import MAX_TYPES, TypeNames
from tracking import MS, space


def filled(numbers, acked):
    recorder = Recorder()
    made, _ = space(recorder.of(1))
    for number in numbers:
        made.unit(number, None, b"x", "Thing", number, number * MS)
    for number in acked:
        made.ack(number, 0, 100 + number, (100 + number) * MS)
    return recorder, made


def test_settled_records_leave_after_a_while() -> None:
    recorder, _ = filled((1, 2, 3), (1, 2, 3))
    assert not list(recorder.ready(200 * MS))
    left = list(recorder.ready(200 * MS + LINGER_NS))
    assert [record.seq for record in left] == [1, 2, 3]
    assert not list(recorder.rest())


def test_an_open_record_holds_back_those_behind_it() -> None:
    recorder, made = filled((1, 2, 3), (2, 3))
    assert not list(recorder.ready(300 * MS + LINGER_NS))
    left = list(recorder.ready(HOLD_NS + 10 * MS))
    assert [(record.seq, record.outcome) for record in left] == [
        (1, "unknown"),
        (2, "acked"),
        (3, "acked"),
    ]
    made.ack(1, 0, 500, HOLD_NS + 20 * MS)  # too late for its record, and no harm
    assert not list(recorder.rest())


def test_whoever_needs_no_order_gets_what_is_settled_behind_an_open_record() -> None:
    recorder, _ = filled((1, 2, 3), (2, 3))
    assert not recorder.settled(200 * MS)
    left = recorder.settled(300 * MS + LINGER_NS)
    assert [record.seq for record in left] == [2, 3]
    assert not recorder.settled(310 * MS + LINGER_NS)  # few wait, and it was looked just now
    left = recorder.settled(HOLD_NS + 10 * MS)
    assert [(record.seq, record.outcome) for record in left] == [(1, "unknown")]
    assert not list(recorder.rest())


def test_of_too_many_the_oldest_leave_in_any_order(monkeypatch) -> None:
    monkeypatch.setattr(module, "MAX_PENDING", 5)
    recorder, _ = filled(range(1, 9), (7,))
    assert [record.seq for record in recorder.settled(10 * MS)] == [1, 2, 3]
    assert [record.seq for record in recorder.rest()] == [4, 5, 6, 7, 8]


def test_late_copies_join_their_unit() -> None:
    recorder, made = filled((1, 2), (1, 2))
    made.unit(1, None, b"x", "Thing", 300, 300 * MS)
    first, _ = recorder.rest()
    assert [copy.frame for copy in first.copies] == [1, 300]


def test_copies_of_a_unit_that_has_left_have_a_record_of_their_own() -> None:
    recorder, made = filled((1, 2), (1, 2))
    assert len(list(recorder.ready(200 * MS + LINGER_NS))) == 2
    for at in (6000, 6001):
        made.unit(1, None, b"x", "Thing", at, at * MS)
    (further,) = recorder.rest()
    assert [(copy.frame, copy.kind) for copy in further.copies] == [
        (6000, "retransmission"),
        (6001, "duplicate"),
    ]
    assert (further.type, further.outcome, further.extra) == ("Thing", "acked", {"continued": 1})


def test_of_records_that_have_left_only_what_later_copies_need_is_kept() -> None:
    many = range(1, 1001)
    recorder, made = filled(many, many)
    assert len(list(recorder.ready(2_000 * MS + LINGER_NS))) == len(many)
    assert not made.recorder.records
    made.unit(990, None, b"x", "Thing", 9000, 9_000 * MS)
    (further,) = recorder.rest()
    assert (further.acked_frame, further.rtt_ms, further.type) == (1090, 100.0, "Thing")
    assert further.extra == {"continued": 990}


def test_a_space_without_records_keeps_no_memory_for_them() -> None:
    many = range(1, 1001)
    recorder, made = filled(many, many)
    list(recorder.ready(2_000 * MS + LINGER_NS))
    pruned, pruned_space = filled(many, many)
    Pruner().prune(pruned, 2_000, set())
    for records in (made.recorder.records, pruned_space.recorder.records):
        assert sys.getsizeof(records) == sys.getsizeof({})


@pytest.mark.parametrize("outcome", ["acked", "given_up"])
def test_a_copy_of_a_shelved_unit_finds_its_record_as_it_was(outcome: str) -> None:
    acked = (2, 3, 4) if outcome == "acked" else (3, 4)
    pruned, plain = (filled((1, 2, 3, 4), acked) for _ in range(2))
    for _, made in (pruned, plain):
        unit = made.store.outstanding.pop(2)
        if unit is not None:
            made.recorder.dropped(unit, outcome, lost=True)
            made.store.settle(2, unit)
    Pruner().prune(pruned[0], 4, set())
    assert [record.seq for record in pruned[0].pending] == [1, 4]  # open, and of a later frame
    for _, made in (pruned, plain):
        made.unit(2, None, b"x", "Thing", 300, 300 * MS)
    told = []
    for recorder, _ in (pruned, plain):
        record = next(item for item in recorder.rest() if item.seq == 2)
        shown = reliability(record, record.copies[1], reliable=True).values()
        told.append((*shown, record.outcome, record.lost, record.settled_ns))
    assert told[0] == told[1]
    assert told[0][-3] == outcome


def test_shelved_records_do_not_pile_up_behind_an_open_one() -> None:
    recorder, made = filled((1,), ())
    pruner = Pruner()
    for number in range(2, 3_000):
        made.unit(number, None, b"x", "Thing", number, number * MS)
        made.ack(number, 0, number, number * MS)
        if pruner.is_due(recorder):
            pruner.prune(recorder, number, set())
        assert len(recorder.pending) <= 130
    assert len(made.recorder.records) == len(made.recorder.unemitted) <= len(recorder.pending)


def test_records_of_kept_frames_are_not_shelved() -> None:
    recorder, made = filled(range(1, 6), range(1, 6))
    Pruner().prune(recorder, 100, {2, 4})
    assert [record.seq for record in recorder.pending] == [2, 4]
    made.unit(4, None, b"x", "Thing", 300, 300 * MS)
    assert len(recorder.pending) == 2  # it joins the record that was kept


def test_parts_of_a_run_that_have_left_are_not_remembered_as_one() -> None:
    recorder = Recorder(counted=True)
    made, _ = space(recorder.of(1))
    runs = made.recorder
    parts = runs.split(runs.run(made.context, 5, 5, 3, 1, MS))
    assert list(recorder.ready(HOLD_NS + MS)) == parts
    assert not runs._runs
    assert not runs.unemitted


def test_events_and_units_leave_in_order_of_time() -> None:
    recorder, _ = filled((1, 2), (1, 2))
    recorder.of(1).event("timeout", 1_500_000, None, 0, "between", {"a": 1})
    left = list(recorder.rest())
    assert [getattr(item, "event", None) for item in left] == [None, "timeout", None]


def test_bounds(monkeypatch) -> None:
    monkeypatch.setattr(module, "MAX_PENDING", 5)
    monkeypatch.setattr(module, "MAX_COPIES", 3)
    recorder, made = filled(range(1, 9), ())
    for at in range(6):
        made.unit(8, None, b"x", "Thing", 50 + at, (500 + 200 * at) * MS)
    assert [record.seq for record in recorder.ready(9_000 * MS)] == [1, 2, 3, 4, 5]
    left = list(recorder.rest())
    assert [len(record.copies) for record in left if record.seq == 8] == [3, 3, 1]
    assert [record.extra.get("continued") for record in left if record.seq == 8] == [None, 8, 8]


def test_gaps_are_events() -> None:
    recorder, _ = filled((1, 5, 6, 8), ())
    gaps = [item for item in recorder.rest() if hasattr(item, "event")]
    assert [(g.data["first_seq"], g.data["last_seq"]) for g in gaps] == [(2, 4), (7, 7)]
    assert gaps[1].text == "things 7 not seen"


def test_what_has_not_left_says_only_what_holds_where_the_capture_stands() -> None:
    """As though it had been known from the start where that is, however many units there are."""
    for sender, receiver in ((True, False), (False, True), (None, None), (True, True)):
        told = []
        for seemed in ((False, True), (True, False), (None, None)):
            recorder = Recorder()
            made, _ = space(recorder.of(1), memory=4)
            made.repeats.set_vantage(*seemed)
            for number in range(1, 40):
                made.unit(number, None, b"", "Thing", number, number * 100 * MS)
                made.unit(number, None, b"", "Thing", number, (number * 100 + 50) * MS)
            made.repeats.set_vantage(sender, receiver)
            told.append(
                [
                    (unit.delivered_order and receiver, copy.kind, copy.basis, copy.attempts_left)
                    for unit in recorder.rest()
                    for copy in unit.copies
                ]
            )
        for facts in zip(*told, strict=True):
            orders, kinds, bases, _ = zip(*facts, strict=True)
            assert len(set(kinds)) == len(set(bases)) == 1
            assert receiver or set(orders) == {None}
            assert sender is not False or {fact[3] for fact in facts} == {None}


def test_what_is_blocked_yields_nothing() -> None:
    recorder, made = filled((1, 2, 3), (2, 3))
    assert Recorder().blocked(0)
    for now_ns in (200 * MS, LINGER_NS, HOLD_NS, HOLD_NS + MS, HOLD_NS + 10 * MS):
        blocked = recorder.blocked(now_ns)
        assert blocked == (not list(recorder.ready(now_ns)))
        made.unit(now_ns // MS, None, b"x", "Thing", now_ns // MS, now_ns)


def test_nothing_is_recorded_that_nobody_looks_at() -> None:
    recorder = Recorder()
    recorder.events = False
    scribe = recorder.of(1)
    assert scribe.event("probe", 0, 1, 0, "ping 1").event == "probe"
    assert not list(recorder.rest())


def test_names_of_types_are_bounded() -> None:
    names = TypeNames()
    numbers = [names.number(f"type {number}") for number in range(MAX_TYPES + 9)]
    assert numbers == [*range(1, MAX_TYPES), *[0] * 10]
    assert names.name(numbers[0]) == "type 0"
    assert names.name(numbers[-1]) is None
    assert names.number("type 7") == 8
