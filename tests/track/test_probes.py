from __future__ import annotations

import pytest

from netdissect.model.policy import ProbeRule
from netdissect.track.findings import Findings
from netdissect.track.probes import MAX_OPEN_PROBES, ProbeTrack
from tracking import MS


def track(**changes):
    return ProbeTrack(ProbeRule("ping", **({"bits": 8, "interval_ms": 1000.0} | changes)), 0, Findings(1, {}, None))


def test_question_and_answer() -> None:
    made = track()
    assert made.ask(255, 0, 1)
    assert made.answer(255, 30 * MS) == 30 * MS
    assert made.ask(0, 1000 * MS, 1)
    assert made.answer(0, 1040 * MS) == 40 * MS
    report = made.report()
    assert (report.sent, report.answered, report.rtt.maximum) == (2, 2, 40.0)


def test_network_copies_count_once() -> None:
    made = track()
    made.ask(1, 0, 1)
    assert not made.ask(1, 3 * MS, 1)
    made.answer(1, 30 * MS)
    assert made.answer(1, 33 * MS) is None
    assert (made.sent, made.answered) == (1, 1)


def test_copies_of_questions_and_answers_show_a_network() -> None:
    for copy in (lambda made: made.ask(1, 3 * MS, 1), lambda made: made.answer(1, 33 * MS)):
        made = track()
        made.ask(1, 0, 1)
        made.answer(1, 30 * MS)
        assert not any(gaps.copied for gaps in made.findings.copy_gaps)
        copy(made)
        assert all(gaps.copied for gaps in made.findings.copy_gaps)


def test_a_number_that_never_changes_is_a_new_probe_each_time() -> None:
    made = track()
    for second in range(5):
        assert made.ask(1, second * 1000 * MS, 1)
        assert made.answer(1, second * 1000 * MS + MS) == MS
    assert made.report().answered == 5


@pytest.mark.parametrize("latest_only", [True, False])
def test_answers_to_older_probes(latest_only) -> None:
    made = track(latest_only=latest_only)
    made.ask(1, 0, 1)
    made.ask(2, 1000 * MS, 1)
    assert made.answer(1, 1100 * MS) == (None if latest_only else 1100 * MS)
    assert made.answered == 1


def test_probes_without_numbers_are_answered_in_order() -> None:
    made = track(bits=0)
    made.ask(0, 0, 1)
    made.ask(0, 10 * MS, 1)
    assert [made.answer(0, 20 * MS), made.answer(0, 25 * MS), made.answer(0, 30 * MS)] == [
        20 * MS,
        15 * MS,
        None,
    ]


def test_an_answer_before_its_question_is_no_sample() -> None:
    made = track()
    made.ask(1, 100 * MS, 1)
    assert made.answer(1, 50 * MS) is None
    assert made.answer(9, 60 * MS) is None
    assert made.rtt.samples == 0


def test_bound_of_open_probes() -> None:
    made = track()
    for number in range(3 * MAX_OPEN_PROBES):
        made.ask(number % 256, number * 1000 * MS, 1)
    assert len(made._open) <= MAX_OPEN_PROBES
    assert made.findings.limits() == {"MAX_OPEN_PROBES": 2 * MAX_OPEN_PROBES}


def test_a_timer_shows_in_probes_that_come_as_often_as_their_rule_says() -> None:
    made = track()
    for second in range(3):
        made.ask(second, second * 1000 * MS, 1)
    assert made.regular_ms() is None
    made.ask(3, 3100 * MS, 1)
    assert made.regular_ms() == 1000.0
    made.ask(4, 8000 * MS, 1)
    assert made.regular_ms() is None
    assert track(interval_ms=None).regular_ms() is None
