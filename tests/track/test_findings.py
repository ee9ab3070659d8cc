from __future__ import annotations

import pytest

from netdissect.model.annotations import Severity, code_rows
from netdissect.track.findings import MAX_CODES, Findings

ROWS = {row.code: row for row in code_rows("common")}


def test_repeats_are_reported_at_powers_of_ten() -> None:
    seen = []
    made = Findings(3, ROWS, seen.append)
    for frame in range(1, 1235):
        made.add("truncated", frame, frame, 0, f"in {frame}")
    assert [(a.frame, a.repeats) for a in seen] == [(1, 1), (10, 10), (100, 100), (1000, 1000)]
    assert made.by_severity[Severity.ERROR] == 1234
    assert {a.connection for a in seen} == {3}


def test_without_a_place_to_go_they_are_counted() -> None:
    made = Findings(1, ROWS, None)
    made.add("truncated", 1, 1, 0)
    assert made.by_severity == [0, 0, 0, 1]


def test_the_title_stands_where_no_message_is_given() -> None:
    seen = []
    Findings(1, ROWS, seen.append).add("sequence-jump", None, None, None)
    assert seen[0].message == next(r.title for r in code_rows("track") if r.code == "sequence-jump")


def test_a_code_without_a_row_is_a_fault_of_ours() -> None:
    with pytest.raises(KeyError):
        Findings(1, ROWS, None).add("no-such-code", 1, 1, 0)


def test_bound_of_codes() -> None:
    class Any(dict):
        def __missing__(self, key):
            return ROWS["truncated"]

    made = Findings(1, Any(), None)
    for number in range(2 * MAX_CODES):
        made.add(f"code-{number}", 1, 1, 0)
    assert len(made.repeats) <= MAX_CODES
    assert made.by_severity[Severity.ERROR] == 2 * MAX_CODES


def test_codes_are_named_once_and_explained() -> None:
    codes = [row.code for row in code_rows("track")]
    assert len(codes) == len(set(codes))
    assert all(len(row.meaning) > 40 for row in code_rows("track"))


def test_a_later_conclusion_has_both_times_and_is_told_apart() -> None:
    listed, late = [], []
    findings = Findings(1, {}, listed.append)
    findings.late = lambda *found: late.append(found)
    findings.add("retransmission", 7, 70, 0)
    findings.add("timeout", 9, 90, 1, concluded_ns=500)
    assert [(item.time_ns, item.concluded_ns) for item in listed] == [(70, 70), (90, 500)]
    assert late == [("timeout", Severity.WARN, 9)]


def test_codes_beyond_the_bound_are_told() -> None:
    class Any(dict):
        def __missing__(self, key):
            return ROWS["truncated"]

    made = Findings(1, Any(), None)
    for number in range(MAX_CODES + 7):
        made.add(f"code {number}", 1, 1, None if number % 2 else 1)
    assert made.limits() == {"MAX_CODES": 7}
